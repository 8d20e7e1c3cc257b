/* Host names that a thread looks up. */
#include "unit.h"
#include "lib/system/clock.h"
#include "net/resolver.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { IN_USE = 3000, WAIT_US = 60 * 1000 * 1000, PAUSE_US = 1000, NAME_SIZE = 32 };

/* Addresses are names that need no name server. */
static void name_write(char name[static NAME_SIZE], unsigned i) {
    snprintf(name, NAME_SIZE, "127.1.%u.%u", i / 256, i % 256);
}

/* A Sentinel asks for the names of all its instances, one after the other, and tries again later. */
TEST(thousands_of_names_that_are_in_use_resolve) {
    uint64_t end = clock_monotonic_us() + WAIT_US;
    for (int known = 0; known < IN_USE; usleep(PAUSE_US)) {
        assert_true(clock_monotonic_us() < end);
        known = 0;
        for (int i = 0; i < IN_USE; i++) {
            char name[NAME_SIZE];
            struct address address;
            name_write(name, i);
            int result = resolver_find(name, &address);
            if (result == -EAGAIN) continue;
            assert_int_equal(result, 0);
            assert_string_equal(address.host, name);
            known++;
        }
    }
}
