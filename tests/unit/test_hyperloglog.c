/* HyperLogLogs: setting registers in order with a cursor gives the same bytes as searching from the start; packing,
 * merging and estimating against simple implementations. */
#include "unit.h"
#include "lib/structures/hyperloglog.h"
#include "lib/system/random.h"
#include <math.h>

enum { SPARSE_MAX = 60000 };

/* Registers in clusters, so that runs are created, extended, split and merged. */
static void choose_registers(uint8_t *registers, unsigned chance, unsigned values) {
    bool cluster = false;
    for (int i = 0; i < HLL_REGISTERS; i++) {
        if (random_below(20) == 0) cluster = random_below(chance) == 0;
        registers[i] = cluster && random_below(3) ? (uint8_t)(1 + random_below(values)) : 0;
    }
}
static void set_all(char *bytes, size_t *len, const uint8_t *registers, bool from_place) {
    struct hll_cursor place = {0, 0};
    for (unsigned i = 0; i < HLL_REGISTERS; i++) {
        if (!from_place) place = (struct hll_cursor){0, 0};
        if (registers[i]) assert_true(hll_set(bytes, len, SPARSE_MAX, i, registers[i], &place) >= 0);
    }
}
TEST(setting_in_order_does_not_depend_on_the_cursor) {
    static char one[SPARSE_MAX], other[SPARSE_MAX];
    static uint8_t registers[HLL_REGISTERS], merged[HLL_REGISTERS], expected[HLL_REGISTERS];
    random_seed(11);
    for (int round = 0; round < 12; round++) {
        size_t len = HLL_SPARSE_EMPTY_SIZE, other_len = len;
        hll_make_empty(one);
        hll_make_empty(other);
        memset(expected, 0, sizeof expected);
        for (int layer = 0; layer < 3; layer++) {
            choose_registers(registers, 1 + (unsigned)round, 1 + (unsigned)(round + layer) % 4);
            set_all(one, &len, registers, false);
            set_all(other, &other_len, registers, true);
            assert_int_equal(len, other_len);
            assert_memory_equal(one, other, len);
            for (int i = 0; i < HLL_REGISTERS; i++)
                if (expected[i] < registers[i]) expected[i] = registers[i];
        }
        memset(merged, 0, sizeof merged);
        assert_true(hll_merge((struct slice){one, len}, merged));
        assert_memory_equal(merged, expected, sizeof merged);
    }
}

TEST(dense_registers_are_six_bits_each) {
    static char dense[HLL_DENSE_SIZE];
    static uint8_t registers[HLL_REGISTERS], merged[HLL_REGISTERS];
    random_seed(12);
    for (int i = 0; i < HLL_REGISTERS; i++) registers[i] = (uint8_t)random_below(64);
    memcpy(dense, "HYLL", 4);
    hll_pack(registers, dense);
    for (int i = 0; i < HLL_REGISTERS; i++)
        for (int bit = 0; bit < 6; bit++) {
            int at = i * 6 + bit;
            assert_int_equal(dense[HLL_HEADER + at / 8] >> at % 8 & 1, registers[i] >> bit & 1);
        }
    for (int i = 0; i < HLL_REGISTERS; i++) merged[i] = (uint8_t)(i % 64);
    assert_true(hll_merge((struct slice){dense, sizeof dense}, merged));
    for (int i = 0; i < HLL_REGISTERS; i++) assert_int_equal(merged[i], registers[i] > i % 64 ? registers[i] : i % 64);
}

TEST(an_estimate_is_close_for_every_cardinality) {
    static char bytes[SPARSE_MAX];
    static uint8_t registers[HLL_REGISTERS];
    size_t len = HLL_SPARSE_EMPTY_SIZE;
    hll_make_empty(bytes);
    assert_int_equal(hll_estimate(registers), 0);
    for (uint64_t added = 0, next = 1; next < 300000; next *= 3) {
        for (; added < next; added++) {
            int changed = hll_add(bytes, &len, 3000, slice_make(&added, sizeof added));
            if (changed != HLL_MUST_BE_DENSE) continue;
            static char dense[HLL_DENSE_SIZE];
            assert_true(hll_to_dense((struct slice){bytes, len}, dense));
            memcpy(bytes, dense, len = HLL_DENSE_SIZE);
            added--;
        }
        memset(registers, 0, sizeof registers);
        assert_true(hll_merge((struct slice){bytes, len}, registers));
        assert_true(fabs((double)hll_estimate(registers) - (double)added) <= 1 + (double)added * 0.04);
    }
}
