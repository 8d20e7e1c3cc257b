/* send.c: building messages and sending them. */
#include "cluster/protocol/machine.h"
#include <stdio.h>

/* Fills the header. The message refers to the machine's own data: it is valid until the next change. */
void message_begin(struct cluster *cluster, struct bus_message *message, unsigned type) {
    const struct cluster_node *myself = cluster->myself;
    const struct cluster_node *primary = cluster_shard_primary(cluster);
    const struct cluster_settings *settings = &cluster->settings;
    struct cluster_facts facts = {0};
    cluster->effects->facts(cluster->context, &facts);
    *message = (struct bus_message){.header = {.type = type,
                                               .current_epoch = cluster->current_epoch,
                                               .config_epoch = primary ? primary->config_epoch : 0,
                                               .offset = facts.offset,
                                               .sender = myself->id,
                                               .slots = primary ? primary->slots : NULL,
                                               .port = settings->tls ? myself->tls_port : myself->port,
                                               .other_port = settings->tls ? myself->port : myself->tls_port,
                                               .bus_port = myself->bus_port,
                                               .flags = (uint16_t)myself->flags,
                                               .cluster_fails = !cluster->ok}};
    struct bus_header *header = &message->header;
    if (node_is_replica(myself) && myself->primary) header->primary = myself->primary->id;
    snprintf(header->address, sizeof header->address, "%s", settings->address);
    if (type == BUS_PING || type == BUS_PONG || type == BUS_MEET) header->message_flags = BUS_EXTENSION_DATA;
    if (node_is_primary(myself) && cluster->manual.end_ms) header->message_flags |= BUS_PAUSED;
    own_fields_write(header->reserved, &(struct own_fields){.features = myself->features,
                                                            .rdma_port = myself->rdma_port,
                                                            .client_rdma_port = myself->client_rdma_port,
                                                            .members = nodes_digest(&cluster->nodes)});
}

void send_message(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    if (cluster->unsaved & UNSAVED_SELF) save(cluster, true);
    cluster->effects->send(cluster->context, link, message);
}

/* To all nodes with a link that we dialled. */
void send_to_all(struct cluster *cluster, const struct bus_message *message) {
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (node->link && node->link->connected && !(node->flags & (NODE_MYSELF | NODE_HANDSHAKE)))
            send_message(cluster, node->link, message);
    }
}

void send_fail(struct cluster *cluster, const struct cluster_node *node) {
    struct bus_message message;
    message_begin(cluster, &message, BUS_FAIL);
    message.node = node->id;
    send_to_all(cluster, &message);
}

/* Tells what this node knows of the slots of another one. */
void send_update(struct cluster *cluster, const struct cluster_node *to, const struct cluster_node *about) {
    struct bus_message message;
    say_verbose(cluster,
                "Node " NODE_FORMAT " has old slots configuration, sending an UPDATE message about " NODE_FORMAT,
                NODE_TEXT(to), NODE_TEXT(about));
    if (!to->link || !to->link->connected) return;
    struct slot_bitmap slots = *node_slots(about);
    for (size_t i = 0; i < SLOT_BITMAP_SIZE; i++) slots.bytes[i] &= (uint8_t)~cluster->slots.unclaimed.bytes[i];
    message_begin(cluster, &message, BUS_UPDATE);
    message.node = about->id;
    message.node_epoch = about->config_epoch;
    message.node_slots = &slots;
    send_message(cluster, to->link, &message);
}

void cluster_publish(struct cluster *cluster, struct slice channel, struct slice text, bool shard) {
    struct bus_message message;
    message_begin(cluster, &message, shard ? BUS_PUBLISHSHARD : BUS_PUBLISH);
    message.channel = channel;
    message.message = text;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (!node->link || !node->link->connected || node->flags & (NODE_MYSELF | NODE_HANDSHAKE)) continue;
        if (shard && !nodes_share_shard(node, cluster->myself)) continue;
        message.header.light = node->flags & NODE_LIGHT_PUBLISH && node->link->answered;
        send_message(cluster, node->link, &message);
    }
}

bool cluster_send_module(struct cluster *cluster, const struct cluster_node *to, uint64_t module, uint8_t type,
                         struct slice payload) {
    struct bus_message message;
    bool sent = !to;
    message_begin(cluster, &message, BUS_MODULE);
    message.module = module;
    message.module_type = type;
    message.payload = payload;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (!node->link || !node->link->connected || node->flags & (NODE_MYSELF | NODE_HANDSHAKE)) continue;
        if (to && node != to) continue;
        message.header.light = node->flags & NODE_LIGHT_MODULE && node->link->answered;
        send_message(cluster, node->link, &message);
        sent = true;
    }
    return sent;
}
