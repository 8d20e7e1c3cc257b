/* Save points: the syntax of the option, and when a save is due. */
#include "unit.h"
#include <stdlib.h>

#include "persistence/save_points.h"

static const char *set(int count, const char *const *texts) {
    struct slice words[16];
    for (int i = 0; i < count; i++) words[i] = slice_of(texts[i]);
    return save_points_set(NULL, count, words);
}
#define SET(...) set(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})
static void assert_shown(const char *text) {
    struct memory_output shown;
    memory_output_init(&shown);
    save_points_get(NULL, &shown.out);
    struct slice got = memory_output_slice(&shown);
    assert_int_equal(got.len, strlen(text));
    if (got.len) assert_memory_equal(got.data, text, got.len);
    memory_output_free(&shown);
}

TEST(a_point_is_due_after_its_seconds_and_changes) {
    assert_null(SET("100", "5"));
    assert_null(save_point_due(4, 1000));
    assert_null(save_point_due(1000, 100));
    assert_null(save_point_due(1000, 99));
    const struct save_point *due = save_point_due(5, 101);
    assert_non_null(due);
    assert_int_equal(due->seconds, 100);
    assert_int_equal(due->changes, 5);
}

TEST(any_of_several_may_be_due) {
    assert_null(SET("3600", "1", "60", "100"));
    assert_int_equal(save_points_count(), 2);
    assert_null(save_point_due(99, 61));
    assert_int_equal(save_point_due(100, 61)->seconds, 60);
    assert_int_equal(save_point_due(1, 3601)->seconds, 3600);
}

TEST(malformed_options_change_nothing) {
    assert_null(SET("3600", "1", "60", "100"));
    assert_non_null(SET("1"));
    assert_non_null(SET("1", "2", "3"));
    assert_non_null(SET("0", "1"));
    assert_non_null(SET("-1", "1"));
    assert_non_null(SET("1", "-1"));
    assert_non_null(SET("a", "1"));
    assert_non_null(SET("1", "99999999999"));
    assert_shown("3600 1 60 100");
}

TEST(without_save_points_none_is_due) {
    assert_null(SET("1", "0"));
    assert_non_null(save_point_due(0, 2));
    assert_null(save_points_set(NULL, 0, NULL));
    assert_int_equal(save_points_count(), 0);
    assert_null(save_point_due(UINT64_MAX, INT64_MAX));
    assert_shown("");
}
