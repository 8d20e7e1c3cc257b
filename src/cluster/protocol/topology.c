/* topology.c: which node serves which slot, and which primary a replica follows.
 *
 * As in the Redis Cluster specification ("last failover wins"), the table of slots is a register for each slot, with
 * the configuration epoch of its owner as the version. A primary claims its slots with its epoch in each message. A
 * node believes a claim if the slot has no owner, or if the owner's epoch is smaller; it answers an older claim with an
 * UPDATE, which has the newer one. If two primaries have the same epoch, the one with the smaller id takes a new one.
 *
 * A node that has lost its last slot follows the node that took it: so do the old primary of a failover, and its
 * replicas. */
#include "cluster/protocol/machine.h"

void follow_node(struct cluster *cluster, struct cluster_node *primary) {
    struct cluster_node *myself = cluster->myself;
    bool same_shard = nodes_share_shard(myself, primary);
    manual_reset(cluster);
    election_reset(cluster);
    node_drop_slots(cluster, myself);
    myself->flags &= ~(unsigned)(NODE_PRIMARY | NODE_MIGRATE_TO);
    myself->flags |= NODE_REPLICA;
    if (!same_shard) slots_close_all(&cluster->slots);
    node_change_primary(cluster, myself, primary);
    myself->shard = primary->shard;
    failure_primary_changed(cluster);
    changed_self(cluster);
    todo(cluster, TODO_STATE | TODO_BROADCAST);
    cluster->effects->follow(cluster->context, primary, same_shard);
}

static void say_new_source(struct cluster *cluster, unsigned slot, const struct cluster_node *source) {
    say_verbose(cluster,
                "Failover occurred in migration source. Update importing source for slot %u to node " NODE_FORMAT
                " in shard %.40s.",
                slot, NODE_TEXT(source), SHARD_TEXT(source));
}
static void say_new_sources(struct cluster *cluster, unsigned count, const struct cluster_node *source) {
    if (count)
        say_notice(cluster,
                   "A failover occurred in migration source. Update importing source of %u slot(s) to node " NODE_FORMAT
                   " in shard %.40s.",
                   count, NODE_TEXT(source), SHARD_TEXT(source));
}

/* Replaces a node that was demoted by its primary in the open slots that name it. */
static void reopen_slots(struct cluster *cluster, struct cluster_node *old, struct cluster_node *primary) {
    struct slot_table *slots = &cluster->slots;
    unsigned imported = 0, migrated = 0;
    for (unsigned slot = 0; slot < HASH_SLOTS && old->migrating_count + old->importing_count > 0; slot++) {
        if (slots_migrating_to(slots, slot) == old) {
            slots_set_migrating(slots, slot, primary);
            say_verbose(cluster,
                        "Failover occurred in migration target. Slot %u is now being migrated to node " NODE_FORMAT
                        " in shard %.40s.",
                        slot, NODE_TEXT(primary), SHARD_TEXT(primary));
            migrated++;
        }
        if (slots_importing_from(slots, slot) == old) {
            slots_set_importing(slots, slot, primary);
            say_new_source(cluster, slot, primary);
            imported++;
        }
    }
    say_new_sources(cluster, imported, primary);
    if (migrated)
        say_notice(cluster,
                   "A failover occurred in migration target. Update migrating target of %u slot(s) to node " NODE_FORMAT
                   " in shard %.40s.",
                   migrated, NODE_TEXT(primary), SHARD_TEXT(primary));
}

/* A run of slots that move between the same nodes, for one log line. */
struct slot_run {
    unsigned first, last;
    struct cluster_node *from;
};
static void log_run(struct cluster *cluster, struct slot_run *run, const struct cluster_node *to) {
    if (run->from && !nodes_share_shard(run->from, to))
        say_notice(cluster,
                   "Slot range [%u, %u] is migrated from node " NODE_FORMAT " in shard %.40s to node " NODE_FORMAT
                   " in shard %.40s.",
                   run->first, run->last, NODE_TEXT(run->from), SHARD_TEXT(run->from), NODE_TEXT(to), SHARD_TEXT(to));
    run->from = NULL;
}

/* Takes a slot whose import is open, because its source has stopped claiming it. Other nodes may know the source as the
 * owner, with an epoch that is larger than this node's, so this node claims it with a new one. */
static void stop_claiming(struct cluster *cluster, struct cluster_node *sender, unsigned slot) {
    if (slots_importing_from(&cluster->slots, slot) == sender && node_is_primary(cluster->myself)) {
        say_notice(cluster,
                   "Slot %u is no longer being imported from node " NODE_FORMAT
                   " in shard %.40s; Clear my importing source for the slot.",
                   slot, NODE_TEXT(sender), SHARD_TEXT(sender));
        slots_set_importing(&cluster->slots, slot, NULL);
        slot_assign(cluster, slot, cluster->myself);
        if (!epoch_stays(cluster)) bump_epoch_without_consensus(cluster);
    } else {
        slots_set_unclaimed(&cluster->slots, slot, true);
    }
}

/* True: the slot is imported from this node now. */
static bool close_moved_slot(struct cluster *cluster, unsigned slot, struct cluster_node *from,
                             struct cluster_node *to) {
    struct slot_table *slots = &cluster->slots;
    if (slots_migrating_to(slots, slot) && (!from || !nodes_share_shard(from, to))) {
        const struct cluster_node *target = slots_migrating_to(slots, slot);
        say_notice(cluster, "Slot %u is no longer being migrated to node " NODE_FORMAT " in shard %.40s.", slot,
                   NODE_TEXT(target), SHARD_TEXT(target));
        slots_set_migrating(slots, slot, NULL);
    }
    struct cluster_node *source = slots_importing_from(slots, slot);
    if (!source || source == to) return false;
    if (nodes_share_shard(source, to)) {
        slots_set_importing(slots, slot, to);
        say_new_source(cluster, slot, to);
        return true;
    }
    say_notice(cluster, "Slot %u is no longer being imported from node " NODE_FORMAT " in shard %.40s.", slot,
               NODE_TEXT(source), SHARD_TEXT(source));
    slots_set_importing(slots, slot, NULL);
    return false;
}

/* Valkey logs a line for each slot. That takes much longer than dropping the slots, and clients wait meanwhile. */
static void delete_dirty(struct cluster *cluster, const struct slot_bitmap *dirty) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(dirty, slot)) continue;
        unsigned first = slot;
        cluster->effects->delete_keys(cluster->context, slot);
        for (; slot + 1 < HASH_SLOTS && slot_bitmap_has(dirty, slot + 1); slot++)
            cluster->effects->delete_keys(cluster->context, slot + 1);
        if (first == slot)
            say_notice(cluster, "Deleting keys in dirty slot %u on node " NODE_FORMAT " in shard %.40s", slot,
                       NODE_TEXT(cluster->myself), SHARD_TEXT(cluster->myself));
        else
            say_notice(cluster, "Deleting keys in dirty slots %u-%u on node " NODE_FORMAT " in shard %.40s", first,
                       slot, NODE_TEXT(cluster->myself), SHARD_TEXT(cluster->myself));
    }
}

/* A slot that another node serves, as its own messages say. */
static bool is_elsewhere(const struct cluster *cluster, unsigned slot) {
    const struct cluster_node *owner = cluster->slots.owner[slot];
    return owner && owner != cluster->myself && node_is_primary(owner) && !node_failed(owner) &&
           !node_maybe_failed(owner) && !slot_bitmap_has(&cluster->slots.unclaimed, slot);
}

/* Deletes the keys of slots that are elsewhere. The primary that this node has replaced may have lost a slot and died
 * before its replicas deleted the keys. The table of owners may be out of date until this node has heard each other
 * node since the failover, or suspects it: it waits for that. */
void topology_strays_tick(struct cluster *cluster) {
    struct slot_bitmap dirty = {0};
    bool any = false, later = false;
    if (!cluster->strays_ms || cluster->now_ms < cluster->strays_ms) return;
    cluster->strays_ms = 0;
    if (node_is_replica(cluster->myself)) return;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (cluster->slots.owner[slot] == cluster->myself || slots_importing_from(&cluster->slots, slot) ||
            !cluster->effects->keys_in_slot(cluster->context, slot) || slot_arrives(cluster, slot) ||
            slot_leaves(cluster, slot)) /* the shard may get the slot back, with these keys */
            continue;
        if (is_elsewhere(cluster, slot)) {
            slot_bitmap_set(&dirty, slot);
            any = true;
        } else {
            later = true;
        }
    }
    if (any) delete_dirty(cluster, &dirty);
    if (later) cluster->strays_ms = cluster->now_ms + cluster->settings.node_timeout_ms;
}

static bool is_bound(const struct cluster *cluster) {
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    return facts.bound;
}

/* The primary of this node's shard, if the shard needs this node; else NULL. An old primary may hear first that another
 * node of its shard has taken the other slots, and then that its last slot is in another shard: it stays in its own. */
static struct cluster_node *bound_to(struct cluster *cluster) {
    if (!is_bound(cluster)) return NULL;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (node != cluster->myself && node_votes(node) && nodes_share_shard(node, cluster->myself)) return node;
    }
    return NULL;
}

/* The node was reset: the message has its new shard, which extensions_process() has not read yet. */
static bool has_left_shard(const struct cluster_node *node, const struct bus_message *message) {
    const struct node_id *shard = &message->extensions.shard;
    bool told = message->header.message_flags & BUS_EXTENSION_DATA && message->has_extensions;
    return told && !node_id_is_zero(shard) && !node_id_equal(shard, &node->shard);
}

/* Whether the node has replaced the primary of this node's shard, or this node as the primary. It need not show in the
 * slots: a successor does not claim those that were granted to another shard, so they stay with the old primary; and an
 * old primary without slots loses none. A replica may not know of a grant. Where the shard elects its primary, the
 * claim with the larger epoch is that of the one elected last. */
static bool is_successor(struct cluster *cluster, const struct cluster_node *node, uint64_t epoch) {
    const struct cluster_node *myself = cluster->myself, *old = cluster_shard_primary(cluster);
    if (!old || old == node || !nodes_share_shard(node, myself) || old->config_epoch >= epoch) return false;
    if (old == myself && election_is_without_mandate(cluster)) return true;
    if (old != myself && old->slot_count > 0 && node->slot_count > 0 && election_is_of_shard(cluster)) return true;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (cluster->slots.owner[slot] == old && !slot_leaves(cluster, slot)) return false;
    return true;
}

static void believe_slots(struct cluster *cluster, struct cluster_node *sender, uint64_t epoch,
                          const struct slot_bitmap *slots) {
    struct cluster_node *myself = cluster->myself, *own_primary = cluster_shard_primary(cluster);
    struct slot_bitmap dirty = {0};
    bool any_dirty = false, lost = false;
    struct slot_run run = {0};
    unsigned imported = 0;
    /* While a cluster forms, a node hears of a few slots of each other node: the others are not looked at. */
    struct slot_bitmap concerned = *node_slots(sender);
    for (unsigned i = 0; i < SLOT_BITMAP_SIZE; i++) concerned.bytes[i] |= slots->bytes[i];
    for (unsigned slot = 0; (slot = slot_bitmap_next(&concerned, slot, true)) < HASH_SLOTS; slot++) {
        struct cluster_node *owner = cluster->slots.owner[slot];
        if (slot != run.last + 1) log_run(cluster, &run, sender);
        if (!slot_bitmap_has(slots, slot)) {
            if (owner == sender) stop_claiming(cluster, sender, slot);
            log_run(cluster, &run, sender);
            continue;
        }
        if (owner == sender) {
            slots_set_unclaimed(&cluster->slots, slot, false);
            log_run(cluster, &run, sender);
            continue;
        }
        bool granted = owner && owner == cluster->myself && cluster->effects->slot_granted &&
                       cluster->effects->slot_granted(cluster->context, slot, sender, epoch);
        if (owner && !granted && !slot_bitmap_has(&cluster->slots.unclaimed, slot) && owner->config_epoch >= epoch) {
            log_run(cluster, &run, sender);
            continue;
        }
        if (owner == myself && cluster->effects->keys_in_slot(cluster->context, slot)) {
            slot_bitmap_set(&dirty, slot);
            any_dirty = true;
        }
        lost |= owner && owner == own_primary;
        imported += close_moved_slot(cluster, slot, owner, sender);
        slot_assign(cluster, slot, sender);
        if (run.from != owner) {
            log_run(cluster, &run, sender);
            run = (struct slot_run){.first = slot, .from = owner};
        }
        run.last = slot;
    }
    log_run(cluster, &run, sender);
    say_new_sources(cluster, imported, sender);
    if (lost && own_primary->slot_count == 0) {
        struct cluster_node *sibling = nodes_share_shard(sender, myself) ? NULL : bound_to(cluster);
        if (sibling) {
            follow_node(cluster, sibling);
            return;
        }
        if (cluster->settings.allow_replica_migration || nodes_share_shard(sender, myself)) {
            say_notice(cluster,
                       "Configuration change detected. Reconfiguring myself as a replica of node " NODE_FORMAT
                       " in shard %.40s",
                       NODE_TEXT(sender), SHARD_TEXT(sender));
            follow_node(cluster, sender);
            return;
        }
        if (own_primary == myself)
            say_notice(cluster,
                       "My last slot was migrated to node " NODE_FORMAT " in shard %.40s. I am now an empty primary.",
                       NODE_TEXT(sender), SHARD_TEXT(sender));
    }
    /* If a node of the same shard takes slots, the shard keeps their keys. This holds also if it leaves some slots to
     * this node because it has not heard of them: a takeover does not wait for the election of the shard. */
    if (!any_dirty || is_successor(cluster, sender, epoch)) return;
    if (!nodes_share_shard(sender, myself) || !is_bound(cluster)) delete_dirty(cluster, &dirty);
}

/* Makes a replica of a primary. False: the message is stale, because the sender sent it before it won the election of
 * its epoch. The message counts if the sender had seen a later epoch, although its primary has an older one: then it
 * has moved to the shard of that primary since. */
static bool demote(struct cluster *cluster, struct cluster_node *sender, struct cluster_node *primary,
                   const struct bus_header *header) {
    uint64_t epoch = header->config_epoch;
    bool older = epoch < sender->config_epoch;
    bool same_shard = primary && primary != sender && nodes_share_shard(primary, sender);
    if (same_shard && older && header->current_epoch <= sender->config_epoch) {
        say_notice(cluster,
                   "Ignore stale message from " NODE_FORMAT " in shard %.40s; gossip config epoch: %llu, current "
                   "config epoch: %llu",
                   NODE_TEXT(sender), SHARD_TEXT(sender), (unsigned long long)epoch,
                   (unsigned long long)sender->config_epoch);
        return false;
    }
    if (same_shard && !older) {
        if (primary == cluster->myself && !node_is_primary(primary)) return false; /* it was the primary once */
        /* The new primary's own message has not come yet. Its role counts now: primaries with slots are the quorum. */
        node_set_role_primary(cluster, primary);
        unsigned moved = 0;
        /* With synchronous replication this node knows the claims of its shard from the stream: this claim is older. */
        bool older_claims = primary == cluster->myself && election_is_of_shard(cluster);
        for (unsigned slot = 0; slot < HASH_SLOTS && sender->slot_count > 0; slot++) {
            if (cluster->slots.owner[slot] != sender) continue;
            bool leaves = primary == cluster->myself && slot_leaves(cluster, slot);
            slot_assign(cluster, slot, leaves || older_claims ? NULL : primary);
            /* The slot may have moved to another shard before, which claims it with a smaller epoch. */
            if (primary != cluster->myself) slots_set_unclaimed(&cluster->slots, slot, true);
            moved++;
        }
        /* Not without slots: with this epoch and none, this node would ignore the UPDATE that has them. */
        if (moved && primary != cluster->myself && primary->config_epoch < epoch) primary->config_epoch = epoch;
        if (moved)
            say_notice(cluster,
                       "A failover occurred in shard %.40s; node " NODE_FORMAT
                       " lost %u slot(s) and failed over to node " NODE_FORMAT " with a config epoch of %llu",
                       SHARD_TEXT(sender), NODE_TEXT(sender), moved, NODE_TEXT(primary), (unsigned long long)epoch);
        reopen_slots(cluster, sender, primary);
    } else {
        unsigned removed = node_drop_slots(cluster, sender);
        say_notice(cluster,
                   "Node " NODE_FORMAT " is no longer primary of shard %.40s; removed all %u slot(s) it used to own",
                   NODE_TEXT(sender), SHARD_TEXT(sender), removed);
    }
    sender->flags &= ~(unsigned)(NODE_PRIMARY | NODE_MIGRATE_TO);
    sender->flags |= NODE_REPLICA;
    changed_table(cluster);
    todo(cluster, TODO_STATE);
    return true;
}

/* Takes the role that the sender claims. False: the message is stale. */
static bool process_role(struct cluster *cluster, struct cluster_node *sender, const struct bus_header *header) {
    bool claims_primary = node_id_is_zero(&header->primary);
    if (claims_primary != node_is_primary(sender))
        say_debug(cluster, "node " NODE_FORMAT " announces that it is a %s in shard %.40s", NODE_TEXT(sender),
                  claims_primary ? "primary" : "replica", SHARD_TEXT(sender));
    if (claims_primary) {
        node_set_role_primary(cluster, sender);
        return true;
    }
    struct cluster_node *primary = sender->primary;
    if (!primary || !node_id_equal(&primary->id, &header->primary))
        primary = nodes_find(&cluster->nodes, &header->primary);
    if (primary == sender) primary = NULL;
    bool was_primary = node_is_primary(sender);
    if (was_primary && !demote(cluster, sender, primary, header)) return false;
    if (primary && sender->primary != primary) {
        if (!nodes_share_shard(sender, primary)) {
            sender->shard = primary->shard;
            if (was_primary)
                say_notice(cluster, "Node " NODE_FORMAT " is now part of shard %.40s", NODE_TEXT(sender),
                           SHARD_TEXT(sender));
        }
        node_change_primary(cluster, sender, primary);
        say_notice(cluster, "Node " NODE_FORMAT " is now a replica of node " NODE_FORMAT " in shard %.40s",
                   NODE_TEXT(sender), NODE_TEXT(primary), SHARD_TEXT(sender));
        changed_table(cluster);
    }
    return true;
}

/* The epoch is the only thing that decides between two claims: it must be unique. If it stays for now, the next message
 * of the sender shows the collision again. */
static void solve_collision(struct cluster *cluster, const struct cluster_node *sender, uint64_t epoch) {
    struct cluster_node *myself = cluster->myself;
    if (!node_is_primary(sender) || !node_is_primary(myself) || epoch != myself->config_epoch) return;
    if (memcmp(myself->id.text, sender->id.text, NODE_ID_LEN) >= 0 || epoch_stays(cluster)) return;
    cluster->current_epoch++;
    myself->config_epoch = cluster->current_epoch;
    changed_self(cluster);
    say_notice(cluster, "configEpoch collision with node " NODE_FORMAT ". configEpoch set to %llu", NODE_TEXT(sender),
               (unsigned long long)myself->config_epoch);
}

void topology_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    if (!process_role(cluster, sender, header)) return;
    struct cluster_node *claimant = node_is_primary(sender) ? sender : sender->primary;
    const struct slot_bitmap *slots = header->slots ? header->slots : &slot_bitmap_empty;
    if (claimant == sender && !sender->claim_heard) sender->claim_heard = true;
    bool differs = claimant && !repeat_slots_are_of(cluster, slots, claimant);
    if (differs) {
        /* Not from a replica of this node: it has the slots from this node. */
        if (claimant != cluster->myself)
            say_notice(cluster, "Mismatch in topology information for sender node " NODE_FORMAT " in shard %.40s",
                       NODE_TEXT(sender), SHARD_TEXT(sender));
        if (claimant == sender) believe_slots(cluster, sender, header->config_epoch, slots);
        for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++) {
            struct cluster_node *owner = cluster->slots.owner[slot];
            if (!owner || owner == claimant || owner == sender || owner->config_epoch <= header->config_epoch) continue;
            if (slot_bitmap_has(&cluster->slots.unclaimed, slot)) continue;
            /* nodes.conf does not say which slots are unclaimed. */
            if (owner != cluster->myself && !owner->claim_heard) continue;
            send_update(cluster, sender, owner);
            break;
        }
    }
    if (claimant == sender && !has_left_shard(sender, message) && is_successor(cluster, sender, header->config_epoch)) {
        say_notice(cluster, "Node " NODE_FORMAT " has replaced the primary of shard %.40s. Following it",
                   NODE_TEXT(sender), SHARD_TEXT(sender));
        follow_node(cluster, sender);
        return;
    }
    if (claimant == sender && !differs) {
        sender->beat->agreed_offset = header->offset;
        sender->beat->agreed++;
        /* The slots that an older message, which came late, did not have. */
        const struct slot_bitmap *unclaimed = &cluster->slots.unclaimed;
        for (unsigned slot = 0; cluster->slots.unclaimed_count > 0; slot++) {
            if ((slot = slot_bitmap_next(unclaimed, slot, true)) == HASH_SLOTS) break;
            if (slot_bitmap_has(slots, slot)) slots_set_unclaimed(&cluster->slots, slot, false);
        }
    }
    solve_collision(cluster, sender, header->config_epoch);
}

void topology_receive_update(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    struct cluster_node *node = nodes_find(&cluster->nodes, &message->node);
    if (!node || node == cluster->myself || node_in_handshake(node) || node->config_epoch >= message->node_epoch)
        return;
    say_notice(cluster,
               "Processing UPDATE message received from " NODE_FORMAT " in shard %.40s about node " NODE_FORMAT
               " in shard %.40s. old configEpoch %llu, new configEpoch %llu",
               NODE_TEXT(sender), SHARD_TEXT(sender), NODE_TEXT(node), SHARD_TEXT(node),
               (unsigned long long)node->config_epoch, (unsigned long long)message->node_epoch);
    node_set_role_primary(cluster, node);
    node->config_epoch = message->node_epoch;
    node->claim_heard = true;
    changed_table(cluster);
    election_see_epoch(cluster, node);
    believe_slots(cluster, node, node->config_epoch, message->node_slots);
}

/* A replica is in the shard of its primary, and its primary is no replica: no failover reaches the end of a chain. */
void topology_guard(struct cluster *cluster) {
    struct cluster_node *primary = cluster->myself->primary;
    if (primary && node_is_primary(primary) && !nodes_share_shard(cluster->myself, primary)) {
        cluster->myself->shard = primary->shard; /* it has moved while this node did not know it as a primary */
        changed_self(cluster);
    }
    if (!primary || !node_is_replica(primary) || !primary->primary || primary->primary == cluster->myself ||
        !node_is_primary(primary->primary))
        return;
    say_notice(cluster, "I'm a sub-replica! Reconfiguring myself as a replica of %.40s from %.40s",
               primary->primary->id.text, primary->id.text);
    follow_node(cluster, primary->primary);
}
