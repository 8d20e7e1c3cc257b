/* The radix tree against a sorted array of keys. */
#include "unit.h"
#include "lib/structures/radix_tree.h"
#include "lib/system/random.h"
#include "lib/system/relocate.h"
#include <stdlib.h>

enum { MOST = 300, KEY_MAX = 200 };
struct model {
    struct {
        char bytes[KEY_MAX];
        size_t len;
        uintptr_t value;
    } keys[MOST];
    size_t count;
};
static struct slice key_at(const struct model *m, size_t i) {
    return (struct slice){m->keys[i].bytes, m->keys[i].len};
}
/* The index of the key, or its insertion point. */
static size_t place_of(const struct model *m, struct slice key, bool *there) {
    size_t i = 0;
    while (i < m->count && slice_compare(key_at(m, i), key) < 0) i++;
    *there = i < m->count && slice_equal(key_at(m, i), key);
    return i;
}
static struct slice random_key(char bytes[KEY_MAX], int kind) {
    size_t len;
    switch (kind) {
    case 0: len = random_below(6); break;        /* short, few letters */
    case 1: len = 16; break;                     /* like ids: a long common beginning */
    default: len = random_below(KEY_MAX); break; /* long */
    }
    for (size_t i = 0; i < len; i++)
        bytes[i] = kind == 1 ? (char)(i < 13 ? 0 : random_below(i == 13 ? 2 : 256))
                             : (char)("ab\xff\0c"[random_below(i < 150 && kind == 2 ? 1 : 5)]);
    return (struct slice){bytes, len};
}
static void assert_at(const struct radix_iterator *it, const struct model *m, size_t i, bool there) {
    assert_int_equal(there, i < m->count);
    assert_int_equal(it->valid, there);
    if (!there) return;
    assert_true(slice_equal(it->key, key_at(m, i)));
    assert_true((uintptr_t)it->value == m->keys[i].value);
}
static void assert_seeks(const struct radix_tree *tree, const struct model *m, struct slice key) {
    struct radix_iterator it;
    bool there;
    size_t i = place_of(m, key, &there);
    radix_iterator_init(&it, tree);
    assert_at(&it, m, there ? i : MOST, radix_iterator_seek(&it, RADIX_EQUAL, key));
    assert_at(&it, m, i, radix_iterator_seek(&it, RADIX_AT_OR_ABOVE, key));
    assert_at(&it, m, there ? i + 1 : i, radix_iterator_seek(&it, RADIX_ABOVE, key));
    assert_at(&it, m, i - 1, radix_iterator_seek(&it, RADIX_BELOW, key)); /* for i = 0 the index is out of range */
    size_t at = there ? i : i - 1;
    assert_at(&it, m, at, radix_iterator_seek(&it, RADIX_AT_OR_BELOW, key));
    for (int steps = 0; steps < 5 && it.valid; steps++) {
        bool forwards = random_below(2);
        at += forwards ? 1 : (size_t)-1;
        assert_at(&it, m, at, forwards ? radix_iterator_next(&it) : radix_iterator_prev(&it));
    }
    radix_iterator_free(&it);
}
/* The prefixes of a text, in their order, up to `most` of them. */
struct visited {
    const struct model *m;
    struct slice text;
    size_t at, count, most; /* at: the index of the next key of the model to compare */
};
static bool prefix_visit(void *context, size_t len, void *value) {
    struct visited *v = context;
    while (v->at < v->m->count && (v->m->keys[v->at].len > v->text.len ||
                                   memcmp(v->m->keys[v->at].bytes, v->text.data, v->m->keys[v->at].len) != 0))
        v->at++;
    assert_true(v->at < v->m->count);
    assert_int_equal(len, v->m->keys[v->at].len);
    assert_true((uintptr_t)value == v->m->keys[v->at].value);
    v->at++;
    return ++v->count < v->most;
}
static void assert_prefixes(const struct radix_tree *tree, const struct model *m, struct slice text) {
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++)
        count += m->keys[i].len <= text.len && memcmp(m->keys[i].bytes, text.data, m->keys[i].len) == 0;
    for (size_t most = 1; most <= MOST; most *= MOST) {
        struct visited visited = {.m = m, .text = text, .most = most};
        radix_tree_prefixes(tree, text, prefix_visit, &visited);
        assert_int_equal(visited.count, count < most ? count : most);
    }
}
static void assert_same(const struct radix_tree *tree, const struct model *m) {
    struct radix_iterator it;
    radix_iterator_init(&it, tree);
    bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE(""));
    for (size_t i = 0; i < m->count; i++, more = radix_iterator_next(&it)) {
        assert_at(&it, m, i, more);
        void *value;
        assert_true(radix_tree_find(tree, key_at(m, i), &value));
        assert_true((uintptr_t)value == m->keys[i].value);
    }
    assert_false(more);
    more = radix_iterator_seek(&it, RADIX_LAST, SLICE(""));
    for (size_t i = m->count; i-- > 0; more = radix_iterator_prev(&it)) assert_at(&it, m, i, more);
    assert_false(more);
    radix_iterator_free(&it);
    assert_int_equal(radix_tree_len(tree), m->count);
    assert_true(radix_tree_nodes(tree) <= 2 * m->count);
}
static size_t freed;
static void count_free(void *value) {
    freed++;
}
TEST(random_changes_do_what_a_sorted_array_does) {
    static struct model m;
    random_seed(21);
    for (int round = 0; round < 12; round++) {
        struct radix_tree *tree = radix_tree_new();
        m.count = 0;
        for (uintptr_t i = 1; i < 1200; i++) {
            char bytes[KEY_MAX];
            bool there;
            struct slice key = random_key(bytes, round % 3);
            if (m.count && random_below(3) == 0) key = key_at(&m, random_below(m.count));
            char copy[KEY_MAX];
            memcpy(copy, key.data, key.len);
            key.data = copy;
            size_t at = place_of(&m, key, &there);
            void *old = NULL;
            assert_int_equal(radix_tree_find(tree, key, NULL), there);
            if (random_below(5) < 3 && m.count < MOST) {
                assert_int_equal(radix_tree_set(tree, key, (void *)i, &old), !there);
                if (there) {
                    assert_true((uintptr_t)old == m.keys[at].value);
                } else {
                    memmove(m.keys + at + 1, m.keys + at, (m.count - at) * sizeof *m.keys);
                    memcpy(m.keys[at].bytes, key.data, key.len);
                    m.keys[at].len = key.len;
                    m.count++;
                }
                m.keys[at].value = i;
            } else {
                assert_int_equal(radix_tree_remove(tree, key, &old), there);
                if (there) {
                    assert_true((uintptr_t)old == m.keys[at].value);
                    memmove(m.keys + at, m.keys + at + 1, (m.count - at - 1) * sizeof *m.keys);
                    m.count--;
                }
            }
            assert_seeks(tree, &m, random_key(bytes, round % 3));
            assert_prefixes(tree, &m, random_key(bytes, round % 3));
            if (m.count) assert_prefixes(tree, &m, key_at(&m, random_below(m.count)));
            if (i % 40 == 0) assert_same(tree, &m);
        }
        assert_same(tree, &m);
        struct radix_tree *copy = radix_tree_copy(tree, NULL);
        assert_same(copy, &m);
        radix_tree_free(copy, NULL);
        freed = 0;
        radix_tree_free(tree, count_free);
        assert_int_equal(freed, m.count);
    }
}
TEST(a_walk_over_all_paths_moves_each_node_once) {
    struct radix_tree *tree = radix_tree_new();
    struct relocation r = {0};
    char bytes[KEY_MAX], before[16] = {0};
    for (uintptr_t i = 1; i <= MOST; i++) radix_tree_set(tree, random_key(bytes, 1), (void *)i, NULL);
    size_t nodes = radix_tree_nodes(tree), keys = radix_tree_len(tree), memory = radix_tree_memory(tree), known = 0;
    struct radix_tree *copy = radix_tree_copy(tree, NULL);
    struct radix_iterator it, of_copy;
    relocate_set_all(true);
    radix_iterator_init(&of_copy, copy);
    for (bool more = radix_iterator_seek(&of_copy, RADIX_FIRST, SLICE("")); more;
         more = radix_iterator_next(&of_copy)) {
        for (known = 0; r.moved && known < 16 && of_copy.key.data[known] == before[known]; known++) continue;
        radix_tree_relocate_path(tree, of_copy.key, known, &r);
        memcpy(before, of_copy.key.data, sizeof before);
    }
    relocate_set_all(false);
    assert_int_equal(r.moved, nodes);
    assert_int_equal(radix_tree_nodes(tree), nodes);
    assert_int_equal(radix_tree_memory(tree), memory);
    radix_iterator_init(&it, tree);
    bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE(""));
    for (radix_iterator_seek(&of_copy, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it), keys--) {
        assert_true(slice_equal(it.key, of_copy.key) && it.value == of_copy.value);
        radix_iterator_next(&of_copy);
    }
    assert_int_equal(keys, 0);
    radix_iterator_free(&it);
    radix_iterator_free(&of_copy);
    radix_tree_free(copy, NULL);
    radix_tree_free(tree, NULL);
}

TEST(an_iterator_goes_on_from_its_key_after_a_change) {
    struct radix_tree *tree = radix_tree_new();
    char key[2];
    for (int i = 0; i < 200; i++) {
        key[0] = (char)(i / 16), key[1] = (char)(i % 16);
        radix_tree_set(tree, (struct slice){key, 2}, NULL, NULL);
    }
    struct radix_iterator it;
    radix_iterator_init(&it, tree);
    size_t removed = 0;
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more;
         more = radix_iterator_seek(&it, RADIX_ABOVE, it.key))
        removed += radix_tree_remove(tree, it.key, NULL);
    assert_int_equal(removed, 200);
    assert_int_equal(radix_tree_len(tree), 0);
    assert_int_equal(radix_tree_nodes(tree), 0);
    radix_iterator_free(&it);
    radix_tree_free(tree, NULL);
}
