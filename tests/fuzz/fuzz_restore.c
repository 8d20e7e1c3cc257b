/* Values as RDB files and RESTORE bring them, of any bytes: damage is refused and leaves nothing behind; what is accepted can be written down, and read again to
 * the same. */
#include "fuzz.h"
#include "lib/memory.h"
#include "persist/rdb.h"
#include "store/types.h"

static struct keyspace *keyspace;
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const struct store_hooks nobody;
    encoding_limits = (struct encoding_limits){.hash_listpack_entries = 8, .hash_listpack_value = 16, .set_intset_entries = 8, .set_listpack_entries = 8,
                                               .set_listpack_value = 16, .zset_listpack_entries = 8, .zset_listpack_value = 16, .list_listpack_size = 64,
                                               .list_compress_depth = 1};
    store_types_register();
    keyspace = keyspace_new(2, &nobody);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct slice key = {"key", 3};
    struct db *db = keyspace_db(keyspace, 0), *other = keyspace_db(keyspace, 1);
    char *exact = mem_alloc(size ? size : 1); /* so that a step beyond is seen */
    if (size) memcpy(exact, data, size);
    struct rdb_reader in = {.at = exact, .end = exact + size};
    struct entry *entry = rdb_read_value(&in, db, key);
    FUZZ_CHECK((entry != NULL) == (db_size(db) == 1), "%zu keys", db_size(db));
    if (entry) {
        struct memory_output once, twice;
        memory_output_init(&once);
        memory_output_init(&twice);
        rdb_write_value(&once.out, entry);
        struct slice written = memory_output_slice(&once);
        struct rdb_reader again = {.at = written.data, .end = written.data + written.len};
        struct entry *copy = rdb_read_value(&again, other, key);
        FUZZ_CHECK(copy, "what was written cannot be read");
        FUZZ_CHECK(again.at == again.end, "%zu bytes are left", (size_t)(again.end - again.at));
        FUZZ_CHECK(entry_type(copy) == entry_type(entry), "another type");
        rdb_write_value(&twice.out, copy);
        FUZZ_CHECK(memory_output_slice(&twice).len == written.len || entry_encoding(copy) == ENCODING_HASHTABLE, "another length");
        memory_output_free(&once);
        memory_output_free(&twice);
        db_delete(other, key, false);
        db_delete(db, key, false);
    }
    mem_free(exact);
    return 0;
}
