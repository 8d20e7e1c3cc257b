/* snapshot.h: the keys of the slots of a job, for the files snapshot.c, which sends them, snapshot_write.c, which
 * writes them, and snapshot_loans.c, which has large values written by a thread.
 *
 * The server writes the keys in turns: at the end of a turn of the loop it writes some for a short time. It begins with
 * whole slots. No command is executed in between, so what it writes of a slot is of one moment. A change of a slot that
 * was written follows in the stream, and a change of one that was not needs no stream.
 *
 * Slots that would take too long at once are left: from the first one on that has a large value or very many keys, all.
 * So is everything for a target that takes no chunks, and with rdb-key-save-delay. They are of one moment, which a view
 * of the slots keeps (snapshot/data_view.h): the turns go on with the keys that the view gives. A command that is about
 * to change a key has it written first, with about six others. Changes since the view began are in the stream, so each
 * is sent once.
 *
 * Large collections are lent to a thread (snapshot_loans.c), which makes commands of at most 64 elements from them,
 * while the server goes on, and its turns pass these on.
 *
 * Bounds
 *     a turn          some milliseconds. At the most seven keys more, without large collections
 *     large values    a client that changes one in place waits until the thread has read it, and while more than
 *                     forkless-buffer-limit of it waits for the target. A transaction or a script waits in place, for
 *                     the thread alone. Deleting and replacing do not wait. The server itself writes what has fewer
 *                     than LEND_MIN allocations, and values of modules
 *     memory          COPY_PENDING_MAX bytes on the link, and as many from the thread. What commands add waits for the
 *                     target as well. Beyond forkless-buffer-limit writes of clients wait, too, and beyond LIMITS_MAX
 *                     limits the job fails: changes that cannot wait (expiry, eviction, a script) have added that
 *     a target that   while clients wait for it, the job fails when the target's side of the link has taken nothing
 *     takes nothing   for PATIENCE_US
 *
 * Rejected: a child process (fork() takes longer the more memory the server has, and the kernel copies the pages that
 * change); a thread that writes to the link, which is that of the main thread with TLS or RDMA. */
#pragma once
#include "cluster/migration/pull.h"
#include "formats/rdb_fragment.h"
#include "snapshot/data_view.h"

/* Writes keys into the output of the link, and into the memory of the offer. */
struct slot_writer {
    struct rdb_fragment fragment; /* bytes == NULL: none is begun */
    char *scratch;                /* its memory without an offer; NULL: not needed yet */
    int selected;                 /* database of the commands; -1: none */
    bool copies;                  /* strings, in place of references: a module may change them by a pointer */
    uint64_t keys;                /* written so far */
};

enum snapshot_phase {
    SNAPSHOT_COPIES, /* whole slots */
    SNAPSHOT_VIEWS,  /* the other slots, as they were at one moment */
    SNAPSHOT_WRITTEN /* the link may still have to send some */
};

struct value_reader;
struct snapshot {
    struct list_link link;      /* in `snapshots` of snapshot.c */
    struct slot_export *export; /* NULL: it does not need the snapshot any more */
    struct node_id target;
    struct slot_bitmap slots; /* those that are not written yet, when the view begins */
    struct slot_offer *offer; /* NULL: the chunks go through the link */
    bool chunks;
    char name[JOB_NAME_LEN];
    enum snapshot_phase phase;
    unsigned next; /* slot that is copied next */
    struct slot_writer writer;
    struct data_view *view;      /* NULL: not begun, or it has given all */
    struct value_reader *reader; /* of large values; NULL: none was lent yet */
    bool giving;                 /* an entry of the view is being written; a module may call anything meanwhile */
    bool stepping;               /* within a turn of the view */
    bool failed;                 /* an entry of the view could not be written */
    uint64_t stepped;  /* bytes of the link up to the end of the view's last turn; commands have added others */
    bool paused;       /* writes of clients wait for the target (persistence/write_pause.h) */
    bool awaited;      /* clients wait for a large value */
    uint64_t stuck_us; /* nothing has left for the target since then, while clients waited; 0: they did not */
    uint64_t taken;    /* what the target had taken then */
    struct slot_place {
        int db;
        unsigned slot;
    } last;                        /* of the view's last turn */
    uint64_t paced_us, paced_keys; /* rdb-key-save-delay: when the view's last keys were written, and how many */
};

/* --- snapshot.c: effects of the machine --- */

bool snapshot_possible(void *context, const struct slot_export *export);
bool snapshot_lets_send(void *context, const struct slot_export *export); /* other messages than its own */
bool snapshot_pulled(void *context, struct slot_export *export, int64_t count);
void snapshot_cancel(void *context, struct slot_export *export); /* the job does not need it any more */
enum snapshot_start snapshot_export(struct slot_export *export);
void snapshot_step(void); /* at the end of each turn: sends more */

/* --- snapshot_write.c --- */

enum { PATIENCE_US = 2000000, LIMITS_MAX = 4 };

enum copy_result {
    COPY_GOES_ON, /* the time is over */
    COPY_WAITS,   /* for the target, or for the thread */
    COPY_DELAYED, /* for rdb-key-save-delay */
    COPY_NEEDS_MOMENT,
    COPY_ENDED, /* all slots are written, and sent or offered */
    COPY_FAILED /* the offer is damaged, or a module could not write a value */
};
/* Writes some slots. `busy`: clients send commands. Then it takes less time, and sends or offers all that it wrote, so
 * that the target does not load much at a time, either. So it does before COPY_NEEDS_MOMENT. It takes at least `us`,
 * but not more than some milliseconds. */
enum copy_result snapshot_copy(struct snapshot *snapshot, bool busy, uint64_t us);
size_t
snapshot_added(const struct snapshot *snapshot); /* bytes that commands have added, and that wait for the target */
/* The view of the slots that are left begins. */
void snapshot_view_begin(struct snapshot *snapshot);
void snapshot_view_end(struct snapshot *snapshot);           /* also early; not while it gives an entry */
uint64_t snapshot_delay_us(const struct snapshot *snapshot); /* until rdb-key-save-delay lets it go on */
void snapshot_write_select(struct snapshot *snapshot, int db);
/* As the callback of the view, also for what was lent: writes the entry, unless that has become futile. */
void snapshot_give(void *context, int db, const struct entry *entry);
/* Looks at each element: few large ones among many small ones count, too. So does the name of the key. */
size_t snapshot_key_bytes(const struct entry *entry);
enum { COPY_BYTES_MAX = 1024 * 1024 /* of keys and values, at a time: they take about a millisecond */ };

/* --- snapshot_loans.c --- */

enum { LEND_MIN = 16 };
enum { READ_AHEAD = 1024 * 1024 /* bytes that the thread makes before they are sent */ };

/* As in struct data_view_reader. */
void snapshot_lend(void *context, struct value_loan *loan);
void snapshot_recall(void *context, struct value_loan *loan);
/* Ends the loans that the thread has returned, and notes whether clients wait for others. */
void snapshot_loans_collect(struct snapshot *snapshot);
bool snapshot_waits_for_loans(const struct snapshot *snapshot); /* the view cannot go on before */
/* Sends a piece of what the thread has made. False: there is none. */
bool snapshot_send_piece(struct snapshot *snapshot);
void snapshot_reader_stop(struct snapshot *snapshot); /* what it has made, and what it reads, is dropped */
void snapshot_reader_free(struct snapshot *snapshot);
size_t snapshot_reader_memory(const struct snapshot *snapshot); /* bytes that it has made, and that are not sent */
