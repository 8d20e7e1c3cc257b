/* data_view_copies.h: snapshots that are stepped a part at a time, up to four at once, and compared with copies made
 * at their start, while random commands are executed. */
#pragma once
#include "copied_entries.h"
#include "random_commands.h"
#include "snapshot/data_view.h"

enum { SNAPSHOTS = 4 };

static struct snapped {
    struct data_view *snapshot; /* NULL: not running */
    struct hashtable *copies;
    size_t seen;
} snapped[SNAPSHOTS];
static unsigned long long differing; /* entries that were not as at the start; tests that look for them count them */

static void snapped_entry(void *context, int db, const struct entry *entry) {
    struct snapped *s = context;
    struct copied *now = copied_new(db, entry, copied_write_exactly),
                  *then = hashtable_find(s->copies, copied_key(now));
    bool same = then && !then->seen && copied_same(then, now);
    if (!same) {
        differing++;
        print_message("db %d, %.*s: %s\n", db, (int)entry_key(entry).len, entry_key(entry).data,
                      !then        ? "was not there"
                      : then->seen ? "given twice"
                                   : "changed");
    }
    if (then) then->seen = true, s->seen++;
    mem_free(now);
}

static void copy_keys(struct snapped *s, struct db *db, int only, const struct slot_bitmap *slots) {
    struct db_iterator *it = db_iterate(db, only);
    for (struct entry *entry; (entry = db_iterate_next(it));) {
        if (slots && !slot_bitmap_has(slots, hash_slot(entry_key(entry)))) continue;
        bool added = hashtable_add(s->copies, copied_new(db_id(db), entry, copied_write_exactly));
        assert_true(added);
    }
    db_iterate_end(it);
}

static void snapped_start(struct snapped *s, const struct slot_bitmap *slots) {
    s->copies = hashtable_new(&copies_type);
    s->seen = 0;
    for (int i = 0; i < keyspace_databases(server.keyspace); i++) {
        struct db *db = keyspace_db(server.keyspace, i);
        copy_keys(s, db, -1, slots);
        for (unsigned slot = 0; keyspace_hidden_slots() && slot < HASH_SLOTS; slot++)
            if (keyspace_slot_is_hidden(slot)) copy_keys(s, db, (int)slot, slots);
    }
    s->snapshot =
        data_view_start(server.keyspace, slots, &(struct data_view_reader){.entry = snapped_entry, .context = s});
    assert_int_equal(data_view_keys(s->snapshot), hashtable_size(s->copies));
}
static void snapped_end(struct snapped *s) {
    data_view_end(s->snapshot);
    hashtable_free(s->copies);
    s->snapshot = NULL;
}
static void snapped_step(struct snapped *s, uint64_t microseconds) {
    if (data_view_step(s->snapshot, microseconds)) return;
    assert_int_equal(s->seen, hashtable_size(s->copies));
    assert_int_equal(data_view_given(s->snapshot), data_view_keys(s->snapshot));
    assert_false(data_view_step(s->snapshot, 0));
    snapped_end(s);
}
static void random_slots(struct slot_bitmap *slots) {
    memset(slots, 0, sizeof *slots);
    for (int i = 0; i < 8; i++) {
        unsigned first = (unsigned)random_below(HASH_SLOTS - 1000);
        slot_bitmap_set_range(slots, first, first + (unsigned)random_below(1000));
    }
}

static void snapshots_do_something(void) {
    struct snapped *s = &snapped[random_below(SNAPSHOTS)];
    if (!s->snapshot) {
        struct slot_bitmap slots;
        bool some = db_is_per_slot(client->db) && random_below(2);
        if (some) random_slots(&slots);
        if (random_below(20) == 0) snapped_start(s, some ? &slots : NULL);
        return;
    }
    if (random_below(400) == 0)
        snapped_end(s);
    else
        snapped_step(s, random_below(60) ? 0 : 50);
}

static int snapshot_setup(void **state) {
    differing = 0;
    return random_commands_setup(state);
}
static int snapshot_teardown(void **state) {
    for (int i = 0; i < SNAPSHOTS; i++)
        if (snapped[i].snapshot) snapped_end(&snapped[i]);
    return random_commands_teardown(state);
}

/* Readers do something before each command, and all end at last. */
static void drive(unsigned seed, int rounds, bool whole_too, void (*readers_do_something)(void)) {
    random_seed(seed);
    keys_per_type = 10 + (int)random_below(120);
    fill(500 + (int)random_below(2000));
    for (int i = 0; i < rounds && !differing; i++) {
        readers_do_something();
        execute(commands[random_below(sizeof commands / sizeof *commands)]);
        if (random_below(10) == 0) server_does_something(whole_too);
    }
    for (int i = 0; i < SNAPSHOTS; i++)
        while (snapped[i].snapshot) snapped_step(&snapped[i], 1000);
    if (differing) fail_msg("seed %u", seed);
}
static unsigned seeds(void) {
    const char *text = getenv("SNAPSHOT_SEEDS");
    return text ? (unsigned)atoi(text) : 6;
}
