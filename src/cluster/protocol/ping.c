/* ping.c: writes PING, PONG and MEET, with what they say about third nodes (gossip.c).
 *
 * A message has a sample of a tenth of the nodes, and all nodes that the sender cannot reach: failure reports must not
 * depend on luck. Behind a brief header (repeat.c) the entries of the sample are brief, too, except for nodes that the
 * receiver may not know yet and for one further node, so that an error in a brief entry is corrected in time. */
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"

enum {
    NEWS_MS = 15000,   /* how long a node is new */
    NEWS_ENTRIES = 40, /* of new nodes in a message, besides the sample */
    DRAWN = 128        /* nodes that are drawn for a sample at once */
};

static void reserve_entry(struct cluster *cluster, const struct bus_message *message) {
    if (message->gossip_count < cluster->scratch.capacity && message->brief_gossip_count < cluster->scratch.capacity)
        return;
    size_t capacity = cluster->scratch.capacity ? cluster->scratch.capacity * 2 : 16;
    cluster->scratch.gossip = mem_realloc(cluster->scratch.gossip, capacity * sizeof *cluster->scratch.gossip);
    cluster->scratch.brief = mem_realloc(cluster->scratch.brief, capacity * sizeof *cluster->scratch.brief);
    cluster->scratch.capacity = capacity;
}

static void add_brief_entry(struct cluster *cluster, struct bus_message *message, const struct node_heartbeat *beat) {
    reserve_entry(cluster, message);
    struct bus_brief_gossip *entry = &cluster->scratch.brief[message->brief_gossip_count++];
    memcpy(entry->id, beat->brief_id, BUS_BRIEF_ID_LEN);
    entry->pong_received_s = (uint32_t)(time_to_wall(cluster, beat->pong_received_ms) / 1000);
}

static void add_entry(struct cluster *cluster, struct bus_message *message, const struct cluster_node *node) {
    reserve_entry(cluster, message);
    bool tls = cluster->settings.tls;
    struct bus_gossip *entry = &cluster->scratch.gossip[message->gossip_count++];
    *entry =
        (struct bus_gossip){.id = node->id,
                            .ping_sent_s = (uint32_t)(time_to_wall(cluster, node->beat->ping_sent_ms) / 1000),
                            .pong_received_s = (uint32_t)(time_to_wall(cluster, node->beat->pong_received_ms) / 1000),
                            .port = tls ? node->tls_port : node->port,
                            .other_port = tls ? node->port : node->tls_port,
                            .bus_port = node->bus_port,
                            .flags = (uint16_t)node->flags};
    memcpy(entry->address, node->address, sizeof entry->address);
}

static void add_sample(struct cluster *cluster, struct bus_message *message, const struct cluster_node *node) {
    bool news = cluster->now_ms - node->news_ms < NEWS_MS;
    if (message->header.brief && !news && !node_failed(node) && message->gossip_count > 0)
        add_brief_entry(cluster, message, node->beat);
    else
        add_entry(cluster, message, node);
}

static bool may_gossip_about(const struct cluster_node *node, const struct cluster_node *receiver) {
    if (node == receiver || node->flags & (NODE_MYSELF | NODE_PFAIL | NODE_HANDSHAKE | NODE_NOADDR)) return false;
    return node->link || node->slot_count > 0;
}

/* The receiver may not know what is new here. */
bool ping_has_news(struct cluster *cluster, const struct cluster_node *receiver, int64_t within_ms) {
    if (cluster->now_ms - cluster->joining.news_ms >= within_ms) return false;
    if (cluster->joining.moved_ms && cluster->now_ms - cluster->joining.moved_ms < within_ms) return true;
    return !receiver || receiver->members != nodes_digest(&cluster->nodes);
}

static void add_news(struct cluster *cluster, struct bus_message *message, const struct cluster_node *receiver) {
    const struct node_table *nodes = &cluster->nodes;
    if (!ping_has_news(cluster, receiver, NEWS_MS)) return;
    size_t at = random_under(cluster, nodes->count);
    for (size_t i = 0; i < nodes->count && message->gossip_count < NEWS_ENTRIES; i++) {
        struct cluster_node *node = nodes->list[(at + i) % nodes->count];
        if (cluster->now_ms - node->news_ms >= NEWS_MS || !may_gossip_about(node, receiver)) continue;
        node->beat->stamp = cluster->scratch.stamp;
        add_entry(cluster, message, node);
    }
}

static void fill_gossip(struct cluster *cluster, struct bus_message *message, const struct cluster_node *receiver) {
    const struct node_table *nodes = &cluster->nodes;
    size_t others = nodes->count > 2 ? nodes->count - 2 : 0;
    size_t wanted = nodes->count * cluster->settings.gossip_percent / 100;
    if (wanted < 3) wanted = 3;
    if (wanted > others) wanted = others;
    uint64_t stamp = ++cluster->scratch.stamp;
    add_news(cluster, message, receiver);
    /* Of most nodes the heartbeat tells all that a brief entry has. */
    bool brief = message->header.brief && cluster->now_ms - cluster->joining.news_ms >= NEWS_MS;
    for (size_t attempts = wanted * 3; wanted > 0 && attempts > 0;) {
        struct node_heartbeat *drawn[DRAWN];
        size_t count = wanted < DRAWN ? wanted : DRAWN;
        if (count > attempts) count = attempts;
        for (size_t i = 0; i < count; i++)
            __builtin_prefetch(drawn[i] = &nodes->beats[random_under(cluster, nodes->count)]);
        if (message->gossip_count == 0) __builtin_prefetch(nodes_of_beat(nodes, drawn[0]));
        attempts -= count;
        for (size_t i = 0; i < count; i++) {
            struct node_heartbeat *beat = drawn[i];
            if (beat->stamp == stamp || (receiver && beat == receiver->beat)) continue;
            if (brief && beat->usual && message->gossip_count > 0) {
                add_brief_entry(cluster, message, beat);
            } else {
                struct cluster_node *node = nodes_of_beat(nodes, beat);
                if (!may_gossip_about(node, receiver)) continue;
                add_sample(cluster, message, node);
            }
            beat->stamp = stamp;
            wanted--;
        }
    }
    for (size_t i = 0; i < cluster->failures.count && message->gossip_count < UINT16_MAX; i++) {
        const struct cluster_node *node = cluster->failures.suspects[i];
        if (node_maybe_failed(node) && !(node->flags & (NODE_HANDSHAKE | NODE_NOADDR)))
            add_entry(cluster, message, node);
    }
    message->gossip = cluster->scratch.gossip;
    message->brief_gossip = cluster->scratch.brief;
}

static void fill_extensions(struct cluster *cluster, struct bus_extensions *extensions) {
    const struct cluster_node *myself = cluster->myself;
    *extensions = (struct bus_extensions){.hostname = slice_of(node_text(myself->announced.hostname)),
                                          .nodename = slice_of(node_text(myself->announced.nodename)),
                                          .client_ipv4 = slice_of(node_text(myself->announced.client_ipv4)),
                                          .client_ipv6 = slice_of(node_text(myself->announced.client_ipv6)),
                                          .availability_zone = slice_of(node_text(myself->announced.availability_zone)),
                                          .client_port = myself->announced.client_port,
                                          .client_tls_port = myself->announced.client_tls_port,
                                          .shard = myself->shard};
    for (size_t i = 0; i < cluster->joining.forgotten_count; i++) {
        const struct forgotten_node *forgotten = &cluster->joining.forgotten[i];
        int64_t ttl_s = (forgotten->until_ms - cluster->now_ms) / 1000;
        if (ttl_s <= 0) continue;
        cluster->scratch.forgotten[extensions->forgotten_count++] =
            (struct bus_forgotten){.id = forgotten->id, .ttl_s = (uint64_t)ttl_s};
    }
    extensions->forgotten = cluster->scratch.forgotten;
}

void send_ping(struct cluster *cluster, struct cluster_link *link, unsigned type) {
    struct bus_message message;
    struct cluster_node *node = link->node;
    message_begin(cluster, &message, type);
    if (type == BUS_PING && node && !link->inbound) node->beat->ping_sent_ms = cluster->now_ms;
    message.has_extensions = link->extensions || (node && node->flags & NODE_EXTENSIONS);
    if (message.has_extensions)
        fill_extensions(cluster, &message.extensions);
    else
        say_debug(cluster, "Unable to send extensions data, however setting ext data flag to true");
    if (repeat_is_possible(cluster, link, &message)) {
        message.header.brief = true;
        message.header.digest = link->sent_header;
        message.has_extensions = message.extensions.forgotten_count > 0; /* the others are known */
    } else {
        repeat_sent(cluster, link, &message);
    }
    fill_gossip(cluster, &message, node);
    say_debug(cluster, "Sending %s packet to node %.40s (%s) on %s link", bus_type_name(type), LINK_ID(link),
              LINK_NAME(link), LINK_DIRECTION(link));
    send_message(cluster, link, &message);
}

/* An unsolicited PONG tells of a change at once. */
void broadcast_pong(struct cluster *cluster, bool only_shard_replicas) {
    const struct cluster_node *primary = cluster_shard_primary(cluster);
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (!node->link || !node->link->connected || node->flags & (NODE_MYSELF | NODE_HANDSHAKE)) continue;
        if (only_shard_replicas && (!node_is_replica(node) || !primary || node->primary != primary)) continue;
        send_ping(cluster, node->link, BUS_PONG);
    }
}
