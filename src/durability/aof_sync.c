/* aof_sync.c: when bytes are written to the append-only file and brought to the disk, and when replies may leave.
 *
 * Each turn of the loop gathers what was propagated in a buffer. Replies to these writes are held by the reply barrier
 * (server/clients/reply_barrier.h).
 *
 * everysec, no   The main thread writes the buffer before the loop waits, and releases the replies. Once a second a
 *                background thread calls fdatasync(). While it does, a write may block: it is postponed for up to two
 *                seconds, and the replies leave nevertheless, as with any Valkey. What could not be written stays in
 *                the buffer, its replies stay held, and further writes are refused until the file can be written.
 *
 * always         Group commit. A background thread writes and calls fdatasync(), while the main thread goes on
 *                executing. All replies that one fdatasync() covers leave together, and what was gathered meanwhile is
 *                the next group. One group is on its way at a time.
 *                After a group the next one waits a moment for the clients that were just answered, at most half as
 *                long as the last group took: without that, clients split into two crowds, each of which waits for the
 *                other's group.
 *                A failure ends the process: what was held was not acknowledged. */
#include "durability/aof_private.h"
#include "lib/background.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "server/clients/reply_barrier.h"
#include "server/command/propagate.h"
#include "server/process/child.h"
#include "server/stats/latency_monitor.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYNC_INTERVAL_US = 1000000, POSTPONE_US = 2000000, LOG_INTERVAL_US = 30000000, GATHER_MAX_US = 500 };

/* A group of writes on its way to the disk (always), or a file to be synchronized (everysec). */
struct sync_job {
    struct event_post post;
    int fd;
    struct aof_buffer buffer; /* empty for everysec */
    uint64_t sequence;        /* of the last command in it */
    uint64_t us;              /* that it took */
    int error;                /* of the thread */
    bool handled;             /* by the main thread */
};

static struct {
    struct sync_job *running; /* NULL: none */
    struct aof_buffer spare;
    int write_error, sync_error; /* negative errnos of the last attempts, 0: they succeeded */
    size_t partial;              /* bytes of the buffer that a failed write has left in the file */
    bool unsynced;               /* written, but not yet brought to the disk */
    uint64_t synced_us, postponed_us, logged_us;
    uint64_t delayed;
    /* Gathering. */
    struct event_timer timer;
    uint64_t group_end_us, group_us; /* when the last group was done, and how long it took */
    size_t expected;                 /* clients that a group may hope for */
} sync_state = {0};

/* Failures */

static bool may_log(void) {
    uint64_t now = clock_mono();
    if (sync_state.logged_us && now - sync_state.logged_us < LOG_INTERVAL_US) return false;
    sync_state.logged_us = now ? now : 1;
    return true;
}

static _Noreturn void give_up(const char *what, int error) {
    log_warning("%s: %s", what, strerror(-error));
    log_warning("Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...");
    exit(1);
}

bool aof_sync_failed(void) {
    return sync_state.write_error || sync_state.sync_error;
}
const char *aof_sync_error_text(void) {
    return strerror(-(sync_state.write_error ? sync_state.write_error : sync_state.sync_error));
}

/* Jobs of the background thread */

static void job_finish(struct sync_job *job);

static void job_posted(struct event_post *post) {
    struct sync_job *job = container_of(post, struct sync_job, post);
    job_finish(job);
    mem_free(job);
}

static void job_run(void *arg) {
    struct sync_job *job = arg;
    uint64_t began = clock_monotonic_us();
    size_t done = 0;
    job->error = aof_buffer_write(&job->buffer, job->fd, &done);
    if (!job->error && fdatasync(job->fd) < 0) job->error = -errno;
    job->us = clock_monotonic_us() - began;
    event_loop_post(server.loop, &job->post);
}

static struct sync_job *job_start(void) {
    struct sync_job *job = mem_alloc(sizeof *job);
    *job = (struct sync_job){.fd = aof.fd, .post.run = job_posted, .sequence = aof_append_sequence()};
    sync_state.running = job;
    return job;
}

/* Once for each job, from its post or by job_wait(). */
static void job_finish(struct sync_job *job) {
    if (job->handled) return;
    job->handled = true;
    sync_state.running = NULL;
    sync_state.synced_us = clock_mono();
    size_t len = aof_buffer_len(&job->buffer);
    if (!len) {
        if (job->error && !sync_state.sync_error) log_warning("Fail to fsync the AOF file: %s", strerror(-job->error));
        sync_state.sync_error = job->error;
        aof_buffer_free(&job->buffer);
        return;
    }
    if (job->error) give_up("Error writing to the AOF file", job->error);
    latency_event("aof-fsync-always", job->us);
    aof.fd_size += len;
    aof.size += len;
    aof_buffer_clear(&job->buffer);
    aof_buffer_free(&sync_state.spare);
    sync_state.spare = job->buffer;
    sync_state.group_end_us = clock_monotonic_us();
    sync_state.group_us = job->us;
    sync_state.expected = reply_barrier_clients();
    reply_barrier_release(&aof_barrier, job->sequence);
}

static void job_wait(void) {
    if (!sync_state.running) return;
    background_drain(BACKGROUND_FSYNC);
    job_finish(sync_state.running);
}

/* always */

static uint64_t gathered(struct event_timer *timer) {
    (void)timer;
    return 0; /* before the loop waits again, the step looks at the clock */
}

static bool worth_waiting(void) {
    if (reply_barrier_clients() >= sync_state.expected) return false;
    uint64_t window = sync_state.group_us / 2 < GATHER_MAX_US ? sync_state.group_us / 2 : GATHER_MAX_US;
    uint64_t waited = clock_monotonic_us() - sync_state.group_end_us;
    if (waited >= window) return false;
    event_timer_set(server.loop, &sync_state.timer, window - waited, gathered);
    return true;
}

static void group_step(void) {
    if (sync_state.running || !aof_buffer_len(aof_append_buffer()) || worth_waiting()) return;
    struct sync_job *job = job_start();
    job->buffer = sync_state.spare;
    aof_buffer_init(&sync_state.spare);
    aof_append_swap(&job->buffer);
    background_submit(BACKGROUND_FSYNC, job_run, job);
}

/* everysec, no */

static void write_failed(size_t done, size_t len, int error) {
    if (may_log()) {
        if (done > sync_state.partial)
            log_warning("Short write while writing to the AOF file: (nwritten=%zu, expected=%zu)",
                        done - sync_state.partial, len);
        else
            log_warning("Error writing to the AOF file: %s", strerror(-error));
    }
    sync_state.write_error = error;
    /* A command that is written in part must not stay: the server may end before it can write the rest. */
    if (done && ftruncate(aof.fd, (off_t)aof.fd_size) == 0) done = 0;
    sync_state.partial = done;
}

/* Writes what there is. False: it failed. */
static bool write_buffer(void) {
    struct aof_buffer *buffer = aof_append_buffer();
    size_t len = aof_buffer_len(buffer), done = sync_state.partial;
    uint64_t sequence = aof_append_sequence();
    if (len) {
        uint64_t began = clock_monotonic_us();
        int error = aof_buffer_write(buffer, aof.fd, &done);
        uint64_t us = clock_monotonic_us() - began;
        latency_event(sync_state.running ? "aof-write-pending-fsync"
                      : child_active()   ? "aof-write-active-child"
                                         : "aof-write-alone",
                      us);
        latency_event("aof-write", us);
        if (error) {
            write_failed(done, len, error);
            return false;
        }
        if (sync_state.write_error) log_warning("AOF write error looks solved. The server can write again.");
        sync_state.write_error = 0;
        sync_state.partial = 0;
        sync_state.postponed_us = 0;
        sync_state.unsynced = true;
        aof.fd_size += len;
        aof.size += len;
        aof_buffer_clear(buffer);
    }
    reply_barrier_release(&aof_barrier, sequence);
    return true;
}

/* A write now might block behind the fdatasync() that is going on. */
static bool postpone(void) {
    if (aof_settings.fsync != AOF_FSYNC_EVERYSEC || !sync_state.running || sync_state.write_error) return false;
    uint64_t now = clock_mono();
    if (!sync_state.postponed_us) sync_state.postponed_us = now ? now : 1;
    if (now - sync_state.postponed_us < POSTPONE_US) return true;
    sync_state.delayed++;
    log_notice("Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer without waiting for "
               "fsync to complete, this may slow down the server.");
    return false;
}

static void write_step(void) {
    if (aof_buffer_len(aof_append_buffer())) {
        if (postpone())
            reply_barrier_release(&aof_barrier, aof_append_sequence());
        else
            write_buffer();
    } else {
        reply_barrier_release(&aof_barrier, aof_append_sequence());
    }
    if (aof_settings.fsync != AOF_FSYNC_EVERYSEC || !sync_state.unsynced || sync_state.running) return;
    if (clock_mono() - sync_state.synced_us < SYNC_INTERVAL_US) return;
    if (aof_settings.no_fsync_on_rewrite && child_active()) return;
    sync_state.unsynced = false;
    struct sync_job *job = job_start();
    aof_buffer_init(&job->buffer);
    background_submit(BACKGROUND_FSYNC, job_run, job);
}

void aof_sync_step(void) {
    if (aof.state == AOF_OFF) return;
    if (aof_settings.fsync == AOF_FSYNC_ALWAYS && !sync_state.write_error) {
        group_step();
        return;
    }
    if (sync_state.running && aof_buffer_len(&sync_state.running->buffer)) job_wait(); /* appendfsync was always */
    write_step();
    if (aof_settings.fsync == AOF_FSYNC_ALWAYS && sync_state.write_error)
        give_up("Error writing to the AOF file", sync_state.write_error);
}

int aof_sync_all(void) {
    if (aof.fd < 0) return 0;
    job_wait();
    int error = write_buffer() ? 0 : sync_state.write_error;
    if (!error && fdatasync(aof.fd) < 0) {
        error = -errno;
        log_warning("Fail to fsync the AOF file: %s", strerror(-error));
    }
    if (error && aof_settings.fsync == AOF_FSYNC_ALWAYS) give_up("Error writing to the AOF file", error);
    if (!error) {
        sync_state.unsynced = false;
        sync_state.sync_error = 0;
        sync_state.synced_us = clock_mono();
    }
    return error;
}

/* Closing */

static void close_run(void *arg) {
    int fd = (int)(intptr_t)arg;
    if (fdatasync(fd) < 0) log_warning("Fail to fsync the AOF file: %s", strerror(errno));
    close(fd);
}

void aof_sync_close(int fd) {
    background_submit(BACKGROUND_FSYNC, close_run, (void *)(intptr_t)fd);
}

/* Life and figures */

void aof_sync_start(void) {
    event_loop_take_posts(server.loop);
    aof_buffer_init(&sync_state.spare);
    sync_state.write_error = sync_state.sync_error = 0;
    sync_state.partial = 0;
    sync_state.unsynced = false;
    sync_state.synced_us = clock_mono();
    sync_state.expected = 0;
    reply_barrier_arm(&aof_barrier);
}

void aof_sync_stop(void) {
    job_wait();
    event_timer_cancel(server.loop, &sync_state.timer);
    aof_buffer_free(&sync_state.spare);
    reply_barrier_disarm(&aof_barrier);
}

size_t aof_sync_pending(void) {
    return background_pending(BACKGROUND_FSYNC);
}
uint64_t aof_sync_delayed(void) {
    return sync_state.delayed;
}
size_t aof_sync_waiting_bytes(void) {
    if (aof.state == AOF_OFF) return 0;
    return aof_buffer_len(aof_append_buffer()) + (sync_state.running ? aof_buffer_len(&sync_state.running->buffer) : 0);
}
void aof_sync_reset_stats(void) {
    sync_state.delayed = 0;
}
