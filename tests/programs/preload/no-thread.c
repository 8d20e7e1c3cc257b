/* no-thread.c: a library that simulates a system without space for another thread.
 *
 *   LD_PRELOAD=…/no-thread.so NO_THREAD=LIBRARY program…
 *
 * The first thread that code of a library starts whose path contains LIBRARY does not start. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static atomic_bool failed;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    const char *library = getenv("NO_THREAD");
    Dl_info caller;
    bool named = library && dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, library);
    if (named && !atomic_exchange(&failed, true)) return EAGAIN;
    return real(thread, attributes, run, argument);
}
