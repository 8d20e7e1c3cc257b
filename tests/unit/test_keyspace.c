/* Databases: strings, expiry with a frozen clock, hooks, iteration, eviction. test_keyspace_model.c compares them with
 * a model, test_keyspace_slots.c has the hash slots. */
#include "keyspace_fixture.h"
#include "lib/system/background.h"
#include "store/evict.h"

/* --- Strings --- */

FIXTURE_TEST(a_string_reads_as_it_was_set) {
    struct db *db = keyspace_db(*state, 0);
    char big[5000];
    memset(big, 'b', sizeof(big) - 1), big[sizeof(big) - 1] = 0;
    const char *values[] = {"",   "a",  "0",     "-0", "12", "-9223372036854775808", "9223372036854775808",
                            "01", " 1", "hello", big};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++) { /* every value replaces every other value */
            set(db, "k", values[i]);
            check(db, "k", values[i]);
            set(db, "k", values[j]);
            check(db, "k", values[j]);
            db_set_expire(db, db_find(db, text("k"), 0), 2000000000);
            db_set_string(db, text("k"), text(values[i]), NULL, true);
            check(db, "k", values[i]);
            assert_int_equal(entry_expire_at(db_find(db, text("k"), 0)), 2000000000);
        }
    assert_int_equal(db_size(db), 1);
}

FIXTURE_TEST(encoding_is_named_as_valkey_names_it) {
    struct db *db = keyspace_db(*state, 0);
    static const struct {
        size_t key, plain, expiring; /* the longest text that is embstr */
    } limits[] = {{0, 113, 105}, {1, 112, 104}, {10, 103, 95}, {31, 82, 74}, {32, 79, 71}, {50, 61, 53}, {100, 11, 3}};
    char key[128], value[128];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (size_t more = 0; more < 2; more++) {
            memset(key, 'k', limits[i].key), key[limits[i].key] = 0;
            memset(value, 'x', sizeof value), value[limits[i].plain + more] = 0;
            assert_int_equal(entry_encoding(set(db, key, value)), more ? ENCODING_RAW : ENCODING_EMBSTR);
            value[limits[i].expiring + more] = 0;
            struct entry *e = db_set_expire(db, set(db, key, value), clock_ms() + 1000);
            assert_int_equal(entry_encoding(e), more ? ENCODING_RAW : ENCODING_EMBSTR);
        }
    assert_int_equal(entry_encoding(set(db, "k", "123")), ENCODING_INT);
    assert_int_equal(entry_encoding(set(db, "k", "0123")), ENCODING_EMBSTR);
    char *bytes;
    assert_int_equal(entry_encoding(db_edit_string(db, set(db, "k", "12"), 3, &bytes)), ENCODING_RAW);
    bytes[2] = '3';
    check(db, "k", "123");
}

FIXTURE_TEST(overwriting_with_the_same_size_allocates_nothing) {
    struct db *db = keyspace_db(*state, 0);
    struct entry *e = set(db, "key:000000000001", "0123456789abcdef");
    size_t used = mem_used();
    assert_ptr_equal(set(db, "key:000000000001", "fedcba9876543210"), e);
    assert_ptr_equal(set(db, "key:000000000001", "short"), e);
    assert_ptr_equal(set(db, "key:000000000001", "777"), e);
    assert_ptr_equal(db_replace_int64(db, e, 778), e);
    assert_ptr_equal(set(db, "key:000000000001", "0123456789abcdef"), e);
    assert_int_equal(mem_used(), used);
    check(db, "key:000000000001", "0123456789abcdef");
}

FIXTURE_TEST(a_small_key_takes_at_most_80_bytes) {
    struct db *db = keyspace_db(*state, 0);
    size_t before = mem_used();
    char key[32];
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof(key), "key:%012d", i);
        set(db, key, "xxxxxxxxxxxxxxxx");
    }
    assert_true(mem_used() - before <= 100000 * 80);
}

FIXTURE_TEST(a_blob_is_taken_over_and_not_copied) {
    struct db *db = keyspace_db(*state, 0);
    struct blob *blob = blob_new(100000, 100000);
    memset(blob->data, 'q', 100000);
    struct entry *e = db_set_string(db, text("k"), blob_slice(blob), blob, false);
    assert_ptr_equal(entry_blob(e), blob);
    struct blob *reply = blob_hold(entry_blob(e)); /* a reply that is being sent */
    set(db, "k", "other");
    assert_int_equal(reply->data[99999], 'q');
    blob_release(reply);
    size_t used = mem_used();
    blob = blob_copy(text("small")); /* too small to keep: released */
    db_set_string(db, text("k"), blob_slice(blob), blob, false);
    assert_int_equal(mem_used(), used);
    check(db, "k", "small");
}

FIXTURE_TEST(editing_does_not_reach_a_reply_or_a_copy) {
    struct db *db = keyspace_db(*state, 0);
    char value[3001];
    memset(value, 'v', 3000), value[3000] = 0;
    struct entry *e = set(db, "k", value);
    struct blob *reply = blob_hold(entry_blob(e));
    db_copy(db, e, keyspace_db(*state, 1), text("copy"));
    char *bytes;
    db_edit_string(db, db_find(db, text("k"), 0), 3000, &bytes);
    memset(bytes, 'w', 3000);
    assert_int_equal(reply->data[0], 'v');
    blob_release(reply);
    check(keyspace_db(*state, 1), "copy", value);
    memset(value, 'w', 3000);
    check(db, "k", value);
}

FIXTURE_TEST(growth_is_filled_with_zeros) {
    struct db *db = keyspace_db(*state, 0);
    char *bytes;
    const char *starts[] = {"", "abc", "42"};
    size_t lengths[] = {5, 100, 1024, 1025, 50000};
    for (size_t s = 0; s < 3; s++)
        for (size_t l = 0; l < 5; l++) {
            struct entry *e = set(db, "k", starts[s]);
            e = db_edit_string(db, e, lengths[l], &bytes);
            assert_int_equal(entry_string_len(e), lengths[l]);
            assert_memory_equal(bytes, starts[s], strlen(starts[s]));
            for (size_t i = strlen(starts[s]); i < lengths[l]; i++) assert_int_equal(bytes[i], 0);
            db_delete(db, text("k"), false);
        }
}

FIXTURE_TEST(a_value_may_point_into_the_entry_it_replaces) {
    struct db *db = keyspace_db(*state, 0);
    char value[3001], number[STRING_NUMBER_TEXT];
    for (size_t len = 1; len <= 3000; len = len * 3 + 1) {
        memset(value, 'v', len), value[len] = 0;
        for (int keep = 0; keep < 2; keep++) {
            struct entry *e = db_set_expire(db, set(db, "k", value), 2000000000);
            struct slice bytes = entry_string(e, number);
            db_set_string(db, text("k"), bytes, NULL, keep);
            check(db, "k", value);
            e = db_find(db, text("k"), 0);
            bytes = entry_string(e, number);
            bytes.len /= 2;
            db_set_string(db, text("k"), bytes, NULL, false);
            assert_int_equal(entry_string_len(db_find(db, text("k"), 0)), len / 2);
        }
    }
}

FIXTURE_TEST(integers_are_changed_in_place) {
    struct db *db = keyspace_db(*state, 0);
    struct entry *e = db_set_int64(db, text("n"), 5, false);
    e = db_set_expire(db, e, 2000000000);
    assert_ptr_equal(db_replace_int64(db, e, -6), e);
    int64_t value;
    assert_true(entry_string_int64(e, &value));
    assert_int_equal(value, -6);
    assert_int_equal(entry_expire_at(e), 2000000000);
    check(db, "n", "-6");
    e = set(db, "n", "abc");
    assert_false(entry_string_int64(e, &value));
    e = db_replace_int64(db, e, 1);
    assert_int_equal(entry_encoding(e), ENCODING_INT);
}

FIXTURE_TEST(keys_of_any_length_and_bytes) {
    struct db *db = keyspace_db(*state, 0);
    static char key[70000];
    random_bytes(key, sizeof(key));
    size_t lengths[] = {0, 1, 7, 8, 254, 255, 256, 257, 65535, 65536, 70000};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            struct slice k = {key, lengths[i]};
            struct entry *e = db_set_string(db, k, text("value"), NULL, false);
            assert_true(slice_equal(entry_key(e), k));
            e = db_set_expire(db, e, 2000000000);
            assert_true(slice_equal(entry_key(e), k));
            e = db_replace_int64(db, e, 7);
            assert_true(slice_equal(entry_key(e), k));
            assert_int_equal(entry_expire_at(e), 2000000000);
            e = db_set_expire(db, e, -1);
            assert_true(slice_equal(entry_key(e), k));
            assert_ptr_equal(db_find(db, k, 0), e);
            int64_t value;
            assert_true(entry_string_int64(e, &value) && value == 7);
        }
    assert_int_equal(db_size(db), 11);
    assert_int_equal(db_expires(db), 0);
}

/* --- Expiry --- */

FIXTURE_TEST(a_key_expires_after_its_millisecond) {
    struct db *db = keyspace_db(*state, 0);
    db_set_expire(db, set(db, "k", "v"), 1000000500);
    set_ms(1000000500);
    check(db, "k", "v");
    set_ms(1000000501);
    assert_int_equal(db_size(db), 1);
    told.changed = 0;
    check(db, "k", NULL);
    assert_int_equal(db_size(db), 0);
    assert_int_equal(db_expires(db), 0);
    assert_int_equal(told.expired, 1);
    assert_int_equal(told.changed, 1);
    assert_string_equal(told.last_expired, "k");
    assert_string_equal(told.last_changed, "k");
    assert_int_equal(store_stats.expired_keys, 1);
    check(db, "k", NULL);
    assert_int_equal(told.expired, 1);
}

FIXTURE_TEST(a_frozen_clock_keeps_keys_alive) {
    struct db *db = keyspace_db(*state, 0);
    clock_update();
    clock_freeze();
    db_set_expire(db, set(db, "k", "v"), clock_ms());
    uint64_t start = clock_monotonic_us();
    while (clock_monotonic_us() < start + 3000) clock_update();
    check(db, "k", "v");
    clock_thaw();
    clock_update();
    check(db, "k", NULL);
}

FIXTURE_TEST(a_replica_hides_expired_keys_and_keeps_them) {
    struct db *db = keyspace_db(*state, 0);
    db_set_expire(db, set(db, "k", "v"), 1000000500);
    set_ms(1000001000);
    store_settings.keep_expired = true;
    check(db, "k", NULL);
    assert_int_equal(db_size(db), 1);
    keyspace_expire_cycle(*state, false, 10);
    assert_int_equal(db_size(db), 1);
    assert_non_null(db_find(db, text("k"), LOOKUP_NOEXPIRE));
    assert_non_null(db_random(db));     /* better than no key */
    store_settings.show_expired = true; /* the primary's stream sees it */
    assert_non_null(db_find(db, text("k"), LOOKUP_WRITE));
    store_settings.show_expired = false;
    assert_int_equal(told.expired, 0);
    assert_null(db_find(db, text("k"), LOOKUP_WRITE)); /* a write removes it */
    assert_int_equal(db_size(db), 0);
}

FIXTURE_TEST(an_expired_key_that_is_deleted_does_not_expire) {
    struct db *db = keyspace_db(*state, 0);
    db_set_expire(db, set(db, "k", "v"), 1000000500);
    set_ms(1000001000);
    assert_true(db_delete(db, text("k"), false));
    assert_int_equal(told.expired, 0);
    assert_int_equal(db_size(db) + db_expires(db), 0);
}

FIXTURE_TEST(setting_an_expired_key_makes_a_new_one) {
    struct db *db = keyspace_db(*state, 0);
    db_set_expire(db, set(db, "k", "v"), 1000000500);
    set_ms(1000001000);
    struct entry *e = db_set_string(db, text("k"), text("w"), NULL, true);
    assert_int_equal(told.expired, 1);
    assert_int_equal(entry_expire_at(e), -1);
    check(db, "k", "w");
}

FIXTURE_TEST(the_cycle_deletes_what_has_expired) {
    struct db *db = keyspace_db(*state, 2);
    char key[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        struct entry *e = set(db, key, "v");
        if (i % 5) db_set_expire(db, e, i % 2 ? 1000000100 : 1500000000);
    }
    assert_int_equal(db_expires(db), 4000);
    set_ms(1000000101);
    for (int i = 0; i < 500; i++) keyspace_expire_cycle(*state, i % 2, 10);
    assert_in_range(db_size(db), 3000, 3300); /* up to a tenth may remain */
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(db_find(db, text(key), 0) != NULL, !(i % 5 && i % 2));
    }
    assert_int_equal(db_size(db), 3000);
    assert_int_equal(db_expires(db), 2000);
    assert_int_equal(told.expired, 2000);
    assert_in_range(db_average_ttl(db), 1, 500000000);
    store_settings.active_expire = false;
    set_ms(1600000000);
    keyspace_expire_cycle(*state, false, 10);
    assert_int_equal(db_size(db), 3000);
}

FIXTURE_TEST(random_avoids_expired_keys) {
    struct db *db = keyspace_db(*state, 0);
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        db_set_expire(db, set(db, key, "v"), 1000000100);
    }
    set(db, "alive", "v");
    set_ms(1000000200);
    assert_true(slice_equal(entry_key(db_random(db)), SLICE("alive")));
    db_delete(db, text("alive"), false);
    assert_null(db_random(db));
    assert_int_equal(db_size(db), 0);
}

/* --- Other values --- */

static size_t values_alive;
struct fake {
    size_t effort;
};
static void fake_free(void *value, enum value_encoding encoding) {
    __atomic_sub_fetch(&values_alive, 1, __ATOMIC_SEQ_CST);
    mem_free(value);
}
static size_t fake_effort(const void *value, enum value_encoding encoding) {
    return ((const struct fake *)value)->effort;
}
static void *fake_new(size_t effort) {
    struct fake *fake = mem_alloc(sizeof(*fake));
    fake->effort = effort;
    __atomic_add_fetch(&values_alive, 1, __ATOMIC_SEQ_CST);
    return fake;
}
static void *fake_copy(const void *value, enum value_encoding encoding) {
    return fake_new(((const struct fake *)value)->effort);
}
static size_t fake_memory(const void *value, enum value_encoding encoding, size_t samples) {
    return 1000;
}
static const struct value_ops fake_ops = {
    .free = fake_free, .free_effort = fake_effort, .copy = fake_copy, .memory = fake_memory};

FIXTURE_TEST(structures_are_owned_and_freed) {
    struct db *db = keyspace_db(*state, 0), *other = keyspace_db(*state, 1);
    value_ops_register(TYPE_STREAM, &fake_ops);
    assert_int_equal(background_start(NULL), 0);
    void *value = fake_new(1);
    struct entry *e = db_add_value(db, text("a"), TYPE_STREAM, ENCODING_STREAM, value);
    assert_int_equal(entry_type(e), TYPE_STREAM);
    assert_ptr_equal(entry_value(e), value);
    assert_in_range(entry_memory(e, 0, 5), 1000, 1200);
    e = db_set_expire(db, e, 2000000000);
    assert_ptr_equal(entry_value(e), value);
    e = db_copy(db, e, other, text("copy"));
    assert_ptr_not_equal(entry_value(e), value);
    assert_int_equal(entry_expire_at(e), 2000000000);
    e = db_rename(db, text("a"), other, text("moved"));
    assert_ptr_equal(entry_value(e), value);
    assert_int_equal(entry_type(e), TYPE_STREAM);
    assert_int_equal(values_alive, 2);
    db_set_string(other, text("moved"), text("string"), NULL, false);
    assert_int_equal(values_alive, 1);
    db_rename(other, text("moved"), other, text("copy")); /* replaces */
    assert_int_equal(values_alive, 0);
    db_add_value(db, text("big"), TYPE_STREAM, ENCODING_STREAM, fake_new(1000));
    assert_true(db_delete(db, text("big"), true));
    background_drain(BACKGROUND_LAZY_FREE);
    assert_int_equal(values_alive, 0);
    assert_int_equal(store_lazyfree.freed, 1);
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        db_add_value(db, text(key), TYPE_STREAM, ENCODING_STREAM, fake_new(1));
    }
    assert_int_equal(db_flush(db, true), 100);
    assert_int_equal(db_size(db), 0);
    background_drain(BACKGROUND_LAZY_FREE);
    assert_int_equal(values_alive, 0);
    assert_int_equal(store_lazyfree.freed, 101);
    assert_int_equal(store_lazyfree.pending, 0);
    assert_int_equal(told.flushed, 1);
    assert_int_equal(told.flushed_keys, 100);
    background_stop();
}

/* --- Hooks and numbers --- */

FIXTURE_TEST(every_change_is_reported_once) {
    struct db *db = keyspace_db(*state, 0);
    char *bytes;
    struct entry *e = set(db, "k", "v");
    assert_int_equal(told.changed, 1);
    e = db_edit_string(db, e, 5, &bytes);
    assert_int_equal(told.changed, 2);
    e = db_set_expire(db, e, 2000000000);
    assert_int_equal(told.changed, 3);
    e = db_replace_int64(db, e, 1);
    assert_int_equal(told.changed, 4);
    db_rename(db, text("k"), db, text("l"));
    assert_int_equal(told.changed, 6);
    db_delete(db, text("l"), false);
    assert_int_equal(told.changed, 7);
    db_delete(db, text("l"), false);
    assert_int_equal(told.changed, 7);
    db_swap(db, keyspace_db(*state, 1));
    assert_int_equal(told.swapped, 1);
}

FIXTURE_TEST(renaming_onto_itself_changes_nothing) {
    struct db *db = keyspace_db(*state, 0);
    struct entry *e = set(db, "k", "v");
    assert_ptr_equal(db_rename(db, text("k"), db, text("k")), e);
    assert_ptr_equal(db_rename(db, entry_key(e), db, entry_key(e)), e);
    assert_null(db_rename(db, text("missing"), db, text("x")));
    check(db, "k", "v");
}

FIXTURE_TEST(keys_may_be_given_as_they_lie_in_entries) {
    struct db *db = keyspace_db(*state, 0);
    struct entry *a = set(db, "a", "1-a"), *b = set(db, "b", "2-b");
    db_rename(db, entry_key(a), db, entry_key(b));
    check(db, "a", NULL);
    check(db, "b", "1-a");
    assert_true(db_delete(db, entry_key(db_find(db, text("b"), 0)), false));
    assert_string_equal(told.last_changed, "b");
}

FIXTURE_TEST(hits_and_misses_are_counted_for_readers) {
    struct db *db = keyspace_db(*state, 0);
    set(db, "k", "v");
    db_find(db, text("k"), 0);
    db_find(db, text("x"), 0);
    db_find(db, text("x"), LOOKUP_WRITE);
    db_find(db, text("k"), LOOKUP_NOSTATS);
    assert_int_equal(store_stats.hits, 1);
    assert_int_equal(store_stats.misses, 1);
}

FIXTURE_TEST(idle_time_counts_from_the_last_use) {
    struct db *db = keyspace_db(*state, 0);
    struct entry *e = set(db, "k", "v");
    set_ms(clock_ms() + 100000);
    assert_int_equal(entry_idle_seconds(db_find(db, text("k"), LOOKUP_NOTOUCH)), 100);
    store_settings.keep_access = true;
    assert_int_equal(entry_idle_seconds(db_find(db, text("k"), 0)), 100);
    store_settings.keep_access = false;
    assert_int_equal(entry_idle_seconds(db_find(db, text("k"), 0)), 0);
    entry_set_idle_seconds(e, 12345);
    assert_int_equal(entry_idle_seconds(e), 12345);
}

FIXTURE_TEST(frequency_grows_with_use_and_decays_with_time) {
    struct db *db = keyspace_db(*state, 0);
    store_settings.lfu = true;
    struct entry *e = set(db, "k", "v");
    assert_int_equal(entry_frequency(e), 5);
    for (int i = 0; i < 1000; i++) db_find(db, text("k"), 0);
    uint8_t used = entry_frequency(e);
    assert_in_range(used, 10, 40);
    set(db, "k", "w"); /* overwriting keeps the counter */
    assert_int_equal(entry_frequency(db_find(db, text("k"), LOOKUP_NOTOUCH)), used);
    set_ms(clock_ms() + 3 * 60000);
    assert_int_equal(entry_frequency(e), used - 3);
    set_ms(clock_ms() + 300 * 60000);
    assert_int_equal(entry_frequency(e), 0);
    entry_set_frequency(e, 200);
    assert_int_equal(entry_frequency(e), 200);
    store_settings.lfu_decay_time = 0;
    set_ms(clock_ms() + 300 * 60000);
    assert_int_equal(entry_frequency(e), 200);
}

FIXTURE_TEST(iteration_visits_every_key) {
    struct db *db = keyspace_db(*state, 0);
    char key[32];
    db_expand(db, 1000, 10);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        set(db, key, "v");
    }
    size_t seen = 0;
    uint64_t cursor = 0;
    do cursor = db_scan(db, -1, cursor, count_entry, &seen);
    while (cursor);
    assert_int_equal(seen, 1000);
    struct db_iterator *it = db_iterate(db, -1);
    for (seen = 0; db_iterate_next(it);) seen++;
    db_iterate_end(it);
    assert_int_equal(seen, 1000);
    assert_null(keyspace_db(*state, -1));
    assert_null(keyspace_db(*state, 4));
    assert_int_equal(keyspace_databases(*state), 4);
    assert_int_equal(db_id(keyspace_db(*state, 3)), 3);
    assert_true(db_keys_overhead(db) > 9000);
}

FIXTURE_TEST(rehashing_ends) {
    for (int d = 0; d < 4; d++) {
        char key[32];
        struct db *db = keyspace_db(*state, d);
        for (int i = 0; i < 2000 || !db_rehashing(db); i++) {
            snprintf(key, sizeof(key), "k%d", i);
            db_set_expire(db, set(db, key, "v"), 2000000000);
        }
    }
    int turns = 0;
    while (keyspace_rehash(*state, 100)) assert_true(++turns < 100000);
    for (int d = 0; d < 4; d++) assert_int_equal(db_rehashing(keyspace_db(*state, d)), 0);
}

/* --- Eviction --- */

/* The excess over 500 keys, in units that no eviction releases. */
static size_t keys_above(void *context) {
    struct keyspace *k = context;
    size_t keys = 0;
    for (int i = 0; i < keyspace_databases(k); i++) keys += db_size(keyspace_db(k, i));
    return keys > 500 ? (keys - 500) << 20 : 0;
}
/* 1000 keys in two databases. The value of keeping a key grows with its number; odd keys have an expiry. */
static void fill_for_eviction(struct keyspace *k) {
    char key[400];
    for (int i = 0; i < 1000; i++) {
        int len = snprintf(key, sizeof(key), "k%d", i);
        if (i % 50 == 0) memset(key + len, 'l', 300), key[len + 300] = 0; /* longer than the pool stores inline */
        struct db *db = keyspace_db(k, i % 4 / 2);
        struct entry *e = set(db, key, "v");
        if (i % 2) e = db_set_expire(db, e, 2000000000 + i);
        if (store_settings.lfu)
            entry_set_frequency(e, (uint8_t)(i / 4));
        else
            entry_set_idle_seconds(e, 10000 - (uint32_t)i);
    }
    memset(&told, 0, sizeof(told));
}
static size_t survivors(struct keyspace *k, int from, int to) {
    size_t count = 0;
    char key[400];
    for (int i = from; i < to; i++) {
        int len = snprintf(key, sizeof(key), "k%d", i);
        if (i % 50 == 0) memset(key + len, 'l', 300), key[len + 300] = 0;
        count += db_find(keyspace_db(k, i % 4 / 2), text(key), LOOKUP_NOTOUCH) != NULL;
    }
    return count;
}
FIXTURE_TEST(eviction_takes_the_least_worthy) {
    struct keyspace *k = *state;
    for (int lfu = 0; lfu < 2; lfu++) {
        store_settings.lfu = lfu;
        fill_for_eviction(k);
        struct eviction eviction = {lfu ? EVICT_LFU : EVICT_LRU, false, 10, 0, keys_above, k};
        assert_int_equal(keyspace_evict(k, &eviction), EVICTION_DONE);
        assert_int_equal(survivors(k, 0, 1000), 500);
        assert_int_equal(told.evicted, 500);
        assert_int_equal(told.changed, 500);
        assert_true(survivors(k, 0, 250) < 25); /* approximated, but not by much */
        assert_true(survivors(k, 750, 1000) > 225);
        for (int i = 0; i < 2; i++) db_flush(keyspace_db(k, i), false);
    }
}
FIXTURE_TEST(volatile_eviction_leaves_keys_without_expiry) {
    struct keyspace *k = *state;
    enum eviction_kind kinds[] = {EVICT_LRU, EVICT_RANDOM, EVICT_TTL};
    for (int i = 0; i < 3; i++) {
        fill_for_eviction(k);
        set(keyspace_db(k, 3), "one more", "v");
        struct eviction eviction = {kinds[i], true, 5, 0, keys_above, k};
        assert_int_equal(keyspace_evict(k, &eviction), EVICTION_NO_KEYS);
        assert_int_equal(told.evicted, 500);
        assert_int_equal(survivors(k, 0, 1000), 500);
        assert_int_equal(db_expires(keyspace_db(k, 0)) + db_expires(keyspace_db(k, 1)), 0);
        for (int d = 0; d < 4; d++) db_flush(keyspace_db(k, d), false);
    }
}
FIXTURE_TEST(eviction_by_ttl_takes_the_nearest) {
    struct keyspace *k = *state;
    fill_for_eviction(k);
    for (int i = 0; i < 1000; i += 4) { /* 750 left: 250 of the 500 with an expiry go */
        char key[400];
        int len = snprintf(key, sizeof(key), "k%d", i);
        if (i % 50 == 0) memset(key + len, 'l', 300), key[len + 300] = 0;
        db_delete(keyspace_db(k, 0), text(key), false);
    }
    told.evicted = 0;
    struct eviction eviction = {EVICT_TTL, false, 10, 0, keys_above, k};
    assert_int_equal(keyspace_evict(k, &eviction), EVICTION_DONE);
    assert_int_equal(told.evicted, 250);
    assert_true(survivors(k, 0, 250) < 62 + 15);
    assert_true(survivors(k, 750, 1000) > 170);
}
FIXTURE_TEST(eviction_stops_when_its_time_is_up) {
    struct keyspace *k = *state;
    fill_for_eviction(k);
    struct eviction eviction = {EVICT_RANDOM, false, 5, 1, keys_above, k};
    int calls = 1;
    while (keyspace_evict(k, &eviction) == EVICTION_UNDONE) calls++;
    assert_true(calls > 1);
    assert_int_equal(survivors(k, 0, 1000), 500);
    for (int i = 0; i < 2; i++) db_flush(keyspace_db(k, i), false);
    fill_for_eviction(k);
    eviction = (struct eviction){EVICT_LRU, false, 5, 0, keys_above, k}; /* candidates of the flushed keys do no harm */
    assert_int_equal(keyspace_evict(k, &eviction), EVICTION_DONE);
}

int main(void) {
    return RUN_WITH_BOTH_TABLES();
}
