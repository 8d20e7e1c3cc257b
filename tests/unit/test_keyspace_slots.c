/* The keys of a hash slot, and operations on the tables of all slots: scans, random keys, memory. */
#include "keyspace_fixture.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/background.h"
#include "lib/text/number.h"
#include "store/evict.h"
#include "store/hash.h"
#include "store/key_tables.h"
#include "store/types.h"

/* A key in each slot: the number of the key and of the slot. */
enum { KEYS_FOR_ALL_SLOTS = 400000 };
static size_t key_in_every_slot(struct db *db, char (*keys)[16]) {
    size_t found = 0;
    for (int i = 0; i < KEYS_FOR_ALL_SLOTS && found < HASH_SLOTS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key:%d", i);
        char *kept = keys[hash_slot(text(key))];
        if (*kept) continue;
        strcpy(kept, key);
        set(db, key, "v");
        found++;
    }
    return found;
}

struct listed {
    size_t count;
    unsigned slot;
};
static void list_key(void *context, struct entry *e) {
    struct listed *listed = context;
    assert_int_equal(hash_slot(entry_key(e)), listed->slot);
    listed->count++;
}
FIXTURE_TEST(the_keys_of_a_slot_are_counted_and_listed) {
    struct db *db = keyspace_db(*state, 0);
    char key[32];
    unsigned slot = hash_slot(SLICE("tag")), other = hash_slot(SLICE("other"));
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), i % 3 ? "{tag}%d" : "%d{other}", i);
        struct entry *e = set(db, key, "v");
        if (i % 6 == 1) db_set_expire(db, e, 2000000000);
    }
    struct db_slot_size size = db_slot_size(db, slot);
    assert_int_equal(size.keys, 200);
    assert_int_equal(size.expires, 50);
    assert_int_equal(size.expiring, 0);
    size = db_slot_size(db, other);
    assert_int_equal(size.keys, 100);
    assert_int_equal(size.expires, 0);
    struct listed listed = {.slot = slot};
    assert_int_equal(db_slot_keys(db, slot, 1000, list_key, &listed), 200);
    assert_int_equal(listed.count, 200);
    assert_int_equal(db_slot_keys(db, slot, 7, list_key, &listed), 7);
    assert_int_equal(listed.count, 207);
    assert_int_equal(db_slot_keys(db, slot, 0, list_key, &listed), 0);
    assert_int_equal(db_slot_keys(db, (slot + 1) % HASH_SLOTS, 10, NULL, NULL), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), i % 3 ? "{tag}%d" : "%d{other}", i);
        if (i % 3) assert_true(db_delete(db, text(key), false));
    }
    assert_int_equal(db_slot_size(db, slot).keys, 0);
    assert_int_equal(db_slot_size(db, other).keys, 100);
}

struct scanned {
    size_t count;
    bool slots[HASH_SLOTS]; /* slots of the keys seen */
};
static void scan_key(void *context, struct entry *e) {
    struct scanned *scanned = context;
    scanned->slots[hash_slot(entry_key(e))] = true;
    scanned->count++;
}

/* Nearly all slots become empty while a scan is under way, and get keys again. */
FIXTURE_TEST(a_scan_sees_all_keys_that_stay) {
    struct db *db = keyspace_db(*state, 0);
    char(*keys)[16] = mem_calloc(HASH_SLOTS, sizeof(*keys));
    struct scanned *scanned = mem_calloc(1, sizeof(*scanned));
    enum { STAYS = 16 /* one slot in 16 */ };
    assert_int_equal(key_in_every_slot(db, keys), HASH_SLOTS);
    uint64_t cursor = 0;
    int calls = 0;
    do {
        cursor = db_scan(db, -1, cursor, scan_key, scanned);
        assert_true(++calls < 4 * HASH_SLOTS);
        if (calls % 1000) continue;
        for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
            if (slot % STAYS == 0) continue;
            if (calls % 2000)
                db_delete(db, text(keys[slot]), false);
            else
                set(db, keys[slot], "again");
        }
    } while (cursor);
    assert_true(calls > 1000);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot += STAYS) assert_true(scanned->slots[slot]);
    mem_free(scanned);
    mem_free(keys);
}

FIXTURE_TEST(a_scan_ends_from_any_cursor) {
    struct db *db = keyspace_db(*state, 0);
    struct scanned *scanned = mem_calloc(1, sizeof(*scanned));
    static const uint64_t cursors[] = {UINT64_MAX, 1, HASH_SLOTS - 1, HASH_SLOTS, (uint64_t)1 << 63, 0x123456789abcdef};
    for (int keys = 0; keys < 1000; keys++) {
        if (keys) set(db, (char[]){'k', (char)(keys / 32 + '0'), (char)(keys % 32 + '0'), '\0'}, "v");
        if (keys > 3 && keys % 333) continue;
        for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++)
            for (int slot = -1; slot < HASH_SLOTS; slot += HASH_SLOTS / 2) {
                int calls = 0;
                uint64_t cursor = cursors[i];
                while ((cursor = db_scan(db, slot, cursor, scan_key, scanned))) assert_true(++calls < 2000);
            }
    }
    mem_free(scanned);
}

FIXTURE_TEST(a_search_in_one_slot_finds_its_keys) {
    struct db *db = keyspace_db(*state, 0);
    char key[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof(key), "{%d}%d", i % 40, i);
        set(db, key, "v");
    }
    for (int tag = 0; tag < 41; tag++) {
        int slot = (int)hash_slot((struct slice){key, (size_t)snprintf(key, sizeof(key), "%d", tag)});
        size_t least = tag < 40 ? 50 : 0;
        size_t all = db_is_per_slot(db) ? db_slot_size(db, (unsigned)slot).keys : 2000;
        assert_true(all >= least);
        struct db_iterator *it = db_iterate(db, slot);
        size_t found = 0;
        while (db_iterate_next(it)) found++;
        db_iterate_end(it);
        assert_int_equal(found, all);
        size_t seen = 0;
        uint64_t cursor = 0;
        do cursor = db_scan(db, slot, cursor, count_entry, &seen);
        while (cursor);
        assert_int_equal(seen, all);
    }
}

/* All keys have the same probability, whatever the size of the table that they are in. */
FIXTURE_TEST(a_random_key_is_uniform) {
    struct db *db = keyspace_db(*state, 0);
    char key[32];
    enum { KEYS = 1000, DRAWS = 100000 };
    static unsigned drawn[KEYS];
    memset(drawn, 0, sizeof(drawn));
    for (int i = 0; i < KEYS; i++) { /* half of them in one slot, a quarter in another, the others everywhere */
        snprintf(key, sizeof(key), i < KEYS / 2 ? "{a}%d" : i < KEYS * 3 / 4 ? "{b}%d" : "%d", i);
        set(db, key, "v");
    }
    for (int i = 0; i < DRAWS; i++) {
        struct slice name = entry_key(db_random(db));
        if (name.data[0] == '{') name = (struct slice){name.data + 3, name.len - 3};
        int64_t number;
        assert_true(parse_int64(name, &number));
        drawn[number]++;
    }
    double chi_squared = 0, expected = (double)DRAWS / KEYS;
    for (int i = 0; i < KEYS; i++)
        chi_squared += ((double)drawn[i] - expected) * ((double)drawn[i] - expected) / expected;
    assert_true(chi_squared < 1250); /* 999 degrees of freedom: mean 999, standard deviation 45 */
}

FIXTURE_TEST(an_announced_slot_is_expanded_once) {
    struct db *db = keyspace_db(*state, 0);
    unsigned slot = hash_slot(SLICE("tag"));
    db_expand_slot(db, slot, 1000, 100);
    db_expand(db, 1000, 100);
    size_t before = db_keys_overhead(db), expires = db_expires_overhead(db);
    assert_null(db_random(db));
    assert_int_equal(db_size(db), 0);
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "{tag}%d", i);
        struct entry *e = set(db, key, "v");
        if (i % 10 == 0) db_set_expire(db, e, 2000000000);
        assert_int_equal(db_rehashing(db), 0);
    }
    assert_in_range(db_keys_overhead(db), before, before * 3 / 2); /* children of full buckets */
    assert_in_range(db_expires_overhead(db), expires, expires * 3 / 2);
}

/* The memory that the tables report is the memory that they use. */
FIXTURE_TEST(tables_know_their_memory) {
    struct db *db = keyspace_db(*state, 0);
    size_t empty = mem_used();
    char key[32];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 30000; i++) {
            snprintf(key, sizeof(key), "key:%d", i * (round + 1));
            if (i % 3 == round)
                db_delete(db, text(key), false);
            else
                db_set_expire(db, set(db, key, "v"), 2000000000);
            if (i % 500 == 0) keyspace_rehash(*state, 20);
        }
        struct db_iterator *it = db_iterate(db, -1);
        size_t entries = 0;
        for (struct entry *e; (e = db_iterate_next(it));) entries += mem_size(e);
        db_iterate_end(it);
        size_t tables = db_keys_overhead(db) + db_expires_overhead(db), used = mem_used() - empty - entries;
        tables -= 2 * sizeof(struct key_tables);            /* these belong to the database, which was there before */
        assert_in_range(used, tables, tables + tables / 4); /* size classes of the allocator */
    }
    db_flush(db, false);
    assert_int_equal(mem_used(), empty);
    assert_int_equal(db_keys_overhead(db) + db_expires_overhead(db), 0);
}

FIXTURE_TEST(a_slot_without_keys_takes_no_table) {
    struct db *db = keyspace_db(*state, 0);
    set(db, "key", "v");
    size_t one = db_keys_overhead(db);
    char(*keys)[16] = mem_calloc(HASH_SLOTS, sizeof(*keys));
    key_in_every_slot(db, keys);
    size_t all = db_keys_overhead(db);
    assert_true(all > one);
    assert_true(all < 3 * 1024 * 1024);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) assert_true(db_delete(db, text(keys[slot]), false));
    assert_in_range(db_keys_overhead(db), 1, one);
    mem_free(keys);
}

/* 300 keys with the tag, 30 of them with an expiry, in databases 0 and 1; 20 hashes with field expiration, and 100
 * other keys. */
static unsigned fill_slot(struct keyspace *keyspace) {
    char key[32];
    for (int i = 0; i < 300; i++) {
        struct db *db = keyspace_db(keyspace, i % 2);
        snprintf(key, sizeof(key), "{tag}%d", i);
        struct entry *e = set(db, key, "v");
        if (i % 10 == 0) db_set_expire(db, e, 2000000000);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "{tag}hash%d", i);
        hash_put_until(keyspace_db(keyspace, 1), hash_create(keyspace_db(keyspace, 1), text(key)), SLICE("field"),
                       SLICE("value"), NULL, 1000000100 + i);
    }
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "other%d", i);
        db_set_expire(keyspace_db(keyspace, 0), set(keyspace_db(keyspace, 0), key, "v"), 2000000000);
    }
    hash_put_until(keyspace_db(keyspace, 0), hash_create(keyspace_db(keyspace, 0), SLICE("other hash")), SLICE("field"),
                   SLICE("value"), NULL, 1000000050);
    return hash_slot(SLICE("tag"));
}

FIXTURE_TEST(a_slot_is_dropped_from_all_databases) {
    for (int lazy = 0; lazy < 2; lazy++) {
        struct keyspace *keyspace = keyspace_new_per_slot(4, &hooks);
        struct db *db = keyspace_db(keyspace, 0), *second = keyspace_db(keyspace, 1);
        told.changed = told.slots_left = 0;
        unsigned slot = fill_slot(keyspace);
        size_t changes = told.changed;
        assert_int_equal(keyspace_drop_slot(keyspace, slot, lazy), 320);
        assert_int_equal(told.slots_left, 2);
        assert_int_equal(told.changed, changes);
        assert_int_equal(db_size(db), 101);
        assert_int_equal(db_expires(db), 100);
        assert_int_equal(db_expiring(db), 1);
        assert_int_equal(db_size(second) + db_expires(second) + db_expiring(second), 0);
        check(db, "{tag}0", NULL);
        check(db, "other7", "v");
        size_t seen = 0;
        uint64_t cursor = 0;
        do cursor = db_scan(db, -1, cursor, count_entry, &seen);
        while (cursor);
        assert_int_equal(seen, 101);
        assert_int_equal(keyspace_drop_slot(keyspace, slot, lazy), 0);
        assert_int_equal(told.slots_left, 2);
        set(db, "{tag}0", "again");
        check(db, "{tag}0", "again");
        background_drain(BACKGROUND_LAZY_FREE);
        keyspace_free(keyspace);
    }
    assert_int_equal(store_lazyfree.freed, 320);
}

/* --- Hidden slots --- */

static size_t wanted_left;
static size_t keys_wanted(void *context) {
    size_t keys = db_size(keyspace_db(context, 0));
    return keys > wanted_left ? (keys - wanted_left) << 20 : 0;
}

/* Candidates of an eviction are kept for the next one, when a slot of theirs may be on its way back. */
FIXTURE_TEST(eviction_takes_no_key_of_a_hidden_slot) {
    struct keyspace *keyspace = keyspace_new_per_slot(1, &hooks);
    struct db *db = keyspace_db(keyspace, 0);
    unsigned slot = hash_slot(SLICE("tag"));
    char key[32];
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, i < 50 ? "{tag}%d" : "{other}%d", i);
        entry_set_idle_seconds(set(db, key, "v"), i < 50 ? 1000 : 1);
    }
    struct eviction eviction = {EVICT_LRU, false, 16, 0, keys_wanted, keyspace};
    wanted_left = 59;
    assert_int_equal(keyspace_evict(keyspace, &eviction), EVICTION_DONE);
    assert_int_equal(db_slot_size(db, slot).keys, 49);
    keyspace_hide_slot(keyspace, slot);
    assert_int_equal(db_size(db), 10);
    wanted_left = 7;
    assert_int_equal(keyspace_evict(keyspace, &eviction), EVICTION_DONE);
    assert_int_equal(db_size(db), 7);
    assert_int_equal(db_slot_size(db, slot).keys, 49);
    keyspace_show_slot(keyspace, slot);
    keyspace_free(keyspace);
}

/* What is written of a data set includes the hidden keys, and their sizes are known. */
FIXTURE_TEST(hidden_keys_are_counted_apart) {
    struct keyspace *keyspace = keyspace_new_per_slot(2, &hooks);
    struct db *db = keyspace_db(keyspace, 1);
    set(db, "{tag}1", "v");
    db_set_expire(db, set(db, "{tag}2", "v"), 2000000000);
    set(db, "{other}1", "v");
    assert_int_equal(db_hidden_size(db).keys, 0);
    keyspace_hide_slot(keyspace, hash_slot(SLICE("tag")));
    assert_int_equal(db_hidden_size(db).keys, 2);
    assert_int_equal(db_hidden_size(db).expires, 1);
    assert_int_equal(db_hidden_size(keyspace_db(keyspace, 0)).keys, 0);
    keyspace_show_slot(keyspace, hash_slot(SLICE("tag")));
    assert_int_equal(db_hidden_size(db).keys, 0);
    keyspace_free(keyspace);
}

int main(void) {
    store_types_register();
    return RUN_WITH_BOTH_TABLES();
}
