/* persistence_info.c: INFO persistence. */
#include "lib/system/clock.h"
#include "persistence/aof.h"
#include "persistence/forkless.h"
#include "persistence/persistence.h"
#include "persistence/loading.h"
#include "persistence/snapshot.h"
#include "server/feature.h"
#include "server/stats/info.h"
#include "server/server.h"
#include "server/process/child.h"

static unsigned long long ull(uint64_t n) {
    return n;
}

static void write_child(struct output *out) {
    struct child_progress progress = child_progress();
    info_line(out, "current_cow_peak:%llu", ull(progress.cow_peak));
    info_line(out, "current_cow_size:%llu", ull(progress.cow));
    info_line(out, "current_cow_size_age:%llu", ull(progress.cow_age));
    info_line(out, "current_fork_perc:%.2f", progress.percent);
    info_line(out, "current_save_keys_processed:%llu", ull(progress.keys));
    info_line(out, "current_save_keys_total:%llu", ull(progress.keys_total));
}

static const char *method_name(bool any) {
    return any ? "forkless" : "none";
}

static void write_snapshots(struct output *out) {
    const struct snapshot_state *s = &snapshot_state;
    bool to_replicas = child_kind() == CHILD_REPLICATION, running = snapshot_running() || to_replicas;
    int64_t started_ms = to_replicas ? child_progress().started_ms : s->started_ms;
    info_line(out, "rdb_changes_since_last_save:%llu", ull(server.dirty));
    info_line(out, "rdb_bgsave_in_progress:%d", running);
    info_line(out, "rdb_last_save_time:%lld", (long long)(s->last_save_ms / 1000));
    info_line(out, "rdb_last_bgsave_status:%s", s->failed ? "err" : "ok");
    info_line(out, "rdb_last_bgsave_time_sec:%lld", (long long)s->last_seconds);
    info_line(out, "rdb_current_bgsave_time_sec:%lld",
              running ? (long long)((clock_mono_ms() - started_ms) / 1000) : -1LL);
    info_line(out, "rdb_saves:%llu", ull(s->saves));
    info_line(out, "rdb_last_cow_size:0"); /* a save copies no pages */
    info_line(out, "rdb_last_load_keys_expired:%llu", ull(loading_state.last_expired));
    info_line(out, "rdb_last_load_keys_loaded:%llu",
              ull(server.loading ? loading_state.keys : loading_state.last_keys));
}

/* Valkey 9.1 does not have these fields: they follow all others. */
static void write_methods(struct output *out) {
    struct forkless_stats forkless = forkless_stats();
    bool saves = child_kind() == CHILD_RDB || child_kind() == CHILD_REPLICATION;
    info_line(out, "rdb_current_bgsave_type:%s", method_name(saves));
    info_line(out, "rdb_last_bgsave_type:%s", method_name(snapshot_state.last_try_ms));
    info_line(out, "forkless_estimated_seconds_remaining:%lld", (long long)forkless.seconds_left);
    info_line(out, "forkless_waiting_bytes:%llu", ull(forkless.waiting));
    info_line(out, "forkless_write_pauses:%llu", ull(forkless.pauses));
}

static void write_loading(struct output *out) {
    const struct loading_state *s = &loading_state;
    uint64_t loaded = s->loaded < s->total ? s->loaded : s->total;
    uint64_t elapsed = (uint64_t)(clock_mono_ms() - s->began_ms) / 1000;
    info_line(out, "loading_start_time:%lld", (long long)(s->started_ms / 1000));
    info_line(out, "loading_total_bytes:%llu", ull(s->total));
    info_line(out, "loading_rdb_used_mem:%llu", ull(s->used_memory));
    info_line(out, "loading_loaded_bytes:%llu", ull(loaded));
    info_line(out, "loading_loaded_perc:%.2f", s->total ? (double)loaded * 100 / (double)s->total : 0.0);
    info_line(out, "loading_eta_seconds:%llu", ull(elapsed ? elapsed * (s->total - loaded) / (loaded + 1) : 1));
}

static void write_persistence(struct output *out) {
    info_line(out, "loading:%d", server.loading);
    info_line(out, "async_loading:%d", server.async_loading);
    write_child(out);
    write_snapshots(out);
    aof_info(out);
    info_line(out, "module_fork_in_progress:%d", child_kind() == CHILD_MODULE);
    info_line(out, "module_fork_last_cow_size:%llu", ull(child_last_module_cow()));
    info_line(out, "slot_migration_fork_in_progress:0");
    aof_info_sizes(out);
    if (server_is_loading()) write_loading(out);
    write_methods(out);
}

static void reset(void) {
    snapshot_state.saves = 0;
    aof_reset_stats();
}

static const struct info_section persistence_sections[] = {
    {.name = "persistence", .title = "Persistence", .order = 40, .write = write_persistence, .reset = reset},
    {.name = NULL},
};

const struct feature persistence_feature = {
    .name = "persistence",
    .options = OPTIONS(persistence_options, aof_options),
    .commands = COMMANDS(snapshot_commands, aof_commands),
    .debug = DEBUG_SUBCOMMANDS(debug_reload_subcommands, aof_debug_subcommands),
    .sections = SECTIONS(persistence_sections),
    /* On SHUTDOWN aof_part ends its child before snapshot_part saves. */
    .parts = PARTS(&aof_part, &snapshot_part),
};
