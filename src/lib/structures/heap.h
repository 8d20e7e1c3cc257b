/* heap.h: a binary min-heap of pointers.
 *
 * Each item has a number. The heap reports the item's index whenever the index changes, so that the owner can remove
 * the item or change its number without a search. Both operations take O(log n). The heap does not own its items. Not
 * thread-safe. A zeroed struct is an empty heap. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct heap {
    void **items;
    size_t len, capacity;
};
struct heap_type {
    int64_t (*number)(const void *item);
    void (*set_index)(void *item, size_t index);
};

void heap_add(struct heap *heap, const struct heap_type *type, void *item);
void heap_remove(struct heap *heap, const struct heap_type *type, size_t index);
/* Restores the order after the number of the item at `index` changed. */
void heap_renumbered(struct heap *heap, const struct heap_type *type, size_t index);
static inline void *heap_first(const struct heap *heap) {
    return heap->len ? heap->items[0] : NULL;
} /* NULL: empty */
/* Counts the items with a number below `number`; visits about as many items. */
size_t heap_count_below(const struct heap *heap, const struct heap_type *type, int64_t number);
void heap_clear(struct heap *heap); /* removes all items and frees the array */
