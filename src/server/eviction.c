/* eviction.c: see eviction.h.
 *
 * A filter in front of each command checks memory against maxmemory. Above the limit it evicts for at most the time
 * that maxmemory-eviction-tenacity allows; a timer continues in small steps. A command that needs memory is refused
 * only if nothing can be evicted. The filter is installed only while maxmemory is set. */
#include "server/eviction.h"
#include "lib/background.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/role.h"
#include "server/stats/latency_monitor.h"
#include "server/config/settings.h"
#include "lib/ticks.h"
#include "store/evict.h"
#include <math.h>
#include <unistd.h>

enum { TENACITY_DEFAULT = 10, TENACITY_MAX = 100, US_PER_TENACITY = 50, TIMER_US = 1000 };

static int samples, tenacity;
static struct event_timer timer;
static struct list uncounted = {.head = {&uncounted.head, &uncounted.head}};
static bool gate_added, out_of_memory;
static uint64_t exceeded_since_us, exceeded_total_us;

void eviction_leave_out(struct uncounted_memory *memory) {
    list_append(&uncounted, &memory->link);
}

size_t eviction_not_counted(void) {
    size_t bytes = 0;
    list_each(&uncounted, link) bytes += container_of(link, struct uncounted_memory, link)->bytes();
    return bytes;
}

static size_t excess(void *context) {
    (void)context;
    size_t limit = (size_t)server_settings.maxmemory, used = mem_used();
    if (!limit || used <= limit) return 0;
    size_t left_out = uncounted.len ? eviction_not_counted() : 0;
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

/* Values that are being freed in the background will release memory: waits for them, within the time limit. */
static bool lazy_free_helps(uint64_t limit_us) {
    uint64_t began = clock_monotonic_us();
    while (background_pending(BACKGROUND_LAZY_FREE) && (!limit_us || clock_monotonic_us() - began < limit_us)) {
        if (!excess(NULL)) return true;
        usleep(20);
    }
    return !excess(NULL);
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
    int policy = server_settings.maxmemory_policy;
    if (policy == POLICY_NOEVICTION || server_deletion_paused_for(DELETION_PAUSE_PAUSE | DELETION_PAUSE_IMPORT))
        return false;
    struct eviction eviction = {.kind = kinds[policy & ~POLICY_ALLKEYS],
                                .volatile_only = !(policy & POLICY_ALLKEYS),
                                .samples = samples,
                                .limit_us = time_limit_us(),
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

static uint64_t evict_more(struct event_timer *self) {
    (void)self;
    bool more;
    if (dispatch_running()) return TIMER_US; /* a script serves the loop: its keys must not change meanwhile */
    evict(&more);
    return more ? TIMER_US : 0;
}

static bool evict_now_and_later(void) {
    bool more, ok = evict(&more);
    if (more && !timer.heap_index) event_timer_set(server.loop, &timer, TIMER_US, evict_more);
    return ok;
}

static enum filter_answer memory_ask(struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, const char **error) {
    (void)argc, (void)argv;
    out_of_memory = false;
    if (__builtin_expect(!excess(NULL), 1) && !exceeded_since_us) return FILTER_PASS;
    bool needs_memory = dispatch_flags(client, command) & CMD_DENYOOM;
    /* A replica that refused a command of its primary would no longer have its data. */
    out_of_memory = !evict_now_and_later();
    if (!out_of_memory || !needs_memory || client->flags & CLIENT_PRIMARY) return FILTER_PASS;
    *error = "OOM command not allowed when used memory > 'maxmemory'.";
    return FILTER_REFUSE;
}

bool eviction_out_of_memory(void) {
    return gate_added && out_of_memory;
}

static struct command_filter memory_filter = {.order = FILTER_MEMORY, .ask = memory_ask};

static const char *apply_maxmemory(void) {
    bool wanted = server_settings.maxmemory > 0;
    if (wanted != gate_added) {
        if (wanted)
            dispatch_add_filter(&memory_filter);
        else
            dispatch_remove_filter(&memory_filter);
        gate_added = wanted;
    }
    if (!wanted) {
        exceeded_note(false);
        out_of_memory = false;
    }
    if (wanted && excess(NULL)) {
        log_warning("WARNING: the new maxmemory value set via CONFIG SET (%llu) is smaller than the current memory "
                    "usage (%zu). This will result in key "
                    "eviction and/or the inability to accept new write commands depending on the maxmemory-policy.",
                    (unsigned long long)server_settings.maxmemory, mem_used());
        evict_now_and_later();
    }
    return NULL;
}

static void start(void) {
    if (server_settings.maxmemory <= 0) return;
    dispatch_add_filter(&memory_filter);
    gate_added = true;
    if (server_settings.maxmemory < 1024 * 1024)
        log_warning("WARNING: You specified a maxmemory value that is less than 1MB (current value is %lld bytes). Are "
                    "you sure this is what you "
                    "really want?",
                    (long long)server_settings.maxmemory);
}

struct server_part eviction_part = {.name = "eviction", .start = start};

const struct config_option eviction_options[] = {
    {.name = "maxmemory",
     .type = CONFIG_MEMORY,
     .value = &server_settings.maxmemory,
     .initial = "0",
     .apply = apply_maxmemory,
     .help = "Memory limit above which keys are evicted; 0: no limit."},
    {.name = "maxmemory-samples",
     .type = CONFIG_INT,
     .value = &samples,
     .initial = "5",
     .min = 1,
     .max = 64,
     .help = "Keys sampled to evict one."},
    {.name = "maxmemory-eviction-tenacity",
     .type = CONFIG_INT,
     .value = &tenacity,
     .initial = "10",
     .min = 0,
     .max = TENACITY_MAX,
     .help = "How much delay eviction may cause: 0 the least, 10 half a millisecond, 100 as much as it takes."},
    {.name = NULL},
};
