/* maxmemory.c: see maxmemory.h.
 *
 * A filter in front of each command checks memory against maxmemory. Above the limit it evicts for at most the time
 * that maxmemory-eviction-tenacity allows; a timer continues in small steps. A command that needs memory is refused
 * only if nothing can be evicted. The filter is installed only while maxmemory is set. */
#include "server/maxmemory.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/config/config.h"
#include "server/command/command.h"
#include "server/role.h"
#include "server/uncounted_memory.h"
#include "server/stats/latency_monitor.h"
#include "store/evict.h"
#include <math.h>
#include <unistd.h>

enum { TENACITY_DEFAULT = 10, TENACITY_MAX = 100, US_PER_TENACITY = 50, TIMER_US = 1000 };

static int samples, tenacity;
static struct event_timer timer;
static bool out_of_memory;
static uint64_t exceeded_since_us, exceeded_total_us;

static size_t excess(void *context) {
    size_t limit = (size_t)server_settings.maxmemory, used = mem_used();
    if (!limit || used <= limit) return 0;
    size_t left_out = uncounted_memory_exists() ? uncounted_memory() : 0;
    return used - left_out > limit && used > left_out ? used - left_out - limit : 0;
}

static uint64_t time_limit_us(void) {
    if (tenacity >= TENACITY_MAX) return 0;
    if (tenacity <= TENACITY_DEFAULT) return (uint64_t)(tenacity ? tenacity * US_PER_TENACITY : 1);
    return (uint64_t)(TENACITY_DEFAULT * US_PER_TENACITY * pow(1.15, tenacity - TENACITY_DEFAULT));
}

static void exceeded_note(bool exceeded) {
    uint64_t now = clock_mono();
    if (exceeded && !exceeded_since_us) exceeded_since_us = now;
    if (!exceeded && exceeded_since_us) {
        exceeded_total_us += now - exceeded_since_us;
        exceeded_since_us = 0;
    }
}

uint64_t eviction_exceeded_us(bool total) {
    uint64_t current = exceeded_since_us ? clock_mono() - exceeded_since_us : 0;
    return total ? exceeded_total_us + current : current;
}
void eviction_reset_stats(void) {
    exceeded_total_us = 0;
}

/* A table of keys grows only if the memory for it is below the limit. Otherwise its chains get longer. */
static bool table_may_grow(size_t bytes) {
    size_t limit = (size_t)server_settings.maxmemory, used = mem_used();
    if (!limit) return true;
    size_t left_out = uncounted_memory_exists() ? uncounted_memory() : 0;
    return (used > left_out ? used - left_out : 0) + bytes <= limit;
}

/* Waits, within the time limit, for values that a background thread is freeing. Returns true if that gets memory below
 * the limit, or closer to it: no key must go for memory that is free soon. */
static bool lazy_free_helps(uint64_t limit_us) {
    uint64_t began = clock_monotonic_us();
    size_t before = excess(NULL), now = before;
    if (!background_pending(BACKGROUND_LAZY_FREE)) return !before;
    while (now && background_pending(BACKGROUND_LAZY_FREE) && (!limit_us || clock_monotonic_us() - began < limit_us)) {
        usleep(20);
        now = excess(NULL);
    }
    return now < before || !now;
}

/* Evicts for a limited time. Returns false if memory use is above the limit and nothing can be evicted. */
static bool evict(bool *more) {
    static const enum eviction_kind kinds[] = {
        [POLICY_LRU] = EVICT_LRU, [POLICY_LFU] = EVICT_LFU, [POLICY_RANDOM] = EVICT_RANDOM, [POLICY_TTL] = EVICT_TTL};
    *more = false;
    if (role_ignores_maxmemory() || !excess(NULL)) {
        exceeded_note(false);
        return true;
    }
    exceeded_note(true);
    uint64_t limit_us = time_limit_us();
    bool helps = background_pending(BACKGROUND_LAZY_FREE) && lazy_free_helps(limit_us);
    if (helps && !excess(NULL)) {
        exceeded_note(false);
        return true;
    }
    int policy = server_settings.maxmemory_policy;
    if (policy == POLICY_NOEVICTION || server_deletion_paused_for(DELETION_PAUSE_PAUSE | DELETION_PAUSE_IMPORT))
        return false;
    if (helps) return *more = true;
    struct eviction eviction = {.kind = kinds[policy & ~POLICY_ALLKEYS],
                                .volatile_only = !(policy & POLICY_ALLKEYS),
                                .samples = samples,
                                .limit_us = limit_us,
                                .excess = excess};
    uint64_t began = ticks_now();
    enum eviction_result result = keyspace_evict(server.keyspace, &eviction);
    latency_event("eviction-cycle", ticks_to_us(ticks_now() - began));
    if (result == EVICTION_NO_KEYS && !lazy_free_helps(eviction.limit_us)) return false;
    if (result == EVICTION_UNDONE)
        *more = true;
    else
        exceeded_note(false);
    return true;
}

/* No key may be evicted while a command runs that serves the loop (a busy script), or while a data set is loaded. */
static bool must_wait(void) {
    return dispatch_running() || server_is_loading();
}

static uint64_t evict_more(struct event_timer *self) {
    bool more;
    if (must_wait()) return TIMER_US;
    evict(&more);
    return more ? TIMER_US : 0;
}

static void evict_later(uint64_t delay_us) {
    if (!timer.heap_index) event_timer_set(server.loop, &timer, delay_us, evict_more);
}

static enum filter_answer memory_ask(struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, const char **error) {
    if (__builtin_expect(must_wait(), 0)) return FILTER_PASS; /* other filters refuse it: BUSY, LOADING */
    out_of_memory = false;
    if (__builtin_expect(!excess(NULL), 1) && !exceeded_since_us) return FILTER_PASS;
    bool more, needs_memory = dispatch_flags(client, command, argv) & CMD_DENYOOM;
    out_of_memory = !evict(&more);
    if (more) evict_later(TIMER_US);
    if (!out_of_memory || !needs_memory) return FILTER_PASS;
    /* The source of a migration of slots keeps what the target refuses. */
    if (client_must_be_obeyed(client) && !(client->flags & CLIENT_MIGRATION)) return FILTER_PASS;
    *error = "OOM command not allowed when used memory > 'maxmemory'.";
    return FILTER_REFUSE;
}

static struct command_filter memory_filter = {.order = FILTER_MEMORY, .asks_obeyed = true, .ask = memory_ask};

bool eviction_out_of_memory(void) {
    return list_is_linked(&memory_filter.link) && out_of_memory;
}

static const char *apply_maxmemory(void) {
    bool wanted = server_settings.maxmemory != 0;
    dispatch_set_filter(&memory_filter, wanted);
    if (!wanted) {
        exceeded_note(false);
        out_of_memory = false;
    }
    if (wanted && excess(NULL)) {
        log_warning("WARNING: the new maxmemory value set via CONFIG SET (%llu) is smaller than the current memory "
                    "usage (%zu). This will result in key "
                    "eviction and/or the inability to accept new write commands depending on the maxmemory-policy.",
                    (unsigned long long)server_settings.maxmemory, mem_used());
        evict_later(0);
    }
    return NULL;
}

static void maxmemory_start(void) {
    store_settings.table_may_grow = table_may_grow;
    if (!server_settings.maxmemory) return;
    dispatch_add_filter(&memory_filter);
    if (server_settings.maxmemory < 1024 * 1024)
        log_warning("WARNING: You specified a maxmemory value that is less than 1MB (current value is %llu bytes). Are "
                    "you sure this is what you "
                    "really want?",
                    (unsigned long long)server_settings.maxmemory);
}

static const struct server_part eviction_part = {.name = "eviction", .start = maxmemory_start};

static const struct config_option eviction_options[] = {
    {OPTION("maxmemory", CONFIG_MEMORY, &server_settings.maxmemory, "0"), .flags = CONFIG_UNSIGNED,
     .apply = apply_maxmemory},
    {OPTION("maxmemory-samples", CONFIG_INT, &samples, "5"), .min = 1, .max = 64},
    {OPTION("maxmemory-eviction-tenacity", CONFIG_INT, &tenacity, "10"), .min = 0, .max = TENACITY_MAX},
    {.name = NULL},
};

const struct feature maxmemory_feature = {
    .name = "maxmemory", .options = OPTIONS(eviction_options), .parts = PARTS(&eviction_part)};
