/* cli_cluster_create.c: creates a cluster from empty nodes. cli_cluster_plan.c assigns the slots. */
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"
#include <stdlib.h>
#include <unistd.h>

enum { PRIMARIES_MIN = 3, REPLICATE_POLL_MS = 100, REPLICATE_TRIES = 100 };

static bool nodes_open(struct cli_cluster *c, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        char host[NODE_HOST_MAX];
        int port;
        if (!address_parse(slice_of(argv[i]), host, &port, NULL) || !*host) {
            fprintf(stderr, "Invalid address format: %s\n", argv[i]);
            return false;
        }
        struct cli_node *node = cluster_node_open(c, host, port);
        if (!node) return false;
        const struct cli_node *same = cluster_find(c, node->line.id, false);
        cluster_add(c, node);
        if (same) {
            cluster_say(c, TONE_ERROR, "[ERR] Nodes %s and %s are the same node.\n", same->name, node->name);
            return false;
        }
        if (!cluster_node_is_empty(node)) {
            cluster_say(c, TONE_ERROR,
                        "[ERR] Node %s is not empty. Either the node already knows other nodes (check with CLUSTER "
                        "NODES) or contains some key in database 0.\n",
                        node->name);
            return false;
        }
    }
    return true;
}

static void added_show(const struct cli_cluster *c, const struct create_plan *plan) {
    for (int i = 0; i < plan->added_count; i++) {
        int node = plan->added[i];
        if (i == plan->extra_from) printf("Adding extra replicas...\n");
        printf("Adding replica %s to %s\n", c->nodes[node]->name, c->nodes[plan->nodes[node].primary]->name);
    }
}

static void plan_make(struct cli_cluster *c, struct create_plan *plan, int replicas) {
    const char **hosts = mem_alloc((size_t)c->count * sizeof *hosts);
    for (int i = 0; i < c->count; i++) hosts[i] = c->nodes[i]->line.host;
    cluster_say(c, TONE_STEP, ">>> Performing hash slots allocation on %d node(s)...\n", c->count);
    create_plan_make(plan, hosts, c->count, replicas);
    mem_free(hosts);
    for (int i = 0; i < plan->primaries; i++) {
        const struct planned_node *node = &plan->nodes[plan->order[i]];
        printf("Primary[%d] -> Slots %d - %d\n", i, node->first, node->last);
    }
    added_show(c, plan);
    if (create_plan_score(plan) == 0) return;
    cluster_say(c, TONE_STEP, ">>> Trying to optimize replicas allocation for anti-affinity\n");
    int score = create_plan_improve(plan);
    if (score == 0)
        cluster_say(c, TONE_OK, "[OK] Perfect anti-affinity obtained!\n");
    else if (score >= SAME_HOST_AS_PRIMARY)
        cluster_say(c, TONE_WARNING, "[WARNING] Some replicas are in the same host as their primary\n");
    else
        cluster_say(c, TONE_WARNING, "[WARNING] Some replicas of the same primary are in the same host\n");
}

static void plan_show(struct cli_cluster *c, const struct create_plan *plan) {
    for (int i = 0; i < c->count; i++) {
        const struct planned_node *planned = &plan->nodes[i];
        struct cli_node_line *line = &c->nodes[i]->line;
        if (planned->primary >= 0) {
            line->flags |= NODE_REPLICA;
            memcpy(line->primary, c->nodes[planned->primary]->line.id, sizeof line->primary);
        } else {
            slot_bitmap_set_range(&line->slots, planned->first, planned->last);
            line->slots_count = slot_bitmap_count(&line->slots);
        }
        cluster_show_planned(c->nodes[i]);
    }
}

static bool slots_assign(struct cli_cluster *c, const struct create_plan *plan) {
    for (int i = 0; i < plan->primaries; i++) {
        const struct planned_node *planned = &plan->nodes[plan->order[i]];
        char first[16], last[16];
        snprintf(first, sizeof first, "%d", planned->first);
        snprintf(last, sizeof last, "%d", planned->last);
        if (!CLUSTER_CALL(c->nodes[plan->order[i]], "CLUSTER", "ADDSLOTSRANGE", first, last)) return false;
    }
    return true;
}

/* The replicas know their primaries a moment after they have joined. */
static bool replicate(struct cli_node *node, const char *primary) {
    for (int tries = 1;; tries++) {
        const struct resp_value *reply = CLUSTER_TRY(node, "CLUSTER", "REPLICATE", primary);
        if (!reply || reply->type != RESP_ERROR) return reply != NULL;
        if (strncmp(reply->text.data, "ERR Unknown node", 16) != 0 || tries == REPLICATE_TRIES) {
            cluster_show_error(node, reply);
            return false;
        }
        usleep(REPLICATE_POLL_MS * 1000);
    }
}

static bool plan_apply(struct cli_cluster *c, const struct create_plan *plan) {
    if (!slots_assign(c, plan)) return false;
    cluster_say(c, TONE_STEP, ">>> Nodes configuration updated\n");
    cluster_say(c, TONE_STEP, ">>> Assign a different config epoch to each node\n");
    for (int i = 0; i < c->count; i++) {
        char epoch[16];
        snprintf(epoch, sizeof epoch, "%d", i + 1);
        /* Nodes that have had an epoch before keep it, and solve collisions themselves. */
        if (!CLUSTER_TRY(c->nodes[i], "CLUSTER", "SET-CONFIG-EPOCH", epoch)) return false;
    }
    cluster_say(c, TONE_STEP, ">>> Sending CLUSTER MEET messages to join the cluster\n");
    for (int i = 1; i < c->count; i++)
        if (!cluster_meet(c->nodes[i], c->nodes[0])) return false;
    if (!cluster_wait_join(c, NULL)) return false;
    for (int i = 0; i < c->count; i++) {
        int primary = plan->nodes[i].primary;
        if (primary >= 0 && !replicate(c->nodes[i], c->nodes[primary]->line.id)) return false;
    }
    return true;
}

/* Connects anew, so that the check sees what any other would. */
static int result_check(struct cli_cluster *c) {
    char host[NODE_HOST_MAX];
    memcpy(host, c->nodes[0]->line.host, sizeof host);
    int port = c->nodes[0]->line.port;
    cluster_close(c);
    return !cluster_open(c, host, port) || cluster_check(c, true, false) != 0;
}

int cluster_create(struct cli_cluster *c, int argc, char **argv) {
    int replicas = c->options->replicas > 0 ? (int)c->options->replicas : 0;
    if (!nodes_open(c, argc, argv)) return 1;
    int primaries = c->count / (replicas + 1);
    if (primaries < PRIMARIES_MIN) {
        cluster_say(c, TONE_WARNING, "Requested to create a cluster with %d primaries and %d replicas per primary.\n",
                    primaries, replicas);
        if (primaries == 0) {
            cluster_say(c, TONE_ERROR, "[ERR] %d nodes are too few for a primary with %d replicas.\n", c->count,
                        replicas);
            return 1;
        }
        if (!cluster_confirm(c,
                             "Valkey cluster requires at least 3 primary nodes for automatic failover. Are you sure? "
                             "(type 'yes' to accept): "))
            return 1;
    }
    struct create_plan plan;
    plan_make(c, &plan, replicas);
    plan_show(c, &plan);
    int result = 0;
    if (cluster_confirm(c, "Can I set the above configuration? (type 'yes' to accept): ")) {
        bool applied = plan_apply(c, &plan);
        if (!applied)
            cluster_say(c, TONE_ERROR,
                        "[ERR] The cluster is incomplete. CLUSTER RESET makes a node ready for a new try.\n");
        result = applied ? result_check(c) : 1;
    }
    create_plan_free(&plan);
    return result;
}
