/* Listpacks: the bytes of every encoding, and random changes against an array of texts. */
#include "unit.h"
#include "lib/structures/listpack.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include <stdio.h>

static void assert_valid(const uint8_t *lp) {
    size_t bytes = listpack_bytes(lp);
    assert_true(listpack_validate(lp, bytes, true, NULL, NULL));
}
static void assert_bytes(const uint8_t *lp, const char *bytes, size_t len) {
    assert_int_equal(listpack_bytes(lp), len);
    assert_memory_equal(lp, bytes, len);
}

TEST(an_empty_listpack_is_seven_bytes) {
    uint8_t *lp = listpack_new(0);
    assert_bytes(lp, "\x07\0\0\0\0\0\xff", 7);
    assert_null(listpack_first(lp));
    assert_null(listpack_last(lp));
    assert_null(listpack_seek(lp, 0));
    assert_null(listpack_seek(lp, -1));
    assert_valid(lp);
    listpack_free(lp);
}

/* The bytes of one element without its backlen. */
static void assert_encoded(struct slice text, const char *head, size_t head_len, size_t backlen) {
    uint8_t *lp = listpack_append(listpack_new(0), text);
    assert_memory_equal(lp + 6, head, head_len);
    size_t element = listpack_element_bytes(lp + 6);
    assert_int_equal(listpack_bytes(lp), 7 + element);
    assert_int_equal(listpack_size_of(text), element);
    int64_t number;
    size_t body = parse_int64(text, &number) ? head_len : head_len + text.len;
    assert_int_equal(element, body + backlen);
    char buffer[LISTPACK_TEXT];
    assert_true(slice_equal(listpack_text(lp + 6, buffer), text));
    assert_true(listpack_equal(lp + 6, text));
    assert_ptr_equal(listpack_last(lp), lp + 6);
    assert_valid(lp);
    listpack_free(lp);
}
TEST(integers_take_the_smallest_encoding) {
    static const struct {
        const char *text, *head;
        size_t len;
    } cases[] = {
        {"0", "\x00", 1},
        {"127", "\x7f", 1},
        {"128", "\xc0\x80", 2},
        {"-1", "\xdf\xff", 2},
        {"4095", "\xcf\xff", 2},
        {"-4096", "\xd0\x00", 2},
        {"4096", "\xf1\x00\x10", 3},
        {"-4097", "\xf1\xff\xef", 3},
        {"32767", "\xf1\xff\x7f", 3},
        {"-32768", "\xf1\x00\x80", 3},
        {"32768", "\xf2\x00\x80\x00", 4},
        {"-32769", "\xf2\xff\x7f\xff", 4},
        {"8388607", "\xf2\xff\xff\x7f", 4},
        {"-8388608", "\xf2\x00\x00\x80", 4},
        {"8388608", "\xf3\x00\x00\x80\x00", 5},
        {"-8388609", "\xf3\xff\xff\x7f\xff", 5},
        {"2147483647", "\xf3\xff\xff\xff\x7f", 5},
        {"-2147483648", "\xf3\x00\x00\x00\x80", 5},
        {"2147483648", "\xf4\x00\x00\x00\x80\x00\x00\x00\x00", 9},
        {"9223372036854775807", "\xf4\xff\xff\xff\xff\xff\xff\xff\x7f", 9},
        {"-9223372036854775808", "\xf4\x00\x00\x00\x00\x00\x00\x00\x80", 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_encoded(slice_of(cases[i].text), cases[i].head, cases[i].len, 1);
}
TEST(only_canonical_integers_are_stored_as_integers) {
    assert_encoded(SLICE(""), "\x80", 1, 1);
    assert_encoded(SLICE("01"), "\x82", 1, 1);
    assert_encoded(SLICE("-0"), "\x82", 1, 1);
    assert_encoded(SLICE("+1"), "\x82", 1, 1);
    assert_encoded(SLICE("1 "), "\x82", 1, 1);
    assert_encoded(SLICE("9223372036854775808"), "\x93", 1, 1);
    assert_encoded(SLICE("-9223372036854775809"), "\x94", 1, 1);
}
TEST(lengths_at_every_boundary) {
    char *text = mem_alloc(3 << 20);
    memset(text, 'x', 3 << 20);
    assert_encoded(slice_make(text, 63), "\xbf", 1, 1);
    assert_encoded(slice_make(text, 64), "\xe0\x40", 2, 1);
    assert_encoded(slice_make(text, 125), "\xe0\x7d", 2, 1);
    assert_encoded(slice_make(text, 126), "\xe0\x7e", 2, 2);
    assert_encoded(slice_make(text, 4095), "\xef\xff", 2, 2);
    assert_encoded(slice_make(text, 4096), "\xf0\x00\x10\x00\x00", 5, 2);
    assert_encoded(slice_make(text, 16377), "\xf0\xf9\x3f\x00\x00", 5, 2);
    assert_encoded(slice_make(text, 16378), "\xf0\xfa\x3f\x00\x00", 5, 3);
    assert_encoded(slice_make(text, 2097145), "\xf0\xf9\xff\x1f\x00", 5, 3);
    assert_encoded(slice_make(text, 2097146), "\xf0\xfa\xff\x1f\x00", 5, 4);
    mem_free(text);
}
TEST(a_whole_listpack_byte_for_byte) {
    uint8_t *lp = listpack_new(0);
    lp = listpack_append(lp, SLICE("hello"));
    lp = listpack_append(lp, SLICE("1024"));
    lp = listpack_append_number(lp, 5);
    assert_bytes(lp, "\x13\0\0\0\x03\0\x85hello\x06\xc4\x00\x02\x05\x01\xff", 19);
    listpack_free(lp);
}

/* --- Against a model --- */

enum { MODEL_MAX = 400 };
struct model {
    char *texts[MODEL_MAX];
    size_t lens[MODEL_MAX], count;
};
static char *random_text(size_t *len) {
    char *text;
    switch (random_below(4)) {
    case 0:
        text = mem_alloc(32);
        *len = format_int64(text, (int64_t)random_u64() >> random_below(64));
        return text;
    case 1: *len = random_below(5); break;
    case 2: *len = random_below(200); break;
    default: *len = random_below(20) ? random_below(70) : random_below(20000);
    }
    text = mem_alloc(*len + 1);
    for (size_t i = 0; i < *len; i++) text[i] = (char)('a' + random_below(3));
    return text;
}
static void model_insert(struct model *m, size_t at, char *text, size_t len) {
    memmove(m->texts + at + 1, m->texts + at, (m->count - at) * sizeof *m->texts);
    memmove(m->lens + at + 1, m->lens + at, (m->count - at) * sizeof *m->lens);
    m->texts[at] = text, m->lens[at] = len;
    m->count++;
}
static void model_delete(struct model *m, size_t at, size_t count) {
    if (count > m->count - at) count = m->count - at;
    for (size_t i = at; i < at + count; i++) mem_free(m->texts[i]);
    memmove(m->texts + at, m->texts + at + count, (m->count - at - count) * sizeof *m->texts);
    memmove(m->lens + at, m->lens + at + count, (m->count - at - count) * sizeof *m->lens);
    m->count -= count;
}
static void assert_same(const uint8_t *lp, const struct model *m) {
    char text[LISTPACK_TEXT];
    assert_int_equal(listpack_count(lp), m->count);
    const uint8_t *p = listpack_first(lp);
    for (size_t i = 0; i < m->count; i++) {
        assert_non_null(p);
        assert_true(slice_equal(listpack_text(p, text), slice_make(m->texts[i], m->lens[i])));
        assert_ptr_equal(listpack_seek(lp, (int64_t)i), p);
        assert_ptr_equal(listpack_seek(lp, (int64_t)i - (int64_t)m->count), p);
        p = listpack_next(lp, p);
    }
    assert_null(p);
    p = listpack_last(lp);
    for (size_t i = m->count; i-- > 0; p = listpack_prev(lp, p))
        assert_true(slice_equal(listpack_text(p, text), slice_make(m->texts[i], m->lens[i])));
    assert_null(p);
    assert_valid(lp);
}
static uint8_t *random_change(uint8_t *lp, struct model *m) {
    size_t len, at = m->count ? random_below(m->count) : 0;
    uint8_t *element = listpack_seek(lp, (int64_t)at);
    unsigned what = (unsigned)random_below(m->count < MODEL_MAX - 20 ? 9 : 4);
    if (what < 2 && element) {
        size_t count = random_below(what ? 2 : 12);
        model_delete(m, at, count);
        if (random_below(2)) {
            lp = listpack_delete(lp, &element, count);
            assert_ptr_equal(element, listpack_seek(lp, (int64_t)at));
        } else {
            lp = listpack_delete_range(lp, random_below(2) ? (int64_t)at : (int64_t)at - (int64_t)listpack_count(lp),
                                       count);
        }
        return lp;
    }
    char *text = random_text(&len);
    struct slice slice = {text, len};
    if (what < 4 && element) {
        lp = listpack_replace(lp, &element, listpack_text_value(slice));
        assert_true(listpack_equal(element, slice));
        mem_free(m->texts[at]);
        m->texts[at] = text, m->lens[at] = len;
    } else if (what == 4) {
        lp = listpack_prepend(lp, slice);
        model_insert(m, 0, text, len);
    } else if (what == 5 && element) {
        lp = listpack_insert(lp, &element, listpack_text_value(slice));
        assert_ptr_equal(element, listpack_seek(lp, (int64_t)at));
        model_insert(m, at, text, len);
    } else if (what == 6) {
        struct listpack_value values[5];
        for (size_t i = 0; i < 5; i++) {
            if (i) text = random_text(&len);
            values[i] = listpack_text_value((struct slice){text, len});
            model_insert(m, m->count, text, len);
        }
        lp = listpack_append_many(lp, values, 5);
    } else {
        lp = listpack_append(lp, slice);
        model_insert(m, m->count, text, len);
    }
    return lp;
}
TEST(random_changes_do_what_an_array_does) {
    random_seed(7);
    for (int round = 0; round < 20; round++) {
        struct model m = {.count = 0};
        uint8_t *lp = listpack_new(random_below(2) * 100);
        for (int i = 0; i < 200; i++) {
            lp = random_change(lp, &m);
            if (i % 5 == 0) assert_same(lp, &m);
        }
        lp = listpack_shrink(lp);
        assert_same(lp, &m);
        uint8_t *copy = listpack_copy(lp);
        assert_same(copy, &m);
        listpack_free(copy);
        listpack_free(lp);
        model_delete(&m, 0, m.count);
    }
}

TEST(finding_skips_the_given_number_of_elements) {
    uint8_t *lp = listpack_new(0);
    static const char *const texts[] = {"a", "b", "b", "12", "12", "a", "long", "x"};
    for (size_t i = 0; i < 8; i++) lp = listpack_append(lp, slice_of(texts[i]));
    uint8_t *first = listpack_first(lp);
    assert_ptr_equal(listpack_find(lp, first, SLICE("b"), 0), listpack_seek(lp, 1));
    assert_ptr_equal(listpack_find(lp, first, SLICE("b"), 1), listpack_seek(lp, 2));
    assert_ptr_equal(listpack_find(lp, first, SLICE("12"), 0), listpack_seek(lp, 3));
    assert_ptr_equal(listpack_find(lp, first, SLICE("12"), 1), listpack_seek(lp, 4));
    assert_null(listpack_find(lp, first, SLICE("x"), 1));
    assert_null(listpack_find(lp, first, SLICE("012"), 0));
    assert_null(listpack_find(lp, NULL, SLICE("a"), 0));
    listpack_free(lp);
}

TEST(more_elements_than_the_header_can_count) {
    uint8_t *lp = listpack_new(0);
    for (int i = 0; i < 65534; i++) lp = listpack_append_number(lp, i & 127);
    assert_memory_equal(lp + 4, "\xfe\xff", 2);
    lp = listpack_append_number(lp, 1);
    lp = listpack_append_number(lp, 2);
    assert_memory_equal(lp + 4, "\xff\xff", 2);
    assert_int_equal(listpack_count(lp), 65536);
    int64_t number;
    assert_true(listpack_number(listpack_seek(lp, -1), &number) && number == 2);
    assert_true(listpack_number(listpack_seek(lp, 65534), &number) && number == 1);
    assert_null(listpack_seek(lp, 65536));
    assert_null(listpack_seek(lp, -65537));
    assert_valid(lp);
    lp = listpack_delete_range(lp, 6, 65530);
    assert_int_equal(listpack_count(lp), 6);
    assert_valid(lp);
    listpack_free(lp);
}

TEST(random_choices_are_in_order_and_complete) {
    uint8_t *lp = listpack_new(0);
    for (int i = 0; i < 20; i++) lp = listpack_append_number(lp, i);
    random_seed(3);
    int seen[10] = {0};
    for (int round = 0; round < 1000; round++) {
        size_t index = 0;
        int64_t before = -2;
        uint8_t *p = listpack_first(lp);
        for (size_t wanted = 3; wanted; wanted--) {
            p = listpack_next_random(lp, p, &index, 10, wanted, 2);
            int64_t number;
            assert_non_null(p);
            assert_true(listpack_number(p, &number));
            assert_true(number % 2 == 0 && number > before);
            seen[number / 2]++;
            before = number;
            p = listpack_next(lp, listpack_next(lp, p));
        }
    }
    for (int i = 0; i < 10; i++) assert_in_range(seen[i], 230, 370);
    listpack_free(lp);
}

static bool refuse_third(void *context, const uint8_t *element, size_t index) {
    ++*(int *)context;
    return index < 2;
}
TEST(damaged_bytes_are_refused) {
    uint8_t *lp = listpack_new(0);
    static const char *const texts[] = {
        "hello", "1",          "-1",
        "70000", "3000000000", "a text that is longer than sixty-three bytes, so that it needs a head of two"};
    for (size_t i = 0; i < 6; i++) lp = listpack_append(lp, slice_of(texts[i]));
    size_t bytes = listpack_bytes(lp);
    int calls = 0;
    assert_false(listpack_validate(lp, bytes, true, refuse_third, &calls));
    assert_int_equal(calls, 3);
    assert_false(listpack_validate(lp, bytes - 1, true, NULL, NULL));
    assert_false(listpack_validate(lp, 6, false, NULL, NULL));
    assert_false(listpack_validate(lp, 0, false, NULL, NULL));
    /* A listpack with any single corrupted byte must be rejected, or be safe to iterate over. */
    for (size_t i = 0; i < bytes; i++)
        for (int value = 0; value < 256; value++) {
            uint8_t *copy = listpack_copy(lp);
            copy[i] = (uint8_t)value;
            if (listpack_validate(copy, bytes, true, NULL, NULL)) {
                size_t count = 0;
                for (uint8_t *p = listpack_last(copy); p; p = listpack_prev(copy, p)) count++;
                assert_int_equal(count, listpack_count(copy));
            } else if (i == 4 || i == 5) {
                assert_int_not_equal(copy[4] | copy[5] << 8, 6);
            }
            listpack_free(copy);
        }
    listpack_free(lp);
}

TEST(a_listpack_is_limited_to_a_gibibyte) {
    assert_true(listpack_has_space(NULL, LISTPACK_BYTES_MAX - LISTPACK_EMPTY_BYTES));
    assert_false(listpack_has_space(NULL, LISTPACK_BYTES_MAX));
    assert_false(listpack_has_space(NULL, SIZE_MAX));
}
