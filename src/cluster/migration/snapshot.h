/* snapshot.h: the keys of the slots of a job, for the files snapshot.c, which sends them, and snapshot_write.c, which
 * writes them.
 *
 * Most keys are written by this process, in turns: at the end of a turn of the loop it writes whole slots for a short
 * time. No command is executed in between, so what it writes of a slot is of one moment. A change of a
 * slot that was written follows in the stream, and a change of one that was not needs no stream. So clients wait for
 * no fork, which takes longer the more memory the server has, and the kernel copies no page.
 *
 * Slots that would take this process too long at once are left: from the first one on that has a large value or very
 * many keys, all. So is everything for a target that takes no chunks, and with rdb-key-save-delay. One of the methods
 * of bgsave-default-method (persistence/background_save.h), chosen when the snapshot begins, sends them as of one
 * moment:
 *     fork       a child process. Also everything with DEBUG PAUSE-AFTER-FORK
 *     forkless   this process goes on in turns, with the keys that a view of the slots gives it (snapshot/data_view.h).
 *                A command that is about to change a key has it written first, with about six others. Changes since the
 *                view began are in the stream, so each is sent once. A large value is written as a whole
 *
 * What commands add by that waits for the target. Beyond forkless-buffer-limit writes of clients wait, too; the job
 * fails when nothing has been sent for PAUSE_PATIENCE_US then, or beyond LIMITS_MAX limits: changes that cannot wait
 * (expiry, eviction, a script) have added that.
 *
 * Both methods write keys with the same code. Rejected: a thread that writes, as for files. It may not use the
 * connection of the link, which is that of the main thread with TLS or RDMA, and has nothing to compress. */
#pragma once
#include "cluster/migration/pull.h"
#include "formats/rdb_fragment.h"
#include "repl/primary/direct_transfer.h"
#include "server/process/child.h"
#include "snapshot/data_view.h"

/* Writes keys into the output of the link, or in a child into a sink, and into the memory of the offer. */
struct slot_writer {
    struct snapshot *snapshot;
    struct sink *sink;            /* NULL: not in a child */
    struct rdb_fragment fragment; /* bytes == NULL: none is begun */
    char *scratch;                /* its memory without an offer; NULL: not needed yet */
    int selected;                 /* database of the commands; -1: none */
    uint64_t keys;                /* written so far */
};

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
    bool chunks, direct;       /* the child writes chunks; and to the socket, and reports through the pipe */
    bool copies;               /* this process writes, in turns */
    bool needs_moment;         /* … until here: the other slots are of one moment, as soon as that can begin */
    bool forkless;             /* the method for them */
    bool written;              /* all slots are written; the link may still have to send some */
    unsigned next;             /* slot that this process writes next */
    struct slot_writer writer; /* of this process */
    struct data_view *view;    /* the other slots, without fork; NULL: not begun, or all is written */
    bool giving;               /* an entry of the view is being written; a module may call anything meanwhile */
    bool stepping;             /* within a turn of the view */
    bool failed;               /* an entry of the view could not be written */
    uint64_t stepped;          /* bytes of the link up to the end of the view's last turn; commands have added others */
    bool paused;               /* writes of clients wait for the target (persistence/write_pause.h) … */
    uint64_t paused_us;        /* … and nothing has left for it since then, … */
    uint64_t paused_out;       /* … when the link had sent so much */
    struct slot_place {
        int db;
        unsigned slot;
    } last;                        /* of the view's last turn */
    uint64_t paced_us, paced_keys; /* rdb-key-save-delay: when the view's last keys were written, and how many */
    char name[JOB_NAME_LEN];
    struct direct_writer direct_writer;
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

enum { PAUSE_PATIENCE_US = 5000000, LIMITS_MAX = 4 };

enum copy_result {
    COPY_GOES_ON, /* the time is over */
    COPY_WAITS,   /* for the target */
    COPY_DELAYED, /* for rdb-key-save-delay */
    COPY_NEEDS_MOMENT,
    COPY_ENDED, /* all slots are written, and sent or offered */
    COPY_FAILED /* the offer is damaged, or a module could not write a value */
};
/* Writes some slots. `busy`: clients send commands. Then it takes less time, and sends or offers all that it wrote, so
 * that the target does not load much at a time, either. So it does before COPY_NEEDS_MOMENT. It takes at least `us`,
 * but not more than some milliseconds, or a large value. */
enum copy_result snapshot_copy(struct snapshot *snapshot, bool busy, uint64_t us);
size_t
snapshot_added(const struct snapshot *snapshot); /* bytes that commands have added, and that wait for the target */
/* The view of the slots that are left begins. */
void snapshot_view_begin(struct snapshot *snapshot);
void snapshot_view_end(struct snapshot *snapshot);           /* also early; not while it gives an entry */
uint64_t snapshot_delay_us(const struct snapshot *snapshot); /* until rdb-key-save-delay lets it go on */
