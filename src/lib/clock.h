/* clock.h: time. Two clocks: the wall (dates, expiry) and the monotonic one (durations, timers).
 *
 * The event loop reads the clocks once a turn (clock_update); the server freezes the wall clock inside a command, a
 * script or a transaction, so that all of it sees one time. Everybody who decides on keys uses the cached ones. Each
 * thread has its cache. */
#ifndef LIB_CLOCK_H
#define LIB_CLOCK_H
#include <stdint.h>

int64_t clock_wall_us(void);       /* microseconds since the epoch, from the kernel */
uint64_t clock_monotonic_us(void); /* from the kernel (vDSO) */
uint64_t clock_monotonic_ns(void);

extern _Thread_local struct clock_cache {
    int64_t wall_us, wall_ms;
    uint64_t monotonic_us;
    int frozen;
    uint64_t read_at; /* lib/ticks.h; 0: the next clock_follow() reads the clocks */
} clock_cache;
void clock_update(void); /* both; keeps the wall time while it is frozen */
/* clock_update() unless that was done within CLOCK_LAG_US. For who asks more often than the time changes: costs a look
 * at the CPU's counter. */
void clock_follow(void);
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
