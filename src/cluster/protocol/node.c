/* node.c: see node.h */
#include "cluster/protocol/node.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <endian.h>
#include <stdio.h>

static void node_free(void *entry) {
    struct cluster_node *node = entry;
    mem_free(node->replicas);
    mem_free(node->slots);
    mem_free(node->announced.hostname);
    mem_free(node->announced.nodename);
    mem_free(node->announced.client_ipv4);
    mem_free(node->announced.client_ipv6);
    mem_free(node->announced.availability_zone);
    mem_free(node->unknown);
    mem_free(node->reports);
    mem_free(node);
}

void nodes_init(struct node_table *nodes) {
    *nodes = (struct node_table){0};
}

void nodes_free(struct node_table *nodes) {
    for (size_t i = 0; i < nodes->count; i++) node_free(nodes->list[i]);
    mem_free(nodes->list);
    mem_free(nodes->beats);
    mem_free(nodes->brief);
}

/* Ids are looked up a hundred times for each message, by how they begin, in a table that is small enough to stay in the
 * cache: open addressing; a slot has 12 bits of the hash and, below them, the place in the list plus one, or it is 0.
 */
enum { PLACE_BITS = 20, PLACE_MASK = (1 << PLACE_BITS) - 1, BRIEF_SIZE_MIN = 32 };

static uint64_t brief_hash(const void *id) {
    const uint64_t multiplier = 0x9e3779b97f4a7c15; /* of Fibonacci hashing */
    uint64_t parts[BUS_BRIEF_ID_LEN / 8];
    memcpy(parts, id, sizeof parts);
    uint64_t hash = (parts[0] * multiplier ^ parts[1]) * multiplier;
    return hash ^ hash >> 32;
}
static uint32_t brief_tag(uint64_t hash) {
    return (uint32_t)(hash >> 32) & ~(uint32_t)PLACE_MASK;
}
static struct node_heartbeat *brief_find(const struct node_table *nodes, const void *id, uint64_t hash) {
    size_t mask = nodes->brief_size - 1;
    for (size_t at = hash & mask; nodes->brief[at]; at = (at + 1) & mask) {
        if ((nodes->brief[at] ^ brief_tag(hash)) & ~(uint32_t)PLACE_MASK) continue;
        struct node_heartbeat *beat = &nodes->beats[(nodes->brief[at] & PLACE_MASK) - 1];
        if (memcmp(beat->brief_id, id, BUS_BRIEF_ID_LEN) == 0) return beat;
    }
    return NULL;
}
static void brief_add(struct node_table *nodes, size_t place) {
    struct node_heartbeat *beat = &nodes->beats[place];
    size_t mask = nodes->brief_size - 1;
    memcpy(beat->brief_id, nodes->list[place]->id.text, BUS_BRIEF_ID_LEN);
    uint64_t hash = brief_hash(beat->brief_id);
    if (place + 1 > PLACE_MASK || brief_find(nodes, beat->brief_id, hash)) return;
    size_t at = hash & mask;
    while (nodes->brief[at]) at = (at + 1) & mask;
    nodes->brief[at] = brief_tag(hash) | (uint32_t)(place + 1);
}
static void brief_rebuild(struct node_table *nodes) {
    memset(nodes->brief, 0, nodes->brief_size * sizeof *nodes->brief);
    for (size_t i = 0; i < nodes->count; i++) brief_add(nodes, i);
}
static void brief_grow(struct node_table *nodes) {
    nodes->brief_size = nodes->brief_size ? nodes->brief_size * 2 : BRIEF_SIZE_MIN;
    nodes->brief = mem_realloc(nodes->brief, nodes->brief_size * sizeof *nodes->brief);
    brief_rebuild(nodes);
}

struct cluster_node *nodes_find(const struct node_table *nodes, const struct node_id *id) {
    if (nodes->count == 0) return NULL;
    const struct node_heartbeat *beat = brief_find(nodes, id->text, brief_hash(id->text));
    if (!beat && nodes->count <= PLACE_MASK) return NULL;
    if (beat && node_id_equal(&nodes_of_beat(nodes, beat)->id, id)) return nodes_of_beat(nodes, beat);
    for (size_t i = 0; i < nodes->count; i++) /* another id begins like this one */
        if (node_id_equal(&nodes->list[i]->id, id)) return nodes->list[i];
    return NULL;
}

void nodes_find_brief(const struct node_table *nodes, const uint8_t *bytes, size_t stride, size_t count,
                      struct node_heartbeat *beats[static NODES_FIND_MAX]) {
    uint64_t hashes[NODES_FIND_MAX];
    size_t mask = nodes->brief_size - 1;
    for (size_t i = 0; i < count; i++) {
        hashes[i] = brief_hash(bytes + i * stride);
        __builtin_prefetch(&nodes->brief[hashes[i] & mask]);
    }
    for (size_t i = 0; i < count; i++) {
        size_t place = nodes->brief[hashes[i] & mask] & PLACE_MASK;
        if (place) __builtin_prefetch(&nodes->beats[place - 1]);
    }
    for (size_t i = 0; i < count; i++) beats[i] = brief_find(nodes, bytes + i * stride, hashes[i]);
}

static void nodes_grow(struct node_table *nodes) {
    nodes->capacity = nodes->capacity ? nodes->capacity * 2 : 16;
    nodes->list = mem_realloc(nodes->list, nodes->capacity * sizeof *nodes->list);
    nodes->beats = mem_realloc(nodes->beats, nodes->capacity * sizeof *nodes->beats);
    for (size_t i = 0; i < nodes->count; i++) nodes->list[i]->beat = &nodes->beats[i];
}

void nodes_add(struct node_table *nodes, struct cluster_node *node) {
    if (nodes->count == nodes->capacity) nodes_grow(nodes);
    node->index = nodes->count++;
    nodes->digest = 0;
    nodes->list[node->index] = node;
    node->beat = &nodes->beats[node->index];
    *node->beat = (struct node_heartbeat){0};
    if (nodes->count * 2 > nodes->brief_size)
        brief_grow(nodes);
    else
        brief_add(nodes, node->index);
}

void nodes_remove(struct node_table *nodes, struct cluster_node *node) {
    must_less(node->index, nodes->count);
    must(nodes->list[node->index] == node);
    node_set_primary(node, NULL);
    while (node->replica_count) node_set_primary(node->replicas[node->replica_count - 1], NULL);
    for (size_t i = 0; i < nodes->count; i++) node_remove_report(nodes->list[i], node);
    nodes->digest = 0;
    struct cluster_node *last = nodes->list[--nodes->count];
    nodes->list[node->index] = last;
    *node->beat = *last->beat;
    last->index = node->index;
    last->beat = node->beat;
    brief_rebuild(nodes);
    node_free(node);
}

void nodes_rename(struct node_table *nodes, struct cluster_node *node, const struct node_id *id) {
    node->id = *id;
    nodes->digest = 0;
    brief_rebuild(nodes);
}

uint32_t nodes_digest(struct node_table *nodes) {
    const uint64_t multiplier = 0x9e3779b97f4a7c15; /* of Fibonacci hashing */
    if (nodes->digest) return nodes->digest;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct cluster_node *node = nodes_at(nodes, i);
        uint64_t part;
        if (node_in_handshake(node)) continue;
        memcpy(&part, node->id.text, sizeof part);
        nodes->digest ^= (uint32_t)(htobe64(part) * multiplier >> 32);
    }
    if (!nodes->digest) nodes->digest = 1;
    return nodes->digest;
}

struct cluster_node *node_new(const struct node_id *id, unsigned flags, int64_t now_ms) {
    struct cluster_node *node = mem_calloc(1, sizeof *node);
    node->id = *id;
    node->flags = flags;
    node->created_ms = node->links.inbound_missing_ms = node->news_ms = now_ms;
    return node;
}

void node_update(struct cluster_node *node) {
    const unsigned unusual = NODE_MYSELF | NODE_HANDSHAKE | NODE_NOADDR | NODE_PFAIL | NODE_FAIL;
    struct node_heartbeat *beat = node->beat;
    if (beat) beat->usual = !(node->flags & unusual) && beat->connected && node->inbound && !node->report_count;
}

void node_set_primary(struct cluster_node *node, struct cluster_node *primary) {
    struct cluster_node *old = node->primary;
    if (old == primary) return;
    if (old) {
        size_t i = 0;
        while (i < old->replica_count && old->replicas[i] != node) i++;
        must_less(i, old->replica_count);
        memmove(&old->replicas[i], &old->replicas[i + 1], (--old->replica_count - i) * sizeof *old->replicas);
    }
    node->primary = primary;
    if (!primary) return;
    primary->replicas = mem_realloc(primary->replicas, (primary->replica_count + 1) * sizeof *primary->replicas);
    size_t at = primary->replica_count++;
    for (; at > 0 && memcmp(primary->replicas[at - 1]->id.text, node->id.text, NODE_ID_LEN) > 0; at--)
        primary->replicas[at] = primary->replicas[at - 1];
    primary->replicas[at] = node;
}

size_t node_working_replicas(const struct cluster_node *primary) {
    size_t count = 0;
    for (size_t i = 0; i < primary->replica_count; i++)
        count += !(primary->replicas[i]->flags & (NODE_FAIL | NODE_PFAIL));
    return count;
}

bool node_set_text(char **text, struct slice value) {
    if (value.len > NODE_NAME_MAX) value.len = NODE_NAME_MAX;
    if (slice_equal(slice_of(node_text(*text)), value)) return false;
    mem_free(*text);
    *text = value.len ? mem_strndup(value.data, value.len) : NULL;
    return true;
}

const char *node_name(const struct cluster_node *node) {
    static _Thread_local char names[4][NODE_ADDRESS_MAX + 16];
    static _Thread_local unsigned next;
    if (node->announced.nodename) return node->announced.nodename;
    char *name = names[next++ % 4];
    unsigned port = node->port ? node->port : node->tls_port;
    snprintf(name, sizeof names[0], strchr(node->address, ':') ? "[%s]:%u" : "%s:%u", node->address, port);
    return name;
}

static struct failure_report *find_report(const struct cluster_node *node, const struct cluster_node *reporter) {
    for (size_t i = 0; i < node->report_count; i++)
        if (node->reports[i].reporter == reporter) return &node->reports[i];
    return NULL;
}

bool node_add_report(struct cluster_node *node, struct cluster_node *reporter, int64_t now_ms) {
    struct failure_report *report = find_report(node, reporter);
    if (report) {
        report->at_s = now_ms / 1000;
        return false;
    }
    mem_grow(node->reports, node->report_count, node->report_capacity, 8);
    node->reports[node->report_count++] = (struct failure_report){reporter, now_ms / 1000};
    node_update(node);
    return true;
}

bool node_remove_report(struct cluster_node *node, const struct cluster_node *reporter) {
    struct failure_report *report = find_report(node, reporter);
    if (!report) return false;
    *report = node->reports[--node->report_count];
    node_update(node);
    return true;
}

size_t node_count_reports(struct cluster_node *node, int64_t now_ms, int64_t max_age_ms) {
    for (size_t i = 0; i < node->report_count;) {
        if (now_ms - node->reports[i].at_s * 1000 > max_age_ms)
            node->reports[i] = node->reports[--node->report_count];
        else
            i++;
    }
    node_update(node);
    return node->report_count;
}
