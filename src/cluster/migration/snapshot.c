/* snapshot.c: the keys of the slots of a job, as a child process writes them.
 *
 * The child writes commands into a pipe. The server passes them to the link, as fast as the target takes them: while
 * much is waiting for the target, the pipe is not read, and the child waits. One child runs at a time in the server, so
 * other jobs wait for their turn. */
#include "cluster/migration/jobs.h"
#include "formats/sink.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/persistence.h"
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
    PIPE_SIZE = 1024 * 1024
};

static struct {
    struct child_job child;
    struct job *job; /* NULL: no child runs, or nobody needs it any more */
    struct slot_bitmap slots;
    struct event_io pipe;
    int fd, child_fd; /* the ends of the pipe; -1: closed */
    bool runs, ended, good;
} snapshot = {.fd = -1, .child_fd = -1, .pipe = {.fd = -1}};

/* --- The child --- */

static int run(struct child_job *child) {
    struct sink sink;
    uint64_t keys = 0;
    sink_init_fd(&sink, snapshot.child_fd);
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        for (unsigned slot = 0; slot < HASH_SLOTS && !sink_error(&sink); slot++) {
            if (!slot_bitmap_has(&snapshot.slots, slot) || !db_slot_size(db, slot).keys) continue;
            char number[NUMBER_TEXT_MAX];
            request_write(&sink.out, 2, (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)id)}});
            struct db_iterator *it = db_iterate(db, (int)slot);
            for (struct entry *entry; !sink_error(&sink) && (entry = db_iterate_next(it));) {
                aof_write_entry(&sink.out, entry);
                child_report(++keys);
                if (persistence_settings.key_save_delay) {
                    sink_flush(&sink);
                    persistence_delay(persistence_settings.key_save_delay);
                }
            }
            db_iterate_end(it);
        }
    }
    request_write(&sink.out, 3, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("SNAPSHOT-EOF")});
    int error = sink_flush(&sink);
    sink_free(&sink);
    if (error < 0) {
        log_warning("Write error sending the snapshot of a slot migration: %s", strerror(-error));
        return 1;
    }
    child_report_end();
    return 0;
}

/* --- The pipe --- */

static void pipe_close(void) {
    if (snapshot.pipe.mask) event_io_remove(server.loop, &snapshot.pipe);
    if (snapshot.fd >= 0) close(snapshot.fd);
    snapshot.fd = -1;
    snapshot.ended = true;
}

/* When the child has ended and all that it wrote is on its way. */
static void finish_if_done(void) {
    if (snapshot.runs || !snapshot.ended || !snapshot.job) return;
    struct job *job = snapshot.job;
    snapshot.job = NULL;
    export_snapshot_done(job, snapshot.good);
}

static bool link_is_full(void) {
    const struct client *client = snapshot.job->client;
    return client && conn_pending(client->conn) > PENDING_MAX;
}

static void ready(struct event_io *io, int mask) {
    for (int i = 0; i < PIECES_A_TURN; i++) {
        struct job *job = snapshot.job;
        if (!job || !job->client) return;
        if (link_is_full()) {
            event_io_remove(server.loop, io);
            return;
        }
        struct blob *piece = blob_new(PIECE, PIECE);
        ssize_t got = read(snapshot.fd, piece->data, PIECE);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            blob_release(piece);
            return;
        }
        if (got <= 0) {
            blob_release(piece);
            pipe_close();
            finish_if_done();
            return;
        }
        piece->len = (size_t)got;
        output_write_blob(&job->client->conn->out, piece);
        blob_release(piece);
        conn_flush(job->client->conn);
        job_heard(job); /* the target cannot say more while it reads */
    }
}

void snapshot_step(void) {
    if (snapshot.fd < 0 || snapshot.pipe.mask || !snapshot.job || link_is_full()) return;
    event_io_set(server.loop, &snapshot.pipe, snapshot.fd, EVENT_READ, ready);
}

/* --- The life of the child --- */

static void done(struct child_job *child, int status, int signal) {
    snapshot.runs = false;
    snapshot.good = !status && !signal;
    if (snapshot.good)
        log_notice("Background SLOT MIGRATION transfer terminated with success");
    else if (signal)
        log_warning("Background SLOT MIGRATION transfer terminated by signal %d", signal);
    else
        log_warning("Background SLOT MIGRATION transfer error");
    if (snapshot.job) snapshot.job->copied = child_last_cow();
    if (!snapshot.good || !snapshot.job) pipe_close();
    finish_if_done();
}

bool snapshot_possible(void) {
    return !child_active() && !snapshot.job && !snapshot.runs;
}

bool snapshot_export(struct job *job) {
    int ends[2];
    log_notice("Beginning snapshot of slot migration %s.", job_text(job));
    if (pipe2(ends, O_CLOEXEC) < 0) {
        log_warning("Can't create a pipe for slot migration %s: %s", job_text(job), strerror(errno));
        job_fail_later(job, "Failed to start snapshot");
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    snapshot.child_fd = ends[1];
    snapshot.slots = job->slots;
    snapshot.child = (struct child_job){.kind = CHILD_SLOTS,
                                        .title = "valkey-slot-migration",
                                        .log_name = "Slot migration",
                                        .keep = &snapshot.child_fd,
                                        .keep_count = 1,
                                        .run = run,
                                        .done = done};
    pid_t pid = child_start(&snapshot.child);
    close(ends[1]);
    snapshot.child_fd = -1;
    if (pid < 0) {
        close(ends[0]);
        log_warning("Can't start a child for slot migration %s: %s", job_text(job), strerror((int)-pid));
        job_fail_later(job, "Failed to start snapshot");
        return false;
    }
    log_notice("Started child process %d for slot migration %s", (int)pid, job_text(job));
    snapshot.fd = ends[0];
    snapshot.job = job;
    snapshot.runs = true;
    snapshot.ended = snapshot.good = false;
    snapshot_step();
    return true;
}

void snapshot_cancel(const struct job *job) {
    if (snapshot.job != job) return;
    snapshot.job = NULL;
    if (!snapshot.runs) {
        pipe_close();
        return;
    }
    log_notice("Slot migration target dropped, killing fork child.");
    pipe_close();
    child_kill();
}
