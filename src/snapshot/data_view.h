/* data_view.h: snapshots: a view of the data set at one moment, without fork().
 *
 * A snapshot passes each entry that exists when it starts to its reader, once, as it was then, while the server
 * executes commands. Several may run at the same time; each has its own moment. The main thread gives, and nothing is
 * locked; a reader that has a thread may borrow large collections for it.
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
 *     FLUSHALL, FLUSHDB,    the snapshot keeps the tables of the keys that left their database. The last snapshot that
 *     dropped slots, a      has not given all of them frees them when it ends, in the background if the command wanted
 *     replaced data set     so. They take memory until then; what comes to the database afterwards is not announced
 *     SWAPDB                the keys keep the number of the database that had them at the start
 *
 * Loans. A collection of at least lend_min allocations is lent to a reader that has lend() (store/loan.h): its thread
 * reads the value in place, while the main thread goes on. Until the loan has ended the value does not change:
 *
 *   - A command of a client asks data_view_lends() before it changes a value in place, and waits if it does.
 *   - Other changes in place (transactions, scripts, the primary's stream, fields that expire, modules) call recall(),
 *     which takes the value back, or returns when the thread has read it.
 *   - Deleting, replacing, renaming and a new expiry do not wait: the loan keeps the value, and frees it.
 *
 * What is given because a command is about to change it would be recalled at once. So a change lends only from
 * lend_min_changed allocations on, whose serialization takes long.
 *
 * Beyond LOANS_MAX loans the reader gets entries as if it had no lend(). Values of modules are never lent.
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
    /* entry_allocations() of the smallest value that is lent, by data_view_step() and by a change. */
    size_t lend_min, lend_min_changed;
};
enum { LOANS_MAX = 32 /* of a snapshot */ };

/* Starts a snapshot of all keys, or of those of some slots, which needs a table for each slot. Takes time for the
 * tables (a bit for each bucket), not for the keys. */
struct data_view *data_view_start(struct keyspace *keyspace, const struct slot_bitmap *slots,
                                  const struct data_view_reader *reader);
/* Gives entries for this time, and at most a part longer; 0: one part. True: not finished. After the last entry, and
 * the end of the last loan, the snapshot costs changes nothing any more. */
bool data_view_step(struct data_view *view, uint64_t microseconds);
/* The loan was returned, or taken back. */
void data_view_loan_ended(struct value_loan *loan);
size_t data_view_loans(const struct data_view *view); /* that have not ended */
/* A command that is not executed yet may change the value of this key in place. Returns the earlier loan of it, or one
 * that the call makes: the command waits until a loan has ended, and asks again. NULL: it need not wait. */
struct value_loan *data_view_lends(struct db *db, struct slice key);
/* Frees the snapshot, which may not have finished: then the reader gets no more entries, and loans are recalled.
 * Precedes keyspace_free(). */
void data_view_end(struct data_view *view);

size_t data_view_keys(const struct data_view *view);  /* at the start */
size_t data_view_given(const struct data_view *view); /* passed to the reader so far */
