/* Member tables: every lookup against a linear search, and the order of a sorted set. */
#include "unit.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "store/member_table.h"
#include <stdio.h>

enum { NAMES = 3000, NAME = 24 };
static char names[NAMES][NAME];

static void make_names(void) {
    random_seed(7);
    for (int i = 0; i < NAMES; i++) switch (i % 3) {
        case 0: snprintf(names[i], NAME, "name:%d", i); break;
        case 1: snprintf(names[i], NAME, "%lld", (long long)random_u64() >> random_below(60)); break;
        default: snprintf(names[i], NAME, "0%d", i); /* not canonical, hence a text */
        }
    names[0][0] = '\0';
}
/* As a set may store it: numbers possibly as text. */
static struct listpack_value value_of(int i) {
    int64_t number;
    if (random_below(2) && parse_int64(slice_of(names[i]), &number)) return listpack_number_value(number);
    return listpack_text_value(slice_of(names[i]));
}

TEST(each_member_is_found_in_every_representation) {
    struct member_table table;
    bool added, there[NAMES] = {false};
    make_names();
    member_table_init(&table, 0);
    for (int round = 0; round < NAMES * 3; round++) {
        int i = (int)random_below(NAMES);
        struct listpack_value value = value_of(i);
        const struct member *found = member_table_find(&table, &value);
        int first = 0; /* first one of that name */
        while (strcmp(names[first], names[i]) != 0) first++;
        assert_true(there[first] == (found != NULL));
        if (found) assert_true(found->score == first);
        struct member *member = member_table_find_or_add(&table, &value, first, &added);
        assert_true(added == !there[first] && member->score == first);
        there[first] = true;
    }
    member_table_free(&table);
}
TEST(appended_entries_are_found) {
    struct member_table table;
    make_names();
    member_table_init(&table, 4);
    for (int i = 0; i < NAMES; i += 3) {
        struct listpack_value value = value_of(i);
        member_table_append(&table, &value, i);
        if (i == 30) assert_non_null(member_table_find(&table, &value)); /* from now on with slots */
    }
    for (int i = 0; i < NAMES; i += 3) {
        struct listpack_value value = value_of(i), other = listpack_text_value(slice_of(names[i + 2]));
        assert_true(member_table_find(&table, &value)->score == i);
        assert_null(member_table_find(&table, &other));
    }
    member_table_free(&table);
}
TEST(order_is_that_of_scores_then_of_bytes) {
    struct member_table table;
    char text[2][LISTPACK_TEXT];
    make_names();
    member_table_init(&table, NAMES);
    for (int i = 0; i < NAMES; i++) {
        struct listpack_value value = value_of(i);
        member_table_append(&table, &value, (double)random_below(50) - 25);
    }
    member_table_sort(&table);
    assert_int_equal(table.count, NAMES);
    for (size_t i = 1; i < table.count; i++) {
        const struct member *a = &table.members[i - 1], *b = &table.members[i];
        assert_true(a->score <= b->score);
        if (a->score == b->score)
            assert_true(
                slice_compare(listpack_value_text(&a->value, text[0]), listpack_value_text(&b->value, text[1])) <= 0);
    }
    member_table_free(&table);
}

static void fill(const void *context, struct member_table *table) {
    for (int i = 0; i < NAMES; i += 3) {
        struct listpack_value value = listpack_text_value(slice_of(names[i]));
        member_table_append(table, &value, i);
    }
    ++*(int *)context;
}
TEST(an_index_is_made_once_when_it_pays) {
    struct member_index index = {0};
    int made = 0;
    make_names();
    for (int i = 0; i < 100; i++) assert_false(member_index_wanted(&index, 3, fill, &made));
    assert_false(member_index_wanted(&index, NAMES, fill, &made));
    for (int i = 0; i < 100; i++) member_index_wanted(&index, NAMES, fill, &made);
    assert_true(made == 1 && index.made);
    struct listpack_value value = listpack_text_value(slice_of(names[300]));
    assert_true(member_table_find(&index.table, &value)->score == 300);
    member_index_free(&index);
}
