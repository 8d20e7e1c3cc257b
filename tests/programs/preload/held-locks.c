/* held-locks.c: a library that keeps every mutex locked from the moment at which a program reports its crash, for the
 * test that the report takes none.
 *
 *   LD_PRELOAD=…/held-locks.so program…
 *
 * A program that reports its stack calls backtrace(): first at its start, to load what that needs, and again in the
 * report. After the second call pthread_mutex_lock() waits for ever, as if the thread that crashed had held the mutex.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int reports;

int backtrace(void **frames, int size) {
    static int (*real)(void **, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "backtrace");
    int count = real(frames, size);
    atomic_fetch_add(&reports, 1);
    return count;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*_Atomic real)(pthread_mutex_t *);
    while (atomic_load(&reports) > 1) pause();
    int (*lock)(pthread_mutex_t *) = real;
    if (!lock) {
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        real = lock;
    }
    return lock(mutex);
}
