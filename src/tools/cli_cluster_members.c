/* cli_cluster_members.c: add-node and del-node. */
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"

/* --- add-node --- */

/* The functions of the cluster: a payload of FUNCTION DUMP, copied. */
static bool functions_dump(struct cli_cluster *c, struct slice *payload) {
    cluster_say(c, TONE_STEP, ">>> Getting functions from cluster\n");
    const struct resp_value *reply = CLUSTER_CALL(c->nodes[0], "FUNCTION", "DUMP");
    if (!reply || reply->type != RESP_BULK) return false;
    *payload = slice_make(mem_strndup(reply->text.data, reply->text.len), reply->text.len);
    return true;
}

static bool functions_copy(struct cli_cluster *c, struct cli_node *node) {
    struct slice payload;
    if (!functions_dump(c, &payload)) return false;
    cluster_say(c, TONE_STEP, ">>> Send FUNCTION LIST to %s to verify there is no functions in it\n", node->name);
    const struct resp_value *reply = CLUSTER_CALL(node, "FUNCTION", "LIST");
    bool done = reply && resp_is_aggregate(reply);
    if (done && reply->count > 0) {
        cluster_say(c, TONE_ERROR,
                    ">>> New node already contains functions and can not be added to the cluster. Use "
                    "FUNCTION FLUSH and try again.\n");
        done = false;
    } else if (done) {
        cluster_say(c, TONE_STEP, ">>> Send FUNCTION RESTORE to %s\n", node->name);
        struct slice argv[] = {SLICE("FUNCTION"), SLICE("RESTORE"), payload};
        done = cluster_call(node, 3, argv) != NULL;
    }
    mem_free((char *)payload.data);
    return done;
}

/* NULL: with a message. */
static struct cli_node *primary_choose(struct cli_cluster *c) {
    const char *id = c->options->primary_id;
    struct cli_node *primary = id ? cluster_find(c, id, false) : cluster_fewest_replicas(c, NULL);
    if (id && (!primary || !node_is_primary(primary))) {
        cluster_say(c, TONE_ERROR, "[ERR] No such primary ID %s\n", id);
        return NULL;
    }
    if (!id && primary) printf("Automatically selected primary %s\n", primary->name);
    return primary;
}

static bool node_join(struct cli_cluster *c, struct cli_node *node, struct cli_node *primary) {
    if (!primary && !functions_copy(c, node)) return false;
    cluster_say(c, TONE_STEP, ">>> Send CLUSTER MEET to node %s to make it join the cluster.\n", node->name);
    if (!cluster_meet(node, c->nodes[0])) return false;
    if (primary) {
        char id[NODE_ID + 1];
        memcpy(id, node->line.id, sizeof id);
        cluster_add(c, node);
        if (!cluster_wait_join(c, id)) return false;
        cluster_say(c, TONE_STEP, ">>> Configure node as replica of %s.\n", primary->name);
        if (!CLUSTER_CALL(node, "CLUSTER", "REPLICATE", primary->line.id)) return false;
    }
    cluster_say(c, TONE_OK, "[OK] New node added correctly.\n");
    return true;
}

int cluster_add_node(struct cli_cluster *c, const char *host, int port) {
    struct cli_node *primary = NULL;
    if (cluster_check(c, true, false)) return 1;
    if (c->options->replica && !(primary = primary_choose(c))) return 1;
    struct cli_node *node = cluster_node_open(c, host, port);
    if (!node) return 1;
    bool added = false;
    if (!cluster_node_is_empty(node)) {
        cluster_say(
            c, TONE_ERROR,
            "[ERR] Node %s is not empty. Either the node already knows other nodes (check with CLUSTER NODES) or "
            "contains some key in database 0.\n",
            node->name);
    } else {
        added = node_join(c, node, primary);
    }
    /* A node that has become a member is freed with the cluster. */
    if (c->nodes[c->count - 1] != node) cluster_node_free(node);
    return !added;
}

/* --- del-node --- */

static struct cli_node *lost_find(struct cli_cluster *c, const char *id) {
    for (int i = 0; i < c->lost_count; i++)
        if (strcmp(c->lost[i]->line.id, id) == 0) return c->lost[i];
    return NULL;
}

/* Gives the replicas of a node that is removed to other primaries: a node does not forget its own primary. */
static bool replicas_move(struct cli_cluster *c, const struct cli_node *removed) {
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        if (node == removed || strcmp(node->line.primary, removed->line.id) != 0) continue;
        struct cli_node *primary = cluster_fewest_replicas(c, removed);
        if (!primary) {
            cluster_say(c, TONE_ERROR, "[ERR] No other primary can take the replica %s.\n", node->name);
            return false;
        }
        cluster_say(c, TONE_STEP, ">>> %s as replica of %s\n", node->name, primary->name);
        if (!CLUSTER_CALL(node, "CLUSTER", "REPLICATE", primary->line.id)) return false;
        primary->replicas++;
    }
    return true;
}

int cluster_del_node(struct cli_cluster *c, const char *id) {
    struct cli_node *node = cluster_find(c, id, false);
    if (!node) node = lost_find(c, id);
    if (!node) {
        cluster_say(c, TONE_ERROR, "[ERR] No such node ID %s\n", id);
        return 1;
    }
    if (node->line.slots_count > 0) {
        cluster_say(c, TONE_ERROR, "[ERR] Node %s is not empty! Reshard data away and try again.\n", node->name);
        return 1;
    }
    cluster_say(c, TONE_STEP, ">>> Sending CLUSTER FORGET messages to the cluster...\n");
    if (!replicas_move(c, node)) return 1;
    for (int i = 0; i < c->count; i++)
        if (c->nodes[i] != node && !CLUSTER_CALL(c->nodes[i], "CLUSTER", "FORGET", node->line.id)) return 1;
    if (!node->reachable) {
        cluster_say(c, TONE_WARNING, ">>> WARNING: Could not connect to node %s, unable to send CLUSTER RESET.\n",
                    node->name);
    } else {
        cluster_say(c, TONE_STEP, ">>> Sending CLUSTER RESET SOFT to the deleted node.\n");
        if (!CLUSTER_CALL(node, "CLUSTER", "RESET", "SOFT")) return 1;
    }
    cluster_say(c, TONE_OK, "[OK] Node %s removed from the cluster.\n", id);
    return 0;
}
