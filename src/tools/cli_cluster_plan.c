/* cli_cluster_plan.c: see cli_cluster_plan.h. */
#include "tools/cli_cluster_plan.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Sets of slots --- */

void slots_write(const struct slot_bitmap *slots, struct output *out) {
    const char *separator = "";
    for (unsigned at = 0, first, last; slot_bitmap_range(slots, &at, &first, &last); separator = ",") {
        char text[32];
        int len = snprintf(text, sizeof text, first == last ? "%s[%u]" : "%s[%u-%u]", separator, first, last);
        output_write(out, slice_make(text, (size_t)len));
    }
}

/* --- Lines of CLUSTER NODES --- */

static bool word_next(struct slice *rest, char separator, struct slice *word) {
    while (separator == ' ' && rest->len && *rest->data == ' ') rest->data++, rest->len--;
    if (!rest->len) return false;
    const char *end = memchr(rest->data, separator, rest->len);
    word->data = rest->data;
    word->len = end ? (size_t)(end - rest->data) : rest->len;
    size_t used = word->len + (end ? 1 : 0);
    rest->data += used;
    rest->len -= used;
    return true;
}

static bool number_parse(struct slice text, int64_t max, int64_t *value) {
    return parse_int64(text, value) && *value >= 0 && *value <= max;
}

bool address_parse(struct slice text, char host[NODE_HOST_MAX], int *port, int *bus_port) {
    int64_t number;
    const char *at = text.len ? memrchr(text.data, '@', text.len) : NULL;
    if (bus_port) *bus_port = 0;
    if (at) {
        if (!bus_port || !number_parse(slice_make(at + 1, (size_t)(text.data + text.len - at - 1)), 65535, &number))
            return false;
        *bus_port = (int)number;
        text.len = (size_t)(at - text.data);
    }
    const char *colon = text.len ? memrchr(text.data, ':', text.len) : NULL;
    if (!colon || !number_parse(slice_make(colon + 1, (size_t)(text.data + text.len - colon - 1)), 65535, &number))
        return false;
    struct slice name = {text.data, (size_t)(colon - text.data)};
    if (name.len > 2 && name.data[0] == '[' && name.data[name.len - 1] == ']') name.data++, name.len -= 2;
    if (name.len >= NODE_HOST_MAX || memchr(name.data, '\0', name.len)) return false;
    memcpy(host, name.data, name.len);
    host[name.len] = '\0';
    *port = (int)number;
    return true;
}

static bool id_parse(struct slice text, char id[NODE_ID + 1]) {
    if (text.len != NODE_ID) return false;
    for (size_t i = 0; i < NODE_ID; i++) {
        char c = text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))) return false;
    }
    memcpy(id, text.data, NODE_ID);
    id[NODE_ID] = '\0';
    return true;
}

static unsigned flags_parse(struct slice text) {
    static const struct {
        const char *name;
        unsigned flag;
    } names[] = {{"myself", NODE_MYSELF}, {"slave", NODE_REPLICA}, {"replica", NODE_REPLICA},
                 {"fail", NODE_FAIL},     {"noaddr", NODE_NOADDR}, {"handshake", NODE_HANDSHAKE}};
    unsigned flags = 0;
    struct slice word;
    while (word_next(&text, ',', &word)) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (slice_is(word, names[i].name)) flags |= names[i].flag;
    }
    return flags;
}

/* "7", "0-5460", "[7->-id]", "[7-<-id]" */
static bool slots_parse(struct slice word, struct cli_node_line *node) {
    int64_t first, last;
    if (word.data[0] == '[') {
        const char *dash = memchr(word.data, '-', word.len);
        struct cli_open_slot open = {0};
        size_t peer = dash ? (size_t)(dash - word.data) + 3 : 0;
        if (!dash || word.len != peer + NODE_ID + 1 || word.data[word.len - 1] != ']' || dash[2] != '-' ||
            (dash[1] != '>' && dash[1] != '<') || !id_parse(slice_make(dash + 3, NODE_ID), open.peer) ||
            !number_parse(slice_make(word.data + 1, (size_t)(dash - word.data - 1)), HASH_SLOTS - 1, &first))
            return false;
        open.slot = (int)first;
        open.importing = dash[1] == '<';
        node->open = mem_realloc(node->open, (size_t)(node->open_count + 1) * sizeof *node->open);
        node->open[node->open_count++] = open;
        return true;
    }
    const char *dash = memchr(word.data, '-', word.len);
    struct slice from = {word.data, dash ? (size_t)(dash - word.data) : word.len};
    if (!number_parse(from, HASH_SLOTS - 1, &first)) return false;
    last = first;
    if (dash && !number_parse(slice_make(dash + 1, word.len - from.len - 1), HASH_SLOTS - 1, &last)) return false;
    if (last < first) return false;
    slot_bitmap_set_range(&node->slots, (int)first, (int)last);
    return true;
}

bool node_line_parse(struct slice line, struct cli_node_line *node) {
    memset(node, 0, sizeof *node);
    struct slice words[8], word;
    int64_t epoch;
    if (line.len && line.data[line.len - 1] == '\r') line.len--;
    for (int i = 0; i < 8; i++)
        if (!word_next(&line, ' ', &words[i])) return false;
    struct slice address = words[1];
    const char *comma = memchr(address.data, ',', address.len); /* the hostname, and more */
    if (comma) address.len = (size_t)(comma - address.data);
    node->flags = flags_parse(words[2]);
    if (slice_is(words[7], "disconnected")) node->flags |= NODE_DISCONNECTED;
    if (!id_parse(words[0], node->id) || !address_parse(address, node->host, &node->port, &node->bus_port) ||
        (!slice_is(words[3], "-") && !id_parse(words[3], node->primary)) || !parse_int64(words[6], &epoch) || epoch < 0)
        return false;
    node->epoch = (uint64_t)epoch;
    while (word_next(&line, ' ', &word)) {
        if (slots_parse(word, node)) continue;
        node_line_free(node);
        return false;
    }
    node->slots_count = slot_bitmap_count(&node->slots);
    return true;
}

void node_line_free(struct cli_node_line *node) {
    mem_free(node->open);
    node->open = NULL;
    node->open_count = 0;
}

const char *node_line_peer(const struct cli_node_line *node, int slot, bool importing) {
    for (int i = 0; i < node->open_count; i++)
        if (node->open[i].slot == slot && node->open[i].importing == importing) return node->open[i].peer;
    return NULL;
}

/* --- create --- */

/* Writes the indices of the nodes so that neighbours are on different hosts: the first node of each host, then the
 * second of each, and so on. */
static void interleave(const char *const *hosts, int count, int *order) {
    bool *taken = mem_calloc((size_t)count, sizeof *taken);
    for (int written = 0; written < count;) {
        int round = written; /* hosts of this round are those of order[round …] */
        for (int i = 0; i < count; i++) {
            bool seen = taken[i];
            for (int k = round; k < written && !seen; k++) seen = strcmp(hosts[order[k]], hosts[i]) == 0;
            if (seen) continue;
            taken[i] = true;
            order[written++] = i;
        }
    }
    mem_free(taken);
}

/* The replica for a primary: the first on another host, or else the first. Takes it out of the list. */
static int replica_take(const struct create_plan *plan, int primary, int *free_nodes, int *free_count) {
    int at = 0;
    while (at < *free_count && strcmp(plan->nodes[free_nodes[at]].host, plan->nodes[primary].host) == 0) at++;
    if (at == *free_count) at = 0;
    int node = free_nodes[at];
    memmove(free_nodes + at, free_nodes + at + 1, (size_t)(--*free_count - at) * sizeof *free_nodes);
    return node;
}

static void replica_add(struct create_plan *plan, int primary, int *free_nodes, int *free_count) {
    int node = replica_take(plan, primary, free_nodes, free_count);
    plan->nodes[node].primary = primary;
    plan->added[plan->added_count++] = node;
}

void create_plan_make(struct create_plan *plan, const char *const *hosts, int count, int replicas) {
    memset(plan, 0, sizeof *plan);
    plan->count = count;
    plan->replicas = replicas;
    plan->primaries = count / (replicas + 1);
    plan->nodes = mem_calloc((size_t)count, sizeof *plan->nodes);
    plan->order = mem_alloc((size_t)count * sizeof *plan->order);
    plan->added = mem_alloc((size_t)count * sizeof *plan->added);
    int *free_nodes = mem_alloc((size_t)count * sizeof *free_nodes), free_count = count - plan->primaries;
    interleave(hosts, count, plan->order);
    double share = (double)HASH_SLOTS / plan->primaries;
    for (int i = 0; i < count; i++) plan->nodes[i] = (struct planned_node){.host = hosts[i], .primary = -1, .last = -1};
    for (int i = 0; i < plan->primaries; i++) {
        struct planned_node *node = &plan->nodes[plan->order[i]];
        node->first = (int)lround(i * share);
        node->last = i == plan->primaries - 1 ? HASH_SLOTS - 1 : (int)lround((i + 1) * share) - 1;
    }
    /* Rotated by one: else the first free node of a host would meet the primary of the same host. */
    for (int i = 0; i < free_count; i++)
        free_nodes[i] = plan->order[plan->primaries + (i + 1) % (free_count ? free_count : 1)];
    for (int i = 0; i < plan->primaries; i++) {
        for (int k = 0; k < replicas; k++) replica_add(plan, plan->order[i], free_nodes, &free_count);
    }
    plan->extra_from = plan->added_count;
    for (int i = 0; free_count > 0; i++) replica_add(plan, plan->order[i % plan->primaries], free_nodes, &free_count);
    mem_free(free_nodes);
}

void create_plan_free(struct create_plan *plan) {
    mem_free(plan->nodes);
    mem_free(plan->order);
    mem_free(plan->added);
    memset(plan, 0, sizeof *plan);
}

int create_plan_score(const struct create_plan *plan) {
    int score = 0;
    for (int i = 0; i < plan->added_count; i++) {
        const struct planned_node *node = &plan->nodes[plan->added[i]];
        if (strcmp(node->host, plan->nodes[node->primary].host) == 0) score += SAME_HOST_AS_PRIMARY;
        for (int k = 0; k < i; k++) {
            const struct planned_node *other = &plan->nodes[plan->added[k]];
            if (other->primary != node->primary || strcmp(other->host, node->host) != 0) continue;
            score++;
            break;
        }
    }
    return score;
}

int create_plan_improve(struct create_plan *plan) {
    int score = create_plan_score(plan);
    for (int left = plan->count * 10; left > 0 && score > 0 && plan->added_count > 1; left--) {
        struct planned_node *a = &plan->nodes[plan->added[random_below((uint64_t)plan->added_count)]];
        struct planned_node *b = &plan->nodes[plan->added[random_below((uint64_t)plan->added_count)]];
        if (a->primary == b->primary) continue;
        int old = a->primary;
        a->primary = b->primary;
        b->primary = old;
        int now = create_plan_score(plan);
        if (now <= score) {
            score = now;
            continue;
        }
        b->primary = a->primary;
        a->primary = old;
    }
    return score;
}

/* --- reshard --- */

struct source_rank {
    int index, slots;
};
static int rank_compare(const void *a, const void *b) {
    const struct source_rank *x = a, *y = b;
    return x->slots != y->slots ? y->slots - x->slots : x->index - y->index;
}

int reshard_plan(const struct slot_bitmap *const *sources, int count, int wanted, struct slot_move *moves) {
    if (count == 0) return 0;
    struct source_rank *ranks = mem_alloc((size_t)count * sizeof *ranks);
    int *take = mem_alloc((size_t)count * sizeof *take), total = 0, planned = 0, written = 0;
    for (int i = 0; i < count; i++) {
        ranks[i] = (struct source_rank){i, slot_bitmap_count(sources[i])};
        total += ranks[i].slots;
    }
    if (wanted > total) wanted = total;
    qsort(ranks, (size_t)count, sizeof *ranks, rank_compare);
    for (int i = 0; i < count; i++) {
        double share = total ? (double)wanted / total * ranks[i].slots : 0;
        take[i] = (int)(i == 0 ? ceil(share) : floor(share));
        if (take[i] > wanted - planned) take[i] = wanted - planned;
        planned += take[i];
    }
    /* What rounding left goes to the sources in turn. */
    for (int i = 1 % count; planned < wanted; i = (i + 1) % count) {
        if (take[i] == ranks[i].slots) continue;
        take[i]++;
        planned++;
    }
    for (int i = 0; i < count; i++) {
        for (int slot = 0; slot < HASH_SLOTS && take[i] > 0; slot++) {
            if (!slot_bitmap_has(sources[ranks[i].index], slot)) continue;
            moves[written++] = (struct slot_move){slot, ranks[i].index};
            take[i]--;
        }
    }
    mem_free(take);
    mem_free(ranks);
    return written;
}

int slot_moves_range(const struct slot_move *moves, int count, int from) {
    int next = from + 1;
    while (next < count && moves[next].source == moves[from].source && moves[next].slot == moves[next - 1].slot + 1)
        next++;
    return next;
}

/* --- rebalance --- */

static int surplus_compare(const void *a, const void *b) {
    const struct source_rank *x = a, *y = b; /* `slots` is the surplus */
    return x->slots != y->slots ? (x->slots > y->slots) - (x->slots < y->slots) : x->index - y->index;
}

int rebalance_plan(struct rebalance_node *nodes, int count, double threshold, struct rebalance_move *moves) {
    double total_weight = 0;
    int total = 0, written = 0, slots = 0;
    bool needed = false;
    for (int i = 0; i < count; i++) total_weight += nodes[i].weight, slots += nodes[i].slots;
    for (int i = 0; i < count; i++) {
        struct rebalance_node *n = &nodes[i];
        int expected = (int)((double)slots / total_weight * n->weight);
        n->surplus = n->slots - expected;
        total += n->surplus;
        needed |= n->slots > 0 ? fabs(100 - 100.0 * expected / n->slots) > threshold : expected > 1;
    }
    if (!needed) return 0;
    /* The slots that rounding left belong to those that receive. */
    while (total > 0) {
        bool given = false;
        for (int i = 0; i < count && total > 0; i++) {
            if (nodes[i].surplus > 0 || nodes[i].weight == 0) continue;
            nodes[i].surplus--;
            total--;
            given = true;
        }
        for (int i = 0; i < count && total > 0 && !given; i++) {
            if (nodes[i].weight == 0) continue;
            nodes[i].surplus--;
            total--;
        }
    }
    struct source_rank *ranks = mem_alloc((size_t)count * sizeof *ranks);
    for (int i = 0; i < count; i++) ranks[i] = (struct source_rank){i, nodes[i].surplus};
    qsort(ranks, (size_t)count, sizeof *ranks, surplus_compare);
    int to = 0, from = count - 1;
    while (to < from) {
        int lacking = -ranks[to].slots, spare = ranks[from].slots;
        int move = lacking < spare ? lacking : spare;
        if (move > 0) moves[written++] = (struct rebalance_move){ranks[from].index, ranks[to].index, move};
        if (move < 0) break;
        ranks[to].slots += move;
        ranks[from].slots -= move;
        if (ranks[to].slots >= 0) to++;
        if (ranks[from].slots <= 0) from--;
    }
    mem_free(ranks);
    return written;
}

/* --- fix --- */

int fix_most_keys(const struct fix_node *nodes, int count) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (best < 0 || nodes[i].keys > nodes[best].keys) best = i;
    return best;
}

/* The only owner, if no other node has keys of the slot; else -1. */
static int owner_find(struct fix_node *nodes, int count) {
    int owner = -1, claims = 0;
    for (int i = 0; i < count; i++) {
        nodes[i].found_as_owner = !nodes[i].owner && nodes[i].keys > 0;
        if (!nodes[i].owner && !nodes[i].found_as_owner) continue;
        claims++;
        owner = i;
    }
    return claims == 1 && nodes[owner].owner ? owner : -1;
}

struct fix_plan fix_plan_make(struct fix_node *nodes, int count) {
    struct fix_plan plan = {FIX_NONE, -1, -1, -1, false};
    int migrating = 0, importing = 0;
    bool importing_keys = false;
    plan.owner = owner_find(nodes, count);
    plan.choose_owner = plan.owner < 0;
    if (plan.owner < 0) plan.owner = fix_most_keys(nodes, count);
    if (plan.owner < 0) return plan;
    for (int i = 0; i < count; i++) {
        struct fix_node *n = &nodes[i];
        if (n->migrating) n->importing = false;
        n->found = !n->migrating && !n->importing && n->keys > 0 && (plan.choose_owner || i != plan.owner);
        if (n->found) n->importing = true;
        if (!plan.choose_owner) continue;
        /* The new owner gathers what all others have. */
        if (i == plan.owner) n->migrating = n->importing = false;
        if (i != plan.owner && (n->owner || n->keys > 0)) n->migrating = false, n->importing = true;
    }
    for (int i = 0; i < count; i++) {
        if (nodes[i].migrating) plan.source = i, migrating++;
        if (nodes[i].importing) plan.target = i, importing++;
        importing_keys |= nodes[i].importing && nodes[i].keys > 0;
    }
    if (migrating == 1 && importing == 1) {
        plan.action = FIX_MOVE;
    } else if (migrating == 0 && importing > 0) {
        plan.action = FIX_GATHER;
    } else if (migrating == 1 && importing > 1 && !importing_keys) {
        int named = nodes[plan.source].migrating_to;
        plan.target = named >= 0 && nodes[named].importing ? named : -1;
        plan.action = plan.target < 0 ? FIX_CLOSE_ALL : FIX_MOVE_CLOSE;
    } else if (migrating == 1 && importing == 0 && (plan.owner == plan.source || nodes[plan.source].keys == 0)) {
        plan.action = FIX_CLOSE;
    } else if (migrating == 0 && plan.choose_owner) {
        plan.action = FIX_DONE;
    }
    return plan;
}
