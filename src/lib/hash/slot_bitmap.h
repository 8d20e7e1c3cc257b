/* slot_bitmap.h: a set of hash slots, in the form in which the cluster bus carries it. A zeroed one is empty. */
#pragma once
#include "lib/hash/hash_slot.h"
#include <stdint.h>

enum { SLOT_BITMAP_SIZE = HASH_SLOTS / 8 };

struct slot_bitmap {
    uint8_t bytes[SLOT_BITMAP_SIZE];
};
static inline bool slot_bitmap_has(const struct slot_bitmap *bitmap, unsigned slot) {
    return bitmap->bytes[slot / 8] >> (slot % 8) & 1;
}
static inline void slot_bitmap_set(struct slot_bitmap *bitmap, unsigned slot) {
    bitmap->bytes[slot / 8] |= (uint8_t)(1u << (slot % 8));
}
static inline void slot_bitmap_clear(struct slot_bitmap *bitmap, unsigned slot) {
    bitmap->bytes[slot / 8] &= (uint8_t) ~(1u << (slot % 8));
}
void slot_bitmap_set_range(struct slot_bitmap *bitmap, unsigned first, unsigned last);
/* The first slot from `slot` on that is in the set, or with `in` false: that is not; HASH_SLOTS: there is none. */
unsigned slot_bitmap_next(const struct slot_bitmap *bitmap, unsigned slot, bool in);
/* The next range of slots from *slot on; false: there is none. Sets *slot behind it. */
bool slot_bitmap_range(const struct slot_bitmap *bitmap, unsigned *slot, unsigned *first, unsigned *last);
unsigned slot_bitmap_count(const struct slot_bitmap *bitmap);
