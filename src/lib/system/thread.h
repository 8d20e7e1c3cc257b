/* thread.h: starts the threads of all programs.
 *
 * A thread that handles no signals leaves them to the main thread, except those that its own faults raise: they stay
 * unblocked, and it has a stack of its own for their handlers. So a crash in any thread, also by an overflow of its
 * stack, leaves a report. `make check` refuses pthread_create elsewhere. */
#pragma once
#include "lib/system/must.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* False in the threads that thread_create() has started, and in what they fork. */
extern _Thread_local bool thread_is_created;
static inline bool thread_is_main(void) {
    return !thread_is_created;
}
/* A name of the calling thread, while it lives. */
static inline const void *thread_here(void) {
    return &thread_is_created;
}
/* For functions and state that belong to the main thread. */
#define must_be_main_thread() must(thread_is_main())

/* Returns 0 or a negative errno. thread NULL: nobody joins it. */
int thread_create(pthread_t *thread, void *(*run)(void *argument), void *argument);
/* All signals except those of faults: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS. */
void thread_signals_without_faults(sigset_t *signals);
