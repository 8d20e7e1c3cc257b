/* The heap against an unsorted list of its items. */
#include "unit.h"
#include "lib/structures/heap.h"
#include "lib/system/random.h"
#include <stdbool.h>

enum { MOST = 300 };
struct item {
    int64_t number;
    size_t place;
    bool in;
};
static int64_t item_number(const void *item) {
    return ((const struct item *)item)->number;
}
static void item_placed(void *item, size_t place) {
    ((struct item *)item)->place = place;
}
static const struct heap_type type = {item_number, item_placed};

static void check(const struct heap *heap, const struct item *items) {
    size_t count = 0, below = 0;
    int64_t lowest = INT64_MAX, limit = (int64_t)random_below(60);
    for (size_t i = 0; i < MOST; i++) {
        if (!items[i].in) continue;
        count++;
        below += items[i].number < limit;
        if (items[i].number < lowest) lowest = items[i].number;
        assert_ptr_equal(heap->items[items[i].place], &items[i]);
    }
    assert_int_equal(heap->len, count);
    assert_int_equal(heap_count_below(heap, &type, limit), below);
    assert_int_equal(heap_count_below(heap, &type, INT64_MAX), count);
    if (count)
        assert_int_equal(item_number(heap_first(heap)), lowest);
    else
        assert_null(heap_first(heap));
}

TEST(items_come_change_and_go) {
    static struct item items[MOST];
    struct heap heap = {0};
    random_seed(3);
    for (int round = 0; round < 20000; round++) {
        struct item *item = &items[random_below(MOST)];
        bool grow = round / 2000 % 2 == 0; /* fills and empties alternately */
        if (!item->in && (grow || random_below(8) == 0)) {
            *item = (struct item){.number = (int64_t)random_below(50), .in = true};
            heap_add(&heap, &type, item);
        } else if (item->in && random_below(2)) {
            item->number = (int64_t)random_below(50);
            heap_renumbered(&heap, &type, item->place);
        } else if (item->in && (!grow || random_below(8) == 0)) {
            item->in = false;
            heap_remove(&heap, &type, item->place);
        }
        if (round % 10 == 0) check(&heap, items);
    }
    heap_clear(&heap);
    assert_int_equal(heap.len, 0);
    assert_null(heap.items);
}

TEST(items_leave_in_order) {
    struct item items[MOST];
    struct heap heap = {0};
    random_seed(4);
    for (size_t i = 0; i < MOST; i++) {
        items[i] = (struct item){.number = (int64_t)random_below(100) - 50, .in = true};
        heap_add(&heap, &type, &items[i]);
    }
    for (int64_t last = INT64_MIN; heap.len;) {
        const struct item *first = heap_first(&heap);
        assert_true(first->number >= last);
        last = first->number;
        heap_remove(&heap, &type, 0);
    }
    assert_true(heap.capacity <= 4); /* its memory was freed with them */
    heap_clear(&heap);
}
