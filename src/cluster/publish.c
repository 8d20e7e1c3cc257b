/* publish.c: PUBLISH reaches the subscribers of all nodes, SPUBLISH those of the shard.
 *
 * Each node delivers to its own subscribers; the bus carries the message to the other nodes. So it is not in the
 * replication stream, which would deliver it twice.
 *
 * A message leaves by the bus when the writes before it are safe (reply_barrier.h).
 *
 * The subscriptions to a shard channel end when its slot leaves the shard, since clients publish to it elsewhere then:
 * the subscriber gets `sunsubscribe` as if it had asked for it. A failover moves thousands of slots, but within the
 * shard. The channels are searched once, at the end of the turn. */
#include "cluster/publish.h"
#include "cluster/settings.h"
#include "cluster/slot_stats.h"
#include "cluster/this_node.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "pubsub/pubsub.h"
#include "server/clients/reply_barrier.h"
#include "server/cluster_hooks.h"
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

/* A message that a client has published, or that a module sends. */
struct outgoing {
    bool of_module, shard;
    bool to_all; /* of a module; else to `node` */
    struct node_id node;
    uint64_t module;
    uint8_t type;
    struct slice channel, text;
};
static void send_now(const struct outgoing *message) {
    if (!message->of_module) {
        cluster_publish(this_cluster, message->channel, message->text, message->shard);
        return;
    }
    const struct cluster_node *to = message->to_all ? NULL : nodes_find(&this_cluster->nodes, &message->node);
    if (to || message->to_all) cluster_send_module(this_cluster, to, message->module, message->type, message->text);
}

struct delayed {
    struct barrier_waiter waiter; /* must be first */
    struct outgoing message;
    char bytes[]; /* of the channel, then of the text */
};
enum { DELAYED_MAX = 64 * 1024 * 1024 };
static size_t delayed_size;

static void delay_ended(struct barrier_waiter *waiter, bool shown) {
    struct delayed *delayed = (struct delayed *)waiter;
    if (shown) send_now(&delayed->message);
    delayed_size -= sizeof *delayed + delayed->message.channel.len + delayed->message.text.len;
    mem_free(delayed);
}

/* The bus sends a message when the subscribers of this server may get it: it may be about a write that is not safe yet.
 * The memory for waiting messages is limited, as for a subscriber that does not read. */
static void delay(const struct outgoing *message) {
    static struct log_limit limit = {.interval_us = 10 * 1000000};
    struct slice channel = message->channel, text = message->text;
    size_t size = sizeof(struct delayed) + channel.len + text.len;
    struct delayed *delayed = delayed_size + size > DELAYED_MAX ? NULL : mem_try_alloc(size);
    if (!delayed) {
        log_limited(&limit, LOG_LEVEL_WARNING,
                    "Messages for other nodes are dropped: too many wait until the writes before them are safe");
        return;
    }
    *delayed = (struct delayed){.waiter.ended = delay_ended, .message = *message};
    delayed->message.channel.data = delayed->bytes;
    delayed->message.text.data = delayed->bytes + channel.len;
    if (channel.len) memcpy(delayed->bytes, channel.data, channel.len);
    if (text.len) memcpy(delayed->bytes + channel.len, text.data, text.len);
    delayed_size += size;
    reply_barrier_when_shown(&delayed->waiter);
}
static void send_when_shown(const struct outgoing *message) {
    if (!__builtin_expect(reply_barrier_armed, 0) || (!dispatch_is_nested() && reply_barrier_shows_now()))
        send_now(message);
    else
        delay(message);
}

void publish_send(struct slice channel, struct slice message, bool shard, size_t receivers) {
    if (shard && cluster_options.slot_stats)
        slot_stats_delivered(hash_slot(channel), receivers * push_size(channel, message));
    send_when_shown(&(struct outgoing){.shard = shard, .channel = channel, .text = message});
}

bool publish_module(struct slice node, const struct cluster_module_message *message) {
    struct outgoing outgoing = {.of_module = true,
                                .to_all = node.len == 0,
                                .module = message->module,
                                .type = message->type,
                                .text = message->payload};
    if (node.len) {
        if (node.len != NODE_ID_LEN) return false;
        memcpy(outgoing.node.text, node.data, NODE_ID_LEN);
        const struct cluster_node *to = nodes_find(&this_cluster->nodes, &outgoing.node);
        if (!to || !to->link || !to->link->connected) return false;
    }
    send_when_shown(&outgoing);
    return true;
}

/* As in Valkey, a failover ends the channels of the slots, too: subscribers learn that they must look for the owner. */
static bool channel_ends(void *context, struct slice channel) {
    const struct slot_table *slots = &this_cluster->slots;
    unsigned slot = hash_slot(channel);
    if (slot_bitmap_has(&left, slot)) return true;
    if (!check_all) return false;
    return slots->owner[slot] != cluster_shard_primary(this_cluster) && !slots_importing_from(slots, slot);
}

static void publish_before_wait(void) {
    if (__builtin_expect(!check_due, 1) || dispatch_running()) return;
    if (pubsub_channels(PUBSUB_SHARD)) pubsub_end_shard_channels(channel_ends, NULL);
    check_due = check_all = false;
    left = slot_bitmap_empty;
}
const struct server_part publish_part = {.name = "cluster-publish", .before_wait = publish_before_wait};

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
