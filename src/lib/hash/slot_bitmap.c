/* slot_bitmap.c: see slot_bitmap.h. */
#include "lib/hash/slot_bitmap.h"
#include <endian.h>
#include <string.h>

void slot_bitmap_set_range(struct slot_bitmap *bitmap, unsigned first, unsigned last) {
    for (unsigned slot = first; slot <= last; slot++) slot_bitmap_set(bitmap, slot);
}

unsigned slot_bitmap_next(const struct slot_bitmap *bitmap, unsigned slot, bool in) {
    enum { BITS = 64, WORDS = HASH_SLOTS / BITS };
    if (slot >= HASH_SLOTS) return HASH_SLOTS;
    uint64_t skipped = ~UINT64_C(0) << slot % BITS;
    for (unsigned at = slot / BITS; at < WORDS; at++, skipped = ~UINT64_C(0)) {
        uint64_t word;
        memcpy(&word, &bitmap->bytes[at * sizeof word], sizeof word);
        word = (in ? le64toh(word) : ~le64toh(word)) & skipped;
        if (word) return at * BITS + (unsigned)__builtin_ctzll(word);
    }
    return HASH_SLOTS;
}

bool slot_bitmap_range(const struct slot_bitmap *bitmap, unsigned *slot, unsigned *first, unsigned *last) {
    *first = slot_bitmap_next(bitmap, *slot, true);
    if (*first == HASH_SLOTS) return false;
    *slot = slot_bitmap_next(bitmap, *first, false);
    *last = *slot - 1;
    return true;
}

unsigned slot_bitmap_count(const struct slot_bitmap *bitmap) {
    unsigned count = 0;
    for (unsigned at = 0, first, last; slot_bitmap_range(bitmap, &at, &first, &last);) count += last - first + 1;
    return count;
}
