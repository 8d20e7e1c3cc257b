/* Counters for tests and for people; softrdma.h explains them. What is counted per message lives as a plain
 * field in the queue pair or completion queue it belongs to, and is summed when asked for. */
#pragma once

#include "../softrdma.h"
#include "base.h"

struct stats {
#define X(name) _Atomic uint64_t name;
    SOFTRDMA_COUNTERS(X)
#undef X
};

extern struct stats stats;

#define stats_add(name, n) ((void)atomic_fetch_add_explicit(&stats.name, (uint64_t)(n), memory_order_relaxed))
#define stats_inc(name)    stats_add(name, 1)
#define stats_dec(name)    stats_add(name, -1)

void stats_start(void);
void stats_write(void);  /* to the file of SOFTRDMA_STATS, if any */
void stats_forget(void); /* in a forked child */
