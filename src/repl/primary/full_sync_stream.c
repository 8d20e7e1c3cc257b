/* full_sync_stream.c: see full_sync_stream.h.
 *
 * The thread waits for space in the queue, and at its end until the main thread has taken everything, so that INFO
 * shows the save as running until then. transfer_stop() ends both.
 *
 * Rejected: the thread sends to the sockets of RDB channels itself. TLS and RDMA connections need the main thread in
 * any case, and the main thread would have to learn from the other one which replicas it has lost. */
#include "repl/primary/full_sync_stream.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "persistence/background_save.h"
#include "persistence/persistence.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/primary.h"
#include "repl/settings.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MARK_LEN = 40, PIECE = 256 * 1024, PIECES = 64, QUEUE_BYTES = 1024 * 1024, WATCH_US = 100 * 1000 };

static void transfer_posted(struct event_post *post);

static struct {
    /* Constant during the save. */
    struct background_save save;
    bool dual; /* the receivers are RDB channels */
    bool checksum;
    char mark[MARK_LEN + 1];
    /* Of the thread. */
    bool last; /* what it writes is the last piece */
    /* From the thread to the main thread. */
    pthread_mutex_t lock;
    pthread_cond_t taken;        /* a piece was taken, or the save stops */
    struct blob *pieces[PIECES]; /* a ring */
    unsigned first, count;
    size_t bytes;
    bool complete, stopped; /* the last piece is in the queue; nobody takes what is written */
    _Atomic bool posted;
    struct event_post post;
    /* Of the main thread. */
    bool running;
    bool ended;             /* the last piece was passed, or the copy is given up */
    bool finished, success; /* the save has finished; with status 0 */
    struct event_timer watch;
    uint64_t watched_us, held_us; /* when the timer ran last; for how long writes of clients have waited */
} transfer = {.lock = PTHREAD_MUTEX_INITIALIZER, .taken = PTHREAD_COND_INITIALIZER, .post = {.run = transfer_posted}};

static void transfer_wake_main(void) {
    if (!atomic_exchange(&transfer.posted, true)) event_loop_post(server.loop, &transfer.post);
}

/* --- On the thread --- */

static int piece_put(const void *bytes, size_t len) {
    struct blob *piece = blob_copy(slice_make(bytes, len));
    pthread_mutex_lock(&transfer.lock);
    while (!transfer.stopped && transfer.count && (transfer.count == PIECES || transfer.bytes + len > QUEUE_BYTES))
        pthread_cond_wait(&transfer.taken, &transfer.lock);
    bool stopped = transfer.stopped;
    if (!stopped) {
        transfer.pieces[(transfer.first + transfer.count++) % PIECES] = piece;
        transfer.bytes += len;
        transfer.complete = transfer.last;
    }
    pthread_mutex_unlock(&transfer.lock);
    if (stopped)
        blob_release(piece);
    else
        transfer_wake_main();
    return stopped ? -ECANCELED : 0;
}

static int transfer_write(struct sink *sink, const void *bytes, size_t len) {
    const char *at = bytes;
    int error = 0;
    for (size_t step; len && !error; at += step, len -= step) {
        step = len < PIECE ? len : PIECE;
        error = piece_put(at, step);
    }
    return error;
}

static void transfer_sink_init(struct sink *sink) {
    static const struct sink_ops ops = {.write = transfer_write};
    sink_init(sink, &ops, NULL);
}

static int transfer_begin(struct background_save *save, struct sink *sink) {
    transfer_sink_init(sink);
    output_write(&sink->out, SLICE("$EOF:"));
    output_write(&sink->out, slice_of(transfer.mark));
    output_write(&sink->out, SLICE("\r\n"));
    int error = sink_flush(sink);
    sink_free(sink);
    if (error) return error;
    transfer_sink_init(sink); /* the checksum begins here */
    sink->checksum = transfer.checksum;
    return 0;
}

static int transfer_end(struct background_save *save, struct sink *sink, int error) {
    if (!error) error = sink_flush(sink);
    if (!error) {
        sink->checksum = false;
        transfer.last = true;
        output_write(&sink->out, slice_of(transfer.mark));
        error = sink_flush(sink);
    }
    sink_free(sink);
    if (error && error != -ECANCELED) log_warning("Write error sending DB to replicas: %s", strerror(-error));
    if (error) return error;
    pthread_mutex_lock(&transfer.lock);
    while (!transfer.stopped && transfer.count) pthread_cond_wait(&transfer.taken, &transfer.lock);
    pthread_mutex_unlock(&transfer.lock);
    return background_save_goes_on(save) ? 0 : -ECANCELED;
}

/* --- In the main thread --- */

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

static bool transfer_is_full(void) {
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state == REPLICA_TRANSFER && replica_is_full(replica)) return true;
    }
    return false;
}

/* The next piece; NULL: none. *last: it is the last one. */
static struct blob *piece_take(bool *last) {
    struct blob *piece = NULL;
    pthread_mutex_lock(&transfer.lock);
    if (transfer.count) {
        piece = transfer.pieces[transfer.first];
        transfer.first = (transfer.first + 1) % PIECES;
        transfer.count--;
        transfer.bytes -= piece->len;
        pthread_cond_signal(&transfer.taken);
    }
    *last = piece && transfer.complete && !transfer.count;
    pthread_mutex_unlock(&transfer.lock);
    return piece;
}

static void log_passed(void) {
    log_notice("Diskless rdb transfer, done reading from pipe, %zu replicas still up.", transfer_receivers());
}

/* Passes up to PIECE bytes, and the rest in the loop's next turn. */
static void transfer_pass(void) {
    struct blob *piece;
    bool last = false;
    for (size_t passed = 0; passed < PIECE; passed += piece->len, blob_release(piece)) {
        if (transfer_is_full()) return; /* full_sync_stream_resume() goes on */
        if (!(piece = piece_take(&last))) return;
        transfer.ended = last; /* first: a replica may close its connection as soon as it has this piece */
        list_each_entry(&replicas, struct replica, link, replica)
            if (replica->state == REPLICA_TRANSFER) replica_pass(replica, piece);
        if (last) log_passed();
    }
    transfer_wake_main();
}

static void transfer_posted(struct event_post *post) {
    transfer.posted = false;
    if (transfer.running && !transfer.ended) transfer_pass();
}

void full_sync_stream_resume(void) {
    if (transfer.running && !transfer.ended) transfer_wake_main();
}

size_t full_sync_stream_memory(void) {
    if (!transfer.running) return 0;
    pthread_mutex_lock(&transfer.lock);
    size_t bytes = transfer.bytes;
    pthread_mutex_unlock(&transfer.lock);
    return bytes;
}

/* --- Replicas that keep writes of clients waiting --- */

/* NULL: the save waits for no replica. */
static struct replica *slowest_receiver(void) {
    struct replica *slowest = NULL;
    size_t most = 0;
    list_each_entry(&replicas, struct replica, link, replica) {
        bool receives = replica->state == REPLICA_TRANSFER && replica_is_full(replica);
        size_t bytes = receives ? conn_pending(replica->client->conn) : 0;
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

static void log_end(int status, int signal) {
    bool dropped = signal && transfer.dual; /* ended because the RDB channel was closed */
    if (signal && !dropped)
        log_warning("Background RDB transfer cancelled");
    else if (status || dropped)
        log_warning("Background RDB transfer error");
    else
        log_notice("Background RDB transfer terminated with success");
}

static void transfer_done(struct background_save *save, int status, int signal) {
    transfer.finished = true;
    transfer.success = !status && !signal;
    log_end(status, signal);
    must(transfer.ended || !transfer.success);
    bool last;
    for (struct blob *piece; (piece = piece_take(&last));) blob_release(piece); /* of an incomplete copy */
    if (!transfer.ended && transfer_receivers()) log_passed();
    transfer.ended = true;
    transfer_finish();
}

static void transfer_stop(struct background_save *save) {
    pthread_mutex_lock(&transfer.lock);
    transfer.stopped = true;
    pthread_cond_signal(&transfer.taken);
    pthread_mutex_unlock(&transfer.lock);
}

int full_sync_stream_start(const struct save_content *content, bool dual) {
    static const struct background_save_ops ops = {
        .begin = transfer_begin, .end = transfer_end, .stop = transfer_stop, .done = transfer_done};
    if (transfer.running) return -EBUSY;
    must_equal(transfer.count, 0);
    transfer.dual = dual;
    transfer.checksum = persistence_settings.checksum && !content->unchecked;
    transfer.last = transfer.complete = transfer.stopped = false;
    random_hex(transfer.mark, MARK_LEN);
    transfer.save = (struct background_save){.ops = &ops, .kind = CHILD_REPLICATION, .content = *content};
    transfer.save.content.streamed = true;
    int error = background_save_start(&transfer.save);
    if (error) return error;
    log_notice("Background RDB transfer started by pid %d to %s%s, without fork", (int)transfer.save.pid,
               dual ? "direct socket to replica" : "pipe through parent process",
               content->unchecked && !dual ? " while skipping RDB checksum for this transfer" : "");
    transfer.running = true;
    transfer.ended = transfer.finished = false;
    watch_start();
    return 0;
}

bool full_sync_stream_runs(void) {
    return transfer.running;
}

static bool receives(const struct replica *replica) {
    return replica->state == REPLICA_TRANSFER && transfer.running;
}

bool full_sync_stream_sent(const struct replica *replica) {
    return receives(replica) && transfer.ended;
}

void full_sync_stream_left(const struct replica *replica) {
    if (!receives(replica) || transfer.finished || transfer.ended) return;
    if (transfer_receivers()) {
        full_sync_stream_resume();
        return;
    }
    log_notice("Diskless rdb transfer, last replica dropped, ending the save without fork.");
    child_kill();
}
