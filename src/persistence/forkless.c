/* forkless.c: see forkless.h. */
#include "persistence/forkless.h"
#include "formats/deferred_output.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/persistence.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/process/child.h"
#include "server/process/process.h"
#include "server/stats/latency_monitor.h"
#include "server/uncounted_memory.h"
#include "snapshot/data_view.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SYNC_INTERVAL = 4 << 20,
    GAP_US = 3 * FORKLESS_SLICE_US, /* from slice to slice while clients send commands */
    BUSY_US = 5000,                 /* after a command, for this time */
    WAIT_US = 500,                  /* for the thread */
    DELAY_TURN_US = 10000,          /* at most, for rdb-key-save-delay */
    PATH_BYTES = 2 * PATH_MAX
};

/* --- The thread's part --- */

/* For the log of a failure. */
enum forkless_stage { STAGE_WRITE, STAGE_RENAME, STAGE_SYNC_DIRECTORY };

struct forkless_file {
    /* Constant. The directory is that of the start, whatever CONFIG SET dir does meanwhile. */
    char directory[PATH_MAX], temp[PATH_BYTES], name[PATH_BYTES];
    /* Of the thread, from the first batch to `ended`. */
    struct sink sink;
    int fd, error;
    enum forkless_stage stage;
    /* Of both. */
    _Atomic bool stop;      /* drop what waits: a failure, or the end by child_kill() */
    _Atomic bool cancelled; /* set with `stop`; the rename does not follow */
    _Atomic bool ended;     /* the file is closed, and renamed or removed */
    _Atomic size_t waiting; /* bytes of batches, with the strings that they refer to */
    _Atomic size_t copied;  /* without these */
};

static void write_batch(void *arg) {
    struct deferred_batch *batch = arg;
    struct forkless_file *file = batch->owner;
    size_t copied = deferred_batch_memory(batch), bytes = copied + batch->held;
    if (!file->stop) {
        deferred_batch_write(batch, &file->sink.out, &file->stop);
        if (sink_error(&file->sink)) file->stop = true;
    }
    deferred_batch_free(batch);
    atomic_fetch_sub(&file->copied, copied);
    size_t before = atomic_fetch_sub(&file->waiting, bytes);
    must_within(bytes, before);
}

static int file_finish(struct forkless_file *file) {
    int error = sink_error(&file->sink);
    if (!error && !file->stop) error = rdb_write_checksum(&file->sink);
    if (!error && !file->stop) error = sink_sync(&file->sink);
    if (close(file->fd) < 0 && !error) error = -errno; /* NFS may report a full disk only here */
    if (error || file->stop) return error;
    file->stage = STAGE_RENAME;
    if (rename(file->temp, file->name) < 0) return -errno;
    file->stage = STAGE_SYNC_DIRECTORY;
    return file_sync_directory(file->directory);
}

static void end_file(void *arg) {
    struct forkless_file *file = arg;
    file->error = file_finish(file);
    if (file->stage < STAGE_SYNC_DIRECTORY) unlink(file->temp);
    file->ended = true;
}

/* --- The main thread's part --- */

static struct {
    struct forkless_file *file; /* NULL: no save is running */
    struct data_view *view;     /* NULL: all entries are given; the thread has the rest to do */
    struct rdb_entries entries;
    struct deferred_output out;
    struct child_reservation reservation;
    void (*done)(enum forkless_end end);
    int error;           /* of the main thread */
    uint64_t paced_us;   /* rdb-key-save-delay: when the last entries were given, */
    uint64_t paced_keys; /* and how many */
    bool giving;         /* an entry; a module may turn the event loop meanwhile */
    bool paused;         /* writes of clients wait */
    bool slicing;        /* within a slice */
    uint64_t by_slices;  /* entries; commands gave the others */
    uint64_t longest_us; /* slice */
    size_t most_waiting;
    uint64_t commands; /* dispatch_commands after the last slice */
    uint64_t busy_us;  /* when clients last sent commands; 0: not since the start */
} save;
static struct event_timer timer;
static uint64_t pauses;

bool forkless_running(void) {
    return save.file != NULL;
}

static void resume_writes(void) {
    if (!save.paused) return;
    save.paused = false;
    clients_unpause(PAUSE_SNAPSHOT);
}

static void pause_writes(size_t waiting) {
    if (save.paused) return;
    save.paused = true;
    pauses++;
    log_notice("Writes of clients wait for the background save: %zu MB are not written yet", waiting >> 20);
    clients_pause(PAUSE_SNAPSHOT, PAUSE_WRITE, INT64_MAX);
}

/* Two batches at least, so that the thread has work. */
static size_t buffer_limit(void) {
    size_t limit = (size_t)persistence_settings.forkless_buffer_limit, least = 4 * sizeof(struct deferred_batch);
    return limit > least ? limit : least;
}
/* Slices pause at this number of bytes, and paused writes go on. */
static size_t slices_limit(void) {
    size_t half = buffer_limit() / 2;
    return half < FORKLESS_BACKLOG ? half : FORKLESS_BACKLOG;
}

static void batch_full(void *context, struct deferred_batch *batch) {
    struct forkless_file *file = context;
    batch->owner = file;
    size_t copied = deferred_batch_memory(batch), bytes = copied + batch->held;
    atomic_fetch_add(&file->copied, copied);
    size_t waiting = atomic_fetch_add(&file->waiting, bytes) + bytes;
    if (waiting > save.most_waiting) save.most_waiting = waiting;
    background_submit(BACKGROUND_SNAPSHOT, write_batch, batch);
    if (!save.slicing && waiting > buffer_limit()) pause_writes(waiting);
}

static void give_entry(void *context, int db, const struct entry *entry) {
    if (server.is_child || save.error) return; /* a session of the script debugger has a copy of this state */
    save.reservation.keys++;
    if (save.giving) { /* a module changes data while it saves a value: the file cannot be right */
        save.error = -EDEADLK;
        return;
    }
    store_settings.readers++; /* a module that opens a key does not delete it because it has expired */
    save.giving = true;
    int error = rdb_entries_add(&save.entries, db, entry);
    save.giving = false;
    store_settings.readers--;
    if (error) save.error = error;
}

/* The view ends, and the thread gets its last job. */
static void end_view(void) {
    must(save.view && !save.giving);
    data_view_end(save.view);
    save.view = NULL;
    bool complete = !save.error && !save.file->stop;
    if (complete) {
        rdb_entries_end(&save.entries);
        deferred_output_flush(&save.out);
    } else {
        save.file->stop = true;
    }
    rdb_entries_free(&save.entries);
    deferred_output_free(&save.out);
    background_submit(BACKGROUND_SNAPSHOT, end_file, save.file);
    resume_writes(); /* they add nothing more */
}

static void log_failure(const struct forkless_file *file, int error) {
    if (file->stage == STAGE_RENAME)
        log_warning("Error moving temp DB file %s on the final destination %s (in server root dir %s): %s", file->temp,
                    file->name, file->directory, strerror(-error));
    else if (file->stage == STAGE_SYNC_DIRECTORY)
        log_warning("Failed to sync the directory of the DB file %s: %s", file->name, strerror(-error));
    else
        log_warning("Write error while saving DB to the disk: %s", strerror(-error));
}

static void finish(void) {
    struct forkless_file *file = save.file;
    must(file->ended && !save.view);
    int error = save.error ? save.error : file->error;
    /* A save that was cancelled while it was being renamed has succeeded, as a child that was killed too late has. */
    enum forkless_end end = error                                 ? FORKLESS_FAILED
                            : file->stage == STAGE_SYNC_DIRECTORY ? FORKLESS_SAVED
                                                                  : FORKLESS_CANCELLED;
    must(end != FORKLESS_CANCELLED || file->cancelled);
    must_equal(file->waiting, 0);
    if (end == FORKLESS_FAILED && file->cancelled) end = FORKLESS_CANCELLED;
    if (end == FORKLESS_FAILED) log_failure(file, error);
    if (end == FORKLESS_SAVED) {
        log_notice("DB saved on disk");
        log_notice("Save without fork: %llu keys, %llu of them before a change; at most %zu MB waited to be written; "
                   "the longest slice took %llu us",
                   (unsigned long long)save.reservation.keys,
                   (unsigned long long)(save.reservation.keys - save.by_slices), save.most_waiting >> 20,
                   (unsigned long long)save.longest_us);
    }
    process_unfinished_file(NULL);
    event_timer_cancel(server.loop, &timer);
    resume_writes();
    sink_free(&file->sink);
    mem_free(file);
    save.file = NULL;
    child_unreserve(&save.reservation);
    save.done(end);
}

static void note_slice(uint64_t us) {
    if (us > save.longest_us) save.longest_us = us;
    latency_event("forkless-slice", us);
}

/* Gives entries for a time, or one part. */
static void slice(uint64_t microseconds) {
    uint64_t before = save.reservation.keys, began = clock_monotonic_us();
    bool more;
    save.slicing = true;
    do more = data_view_step(save.view, 0);
    while (more && clock_monotonic_us() - began < microseconds && save.file->waiting < slices_limit());
    save.slicing = false;
    save.by_slices += save.reservation.keys - before;
    note_slice(clock_monotonic_us() - began);
    if (!more || save.error) end_view();
}

/* rdb-key-save-delay: a part, and no more until its keys have had their time. The option may change meanwhile. */
static uint64_t turn_with_delay(uint64_t delay) {
    uint64_t now = clock_monotonic_us(), due = save.paced_us + save.paced_keys * delay;
    if (now < due) return due - now < DELAY_TURN_US ? due - now : DELAY_TURN_US;
    uint64_t before = save.reservation.keys;
    slice(0);
    save.paced_us = now;
    save.paced_keys = save.reservation.keys - before;
    return 1;
}

/* Returns the microseconds until the next turn; 0: the save has ended. */
static uint64_t turn(void) {
    struct forkless_file *file = save.file;
    size_t waiting = file->waiting;
    if (save.paused && waiting <= buffer_limit() / 2) resume_writes();
    if (!save.view) {
        if (!file->ended) return WAIT_US;
        finish();
        return 0;
    }
    if (save.giving) return GAP_US;
    if (file->stop || save.error) {
        end_view();
        return 1;
    }
    if (waiting >= slices_limit()) return WAIT_US;
    if (persistence_settings.key_save_delay > 0) return turn_with_delay((uint64_t)persistence_settings.key_save_delay);
    slice(FORKLESS_SLICE_US);
    uint64_t now = clock_monotonic_us();
    if (dispatch_commands != save.commands) save.busy_us = now;
    save.commands = dispatch_commands;
    return now - save.busy_us < BUSY_US ? GAP_US : 1;
}

static uint64_t forkless_turn(struct event_timer *fired) {
    return server.is_child ? 0 : turn();
}

bool forkless_step(void) {
    must(save.file);
    if (save.view && (save.file->stop || save.error))
        end_view();
    else if (save.view)
        slice(0);
    else if (save.file->ended)
        finish();
    return save.file != NULL;
}

static void forkless_kill(struct child_reservation *reservation, bool waits) {
    save.file->cancelled = true;
    save.file->stop = true;
    if (save.view && !save.giving) end_view();
    if (server.loop) event_timer_set(server.loop, &timer, 1, forkless_turn);
    /* A module that is saving a value ends its own save: the rest follows in the next turn, and nothing is renamed. */
    if (!waits || save.view) return;
    background_drain(BACKGROUND_SNAPSHOT);
    finish();
}

/* --- Start --- */

static int file_open(struct forkless_file *file) {
    char directory[PATH_MAX];
    file->fd = open(file->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file->fd >= 0) return 0;
    int error = errno;
    log_warning("Failed opening the temp RDB file %s (in server root dir %s) for saving: %s", file->temp,
                getcwd(directory, sizeof directory) ? directory : "unknown", strerror(error));
    return -error;
}

static int file_new(const char *name, struct forkless_file **opened) {
    struct forkless_file *file = mem_calloc(1, sizeof *file);
    if (!getcwd(file->directory, sizeof file->directory)) strcpy(file->directory, ".");
    snprintf(file->name, sizeof file->name, "%s/%s", file->directory, name);
    snprintf(file->temp, sizeof file->temp, "%s/temp-forkless-%d.rdb", file->directory, (int)getpid());
    int error = file_open(file);
    if (error) {
        mem_free(file);
        return error;
    }
    sink_init_fd(&file->sink, file->fd);
    file->sink.checksum = persistence_settings.checksum;
    file->sink.sync_interval = persistence_settings.incremental_fsync ? SYNC_INTERVAL : 0;
    *opened = file;
    return 0;
}

static size_t waiting_memory(void) {
    return save.file ? save.file->copied : 0;
}

static void count_memory(void) {
    static struct uncounted_memory waiting = {.bytes = waiting_memory};
    if (!waiting.link.next) uncounted_memory_add(&waiting);
}

int forkless_start(const struct rdb_save_params *params, const char *name, void (*done)(enum forkless_end)) {
    struct forkless_file *file;
    must(!save.file);
    if (child_active()) return -EBUSY;
    int error = file_new(name, &file);
    if (error) return error;
    count_memory();
    memset(&save, 0, sizeof save);
    save.file = file;
    save.done = done;
    save.commands = dispatch_commands;
    deferred_output_init(&save.out, batch_full, file);
    save.error = rdb_entries_begin(&save.entries, &save.out.out, server.keyspace, params);
    save.view = data_view_start(server.keyspace, NULL, &(struct data_view_reader){.entry = give_entry});
    process_unfinished_file(file->temp);
    save.reservation = (struct child_reservation){.kind = CHILD_RDB,
                                                  .kill = forkless_kill,
                                                  .keys_total = data_view_keys(save.view),
                                                  .started_ms = clock_mono_ms()};
    child_reserve(&save.reservation);
    if (server.loop) event_timer_set(server.loop, &timer, 1, forkless_turn);
    return 0;
}

struct forkless_stats forkless_stats(void) {
    struct forkless_stats stats = {.seconds_left = -1, .pauses = pauses};
    if (!save.file) return stats;
    uint64_t keys = save.reservation.keys, left = save.reservation.keys_total - keys;
    uint64_t ms = (uint64_t)(clock_mono_ms() - save.reservation.started_ms);
    stats.waiting = save.file->waiting;
    if (keys || !left) stats.seconds_left = left ? (int64_t)((double)ms * (double)left / (double)keys / 1000) : 0;
    return stats;
}
