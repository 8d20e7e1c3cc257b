/* child.h: forks child processes for modules and for debugged scripts, and keeps the place of the one background save.
 * No other module forks.
 *
 * A child is a copy of the server as of the moment of the fork. At most one runs for a module (ValkeyModule_Fork) at a
 * time, because it shares all memory with the server and the kernel copies every page that either of them writes.
 *
 * A session is a child that executes commands on its own copy of the data set, for a client that debugs a script. It
 * may run for hours, so it neither counts as the one child nor delays it; any number of sessions may run.
 *
 * A background save (persistence/background_save.h) runs in this process. It reserves the place of the one child: no
 * child and no other save starts, child_kind() is its kind, and child_kill() ends it.
 *
 * This module
 *   - forks, measures the fork (latest_fork_usec, the latency event "fork"), and reaps the child;
 *   - stops in the server what would copy pages without need while a child runs: resizing of hash tables and updates
 *     of access times; and keeps values in registered memory, which is shared and not copied (net/value_arena.h);
 *   - makes the child an ordinary process: its title, its OOM score, its CPUs, its signals. A session closes every
 *     descriptor except those its job keeps, so that it holds no connection and no port open. A child never touches an
 *     RDMA object: it ends only by _exit();
 *   - carries progress and the size of copied memory from the child to the server through a pipe.
 *
 * The pipe also reports the end of the child in the loop turn in which it happens: its write end closes with the child.
 * The server does not use SIGCHLD, so that libraries can start processes of their own.
 *
 * Main thread only. */
#pragma once
#include "server/config/config.h"
#include "server/server.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum child_kind {
    CHILD_NONE,
    CHILD_RDB, /* of background saves: */
    CHILD_AOF,
    CHILD_REPLICATION,
    CHILD_SESSION, /* of children: */
    CHILD_MODULE
};

/* Work for a child. The job belongs to its owner and must stay valid until done() returns. */
struct child_job {
    enum child_kind kind;
    const char *title;    /* in ps: "valkey-module-fork" */
    const char *log_name; /* in the log: "Killing running debugging child", "Fork CoW for module fork" */
    int keep;             /* the descriptor that the child keeps open besides 0 to 2; 0: none */
    /* In the child. Returns the exit status: 0 is success. NULL (CHILD_MODULE): child_start() returns 0 in the child,
     * which keeps all descriptors but those on which the server listens. */
    int (*run)(struct child_job *job);
    /* In the server, after the child was reaped: its exit status, or the signal that ended it (else 0). A child that
     * child_kill() ended has the signal CHILD_KILL_SIGNAL. The next child may be started from here. */
    void (*done)(struct child_job *job, int status, int signal);
    uint64_t keys_total; /* set by child_start(): keys of all databases */
};

/* Forks. Returns the child's process id, -EBUSY if a child or save runs, or the negative errno of pipe() or fork(). */
pid_t child_start(struct child_job *job);
enum child_kind child_kind(void); /* the running child or save; CHILD_NONE: none */
pid_t child_active_pid(void);     /* 0: none, or a save */
static inline bool child_active(void) {
    return child_kind() != CHILD_NONE;
}

extern const int CHILD_KILL_SIGNAL;
/* Ends the child that child_start() started, or the save. child_kill() returns immediately and done() is called later;
 * child_kill_wait() returns after done(). */
void child_kill(void);
void child_kill_wait(void);

/* The place of the child of child_start(), for a save. It belongs to its owner. */
struct child_reservation {
    enum child_kind kind;
    /* child_kill(); `waits`, child_kill_wait(): calls child_unreserve() before it returns, if possible. */
    void (*kill)(struct child_reservation *reservation, bool waits);
    uint64_t keys, keys_total; /* for child_progress() */
    int64_t started_ms;        /* clock_mono_ms() */
};
void child_reserve(struct child_reservation *reservation); /* child_active() is false */
void child_unreserve(struct child_reservation *reservation);

/* What a child has reported about itself. */
struct child_report_data {
    uint64_t keys, cow;
};
/* The process of a session; zero before the first child. It belongs to its owner and must stay valid until
 * job->done() returns. */
struct child_process {     /* private */
    struct child_job *job; /* NULL: none runs */
    pid_t pid;
    int fd; /* the read end of its pipe */
    struct event_io pipe;
    struct event_timer reap_timer;
    struct child_report_data last;
    uint64_t cow_peak, reported_us;
    int64_t started_ms;
};
/* Forks a session; job->kind is CHILD_SESSION. Returns as child_start() does, without -EBUSY. In the session nothing is
 * propagated, no client has a connection, and FLUSHALL leaves the files alone. */
pid_t child_start_session(struct child_process *process, struct child_job *job);
void child_kill_process(struct child_process *process); /* returns immediately; done() is called later */
size_t child_sessions(void);                            /* that run */

/* In the child: reports the number of keys processed so far. Call it about every thousand keys: it reads the clock, and
 * once a second it measures the copied memory and reports to the server. child_report_end() always reports, and logs
 * the sizes. */
void child_report(uint64_t keys);
void child_report_end(void);

/* What the running child or save has reported; zeros if none runs. Bytes, keys, seconds since the last report. */
struct child_progress {
    uint64_t keys, keys_total, cow, cow_peak, cow_age;
    double percent;
    int64_t started_ms; /* clock_mono_ms() */
};
struct child_progress child_progress(void);
uint64_t child_last_module_cow(void); /* bytes, of the last child of child_start() that was reaped */
struct child_stats {
    uint64_t latest_fork_us, total_forks;
    double fork_rate; /* GB of memory a second, of the last fork */
};
extern struct child_stats child_stats;

/* DEBUG DICT-RESIZING: forbids resizing whether or not a child runs. */
void child_set_resizing(bool enabled);
/* DEBUG PAUSE-AFTER-FORK: the server stops itself (SIGSTOP) after each fork, and after the start of each save. */
void child_set_pause_after_fork(bool enabled);
void child_pause_after_fork(void); /* stops the server here if that is set */
