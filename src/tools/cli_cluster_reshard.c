/* cli_cluster_reshard.c: reshard and rebalance. cli_cluster_plan.c decides which slots move. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "tools/cli_cluster.h"
#include <stdlib.h>

/* --- reshard --- */

struct reshard {
    struct cli_node **sources, *target;
    int count, slots;
    bool all;
};

static struct cli_node *primary_find(struct cli_cluster *c, const char *id) {
    struct cli_node *node = cluster_find(c, id, false);
    if (node && node_is_primary(node)) return node;
    cluster_say(c, TONE_PLAIN, "*** The specified node (%s) is not known or not a primary, please retry.\n", id);
    return NULL;
}

static bool source_add(struct reshard *r, struct cli_node *node) {
    for (int i = 0; i < r->count; i++)
        if (r->sources[i] == node) return false;
    r->sources[r->count++] = node;
    return true;
}

static bool slots_ask(const struct cli_cluster *c, struct reshard *r) {
    int64_t number = c->options->slots;
    char answer[32];
    while (number <= 0 || (number > HASH_SLOTS && !c->options->slots)) {
        if (!cluster_ask("How many slots do you want to move (from 1 to 16384)? ", answer, sizeof answer)) return false;
        if (!parse_int64(slice_of(answer), &number) || number > HASH_SLOTS) number = 0;
    }
    r->slots = number > HASH_SLOTS ? HASH_SLOTS : (int)number;
    return true;
}

static bool target_ask(struct cli_cluster *c, struct reshard *r) {
    char answer[64];
    if (c->options->to) return (r->target = primary_find(c, c->options->to)) != NULL;
    while (!r->target) {
        if (!cluster_ask("What is the receiving node ID? ", answer, sizeof answer)) return false;
        r->target = primary_find(c, answer);
    }
    return true;
}

/* Sources of --cluster-from, ids separated by commas. */
static bool sources_from_option(struct cli_cluster *c, struct reshard *r) {
    char *list = mem_strdup(c->options->from), *rest = list, *id;
    bool known = true;
    while (known && (id = strsep(&rest, ","))) {
        if (strcasecmp(id, "all") == 0) {
            r->all = true;
            break;
        }
        struct cli_node *node = primary_find(c, id);
        known = node != NULL;
        if (node == r->target)
            cluster_say(c, TONE_PLAIN, "*** It is not possible to use the target node as source node.\n");
        else if (node)
            source_add(r, node);
    }
    mem_free(list);
    return known;
}

static bool sources_ask(struct cli_cluster *c, struct reshard *r) {
    char answer[64], question[32];
    printf("Please enter all the source node IDs.\n"
           "  Type 'all' to use all the nodes as source nodes for the hash slots.\n"
           "  Type 'done' once you entered all the source nodes IDs.\n");
    for (;;) {
        snprintf(question, sizeof question, "Source node #%d: ", r->count + 1);
        if (!cluster_ask(question, answer, sizeof answer)) return false;
        if (strcasecmp(answer, "done") == 0) return true;
        if (strcasecmp(answer, "all") == 0) return r->all = true;
        if (!*answer) continue;
        struct cli_node *node = primary_find(c, answer);
        if (!node) continue;
        if (node == r->target)
            cluster_say(c, TONE_PLAIN, "*** It is not possible to use the target node as source node.\n");
        else if (!source_add(r, node))
            cluster_say(c, TONE_PLAIN, "*** Node %s is a source already.\n", node->name);
    }
}

static void plan_show(const struct cli_cluster *c, const struct reshard *r, const struct slot_move *moves, int count) {
    printf("\nReady to move %lld slots.\n  Source nodes:\n",
           c->options->slots > 0 ? (long long)c->options->slots : (long long)r->slots);
    for (int i = 0; i < r->count; i++) cluster_show_node(r->sources[i], "    ");
    printf("  Destination node:\n");
    cluster_show_node(r->target, "    ");
    printf("  Resharding plan:\n");
    for (int i = 0; i < count;) {
        int source = moves[i].source;
        printf("    Moving slot range");
        while (i < count && moves[i].source == source) {
            int next = slot_moves_range(moves, count, i);
            printf(" %d-%d", moves[i].slot, moves[next - 1].slot);
            i = next;
        }
        printf(" from %s\n", r->sources[source]->line.id);
    }
}

static int slots_plan(struct cli_node *const *sources, int count, int wanted, struct slot_move *moves) {
    const struct slot_bitmap **sets = mem_alloc((size_t)(count + 1) * sizeof *sets);
    for (int i = 0; i < count; i++) sets[i] = &sources[i]->line.slots;
    int planned = reshard_plan(sets, count, wanted, moves);
    mem_free(sets);
    return planned;
}

/* The sources that own most come first in the plan, and in its display. */
static int reshard_run(struct cli_cluster *c, struct reshard *r) {
    char answer[16];
    if (!slots_ask(c, r) || !target_ask(c, r)) return 1;
    if (c->options->from ? !sources_from_option(c, r) : !sources_ask(c, r)) return 1;
    for (int i = 0; i < c->count && r->all; i++)
        if (c->nodes[i] != r->target && node_is_primary(c->nodes[i])) source_add(r, c->nodes[i]);
    if (r->count == 0) {
        fprintf(stderr, "*** No source nodes given, operation aborted.\n");
        return 1;
    }
    struct slot_move *moves = mem_alloc(HASH_SLOTS * sizeof *moves);
    int count = slots_plan(r->sources, r->count, r->slots, moves), result = 1;
    plan_show(c, r, moves, count);
    if (c->options->yes ||
        (cluster_ask("Do you want to proceed with the proposed reshard plan (yes/no)? ", answer, sizeof answer) &&
         strcasecmp(answer, "yes") == 0))
        result = !cluster_move_slots(c, r->sources, r->target, moves, count, true);
    mem_free(moves);
    return result;
}

int cluster_reshard(struct cli_cluster *c) {
    struct reshard r = {.sources = NULL};
    if (cluster_check(c, true, false)) {
        fflush(stdout);
        fprintf(stderr, "*** Please fix your cluster problems before resharding\n");
        return 1;
    }
    r.sources = mem_alloc((size_t)c->count * sizeof *r.sources);
    int result = reshard_run(c, &r);
    mem_free(r.sources);
    return result;
}

/* --- rebalance --- */

/* Weights of the options by node; negative: none was given. */
static bool weights_parse(struct cli_cluster *c, double *weights) {
    for (int i = 0; i < c->count; i++) weights[i] = -1;
    for (int i = 0; i < c->options->weights_count; i++) {
        char id[NODE_ID + 1];
        const char *text = c->options->weights[i], *equal = strchr(text, '=');
        double weight;
        size_t len = equal ? (size_t)(equal - text) : 0;
        if (!equal || len > NODE_ID || !parse_double(slice_of(equal + 1), &weight) || !(weight >= 0) || weight > 1e9) {
            fprintf(stderr, "*** Invalid weight %s: it is to be <node>=<weight>\n", text);
            return false;
        }
        memcpy(id, text, len);
        id[len] = '\0';
        const struct cli_node *node = cluster_find(c, id, true);
        if (!node) {
            cluster_say(c, TONE_PLAIN, "*** No such primary node %s\n", id);
            return false;
        }
        weights[node->index] = weight; /* that of a replica, as a primary becomes without slots, has no effect */
    }
    return true;
}

static bool moves_run(struct cli_cluster *c, struct cli_node **nodes, const struct rebalance_move *moves, int count) {
    struct slot_move *slots = mem_alloc(HASH_SLOTS * sizeof *slots);
    bool done = true;
    for (int i = 0; i < count && done; i++) {
        struct cli_node *source = nodes[moves[i].source], *target = nodes[moves[i].target];
        printf("Moving %d slots from %s to %s\n", moves[i].slots, source->name, target->name);
        fflush(stdout);
        int planned = slots_plan(&source, 1, moves[i].slots, slots);
        if (c->options->simulate) {
            for (int k = 0; k < planned; k++) putchar('#');
            for (int k = 0; k < planned; k++) {
                slot_bitmap_clear(&source->line.slots, slots[k].slot);
                slot_bitmap_set(&target->line.slots, slots[k].slot);
            }
        } else {
            done = cluster_move_slots(c, &source, target, slots, planned, false);
        }
        if (done) printf("\n");
    }
    mem_free(slots);
    return done;
}

int cluster_rebalance(struct cli_cluster *c) {
    size_t count = (size_t)c->count;
    double *weights = mem_alloc(count * sizeof *weights), total = 0;
    struct cli_node **nodes = mem_alloc(count * sizeof *nodes);
    struct rebalance_node *facts = mem_calloc(count, sizeof *facts);
    struct rebalance_move *moves = mem_alloc(count * sizeof *moves);
    int involved = 0, result = 1;
    if (!weights_parse(c, weights)) goto end;
    if (cluster_check(c, false, false)) {
        fflush(stdout);
        cluster_say(c, TONE_ERROR, "*** Please fix your cluster problems before rebalancing\n");
        goto end;
    }
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        if (!node_is_primary(node)) continue;
        if (node->line.slots_count == 0 && weights[i] < 0 && !c->options->use_empty) continue;
        facts[involved] = (struct rebalance_node){node->line.slots_count, weights[i] < 0 ? 1 : weights[i], 0};
        total += facts[involved].weight;
        nodes[involved++] = node;
    }
    if (total <= 0) {
        cluster_say(c, TONE_ERROR, "*** The weights leave no node that could take the slots.\n");
        goto end;
    }
    int planned = rebalance_plan(facts, involved, c->options->threshold, moves);
    if (planned == 0) {
        cluster_say(c, TONE_WARNING, "*** No rebalancing needed! All nodes are within the %.2f%% threshold.\n",
                    c->options->threshold);
        result = 0;
        goto end;
    }
    cluster_say(c, TONE_STEP, ">>> Rebalancing across %d nodes. Total weight = %.2f\n", involved, total);
    result = !moves_run(c, nodes, moves, planned);
end:
    mem_free(moves);
    mem_free(facts);
    mem_free(nodes);
    mem_free(weights);
    return result;
}
