/* background_save.h: writes the data set of one moment to a sink, while the server executes commands: an RDB file, the
 * base of the append-only file, the copy that replicas receive. The main thread serializes entries between commands; a
 * thread of the save compresses, computes the checksum and writes (forkless.h). No process is forked.
 *
 *     background_save_start()
 *       begin()    on the thread: opens the sink, and writes what precedes the data
 *                  the data: an RDB file with its checksum, or commands
 *       end()      on the thread: writes what follows, syncs, renames
 *     done()       in the main thread
 *
 * An owner has these duties:
 *   - Descriptors that begin() and end() use stay open until done(), also if a replica leaves.
 *   - Data that begin(), end() and the sink's write() read does not change until done(). Results are returned, or
 *     stored in atomic variables.
 *   - A write() that waits for a reader needs stop().
 *
 * One save runs at a time (child_active()). child_kill() ends it.
 *
 * Main thread, except where it says something else. */
#pragma once
#include "formats/rdb_file.h"
#include "server/cluster_hooks.h"
#include "server/process/child.h"
#include "server/repl_hooks.h"
#include <stdbool.h>
#include <stdint.h>

enum save_format { SAVE_RDB, SAVE_COMMANDS };

/* What a save contains. All zeros: everything, as an RDB file of the oldest version that can hold the data. */
struct save_content {
    enum save_format format;
    int version; /* as in struct rdb_save_params */
    bool without_keys, without_libraries;
    bool aof_base;     /* marks the RDB file as the base of an append-only file */
    bool streamed;     /* a replica reads it during the save: flush the sink before each rdb-key-save-delay */
    bool unchecked;    /* streamed: without a checksum, because TLS protects the bytes */
    bool uncompressed; /* whatever rdbcompression says: compressing takes longer than sending */
};

struct background_save;
struct background_save_ops {
    /* On the thread. Initializes the sink, and may write to it. 0 or a negative errno: then the sink was not
     * initialized, and end() is not called. */
    int (*begin)(struct background_save *save, struct sink *sink);
    /* On the thread. `error`: 0 if all data was written to the sink, which is not flushed yet, or the
     * negative errno of the failure, -ECANCELED after child_kill(). Frees the sink and removes what is not complete.
     * Returns `error`, or its own; logs its own. */
    int (*end)(struct background_save *save, struct sink *sink, int error);
    /* The save ends early: makes a write() that waits fail soon. NULL: it never waits. */
    void (*stop)(struct background_save *save);
    /* `status` 0 and `signal` 0: success; `signal` CHILD_KILL_SIGNAL: child_kill() ended it. The next save may be
     * started from here. */
    void (*done)(struct background_save *save, int status, int signal);
};

/* Belongs to the owner, and stays valid until done() returns. */
struct background_save {
    const struct background_save_ops *ops;
    enum child_kind kind;
    struct save_content content;
    /* Set by background_save_start(). */
    uint64_t keys_total;
    pid_t pid; /* of this process, for the log */
    /* Private. */
    struct forkless *forkless;
};

/* 0 or a negative errno: -EBUSY if another save or child runs. Then nothing has started, and done() is not called. */
int background_save_start(struct background_save *save);

/* Call before the data set leaves as a whole: another is loaded, or all is flushed. Ends the save, which would keep the
 * data in memory. Does not wait. */
void background_save_data_leaves(void);

/* Whether writes of clients wait because too much of this save is not written yet (forkless-buffer-limit). */
bool background_save_holds_writes(const struct background_save *save);

/* Keys written so far. On the thread, within write(). */
uint64_t background_save_keys(const struct background_save *save);
/* On the thread, in a write() that waits, about once a second, and in end(). False: the save has been stopped; write()
 * fails. */
bool background_save_goes_on(const struct background_save *save);

/* Writes the data to a sink, flushes it, and returns 0 or a negative errno: in this thread, which executes no commands
 * meanwhile (SAVE, SHUTDOWN). */
int save_write(struct sink *sink, const struct save_content *content);
/* The parameters of the RDB file. */
enum { SAVE_AUX_MAX = REPL_AUX_MAX + CLUSTER_AUX_MAX };
struct rdb_save_params save_params(struct rdb_aux aux[static SAVE_AUX_MAX], const struct save_content *content);
