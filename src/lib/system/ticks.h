/* ticks.h: a fast clock: the CPU's invariant time stamp counter where available (no system call, no vDSO page, a few
 * nanoseconds), otherwise the monotonic clock in nanoseconds. Only for durations inside one process: statistics,
 * latency, time slices. Use lib/system/clock.h for wall-clock time and deadlines. */
#pragma once
#include "lib/system/clock.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

extern bool ticks_from_cpu;
static inline uint64_t ticks_now(void) {
#if defined(__x86_64__)
    if (__builtin_expect(ticks_from_cpu, 1)) return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(ticks_from_cpu, 1)) {
        uint64_t value;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return clock_monotonic_ns();
}
/* Calibrates the counter; the first call takes a fraction of a millisecond. Before that call ticks_now() uses the
 * monotonic clock. */
void ticks_start(void);
/* Calibrates again over the whole time since ticks_start(). The cron calls it periodically. */
void ticks_measure(void);
extern _Atomic double ticks_rate; /* ticks per microsecond */
static inline double ticks_per_us(void) {
    return atomic_load_explicit(&ticks_rate, memory_order_relaxed);
}
static inline uint64_t ticks_to_us(uint64_t ticks) {
    return (uint64_t)((double)ticks / ticks_per_us());
}
static inline uint64_t ticks_of_us(uint64_t us) {
    return (uint64_t)((double)us * ticks_per_us());
}
/* For INFO monotonic_clock: "X86 TSC @ 2450 ticks/us", "POSIX clock_gettime". */
const char *ticks_describe(void);
