/* RDB files with any bytes: corrupt files are rejected with a reason; memory is limited by the size of the file; an
 * accepted file yields the same keys for any fragmentation, with one table or a table for each hash slot, and after
 * saving and loading again. */
#include "formats/rdb_file.h"
#include "fuzz.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "small_values.h"
#include "trickle.h"

enum { DATABASES = 4, MEMORY_BASE = 24 * 1024 * 1024, MEMORY_FACTOR = 512 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    small_values_init();
    clock_cache.data_ms = clock_cache.wall_ms = INT64_C(1)
                                                << 40; /* between the expiry times of keys, so that some have expired */
    return 0;
}

static int load(struct keyspace *keyspace, struct slice file, bool connection, bool check,
                struct rdb_load_result *result) {
    struct rdb_load_params params = {.relaxed_version = true, .ignore_checksum = true, .skip_expired = check};
    struct source source;
    struct slice rest = file;
    size_t before = mem_used();
    if (connection)
        source_init(&source, &trickle_ops, &rest, UINT64_MAX);
    else
        source_init_memory(&source, file);
    int error = rdb_load(&source, keyspace, &params, result);
    FUZZ_CHECK(mem_used() - before <= MEMORY_BASE + MEMORY_FACTOR * file.len, "%zu bytes for a file of %zu",
               mem_used() - before, file.len);
    FUZZ_CHECK(result->offset <= file.len, "an offset behind the file");
    FUZZ_CHECK((error != 0) == (result->reason[0] != '\0'), "error %d, reason '%s'", error, result->reason);
    source_free(&source);
    return error;
}

static size_t keys_of(struct keyspace *keyspace) {
    size_t keys = 0;
    for (int id = 0; id < DATABASES; id++) keys += db_size(keyspace_db(keyspace, id));
    return keys;
}

static int append(struct sink *sink, const void *bytes, size_t len) {
    struct memory_output *file = sink->context;
    output_write(&file->out, slice_make(bytes, len));
    return 0;
}
static const struct sink_ops memory_sink = {.write = append};

static void save_and_load(struct keyspace *keyspace) {
    struct keyspace *copy = keyspace_new(DATABASES, NULL);
    struct rdb_save_params save_params = {.access = RDB_ACCESS_IDLE};
    struct rdb_load_params load_params = {0};
    struct rdb_load_result result;
    struct memory_output file;
    struct sink sink;
    struct source source;
    memory_output_init(&file);
    sink_init(&sink, &memory_sink, &file);
    sink.checksum = true;
    FUZZ_CHECK(rdb_save(&sink, keyspace, &save_params) == 0, "it cannot be saved");
    sink_free(&sink);
    source_init_memory(&source, memory_output_slice(&file));
    int error = rdb_load(&source, copy, &load_params, &result);
    FUZZ_CHECK(error == 0, "what was saved cannot be loaded: %s at %llu", result.reason,
               (unsigned long long)result.offset);
    FUZZ_CHECK(keys_of(copy) == keys_of(keyspace), "%zu keys instead of %zu", keys_of(copy), keys_of(keyspace));
    source_free(&source);
    memory_output_free(&file);
    keyspace_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *exact = mem_alloc(size ? size : 1); /* so that reads past the end are detected */
    if (size) memcpy(exact, data, size);
    struct slice file = {exact, size};
    struct rdb_load_result result;
    struct keyspace *first = keyspace_new(DATABASES, NULL), *second = keyspace_new_per_slot(DATABASES, NULL);
    int error = load(first, file, false, true, &result);
    int other = load(second, file, true, true, &result);
    FUZZ_CHECK((error == 0) == (other == 0), "from memory %d, from a connection %d", error, other);
    if (!error) {
        FUZZ_CHECK(keys_of(first) == keys_of(second), "%zu and %zu keys", keys_of(first), keys_of(second));
        save_and_load(first);
        save_and_load(second);
    }
    keyspace_free(second);
    keyspace_free(first);
    first = keyspace_new(DATABASES, NULL); /* a replica, which keeps expired keys and trusts its primary */
    load(first, file, true, false, &result);
    keyspace_free(first);
    mem_free(exact);
    return 0;
}
