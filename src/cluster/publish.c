/* publish.c: PUBLISH reaches the subscribers of all nodes, SPUBLISH those of the shard.
 *
 * Each node delivers to its own subscribers; the bus takes the message to the others. So it is not in the stream of
 * replication, which would deliver it twice.
 *
 * A message leaves by the bus when the writes before it are safe (reply_barrier.h).
 *
 * The subscriptions to a shard channel end when its slot leaves the shard, since nobody publishes to it here any more:
 * the subscriber gets `sunsubscribe` as if it had asked for it. A failover moves thousands of slots, but within the
 * shard. The channels are searched once, at the end of the turn. */
#include "cluster/publish.h"
#include "cluster/options.h"
#include "cluster/slot_stats.h"
#include "cluster/this_node.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "pubsub/pubsub.h"
#include "server/clients/reply_barrier.h"
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

/* --- Messages that wait --- */

struct delayed {
    struct barrier_waiter waiter; /* must be first */
    bool shard;
    size_t channel_len, message_len;
    char bytes[]; /* of the channel, then of the message */
};
enum { DELAYED_MAX = 64 * 1024 * 1024 };
static size_t delayed_size;

static void delay_ended(struct barrier_waiter *waiter, bool shown) {
    struct delayed *delayed = (struct delayed *)waiter;
    struct slice channel = {delayed->bytes, delayed->channel_len},
                 message = {delayed->bytes + delayed->channel_len, delayed->message_len};
    if (shown) cluster_publish(this_cluster, channel, message, delayed->shard);
    delayed_size -= sizeof *delayed + channel.len + message.len;
    mem_free(delayed);
}

/* The bus takes a message when subscribers of this server may have it, too: it may tell of a write that is not safe
 * yet. As with a subscriber that does not read, there is an end to what is kept. */
static void delay(struct slice channel, struct slice message, bool shard) {
    static struct log_limit limit = {.interval_us = 10 * 1000000};
    size_t size = sizeof(struct delayed) + channel.len + message.len;
    struct delayed *delayed = delayed_size + size > DELAYED_MAX ? NULL : mem_try_alloc(size);
    if (!delayed) {
        log_limited(&limit, LOG_LEVEL_WARNING,
                    "Messages for other nodes are dropped: too many wait until the writes before them are safe");
        return;
    }
    *delayed = (struct delayed){
        .waiter.ended = delay_ended, .shard = shard, .channel_len = channel.len, .message_len = message.len};
    if (channel.len) memcpy(delayed->bytes, channel.data, channel.len);
    if (message.len) memcpy(delayed->bytes + channel.len, message.data, message.len);
    delayed_size += size;
    reply_barrier_when_shown(&delayed->waiter);
}

void publish_send(struct slice channel, struct slice message, bool shard, size_t receivers) {
    if (shard && cluster_options.slot_stats)
        slot_stats_delivered(hash_slot(channel), receivers * push_size(channel, message));
    if (!__builtin_expect(reply_barrier_armed, 0) || (!dispatch_is_nested() && reply_barrier_shows_now()))
        cluster_publish(this_cluster, channel, message, shard);
    else
        delay(channel, message, shard);
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
