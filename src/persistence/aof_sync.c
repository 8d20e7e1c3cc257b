/* aof_sync.c: writes and syncs the append-only file, and releases replies (appendfsync).
 *
 * Each turn of the loop collects the propagated commands in a buffer. The reply barrier
 * (server/clients/reply_barrier.h) holds the replies to these writes.
 *
 * everysec, no   The main thread writes the buffer before the loop waits, and releases the replies. Once a second a
 *                background thread calls fdatasync(). A write() during that may block in the kernel, so another
 *                background thread does it, and its replies are sent when it is done. So every acknowledged write has
 *                reached the kernel, however slow the disk is: SIGKILL loses no acknowledged write. (Rejected:
 *                postponing the write() and replying before it, as other servers do.)
 *                After a failed write() the buffer and its replies are kept, and further writes are refused until the
 *                file can be written.
 *
 * always         Group commit. A background thread writes the buffer and calls fdatasync() while the main thread
 *                executes further commands. All replies that one fdatasync() covers are sent together. Writes that
 *                arrive in the meantime form the next group; one group is written at a time.
 *                The next group waits for the clients that have just got their replies, at most half as long as the
 *                last group took. Otherwise clients would split into two halves, each waiting for the other's group.
 *                On a fast disk, switching threads costs more time than the main thread gains by it, if a group is
 *                small. After FAST_GROUPS groups in a row that took less than AOF_FAST_US, the main thread writes and
 *                syncs small groups itself. After the first slow group the background thread does so again, so a disk
 *                that becomes slow blocks the main thread for one group only.
 *                A failure exits the process; the held replies are never sent.
 *
 * After a failed fdatasync() the kernel may have discarded the dirty pages, and the next fdatasync() does not report
 * it. So with everysec writes are refused until an fdatasync() succeeds, and then a rewrite replaces the files by one
 * made from memory. */
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "persistence/aof_private.h"
#include "server/clients/reply_barrier.h"
#include "server/process/child.h"
#include "server/stats/latency_monitor.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYNC_INTERVAL_US = 1000000, DELAY_US = 2000000, LOG_INTERVAL_US = 30000000, GATHER_MAX_US = 1000 };
enum { FAST_GROUPS = 8, SMALL_BYTES = 256 * 1024, SMALL_COMMANDS = 128 };

/* A write and sync, in a background thread, or in the main thread for a group on a fast disk. */
struct aof_job {
    struct event_post post;
    int fd;
    bool sync;                /* call fdatasync() after writing */
    uint64_t directory;       /* also sync the directory, which recovers from this failure (its number); 0: no */
    bool handled;             /* job_finish() was called */
    struct aof_buffer buffer; /* to write; may be empty */
    size_t done;              /* bytes of it that are written */
    uint64_t sequence;        /* of the last command whose reply it releases; 0: none */
    uint64_t covers;          /* of the last command that fdatasync() syncs */
    uint64_t began_us, us;    /* start, by the cached clock; duration */
    uint64_t sleep_us;        /* sleep before writing: DEBUG AOF-FLUSH-SLEEP */
    int error;
};

static struct {
    struct aof_job *writing, *syncing; /* at most one of each; NULL: none */
    struct aof_buffer spare;
    int write_error, sync_error;  /* negative errnos of the last write and sync; 0: success */
    size_t partial;               /* bytes of the buffer that a failed write has left in the file */
    bool unsynced;                /* the file has bytes that are not synced */
    uint64_t directory_failures;  /* number of failed syncs of the directory */
    uint64_t directory_recovered; /* how many of them a later sync has recovered from */
    bool delay_counted;           /* `delayed` includes the running write */
    uint64_t synced_us;           /* when the last sync ended */
    uint64_t delayed;             /* writes that took longer than DELAY_US */
    uint64_t sleep_us;
    uint64_t written_sequence, synced_sequence; /* of the last command completely written; of the last one synced */
    /* Waiting for clients to join a group. */
    struct event_timer timer;
    uint64_t group_end_us, group_us; /* end and duration of the last group */
    size_t expected;                 /* clients that got replies after the last group, and may join the next */
    int fast_groups;                 /* in a row, up to FAST_GROUPS */
    enum aof_group_thread thread;
    uint64_t fast_us; /* groups that take less time are fast */
} aof_writer = {.fast_us = AOF_FAST_US};

/* --- Failures --- */

static _Noreturn void give_up(const char *what, int error) {
    log_warning("%s: %s", what, strerror(-error));
    log_warning("Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...");
    exit(1);
}

bool aof_sync_failed(void) {
    return aof_writer.write_error || aof_writer.sync_error;
}
const char *aof_sync_error_text(void) {
    return strerror(-(aof_writer.write_error ? aof_writer.write_error : aof_writer.sync_error));
}

static void write_failed(size_t done, size_t len, int error) {
    static struct log_limit limit = {.interval_us = LOG_INTERVAL_US};
    if (done > aof_writer.partial)
        log_limited(&limit, LOG_LEVEL_WARNING,
                    "Short write while writing to the AOF file: (nwritten=%zu, expected=%zu)",
                    done - aof_writer.partial, len);
    else
        log_limited(&limit, LOG_LEVEL_WARNING, "Error writing to the AOF file: %s", strerror(-error));
    aof_writer.write_error = error;
    /* Remove a partially written command: the server may exit before it can write the rest. */
    if (done && ftruncate(aof.fd, (off_t)aof.fd_size) == 0) done = 0;
    aof_writer.partial = done;
}

static void write_succeeded(size_t len) {
    if (aof_writer.write_error) log_warning("AOF write error looks solved. The server can write again.");
    aof_writer.write_error = 0;
    aof_writer.partial = 0;
    aof_writer.unsynced = true;
    aof.fd_size += len;
    aof.size += len;
}

static void note_fsync_failure(int error) {
    if (!aof_writer.sync_error) log_warning("Fail to fsync the AOF file: %s", strerror(-error));
    aof_writer.sync_error = error;
    aof_writer.unsynced = true;
}

void aof_sync_directory_failed(int error) {
    aof_writer.directory_failures++;
    note_fsync_failure(error);
}
bool aof_sync_directory_pending(void) {
    return aof_writer.directory_recovered < aof_writer.directory_failures;
}

/* `directory`: as in struct aof_job. */
static void note_fsync_success(uint64_t directory) {
    if (directory) aof_writer.directory_recovered = directory;
    if (!aof_writer.sync_error || aof_sync_directory_pending()) return;
    aof_writer.sync_error = 0;
    log_warning(
        "AOF fsync error looks solved. A rewrite replaces the files: data that failed to sync may be missing in them.");
    aof.rewrite_scheduled = true;
}

/* --- Jobs of the background threads --- */

static void job_finish(struct aof_job *job);

static void job_posted(struct event_post *post) {
    struct aof_job *job = container_of(post, struct aof_job, post);
    job_finish(job);
    mem_free(job);
}

static void job_execute(struct aof_job *job) {
    uint64_t began = clock_monotonic_us();
    if (job->sleep_us) usleep((useconds_t)job->sleep_us);
    job->error = aof_buffer_write(&job->buffer, job->fd, &job->done);
    if (!job->error && job->sync && fdatasync(job->fd) < 0) job->error = -errno;
    if (!job->error && job->sync && job->directory) job->error = aof_directory_sync();
    job->us = clock_monotonic_us() - began;
}

static void job_run(void *arg) {
    struct aof_job *job = arg;
    job_execute(job);
    event_loop_post(server.loop, &job->post);
}

static void job_init(struct aof_job *job, bool sync) {
    *job = (struct aof_job){.fd = aof.fd,
                            .sync = sync,
                            .directory = aof_sync_directory_pending() ? aof_writer.directory_failures : 0,
                            .post.run = job_posted,
                            .sequence = aof_append_complete_sequence(),
                            .began_us = clock_mono()};
    aof_buffer_init(&job->buffer);
}

/* Initializes a job that writes the complete commands of the buffer. */
static void write_prepare(struct aof_job *job, bool sync) {
    must(!aof_writer.writing && aof.fd >= 0);
    aof_writer.writing = job;
    job_init(job, sync);
    aof_buffer_free(&job->buffer);
    job->buffer = aof_writer.spare;
    aof_buffer_init(&aof_writer.spare);
    aof_append_take(&job->buffer);
    job->sleep_us = aof_writer.sleep_us;
    aof_writer.delay_counted = false;
}

/* Writes the buffer in a background thread. */
static void write_start(bool sync) {
    struct aof_job *job = mem_alloc(sizeof *job);
    write_prepare(job, sync);
    background_submit(BACKGROUND_WRITE, job_run, job);
}

/* Syncs the file in a background thread. `releases`: everything appended is written, and the sync releases the replies.
 * */
static void aof_fsync_start(bool releases) {
    must(!aof_writer.syncing && aof.fd >= 0);
    aof_writer.unsynced = false;
    aof_writer.syncing = mem_alloc(sizeof *aof_writer.syncing);
    job_init(aof_writer.syncing, true);
    aof_writer.syncing->covers = aof_writer.written_sequence;
    if (!releases) aof_writer.syncing->sequence = 0;
    background_submit(BACKGROUND_FSYNC, job_run, aof_writer.syncing);
}

static void aof_fsync_finish(struct aof_job *job) {
    aof_writer.syncing = NULL;
    aof_writer.synced_us = clock_mono();
    if (job->error)
        note_fsync_failure(job->error);
    else
        note_fsync_success(job->directory);
    if (!job->error) {
        must_within(job->covers, aof_writer.written_sequence);
        aof_writer.synced_sequence = job->covers;
        reply_barrier_release(&aof_barrier, job->sequence);
    }
    aof_buffer_free(&job->buffer);
}

static void write_finish(struct aof_job *job) {
    aof_writer.writing = NULL;
    size_t len = aof_buffer_len(&job->buffer);
    if (job->error && job->sync) give_up("Error writing to the AOF file", job->error);
    latency_event(job->sync ? "aof-fsync-always" : "aof-write-pending-fsync", job->us);
    if (job->error) {
        write_failed(job->done, len, job->error);
        aof_append_give_back(&job->buffer);
        return;
    }
    write_succeeded(len);
    aof_writer.written_sequence = job->sequence;
    if (job->sync) {
        aof_writer.synced_sequence = job->sequence;
        aof_writer.unsynced = false;
        aof_writer.synced_us = clock_mono();
        aof_writer.group_end_us = clock_monotonic_us();
        aof_writer.group_us = job->us;
        if (job->us >= aof_writer.fast_us)
            aof_writer.fast_groups = 0;
        else if (aof_writer.fast_groups < FAST_GROUPS)
            aof_writer.fast_groups++;
        aof_writer.expected = reply_barrier_clients();
    }
    aof_buffer_clear(&job->buffer);
    aof_buffer_free(&aof_writer.spare);
    aof_writer.spare = job->buffer;
    reply_barrier_release(&aof_barrier, job->sequence);
}

/* Called by job_posted() or jobs_wait(), whichever is first. */
static void job_finish(struct aof_job *job) {
    if (job->handled) return;
    job->handled = true;
    must(job == aof_writer.writing || job == aof_writer.syncing);
    must_be_main_thread();
    if (job == aof_writer.writing)
        write_finish(job);
    else
        aof_fsync_finish(job);
}

static void jobs_wait(void) {
    if (aof_writer.writing) {
        background_drain(BACKGROUND_WRITE);
        job_finish(aof_writer.writing);
    }
    if (aof_writer.syncing) {
        background_drain(BACKGROUND_FSYNC);
        job_finish(aof_writer.syncing);
    }
}

/* --- always --- */

static uint64_t gathered(struct event_timer *timer) {
    return 0; /* aof_sync_step() follows in this turn of the loop */
}

static bool worth_waiting(void) {
    if (reply_barrier_clients() >= aof_writer.expected) return false;
    uint64_t window = aof_writer.group_us / 2 < GATHER_MAX_US ? aof_writer.group_us / 2 : GATHER_MAX_US;
    uint64_t waited = clock_monotonic_us() - aof_writer.group_end_us;
    if (waited >= window) return false;
    event_timer_set(server.loop, &aof_writer.timer, window - waited, gathered);
    return true;
}

bool aof_sync_on_main_thread(void) {
    if (aof_writer.thread != AOF_GROUP_AUTO) return aof_writer.thread == AOF_GROUP_MAIN;
    return aof_writer.fast_groups == FAST_GROUPS;
}

/* A large group is written in the background: that takes long, and the main thread has much to execute meanwhile. */
static bool group_is_small(size_t len) {
    return len <= SMALL_BYTES && aof_append_sequence() - aof_writer.written_sequence <= SMALL_COMMANDS;
}

static void write_here(void) {
    struct aof_job job;
    write_prepare(&job, true);
    job_execute(&job);
    job_finish(&job);
}

static void group_step(void) {
    if (aof_writer.writing || aof_writer.syncing) return;
    size_t len = aof_buffer_len(aof_append_buffer());
    if (len) {
        if (aof_sync_on_main_thread() && group_is_small(len))
            write_here();
        else if (!worth_waiting())
            write_start(true);
    } else if (aof_writer.unsynced) {
        aof_fsync_start(true); /* written before appendfsync became always */
    }
}

/* --- everysec, no --- */

/* Writes the buffer, without releasing replies. False: it failed. */
static bool write_buffer(void) {
    struct aof_buffer *buffer = aof_append_buffer();
    size_t len = aof_buffer_len(buffer), done = aof_writer.partial;
    if (!len) return true;
    if (aof_writer.sleep_us) usleep((useconds_t)aof_writer.sleep_us);
    uint64_t began = clock_monotonic_us();
    int error = aof_buffer_write(buffer, aof.fd, &done);
    uint64_t us = clock_monotonic_us() - began;
    latency_event(child_active() ? "aof-write-active-child" : "aof-write-alone", us);
    latency_event("aof-write", us);
    if (error) {
        write_failed(done, len, error);
        return false;
    }
    write_succeeded(len);
    aof_writer.written_sequence = aof_append_sequence();
    aof_buffer_clear(buffer);
    return true;
}

static void count_delay(void) {
    if (aof_writer.delay_counted || clock_mono() - aof_writer.writing->began_us < DELAY_US) return;
    aof_writer.delay_counted = true;
    aof_writer.delayed++;
    log_notice("Asynchronous AOF fsync is taking too long (disk is busy?). Replies to writes wait for it.");
}

static void write_step(void) {
    if (aof_writer.writing)
        count_delay();
    else if (aof_writer.syncing && !aof_writer.write_error && aof_buffer_len(aof_append_buffer()))
        write_start(false);
    else if (write_buffer())
        reply_barrier_release(&aof_barrier, aof_append_sequence());
    if (aof_settings.fsync != AOF_FSYNC_EVERYSEC || !aof_writer.unsynced || aof_writer.syncing) return;
    if (clock_mono() - aof_writer.synced_us < SYNC_INTERVAL_US) return;
    if (aof_settings.no_fsync_on_rewrite && child_active()) return;
    aof_fsync_start(false);
}

/* A busy script that turns the loop has an open group. Writes the complete commands before it. */
static void complete_step(void) {
    bool always = aof_settings.fsync == AOF_FSYNC_ALWAYS;
    if (aof_writer.writing || (aof_writer.syncing && always) || aof_sync_failed()) return;
    if (aof_append_has_complete()) write_start(always);
}

void aof_sync_step(void) {
    if (aof.state == AOF_OFF || aof.fd < 0) return;
    if (aof_append_in_group()) {
        complete_step();
        return;
    }
    if (aof_settings.fsync != AOF_FSYNC_ALWAYS) {
        write_step();
        return;
    }
    /* Errors from before appendfsync became always. */
    if (aof_writer.write_error && !write_buffer()) give_up("Error writing to the AOF file", aof_writer.write_error);
    if (aof_writer.sync_error && !aof_writer.syncing) give_up("Fail to fsync the AOF file", aof_writer.sync_error);
    group_step();
}

int aof_sync_all(void) {
    if (aof.fd < 0) return 0;
    aof_append_seal();
    jobs_wait();
    int error = write_buffer() ? 0 : aof_writer.write_error;
    uint64_t directory = aof_sync_directory_pending() ? aof_writer.directory_failures : 0;
    if (!error && fdatasync(aof.fd) < 0) note_fsync_failure(error = -errno);
    if (!error && directory && (error = aof_directory_sync()) < 0) note_fsync_failure(error);
    if (error && aof_settings.fsync == AOF_FSYNC_ALWAYS) give_up("Error writing to the AOF file", error);
    if (!error) {
        aof_writer.unsynced = false;
        aof_writer.synced_us = clock_mono();
        aof_writer.synced_sequence = aof_writer.written_sequence;
        note_fsync_success(directory);
    }
    /* After fdatasync(), as appendfsync always requires. */
    if (!aof_writer.write_error) reply_barrier_release(&aof_barrier, aof_append_sequence());
    return error;
}

/* --- Closing --- */

static void close_run(void *arg) {
    int fd = (int)(intptr_t)arg;
    if (fdatasync(fd) < 0) log_warning("Fail to fsync the AOF file: %s", strerror(errno));
    close(fd);
}

void aof_sync_close(int fd) {
    background_submit(BACKGROUND_FSYNC, close_run, (void *)(intptr_t)fd);
}

/* --- Start, stop, statistics --- */

void aof_sync_start(void) {
    event_loop_take_posts(server.loop);
    aof_buffer_init(&aof_writer.spare);
    aof_writer.write_error = aof_writer.sync_error = 0;
    aof_writer.partial = 0;
    aof_writer.unsynced = false;
    aof_writer.synced_us = clock_mono();
    aof_writer.expected = 0;
    aof_writer.fast_groups = 0;
    reply_barrier_arm(&aof_barrier);
}

void aof_sync_stop(void) {
    jobs_wait();
    event_timer_cancel(server.loop, &aof_writer.timer);
    aof_buffer_free(&aof_writer.spare);
    reply_barrier_disarm(&aof_barrier);
}

bool aof_progress(struct aof_progress *progress) {
    bool always = aof_settings.fsync == AOF_FSYNC_ALWAYS;
    *progress = (struct aof_progress){.appended = aof_append_sequence(),
                                      .safe = always ? aof_writer.synced_sequence : aof_writer.written_sequence,
                                      .synced = aof_writer.synced_sequence};
    return aof.state == AOF_ON;
}
size_t aof_sync_pending(void) {
    return background_pending(BACKGROUND_FSYNC);
}
uint64_t aof_sync_delayed(void) {
    return aof_writer.delayed;
}
size_t aof_sync_waiting_bytes(void) {
    if (aof.fd < 0) return 0;
    return aof_buffer_len(aof_append_buffer()) + (aof_writer.writing ? aof_buffer_len(&aof_writer.writing->buffer) : 0);
}
void aof_sync_reset_stats(void) {
    aof_writer.delayed = 0;
}
void aof_sync_set_sleep(uint64_t us) {
    aof_writer.sleep_us = us;
}
void aof_sync_set_thread(enum aof_group_thread thread, uint64_t fast_us) {
    aof_writer.thread = thread;
    aof_writer.fast_us = fast_us;
    aof_writer.fast_groups = 0;
}
