/* forkless_batches.c: small entries that the reader's thread of a save serializes in place, a batch at a time; see
 * forkless_private.h and snapshot/data_view.h. */
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/forkless_private.h"
#include "server/server.h"
#include <errno.h>

enum { AHEAD = 8 /* entries that are prefetched */ };

/* --- The reader --- */

struct batch_reading {
    struct forkless *save;
    struct lent_batch *batch;
    uint64_t keys;          /* given, with these */
    uint32_t access_data[]; /* an RDB file with access data: of each entry, by the main thread's clock */
};

static bool has_access_data(const struct forkless *f) {
    return f->save->content.format == SAVE_RDB && f->entries.rdb.access != RDB_ACCESS_NONE;
}

static void write_entry(struct forkless *f, const struct batch_reading *reading, size_t i) {
    struct output *out = &f->lent.out;
    const struct entry *entry = reading->batch->entry[i];
    int db = reading->batch->db;
    if (f->save->content.format == SAVE_COMMANDS) {
        bool written = aof_write_entry(out, entry, db);
        must(written); /* only an extension can be without commands */
        return;
    }
    const struct rdb_entries *rdb = &f->entries.rdb;
    uint32_t access_data = has_access_data(f) ? reading->access_data[i] : 0;
    rdb_write_value(out, entry, db, rdb_write_key_head(out, entry, rdb->access, access_data, rdb->version));
}

static void write_batch(struct forkless *f, const struct batch_reading *reading) {
    const struct lent_batch *batch = reading->batch;
    f->lent_keys = reading->keys;
    for (size_t i = 0; i < batch->count && !f->lent.out.failed; i++) {
        if (i + 2 * AHEAD < batch->count) __builtin_prefetch(batch->entry[i + 2 * AHEAD]);
        if (i + AHEAD < batch->count) entry_prefetch_value(batch->entry[i + AHEAD]);
        write_entry(f, reading, i);
    }
}

static void read_batch(void *arg) {
    struct batch_reading *reading = arg;
    struct forkless *f = reading->save;
    struct lent_batch *batch = reading->batch;
    if (lending_begin(&batch->lending)) {
        hashtable_iterates_held(true);
        if (!f->stop) write_batch(f, reading);
        hashtable_iterates_held(false);
        pthread_mutex_lock(&f->lock);
        lending_return(&batch->lending);
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
    }
    lent_batch_drop(batch);
    mem_free(reading);
    size_t left = atomic_fetch_sub(&f->batches, 1) - 1;
    if (left <= FORKLESS_BATCHES_AHEAD / 2) forkless_wake_main();
    if (!left) deferred_output_flush(&f->lent); /* otherwise the next one fills it */
}

/* --- The main thread --- */

/* What precedes the entries. 0 or a negative errno. */
static int place(struct forkless *f, struct batch_reading *reading) {
    const struct lent_batch *batch = reading->batch;
    for (size_t i = 0; i < batch->count; i++) {
        int error = forkless_serialize(f, batch->db, batch->entry[i], false);
        if (error) return error;
        if (has_access_data(f)) reading->access_data[i] = rdb_access_data(batch->entry[i], f->entries.rdb.access);
    }
    deferred_output_flush(&f->out);
    return 0;
}

void forkless_lend_batch(void *context, struct lent_batch *batch) {
    struct forkless *f = context;
    size_t access_data = has_access_data(f) ? batch->count * sizeof(uint32_t) : 0;
    struct batch_reading *reading = mem_alloc(sizeof *reading + access_data);
    *reading = (struct batch_reading){.save = f, .batch = batch};
    bool wanted = forkless_counts(f, batch->count);
    reading->keys = f->reservation.keys;
    int error = wanted ? place(f, reading) : 0;
    if (error) f->error = error;
    f->gave_much = true;
    if (!wanted || error) {
        bool taken = lending_take_back(&batch->lending);
        must(taken);
        lent_batch_drop(batch); /* the thread does not get it */
        data_view_batch_ended(batch);
        mem_free(reading);
        return;
    }
    atomic_fetch_add(&f->batches, 1);
    forkless_read(f, read_batch, reading);
}

static void write_taken_back(struct forkless *f, const struct lent_batch *batch) {
    if (f->giving) f->error = -EDEADLK;
    for (size_t i = 0; i < batch->count && !f->stop && !f->error; i++)
        f->error = forkless_serialize(f, batch->db, batch->entry[i], true);
}

void forkless_recall_batch(void *context, struct lent_batch *batch) {
    struct forkless *f = context;
    bool taken = lending_take_back(&batch->lending);
    if (server.is_child) { /* a copy of the entries, which nobody reads */
        if (!taken) batch->lending.state = LENDING_RETURNED;
    } else if (taken) {
        write_taken_back(f, batch);
    } else {
        forkless_wait_for_return(f, &batch->lending);
    }
    data_view_batch_ended(batch);
}
