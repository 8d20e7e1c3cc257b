/* stats.c: see stats.h.
 *
 * Fields of features that this server does not have are shown if clients read them and the value is correct: 0 keys are
 * tracked. */
#include "server/stats/stats.h"
#include "formats/rdb.h"
#include "lib/structures/histogram.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "server/clients/auth.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/io_threads.h"
#include "server/clients/listeners.h"
#include "server/clients/transactions.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/defrag.h"
#include "server/feature.h"
#include "server/stats/info.h"
#include "server/config/config.h"
#include "server/command/command.h"
#include "server/maxmemory.h"
#include "server/process/child.h"
#include "server/process/process.h"
#include "server/process/shutdown.h"
#include "server/role.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include "server/stats/errorstats.h"
#include "store/keyspace.h"
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Rates per second: the mean of the last samples, one each SAMPLE_MS. */
enum { SAMPLES = 16, SAMPLE_MS = 100, MEASURE_TICKS_SAMPLES = 50, LOG_SAMPLES = 50 };
struct rate {
    uint64_t last_value, samples[SAMPLES];
};
struct replication_stats replication_stats;
struct tracking_stats tracking_stats;
size_t stats_migrate_connections;
static struct rate commands_rate, input_rate, output_rate, cycles_rate, duration_rate, repl_input_rate,
    repl_output_rate;
static int sample_index;
static uint64_t last_sample_us;

static void rate_add(struct rate *rate, uint64_t value, uint64_t elapsed_us) {
    rate->samples[sample_index] = elapsed_us ? (value - rate->last_value) * 1000000 / elapsed_us : 0;
    rate->last_value = value;
}

static uint64_t rate_mean(const struct rate *rate) {
    uint64_t sum = 0;
    for (int i = 0; i < SAMPLES; i++) sum += rate->samples[i];
    return sum / SAMPLES;
}

static size_t replica_clients(void) {
    size_t replicas = 0;
    list_each(clients_all(), link) {
        uint32_t flags = container_of(link, struct client, link)->flags;
        replicas += flags & CLIENT_REPLICA && !(flags & CLIENT_MIGRATION);
    }
    return replicas;
}

/* The keys of each database and the memory in use, every few seconds. */
static void log_usage(void) {
    for (int i = 0; log_level <= LOG_LEVEL_VERBOSE && i < keyspace_databases(server.keyspace); i++) {
        const struct db *db = keyspace_db(server.keyspace, i);
        if (!db_size(db)) continue;
        enum { BUCKET_SIZE = 64, BUCKET_SLOTS = 7 };
        size_t slots = db_keys_overhead(db) / BUCKET_SIZE * BUCKET_SLOTS;
        log_verbose("DB %d: %zu keys (%zu volatile) in %zu slots HT.", i, db_size(db), db_expires(db), slots);
    }
    if (log_level > LOG_LEVEL_DEBUG) return;
    size_t replicas = replica_clients();
    char human[32];
    human[format_bytes_human(human, mem_used())] = 0;
    log_debug("Total: %zu clients connected (%zu replicas), %zu (%s) bytes in use", clients_count() - replicas,
              replicas, mem_used(), human);
}

void stats_sample(void) {
    uint64_t now = clock_mono(), elapsed = now - last_sample_us;
    if (elapsed < SAMPLE_MS * 1000 - 1000) return;
    last_sample_us = now;
    const struct event_loop_stats *loop = event_loop_stats(server.loop);
    rate_add(&commands_rate, dispatch_commands, elapsed);
    rate_add(&input_rate, client_stats.bytes_in, elapsed);
    rate_add(&output_rate, client_stats.bytes_out, elapsed);
    rate_add(&repl_input_rate, replication_stats.bytes_in, elapsed);
    rate_add(&repl_output_rate, replication_stats.bytes_out, elapsed);
    rate_add(&cycles_rate, loop->turns, elapsed);
    rate_add(&duration_rate, loop->busy_us, elapsed);
    sample_index = (sample_index + 1) % SAMPLES;
    static int samples;
    if (samples % LOG_SAMPLES == 0) log_usage();
    if (++samples % MEASURE_TICKS_SAMPLES == 0) ticks_measure();
}

/* --- INFO server, clients, cpu --- */

#define line   info_line
#define ull(x) ((unsigned long long)(x))

static void server_write(struct output *out) {
    struct utsname name;
    uname(&name);
    int64_t up = (clock_mono_ms() - server.started_ms) / 1000;
    line(out, "redis_version:%s", SERVER_REDIS_VERSION);
    line(out, "server_name:%s", SERVER_NAME);
    line(out, "valkey_version:%s", SERVER_VERSION);
    line(out, "valkey_release_stage:%s", SERVER_RELEASE_STAGE);
    line(out, "redis_git_sha1:%s", server.git_commit ? server.git_commit : "00000000");
    line(out, "redis_git_dirty:%d", server.git_dirty);
    line(out, "redis_build_id:%s", process_build_id());
    line(out, "%s_mode:%s", server_settings.redis_names ? "redis" : "server", server.mode);
    line(out, "os:%s %s %s", name.sysname, name.release, name.machine);
    line(out, "arch_bits:%d", (int)sizeof(void *) * 8);
    line(out, "monotonic_clock:%s", ticks_describe());
    line(out, "multiplexing_api:epoll");
    line(out, "gcc_version:%d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
    line(out, "process_id:%ld", (long)getpid());
    line(out, "process_supervised:%s", process_supervisor());
    line(out, "run_id:%s", server.run_id);
    line(out, "tcp_port:%d", listeners_port());
    line(out, "server_time_usec:%lld", (long long)clock_us());
    line(out, "uptime_in_seconds:%lld", (long long)up);
    line(out, "uptime_in_days:%lld", (long long)(up / 86400));
    line(out, "hz:%d", server.hz);
    line(out, "configured_hz:%d", (int)config_number("hz"));
    line(out, "clients_hz:%d", server.hz);
    line(out, "lru_clock:%lld", (long long)(clock_ms() / 1000 & 0xFFFFFF));
    line(out, "executable:%s", server.executable);
    line(out, "config_file:%s", config_file());
    line(out, "io_threads_active:%d", io_threads_active());
    line(out, "availability_zone:%s", server_settings.availability_zone);
    int64_t shutdown_ms = shutdown_remaining_ms();
    if (shutdown_ms >= 0) line(out, "shutdown_in_milliseconds:%lld", (long long)shutdown_ms);
    listeners_info(out);
}

static void clients_write(struct output *out) {
    int watching = 0, pubsub = 0, blocked = 0;
    list_each_entry(clients_all(), const struct client, link, client) {
        watching += watch_count(client) != 0;
        pubsub += (client->flags & CLIENT_PUBSUB) != 0;
        blocked += client->holds != 0;
    }
    line(out, "connected_clients:%zu", clients_count() - replica_clients());
    line(out, "cluster_connections:%zu", cluster_connections());
    line(out, "maxclients:%lld", (long long)client_settings.maxclients);
    line(out, "client_recent_max_input_buffer:%zu", client_stats.recent_max_input);
    line(out, "client_recent_max_output_buffer:%zu", client_stats.recent_max_output);
    line(out, "blocked_clients:%d", blocked);
    line(out, "tracking_clients:%zu", tracking_stats.clients);
    line(out, "pubsub_clients:%d", pubsub);
    line(out, "watching_clients:%d", watching);
    line(out, "clients_in_timeout_table:0");
    line(out, "total_watched_keys:%zu", watch_keys());
    line(out, "total_blocking_keys:%zu", blocking_keys(false));
    line(out, "total_blocking_keys_on_nokey:%zu", blocking_keys(true));
    static const char *const actions[] = {
        [PAUSE_NONE] = "none", [PAUSE_WRITE] = "write", [PAUSE_DATA] = "all", [PAUSE_ALL] = "all"};
    line(out, "paused_reason:%s", clients_pause_reason());
    line(out, "paused_actions:%s", actions[clients_paused()]);
    line(out, "paused_timeout_milliseconds:%lld", (long long)clients_paused_ms());
}

static void cpu_line(struct output *out, const char *name, struct timeval time) {
    line(out, "%s:%ld.%06ld", name, (long)time.tv_sec, (long)time.tv_usec);
}

static void cpu_write(struct output *out) {
    struct rusage self, children, thread;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    getrusage(RUSAGE_THREAD, &thread);
    cpu_line(out, "used_cpu_sys", self.ru_stime);
    cpu_line(out, "used_cpu_user", self.ru_utime);
    cpu_line(out, "used_cpu_sys_children", children.ru_stime);
    cpu_line(out, "used_cpu_user_children", children.ru_utime);
    cpu_line(out, "used_cpu_sys_main_thread", thread.ru_stime);
    cpu_line(out, "used_cpu_user_main_thread", thread.ru_utime);
    uint64_t active_us = event_loop_stats(server.loop)->busy_us;
    line(out, "used_active_time_main_thread:%llu.%06llu", ull(active_us / 1000000), ull(active_us % 1000000));
    for (int i = 1; i <= io_threads_count(); i++) {
        uint64_t us = io_thread_cpu_us(i);
        line(out, "used_active_time_io_thread_%d:%llu.%06llu", i, ull(us / 1000000), ull(us % 1000000));
    }
}

/* --- INFO stats --- */

static void stats_write_traffic(struct output *out) {
    line(out, "total_connections_received:%llu", ull(client_stats.accepted));
    line(out, "total_commands_processed:%llu", ull(dispatch_commands));
    line(out, "instantaneous_ops_per_sec:%llu", ull(rate_mean(&commands_rate)));
    line(out, "total_net_input_bytes:%llu", ull(client_stats.bytes_in));
    line(out, "total_net_output_bytes:%llu", ull(client_stats.bytes_out));
    line(out, "total_net_repl_input_bytes:%llu", ull(replication_stats.bytes_in));
    line(out, "total_net_repl_output_bytes:%llu", ull(replication_stats.bytes_out));
    uint64_t imported = 0, exported = 0;
    if (cluster_hooks) cluster_hooks->migration_traffic(&imported, &exported);
    line(out, "total_net_cluster_slot_import_bytes:%llu", ull(imported));
    line(out, "total_net_cluster_slot_export_bytes:%llu", ull(exported));
    line(out, "instantaneous_input_kbps:%.2f", (double)rate_mean(&input_rate) / 1024);
    line(out, "instantaneous_output_kbps:%.2f", (double)rate_mean(&output_rate) / 1024);
    line(out, "instantaneous_input_repl_kbps:%.2f", (double)rate_mean(&repl_input_rate) / 1024);
    line(out, "instantaneous_output_repl_kbps:%.2f", (double)rate_mean(&repl_output_rate) / 1024);
    line(out, "rejected_connections:%llu", ull(client_stats.rejected));
    line(out, "sync_full:%llu", ull(replication_stats.full));
    line(out, "sync_partial_ok:%llu", ull(replication_stats.partial_ok));
    line(out, "sync_partial_err:%llu", ull(replication_stats.partial_refused));
}

static void stats_write_store(struct output *out) {
    line(out, "expired_keys:%llu", ull(store_stats.expired_keys));
    line(out, "expired_fields:%llu", ull(store_stats.expired_fields));
    line(out, "expired_stale_perc:%.2f", store_stats.expired_stale_percent);
    /* Fields are found by their expiration times, so a search never visits a field that has not expired. */
    line(out, "expired_keys_with_volatile_items_stale_perc:%.2f", store_stats.expired_hashes_stale_percent);
    line(out, "expired_time_cap_reached_count:%llu", ull(store_stats.expired_time_cap_reached));
    line(out, "expire_cycle_cpu_milliseconds:%llu", ull(store_stats.expire_cycle_us / 1000));
    line(out, "evicted_keys:%llu", ull(store_stats.evicted_keys));
    line(out, "evicted_clients:%llu", ull(clients_evicted()));
    struct script_usage scripts;
    script_usage_read(&scripts);
    line(out, "evicted_scripts:%llu", ull(scripts.evicted));
    line(out, "total_eviction_exceeded_time:%llu", ull(eviction_exceeded_us(true) / 1000));
    line(out, "current_eviction_exceeded_time:%llu", ull(eviction_exceeded_us(false) / 1000));
    line(out, "keyspace_hits:%llu", ull(store_stats.hits));
    line(out, "keyspace_misses:%llu", ull(store_stats.misses));
}

static void stats_write(struct output *out) {
    stats_write_traffic(out);
    stats_write_store(out);
}

/* The fields after those of pubsub/. */
static void stats_write_rest(struct output *out) {
    const struct event_loop_stats *loop = event_loop_stats(server.loop);
    line(out, "latest_fork_usec:%llu", ull(child_stats.latest_fork_us));
    line(out, "total_forks:%llu", ull(child_stats.total_forks));
    line(out, "migrate_cached_sockets:%zu", stats_migrate_connections);
    line(out, "slave_expires_tracked_keys:%zu", role_sync.tracked_keys);
    struct defrag_stats defrag = defrag_stats();
    line(out, "active_defrag_hits:%llu", ull(defrag.hits));
    line(out, "active_defrag_misses:%llu", ull(defrag.misses));
    line(out, "active_defrag_key_hits:%llu", ull(defrag.key_hits));
    line(out, "active_defrag_key_misses:%llu", ull(defrag.key_misses));
    line(out, "total_active_defrag_time:%llu", ull(defrag.total_us / 1000));
    line(out, "current_active_defrag_time:%llu", ull(defrag.current_us / 1000));
    line(out, "tracking_total_keys:%zu", tracking_stats.keys);
    line(out, "tracking_total_items:%zu", tracking_stats.items);
    line(out, "tracking_total_prefixes:%zu", tracking_stats.prefixes);
    line(out, "unexpected_error_replies:%llu", ull(role_sync.errors));
    line(out, "total_error_replies:%llu", ull(errorstats_total()));
    line(out, "dump_payload_sanitizations:%llu", ull(rdb_sanitizations));
    line(out, "total_reads_processed:%llu", ull(client_stats.reads));
    line(out, "total_writes_processed:%llu", ull(client_stats.writes));
    line(out, "io_threaded_reads_processed:%llu", ull(io_threads_reads()));
    line(out, "io_threaded_writes_processed:%llu", ull(io_threads_writes()));
    static const char *const threads[] = {"io_threaded_freed_objects", "io_threaded_accept_processed",
                                          "io_threaded_poll_processed"};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) line(out, "%s:0", threads[i]);
    line(out, "io_threaded_total_prefetch_batches:%llu", ull(io_threads_prefetched.batches));
    line(out, "io_threaded_total_prefetch_entries:%llu", ull(io_threads_prefetched.keys));
    line(out, "client_query_buffer_limit_disconnections:%llu", ull(client_stats.query_limit_closed));
    line(out, "client_output_buffer_limit_disconnections:%llu", ull(client_stats.output_limit_closed));
    line(out, "reply_buffer_shrinks:%llu", ull(client_stats.reply_shrinks));
    line(out, "reply_buffer_expands:%llu", ull(client_stats.reply_expands));
    line(out, "eventloop_cycles:%llu", ull(loop->turns));
    line(out, "eventloop_duration_sum:%llu", ull(loop->busy_us));
    line(out, "eventloop_duration_cmd_sum:%llu", ull(ticks_to_us(dispatch_ticks_total)));
    line(out, "instantaneous_eventloop_cycles_per_sec:%llu", ull(rate_mean(&cycles_rate)));
    uint64_t cycles = rate_mean(&cycles_rate);
    line(out, "instantaneous_eventloop_duration_usec:%llu", ull(cycles ? rate_mean(&duration_rate) / cycles : 0));
    line(out, "acl_access_denied_auth:%llu", ull(auth_denied()));
    line(out, "acl_access_denied_cmd:%llu", ull(auth_denials(USER_DENIED_COMMAND)));
    line(out, "acl_access_denied_key:%llu", ull(auth_denials(USER_DENIED_KEY)));
    line(out, "acl_access_denied_channel:%llu", ull(auth_denials(USER_DENIED_CHANNEL)));
    line(out, "acl_access_denied_tls_cert:%llu", (unsigned long long)auth_denied_certificates());
    line(out, "acl_access_denied_db:%llu", ull(auth_denials(USER_DENIED_DATABASE)));
}

static void stats_reset(void) {
    client_stats = (struct client_stats){0};
    rdb_sanitizations = 0;
    io_threads_prefetched = (struct io_threads_prefetched){0};
    dispatch_commands = dispatch_ticks_total = 0;
    store_stats = (struct store_stats){0};
    atomic_store_explicit(&store_lazyfree.freed, 0, memory_order_relaxed);
    replication_stats = (struct replication_stats){0};
    child_stats = (struct child_stats){0};
    commands_rate.last_value = input_rate.last_value = output_rate.last_value = 0;
    repl_input_rate.last_value = repl_output_rate.last_value = 0;
    memset(commands_rate.samples, 0, sizeof commands_rate.samples);
    memset(input_rate.samples, 0, sizeof input_rate.samples);
    memset(output_rate.samples, 0, sizeof output_rate.samples);
    clients_evicted_reset();
    eviction_reset_stats();
    defrag_reset_stats();
    if (script_hooks) script_hooks->reset_stats();
    if (cluster_hooks) cluster_hooks->reset_stats();
}

static void debug_write(struct output *out) {
    const struct event_loop_stats *loop = event_loop_stats(server.loop);
    line(out, "eventloop_duration_aof_sum:%llu", ull(ticks_to_us(turn_stats.aof_ticks)));
    line(out, "eventloop_duration_cron_sum:%llu", ull(ticks_to_us(turn_stats.cron_ticks)));
    line(out, "eventloop_duration_max:%llu", ull(loop->longest_us));
    line(out, "eventloop_cmd_per_cycle_max:%llu", ull(turn_stats.most_commands));
    /* A connection belongs to one thread, which reads and writes it: nothing is handed over and pending. */
    line(out, "io_threaded_reads_pending:0");
    line(out, "io_threaded_writes_pending:0");
}

/* --- INFO commandstats, errorstats, latencystats --- */

static void command_write(struct command *command, void *context) {
    if (!command->calls && !command->rejected && !command->failed) return;
    uint64_t usec = command_usec(command);
    char name[128]; /* a module may name its command as it likes */
    snprintf(name, sizeof name, "%s", command->full_name);
    for (char *at = strpbrk(name, "#:\r\n"); at; at = strpbrk(at, "#:\r\n")) *at = '_';
    line(context, "cmdstat_%s:calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,failed_calls=%llu", name,
         ull(command->calls), ull(usec),
         command->calls ? (double)command->ticks / ticks_per_us() / (double)command->calls : 0.0,
         ull(command->rejected), ull(command->failed));
}
static void commandstats_write(struct output *out) {
    commands_each_all(command_write, out);
}

static void error_write(struct slice code, uint64_t count, void *context) {
    line(context, "errorstat_%.*s:count=%llu", (int)code.len, code.data, ull(count));
}
static void errorstats_write(struct output *out) {
    errorstats_each(error_write, out);
}

enum { PERCENTILES_MAX = 32 };
static double percentiles[PERCENTILES_MAX];
static int percentiles_count;

static void percentile_text(char *text, size_t size, double value) {
    int len = snprintf(text, size, "%f", value);
    while (len > 0 && text[len - 1] == '0') text[--len] = 0;
    if (len > 0 && text[len - 1] == '.') text[--len] = 0;
}

static void latency_write(struct command *command, void *context) {
    if (!command->latency || !command->latency->count) return;
    char text[PERCENTILES_MAX * 48 + 1] = "", number[32];
    int at = 0;
    for (int i = 0; i < percentiles_count; i++) {
        percentile_text(number, sizeof number, percentiles[i]);
        at += snprintf(text + at, sizeof text - (size_t)at, "%sp%s=%.3f", i ? "," : "", number,
                       (double)histogram_percentile(command->latency, percentiles[i]) / ticks_per_us());
    }
    line(context, "latency_percentiles_usec_%s:%s", command->full_name, text);
}
static void latencystats_write(struct output *out) {
    if (dispatch_settings.latency_tracking) commands_each_all(latency_write, out);
}

static const struct info_section stats_sections[] = {
    {.name = "server", .title = "Server", .order = 10, .write = server_write},
    {.name = "clients", .title = "Clients", .order = 20, .write = clients_write},
    {.name = "stats", .title = "Stats", .order = 50, .write = stats_write, .reset = stats_reset},
    {.name = "stats", .title = "Stats", .order = 52, .write = stats_write_rest},
    {.name = "cpu", .title = "CPU", .order = 70, .write = cpu_write},
    {.name = "commandstats",
     .title = "Commandstats",
     .order = 90,
     .when = INFO_ALL_ONLY,
     .write = commandstats_write,
     .reset = commands_reset_stats},
    {.name = "errorstats", .title = "Errorstats", .order = 100, .write = errorstats_write, .reset = errorstats_reset},
    {.name = "latencystats", .title = "Latencystats", .order = 110, .when = INFO_ALL_ONLY, .write = latencystats_write},
    {.name = "debug", .title = "Debug", .order = 140, .when = INFO_NAMED_ONLY, .write = debug_write},
    {.name = NULL},
};

/* --- Options --- */

static const char *apply_latency_tracking(void) {
    if (!dispatch_settings.latency_tracking) commands_reset_latency();
    return NULL;
}

static const char *set_percentiles(const struct config_option *option, int count, const struct slice *words) {
    double values[PERCENTILES_MAX];
    if (count > PERCENTILES_MAX) return config_reason("at most %d percentiles", PERCENTILES_MAX);
    for (int i = 0; i < count; i++) {
        if ((words[i].len && memchr(words[i].data, 'x', words[i].len)) || !parse_double(words[i], &values[i]))
            return "Invalid latency-tracking-info-percentiles parameters";
        if (values[i] < 0 || values[i] > 100)
            return "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
    }
    memcpy(percentiles, values, (size_t)count * sizeof *values);
    percentiles_count = count;
    return NULL;
}

static void get_percentiles(const struct config_option *option, struct output *out) {
    char number[32];
    for (int i = 0; i < percentiles_count; i++) {
        percentile_text(number, sizeof number, percentiles[i]);
        if (i) output_write(out, SLICE(" "));
        output_write(out, slice_of(number));
    }
}

static const struct config_option stats_options[] = {
    {OPTION("latency-tracking", CONFIG_BOOL, &dispatch_settings.latency_tracking, "yes"),
     .apply = apply_latency_tracking},
    {OPTION("latency-tracking-info-percentiles", CONFIG_CUSTOM, NULL, "50 99 99.9"),
     .flags = CONFIG_MULTI_ARG | CONFIG_WRITTEN, .set = set_percentiles, .get = get_percentiles},
    {.name = NULL},
};

const struct feature stats_feature = {
    .name = "stats", .options = OPTIONS(stats_options), .sections = SECTIONS(stats_sections)};
