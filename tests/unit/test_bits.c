/* Bit arrays: lib/structures/bits.c against bit-by-bit loops. */
#include "unit.h"
#include "lib/structures/bits.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000, LONGEST = 1500 };
static bool naive_bit(const unsigned char *bytes, uint64_t at) {
    return bytes[at / 8] >> (7 - at % 8) & 1;
}

/* Random bytes in an allocation of exactly that size, so that a sanitizer detects an access past the end. */
static unsigned char *random_row(size_t len, int kind) {
    unsigned char *row = malloc(len ? len : 1);
    for (size_t i = 0; i < len; i++) row[i] = kind == 0 ? 0 : kind == 1 ? 0xff : (unsigned char)rand();
    return row;
}

TEST(counting_and_finding_agree_with_a_loop) {
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = (size_t)rand() % LONGEST;
        unsigned char *row = random_row(len, rand() % 4);
        if (len && rand() % 2) row[(size_t)rand() % len] ^= (unsigned char)(1 << rand() % 8);
        uint64_t ones = 0;
        int64_t first[2] = {-1, -1};
        for (uint64_t i = 0; i < len * 8; i++) {
            bool bit = naive_bit(row, i);
            ones += bit;
            if (first[bit] < 0) first[bit] = (int64_t)i;
        }
        assert_int_equal(bits_count(row, len), ones);
        assert_int_equal(bits_find(row, len, false), first[0]);
        assert_int_equal(bits_find(row, len, true), first[1]);
        free(row);
    }
}

TEST(combining_agrees_with_a_loop) {
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = (size_t)rand() % LONGEST;
        unsigned char *a = random_row(len, 2), *b = random_row(len, 2), *c = random_row(len, 2),
                      *before = random_row(len, 0);
        memcpy(before, a, len);
        enum bits_operation operation = (enum bits_operation)(rand() % 3);
        bits_combine(a, b, len, operation);
        bits_invert(c, b, len);
        for (size_t i = 0; i < len; i++) {
            unsigned char expected = operation == BITS_AND  ? before[i] & b[i]
                                     : operation == BITS_OR ? before[i] | b[i]
                                                            : before[i] ^ b[i];
            assert_int_equal(a[i], expected);
            assert_int_equal(c[i], (unsigned char)~b[i]);
        }
        free(a), free(b), free(c), free(before);
    }
}

TEST(numbers_of_any_width_and_offset_are_read_and_written) {
    for (int round = 0; round < ROUNDS * 5; round++) {
        size_t len = 1 + (size_t)rand() % 40;
        unsigned width = 1 + (unsigned)rand() % 64;
        if (width > len * 8) width = (unsigned)len * 8;
        uint64_t offset = (uint64_t)rand() % (len * 8 - width + 1), expected = 0;
        unsigned char *row = random_row(len, 2), *before = random_row(len, 0);
        for (unsigned i = 0; i < width; i++) expected = expected << 1 | naive_bit(row, offset + i);
        assert_true(bits_get(row, len, offset, width) == expected);
        memcpy(before, row, len);
        uint64_t value = (uint64_t)rand() << 40 ^ (uint64_t)rand() << 20 ^ (uint64_t)rand();
        bits_set(row, offset, width, value);
        for (uint64_t i = 0; i < len * 8; i++) {
            bool inside = i >= offset && i < offset + width;
            assert_int_equal(naive_bit(row, i),
                             inside ? (value >> (width - 1 - (i - offset)) & 1) : naive_bit(before, i));
        }
        free(row), free(before);
    }
}

TEST(bits_behind_the_end_read_as_zeros) {
    unsigned char *row = random_row(2, 1);
    assert_true(bits_get(row, 2, 12, 8) == 0xf0);
    assert_true(bits_get(row, 2, 16, 64) == 0);
    assert_true(bits_get(row, 0, UINT64_C(1) << 40, 1) == 0);
    free(row);
}

int main(void) {
    srand(42);
    return RUN_TESTS();
}
