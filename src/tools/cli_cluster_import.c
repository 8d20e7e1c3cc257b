/* cli_cluster_import.c: imports the keys of a server that is no cluster node, key by key to the owner of its slot. */
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"
#include "tools/cli_cluster_options.h"
#include <stdlib.h>

enum { NUMBER_TEXT = 24 };

static void show_error(const struct cli_node *source, const struct resp_value *reply) {
    printf("Source %s replied with error:\n%s\n", source->name, reply->text.data);
}

/* The source is a node only as far as calls go. */
static struct cli_node *source_open(struct cli_cluster *c, const char *host, int port) {
    const struct cli_cluster_options *o = c->options;
    struct cli_node *node = mem_calloc(1, sizeof *node);
    struct endpoint e = c->cli->options.endpoint; /* with its texts, which it does not own */
    e.host = (char *)host;
    e.port = port;
    e.socket = NULL;
    e.user = o->from_user;
    e.password = o->from_password;
    session_init(&node->session);
    snprintf(node->name, sizeof node->name, "%s:%d", host, port);
    if (session_connect(&node->session, &e, c->cli->options.timeout_ms) < 0) {
        fflush(stdout);
        fprintf(stderr, "Could not connect to Valkey at %s: %s.\n", node->name, node->session.error);
    } else if (!session_authenticate(&node->session, &e)) {
        fflush(stdout);
        fprintf(stderr, "AUTH failed: %s\n", node->session.error);
    } else {
        const struct resp_value *reply =
            cluster_try(node, 2, (struct slice[]){SLICE("INFO"), SLICE("cluster")}, CLUSTER_CALL_MS);
        bool refused = reply && reply->type == RESP_ERROR;
        if (refused) show_error(node, reply);
        if (reply && !refused && reply->text.data && !strstr(reply->text.data, "cluster_enabled:1")) return node;
        if (reply && !refused) cluster_say(c, TONE_ERROR, "[ERR] The source node should not be a cluster node.\n");
    }
    cluster_node_free(node);
    return NULL;
}

static struct cli_node *slot_owner(struct cli_cluster *c, int slot) {
    for (int i = 0; i < c->count; i++)
        if (node_is_primary(c->nodes[i]) && slot_bitmap_has(&c->nodes[i]->line.slots, slot)) return c->nodes[i];
    return NULL;
}

static bool key_import(struct cli_cluster *c, struct cli_node *source, struct slice key, const char *db) {
    const struct cli_cluster_options *o = c->options;
    const struct cli_node *target = slot_owner(c, (int)hash_slot(key));
    if (!target) {
        printf("No node owns slot %u\n", hash_slot(key));
        return false;
    }
    printf("Migrating %.*s to %s: ", (int)key.len, key.data, target->name);
    fflush(stdout);
    const struct resp_value *reply = cluster_migrate(c, source, target, db, &key, 1, o->copy, o->replace);
    if (!reply) return false;
    if (reply->type == RESP_ERROR) {
        show_error(source, reply);
        return false;
    }
    printf("OK\n");
    return true;
}

static bool database_import(struct cli_cluster *c, struct cli_node *source, const char *db) {
    char *cursor = mem_strdup("0");
    const struct resp_value *reply = CLUSTER_CALL(source, "SELECT", db);
    if (reply) reply = CLUSTER_CALL(source, "DBSIZE");
    bool done = reply != NULL;
    if (done) cluster_say(c, TONE_WARNING, "*** Importing %lld keys from DB %s\n", (long long)reply->integer, db);
    while (done) {
        struct slice argv[] = {SLICE("SCAN"), slice_of(cursor), SLICE("COUNT"), SLICE("1000")};
        reply = cluster_call(source, 4, argv);
        if (!reply || reply->count != 2 || !reply->children[0].text.data || !resp_is_aggregate(&reply->children[1])) {
            done = false;
            break;
        }
        text_set(&cursor, reply->children[0].text.data);
        /* Copies: the next call replaces the reply. */
        size_t count = reply->children[1].count;
        struct slice *keys = mem_alloc((count + 1) * sizeof *keys);
        for (size_t i = 0; i < count; i++) {
            struct slice key = reply->children[1].children[i].text;
            keys[i] = slice_make(mem_strndup(key.len ? key.data : "", key.len), key.len);
        }
        for (size_t i = 0; i < count; i++) {
            done = done && key_import(c, source, keys[i], db);
            mem_free((char *)keys[i].data);
        }
        mem_free(keys);
        if (strcmp(cursor, "0") == 0) break;
    }
    mem_free(cursor);
    return done;
}

/* Does the cluster have this database? */
static bool database_exists(struct cli_cluster *c, const char *db) {
    const struct resp_value *reply = CLUSTER_TRY(c->nodes[0], "SELECT", db);
    bool exists = reply && reply->type != RESP_ERROR;
    return CLUSTER_TRY(c->nodes[0], "SELECT", "0") && exists;
}

static bool databases_import(struct cli_cluster *c, struct cli_node *source) {
    int *databases, count = cluster_databases(source, &databases);
    bool done = count >= 0 && database_import(c, source, "0");
    for (int i = 0; i < count && done; i++) {
        char db[NUMBER_TEXT];
        if (databases[i] == 0) continue;
        snprintf(db, sizeof db, "%d", databases[i]);
        if (database_exists(c, db))
            done = database_import(c, source, db);
        else
            cluster_say(c, TONE_WARNING, "[WARNING] DB %s is not imported: the cluster does not have that database.\n",
                        db);
    }
    mem_free(databases);
    return done;
}

int cluster_import(struct cli_cluster *c) {
    char host[NODE_HOST_MAX];
    int port;
    address_parse(slice_of(c->options->from), host, &port, NULL); /* was checked before anything was connected */
    if (cluster_check(c, true, false)) return 1;
    struct cli_node *source = source_open(c, host, port);
    if (!source) return 1;
    bool done = databases_import(c, source);
    cluster_node_free(source);
    return !done;
}
