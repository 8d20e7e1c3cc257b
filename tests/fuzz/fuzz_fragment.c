/* Fragments of slots with any bytes: a fragment is refused with a reason, or it is loaded as a whole; every key of it
 * belongs to the slots; what was loaded is the same after it was written as fragments and read again. The first byte
 * chooses the slots. A wrong checksum is set right in most inputs, as a hostile peer would do it. */
#include "formats/rdb_fragment.h"
#include "fuzz.h"
#include "lib/hash/crc32c.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "small_values.h"
#include <endian.h>

enum { DATABASES = 2, ALL = 64 /* a first byte from here on: all slots */, OWN_SUM = 250 /* the input's checksum */ };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    small_values_init();
    clock_cache.data_ms = clock_cache.wall_ms = INT64_C(1) << 40;
    return 0;
}

struct context {
    unsigned modulus; /* keys of slots with this remainder … */
    size_t seen;
};
static bool slot_belongs(void *context, unsigned slot) {
    const struct context *all = context;
    return !all->modulus || slot % all->modulus == 0;
}
static void key_read(void *context, struct db *db, const struct entry *entry) {
    struct context *all = context;
    FUZZ_CHECK(slot_belongs(all, hash_slot(entry_key(entry))), "a key of another slot");
    all->seen++;
}

static size_t keys_of(struct keyspace *keyspace) {
    size_t sum = 0;
    for (int i = 0; i < DATABASES; i++) sum += db_size(keyspace_db(keyspace, i));
    return sum;
}

static int load(struct slice bytes, struct keyspace *keyspace, struct context *context,
                struct rdb_load_result *result) {
    struct rdb_fragment_params params = {.slot_belongs = slot_belongs, .key_read = key_read, .context = context};
    return rdb_fragment_load(bytes, keyspace, &params, result);
}

/* Writes all keys as fragments and loads these into another keyspace. */
static void copy(struct keyspace *from, struct keyspace *to) {
    struct rdb_fragment fragment;
    struct rdb_load_result result;
    size_t too_large = 0;
    struct context all = {0};
    static char memory[RDB_FRAGMENT_MAX];
    rdb_fragment_init(&fragment, memory, sizeof memory);
    for (int id = 0; id < DATABASES; id++) {
        struct db_iterator *it = db_iterate(keyspace_db(from, id), -1);
        for (struct entry *entry; (entry = db_iterate_next(it));) {
            struct db_slot_size one = {1, entry_expire_at(entry) >= 0, 0};
            size_t before = rdb_fragment_len(&fragment);
            if (rdb_fragment_add(&fragment, id, entry, hash_slot(entry_key(entry)), &one)) continue;
            FUZZ_CHECK(rdb_fragment_len(&fragment) == before, "a fragment that changed");
            too_large++;
        }
        db_iterate_end(it);
    }
    if (rdb_fragment_len(&fragment)) {
        int error = load(rdb_fragment_end(&fragment), to, &all, &result);
        FUZZ_CHECK(!error, "what was written is refused: %s", result.reason);
    }
    FUZZ_CHECK(keys_of(to) + too_large == keys_of(from), "%zu of %zu keys", keys_of(to), keys_of(from));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct store_hooks nobody;
    if (!size) return 0;
    uint8_t choice = data[0];
    size_t len = size - 1;
    struct context context = {.modulus = choice < ALL ? 1u + choice : 0};
    char *exact = mem_alloc(len ? len : 1); /* so that reads past the end are detected */
    if (len) memcpy(exact, data + 1, len);
    if (len >= 4 && choice < OWN_SUM) {
        uint32_t sum = htole32(crc32c(0, exact, len - 4));
        memcpy(exact + len - 4, &sum, sizeof sum);
    }
    struct keyspace *keyspace = keyspace_new_per_slot(DATABASES, &nobody);
    struct rdb_load_result result;
    int error = load(slice_make(exact, len), keyspace, &context, &result);
    if (error) {
        FUZZ_CHECK(error < 0 && *result.reason, "no reason");
    } else {
        FUZZ_CHECK(context.seen == result.keys && keys_of(keyspace) == result.keys, "%zu keys", keys_of(keyspace));
        struct keyspace *other = keyspace_new_per_slot(DATABASES, &nobody);
        copy(keyspace, other);
        keyspace_free(other);
    }
    keyspace_free(keyspace);
    mem_free(exact);
    return 0;
}
