/* background.h: background threads for slow work: freeing large objects, closing and reading files, fsync.
 *
 * background_start() starts one thread for each kind of job; writes and fsyncs of the append-only file are two kinds,
 * so that the file can be written while it is being synced. Jobs of one kind run in the order of their submission. The
 * job's function runs on the background thread and owns its argument. Before background_start() (tools, unit tests), a
 * job runs immediately in the calling thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
enum background_kind {
    BACKGROUND_CLOSE_FILE,
    BACKGROUND_FSYNC,
    BACKGROUND_WRITE,
    BACKGROUND_LAZY_FREE,
    BACKGROUND_READ,
    BACKGROUND_CHECKSUM,
    BACKGROUND_REGISTER, /* memory with a device */
    BACKGROUND_KINDS
};
/* Each thread calls `setup` first, for CPU pinning; it may be NULL. Returns 0 or -errno. */
int background_start(void (*setup)(void));
void background_submit(enum background_kind kind, void (*run)(void *), void *arg);
size_t background_pending(enum background_kind kind); /* jobs queued or running */
/* True: jobs run in parallel with the caller. False: no thread was started, or only one CPU is available. */
bool background_is_parallel(enum background_kind kind);
void background_drain(enum background_kind kind); /* wait until no job is left */

/* A thread for the jobs of one user; the same rules, but without `setup`. 0 or a negative errno. A process that was
 * forked since must not use it. */
struct background_worker;
int background_worker_start(const char *name, struct background_worker **worker);
void background_worker_submit(struct background_worker *worker, void (*run)(void *), void *arg);
size_t background_worker_pending(const struct background_worker *worker); /* any thread; includes the running job */
void background_worker_drain(struct background_worker *worker);
void background_worker_end(struct background_worker *worker); /* runs all queued jobs, joins the thread */

/* Call before fork(), without locks. The allocator of AddressSanitizer (GCC 12) takes no locks for a fork: a child
 * whose parent's worker held one would wait for it for ever. The other allocators do, and nothing happens. */
void background_before_fork(void);
void background_stop(void); /* run all queued jobs, then join the threads */
