/* forkless.h: the method forkless of background_save.h: writes the data set of one moment without fork(), while the
 * server executes commands.
 *
 * The main thread lends entries to a thread of the save, the reader, in batches of about 450, in slices between
 * commands. The reader serializes them in place; a second thread, the writer, compresses strings, computes the checksum
 * and writes. Large strings (1 KiB and more) pass by a reference, which makes a command that changes one copy it first
 * (formats/deferred_output.h). The moment is kept by a view of the data (snapshot/data_view.h): a command that is about
 * to change a key serializes it, and about six others, first, or waits for the batch that has it. Each key is
 * serialized once, whatever commands do.
 *
 * Large collections are lent one by one, while the main thread goes on. A client's command that would change one
 * meanwhile waits, without holding others; a transaction or a script waits in place, or serializes the value itself if
 * the reader has not begun. For it the reader never waits for the file.
 *
 * Bounds
 *     a slice         FORKLESS_SLICE_US, and at most one part (seven keys) more. While clients send commands the main
 *                     thread spends at most a third of its time on slices, and otherwise all of it
 *     a command       the serialization of the keys in its keys' parts, without compression: about a microsecond for
 *                     small values; or of a batch, by the reader or the main thread: about 0.1 ms, once for each batch
 *     large values    a client that changes a collection waits until it is serialized, if it is lent or has
 *                     LENT_MIN_CHANGED allocations and more, and until it is written, but for the last
 *                     forkless-buffer-limit bytes. A script or transaction holds the server for the serialization,
 *                     about 10 ms for 100,000 small members. A deleted collection takes its memory until then
 *     memory          slices pause while FORKLESS_BACKLOG bytes wait for the thread. Beyond forkless-buffer-limit,
 *                     writes of clients are paused (CLIENT PAUSE WRITE) until half of it is written. What cannot wait
 *                     (a running script or transaction, the primary's stream on a replica) goes on. All of it together
 *                     is never more than the file without compression
 *     keys that left  FLUSHDB, and slots that are dropped: their tables stay until the save has read them.
 *                     What replaces the whole data set ends the save (background_save_data_leaves())
 *     the end         child_kill_wait() waits until the thread has compressed the string at hand, and for a write()
 *                     that waits, until save->ops->stop() makes it fail
 *
 *     modules         a value is saved by the main thread. A module cannot change data in its rdb_save, aux_save and
 *                     aof_rewrite, as it could in a child, where only the copy would change; what it propagates goes
 *                     nowhere. Keys that it holds open for writing at the start are given at once, and their strings
 *                     copied, because it changes them by a pointer. A module that changes the value of a type of its
 *                     own without an open key, at any other time, may find the later value in the file
 *
 * rdb-key-save-delay delays the slices, and not the thread. It may be changed during a save.
 *
 * The save holds the place of the one child (server/process/child.h): while it runs no child starts, and what ends a
 * child ends it.
 *
 * Rejected: a lock for each key or part, on the path of every command; one thread that reads and writes (a script would
 * wait for a replica that does not read); small entries that the main thread serializes and copies (a save of 1 M keys
 * beside 50 clients took 1.7 times as long as a child process).
 *
 * Main thread, except where it says something else. */
#pragma once
#include "persistence/background_save.h"
#include <stdbool.h>
#include <stdint.h>

enum { FORKLESS_SLICE_US = 100, FORKLESS_BACKLOG = 8 * 1024 * 1024, FORKLESS_LEND_MIN = 256 };
/* The thread reads collections of this number of allocations; what a command is about to change, of the second number.
 * Tests change them. */
extern size_t forkless_lend_min, forkless_lend_min_changed;
extern size_t forkless_batch_parts; /* that the main thread lends together */

/* For background_save_start(). done() is called from the event loop or from child_kill_wait(). 0 or a negative errno:
 * the thread could not be started. */
int forkless_start(struct background_save *save);
bool forkless_running(void);
bool forkless_holds_writes(const struct background_save *save);
/* On the thread, within begin(), write() and end(). */
uint64_t forkless_keys(const struct background_save *save); /* written so far */
bool forkless_goes_on(const struct background_save *save);  /* false: stopped */

struct forkless_stats {
    int64_t seconds_left; /* estimated; -1: none is running, or too few keys are written for an estimate */
    uint64_t waiting;     /* bytes that wait for the thread */
    uint64_t pauses;      /* of writes, since the server's start */
    uint64_t lent;        /* collections that a thread has begun to read in place, likewise */
};
struct forkless_stats forkless_stats(void);

/* For tests that have no event loop: gives one part or a batch, or looks whether the thread has finished. False: none
 * runs. */
bool forkless_step(void);
