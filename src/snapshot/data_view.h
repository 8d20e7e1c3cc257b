/* data_view.h: snapshots: a view of the data set at one moment, without fork().
 *
 * A snapshot passes each entry that exists when it starts to its reader, once, as it was then, while the server
 * executes commands. Several may run at the same time; each has its own moment. Everything runs in the main thread, and
 * nothing is locked.
 *
 * The keys of each database are divided into parts of about seven entries (store/parts.h). A bit for each part says
 * whether it was given to the reader:
 *
 *     data_view_step()      gives the parts that were not given yet, in their order, for a limited time
 *     before a change       the store announces it (store/before_change.h), and the part of the key is given first.
 *                           Later changes of this part find its bit set. So each entry is serialized once, whoever
 *                           causes it, and no value is copied
 *     new keys              are announced as well: their part is given before they are in it
 *     expiry, eviction      are changes
 *     resizing              does not matter: the part of a key depends on its hash alone. Neither do relocation, hidden
 *                           slots and SELECT
 *     FLUSHALL, FLUSHDB,    the snapshot keeps the tables of the keys that left their database. The last snapshot that
 *     dropped slots, a      has not given all of them frees them when it ends, in the background if the command wanted
 *     replaced data set     so. They take memory until then; what comes to the database afterwards is not announced
 *     SWAPDB                the keys keep the number of the database that had them at the start
 *
 * While no snapshot runs, a change tests one pointer.
 *
 * Memory: one bit for each part, and 128 KiB for each database in cluster mode.
 *
 * The order of the keys is any, and the databases alternate. Keys that have expired are passed like others.
 *
 * Caveats
 *     A part is given as a whole: a change of a small value waits while a large one of the same part is serialized, and
 *     a step that comes to a large value exceeds its time. Remedy: none; keep collections below the size whose
 *     serialization takes longer than clients may wait.
 *
 * Rejected: a mark in each entry, or a table of the keys written meanwhile (memory for each key; a mark cannot be
 * cleared without another pass); stopping to resize (a database that grows meanwhile becomes slow); copying what is
 * about to change (its serialization has to be done anyway, and is smaller). */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "store/keyspace.h"

struct data_view;
struct data_view_reader {
    /* db: the number of the database at the start. The entry is valid during the call, which changes nothing in the
     * store. It runs within a command that changes the data, or within data_view_step(). */
    void (*entry)(void *context, int db, const struct entry *entry);
    void *context;
};

/* Starts a snapshot of all keys, or of those of some slots, which needs a table for each slot. Takes time for the
 * tables (a bit for each bucket), not for the keys. */
struct data_view *data_view_start(struct keyspace *keyspace, const struct slot_bitmap *slots,
                                  const struct data_view_reader *reader);
/* Gives entries for this time, and at most a part longer; 0: one part. True: not finished. After the last entry the
 * snapshot costs changes nothing any more. */
bool data_view_step(struct data_view *view, uint64_t microseconds);
/* Frees the snapshot, which may not have finished: then the reader gets no more entries. Precedes keyspace_free(). */
void data_view_end(struct data_view *view);

size_t data_view_keys(const struct data_view *view);  /* at the start */
size_t data_view_given(const struct data_view *view); /* passed to the reader so far */
