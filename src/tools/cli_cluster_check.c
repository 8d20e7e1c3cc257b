/* cli_cluster_check.c: checks that the nodes agree, that no slot is open, and that each slot has one owner. */
#include "tools/cli_cluster.h"

/* Warns about the slots of a node that are open in one direction, and adds them to `open`. */
static void open_slots_collect(const struct cli_cluster *c, const struct cli_node *node, bool importing,
                               struct slot_bitmap *open) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    for (int i = 0; i < node->line.open_count; i++) {
        const struct cli_open_slot *o = &node->line.open[i];
        char text[16];
        if (o->importing != importing) continue;
        int len = snprintf(text, sizeof text, "%s%d", memory_output_slice(&m).len ? "," : "", o->slot);
        output_write(&m.out, slice_make(text, (size_t)len));
        slot_bitmap_set(open, o->slot);
    }
    struct slice slots = memory_output_slice(&m);
    if (slots.len)
        cluster_say(c, TONE_WARNING, "[WARNING] Node %s has slots in %s state %.*s.\n", node->name,
                    importing ? "importing" : "migrating", (int)slots.len, slots.data);
    memory_output_free(&m);
}

static void open_slots_check(struct cli_cluster *c, bool fix) {
    struct slot_bitmap open = {0};
    cluster_say(c, TONE_STEP, ">>> Check for open slots...\n");
    for (int i = 0; i < c->count; i++) {
        open_slots_collect(c, c->nodes[i], false, &open);
        open_slots_collect(c, c->nodes[i], true, &open);
    }
    if (slot_bitmap_count(&open) == 0) return;
    c->problems |= PROBLEM_OPEN_SLOTS;
    printf("[WARNING] The following slots are open: ");
    for (int slot = 0, any = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&open, slot)) printf("%s%d", any++ ? "," : "", slot);
    printf(".\n");
    if (!fix) return;
    bool fixed = true;
    for (int slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&open, slot)) continue;
        fixed &= cluster_fix_open_slot(c, slot);
        if (!cluster_reload(c)) fixed = false; /* the next slots are judged by what is true now */
    }
    c->problems &= ~(unsigned)PROBLEM_OPEN_SLOTS;
    if (!fixed) c->problems |= PROBLEM_UNFIXED;
}

static void coverage_check(struct cli_cluster *c, bool fix) {
    struct slot_bitmap covered = {0};
    cluster_say(c, TONE_STEP, ">>> Check slots coverage...\n");
    for (int i = 0; i < c->count; i++)
        for (size_t k = 0; k < SLOT_BITMAP_SIZE; k++) covered.bytes[k] |= c->nodes[i]->line.slots.bytes[k];
    if (slot_bitmap_count(&covered) == HASH_SLOTS) {
        cluster_say(c, TONE_OK, "[OK] All %d slots covered.\n", HASH_SLOTS);
        return;
    }
    cluster_say(c, TONE_ERROR, "[ERR] Not all %d slots are covered by nodes.\n\n", HASH_SLOTS);
    if (!fix) {
        c->problems |= PROBLEM_UNCOVERED;
        return;
    }
    if (!cluster_fix_coverage(c, &covered) || !cluster_reload(c)) c->problems |= PROBLEM_UNFIXED;
}

static int owners_count(const struct cli_cluster *c, int slot) {
    int owners = 0;
    for (int i = 0; i < c->count; i++)
        owners += node_is_primary(c->nodes[i]) && slot_bitmap_has(&c->nodes[i]->line.slots, slot);
    return owners;
}

static void owners_check(struct cli_cluster *c, bool fix) {
    bool several = false;
    cluster_say(c, TONE_STEP, ">>> Check for multiple slot owners...\n");
    for (int slot = 0; slot < HASH_SLOTS; slot++) {
        int owners = owners_count(c, slot);
        if (owners < 2) continue;
        cluster_say(c, TONE_WARNING, "[WARNING] Slot %d has %d owners:\n", slot, owners);
        for (int i = 0; i < c->count; i++)
            if (node_is_primary(c->nodes[i]) && slot_bitmap_has(&c->nodes[i]->line.slots, slot))
                printf("    %s\n", c->nodes[i]->name);
        if (fix && cluster_fix_owners(c, slot)) continue;
        several = true;
        c->problems |= fix ? PROBLEM_UNFIXED : PROBLEM_OWNERS;
    }
    if (!several) cluster_say(c, TONE_OK, "[OK] No multiple owners found.\n");
}

unsigned cluster_check(struct cli_cluster *c, bool show_nodes, bool fix) {
    c->problems = 0;
    cluster_say(c, TONE_STEP, ">>> Performing Cluster Check (using node %s)\n", c->nodes[0]->name);
    for (int i = 0; i < c->count && show_nodes; i++) cluster_show_node(c->nodes[i], "");
    if (cluster_is_consistent(c)) {
        cluster_say(c, TONE_OK, "[OK] All nodes agree about slots configuration.\n");
    } else {
        cluster_say(c, TONE_ERROR, "[ERR] Nodes don't agree about configuration!\n");
        if (!fix) c->problems |= PROBLEM_DISAGREE;
    }
    open_slots_check(c, fix);
    coverage_check(c, fix);
    if (c->options->search_owners) owners_check(c, fix);
    return c->problems;
}
