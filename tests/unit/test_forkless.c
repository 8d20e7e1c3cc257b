/* Saves without fork: their file is loaded and compared with a copy made at the start, while random commands are
 * executed and snapshots are taken. What the owner of a save asks for, and values that are lent to the thread. */
#include "data_view_copies.h"
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "lib/system/background.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "persistence/forkless.h"
#include "persistence/lent_values.h"
#include "persistence/persistence.h"
#include "server/process/child.h"
#include "store/types.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Saves and their copies --- */

static struct hashtable *saved_copies; /* NULL: no save is running */
static enum saved_end { SAVE_NONE, SAVE_DONE, SAVE_FAILED, SAVE_CANCELLED } saved_end;
static unsigned saves_done, saves_cancelled;
static char temporary[] = "/tmp/test_forkless-XXXXXX";

static void each_key(struct keyspace *keyspace, void (*visit)(int db, const struct entry *entry)) {
    for (int i = 0; i < keyspace_databases(keyspace); i++) {
        struct db *db = keyspace_db(keyspace, i);
        for (int slot = -1; slot < (keyspace_hidden_slots() ? HASH_SLOTS : 0); slot++) {
            if (slot >= 0 && !keyspace_slot_is_hidden((unsigned)slot)) continue;
            struct db_iterator *it = db_iterate(db, slot);
            for (const struct entry *entry; (entry = db_iterate_next(it));) visit(i, entry);
            db_iterate_end(it);
        }
    }
}

static void saved_copy(int db, const struct entry *entry) {
    bool added = hashtable_add(saved_copies, copied_new(db, entry, copied_write_value));
    assert_true(added);
}
static int file_begin(struct background_save *save, struct sink *sink) {
    int fd = open("forkless.rdb", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return -errno;
    sink_init_fd(sink, fd);
    sink->checksum = true;
    return 0;
}
static int file_end(struct background_save *save, struct sink *sink, int error) {
    if (!error) error = sink_flush(sink);
    sink_free(sink);
    close(sink->fd);
    return error;
}
static void saved_done(struct background_save *save, int status, int signal) {
    saved_end = signal ? SAVE_CANCELLED : status ? SAVE_FAILED : SAVE_DONE;
}
static const struct background_save_ops file_ops = {.begin = file_begin, .end = file_end, .done = saved_done};
static struct background_save saving = {.ops = &file_ops, .kind = CHILD_RDB};
static void save_start(void) {
    saved_copies = hashtable_new(&copies_type);
    each_key(server.keyspace, saved_copy);
    saved_end = SAVE_NONE;
    forkless_batch_parts = 1 + random_below(random_below(2) ? 3 : LENT_PARTS);
    assert_int_equal(background_save_start(&saving), 0);
    assert_int_equal(saving.keys_total, hashtable_size(saved_copies));
    assert_int_equal(child_kind(), CHILD_RDB);
    assert_int_equal(child_progress().keys_total, hashtable_size(saved_copies));
}

static size_t saved_same;
static void saved_compare(int db, const struct entry *entry) {
    struct copied *now = copied_new(db, entry, copied_write_value),
                  *then = hashtable_find(saved_copies, copied_key(now));
    if (then && copied_same(then, now)) {
        saved_same++;
    } else {
        differing++;
        print_message("file, db %d, %.*s: %s\n", db, (int)entry_key(entry).len, entry_key(entry).data,
                      then ? "changed" : "was not there");
    }
    mem_free(now);
}

static void save_check_file(void) {
    struct memory_output file;
    struct source source;
    struct rdb_load_result result = {0};
    memory_output_init(&file);
    assert_int_equal(file_read("forkless.rdb", 1 << 30, &file.out), 0);
    source_init_memory(&source, memory_output_slice(&file));
    struct keyspace *loaded = make(16, &fixture_hooks);
    int error = rdb_load(&source, loaded, &(struct rdb_load_params){0}, &result);
    if (error) fail_msg("the file cannot be loaded: %s", result.reason);
    saved_same = 0;
    each_key(loaded, saved_compare);
    assert_int_equal(saved_same + differing, hashtable_size(saved_copies));
    for (int i = 0; i < keyspace_databases(loaded); i++) db_flush(keyspace_db(loaded, i), false);
    keyspace_free(loaded);
    source_free(&source);
    memory_output_free(&file);
}
static void save_ended(void) {
    assert_int_equal(child_kind(), CHILD_NONE);
    assert_false(forkless_running());
    hashtable_free(saved_copies);
    saved_copies = NULL;
}

static void save_step(void) {
    if (forkless_step()) return;
    assert_int_equal(saved_end, SAVE_DONE);
    save_check_file();
    save_ended();
    saves_done++;
}
static void save_cancel(bool waits) {
    if (waits)
        child_kill_wait();
    else
        for (child_kill(); forkless_running();) forkless_step();
    /* It may have come too late: the file is complete then. */
    if (saved_end == SAVE_DONE)
        save_check_file();
    else
        assert_int_equal(saved_end, SAVE_CANCELLED);
    save_ended();
    saves_cancelled++;
}

static void saves_do_something(void) {
    if (!saved_copies) {
        if (random_below(20) == 0) save_start();
    } else if (random_below(1500) == 0) {
        save_cancel(random_below(2));
    } else {
        save_step();
    }
}
static void all_do_something(void) {
    snapshots_do_something();
    saves_do_something();
}
static void drive_with_saves(unsigned seed) {
    drive(seed, 4000, seed % 2, all_do_something);
    while (saved_copies) save_step();
    if (differing) fail_msg("seed %u", seed);
    execute("FLUSHALL");
}

/* --- Tests --- */

static int save_teardown(void **state) {
    if (saved_copies) save_cancel(true);
    return snapshot_teardown(state);
}

/* Small hashes, sets and sorted sets are tables. */
static void small_tables(bool on) {
    static struct encoding_limits usual;
    if (!on) {
        encoding_limits = usual;
        return;
    }
    usual = encoding_limits;
    encoding_limits.hash_listpack_entries = encoding_limits.set_listpack_entries = 2;
    encoding_limits.zset_listpack_entries = encoding_limits.set_intset_entries = 2;
    encoding_limits.list_listpack_size = 3;
    encoding_limits.stream_node_entries = 3;
}

static void a_file_has_the_keys_of_its_start(void **state) {
    saves_done = saves_cancelled = 0;
    for (unsigned seed = 2001; seed <= 2000 + seeds(); seed++) {
        if (seed % 2) small_tables(true);
        drive_with_saves(seed);
        if (seed % 2) small_tables(false);
    }
    assert_true(saves_done > seeds());
    assert_true(seeds() < 6 || saves_cancelled > 0);
}

/* Collections of all sizes are lent one by one. */
static void lend_all(bool on) {
    small_tables(on);
    forkless_lend_min = on ? 1 : FORKLESS_LEND_MIN;
    forkless_lend_min_changed = on ? 1 : LENT_MIN_CHANGED;
}
static void a_file_has_what_commands_change_while_a_thread_reads_it(void **state) {
    uint64_t lent = forkless_stats().lent;
    lend_all(true);
    saves_done = 0;
    for (unsigned seed = 3001; seed <= 3000 + seeds(); seed++) {
        drive_with_saves(seed);
    }
    lend_all(false);
    assert_true(saves_done > seeds());
    assert_true(forkless_stats().lent > lent + 100);
}

/* A reference that the file holds is not what a command changes. */
static void a_large_string_may_change_before_it_is_written(void **state) {
    enum { LEN = 100000 };
    char *value = mem_alloc(LEN);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < LEN; i++) value[i] = (char)('a' + (i * (round + 1)) % 26);
        run_words(3, (struct slice[]){SLICE("SET"), SLICE("s1"), {value, LEN}});
        run_words(3, (struct slice[]){SLICE("RPUSH"), SLICE("l1"), {value, LEN}});
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), SLICE("f"), {value, LEN}});
        save_start();
        run("SETRANGE s1 500 changed");
        save_step();
        run("APPEND s1 more");
        run("LSET l1 0 other");
        run("HDEL h1 f");
        run("SETRANGE s1 0 again");
        run("GETDEL s1");
        while (saved_copies) save_step();
        assert_int_equal(differing, 0);
        run("FLUSHALL");
    }
    mem_free(value);
}

/* Each command that changes a value, when the file has nothing yet. */
static void each_command_leaves_what_it_changes_to_the_file(void **state) {
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        random_seed((unsigned)n + 1);
        keys_per_type = 8;
        execute("FLUSHALL SYNC");
        fill(600);
        if (n % 2) time_set(clock_ms() + 500); /* keys and fields have expired, but are there */
        save_start();
        execute(commands[n]);
        while (saved_copies) save_step();
        if (differing) fail_msg("%s", commands[n]);
    }
}

/* --- What an owner of a save asks for --- */

static off_t saved_size(void) {
    struct stat status;
    assert_int_equal(stat("forkless.rdb", &status), 0);
    return status.st_size;
}
static void save_all(void) {
    saved_end = SAVE_NONE;
    assert_int_equal(background_save_start(&saving), 0);
    while (forkless_step()) continue;
    assert_int_equal(saved_end, SAVE_DONE);
}

static void a_save_is_compressed_unless_its_owner_does_not_want_that(void **state) {
    enum { LEN = 3000 };
    char value[LEN];
    memset(value, 'a', LEN);
    for (int i = 0; i < 20; i++) {
        char key[8];
        size_t len = (size_t)snprintf(key, sizeof key, "s%d", i);
        run_words(3, (struct slice[]){SLICE("SET"), {key, len}, {value, i % 2 ? LEN : LEN / 10}});
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), {key, len}, {value, LEN / 30}});
    }
    save_all();
    assert_true(saved_size() < 10 * LEN);
    saving.content.uncompressed = true;
    save_start();
    while (saved_copies) save_step();
    assert_true(saved_size() > 11 * LEN);
    assert_int_equal(differing, 0);
    saving.content.uncompressed = false;
}

static void a_save_without_keys_has_none(void **state) {
    keys_set(1000);
    saving.content.without_keys = true;
    saved_copies = hashtable_new(&copies_type);
    save_all();
    assert_int_equal(saving.keys_total, 0);
    save_check_file();
    save_ended();
    assert_int_equal(differing, 0);
    saving.content.without_keys = false;
}

static int cannot_begin(struct background_save *save, struct sink *sink) {
    return -EROFS;
}
static int must_not_end(struct background_save *save, struct sink *sink, int error) {
    fail();
    return error;
}
static void a_save_that_cannot_begin_fails(void **state) {
    static const struct background_save_ops ops = {.begin = cannot_begin, .end = must_not_end, .done = saved_done};
    keys_set(1000);
    saving.ops = &ops;
    saved_end = SAVE_NONE;
    assert_int_equal(background_save_start(&saving), 0);
    assert_int_equal(background_save_start(&saving), -EBUSY);
    while (forkless_step()) continue;
    assert_int_equal(saved_end, SAVE_FAILED);
    assert_int_equal(child_kind(), CHILD_NONE);
    saving.ops = &file_ops;
}

/* A reader that takes nothing more. */
static _Atomic bool reader_waits, reader_gone;
static int ended_with;
static int write_waits(struct sink *sink, const void *bytes, size_t len) {
    reader_waits = true;
    while (!reader_gone) usleep(100);
    assert_false(background_save_goes_on(&saving));
    return -EPIPE;
}
static int begin_stream(struct background_save *save, struct sink *sink) {
    static const struct sink_ops ops = {.write = write_waits};
    sink_init(sink, &ops, NULL);
    return 0;
}
static int end_stream(struct background_save *save, struct sink *sink, int error) {
    sink_free(sink);
    return ended_with = error;
}
static void stop_stream(struct background_save *save) {
    reader_gone = true;
}
static void a_save_whose_reader_waits_can_be_ended(void **state) {
    static const struct background_save_ops ops = {
        .begin = begin_stream, .end = end_stream, .stop = stop_stream, .done = saved_done};
    keys_set(30000);
    saving.ops = &ops;
    for (int round = 0; round < 4; round++) {
        reader_waits = reader_gone = false;
        saved_end = SAVE_NONE;
        assert_int_equal(background_save_start(&saving), 0);
        while (!reader_waits) assert_true(forkless_step());
        for (int i = 0; i < (round & 1 ? 10000 : 0); i++) assert_true(forkless_step());
        if (round & 2)
            child_kill_wait();
        else
            for (child_kill(); forkless_step();) continue;
        assert_int_equal(saved_end, SAVE_CANCELLED);
        assert_int_equal(ended_with, -EPIPE);
        assert_int_equal(child_kind(), CHILD_NONE);
    }
    saving.ops = &file_ops;
}

/* A file whose writes wait until the gate opens. */
static _Atomic bool gate_open;
static int write_at_gate(struct sink *sink, const void *bytes, size_t len) {
    while (!gate_open && background_save_goes_on(&saving)) usleep(100);
    ssize_t written = write(sink->fd, bytes, len);
    return written == (ssize_t)len ? 0 : -EIO;
}
static int begin_at_gate(struct background_save *save, struct sink *sink) {
    static const struct sink_ops ops = {.write = write_at_gate};
    int fd = open("forkless.rdb", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return -errno;
    sink_init(sink, &ops, NULL);
    sink->fd = fd;
    return 0;
}
static const struct background_save_ops gate_ops = {.begin = begin_at_gate, .end = file_end, .done = saved_done};

/* More than the reader buffers. */
enum { LENT_FIELDS = 8000, LENT_VALUE = 1000 };
static void large_hash(void) {
    char field[16], value[LENT_VALUE];
    memset(value, 'v', sizeof value);
    for (int i = 0; i < LENT_FIELDS; i++) {
        size_t len = (size_t)snprintf(field, sizeof field, "f%d", i);
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), {field, len}, {value, sizeof value}});
    }
}

/* Runs a command while the thread reads the hash, and can go on only if the main thread waits for it. */
static void while_lent(const char *command, const char *reply) {
    run("FLUSHALL SYNC");
    run("SET s1 v");
    large_hash();
    gate_open = false;
    saving.ops = &gate_ops;
    saving.content.uncompressed = true;
    save_start();
    for (int i = 0; i < 1000; i++) assert_true(forkless_step());
    assert_string_equal(run(command), reply);
    assert_true(forkless_step());
    gate_open = true;
    while (saved_copies) save_step();
    assert_int_equal(differing, 0);
    saving.content.uncompressed = false;
    saving.ops = &file_ops;
}
static void a_lent_value_changes_after_it_was_read(void **state) {
    while_lent("HSET h1 f7999 new", ":0\r\n");
    while_lent("HDEL h1 f1 f2", ":2\r\n");
    while_lent("HINCRBY h1 n 1", ":1\r\n");
    while_lent("HPEXPIRE h1 1 FIELDS 1 f1", "*1\r\n:1\r\n");
}
static void a_lent_value_is_deleted_and_replaced_at_once(void **state) {
    while_lent("DEL h1", ":1\r\n");
    while_lent("UNLINK h1", ":1\r\n");
    while_lent("SET h1 text", "+OK\r\n");
    while_lent("RENAME h1 h2", "+OK\r\n");
    while_lent("RENAME s1 h1", "+OK\r\n");
    while_lent("EXPIRE h1 100", ":1\r\n");
    while_lent("PEXPIRE h1 -1", ":1\r\n");
    while_lent("COPY s1 h1 REPLACE", ":1\r\n");
    while_lent("SUNIONSTORE h1 none", ":0\r\n");
    while_lent("MOVE h1 1", ":1\r\n");
    while_lent("FLUSHALL SYNC", "+OK\r\n");
    while_lent("SWAPDB 0 1", "+OK\r\n");
}
static void a_save_that_lends_can_be_ended(void **state) {
    for (int round = 0; round < 4; round++) {
        run("FLUSHALL SYNC");
        large_hash();
        gate_open = false;
        saving.ops = &gate_ops;
        saving.content.uncompressed = true;
        save_start();
        for (int i = 0; i < 1000; i++) assert_true(forkless_step());
        if (round & 1) run("DEL h1");
        save_cancel(round & 2);
        assert_string_equal(run("HSET h1 f1 v2"), round & 1 ? ":1\r\n" : ":0\r\n");
    }
    saving.content.uncompressed = false;
    saving.ops = &file_ops;
    assert_int_equal(differing, 0);
}

#define save_test(name) cmocka_unit_test_setup_teardown(name, snapshot_setup, save_teardown)
static int with_threads(void **state) {
    return background_start(NULL);
}
static int without_threads(void **state) {
    background_stop();
    return 0;
}

int main(void) {
    const struct CMUnitTest saves[] = {save_test(a_large_string_may_change_before_it_is_written),
                                       save_test(a_save_is_compressed_unless_its_owner_does_not_want_that),
                                       save_test(a_save_without_keys_has_none),
                                       save_test(a_save_that_cannot_begin_fails),
                                       save_test(each_command_leaves_what_it_changes_to_the_file),
                                       save_test(a_file_has_the_keys_of_its_start),
                                       save_test(a_file_has_what_commands_change_while_a_thread_reads_it)};
    const struct CMUnitTest loans[] = {save_test(a_lent_value_changes_after_it_was_read),
                                       save_test(a_lent_value_is_deleted_and_replaced_at_once),
                                       save_test(a_save_that_lends_can_be_ended)};
    const struct CMUnitTest streams[] = {save_test(a_save_whose_reader_waits_can_be_ended)};
    if (!mkdtemp(temporary) || chdir(temporary) != 0) return 1;
    log_level = LOG_LEVEL_NOTHING;
    persistence_settings.forkless_buffer_limit = INT64_MAX; /* there is no event loop that could wait */
    make = keyspace_new;
    int failures = cmocka_run_group_tests_name("one table", saves, NULL, NULL);
    failures += cmocka_run_group_tests_name("one table, by a thread", saves, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("streams", streams, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("loans", loans, with_threads, without_threads);
    make = keyspace_new_per_slot;
    failures += cmocka_run_group_tests_name("a table for each slot, by a thread", saves, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("a table for each slot", saves, NULL, NULL);
    unlink("forkless.rdb");
    if (chdir("/") != 0 || rmdir(temporary) != 0) return 1;
    return failures;
}
