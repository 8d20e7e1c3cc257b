/* snapshot.c: the keys of the slots of a job, as a child process writes them.
 *
 * The child writes commands that create the keys, or, for a target that takes them, fragments (formats/rdb_fragment.h)
 * in commands SYNCSLOTS CHUNK. A key that is too large for a fragment is written as commands in either case, so that
 * the target serves its clients in between.
 *
 * Chunks on a plain socket go straight from the child to the target (repl/direct_transfer.h): the server then sends
 * nothing on the link, and learns from the child how much it has sent. Otherwise the child writes into a pipe, and the
 * server passes the bytes to the link, as fast as the target takes them: while much is waiting for the target, the pipe
 * is not read, and the child waits.
 *
 * For a target that fetches them, the child writes the chunks to shared memory (pull.h), and only commands to the pipe.
 * Offers of chunks must not stand within a command, so the pipe has frames then, and an empty one follows each value.
 *
 * Each job has a child of its own. Children for different targets run side by side. A job whose target is already
 * getting a snapshot waits for its turn, and so does one that finds another kind of child running. */
#include "cluster/migration/pull.h"
#include "formats/rdb.h"
#include "formats/rdb_fragment.h"
#include "formats/sink.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/persistence.h"
#include "repl/direct_transfer.h"
#include "repl/repl_settings.h"
#include "resp/request.h"
#include "server/process/child.h"
#include "server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 256 * 1024,
    PENDING_MAX = 4 * 1024 * 1024, /* bytes that may wait for the target */
    PIECES_A_TURN = 4,
    PIPE_SIZE = 1024 * 1024,
    AHEAD = 16,         /* keys that are prefetched while others are written */
    REPORTED_KEYS = 64, /* the child reads the clock once for this many keys */
    SNAPSHOTS_MAX = 8,  /* children at a time: each may make the kernel copy what this process writes */
    CHILD_NICE = 5      /* added to its niceness: clients wait for this process, not for the child */
};

struct snapshot {
    struct list_link link; /* in `snapshots` */
    struct child_job child;
    struct child_process process;
    struct job *job; /* NULL: it does not need the snapshot any more */
    struct node_id target;
    struct slot_bitmap slots;
    struct event_io pipe;
    int fd, child_fds[3];     /* the ends of the pipe, and the socket of the link or those of the offer; -1: closed */
    struct slot_offer *offer; /* NULL: the chunks go through the link */
    uint64_t frame;           /* bytes that are left of the frame in the pipe */
    bool runs, ended, good;
    bool chunks, direct; /* the child writes chunks; and to the socket, and reports through the pipe */
    char name[JOB_NAME_LEN];
    struct direct_writer writer;
};
static struct list snapshots = LIST_INIT(snapshots);

static struct snapshot *snapshot_of_link(struct list_link *link) {
    return container_of(link, struct snapshot, link);
}
static struct snapshot *snapshot_of_job(const struct job *job) {
    list_each(&snapshots, link) {
        if (snapshot_of_link(link)->job == job) return snapshot_of_link(link);
    }
    return NULL;
}

/* --- The child --- */

/* A key that is to be written. */
struct next_key {
    struct entry *entry; /* NULL: none */
    int db;
    unsigned slot;
    bool is_first; /* of its slot, which has this size */
    struct db_slot_size size;
};

struct writer {
    const struct snapshot *snapshot;
    struct sink sink;
    struct rdb_fragment fragment;
    int selected; /* database of the commands; -1: none */
    int error;    /* of the offer */
    uint64_t keys;
    struct next_key ahead[AHEAD]; /* a ring; the oldest one is at `at` */
    unsigned at;
};

/* Writes to the pipe; it is full as long as the target is slower. */
static int write_all(int fd, const char *bytes, size_t len) {
    while (len) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        bytes += written;
        len -= (size_t)written;
    }
    return 0;
}

static int write_frame(struct sink *sink, const void *bytes, size_t len) {
    const struct snapshot *snapshot = sink->context;
    uint64_t head = len;
    int error = write_all(snapshot->child_fds[0], (const char *)&head, sizeof head);
    return error < 0 ? error : write_all(snapshot->child_fds[0], bytes, len);
}

/* Publishes the chunk in shared memory. */
static void offer_chunk(struct writer *writer) {
    int error = slot_offer_publish(writer->snapshot->offer, rdb_fragment_end(&writer->fragment).len);
    if (error < 0) writer->error = error;
    writer->fragment.bytes = NULL;
}

static void write_chunk(struct writer *writer) {
    if (!writer->fragment.bytes || !rdb_fragment_len(&writer->fragment)) return;
    if (writer->snapshot->offer) {
        offer_chunk(writer);
        return;
    }
    struct output *out = &writer->sink.out;
    request_write_count(out, 5);
    request_write_argument(out, SLICE("CLUSTER"));
    request_write_argument(out, SLICE("SYNCSLOTS"));
    request_write_argument(out, SLICE("CHUNK"));
    request_write_argument(out, slice_make(writer->snapshot->name, JOB_NAME_LEN));
    (void)rdb_fragment_end(&writer->fragment);
    request_write_blob(out, writer->fragment.blob);
}

static void write_commands(struct writer *writer, int db, const struct entry *entry) {
    char number[NUMBER_TEXT_MAX];
    struct output *out = &writer->sink.out;
    if (writer->selected != db)
        request_write(out, 2, (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)db)}});
    writer->selected = db;
    aof_write_entry(out, entry);
    if (!writer->snapshot->offer) return;
    sink_flush(&writer->sink);
    if (!sink_error(&writer->sink)) write_frame(&writer->sink, "", 0);
}

static void write_key(struct writer *writer, const struct next_key *key) {
    if (!writer->fragment.bytes) { /* in shared memory, as soon as the target has taken an older one */
        size_t size = 0;
        char *memory = slot_offer_begin(writer->snapshot->offer, &size);
        rdb_fragment_init_at(&writer->fragment, memory, size);
    }
    if (!writer->snapshot->chunks ||
        !rdb_fragment_add(&writer->fragment, key->db, key->entry, key->slot, key->is_first ? &key->size : NULL))
        write_commands(writer, key->db, key->entry);
    if (rdb_fragment_len(&writer->fragment) >= RDB_FRAGMENT_FULL) write_chunk(writer);
    if (++writer->keys % REPORTED_KEYS == 0) child_report(writer->keys);
    if (!persistence_settings.key_save_delay) return;
    write_chunk(writer);
    sink_flush(&writer->sink);
    child_report(writer->keys);
    persistence_delay(persistence_settings.key_save_delay);
}

/* Entries are anywhere in memory, so that each one costs a cache miss, and its value another one. */
static void prefetch_entry(const struct entry *entry) {
    enum { LINE = 64 };
    const char *bytes = (const char *)entry;
    __builtin_prefetch(bytes);
    __builtin_prefetch(bytes + LINE);
    __builtin_prefetch(bytes + (size_t)2 * LINE); /* the value of a small string */
}

/* Writes the oldest key of the ring and puts another one in its place. */
static void write_ahead(struct writer *writer, struct next_key key) {
    struct next_key *oldest = &writer->ahead[writer->at], *half = &writer->ahead[(writer->at + AHEAD / 2) % AHEAD];
    if (oldest->entry && !sink_error(&writer->sink)) write_key(writer, oldest);
    *oldest = key;
    writer->at = (writer->at + 1) % AHEAD;
    if (key.entry) prefetch_entry(key.entry);
    if (half->entry) entry_prefetch_value(half->entry);
}

static void write_slot(struct writer *writer, struct db *db, unsigned slot) {
    struct next_key key = {.db = db_id(db), .slot = slot, .is_first = true, .size = db_slot_size(db, slot)};
    struct db_iterator *it = db_iterate(db, (int)slot);
    for (; !sink_error(&writer->sink) && (key.entry = db_iterate_next(it)); key.is_first = false)
        write_ahead(writer, key);
    db_iterate_end(it);
}

static int run(struct child_job *child) {
    static struct writer writer = {.selected = -1};
    struct snapshot *snapshot = container_of(child, struct snapshot, child);
    struct sink *sink = &writer.sink;
    writer.snapshot = snapshot;
    (void)!nice(CHILD_NICE);
    rdb_settings.compression = false; /* the peer would have to undo it */
    static const struct sink_ops frames = {.write = write_frame};
    if (snapshot->offer)
        sink_init(sink, &frames, snapshot);
    else if (snapshot->direct)
        direct_sink_init(sink, &snapshot->writer);
    else
        sink_init_fd(sink, snapshot->child_fds[0]);
    if (!snapshot->offer) rdb_fragment_init(&writer.fragment);
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        for (unsigned slot = 0; slot < HASH_SLOTS && !sink_error(sink); slot++)
            if (slot_bitmap_has(&snapshot->slots, slot) && db_slot_size(db, slot).keys) write_slot(&writer, db, slot);
    }
    for (int i = 0; i < AHEAD; i++) write_ahead(&writer, (struct next_key){.entry = NULL});
    write_chunk(&writer);
    if (!snapshot->offer)
        request_write(&sink->out, 3, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("SNAPSHOT-EOF")});
    int error = sink_flush(sink);
    if (!error) error = writer.error;
    if (!error && snapshot->offer) error = slot_offer_finish(snapshot->offer);
    if (snapshot->direct) direct_end(&snapshot->writer);
    rdb_fragment_free(&writer.fragment);
    sink_free(sink);
    if (error < 0) {
        log_warning("Write error sending the snapshot of a slot migration: %s", strerror(-error));
        return 1;
    }
    child_report_end();
    return 0;
}

/* --- The pipe --- */

static void pipe_close(struct snapshot *snapshot) {
    if (snapshot->pipe.mask) event_io_remove(server.loop, &snapshot->pipe);
    if (snapshot->fd >= 0) close(snapshot->fd);
    snapshot->fd = -1;
    snapshot->ended = true;
}

/* When the child has ended and all that it wrote is on its way. */
static void finish_if_done(struct snapshot *snapshot) {
    struct job *job = snapshot->job;
    bool good = snapshot->good;
    if (snapshot->runs || !snapshot->ended) return;
    if (job && good && snapshot->offer && !slot_offer_is_done(snapshot->offer)) return;
    if (job && good && snapshot->offer) job_send(job, "SNAPSHOT-EOF");
    list_remove(&snapshots, &snapshot->link);
    slot_offer_free(snapshot->offer);
    mem_free(snapshot);
    if (job) export_snapshot_done(job, good);
}

/* The target has got more of the offer, or may get more. */
static void advanced(void *context) {
    struct snapshot *snapshot = context;
    if (!snapshot->job || slot_offer_good(snapshot->offer)) return;
    log_warning("Slot migration %s: the snapshot is damaged", job_text(snapshot->job));
    job_fail_later(snapshot->job, "Failed to perform snapshot");
}

/* False: the child has closed the pipe. */
static bool read_reports(const struct snapshot *snapshot) {
    enum direct_event event;
    uint64_t value;
    while ((event = direct_read_report(snapshot->fd, &value)) != DIRECT_NOTHING && event != DIRECT_CLOSED)
        if (event == DIRECT_SENT) jobs_count_exported(value);
    return event != DIRECT_CLOSED;
}

static void reported(struct event_io *io, int mask) {
    struct snapshot *snapshot = container_of(io, struct snapshot, pipe);
    if (read_reports(snapshot)) return;
    pipe_close(snapshot);
    finish_if_done(snapshot);
}

static bool link_is_full(const struct snapshot *snapshot) {
    const struct client *client = snapshot->job->client;
    return client && conn_pending(client->conn) > PENDING_MAX;
}

static void ready(struct event_io *io, int mask) {
    struct snapshot *snapshot = container_of(io, struct snapshot, pipe);
    for (int i = 0; i < PIECES_A_TURN; i++) {
        struct job *job = snapshot->job;
        if (!job || !job->client) return;
        if (link_is_full(snapshot)) {
            event_io_remove(server.loop, io);
            return;
        }
        if (snapshot->offer && !snapshot->frame) {
            uint64_t head;
            ssize_t got = read(snapshot->fd, &head, sizeof head); /* it was written at once */
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (got != (ssize_t)sizeof head) {
                pipe_close(snapshot);
                finish_if_done(snapshot);
                return;
            }
            snapshot->frame = head;
            slot_offer_hold(snapshot->offer, head > 0);
            if (!head) continue;
        }
        size_t most = snapshot->offer && snapshot->frame < PIECE ? snapshot->frame : PIECE;
        struct blob *piece = blob_new(PIECE, PIECE);
        ssize_t got = read(snapshot->fd, piece->data, most);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            blob_release(piece);
            return;
        }
        if (got <= 0) {
            blob_release(piece);
            pipe_close(snapshot);
            finish_if_done(snapshot);
            return;
        }
        piece->len = (size_t)got;
        if (snapshot->offer) snapshot->frame -= (uint64_t)got;
        output_write_blob(&job->client->conn->out, piece);
        blob_release(piece);
        conn_flush(job->client->conn);
        job_heard(job); /* the target cannot say more while it reads */
    }
}

static void read_on(struct snapshot *snapshot) {
    if (snapshot->fd < 0 || snapshot->pipe.mask || !snapshot->job || (!snapshot->direct && link_is_full(snapshot)))
        return;
    event_io_set(server.loop, &snapshot->pipe, snapshot->fd, EVENT_READ, snapshot->direct ? reported : ready);
}

void snapshot_step(void) {
    list_each(&snapshots, link) {
        struct snapshot *snapshot = snapshot_of_link(link);
        read_on(snapshot);
        if (snapshot->offer) finish_if_done(snapshot);
    }
}

bool snapshot_pulled(const struct job *job, int64_t count) {
    const struct snapshot *snapshot = snapshot_of_job(job);
    return snapshot && snapshot->offer && slot_offer_taken(snapshot->offer, count);
}
bool snapshot_lets_send(const struct job *job) {
    const struct snapshot *snapshot = snapshot_of_job(job);
    return snapshot && snapshot->offer && !slot_offer_is_held(snapshot->offer);
}

/* --- The life of the child --- */

static void done(struct child_job *child, int status, int signal) {
    struct snapshot *snapshot = container_of(child, struct snapshot, child);
    snapshot->runs = false;
    snapshot->good = !status && !signal;
    if (snapshot->good)
        log_notice("Background SLOT MIGRATION transfer terminated with success");
    else if (signal)
        log_warning("Background SLOT MIGRATION transfer terminated by signal %d", signal);
    else
        log_warning("Background SLOT MIGRATION transfer error");
    if (snapshot->job) snapshot->job->copied = child_last_cow();
    if (snapshot->direct && snapshot->fd >= 0) {
        read_reports(snapshot);
        pipe_close(snapshot);
    }
    if (!snapshot->good || !snapshot->job) pipe_close(snapshot);
    finish_if_done(snapshot);
}

bool snapshot_possible(const struct job *job) {
    if ((child_active() && child_kind() != CHILD_SLOTS) || snapshots.len >= SNAPSHOTS_MAX) return false;
    list_each(&snapshots, link) {
        if (node_id_equal(&snapshot_of_link(link)->target, &job->target)) return false;
    }
    return true;
}

/* Whether the child can write to the socket of the link itself. */
static bool direct_prepare(struct snapshot *snapshot, const struct job *job, int report_fd) {
    struct connection *real = NULL;
    int fd = job->chunks && !snapshot->offer ? conn_socket_for_child(job->client->conn, false, &real) : -1;
    snapshot->child_fds[1] = fd;
    if (fd < 0) return false;
    fcntl(report_fd, F_SETFL, O_NONBLOCK);
    snapshot->writer = (struct direct_writer){.targets[0] = {.client_id = job->client->id, .fd = fd, .conn = real},
                                              .count = 1,
                                              .report_fd = report_fd,
                                              .timeout_us = (uint64_t)repl_settings.timeout * 1000000};
    return true;
}

bool snapshot_export(struct job *job) {
    int ends[2];
    if (!job->client) return false;
    log_notice("Beginning snapshot of slot migration %s.", job_text(job));
    if (pipe2(ends, O_CLOEXEC) < 0) {
        log_warning("Can't create a pipe for slot migration %s: %s", job_text(job), strerror(errno));
        job_fail_later(job, "Failed to start snapshot");
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    struct snapshot *snapshot = mem_calloc(1, sizeof *snapshot);
    snapshot->child_fds[0] = ends[1];
    snapshot->pipe.fd = -1;
    snapshot->target = job->target;
    snapshot->slots = job->slots;
    snapshot->chunks = job->chunks;
    memcpy(snapshot->name, job->name, JOB_NAME_LEN);
    if (job->pull) snapshot->offer = slot_offer_new(job, advanced, snapshot);
    snapshot->direct = direct_prepare(snapshot, job, ends[1]);
    if (snapshot->offer) slot_offer_child_fds(snapshot->offer, snapshot->child_fds + 1);
    snapshot->child = (struct child_job){.kind = CHILD_SLOTS,
                                         .title = "valkey-slot-migration",
                                         .log_name = "Slot migration",
                                         .keep = snapshot->child_fds,
                                         .keep_count = snapshot->offer    ? 3
                                                       : snapshot->direct ? 2
                                                                          : 1,
                                         .run = run,
                                         .done = done};
    pid_t pid = child_start_slots(&snapshot->process, &snapshot->child);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        slot_offer_free(snapshot->offer);
        mem_free(snapshot);
        log_warning("Can't start a child for slot migration %s: %s", job_text(job), strerror((int)-pid));
        job_fail_later(job, "Failed to start snapshot");
        return false;
    }
    log_notice("Started child process %d for slot migration %s", (int)pid, job_text(job));
    if (job->chunks)
        log_notice("Slot migration %s sends its snapshot in chunks, %s", job_text(job),
                   snapshot->offer    ? "which the target fetches by RDMA READ"
                   : snapshot->direct ? "from the child to the target"
                                      : "through this process");
    snapshot->fd = ends[0];
    snapshot->job = job;
    snapshot->runs = true;
    list_append(&snapshots, &snapshot->link);
    int result = snapshot->offer ? slot_offer_open(snapshot->offer) : 0;
    if (result < 0) { /* nothing was sent: another snapshot goes through the link */
        log_warning("Slot migration %s cannot be fetched by RDMA READ: %s", job_text(job), strerror(-result));
        job->pull = false;
        snapshot_cancel(job);
        return false;
    }
    read_on(snapshot);
    return true;
}

void snapshot_cancel(const struct job *job) {
    struct snapshot *snapshot = snapshot_of_job(job);
    if (!snapshot) return;
    snapshot->job = NULL;
    slot_offer_withdraw(snapshot->offer);
    pipe_close(snapshot);
    if (!snapshot->runs) {
        finish_if_done(snapshot);
        return;
    }
    log_notice("Slot migration target dropped, killing fork child.");
    child_kill_process(&snapshot->process);
}
