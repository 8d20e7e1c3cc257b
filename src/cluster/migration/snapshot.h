/* snapshot.h: the keys of the slots of a job, for the files snapshot.c, which sends them, and snapshot_write.c, which
 * writes them.
 *
 * Most keys are written by this process, in turns: at the end of a turn of the loop it writes whole slots for a short
 * time. No command is executed in between, so what it writes of a slot is of one moment. A change of a
 * slot that was written follows in the stream, and a change of one that was not needs no stream. So clients wait for
 * no fork, which takes longer the more memory the server has, and the kernel copies no page.
 *
 * A child process writes what would take this process too long: from the first slot on that has a large value or very
 * many keys, all that are left. It also writes everything for a target that takes no chunks, and with
 * rdb-key-save-delay or DEBUG PAUSE-AFTER-FORK, which are for children. */
#pragma once
#include "cluster/migration/pull.h"
#include "formats/rdb_fragment.h"
#include "repl/primary/direct_transfer.h"
#include "server/process/child.h"

struct snapshot {
    struct list_link link; /* in `snapshots` of snapshot.c */
    struct child_job child;
    struct child_process process;
    struct slot_export *export; /* NULL: it does not need the snapshot any more */
    struct node_id target;
    struct slot_bitmap slots; /* those that are not written yet, when the child is started */
    struct event_io pipe;
    int fd, child_fds[3];     /* the ends of the pipe, and the socket of the link or those of the offer; -1: closed */
    struct slot_offer *offer; /* NULL: the chunks go through the link */
    uint64_t frame;           /* bytes that are left of the frame in the pipe */
    bool runs, ended, good;
    bool chunks, direct;          /* the child writes chunks; and to the socket, and reports through the pipe */
    bool copies;                  /* this process writes, in turns */
    bool needs_child;             /* … until here: a child will write the other slots, as soon as it can be started */
    bool written;                 /* all slots are written; the link may still have to send some */
    unsigned next;                /* slot that this process writes next */
    uint64_t keys;                /* that this process has written */
    struct rdb_fragment fragment; /* of this process; bytes == NULL: none is begun */
    char name[JOB_NAME_LEN];
    struct direct_writer writer;
};

/* --- snapshot.c: effects of the machine --- */

bool snapshot_possible(void *context, const struct slot_export *export);
bool snapshot_lets_send(void *context, const struct slot_export *export); /* the link is not in use by it now */
bool snapshot_pulled(void *context, struct slot_export *export, int64_t count);
void snapshot_cancel(void *context, struct slot_export *export); /* the job does not need it any more */
enum snapshot_start snapshot_export(struct slot_export *export);
void snapshot_step(void); /* at the end of each turn: sends more */

/* --- snapshot_write.c --- */

/* In the child: struct child_job. */
int snapshot_write(struct child_job *child);

enum copy_result {
    COPY_GOES_ON, /* the time is over */
    COPY_WAITS,   /* for the target */
    COPY_NEEDS_CHILD,
    COPY_ENDED, /* all slots are written, and sent or offered */
    COPY_FAILED /* the offer is damaged */
};
/* Writes some slots. `busy`: clients send commands. Then it takes less time, and sends or offers all that it wrote, so
 * that the target does not load much at a time, either. So it does before COPY_NEEDS_CHILD. It takes at least `us`, but
 * not more than some milliseconds. */
enum copy_result snapshot_copy(struct snapshot *snapshot, bool busy, uint64_t us);
