/* clock.c: the two clocks and each thread's cache of them; see clock.h. */
#include "lib/system/clock.h"
#include "lib/system/ticks.h"
#include <time.h>

_Thread_local struct clock_cache clock_cache;

int64_t clock_wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
uint64_t clock_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
uint64_t clock_monotonic_us(void) {
    return clock_monotonic_ns() / 1000;
}

uint64_t clock_boot_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
int64_t clock_monotonic_ms(void) {
    return (int64_t)(clock_monotonic_us() / 1000) + CLOCK_MONO_FIRST_MS;
}

int64_t clock_wall_ahead_ms(void) {
    enum { EXACT_MS = 10 };
    static _Thread_local int64_t kept;
    int64_t now = clock_ms() - clock_mono_ms();
    if (now - kept > EXACT_MS || kept - now > EXACT_MS) kept = now;
    return kept;
}

void clock_update(void) {
    clock_cache.monotonic_us = clock_monotonic_us();
    clock_cache.read_at = clock_cache.frozen ? 0 : ticks_now();
    clock_cache.wall_us = clock_wall_us();
    clock_cache.wall_ms = clock_cache.wall_us / 1000;
    if (!clock_cache.frozen) clock_cache.data_ms = clock_cache.wall_ms;
}

void clock_follow_within(unsigned lag_us) {
    if (ticks_now() - clock_cache.read_at >= (uint64_t)(ticks_per_us() * lag_us)) clock_update();
}
void clock_follow(void) {
    clock_follow_within(CLOCK_LAG_US);
}
