/* aof_rewrite.c: replaces the files, which grow with every write, by one that has the data set.
 *
 *     1  The main thread creates a new incremental file and appends it to the manifest. Changes go there from now on.
 *     2  A background save (background_save.h) writes the data set of this moment to temp-rewriteaof-bg-PID.aof.
 *     3  The main thread renames it, and saves a manifest with this base and the new incremental file.
 *     4  The files that they replace are deleted.
 *
 * After a crash at any step the manifest's files have all data: before step 3 the old files and the new incremental
 * file, after it the new base and that incremental file.
 *
 * After CONFIG SET appendonly yes, the first rewrite creates the manifest in step 3. Until then changes go to
 * temp-appendonly.aof.incr, which is in no manifest. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "persistence/aof_private.h"
#include "persistence/persistence.h"
#include "persistence/background_save.h"
#include "server/process/child.h"
#include "server/process/process.h"
#include "server/server_events.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SYNC_BYTES = 4 * 1024 * 1024 };

/* --- Writing a base file, in the background or at start --- */

struct base_file {
    int directory; /* AT_FDCWD, or the descriptor of a directory that `path` is relative to */
    const char *path;
    bool checksum;
    uint64_t sync_interval;
};

static struct base_file base_file(const char *path, bool as_rdb, bool incremental_fsync) {
    return (struct base_file){.directory = AT_FDCWD,
                              .path = path,
                              .checksum = as_rdb && persistence_settings.checksum,
                              .sync_interval = incremental_fsync ? SYNC_BYTES : 0};
}
static struct save_content base_content(bool as_rdb) {
    return (struct save_content){.format = as_rdb ? SAVE_RDB : SAVE_COMMANDS, .aof_base = true};
}

static int base_open(const struct base_file *file, struct sink *sink) {
    int fd = openat(file->directory, file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return -errno;
    sink_init_fd(sink, fd);
    sink->checksum = file->checksum;
    sink->sync_interval = file->sync_interval;
    return 0;
}
static int base_close(const struct base_file *file, struct sink *sink, int error) {
    if (!error) error = sink_sync(sink);
    sink_free(sink);
    if (close(sink->fd) < 0 && !error) error = -errno; /* NFS may report a full disk only here */
    if (error) unlinkat(file->directory, file->path, 0);
    return error;
}

int aof_base_write(const char *path, bool as_rdb) {
    struct sink sink;
    struct base_file file = base_file(path, as_rdb, false);
    struct save_content content = base_content(as_rdb);
    int error = base_open(&file, &sink);
    return error ? error : base_close(&file, &sink, save_write(&sink, &content));
}

/* --- In the background --- */

static struct {
    struct background_save save;
    /* Do not change during a rewrite. */
    struct base_file file;
    char temporary[64]; /* file.path */
    bool as_rdb;        /* its format; aof-use-rdb-preamble may change during the rewrite */
    bool cancelled;     /* its result is dropped, even if it succeeds */
} rewrite;

static void log_write_error(int error) {
    if (error != -ECANCELED) log_warning("Write error while rewriting the append-only file: %s", strerror(-error));
}

/* On the thread. */
static int rewrite_begin(struct background_save *save, struct sink *sink) {
    int error = base_open(&rewrite.file, sink);
    if (error) log_write_error(error);
    return error;
}
static int rewrite_end(struct background_save *save, struct sink *sink, int error) {
    error = base_close(&rewrite.file, sink, error);
    if (error)
        log_write_error(error);
    else
        log_notice("Successfully created the temporary AOF base file %s", rewrite.temporary);
    return error;
}

/* --- The end --- */

static int install(const char *from, const char *to, const char *what) {
    const char *slash = strrchr(from, '/'), *name = slash ? slash + 1 : from;
    if (rename(from, aof_path(to)) == 0) {
        log_notice("Successfully renamed the temporary AOF %s file %s into %s", what, name, to);
        return 0;
    }
    int error = errno;
    log_warning("Error trying to rename the temporary AOF %s file %s into %s: %s", what, name, to, strerror(error));
    return -error;
}

static void temporary_incremental(char path[static PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/temp-%s.incr", aof_settings.directory, aof_settings.file_name);
}

/* Step 3. A failure leaves the manifest unchanged. */
static int adopt(void) {
    struct aof_manifest *next = aof_manifest_copy(aof.manifest);
    struct aof_file *base = aof_manifest_add_base(next, aof_settings.file_name, rewrite.as_rdb);
    int error = aof_directory_create();
    if (!error) error = install(rewrite.temporary, base->name, "base");
    if (!error && aof.state == AOF_STARTING) {
        char path[PATH_MAX];
        temporary_incremental(path);
        struct aof_file *file = aof_manifest_add_incremental(next, aof_settings.file_name);
        error = install(path, file->name, "incr");
        if (error) unlink(aof_path(base->name));
    }
    if (!error) {
        aof_manifest_retire(next, aof.state == AOF_OFF ? 0 : 1);
        error = aof_manifest_save(next);
    }
    if (error) {
        aof_manifest_free(next);
        return error;
    }
    aof_manifest_free(aof.manifest);
    aof.manifest = next;
    return 0;
}

static void succeeded(void) {
    aof.rewrite_failed = false;
    aof.failures_in_a_row = 0;
    if (aof.state == AOF_STARTING) aof.state = AOF_ON;
    aof.size = aof.base_size = aof_files_size();
    if (aof.fd < 0) aof.size = aof.base_size = 0;
    aof_history_delete();
    log_notice("Background AOF rewrite finished successfully");
}

static void aof_rewrite_failed(void) {
    aof.rewrite_failed = true;
    aof.failures_in_a_row++;
}

/* If the first rewrite after CONFIG SET appendonly yes fails, schedules another and drops the changes collected so far:
 * the base of the next one will contain them. */
static void start_again(void) {
    if (aof.state != AOF_STARTING) return;
    aof.rewrite_scheduled = true;
    if (aof.fd < 0) return;
    log_notice("Removing the temp incr aof file temp-%s.incr in the background", aof_settings.file_name);
    aof_delete_temporary_files();
    aof_closed();
}

static void directory_close(void) {
    process_finished_file(rewrite.temporary);
    close(rewrite.file.directory);
}

static void rewrite_ends(int status, int signal) {
    if (!status && !signal) {
        log_notice("Background AOF rewrite terminated with success");
        if (adopt() == 0) {
            directory_close();
            succeeded();
            return;
        }
        aof_rewrite_failed();
    } else if (signal) {
        log_notice("Background AOF rewrite was stopped by the server"); /* not a failure */
    } else {
        log_warning("Background AOF rewrite terminated with error");
        aof_rewrite_failed();
    }
    unlinkat(rewrite.file.directory, rewrite.temporary, 0);
    directory_close();
    start_again();
}

static void rewrite_done(struct background_save *save, int status, int signal) {
    if (rewrite.cancelled)
        signal = CHILD_KILL_SIGNAL;
    else if (signal) /* the data set was replaced: the next rewrite has the new one */
        aof.rewrite_scheduled = true;
    aof.rewrite_seconds = (clock_mono_ms() - aof.rewrite_started_ms) / 1000;
    aof.rewrite_started_ms = 0;
    rewrite_ends(status, signal);
    /* Last: a module that hears of it may start another rewrite, or end it. */
    server_event(EVENT_PERSISTENCE, status || signal ? PERSISTENCE_FAILED : PERSISTENCE_ENDED, NULL);
}

/* --- Starting --- */

/* Step 1: finishes the current incremental file and begins the next. 0 or a negative errno. */
static int begin_file(void) {
    if (aof.state == AOF_OFF) return 0;
    int error = aof.fd < 0 ? 0 : aof_sync_all();
    if (error) return error;
    int fd;
    if (aof.state == AOF_STARTING) {
        /* O_TRUNC drops the changes of a failed first attempt, which are in the data set that this one writes. */
        char path[PATH_MAX];
        temporary_incremental(path);
        if ((error = aof_directory_create())) return error;
        log_notice("Creating AOF incr file temp-%s.incr on background rewrite", aof_settings.file_name);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0) {
            error = errno;
            log_warning("Can't open the append-only file %s: %s", path, strerror(error));
            return -error;
        }
    } else if ((fd = aof_incremental_create("background rewrite")) < 0) {
        return fd;
    }
    if (aof.fd >= 0) aof_sync_close(aof.fd);
    if (aof.fd < 0) {
        aof_append_start();
        aof_sync_start();
    }
    aof.fd = fd;
    aof.fd_size = 0;
    aof_append_select();
    return 0;
}

static int directory_open(void) {
    int directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -errno;
    rewrite.file = base_file(rewrite.temporary, rewrite.as_rdb, aof_settings.rewrite_incremental_fsync);
    rewrite.file.directory = directory;
    return 0;
}

static const struct background_save_ops rewrite_ops = {
    .begin = rewrite_begin, .end = rewrite_end, .done = rewrite_done};

static int rewrite_start(void) {
    rewrite.as_rdb = aof_settings.rdb_preamble;
    int error = directory_open();
    if (error) return error;
    snprintf(rewrite.temporary, sizeof rewrite.temporary, "temp-rewriteaof-bg-%d.aof", (int)getpid());
    process_unfinished_file(rewrite.file.directory, rewrite.temporary);
    rewrite.save =
        (struct background_save){.ops = &rewrite_ops, .kind = CHILD_AOF, .content = base_content(rewrite.as_rdb)};
    error = background_save_start(&rewrite.save);
    if (error) directory_close();
    return error;
}

int aof_rewrite_start(void) {
    if (child_active()) return -EBUSY;
    server_event(EVENT_PERSISTENCE, PERSISTENCE_AOF_START, NULL);
    if (child_active()) return -EBUSY; /* a module has started one */
    /* From here to background_save_start() nothing changes the data: each change is in the base or in the new file. */
    int error = begin_file();
    if (error) {
        aof_rewrite_failed();
        server_event(EVENT_PERSISTENCE, PERSISTENCE_FAILED, NULL);
        return error;
    }
    aof.rewrite_scheduled = false;
    aof.rewrite_started_ms = clock_mono_ms();
    rewrite.cancelled = false;
    error = rewrite_start();
    if (error) {
        aof.rewrite_started_ms = 0;
        start_again();
        log_warning("Can't rewrite append only file in background: %s", strerror(-error));
        aof_rewrite_failed();
        server_event(EVENT_PERSISTENCE, PERSISTENCE_FAILED, NULL);
        return error;
    }
    aof.rewrites++;
    log_notice("Background append only file rewriting started by pid %d, without fork", (int)rewrite.save.pid);
    return 0;
}

bool aof_rewrite_running(void) {
    return child_kind() == CHILD_AOF && !rewrite.cancelled;
}

void aof_rewrite_cancel(void) {
    if (!aof_rewrite_running()) return;
    rewrite.cancelled = true;
    child_kill(); /* does not wait: the thread may wait for the disk */
    aof.rewrite_scheduled = false;
}
