/* benchmark_cluster.c: the slots of each node.
 *
 * A key with a {tag} belongs to the node that serves the tag's slot. Each request gets the tag of a slot of its target
 * node, so there are no redirections and all nodes share the load. Tags are found by trying all 238328 tags of three
 * letters for the 16384 slots. */
#include "lib/hash/hash_slot.h"
#include "lib/system/memory.h"
#include "tools/benchmark.h"
#include "tools/session.h"
#include <stdio.h>
#include <stdlib.h>

static char (*tags_make(void))[3] {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char(*tags)[3] = mem_calloc(HASH_SLOTS, sizeof *tags);
    enum { LETTERS = sizeof letters - 1 };
    for (int i = 0; i < LETTERS * LETTERS * LETTERS; i++) {
        char tag[3] = {letters[i / LETTERS / LETTERS], letters[i / LETTERS % LETTERS], letters[i % LETTERS]};
        memcpy(tags[hash_slot((struct slice){tag, 3})], tag, 3);
    }
    return tags;
}

static void endpoint_copy(struct endpoint *to, const struct endpoint *from) {
    endpoint_init(to);
    text_set(&to->host, from->host);
    text_set(&to->socket, from->socket);
    text_set(&to->user, from->user);
    text_set(&to->password, from->password);
    to->port = from->port;
    to->rdma = from->rdma;
    to->tls = from->tls;
    to->mptcp = from->mptcp;
    if (from->server_name) text_set(&to->server_name, from->server_name);
}

static struct bench_node *node_add(struct bench_cluster *cluster, const struct endpoint *endpoint) {
    cluster->nodes = mem_realloc(cluster->nodes, (size_t)(cluster->count + 1) * sizeof *cluster->nodes);
    struct bench_node *node = &cluster->nodes[cluster->count++];
    memset(node, 0, sizeof *node);
    endpoint_copy(&node->endpoint, endpoint);
    return node;
}

static struct bench_node *node_find(struct bench_cluster *cluster, const struct endpoint *first, struct slice host,
                                    int port) {
    for (int i = 0; i < cluster->count; i++) {
        struct endpoint *e = &cluster->nodes[i].endpoint;
        if (slice_equal(slice_of(e->host), host) && e->port == port) return &cluster->nodes[i];
    }
    struct bench_node *node = node_add(cluster, first);
    mem_free(node->endpoint.host);
    node->endpoint.host = mem_strndup(host.data, host.len);
    node->endpoint.port = port;
    text_set(&node->endpoint.socket, NULL);
    return node;
}

static void benchmark_cluster_fail(const char *what, const char *why) {
    fprintf(stderr, "%s%s\n", what, why);
    exit(1);
}

/* The node at [host, port, …] serves the slots [from, to]. No host, or "?" where the cluster prefers host names and the
 * node has none: that of the node that was asked. */
static struct bench_node *slots_add(struct bench_cluster *cluster, const struct endpoint *first,
                                    const struct resp_value *at, int64_t from, int64_t to) {
    struct slice host = at->children[0].text;
    if (!host.len || slice_is(host, "?")) host = slice_of(first->host);
    struct bench_node *node = node_find(cluster, first, host, (int)at->children[1].integer);
    size_t count = (size_t)node->slots_count + (size_t)(to - from + 1);
    node->slots = mem_realloc(node->slots, count * sizeof *node->slots);
    while (from <= to) node->slots[node->slots_count++] = (uint16_t)from++;
    if (at->count > 2)
        snprintf(node->id, sizeof node->id, "%.*s", (int)at->children[2].text.len, at->children[2].text.data);
    return node;
}

/* Reads CLUSTER SLOTS: [first, last, [host, port, …] of the primary, replicas …] … */
static bool slots_read(struct bench_cluster *cluster, const struct bench_options *o, const struct resp_value *reply) {
    if (!reply || reply->type != RESP_ARRAY || reply->count == 0) return false;
    for (size_t i = 0; i < reply->count; i++) {
        const struct resp_value *range = &reply->children[i];
        if (range->type != RESP_ARRAY || range->count < 3) return false;
        int64_t from = range->children[0].integer, to = range->children[1].integer;
        if (from < 0 || to >= HASH_SLOTS || from > to) return false;
        for (size_t k = 2; k < range->count; k++) {
            const struct resp_value *node = &range->children[k];
            if (node->type != RESP_ARRAY || node->count < 2) return false;
            if (k == 2 ? o->read_primaries : o->read_replicas)
                slots_add(cluster, &o->endpoint, node, from, to)->is_replica = k > 2;
        }
    }
    if (cluster->count == 0) benchmark_cluster_fail("ERROR: --rfr yes needs replicas, and the cluster has none", "");
    return true;
}

static char *config_get(struct session *s, const char *name) {
    const struct resp_value *reply = SESSION_CALL(s, "CONFIG", "GET", name);
    const struct resp_value *value = reply ? resp_value_get(reply, name) : NULL;
    return value && value->text.data ? mem_strdup(value->text.data) : NULL;
}

static void session_open(struct session *s, const struct endpoint *e) {
    char where[160], text[320];
    endpoint_format(e, where, sizeof where);
    session_init(s);
    if (session_connect(s, e, 0) < 0) {
        snprintf(text, sizeof text, "Could not connect to server at %s: ", where);
        benchmark_cluster_fail(text, s->error);
    }
    if (!session_authenticate(s, e)) {
        snprintf(text, sizeof text, "Node %s replied with error:\n", where);
        benchmark_cluster_fail(text, s->error);
    }
}

static void show_nodes(const struct bench_cluster *cluster, const struct bench_options *o) {
    const char *kind = !o->read_replicas ? "primary" : o->read_primaries ? "cluster" : "replica";
    printf("Cluster has %d %s nodes:\n\n", cluster->count, kind);
    for (int i = 0; i < cluster->count; i++) {
        const struct bench_node *node = &cluster->nodes[i];
        printf("Node %d(%s): %s %s:%d\n", i, node->is_replica ? "Replica" : "Primary", node->id, node->endpoint.host,
               node->endpoint.port);
    }
    putchar('\n');
}

void cluster_discover(struct bench_cluster *cluster, const struct bench_options *o) {
    memset(cluster, 0, sizeof *cluster);
    struct session s;
    session_open(&s, &o->endpoint);
    if (o->cluster) {
        cluster->tags = tags_make();
        const struct resp_value *reply = SESSION_CALL(&s, "CLUSTER", "SLOTS");
        if (!slots_read(cluster, o, reply)) {
            benchmark_cluster_fail("ERROR: failed to fetch the cluster's slots: ",
                                   reply && reply->type == RESP_ERROR ? reply->text.data
                                                                      : "the reply is not a list of slots");
        }
        if (o->output != OUTPUT_CSV) show_nodes(cluster, o);
        if (o->clients < cluster->count) benchmark_cluster_fail("ERROR: there are fewer clients (-c) than nodes", "");
    } else {
        node_add(cluster, &o->endpoint);
    }
    session_free(&s);
    for (int i = 0; i < cluster->count; i++) {
        struct bench_node *node = &cluster->nodes[i];
        session_open(&s, &node->endpoint);
        const struct resp_value *reply = SESSION_CALL(&s, "CONFIG", "GET", "save");
        if (reply && reply->type == RESP_ERROR && strncmp(reply->text.data, "NOAUTH", 6) == 0) {
            char where[160], text[320];
            endpoint_format(&node->endpoint, where, sizeof where);
            snprintf(text, sizeof text, "Node %s replied with error:\n", where);
            benchmark_cluster_fail(text, reply->text.data);
        }
        node->save = config_get(&s, "save");
        node->appendonly = config_get(&s, "appendonly");
        session_free(&s);
    }
    if (!cluster->nodes[0].save) fprintf(stderr, "WARNING: Could not fetch server CONFIG\n");
}

void cluster_free(struct bench_cluster *cluster) {
    for (int i = 0; i < cluster->count; i++) {
        endpoint_free(&cluster->nodes[i].endpoint);
        mem_free(cluster->nodes[i].slots);
        mem_free(cluster->nodes[i].save);
        mem_free(cluster->nodes[i].appendonly);
    }
    mem_free(cluster->nodes);
    mem_free(cluster->tags);
    memset(cluster, 0, sizeof *cluster);
}
