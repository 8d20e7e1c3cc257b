/* ownership.c: changes of the owner of a slot, of epochs, of roles and of shards, as topology.c and others decide. */
#include "cluster/protocol/machine.h"

static bool other_primaries_have_replicas(const struct cluster *cluster, const struct cluster_node *node) {
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *other = cluster->nodes.list[i];
        if (other != node && node_votes(other) && other->replica_count) return true;
    }
    return false;
}

void slot_assign(struct cluster *cluster, unsigned slot, struct cluster_node *owner) {
    struct cluster_node *old = cluster->slots.owner[slot];
    if (old == owner) return;
    slots_assign(&cluster->slots, slot, owner);
    /* A primary that starts to serve where others have replicas may get one, too: replica_migration.c. */
    if (owner && owner->slot_count == 1 && other_primaries_have_replicas(cluster, owner))
        owner->flags |= NODE_MIGRATE_TO;
    if (old == cluster->myself || owner == cluster->myself)
        changed_self(cluster);
    else
        changed_table(cluster);
    todo(cluster, TODO_STATE);
    cluster->effects->slot_moved(cluster->context, slot, old, owner);
}

bool slot_arrives(const struct cluster *cluster, unsigned slot) {
    return cluster->effects->slot_arrives && cluster->effects->slot_arrives(cluster->context, slot);
}
bool slot_leaves(const struct cluster *cluster, unsigned slot) {
    return cluster->effects->slot_leaves && cluster->effects->slot_leaves(cluster->context, slot);
}

bool epoch_stays(const struct cluster *cluster) {
    return cluster->effects->epoch_stays && cluster->effects->epoch_stays(cluster->context);
}

unsigned node_drop_slots(struct cluster *cluster, struct cluster_node *node) {
    unsigned count = 0;
    for (unsigned slot = 0; slot < HASH_SLOTS && node->slot_count > 0; slot++) {
        if (cluster->slots.owner[slot] != node) continue;
        slot_assign(cluster, slot, NULL);
        count++;
    }
    return count;
}

uint64_t max_config_epoch(const struct cluster *cluster) {
    uint64_t max = cluster->current_epoch;
    for (size_t i = 0; i < cluster->nodes.count; i++)
        if (cluster->nodes.list[i]->config_epoch > max) max = cluster->nodes.list[i]->config_epoch;
    return max;
}

void raise_epoch(struct cluster *cluster) {
    cluster->current_epoch = max_config_epoch(cluster) + 1;
    cluster->myself->config_epoch = cluster->current_epoch;
    changed_self(cluster);
    say_notice(cluster, "New configEpoch set to %llu", (unsigned long long)cluster->myself->config_epoch);
}

bool bump_epoch_without_consensus(struct cluster *cluster) {
    uint64_t epoch = cluster->myself->config_epoch;
    if (epoch != 0 && epoch == max_config_epoch(cluster)) return false;
    raise_epoch(cluster);
    return true;
}

static void move_shard_of_replicas(struct cluster *cluster, struct cluster_node *primary) {
    for (size_t i = 0; i < primary->replica_count; i++) {
        struct cluster_node *replica = primary->replicas[i];
        if (nodes_share_shard(replica, primary)) continue;
        replica->shard = primary->shard;
        if (replica == cluster->myself) changed_self(cluster);
    }
}

void node_move_to_shard(struct cluster *cluster, struct cluster_node *node, const struct node_id *shard) {
    struct cluster_node *primary = node_is_replica(node) ? node->primary : NULL;
    node->shard_heard = true;
    if (node_id_equal(&node->shard, shard)) return;
    if (primary && primary != cluster->myself && !primary->shard_heard) { /* known from gossip, maybe dead */
        primary->shard = *shard;
        move_shard_of_replicas(cluster, primary);
    } else if (primary && !node_id_equal(&primary->shard, shard)) {
        say_notice(cluster,
                   "Shard id %.40s update request for node id %.40s diverges from existing primary shard id %.40s, "
                   "rejecting!",
                   shard->text, node->id.text, primary->shard.text);
        return;
    }
    node->shard = *shard;
    changed_table(cluster);
    if (node_is_primary(node)) move_shard_of_replicas(cluster, node);
}

void node_change_primary(struct cluster *cluster, struct cluster_node *node, struct cluster_node *primary) {
    struct cluster_node *old = node->primary;
    node_set_primary(node, primary);
    /* A primary whose last replica was taken away on purpose is no orphan. */
    if (old && old->replica_count == 0) old->flags &= ~(unsigned)NODE_MIGRATE_TO;
    if (primary) primary->flags |= NODE_MIGRATE_TO;
}

void move_to_new_shard(struct cluster *cluster) {
    struct cluster_node *myself = cluster->myself;
    random_id(cluster, &myself->shard);
    say_notice(cluster, "Moving myself to a new shard %.40s.", SHARD_TEXT(myself));
    changed_self(cluster);
}

void node_set_role_primary(struct cluster *cluster, struct cluster_node *node) {
    if (node_is_primary(node)) return;
    say_notice(cluster, "Reconfiguring node " NODE_FORMAT " as primary for shard %.40s", NODE_TEXT(node),
               SHARD_TEXT(node));
    node_change_primary(cluster, node, NULL);
    node->flags &= ~(unsigned)(NODE_REPLICA | NODE_PRIMARY_FAILED);
    node->flags |= NODE_PRIMARY;
    if (node == cluster->myself) {
        changed_self(cluster);
    } else {
        node->flags |= NODE_MIGRATE_TO;
        changed_table(cluster);
    }
    todo(cluster, TODO_STATE);
}
