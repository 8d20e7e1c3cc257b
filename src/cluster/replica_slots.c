/* replica_slots.c: see replica_slots.h. When a slot arrives, it and all that have arrived before wait for the next
 * message of the primary with this slot: a message comes within a second, and slots come in groups. A message without
 * the slot does not count: it may be older, because two nodes have two links. */
#include "cluster/replica_slots.h"
#include "cluster/this_node.h"
#include "repl/quorum/quorum.h"
#include "server/role.h"
#include <string.h>

static struct slot_bitmap arrived;
static bool any, all = true;  /* some slots are behind; all are, because this server has joined a shard */
static bool knows_offset;     /* `offset` is from a message after the last slot had arrived */
static uint64_t offset;       /* up to which the stream must be applied */
static struct node_id shard;  /* whose data this server has, or copies */
static struct node_id teller; /* the primary whose next message is awaited; `told`: how many it has sent */
static uint64_t told;

static void wait_for(const struct cluster_node *primary) {
    knows_offset = false;
    teller = primary->id;
    told = primary->beat->agreed;
}

static bool has_caught_up(void) {
    const struct cluster_node *primary = this_cluster->myself->primary;
    if (!primary || !primary->beat || !quorum_has_joined()) return false;
    if (!node_id_equal(&primary->id, &teller)) wait_for(primary);
    if (!knows_offset) {
        if (primary->beat->agreed == told) return false;
        offset = primary->beat->agreed_offset;
        knows_offset = true;
    }
    return (uint64_t)role->position.offset >= offset;
}

/* From the next message of the primary on: the one that is being read may be older than the slot. */
static void wait_for_stream(void) {
    knows_offset = false;
    memset(&teller, 0, sizeof teller);
    const struct cluster_node *primary = this_cluster->myself->primary;
    if (primary && primary->beat) wait_for(primary);
}

bool replica_slot_is_behind(unsigned slot) {
    if (!quorum_on || !(all || (any && slot_bitmap_has(&arrived, slot)))) return false;
    if (!has_caught_up()) return true;
    all = any = false;
    arrived = slot_bitmap_empty;
    return false;
}

static bool is_of_shard(const struct cluster_node *node) {
    return node_id_equal(&node->shard, &this_cluster->myself->shard);
}

static void slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    if (!quorum_on || !node_is_replica(this_cluster->myself) || !from || !to || from == to) return;
    if (is_of_shard(from) || !is_of_shard(to)) return;
    slot_bitmap_set(&arrived, slot);
    any = true;
    wait_for_stream();
}

static void role_changed(void) {
    if (node_id_equal(&shard, &this_cluster->myself->shard)) return;
    shard = this_cluster->myself->shard;
    all = true;
    wait_for_stream();
}
static struct cluster_listener listener = {.slot_moved = slot_moved, .role_changed = role_changed};

void replica_slots_start(void) {
    shard = this_cluster->myself->shard;
    wait_for_stream();
    cluster_listen(&listener);
}
