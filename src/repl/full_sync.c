/* full_sync.c: the full synchronization on the primary.
 *
 * From a file (repl-diskless-sync no, or a replica that does not understand an end marker): a background save writes
 * dbfilename. When it is complete, each replica that waits for it gets "$<length>" and the file. Replicas that connect
 * while the file is being written take part, from the same stream position as the replicas that already wait.
 *
 * Through a pipe: a child process writes the snapshot into a pipe. The server reads it in pieces and passes each piece,
 * by reference, to all replicas that take part. "$EOF:<mark>" precedes the snapshot and the mark follows it, both
 * written by the child. The server stops reading while one replica has REPLICA_SEND_AHEAD bytes queued, so memory stays
 * bounded; a replica that accepts no bytes for repl-timeout is closed. The child never uses a connection, so the same
 * code serves every transport.
 *
 * On two channels: the replica's RDB channel takes part in such a transfer. The primary sends it the offset of the
 * snapshot ("$ENDOFF:<offset> <id> <db> <client>"), and its main channel asks for the stream from there on by PSYNC
 * while the snapshot is still being sent. The primary keeps the stream for it until then. */
#include "durability/durability.h"
#include "durability/snapshot.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "lib/random.h"
#include "persist/rdb.h"
#include "repl/primary.h"
#include "repl/pull_primary.h"
#include "repl/repl_feed.h"
#include "server/process/child.h"
#include "server/role.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARK_LEN = 40, PIECE = 256 * 1024, PIPE_SIZE = 1024 * 1024, VERSION_9 = 0x090000 };
enum {
    REFUSAL_DELAY_MS = 1000,
    REFUSAL_LOG_US = 60 * 1000 * 1000, /* between two lines about the same replica … */
    REFUSALS_KNOWN = 16                /* … of this many that were refused last */
};

/* --- Main channels that have not connected yet --- */

struct awaited_channel {
    struct list_link link;
    uint64_t rdb_client_id;
    int64_t offset;
    struct repl_stream_reader reader;
    int64_t rdb_done_ms; /* when the RDB channel ended; 0: it is there */
};
int full_sync_grace_s = 60;
static struct list awaited = {.head = {&awaited.head, &awaited.head}};

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
    channel->offset = role->offset;
    repl_stream_attach_end(&channel->reader);
    list_append(&awaited, &channel->link);
}

static void awaited_drop(struct awaited_channel *channel) {
    repl_stream_detach(&channel->reader);
    list_remove(&awaited, &channel->link);
    mem_free(channel);
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

static void awaited_expire(int64_t now) {
    list_each(&awaited, link) {
        struct awaited_channel *channel = container_of(link, struct awaited_channel, link);
        if (channel->rdb_done_ms && now - channel->rdb_done_ms > (int64_t)full_sync_grace_s * 1000)
            awaited_drop(channel);
    }
}

/* --- Beginning --- */

void full_sync_announce(struct replica *replica) {
    char line[REPL_ID_LEN + 48];
    int len;
    replica->acked = role->offset;
    replica->has_acked = false;
    if (replica->rdb_channel) {
        len = snprintf(line, sizeof line, "$ENDOFF:%lld %s %d %llu\r\n", (long long)role->offset, repl_history->id, -1,
                       (unsigned long long)replica->client->id);
        log_notice("Dual channel replication: Sending to replica %s RDB end offset %lld and client-id %llu",
                   replica_name(replica), (long long)role->offset, (unsigned long long)replica->client->id);
        awaited_add(replica);
        replica_write(replica, (struct slice){line, (size_t)len});
        return;
    }
    if (!replica->rdb_only) repl_stream_attach_end(&replica->reader);
    if (!replica->psync) return; /* SYNC: the file follows at once */
    len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", repl_history->id, (long long)role->offset);
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
    replica->file = open(durability_settings.file_name, O_RDONLY | O_CLOEXEC);
    if (replica->file >= 0 && fstat(replica->file, &status) == 0) {
        replica->file_left = (uint64_t)status.st_size;
        return true;
    }
    log_warning("SYNC failed. Can't open/stat DB after BGSAVE: %s", strerror(errno));
    return false;
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
    full_sync_cron();
}

/* The version that a replica reads for sure: Redis 7 does not tell its own. */
static int snapshot_version(const struct replica *replica) {
    return replica->version >= VERSION_9 ? RDB_VERSION : replica->version ? RDB_VERSION_COMMON : RDB_VERSION_OLD;
}

static int file_version; /* of the file that is being written */

static struct replica *waiting_for_file(const struct replica *like) {
    if (snapshot_version(like) < file_version) return NULL;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica != like && replica->state == REPLICA_FILE && same_snapshot(replica, like) && replica->reader.block)
            return replica;
    }
    return NULL;
}

/* The snapshot of `other` serves this one, too: the stream continues for it from the same position. */
static void file_join(struct replica *replica, const struct replica *other) {
    char line[REPL_ID_LEN + 48];
    int64_t offset = repl_stream_reader_offset(&other->reader);
    replica->state = REPLICA_FILE;
    replica->acked = offset;
    if (!replica->rdb_only) repl_stream_attach_like(&replica->reader, &other->reader);
    if (replica->psync) {
        int len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", repl_history->id, (long long)offset);
        replica_write(replica, (struct slice){line, (size_t)len});
    }
    log_notice("Waiting for end of BGSAVE for SYNC");
}

/* --- Through a pipe --- */

static struct {
    bool running;
    struct child_job job;
    struct snapshot_content content;
    char mark[MARK_LEN + 1];
    int child_fd; /* the write end, until the child has it */
    struct event_watch pipe;
    bool ended;           /* the pipe */
    bool exited, success; /* the child */
} transfer = {.pipe.fd = -1};

static int transfer_child(struct child_job *job) {
    struct sink sink;
    sink_init_fd(&sink, transfer.child_fd);
    output_write(&sink.out, SLICE("$EOF:"));
    output_write(&sink.out, slice_of(transfer.mark));
    output_write(&sink.out, SLICE("\r\n"));
    int result = sink_flush(&sink);
    sink_free(&sink);
    if (result < 0) return 1;
    sink_init_fd(&sink, transfer.child_fd);
    sink.checksum = durability_settings.checksum;
    result = snapshot_write_to(&sink, &transfer.content);
    if (result >= 0) {
        sink.checksum = false;
        output_write(&sink.out, slice_of(transfer.mark));
        result = sink_flush(&sink);
    }
    sink_free(&sink);
    if (result < 0) {
        log_warning("Write error sending DB to replicas: %s", strerror(-result));
        return 1;
    }
    child_report_end();
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
    full_sync_cron();
}

static void transfer_end_pipe(void) {
    int fd = transfer.pipe.fd;
    event_watch_remove(server.loop, &transfer.pipe);
    if (transfer.ended) return;
    transfer.ended = true;
    if (fd >= 0) close(fd);
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

static int transfer_fd = -1; /* the read end */

static void transfer_ready(struct event_watch *watch, int mask) {
    if (transfer_is_full()) {
        event_watch_remove(server.loop, watch); /* full_sync_send() resumes */
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

static void transfer_resume(void) {
    if (!transfer.running || transfer.ended || transfer.pipe.mask || transfer_is_full()) return;
    event_watch_set(server.loop, &transfer.pipe, transfer_fd, EVENT_READ, transfer_ready);
}

static void transfer_done(struct child_job *job, int status, int signal) {
    transfer.exited = true;
    transfer.success = !status && !signal;
    if (signal)
        log_warning("Background RDB transfer terminated by signal %d", signal);
    else if (status)
        log_warning("Background transfer error");
    else
        log_notice("Background RDB transfer terminated with success");
    if (!transfer.success) transfer_end_pipe(); /* what it still holds is part of a copy that ends nowhere */
    transfer_finish();
}

static int transfer_start(const struct snapshot_content *content) {
    int ends[2];
    if (transfer.running) return -EBUSY;
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    random_hex(transfer.mark, MARK_LEN);
    transfer.content = *content;
    transfer.child_fd = ends[1];
    transfer.job = (struct child_job){.kind = CHILD_REPLICATION,
                                      .title = "valkey-rdb-to-replicas",
                                      .log_name = "RDB",
                                      .keep = &transfer.child_fd,
                                      .keep_count = 1,
                                      .run = transfer_child,
                                      .done = transfer_done};
    pid_t pid = child_start(&transfer.job);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return (int)pid;
    }
    log_notice("Background RDB transfer started by pid %d to pipe through parent process", (int)pid);
    transfer_fd = ends[0];
    transfer.running = true;
    transfer.ended = transfer.exited = false;
    transfer_resume();
    return 0;
}

/* --- Which replicas a snapshot is for --- */

/* Those that would fetch a snapshot wait as long as another one is held. */
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

/* Genuine replicas try again as soon as they are refused. The error is delayed so that they do so once a second, as
 * they do with a primary that they cannot reach. */
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

static void fail_waiting(const struct replica *first) {
    log_warning("BGSAVE for replication failed");
    struct replica like = *first;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (snapshot_is_for(replica, &like)) refuse(replica, "ERR BGSAVE failed, replication can't continue");
    }
}

static bool has_expiring_fields(void) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        if (db_expiring(keyspace_db(server.keyspace, id))) return true;
    return false;
}

static void log_refusal(const struct replica *replica, int version) {
    static struct {
        char name[REPLICA_ADDRESS_MAX + 16];
        uint64_t at_us;
    } logged[REFUSALS_KNOWN];
    static unsigned next;
    const char *name = replica_name(replica);
    uint64_t now = clock_mono();
    for (unsigned i = 0; i < REFUSALS_KNOWN; i++)
        if (strcmp(logged[i].name, name) == 0 && now - logged[i].at_us < REFUSAL_LOG_US) return;
    snprintf(logged[next].name, sizeof logged[next].name, "%s", name);
    logged[next].at_us = now;
    next = (next + 1) % REFUSALS_KNOWN;
    log_warning("SYNC failed. Replica %s reads RDB version %d, which cannot hold hash fields with an expiry", name,
                version);
}

/* Only the newest format holds hash fields with an expiry. A snapshot in an older one would fail each time. */
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

/* Starts a snapshot for the replica that has waited longest and all that can share it. */
static void start_snapshot(void) {
    refuse_old_replicas();
    struct replica *first = first_waiting();
    if (first && full_sync_pulls(first)) {
        repl_feed_select_again();
        if (full_sync_pull_start()) return;
        first = first_waiting();
    }
    if (!first || child_active()) return; /* the cron tries again */
    bool by_socket = repl_settings.diskless_sync || first->filter || first->rdb_channel;
    struct snapshot_content content = {.version = RDB_VERSION,
                                       .without_keys = first->filter & FILTER_NO_DATA,
                                       .without_libraries = first->filter & FILTER_NO_FUNCTIONS};
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        if (!snapshot_is_for(replica, first)) continue;
        if (!(replica->capabilities & CAPA_EOF)) by_socket = false;
        int version = snapshot_version(replica);
        if (version < content.version) content.version = version;
    }
    log_notice("Starting BGSAVE for SYNC with target: %s using: %s", by_socket ? "replicas sockets" : "disk",
               first->rdb_channel ? "dual-channel" : "normal sync");
    repl_feed_select_again();
    if (!by_socket) file_version = content.version;
    int result = by_socket ? transfer_start(&content) : snapshot_start_with(&content);
    if (result < 0) {
        log_warning("Can't start the snapshot for replicas: %s", strerror(-result));
        fail_waiting(first);
        return;
    }
    struct replica like = *first;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (!snapshot_is_for(replica, &like)) continue;
        replica->state = by_socket ? REPLICA_TRANSFER : REPLICA_FILE;
        replica->progress_ms = clock_ms();
        full_sync_announce(replica);
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

/* More replicas may come, which share the snapshot: it is delayed for them. */
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
    int64_t now = clock_ms();
    awaited_expire(now);
    send_refusals(now);
    if (!child_active() && !server.loading && !repl_stream_is_marked() && delay_is_over(now)) start_snapshot();
}

void full_sync_send(struct replica *replica) {
    if (replica->state == REPLICA_FILE_TRANSFER)
        file_send(replica);
    else
        transfer_resume();
}

void full_sync_forget(struct replica *replica) {
    if (replica->file >= 0) close(replica->file);
    replica->file = -1;
    struct awaited_channel *channel = awaited_find(replica->client->id);
    if (channel && replica->state == REPLICA_DONE)
        channel->rdb_done_ms = clock_ms();
    else if (channel)
        awaited_drop(channel);
    pull_leave(replica->pull);
    replica->pull = NULL;
    if (replica->state != REPLICA_TRANSFER || !transfer.running || transfer.exited) return;
    if (transfer_receivers()) {
        transfer_resume();
        return;
    }
    log_notice("Diskless rdb transfer, last replica dropped, killing fork child.");
    child_kill();
}

void full_sync_start(void) {
    static struct snapshot_listener listener = {.done = file_saved};
    snapshot_listen(&listener);
}
