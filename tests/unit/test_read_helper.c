/* Large strings of an RDB file are read by two threads: the data is the same, corruption is found, and code that runs
 * while the file is loaded sees complete values. With a single CPU one thread reads them, with the same results. */
#include "unit.h"
#include "formats/rdb_file.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "store/types.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { KEYS = 300, LARGEST = 3 << 20, INTERVAL = 100000 };

static char noise[LARGEST + KEYS];
static struct keyspace *original;
static FILE *file;
static long file_size;

/* Small values, some just above the limits, and a few that take many pieces. */
static size_t length_of(size_t i) {
    return i % 50 == 49 ? LARGEST - i : i % 7 == 0 ? 10 : i * 211;
}

static int setup(void **state) {
    clock_update();
    store_types_register();
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof noise; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (char)(random >> 56);
    }
    original = keyspace_new(1, NULL);
    struct db *db = keyspace_db(original, 0);
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        struct slice name = {key, (size_t)snprintf(key, sizeof key, "key:%zu", i)};
        struct entry *entry = db_set_string(db, name, (struct slice){noise + i, length_of(i)}, NULL, false);
        if (i % 4 == 0) db_set_expire(db, entry, 1);
    }
    file = tmpfile();
    struct sink sink;
    struct rdb_save_params params = {0};
    sink_init_fd(&sink, fileno(file));
    sink.checksum = true;
    if (rdb_save(&sink, original, &params) != 0) return -1;
    file_size = (long)sink_offset(&sink);
    sink_free(&sink);
    return background_start(NULL);
}
static int teardown(void **state) {
    background_stop();
    fclose(file);
    keyspace_free(original);
    return 0;
}

static void assert_value(struct db *from, const struct entry *entry) {
    struct entry *there = db_find(from, entry_key(entry), LOOKUP_NOTOUCH | LOOKUP_NOEXPIRE);
    char a[32], b[32];
    assert_non_null(there);
    struct slice mine = entry_string(entry, a), its = entry_string(there, b);
    assert_true(slice_equal(mine, its));
}
/* Each key of `part` is in `whole` with the same value. */
static void assert_part_of(struct keyspace *part, struct keyspace *whole) {
    struct db_iterator *it = db_iterate(keyspace_db(part, 0), -1);
    for (struct entry *entry; (entry = db_iterate_next(it));) assert_value(keyspace_db(whole, 0), entry);
    db_iterate_end(it);
}

static struct keyspace *copy;
static size_t turns, turns_max;
static bool check_part(struct source *source) {
    assert_part_of(copy, original);
    return ++turns < turns_max;
}

/* Loads the file into `copy`. It has `file_size` bytes when it is opened and `left` bytes when it is read. */
static int load(const struct rdb_load_params *params, long left, struct rdb_load_result *result) {
    struct source source;
    turns = 0;
    if (!copy) copy = keyspace_new(1, NULL);
    assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
    source_init_fd(&source, fileno(file));
    source.progress = check_part;
    source.progress_interval = INTERVAL;
    if (left < file_size) assert_int_equal(ftruncate(fileno(file), left), 0);
    int error = rdb_load(&source, copy, params, result);
    assert_int_equal(source.helper != NULL, background_is_parallel(BACKGROUND_READ));
    if (error == 0) assert_true(source_at_end(&source));
    source_free(&source);
    return error;
}
static void forget_copy(void) {
    keyspace_free(copy);
    copy = NULL;
}

TEST(values_are_complete_whenever_other_code_runs) {
    for (int checksum = 0; checksum < 2; checksum++) {
        struct rdb_load_result result;
        turns_max = SIZE_MAX;
        assert_int_equal(load(&(struct rdb_load_params){.ignore_checksum = !checksum}, file_size, &result), 0);
        assert_true(turns > 10);
        assert_int_equal(result.keys, KEYS);
        assert_int_equal(result.offset, file_size);
        assert_int_equal(db_size(keyspace_db(copy, 0)), KEYS);
        assert_part_of(copy, original);
        forget_copy();
    }
}

/* Values are freed while they are being read. */
TEST(values_that_are_dropped_do_no_harm) {
    struct rdb_load_result result;
    turns_max = SIZE_MAX;
    for (int i = 0; i < 2; i++)
        assert_int_equal(load(&(struct rdb_load_params){.duplicates = RDB_DUPLICATE_REPLACES}, file_size, &result), 0);
    assert_int_equal(db_size(keyspace_db(copy, 0)), KEYS);
    assert_part_of(copy, original);
    assert_int_equal(load(&(struct rdb_load_params){.duplicates = RDB_DUPLICATE_REFUSED}, file_size, &result), -EEXIST);
    assert_part_of(copy, original);
    forget_copy();
}

TEST(expired_values_are_dropped_while_they_are_read) {
    struct rdb_load_result result;
    turns_max = SIZE_MAX;
    assert_int_equal(load(&(struct rdb_load_params){.skip_expired = true}, file_size, &result), 0);
    assert_int_equal(result.expired, KEYS / 4);
    assert_int_equal(db_size(keyspace_db(copy, 0)), KEYS - KEYS / 4);
    forget_copy();
}

TEST(loading_ends_where_it_is_cancelled) {
    struct rdb_load_result result;
    turns_max = 20;
    assert_int_equal(load(&(struct rdb_load_params){0}, file_size, &result), -ECANCELED);
    assert_int_equal(turns, turns_max);
    assert_part_of(copy, original);
    forget_copy();
}

TEST(a_changed_byte_is_found_by_the_checksum) {
    turns_max = SIZE_MAX;
    for (int part = 1; part < 5; part++) {
        struct rdb_load_result result;
        char byte;
        /* Most of the file consists of large values. */
        off_t at = file_size * part / 5;
        assert_int_equal(pread(fileno(file), &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fileno(file), &byte, 1, at), 1);
        struct keyspace *unchanged = original;
        original = copy = keyspace_new(1, NULL);
        assert_int_equal(load(&(struct rdb_load_params){0}, file_size, &result), -EILSEQ);
        original = unchanged;
        forget_copy();
        byte ^= 1;
        assert_int_equal(pwrite(fileno(file), &byte, 1, at), 1);
    }
}

/* The RDB file is the beginning of a larger file, as in an append-only file. The bytes after it are read from the
 * correct offset: the helper does not change the file position of the descriptor. */
TEST(the_bytes_behind_the_file_are_read_next) {
    enum { BEFORE = 7, BEHIND = 100000 };
    static char bytes[BEHIND];
    FILE *larger = tmpfile();
    char *whole = mem_alloc((size_t)file_size);
    struct source source;
    struct rdb_load_result result;
    assert_int_equal(pread(fileno(file), whole, (size_t)file_size, 0), file_size);
    assert_int_equal(fwrite(noise, 1, BEFORE, larger), BEFORE);
    assert_int_equal(fwrite(whole, 1, (size_t)file_size, larger), file_size);
    assert_int_equal(fwrite(noise, 1, BEHIND, larger), BEHIND);
    assert_int_equal(fflush(larger), 0);
    mem_free(whole);
    assert_int_equal(lseek(fileno(larger), BEFORE, SEEK_SET), BEFORE);
    copy = keyspace_new(1, NULL);
    turns = 0;
    turns_max = SIZE_MAX;
    source_init_fd(&source, fileno(larger));
    source.progress = check_part;
    source.progress_interval = INTERVAL;
    assert_int_equal(rdb_load(&source, copy, &(struct rdb_load_params){0}, &result), 0);
    assert_int_equal(result.offset, file_size);
    assert_part_of(original, copy);
    assert_true(source_read(&source, bytes, BEHIND));
    assert_memory_equal(bytes, noise, BEHIND);
    assert_int_equal(source_offset(&source), file_size + BEHIND);
    assert_true(source_at_end(&source));
    source_free(&source);
    fclose(larger);
    forget_copy();
}

/* This test and the next one shorten the file, so they come last.
 *
 * The file was longer when the length of the value was checked. The missing bytes are zeros. */
TEST(a_file_that_shrinks_is_reported) {
    struct rdb_load_result result;
    long left = file_size / 2;
    turns_max = SIZE_MAX;
    assert_int_equal(load(&(struct rdb_load_params){0}, left, &result), -EINVAL);
    assert_string_equal(result.reason, "Unexpected EOF reading RDB file");
    assert_int_equal(result.offset, left);
    forget_copy();
}

/* The end may be in the length of a value, or the length of a value may exceed the rest of the file. */
TEST(a_truncated_file_is_reported_at_its_end) {
    turns_max = SIZE_MAX;
    for (long left = file_size / 2; left > file_size / 4; left -= file_size / 50 + 1) {
        struct rdb_load_result result;
        assert_int_equal(ftruncate(fileno(file), left), 0);
        assert_int_equal(load(&(struct rdb_load_params){0}, left, &result), -EINVAL);
        assert_string_equal(result.reason, "Unexpected EOF reading RDB file");
        assert_int_equal(result.offset, left);
        forget_copy();
    }
}

int main(void) {
    return RUN_TESTS_WITH(setup, teardown);
}
