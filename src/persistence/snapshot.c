/* snapshot.c: see snapshot.h. Also starts background saves from the cron, saves on SHUTDOWN and FLUSHALL, and refuses
 * writes after a failed save. */
#include "persistence/snapshot.h"
#include "lib/system/clock.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/ticks.h"
#include "persistence/persistence.h"
#include "persistence/save_points.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/process/child.h"
#include "server/process/process.h"
#include "server/cluster_hooks.h"
#include "server/server_events.h"
#include "server/stats/latency_monitor.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 5000 /* after a background save that failed */, SYNC_INTERVAL = 4 << 20, TEMP_NAME_MAX = 64 };

struct snapshot_state snapshot_state = {.last_seconds = -1};

/* --- The file --- */

/* Where a save writes. Does not change during it. */
struct snapshot_file {
    /* AT_FDCWD, or in the background a descriptor of the working directory of the start: CONFIG SET dir changes the
     * working directory meanwhile. */
    int directory;
    char directory_name[PATH_MAX]; /* for the log */
    char temp[TEMP_NAME_MAX];
    char name[PATH_MAX];
    uint64_t sync_interval;
};

static void file_init(struct snapshot_file *file, const char *name) {
    file->directory = AT_FDCWD;
    if (!getcwd(file->directory_name, sizeof file->directory_name)) strcpy(file->directory_name, "unknown");
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(file->temp, sizeof file->temp, "temp-%d.rdb", (int)getpid());
    file->sync_interval = persistence_settings.incremental_fsync ? SYNC_INTERVAL : 0;
}

static int file_begin(const struct snapshot_file *file, struct sink *sink) {
    int fd = openat(file->directory, file->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        int error = errno;
        log_warning("Failed opening the temp RDB file %s (in server root dir %s) for saving: %s", file->temp,
                    file->directory_name, strerror(error));
        return -error;
    }
    sink_init_fd(sink, fd);
    sink->checksum = persistence_settings.checksum;
    sink->sync_interval = file->sync_interval;
    return 0;
}

static int file_close(struct sink *sink, int error) {
    if (!error) error = sink_sync(sink);
    sink_free(sink);
    if (close(sink->fd) < 0 && !error) error = -errno; /* NFS may report a full disk only here */
    if (error && error != -ECANCELED) log_warning("Write error while saving DB to the disk: %s", strerror(-error));
    return error;
}

static int file_rename(const struct snapshot_file *file) {
    if (renameat(file->directory, file->temp, file->directory, file->name) == 0) return 0;
    int error = errno;
    log_warning("Error moving temp DB file %s on the final destination %s (in server root dir %s): %s", file->temp,
                file->name, file->directory_name, strerror(error));
    return -error;
}

/* save: NULL for SAVE. */
static int file_end(const struct snapshot_file *file, struct background_save *save, struct sink *sink, int error) {
    error = file_close(sink, error);
    if (!error && save && !background_save_goes_on(save)) error = -ECANCELED;
    if (!error) error = file_rename(file);
    if (error) {
        unlinkat(file->directory, file->temp, 0);
        return error;
    }
    error = file_sync_directory_at(file->directory);
    if (error < 0)
        log_warning("Failed to sync the directory of the DB file %s: %s", file->name, strerror(-error));
    else
        log_notice("DB saved on disk");
    return error;
}

bool snapshot_refuses_writes(void) {
    return snapshot_state.failed && persistence_settings.stop_writes_on_error && save_points_count();
}

/* The filter is installed only while the last background save has failed. */
static enum filter_answer refuse_writes(struct client *client, const struct command *command, int argc,
                                        const struct slice *argv, const char **error) {
    if (!snapshot_refuses_writes()) return FILTER_PASS;
    if (!(dispatch_flags(client, command, argv) & CMD_WRITE) && strcmp(command->spec->name, "ping") != 0)
        return FILTER_PASS;
#define REASON                                                                                                         \
    " is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify "    \
    "the "                                                                                                             \
    "data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting "   \
    "fails (stop-writes-on-bgsave-error option). Please check the "
    *error = server_settings.redis_names ? "MISCONF Redis" REASON "Redis logs for details about the RDB error."
                                         : "MISCONF Valkey" REASON "Valkey logs for details about the RDB error.";
    return FILTER_REFUSE;
}
static struct command_filter write_filter = {.order = FILTER_DISK, .ask = refuse_writes};

static void set_failed(bool failed) {
    snapshot_state.failed = failed;
    dispatch_set_filter(&write_filter, failed);
}

void snapshot_saved(void) {
    snapshot_state.last_save_ms = clock_ms();
    snapshot_state.saved_ms = clock_mono_ms();
}

int snapshot_save_as(const char *name) {
    struct sink sink;
    struct snapshot_file file;
    file_init(&file, name);
    process_unfinished_file(file.directory, file.temp);
    server_event(EVENT_PERSISTENCE, PERSISTENCE_SYNC_RDB_START, NULL);
    int error = file_begin(&file, &sink);
    if (!error) error = file_end(&file, NULL, &sink, save_write(&sink, &(struct save_content){0}));
    process_finished_file(file.temp);
    server_event(EVENT_PERSISTENCE, error < 0 ? PERSISTENCE_FAILED : PERSISTENCE_ENDED, NULL);
    return error;
}

int snapshot_save(void) {
    if (snapshot_running()) child_kill_wait(); /* it would replace the file by older data */
    int result = snapshot_save_as(persistence_settings.file_name);
    if (result < 0) return result;
    server.dirty = 0;
    snapshot_saved();
    set_failed(false);
    return 0;
}

/* --- In the background --- */

static struct snapshot_file saving_file;
static char saving_path[2 * PATH_MAX];

const char *snapshot_path(void) {
    return saving_path;
}

/* On the thread. */
static int snapshot_begin(struct background_save *save, struct sink *sink) {
    return file_begin(&saving_file, sink);
}
static int snapshot_end(struct background_save *save, struct sink *sink, int error) {
    return file_end(&saving_file, save, sink, error);
}

static struct list listeners = LIST_INIT(listeners);

void snapshot_listen(struct snapshot_listener *listener) {
    list_add_listener(&listeners, &listener->link);
}

static void directory_close(void) {
    process_finished_file(saving_file.temp);
    close(saving_file.directory);
}

static void snapshot_done(struct background_save *save, int status, int signal) {
    bool success = !status && !signal;
    snapshot_state.last_seconds = (clock_mono_ms() - snapshot_state.started_ms) / 1000;
    snapshot_state.started_ms = 0;
    directory_close();
    if (signal) {
        log_warning("Background saving cancelled");
    } else if (status) {
        log_warning("Background saving error");
        set_failed(true);
    } else {
        log_notice("Background saving terminated with success");
        /* FLUSHALL may have reset it in the meantime. */
        server.dirty -= server.dirty < snapshot_state.changes_before ? server.dirty : snapshot_state.changes_before;
        snapshot_saved();
        set_failed(false);
    }
    server_event(EVENT_PERSISTENCE, success ? PERSISTENCE_ENDED : PERSISTENCE_FAILED, NULL);
    listeners_call(&listeners, struct snapshot_listener, done, success);
}

static const struct background_save_ops snapshot_ops = {
    .begin = snapshot_begin, .end = snapshot_end, .done = snapshot_done};
static struct background_save saving = {.ops = &snapshot_ops, .kind = CHILD_RDB};

bool snapshot_running(void) {
    return child_kind() == CHILD_RDB;
}

static int save_begin(void) {
    /* SAVE to another file may write temp-PID.rdb meanwhile. */
    snprintf(saving_file.temp, sizeof saving_file.temp, "temp-forkless-%d.rdb", (int)getpid());
    saving_file.directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (saving_file.directory < 0) return -errno;
    process_unfinished_file(saving_file.directory, saving_file.temp);
    int error = background_save_start(&saving);
    if (error) directory_close();
    return error;
}

int snapshot_start(const struct save_content *content) {
    if (child_active()) return -EBUSY;
    server_event(EVENT_PERSISTENCE, PERSISTENCE_RDB_START, NULL);
    if (child_active()) return -EBUSY; /* a module has started one */
    file_init(&saving_file, persistence_settings.file_name);
    snprintf(saving_path, sizeof saving_path, "%s/%s",
             strcmp(saving_file.directory_name, "unknown") ? saving_file.directory_name : ".", saving_file.name);
    snapshot_state.saves++;
    snapshot_state.last_try_ms = clock_mono_ms();
    snapshot_state.changes_before = server.dirty;
    saving.content = *content;
    int error = save_begin();
    if (error) {
        log_warning("Can't save in background: %s", strerror(-error));
        server_event(EVENT_PERSISTENCE, PERSISTENCE_FAILED, NULL);
        set_failed(true);
        return error;
    }
    log_notice("Background saving started by pid %d, without fork", (int)saving.pid);
    snapshot_state.scheduled = false;
    snapshot_state.started_ms = clock_mono_ms();
    return 0;
}

static void snapshot_cron(void) {
    if (child_active() || server_is_loading()) return;
    int64_t now = clock_mono_ms();
    if (snapshot_state.failed && now - snapshot_state.last_try_ms <= RETRY_MS) return;
    const struct save_point *due = save_point_due(server.dirty, (now - snapshot_state.saved_ms) / 1000);
    if (due) {
        log_notice("%lld changes in %lld seconds. Saving...", (long long)due->changes, (long long)due->seconds);
        snapshot_start(&(struct save_content){0});
    } else if (snapshot_state.scheduled) {
        snapshot_start(&(struct save_content){0});
    }
}

/* --- The server's life --- */

static void snapshots_start(void) {
    snapshot_saved();
}

static bool prepare_shutdown(int flags) {
    if (snapshot_running()) {
        log_warning("There is a child saving an .rdb. Killing it!");
        child_kill_wait();
    }
    if (server.loading) return true; /* the data are only a part of the file's */
    if (!(flags & SHUTDOWN_SAVE) && (flags & SHUTDOWN_NOSAVE || !save_points_count())) return true;
    log_notice("Saving the final RDB snapshot before exiting.");
    if (snapshot_save() == 0) return true;
    if (flags & SHUTDOWN_FORCE)
        log_warning("Error trying to save the DB. Exit anyway.");
    else
        log_warning("Error trying to save the DB, can't exit.");
    return false;
}

/* Saves the empty data set, so that the next start does not load the flushed data. */
static void flushed_all(void) {
    background_save_data_leaves(); /* even if no empty file is saved */
    if (save_points_count()) snapshot_save();
}

const struct server_part snapshot_part = {.name = "snapshot",
                                          .start = snapshots_start,
                                          .cron = snapshot_cron,
                                          .prepare_shutdown = prepare_shutdown,
                                          .flushed_all = flushed_all};
