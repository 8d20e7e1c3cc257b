/* steady_clock.c: a clock that the comparison sets, preloaded into both servers, so that times in their replies are
 * equal and keys expire when the comparison says so. The wall clock is the number of microseconds in the file named by
 * STEADY_CLOCK; durations stay real.
 *
 * Reading it also clears errno: a genuine server looks at an errno in SORT that it has not cleared itself, and would
 * answer by what happened before. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *wall_us;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

static void __attribute__((constructor)) start(void) {
    const char *path = getenv("STEADY_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *wall_us, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (page == MAP_FAILED) abort();
    wall_us = page;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    if (wall_us && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t now = *wall_us;
        *time = (struct timespec){now / 1000000, now % 1000000 * 1000};
        errno = 0;
        return 0;
    }
    if (!real_clock_gettime) *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    return real_clock_gettime(id, time);
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
time_t time(time_t *time) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (time) *time = now.tv_sec;
    return now.tv_sec;
}
