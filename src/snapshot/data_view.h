/* data_view.h: snapshots: a view of the data set at one moment, without fork().
 *
 * A snapshot passes each entry that exists when it starts to its reader, once, as it was then, while the server
 * executes commands. Several may run at the same time; each has its own moment. The main thread gives, and nothing is
 * locked; a reader that has a thread may borrow entries for it, which the thread reads in place.
 *
 * The keys of each database are divided into parts of about seven entries (store/parts.h). A bit for each part says
 * whether it was given to the reader:
 *
 *     data_view_step()      gives the parts that were not given yet, in their order, for a limited time
 *     before a change       the store announces it (store/before_change.h), and the part of the key is given first.
 *                           Later changes of this part find its bit set. So each entry is serialized once, by
 *                           a step or by a command, and no value is copied
 *     new keys              are announced as well: their part is given before they are in it
 *     expiry, eviction      are changes
 *     resizing              does not matter: the part of a key depends on its hash alone. Neither do relocation, hidden
 *                           slots and SELECT
 *     FLUSHALL, FLUSHDB,    the snapshot keeps the tables of the keys that left their database, until it has given all
 *     dropped slots, a      of them and what was lent is read. They take memory until then, which maxmemory does not
 *     replaced data set     count; what comes to the database afterwards is not announced
 *     SWAPDB                the keys keep the number of the database that had them at the start
 *
 * Batches. data_view_lend_step() lends the entries of up to 64 parts to a reader that has lend_batch(). The main
 * thread reads only their headers. Before an entry changes whose part is in a batch, the main thread waits until the
 * reader's thread has read the batch, which takes less than 0.1 ms for small values. If the thread has not begun, the
 * main thread takes the batch back and serializes it. This holds for every change: by a command, a script, the
 * primary's stream, expiry, eviction. A batch is waited for or taken back once, so a hot key costs one wait. Meanwhile
 *
 *   - the entries do not move: a relocation skips them (before_change.h);
 *   - lookups do not update the access field, from the start of the snapshot to its end, as with a child process;
 *   - hash and set tables are held (store/loan.h).
 *
 * Loans. A collection of at least lend_min allocations, or 256 times as many bytes, is lent to a reader that has
 * lend() (store/loan.h): its thread reads the value in place, while the main thread goes on. Until the loan has ended
 * the value does not change:
 *
 *   - A command of a client asks data_view_lends() before it changes a value in place, and waits if it does.
 *   - Other changes in place (transactions, scripts, the primary's stream, fields that expire, modules) call recall(),
 *     which takes the value back, or returns when the thread has read it.
 *   - Deleting, replacing, renaming and a new expiry do not wait: the loan keeps the value, and frees it.
 *
 * What is given because a command is about to change it would be recalled at once. So a change lends only from
 * lend_min_changed allocations on, whose serialization takes long.
 *
 * Beyond LOANS_MAX loans the reader gets entries as if it had no lend(). Values of modules are never lent; a part with
 * one, or with a collection of lend_min allocations, is in no batch.
 *
 * While no snapshot runs, a change tests one pointer, and one number.
 *
 * Memory: one bit for each part, and 128 KiB for each database in cluster mode.
 *
 * The order of the keys is any, and the databases alternate. Keys that have expired are passed like others.
 *
 * Caveats
 *     A part is given as a whole: a change of a small value waits while a large one of the same part is serialized, and
 *     a step that comes to a large value exceeds its time. Remedy: lend(). Without it, keep collections below the size
 *     whose serialization takes longer than clients may wait.
 *
 *     What changes an entry of a batch waits for the reader's thread, scripts and the primary's stream as well. A
 *     thread that does not get a CPU delays it. Remedy: a CPU for it, and the priority of the main thread.
 *
 *     A transaction or a script that changes a lent value waits for the thread, which must not wait for anything else
 *     then: not for a file or a peer. Remedy: recall() tells it to buffer.
 *
 * Rejected: a mark in each entry, or a table of the keys written meanwhile (memory for each key; a mark cannot be
 * cleared without another pass); stopping to resize (a database that grows meanwhile becomes slow); copying what is
 * about to change (its serialization has to be done anyway, and is smaller). */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "store/keyspace.h"
#include "store/loan.h"

struct data_view;
enum { LENT_PARTS = 64, LENT_ENTRIES = 512, LENT_WORK = 512 /* as of entries with strings */ };
/* Entries of a database, and of one slot where it has a table for each. Its members are constant while it is lent. */
struct lent_batch {
    struct list_link link; /* in the list of its snapshot; main thread */
    struct data_view *owner;
    const struct db_view *view;
    struct lending lending;
    uint64_t number;
    int db;           /* the number of the database at the start */
    unsigned slot;    /* 0 for a single table */
    bool collections; /* some are no strings */
    size_t work, count, parts;
    const struct entry *entry[LENT_ENTRIES];
    size_t part[LENT_PARTS]; /* their numbers, ascending */
};
void lent_batch_drop(struct lent_batch *batch); /* on the thread, which does not use it afterwards */

struct data_view_reader {
    /* db: the number of the database at the start. The entry is valid during the call, which changes nothing in the
     * store. It runs within a command that changes the data, or within data_view_step(). */
    void (*entry)(void *context, int db, const struct entry *entry);
    void *context;
    /* Replaces entry() for large collections: the reader's thread calls loan_begin(), reads loan->entry, and calls
     * loan_return(). Then the main thread calls data_view_loan_ended(). NULL: nothing is lent. */
    void (*lend)(void *context, struct value_loan *loan);
    /* The value is about to change, or the snapshot ends: sees to it that the thread needs the loan no more, writes the
     * entry itself if loan_take_back() succeeds and the snapshot is to be complete, and calls data_view_loan_ended().
     * Within lend() the loan may not be recalled yet. */
    void (*recall)(void *context, struct value_loan *loan);
    /* A client waits for a loan that data_view_await() was called for. NULL: the reader does not care. */
    void (*await)(void *context);
    /* entry_allocations() of the smallest value that is lent, by a step and by a change; or 256 times as many bytes. */
    size_t lend_min, lend_min_changed;
    /* The reader's thread calls lending_begin(), reads the entries, and calls lending_return() and lent_batch_drop().
     * Then the main thread calls data_view_batch_ended(). NULL: no batches. */
    void (*lend_batch)(void *context, struct lent_batch *batch);
    /* As recall(). */
    void (*recall_batch)(void *context, struct lent_batch *batch);
    size_t batch_parts; /* 0: LENT_PARTS */
};
enum { LOANS_MAX = 32 /* of a snapshot */ };

/* Starts a snapshot of all keys, or of those of some slots, which needs a table for each slot. Takes time for the
 * tables (a bit for each bucket), not for the keys. */
struct data_view *data_view_start(struct keyspace *keyspace, const struct slot_bitmap *slots,
                                  const struct data_view_reader *reader);
/* Gives entries for this time, and at most a part longer; 0: one part. True: not finished. After the last entry, and
 * the end of the last loan, the snapshot costs changes nothing any more. */
bool data_view_step(struct data_view *view, uint64_t microseconds);
/* Lends the next batch, or gives a part that cannot be in one. Otherwise as data_view_step(view, 0). */
bool data_view_lend_step(struct data_view *view);
/* The batch was returned, or taken back. */
void data_view_batch_ended(struct lent_batch *batch);
struct lent_batch *data_view_returned_batch(struct data_view *view); /* NULL: none */
size_t data_view_batches(const struct data_view *view);              /* that have not ended */
/* The loan was returned, or taken back. */
void data_view_loan_ended(struct value_loan *loan);
void data_view_await(struct value_loan *loan);
size_t data_view_loans(const struct data_view *view); /* that have not ended */
/* A command that is not executed yet may change the value of this key in place. Returns the earlier loan of it, or one
 * that the call makes: the command waits until a loan has ended, and asks again. NULL: it need not wait. */
struct value_loan *data_view_lends(struct db *db, struct slice key);
/* Frees the snapshot, which may not have finished: then the reader gets no more entries, and loans are recalled.
 * Precedes keyspace_free(). */
void data_view_end(struct data_view *view);

size_t data_view_keys(const struct data_view *view);  /* at the start */
size_t data_view_given(const struct data_view *view); /* passed to the reader so far */
