/* The one thread the library runs in each process: it sleeps in epoll and wakes for control messages, front
 * doors, timers (retries of stalled sends, timeouts of the connection manager) and tasks. Nothing of an
 * undisturbed message passes through it. */
#pragma once

#include <sys/epoll.h>

#include "base.h"

/* A descriptor to watch. Removed by its own callback or by any task, and before it is closed: closing alone does not
 * end the watch while a child that was just forked still has the descriptor, and the callback would be called for ever.
 */
struct watch {
    void (*ready)(struct watch *watch, uint32_t events);
    int fd;
};

struct task {
    struct link link;
    void (*run)(struct task *task);
};

struct timer {
    void (*fire)(struct timer *timer);
    uint64_t due;
    uint32_t place; /* in the heap, from 1; 0: not set */
};

int progress_start(void);   /* idempotent; 0 or -errno */
void progress_forget(void); /* in a forked child */
bool progress_is_me(void);

int progress_watch(struct watch *watch, uint32_t events);
void progress_rewatch(struct watch *watch, uint32_t events);
void progress_unwatch(struct watch *watch);
void progress_run(struct task *task); /* soon, on the thread */

void timer_set(struct timer *timer, uint64_t due); /* also moves a set timer */
void timer_cancel(struct timer *timer);
/* After this the callback is neither pending nor running (unless it is the caller). Call it without locks the
 * callback takes. */
void timer_cancel_wait(struct timer *timer);
