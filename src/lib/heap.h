/* heap.h: items of which the one with the lowest number can always be seen: a binary heap of pointers.
 *
 * An item knows its number and is told its place whenever that changes, so that it can be taken out or given another
 * number from where it stands. Each of that takes a time in proportion to the logarithm of how many there are. The heap
 * does not own its items. Not thread-safe. All zero: empty. */
#ifndef LIB_HEAP_H
#define LIB_HEAP_H
#include <stddef.h>
#include <stdint.h>

struct heap {
    void **items;
    size_t len, capacity;
};
struct heap_type {
    int64_t (*number)(const void *item);
    void (*placed)(void *item, size_t place);
};

void heap_add(struct heap *heap, const struct heap_type *type, void *item);
void heap_remove(struct heap *heap, const struct heap_type *type, size_t place);
void heap_renumbered(struct heap *heap, const struct heap_type *type,
                     size_t place); /* the item there has another number now */
static inline void *heap_first(const struct heap *heap) {
    return heap->len ? heap->items[0] : NULL;
} /* NULL: empty */
size_t heap_count_below(const struct heap *heap, const struct heap_type *type,
                        int64_t number); /* looks at about so many items */
void heap_clear(struct heap *heap);      /* empty, and without memory */
#endif
