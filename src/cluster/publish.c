/* publish.c: PUBLISH reaches the subscribers of all nodes, SPUBLISH those of the shard.
 *
 * Each node delivers to its own subscribers; the bus takes the message to the others. So it is not in the stream of
 * replication, which would deliver it twice.
 *
 * The subscriptions to a shard channel end when its slot leaves the shard, since nobody publishes to it here any more:
 * the subscriber gets `sunsubscribe` as if it had asked for it. A failover moves thousands of slots, but within the
 * shard. The channels are searched once, at the end of the turn. */
#include "cluster/publish.h"
#include "cluster/options.h"
#include "cluster/slot_stats.h"
#include "cluster/this_node.h"
#include "pubsub/pubsub.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include <stdio.h>

static bool check_due, check_all;
static struct slot_bitmap left; /* slots that have left the shard since the last check */

/* Bytes of the push to one subscriber of a shard channel. */
static size_t push_size(struct slice channel, struct slice message) {
    int head = snprintf(NULL, 0, "*3\r\n$8\r\nsmessage\r\n$%zu\r\n\r\n$%zu\r\n\r\n", channel.len, message.len);
    return (size_t)head + channel.len + message.len;
}

void publish_send(struct slice channel, struct slice message, bool shard, size_t receivers) {
    if (shard && cluster_options.slot_stats)
        slot_stats_delivered(hash_slot(channel), receivers * push_size(channel, message));
    cluster_publish(this_cluster, channel, message, shard);
}

/* As in Valkey, a failover ends the channels of the slots, too: subscribers learn that they must look for the owner. */
static bool channel_ends(void *context, struct slice channel) {
    const struct slot_table *slots = &this_cluster->slots;
    unsigned slot = hash_slot(channel);
    if (slot_bitmap_has(&left, slot)) return true;
    if (!check_all) return false;
    return slots->owner[slot] != cluster_shard_primary(this_cluster) && !slots_importing_from(slots, slot);
}

static void before_wait(void) {
    if (__builtin_expect(!check_due, 1) || dispatch_running()) return;
    if (pubsub_channels(PUBSUB_SHARD)) pubsub_end_shard_channels(channel_ends, NULL);
    check_due = check_all = false;
    left = slot_bitmap_empty;
}
const struct server_part publish_part = {.name = "cluster-publish", .before_wait = before_wait};

static void slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    if (!from) return;
    slot_bitmap_set(&left, slot);
    check_due = true;
}
/* This node may have joined another shard. */
static void role_changed(void) {
    check_due = check_all = true;
}
static struct cluster_listener listener = {.slot_moved = slot_moved, .role_changed = role_changed};

void publish_start(void) {
    cluster_listen(&listener);
}
