/* background_save.h: writes the data set of one moment to a sink, while the server executes commands: an RDB file, the
 * base of the append-only file, the copy that replicas receive.
 *
 * Two methods write the same data, with the keys in another order:
 *     fork       a child process writes (server/process/child.h)
 *     forkless   the main thread serializes entries between commands; a thread of the save compresses, computes the
 *                checksum and writes (forkless.h)
 *
 *     background_save_start()
 *       begin()    in the child, or on the thread: opens the sink, and writes what precedes the data
 *                  the data: an RDB file with its checksum, or commands
 *       end()      in the child, or on the thread: writes what follows, syncs, renames
 *     done()       in the main thread
 *
 * So an owner has one code for both methods, with these duties:
 *   - Descriptors that begin() and end() use stay open until done(), also if a replica leaves. `keep` has them for the
 *     child.
 *   - Data that begin(), end() and the sink's write() read does not change until done(). Results are returned, or
 *     stored in atomic variables.
 *   - A write() that waits for a reader needs stop().
 *
 * One save runs at a time (child_active()). child_kill() ends it by either method.
 *
 * Main thread, except where it says something else. */
#pragma once
#include "formats/rdb_file.h"
#include "server/cluster_hooks.h"
#include "server/process/child.h"
#include "server/repl_hooks.h"
#include <stdbool.h>
#include <stdint.h>

enum save_method {
    SAVE_DEFAULT,  /* bgsave-default-method */
    SAVE_FORK,     /* a child process */
    SAVE_FORKLESS, /* this process */
};
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
    /* In the child, or on the thread. Initializes the sink, and may write to it. 0 or a negative errno: then the sink
     * was not initialized, and end() is not called. */
    int (*begin)(struct background_save *save, struct sink *sink);
    /* In the child, or on the thread. `error`: 0 if all data was written to the sink, which is not flushed yet, or the
     * negative errno of the failure, -ECANCELED after child_kill(). Frees the sink and removes what is not complete.
     * Returns `error`, or its own; logs its own. */
    int (*end)(struct background_save *save, struct sink *sink, int error);
    /* In the child, at its very end: it has reported, and exits after it. NULL: nothing to do. */
    void (*leave)(struct background_save *save);
    /* The forkless method ends early: makes a write() that waits fail soon. NULL: it never waits. */
    void (*stop)(struct background_save *save);
    /* Exit status and signal as of a child: 0 and 0 is success; CHILD_KILL_SIGNAL: child_kill() ended it. The next
     * save may be started from here. */
    void (*done)(struct background_save *save, int status, int signal);
};

/* Belongs to the owner, and stays valid until done() returns. */
struct background_save {
    const struct background_save_ops *ops;
    enum child_kind kind;
    const char *title, *log_name; /* as in struct child_job */
    const int *keep;              /* descriptors for the child */
    int keep_count;
    struct save_content content;
    /* Set by background_save_start(). */
    enum save_method method;
    uint64_t keys_total;
    pid_t pid; /* of the child; of this process if there is none */
    /* Private. */
    struct child_job job;
    struct forkless *forkless;
};

/* The method that SAVE_DEFAULT stands for, or `method`; SAVE_FORK if forkless-infrastructure-enabled is off. */
enum save_method background_save_method(enum save_method method);
/* 0 or a negative errno: -EBUSY if another save or child runs. Then nothing has started, and done() is not called. */
int background_save_start(struct background_save *save, enum save_method method);

/* Call before the data set leaves as a whole: another is loaded, or all is flushed. Ends what saves data that are about
 * to go: a snapshot to a file, and any save without fork, which would keep them in memory. Does not wait. */
void background_save_data_leaves(void);

/* Whether writes of clients wait because too much of this save is not written yet (forkless-buffer-limit). */
bool background_save_holds_writes(const struct background_save *save);

/* Keys written so far. In the child, or on the thread, within write(). */
uint64_t background_save_keys(const struct background_save *save);
/* In a write() that waits, about once a second, and in end(). False: the save has been stopped; write() fails. In a
 * child whose server has exited it does not return. */
bool background_save_goes_on(struct background_save *save);

/* Writes the data to a sink, flushes it, and returns 0 or a negative errno: in this thread, which executes no commands
 * meanwhile (SAVE, SHUTDOWN), or in a child. */
int save_write(struct sink *sink, const struct save_content *content);
/* For the methods: the parameters of the RDB file. */
enum { SAVE_AUX_MAX = REPL_AUX_MAX + CLUSTER_AUX_MAX };
struct rdb_save_params save_params(struct rdb_aux aux[static SAVE_AUX_MAX], const struct save_content *content);
