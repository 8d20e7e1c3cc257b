/* full_sync_stream.c: see full_sync_stream.h.
 *
 * The save waits for the pipe, and not in write(): the main thread may end it at any time by closing its end of the
 * release pipe. */
#include "repl/primary/full_sync_stream.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/random.h"
#include "persistence/background_save.h"
#include "persistence/persistence.h"
#include "repl/primary/direct_transfer.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/primary.h"
#include "repl/settings.h"
#include "server/stats/stats.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MARK_LEN = 40, PIECE = 256 * 1024, PIPE_SIZE = 1024 * 1024, ASK_MS = 1000, WATCH_US = 100 * 1000 };

/* Descriptors of the save: the pipe's write end, the read end of the release pipe, and (direct) the sockets. */
enum { FD_PIPE, FD_RELEASE, FD_SOCKETS, FDS = FD_SOCKETS + DIRECT_MAX };
_Static_assert((int)FDS <= (int)CHILD_KEEP_MAX, "a child keeps at most CHILD_KEEP_MAX descriptors");

static struct {
    /* The child or the thread reads these; they do not change while it runs. */
    struct background_save save;
    bool dual;   /* the receivers are RDB channels */
    bool direct; /* the save writes to their sockets; the pipe carries its reports (direct_transfer.h) */
    bool checksum;
    char mark[MARK_LEN + 1];
    int fds[FDS];
    /* Of the child or the thread. */
    struct direct_writer writer;
    /* Of the main thread. */
    bool running;
    int pipe_fd, release_fd; /* its ends. It closes the latter when it has read everything, or to stop the save */
    struct event_io pipe;
    bool ended;             /* the pipe was read to its end */
    bool finished, success; /* the save has finished; with status 0 */
    struct event_timer watch;
    uint64_t watched_us, held_us; /* when the timer ran last; for how long writes of clients have waited */
} transfer = {.pipe.fd = -1, .pipe_fd = -1, .release_fd = -1};

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* --- In the child, or on the thread --- */

/* Waits until the pipe can be written. -ECANCELED: the server has closed the release pipe, or stops the save. */
static int pipe_wait(void) {
    struct pollfd events[] = {{.fd = transfer.fds[FD_PIPE], .events = POLLOUT}, {.fd = transfer.fds[FD_RELEASE]}};
    int ready = poll(events, 2, ASK_MS);
    if (ready < 0) return errno == EINTR ? 0 : -errno;
    if (events[1].revents) return -ECANCELED;
    return ready || background_save_goes_on(&transfer.save) ? 0 : -ECANCELED;
}

static int pipe_write(struct sink *sink, const void *bytes, size_t len) {
    const char *at = bytes;
    while (len) {
        ssize_t written = write(transfer.fds[FD_PIPE], at, len);
        int error = written >= 0 || errno == EINTR ? 0 : errno == EAGAIN ? pipe_wait() : -errno;
        if (error) return error;
        if (written > 0) at += written, len -= (size_t)written;
    }
    return 0;
}

static void transfer_sink_init(struct sink *sink) {
    static const struct sink_ops ops = {.write = pipe_write};
    if (transfer.direct)
        direct_sink_init(sink, &transfer.writer);
    else
        sink_init(sink, &ops, NULL);
}

/* Closes the pipe and waits until the server has read it, so that INFO shows the save as running until then. */
static void transfer_leave(struct background_save *save) {
    struct pollfd event = {.fd = transfer.fds[FD_RELEASE]};
    close_fd(&transfer.fds[FD_PIPE]);
    if (transfer.direct) return;
    while (poll(&event, 1, ASK_MS) <= 0 && background_save_goes_on(save)) continue;
}

static int transfer_log(int error) {
    if (error && error != -ECANCELED) log_warning("Write error sending DB to replicas: %s", strerror(-error));
    return error;
}

static int transfer_begin(struct background_save *save, struct sink *sink) {
    transfer_sink_init(sink);
    output_write(&sink->out, SLICE("$EOF:"));
    output_write(&sink->out, slice_of(transfer.mark));
    output_write(&sink->out, SLICE("\r\n"));
    int error = sink_flush(sink);
    sink_free(sink);
    if (error) {
        close_fd(&transfer.fds[FD_PIPE]);
        return transfer_log(error);
    }
    transfer_sink_init(sink); /* the checksum begins here */
    sink->checksum = transfer.checksum;
    return 0;
}

static int transfer_end(struct background_save *save, struct sink *sink, int error) {
    if (!error) error = sink_flush(sink);
    if (!error) {
        sink->checksum = false;
        if (transfer.direct) direct_last_bytes(&transfer.writer);
        output_write(&sink->out, slice_of(transfer.mark));
        error = sink_flush(sink);
    }
    sink_free(sink);
    transfer_log(error);
    if (transfer.direct) direct_end(&transfer.writer);
    if (save->method == SAVE_FORK) return error; /* the child has its report to send before it leaves */
    if (error)
        close_fd(&transfer.fds[FD_PIPE]);
    else
        transfer_leave(save);
    return error || background_save_goes_on(save) ? error : -ECANCELED;
}

/* --- In the server --- */

static size_t transfer_receivers(void) {
    size_t count = 0;
    list_each(&replicas, link) count += replica_of(link)->state == REPLICA_TRANSFER;
    return count;
}

static void transfer_finish(void) {
    if (!transfer.ended || !transfer.finished) return;
    transfer.running = false;
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state != REPLICA_TRANSFER) continue;
        if (!transfer.success) {
            log_warning("SYNC failed. BGSAVE child returned an error");
            replica_close(replica);
            continue;
        }
        log_notice("Streamed RDB transfer with replica %s succeeded (socket). Waiting for REPLCONF ACK from replica to "
                   "enable streaming",
                   replica_name(replica));
        replica_put_online(replica, true);
    }
    full_sync_next();
}

static void transfer_end_pipe(void) {
    event_io_remove(server.loop, &transfer.pipe);
    if (transfer.ended) return;
    transfer.ended = true;
    close_fd(&transfer.pipe_fd);
    close_fd(&transfer.release_fd);
}

static bool transfer_is_full(void) {
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state == REPLICA_TRANSFER && replica_is_full(replica)) return true;
    }
    return false;
}

static void transfer_ready(struct event_io *io, int mask) {
    if (transfer_is_full()) {
        event_io_remove(server.loop, io); /* full_sync_send() resumes */
        return;
    }
    struct blob *piece = blob_new(PIECE, PIECE);
    ssize_t got;
    do got = read(transfer.pipe_fd, piece->data, PIECE);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        piece->len = (size_t)got;
        list_each_entry(&replicas, struct replica, link, replica)
            if (replica->state == REPLICA_TRANSFER) replica_pass(replica, piece);
    }
    blob_release(piece);
    if (got > 0 || (got < 0 && errno == EAGAIN)) return;
    log_notice("Diskless rdb transfer, %s, %zu replicas still up.", got ? strerror(errno) : "done reading from pipe",
               transfer_receivers());
    transfer_end_pipe();
    transfer_finish();
}

static struct replica *transfer_receiver(uint64_t client_id) {
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state == REPLICA_TRANSFER && replica->client->id == client_id) return replica;
    }
    return NULL;
}

/* Reads the reports of the save. `leaving` is a replica that has left the list already; or NULL. False: it has
 * closed the pipe. */
static bool direct_read_reports(struct replica *leaving) {
    uint64_t value;
    enum direct_event event;
    while ((event = direct_read_report(transfer.pipe_fd, &value)) != DIRECT_NOTHING && event != DIRECT_CLOSED) {
        struct replica *replica = event == DIRECT_SENT ? NULL : transfer_receiver(value);
        if (leaving && leaving->client->id == value && event != DIRECT_SENT) replica = leaving;
        if (event == DIRECT_SENT) replication_stats.bytes_out += value;
        if (replica && event == DIRECT_LAST) replica->copy.last_sent = true;
        if (replica && event == DIRECT_LOST) replica->copy.lost = true;
    }
    return event != DIRECT_CLOSED;
}

static void direct_ready(struct event_io *io, int mask) {
    bool more = direct_read_reports(NULL);
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state == REPLICA_TRANSFER && replica->copy.lost) replica_close(replica);
    }
    if (more) return;
    transfer_end_pipe();
    transfer_finish();
}

void full_sync_stream_resume(void) {
    if (!transfer.running || transfer.ended || transfer.pipe.mask || (!transfer.direct && transfer_is_full())) return;
    event_io_set(server.loop, &transfer.pipe, transfer.pipe_fd, EVENT_READ,
                 transfer.direct ? direct_ready : transfer_ready);
}

/* --- Replicas that keep writes of clients waiting --- */

/* Bytes for which the save waits, because the replica has not accepted them yet. */
static size_t unsent(const struct replica *replica) {
    int bytes = 0;
    if (!transfer.direct) return replica_is_full(replica) ? conn_pending(replica->client->conn) : 0;
    return ioctl(conn_fd(replica->client->conn), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

/* NULL: the save waits for no replica. */
static struct replica *slowest_receiver(void) {
    struct replica *slowest = NULL;
    size_t most = 0;
    list_each_entry(&replicas, struct replica, link, replica) {
        size_t bytes = replica->state == REPLICA_TRANSFER ? unsent(replica) : 0;
        if (bytes <= most) continue;
        slowest = replica;
        most = bytes;
    }
    return slowest;
}

static void drop_slow(struct replica *slowest) {
    full_sync_slow_note(slowest, (int64_t)(transfer.held_us / 1000));
    transfer.held_us = 0;
    replica_close(slowest);
}

static uint64_t transfer_watch(struct event_timer *timer) {
    uint64_t now = clock_monotonic_us(), elapsed = now - transfer.watched_us;
    if (!transfer.running || transfer.finished) return 0;
    transfer.watched_us = now;
    struct replica *slowest = background_save_holds_writes(&transfer.save) ? slowest_receiver() : NULL;
    if (!slowest) return WATCH_US;
    /* A stall of this thread counts against no replica. */
    transfer.held_us += elapsed < 10 * WATCH_US ? elapsed : 10 * WATCH_US;
    if (transfer.held_us > repl_timeout_us()) drop_slow(slowest);
    return WATCH_US;
}

static void watch_start(void) {
    transfer.held_us = 0;
    transfer.watched_us = clock_monotonic_us();
    event_timer_set(server.loop, &transfer.watch, WATCH_US, transfer_watch);
}

/* --- The start and the end --- */

/* Closes what belongs to the save. A TLS socket is that of its connection, whose session the child uses. */
static void close_fds(void) {
    close_fd(&transfer.fds[FD_PIPE]);
    close_fd(&transfer.fds[FD_RELEASE]);
    for (int i = 0; i < transfer.writer.count; i++)
        if (!transfer.writer.targets[i].conn) close_fd(&transfer.fds[FD_SOCKETS + i]);
}

static void log_end(const struct background_save *save, int status, int signal) {
    bool dropped = signal == CHILD_KILL_SIGNAL && transfer.dual; /* ended because the RDB channel was closed */
    if (signal && !dropped && save->method == SAVE_FORK)
        log_warning("Background RDB transfer terminated by signal %d", signal);
    else if (signal && !dropped)
        log_warning("Background RDB transfer cancelled");
    else if (status || dropped)
        log_warning("Background RDB transfer error");
    else
        log_notice("Background RDB transfer terminated with success");
}

static void transfer_done(struct background_save *save, int status, int signal) {
    transfer.finished = true;
    transfer.success = !status && !signal;
    log_end(save, status, signal);
    if (save->method != SAVE_FORK) close_fds();
    if (transfer.direct && !transfer.ended) {
        direct_ready(&transfer.pipe, EVENT_READ); /* reads the last reports up to the end of the pipe */
        return;
    }
    if (!transfer.success && !transfer.ended) { /* the rest in the pipe belongs to an incomplete copy */
        if (transfer_receivers())
            log_notice("Diskless rdb transfer, done reading from pipe, %zu replicas still up.", transfer_receivers());
        transfer_end_pipe();
    }
    transfer_finish();
}

/* The main thread: the save's next wait fails. */
static void transfer_stop(struct background_save *save) {
    close_fd(&transfer.release_fd);
}

static const struct background_save_ops transfer_ops = {.begin = transfer_begin,
                                                        .end = transfer_end,
                                                        .leave = transfer_leave,
                                                        .stop = transfer_stop,
                                                        .done = transfer_done};

/* A socket on which the save can send. The save has a descriptor of its own: when the server closes the connection, the
 * number of its descriptor may become that of another one. TLS is for a child only, see conn_socket_for_child(). */
static bool direct_add(const struct replica *replica, enum save_method method) {
    struct direct_writer *writer = &transfer.writer;
    struct connection *conn = replica->client->conn, *real;
    struct direct_target *target = &writer->targets[writer->count];
    if (writer->count == DIRECT_MAX) return false;
    *target = (struct direct_target){.client_id = replica->client->id};
    target->fd = conn_socket_for_child(conn, false, &real);
    if (target->fd >= 0) {
        target->fd = fcntl(target->fd, F_DUPFD_CLOEXEC, 0);
    } else if (method == SAVE_FORK) {
        target->fd = conn_socket_for_child(conn, true, &real);
        target->conn = real;
    }
    if (target->fd < 0) return false;
    transfer.fds[FD_SOCKETS + writer->count++] = target->fd;
    return true;
}

/* Collects the sockets of the RDB channels. False: the save cannot write to all of them itself. */
static bool direct_prepare(enum save_method method) {
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state != REPLICA_TRANSFER || !conn_is_open(replica->client->conn)) continue;
        if (direct_add(replica, method)) continue;
        close_fds();
        transfer.writer.count = 0;
        return false;
    }
    return transfer.writer.count;
}

/* Creates the pipe for the snapshot or (direct) for reports, and the release pipe. */
static int transfer_pipes(void) {
    int ends[2], release[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return -errno;
    transfer.pipe_fd = ends[0];
    transfer.fds[FD_PIPE] = transfer.writer.report_fd = ends[1];
    if (!transfer.direct) fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    if (pipe2(release, O_CLOEXEC) < 0) return -errno;
    transfer.fds[FD_RELEASE] = transfer.writer.stop_fd = release[0];
    transfer.release_fd = release[1];
    return 0;
}

static int transfer_start(enum save_method method) {
    int error = transfer_pipes();
    if (error) return error;
    for (int i = 0; i < transfer.writer.count; i++)
        if (transfer.writer.targets[i].conn) conn_give_output(transfer.writer.targets[i].conn);
    return background_save_start(&transfer.save, method);
}

int full_sync_stream_start(const struct save_content *content, bool dual) {
    enum save_method method = background_save_method(SAVE_DEFAULT);
    if (transfer.running) return -EBUSY;
    transfer.writer = (struct direct_writer){.timeout_us = repl_timeout_us(), .save = &transfer.save};
    transfer.fds[FD_PIPE] = transfer.fds[FD_RELEASE] = -1;
    transfer.dual = dual;
    transfer.direct = dual && direct_prepare(method);
    transfer.checksum = persistence_settings.checksum && !content->unchecked;
    random_hex(transfer.mark, MARK_LEN);
    transfer.save = (struct background_save){.ops = &transfer_ops,
                                             .kind = CHILD_REPLICATION,
                                             .title = "valkey-rdb-to-replicas",
                                             .log_name = "RDB",
                                             .keep = transfer.fds,
                                             .keep_count = FD_SOCKETS + transfer.writer.count,
                                             .content = *content};
    transfer.save.content.streamed = true;
    int error = transfer_start(method);
    if (error || method == SAVE_FORK) close_fds();
    if (error) {
        close_fd(&transfer.pipe_fd);
        close_fd(&transfer.release_fd);
        return error;
    }
    log_notice("Background RDB transfer started by pid %d to %s%s%s", (int)transfer.save.pid,
               transfer.direct ? "direct socket to replica" : "pipe through parent process",
               content->unchecked && !dual ? " while skipping RDB checksum for this transfer" : "",
               method == SAVE_FORK ? "" : ", without fork");
    transfer.running = true;
    transfer.ended = transfer.finished = false;
    if (method != SAVE_FORK) watch_start();
    full_sync_stream_resume();
    return 0;
}

bool full_sync_stream_runs(void) {
    return transfer.running;
}

static bool receives(const struct replica *replica) {
    return replica->state == REPLICA_TRANSFER && transfer.running;
}

bool full_sync_stream_leaves(struct replica *replica) {
    if (receives(replica) && transfer.direct) {
        if (!transfer.ended) direct_read_reports(replica);
        if (!replica->copy.last_sent) shutdown(conn_fd(replica->client->conn), SHUT_RDWR);
    }
    return replica->copy.last_sent || (receives(replica) && transfer.ended);
}

void full_sync_stream_left(const struct replica *replica) {
    if (!receives(replica) || transfer.finished || transfer.ended) return;
    if (transfer_receivers()) {
        full_sync_stream_resume();
        return;
    }
    if (replica->copy.last_sent) return; /* the save is about to end */
    log_notice("Diskless rdb transfer, last replica dropped, %s.",
               transfer.save.method == SAVE_FORK ? "killing fork child" : "ending the save without fork");
    child_kill();
}
