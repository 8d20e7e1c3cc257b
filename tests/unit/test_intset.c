/* Intsets: the bytes of each width, and random changes against a sorted array. */
#include "unit.h"
#include "lib/structures/intset.h"
#include "lib/system/random.h"
#include <string.h>

static uint8_t *add(uint8_t *set, int64_t value) {
    bool added;
    set = intset_add(set, value, &added);
    assert_true(added);
    return set;
}
TEST(widths_byte_for_byte) {
    uint8_t *set = intset_new();
    assert_int_equal(intset_count(set), 0);
    assert_false(intset_has(set, 0));
    set = add(set, 1);
    set = add(set, -2);
    assert_int_equal(intset_bytes(set), 12);
    assert_memory_equal(set, "\2\0\0\0\2\0\0\0\xfe\xff\1\0", 12);
    set = add(set, 32768);
    assert_memory_equal(set, "\4\0\0\0\3\0\0\0\xfe\xff\xff\xff\1\0\0\0\0\x80\0\0", 20);
    set = add(set, INT64_MIN);
    assert_memory_equal(set, "\x08\0\0\0\4\0\0\0\0\0\0\0\0\0\0\x80\xfe\xff\xff\xff\xff\xff\xff\xff", 24);
    assert_int_equal(intset_bytes(set), 40);
    assert_true(intset_validate(set, 40, true));
    assert_true(intset_min(set) == INT64_MIN && intset_max(set) == 32768);
    intset_free(set);
}
TEST(each_width_ends_where_it_must) {
    static const struct {
        int64_t value;
        unsigned width;
    } cases[] = {{INT16_MIN, 2}, {INT16_MAX, 2}, {INT16_MIN - 1, 4},          {INT16_MAX + 1, 4},
                 {INT32_MIN, 4}, {INT32_MAX, 4}, {(int64_t)INT32_MIN - 1, 8}, {(int64_t)INT32_MAX + 1, 8},
                 {INT64_MIN, 8}, {INT64_MAX, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *set = add(add(intset_new(), 0), cases[i].value);
        assert_int_equal(set[0], cases[i].width);
        assert_true(intset_has(set, cases[i].value) && intset_has(set, 0) && !intset_has(set, 1));
        bool removed;
        set = intset_remove(set, cases[i].value, &removed);
        assert_true(removed);
        assert_int_equal(set[0], cases[i].width); /* never becomes narrower */
        assert_int_equal(intset_count(set), 1);
        intset_free(set);
    }
}
TEST(random_changes_do_what_a_sorted_array_does) {
    random_seed(5);
    for (int round = 0; round < 30; round++) {
        int64_t model[300];
        size_t count = 0;
        uint8_t *set = intset_new();
        unsigned bits = 64 - (unsigned)random_below(58);
        for (int i = 0; i < 600; i++) {
            int64_t value = (int64_t)random_u64() >> (64 - bits);
            size_t at = 0;
            while (at < count && model[at] < value) at++;
            bool there = at < count && model[at] == value, changed;
            assert_int_equal(intset_has(set, value), there);
            if (random_below(3) && count < 300) {
                set = intset_add(set, value, &changed);
                assert_int_equal(changed, !there);
                if (there) continue;
                memmove(model + at + 1, model + at, (count - at) * sizeof *model);
                model[at] = value, count++;
            } else {
                set = intset_remove(set, value, &changed);
                assert_int_equal(changed, there);
                if (!there) continue;
                memmove(model + at, model + at + 1, (count - at - 1) * sizeof *model);
                count--;
            }
            assert_int_equal(intset_count(set), count);
        }
        for (size_t i = 0; i < count; i++) assert_true(intset_at(set, i) == model[i]);
        assert_int_equal(intset_validate(set, intset_bytes(set), true), count > 0);
        for (int i = 0; count && i < 20; i++) assert_true(intset_has(set, intset_random(set)));
        uint8_t *copy = intset_copy(set);
        assert_memory_equal(copy, set, intset_bytes(set));
        intset_free(copy);
        intset_free(set);
    }
}
TEST(seeking_agrees_with_lookup_in_any_order) {
    random_seed(6);
    for (int round = 0; round < 200; round++) {
        uint8_t *set = intset_new();
        uint64_t range = 1 + random_below(400);
        bool added;
        for (uint64_t i = random_below(200); i > 0; i--)
            set = intset_add(set, (int64_t)random_below(range) * 300, &added);
        size_t position = 0;
        for (uint64_t value = 0; value <= range; value++) {
            assert_int_equal(intset_seek(set, (int64_t)value * 300, &position), intset_has(set, (int64_t)value * 300));
            assert_true(position <= intset_count(set));
        }
        for (int i = 0; i < 200; i++) {
            int64_t value = (int64_t)random_below(range) * 300;
            assert_int_equal(intset_seek(set, value, &position), intset_has(set, value));
        }
        assert_false(intset_seek(set, INT64_MIN, &position) || intset_seek(set, INT64_MAX, &position));
        intset_free(set);
    }
}
TEST(damaged_bytes_are_refused) {
    assert_true(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\1\0\2\0", 12, true));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\2\0\2\0", 12, true));
    assert_true(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\2\0\2\0", 12, false));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\2\0\1\0", 12, true));
    assert_false(intset_validate((const uint8_t *)"\3\0\0\0\2\0\0\0\1\0\2\0", 12, true));
    assert_false(intset_validate((const uint8_t *)"\0\0\0\0\2\0\0\0\1\0\2\0", 12, true));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\1\0\2", 11, true));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0\2\0\0\0\1\0\2\0\3\0", 14, true));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0\0\0\0\0", 8, true));
    assert_false(intset_validate((const uint8_t *)"\x08\0\0\0\xff\xff\xff\xff\1\0\0\0\0\0\0\0", 16, true));
    assert_false(intset_validate((const uint8_t *)"\2\0\0\0", 4, true));
}
