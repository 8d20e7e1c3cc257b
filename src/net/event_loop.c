/* event_loop.c: epoll, a heap of timers, and polled sources.
 *
 * epoll's data word is the struct event_io. When one is removed, its fetched events are dropped in every turn on the
 * stack. So nothing is looked up by descriptor, and a descriptor number that is reused immediately cannot receive an
 * event of its predecessor.
 *
 * Spinning. While a polled source had work during the last `spin_us`, or posts came in the last turn, the loop does not
 * sleep. It calls epoll_wait(), without waiting, only if EPOLL_INTERVAL_US have passed, if the last call returned
 * events, or if event_loop_wake() was called. So polling costs no system call per turn, descriptors are served at most
 * that much later, and busy descriptors are checked in every turn. While there is nothing else to do, a turn polls the
 * sources repeatedly: an empty poll costs the poll itself, and once in a few polls a read of the CPU's counter, but not
 * a whole turn with its hooks. The clocks are read only every CLOCK_LAG_US: even through the vDSO that takes longer
 * than the rest of such a turn.
 *
 * A thread that spins without finding anything yields its CPU between polls. On a machine with fewer CPUs than
 * processes that poll (a client, a primary and its replicas on two CPUs) the process that has work would otherwise wait
 * until the others have spun for spin_us: SET and WAIT took six times as long. A yield costs a fraction of a
 * microsecond if no other thread wants the CPU.
 *
 * Busy CPUs. If other threads that do not yield want the CPU, a thread that spins wastes its share of it, which is
 * small at a low priority or in a container with few CPU shares: the scheduler prefers a thread that has slept, and a
 * thread that yields waits for the time slices of all others. The loop loses the CPU when one round of polls and a
 * yield takes LOST_US, or, while it has work, when the kernel counts more involuntary context switches than yields, one
 * for each SLICE_US of CPU time at least. The first costs no system call; the loop asks the kernel (getrusage) every
 * USAGE_US at most, and only while it would spin. Losses add up, less one part in LOST_SHARE of the time that passes.
 * When their sum reaches LOST_SUM_US, the loop sleeps instead of spinning for LOST_FACTOR times the sum, and for longer
 * each time this happens again soon. Short losses at long intervals are no reason: a hypervisor and the kernel's own
 * threads take any CPU for a millisecond now and then, and a pause costs a client that waits for each reply more than
 * that. A poller whose spin_us is EVENT_SPIN_ALWAYS_US or more spins all the same, without yields during that time.
 *
 * Short sleeps. The sender pays for waking a sleeping thread, and in a virtual machine that costs more than the
 * send: 50 clients of one thread were slower with a server that was done sooner and so slept more often. After
 * SHORT_SLEEPS sleeps in a row that descriptors ended within SHORT_SLEEP_US, a loop without polled sources therefore
 * asks epoll for as long before it sleeps. If that is in vain, it sleeps as before until its sleeps are short again, so
 * a loop with little to do never spins.
 *
 * Rejected: a timer wheel (timers here are few or far apart; the heap is exact and cheaper at rest) and edge triggering
 * (it needs reading to EAGAIN, one more system call for each readiness than reading once). */
#include "net/event_loop.h"
#include "lib/structures/heap.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "lib/system/thread.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EVENTS_A_TURN = 256, EPOLL_INTERVAL_US = 50, LOOKS_A_CLOCK = 8, OUTBOX_BATCH = 16 };
enum { SHORT_SLEEPS = 2, SHORT_SLEEP_US = 30 };
enum {
    LOST_US = 500,
    LOST_SHARE = 10,
    LOST_SUM_US = 8 * 1000, /* two time slices of another thread */
    LOST_FACTOR = 20,
    PAUSE_MAX_US = 2000 * 1000,
    USAGE_US = 20 * 1000,
    USAGE_STALE_US = 10 * USAGE_US,
    SLICE_US = 8 * 1000, /* kernels let a thread run for 3 to 4 ms while others wait */
};

/* The events that an iteration has fetched and not handled yet; iterations may be nested. */
struct dispatch {
    struct dispatch *outer;
    struct epoll_event *events;
    int next, count;
};

/* What the thread had used of its CPU when it asked the kernel last. */
struct usage {
    pthread_t thread; /* the owner of a loop may run it in any thread */
    uint64_t at_us, cpu_us, sleep_us, preempted, yields;
};

struct event_loop {
    int epoll_fd, wake_fd;
    bool stopped, no_pwait2, descriptors_busy;
    atomic_bool woken;
    int depth;          /* iterations on the stack */
    const void *thread; /* that runs them; NULL: there are none */
    struct dispatch *dispatch;
    struct heap timers;
    struct list pollers, deferred, attachments;
    struct list_link *next_poller; /* of the poll loop that is running; moved on when that poller leaves */
    struct event_hooks hooks;
    struct event_loop_stats stats;
    int firing; /* timers are being fired, in how many turns that nest */
    uint64_t last_epoll_us, last_turn_us;
    uint64_t spin_from_us; /* no spins before this time: other threads want the CPU */
    uint64_t pause_us;     /* the last pause before it */
    uint64_t lost_us;      /* the sum of losses at lost_at_us */
    uint64_t lost_at_us;
    struct usage usage;
    uint32_t short_sleeps;        /* in a row, until now */
    bool takes_posts, posts_busy; /* busy: the last turn ran some */
    bool prepared;                /* event_loop_prepare_wait() has set `asleep` */
    struct event_post *fetched;   /* to be run, the oldest first */
    struct list outboxes;         /* of this loop, that hold something */
    /* What other threads touch; away from what the loop itself writes all the time. */
    char apart[64];
    _Atomic(struct event_post *) posts; /* published, the newest first */
    atomic_bool asleep;
};

/* While a thread runs an iteration, no other thread may touch the loop. */
static inline void check_thread(const struct event_loop *loop) {
    must(!loop->thread || loop->thread == thread_here());
}

struct event_loop *event_loop_try_new(void) {
    struct event_loop *loop = mem_calloc(1, sizeof *loop);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = loop->epoll_fd < 0 ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = loop};
    if (loop->wake_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0) {
        int error = errno;
        if (loop->wake_fd >= 0) close(loop->wake_fd);
        if (loop->epoll_fd >= 0) close(loop->epoll_fd);
        mem_free(loop);
        errno = error;
        return NULL;
    }
    ticks_start();
    list_init(&loop->pollers);
    list_init(&loop->deferred);
    list_init(&loop->attachments);
    list_init(&loop->outboxes);
    clock_update();
    loop->last_turn_us = clock_mono();
    return loop;
}

struct event_loop *event_loop_new(void) {
    struct event_loop *loop = event_loop_try_new();
    if (!loop) abort(); /* without descriptors at start nothing can run */
    return loop;
}

static void run_deferred(struct event_loop *loop) {
    for (size_t left = loop->deferred.len; left > 0 && loop->deferred.len > 0; left--) {
        struct event_deferred *deferred = container_of(list_first(&loop->deferred), struct event_deferred, link);
        list_remove(&loop->deferred, &deferred->link);
        deferred->run(deferred);
    }
}

void event_loop_run(struct event_loop *loop) {
    while (!loop->stopped) event_loop_turn(loop, -1);
    loop->stopped = false;
}

void event_loop_stop(struct event_loop *loop) {
    loop->stopped = true;
}

void event_loop_wake(struct event_loop *loop) {
    if (atomic_exchange(&loop->woken, true)) return;
    uint64_t one = 1;
    int saved = errno;
    while (write(loop->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    errno = saved;
}

/* --- Posts --- */

void event_loop_take_posts(struct event_loop *loop) {
    if (!loop->takes_posts) loop->takes_posts = true; /* other threads may read it from the first post on */
}

bool event_loop_takes_posts(const struct event_loop *loop) {
    return loop->takes_posts;
}

/* A chain of posts, linked from the newest to the oldest. */
static void event_loop_publish(struct event_loop *to, struct event_post *newest, struct event_post *oldest) {
    must(to->takes_posts);
    oldest->next = atomic_load_explicit(&to->posts, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&to->posts, &oldest->next, newest)) {
    }
    if (atomic_load(&to->asleep)) event_loop_wake(to);
}

void event_loop_post(struct event_loop *to, struct event_post *post) {
    event_loop_publish(to, post, post);
}

void event_outbox_init(struct event_outbox *outbox, struct event_loop *from, struct event_loop *to) {
    *outbox = (struct event_outbox){.from = from, .to = to};
}

void event_outbox_publish(struct event_outbox *outbox) {
    if (!outbox->count) return;
    list_remove(&outbox->from->outboxes, &outbox->link);
    event_loop_publish(outbox->to, outbox->newest, outbox->oldest);
    outbox->newest = outbox->oldest = NULL;
    outbox->count = 0;
}

void event_outbox_add(struct event_outbox *outbox, struct event_post *post) {
    check_thread(outbox->from);
    post->next = outbox->newest;
    outbox->newest = post;
    if (!outbox->count++) {
        outbox->oldest = post;
        list_append(&outbox->from->outboxes, &outbox->link);
    }
    if (outbox->count >= OUTBOX_BATCH || atomic_load_explicit(&outbox->to->asleep, memory_order_relaxed))
        event_outbox_publish(outbox);
}

static void publish_outboxes(struct event_loop *loop) {
    while (loop->outboxes.len)
        event_outbox_publish(container_of(list_first(&loop->outboxes), struct event_outbox, link));
}

/* Drops a chain of posts. */
static void drop_posts(struct event_post *post) {
    while (post) {
        struct event_post *next = post->next;
        if (post->drop) post->drop(post);
        post = next;
    }
}

void event_loop_drop_posts(struct event_loop *loop) {
    struct event_post *fetched = loop->fetched;
    loop->fetched = NULL;
    drop_posts(fetched);
    drop_posts(atomic_exchange(&loop->posts, NULL));
}

static void drop_outboxes(struct event_loop *loop) {
    while (loop->outboxes.len) {
        struct event_outbox *outbox = container_of(list_first(&loop->outboxes), struct event_outbox, link);
        list_remove(&loop->outboxes, &outbox->link);
        drop_posts(outbox->newest);
        event_outbox_init(outbox, outbox->from, outbox->to);
    }
}

/* Runs the posts published so far. A nested iteration continues with those that the outer one has fetched. */
static int run_posts(struct event_loop *loop) {
    int done = 0;
    struct event_post *post = loop->fetched ? NULL : atomic_exchange(&loop->posts, NULL);
    while (post) { /* reverse the order */
        struct event_post *older = post->next;
        post->next = loop->fetched;
        loop->fetched = post;
        post = older;
    }
    while ((post = loop->fetched)) {
        loop->fetched = post->next;
        post->run(post);
        done++;
    }
    loop->posts_busy = done > 0;
    return done;
}

/* The loop is about to sleep. False: posts have arrived meanwhile. */
static bool fall_asleep(struct event_loop *loop) {
    atomic_store(&loop->asleep, true);
    return !atomic_load(&loop->posts);
}

void event_loop_free(struct event_loop *loop) {
    must_equal(loop->depth, 0);
    drop_outboxes(loop);
    event_loop_drop_posts(loop);
    while (loop->deferred.len) run_deferred(loop);
    while (loop->attachments.len) {
        struct event_attachment *attachment =
            container_of(list_first(&loop->attachments), struct event_attachment, link);
        list_remove(&loop->attachments, &attachment->link);
        attachment->free(attachment);
        while (loop->deferred.len) run_deferred(loop);
    }
    drop_outboxes(loop);
    event_loop_drop_posts(loop);
    close(loop->epoll_fd);
    close(loop->wake_fd);
    heap_clear(&loop->timers);
    mem_free(loop);
}

/* --- Descriptors --- */

static uint32_t epoll_mask(int mask) {
    return ((mask & EVENT_READ) ? EPOLLIN : 0u) | ((mask & EVENT_WRITE) ? EPOLLOUT : 0u);
}

int event_io_set(struct event_loop *loop, struct event_io *io, int fd, int mask,
                 void (*ready)(struct event_io *, int)) {
    check_thread(loop);
    if (io->mask && (io->fd != fd || !mask)) event_io_remove(loop, io);
    io->ready = ready;
    if (!mask) return 0;
    if (io->mask == mask) return 0;
    struct epoll_event event = {.events = epoll_mask(mask), .data.ptr = io};
    if (epoll_ctl(loop->epoll_fd, io->mask ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0) return -errno;
    io->fd = fd;
    io->mask = mask;
    return 0;
}

void event_io_remove(struct event_loop *loop, struct event_io *io) {
    if (!io->mask) return;
    struct epoll_event unused = {0};
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, io->fd, &unused);
    io->fd = -1;
    io->mask = 0;
    for (struct dispatch *d = loop->dispatch; d; d = d->outer)
        for (int i = d->next; i < d->count; i++)
            if (d->events[i].data.ptr == io) d->events[i].data.ptr = NULL;
}

static int dispatch_events(struct dispatch *dispatch) {
    int done = 0;
    while (dispatch->next < dispatch->count) {
        const struct epoll_event *event = &dispatch->events[dispatch->next++];
        struct event_io *io = event->data.ptr;
        if (io == NULL) continue;
        int mask = ((event->events & EPOLLIN) ? EVENT_READ : 0) | ((event->events & EPOLLOUT) ? EVENT_WRITE : 0);
        if (event->events & (EPOLLERR | EPOLLHUP)) mask = EVENT_READ | EVENT_WRITE;
        io->ready(io, mask);
        done++;
    }
    return done;
}

/* --- Timers --- */

static int64_t timer_number(const void *timer) {
    return (int64_t)((const struct event_timer *)timer)->due_us;
}
static void timer_set_index(void *timer, size_t index) {
    ((struct event_timer *)timer)->heap_index = (uint32_t)index + 1;
}
static const struct heap_type timers_type = {timer_number, timer_set_index};

static uint64_t time_after(uint64_t now, uint64_t us) {
    return us > INT64_MAX - now ? INT64_MAX : now + us;
}

void event_timer_cancel(struct event_loop *loop, struct event_timer *timer) {
    if (!timer->heap_index) return;
    check_thread(loop);
    must(timer->heap_index <= loop->timers.len && loop->timers.items[timer->heap_index - 1] == timer);
    heap_remove(&loop->timers, &timers_type, timer->heap_index - 1);
    timer->heap_index = 0;
}

void event_timer_set(struct event_loop *loop, struct event_timer *timer, uint64_t after_us,
                     uint64_t (*fire)(struct event_timer *)) {
    check_thread(loop);
    event_timer_cancel(loop, timer);
    /* A timer without delay fires at the end of this turn, which compares with the cached clock; one that is set by a
     * timer fires in the next turn, after the events that are pending. */
    uint64_t now = after_us || loop->firing ? clock_monotonic_us() : clock_mono();
    timer->due_us = time_after(now, after_us);
    timer->fire = fire;
    heap_add(&loop->timers, &timers_type, timer);
}

/* The time of the next timer, INT64_MAX without one. */
static uint64_t next_due(const struct event_loop *loop) {
    const struct event_timer *first = heap_first(&loop->timers);
    return first ? first->due_us : INT64_MAX;
}

static int fire_timers(struct event_loop *loop) {
    uint64_t now = clock_mono();
    int done = 0;
    loop->firing++;
    while (next_due(loop) <= now) {
        struct event_timer *timer = heap_first(&loop->timers);
        event_timer_cancel(loop, timer);
        uint64_t again = timer->fire(timer); /* 0: the timer may be gone */
        done++;
        if (again && !timer->heap_index) {
            timer->due_us = time_after(now, again);
            heap_add(&loop->timers, &timers_type, timer);
        }
    }
    loop->firing--;
    return done;
}

/* --- Polled sources --- */

void event_poller_add(struct event_loop *loop, struct event_poller *poller) {
    poller->last_work_us = 0;
    list_append(&loop->pollers, &poller->link);
}

void event_poller_remove(struct event_loop *loop, struct event_poller *poller) {
    if (!list_is_linked(&poller->link)) return;
    if (loop->next_poller == &poller->link) loop->next_poller = poller->link.next;
    list_remove(&loop->pollers, &poller->link);
}

static int poll_sources(struct event_loop *loop) {
    int done = 0;
    struct list_link *outer = loop->next_poller;
    for (struct list_link *link = loop->pollers.head.next; link != &loop->pollers.head; link = loop->next_poller) {
        struct event_poller *poller = container_of(link, struct event_poller, link);
        loop->next_poller = link->next;
        int found = poller->poll(poller);
        if (found > 0) {
            /* The poller may have left the loop, but lives until the end of the turn. */
            poller->last_work_us = clock_mono();
            done += found;
        }
    }
    /* A nested iteration may have removed the poller that an outer one would have continued with; then the outer round
     * ends. */
    loop->next_poller = outer && list_is_linked(outer) ? outer : &loop->pollers.head;
    return done;
}

/* last_work_us may lag behind the clock (CLOCK_LAG_US). A source that does not spin may have left work: its
 * prepare_sleep() says so. */
static bool sources_busy(const struct event_loop *loop) {
    uint64_t now = clock_mono();
    bool spins = now >= loop->spin_from_us;
    for (struct list_link *link = loop->pollers.head.next; link != &loop->pollers.head; link = link->next) {
        const struct event_poller *poller = container_of(link, struct event_poller, link);
        if (poller->spin_us && poller->last_work_us == now) return true;
        if ((spins || poller->spin_us >= EVENT_SPIN_ALWAYS_US) && now - poller->last_work_us < poller->spin_us)
            return true;
    }
    return false;
}

static bool sources_let_sleep(struct event_loop *loop) {
    list_each_entry(&loop->pollers, struct event_poller, link, poller) {
        if (poller->prepare_sleep && !poller->prepare_sleep(poller)) return false;
    }
    return true;
}

void event_loop_defer(struct event_loop *loop, struct event_deferred *deferred, void (*run)(struct event_deferred *)) {
    check_thread(loop);
    if (list_is_linked(&deferred->link)) return;
    deferred->run = run;
    list_append(&loop->deferred, &deferred->link);
}

struct event_attachment *event_loop_attachment(struct event_loop *loop, const void *key) {
    list_each_entry(&loop->attachments, struct event_attachment, link, attachment)
        if (attachment->key == key) return attachment;
    return NULL;
}

void event_loop_attach(struct event_loop *loop, struct event_attachment *attachment) {
    list_prepend(&loop->attachments, &attachment->link); /* the last one attached is the first one freed */
}

void event_loop_set_hooks(struct event_loop *loop, const struct event_hooks *hooks) {
    loop->hooks = hooks ? *hooks : (struct event_hooks){0};
}

void event_loop_adopt(struct event_loop *loop) {
    if (loop->thread) loop->thread = thread_here();
}

const struct event_loop_stats *event_loop_stats(const struct event_loop *loop) {
    return &loop->stats;
}

/* --- The turn --- */

static int wait_events(struct event_loop *loop, struct epoll_event *events, int64_t timeout_us) {
    int count;
    if (timeout_us > 0 && !loop->no_pwait2) {
        struct timespec limit = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};
        count = epoll_pwait2(loop->epoll_fd, events, EVENTS_A_TURN, &limit, NULL);
        if (count >= 0 || errno != ENOSYS) return count < 0 ? 0 : count;
        loop->no_pwait2 = true; /* kernels before 5.11 */
    }
    int64_t ms = timeout_us < 0 ? -1 : (timeout_us + 999) / 1000;
    count = epoll_wait(loop->epoll_fd, events, EVENTS_A_TURN, ms > 1000000 ? 1000000 : (int)ms);
    return count < 0 ? 0 : count;
}

static int64_t until_next_timer(const struct event_loop *loop, int64_t timeout_us) {
    uint64_t due = next_due(loop);
    if (due == INT64_MAX || timeout_us == 0) return timeout_us;
    uint64_t now = clock_monotonic_us();
    int64_t left = due > now ? (int64_t)(due - now) : 0;
    return timeout_us < 0 || left < timeout_us ? left : timeout_us;
}

/* --- Busy CPUs --- */

static void cpu_was_lost(struct event_loop *loop, uint64_t lost_us) {
    uint64_t now = clock_mono(), forgiven_us = (now - loop->lost_at_us) / LOST_SHARE;
    loop->lost_us = lost_us + (loop->lost_us > forgiven_us ? loop->lost_us - forgiven_us : 0);
    loop->lost_at_us = now;
    if (loop->lost_us < LOST_SUM_US) return;
    uint64_t pause_us = loop->lost_us * LOST_FACTOR;
    loop->lost_us = 0;
    bool soon = loop->pause_us && now - lost_us < loop->spin_from_us + loop->pause_us;
    if (soon && pause_us < loop->pause_us * 2) pause_us = loop->pause_us * 2;
    if (pause_us > PAUSE_MAX_US) pause_us = PAUSE_MAX_US;
    loop->pause_us = pause_us;
    loop->spin_from_us = now + pause_us;
    loop->stats.spin_pauses++;
}

/* Yields the CPU after polls that began at `since_us` and found nothing. */
static void yield(struct event_loop *loop, uint64_t since_us) {
    if (since_us < loop->spin_from_us) return;
    sched_yield();
    loop->stats.yields++;
    clock_follow();
    if (clock_mono() - since_us >= LOST_US) cpu_was_lost(loop, clock_mono() - since_us);
}

static uint64_t time_us(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

/* Work hides a lost CPU from yield(). A yield may count as an involuntary switch. */
static void look_at_usage(struct event_loop *loop) {
    const struct usage before = loop->usage;
    struct rusage used;
    if (getrusage(RUSAGE_THREAD, &used) < 0) return;
    struct usage now = {.thread = pthread_self(),
                        .at_us = clock_mono(),
                        .cpu_us = time_us(&used.ru_utime) + time_us(&used.ru_stime),
                        .sleep_us = loop->stats.sleep_us,
                        .preempted = (uint64_t)used.ru_nivcsw,
                        .yields = loop->stats.yields};
    loop->usage = now;
    if (!pthread_equal(before.thread, now.thread) || now.at_us - before.at_us > USAGE_STALE_US) return;
    uint64_t awake_us = now.at_us - before.at_us - (now.sleep_us - before.sleep_us),
             ran_us = now.cpu_us - before.cpu_us;
    uint64_t yields = now.yields - before.yields, preempted = now.preempted - before.preempted;
    if (preempted <= yields || (preempted - yields) * SLICE_US < ran_us) return;
    if (awake_us > ran_us && awake_us - ran_us >= awake_us / 4) cpu_was_lost(loop, awake_us - ran_us);
}

/* Other threads may use the loop during the wait. They may remove a descriptor whose event has been fetched; events are
 * level-triggered, so the ones that are left can be fetched again. */
static __attribute__((noinline)) int wait_shared(struct event_loop *loop, struct epoll_event *events,
                                                 int64_t timeout_us) {
    loop->hooks.asleep(loop->hooks.context);
    int count = wait_events(loop, events, timeout_us);
    if (!loop->hooks.awake(loop->hooks.context)) return count;
    loop->thread = thread_here();
    return wait_events(loop, events, 0);
}

static inline int ask_for_events(struct event_loop *loop, struct epoll_event *events, int64_t timeout_us) {
    bool shared = __builtin_expect(loop->hooks.asleep != NULL, 0) && loop->depth == 1;
    return shared ? wait_shared(loop, events, timeout_us) : wait_events(loop, events, timeout_us);
}

/* Asks for events without sleeping, for the time of a short sleep. */
static int look_for_events(struct event_loop *loop, struct epoll_event *events) {
    uint64_t began = clock_monotonic_us();
    loop->short_sleeps = 0;
    clock_follow();
    if (clock_mono() < loop->spin_from_us) return 0;
    do {
        int count = ask_for_events(loop, events, 0);
        loop->stats.spins++;
        if (count) {
            loop->short_sleeps = SHORT_SLEEPS;
            return count;
        }
        if (loop->takes_posts && atomic_load_explicit(&loop->posts, memory_order_relaxed)) return 0;
        clock_follow();
        yield(loop, clock_mono());
    } while (clock_mono() >= loop->spin_from_us && clock_monotonic_us() - began < SHORT_SLEEP_US);
    return 0;
}

/* Waits unless work is known to be pending. Returns the number of events fetched. */
static int wait_turn(struct event_loop *loop, struct epoll_event *events, int64_t timeout_us) {
    if (loop->outboxes.len) publish_outboxes(loop);
    bool busy = loop->posts_busy || (loop->pollers.len && sources_busy(loop));
    if (busy) {
        if (clock_mono() - loop->usage.at_us >= USAGE_US && clock_mono() >= loop->spin_from_us) look_at_usage(loop);
        loop->stats.spins++;
        if (!loop->descriptors_busy && clock_mono() - loop->last_epoll_us < EPOLL_INTERVAL_US &&
            !atomic_load_explicit(&loop->woken, memory_order_relaxed)) {
            clock_follow();
            return 0;
        }
        timeout_us = 0;
    }
    if (loop->deferred.len && loop->depth == 1) timeout_us = 0;
    timeout_us = until_next_timer(loop, timeout_us);
    if (timeout_us != 0 && loop->pollers.len && !sources_let_sleep(loop)) timeout_us = 0;
    int count = 0;
    bool looks = loop->short_sleeps >= SHORT_SLEEPS && !loop->pollers.len;
    if (looks && (timeout_us < 0 || timeout_us > SHORT_SLEEP_US)) count = look_for_events(loop, events);
    if (count) timeout_us = 0;
    bool said_asleep = loop->prepared || (timeout_us != 0 && loop->takes_posts);
    loop->prepared = false;
    if (said_asleep && !fall_asleep(loop)) timeout_us = 0;
    uint64_t before = 0;
    if (timeout_us != 0) {
        before = clock_monotonic_us();
        loop->stats.sleeps++;
        uint64_t busy_us = before - loop->last_turn_us;
        loop->stats.busy_us += busy_us;
        if (busy_us > loop->stats.longest_us) loop->stats.longest_us = busy_us;
    }
    if (!count) count = ask_for_events(loop, events, timeout_us);
    if (said_asleep) atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
    clock_update();
    if (timeout_us != 0) {
        uint64_t slept = clock_mono() - before;
        loop->stats.sleep_us += slept;
        loop->short_sleeps = count && slept < SHORT_SLEEP_US ? loop->short_sleeps + 1 : 0;
        loop->last_turn_us = clock_mono();
    }
    loop->last_epoll_us = clock_mono();
    loop->descriptors_busy = count > 0;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr != loop) continue;
        /* Read the descriptor before the flag: a thread that wakes this one between the two has published its post
         * before this loop checks for posts. */
        uint64_t value;
        while (read(loop->wake_fd, &value, sizeof value) < 0 && errno == EINTR) {
        }
        atomic_exchange(&loop->woken, false);
        events[i].data.ptr = NULL;
    }
    return count;
}

int event_loop_fd(const struct event_loop *loop) {
    return loop->epoll_fd;
}

uint64_t event_loop_next_due(const struct event_loop *loop) {
    return next_due(loop);
}

bool event_loop_prepare_wait(struct event_loop *loop, bool spin) {
    if (loop->outboxes.len) publish_outboxes(loop);
    clock_follow();
    if (loop->posts_busy || loop->fetched || loop->deferred.len || next_due(loop) <= clock_mono()) return false;
    if (spin && loop->pollers.len && sources_busy(loop)) return false;
    if (loop->pollers.len && !sources_let_sleep(loop)) return false;
    loop->prepared = loop->takes_posts;
    return !loop->prepared || fall_asleep(loop);
}

/* Whether only the polled sources can have work now. */
static bool only_sources(const struct event_loop *loop) {
    uint64_t now = clock_mono();
    return !loop->stopped && !loop->descriptors_busy && now - loop->last_epoll_us < EPOLL_INTERVAL_US &&
           !atomic_load_explicit(&loop->woken, memory_order_relaxed) &&
           !atomic_load_explicit(&loop->posts, memory_order_relaxed) && (loop->depth > 1 || loop->deferred.len == 0) &&
           next_due(loop) > now;
}

static int poll_turn(struct event_loop *loop, bool may_spin) {
    int done = poll_sources(loop);
    while (done == 0 && may_spin && sources_busy(loop) && only_sources(loop)) {
        clock_follow();
        uint64_t since_us = clock_mono();
        for (int looks = 0; done == 0 && looks < LOOKS_A_CLOCK; looks++, loop->stats.spins++) done = poll_sources(loop);
        if (done == 0) yield(loop, since_us);
    }
    return done;
}

bool event_loop_is_turning(const struct event_loop *loop) {
    return loop->depth > 0;
}

int event_loop_turn(struct event_loop *loop, int64_t timeout_us) {
    struct epoll_event events[EVENTS_A_TURN];
    bool outermost = ++loop->depth == 1;
    check_thread(loop);
    loop->thread = thread_here();
    if (outermost && loop->hooks.before_wait) loop->hooks.before_wait(loop->hooks.context);
    struct dispatch dispatch = {.outer = loop->dispatch, .events = events};
    dispatch.count = wait_turn(loop, events, timeout_us);
    loop->dispatch = &dispatch;
    loop->stats.turns++;
    int done = 0;
    if (loop->pollers.len) done += poll_turn(loop, timeout_us != 0 && dispatch.count == 0);
    done += dispatch_events(&dispatch);
    if (loop->takes_posts &&
        (loop->fetched || loop->posts_busy || atomic_load_explicit(&loop->posts, memory_order_relaxed)))
        done += run_posts(loop);
    loop->dispatch = dispatch.outer;
    if (loop->timers.len) done += fire_timers(loop);
    if (outermost && loop->deferred.len) run_deferred(loop);
    must_equal(outermost, loop->depth == 1); /* nested iterations have ended */
    loop->depth--;
    if (outermost) loop->thread = NULL;
    return done;
}
