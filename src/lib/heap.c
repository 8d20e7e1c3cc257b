/* heap.c: see heap.h. The parent of place n is (n - 1) / 2; no item has a lower number than its parent. */
#include "lib/heap.h"
#include "lib/memory.h"

enum { CAPACITY_MIN = 4 };

static void put(struct heap *heap, const struct heap_type *type, size_t place, void *item) {
    heap->items[place] = item;
    type->placed(item, place);
}

/* Finds the place for an item on the way from a vacant one to the first, and puts it there. */
static void sift_up(struct heap *heap, const struct heap_type *type, size_t place, void *item) {
    int64_t number = type->number(item);
    while (place) {
        size_t parent = (place - 1) / 2;
        if (type->number(heap->items[parent]) <= number) break;
        put(heap, type, place, heap->items[parent]);
        place = parent;
    }
    put(heap, type, place, item);
}

static void sift_down(struct heap *heap, const struct heap_type *type, size_t place, void *item) {
    int64_t number = type->number(item);
    for (size_t child; (child = 2 * place + 1) < heap->len; place = child) {
        if (child + 1 < heap->len && type->number(heap->items[child + 1]) < type->number(heap->items[child])) child++;
        if (number <= type->number(heap->items[child])) break;
        put(heap, type, place, heap->items[child]);
    }
    put(heap, type, place, item);
}

static void settle(struct heap *heap, const struct heap_type *type, size_t place, void *item) {
    if (place && type->number(item) < type->number(heap->items[(place - 1) / 2]))
        sift_up(heap, type, place, item);
    else
        sift_down(heap, type, place, item);
}

static void resize(struct heap *heap, size_t capacity) {
    heap->items = mem_realloc(heap->items, capacity * sizeof *heap->items);
    heap->capacity = capacity;
}

void heap_add(struct heap *heap, const struct heap_type *type, void *item) {
    if (heap->len == heap->capacity) resize(heap, heap->capacity ? heap->capacity * 2 : CAPACITY_MIN);
    sift_up(heap, type, heap->len++, item);
}

void heap_remove(struct heap *heap, const struct heap_type *type, size_t place) {
    void *last = heap->items[--heap->len];
    if (place < heap->len) settle(heap, type, place, last);
    if (heap->len * 4 <= heap->capacity && heap->capacity > CAPACITY_MIN) resize(heap, heap->capacity / 2);
}

void heap_renumbered(struct heap *heap, const struct heap_type *type, size_t place) {
    settle(heap, type, place, heap->items[place]);
}

/* Below an item that is not counted there is none that is. The depth is that of the heap. */
static size_t count_from(const struct heap *heap, const struct heap_type *type, int64_t number, size_t place) {
    if (place >= heap->len || type->number(heap->items[place]) >= number) return 0;
    return 1 + count_from(heap, type, number, 2 * place + 1) + count_from(heap, type, number, 2 * place + 2);
}
size_t heap_count_below(const struct heap *heap, const struct heap_type *type, int64_t number) {
    return count_from(heap, type, number, 0);
}

void heap_clear(struct heap *heap) {
    mem_free(heap->items);
    *heap = (struct heap){0};
}
