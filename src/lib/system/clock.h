/* clock.h: two clocks: wall-clock time (dates, expiry) and monotonic time (durations, timers).
 *
 * The event loop reads both clocks once per iteration (clock_update). The server freezes the wall clock while it runs a
 * command, a script or a transaction, so all of it sees one time. All decisions about keys use the cached time. Each
 * thread has its own cache. */
#ifndef LIB_SYSTEM_CLOCK_H
#define LIB_SYSTEM_CLOCK_H
#include <stdint.h>

int64_t clock_wall_us(void);       /* microseconds since the epoch, from the kernel */
uint64_t clock_monotonic_us(void); /* from the kernel (vDSO) */
uint64_t clock_monotonic_ns(void);

extern _Thread_local struct clock_cache {
    int64_t wall_us, wall_ms;
    uint64_t monotonic_us;
    int frozen;
    uint64_t read_at; /* lib/system/ticks.h; 0: the next clock_follow() reads the clocks */
} clock_cache;
void clock_update(void); /* reads both clocks; keeps the wall time while frozen */
/* Calls clock_update() unless the last update is less than CLOCK_LAG_US old. For code that needs the time more often
 * than it changes: the check costs one read of the CPU's time stamp counter. */
void clock_follow(void);
void clock_follow_within(unsigned lag_us); /* the same, for another age */
enum { CLOCK_LAG_US = 2 };
static inline int64_t clock_ms(void) {
    return clock_cache.wall_ms;
}
static inline int64_t clock_us(void) {
    return clock_cache.wall_us;
}
static inline uint64_t clock_mono(void) {
    return clock_cache.monotonic_us;
}
static inline void clock_freeze(void) {
    clock_cache.frozen++;
} /* nests */
static inline void clock_thaw(void) {
    clock_cache.frozen--;
}
#endif
