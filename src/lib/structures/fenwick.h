/* fenwick.h: a Fenwick tree (binary indexed tree): counts of items at indices, with cumulative sums.
 *
 * A tree over `len` indices, a power of two, is an array of len + 1 sums; a zeroed array holds no items. tree[len] is
 * the total number of items. Each operation takes O(log len). Not thread-safe. */
#pragma once
#include <stddef.h>

/* Adds `count` items at an index; 0 - n removes n. */
static inline void fenwick_add(size_t *tree, size_t len, size_t index, size_t count) {
    for (size_t i = index + 1; i <= len; i += i & -i) tree[i] += count;
}
/* The number of items below an index, which may be `len`. */
static inline size_t fenwick_below(const size_t *tree, size_t index) {
    size_t sum = 0;
    for (size_t i = index; i; i &= i - 1) sum += tree[i];
    return sum;
}
/* The index of the item with this rank: 0 is the first item, tree[len] - 1 the last. `len`: no such item. */
static inline size_t fenwick_find(const size_t *tree, size_t len, size_t rank) {
    size_t index = 0;
    if (rank >= tree[len]) return len;
    for (size_t step = len / 2; step; step /= 2)
        if (tree[index + step] <= rank) index += step, rank -= tree[index];
    return index;
}
