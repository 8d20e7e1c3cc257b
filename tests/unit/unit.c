/* unit.c: the list of the tests of a program, and main() for a program that needs no other. */
#include "unit.h"

struct CMUnitTest unit_tests[UNIT_TESTS_MAX];

__attribute__((weak)) int main(void) {
    return RUN_TESTS();
}
