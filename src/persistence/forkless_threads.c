/* forkless_threads.c: the threads of a save; see forkless_private.h. */
#include "lib/system/background.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "net/pin.h"
#include "persistence/forkless_private.h"
#include "server/server.h"
#include <errno.h>
#include <string.h>

enum { READ_AHEAD = 4 * 1024 * 1024 /* bytes that the reader makes before the writer has written them */ };

static void state_changed(struct forkless *f) {
    pthread_mutex_lock(&f->lock);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void forkless_stop_threads(struct forkless *f) {
    f->stop = true;
    state_changed(f);
}

void forkless_hold(struct forkless *f, bool held, size_t limit) {
    if (limit < READ_AHEAD) limit = READ_AHEAD;
    if (f->held == held && f->held_limit == limit) return;
    pthread_mutex_lock(&f->lock);
    f->held = held;
    f->held_limit = limit;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* --- The writer --- */

static void pin(const struct forkless *f) {
    int pinned = pin_thread(f->cpus);
    if (pinned < 0) log_warning("Could not pin a thread of a save to the CPUs %s: %s", f->cpus, strerror(-pinned));
}

static void begin_sink(void *arg) {
    struct forkless *f = arg;
    pin(f);
    f->result = f->save->ops->begin(f->save, &f->sink);
    f->begun = f->result >= 0;
    if (!f->begun) forkless_stop_threads(f);
}

static void batch_gone(struct forkless *f, size_t bytes) {
    size_t before = atomic_fetch_sub(&f->waiting, bytes), limit = f->wake_below;
    must_within(bytes, before);
    if (before >= limit && before - bytes < limit) forkless_wake_main();
}

static void write_batch(void *arg) {
    struct deferred_batch *batch = arg;
    struct forkless *f = batch->owner;
    size_t bytes = deferred_batch_memory(batch) + batch->held;
    if (!f->stop) {
        deferred_batch_write(batch, &f->sink.out, &f->stop);
        /* This is the only job: a replica that reads the stream need not wait for what follows. */
        if (f->save->content.streamed && background_worker_pending(f->writer) <= 1) sink_flush(&f->sink);
        if (sink_error(&f->sink)) forkless_stop_threads(f);
        if (batch->keys > f->keys_written) f->keys_written = batch->keys;
    }
    deferred_batch_free(batch);
    batch_gone(f, bytes);
}

static void write_lent_batch(void *arg) {
    struct deferred_batch *batch = arg;
    struct forkless *f = batch->owner;
    size_t bytes = deferred_batch_memory(batch) + batch->held;
    write_batch(batch);
    size_t before = atomic_fetch_sub(&f->lent_waiting, bytes);
    must_within(bytes, before);
    state_changed(f);
}

static void end_sink(void *arg) {
    struct forkless *f = arg;
    if (f->begun) {
        int error = f->error ? f->error : sink_error(&f->sink);
        if (!error && f->stop) error = -ECANCELED;
        if (!error && f->save->content.format == SAVE_RDB) error = rdb_write_checksum(&f->sink);
        f->result = f->save->ops->end(f->save, &f->sink, error);
    }
    f->ended = true;
    forkless_wake_main(); /* which may free `f` as soon as it has ended */
}

/* --- The reader --- */

static void begin_reader(void *arg) {
    pin(arg);
}

static void pass_batch(void *arg) {
    struct deferred_batch *batch = arg;
    struct forkless *f = batch->owner;
    deferred_output_flush(&f->lent); /* it precedes */
    background_worker_submit(f->writer, write_batch, batch);
}
static void pass_end(void *arg) {
    struct forkless *f = arg;
    deferred_output_flush(&f->lent);
    background_worker_submit(f->writer, end_sink, arg);
}

/* A batch of a lent value. */
static void lent_full(void *context, struct deferred_batch *batch) {
    struct forkless *f = context;
    if (f->stop) {
        f->lent.out.failed = true; /* ends the serialization of the value */
        deferred_batch_free(batch);
        return;
    }
    batch->owner = f;
    batch->keys = f->lent_keys;
    size_t bytes = deferred_batch_memory(batch) + batch->held;
    atomic_fetch_add(&f->waiting, bytes);
    atomic_fetch_add(&f->lent_waiting, bytes);
    background_worker_submit(f->writer, write_lent_batch, batch);
    pthread_mutex_lock(&f->lock);
    f->blocked = true;
    while (f->lent_waiting > (f->held ? f->held_limit : READ_AHEAD) && !f->hurry && !f->stop)
        pthread_cond_wait(&f->changed, &f->lock);
    f->blocked = false;
    pthread_mutex_unlock(&f->lock);
}

/* --- For the main thread --- */

void forkless_read(struct forkless *f, void (*run)(void *), void *arg) {
    background_worker_submit(f->reader, run, arg);
}
void forkless_write(struct forkless *f, struct deferred_batch *batch) {
    forkless_read(f, pass_batch, batch);
}
void forkless_write_end(struct forkless *f) {
    forkless_read(f, pass_end, f);
}

int forkless_threads_start(struct forkless *f) {
    int error = background_worker_start("save", &f->writer);
    if (error) return error;
    error = background_worker_start("save_reader", &f->reader);
    if (error) {
        background_worker_end(f->writer);
        return error;
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    deferred_output_init(&f->lent, lent_full, f);
    f->lent.uncompressed = f->save->content.uncompressed || !rdb_settings.compression;
    background_worker_submit(f->writer, begin_sink, f);
    background_worker_submit(f->reader, begin_reader, f);
    return 0;
}

/* For the reader, which does not wait for the writer meanwhile. */
void forkless_wait_for_return(struct forkless *f, const struct lending *lending) {
    pthread_mutex_lock(&f->lock);
    f->hurry = true;
    pthread_cond_broadcast(&f->changed);
    while (!lending_is_returned(lending)) pthread_cond_wait(&f->changed, &f->lock);
    f->hurry = false;
    pthread_mutex_unlock(&f->lock);
    forkless_check_waiting(f); /* the reader has not waited for the writer */
}

void forkless_drain_threads(struct forkless *f) {
    background_worker_drain(f->reader);
    background_worker_drain(f->writer);
}

void forkless_threads_end(struct forkless *f) {
    background_worker_end(f->reader);
    background_worker_end(f->writer);
    must_equal(f->waiting, 0);
    must_equal(f->lent_waiting, 0);
    must_equal(f->batches, 0);
    deferred_output_free(&f->lent);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}
