/* slots.h: which node serves which hash slot, and the slots that are open: on their way from or to this node.
 *
 * The owner table answers the question of each command. The bitmap of a node (node.h) is the same from the other side,
 * as messages carry it. Both change only here. */
#pragma once
#include "cluster/protocol/node.h"

struct slot_table {
    struct cluster_node *owner[HASH_SLOTS]; /* NULL: nobody */
    unsigned assigned;
    uint64_t version; /* changes with each change of an owner */
    /* Open slots of this node; NULL, or a table of HASH_SLOTS. */
    struct cluster_node **migrating_to, **importing_from;
    unsigned migrating_count, importing_count;
    /* Slots whose owner has stopped claiming them. They stay bound to it here, but messages do not say so. */
    struct slot_bitmap unclaimed;
    unsigned unclaimed_count;
};
void slots_free(struct slot_table *slots);
/* Assigns a slot that has no owner, or another one; NULL: nobody. */
void slots_assign(struct slot_table *slots, unsigned slot, struct cluster_node *owner);
static inline struct cluster_node *slots_migrating_to(const struct slot_table *slots, unsigned slot) {
    return slots->migrating_count ? slots->migrating_to[slot] : NULL;
}
static inline struct cluster_node *slots_importing_from(const struct slot_table *slots, unsigned slot) {
    return slots->importing_count ? slots->importing_from[slot] : NULL;
}
static inline bool slots_is_open(const struct slot_table *slots, unsigned slot) {
    return slots->migrating_count + slots->importing_count &&
           (slots_migrating_to(slots, slot) || slots_importing_from(slots, slot));
}
void slots_set_unclaimed(struct slot_table *slots, unsigned slot, bool unclaimed);
/* NULL closes the slot. */
void slots_set_migrating(struct slot_table *slots, unsigned slot, struct cluster_node *target);
void slots_set_importing(struct slot_table *slots, unsigned slot, struct cluster_node *source);
void slots_close_all(struct slot_table *slots);

static inline bool node_has_slot(const struct cluster_node *node, unsigned slot) {
    return node->slots && slot_bitmap_has(node->slots, slot);
}
/* The next range of slots of a node from `*slot` on; false: there is none. Sets `*slot` behind it. */
bool node_slot_range(const struct cluster_node *node, unsigned *slot, unsigned *first, unsigned *last);
extern const struct slot_bitmap slot_bitmap_empty;
static inline const struct slot_bitmap *node_slots(const struct cluster_node *node) {
    return node->slots ? node->slots : &slot_bitmap_empty;
}
