/* clock.h: two clocks: wall-clock time (dates, expiry) and monotonic time (durations, timers).
 *
 * The event loop reads both clocks once per iteration (clock_update). A command, a script or a transaction sees one
 * time, until it is so long that it serves the event loop (server/nested_turn.h): then time goes on for everything but
 * the data. All decisions about keys use clock_data_ms(), which the server freezes while a command runs: a script that
 * has seen a key must not see it expire. Each thread has its own cache. */
#pragma once
#include "lib/system/must.h"
#include <stdint.h>

int64_t clock_wall_us(void);       /* microseconds since the epoch, from the kernel */
uint64_t clock_monotonic_us(void); /* from the kernel (vDSO) */
uint64_t clock_monotonic_ns(void);
int64_t clock_monotonic_ms(void); /* clock_mono_ms() without the cache */
/* Counts the time in which the machine was suspended, too: for promises between machines. From the kernel. */
uint64_t clock_boot_us(void);

extern _Thread_local struct clock_cache {
    int64_t wall_us, wall_ms, data_ms;
    uint64_t monotonic_us;
    int frozen;
    uint64_t read_at; /* lib/system/ticks.h; 0: the next clock_follow() reads the clocks */
} clock_cache;
void clock_update(void); /* reads both clocks; keeps the time of the data while frozen */
/* Calls clock_update() unless the last update is less than CLOCK_LAG_US old. For code that needs the time more often
 * than it changes: the check costs one read of the CPU's time stamp counter. */
void clock_follow(void);
void clock_follow_within(unsigned lag_us); /* the same, for another age */
enum { CLOCK_LAG_US = 2 };
static inline int64_t clock_ms(void) {
    return clock_cache.wall_ms;
}
/* For expiration, and for times that become data: an entry's, a stream's. */
static inline int64_t clock_data_ms(void) {
    return clock_cache.data_ms;
}
static inline int64_t clock_us(void) {
    return clock_cache.wall_us;
}
static inline uint64_t clock_mono(void) {
    return clock_cache.monotonic_us;
}
/* For everything that waits, or has an age: deadlines, timeouts, idle times. The wall clock may be set, by hours, at
 * any moment, so it is only for what users see and for expiry. It starts at a large number, so that 0 can mean "never"
 * and times before the start of the machine can be written. */
#define CLOCK_MONO_FIRST_MS 1000000000
static inline int64_t clock_mono_ms(void) {
    return (int64_t)(clock_cache.monotonic_us / 1000) + CLOCK_MONO_FIRST_MS;
}
/* What is added to clock_mono_ms() is the wall clock, within some milliseconds: it changes only when that is set. */
int64_t clock_wall_ahead_ms(void);
static inline int64_t clock_shown_ms(int64_t mono_ms) { /* as users see it; 0 stays */
    return mono_ms ? mono_ms + clock_wall_ahead_ms() : 0;
}
static inline void clock_freeze(void) {
    clock_cache.frozen++;
} /* nests */
static inline void clock_thaw(void) {
    must_in_tests(clock_cache.frozen > 0);
    clock_cache.frozen--;
}
