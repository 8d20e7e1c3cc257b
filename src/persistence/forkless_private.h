/* forkless_private.h: what the files of the method forkless share; see forkless.h.
 *
 * A save has two threads. The reader serializes the values that are lent to it and passes the main thread's batches on;
 * the writer compresses and writes. So a value is never lent for longer than its serialization takes: where the main
 * thread waits for it, the reader does not wait for the writer. Batches and loans pass both queues in the order of
 * their submission. */
#pragma once
#include "formats/deferred_output.h"
#include "formats/rdb_file.h"
#include "net/event_loop.h"
#include "persistence/aof_private.h"
#include "persistence/forkless.h"
#include "server/process/child.h"
#include "snapshot/data_view.h"
#include <pthread.h>
#include <stdatomic.h>

enum { FORKLESS_CPULIST = 1024, FORKLESS_BATCHES_AHEAD = 8 /* that the reader has not read */ };

struct forkless {
    struct list_link link; /* in the list of those that run */
    /* Constant. */
    struct background_save *save;
    struct background_worker *reader, *writer;
    char cpus[FORKLESS_CPULIST];
    /* Of the writer, from the first job to `ended`. */
    struct sink sink;
    bool begun; /* the sink exists */
    int result; /* of begin() or end() */
    uint64_t keys_written;
    /* Of the reader. */
    struct deferred_output lent;
    uint64_t lent_keys; /* for its output */
    /* Of all. */
    _Atomic bool stop;           /* drop what waits: a failure, or the end by child_kill() */
    _Atomic bool ended;          /* the writer has done its last job */
    _Atomic size_t waiting;      /* bytes of batches, with the strings that they refer to, */
    _Atomic size_t lent_waiting; /* and of those that the reader has made */
    _Atomic size_t wake_below;   /* `waiting` for which the main thread waits */
    _Atomic bool blocked;        /* the reader waits for the writer */
    _Atomic size_t batches;      /* of entries, that the reader has not read */
    pthread_mutex_t lock;        /* of `hurry`, and of waiting for `changed` */
    pthread_cond_t changed;      /* hurry, stop, lent_waiting, the state of a loan */
    bool hurry;                  /* the main thread waits for a loan: the reader does not wait for the writer */
    bool held;         /* a client waits for a loan: the reader buffers up to held_limit. Written by the main thread */
    size_t held_limit; /* bytes */
    /* Of the main thread. The writer reads `error` in its last job. */
    struct data_view *view; /* NULL: all entries are given; the threads have the rest to do */
    union {                 /* by save->content.format */
        struct rdb_entries rdb;
        struct aof_entries commands;
    } entries;
    struct deferred_output out; /* while it serializes */
    bool serializes;
    struct child_reservation reservation;
    struct event_timer timer;
    int error;           /* of the main thread */
    bool cancelled;      /* by child_kill() */
    bool stopped;        /* save->ops->stop() was called */
    uint64_t paced_us;   /* rdb-key-save-delay: when the last entries were given, */
    uint64_t paced_keys; /* and how many */
    bool giving;         /* an entry, or what belongs to none; a module may turn the event loop meanwhile */
    bool paused;         /* writes of clients wait */
    bool slicing;        /* within a slice */
    bool gave_much;      /* a collection or a batch */
    uint64_t by_slices;  /* entries; commands gave the others */
    uint64_t by_reader;  /* entries that were lent */
    uint64_t longest_us; /* slice */
    size_t most_waiting;
    uint64_t commands;  /* dispatch_commands after the last slice */
    uint64_t busy_us;   /* when clients last sent commands; 0: not since the start */
    uint64_t sliced_us; /* when the last slice ended */
};

/* forkless.c */
/* Whether clients wait for a loan of one of the saves. */
void forkless_hurry_all(bool held);
void forkless_check_waiting(struct forkless *f); /* pauses writes if too much waits */
bool forkless_is_giving(void); /* to one of the saves: a module that saves its value turns the event loop */
/* Accounts for entries that are about to be written. False: they are not, because the save has failed. */
bool forkless_counts(struct forkless *f, size_t keys);
int forkless_serialize(struct forkless *f, int db, const struct entry *entry, bool whole);

/* forkless_threads.c */
int forkless_threads_start(struct forkless *f);
void forkless_threads_end(struct forkless *f);                   /* when all is done */
void forkless_stop_threads(struct forkless *f);                  /* any thread: what waits is dropped */
void forkless_drain_threads(struct forkless *f);                 /* waits until they have done what they were given */
void forkless_hold(struct forkless *f, bool held, size_t limit); /* main thread */
void forkless_write(struct forkless *f, struct deferred_batch *batch);
void forkless_write_end(struct forkless *f);
void forkless_wait_for_return(struct forkless *f, const struct lending *lending); /* main thread */
void forkless_wake_main(void);                                                    /* any thread */

/* forkless_loans.c */
extern uint64_t forkless_lent;                              /* collections, since the server's start */
void forkless_lend(void *context, struct value_loan *loan); /* as in struct data_view_reader */
void forkless_recall(void *context, struct value_loan *loan);
void forkless_collect(struct forkless *f); /* ends the loans that the reader has returned */
void forkless_read(struct forkless *f, void (*run)(void *), void *arg); /* a job of the reader */
void forkless_await(void *context);

/* forkless_batches.c: as in struct data_view_reader */
void forkless_lend_batch(void *context, struct lent_batch *batch);
void forkless_recall_batch(void *context, struct lent_batch *batch);
