/* background.c: a worker thread for each kind of job, and for each user that wants its own; see background.h.
 *
 * Each has a queue, a lock and two condition variables. The worker takes one job at a time, so
 * background_pending() and background_drain() include the running job. A forked child has no workers: it runs jobs
 * immediately in the caller, as before background_start(), and takes no lock that a thread of the parent could hold. */
#include "lib/system/background.h"
#include "lib/structures/linked_list.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include <pthread.h>
#include <sched.h>

struct background_job {
    struct list_link link;
    void (*run)(void *);
    void *arg;
};

struct background_worker {
    struct list_link link; /* in `own` */
    const char *name;
    void (*setup)(void); /* may be NULL */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted, finished;
    struct list queue;
    _Atomic size_t pending; /* written under the lock */
    bool running, stopping;
};

static struct background_worker workers[BACKGROUND_KINDS];
static struct list own = LIST_INIT(own); /* those of background_worker_start() that run. Main thread */
static bool started;                     /* main thread */
static const char *const names[BACKGROUND_KINDS] = {"bio_close_file", "bio_fsync",    "bio_write",   "bio_lazy_free",
                                                    "bio_read",       "bio_checksum", "bio_register"};

static void *work(void *arg) {
    struct background_worker *w = arg;
    pthread_setname_np(pthread_self(), w->name);
    if (w->setup) w->setup();
    mem_free(mem_alloc(1)); /* jemalloc prepares a thread at its first call, and crashes if no memory is left then */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->queue.len && !w->stopping) pthread_cond_wait(&w->submitted, &w->lock);
        if (!w->queue.len) break;
        struct background_job *job = container_of(list_first(&w->queue), struct background_job, link);
        list_remove(&w->queue, &job->link);
        pthread_mutex_unlock(&w->lock);
        job->run(job->arg);
        mem_free(job);
        pthread_mutex_lock(&w->lock);
        must_less(w->queue.len, w->pending); /* it includes the job that has run */
        if (--w->pending == 0) pthread_cond_broadcast(&w->finished);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void in_child(void) {
    started = false;
}

#ifdef __SANITIZE_ADDRESS__
/* At most a second: what takes longer waits for a peer or a disk, and holds no lock of the allocator. */
static void drain_briefly(struct background_worker *w) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec++;
    pthread_mutex_lock(&w->lock);
    while (w->pending && pthread_cond_timedwait(&w->finished, &w->lock, &end) == 0) continue;
    pthread_mutex_unlock(&w->lock);
}
#endif

void background_before_fork(void) {
#ifdef __SANITIZE_ADDRESS__
    background_drain(BACKGROUND_LAZY_FREE);
    background_drain(BACKGROUND_REGISTER);
    if (!started) return;
    list_each(&own, link) drain_briefly(container_of(link, struct background_worker, link));
#endif
}

static int worker_start(struct background_worker *w, const char *name, void (*setup)(void)) {
    w->name = name;
    w->setup = setup;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->submitted, NULL);
    pthread_cond_init(&w->finished, NULL);
    list_init(&w->queue);
    w->stopping = false;
    int error = thread_create(&w->thread, work, w);
    w->running = error == 0;
    return error;
}

int background_start(void (*setup)(void)) {
    static bool fork_handled;
    must_be_main_thread();
    if (started) return 0;
    if (!fork_handled) {
        int error = pthread_atfork(NULL, NULL, in_child);
        if (error) return -error;
        fork_handled = true;
    }
    int error = 0;
    started = true;
    for (int i = 0; i < BACKGROUND_KINDS && !error; i++) error = worker_start(&workers[i], names[i], setup);
    if (error) background_stop();
    return error;
}

static void submit(struct background_worker *w, void (*run)(void *), void *arg) {
    if (!started || !w->running) {
        run(arg);
        return;
    }
    struct background_job *job = mem_alloc(sizeof(*job));
    *job = (struct background_job){.run = run, .arg = arg};
    pthread_mutex_lock(&w->lock);
    list_append(&w->queue, &job->link);
    w->pending++;
    pthread_cond_signal(&w->submitted);
    pthread_mutex_unlock(&w->lock);
}
static void drain(struct background_worker *w) {
    if (!started || !w->running) return;
    pthread_mutex_lock(&w->lock);
    while (w->pending) pthread_cond_wait(&w->finished, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void background_submit(enum background_kind kind, void (*run)(void *), void *arg) {
    submit(&workers[kind], run, arg);
}
void background_drain(enum background_kind kind) {
    drain(&workers[kind]);
}
size_t background_pending(enum background_kind kind) {
    return started ? workers[kind].pending : 0;
}

bool background_is_parallel(enum background_kind kind) {
    cpu_set_t mine, its;
    if (!started || sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        pthread_getaffinity_np(workers[kind].thread, sizeof its, &its) != 0)
        return false;
    return CPU_COUNT(&mine) > 1 || !CPU_EQUAL(&mine, &its);
}

/* Runs all queued jobs, then joins the thread. */
static void worker_stop(struct background_worker *w) {
    if (!w->running) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->submitted);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    must_equal(w->pending, 0);
    w->running = false;
}

void background_stop(void) {
    must_be_main_thread();
    if (!started) return;
    must(!own.len);
    for (int i = 0; i < BACKGROUND_KINDS; i++) worker_stop(&workers[i]);
    started = false;
}

/* --- Workers of one user --- */

int background_worker_start(const char *name, struct background_worker **worker) {
    must_be_main_thread();
    struct background_worker *w = mem_calloc(1, sizeof *w);
    list_append(&own, &w->link);
    int error = started ? worker_start(w, name, NULL) : 0;
    if (error) {
        list_remove(&own, &w->link);
        mem_free(w);
        return error;
    }
    *worker = w;
    return 0;
}
void background_worker_submit(struct background_worker *w, void (*run)(void *), void *arg) {
    submit(w, run, arg);
}
size_t background_worker_pending(const struct background_worker *w) {
    return w->pending;
}
void background_worker_drain(struct background_worker *w) {
    drain(w);
}
void background_worker_end(struct background_worker *w) {
    must_be_main_thread();
    worker_stop(w);
    list_remove(&own, &w->link);
    if (w->name) {
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->submitted);
        pthread_cond_destroy(&w->finished);
    }
    mem_free(w);
}
