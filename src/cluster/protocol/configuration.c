/* configuration.c: see configuration.h */
#include "cluster/protocol/configuration.h"
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"
#include <stdio.h>

static struct slice configuration_text_of(const char *text) {
    return slice_of(node_text(text));
}

void cluster_describe_node(const struct cluster *cluster, const struct cluster_node *node, struct node_line *line) {
    bool linked = node == cluster->myself || (node->link && node->link->connected);
    const struct cluster_node *claimant = node_is_replica(node) && node->primary ? node->primary : node;
    *line = (struct node_line){.id = node->id,
                               .shard = node->shard,
                               .address = slice_of(node->address),
                               .tcp_port = node->port,
                               .tls_port = node->tls_port,
                               .bus_port = node->bus_port,
                               .client_tcp_port = node->announced.client_port,
                               .client_tls_port = node->announced.client_tls_port,
                               .hostname = configuration_text_of(node->announced.hostname),
                               .nodename = configuration_text_of(node->announced.nodename),
                               .client_ipv4 = configuration_text_of(node->announced.client_ipv4),
                               .client_ipv6 = configuration_text_of(node->announced.client_ipv6),
                               .availability_zone = configuration_text_of(node->announced.availability_zone),
                               .unknown = configuration_text_of(node->unknown),
                               .flags = (uint16_t)node->flags,
                               .ping_sent_ms = (uint64_t)time_to_wall(cluster, node->beat->ping_sent_ms),
                               .pong_received_ms = (uint64_t)time_to_wall(cluster, node->beat->pong_received_ms),
                               .epoch = claimant->config_epoch,
                               .connected = linked,
                               .slots = node->slots,
                               .slot_low = node->slot_low,
                               .slot_end = node->slot_end};
    if (node->primary) line->primary = node->primary->id;
}

void cluster_list_open_slots(const struct cluster *cluster, struct open_slot *open) {
    const struct slot_table *slots = &cluster->slots;
    size_t left = cluster_count_open_slots(cluster);
    for (unsigned slot = 0; left > 0 && slot < HASH_SLOTS; slot++) {
        const struct cluster_node *target = slots_migrating_to(slots, slot);
        const struct cluster_node *source = slots_importing_from(slots, slot);
        if (target) *open++ = (struct open_slot){.node = target->id, .slot = (uint16_t)slot};
        if (source) *open++ = (struct open_slot){.node = source->id, .slot = (uint16_t)slot, .importing = true};
        left -= (target != NULL) + (size_t)(source != NULL);
    }
}

void cluster_print_configuration(const struct cluster *cluster, struct output *out) {
    size_t open_count = cluster_count_open_slots(cluster);
    struct open_slot *open = mem_calloc(open_count + 1, sizeof *open);
    cluster_list_open_slots(cluster, open);
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *node = cluster->nodes.list[i];
        if (node_in_handshake(node)) continue;
        struct node_line line;
        cluster_describe_node(cluster, node, &line);
        if (node == cluster->myself) {
            line.open = open;
            line.open_count = open_count;
        }
        node_line_print(out, &line, NODE_LINE_FILE);
        output_write(out, SLICE("\n"));
    }
    mem_free(open);
    nodes_file_print_epochs(out, cluster->current_epoch, cluster->last_vote_epoch);
}

/* PFAIL was the view of a process that has ended, and is dropped. Headers will bring the other flags again. */
static const unsigned LOADED_FLAGS = NODE_PRIMARY | NODE_REPLICA | NODE_FAIL | NODE_NOADDR | NODE_NOFAILOVER;

static const char *load_node(struct cluster *cluster, const struct node_line *line) {
    struct cluster_node *node = cluster->myself;
    if (line->flags & NODE_MYSELF) {
        if (!node_id_equal(&node->id, &line->id)) nodes_rename(&cluster->nodes, node, &line->id);
        node->flags &= ~(unsigned)(NODE_PRIMARY | NODE_REPLICA);
        node->flags |= line->flags & NODE_REPLICA ? NODE_REPLICA : NODE_PRIMARY;
        if (!node->address[0])
            snprintf(node->address, sizeof node->address, "%.*s", (int)line->address.len, line->address.data);
    } else {
        if (nodes_find(&cluster->nodes, &line->id)) return "a node is there twice";
        node = node_new(&line->id, line->flags & LOADED_FLAGS, cluster->now_ms);
        if (node->flags & NODE_REPLICA)
            node->flags &= ~(unsigned)NODE_PRIMARY;
        else
            node->flags |= NODE_PRIMARY;
        nodes_add(&cluster->nodes, node);
        node->news_ms = 0; /* the others know it */
        snprintf(node->address, sizeof node->address, "%.*s", (int)line->address.len, line->address.data);
        node->port = line->tcp_port;
        node->tls_port = line->tls_port;
        node->bus_port = line->bus_port;
        node->announced.client_port = line->client_tcp_port;
        node->announced.client_tls_port = line->client_tls_port;
        node_set_text(&node->announced.hostname, line->hostname);
        node_set_text(&node->announced.nodename, line->nodename);
        node_set_text(&node->announced.client_ipv4, line->client_ipv4);
        node_set_text(&node->announced.client_ipv6, line->client_ipv6);
        node_set_text(&node->announced.availability_zone, line->availability_zone);
        if (!node->address[0] || !node->bus_port) node->flags |= NODE_NOADDR;
        /* A ping of that process gets no reply any more; the pong may be from a clock that was ahead. */
        node->beat->pong_received_ms = min_i64(time_of_wall(cluster, (int64_t)line->pong_received_ms), cluster->now_ms);
        if (node_failed(node)) node->fail_ms = cluster->now_ms;
    }
    if (line->unknown.len) node->unknown = mem_strndup(line->unknown.data, line->unknown.len);
    node->config_epoch = node_is_replica(node) ? 0 : line->epoch;
    node->shard_heard = !node_id_is_zero(&line->shard);
    if (node->shard_heard)
        node->shard = line->shard;
    else if (node != cluster->myself)
        random_id(cluster, &node->shard);
    for (unsigned byte = 0; line->slots && byte < SLOT_BITMAP_SIZE; byte++) {
        unsigned bits = line->slots->bytes[byte];
        for (unsigned slot = byte * 8; bits; slot++, bits >>= 1)
            if (bits & 1 && !cluster->slots.owner[slot]) slots_assign(&cluster->slots, slot, node);
    }
    return NULL;
}

static bool is_before(const struct nodes_file *file, const struct node_id *id, size_t line) {
    for (size_t i = 0; i < line; i++)
        if (node_id_equal(&file->lines[i].id, id)) return true;
    return false;
}

static const char *load_primary(struct cluster *cluster, const struct nodes_file *file, size_t index) {
    const struct node_line *line = &file->lines[index];
    struct cluster_node *node = nodes_find(&cluster->nodes, &line->id);
    if (!node_is_replica(node) || node_id_is_zero(&line->primary)) return NULL;
    struct cluster_node *primary = nodes_find(&cluster->nodes, &line->primary);
    if (!primary || primary == node) return "a primary is not there";
    node_set_primary(node, primary);
    primary->flags |= NODE_MIGRATE_TO;
    if (nodes_share_shard(node, primary)) return NULL;
    if (!node_id_is_zero(&line->shard)) /* Valkey has two texts for it */
        say_notice(cluster,
                   "Node %.40s has a different shard id (%.40s) than its primary%s %.40s (%.40s). Updating replica's "
                   "shard id to match primary's shard id.",
                   node->id.text, SHARD_TEXT(node), is_before(file, &primary->id, index) ? "" : "'s shard id",
                   primary->id.text, SHARD_TEXT(primary));
    node->shard = primary->shard;
    return NULL;
}

static const char *load_open_slots(struct cluster *cluster, const struct node_line *line) {
    for (size_t i = 0; i < line->open_count; i++) {
        const struct open_slot *open = &line->open[i];
        struct cluster_node *peer = nodes_find(&cluster->nodes, &open->node);
        if (!peer || peer == cluster->myself) return "an open slot names an unknown node";
        if (open->importing)
            slots_set_importing(&cluster->slots, open->slot, peer);
        else
            slots_set_migrating(&cluster->slots, open->slot, peer);
    }
    return NULL;
}

struct cluster *cluster_new_from(const struct nodes_file *file, const struct cluster_settings *settings,
                                 const struct cluster_effects *effects, void *context, int64_t now_ms,
                                 const char **error) {
    struct cluster *cluster = cluster_new(settings, effects, context, now_ms);
    *error = file->count ? NULL : "there is no node";
    /* This node first: another node may have the random id that this node was created with. */
    if (!*error) *error = load_node(cluster, &file->lines[file->myself]);
    for (size_t i = 0; i < file->count && !*error; i++)
        if (i != file->myself) *error = load_node(cluster, &file->lines[i]);
    for (size_t i = 0; i < file->count && !*error; i++) *error = load_primary(cluster, file, i);
    if (!*error) *error = load_open_slots(cluster, &file->lines[file->myself]);
    if (*error) {
        cluster_free(cluster);
        return NULL;
    }
    struct cluster_node *myself = cluster->myself;
    cluster->last_vote_epoch = file->last_vote_epoch;
    cluster->current_epoch = file->current_epoch;
    cluster->current_epoch = max_config_epoch(cluster);
    failure_primary_changed(cluster);
    if (node_is_replica(myself) && myself->primary) effects->follow(context, myself->primary, true);
    cluster->unsaved = UNSAVED_SELF; /* the address may be new, and the file may be of an older version */
    return cluster;
}
