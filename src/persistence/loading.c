/* loading.c: see loading.h.
 *
 * Each turn of the event loop during a load is complete: replies are sent, the cron runs, closed connections are
 * freed, and signals are handled. While the data set is loading, the cron neither expires keys nor resizes tables
 * (lifecycle.c), because the reader is adding keys. */
#include "persistence/loading.h"
#include "formats/rdb.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/background_save.h"
#include "persistence/persistence.h"
#include "persistence/save_points.h"
#include "persistence/snapshot.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/settings.h"
#include "server/nested_turn.h"
#include "server/repl_hooks.h"
#include "server/command/command.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/script_hooks.h"
#include "server/server_events.h"
#include "store/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_INTERVAL_MS = 5000, DELAY_TURN_US = 10000 };

struct loading_state loading_state;
static struct {
    enum loading_service service;
    struct source *source;
    uint64_t before; /* bytes of the sources before it */
    int64_t logged_ms;
    uint64_t turned_us;
    uint64_t reported_us; /* EVENT_LOADING_PROGRESS */
} run;

/* --- Serving clients during a load --- */

static enum filter_answer refuse_command(struct client *client, const struct command *command, int argc,
                                         const struct slice *argv, const char **error) {
    if (dispatch_flags(client, command, argv) & CMD_LOADING) return FILTER_PASS;
    *error = WITH_PRODUCT("LOADING ", " is loading the dataset in memory");
    return FILTER_REFUSE;
}
static struct command_filter filter = {.order = FILTER_LOADING, .asks_obeyed = true, .ask = refuse_command};
static struct command_filter async_filter = {
    .order = FILTER_LOADING, .flags = CMD_NO_ASYNC_LOADING, .asks_obeyed = true, .ask = refuse_command};

static void log_progress(int64_t now) {
    const struct loading_state *s = &loading_state;
    run.logged_ms = now;
    if (!s->total || s->total == UINT64_MAX) return;
    uint64_t left = s->loaded < s->total ? s->total - s->loaded : 0;
    double seconds = (double)(now - s->began_ms) / 1000;
    log_notice("Loading DB in memory: %.1f%% (%.1f of %.1f MB), %llu keys, about %.0f seconds left",
               (double)s->loaded * 100 / (double)s->total, (double)s->loaded / (1 << 20), (double)s->total / (1 << 20),
               (unsigned long long)s->keys, s->loaded ? seconds * (double)left / (double)s->loaded : 0.0);
}

static void serve(void) {
    if (run.service == LOADING_BLOCKS) return;
    nested_turn(0);
    run.turned_us = clock_mono();
    int64_t now = clock_mono_ms();
    if (now - run.logged_ms >= LOG_INTERVAL_MS) log_progress(now);
}

/* At most `hz` times a second. Listeners only read: the data set is not complete. */
static void report_progress(void) {
    const struct loading_state *s = &loading_state;
    uint64_t now = clock_monotonic_us();
    if (now - run.reported_us < 1000000 / (uint64_t)server.hz) return;
    run.reported_us = now;
    bool known = s->total && s->total != UINT64_MAX;
    int progress = known ? (int)(s->loaded < s->total ? s->loaded * 1024 / s->total : 1024) : -1;
    store_settings.readers++;
    server_event(EVENT_LOADING_PROGRESS, s->of_commands, &progress);
    store_settings.readers--;
}

static bool progress(struct source *source) {
    loading_state.loaded = run.before + source_offset(source);
    if (server_event_wanted(EVENT_LOADING_PROGRESS)) report_progress();
    serve();
    return true;
}

static void key_loaded(void *context) {
    loading_state.keys++;
    if (__builtin_expect(persistence_settings.key_load_delay == 0, 1)) return;
    persistence_delay(persistence_settings.key_load_delay);
    if (clock_monotonic_us() - run.turned_us < DELAY_TURN_US) return;
    loading_state.loaded = run.before + source_offset(run.source);
    source_settle(run.source);
    serve();
}

void loading_turn(void) {
    if (!run.source || clock_monotonic_us() - run.turned_us < DELAY_TURN_US) return;
    loading_state.loaded = run.before + source_offset(run.source);
    source_settle(run.source);
    nested_turn(0);
    run.turned_us = clock_mono();
}

void loading_begin(uint64_t total, enum loading_service service) {
    if (cluster_hooks) cluster_hooks->load_begins();
    clock_update();
    loading_state.started_ms = clock_ms();
    loading_state.began_ms = run.logged_ms = clock_mono_ms();
    loading_state.total = total;
    loading_state.of_commands = false;
    loading_state.loaded = loading_state.used_memory = loading_state.keys = loading_state.commands = 0;
    run.before = 0;
    run.service = service;
    run.turned_us = clock_mono();
    server.async_loading = service == LOADING_SERVES_OLD;
    server.loading = !server.async_loading;
    dispatch_add_filter(server.loading ? &filter : &async_filter);
}

void loading_attach(struct source *source) {
    run.source = source;
    source->progress = progress;
    source->progress_interval = (uint64_t)persistence_settings.loading_interval;
    /* While a small data set is loaded, clients wait, as with Valkey: no client gets LOADING. */
    source->progress_next = source->end_offset + source->progress_interval;
}

void loading_detach(void) {
    run.before += source_offset(run.source);
    run.source = NULL;
}

void loading_end(void) {
    dispatch_remove_filter(server.loading ? &filter : &async_filter);
    server.loading = server.async_loading = false;
    run.source = NULL;
    clock_update();
    if (cluster_hooks) cluster_hooks->loaded();
}

/* --- RDB files --- */

static bool log_aux(void *context, struct source *source, struct slice name, struct slice value) {
    struct rdb_load_params *params = context;
    if (params && repl_hooks && repl_hooks->read_aux(name, value)) params->skip_expired = false;
    if (params && cluster_hooks) cluster_hooks->read_aux(name, value, false);
    if (slice_is(name, "valkey-ver")) {
        log_notice("Loading RDB produced by Valkey version %.*s", (int)value.len, value.data);
    } else if (slice_is(name, "redis-ver")) {
        log_notice("Loading RDB produced by Redis version %.*s", (int)value.len, value.data);
    } else if (slice_is(name, "ctime")) {
        int64_t created;
        if (!parse_int64(value, &created)) return true;
        int64_t age = clock_ms() / 1000 - created;
        log_notice("RDB age %lld seconds", (long long)(age > 0 ? age : 0));
    } else if (slice_is(name, "used-mem")) {
        int64_t bytes;
        if (!parse_int64(value, &bytes) || bytes < 0) return true;
        log_notice("RDB memory usage when created %.2f Mb", (double)bytes / (1 << 20));
        loading_state.used_memory = (uint64_t)bytes;
    } else if (name.len && name.data[0] == '%') {
        log_notice("RDB '%.*s': %.*s", (int)name.len, name.data, (int)value.len, value.data);
    }
    return true;
}

static bool load_library(void *context, struct source *source, struct slice code) {
    const struct rdb_load_params *params = context;
    bool replace = !params || params->duplicates != RDB_DUPLICATE_REFUSED;
    const char *error = script_hooks ? script_hooks->load_library(code, replace) : NULL;
    return !error || source_fail(source, -EINVAL, "Failed loading a function library: %s", error);
}

/* Whether the file has the header of a readable RDB file; checked before the data in memory are flushed. */
static bool has_magic(int fd) {
    char magic[RDB_MAGIC_BYTES];
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    return got == (ssize_t)sizeof magic && rdb_header_check(magic) == NULL;
}

static bool load_slot_import(void *context, struct source *source, const struct rdb_slot_import *import) {
    if (cluster_hooks) cluster_hooks->read_import(import);
    return true;
}

static void log_empty(void *context, struct slice key) {
    if (server_settings.hide_user_data)
        log_notice("rdbLoadObject skipping empty key");
    else
        log_notice("rdbLoadObject skipping empty key: %.*s", key.len > 128 ? 128 : (int)key.len, key.data);
}

static struct rdb_load_params load_params(enum rdb_duplicate_key duplicates, bool keep_expired) {
    return (struct rdb_load_params){.relaxed_version = rdb_settings.version_check == RDB_VERSION_RELAXED,
                                    .ignore_checksum = !persistence_settings.checksum,
                                    .skip_expired = !keep_expired,
                                    .duplicates = duplicates,
                                    .aux = log_aux,
                                    .library = load_library,
                                    .slot_import = load_slot_import,
                                    .key_loaded = key_loaded,
                                    .key_empty = log_empty};
}

static void notify_loaded(void *context, struct db *db, struct slice key) {
    (void)context;
    notify(db, NOTIFY_LOADED, "loaded", key);
}

static int read_source(struct source *source, enum rdb_duplicate_key duplicates, bool keep_expired,
                       struct rdb_load_result *result) {
    struct rdb_load_params params = load_params(duplicates, keep_expired);
    params.context = &params;
    if (notify_wanted & NOTIFY_LOADED) params.key_added = notify_loaded;
    int error = rdb_load(source, server.keyspace, &params, result);
    return error < 0 ? error : 0;
}

static int read_rdb(int fd, uint64_t size, enum loading_service service, enum rdb_duplicate_key duplicates,
                    struct rdb_load_result *result) {
    struct source source;
    source_init_fd(&source, fd);
    loading_begin(size, service);
    loading_attach(&source);
    server_event(EVENT_LOADING, LOADING_RDB_START, NULL);
    /* A replica's primary deletes expired keys. A primary's replicas and append-only file have them (DEBUG RELOAD). */
    int error = read_source(&source, duplicates, role_is_replica() || propagate_wanted(), result);
    loading_end();
    source_free(&source);
    server_event(EVENT_LOADING, error < 0 ? LOADING_FAILED : LOADING_ENDED, NULL);
    return error;
}

static size_t delete_expired(struct db *db) {
    struct slice *keys = NULL;
    size_t count = 0, capacity = 0;
    struct db_iterator *iterator = db_iterate(db, -1);
    for (struct entry *entry; (entry = db_iterate_next(iterator));) {
        if (!entry_is_expired(entry)) continue;
        mem_grow(keys, count, capacity, 64);
        struct slice key = entry_key(entry);
        keys[count++] = (struct slice){mem_strndup(key.data, key.len), key.len};
    }
    db_iterate_end(iterator);
    for (size_t i = 0; i < count; i++) {
        db_find(db, keys[i], LOOKUP_NOTOUCH | LOOKUP_NOSTATS); /* a lookup deletes it */
        mem_free((void *)(uintptr_t)keys[i].data);
    }
    mem_free(keys);
    return count;
}

void loading_delete_expired(void) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        if (db_expires(db)) loading_state.last_expired += delete_expired(db);
        db_expire_fields(db);
    }
}

static void log_failure(const char *name, int error, const struct rdb_load_result *result) {
    const char *reason = result->reason[0] ? result->reason : strerror(-error);
    if (error == -EINVAL) /* the line that log filters for Valkey look for */
        log_warning("Internal error in RDB reading offset %llu -> %s", (unsigned long long)result->offset, reason);
    log_warning("Error in RDB file %s at offset %llu: %s", name, (unsigned long long)result->offset, reason);
    if (error == -EPROTONOSUPPORT)
        log_warning("Unknown type or opcode when loading DB. Unrecoverable error, aborting now.");
    if (error == -EINVAL || error == -ENOMEM)
        log_warning("Short read or OOM loading DB. Unrecoverable error, aborting now.");
}

static void loaded(const struct rdb_load_result *result, enum copy_check check) {
    if (result->unchecked)
        log_notice("RDB file was saved with checksum disabled: %s",
                   check == COPY_WITHOUT_SUM ? "skipped checksum for this transfer" : "no check performed.");
    loading_state.last_keys = result->keys;
    loading_state.last_expired = result->expired;
    char empty[64] = "";
    if (result->empty) snprintf(empty, sizeof empty, "empty keys skipped: %llu, ", (unsigned long long)result->empty);
    log_notice("Done loading RDB, keys loaded: %llu, keys expired: %llu, %sall fields expired hashes: %llu.",
               (unsigned long long)result->keys, (unsigned long long)result->expired, empty,
               (unsigned long long)result->expired_hashes);
}

int loading_read_rdb(const char *name, enum loading_service service, bool flush, enum rdb_duplicate_key duplicates) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        if (error != ENOENT)
            log_warning("Fatal error: can't open the RDB file %s for reading: %s", name, strerror(error));
        return -error;
    }
    struct stat status;
    uint64_t size = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    if (flush && has_magic(fd)) {
        log_notice("RDB signature and version check passed. Flushing old data");
        if (cluster_hooks) cluster_hooks->load_begins();
        background_save_data_leaves();
        server_flush_all(false);
        if (script_hooks) script_hooks->replace_libraries(NULL, 0);
    }
    struct rdb_load_result result = {0};
    int error = read_rdb(fd, size, service, duplicates, &result);
    close(fd);
    if (error < 0) {
        log_failure(name, error, &result);
        return error;
    }
    loaded(&result, COPY_WITH_SUM);
    return 0;
}

void loading_data_replaced(void) {
    role_data_replaced();
    aof_restart();
    if (!role_is_replica()) keyspace_replace(server.keyspace, NULL);
}

int loading_read_base(struct source *source, const char *name) {
    struct rdb_load_result result = {0};
    int error = read_source(source, RDB_DUPLICATE_REFUSED, true, &result);
    if (error < 0) {
        log_failure(name, error, &result);
        return error;
    }
    if (result.aof_base) log_notice("RDB is base AOF");
    loaded(&result, COPY_WITH_SUM);
    return 0;
}

/* The function libraries of a copy, which replace the current ones when the copy is complete. */
static struct {
    struct slice *items;
    size_t count;
} copied;

static bool keep_library(void *context, struct source *source, struct slice code) {
    copied.items = mem_realloc(copied.items, (copied.count + 1) * sizeof *copied.items);
    copied.items[copied.count++] = (struct slice){mem_strndup(code.data, code.len), code.len};
    return true;
}

static bool install_libraries(bool complete) {
    const char *error = NULL;
    if (complete && script_hooks) error = script_hooks->replace_libraries(copied.items, copied.count);
    if (error) log_warning("Failed loading the function libraries of the primary: %s", error);
    for (size_t i = 0; i < copied.count; i++) mem_free((void *)(uintptr_t)copied.items[i].data);
    mem_free(copied.items);
    copied.items = NULL;
    copied.count = 0;
    return !error;
}

static bool (*copy_aux)(void *context, struct source *source, struct slice name, struct slice value);
static bool log_copy_aux(void *context, struct source *source, struct slice name, struct slice value) {
    return log_aux(context, source, name, value) && copy_aux(context, source, name, value);
}

int loading_read_copy(struct source *source, struct keyspace *into, enum copy_check check,
                      bool (*aux)(void *context, struct source *source, struct slice name, struct slice value)) {
    struct rdb_load_result result = {0};
    struct rdb_load_params params = load_params(RDB_DUPLICATE_REFUSED, true);
    params.ignore_checksum |= check == COPY_VERIFIED;
    copy_aux = aux;
    params.aux = log_copy_aux;
    params.library = keep_library;
    if (into == server.keyspace && notify_wanted & NOTIFY_LOADED) params.key_added = notify_loaded;
    int error = rdb_load(source, into, &params, &result);
    if (!install_libraries(error >= 0) && error >= 0) error = -EINVAL;
    if (error < 0) {
        if (error == -EINVAL || error == -ENOMEM)
            log_warning("Short read or OOM loading DB. Unrecoverable error, aborting now.");
        log_warning(
            "Internal error in RDB reading offset %llu -> %s. Failure loading the copy of the primary, resuming "
            "operation.",
            (unsigned long long)result.offset, result.reason[0] ? result.reason : strerror(-error));
        return error;
    }
    loaded(&result, check);
    return 0;
}

void loading_at_start(void) {
    if (!save_points_count() && !aof_is_configured())
        log_notice("Persistence is off: neither save points nor the append-only file are configured. The data set is "
                   "lost when the server stops.");
    if (aof_is_configured()) {
        aof_load_at_start();
        return;
    }
    aof_find_at_start();
    uint64_t began = clock_monotonic_us();
    int error = loading_read_rdb(persistence_settings.file_name, LOADING_SERVES, false, RDB_DUPLICATE_REFUSED);
    if (error == -ENOENT) return;
    if (error < 0) {
        if (error == -EINVAL) log_warning("Terminating server after rdb file reading failure.");
        log_warning("Fatal error loading the DB, check server logs. Exiting.");
        exit(1);
    }
    log_notice("DB loaded from disk: %.3f seconds", (double)(clock_monotonic_us() - began) / 1000000);
    server.dirty = 0;
    snapshot_saved();
}
