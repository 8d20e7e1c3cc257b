/* cli_cluster_fix.c: closes open slots, gives slots without an owner to a node, and leaves one of several owners.
 * cli_cluster_plan.c decides what to do with a slot. */
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "tools/cli_cluster.h"
#include <stdlib.h>

/* --- The primaries, as the plans count them --- */

struct primaries {
    struct cli_node **nodes;
    struct fix_node *facts;
    int count;
};

static void primaries_free(struct primaries *p) {
    mem_free(p->nodes);
    mem_free(p->facts);
}

/* Asks the primaries about a slot. False: one failed, with a message. */
static bool primaries_ask(struct cli_cluster *c, int slot, struct primaries *p) {
    p->nodes = mem_alloc((size_t)c->count * sizeof *p->nodes);
    p->facts = mem_calloc((size_t)c->count, sizeof *p->facts);
    p->count = 0;
    for (int i = 0; i < c->count; i++)
        if (node_is_primary(c->nodes[i])) p->nodes[p->count++] = c->nodes[i];
    for (int i = 0; i < p->count; i++) {
        const struct cli_node_line *line = &p->nodes[i]->line;
        struct fix_node *f = &p->facts[i];
        int64_t keys = cluster_count_keys(p->nodes[i], slot);
        if (keys < 0) return false;
        const char *to = node_line_peer(line, slot, false);
        *f = (struct fix_node){.owner = slot_bitmap_has(&line->slots, slot),
                               .migrating = to != NULL,
                               .importing = node_line_peer(line, slot, true) != NULL,
                               .keys = (uint64_t)keys,
                               .migrating_to = -1};
        for (int k = 0; k < p->count && to; k++)
            if (strcmp(p->nodes[k]->line.id, to) == 0) f->migrating_to = k;
    }
    return true;
}

/* --- One slot --- */

/* Makes the node the owner, with a new epoch, whatever it believes now. */
static bool owner_set(struct cli_node *node, int slot) {
    char text[16];
    snprintf(text, sizeof text, "%d", slot);
    if (!cluster_set_slot(node, slot, "STABLE", NULL)) return false;
    /* Within a transaction no message of another node comes between giving up the slot and taking it. DELSLOTS fails
     * where nobody owns it, which is as well. SETSLOT must stay outside: Valkey 9.1 aborts if it has to wait for
     * replicas in a transaction. */
    if (!CLUSTER_CALL(node, "MULTI") || !CLUSTER_CALL(node, "CLUSTER", "DELSLOTS", text) ||
        !CLUSTER_CALL(node, "CLUSTER", "ADDSLOTS", text) || !CLUSTER_CALL(node, "CLUSTER", "BUMPEPOCH"))
        return false;
    const struct resp_value *reply = CLUSTER_CALL(node, "EXEC");
    if (!reply) return false;
    for (size_t i = 1; i < reply->count; i++) {
        if (reply->children[i].type != RESP_ERROR) continue;
        cluster_show_error(node, &reply->children[i]);
        return false;
    }
    if (reply->count != 3) return false;
    slot_bitmap_set(&node->line.slots, slot);
    return true;
}

/* Makes sure that a node serves MIGRATE for a slot that it does not own, and leaves the slot without an owner there. */
static bool source_prepare(struct cli_node *node, const struct fix_node *facts, int slot,
                           const struct cli_node *owner) {
    char text[16];
    snprintf(text, sizeof text, "%d", slot);
    if (facts->owner) {
        const struct resp_value *reply = CLUSTER_TRY(node, "CLUSTER", "DELSLOTS", text);
        if (!reply) return false;
        slot_bitmap_clear(&node->line.slots, slot);
    }
    return cluster_set_slot(node, slot, "STABLE", NULL) && cluster_set_slot(node, slot, "IMPORTING", owner->line.id);
}

static bool gather(struct cli_cluster *c, struct primaries *p, int owner, int slot) {
    bool complete = true;
    for (int i = 0; i < p->count; i++) {
        if (i == owner || !p->facts[i].importing) continue;
        if (!source_prepare(p->nodes[i], &p->facts[i], slot, p->nodes[owner]) ||
            !cluster_move_slot(c, p->nodes[i], p->nodes[owner], slot, MOVE_KEYS_ONLY | MOVE_SHOW)) {
            complete = false;
            continue;
        }
        cluster_say(c, TONE_STEP, ">>> Setting %d as STABLE in %s\n", slot, p->nodes[i]->name);
        complete &= cluster_set_slot(p->nodes[i], slot, "STABLE", NULL);
    }
    return complete;
}

static void list_show(const struct primaries *p, const struct fix_node *facts, bool importing) {
    bool any = false;
    for (int i = 0; i < p->count; i++) {
        if (importing ? !facts[i].importing && !p->facts[i].found : !facts[i].migrating) continue;
        printf(any ? ",%s" : importing ? "Set as importing in: %s" : "Set as migrating in: %s", p->nodes[i]->name);
        any = true;
    }
    if (any) printf("\n");
}

static bool close_others(struct primaries *p, int slot, int except_a, int except_b) {
    bool complete = true;
    for (int i = 0; i < p->count; i++) {
        if (i == except_a || i == except_b || (!p->facts[i].migrating && !p->facts[i].importing)) continue;
        complete &= cluster_set_slot(p->nodes[i], slot, "STABLE", NULL);
    }
    return complete;
}

static bool plan_execute(struct cli_cluster *c, struct primaries *p, const struct fix_plan *plan, int slot) {
    struct cli_node *source = plan->source < 0 ? NULL : p->nodes[plan->source];
    struct cli_node *target = plan->target < 0 ? NULL : p->nodes[plan->target];
    switch (plan->action) {
    case FIX_MOVE:
        cluster_say(c, TONE_STEP, ">>> Case 1: Moving slot %d from %s to %s\n", slot, source->name, target->name);
        return cluster_move_slot(c, source, target, slot, MOVE_SHOW);
    case FIX_GATHER:
        cluster_say(c, TONE_STEP, ">>> Case 2: Moving all the %d slot keys to its owner %s\n", slot,
                    p->nodes[plan->owner]->name);
        return gather(c, p, plan->owner, slot);
    case FIX_MOVE_CLOSE:
        cluster_say(c, TONE_STEP,
                    ">>> Case 3: Moving slot %d from %s to %s and closing it on all the other importing nodes.\n", slot,
                    source->name, target->name);
        return cluster_move_slot(c, source, target, slot, MOVE_SHOW) &&
               close_others(p, slot, plan->source, plan->target);
    case FIX_CLOSE_ALL:
        cluster_say(c, TONE_STEP, ">>> Case 3: Closing slot %d on both migrating and importing nodes.\n", slot);
        return close_others(p, slot, -1, -1);
    case FIX_CLOSE:
        cluster_say(c, TONE_STEP, ">>> Case 4: Closing slot %d on %s\n", slot, source->name);
        return cluster_set_slot(source, slot, "STABLE", NULL);
    case FIX_DONE: return true;
    case FIX_NONE: break;
    }
    cluster_say(c, TONE_ERROR, "[ERR] Slot %d is open in a way that cannot be fixed automatically.\n", slot);
    return false;
}

/* A replica may show a slot as open that no primary has open: it is closed with the primary, or is stale. */
static bool is_open_at_primary(const struct cli_cluster *c, int slot) {
    for (int i = 0; i < c->count; i++) {
        const struct cli_node *node = c->nodes[i];
        if (node_is_primary(node) &&
            (node_line_peer(&node->line, slot, true) || node_line_peer(&node->line, slot, false)))
            return true;
    }
    return false;
}

/* Closes a slot that only replicas have open, through their primaries, which pass SETSLOT on. */
static bool replicas_close(struct cli_cluster *c, int slot) {
    bool complete = true;
    for (int i = 0; i < c->count; i++) {
        const struct cli_node *node = c->nodes[i];
        if (!node_line_peer(&node->line, slot, true) && !node_line_peer(&node->line, slot, false)) continue;
        struct cli_node *primary = cluster_find(c, node->line.primary, false);
        complete &= primary && cluster_set_slot(primary, slot, "STABLE", NULL);
    }
    return complete;
}

bool cluster_fix_open_slot(struct cli_cluster *c, int slot) {
    struct primaries p;
    cluster_say(c, TONE_STEP, ">>> Fixing open slot %d\n", slot);
    if (!is_open_at_primary(c, slot)) return replicas_close(c, slot);
    if (!primaries_ask(c, slot, &p)) {
        primaries_free(&p);
        return false;
    }
    struct fix_node *before = mem_alloc((size_t)p.count * sizeof *before);
    memcpy(before, p.facts, (size_t)p.count * sizeof *before);
    struct fix_plan plan = fix_plan_make(p.facts, p.count);
    for (int i = 0; i < p.count; i++)
        if (p.facts[i].found_as_owner)
            cluster_say(c, TONE_WARNING, "*** Found keys about slot %d in non-owner node %s!\n", slot,
                        p.nodes[i]->name);
    for (int i = 0; i < p.count; i++)
        if (p.facts[i].found)
            cluster_say(c, TONE_WARNING, "*** Found keys about slot %d in node %s!\n", slot, p.nodes[i]->name);
    list_show(&p, before, false);
    list_show(&p, before, true);
    mem_free(before);
    bool complete = plan.owner >= 0;
    if (complete && plan.choose_owner) {
        cluster_say(c, TONE_STEP, ">>> No single clear owner for the slot, selecting an owner by # of keys...\n");
        cluster_say(c, TONE_WARNING, "*** Configuring %s as the slot owner\n", p.nodes[plan.owner]->name);
        complete = owner_set(p.nodes[plan.owner], slot);
    } else if (!complete) {
        cluster_say(c, TONE_ERROR, "[ERR] Can't select a slot owner. Impossible to fix.\n");
    }
    complete = complete && plan_execute(c, &p, &plan, slot);
    primaries_free(&p);
    return complete;
}

/* --- Several owners --- */

bool cluster_fix_owners(struct cli_cluster *c, int slot) {
    struct primaries p;
    cluster_say(c, TONE_STEP, ">>> Fixing multiple owners for slot %d...\n", slot);
    bool complete = primaries_ask(c, slot, &p);
    int owner = -1;
    for (int i = 0; i < p.count && complete; i++)
        if (p.facts[i].owner && (owner < 0 || p.facts[i].keys > p.facts[owner].keys)) owner = i;
    if (complete && owner >= 0) {
        cluster_say(c, TONE_STEP, ">>> Setting slot %d owner: %s\n", slot, p.nodes[owner]->name);
        complete = owner_set(p.nodes[owner], slot);
        for (int i = 0; i < p.count && complete; i++) {
            if (i == owner || (!p.facts[i].owner && p.facts[i].keys == 0)) continue;
            complete = source_prepare(p.nodes[i], &p.facts[i], slot, p.nodes[owner]) &&
                       (p.facts[i].keys == 0 ||
                        cluster_move_slot(c, p.nodes[i], p.nodes[owner], slot, MOVE_KEYS_ONLY | MOVE_SHOW)) &&
                       cluster_set_slot(p.nodes[i], slot, "STABLE", NULL);
        }
    }
    primaries_free(&p);
    return complete;
}

/* --- Slots without an owner --- */

static void slots_show(const struct slot_bitmap *slots) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    slots_write(slots, &m.out);
    printf("%.*s\n", (int)memory_output_slice(&m).len, memory_output_slice(&m).data);
    memory_output_free(&m);
}

enum { IN_NONE, IN_ONE, IN_MANY, IN_KINDS };

static bool cover_without_keys(struct cli_cluster *c, int slot) {
    int primaries = 0;
    struct cli_node *node = NULL;
    /* Uniform over the primaries: each replaces the choice with probability 1/n. */
    for (int i = 0; i < c->count; i++)
        if (node_is_primary(c->nodes[i]) && random_below((uint64_t)++primaries) == 0) node = c->nodes[i];
    if (!node) return false;
    cluster_say(c, TONE_STEP, ">>> Covering slot %d with %s\n", slot, node->name);
    return owner_set(node, slot);
}

static bool cover_with_keys(struct cli_cluster *c, int slot, bool many) {
    struct primaries p;
    bool complete = primaries_ask(c, slot, &p);
    int owner = complete ? fix_most_keys(p.facts, p.count) : -1;
    if (owner >= 0) {
        cluster_say(c, TONE_STEP, ">>> Covering slot %d %s %s\n", slot, many ? "moving keys to" : "with",
                    p.nodes[owner]->name);
        complete = owner_set(p.nodes[owner], slot);
        for (int i = 0; i < p.count && complete; i++) {
            if (i == owner || p.facts[i].keys == 0) continue;
            complete = source_prepare(p.nodes[i], &p.facts[i], slot, p.nodes[owner]) &&
                       cluster_move_slot(c, p.nodes[i], p.nodes[owner], slot, MOVE_KEYS_ONLY | MOVE_SHOW) &&
                       cluster_set_slot(p.nodes[i], slot, "STABLE", NULL);
        }
    }
    primaries_free(&p);
    return complete;
}

/* Sorts the slots without an owner by the number of nodes that have keys of them. */
static bool uncovered_sort(struct cli_cluster *c, const struct slot_bitmap *covered,
                           struct slot_bitmap kinds[IN_KINDS]) {
    struct slot_bitmap with[2] = {{{0}}, {{0}}}; /* in at least one node, in at least two */
    for (int i = 0; i < c->count; i++) {
        int *databases, count;
        if (!node_is_primary(c->nodes[i])) continue;
        count = cluster_databases(c->nodes[i], &databases);
        mem_free(databases);
        if (count < 0) return false;
        if (count == 0) continue; /* spares 16384 questions to an empty node */
        for (int slot = 0; slot < HASH_SLOTS; slot++) {
            if (slot_bitmap_has(covered, slot)) continue;
            int64_t keys = cluster_count_keys(c->nodes[i], slot);
            if (keys < 0) return false;
            if (keys > 0) slot_bitmap_set(&with[slot_bitmap_has(&with[0], slot)], slot);
        }
    }
    for (int slot = 0; slot < HASH_SLOTS; slot++) {
        if (slot_bitmap_has(covered, slot)) continue;
        slot_bitmap_set(&kinds[slot_bitmap_has(&with[0], slot) + slot_bitmap_has(&with[1], slot)], slot);
    }
    return true;
}

bool cluster_fix_coverage(struct cli_cluster *c, const struct slot_bitmap *covered) {
    static const char *const found[] = {"The following uncovered slots have no keys across the cluster:\n",
                                        "The following uncovered slots have keys in just one node:\n",
                                        "The following uncovered slots have keys in multiple nodes:\n"};
    static const char *const questions[] = {
        "Fix these slots by covering with a random node? (type 'yes' to accept): ",
        "Fix these slots by covering with those nodes? (type 'yes' to accept): ",
        "Fix these slots by moving keys into a single node? (type 'yes' to accept): "};
    if (c->lost_primaries > 0 && !c->options->fix_unreachable) {
        cluster_say(
            c, TONE_WARNING,
            "*** Fixing slots coverage with %d unreachable primaries is dangerous: valkey-cli will assume that "
            "slots about primaries that are not reachable are not covered, and will try to reassign them to the "
            "reachable nodes. This can cause data loss and is rarely what you want to do. If you really want to "
            "proceed use the --cluster-fix-with-unreachable-primaries option.\n",
            c->lost_primaries);
        return false;
    }
    struct slot_bitmap kinds[IN_KINDS] = {{{0}}, {{0}}, {{0}}};
    bool all = true;
    cluster_say(c, TONE_STEP, ">>> Fixing slots coverage...\n");
    if (!uncovered_sort(c, covered, kinds)) return false;
    for (int kind = IN_NONE; kind < IN_KINDS; kind++) {
        if (slot_bitmap_count(&kinds[kind]) == 0) continue;
        printf("%s", found[kind]);
        slots_show(&kinds[kind]);
        /* A node that is away may have the keys: --cluster-yes does not answer this. */
        if (!cluster_confirm_by_hand(questions[kind])) {
            all = false;
            continue;
        }
        for (int slot = 0; slot < HASH_SLOTS; slot++) {
            if (!slot_bitmap_has(&kinds[kind], slot)) continue;
            if (kind == IN_NONE ? !cover_without_keys(c, slot) : !cover_with_keys(c, slot, kind == IN_MANY))
                return false;
        }
    }
    return all;
}
