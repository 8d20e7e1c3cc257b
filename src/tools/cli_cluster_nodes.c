/* cli_cluster_nodes.c: connections to the nodes of a cluster, and what the nodes say about it. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "tools/cli_cluster.h"
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

enum { JOIN_POLL_MS = 100, JOIN_WARN_MS = 10 * 1000 };

/* --- Calls --- */

void cluster_show_error(const struct cli_node *node, const struct resp_value *reply) {
    fflush(stdout);
    printf("Node %s replied with error:\n%s\n", node->name, reply->text.data);
}

struct resp_value *cluster_try(struct cli_node *node, int argc, const struct slice *argv, int64_t timeout_ms) {
    struct session *s = &node->session;
    session_send(s, argc, argv);
    struct resp_value *reply;
    do {
        reply = session_read(s, timeout_ms);
    } while (reply && (reply->type == RESP_PUSH || reply->type == RESP_ATTRIBUTE));
    if (reply) return reply;
    fflush(stdout);
    fprintf(stderr, "Node %s: %s\n", node->name, s->error);
    session_close(s); /* a reply that comes late would be taken for that of the next call */
    return NULL;
}

struct resp_value *cluster_call(struct cli_node *node, int argc, const struct slice *argv) {
    struct resp_value *reply = cluster_try(node, argc, argv, CLUSTER_CALL_MS);
    if (!reply || reply->type != RESP_ERROR) return reply;
    cluster_show_error(node, reply);
    return NULL;
}

struct resp_value *cluster_call_words(struct cli_node *node, bool try, int count, const char *const *words) {
    struct slice argv[16];
    for (int i = 0; i < count && i < 16; i++) argv[i] = slice_of(words[i]);
    return try ? cluster_try(node, count, argv, CLUSTER_CALL_MS) : cluster_call(node, count, argv);
}

/* --- One node --- */

static struct resp_value *nodes_ask(struct cli_node *node) {
    struct resp_value *reply = CLUSTER_CALL(node, "CLUSTER", "NODES");
    if (!reply || reply->type == RESP_BULK || reply->type == RESP_VERBATIM || reply->type == RESP_STATUS) return reply;
    printf("Node %s: CLUSTER NODES has an unexpected reply\n", node->name);
    return NULL;
}

/* Asks the node about itself again. False: it failed, with a message. */
static bool node_reload(struct cli_node *node) {
    const struct resp_value *reply = nodes_ask(node);
    if (!reply) return false;
    for (struct slice rest = reply->text; rest.len;) {
        struct cli_node_line line;
        struct slice text = slice_take_line(&rest);
        if (!text.len) continue;
        if (!node_line_parse(text, &line)) {
            printf("Node %s: CLUSTER NODES has a line that cannot be parsed: %.*s\n", node->name, (int)text.len,
                   text.data);
            return false;
        }
        if (!(line.flags & NODE_MYSELF)) {
            node_line_free(&line);
            continue;
        }
        /* A node that no other has met yet does not know its address. */
        memcpy(line.host, node->line.host, sizeof line.host);
        line.port = node->line.port;
        node_line_free(&node->line);
        node->line = line;
        return true;
    }
    printf("Node %s: CLUSTER NODES does not list the node itself\n", node->name);
    return false;
}

static struct cli_node *node_new(const char *host, int port) {
    struct cli_node *node = mem_calloc(1, sizeof *node);
    snprintf(node->line.host, sizeof node->line.host, "%s", host);
    node->line.port = port;
    snprintf(node->name, sizeof node->name, "%s:%d", host, port);
    session_init(&node->session);
    return node;
}

void cluster_node_free(struct cli_node *node) {
    if (!node) return;
    session_free(&node->session);
    node_line_free(&node->line);
    mem_free(node);
}

static bool node_connect(struct cli_cluster *c, struct cli_node *node) {
    struct endpoint e = c->cli->options.endpoint; /* with its texts, which it does not own */
    e.host = node->line.host;
    e.port = node->line.port;
    e.socket = NULL;
    if (session_connect(&node->session, &e, c->cli->options.timeout_ms) < 0) {
        fflush(stdout);
        fprintf(stderr, "Could not connect to Valkey at %s: %s\n", node->name, node->session.error);
        return false;
    }
    if (session_authenticate(&node->session, &e)) return true;
    printf("Node %s replied with error:\n%s\n", node->name, node->session.error);
    return false;
}

/* INFO is refused first where a password is missing. */
static bool node_is_in_cluster_mode(struct cli_cluster *c, struct cli_node *node) {
    const struct resp_value *reply = CLUSTER_TRY(node, "INFO", "cluster");
    if (!reply) return false;
    if (reply->type == RESP_ERROR) {
        cluster_say(c, TONE_ERROR, "[ERR] Node %s %s\n", node->name, reply->text.data);
        return false;
    }
    if (reply->text.data && strstr(reply->text.data, "cluster_enabled:1")) return true;
    cluster_say(c, TONE_ERROR, "[ERR] Node %s is not configured as a cluster node.\n", node->name);
    return false;
}

struct cli_node *cluster_node_open(struct cli_cluster *c, const char *host, int port) {
    struct cli_node *node = node_new(host, port);
    if (node_connect(c, node) && node_is_in_cluster_mode(c, node) && node_reload(node)) {
        node->reachable = true;
        return node;
    }
    cluster_node_free(node);
    return NULL;
}

bool cluster_node_is_empty(struct cli_node *node) {
    const struct resp_value *reply = CLUSTER_CALL(node, "CLUSTER", "INFO");
    if (!reply || !reply->text.data) return false;
    bool alone = strstr(reply->text.data, "cluster_known_nodes:1\r") != NULL;
    reply = CLUSTER_CALL(node, "INFO", "keyspace");
    if (!reply || !reply->text.data) return false;
    return alone && !strstr(reply->text.data, "db0:");
}

int cluster_databases(struct cli_node *node, int **databases) {
    const struct resp_value *reply = CLUSTER_CALL(node, "INFO", "keyspace");
    int count = 0;
    *databases = NULL;
    if (!reply || !reply->text.data) return -1;
    for (struct slice rest = reply->text; rest.len;) {
        struct slice line = slice_take_line(&rest);
        const char *colon = memchr(line.data, ':', line.len);
        int64_t number;
        if (line.len < 3 || memcmp(line.data, "db", 2) != 0 || !colon) continue;
        if (!parse_int64(slice_make(line.data + 2, (size_t)(colon - line.data - 2)), &number) || number < 0 ||
            number > INT32_MAX)
            continue;
        *databases = mem_realloc(*databases, (size_t)(count + 1) * sizeof **databases);
        (*databases)[count++] = (int)number;
    }
    return count;
}

int64_t cluster_count_keys(struct cli_node *node, int slot) {
    int *databases, count = cluster_databases(node, &databases);
    int64_t keys = count < 0 ? -1 : 0;
    for (int i = 0; i < count && keys >= 0; i++) {
        char db[16], text[16];
        snprintf(db, sizeof db, "%d", databases[i]);
        snprintf(text, sizeof text, "%d", slot);
        const struct resp_value *reply = CLUSTER_CALL(node, "SELECT", db);
        if (reply) reply = CLUSTER_CALL(node, "CLUSTER", "COUNTKEYSINSLOT", text);
        keys = reply && reply->type == RESP_INTEGER ? keys + reply->integer : -1;
    }
    mem_free(databases);
    return keys;
}

/* --- The cluster --- */

static void list_add(struct cli_node ***list, int *count, struct cli_node *node) {
    *list = mem_realloc(*list, (size_t)(*count + 1) * sizeof **list);
    node->index = *count;
    (*list)[(*count)++] = node;
}

void cluster_add(struct cli_cluster *c, struct cli_node *node) {
    list_add(&c->nodes, &c->count, node);
}

static void replicas_count(struct cli_cluster *c) {
    for (int i = 0; i < c->count; i++) c->nodes[i]->replicas = 0;
    for (int i = 0; i < c->count; i++) {
        if (node_is_primary(c->nodes[i])) continue;
        struct cli_node *primary = cluster_find(c, c->nodes[i]->line.primary, false);
        if (primary) primary->replicas++;
    }
}

/* Opens a node that another one lists; keeps it in `lost` if that is not possible. */
static void listed_open(struct cli_cluster *c, const char *host, struct cli_node_line *line) {
    struct cli_node *node = NULL;
    /* A node may be listed without an address: it is the host that was asked. */
    if (!*line->host) snprintf(line->host, sizeof line->host, "%s", host);
    if (!(line->flags & (NODE_NOADDR | NODE_HANDSHAKE)) && line->port)
        node = cluster_node_open(c, line->host, line->port);
    if (node && strcmp(node->line.id, line->id) != 0) {
        printf("Node %s has the id %s and not %s\n", node->name, node->line.id, line->id);
        cluster_node_free(node);
        node = NULL;
    }
    if (node) {
        cluster_add(c, node);
        node_line_free(line);
        return;
    }
    if (line->flags & NODE_HANDSHAKE) {
        node_line_free(line);
        return;
    }
    node = node_new(line->host, line->port);
    node->line = *line;
    list_add(&c->lost, &c->lost_count, node);
    if (node_is_primary(node) && node->line.slots_count > 0) c->lost_primaries++;
}

bool cluster_open(struct cli_cluster *c, const char *host, int port) {
    struct cli_node *first = cluster_node_open(c, host, port);
    if (!first) return false;
    cluster_add(c, first);
    const struct resp_value *reply = nodes_ask(first);
    if (!reply) return false;
    for (struct slice rest = reply->text; rest.len;) {
        struct cli_node_line line;
        struct slice text = slice_take_line(&rest);
        if (!text.len || !node_line_parse(text, &line)) continue;
        if (line.flags & NODE_MYSELF)
            node_line_free(&line);
        else
            listed_open(c, host, &line);
    }
    replicas_count(c);
    return true;
}

void cluster_close(struct cli_cluster *c) {
    for (int i = 0; i < c->count; i++) cluster_node_free(c->nodes[i]);
    for (int i = 0; i < c->lost_count; i++) cluster_node_free(c->lost[i]);
    mem_free(c->nodes);
    mem_free(c->lost);
    c->nodes = c->lost = NULL;
    c->count = c->lost_count = 0;
}

bool cluster_reload(struct cli_cluster *c) {
    for (int i = 0; i < c->count; i++)
        if (!node_reload(c->nodes[i])) return false;
    replicas_count(c);
    return true;
}

struct cli_node *cluster_find(struct cli_cluster *c, const char *id, bool prefix) {
    struct cli_node *found = NULL;
    size_t len = strlen(id);
    for (int i = 0; i < c->count; i++) {
        const char *own = c->nodes[i]->line.id;
        if (strcmp(own, id) == 0) return c->nodes[i];
        if (!prefix || len == 0 || strncasecmp(own, id, len) != 0) continue;
        if (found) return NULL;
        found = c->nodes[i];
    }
    return found;
}

struct cli_node *cluster_fewest_replicas(struct cli_cluster *c, const struct cli_node *except) {
    struct cli_node *best = NULL;
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        if (node == except || !node_is_primary(node)) continue;
        if (!best || node->replicas < best->replicas) best = node;
    }
    return best;
}

/* --- Agreement --- */

static int text_compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What a node says about the slots of all nodes, in an order that does not depend on the node: a text to compare and
 * free. With an id: NULL if the node does not list that one. NULL: failed. */
static char *view_make(struct cli_node *node, const char *id) {
    const struct resp_value *reply = nodes_ask(node);
    char **lines = NULL;
    int count = 0;
    bool listed = !id;
    if (!reply) return NULL;
    for (struct slice rest = reply->text; rest.len;) {
        struct cli_node_line line;
        struct slice text = slice_take_line(&rest);
        if (!text.len || !node_line_parse(text, &line)) continue;
        struct memory_output m = MEMORY_OUTPUT_INIT;
        output_write(&m.out, slice_of(line.id));
        output_write(&m.out, SLICE(" "));
        slots_write(&line.slots, &m.out);
        output_write(&m.out, SLICE("\n"));
        if (id && strcmp(line.id, id) == 0 && !(line.flags & NODE_HANDSHAKE)) listed = true;
        /* Only owners of slots are compared: a node may learn of others later. */
        if (line.slots_count > 0) {
            lines = mem_realloc(lines, (size_t)(count + 1) * sizeof *lines);
            lines[count++] = mem_strndup(memory_output_slice(&m).data, memory_output_slice(&m).len);
        }
        memory_output_free(&m);
        node_line_free(&line);
    }
    if (count) qsort(lines, (size_t)count, sizeof *lines, text_compare);
    struct memory_output m = MEMORY_OUTPUT_INIT;
    for (int i = 0; i < count; i++) {
        output_write(&m.out, slice_of(lines[i]));
        mem_free(lines[i]);
    }
    mem_free(lines);
    struct slice all = memory_output_slice(&m);
    char *view = listed ? mem_strndup(all.len ? all.data : "", all.len) : NULL;
    memory_output_free(&m);
    return view;
}

static bool views_agree(struct cli_cluster *c, const char *id, struct cli_node **differs) {
    char *first = NULL;
    bool agree = true;
    for (int i = 0; i < c->count && agree; i++) {
        char *view = view_make(c->nodes[i], id);
        agree = view && (!first || strcmp(first, view) == 0);
        if (!agree && differs) *differs = c->nodes[i];
        if (first)
            mem_free(view);
        else
            first = view;
    }
    mem_free(first);
    return agree;
}

bool cluster_is_consistent(struct cli_cluster *c) {
    return views_agree(c, NULL, NULL);
}

/* --- Joining --- */

bool cluster_meet(struct cli_node *node, const struct cli_node *to) {
    /* CLUSTER MEET takes addresses only, no names. */
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    char ip[INET6_ADDRSTRLEN + 1] = "", port[16], bus_port[16];
    int result = getaddrinfo(to->line.host, NULL, &hints, &found);
    if (result == 0) getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof ip, NULL, 0, NI_NUMERICHOST);
    if (found) freeaddrinfo(found);
    if (!*ip) {
        fprintf(stderr, "Could not resolve %s: %s\n", to->line.host, gai_strerror(result));
        return false;
    }
    snprintf(port, sizeof port, "%d", to->line.port);
    snprintf(bus_port, sizeof bus_port, "%d", to->line.bus_port);
    if (to->line.bus_port && to->line.bus_port != to->line.port + 10000)
        return CLUSTER_CALL(node, "CLUSTER", "MEET", ip, port, bus_port) != NULL;
    return CLUSTER_CALL(node, "CLUSTER", "MEET", ip, port) != NULL;
}

/* All nodes list all others? */
static bool all_joined(struct cli_cluster *c, const char *id, struct cli_node **differs) {
    if (id) return views_agree(c, id, differs);
    for (int i = 0; i < c->count; i++)
        if (!views_agree(c, c->nodes[i]->line.id, differs)) return false;
    return true;
}

bool cluster_wait_join(struct cli_cluster *c, const char *id) {
    struct cli_node *differs = NULL;
    printf("Waiting for the cluster to join\n");
    fflush(stdout);
    for (int64_t waited = 0; !all_joined(c, id, &differs); waited += JOIN_POLL_MS) {
        if (!session_is_open(&differs->session)) return false;
        if (waited == JOIN_WARN_MS)
            cluster_say(c, TONE_WARNING,
                        "\n[WARNING] Node %s does not know the other nodes yet. Nodes reach each other at the cluster "
                        "bus port, which is the port plus 10000 by default: is it open?\n",
                        differs->name);
        if (waited % 1000 == 0 && waited) cluster_progress('.');
        usleep(JOIN_POLL_MS * 1000);
    }
    printf("\n");
    return true;
}
