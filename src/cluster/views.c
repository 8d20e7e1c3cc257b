/* views.c: see views.h.
 *
 * A kept reply is a text with fields: numbers whose value is that of a node. An update compares each value with the one
 * that is in the text, and writes those that differ. A number that gets longer or shorter moves the rest of the text.
 * Where anything else has changed, the text is written again; constant parts of it are written as a whole.
 * Rejected: pieces of text that are put together with the numbers at each request: it formats all numbers although
 * gossip changes a few of them between two requests. */
#include "cluster/views.h"
#include "cluster/bus.h"
#include "cluster/settings.h"
#include "cluster/protocol/configuration.h"
#include "cluster/this_node.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <stdlib.h>

enum view_kind { VIEW_NODES, VIEW_SLOTS, VIEW_SHARDS, VIEW_KINDS };
enum field_kind { FIELD_PING, FIELD_PONG, FIELD_OFFSET };
struct field {
    const struct cluster_node *node;
    uint64_t value;
    size_t at; /* in the text */
    uint8_t len, kind;
};
struct view {
    bool valid;
    struct memory_output text;
    struct field *fields;
    size_t count, capacity;
};
enum { PROTOCOLS = 2 };
static struct view views[VIEW_KINDS][ENDPOINT_VIEWS][PROTOCOLS];

/* What the kept replies were made from. */
static struct {
    const struct cluster *cluster;
    uint64_t view_version, options_version;
    bool has_offset; /* of this node: its offset is not 0 */
} made_from;

static uint64_t own_offset(void) {
    struct cluster_facts facts;
    this_cluster->effects->facts(this_cluster->context, &facts);
    return facts.offset;
}

/* --- Fields --- */

static uint64_t field_value(const struct field *field, uint64_t offset) {
    const struct cluster_node *node = field->node;
    switch ((enum field_kind)field->kind) {
    case FIELD_PING: return (uint64_t)clock_shown_ms(node->beat->ping_sent_ms);
    case FIELD_PONG: return (uint64_t)clock_shown_ms(node->beat->pong_received_ms);
    case FIELD_OFFSET: return node == this_cluster->myself ? offset : node->beat->offset;
    }
    return 0;
}

static void field_add(struct view *view, const struct cluster_node *node, enum field_kind kind, uint64_t offset) {
    mem_grow(view->fields, view->count, view->capacity, 64);
    struct field *field = &view->fields[view->count++];
    *field = (struct field){.node = node, .kind = (uint8_t)kind, .at = memory_output_slice(&view->text).len};
    field->value = field_value(field, offset);
    field->len = (uint8_t)format_uint64(output_reserve(&view->text.out, NUMBER_TEXT_MAX), field->value);
    output_commit(&view->text.out, field->len);
}

static void field_resize(struct view *view, struct field *field, size_t len) {
    struct memory_output *text = &view->text;
    output_reserve(&text->out, NUMBER_TEXT_MAX); /* may move the text */
    char *rest = text->data + field->at + field->len;
    memmove(text->data + field->at + len, rest, (size_t)(text->out.pos - rest));
    text->out.pos += (ptrdiff_t)len - field->len;
    for (struct field *later = field + 1; later < view->fields + view->count; later++)
        later->at += len - field->len; /* modulo 2^64 */
    field->len = (uint8_t)len;
}

static void fields_update(struct view *view, uint64_t offset) {
    for (struct field *field = view->fields; field < view->fields + view->count; field++) {
        uint64_t value = field_value(field, offset);
        if (__builtin_expect(value == field->value, 1)) continue;
        char number[NUMBER_TEXT_MAX];
        size_t len = format_uint64(number, value);
        field->value = value;
        if (len != field->len) field_resize(view, field, len);
        memcpy(view->text.data + field->at, number, len);
    }
}

/* --- The kept replies --- */

typedef void view_maker(struct view *view, struct reply *reply, struct endpoint_view endpoint, uint64_t offset);

/* The text of a view as of now. */
static struct slice view_text(enum view_kind kind, struct endpoint_view endpoint, int protocol, view_maker *make) {
    uint64_t offset = own_offset();
    if (made_from.cluster != this_cluster || made_from.view_version != this_cluster->view_version ||
        made_from.options_version != cluster_options.version || made_from.has_offset != (offset != 0)) {
        for (struct view *view = &views[0][0][0]; view < &views[0][0][0] + sizeof views / sizeof *view; view++)
            view->valid = false;
        made_from.cluster = this_cluster;
        made_from.view_version = this_cluster->view_version;
        made_from.options_version = cluster_options.version;
        made_from.has_offset = offset != 0;
    }
    struct view *view = &views[kind][endpoint_view_index(endpoint)][protocol - 2];
    if (view->valid) {
        fields_update(view, offset);
    } else {
        if (!view->text.out.ops) memory_output_init(&view->text);
        memory_output_clear(&view->text);
        view->count = 0;
        struct reply reply = {.out = &view->text.out, .protocol = (uint8_t)protocol};
        make(view, &reply, endpoint, offset);
        view->valid = true;
    }
    return memory_output_slice(&view->text);
}

/* --- NODES and REPLICAS --- */

static void describe_for_client(const struct cluster_node *node, struct endpoint_view endpoint,
                                struct node_line *line) {
    cluster_describe_node(this_cluster, node, line);
    line->address = slice_of(endpoint_ip(node, endpoint));
    line->tcp_port = endpoint_port(node, endpoint);
}

static void make_nodes(struct view *view, struct reply *reply, struct endpoint_view endpoint, uint64_t offset) {
    size_t open_count = cluster_count_open_slots(this_cluster);
    struct open_slot *open = mem_calloc(open_count + 1, sizeof *open);
    cluster_list_open_slots(this_cluster, open);
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        struct node_line line;
        describe_for_client(node, endpoint, &line);
        if (node == this_cluster->myself) {
            line.open = open;
            line.open_count = open_count;
        }
        node_line_print_head(reply->out, &line, NODE_LINE_CLIENT);
        field_add(view, node, FIELD_PING, offset);
        output_write(reply->out, SLICE(" "));
        field_add(view, node, FIELD_PONG, offset);
        node_line_print_tail(reply->out, &line);
        output_write(reply->out, SLICE("\n"));
    }
    mem_free(open);
}

void views_nodes(struct reply *reply, struct endpoint_view endpoint) {
    reply_verbatim(reply, "txt", view_text(VIEW_NODES, endpoint, 2, make_nodes));
}

void views_replicas(struct reply *reply, const struct cluster_node *primary, struct endpoint_view endpoint) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    reply_array(reply, primary->replica_count);
    for (size_t i = 0; i < primary->replica_count; i++) {
        struct node_line line;
        memory_output_clear(&text);
        describe_for_client(primary->replicas[i], endpoint, &line);
        node_line_print(&text.out, &line, NODE_LINE_CLIENT);
        reply_bulk(reply, memory_output_slice(&text));
    }
    memory_output_free(&text);
}

/* --- SLOTS --- */

static void reply_id(struct reply *reply, const struct node_id *id) {
    reply_bulk(reply, slice_make(id->text, NODE_ID_LEN));
}
static void reply_named(struct reply *reply, const char *name, const char *text) {
    reply_bulk_text(reply, name);
    reply_bulk_text(reply, text);
}

static void reply_port(struct reply *reply, const char *name, uint16_t port) {
    if (!port) return;
    reply_bulk_text(reply, name);
    reply_integer(reply, port);
}

/* What a client could not read from: a replica that has failed, or has no data yet. */
static bool replica_is_shown(const struct cluster_node *replica, uint64_t offset) {
    return !node_failed(replica) && (replica == this_cluster->myself ? offset : replica->beat->offset) != 0;
}

static void reply_slots_node(struct reply *reply, const struct cluster_node *node, struct endpoint_view endpoint) {
    bool with_ip = cluster_options.preferred_endpoint != ENDPOINT_IP;
    bool with_hostname = cluster_options.preferred_endpoint != ENDPOINT_HOSTNAME && node->announced.hostname;
    reply_array(reply, 4);
    if (endpoint_is_unknown())
        reply_null(reply);
    else
        reply_bulk_text(reply, endpoint_host(node, endpoint));
    reply_integer(reply, endpoint_port(node, endpoint));
    reply_id(reply, &node->id);
    uint16_t rdma_port = endpoint_named_rdma_port(node, endpoint);
    reply_map(reply, (size_t)with_ip + with_hostname + (node->announced.availability_zone != NULL) + (rdma_port != 0));
    if (with_ip) reply_named(reply, "ip", endpoint_ip(node, endpoint));
    if (with_hostname) reply_named(reply, "hostname", node->announced.hostname);
    if (node->announced.availability_zone) reply_named(reply, "availability-zone", node->announced.availability_zone);
    reply_port(reply, "rdma-port", rdma_port);
}

/* The end of the range of slots with one owner that begins at `slot`. */
static unsigned range_end(unsigned slot) {
    struct cluster_node *const *owner = this_cluster->slots.owner;
    if (owner[slot]) return slot_bitmap_next(owner[slot]->slots, slot, false) - 1;
    while (slot + 1 < HASH_SLOTS && !owner[slot + 1]) slot++;
    return slot;
}

static void make_slots(struct view *view, struct reply *reply, struct endpoint_view endpoint, uint64_t offset) {
    struct cluster_node *const *owner = this_cluster->slots.owner;
    size_t ranges = 0;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot = range_end(slot) + 1) ranges += owner[slot] != NULL;
    reply_array(reply, ranges);
    for (unsigned slot = 0, last; slot < HASH_SLOTS; slot = last + 1) {
        const struct cluster_node *primary = owner[slot];
        last = range_end(slot);
        if (!primary) continue;
        size_t replicas = 0;
        for (size_t i = 0; i < primary->replica_count; i++) replicas += replica_is_shown(primary->replicas[i], offset);
        reply_array(reply, 3 + replicas);
        reply_integer(reply, slot);
        reply_integer(reply, last);
        reply_slots_node(reply, primary, endpoint);
        for (size_t i = 0; i < primary->replica_count; i++)
            if (replica_is_shown(primary->replicas[i], offset)) reply_slots_node(reply, primary->replicas[i], endpoint);
    }
}

void views_slots(struct reply *reply, struct endpoint_view endpoint) {
    reply_raw(reply, view_text(VIEW_SLOTS, endpoint, reply->protocol, make_slots));
}

/* --- SHARDS --- */

/* By shard, primaries first. */
static int compare_members(const void *a, const void *b) {
    const struct cluster_node *x = *(struct cluster_node *const *)a, *y = *(struct cluster_node *const *)b;
    int order = memcmp(x->shard.text, y->shard.text, NODE_ID_LEN);
    if (order == 0) order = node_is_primary(y) - node_is_primary(x);
    return order ? order : memcmp(x->id.text, y->id.text, NODE_ID_LEN);
}

/* The nodes of CLUSTER SHARDS in its order. The order of the last call is right but after rare changes, and is checked
 * with one comparison a node. Returns their number; `members` has space for all nodes. */
static size_t list_members(struct cluster_node **members) {
    const struct node_table *nodes = &this_cluster->nodes;
    size_t count = 0, placed = 0;
    memset(members, 0, nodes->count * sizeof *members);
    for (size_t i = 0; i < nodes->count; i++) {
        struct cluster_node *node = nodes->list[i];
        if (node_in_handshake(node)) continue;
        count++;
        if (node->view_rank < nodes->count && !members[node->view_rank]) members[node->view_rank] = node, placed++;
    }
    bool sorted = placed == count && (count == 0 || members[count - 1]);
    for (size_t i = 0; sorted && i < count; i++)
        sorted = members[i] && (i == 0 || compare_members(&members[i - 1], &members[i]) < 0);
    if (sorted) return count;
    count = 0;
    for (size_t i = 0; i < nodes->count; i++)
        if (!node_in_handshake(nodes->list[i])) members[count++] = nodes->list[i];
    qsort(members, count, sizeof *members, compare_members);
    for (size_t i = 0; i < count; i++) members[i]->view_rank = i;
    return count;
}

static void reply_shards_node(struct view *view, struct reply *reply, const struct cluster_node *node,
                              struct endpoint_view endpoint, uint64_t offset) {
    uint16_t port = 0, tls_port = 0;
    if (endpoint.kind == ENDPOINT_RDMA)
        port = endpoint_port(node, endpoint);
    else if (node->port)
        port = endpoint_port(node, (struct endpoint_view){.kind = ENDPOINT_TCP, .family = endpoint.family});
    if (node->tls_port)
        tls_port = endpoint_port(node, (struct endpoint_view){.kind = ENDPOINT_TLS, .family = endpoint.family});
    uint16_t rdma_port = endpoint_named_rdma_port(node, endpoint);
    size_t pairs = 6;
    pairs += (port != 0) + (size_t)(tls_port != 0) + (node->announced.hostname != NULL) +
             (node->announced.availability_zone != NULL);
    pairs += rdma_port != 0;
    reply_map(reply, pairs);
    output_write(reply->out, SLICE("$2\r\nid\r\n"));
    reply_id(reply, &node->id);
    reply_port(reply, "port", port);
    reply_port(reply, "tls-port", tls_port);
    reply_named(reply, "ip", endpoint_ip(node, endpoint));
    reply_named(reply, "endpoint", endpoint_host(node, endpoint));
    if (node->announced.hostname) reply_named(reply, "hostname", node->announced.hostname);
    output_write(reply->out, node_is_replica(node)
                                 ? SLICE("$4\r\nrole\r\n$7\r\nreplica\r\n$18\r\nreplication-offset\r\n:")
                                 : SLICE("$4\r\nrole\r\n$6\r\nmaster\r\n$18\r\nreplication-offset\r\n:"));
    field_add(view, node, FIELD_OFFSET, offset);
    bool has_data = !node_is_replica(node) || (node == this_cluster->myself ? offset : node->beat->offset) != 0;
    output_write(reply->out, node_failed(node) ? SLICE("\r\n$6\r\nhealth\r\n$4\r\nfail\r\n")
                             : has_data        ? SLICE("\r\n$6\r\nhealth\r\n$6\r\nonline\r\n")
                                               : SLICE("\r\n$6\r\nhealth\r\n$7\r\nloading\r\n"));
    if (node->announced.availability_zone) reply_named(reply, "availability-zone", node->announced.availability_zone);
    reply_port(reply, "rdma-port", rdma_port);
}

static void make_shards(struct view *view, struct reply *reply, struct endpoint_view endpoint, uint64_t offset) {
    const struct node_table *nodes = &this_cluster->nodes;
    struct cluster_node **members = mem_alloc(nodes->count * sizeof *members);
    size_t count = list_members(members), shards = 0;
    for (size_t i = 0; i < count; i++) shards += i == 0 || !nodes_share_shard(members[i - 1], members[i]);
    reply_array(reply, shards);
    for (size_t i = 0, end; i < count; i = end) {
        size_t ranges = 0;
        unsigned slot, first, last;
        for (end = i; end < count && nodes_share_shard(members[i], members[end]); end++)
            for (slot = 0; node_is_primary(members[end]) && node_slot_range(members[end], &slot, &first, &last);)
                ranges++;
        reply_map(reply, 3);
        reply_bulk_text(reply, "slots");
        reply_array(reply, 2 * ranges);
        for (size_t at = i; at < end; at++) {
            for (slot = 0; node_is_primary(members[at]) && node_slot_range(members[at], &slot, &first, &last);) {
                reply_integer(reply, first);
                reply_integer(reply, last);
            }
        }
        reply_bulk_text(reply, "nodes");
        reply_array(reply, end - i);
        for (size_t at = i; at < end; at++) reply_shards_node(view, reply, members[at], endpoint, offset);
        reply_bulk_text(reply, "id");
        reply_id(reply, &members[i]->shard);
    }
    mem_free(members);
}

void views_shards(struct reply *reply, struct endpoint_view endpoint) {
    reply_raw(reply, view_text(VIEW_SHARDS, endpoint, reply->protocol, make_shards));
}

/* --- LINKS --- */

static void reply_link(struct reply *reply, const struct cluster_link *link) {
    size_t allocated, queued = bus_link_queued(link->host, &allocated);
    reply_map(reply, 6);
    reply_named(reply, "direction", link->inbound ? "from" : "to");
    reply_bulk_text(reply, "node");
    reply_id(reply, &link->node->id);
    reply_field_integer(reply, "create-time", link->created_ms);
    reply_named(reply, "events", queued ? "rw" : "r");
    reply_field_integer(reply, "send-buffer-allocated", (int64_t)allocated);
    reply_field_integer(reply, "send-buffer-used", (int64_t)queued);
}

void views_links(struct reply *reply) {
    const struct node_table *nodes = &this_cluster->nodes;
    size_t count = 0;
    for (size_t i = 0; i < nodes->count; i++)
        count += (nodes->list[i]->link != NULL) + (size_t)(nodes->list[i]->inbound != NULL);
    reply_array(reply, count);
    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->list[i]->link) reply_link(reply, nodes->list[i]->link);
        if (nodes->list[i]->inbound) reply_link(reply, nodes->list[i]->inbound);
    }
}
