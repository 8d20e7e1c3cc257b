/* server.c: start-up, the cron, and the work of each loop turn. */
#include "server/server.h"
#include "lib/background.h"
#include "lib/clock.h"
#include "lib/hashtable.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "lib/random.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/io_threads.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/stats/latency_monitor.h"
#include "server/process/process.h"
#include "server/process/shutdown.h"
#include "server/stats/stats.h"
#include "server/store_events.h"
#include "lib/ticks.h"
#include "server/process/child.h"
#include <stdlib.h>

enum { REHASH_US = 1000, HZ_MIN = 1, HZ_MAX = 500 };

struct server server = {.mode = "standalone"};
static struct list parts = {.head = {&parts.head, &parts.head}};
static struct event_timer cron_timer;
static uint32_t stands_still;
static int databases, hz;
static bool keyspace_per_slot;

void server_add_part(struct server_part *part) {
    list_append(&parts, &part->link);
}
struct list *server_parts(void) {
    return &parts;
}

#define each_part(call)                                                                                                \
    list_each(&parts, link) {                                                                                          \
        struct server_part *part = container_of(link, struct server_part, link);                                       \
        if (part->call) part->call();                                                                                  \
    }

void server_pause_deletion(enum deletion_pause reason, bool on) {
    if (on)
        stands_still |= reason;
    else
        stands_still &= ~(uint32_t)reason;
    store_settings.keep_expired = stands_still != 0;
}

bool server_deletion_paused(void) {
    return stands_still != 0;
}
bool server_deletion_paused_for(int reasons) {
    return stands_still & (uint32_t)reasons;
}

/* The cron and the loop turn */

static uint64_t cron(struct event_timer *timer) {
    (void)timer;
    /* A script that serves the loop must not see its keys expire. */
    if (server.cron_paused || dispatch_running()) return 1000000 / (uint64_t)server.hz;
    stats_sample();
    clients_cron(server.hz);
    if (!stands_still && !server.loading) {
        uint64_t began = ticks_now();
        keyspace_expire_cycle(server.keyspace, false, server.hz);
        latency_event("expire-cycle", ticks_to_us(ticks_now() - began));
    }
    if (store_settings.active_rehashing && !server.loading) keyspace_rehash(server.keyspace, REHASH_US);
    each_part(cron);
    shutdown_continue();
    return 1000000 / (uint64_t)server.hz;
}

static void before_wait(void *context) {
    (void)context;
    shutdown_on_signal();
    if (!stands_still && !server.loading) keyspace_expire_cycle(server.keyspace, true, server.hz);
    if (blocking_ready) blocking_serve(); /* what is served is propagated, which the parts then send and write */
    each_part(before_wait);
    if (reply_barrier_pending) reply_barrier_flush();
    clients_flush();
    if (__builtin_expect(io_threads_moving, 0)) io_threads_move();
    clients_evict();
}

/* Start */

void server_init(const char *executable) {
    uint8_t seed[16];
    random_bytes(seed, sizeof seed);
    hashtable_set_seed(seed);
    random_hex(server.run_id, 40);
    server.executable = executable;
    clock_update();
    ticks_start();
    server.started_ms = clock_ms();
    shutdown_catch_signals();
}

static const char *apply_hz(void) {
    hz = hz < HZ_MIN ? HZ_MIN : hz > HZ_MAX ? HZ_MAX : hz;
    server.hz = hz;
    return NULL;
}

void server_start(void) {
    server.loop = event_loop_new(); /* after daemonizing, which changes the descriptors */
    server.keyspace =
        keyspace_per_slot ? keyspace_new_per_slot(databases, &store_events) : keyspace_new(databases, &store_events);
    apply_hz();
    client_eviction_start();
    each_part(start);
    static const struct event_hooks hooks = {.before_wait = before_wait};
    event_loop_set_hooks(server.loop, &hooks);
    event_timer_set(server.loop, &cron_timer, 1000, cron);
}

static void (*outside_task)(void);

void server_run_outside(void (*task)(void)) {
    outside_task = task;
    event_loop_stop(server.loop);
}

void server_run(void) {
    for (;;) {
        event_loop_run(server.loop);
        void (*task)(void) = outside_task;
        outside_task = NULL;
        if (task) task();
    }
}

void server_flushed_all(void) {
    if (child_is_self()) return; /* a debugged script: its changes are not those of the server */
    each_part(flushed_all);
}

const struct config_option server_options[] = {
    {.name = "databases",
     .type = CONFIG_INT,
     .flags = CONFIG_IMMUTABLE,
     .value = &databases,
     .initial = "16",
     .min = 1,
     .max = INT32_MAX,
     .help = "Number of databases."},
    {.name = "keyspace-per-slot", /* for tests, until there is a cluster mode */
     .type = CONFIG_BOOL,
     .flags = CONFIG_IMMUTABLE | CONFIG_HIDDEN,
     .value = &keyspace_per_slot,
     .initial = "no",
     .help = "Keep the keys of each hash slot in a table of its own."},
    {.name = "hz",
     .type = CONFIG_INT,
     .value = &hz,
     .initial = "10",
     .min = 0,
     .max = INT32_MAX,
     .apply = apply_hz,
     .help = "Frequency per second of background work; 1 to 500."},
    {.name = NULL},
};
int server_configured_hz(void) {
    return hz;
}
