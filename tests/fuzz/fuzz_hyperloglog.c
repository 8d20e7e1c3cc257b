/* HyperLogLogs with any bytes: valid ones can be read, changed and made dense without accesses outside their memory;
 * registers never decrease; both forms agree. */
#include "fuzz.h"
#include "lib/structures/hyperloglog.h"
#include "lib/system/memory.h"

static void add_all(struct fuzz_input *in, char *bytes, size_t *len, size_t capacity) {
    uint8_t before[HLL_REGISTERS] = {0}, after[HLL_REGISTERS] = {0};
    bool sound = hll_merge((struct slice){bytes, *len}, before);
    while (in->at < in->end && *len + HLL_GROWTH_MAX <= capacity) {
        size_t sparse_max = fuzz_byte(in) * 4u;
        int changed = hll_add(bytes, len, sparse_max, fuzz_take(in, fuzz_byte(in) % 16));
        FUZZ_CHECK(!sound || changed >= 0 || changed == HLL_MUST_BE_DENSE, "%d", changed);
        FUZZ_CHECK(hll_is_valid((struct slice){bytes, *len}), "%zu bytes", *len);
    }
    if (!sound) return;
    FUZZ_CHECK(hll_merge((struct slice){bytes, *len}, after), "an addition has damaged it");
    for (int i = 0; i < HLL_REGISTERS; i++) FUZZ_CHECK(after[i] >= before[i], "register %d shrank", i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, data + size};
    size_t given = fuzz_byte(&in) * 4u, capacity = HLL_DENSE_SIZE + 4096, len;
    struct slice start = fuzz_take(&in, given);
    char *bytes = mem_alloc(capacity), *dense = mem_alloc(HLL_DENSE_SIZE),
         *exact = mem_alloc(start.len ? start.len : 1);
    /* Reads from an allocation of exactly that size. */
    if (start.len) memcpy(exact, start.data, start.len);
    uint8_t registers[HLL_REGISTERS] = {0}, again[HLL_REGISTERS] = {0};
    if (hll_is_valid((struct slice){exact, start.len})) {
        if (hll_merge((struct slice){exact, start.len}, registers)) {
            hll_estimate(registers);
            if (!hll_is_dense((struct slice){exact, start.len})) {
                FUZZ_CHECK(hll_to_dense((struct slice){exact, start.len}, dense), "sound, but cannot be made dense");
                FUZZ_CHECK(hll_merge((struct slice){dense, HLL_DENSE_SIZE}, again) &&
                               memcmp(registers, again, sizeof again) == 0,
                           "dense differs");
            }
        }
        memcpy(bytes, exact, len = start.len);
    } else {
        hll_make_empty(bytes);
        len = HLL_SPARSE_EMPTY_SIZE;
    }
    add_all(&in, bytes, &len, capacity);
    mem_free(bytes), mem_free(dense), mem_free(exact);
    return 0;
}
