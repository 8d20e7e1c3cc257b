/* full_sync.c: the full synchronization on the primary.
 *
 * From a file (repl-diskless-sync no, or a replica without the capability "eof"): a background save writes dbfilename.
 * When the file is complete, each waiting replica gets "$<length>" and the file. A replica that connects while the file
 * is being written joins, at the stream position of the replicas that already wait.
 *
 * Through a pipe: a child process writes "$EOF:<mark>", the snapshot and the mark into a pipe. The server reads the
 * pipe in pieces and passes each piece, by reference, to all replicas that take part. It stops reading while one
 * replica has REPLICA_SEND_AHEAD bytes queued, so memory is bounded. A replica that accepts no bytes for repl-timeout
 * is closed. The child uses no connection, so this works with every transport.
 *
 * On two channels (dual-channel-replication-enabled): the replica opens a second connection, its RDB channel. The
 * primary sends the offset of the snapshot there ("$ENDOFF:<offset> <id> <db> <client>"), and then the snapshot. While
 * it is still being sent, the replica's main channel asks for the stream from that offset on by PSYNC; the primary
 * keeps the stream until then. If all RDB channels are sockets, with TLS or without, the child writes to them itself
 * (direct_transfer.h). Otherwise (RDMA) the pipe is used. */
#include "formats/rdb.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "persistence/persistence.h"
#include "persistence/save_points.h"
#include "persistence/snapshot.h"
#include "repl/direct_transfer.h"
#include "repl/primary.h"
#include "repl/pull_primary.h"
#include "repl/repl_feed.h"
#include "server/command/dispatch.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/stats/stats.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARK_LEN = 40, PIECE = 256 * 1024, PIPE_SIZE = 1024 * 1024, VERSION_9 = 0x090000 };
enum { REFUSAL_DELAY_MS = 1000, REFUSALS_KNOWN = 16 };

/* --- Main channels that have not connected yet --- */

struct awaited_channel {
    struct list_link link;
    uint64_t rdb_client_id;
    int64_t offset;
    char name[REPLICA_NAME_MAX]; /* of the replica, for the log */
    struct repl_stream_reader reader;
    int64_t rdb_done_ms; /* when the RDB channel was closed; 0: it is open */
};
int full_sync_grace_s = 60;
static struct list awaited = LIST_INIT(awaited);

static struct awaited_channel *awaited_find(uint64_t rdb_client_id) {
    list_each(&awaited, link) {
        struct awaited_channel *channel = container_of(link, struct awaited_channel, link);
        if (channel->rdb_client_id == rdb_client_id) return channel;
    }
    return NULL;
}

static void awaited_add(const struct replica *replica) {
    struct awaited_channel *channel = mem_calloc(1, sizeof *channel);
    channel->rdb_client_id = replica->client->id;
    channel->offset = role->position.offset;
    snprintf(channel->name, sizeof channel->name, "%s", replica_name(replica));
    log_debug("Dual channel replication: Add rdb replica %s to waiting psync, with cid %llu, %s repl-backlog %s",
              channel->name, (unsigned long long)channel->rdb_client_id, repl_stream_backlog_len() ? "tracking" : "no",
              repl_stream_backlog_len() ? "tail" : "to track");
    repl_stream_attach_end(&channel->reader);
    log_debug("Dual channel replication: Attach replica rdb client %llu at offset %lld of the replication stream",
              (unsigned long long)channel->rdb_client_id, (long long)channel->offset);
    list_append(&awaited, &channel->link);
}

static void awaited_drop(struct awaited_channel *channel) {
    log_debug("Dual channel replication: Remove psync waiting replica %s with cid %llu", channel->name,
              (unsigned long long)channel->rdb_client_id);
    repl_stream_detach(&channel->reader);
    list_remove(&awaited, &channel->link);
    mem_free(channel);
}

void full_sync_drop_main_channels(void) {
    list_each(&awaited, link) awaited_drop(container_of(link, struct awaited_channel, link));
}

bool full_sync_knows_rdb_client(uint64_t id) {
    return awaited_find(id) != NULL;
}

size_t full_sync_main_channels_awaited(void) {
    return awaited.len;
}

bool full_sync_main_channel(struct replica *replica, int64_t offset) {
    struct awaited_channel *channel = awaited_find(replica->rdb_client_id);
    if (!channel || channel->offset != offset) return false;
    repl_stream_attach_like(&replica->reader, &channel->reader);
    awaited_drop(channel);
    return true;
}

uint64_t full_sync_kept_for(const struct replica *replica) {
    const struct awaited_channel *channel = replica->rdb_channel ? awaited_find(replica->client->id) : NULL;
    return channel ? repl_stream_reader_lag(&channel->reader) : 0;
}

/* While the RDB channel is open, its client's output limit covers the kept stream: see replica_report(). */
void full_sync_limit_kept(void) {
    const struct client_limit *limit = &client_settings.limits[CLIENT_CLASS_REPLICA];
    list_each(&awaited, link) {
        struct awaited_channel *channel = container_of(link, struct awaited_channel, link);
        uint64_t lag = repl_stream_reader_lag(&channel->reader);
        if (!channel->rdb_done_ms || !limit->hard || lag < limit->hard || lag < (uint64_t)repl_settings.backlog_size)
            continue;
        log_warning(
            "Client id=%llu, the RDB channel of replica %s, scheduled to be closed ASAP for overcoming of output "
            "buffer limits.",
            (unsigned long long)channel->rdb_client_id, channel->name);
        client_stats.output_limit_closed++;
        awaited_drop(channel);
    }
}

static void awaited_expire(int64_t now) {
    list_each(&awaited, link) {
        struct awaited_channel *channel = container_of(link, struct awaited_channel, link);
        if (!channel->rdb_done_ms || now - channel->rdb_done_ms <= (int64_t)full_sync_grace_s * 1000) continue;
        log_notice("Replica main channel failed to establish PSYNC within the grace period (%lld seconds). Freeing RDB "
                   "client %llu.",
                   (long long)(now - channel->rdb_done_ms) / 1000, (unsigned long long)channel->rdb_client_id);
        awaited_drop(channel);
    }
}

/* --- Announcing the position --- */

void full_sync_announce(struct replica *replica) {
    char line[REPL_ID_LEN + 48];
    int len;
    replica->acked = 0;
    replica->has_acked = false;
    if (replica->rdb_channel) {
        len = snprintf(line, sizeof line, "$ENDOFF:%lld %s %d %llu\r\n", (long long)role->position.offset,
                       role->position.id, role->position.db, (unsigned long long)replica->client->id);
        log_notice("Dual channel replication: Sending to replica %s RDB end offset %lld and client-id %llu",
                   replica_name(replica), (long long)role->position.offset, (unsigned long long)replica->client->id);
        awaited_add(replica);
        replica_write(replica, (struct slice){line, (size_t)len});
        return;
    }
    if (!replica->rdb_only) repl_stream_attach_end(&replica->reader);
    if (!replica->psync) return; /* the reply to SYNC is the file itself */
    len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", role->position.id, (long long)role->position.offset);
    replica_write(replica, (struct slice){line, (size_t)len});
}

static bool same_snapshot(const struct replica *a, const struct replica *b) {
    return a->filter == b->filter && a->rdb_channel == b->rdb_channel && full_sync_pulls(a) == full_sync_pulls(b);
}

/* --- From a file --- */

static void file_send(struct replica *replica) {
    struct connection *conn = replica->client->conn;
    while (replica->file_left && conn_is_open(conn) && !replica_is_full(replica)) {
        size_t len = replica->file_left < PIECE ? (size_t)replica->file_left : PIECE;
        struct blob *piece = blob_new(len, len);
        ssize_t got;
        do got = read(replica->file, piece->data, len);
        while (got < 0 && errno == EINTR);
        if (got <= 0) {
            log_warning("Read error sending DB to replica: %s", got ? strerror(errno) : "premature EOF");
            blob_release(piece);
            replica_close(replica);
            return;
        }
        piece->len = (size_t)got;
        replica->file_left -= (size_t)got;
        replica_pass(replica, piece);
        blob_release(piece);
    }
    if (replica->file_left) return;
    close(replica->file);
    replica->file = -1;
    replica_put_online(replica, false);
}

static bool file_open(struct replica *replica) {
    struct stat status;
    replica->file = open(snapshot_path(), O_RDONLY | O_CLOEXEC);
    if (replica->file >= 0 && fstat(replica->file, &status) == 0) {
        replica->file_left = (uint64_t)status.st_size;
        return true;
    }
    log_warning("SYNC failed. Can't open/stat DB after BGSAVE: %s", strerror(errno));
    return false;
}

/* A command that kills the child (FLUSHALL) may be part of a transaction, where no snapshot can begin; the cron starts
 * it then. */
static void serve_next(void) {
    if (!dispatch_running()) full_sync_cron();
}

static void file_saved(bool success) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        char head[32];
        if (replica->state != REPLICA_FILE) continue;
        if (!success) log_warning("SYNC failed. BGSAVE child returned an error");
        if (!success || !file_open(replica)) {
            replica_close(replica);
            continue;
        }
        replica->state = REPLICA_FILE_TRANSFER;
        int len = snprintf(head, sizeof head, "$%llu\r\n", (unsigned long long)replica->file_left);
        replica_write(replica, (struct slice){head, (size_t)len});
        file_send(replica);
    }
    serve_next();
}

static bool has_expiring_fields(void) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        if (db_expiring(keyspace_db(server.keyspace, id))) return true;
    return false;
}

/* The highest RDB version that the replica is known to load. Replicas older than Valkey 8 do not announce a version,
 * but they do announce EOF. A client without either is a tool, which gets the version that the data need. */
static int snapshot_version(const struct replica *replica) {
    if (replica->version >= VERSION_9) return RDB_VERSION;
    if (replica->version) return RDB_VERSION_COMMON;
    bool tool = !(replica->capabilities & CAPA_EOF);
    return tool && has_expiring_fields() ? RDB_VERSION : RDB_VERSION_OLD;
}

static int file_version; /* of the file that is being written */

/* Kills the child that writes the file if no replica waits for it any more and no save points are configured. */
static void kill_unneeded_save(void) {
    if (!snapshot_running() || save_points_count()) return;
    list_each(&replicas, link) if (replica_of(link)->state == REPLICA_FILE) return;
    log_notice("Background saving for replicas, last replica dropped, killing fork child.");
    child_kill();
}

static struct replica *waiting_for_file(const struct replica *like) {
    if (snapshot_version(like) < file_version) return NULL;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica != like && replica->state == REPLICA_FILE && same_snapshot(replica, like) && replica->reader.block)
            return replica;
    }
    return NULL;
}

/* The replica uses the snapshot of `other`, and continues the stream from the same position. */
static void file_join(struct replica *replica, const struct replica *other) {
    char line[REPL_ID_LEN + 48];
    int64_t offset = repl_stream_reader_offset(&other->reader);
    replica->state = REPLICA_FILE;
    replica->acked = 0;
    if (!replica->rdb_only) repl_stream_attach_like(&replica->reader, &other->reader);
    if (replica->psync) {
        int len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", role->position.id, (long long)offset);
        replica_write(replica, (struct slice){line, (size_t)len});
    }
    log_notice("Waiting for end of BGSAVE for SYNC");
}

/* --- Through a pipe --- */

static struct {
    bool running, dual; /* dual: the receivers are RDB channels */
    bool direct;        /* the child writes to their sockets; the pipe carries its reports (direct_transfer.h) */
    struct direct_writer writer;
    struct child_job job;
    struct snapshot_content content;
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
    result = snapshot_write_to(&sink, &transfer.content);
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
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
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
    serve_next();
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
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        if (replica->state == REPLICA_TRANSFER && replica_is_full(replica)) return true;
    }
    return false;
}

static void transfer_pass(struct blob *piece) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->state == REPLICA_TRANSFER) replica_pass(replica, piece);
    }
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
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
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
        if (replica && event == DIRECT_LAST) replica->last_sent = true;
        if (replica && event == DIRECT_LOST) replica->copy_lost = true;
    }
    return event != DIRECT_CLOSED;
}

static void direct_ready(struct event_io *io, int mask) {
    bool more = direct_read_reports(NULL);
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->state == REPLICA_TRANSFER && replica->copy_lost) replica_close(replica);
    }
    if (more) return;
    transfer_end_pipe();
    transfer_finish();
}

static void transfer_resume(void) {
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
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
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

/* `dual`: to RDB channels, which have already received the position of the copy. */
static int transfer_start(const struct snapshot_content *content, bool dual) {
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
    transfer_resume();
    return 0;
}

/* --- Which replicas share a snapshot --- */

/* An RDB channel is not asked: it announces fewer capabilities, and a reader that finds no checksum does not check. */
static bool needs_no_checksum(const struct replica *replica) {
    return (replica->rdb_channel || replica->capabilities & CAPA_NO_CHECKSUM) &&
           conn_is_encrypted(replica->client->conn);
}

/* While a snapshot is held for RDMA READ, replicas that would fetch the next one wait. */
static struct replica *first_waiting(void) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->state == REPLICA_WAITS && !(pull_active() && full_sync_pulls(replica))) return replica;
    }
    return NULL;
}

static bool snapshot_is_for(const struct replica *replica, const struct replica *first) {
    return replica->state == REPLICA_WAITS && same_snapshot(replica, first);
}

/* A Valkey replica retries immediately after an error. The error is delayed by REFUSAL_DELAY_MS, so that the replica
 * retries once a second, as it does when the primary is unreachable. */
static void refuse(struct replica *replica, const char *error) {
    replica->state = REPLICA_REFUSED;
    replica->refusal = error;
}

static void send_refusals(int64_t now) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->state != REPLICA_REFUSED || now - replica->waits_since_ms < REFUSAL_DELAY_MS) continue;
        struct reply reply = {.out = &replica->client->conn->out, .protocol = 2};
        reply_error(&reply, replica->refusal);
        client_free_after_reply(replica->client);
        replica->state = REPLICA_DONE;
    }
}

static void fail_waiting(const struct replica *like) {
    log_warning("BGSAVE for replication failed");
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        bool announced = like->rdb_channel && replica->state == REPLICA_TRANSFER; /* see start_snapshot() */
        if (!announced && !snapshot_is_for(replica, like)) continue;
        struct awaited_channel *channel = awaited_find(replica->client->id);
        if (channel) awaited_drop(channel);
        refuse(replica, "ERR BGSAVE failed, replication can't continue");
    }
}

static void log_refusal(const struct replica *replica, int version) {
    static struct {
        char name[REPLICA_NAME_MAX];
        struct log_limit limit;
    } refused[REFUSALS_KNOWN]; /* the replicas refused last */
    static unsigned next;
    const char *name = replica_name(replica);
    unsigned i = 0;
    while (i < REFUSALS_KNOWN && strcmp(refused[i].name, name) != 0) i++;
    if (i == REFUSALS_KNOWN) {
        i = next;
        next = (next + 1) % REFUSALS_KNOWN;
        snprintf(refused[i].name, sizeof refused[i].name, "%s", name);
        refused[i].limit = (struct log_limit){.interval_us = 60 * 1000000};
    }
    log_limited(&refused[i].limit, LOG_LEVEL_WARNING,
                "SYNC failed. Replica %s reads RDB version %d, which cannot hold hash fields with an expiry", name,
                version);
}

/* Only the newest RDB version can hold hash fields with an expiration. A snapshot in an older one would always fail. */
static void refuse_old_replicas(void) {
    bool needs_newest = has_expiring_fields();
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        int version = snapshot_version(replica);
        if (!needs_newest || replica->state != REPLICA_WAITS || version >= RDB_VERSION ||
            replica->filter & FILTER_NO_DATA)
            continue;
        log_refusal(replica, version);
        refuse(replica, "ERR The data contain hash fields with an expiry, which this replica's version cannot load");
    }
}

static void take_part(const struct replica *like, enum replica_state state) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (!snapshot_is_for(replica, like)) continue;
        replica->state = state;
        replica->progress_ms = clock_mono_ms();
        replica->last_sent = replica->copy_lost = false;
        full_sync_announce(replica);
    }
}

/* Starts a snapshot for the first waiting replica and all that can share it. RDB channels get the offset before the
 * fork, because the child then writes to their sockets. */
static void start_snapshot(void) {
    refuse_old_replicas();
    struct replica *first = first_waiting();
    if (first && full_sync_pulls(first)) {
        repl_feed_select_again();
        if (full_sync_pull_start(pull_needs_seal(first->client))) return;
        first = first_waiting();
    }
    if (!first || child_active()) return; /* the cron tries again */
    bool by_socket = repl_settings.diskless_sync || first->filter || first->rdb_channel;
    struct snapshot_content content = {.version = RDB_VERSION,
                                       .unchecked = true,
                                       .without_keys = first->filter & FILTER_NO_DATA,
                                       .without_libraries = first->filter & FILTER_NO_FUNCTIONS};
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        if (!snapshot_is_for(replica, first)) continue;
        if (!(replica->capabilities & CAPA_EOF)) by_socket = false;
        if (!needs_no_checksum(replica)) content.unchecked = false;
        int version = snapshot_version(replica);
        if (version < content.version) content.version = version;
    }
    log_notice("Starting BGSAVE for SYNC with target: %s using: %s", by_socket ? "replicas sockets" : "disk",
               first->rdb_channel ? "dual-channel" : "normal sync");
    repl_feed_select_again();
    if (!by_socket) file_version = content.version;
    struct replica like = *first;
    bool dual = by_socket && like.rdb_channel;
    if (dual) take_part(&like, REPLICA_TRANSFER);
    int result = by_socket ? transfer_start(&content, dual) : snapshot_start_with(&content);
    if (result < 0) {
        log_warning("Can't start the snapshot for replicas: %s", strerror(-result));
        fail_waiting(&like);
    } else if (!dual) {
        take_part(&like, by_socket ? REPLICA_TRANSFER : REPLICA_FILE);
    }
}

void full_sync_request(struct replica *replica) {
    if (full_sync_pulls(replica) && full_sync_pull_join(replica)) {
        log_notice("Replica %s joins the snapshot that other replicas fetch", replica_name(replica));
    } else if (transfer.running) {
        log_notice("Current BGSAVE has socket target. Waiting for next BGSAVE for SYNC");
    } else if (snapshot_running()) {
        const struct replica *other = replica->filter ? NULL : waiting_for_file(replica);
        if (other)
            file_join(replica, other);
        else
            log_notice("Can't attach the replica to the current BGSAVE. Waiting for next BGSAVE for SYNC");
    } else if (repl_settings.diskless_sync && replica->capabilities & CAPA_EOF && repl_settings.diskless_delay) {
        log_notice("Delay next BGSAVE for diskless SYNC");
        if (repl_settings.diskless_max_replicas) full_sync_cron();
    } else if (child_active()) {
        log_notice("No BGSAVE in progress, but another BG operation is active. BGSAVE for replication delayed");
    } else {
        start_snapshot();
    }
}

/* repl-diskless-sync-delay: the snapshot is delayed, so that more replicas can share it. */
static bool delay_is_over(int64_t now) {
    int64_t longest = 0;
    int waiting = 0;
    bool delays = repl_settings.diskless_sync;
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        if (replica->state != REPLICA_WAITS) continue;
        if (!(replica->capabilities & CAPA_EOF)) delays = false;
        if (now - replica->waits_since_ms > longest) longest = now - replica->waits_since_ms;
        waiting++;
    }
    if (!waiting) return false;
    if (!delays || longest >= (int64_t)repl_settings.diskless_delay * 1000) return true;
    return repl_settings.diskless_max_replicas && waiting >= repl_settings.diskless_max_replicas;
}

void full_sync_cron(void) {
    int64_t now = clock_mono_ms();
    awaited_expire(now);
    send_refusals(now);
    if (!child_active() && !server_is_loading() && !repl_stream_is_marked() && delay_is_over(now)) start_snapshot();
}

void full_sync_send(struct replica *replica) {
    if (replica->state == REPLICA_FILE_TRANSFER)
        file_send(replica);
    else
        transfer_resume();
}

static int replica_socket(const struct replica *replica) {
    return conn_fd(replica->client->conn);
}

void full_sync_forget(struct replica *replica) {
    if (replica->file >= 0) close(replica->file);
    replica->file = -1;
    bool receives = replica->state == REPLICA_TRANSFER && transfer.running;
    if (receives && transfer.direct) {
        if (!transfer.ended) direct_read_reports(replica);
        if (!replica->last_sent) shutdown(replica_socket(replica), SHUT_RDWR);
    }
    struct awaited_channel *channel = awaited_find(replica->client->id);
    bool sent = replica->state == REPLICA_DONE || replica->last_sent || (receives && transfer.ended);
    if (channel && sent) {
        channel->rdb_done_ms = clock_mono_ms();
        log_verbose("Dual channel replication: Postpone RDB client id=%llu (%s) free for %d seconds",
                    (unsigned long long)replica->client->id, channel->name, full_sync_grace_s);
    }
    if (channel && !sent) awaited_drop(channel);
    pull_leave(replica->pull);
    replica->pull = NULL;
    if (replica->state == REPLICA_FILE) kill_unneeded_save();
    if (!receives || transfer.exited || transfer.ended) return;
    if (transfer_receivers()) {
        transfer_resume();
        return;
    }
    if (replica->last_sent) return; /* the child is about to exit */
    log_notice("Diskless rdb transfer, last replica dropped, killing fork child.");
    child_kill();
}

void full_sync_start(void) {
    static struct snapshot_listener listener = {.done = file_saved};
    snapshot_listen(&listener);
}
