/* keyspace_fixture.h: a keyspace of four databases for each test, with a frozen clock and hooks that count. Each test
 * runs with one table for a database, and with a table for each hash slot. */
#pragma once
#include "unit.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "store/entry_layout.h"
#include "store/keyspace.h"
#include <stdio.h>

#include <stdlib.h>
#include <cmocka.h>

static struct {
    size_t changed, expired, evicted, flushed, swapped, flushed_keys, slots_left;
    char last_changed[300], last_expired[300];
} told;
static inline void note(char *to, struct slice key) {
    size_t len = key.len < 299 ? key.len : 299;
    memcpy(to, key.data, len);
    to[len] = '\0';
}
static inline void on_changed(struct db *db, struct slice key) {
    told.changed++, note(told.last_changed, key);
}
static inline void on_expired(struct db *db, struct slice key) {
    told.expired++, note(told.last_expired, key);
}
static inline void on_evicted(struct db *db, struct slice key) {
    told.evicted++;
}
static inline void on_flushed(struct db *db, size_t keys) {
    told.flushed++, told.flushed_keys += keys;
}
static inline void on_swapped(struct db *a, struct db *b) {
    told.swapped++;
}
static inline void on_slot_left(struct db *db, unsigned slot) {
    told.slots_left++;
}
static const struct store_hooks hooks = {.changed = on_changed,
                                         .expired = on_expired,
                                         .evicted = on_evicted,
                                         .flushed = on_flushed,
                                         .slot_left = on_slot_left,
                                         .swapped = on_swapped};

static struct store_settings defaults;
static inline void set_ms(int64_t ms) {
    clock_cache.data_ms = clock_cache.wall_ms = ms, clock_cache.wall_us = ms * 1000;
}
static struct keyspace *(*make)(int databases, const struct store_hooks *hooks) = keyspace_new;
static inline int setup(void **state) {
    static bool saved;
    if (!saved) defaults = store_settings, saved = true;
    store_settings = defaults;
    memset(&told, 0, sizeof(told));
    memset(&store_stats, 0, sizeof(store_stats));
    store_lazyfree.freed = store_lazyfree.pending = 0;
    set_ms(1000000000);
    random_seed(7);
    *state = make(4, &hooks);
    return 0;
}
static inline int teardown(void **state) {
    keyspace_free(*state);
    return 0;
}

static inline struct slice text(const char *t) {
    return slice_of(t);
}
static inline struct entry *set(struct db *db, const char *key, const char *value) {
    return db_set_string(db, text(key), text(value), NULL, false);
}
static inline void check(struct db *db, const char *key, const char *value) {
    struct entry *e = db_find(db, text(key), 0);
    if (!value) {
        assert_null(e);
        return;
    }
    assert_non_null(e);
    char number[STRING_NUMBER_TEXT];
    struct slice got = entry_string(e, number);
    assert_int_equal(got.len, strlen(value));
    assert_memory_equal(got.data, value, got.len);
}

/* A visitor that counts in a size_t. */
static inline void count_entry(void *context, struct entry *entry) {
    ++*(size_t *)context;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown)
/* Runs the tests twice; the result of main(). */
#define RUN_WITH_BOTH_TABLES()                                                                                         \
    ({                                                                                                                 \
        make = keyspace_new;                                                                                           \
        int failures = cmocka_run_group_tests_name("one table", unit_tests, NULL, NULL);                               \
        make = keyspace_new_per_slot;                                                                                  \
        failures + cmocka_run_group_tests_name("a table for each slot", unit_tests, NULL, NULL);                       \
    })
