/* server.c: start-up, the cron, and the work of each loop turn. */
#include "server/server.h"
#include "lib/hash/sha256.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/system/ticks.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/io_threads.h"
#include "server/clients/reply_barrier.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/feature.h"
#include "server/nested_turn.h"
#include "server/process/child.h"
#include "server/process/crash.h"
#include "server/process/process.h"
#include "server/process/shutdown.h"
#include "server/stats/latency_monitor.h"
#include "server/stats/stats.h"
#include "server/store_events.h"
#include <stdlib.h>

enum { REHASH_US = 1000, HZ_MIN = 1, HZ_MAX = 500 };

struct server server = {.mode = "standalone"};
const struct cluster_hooks *cluster_hooks;
struct turn_stats turn_stats;
static const struct server_part **parts; /* ends with NULL */
static struct event_timer cron_timer;
static uint32_t stands_still;
static int databases, hz;
static struct slice hash_seed; /* as configured */
static bool keyspace_per_slot;

void server_add_part(const struct server_part *part) {
    static size_t count;
    parts = mem_realloc(parts, (count + 2) * sizeof *parts);
    parts[count++] = part;
    parts[count] = NULL;
}
const struct server_part *const *server_parts(void) {
    static const struct server_part *const none = NULL;
    return parts ? parts : &none;
}

#define call_parts(hook)                                                                                               \
    each_part(part) {                                                                                                  \
        if (part->hook) part->hook();                                                                                  \
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

/* --- The cron and the loop turn --- */

static uint64_t cron(struct event_timer *timer) {
    /* Keys must not expire during a script that serves the loop. */
    bool waits = server.cron_paused || dispatch_running();
    if (!waits && !server.loading && !server.async_loading) watchdog_cron();
    if (waits) return 1000000 / (uint64_t)server.hz;
    uint64_t started = ticks_now();
    stats_sample();
    clients_cron(server.hz);
    if (!stands_still && !server.loading) {
        uint64_t began = ticks_now();
        keyspace_expire_cycle(server.keyspace, false, server.hz);
        latency_event("expire-cycle", ticks_to_us(ticks_now() - began));
    }
    if (store_settings.active_rehashing && !server.loading) keyspace_rehash(server.keyspace, REHASH_US);
    call_parts(cron);
    shutdown_continue();
    turn_stats.cron_ticks += ticks_now() - started;
    return 1000000 / (uint64_t)server.hz;
}

static void commands_note(void) {
    static uint64_t before;
    /* CONFIG RESETSTAT starts the count anew. */
    uint64_t executed = dispatch_commands < before ? 0 : dispatch_commands - before;
    if (executed > turn_stats.most_commands) turn_stats.most_commands = executed;
    before = dispatch_commands;
}

static void before_wait(void *context) {
    if (__builtin_expect(dispatch_running() != NULL, 0)) { /* the commands of a loaded file run a script */
        nested_turn_before_wait();
        return;
    }
    commands_note();
    shutdown_on_signal();
    if (!stands_still && !server.loading) keyspace_expire_cycle(server.keyspace, true, server.hz);
    if (blocking_ready)
        blocking_serve(); /* before the parts, which send and write what the served commands propagate */
    call_parts(before_wait);
    if (reply_barrier_pending) reply_barrier_flush();
    clients_flush();
    if (__builtin_expect(io_threads_moving, 0)) io_threads_move();
    clients_evict();
}

/* --- Start --- */

void server_init(const char *executable) {
    random_hex(server.run_id, 40);
    server.executable = executable;
    clock_update();
    ticks_start();
    server.started_ms = clock_mono_ms();
    shutdown_catch_signals();
}

static const char *apply_hz(void) {
    hz = hz < HZ_MIN ? HZ_MIN : hz > HZ_MAX ? HZ_MAX : hz;
    server.hz = hz;
    return NULL;
}

/* Servers with the same text, of any length, have the same seed, and so SCAN returns keys in the same order. */
static void seed_tables(void) {
    if (!hash_seed.len) return;
    unsigned char digest[SHA256_SIZE];
    sha256_digest(hash_seed, digest);
    hashtable_set_seed(digest);
}

void server_configured(void) {
    call_parts(configured);
}

void server_start(void) {
    seed_tables();
    server.loop = event_loop_new(); /* after daemonizing, which changes the descriptors */
    if (server.cluster_enabled)
        server.keyspace = keyspace_new_per_slot((int)config_number("cluster-databases"), &store_events);
    else if (keyspace_per_slot)
        server.keyspace = keyspace_new_per_slot(databases, &store_events);
    else
        server.keyspace = keyspace_new(databases, &store_events);
    apply_hz();
    client_eviction_start();
    call_parts(start);
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
    call_parts(flushed_all);
}

static const struct config_option server_options[] = {
    {.name = "databases",
     .type = CONFIG_INT,
     .flags = CONFIG_IMMUTABLE,
     .value = &databases,
     .initial = "16",
     .min = 1,
     .max = INT32_MAX},
    {.name = "keyspace-per-slot", /* for tests: nodes of a cluster always have it */
     .type = CONFIG_BOOL,
     .flags = CONFIG_IMMUTABLE | CONFIG_HIDDEN,
     .value = &keyspace_per_slot,
     .initial = "no"},
    {.name = "hash-seed",
     .type = CONFIG_BYTES,
     .flags = CONFIG_IMMUTABLE | CONFIG_SENSITIVE,
     .value = &hash_seed,
     .initial = ""},
    {.name = "hz", .type = CONFIG_INT, .value = &hz, .initial = "10", .min = 0, .max = INT32_MAX, .apply = apply_hz},
    {.name = NULL},
};
int server_configured_hz(void) {
    return hz;
}

const struct feature server_feature = {
    .name = "server", .options = OPTIONS(server_options), .commands = COMMANDS(server_commands)};
