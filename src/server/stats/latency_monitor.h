/* latency_monitor.h: latency spikes: events that took at least latency-monitor-threshold milliseconds (LATENCY), and
 * the latency histograms of commands. */
#pragma once
#include <stdint.h>
extern uint64_t latency_threshold_us;    /* UINT64_MAX: off */
extern uint64_t latency_threshold_ticks; /* the same, in ticks (ticks.h) */
/* `event`: "command", "fast-command", "expire-cycle", "eviction-cycle", "fork" … */
void latency_event_add(const char *event, uint64_t us);
static inline void latency_event(const char *event, uint64_t us) {
    if (__builtin_expect(us >= latency_threshold_us, 0)) latency_event_add(event, us);
}
