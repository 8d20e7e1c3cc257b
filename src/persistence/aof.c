/* aof.c: the append-only file as a feature of the server: on and off, the cron, options, BGREWRITEAOF, INFO. */
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "persistence/aof_private.h"
#include "persistence/background_save.h"
#include "persistence/snapshot.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/script_hooks.h"
#include "server/stats/info.h"
#include "server/uncounted_memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct aof_settings aof_settings;
struct aof aof = {.fd = -1, .rewrite_seconds = -1};

bool aof_is_configured(void) {
    return aof_settings.enabled;
}

/* --- On and off --- */

void aof_opened(int fd) {
    aof.fd = fd;
    aof.fd_size = (uint64_t)lseek(fd, 0, SEEK_END);
    aof.state = AOF_ON;
    aof_append_start();
    aof_sync_start();
    aof.size = aof_files_size();
    aof.base_size = aof_base_file_size(); /* else a server that restarts often would never rewrite the file */
}

/* In the background, because closing the last descriptor of a large deleted file takes long. */
static void close_run(void *arg) {
    close((int)(intptr_t)arg);
}
void aof_closed(void) {
    aof_append_seal();
    aof_sync_stop();
    aof_append_stop();
    background_submit(BACKGROUND_CLOSE_FILE, close_run, (void *)(intptr_t)aof.fd);
    aof.fd = -1;
}

static void aof_end(void) {
    bool starting = aof.state == AOF_STARTING;
    aof_rewrite_cancel();
    if (aof.fd >= 0) {
        aof_sync_all();
        aof_closed();
    }
    aof.state = AOF_OFF;
    aof.rewrite_scheduled = false;
    if (starting) aof_delete_temporary_files();
}

/* CONFIG SET appendonly yes. Starts a rewrite, whose data set becomes the base. The files are in use when the rewrite
 * has succeeded. */
static const char *turn_on(void) {
    aof_rewrite_cancel(); /* changes since its start were not appended anywhere */
    aof.state = AOF_STARTING;
    const struct call *call = dispatch_running();
    if (call && call->client->flags & CLIENT_DENY_BLOCKING) {
        aof.rewrite_scheduled = true;
        log_notice("AOF was enabled during a transaction. An AOF background was scheduled to start when possible.");
        return NULL;
    }
    if (child_active()) {
        aof.rewrite_scheduled = true;
        log_notice("AOF was enabled but there is already another background operation. An AOF background was scheduled "
                   "to start when possible.");
        return NULL;
    }
    if (aof_rewrite_start() == 0) return NULL;
    aof_end();
    return "Unable to turn on AOF. Check server logs.";
}

static const char *apply_enabled(void) {
    if (!server.loop || server.loading) return NULL; /* applied after loading */
    if (aof_settings.enabled && aof.state == AOF_OFF) return turn_on();
    if (!aof_settings.enabled && aof.state != AOF_OFF) {
        aof_end();
        log_notice("The append-only file was turned off");
    }
    return NULL;
}

/* If the rewrite cannot start now, the cron tries again. */
void aof_restart(void) {
    if (aof.state == AOF_OFF) return;
    aof_end();
    if (!turn_on()) return;
    aof.state = AOF_STARTING;
    aof.rewrite_scheduled = true;
}

void aof_restart_from(const char *rdb) {
    if (aof.state == AOF_OFF) return;
    if (!aof_settings.rdb_preamble) {
        aof_restart();
        return;
    }
    aof_end();
    int fd = aof_base_adopt(rdb);
    if (fd < 0) {
        log_warning("The RDB file from the primary cannot become the base of the append-only file: %s", strerror(-fd));
        aof.state = AOF_STARTING;
        aof_restart();
        return;
    }
    aof_opened(fd);
    aof_append_select();
    aof.rewrite_failed = false;
    aof.failures_in_a_row = 0;
    aof_history_delete();
    log_notice("Reused RDB file from primary sync as AOF base file: %s", aof.manifest->base->name);
}

/* --- The cron and the turns of the loop --- */

static bool has_grown(int64_t *percent) {
    if (!aof_settings.rewrite_percentage || aof.state != AOF_ON) return false;
    if (aof.size < (uint64_t)aof_settings.rewrite_min_size) return false;
    uint64_t base = aof.base_size ? aof.base_size : 1;
    *percent = (int64_t)(aof.size * 100 / base) - 100;
    return *percent >= aof_settings.rewrite_percentage;
}

/* After BACKOFF_AFTER failures in a row the cron waits before the next attempt, twice as long after each failure. */
static bool backs_off(void) {
    if (aof.failures_in_a_row < BACKOFF_AFTER) {
        aof.retry_at_ms = 0;
        aof.retry_minutes = 0;
        return false;
    }
    if (aof.retry_at_ms) return clock_mono_ms() < aof.retry_at_ms;
    aof.retry_minutes = aof.retry_minutes ? aof.retry_minutes * 2 : 1;
    if (aof.retry_minutes > BACKOFF_MAX_MINUTES) aof.retry_minutes = BACKOFF_MAX_MINUTES;
    aof.retry_at_ms = clock_mono_ms() + aof.retry_minutes * 60000;
    log_warning("Background AOF rewrite has repeatedly failed and triggered the limit, will retry in %d minutes",
                aof.retry_minutes);
    return true;
}

static void refuse_or_allow_writes(void);

static void aof_cron(void) {
    if (aof.state == AOF_OFF && !aof.rewrite_scheduled) return;
    aof_sync_step();
    refuse_or_allow_writes();
    if (child_active() || server_is_loading()) return; /* loading replaces the data */
    int64_t percent = 0;
    bool starting = aof.rewrite_scheduled && aof.state == AOF_STARTING, grown = has_grown(&percent);
    if (aof.rewrite_scheduled && !starting) {
        aof_rewrite_start();
    } else if ((starting || grown) && !backs_off()) {
        if (!starting) log_notice("Starting automatic rewriting of AOF on %lld%% growth", (long long)percent);
        aof.retry_at_ms = 0;
        aof_rewrite_start();
    }
}

static void aof_before_wait(void) {
    if (aof.state == AOF_OFF) return;
    uint64_t started = ticks_now();
    aof_sync_step();
    turn_stats.aof_ticks += ticks_now() - started;
    refuse_or_allow_writes();
}

static bool prepare_shutdown(int flags) {
    if (aof.state == AOF_OFF) return true;
    if (aof_rewrite_running()) {
        if (aof.state == AOF_STARTING && !(flags & SHUTDOWN_FORCE)) {
            log_warning("Writing initial AOF, can't exit.");
            return false;
        }
        log_warning("There is a child rewriting the AOF. Killing it!");
        aof_rewrite_cancel();
    }
    if (child_kind() == CHILD_AOF) child_kill_wait(); /* it removes its temporary file */
    log_notice("Calling fsync() on the AOF file.");
    if (aof.fd < 0 || aof_sync_all() >= 0 || flags & SHUTDOWN_FORCE) return true;
    bool insisted = flags & SHUTDOWN_INSISTED;
    log_warning(insisted
                    ? "The append-only file cannot be written (%s). Exiting nevertheless: the last writes are lost."
                    : "The append-only file cannot be written (%s), and the last writes would be lost: can't exit. "
                      "A second signal or SHUTDOWN FORCE exits nevertheless.",
                aof_sync_error_text());
    return insisted;
}

/* The filter is installed only while the file cannot be written. */
static enum filter_answer refuse_writes(struct client *client, const struct command *command, int argc,
                                        const struct slice *argv, const char **error) {
    static char text[256];
    if (!(dispatch_flags(client, command, argv) & CMD_WRITE) && strcmp(command->spec->name, "ping") != 0)
        return FILTER_PASS;
    snprintf(text, sizeof text, "MISCONF Errors writing to the AOF file: %s", aof_sync_error_text());
    *error = text;
    return FILTER_REFUSE;
}
static struct command_filter write_filter = {.order = FILTER_DISK, .ask = refuse_writes};

bool aof_refuses_writes(void) {
    return aof.state != AOF_OFF && aof_sync_failed();
}

static void refuse_or_allow_writes(void) {
    static bool refused;
    bool refuse = aof_refuses_writes();
    if (refuse == refused) return;
    refused = refuse;
    reply_barrier_pass_reads(refuse);
    dispatch_set_filter(&write_filter, refuse);
}

static size_t buffer_memory(void) {
    return aof_sync_waiting_bytes();
}
static struct uncounted_memory uncounted = {.bytes = buffer_memory};

static void aof_start(void) {
    uncounted_memory_add(&uncounted);
    if (!aof.manifest) aof.manifest = aof_manifest_new();
}

const struct server_part aof_part = {.name = "aof",
                                     .start = aof_start,
                                     .cron = aof_cron,
                                     .before_wait = aof_before_wait,
                                     .in_call = true,
                                     .prepare_shutdown = prepare_shutdown};

/* --- BGREWRITEAOF --- */

static void bgrewriteaof_run(struct call *call) {
    bool in_transaction = call->client->flags & CLIENT_DENY_BLOCKING;
    if (aof_rewrite_running()) {
        reply_error(call->reply, "ERR Background append only file rewriting already in progress");
    } else if (child_active() || in_transaction) {
        aof.rewrite_scheduled = true;
        reply_status(call->reply, "Background append only file rewriting scheduled");
    } else if (aof_rewrite_start() == 0) {
        reply_status(call->reply, "Background append only file rewriting started");
    } else {
        reply_error(call->reply, "ERR Can't execute an AOF background rewriting. Please check the server logs for more "
                                 "information.");
    }
}

const struct command_spec aof_commands[] = {
    {COMMAND("bgrewriteaof", bgrewriteaof_run, 1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING,
             .group = GROUP_SERVER, "1.0.0"),
     .complexity = "O(1)", .summary = "Rewrites the append-only file in the background, with only the current data.",
     .syntax = ""},
    {.name = NULL},
};

/* DEBUG LOADAOF. If appendonly is off, it loads the files as they were when it was last on. */

/* Whether the manifest that was found again ends with the file that has all writes. CONFIG SET may have changed `dir`,
 * or the files may have been replaced. */
static bool files_are_current(void) {
    const struct aof_file *last = aof_manifest_last(aof.manifest);
    struct stat own, found;
    return aof.state == AOF_ON && last && fstat(aof.fd, &own) == 0 && stat(aof_path(last->name), &found) == 0 &&
           own.st_dev == found.st_dev && own.st_ino == found.st_ino;
}

/* The files are older than the stream's position while the first rewrite runs, and while appendonly is off. */
static void files_loaded(void) {
    if (files_are_current()) return;
    role_data_replaced();
    if (aof.state == AOF_ON) aof_restart();
}

static void debug_loadaof(struct call *call) {
    if (debug_refused_by_load(call)) return;
    if (aof_sync_all() < 0) {
        reply_error(call->reply, "ERR Error writing to the AOF file, check server logs.");
        return;
    }
    if (aof.state == AOF_STARTING) {
        /* The first base must have the loaded data. */
        aof_rewrite_cancel();
        aof.rewrite_scheduled = true;
    }
    background_save_data_leaves();
    server_flush_all(false);
    if (script_hooks) script_hooks->replace_libraries(NULL, 0);
    int error = aof_reload();
    if (error < 0 && error != -ENOENT) { /* clients must not see incomplete data */
        log_warning("Error trying to load the AOF files. Exiting.");
        exit(1);
    }
    files_loaded();
    if (error < 0) {
        reply_error(call->reply, "ERR Error trying to load the AOF files, check server logs.");
        return;
    }
    server.dirty = 0;
    log_notice("Append Only File loaded by DEBUG LOADAOF");
    reply_ok(call->reply);
}

/* DEBUG AOF-FLUSH-SLEEP. Text that is not a number means 0, as in Valkey. */
static void debug_flush_sleep(struct call *call) {
    int64_t us;
    bool is_number = parse_int64(call->argv[2], &us);
    aof_sync_set_sleep(is_number && us > 0 ? (uint64_t)(us < UINT32_MAX ? us : UINT32_MAX) : 0);
    reply_ok(call->reply);
}

/* DEBUG AOF-SYNC-THREAD. Without an argument it returns the thread that writes the next group. */
static void debug_sync_thread(struct call *call) {
    static const char *const names[] = {
        [AOF_GROUP_AUTO] = "auto", [AOF_GROUP_MAIN] = "main", [AOF_GROUP_BACKGROUND] = "background"};
    if (call->argc == 2) {
        reply_status(call->reply, names[aof_sync_on_main_thread() ? AOF_GROUP_MAIN : AOF_GROUP_BACKGROUND]);
        return;
    }
    uint64_t fast_us = AOF_FAST_US;
    if (call->argc > 3 && !parse_uint64(call->argv[3], &fast_us)) {
        reply_error(call->reply, "ERR value is not an integer or out of range");
        return;
    }
    for (int thread = 0; thread < (int)(sizeof names / sizeof *names); thread++) {
        if (!slice_is(call->argv[2], names[thread])) continue;
        aof_sync_set_thread((enum aof_group_thread)thread, fast_us);
        reply_ok(call->reply);
        return;
    }
    reply_syntax_error(call->reply);
}

static const char *const flush_sleep_help[] = {
    "AOF-FLUSH-SLEEP <microsec>", "    Server will sleep before flushing the AOF, this is used for testing.", NULL};
static const char *const sync_thread_help[] = {
    "AOF-SYNC-THREAD [<auto|main|background> [<microsec>]]",
    "    Set the thread that writes and syncs with appendfsync always, and for auto the time below which a",
    "    group counts as fast. Without arguments: show the thread that writes the next group.", NULL};
static const char *const loadaof_help[] = {"LOADAOF", "    Flush the AOF buffers on disk and reload the AOF in memory.",
                                           NULL};
const struct debug_subcommand aof_debug_subcommands[] = {
    {.name = "aof-flush-sleep",
     .min_arguments = 1,
     .max_arguments = 1,
     .run = debug_flush_sleep,
     .help = flush_sleep_help},
    {.name = "aof-sync-thread",
     .min_arguments = 0,
     .max_arguments = 2,
     .run = debug_sync_thread,
     .help = sync_thread_help},
    {.name = "loadaof", .run = debug_loadaof, .help = loadaof_help},
    {.name = NULL},
};

/* --- INFO --- */

void aof_info(struct output *out) {
    int64_t now = clock_mono_ms();
    info_line(out, "aof_enabled:%d", aof.state != AOF_OFF);
    info_line(out, "aof_rewrite_in_progress:%d", aof_rewrite_running());
    info_line(out, "aof_rewrite_scheduled:%d", aof.rewrite_scheduled);
    info_line(out, "aof_last_rewrite_time_sec:%lld", (long long)aof.rewrite_seconds);
    info_line(out, "aof_current_rewrite_time_sec:%lld",
              aof_rewrite_running() ? (long long)((now - aof.rewrite_started_ms) / 1000) : -1LL);
    info_line(out, "aof_last_bgrewrite_status:%s", aof.rewrite_failed ? "err" : "ok");
    info_line(out, "aof_rewrites:%llu", (unsigned long long)aof.rewrites);
    info_line(out, "aof_rewrites_consecutive_failures:%llu", (unsigned long long)aof.failures_in_a_row);
    info_line(out, "aof_last_write_status:%s", aof_sync_failed() ? "err" : "ok");
    info_line(out, "aof_last_cow_size:0"); /* a rewrite copies no pages */
}

void aof_info_sizes(struct output *out) {
    if (aof.state == AOF_OFF) return;
    info_line(out, "aof_current_size:%llu", (unsigned long long)aof.size);
    info_line(out, "aof_base_size:%llu", (unsigned long long)aof.base_size);
    info_line(out, "aof_pending_rewrite:%d", aof.rewrite_scheduled);
    info_line(out, "aof_buffer_length:%zu", aof_sync_waiting_bytes());
    info_line(out, "aof_pending_bio_fsync:%zu", aof_sync_pending());
    info_line(out, "aof_delayed_fsync:%llu", (unsigned long long)aof_sync_delayed());
}

void aof_reset_stats(void) {
    aof_sync_reset_stats();
    aof.rewrites = 0;
}

/* --- Options --- */

static const char *check_name(const struct config_option *option, struct slice text) {
    if (!text.len) return config_reason("%s can't be empty", option->name);
    return memchr(text.data, '/', text.len) || memchr(text.data, '\\', text.len)
               ? config_reason("%s can't be a path, just a %s", option->name,
                               strcmp(option->name, "appenddirname") == 0 ? "dirname" : "filename")
               : NULL;
}

static const char *apply_keep_history(void) {
    aof_history_delete();
    return NULL;
}

static const struct config_name fsync_names[] = {
    {"everysec", AOF_FSYNC_EVERYSEC}, {"always", AOF_FSYNC_ALWAYS}, {"no", AOF_FSYNC_NO}, {NULL, 0}};

const struct config_option aof_options[] = {
    {OPTION("appendonly", CONFIG_BOOL, &aof_settings.enabled, "no"), .flags = CONFIG_DENY_LOADING,
     .apply = apply_enabled},
    {OPTION("appendfilename", CONFIG_STRING, &aof_settings.file_name, "appendonly.aof"), .flags = CONFIG_IMMUTABLE,
     .check = check_name},
    {OPTION("appenddirname", CONFIG_STRING, &aof_settings.directory, "appendonlydir"), .flags = CONFIG_IMMUTABLE,
     .check = check_name},
    {OPTION("appendfsync", CONFIG_ENUM, &aof_settings.fsync, "everysec"), .names = fsync_names},
    {OPTION("no-appendfsync-on-rewrite", CONFIG_BOOL, &aof_settings.no_fsync_on_rewrite, "no")},
    {OPTION("auto-aof-rewrite-percentage", CONFIG_INT, &aof_settings.rewrite_percentage, "100"), .min = 0,
     .max = INT32_MAX},
    {OPTION("auto-aof-rewrite-min-size", CONFIG_MEMORY, &aof_settings.rewrite_min_size, "64mb"), .min = 0,
     .max = INT64_MAX},
    {OPTION("aof-load-truncated", CONFIG_BOOL, &aof_settings.load_truncated, "yes")},
    {OPTION("aof-use-rdb-preamble", CONFIG_BOOL, &aof_settings.rdb_preamble, "yes")},
    {OPTION("aof-timestamp-enabled", CONFIG_BOOL, &aof_settings.timestamps, "no")},
    {OPTION("aof-rewrite-incremental-fsync", CONFIG_BOOL, &aof_settings.rewrite_incremental_fsync, "yes")},
    {OPTION("aof-disable-auto-gc", CONFIG_BOOL, &aof_settings.keep_history, "no"), .flags = CONFIG_HIDDEN,
     .apply = apply_keep_history},
    {.name = NULL},
};
