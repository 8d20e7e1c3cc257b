/* heap.c: see heap.h. The parent of index n is (n - 1) / 2; no item has a lower number than its parent. */
#include "lib/structures/heap.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

enum { CAPACITY_MIN = 4 };

static void heap_put(struct heap *heap, const struct heap_type *type, size_t index, void *item) {
    heap->items[index] = item;
    type->set_index(item, index);
}

/* Moves the item up from the free index until the order holds, and stores it there. */
static void sift_up(struct heap *heap, const struct heap_type *type, size_t index, void *item) {
    int64_t number = type->number(item);
    while (index) {
        size_t parent = (index - 1) / 2;
        if (type->number(heap->items[parent]) <= number) break;
        heap_put(heap, type, index, heap->items[parent]);
        index = parent;
    }
    heap_put(heap, type, index, item);
}

static void sift_down(struct heap *heap, const struct heap_type *type, size_t index, void *item) {
    int64_t number = type->number(item);
    for (size_t child; (child = 2 * index + 1) < heap->len; index = child) {
        if (child + 1 < heap->len && type->number(heap->items[child + 1]) < type->number(heap->items[child])) child++;
        if (number <= type->number(heap->items[child])) break;
        heap_put(heap, type, index, heap->items[child]);
    }
    heap_put(heap, type, index, item);
}

static void settle(struct heap *heap, const struct heap_type *type, size_t index, void *item) {
    if (index && type->number(item) < type->number(heap->items[(index - 1) / 2]))
        sift_up(heap, type, index, item);
    else
        sift_down(heap, type, index, item);
}

static void resize(struct heap *heap, size_t capacity) {
    heap->items = mem_realloc(heap->items, capacity * sizeof *heap->items);
    heap->capacity = capacity;
}

void heap_add(struct heap *heap, const struct heap_type *type, void *item) {
    if (heap->len == heap->capacity) resize(heap, heap->capacity ? heap->capacity * 2 : CAPACITY_MIN);
    sift_up(heap, type, heap->len++, item);
}

void heap_remove(struct heap *heap, const struct heap_type *type, size_t index) {
    must_less(index, heap->len);
    void *last = heap->items[--heap->len];
    if (index < heap->len) settle(heap, type, index, last);
    if (heap->len * 4 <= heap->capacity && heap->capacity > CAPACITY_MIN) resize(heap, heap->capacity / 2);
}

void heap_renumbered(struct heap *heap, const struct heap_type *type, size_t index) {
    must_less(index, heap->len);
    settle(heap, type, index, heap->items[index]);
}

/* An item that is not counted has no counted descendants. The recursion depth is the depth of the heap. */
static size_t count_from(const struct heap *heap, const struct heap_type *type, int64_t number, size_t index) {
    if (index >= heap->len || type->number(heap->items[index]) >= number) return 0;
    return 1 + count_from(heap, type, number, 2 * index + 1) + count_from(heap, type, number, 2 * index + 2);
}
size_t heap_count_below(const struct heap *heap, const struct heap_type *type, int64_t number) {
    return count_from(heap, type, number, 0);
}

void heap_clear(struct heap *heap) {
    mem_free(heap->items);
    *heap = (struct heap){0};
}
