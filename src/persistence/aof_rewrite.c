/* aof_rewrite.c: replaces the files, which grow with every write, by one that has the data set.
 *
 *     1  The main thread creates a new incremental file and appends it to the manifest. Changes go there from now on.
 *     2  A child process writes the data set of this moment to temp-rewriteaof-bg-PID.aof.
 *     3  The main thread renames it, and saves a manifest with this base and the new incremental file.
 *     4  The files that they replace are deleted.
 *
 * After a crash at any step the manifest's files have all data: before step 3 the old files and the new incremental
 * file, after it the new base and that incremental file.
 *
 * After CONFIG SET appendonly yes, the first rewrite creates the manifest in step 3. Until then changes go to
 * temp-appendonly.aof.incr, which is in no manifest. */
#include "formats/rdb_file.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "persistence/aof_private.h"
#include "persistence/persistence.h"
#include "persistence/snapshot.h"
#include "server/cluster_hooks.h"
#include "server/process/child.h"
#include "server/repl_hooks.h"
#include "server/script_hooks.h"
#include "server/server_events.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SYNC_BYTES = 4 * 1024 * 1024 };

static struct {
    struct child_job job;
    char temporary[64]; /* the file that the child writes */
    bool as_rdb;        /* its format; aof-use-rdb-preamble may change during the rewrite */
    pid_t pid;
} rewrite;

/* --- Writing a base file, in the child or at start --- */

static void on_progress(void *context, uint64_t keys, uint64_t bytes) {
    if (*(bool *)context) child_report(keys);
}

static void on_key(void *context) {
    persistence_delay(persistence_settings.key_save_delay);
}

int aof_base_write(const char *path, bool as_rdb, bool incremental_fsync, bool in_child) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return -errno;
    struct sink sink;
    sink_init_fd(&sink, fd);
    sink.checksum = as_rdb && persistence_settings.checksum;
    sink.sync_interval = incremental_fsync ? SYNC_BYTES : 0;
    struct rdb_aux aux[REPL_AUX_MAX + CLUSTER_AUX_MAX];
    struct rdb_save_params params = {.aux = aux,
                                     .aux_count = repl_hooks ? repl_hooks->write_aux(aux) : 0,
                                     .aof_base = true,
                                     .progress = on_progress,
                                     .key_saved = in_child && persistence_settings.key_save_delay ? on_key : NULL,
                                     .context = &in_child};
    if (cluster_hooks) params.aux_count += cluster_hooks->write_aux(&aux[params.aux_count]);
    if (cluster_hooks) params.import_count = cluster_hooks->imports(&params.imports);
    if (script_hooks) params.library_count = script_hooks->libraries(&params.libraries);
    int error =
        as_rdb ? rdb_save(&sink, server.keyspace, &params) : aof_commands_write(&sink, server.keyspace, in_child);
    if (!error) error = sink_sync(&sink);
    sink_free(&sink);
    close(fd);
    if (error) unlink(path);
    return error;
}

static void temporary_name(char name[static 64], pid_t pid) {
    snprintf(name, 64, "temp-rewriteaof-bg-%d.aof", (int)pid);
}

static int run_child(struct child_job *job) {
    char name[64];
    temporary_name(name, getpid());
    server_event(EVENT_PERSISTENCE, PERSISTENCE_AOF_START, NULL);
    int error = aof_base_write(name, rewrite.as_rdb, aof_settings.rewrite_incremental_fsync, true);
    server_event(EVENT_PERSISTENCE, error ? PERSISTENCE_FAILED : PERSISTENCE_ENDED, NULL);
    if (error) {
        log_warning("Write error while rewriting the append-only file: %s", strerror(-error));
        return 1;
    }
    log_notice("Successfully created the temporary AOF base file %s", name);
    child_report_end();
    return 0;
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

static void done(struct child_job *job, int status, int signal) {
    aof.rewrite_seconds = (clock_mono_ms() - aof.rewrite_started_ms) / 1000;
    aof.rewrite_started_ms = 0;
    aof.last_cow = child_last_cow();
    if (!status && !signal) {
        log_notice("Background AOF rewrite terminated with success");
        if (adopt() == 0) {
            succeeded();
            return;
        }
        aof_rewrite_failed();
    } else if (signal == CHILD_KILL_SIGNAL) {
        /* Killed by the server: not a failure. */
        log_notice("Background AOF rewrite was stopped by the server");
    } else if (signal) {
        log_warning("Background AOF rewrite terminated by signal %d", signal);
        aof_rewrite_failed();
    } else {
        log_warning("Background AOF rewrite terminated with error");
        aof_rewrite_failed();
    }
    unlink(rewrite.temporary);
    start_again();
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

int aof_rewrite_start(void) {
    if (child_active()) return -EBUSY;
    int error = begin_file();
    if (error) {
        aof_rewrite_failed();
        return error;
    }
    rewrite.as_rdb = aof_settings.rdb_preamble;
    rewrite.job = (struct child_job){
        .kind = CHILD_AOF, .title = "valkey-aof-rewrite", .log_name = "AOF rewrite", .run = run_child, .done = done};
    aof.rewrite_scheduled = false;
    aof.rewrite_started_ms = clock_mono_ms();
    pid_t pid = child_start(&rewrite.job);
    if (pid < 0) {
        aof.rewrite_started_ms = 0;
        start_again();
        log_warning("Can't rewrite append only file in background: fork: %s", strerror((int)-pid));
        aof_rewrite_failed();
        return (int)pid;
    }
    aof.rewrites++;
    rewrite.pid = pid;
    temporary_name(rewrite.temporary, pid);
    log_notice("Background append only file rewriting started by pid %d", (int)pid);
    return 0;
}

bool aof_rewrite_running(void) {
    return child_kind() == CHILD_AOF;
}

void aof_rewrite_cancel(void) {
    if (!aof_rewrite_running()) return;
    child_kill_wait();
    aof.rewrite_scheduled = false;
}
