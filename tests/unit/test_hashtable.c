/* The hash table against a simple model, and the guarantees of scan, iterators and resizing. */
#include "unit.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include <stdio.h>

/* The model is an array indexed by number; the key of a number is its text, or its bytes. */
enum { NUMBERS = 20000 };
struct item {
    uint32_t number;
    uint32_t version;
    char key[24];
    size_t len;
};
static size_t freed;
static struct slice item_key(const void *entry) {
    const struct item *item = entry;
    return (struct slice){item->key, item->len};
}
static void item_free(void *entry) {
    freed++;
    mem_free(entry);
}
static const struct hashtable_type items = {.key = item_key, .free_entry = item_free};
static const struct hashtable_type borrowed = {.key = item_key};
static const struct hashtable_type names = {.key = item_key, .free_entry = item_free, .ignore_case = true};

static struct item *item_new(uint32_t number) {
    struct item *item = mem_calloc(1, sizeof(*item));
    item->number = number;
    item->len = (size_t)snprintf(item->key, sizeof(item->key), "key:%u", number);
    return item;
}
static struct slice key_of(uint32_t number) {
    static char text[24];
    return (struct slice){text, (size_t)snprintf(text, sizeof(text), "key:%u", number)};
}

static uint8_t seen[NUMBERS];
static void mark(void *context, void *entry) {
    struct item *item = entry;
    assert_true(item->number < NUMBERS);
    if (seen[item->number] < 255) seen[item->number]++;
    if (context) ++*(size_t *)context;
}

/* Up to 7 entries are listed in the order of their insertion, and a new entry takes the first free slot. */
TEST(small_tables_keep_the_order_of_insertion) {
    struct hashtable *t = hashtable_new(&items);
    static const struct {
        const char *deleted, *added, *listed;
    } steps[] = {{"", "1234567", "1234567"}, {"3", "", "124567"}, {"", "8", "1284567"}, {"158", "", "2467"},
                 {"", "90", "920467"},       {"92", "", "0467"},  {"4", "", "067"},     {"067", "12", "12"}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        char listed[16] = "";
        for (const char *c = steps[i].deleted; *c; c++) assert_true(hashtable_delete(t, key_of((uint32_t)(*c - '0'))));
        for (const char *c = steps[i].added; *c; c++) assert_true(hashtable_add(t, item_new((uint32_t)(*c - '0'))));
        struct hashtable_iterator it;
        hashtable_iterator_open(&it, t);
        for (struct item *item; (item = hashtable_iterator_next(&it));)
            listed[strlen(listed)] = (char)('0' + item->number);
        hashtable_iterator_close(&it);
        assert_string_equal(listed, steps[i].listed);
    }
    hashtable_free(t);
}

TEST(empty_table_has_nothing) {
    struct hashtable *t = hashtable_new(&items);
    size_t calls = 0;
    assert_null(hashtable_find(t, SLICE("x")));
    assert_null(hashtable_find_slot(t, SLICE("x")));
    assert_null(hashtable_pop(t, SLICE("x")));
    assert_false(hashtable_delete(t, SLICE("x")));
    assert_null(hashtable_random(t));
    assert_int_equal(hashtable_sample(t, NULL, 0), 0);
    assert_int_equal(hashtable_scan(t, 0, mark, &calls), 0);
    assert_int_equal(hashtable_scan(t, 12345, mark, &calls), 0);
    assert_int_equal(calls, 0);
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, t);
    assert_null(hashtable_iterator_next(&it));
    hashtable_iterator_close(&it);
    hashtable_clear(t);
    hashtable_free(t);
    hashtable_free(NULL);
}

static struct item *model[NUMBERS];

static void change_add(struct hashtable *t, uint32_t n) {
    struct item *item = item_new(n);
    assert_int_equal(hashtable_add(t, item), !model[n]);
    if (model[n])
        mem_free(item);
    else
        model[n] = item;
}
static void change_put(struct hashtable *t, uint32_t n, uint32_t version) {
    struct hashtable_position position;
    void **slot = hashtable_find_or_prepare(t, key_of(n), &position);
    assert_ptr_equal(slot ? *slot : NULL, model[n]);
    struct item *item = item_new(n);
    item->version = version;
    if (slot) {
        mem_free(*slot);
        *slot = item;
    } else {
        hashtable_add_at(t, &position, item);
    }
    model[n] = item;
}
static void change_pop(struct hashtable *t, uint32_t n) {
    assert_ptr_equal(hashtable_pop(t, key_of(n)), model[n]);
    mem_free(model[n]);
    model[n] = NULL;
}
static void change_delete(struct hashtable *t, uint32_t n) {
    size_t before = freed;
    assert_int_equal(hashtable_delete(t, key_of(n)), model[n] != NULL);
    assert_int_equal(freed - before, model[n] != NULL);
    model[n] = NULL;
}
static size_t holds_the_model(struct hashtable *t) {
    size_t size = 0;
    memset(seen, 0, sizeof(seen));
    uint64_t cursor = 0;
    do cursor = hashtable_scan(t, cursor, mark, NULL);
    while (cursor);
    for (uint32_t n = 0; n < NUMBERS; n++) {
        assert_ptr_equal(hashtable_find(t, key_of(n)), model[n]);
        void **slot = hashtable_find_slot(t, key_of(n));
        assert_ptr_equal(slot ? *slot : NULL, model[n]);
        assert_int_equal(seen[n] > 0, model[n] != NULL);
        size += model[n] != NULL;
    }
    assert_int_equal(hashtable_size(t), size);
    return size;
}

TEST(behaves_like_a_map) {
    struct hashtable *t = hashtable_new(&items);
    memset(model, 0, sizeof(model));
    freed = 0;
    random_seed(1);
    for (uint32_t i = 0; i < 400000; i++) {
        /* The range of numbers grows and shrinks, and with it the table. */
        uint32_t range = i / 50000 % 2 ? 300 : NUMBERS, n = (uint32_t)random_below(range);
        bool present = model[n];
        size_t size = hashtable_size(t);
        switch (random_below(i / 25000 % 2 ? 7 : 5)) {
        case 0:
        case 1: change_add(t, n); break;
        case 2: change_put(t, n, i); break;
        case 3: assert_ptr_equal(hashtable_find(t, key_of(n)), model[n]); break;
        case 4: change_pop(t, n); break;
        default: change_delete(t, n);
        }
        assert_int_equal(hashtable_size(t), size + (model[n] != NULL) - present);
        if (i % 25000 == 0) holds_the_model(t);
    }
    size_t size = holds_the_model(t);
    freed = 0;
    hashtable_free(t);
    assert_int_equal(freed, size);
}

TEST(all_memory_comes_back) {
    struct hashtable *warm = hashtable_new(&items); /* creates the per-thread counters */
    hashtable_free(warm);
    size_t before = mem_used();
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < NUMBERS; i++) assert_true(hashtable_add(t, item_new(i)));
    size_t table = mem_used() - before - NUMBERS * mem_size(hashtable_random(t));
    assert_true(hashtable_memory(t) <= table && table < hashtable_memory(t) * 11 / 10);
    for (uint32_t i = 0; i < NUMBERS; i += 2) assert_true(hashtable_delete(t, key_of(i)));
    hashtable_free(t);
    assert_int_equal(mem_used(), before);
}

TEST(shrinks_when_nearly_empty) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < NUMBERS; i++) hashtable_add(t, item_new(i));
    size_t full = hashtable_memory(t);
    for (uint32_t i = 10; i < NUMBERS; i++) assert_true(hashtable_delete(t, key_of(i)));
    while (hashtable_rehash_for(t, 1000))
        ;
    assert_true(hashtable_memory(t) < full / 100);
    for (uint32_t i = 0; i < 10; i++) assert_non_null(hashtable_find(t, key_of(i)));
    hashtable_free(t);
}

TEST(table_takes_at_most_19_bytes_an_entry_and_17_on_average) {
    struct hashtable *t = hashtable_new(&items);
    size_t samples = 0;
    double sum = 0;
    uint32_t next = 0;
    for (double size = 2000; size < 300000; size *= 1.1) {
        while (next < (uint32_t)size) hashtable_add(t, item_new(next++));
        while (hashtable_rehash_for(t, 1000))
            ;
        double each = (double)hashtable_memory(t) / next;
        assert_true(each < 19.5);
        sum += each, samples++;
    }
    assert_true(sum / (double)samples < 17);
    hashtable_free(t);
}

TEST(grows_a_few_buckets_at_a_time) {
    struct hashtable *t = hashtable_new(&items);
    uint32_t n = 0;
    while (n < 10000) hashtable_add(t, item_new(n++));
    while (!hashtable_is_rehashing(t)) hashtable_add(t, item_new(n++));
    uint32_t steps = 0;
    while (hashtable_is_rehashing(t)) {
        hashtable_add(t, item_new(n++)), steps++;
        assert_non_null(hashtable_find(t, key_of((uint32_t)random_below(n))));
    }
    assert_in_range(steps, 500, 5000);
    assert_int_equal(hashtable_size(t), n);
    hashtable_free(t);
}

TEST(expand_makes_space_at_once) {
    struct hashtable *t = hashtable_new(&items);
    hashtable_expand(t, NUMBERS);
    size_t memory = hashtable_memory(t);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        hashtable_add(t, item_new(i));
        assert_false(hashtable_is_rehashing(t));
    }
    assert_true(hashtable_memory(t) - memory < memory / 2); /* child buckets only */
    hashtable_expand(t, SIZE_MAX);                          /* absurd sizes change nothing */
    hashtable_expand(t, SIZE_MAX / 200);
    assert_int_equal(hashtable_size(t), NUMBERS);
    hashtable_free(t);
}

TEST(resizing_is_avoided_until_five_times_full) {
    struct hashtable *t = hashtable_new(&items);
    uint32_t n = 0;
    while (n < 7) hashtable_add(t, item_new(n++));
    hashtable_set_resizing(HASHTABLE_RESIZE_AVOID);
    while (n < 35) {
        hashtable_add(t, item_new(n++));
        assert_false(hashtable_is_rehashing(t));
    }
    while (n < 300) hashtable_add(t, item_new(n++));
    assert_true(hashtable_memory(t) > 8 * 64);
    for (uint32_t i = 0; i < n; i++) assert_non_null(hashtable_find(t, key_of(i)));
    hashtable_set_resizing(HASHTABLE_RESIZE);
    hashtable_free(t);
}

TEST(resizing_can_be_forbidden) {
    struct hashtable *t = hashtable_new(&items);
    hashtable_set_resizing(HASHTABLE_RESIZE_FORBID);
    for (uint32_t i = 0; i < 500; i++) {
        hashtable_add(t, item_new(i));
        assert_false(hashtable_is_rehashing(t));
    }
    for (uint32_t i = 0; i < 500; i++) assert_non_null(hashtable_find(t, key_of(i)));
    for (uint32_t i = 0; i < 500; i += 3) assert_true(hashtable_delete(t, key_of(i)));
    for (uint32_t i = 0; i < 500; i++) assert_int_equal(hashtable_find(t, key_of(i)) != NULL, i % 3 != 0);
    hashtable_set_resizing(HASHTABLE_RESIZE);
    hashtable_free(t);
}

TEST(shrinking_does_not_trap_additions_while_resizing_is_avoided) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < NUMBERS; i++) hashtable_add(t, item_new(i));
    for (uint32_t i = 0; i < NUMBERS && !(hashtable_size(t) < NUMBERS / 10 && hashtable_is_rehashing(t)); i++)
        hashtable_delete(t, key_of(i));
    assert_true(hashtable_is_rehashing(t));
    hashtable_set_resizing(HASHTABLE_RESIZE_AVOID);
    for (uint32_t i = 0; i < NUMBERS * 10; i++) {
        struct item *item = item_new(i);
        if (!hashtable_add(t, item)) mem_free(item);
    }
    struct hashtable_stats stats[2] = {{0}};
    hashtable_stats_add(t, stats);
    assert_in_range(stats[hashtable_is_rehashing(t)].longest, 1, 100);
    hashtable_set_resizing(HASHTABLE_RESIZE);
    hashtable_free(t);
}

/* Entries below `stay` exist all the time; others are added and removed so that the table resizes during scans. */
TEST(scan_sees_all_that_stays) {
    enum { STAY = 500 };
    random_seed(2);
    for (int round = 0; round < 60; round++) {
        struct hashtable *t = hashtable_new(&items);
        for (uint32_t i = 0; i < STAY; i++) hashtable_add(t, item_new(i));
        uint32_t high = STAY;
        uint32_t most = STAY + (uint32_t)random_below(NUMBERS - STAY);
        if (round % 2)
            while (high < most) hashtable_add(t, item_new(high++));
        bool growing = round % 2 == 0;
        memset(seen, 0, sizeof(seen));
        uint64_t cursor = 0;
        size_t calls = 0;
        do {
            cursor = hashtable_scan(t, cursor, mark, NULL);
            calls++;
            for (uint64_t steps = random_below(1 + (uint64_t)round * 4); steps; steps--) {
                if (growing && high == most) growing = false;
                if (!growing && high == STAY && round % 3 == 0) growing = true;
                if (growing)
                    hashtable_add(t, item_new(high++));
                else if (high > STAY)
                    assert_true(hashtable_delete(t, key_of(--high)));
            }
            assert_true(calls < 1000000);
        } while (cursor);
        for (uint32_t i = 0; i < STAY; i++) assert_true(seen[i] > 0);
        hashtable_free(t);
    }
}

TEST(scan_of_a_still_table_sees_each_once) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < 5000; i++) hashtable_add(t, item_new(i));
    while (hashtable_rehash_for(t, 1000))
        ;
    memset(seen, 0, sizeof(seen));
    uint64_t cursor = 0;
    do cursor = hashtable_scan(t, cursor, mark, NULL);
    while (cursor);
    for (uint32_t i = 0; i < 5000; i++) assert_int_equal(seen[i], 1);
    /* An arbitrary cursor does no harm. */
    for (int i = 0; i < 1000; i++) hashtable_scan(t, random_u64(), mark, NULL);
    hashtable_free(t);
}

TEST(iterator_sees_each_once) {
    random_seed(3);
    for (int round = 0; round < 200; round++) {
        struct hashtable *t = hashtable_new(&items);
        uint32_t n = 1 + (uint32_t)random_below(round < 100 ? 60 : 3000);
        if (round % 4 == 1) hashtable_set_resizing(HASHTABLE_RESIZE_FORBID); /* long chains */
        for (uint32_t i = 0; i < n; i++) hashtable_add(t, item_new(i));
        memset(seen, 0, sizeof(seen));
        struct hashtable_iterator it;
        hashtable_iterator_open(&it, t);
        for (struct item *item; (item = hashtable_iterator_next(&it));) seen[item->number]++;
        assert_null(hashtable_iterator_next(&it));
        hashtable_iterator_close(&it);
        for (uint32_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
        hashtable_set_resizing(HASHTABLE_RESIZE);
        hashtable_free(t);
    }
}

TEST(iterator_holds_off_resizing) {
    struct hashtable *t = hashtable_new(&items);
    uint32_t n = 0;
    while (!hashtable_is_rehashing(t) || n < 3000) hashtable_add(t, item_new(n++));
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, t);
    assert_false(hashtable_rehash_for(t, 1000));
    assert_true(hashtable_is_rehashing(t));
    memset(seen, 0, sizeof(seen));
    for (struct item *item; (item = hashtable_iterator_next(&it));) seen[item->number]++;
    for (uint32_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
    hashtable_iterator_close(&it);
    while (hashtable_rehash_for(t, 1000))
        ;
    assert_false(hashtable_is_rehashing(t));
    hashtable_free(t);
}

TEST(random_is_uniform) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < 100; i++) hashtable_add(t, item_new(i));
    static uint32_t hits[100];
    memset(hits, 0, sizeof(hits));
    random_seed(4);
    for (int i = 0; i < 100000; i++) hits[((struct item *)hashtable_random(t))->number]++;
    for (uint32_t i = 0; i < 100; i++) assert_in_range(hits[i], 850, 1150);
    for (uint32_t i = 1; i < 100; i++) hashtable_delete(t, key_of(i));
    assert_int_equal(((struct item *)hashtable_random(t))->number, 0);
    hashtable_free(t);
}

TEST(random_finds_the_last_one_of_a_large_table) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < NUMBERS; i++) hashtable_add(t, item_new(i));
    hashtable_set_resizing(HASHTABLE_RESIZE_FORBID);
    for (uint32_t i = 1; i < NUMBERS; i++) hashtable_delete(t, key_of(i));
    void *sample[5];
    for (int i = 0; i < 20; i++) {
        assert_int_equal(((struct item *)hashtable_random(t))->number, 0);
        assert_int_equal(hashtable_sample(t, sample, 5), 1);
        assert_int_equal(((struct item *)sample[0])->number, 0);
    }
    hashtable_set_resizing(HASHTABLE_RESIZE);
    hashtable_free(t);
}

TEST(sample_returns_different_entries) {
    struct hashtable *t = hashtable_new(&items);
    void *sample[16];
    for (uint32_t i = 0; i < 10; i++) hashtable_add(t, item_new(i));
    assert_int_equal(hashtable_sample(t, sample, 16), 10);
    for (uint32_t i = 10; i < 5000; i++) hashtable_add(t, item_new(i));
    for (int round = 0; round < 100; round++) {
        assert_int_equal(hashtable_sample(t, sample, 16), 16);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < i; j++) assert_ptr_not_equal(sample[i], sample[j]);
    }
    hashtable_free(t);
}

TEST(case_of_names_does_not_matter_where_the_type_says_so) {
    struct hashtable *t = hashtable_new(&names);
    struct item *item = mem_calloc(1, sizeof(*item));
    memcpy(item->key, "Get\0[Z", 6), item->len = 6;
    assert_true(hashtable_add(t, item));
    assert_ptr_equal(hashtable_find(t, (struct slice){"gET\0[z", 6}), item);
    assert_null(hashtable_find(t, (struct slice){"get\0{z", 6}));
    assert_null(hashtable_find(t, (struct slice){"get\1[z", 6}));
    hashtable_free(t);
}

TEST(entries_without_free_function_are_left_alone) {
    struct hashtable *t = hashtable_new(&borrowed);
    struct item *item = item_new(1);
    hashtable_add(t, item);
    hashtable_clear(t);
    assert_int_equal(hashtable_size(t), 0);
    assert_true(hashtable_add(t, item));
    assert_true(hashtable_delete(t, key_of(1)));
    hashtable_free(t);
    assert_int_equal(item->number, 1);
    mem_free(item);
}

TEST(any_bytes_are_a_key) {
    struct hashtable *t = hashtable_new(&items);
    for (int len = 0; len < 20; len++) {
        struct item *item = mem_calloc(1, sizeof(*item)); /* zero bytes of every length, including the empty key */
        item->len = (size_t)len;
        assert_true(hashtable_add(t, item));
    }
    static const char zeros[20];
    for (size_t len = 0; len < 20; len++) {
        struct item *item = hashtable_find(t, (struct slice){zeros, len});
        assert_non_null(item);
        assert_int_equal(item->len, len);
    }
    hashtable_free(t);
}

TEST(description_fits_its_buffer) {
    struct hashtable *t = hashtable_new(&items);
    for (uint32_t i = 0; i < 3000; i++) hashtable_add(t, item_new(i));
    char text[4096];
    struct hashtable_stats stats[2] = {{0}};
    hashtable_stats_add(t, stats);
    assert_int_equal(stats[0].entries + stats[1].entries, 3000);
    size_t len = hashtable_describe(stats, text, sizeof(text), true);
    assert_int_equal(len, strlen(text));
    assert_non_null(strstr(text, "number of entries: "));
    for (size_t size = 1; size < 400; size += 7) {
        memset(text, 'x', sizeof(text));
        len = hashtable_describe(stats, text, size, true);
        assert_true(len < size);
        assert_true(text[size] == 'x');
    }
    hashtable_free(t);
}

static bool growth_allowed;
static size_t asked_for;
static bool may_grow(size_t bytes) {
    asked_for = bytes;
    return growth_allowed;
}
static const struct hashtable_type limited = {.key = item_key, .free_entry = item_free, .may_grow = may_grow};

static size_t memory_with(struct hashtable *table, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) hashtable_add(table, item_new(i));
    while (hashtable_rehash_for(table, 1000)) {
    }
    return hashtable_memory(table);
}

TEST(a_table_that_may_not_grow_gets_longer_chains) {
    struct hashtable *table = hashtable_new(&limited);
    growth_allowed = true;
    memory_with(table, 0, 1000);
    growth_allowed = false;
    asked_for = 0;
    for (uint32_t i = 1000; i < 3000; i++) {
        hashtable_add(table, item_new(i));
        assert_false(hashtable_is_rehashing(table));
    }
    assert_true(asked_for > 0);
    /* Allowed again, it grows without an insertion. */
    growth_allowed = true;
    hashtable_resize_where_needed(table);
    assert_true(hashtable_is_rehashing(table));
    hashtable_free(table);
}

TEST(a_resize_that_was_forbidden_begins_later) {
    struct hashtable *table = hashtable_new(&items);
    hashtable_set_resizing(HASHTABLE_RESIZE_FORBID);
    memory_with(table, 0, 100);
    hashtable_resize_where_needed(table);
    assert_false(hashtable_is_rehashing(table));
    hashtable_set_resizing(HASHTABLE_RESIZE);
    hashtable_resize_where_needed(table);
    assert_true(hashtable_is_rehashing(table));
    hashtable_free(table);
}

/* Each entry is in one part, and the parts are the same in a table of any size. */
TEST(parts_do_not_depend_on_the_size) {
    enum { ENTRIES = 3000 };
    static size_t parts_of[NUMBERS];
    static const size_t counts[] = {1, 2, 64, 512, 4096};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct hashtable *t = hashtable_new(&items);
        assert_int_equal(hashtable_parts(t), 0);
        hashtable_visit_part(t, counts[c], 0, mark, NULL);
        bool resized = false;
        for (uint32_t n = 0; n < NUMBERS; n++) {
            struct hashtable_position position;
            hashtable_locate(&items, key_of(n), &position);
            parts_of[n] = hashtable_part(&position, counts[c]);
        }
        for (uint32_t n = 0; n < 2 * ENTRIES; n++) {
            if (n < ENTRIES)
                assert_true(hashtable_add(t, item_new(n)));
            else
                assert_true(hashtable_delete(t, key_of(n - ENTRIES)));
            uint32_t first = n < ENTRIES ? 0 : n - ENTRIES + 1, last = n < ENTRIES ? n : ENTRIES - 1;
            if (n % 97 && !(hashtable_is_rehashing(t) && n % 7 == 0)) continue;
            resized |= hashtable_is_rehashing(t);
            memset(seen, 0, sizeof seen);
            size_t part = (n * 31) % counts[c], visited = 0, expected = 0;
            hashtable_visit_part(t, counts[c], part, mark, &visited);
            for (uint32_t i = first; i <= last && i < ENTRIES; i++) {
                assert_int_equal(seen[i], parts_of[i] == part);
                expected += seen[i];
            }
            assert_int_equal(visited, expected);
        }
        assert_true(resized);
        hashtable_free(t);
    }
}
