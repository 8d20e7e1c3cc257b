/* defrag.c: see defrag.h. */
#include "server/defrag.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/command/dispatch.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/config/config.h"
#include "server/process/child.h"
#include "server/stats/latency_monitor.h"
#include "store/relocate_keys.h"

enum {
    EVALUATE_US = 1000 * 1000,     /* the statistics of the allocator are not free */
    IN_VAIN_US = 60 * 1000 * 1000, /* the longest pause after a walk that moved nothing; of short walks: */
    IN_VAIN_TIMES = 16,            /* as many times as long as the walk */
    STEPS = 16,                    /* buckets between two reads of the clock */
    PART = 32,                     /* blocks of a large value: a zset's node costs a search, in memory out of cache */
    ALL = 100
};

static bool enabled;
static int threshold_lower, threshold_upper, cycle_min, cycle_max, cycle_us;
static int64_t ignore_bytes, max_scan_fields;

void (*defrag_more)(struct relocation *r);

static struct event_timer timer;
static struct relocate_walk walk;
static struct {
    bool walking;
    int percent; /* of a CPU */
    uint64_t began_us, evaluated_us, rest_until_us;
    uint64_t moved_before; /* walk.blocks.moved at the beginning */
} state;
static struct defrag_stats past; /* of the walks before `walk` started to count again, and the time of ended walks */

/* The share of a CPU, in percent, for the current fragmentation; 0: no work is needed. */
static int wanted_percent(void) {
    struct mem_stats stats;
    mem_read_stats(&stats);
    if (stats.active <= stats.allocated || stats.allocated == 0) return 0;
    size_t bytes = stats.active - stats.allocated;
    double percent = (double)bytes * ALL / (double)stats.allocated;
    if (bytes < (size_t)ignore_bytes || percent < threshold_lower) return 0;
    double range = threshold_upper - threshold_lower;
    double share = range > 0 ? (percent - threshold_lower) / range : 1;
    double wanted = cycle_min + (cycle_max - cycle_min) * (share < 1 ? share : 1);
    return wanted < cycle_min ? cycle_min : (int)wanted;
}

static void walk_begin(uint64_t now) {
    state.walking = true;
    state.began_us = now;
    state.moved_before = walk.blocks.moved;
    log_verbose("Starting active defragmentation, with up to %d%% of a CPU", state.percent);
}

static void walk_end(uint64_t now) {
    uint64_t moved = walk.blocks.moved - state.moved_before;
    relocate_walk_end(&walk);
    past.total_us += now - state.began_us;
    state.walking = false;
    uint64_t rest = IN_VAIN_TIMES * (now - state.began_us);
    if (!moved) state.rest_until_us = now + (rest < IN_VAIN_US ? rest : IN_VAIN_US);
    log_verbose("Active defragmentation done in %llu ms, %llu blocks moved",
                (unsigned long long)((now - state.began_us) / 1000), (unsigned long long)moved);
}

/* Computes the fragmentation and begins a walk if it exceeds the thresholds. A walk continues to its end with at least
 * active-defrag-cycle-min. */
static void evaluate(uint64_t now) {
    state.evaluated_us = now;
    int percent = wanted_percent();
    state.percent = percent || !state.walking ? percent : cycle_min;
    if (percent && !state.walking && now >= state.rest_until_us) walk_begin(now);
}

/* Returns the microseconds until the next piece of work. */
static uint64_t fire(struct event_timer *self) {
    uint64_t now = clock_monotonic_us();
    if (server_is_loading() || dispatch_running() || child_active()) return EVALUATE_US / 10;
    if (now - state.evaluated_us >= EVALUATE_US) evaluate(now);
    if (!state.walking) return EVALUATE_US;
    uint64_t until = now + (uint64_t)cycle_us, ended;
    bool more = true;
    walk.blocks.limit = max_scan_fields < PART ? (uint64_t)max_scan_fields : PART;
    do {
        int i = 0;
        do more = relocate_walk_step(&walk, server.keyspace);
        while (more && !walk.large_count && ++i < STEPS);
        ended = clock_monotonic_us();
    } while (more && ended < until);
    latency_event("active-defrag-cycle", ended - now);
    if (!more) {
        if (defrag_more) defrag_more(&walk.blocks);
        walk_end(ended);
        state.evaluated_us = ended;
        return EVALUATE_US;
    }
    /* Work takes `percent` of the time from the beginning of a piece to that of the next one. */
    uint64_t worked = ended > now ? ended - now : 1;
    return worked * (uint64_t)(ALL - state.percent) / (uint64_t)state.percent + 1;
}

/* Also called after a change of the thresholds and shares: they take effect immediately. */
static void switch_on_or_off(void) {
    if (enabled) {
        state.evaluated_us = state.rest_until_us = 0;
        event_timer_set(server.loop, &timer, 1, fire);
    } else {
        event_timer_cancel(server.loop, &timer);
        if (state.walking) walk_end(clock_monotonic_us());
    }
}

static const char *defrag_apply(void) {
    switch_on_or_off();
    return NULL;
}
static void defrag_start(void) {
    switch_on_or_off();
}
static const struct server_part defrag_part = {.name = "defrag", .start = defrag_start};

struct defrag_stats defrag_stats(void) {
    struct defrag_stats stats = past;
    stats.hits = walk.blocks.moved;
    stats.misses = walk.blocks.stayed;
    stats.key_hits = walk.keys_moved;
    stats.key_misses = walk.keys_stayed;
    if (state.walking) {
        stats.current_us = clock_monotonic_us() - state.began_us;
        stats.total_us += stats.current_us;
        stats.running = state.percent;
    }
    return stats;
}
void defrag_reset_stats(void) {
    walk.blocks.moved = walk.blocks.stayed = walk.keys_moved = walk.keys_stayed = 0;
    state.moved_before = 0;
    past.total_us = 0;
}

static const char *check_enabled(const struct config_option *option, struct slice text) {
    if (!slice_is(text, "yes") || relocate_is_supported()) return NULL;
    return "Active defragmentation cannot be enabled: it needs jemalloc 5.3 or later, which tells how full its slabs "
           "are";
}

static const struct config_option defrag_options[] = {
    {OPTION("activedefrag", CONFIG_BOOL, &enabled, "no"), .check = check_enabled, .apply = defrag_apply},
    {OPTION("active-defrag-ignore-bytes", CONFIG_MEMORY, &ignore_bytes, "100mb"), .min = 1, .max = INT64_MAX,
     .apply = defrag_apply},
    {OPTION("active-defrag-threshold-lower", CONFIG_INT, &threshold_lower, "10"), .min = 0, .max = 1000,
     .apply = defrag_apply},
    {OPTION("active-defrag-threshold-upper", CONFIG_INT, &threshold_upper, "100"), .min = 0, .max = 1000,
     .apply = defrag_apply},
    {OPTION("active-defrag-cycle-min", CONFIG_INT, &cycle_min, "1"), .min = 1, .max = 99, .apply = defrag_apply},
    {OPTION("active-defrag-cycle-max", CONFIG_INT, &cycle_max, "25"), .min = 1, .max = 99, .apply = defrag_apply},
    {OPTION("active-defrag-cycle-us", CONFIG_INT, &cycle_us, "500"), .min = 0, .max = 100000, .apply = defrag_apply},
    {OPTION("active-defrag-max-scan-fields", CONFIG_INT64, &max_scan_fields, "1000"), .min = 1, .max = INT64_MAX,
     .apply = defrag_apply},
    {.name = NULL},
};

const struct feature defrag_feature = {
    .name = "defrag", .options = OPTIONS(defrag_options), .parts = PARTS(&defrag_part)};
