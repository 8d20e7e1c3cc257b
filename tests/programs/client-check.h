/* client-check.h: shared by the programs that use libvalkeyrdma. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *host;
static int port;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
