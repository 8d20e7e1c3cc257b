/* Snapshots against copies made at their start: see data_view_copies.h and random_commands.h. */
#include "data_view_copies.h"
#include "lib/system/memory.h"
#include "store/parts.h"

static void a_snapshot_has_the_keys_of_its_start(void **state) {
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        drive(seed, 6000, false, snapshots_do_something);
        execute("FLUSHALL");
    }
}
static void so_it_has_when_databases_are_emptied_swapped_and_replaced(void **state) {
    for (unsigned seed = 1001; seed <= 1000 + seeds(); seed++) drive(seed, 6000, true, snapshots_do_something);
}

/* Each command that changes a value, when no part was given yet. */
static void each_command_gives_what_it_changes_first(void **state) {
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        random_seed((unsigned)n + 1);
        keys_per_type = 8;
        execute("FLUSHALL SYNC");
        fill(600);
        if (n % 2) time_set(clock_ms() + 500); /* keys and fields have expired, but are there */
        for (int repeat = 0; repeat < 12; repeat++) {
            snapped_start(&snapped[0], NULL);
            execute(commands[n]);
            while (snapped[0].snapshot) snapped_step(&snapped[0], 1000);
            if (differing) fail_msg("%s", commands[n]);
        }
    }
}

/* The same number of parts, whatever the table does meanwhile. */
static void a_table_may_grow_and_shrink_meanwhile(void **state) {
    keys_set(1000);
    snapped_start(&snapped[0], NULL);
    snapped_start(&snapped[1], NULL);
    for (int i = 0; i < 20; i++) snapped_step(&snapped[0], 0);
    for (int i = 1000; i < 40000; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET n%d v", i);
        run(line);
    }
    snapped_step(&snapped[0], 0);
    for (int i = 1000; i < 40000; i++) {
        char line[64];
        snprintf(line, sizeof line, "DEL n%d", i);
        run(line);
    }
    while (keyspace_rehash(server.keyspace, 1000)) continue;
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    while (snapped[1].snapshot) snapped_step(&snapped[1], 0);
    assert_int_equal(differing, 0);
}

static void tables_of_flushed_keys_are_freed_with_the_last_snapshot(void **state) {
    run("SET s1 first");
    size_t empty = mem_used();
    keys_set(5000);
    size_t full = mem_used();
    snapped_start(&snapped[0], NULL);
    snapped_start(&snapped[1], NULL);
    run("FLUSHALL SYNC");
    run("SET s1 again");
    assert_int_equal(db_size(client->db), 1);
    snapped_end(&snapped[0]);
    assert_true(mem_used() > full);
    while (snapped[1].snapshot) snapped_step(&snapped[1], 0);
    assert_true(mem_used() < empty + (full - empty) / 4);
    assert_int_equal(differing, 0);
}

static void a_snapshot_of_nothing_ends_at_once(void **state) {
    snapped_start(&snapped[0], NULL);
    run("SET s1 new");
    snapped_step(&snapped[0], 0);
    assert_null(snapped[0].snapshot);
    assert_int_equal(differing, 0);
}

/* Changes wait for the batch of their part, or take it back; others go on. */
static void a_batch_is_read_before_one_of_its_entries_changes(void **state) {
    keys_set(1000);
    random_seed(3);
    do {
        if (snapped[0].snapshot) snapped_end(&snapped[0]);
        snapped_start(&snapped[0], NULL);
    } while (!snapped[0].lends);
    taken_back = waited_for = 0;
    while (snapped[0].batch_count < 2) data_view_lend_step(snapped[0].snapshot);
    assert_false(snapped_read(&snapped[0], 0));
    char line[64];
    struct slice key = entry_key(snapped[0].batches[0]->entry[0]);
    snprintf(line, sizeof line, "SET %.*s later", (int)key.len, key.data);
    run(line);
    assert_int_equal(waited_for, 1);
    key = entry_key(snapped[0].batches[0]->entry[0]);
    snprintf(line, sizeof line, "DEL %.*s", (int)key.len, key.data);
    run(line);
    assert_int_equal(taken_back, 1);
    assert_int_equal(data_view_batches(snapped[0].snapshot), 0);
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    assert_int_equal(differing, 0);
    assert_int_equal(store_settings.lending, 0);
}

/* Tables that left are freed with the last batch that was lent before, not with the snapshot. */
static void tables_of_flushed_keys_are_freed_with_their_last_batch(void **state) {
    keys_set(200);
    size_t full = mem_used();
    do {
        if (snapped[0].snapshot) snapped_end(&snapped[0]);
        snapped_start(&snapped[0], NULL);
    } while (!snapped[0].lends);
    while (data_view_given(snapped[0].snapshot) < data_view_keys(snapped[0].snapshot)) {
        if (snapped[0].batch_count == BATCHES) snapped_reader_does_something(&snapped[0]);
        for (struct lent_batch *b; (b = data_view_returned_batch(snapped[0].snapshot));) data_view_batch_ended(b);
        if (snapped[0].batch_count < BATCHES) data_view_lend_step(snapped[0].snapshot);
    }
    assert_true(snapped[0].batch_count > 0);
    run("FLUSHALL SYNC");
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    assert_int_equal(differing, 0);
    assert_true(mem_used() < full);
}

/* The tables are those of the start. What the same database gets later leaves at once. */
static void tables_that_a_batch_is_not_of_are_not_kept(void **state) {
    keys_set(2000);
    do {
        if (snapped[0].snapshot) snapped_end(&snapped[0]);
        snapped_start(&snapped[0], NULL);
    } while (!snapped[0].lends);
    data_view_lend_step(snapped[0].snapshot);
    assert_true(snapped[0].batch_count == 1);
    run("FLUSHDB SYNC");
    size_t departed = departed_memory();
    assert_true(departed > 0);
    for (int round = 0; round < 3; round++) {
        keys_set(2000);
        run("FLUSHDB SYNC");
        assert_int_equal(departed_memory(), departed);
    }
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    assert_int_equal(differing, 0);
    assert_int_equal(departed_memory(), 0);
}

/* Its tables stay until the batch is read, also if it is the first one and lower slots have no keys. */
static void a_slot_may_be_dropped_while_a_batch_has_its_keys(void **state) {
    if (!db_is_per_slot(client->db)) return;
    for (int i = 0; i < 50; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET {tag}%d first", i);
        run(line);
    }
    unsigned slot = hash_slot(SLICE("{tag}"));
    do {
        if (snapped[0].snapshot) snapped_end(&snapped[0]);
        snapped_start(&snapped[0], NULL);
    } while (!snapped[0].lends);
    while (!snapped[0].batch_count) data_view_lend_step(snapped[0].snapshot);
    assert_int_equal(snapped[0].batches[0]->slot, slot);
    assert_false(snapped_read(&snapped[0], 0));
    keyspace_drop_slot(server.keyspace, slot, false);
    for (int i = 50; i < 100; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET {tag}%d other", i);
        run(line);
    }
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    assert_int_equal(differing, 0);
}

/* A small collection of long members is lent alone, and a batch has few collections of some kilobytes. */
static void a_batch_takes_little_time(void **state) {
    char line[5000];
    for (int i = 0; i < 300; i++) {
        int len = snprintf(line, sizeof line, "RPUSH l%d", i);
        for (int j = 0; j < 40; j++) len += snprintf(line + len, sizeof line - (size_t)len, " %0100d", j);
        run(line);
    }
    do {
        if (snapped[0].snapshot) snapped_end(&snapped[0]);
        snapped_start(&snapped[0], NULL);
    } while (!snapped[0].lends);
    while (snapped[0].snapshot) {
        for (size_t i = 0; i < snapped[0].batch_count; i++) assert_true(snapped[0].batches[i]->count <= 30);
        snapped_step(&snapped[0], 0);
    }
    assert_int_equal(differing, 0);
}

#define snapshot_test(name) cmocka_unit_test_setup_teardown(name, snapshot_setup, snapshot_teardown)

static void batches_were_read_waited_for_and_taken_back(void **state) {
    assert_true(lent_and_read > 10 && waited_for > 0 && taken_back > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {snapshot_test(a_snapshot_of_nothing_ends_at_once),
                                       snapshot_test(a_table_may_grow_and_shrink_meanwhile),
                                       snapshot_test(tables_of_flushed_keys_are_freed_with_the_last_snapshot),
                                       snapshot_test(each_command_gives_what_it_changes_first),
                                       snapshot_test(a_batch_is_read_before_one_of_its_entries_changes),
                                       snapshot_test(tables_of_flushed_keys_are_freed_with_their_last_batch),
                                       snapshot_test(tables_that_a_batch_is_not_of_are_not_kept),
                                       snapshot_test(a_slot_may_be_dropped_while_a_batch_has_its_keys),
                                       snapshot_test(a_batch_takes_little_time),
                                       snapshot_test(a_snapshot_has_the_keys_of_its_start),
                                       snapshot_test(so_it_has_when_databases_are_emptied_swapped_and_replaced),
                                       cmocka_unit_test(batches_were_read_waited_for_and_taken_back)};
    make = keyspace_new;
    int failures = cmocka_run_group_tests_name("one table", tests, NULL, NULL);
    make = keyspace_new_per_slot;
    failures += cmocka_run_group_tests_name("a table for each slot", tests, NULL, NULL);
    return failures;
}
