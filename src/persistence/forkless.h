/* forkless.h: writes the data set of one moment to an RDB file without fork(), while the server executes commands.
 *
 * The main thread serializes entries, in slices between commands; a background thread compresses strings, computes the
 * checksum, writes, syncs and renames the file. They share no value: the main thread copies what it serializes, and
 * large strings (1 KiB and more) pass by a reference, which makes a command that changes one copy it first
 * (formats/deferred_output.h). The moment is kept by a view of the data (snapshot/data_view.h): a command that is about
 * to change a key serializes it, and about six others, first. Each key is serialized once, whatever commands do.
 *
 * Bounds
 *     a slice         FORKLESS_SLICE_US, and at most one part (seven keys) more. While clients send commands the main
 *                     thread spends at most a third of its time on slices, and otherwise all of it
 *     a command       the serialization of the keys in its keys' parts, without compression: about a microsecond for
 *                     small values
 *     large values    a collection is serialized as a whole, by the slice or the command that comes to it: about 10 ms
 *                     for 100,000 small members. Remedy: `BGSAVE FORK`, or smaller collections
 *     memory          slices pause while FORKLESS_BACKLOG bytes wait for the thread. Beyond forkless-buffer-limit,
 *                     writes of clients are paused (CLIENT PAUSE WRITE) until half of it is written. What cannot wait
 *                     (a running script or transaction, the primary's stream on a replica) goes on. All of it together
 *                     is never more than the file without compression
 *     keys that left  FLUSHDB, and slots that are dropped: their tables stay until the save has read them
 *
 *     modules         a value is saved by the main thread. A module that changes data in its rdb_save makes the save
 * fail (with a child, only the child's copy would change). A key that a module opened for writing before the start, and
 * changes by a pointer later, may be written with the later value
 *
 * rdb-key-save-delay delays the slices, and not the thread. It may be changed during a save.
 *
 * The save holds the place of the one child (server/process/child.h): while it runs no child starts, and what ends a
 * BGSAVE child ends it.
 *
 * Rejected: a thread that reads values in place, see deferred_output.h; a lock for each key or part, on the path of
 * every command.
 *
 * Main thread. */
#ifndef PERSISTENCE_FORKLESS_H
#define PERSISTENCE_FORKLESS_H
#include "formats/rdb_file.h"
#include <stdbool.h>
#include <stdint.h>

enum { FORKLESS_SLICE_US = 100, FORKLESS_BACKLOG = 8 * 1024 * 1024 };

enum forkless_end { FORKLESS_SAVED, FORKLESS_FAILED /* and logged */, FORKLESS_CANCELLED };

/* Starts a save to a file of this name in the working directory. `done` is called once, from the event loop or from
 * child_kill_wait(). Logs failures. 0 or a negative errno: then nothing has started. */
int forkless_start(const struct rdb_save_params *params, const char *name, void (*done)(enum forkless_end end));
bool forkless_running(void);

struct forkless_stats {
    int64_t seconds_left; /* estimated; -1: none is running, or too few keys are written for an estimate */
    uint64_t waiting;     /* bytes that wait for the thread */
    uint64_t pauses;      /* of writes, since the server's start */
};
struct forkless_stats forkless_stats(void);

/* For tests that have no event loop: gives one part, or looks whether the thread has finished. False: done() was
 * called. */
bool forkless_step(void);
#endif
