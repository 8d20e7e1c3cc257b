/* snapshot_loans.c: large collections, which a thread of the snapshot makes commands from in place; see snapshot.h and
 * snapshot/data_view.h.
 *
 * The commands are as those of an append-only file, of at most 64 elements. They come in pieces of whole commands
 * (command_pieces.h), so that chunks, offers and ACKs may be sent between them. The thread waits while READ_AHEAD bytes
 * are not sent, and while clients wait for a value, only beyond forkless-buffer-limit. While the main thread waits for
 * the value it waits for nothing. */
#include "cluster/migration/command_pieces.h"
#include "cluster/migration/snapshot.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/aof.h"
#include "persistence/lent_values.h"
#include "persistence/write_pause.h"
#include "server/server.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LOANS_AHEAD = 2 };

struct value_reader {
    struct background_worker *worker;
    struct command_pieces out; /* of the thread, */
    int db;                    /* and so is this */
    pthread_mutex_t lock;      /* of what follows, and of the state of the loans */
    pthread_cond_t changed;
    struct list pieces;
    size_t waiting; /* their bytes */
    size_t most;    /* bytes for which the thread waits; SIZE_MAX: for none */
    bool stop;
};

/* --- The thread --- */

static _Atomic bool wake_posted;
static void reader_woke(struct event_post *post) {
    wake_posted = false; /* snapshot_step() follows */
}
static void wake_main(void) {
    static struct event_post post = {.run = reader_woke};
    if (server.loop && !atomic_exchange(&wake_posted, true)) event_loop_post(server.loop, &post);
}

static void reader_full(void *context, struct command_piece *piece) {
    struct value_reader *reader = context;
    piece->db = reader->db;
    pthread_mutex_lock(&reader->lock);
    if (!reader->stop) {
        list_append(&reader->pieces, &piece->link);
        reader->waiting += command_piece_memory(piece);
        wake_main();
    } else {
        reader->out.out.failed = true; /* ends the serialization of the value */
        command_piece_free(piece);
    }
    while (reader->waiting > reader->most && !reader->stop) pthread_cond_wait(&reader->changed, &reader->lock);
    pthread_mutex_unlock(&reader->lock);
}

struct value_reading {
    struct value_reader *reader;
    struct value_loan *loan;
};

static void read_value(void *arg) {
    struct value_reading *reading = arg;
    struct value_reader *reader = reading->reader;
    struct value_loan *loan = reading->loan;
    mem_free(reading);
    if (!loan_begin(loan)) return;
    hashtable_iterates_held(true);
    reader->db = loan->db;
    bool written = aof_write_entry(&reader->out.out, loan->entry, loan->db);
    must(written); /* only an extension can be without commands */
    command_pieces_end(&reader->out);
    hashtable_iterates_held(false);
    pthread_mutex_lock(&reader->lock);
    loan_return(loan);
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    wake_main();
}

/* False: it cannot be started. */
static bool reader_start(struct snapshot *snapshot) {
    if (snapshot->reader) return true;
    struct value_reader *reader = mem_calloc(1, sizeof *reader);
    int error = background_worker_start("slot_reader", &reader->worker);
    if (error) {
        log_warning("Slot migration %s: no thread for large values: %s", export_text(snapshot->export),
                    strerror(-error));
        mem_free(reader);
        return false;
    }
    if (server.loop) event_loop_take_posts(server.loop);
    list_init(&reader->pieces);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    command_pieces_init(&reader->out, reader_full, reader);
    reader->most = READ_AHEAD;
    snapshot->reader = reader;
    return true;
}

static void reader_set_most(struct value_reader *reader, size_t most) {
    pthread_mutex_lock(&reader->lock);
    reader->most = most;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

/* What may wait of a value: a client that changes it waits for the rest. */
static size_t reader_limit(const struct snapshot *snapshot) {
    size_t least = write_pause_limit() / 4 < READ_AHEAD ? write_pause_limit() / 4 : READ_AHEAD;
    return snapshot->awaited ? write_pause_limit() : least;
}

static void wait_for_return(struct snapshot *snapshot, const struct value_loan *loan) {
    struct value_reader *reader = snapshot->reader;
    reader_set_most(reader, SIZE_MAX);
    pthread_mutex_lock(&reader->lock);
    while (!loan_is_returned(loan)) pthread_cond_wait(&reader->changed, &reader->lock);
    pthread_mutex_unlock(&reader->lock);
    reader_set_most(reader, reader_limit(snapshot));
}

/* --- What it has made --- */

static struct command_piece *take_piece(struct value_reader *reader) {
    struct command_piece *piece = NULL;
    pthread_mutex_lock(&reader->lock);
    if (reader->pieces.len) {
        piece = container_of(list_first(&reader->pieces), struct command_piece, link);
        list_remove(&reader->pieces, &piece->link);
        must_within(command_piece_memory(piece), reader->waiting);
        reader->waiting -= command_piece_memory(piece);
        pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return piece;
}

bool snapshot_send_piece(struct snapshot *snapshot) {
    struct command_piece *piece = snapshot->reader ? take_piece(snapshot->reader) : NULL;
    if (!piece) return false;
    snapshot_write_select(snapshot, piece->db);
    command_piece_write(piece, &export_client(snapshot->export)->conn->out);
    command_piece_free(piece);
    return true;
}

size_t snapshot_reader_memory(const struct snapshot *snapshot) {
    struct value_reader *reader = snapshot->reader;
    if (!reader) return 0;
    pthread_mutex_lock(&reader->lock);
    size_t waiting = reader->waiting;
    pthread_mutex_unlock(&reader->lock);
    return waiting;
}

void snapshot_reader_stop(struct snapshot *snapshot) {
    struct value_reader *reader = snapshot->reader;
    if (!reader) return;
    pthread_mutex_lock(&reader->lock);
    reader->stop = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

void snapshot_reader_free(struct snapshot *snapshot) {
    struct value_reader *reader = snapshot->reader;
    if (!reader) return;
    snapshot_reader_stop(snapshot);
    background_worker_end(reader->worker);
    for (struct command_piece *piece; (piece = take_piece(reader));) command_piece_free(piece);
    must_equal(reader->waiting, 0);
    command_pieces_free(&reader->out);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    mem_free(reader);
    snapshot->reader = NULL;
}

/* --- Loans --- */

/* A fragment, or a few commands, have it in one piece. */
static bool is_little(const struct entry *entry) {
    return rdb_fragment_takes(entry) && snapshot_key_bytes(entry) <= COPY_BYTES_MAX;
}

void snapshot_lend(void *context, struct value_loan *loan) {
    struct snapshot *snapshot = context;
    bool wanted = !server.is_child && !snapshot->failed && !snapshot->giving && snapshot->export;
    if (!wanted || is_little(loan->entry) || !reader_start(snapshot)) {
        loan_refuse(loan);
        snapshot_give(context, loan->db, loan->entry);
        data_view_loan_ended(loan);
        return;
    }
    snapshot->writer.keys++;
    struct value_reading *reading = mem_alloc(sizeof *reading);
    *reading = (struct value_reading){snapshot->reader, loan};
    background_worker_submit(snapshot->reader->worker, read_value, reading);
}

void snapshot_recall(void *context, struct value_loan *loan) {
    struct snapshot *snapshot = context;
    if (server.is_child) { /* a session of the script debugger has a copy of the values, which nobody reads */
        if (!loan_take_back(loan) && !loan_is_returned(loan)) loan_return(loan);
    } else if (loan_take_back(loan)) {
        snapshot->writer.keys--;
        snapshot_give(context, loan->db, loan->entry);
    } else {
        wait_for_return(snapshot, loan);
    }
    lent_value_over(loan);
}

static bool is_awaited(const struct value_loan *loan) {
    return loan->awaited;
}

void snapshot_loans_collect(struct snapshot *snapshot) {
    if (!snapshot->view || !snapshot->reader) return;
    for (struct value_loan *loan; (loan = loan_find(snapshot->view, loan_is_returned));) lent_value_over(loan);
    snapshot->awaited = loan_find(snapshot->view, is_awaited) != NULL;
    size_t most = reader_limit(snapshot);
    if (snapshot->reader->most != most) reader_set_most(snapshot->reader, most);
}

bool snapshot_waits_for_loans(const struct snapshot *snapshot) {
    size_t loans = data_view_loans(snapshot->view);
    return loans >= LOANS_AHEAD || (loans && data_view_given(snapshot->view) == data_view_keys(snapshot->view));
}
