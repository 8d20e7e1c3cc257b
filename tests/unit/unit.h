/* unit.h: cmocka, with the headers that it needs before it, and the list of the tests of a program.
 *
 *     TEST(a_key_expires_after_its_millisecond) { … }
 *
 * Each TEST puts itself on the list, so none can be forgotten. They run in the order of the file. A program that must
 * prepare something has its own main(), which returns RUN_TESTS(). */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { UNIT_TESTS_MAX = 64 };
extern struct CMUnitTest unit_tests[UNIT_TESTS_MAX];

/* `set_up` and `tear_down` (NULL: none) run before and after this test. Its function has the parameter `state`. */
#define TEST_WITH(name, set_up, tear_down) UNIT_TEST(name, set_up, tear_down, __COUNTER__)
#define UNIT_TEST(name, set_up, tear_down, index)                                                                      \
    static void name(void **state);                                                                                    \
    static __attribute__((constructor)) void name##_is_listed(void) {                                                  \
        _Static_assert((index) < UNIT_TESTS_MAX, "raise UNIT_TESTS_MAX");                                              \
        unit_tests[index] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(name, set_up, tear_down);               \
    }                                                                                                                  \
    static void name(void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* What main() returns. `set_up` and `tear_down` (NULL: none) run once, before and after all tests. cmocka passes over
 * the free rows of the list. */
#define RUN_TESTS_WITH(set_up, tear_down) cmocka_run_group_tests_name("tests", unit_tests, set_up, tear_down)
#define RUN_TESTS()                       RUN_TESTS_WITH(NULL, NULL)
