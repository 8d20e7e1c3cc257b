/* See progress.h. Timers are a binary heap; the thread sleeps until the earliest. All signals are blocked on
 * the thread, so that the program's handlers run on the program's threads. */
#define _GNU_SOURCE
#include "progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static bool started;
static int epoll_fd = -1, wake_fd = -1;
static struct link tasks;
static struct timer **heap; /* heap[1 .. heap_len] */
static uint32_t heap_len, heap_capacity;
static struct timer *_Atomic firing;
static bool awake; /* the thread is about to look at tasks and timers anyway */
static _Thread_local bool is_me;

bool progress_is_me(void) {
    return is_me;
}

static void heap_put(uint32_t place, struct timer *t) {
    heap[place] = t;
    t->place = place;
}

static void heap_up(uint32_t place) {
    struct timer *t = heap[place];
    for (; place > 1 && heap[place / 2]->due > t->due; place /= 2) heap_put(place, heap[place / 2]);
    heap_put(place, t);
}

static void heap_down(uint32_t place) {
    struct timer *t = heap[place];
    for (uint32_t child; (child = place * 2) <= heap_len; place = child) {
        if (child < heap_len && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= t->due) break;
        heap_put(place, heap[child]);
    }
    heap_put(place, t);
}

static void heap_remove(struct timer *t) {
    uint32_t place = t->place;
    if (!place) return;
    t->place = 0;
    struct timer *last = heap[heap_len--];
    if (last == t) return;
    heap_put(place, last);
    heap_up(place);
    heap_down(last->place);
}

static void wake(void) {
    if (awake) return;
    awake = true;
    uint64_t one = 1;
    ssize_t n = write(wake_fd, &one, sizeof(one));
    (void)n;
}

void timer_set(struct timer *timer, uint64_t due) {
    pthread_mutex_lock(&lock);
    heap_remove(timer);
    if (heap_len + 2 > heap_capacity) {
        uint32_t capacity = heap_capacity ? heap_capacity * 2 : 64;
        struct timer **bigger = realloc(heap, capacity * sizeof(*heap));
        if (!bigger) abort(); /* a few bytes; there is no way to go on without a clock */
        heap = bigger;
        heap_capacity = capacity;
    }
    timer->due = due;
    heap_put(++heap_len, timer);
    heap_up(heap_len);
    if (timer->place == 1 && !is_me) wake();
    pthread_mutex_unlock(&lock);
}

void timer_cancel(struct timer *timer) {
    pthread_mutex_lock(&lock);
    heap_remove(timer);
    pthread_mutex_unlock(&lock);
}

void timer_cancel_wait(struct timer *timer) {
    do {
        timer_cancel(timer);
        if (is_me || load_acquire(&firing) != timer) break;
        sched_yield();
    } while (true);
    timer_cancel(timer); /* it may have set itself again */
}

void progress_run(struct task *task) {
    pthread_mutex_lock(&lock);
    list_append(&tasks, &task->link);
    if (!is_me) wake();
    pthread_mutex_unlock(&lock);
}

int progress_watch(struct watch *watch, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = watch};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, watch->fd, &ev) ? -errno : 0;
}

void progress_rewatch(struct watch *watch, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = watch};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, watch->fd, &ev);
}

void progress_unwatch(struct watch *watch) {
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* Runs what is due; returns when the next timer is, or UINT64_MAX. */
static uint64_t run_due(void) {
    pthread_mutex_lock(&lock);
    for (uint64_t now = now_ns();;) {
        struct link *l = list_pop(&tasks);
        if (l) {
            struct task *task = container_of(l, struct task, link);
            pthread_mutex_unlock(&lock);
            task->run(task);
            pthread_mutex_lock(&lock);
            continue;
        }
        if (!heap_len || heap[1]->due > now) break;
        struct timer *timer = heap[1];
        heap_remove(timer);
        store_release(&firing, timer);
        pthread_mutex_unlock(&lock);
        timer->fire(timer);
        pthread_mutex_lock(&lock);
        store_release(&firing, NULL);
    }
    awake = false;
    uint64_t due = heap_len ? heap[1]->due : UINT64_MAX;
    pthread_mutex_unlock(&lock);
    return due;
}

static int sleep_until(uint64_t due, struct epoll_event *events, int max) {
    static bool no_pwait2;
    if (due == UINT64_MAX) return epoll_wait(epoll_fd, events, max, -1);
    uint64_t now = now_ns(), ns = due > now ? due - now : 0;
    if (!no_pwait2) {
        struct timespec ts = {(time_t)(ns / NS_PER_SEC), (long)(ns % NS_PER_SEC)};
        int n = epoll_pwait2(epoll_fd, events, max, &ts, NULL);
        if (n >= 0 || errno != ENOSYS) return n;
        no_pwait2 = true;
    }
    return epoll_wait(epoll_fd, events, max, (int)((ns + NS_PER_MS - 1) / NS_PER_MS));
}

static void *progress_main(void *arg) {
    is_me = true;
    /* One event at a time: a callback may close another descriptor and free its watch. */
    struct epoll_event event;
    for (;;) {
        uint64_t due = run_due();
        if (sleep_until(due, &event, 1) < 1) continue;
        if (event.data.ptr) {
            struct watch *watch = event.data.ptr;
            watch->ready(watch, event.events);
            continue;
        }
        uint64_t count;
        ssize_t n = read(wake_fd, &count, sizeof(count));
        (void)n;
    }
    return NULL;
}

static int start_thread(void) {
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN};
    if (epoll_fd < 0 || wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &ev)) return -errno;
    list_init(&tasks);
    sigset_t all, before;
    sigfillset(&all);
    /* A fault of this thread must reach the handlers of the program that reports crashes. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread, &attr, progress_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!r) pthread_setname_np(thread, "softrdma");
    return -r;
}

int progress_start(void) {
    pthread_mutex_lock(&lock);
    int r = 0;
    if (!started && !(r = start_thread())) started = true;
    pthread_mutex_unlock(&lock);
    return r;
}

void progress_forget(void) {
    if (epoll_fd >= 0) close(epoll_fd);
    if (wake_fd >= 0) close(wake_fd);
    epoll_fd = wake_fd = -1;
    started = awake = false;
    heap = NULL;
    heap_len = heap_capacity = 0;
    pthread_mutex_init(&lock, NULL);
}
