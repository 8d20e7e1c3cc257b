/* fake_clock.c: replaces lib/system/clock.c in targets that determine the time themselves (fuzz.h). */
#include "lib/system/clock.h"

uint64_t fuzz_now_us;
_Thread_local struct clock_cache clock_cache;

int64_t clock_wall_us(void) {
    return (int64_t)fuzz_now_us;
}

uint64_t clock_monotonic_us(void) {
    return fuzz_now_us;
}

uint64_t clock_monotonic_ns(void) {
    return fuzz_now_us++ * 1000; /* lib/system/ticks.c waits until it advances */
}

void clock_update(void) {
    clock_cache.wall_us = (int64_t)fuzz_now_us;
    clock_cache.data_ms = clock_cache.wall_ms = (int64_t)fuzz_now_us / 1000;
    clock_cache.monotonic_us = fuzz_now_us;
}

void clock_follow(void) {
    clock_update();
}

int64_t clock_monotonic_ms(void) {
    return (int64_t)(fuzz_now_us / 1000) + CLOCK_MONO_FIRST_MS;
}
