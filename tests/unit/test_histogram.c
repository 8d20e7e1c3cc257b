/* The histogram: every value can be read back within its precision. */
#include "unit.h"
#include "lib/structures/histogram.h"

TEST(buckets_follow_one_another_without_gaps) {
    for (unsigned bits = 3; bits <= 10; bits++) {
        struct histogram *h = histogram_new(bits, 60000000000);
        uint64_t expected_bottom = 0;
        for (uint32_t i = 0; i < h->buckets; i++) {
            uint64_t top = histogram_bucket_top(h, i);
            assert_int_equal(histogram_bucket(h, expected_bottom), i);
            assert_int_equal(histogram_bucket(h, top), i);
            assert_true(top - expected_bottom <= expected_bottom >> bits);
            expected_bottom = top + 1;
        }
        assert_true(expected_bottom > h->highest);
        histogram_free(h);
    }
}
TEST(percentiles_of_a_ramp) {
    struct histogram *h = histogram_new(10, 1000000);
    assert_int_equal(histogram_percentile(h, 50), 0);
    for (uint64_t i = 1; i <= 1000; i++) histogram_record(h, i, 10);
    assert_int_equal(h->count, 10000);
    assert_int_equal(h->min, 1);
    assert_int_equal(h->max, 1000);
    assert_int_equal(h->sum, 5005000);
    assert_int_equal(histogram_percentile(h, 0), 1);
    assert_int_equal(histogram_percentile(h, 50), 500);
    assert_int_equal(histogram_percentile(h, 99), 990);
    assert_int_equal(histogram_percentile(h, 99.9), 999);
    assert_int_equal(histogram_percentile(h, 100), 1000);
    assert_int_equal(histogram_count_up_to(h, 0), 0);
    assert_int_equal(histogram_count_up_to(h, 250), 2500);
    assert_int_equal(histogram_count_up_to(h, UINT64_MAX), 10000);
    histogram_free(h);
}
TEST(values_above_the_highest_count_as_the_highest) {
    struct histogram *h = histogram_new(7, 5000);
    histogram_record(h, UINT64_MAX, 1);
    assert_int_equal(h->max, 5000);
    assert_int_equal(histogram_percentile(h, 100), 5000);
    histogram_free(h);
}
TEST(merging_adds_up) {
    struct histogram *a = histogram_new(10, 100000), *b = histogram_new(10, 100000);
    histogram_record(a, 5, 1);
    histogram_record(b, 70000, 3);
    histogram_merge(a, b);
    assert_int_equal(a->count, 4);
    assert_int_equal(a->min, 5);
    assert_int_equal(a->max, 70000);
    assert_int_equal(histogram_percentile(a, 50), 70000);
    histogram_free(a);
    histogram_free(b);
}
