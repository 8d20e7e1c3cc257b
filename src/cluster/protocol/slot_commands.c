/* slot_commands.c: the commands that change slots, epochs and roles by hand. */
#include "cluster/protocol/machine.h"
#include <stdarg.h>
#include <stdio.h>

static const char *error(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *error(struct cluster *cluster, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cluster->error, sizeof cluster->error, format, arguments);
    va_end(arguments);
    return cluster->error;
}

const char *cluster_add_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms) {
    cluster->now_ms = now_ms;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(slots, slot) && cluster->slots.owner[slot])
            return error(cluster, "Slot %u is already busy", slot);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(slots, slot)) continue;
        slots_set_importing(&cluster->slots, slot, NULL);
        slot_assign(cluster, slot, cluster->myself);
    }
    return NULL;
}

const char *cluster_delete_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms) {
    cluster->now_ms = now_ms;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(slots, slot) && !cluster->slots.owner[slot])
            return error(cluster, "Slot %u is already unassigned", slot);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(slots, slot)) continue;
        if (slots_importing_from(&cluster->slots, slot)) changed_self(cluster);
        slots_set_importing(&cluster->slots, slot, NULL);
        slot_assign(cluster, slot, NULL);
    }
    return NULL;
}

static struct cluster_node *find_member(struct cluster *cluster, const struct node_id *id) {
    struct cluster_node *node = nodes_find(&cluster->nodes, id);
    return node && !node_in_handshake(node) ? node : NULL;
}

static struct cluster_node *find_member_text(struct cluster *cluster, struct slice text) {
    struct node_id id;
    if (text.len != sizeof(id.text)) return NULL;
    memcpy(id.text, text.data, sizeof(id.text));
    return find_member(cluster, &id);
}

static const char *check_open_slot(struct cluster *cluster, struct slice text) {
    const struct cluster_node *node = find_member_text(cluster, text);
    if (!node) return error(cluster, "I don't know about node %.*s", (int)(text.len < 64 ? text.len : 64), text.data);
    if (node == cluster->myself) return "Target node is myself";
    return node_is_primary(node) ? NULL : "Target node is not a master";
}

const char *cluster_check_slot_change(struct cluster *cluster, enum slot_change change, unsigned slot,
                                      struct slice node) {
    const struct cluster_node *owner = cluster->slots.owner[slot], *target;
    bool own = owner && owner == cluster_shard_primary(cluster);
    switch (change) {
    case SLOT_MIGRATING:
        return own ? check_open_slot(cluster, node) : error(cluster, "I'm not the owner of hash slot %u", slot);
    case SLOT_IMPORTING:
        return own ? error(cluster, "I'm already the owner of hash slot %u", slot) : check_open_slot(cluster, node);
    case SLOT_NODE:
        target = find_member_text(cluster, node);
        if (!target) return error(cluster, "Unknown node %.*s", (int)(node.len < 64 ? node.len : 64), node.data);
        if (!node_is_primary(target)) return "Target node is not a master";
        if (owner == cluster->myself && target != owner && cluster->effects->keys_in_slot(cluster->context, slot))
            return error(cluster,
                         "Can't assign hashslot %u to a different node while I still hold keys for this hash slot.",
                         slot);
        return NULL;
    default: return NULL;
    }
}

static struct slice id_text(const struct node_id *id) {
    return (struct slice){id->text, sizeof(id->text)};
}

const char *cluster_set_slot_migrating(struct cluster *cluster, unsigned slot, const struct node_id *target,
                                       int64_t now_ms) {
    cluster->now_ms = now_ms;
    const char *refused = cluster_check_slot_change(cluster, SLOT_MIGRATING, slot, id_text(target));
    if (refused) return refused;
    struct cluster_node *node = find_member(cluster, target);
    slots_set_migrating(&cluster->slots, slot, node);
    say_notice(cluster, "Migrating slot %u to node " NODE_FORMAT, slot, NODE_TEXT(node));
    changed_self(cluster);
    return NULL;
}

const char *cluster_set_slot_importing(struct cluster *cluster, unsigned slot, const struct node_id *source,
                                       int64_t now_ms) {
    cluster->now_ms = now_ms;
    const char *refused = cluster_check_slot_change(cluster, SLOT_IMPORTING, slot, id_text(source));
    if (refused) return refused;
    struct cluster_node *node = find_member(cluster, source);
    slots_set_importing(&cluster->slots, slot, node);
    say_notice(cluster, "Importing slot %u from node " NODE_FORMAT, slot, NODE_TEXT(node));
    changed_self(cluster);
    return NULL;
}

void cluster_set_slot_stable(struct cluster *cluster, unsigned slot, int64_t now_ms) {
    cluster->now_ms = now_ms;
    slots_set_migrating(&cluster->slots, slot, NULL);
    slots_set_importing(&cluster->slots, slot, NULL);
    say_notice(cluster, "Marking slot %u stable", slot);
    changed_self(cluster);
}

const char *cluster_set_slot_node(struct cluster *cluster, unsigned slot, const struct node_id *owner, int64_t now_ms) {
    cluster->now_ms = now_ms;
    const char *refused = cluster_check_slot_change(cluster, SLOT_NODE, slot, id_text(owner));
    if (refused) return refused;
    struct cluster_node *myself = cluster->myself, *node = find_member(cluster, owner);
    struct cluster_node *old = cluster->slots.owner[slot];
    size_t keys = cluster->effects->keys_in_slot(cluster->context, slot);
    say_notice(cluster, "Assigning slot %u to node " NODE_FORMAT " in shard %.40s", slot, NODE_TEXT(node),
               SHARD_TEXT(node));
    if (!keys) slots_set_migrating(&cluster->slots, slot, NULL);
    struct cluster_node *own_primary = cluster_shard_primary(cluster);
    bool last = old && old == own_primary && old != node && old->slot_count == 1;
    /* Subscribers of its channels look for the owner again, also if it is the same. */
    if (node == old) cluster->effects->slot_moved(cluster->context, slot, old, node);
    slot_assign(cluster, slot, node);
    if (node == own_primary && slots_importing_from(&cluster->slots, slot)) {
        /* The end of an import: a larger epoch makes everybody believe it, the source, too. */
        if (node == myself && bump_epoch_without_consensus(cluster))
            say_notice(cluster, "ConfigEpoch updated after importing slot %u", slot);
        slots_set_importing(&cluster->slots, slot, NULL);
        if (node == myself) todo(cluster, TODO_BROADCAST);
    }
    if (last && cluster->settings.allow_replica_migration) {
        say_notice(cluster,
                   "Lost my last slot during slot migration. Reconfiguring myself as a replica of " NODE_FORMAT
                   " in shard %.40s",
                   NODE_TEXT(node), SHARD_TEXT(node));
        follow_node(cluster, node);
    }
    changed_self(cluster);
    return NULL;
}

void cluster_take_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms) {
    cluster->now_ms = now_ms;
    raise_epoch(cluster); /* also the largest: it tells this claim from an older one that comes late */
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(slots, slot)) slot_assign(cluster, slot, cluster->myself);
    state_update(cluster);
    save(cluster, true);
    todo(cluster, TODO_BROADCAST);
}

void cluster_hear_claim(struct cluster *cluster, struct cluster_node *primary, const struct slot_bitmap *slots,
                        uint64_t epoch, int64_t now_ms) {
    bool changed = false;
    cluster->now_ms = now_ms;
    if (primary->config_epoch < epoch) node_set_role_primary(cluster, primary); /* it has replaced its own primary */
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        if (!slot_bitmap_has(slots, slot) || owner == primary) continue;
        if (owner && !slot_bitmap_has(&cluster->slots.unclaimed, slot) && owner->config_epoch >= epoch) continue;
        slot_assign(cluster, slot, primary);
        /* Since this claim the slot may have gone on to another shard, whose epoch is smaller than this one. */
        if (primary != cluster->myself && epoch < primary->config_epoch)
            slots_set_unclaimed(&cluster->slots, slot, true);
        changed = true;
    }
    if (!changed) return;
    bool later = primary->config_epoch < epoch;
    if (cluster->current_epoch < epoch) cluster->current_epoch = epoch;
    if (later && primary == cluster->myself) {
        raise_epoch(cluster); /* its own claims are on its disk: another primary of this shard has that epoch */
    } else if (later) {
        /* It had claimed its other slots with the smaller epoch, and may have lost some of them since. */
        for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
            if (cluster->slots.owner[slot] == primary && !slot_bitmap_has(slots, slot))
                slots_set_unclaimed(&cluster->slots, slot, true);
        primary->config_epoch = epoch;
    }
    state_update(cluster);
    save(cluster, true);
    if (primary == cluster->myself) todo(cluster, TODO_BROADCAST);
}

void cluster_see_epoch(struct cluster *cluster, uint64_t epoch, int64_t now_ms) {
    cluster->now_ms = now_ms;
    if (epoch <= cluster->current_epoch) return;
    cluster->current_epoch = epoch;
    changed_self(cluster);
}

void cluster_give_up_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms) {
    cluster->now_ms = now_ms;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(slots, slot) && cluster_serves(cluster, slot)) slot_assign(cluster, slot, NULL);
    state_update(cluster);
    save(cluster, true);
    todo(cluster, TODO_BROADCAST);
}

bool cluster_bump_epoch(struct cluster *cluster, int64_t now_ms) {
    cluster->now_ms = now_ms;
    bool bumped = !epoch_stays(cluster) && bump_epoch_without_consensus(cluster);
    if (bumped) todo(cluster, TODO_BROADCAST);
    return bumped;
}

const char *cluster_set_config_epoch(struct cluster *cluster, int64_t epoch, int64_t now_ms) {
    cluster->now_ms = now_ms;
    if (epoch < 0) return error(cluster, "Invalid config epoch specified: %lld", (long long)epoch);
    if (cluster->nodes.count > 1)
        return "The user can assign a config epoch only when the node does not know any other node.";
    if (cluster->myself->config_epoch) return "Node config epoch is already non-zero";
    cluster->myself->config_epoch = (uint64_t)epoch;
    if (cluster->current_epoch < cluster->myself->config_epoch) cluster->current_epoch = cluster->myself->config_epoch;
    say_notice(cluster, "configEpoch set to %llu via CLUSTER SET-CONFIG-EPOCH",
               (unsigned long long)cluster->myself->config_epoch);
    changed_self(cluster);
    return NULL;
}

const char *cluster_replicate(struct cluster *cluster, const struct node_id *id, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *myself = cluster->myself, *node = find_member(cluster, id);
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    if (!node) return error(cluster, "Unknown node %.40s", id->text);
    if (node == myself) return "Can't replicate myself";
    if (!node_is_primary(node)) return "I can only replicate a master, not a replica.";
    if (node_is_primary(myself) && (myself->slot_count || facts.has_keys))
        return "To set a master the node must be empty and without assigned slots.";
    if (myself->primary == node) return NULL;
    follow_node(cluster, node);
    return NULL;
}

const char *cluster_replicate_no_one(struct cluster *cluster, const char *who, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *myself = cluster->myself;
    if (node_is_primary(myself)) return NULL;
    say_notice(cluster, "Stop replication and turning myself into empty primary (%s).", who);
    election_reset(cluster);
    manual_reset(cluster);
    node_set_role_primary(cluster, myself);
    slots_close_all(&cluster->slots);
    cluster->effects->lead(cluster->context, false);
    cluster->effects->drop_data(cluster->context);
    move_to_new_shard(cluster);
    todo(cluster, TODO_BROADCAST);
    return NULL;
}

void cluster_check_data(struct cluster *cluster, int64_t now_ms) {
    cluster->now_ms = now_ms;
    if (node_is_replica(cluster->myself)) return;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        struct cluster_node *owner = cluster->slots.owner[slot];
        if (owner == cluster->myself || slots_importing_from(&cluster->slots, slot) || slot_arrives(cluster, slot) ||
            slot_leaves(cluster, slot) || !cluster->effects->keys_in_slot(cluster->context, slot))
            continue;
        if (owner) {
            say_notice(cluster,
                       "I have keys for slot %u, but the slot is assigned to another node. Deleting keys in the slot.",
                       slot);
            cluster->effects->delete_keys(cluster->context, slot);
        } else {
            say_notice(cluster, "I have keys for unassigned slot %u. Taking responsibility for it.", slot);
            slot_assign(cluster, slot, cluster->myself);
        }
    }
}
