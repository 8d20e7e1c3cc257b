/* See stats.h. The file is written with one write at exit, also when a fault kills the process; "%p" in its
 * name becomes the process number, so that a test of many processes gets one file each. */
#define _GNU_SOURCE
#include "stats.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "qp.h"

struct stats stats;

SR_EXPORT void softrdma_counters(struct softrdma_counters *out) {
#define X(name) out->name = load_relaxed(&stats.name);
    SOFTRDMA_COUNTERS(X)
#undef X
    qp_sum_counters(out);
    cq_sum_counters(out);
}

void stats_write(void) {
    const char *path = getenv("SOFTRDMA_STATS");
    if (!path || !*path) return;
    char name[4096], text[4096];
    const char *mark = strstr(path, "%p");
    if (mark)
        snprintf(name, sizeof(name), "%.*s%d%s", (int)(mark - path), path, (int)getpid(), mark + 2);
    else
        snprintf(name, sizeof(name), "%s", path);
    struct softrdma_counters c;
    softrdma_counters(&c);
    int len = 0;
#define X(counter)                                                                                                     \
    len += snprintf(text + len, sizeof(text) - (size_t)len, "%s:%llu\n", #counter, (unsigned long long)c.counter);
    SOFTRDMA_COUNTERS(X)
#undef X
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return;
    ssize_t n = write(fd, text, (size_t)len);
    (void)n;
    close(fd);
}

static pid_t owner;

static void stats_at_exit(void) {
    if (getpid() == owner) stats_write();
}

static void stats_register(void) {
    atexit(stats_at_exit);
}

void stats_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    owner = getpid();
    pthread_once(&once, stats_register);
}

void stats_forget(void) {
    memset((void *)&stats, 0, sizeof(stats));
}
