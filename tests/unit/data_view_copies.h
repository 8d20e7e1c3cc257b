/* data_view_copies.h: snapshots that are stepped a part at a time, up to four at once, and compared with copies made
 * at their start, while random commands are executed. Some lend batches to a reader that reads an entry now and then,
 * as a thread might. */
#pragma once
#include "copied_entries.h"
#include "random_commands.h"
#include "snapshot/data_view.h"

enum { SNAPSHOTS = 4, BATCHES = 5 };

static struct snapped {
    struct data_view *snapshot; /* NULL: not running */
    struct hashtable *copies;
    size_t seen;
    bool lends;
    struct lent_batch *batches[BATCHES]; /* the first one is being read, if `begun` */
    size_t batch_count, read;            /* entries of the first */
    bool begun;
} snapped[SNAPSHOTS];
static unsigned long long taken_back, waited_for, lent_and_read; /* batches */
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

/* The reader reads some entries of the first batch. True: all. */
static bool snapped_read(struct snapped *s, size_t most) {
    struct lent_batch *batch = s->batches[0];
    if (!s->begun) {
        bool began = lending_begin(&batch->lending);
        assert_true(began);
        s->begun = true;
    }
    hashtable_iterates_held(true);
    for (; most && s->read < batch->count; most--) snapped_entry(s, batch->db, batch->entry[s->read++]);
    hashtable_iterates_held(false);
    if (s->read < batch->count) return false;
    lending_return(&batch->lending);
    return true;
}
static void snapped_forget(struct snapped *s, size_t at) {
    lent_batch_drop(s->batches[at]);
    s->batch_count--;
    memmove(s->batches + at, s->batches + at + 1, (s->batch_count - at) * sizeof *s->batches);
    if (!at) s->begun = false, s->read = 0;
}
static void snapped_lend(void *context, struct lent_batch *batch) {
    struct snapped *s = context;
    assert_true(s->batch_count < BATCHES);
    s->batches[s->batch_count++] = batch;
}
static void snapped_recall(void *context, struct lent_batch *batch) {
    struct snapped *s = context;
    size_t at = 0;
    while (at < s->batch_count && s->batches[at] != batch) at++;
    if (lending_take_back(&batch->lending)) {
        for (size_t i = 0; i < batch->count; i++) snapped_entry(s, batch->db, batch->entry[i]);
        taken_back++;
        snapped_forget(s, at);
    } else if (at < s->batch_count) {
        assert_int_equal(at, 0);
        snapped_read(s, SIZE_MAX);
        waited_for++;
        snapped_forget(s, 0);
    }
    data_view_batch_ended(batch);
}
static void snapped_reader_does_something(struct snapped *s) {
    if (!s->batch_count || !snapped_read(s, random_below(40))) return;
    lent_and_read++;
    snapped_forget(s, 0);
    if (random_below(3)) data_view_batch_ended(data_view_returned_batch(s->snapshot));
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
    s->lends = random_below(3) != 0;
    struct data_view_reader reader = {.entry = snapped_entry, .context = s};
    if (s->lends) {
        reader.lend_batch = snapped_lend;
        reader.recall_batch = snapped_recall;
        reader.lend_min = 50;
        reader.batch_parts = 1 + random_below(12);
    }
    s->snapshot = data_view_start(server.keyspace, slots, &reader);
    assert_int_equal(data_view_keys(s->snapshot), hashtable_size(s->copies));
}
static void snapped_end(struct snapped *s) {
    data_view_end(s->snapshot);
    hashtable_free(s->copies);
    s->snapshot = NULL;
}
static bool snapped_more(struct snapped *s, uint64_t microseconds) {
    if (!s->lends || random_below(8) == 0) return data_view_step(s->snapshot, microseconds);
    if (s->batch_count == BATCHES || random_below(2)) snapped_reader_does_something(s);
    for (struct lent_batch *batch; (batch = data_view_returned_batch(s->snapshot));) data_view_batch_ended(batch);
    return s->batch_count == BATCHES || data_view_lend_step(s->snapshot);
}
static void snapped_step(struct snapped *s, uint64_t microseconds) {
    if (snapped_more(s, microseconds)) return;
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
    else if (random_below(3) == 0)
        snapped_reader_does_something(s);
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
