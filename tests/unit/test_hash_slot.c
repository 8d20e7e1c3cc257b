/* Hash slots against a bit by bit CRC and known values, slots of patterns against keys that match, and Fenwick trees.
 */
#include "unit.h"
#include "lib/hash/hash_slot.h"
#include "lib/structures/fenwick.h"
#include "lib/system/random.h"
#include "lib/text/glob.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned crc_bit_by_bit(const char *text, size_t len) {
    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc ^= (uint16_t)((unsigned char)text[i] << 8);
        for (int bit = 0; bit < 8; bit++) crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

TEST(slots_are_those_of_the_cluster_specification) {
    assert_int_equal(crc_bit_by_bit("123456789", 9), 0x31c3);
    assert_int_equal(hash_slot(SLICE("123456789")), 0x31c3 % HASH_SLOTS);
    assert_int_equal(hash_slot(SLICE("")), 0);
    assert_int_equal(hash_slot(SLICE("foo")), 12182);
    assert_int_equal(hash_slot(SLICE("a")), 15495);
    char key[90];
    for (int i = 0; i < 20000; i++) {
        size_t len = random_below(sizeof(key));
        for (size_t n = 0; n < len; n++) key[n] = (char)random_below(256);
        for (char *brace; (brace = memchr(key, '{', len));) *brace = 'x';
        assert_int_equal(hash_slot((struct slice){key, len}), crc_bit_by_bit(key, len) % HASH_SLOTS);
    }
}

TEST(only_a_hash_tag_is_hashed) {
    unsigned a = hash_slot(SLICE("a"));
    assert_int_equal(hash_slot(SLICE("{a}")), a);
    assert_int_equal(hash_slot(SLICE("x{a}y")), a);
    assert_int_equal(hash_slot(SLICE("x{a}{b}")), a);
    assert_int_equal(hash_slot(SLICE("}{a}")), a);
    assert_int_equal(hash_slot(SLICE("{{a}")), crc_bit_by_bit("{a", 2) % HASH_SLOTS);
    assert_int_equal(hash_slot(SLICE("{}{a}")), crc_bit_by_bit("{}{a}", 5) % HASH_SLOTS);
    assert_int_equal(hash_slot(SLICE("{a")), crc_bit_by_bit("{a", 2) % HASH_SLOTS);
    assert_int_equal(hash_slot(SLICE("x{")), crc_bit_by_bit("x{", 2) % HASH_SLOTS);
}

/* The slot as the specification describes it. */
static unsigned slot_step_by_step(const char *key, size_t len) {
    const char *open = memchr(key, '{', len);
    const char *close = open ? memchr(open, '}', (size_t)(key + len - open)) : NULL;
    return close && close > open + 1 ? crc_bit_by_bit(open + 1, (size_t)(close - open - 1)) % HASH_SLOTS
                                     : crc_bit_by_bit(key, len) % HASH_SLOTS;
}

/* Braces at all positions of keys of all lengths, each in memory of its own length. */
TEST(tags_are_found_in_keys_of_all_lengths) {
    for (size_t len = 1; len < 140; len++) {
        for (size_t open = 0; open < len; open++) {
            char *key = malloc(len);
            for (size_t n = 0; n < len; n++) key[n] = (char)(random_below(2) ? random_below(256) : '|');
            key[open] = '{';
            key[random_below(len)] = '}';
            assert_int_equal(hash_slot((struct slice){key, len}), slot_step_by_step(key, len));
            free(key);
        }
    }
}

TEST(a_pattern_has_a_slot_if_its_hash_tag_is_literal) {
    int a = (int)hash_slot(SLICE("a"));
    assert_int_equal(hash_slot_of_pattern(SLICE("{a}*")), a);
    assert_int_equal(hash_slot_of_pattern(SLICE("x{a}[0-9]?")), a);
    assert_int_equal(hash_slot_of_pattern(SLICE("a")), a);
    static const char *const several[] = {"*",   "",      "*{a}",  "?{a}", "[x]{a}", "\\x{a}", "{a*}",
                                          "{?}", "{\\a}", "{[a]}", "{}*",  "{a*",    "a*"};
    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]); i++)
        if (*several[i]) assert_int_equal(hash_slot_of_pattern(slice_of(several[i])), -1);
    assert_int_equal(hash_slot_of_pattern(SLICE("")), 0); /* matches the empty key only */
}

/* Random keys and patterns of few characters: a key that matches is in the slot of the pattern. */
TEST(matching_keys_are_in_the_slot_of_the_pattern) {
    static const char letters[] = "ab{}{}*?[]\\";
    char pattern[8], key[6];
    size_t matches = 0;
    for (int i = 0; i < 2000000; i++) {
        size_t pattern_len = random_below(sizeof(pattern)), key_len = random_below(sizeof(key));
        for (size_t n = 0; n < pattern_len; n++) pattern[n] = letters[random_below(sizeof(letters) - 1)];
        for (size_t n = 0; n < key_len; n++) key[n] = letters[random_below(4)];
        int slot = hash_slot_of_pattern((struct slice){pattern, pattern_len});
        if (slot < 0 || !glob_match((struct slice){pattern, pattern_len}, (struct slice){key, key_len}, false))
            continue;
        matches++;
        if (hash_slot((struct slice){key, key_len}) != (unsigned)slot)
            fail_msg("%.*s matches %.*s", (int)key_len, key, (int)pattern_len, pattern);
    }
    assert_true(matches > 1000);
}

TEST(a_fenwick_tree_counts_and_finds) {
    enum { LEN = 64 };
    size_t tree[LEN + 1] = {0}, counts[LEN] = {0};
    for (int step = 0; step < 20000; step++) {
        size_t index = random_below(LEN);
        if (random_below(2) && counts[index]) {
            counts[index]--;
            fenwick_add(tree, LEN, index, SIZE_MAX);
        } else {
            counts[index] += 3;
            fenwick_add(tree, LEN, index, 3);
        }
        if (step % 100) continue;
        size_t below = 0;
        for (size_t i = 0; i < LEN; i++) {
            assert_int_equal(fenwick_below(tree, i), below);
            if (counts[i]) {
                assert_int_equal(fenwick_find(tree, LEN, below), i);
                assert_int_equal(fenwick_find(tree, LEN, below + counts[i] - 1), i);
            }
            below += counts[i];
        }
        assert_int_equal(fenwick_below(tree, LEN), below);
        assert_int_equal(tree[LEN], below);
        assert_int_equal(fenwick_find(tree, LEN, below), LEN);
        assert_int_equal(fenwick_find(tree, LEN, SIZE_MAX), LEN);
    }
}

int main(void) {
    random_seed(7);
    return RUN_TESTS();
}
