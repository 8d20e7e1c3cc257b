/* Conversion between numbers and text, against texts of Valkey 8.0. */
#include "unit.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

TEST(integers_must_be_canonical) {
    static const char *const good[] = {"0", "1", "-1", "9223372036854775807", "-9223372036854775808", "10"};
    static const int64_t values[] = {0, 1, -1, INT64_MAX, INT64_MIN, 10};
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      "01",
                                      "-0",
                                      "-01",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999",
                                      "100000000000000000000",
                                      "0x1",
                                      "1a"};
    int64_t v;
    for (size_t i = 0; i < 6; i++) {
        assert_true(parse_int64(slice_of(good[i]), &v));
        assert_true(v == values[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) assert_false(parse_int64(slice_of(bad[i]), &v));
    assert_false(parse_int64((struct slice){"1\0", 2}, &v));
}

TEST(unsigned_integers_reach_two_to_the_64) {
    uint64_t v;
    assert_true(parse_uint64(SLICE("18446744073709551615"), &v) && v == UINT64_MAX);
    assert_false(parse_uint64(SLICE("18446744073709551616"), &v));
    assert_false(parse_uint64(SLICE("28446744073709551615"), &v));
    assert_false(parse_uint64(SLICE("1844674407370955161a"), &v));
    assert_false(parse_uint64(SLICE("-1"), &v));
}

TEST(integers_survive_the_way_there_and_back) {
    char text[NUMBER_TEXT_MAX], expected[NUMBER_TEXT_MAX];
    random_seed(1);
    for (int i = 0; i < 200000; i++) {
        int64_t v = (int64_t)random_u64() >> random_below(64), back;
        size_t len = format_int64(text, v);
        assert_int_equal(len, snprintf(expected, sizeof(expected), "%lld", (long long)v));
        assert_memory_equal(text, expected, len);
        assert_true(parse_int64((struct slice){text, len}, &back) && back == v);
        uint64_t u = random_u64() >> random_below(64), uback;
        len = format_uint64(text, u);
        assert_true(parse_uint64((struct slice){text, len}, &uback) && uback == u);
    }
    assert_int_equal(format_int64(text, INT64_MIN), 20);
    assert_memory_equal(text, "-9223372036854775808", 20);
}

TEST(doubles_look_as_in_valkey) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {0.1, "0.1"},
        {-1.5, "-1.5"},
        {1e5, "100000"},
        {1e18, "1000000000000000000"},
        {1e19, "1e+19"},
        {1e20, "1e+20"},
        {4611686018427387904.0, "4611686018427387904"},
        {5e18, "5e+18"},
        {9223372036854774784.0, "9223372036854775000"},
        {1.5e16, "15000000000000000"},
        {1e-5, "0.00001"},
        {1e-6, "0.000001"},
        {1e-7, "1e-7"},
        {1.5e-6, "1.5e-6"},
        {0.00012345, "1.2345e-4"},
        {0.001234567890123, "0.001234567890123"},
        {12345.678901234, "1.2345678901234e+4"},
        {1234.5678901234, "1234.5678901234"},
        {12345.678912, "12345.678912"},
        {3.0000000000000004, "3.0000000000000004"},
        {0.30000000000000004, "0.30000000000000004"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {1e23, "99999999999999990000000"},
        {1e100, "1e+100"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {9.5367431640625e-07, "9.5367431640625e-7"},
    };
    char text[40];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text[format_double(text, cases[i].value)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
}

TEST(doubles_read_back_to_the_same_bits) {
    char text[40];
    random_seed(2);
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = random_u64();
        double v, back;
        memcpy(&v, &bits, 8);
        if (i % 3 == 1) v = (double)(bits >> 40) / 100;
        if (i % 3 == 2) v = (double)(bits >> 11) / 9007199254740992.0;
        if (isnan(v) || isinf(v)) continue;
        size_t len = format_double(text, v);
        assert_in_range(len, 1, 25);
        text[len] = '\0';
        assert_true(strtod(text, NULL) == v);
        assert_true(parse_double((struct slice){text, len}, &back));
        assert_true(back == v);
    }
}

TEST(short_decimals_read_as_strtod_reads_them) {
    char text[40];
    random_seed(3);
    for (int i = 0; i < 300000; i++) {
        int len = snprintf(text, sizeof(text), "%s%llu", random_below(2) ? "-" : "",
                           (unsigned long long)(random_u64() >> (14 + random_below(50))));
        if (random_below(3)) {
            int at = (int)random_below((uint64_t)len + 1);
            memmove(text + at + 1, text + at, (size_t)(len - at) + 1);
            text[at] = '.', len++;
        }
        char *end;
        double expected = strtod(text, &end), v;
        bool valid = end == text + len;
        assert_int_equal(parse_double((struct slice){text, (size_t)len}, &v), valid);
        if (valid) assert_true(v == expected);
    }
}

TEST(doubles_are_accepted_as_strtod_does_but_for_space_nan_and_hexadecimal) {
    static const char *const good[] = {"1",    "1.5", ".5",   "5.",       "+5",    "-1e5",
                                       "0.25", "inf", "-inf", "Infinity", "1e308", "-0"};
    static const char *const bad[] = {"",    " 1",  "1 ", "\t1", "nan",   "-nan", "1e400", "1e-400",
                                      "abc", "1_0", ".",  "-",   "1.2.3", "--1",  "0x10",  "-0X1p3"};
    double v;
    long double ld;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parse_double(slice_of(good[i]), &v));
        assert_true(v == strtod(good[i], NULL));
        assert_true(parse_long_double(slice_of(good[i]), &ld));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) assert_false(parse_double(slice_of(bad[i]), &v));
    assert_false(parse_double((struct slice){"1\0", 2}, &v));
    assert_true(parse_long_double(SLICE("1e400"), &ld)); /* in range of long double */
    assert_false(parse_long_double(SLICE("1e5000"), &ld));
    static char long_text[DOUBLE_TEXT_MAX + 10];
    memset(long_text, '1', sizeof(long_text));
    assert_false(parse_double((struct slice){long_text, sizeof(long_text)}, &v));
    assert_false(parse_long_double((struct slice){long_text, DOUBLE_TEXT_MAX}, &ld));
}

TEST(fixed_decimals_are_those_of_printf) {
    static char text[DOUBLE_TEXT_MAX], expected[DOUBLE_TEXT_MAX];
    random_seed(3);
    for (int i = 0; i < 400000; i++) {
        unsigned decimals = 1 + (unsigned)random_below(FIXED_DECIMALS_MAX);
        long double value =
            (long double)(int64_t)random_u64() * powl(2, (long double)random_below(i % 3 ? 70 : 200) - 140);
        switch (i % 5) {
        case 0: value = (double)value; break;
        case 1:
            value = (long double)random_below(1000000) + (long double)random_below(4096) / 4096;
            break; /* ends in halves */
        case 2:
            value = (long double)(int64_t)random_below(100) - powl(10, -(long double)random_below(25));
            break; /* carries */
        }
        text[format_fixed(text, value, decimals)] = '\0';
        snprintf(expected, sizeof expected, "%.*Lf", (int)decimals, value);
        assert_string_equal(text, expected);
    }
    text[format_fixed(text, -0.0L, 4)] = '\0';
    assert_string_equal(text, "-0.0000");
    text[format_fixed(text, 0x1p63L, 2)] = '\0';
    assert_string_equal(text, "9223372036854775808.00");
}
TEST(long_doubles_look_as_incrbyfloat_shows_them) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"0", "0"},
        {"-0", "0"},
        {"3.0", "3"},
        {"10.50", "10.5"},
        {"1e20", "100000000000000000000"},
        {"1e-17", "0.00000000000000001"},
        {"1e-18", "0"},
        {"-1e-20", "0"},
        {"5e-5", "0.00005"},
        {"3.0000000000000004", "3.0000000000000004"},
#if LDBL_MANT_DIG == 64
        {"123456789.123456789", "123456789.12345678899873747"},
#else
        {"123456789.123456789", "123456789.123456789"},
#endif
        {"0x10", "16"},
        {"-2.5", "-2.5"}
    };
    static char text[DOUBLE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        long double v;
        assert_true(parse_long_double(slice_of(cases[i].in), &v));
        text[format_long_double(text, v)] = '\0';
        assert_string_equal(text, cases[i].out);
    }
    long double most;
    assert_true(parse_long_double(SLICE("-1.1e4932"), &most));
    assert_int_equal(format_long_double(text, most), 4934);
}

TEST(memory_sizes_have_two_kinds_of_units) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"100", 100},
                {"1k", 1000},
                {"1kb", 1024},
                {"2KB", 2048},
                {"3M", 3000000},
                {"1mb", 1048576},
                {"1g", 1000000000},
                {"1Gb", 1073741824},
                {"7b", 7},
                {"0", 0},
                {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {"-1",  "1t", "1.5mb", " 1", "1 kb", "18446744073709551616", "99999999999gb",
                                      "1kbb"};
    uint64_t v;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parse_memory(slice_of(good[i].text), &v));
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) assert_false(parse_memory(slice_of(bad[i]), &v));
}

TEST(sizes_are_written_with_units_that_leave_no_rest) {
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0"},
                 {1, "1"},
                 {1000, "1000"},
                 {1024, "1kb"},
                 {1536, "1536"},
                 {268435456, "256mb"},
                 {1073741824, "1gb"},
                 {1099511627776, "1024gb"},
                 {UINT64_MAX, "18446744073709551615"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        size_t len = format_memory(text, cases[i].bytes);
        assert_true(slice_is((struct slice){text, len}, cases[i].text));
    }
}

TEST(human_readable_sizes_have_two_decimals) {
    char text[32];
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0B"},
                 {1023, "1023B"},
                 {1536, "1.50K"},
                 {23 << 20, "23.00M"},
                 {(uint64_t)5 << 30, "5.00G"},
                 {(uint64_t)3 << 40, "3.00T"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text[format_bytes_human(text, cases[i].bytes)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
}
