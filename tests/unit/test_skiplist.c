/* The skiplist against a sorted array. */
#include "unit.h"
#include "lib/structures/skiplist.h"
#include "lib/system/random.h"
#include <math.h>
#include <stdio.h>

enum { MOST = 400 };
struct model {
    struct {
        double score;
        char text[16];
        struct skiplist_node *node;
    } items[MOST];
    size_t count;
};
static struct slice text_of(const struct model *m, size_t i) {
    return slice_of(m->items[i].text);
}
static size_t place(const struct model *m, double score, struct slice text) {
    size_t i = 0;
    while (i < m->count && skiplist_compare(m->items[i].score, text_of(m, i), score, text) < 0) i++;
    return i;
}
static void model_insert(struct model *m, size_t at, double score, const char *text, struct skiplist_node *node) {
    memmove(m->items + at + 1, m->items + at, (m->count - at) * sizeof *m->items);
    m->items[at].score = score;
    snprintf(m->items[at].text, sizeof m->items[at].text, "%s", text);
    m->items[at].node = node;
    m->count++;
}
static void model_delete(struct model *m, size_t at, size_t count) {
    memmove(m->items + at, m->items + at + count, (m->count - at - count) * sizeof *m->items);
    m->count -= count;
}
static bool below(const void *context, const struct skiplist_node *node) {
    return node->score < *(const double *)context;
}
static void assert_same(const struct skiplist *list, const struct model *m) {
    assert_int_equal(skiplist_len(list), m->count);
    struct skiplist_node *node = skiplist_first(list), *before = NULL;
    for (size_t i = 0; i < m->count; i++, before = node, node = skiplist_next(node)) {
        assert_ptr_equal(node, m->items[i].node);
        assert_ptr_equal(node->prev, before);
        assert_true(node->score == m->items[i].score && slice_equal(skiplist_text(node), text_of(m, i)));
        assert_int_equal(skiplist_rank(list, node), i);
        assert_ptr_equal(skiplist_at(list, i), node);
        size_t lower = 0;
        while (m->items[lower].score < node->score) lower++;
        assert_int_equal(skiplist_count_before(list, below, &node->score), lower);
    }
    assert_null(node);
    assert_ptr_equal(skiplist_last(list), before);
    assert_null(skiplist_at(list, m->count));
    double most = INFINITY;
    assert_int_equal(skiplist_count_before(list, below, &most), m->count);
}
static void count_seen(void *context, struct skiplist_node *node) {
    ++*(size_t *)context;
}
TEST(random_changes_do_what_a_sorted_array_does) {
    random_seed(11);
    static struct model m;
    for (int round = 0; round < 10; round++) {
        struct skiplist *list = skiplist_new();
        m.count = 0;
        for (int i = 0; i < 1500; i++) {
            double score = (double)random_below(20) - 5;
            char text[16];
            snprintf(text, sizeof text, "%d", i);
            size_t at = m.count ? random_below(m.count) : 0;
            switch (m.count < MOST ? random_below(6) : 2) {
            case 0:
            case 1:
            case 5: {
                struct skiplist_node *node = skiplist_insert(list, score, slice_of(text));
                model_insert(&m, place(&m, score, slice_of(text)), score, text, node);
                break;
            }
            case 2:
                if (!m.count) break;
                skiplist_take(list, m.items[at].node);
                skiplist_node_free(m.items[at].node);
                model_delete(&m, at, 1);
                break;
            case 3:
                if (!m.count) break;
                struct skiplist_node *node = m.items[at].node;
                snprintf(text, sizeof text, "%s", m.items[at].text);
                skiplist_rescore(list, node, score);
                model_delete(&m, at, 1);
                model_insert(&m, place(&m, score, slice_of(text)), score, text, node);
                break;
            case 4:
                if (random_below(20)) break;
                size_t count = random_below(40), seen = 0, real = m.count - at < count ? m.count - at : count;
                skiplist_delete(list, at, count, count_seen, &seen);
                assert_int_equal(seen, real);
                model_delete(&m, at, real);
                break;
            }
            if (i % 25 == 0) assert_same(list, &m);
        }
        assert_same(list, &m);
        skiplist_free(list);
    }
}
TEST(equal_scores_are_ordered_by_bytes) {
    struct skiplist *list = skiplist_new();
    struct skiplist_node *b = skiplist_insert(list, 1, SLICE("b")), *a = skiplist_insert(list, 1, SLICE("a")),
                         *ab = skiplist_insert(list, 1, SLICE("ab")), *none = skiplist_insert(list, 1, SLICE("")),
                         *high = skiplist_insert(list, INFINITY, SLICE("")),
                         *low = skiplist_insert(list, -INFINITY, SLICE("z")),
                         *wide = skiplist_insert(list, 1, SLICE("\xff"));
    struct skiplist_node *order[] = {low, none, a, ab, b, wide, high};
    for (size_t i = 0; i < 7; i++) assert_ptr_equal(skiplist_at(list, i), order[i]);
    skiplist_free(list);
}
