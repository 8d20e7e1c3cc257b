/* gossip.c: which nodes are pinged when, and which statements of a PING or PONG about third nodes a node accepts.
 * ping.c writes these messages.
 *
 * This is the gossip protocol of the Redis Cluster specification: heartbeats that also carry the state of a random
 * sample of the nodes, so that news spreads like an epidemic. Once a second the node picks five random nodes and pings
 * the one with the oldest PONG. It also pings each node whose last PONG is older than the ping interval. A node counts
 * as heard if gossip says that another node has heard it, so a large cluster needs few direct pings.
 *
 * In addition to the specification, new nodes and changed addresses spread faster: for some seconds each node that has
 * heard of them pings random nodes in each tick, so that a cluster of a hundred nodes forms in a second. The header of
 * our nodes has a digest of the nodes that the sender knows; a node with the same digest needs no such ping. */
#include "cluster/protocol/machine.h"
#include "cluster/protocol/nodes_file.h"
#include <stdio.h>

enum {
    NEWS_PUSH_MS = 3000, /* how long a node pings random nodes because of new nodes, */
    NEWS_PEERS = 2       /* peers in each tick */
};

static int64_t ping_interval(const struct cluster *cluster) {
    const struct cluster_settings *settings = &cluster->settings;
    return settings->ping_interval_ms ? settings->ping_interval_ms : settings->node_timeout_ms / 2;
}

static void add_known(struct cluster *cluster, const struct bus_gossip *entry) {
    if (cluster->nodes.count >= CLUSTER_NODES_MAX || node_id_is_zero(&entry->id)) return;
    if (!entry->address[0] || !entry->bus_port || node_is_forgotten(cluster, &entry->id)) return;
    /* PFAIL is another node's opinion. MYSELF, HANDSHAKE and MEET say nothing about us. */
    unsigned flags = entry->flags & (NODE_PRIMARY | NODE_REPLICA | NODE_FAIL | NODE_NOFAILOVER | NODE_EXTENSIONS);
    if (!(flags & NODE_REPLICA)) flags |= NODE_PRIMARY;
    if (flags & NODE_REPLICA) flags &= ~(unsigned)NODE_PRIMARY;
    struct cluster_node *node = node_new(&entry->id, flags, cluster->now_ms);
    if (flags & NODE_FAIL) node->fail_ms = cluster->now_ms;
    random_id(cluster, &node->shard); /* until the node announces its own */
    nodes_add(&cluster->nodes, node);
    address_set(cluster, node, entry->address, entry->port, entry->other_port, entry->bus_port);
    changed_table(cluster);
}

static void take_pong_time(const struct cluster *cluster, struct node_heartbeat *beat, uint32_t pong_received_s) {
    int64_t pong_ms = time_of_wall(cluster, (int64_t)pong_received_s * 1000);
    if (beat->ping_sent_ms || pong_ms > cluster->now_ms + 500) return;
    if (pong_ms > beat->pong_received_ms) beat->pong_received_ms = pong_ms;
}

static void process_pong_time(struct cluster *cluster, struct cluster_node *node, uint32_t pong_received_s) {
    if (node->flags & (NODE_NOADDR | NODE_FAIL | NODE_PFAIL) || node->beat->ping_sent_ms != 0) return;
    if (cluster_count_failure_reports(cluster, node, cluster->now_ms) > 0) return;
    take_pong_time(cluster, node->beat, pong_received_s);
}

static void take_report_back(struct cluster *cluster, struct cluster_node *sender, struct cluster_node *node) {
    if (node_remove_report(node, sender))
        say_verbose(cluster, "Node " NODE_FORMAT " reported node " NODE_FORMAT " is back online.", NODE_TEXT(sender),
                    NODE_TEXT(node));
}

static void say_gossip(struct cluster *cluster, const struct bus_gossip *entry) {
    if (log_level > LOG_LEVEL_DEBUG) return;
    struct memory_output flags = MEMORY_OUTPUT_INIT;
    node_flags_print(&flags.out, entry->flags);
    struct slice text = memory_output_slice(&flags);
    say_debug(cluster, "GOSSIP %.40s %s:%u@%u %.*s", entry->id.text, entry->address, entry->port, entry->bus_port,
              (int)text.len, text.data);
    memory_output_free(&flags);
}

static void process_entry(struct cluster *cluster, struct cluster_node *sender, const struct bus_gossip *entry,
                          struct cluster_node *node) {
    /* An entry before this one may have added it. */
    if (!node || !node_id_equal(&node->id, &entry->id)) node = nodes_find(&cluster->nodes, &entry->id);
    if (!node) {
        if (!(entry->flags & (NODE_NOADDR | NODE_HANDSHAKE))) add_known(cluster, entry);
        return;
    }
    if (node == cluster->myself || node == sender || node_in_handshake(node)) return;
    bool failing = entry->flags & (NODE_PFAIL | NODE_FAIL);
    if (node_votes(sender)) {
        if (failing) {
            /* Once a node has failed, further reports change nothing. */
            if (!node_failed(node) && node_add_report(node, sender, cluster->now_ms))
                say_verbose(cluster, "Node " NODE_FORMAT " reported node " NODE_FORMAT " as not reachable.",
                            NODE_TEXT(sender), NODE_TEXT(node));
            failure_mark_if_quorum(cluster, node);
        } else {
            take_report_back(cluster, sender, node);
        }
    }
    if (!failing) process_pong_time(cluster, node, entry->pong_received_s);
    /* The sender reaches it and we do not: perhaps it has moved. */
    if (node->flags & (NODE_FAIL | NODE_PFAIL | NODE_NOADDR) && !failing &&
        !(entry->flags & (NODE_NOADDR | NODE_HANDSHAKE)) && entry->address[0] && entry->bus_port) {
        uint16_t port = cluster->settings.tls ? node->tls_port : node->port;
        if (strcmp(node->address, entry->address) != 0 || port != entry->port || node->bus_port != entry->bus_port) {
            if (node->link) link_close(cluster, node->link);
            address_set(cluster, node, entry->address, entry->port, entry->other_port, entry->bus_port);
            node->flags &= ~(unsigned)NODE_NOADDR;
            node_update(node);
            say_notice(cluster, "Address updated for node " NODE_FORMAT ", now %s:%u", NODE_TEXT(node), node->address,
                       entry->port);
        }
    }
}

/* The nodes that have ids like those of the entries from `at` on; NULL: none. Returns how many. */
static size_t find_nodes(const struct node_table *nodes, const struct bus_message *message, size_t at,
                         struct cluster_node *found[static NODES_FIND_MAX]) {
    struct node_heartbeat *beats[NODES_FIND_MAX];
    size_t count = message->gossip_count - at;
    if (count > NODES_FIND_MAX) count = NODES_FIND_MAX;
    nodes_find_brief(nodes, message->gossip_bytes + at * BUS_GOSSIP_SIZE, BUS_GOSSIP_SIZE, count, beats);
    for (size_t i = 0; i < count; i++)
        if ((found[i] = beats[i] ? nodes_of_beat(nodes, beats[i]) : NULL)) __builtin_prefetch(found[i]);
    return count;
}

static void process_brief_entry(struct cluster *cluster, struct cluster_node *sender, struct node_heartbeat *beat,
                                uint32_t pong_received_s) {
    if (beat == sender->beat) return;
    if (beat->usual) {
        take_pong_time(cluster, beat, pong_received_s);
        return;
    }
    struct cluster_node *node = nodes_of_beat(&cluster->nodes, beat);
    if (node == cluster->myself || node_in_handshake(node)) return;
    if (node_votes(sender)) take_report_back(cluster, sender, node);
    process_pong_time(cluster, node, pong_received_s);
}

/* Gossip counts only from nodes that this node knows; as long as it knows none, also from the sender of a MEET. */
void gossip_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    for (size_t at = 0, found; at < message->gossip_count; at += found) {
        struct cluster_node *nodes[NODES_FIND_MAX];
        found = find_nodes(&cluster->nodes, message, at, nodes);
        for (size_t i = 0; i < found; i++) {
            struct bus_gossip entry;
            bus_gossip_at(message, at + i, &entry);
            say_gossip(cluster, &entry);
            process_entry(cluster, sender, &entry, nodes[i]);
        }
    }
    for (size_t at = 0, found; at < message->brief_gossip_count; at += found) {
        struct node_heartbeat *beats[NODES_FIND_MAX];
        found = message->brief_gossip_count - at;
        if (found > NODES_FIND_MAX) found = NODES_FIND_MAX;
        nodes_find_brief(&cluster->nodes, message->brief_gossip_bytes + at * BUS_BRIEF_GOSSIP_SIZE,
                         BUS_BRIEF_GOSSIP_SIZE, found, beats);
        for (size_t i = 0; i < found; i++) {
            struct bus_brief_gossip entry;
            bus_brief_gossip_at(message, at + i, &entry);
            if (beats[i]) process_brief_entry(cluster, sender, beats[i], entry.pong_received_s);
        }
    }
}

void extensions_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    if (!(message->header.message_flags & BUS_EXTENSION_DATA) || !message->has_extensions) return;
    const struct bus_extensions *extensions = &message->extensions;
    bool changed = node_set_text(&sender->announced.hostname, extensions->hostname);
    changed |= node_set_text(&sender->announced.nodename, extensions->nodename);
    changed |= node_set_text(&sender->announced.client_ipv4, extensions->client_ipv4);
    changed |= node_set_text(&sender->announced.client_ipv6, extensions->client_ipv6);
    changed |= node_set_text(&sender->announced.availability_zone, extensions->availability_zone);
    changed |= sender->announced.client_port != extensions->client_port ||
               sender->announced.client_tls_port != extensions->client_tls_port;
    sender->announced.client_port = extensions->client_port;
    sender->announced.client_tls_port = extensions->client_tls_port;
    if (changed) changed_table(cluster);
    if (!node_id_is_zero(&extensions->shard)) node_move_to_shard(cluster, sender, &extensions->shard);
    for (size_t i = 0; i < extensions->forgotten_count; i++) {
        struct bus_forgotten forgotten;
        bus_forgotten_at(message, i, &forgotten);
        struct cluster_node *node = nodes_find(&cluster->nodes, &forgotten.id);
        if (!node || node == cluster->myself || node == cluster->myself->primary || node == sender) continue;
        node_forget(cluster, &forgotten.id, (int64_t)(forgotten.ttl_s < 1u << 24 ? forgotten.ttl_s : 1u << 24));
        node_delete(cluster, node);
    }
}

static void ping_random(struct cluster *cluster) {
    struct cluster_node *oldest = NULL;
    for (int i = 0; i < 5; i++) {
        struct cluster_node *node = cluster->nodes.list[random_under(cluster, cluster->nodes.count)];
        if (!node->link || !node->link->connected || node->beat->ping_sent_ms) continue;
        if (node->flags & (NODE_MYSELF | NODE_HANDSHAKE)) continue;
        if (!oldest || node->beat->pong_received_ms < oldest->beat->pong_received_ms) oldest = node;
    }
    if (!oldest) return;
    say_debug(cluster, "Pinging node " NODE_FORMAT, NODE_TEXT(oldest));
    send_ping(cluster, oldest->link, BUS_PING);
}

static void push_news(struct cluster *cluster) {
    if (cluster->now_ms - cluster->joining.news_ms >= NEWS_PUSH_MS) return;
    for (int i = 0; i < NEWS_PEERS; i++) {
        struct cluster_node *node = cluster->nodes.list[random_under(cluster, cluster->nodes.count)];
        if (!node->link || !node->link->connected || node->flags & (NODE_MYSELF | NODE_HANDSHAKE)) continue;
        if (ping_has_news(cluster, node, NEWS_PUSH_MS)) send_ping(cluster, node->link, BUS_PONG);
    }
}

void gossip_tick(struct cluster *cluster) {
    push_news(cluster);
    if (cluster->ticks % 10 == 0 && !cluster->settings.no_random_pings) ping_random(cluster);
    int64_t interval = ping_interval(cluster), timeout = handshake_timeout(cluster);
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct node_heartbeat *beat = &cluster->nodes.beats[i];
        bool old = !beat->ping_sent_ms && cluster->now_ms - beat->pong_received_ms > interval;
        if (beat->usual && !old && !cluster->manual.end_ms) continue;
        struct cluster_node *node = cluster->nodes.list[i];
        if (node->flags & (NODE_MYSELF | NODE_HANDSHAKE | NODE_NOADDR)) continue;
        bool paused_for = cluster->manual.end_ms && node_is_primary(cluster->myself) && cluster->manual.replica == node;
        bool due = paused_for || old;
        bool one_way = !node->inbound && node->flags & NODE_LIGHT_MODULE;
        if (!(due || one_way) || !node->link || !node->link->connected) continue;
        /* It does not know us any more, or never did: else it would have dialled since it answers. */
        int64_t since_ms =
            max_i64(max_i64(node->links.inbound_missing_ms, node->links.meet_sent_ms), node->link->created_ms);
        if (one_way && cluster->now_ms - since_ms > timeout) {
            say_notice(cluster, "Sending MEET packet to node " NODE_FORMAT " because there is no inbound link for it",
                       NODE_TEXT(node));
            node->links.meet_sent_ms = cluster->now_ms;
            node->met_again = true;
            send_ping(cluster, node->link, BUS_MEET);
            if (!node->link) continue;
        }
        if (paused_for || (due && !beat->ping_sent_ms)) send_ping(cluster, node->link, BUS_PING);
    }
}
