/* lifecycle.c: start-up, the cron, and the work of each turn of the loop. */
#include "server/lifecycle.h"
#include "lib/hash/sha256.h"
#include "lib/structures/hashtable.h"
#include "lib/system/clock.h"
#include "lib/system/random.h"
#include "lib/system/ticks.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/client_commands.h"
#include "server/clients/io_threads.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/feature.h"
#include "server/nested_turn.h"
#include "server/process/crash.h"
#include "server/process/shutdown.h"
#include "server/server.h"
#include "server/stats/latency_monitor.h"
#include "server/stats/stats.h"
#include "server/store_events.h"

enum { REHASH_US = 1000, HZ_MIN = 1, HZ_MAX = 500 };

static struct event_timer cron_timer;
static int databases, hz;
static struct slice hash_seed; /* as configured */
static bool keyspace_per_slot;

/* --- The cron and the loop turn --- */

static uint64_t lifecycle_cron(struct event_timer *timer) {
    /* Keys must not expire during a script that serves the loop. */
    bool waits = server.cron_paused || dispatch_running();
    if (!waits && !server.loading && !server.async_loading) watchdog_cron();
    if (waits) return 1000000 / (uint64_t)server.hz;
    uint64_t started = ticks_now();
    stats_sample();
    clients_cron(server.hz);
    if (!server_deletion_paused() && !server.loading) {
        uint64_t began = ticks_now();
        keyspace_expire_cycle(server.keyspace, false, server.hz);
        latency_event("expire-cycle", ticks_to_us(ticks_now() - began));
    }
    if (store_settings.active_rehashing && !server.loading) keyspace_rehash(server.keyspace, REHASH_US);
    parts_call(cron);
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

static void lifecycle_before_wait(void *context) {
    if (__builtin_expect(dispatch_running() != NULL, 0)) { /* the commands of a loaded file run a script */
        nested_turn_before_wait();
        return;
    }
    commands_note();
    shutdown_on_signal();
    if (!server_deletion_paused() && !server.loading) keyspace_expire_cycle(server.keyspace, true, server.hz);
    if (blocking_ready)
        blocking_serve(); /* before the parts, which send and write what the served commands propagate */
    parts_call(before_wait);
    if (reply_barrier_pending) reply_barrier_flush();
    clients_flush();
    if (__builtin_expect(io_threads_moving, 0)) io_threads_move();
    clients_evict();
}

static void (*wait_begins)(void);
static bool (*wait_ended)(void);

static void lifecycle_asleep(void *context) {
    if (!dispatch_running() && !server.loading) wait_begins();
}
static bool lifecycle_awake(void *context) {
    return wait_ended();
}

void server_set_wait_hooks(void (*asleep)(void), bool (*awake)(void)) {
    static const struct event_hooks hooks = {
        .before_wait = lifecycle_before_wait, .asleep = lifecycle_asleep, .awake = lifecycle_awake};
    wait_begins = asleep;
    wait_ended = awake;
    event_loop_set_hooks(server.loop, &hooks);
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
    parts_call(start);
    static const struct event_hooks hooks = {.before_wait = lifecycle_before_wait};
    if (!wait_begins) event_loop_set_hooks(server.loop, &hooks);
    event_timer_set(server.loop, &cron_timer, 1000, lifecycle_cron);
}

static const struct config_option server_options[] = {
    {OPTION("databases", CONFIG_INT, &databases, "16"), .flags = CONFIG_IMMUTABLE, .min = 1, .max = INT32_MAX},
    {.name = "keyspace-per-slot", /* for tests: nodes of a cluster always have it */
     .type = CONFIG_BOOL,
     .flags = CONFIG_IMMUTABLE | CONFIG_HIDDEN,
     .value = &keyspace_per_slot,
     .initial = "no"},
    {OPTION("hash-seed", CONFIG_BYTES, &hash_seed, ""), .flags = CONFIG_IMMUTABLE | CONFIG_SENSITIVE},
    {OPTION("hz", CONFIG_INT, &hz, "10"), .min = 0, .max = INT32_MAX, .apply = apply_hz},
    {.name = NULL},
};

const struct feature server_feature = {
    .name = "server", .options = OPTIONS(server_options), .commands = COMMANDS(server_commands)};
