/* child.h: the one owner of child processes.
 *
 * A child is a copy of the server that writes the data set as it was at the moment of the fork: a snapshot to a file, a
 * rewrite of the append-only file, a full synchronization. At most one runs at a time, because each shares all memory
 * with the server and every page that either writes is copied.
 *
 * The owner
 *   - forks, measures the fork (latest_fork_usec, the latency event "fork"), and reaps;
 *   - stops in the server what would copy pages without need while a child lives: resizing of hash tables and updates
 *     of access times; and keeps the values in registered memory, which is shared and not copied (net/value_arena.h);
 *   - makes the child an ordinary process: its title, its OOM score, its CPUs, its signals. The child closes every
 *     descriptor but those its job keeps, so that it keeps no connection open and no port in use, and it never
 *     touches an RDMA object: it ends by _exit() only;
 *   - carries progress and the size of copied memory from the child to the server through a pipe.
 *
 * The pipe also tells that the child has ended, on the turn in which it happens: its write end closes with the child.
 * SIGCHLD is not used, so that a library that starts a process of its own is not disturbed.
 *
 * All functions belong to the main thread. */
#ifndef SERVER_CHILD_H
#define SERVER_CHILD_H
#include "server/config/config.h"
#include "server/server.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum child_kind { CHILD_NONE, CHILD_RDB, CHILD_AOF, CHILD_REPLICATION };
enum { CHILD_KEEP_MAX = 64 };

/* What a child does. The job belongs to its owner and must stay until done() returns. */
struct child_job {
    enum child_kind kind;
    const char *title;    /* in ps: "valkey-rdb-bgsave" */
    const char *log_name; /* in the log: "Killing running RDB child", "Fork CoW for RDB" */
    const int *keep;      /* descriptors that the child keeps beside 0 to 2, at most CHILD_KEEP_MAX; may be NULL */
    int keep_count;
    /* In the child. Returns the exit status: 0 is success. */
    int (*run)(struct child_job *job);
    /* In the server, after the child was reaped: its exit status, or the signal that ended it (else 0). A child that
     * child_kill() ended has the signal CHILD_KILL_SIGNAL. The next child may be started from here. */
    void (*done)(struct child_job *job, int status, int signal);
    uint64_t keys_total; /* set by child_start(): keys of all databases */
};

/* Forks. Returns the child's process id, or -EBUSY where another child runs, or the error of pipe() or fork(). */
pid_t child_start(struct child_job *job);
enum child_kind child_kind(void); /* of the child that runs, CHILD_NONE: there is none */
pid_t child_pid(void);            /* 0: there is none */
static inline bool child_active(void) {
    return child_kind() != CHILD_NONE;
}

extern const int CHILD_KILL_SIGNAL;
/* Ends the child. child_kill() returns at once and done() is called later; child_kill_wait() returns after done(). */
void child_kill(void);
void child_kill_wait(void);

/* In the child: this many keys are processed. Call it every thousand keys or so: it reads the clock, and once a second
 * it measures the memory that was copied and reports to the server. child_report_end() does so in any case, and logs
 * the sizes. */
void child_report(uint64_t keys);
void child_report_end(void);
bool child_is_self(void); /* this process is a child */

/* What the server knows of the child that runs; zeros where none does. Bytes, keys, seconds since the last report. */
struct child_progress {
    uint64_t keys, keys_total, cow, cow_peak, cow_age;
    double percent;
};
struct child_progress child_progress(void);
uint64_t child_last_cow(void); /* bytes, of the last child that was reaped */
struct child_stats {
    uint64_t latest_fork_us, total_forks;
    double fork_rate; /* GB of memory a second, of the last fork */
};
extern struct child_stats child_stats;

/* DEBUG DICT-RESIZING: forbids resizing whether or not a child runs. */
void child_set_resizing(bool enabled);
#endif
