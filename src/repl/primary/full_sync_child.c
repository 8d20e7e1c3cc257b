/* full_sync_child.c: see full_sync_child.h. */
#include "repl/primary/full_sync_child.h"
#include "lib/system/log.h"
#include "lib/system/random.h"
#include "persistence/persistence.h"
#include "persistence/snapshot.h"
#include "repl/primary/direct_transfer.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/primary.h"
#include "repl/settings.h"
#include "server/process/child.h"
#include "server/stats/stats.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MARK_LEN = 40, PIECE = 256 * 1024, PIPE_SIZE = 1024 * 1024 };

static struct {
    bool running, dual; /* dual: the receivers are RDB channels */
    bool direct;        /* the child writes to their sockets; the pipe carries its reports (direct_transfer.h) */
    struct direct_writer writer;
    struct child_job job;
    struct save_content content;
    char mark[MARK_LEN + 1];
    /* Descriptors for the child: the pipe's write end; then the read end of the release pipe, or (direct) the
     * sockets. The server closes its end of the release pipe when it has read everything. */
    int child_fds[DIRECT_MAX + 1];
    int release_fd; /* the server's end of the release pipe */
    struct event_io pipe;
    bool ended;           /* the pipe was read to its end */
    bool exited, success; /* the child has exited; with status 0 */
} transfer = {.pipe.fd = -1};

/* Closes the pipe and waits until the server has read it, so that INFO shows the save as running until then. */
static void wait_for_reader(int fd) {
    char byte;
    ssize_t got;
    close(fd);
    do got = read(transfer.child_fds[1], &byte, 1);
    while (got > 0 || (got < 0 && errno == EINTR));
}

static void transfer_sink_init(struct sink *sink) {
    if (transfer.direct)
        direct_sink_init(sink, &transfer.writer);
    else
        sink_init_fd(sink, transfer.child_fds[0]);
}

static int transfer_child(struct child_job *job) {
    struct sink sink;
    transfer_sink_init(&sink);
    output_write(&sink.out, SLICE("$EOF:"));
    output_write(&sink.out, slice_of(transfer.mark));
    output_write(&sink.out, SLICE("\r\n"));
    int result = sink_flush(&sink);
    sink_free(&sink);
    if (result < 0) return 1;
    transfer_sink_init(&sink);
    sink.checksum = persistence_settings.checksum && !transfer.content.unchecked;
    result = save_write(&sink, &transfer.content);
    if (result >= 0) {
        sink.checksum = false;
        if (transfer.direct) direct_last_bytes(&transfer.writer);
        output_write(&sink.out, slice_of(transfer.mark));
        result = sink_flush(&sink);
    }
    sink_free(&sink);
    if (result < 0) {
        log_warning("Write error sending DB to replicas: %s", strerror(-result));
        return 1;
    }
    child_report_end();
    if (transfer.direct)
        direct_end(&transfer.writer);
    else
        wait_for_reader(transfer.child_fds[0]);
    return 0;
}

static size_t transfer_receivers(void) {
    size_t count = 0;
    list_each(&replicas, link) count += replica_of(link)->state == REPLICA_TRANSFER;
    return count;
}

static void transfer_finish(void) {
    if (!transfer.ended || !transfer.exited) return;
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

static int transfer_fd = -1; /* the read end */

static void transfer_end_pipe(void) {
    event_io_remove(server.loop, &transfer.pipe);
    if (transfer.ended) return;
    transfer.ended = true;
    close(transfer_fd);
    if (transfer.release_fd >= 0) close(transfer.release_fd);
}

static bool transfer_is_full(void) {
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state == REPLICA_TRANSFER && replica_is_full(replica)) return true;
    }
    return false;
}

static void transfer_pass(struct blob *piece) {
    list_each_entry(&replicas, struct replica, link, replica)
        if (replica->state == REPLICA_TRANSFER) replica_pass(replica, piece);
}

static void transfer_ready(struct event_io *io, int mask) {
    if (transfer_is_full()) {
        event_io_remove(server.loop, io); /* full_sync_send() resumes */
        return;
    }
    struct blob *piece = blob_new(PIECE, PIECE);
    ssize_t got;
    do got = read(transfer_fd, piece->data, PIECE);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        piece->len = (size_t)got;
        transfer_pass(piece);
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

/* Reads the child's reports. `leaving` is a replica that has left the list already; or NULL. False: the child has
 * exited. */
static bool direct_read_reports(struct replica *leaving) {
    uint64_t value;
    enum direct_event event;
    while ((event = direct_read_report(transfer_fd, &value)) != DIRECT_NOTHING && event != DIRECT_CLOSED) {
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

void full_sync_child_resume(void) {
    if (!transfer.running || transfer.ended || transfer.pipe.mask || (!transfer.direct && transfer_is_full())) return;
    event_io_set(server.loop, &transfer.pipe, transfer_fd, EVENT_READ, transfer.direct ? direct_ready : transfer_ready);
}

static void transfer_done(struct child_job *job, int status, int signal) {
    transfer.exited = true;
    transfer.success = !status && !signal;
    bool dropped = signal == CHILD_KILL_SIGNAL && transfer.dual; /* killed because the RDB channel was closed */
    if (signal && !dropped)
        log_warning("Background RDB transfer terminated by signal %d", signal);
    else if (status || dropped)
        log_warning("Background RDB transfer error");
    else
        log_notice("Background RDB transfer terminated with success");
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

/* Collects the sockets of the RDB channels. False: the child cannot write to all of them itself. */
static bool direct_prepare(void) {
    struct direct_writer *writer = &transfer.writer;
    *writer = (struct direct_writer){.timeout_us = (uint64_t)repl_settings.timeout * 1000000};
    list_each_entry(&replicas, const struct replica, link, replica) {
        struct connection *conn = replica->client->conn, *real;
        if (replica->state != REPLICA_TRANSFER || !conn_is_open(conn)) continue;
        int fd = writer->count < DIRECT_MAX ? conn_socket_for_child(conn, true, &real) : -1;
        if (fd < 0) return false;
        writer->targets[writer->count] =
            (struct direct_target){.client_id = replica->client->id, .fd = fd, .conn = real};
        transfer.child_fds[++writer->count] = fd;
    }
    return writer->count;
}

/* Creates the pipe for the snapshot and the release pipe; or (direct) only the pipe for the child's reports. */
static int transfer_pipes(int ends[2], int release[2]) {
    release[0] = release[1] = -1;
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    if (!transfer.direct && pipe2(release, O_CLOEXEC) < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return -error;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    transfer.child_fds[0] = ends[1];
    if (transfer.direct) {
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        transfer.writer.report_fd = ends[1];
    } else {
        fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
        transfer.child_fds[1] = release[0];
    }
    return 0;
}

int full_sync_child_start(const struct save_content *content, bool dual) {
    int ends[2], release[2], result;
    if (transfer.running) return -EBUSY;
    transfer.dual = dual;
    transfer.direct = dual && direct_prepare();
    if ((result = transfer_pipes(ends, release)) < 0) return result;
    random_hex(transfer.mark, MARK_LEN);
    transfer.content = *content;
    transfer.content.streamed = true;
    transfer.job = (struct child_job){.kind = CHILD_REPLICATION,
                                      .title = "valkey-rdb-to-replicas",
                                      .log_name = "RDB",
                                      .keep = transfer.child_fds,
                                      .keep_count = transfer.direct ? 1 + transfer.writer.count : 2,
                                      .run = transfer_child,
                                      .done = transfer_done};
    for (int i = 0; transfer.direct && i < transfer.writer.count; i++)
        conn_give_output(transfer.writer.targets[i].conn);
    pid_t pid = child_start(&transfer.job);
    close(ends[1]);
    if (release[0] >= 0) close(release[0]);
    if (pid < 0) {
        close(ends[0]);
        if (release[1] >= 0) close(release[1]);
        return (int)pid;
    }
    log_notice("Background RDB transfer started by pid %d to %s%s", (int)pid,
               transfer.direct ? "direct socket to replica" : "pipe through parent process",
               content->unchecked && !dual ? " while skipping RDB checksum for this transfer" : "");
    transfer_fd = ends[0];
    transfer.release_fd = release[1];
    transfer.running = true;
    transfer.ended = transfer.exited = false;
    full_sync_child_resume();
    return 0;
}

bool full_sync_child_runs(void) {
    return transfer.running;
}

static bool receives(const struct replica *replica) {
    return replica->state == REPLICA_TRANSFER && transfer.running;
}

bool full_sync_child_leaves(struct replica *replica) {
    if (receives(replica) && transfer.direct) {
        if (!transfer.ended) direct_read_reports(replica);
        if (!replica->copy.last_sent) shutdown(conn_fd(replica->client->conn), SHUT_RDWR);
    }
    return replica->copy.last_sent || (receives(replica) && transfer.ended);
}

void full_sync_child_left(const struct replica *replica) {
    if (!receives(replica) || transfer.exited || transfer.ended) return;
    if (transfer_receivers()) {
        full_sync_child_resume();
        return;
    }
    if (replica->copy.last_sent) return; /* the child is about to exit */
    log_notice("Diskless rdb transfer, last replica dropped, killing fork child.");
    child_kill();
}
