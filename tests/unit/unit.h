/* unit.h: cmocka, with the headers that it needs before it, and the end of a test program. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What main() returns: the tests are of type struct CMUnitTest, as cmocka_unit_test() makes them. */
#define RUN_TESTS_WITH(setup, teardown, ...)                                                                           \
    _cmocka_run_group_tests("tests", (const struct CMUnitTest[]){__VA_ARGS__},                                         \
                            sizeof((const struct CMUnitTest[]){__VA_ARGS__}) / sizeof(struct CMUnitTest), setup,       \
                            teardown)
#define RUN_TESTS(...) RUN_TESTS_WITH(NULL, NULL, __VA_ARGS__)
#endif
