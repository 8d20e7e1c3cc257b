/* slots.c: see slots.h */
#include "cluster/protocol/slots.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

const struct slot_bitmap slot_bitmap_empty;

void slots_free(struct slot_table *slots) {
    mem_free(slots->migrating_to);
    mem_free(slots->importing_from);
}

void slots_set_unclaimed(struct slot_table *slots, unsigned slot, bool unclaimed) {
    must_less(slot, HASH_SLOTS);
    if (slot_bitmap_has(&slots->unclaimed, slot) == unclaimed) return;
    if (unclaimed) {
        slot_bitmap_set(&slots->unclaimed, slot);
        slots->unclaimed_count++;
    } else {
        must(slots->unclaimed_count > 0);
        slot_bitmap_clear(&slots->unclaimed, slot);
        slots->unclaimed_count--;
    }
}

void slots_assign(struct slot_table *slots, unsigned slot, struct cluster_node *owner) {
    must_less(slot, HASH_SLOTS);
    struct cluster_node *old = slots->owner[slot];
    slots_set_unclaimed(slots, slot, false);
    if (old == owner) return;
    if (old) {
        must(old->slot_count > 0 && slots->assigned > 0 && slot_bitmap_has(old->slots, slot));
        slot_bitmap_clear(old->slots, slot);
        if (--old->slot_count == 0) {
            mem_free(old->slots);
            old->slots = NULL;
        }
        slots->assigned--;
    }
    if (owner) {
        if (!owner->slots) {
            owner->slots = mem_calloc(1, sizeof *owner->slots);
            owner->slot_low = slot;
            owner->slot_end = slot + 1;
        }
        if (slot < owner->slot_low) owner->slot_low = slot;
        if (slot >= owner->slot_end) owner->slot_end = slot + 1;
        slot_bitmap_set(owner->slots, slot);
        owner->slot_count++;
        slots->assigned++;
    }
    slots->owner[slot] = owner;
    slots->version++;
}

static void set_open(struct cluster_node ***table, unsigned *count, unsigned slot, struct cluster_node *node) {
    must_less(slot, HASH_SLOTS);
    if (!*table) {
        if (!node) return;
        *table = mem_calloc(HASH_SLOTS, sizeof **table);
    }
    must(*count > 0 || !(*table)[slot]);
    *count += (node != NULL) - ((*table)[slot] != NULL);
    (*table)[slot] = node;
}

void slots_set_migrating(struct slot_table *slots, unsigned slot, struct cluster_node *target) {
    struct cluster_node *old = slots_migrating_to(slots, slot);
    must(!old || old->migrating_count > 0);
    if (old) old->migrating_count--;
    if (target) target->migrating_count++;
    set_open(&slots->migrating_to, &slots->migrating_count, slot, target);
}

void slots_set_importing(struct slot_table *slots, unsigned slot, struct cluster_node *source) {
    struct cluster_node *old = slots_importing_from(slots, slot);
    must(!old || old->importing_count > 0);
    if (old) old->importing_count--;
    if (source) source->importing_count++;
    set_open(&slots->importing_from, &slots->importing_count, slot, source);
}

void slots_close_all(struct slot_table *slots) {
    for (unsigned slot = 0; slot < HASH_SLOTS && slots->migrating_count + slots->importing_count > 0; slot++) {
        slots_set_migrating(slots, slot, NULL);
        slots_set_importing(slots, slot, NULL);
    }
}

bool node_slot_range(const struct cluster_node *node, unsigned *slot, unsigned *first, unsigned *last) {
    if (*slot < node->slot_low) *slot = node->slot_low;
    return node->slots && *slot < node->slot_end && slot_bitmap_range(node->slots, slot, first, last);
}
