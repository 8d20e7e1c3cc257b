/* context.c: contexts of libvalkeyrdma. See library.h and valkeyrdma.h. */
#include "client/library.h"
#include "client/verbs.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "net/rdma/loop.h"
#include "net/rdma/wire.h"
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* --- The process --- */

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list contexts;
static atomic_uint generation;

static void context_take(struct valkeyrdma_context *context) {
    if (pthread_mutex_trylock(&context->lock) == 0) return;
    atomic_fetch_add_explicit(&context->contenders, 1, memory_order_relaxed);
    pthread_mutex_lock(&context->lock);
    atomic_fetch_sub_explicit(&context->contenders, 1, memory_order_relaxed);
}

static void context_give(struct valkeyrdma_context *context) {
    pthread_mutex_unlock(&context->lock);
}

static void context_before_fork(void) {
    pthread_mutex_lock(&contexts_lock);
    list_each(&contexts, link) context_take(container_of(link, struct valkeyrdma_context, link));
}

static void release_all(void) {
    list_each(&contexts, link) context_give(container_of(link, struct valkeyrdma_context, link));
    pthread_mutex_unlock(&contexts_lock);
}

static void after_fork_in_child(void) {
    generation++;
    release_all();
    list_init(&contexts); /* they are the parent's */
}

static void process_start(void) {
    list_init(&contexts);
    log_level = LOG_LEVEL_NOTHING; /* the log is standard output, which belongs to the program */
    pthread_atfork(context_before_fork, release_all, after_fork_in_child);
}

const char *valkeyrdma_version(void) {
    return PROJECT_VERSION;
}

int valkeyrdma_available(char *error, size_t error_size) {
    char text[VALKEYRDMA_ERROR_MAX];
    int result = verbs_load(text, sizeof text), count = 0;
    if (result < 0) {
        fail_text(error, error_size, text);
        return result;
    }
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (devices) ibv_free_device_list(devices);
    if (devices && count > 0) return 0;
    fail_text(error, error_size, "no RDMA device was found");
    return -ENODEV;
}

int valkeyrdma_set(const char *name, int64_t value) {
    static const struct {
        const char *name;
        int64_t least, most;
    } known[] = {
        {"busy-poll-us", 0, 1000000}, {"receive-buffer", RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX},
        {"keepalive-ms", 0, 3600000}, {"ack-timeout-ms", 0, 60000},
        {"traffic-class", -1, 255},   {"completion-vector", RDMA_VECTOR_AUTO, 65535},
        {"base-protocol", 0, 1},
    };
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i].name, name) != 0) i++;
    if (i == sizeof known / sizeof *known) return -ENOENT;
    if (value < known[i].least || value > known[i].most) return -ERANGE;
    switch (i) {
    case 0: rdma_settings.busy_poll_us = (uint32_t)value; break;
    case 1: rdma_settings.rx_size = (uint32_t)value; break;
    case 2: rdma_settings.keepalive_ms = (uint32_t)value; break;
    case 3: rdma_settings.ack_timeout_ms = (uint32_t)value; break;
    case 4: rdma_settings.traffic_class = (int)value; break;
    case 5: rdma_settings.completion_vector = (int)value; break;
    default: rdma_settings.features = value ? 0 : RDMA_FEATURE_RING | RDMA_FEATURE_POLLED; break;
    }
    return 0;
}

/* --- Life --- */

static void timer_ready(struct event_io *io, int mask) {
    struct valkeyrdma_context *context = container_of(io, struct valkeyrdma_context, timer_io);
    uint64_t count;
    if (read(context->timer_fd, &count, sizeof count) == sizeof count) context->timer_due = 0;
}

static void destroy(struct valkeyrdma_context *context) {
    if (context->timer_fd >= 0) {
        if (context->loop) event_io_remove(context->loop, &context->timer_io);
        close(context->timer_fd);
    }
    if (context->loop) event_loop_free(context->loop);
    if (context->leader_fd >= 0) close(context->leader_fd);
    pthread_mutex_destroy(&context->lock);
    mem_free(context);
}

struct valkeyrdma_context *valkeyrdma_context_new(char *error, size_t error_size) {
    char text[VALKEYRDMA_ERROR_MAX];
    pthread_once(&process_once, process_start);
    int result = verbs_load(text, sizeof text);
    if (result < 0) {
        fail_text(error, error_size, text);
        errno = -result;
        return NULL;
    }
    pthread_mutex_lock(&contexts_lock); /* a fork may not happen in the middle */
    struct valkeyrdma_context *context = mem_calloc(1, sizeof *context);
    pthread_mutex_init(&context->lock, NULL);
    context->generation = generation;
    context->timer_io.fd = -1;
    list_init(&context->waiters);
    list_init(&context->connections);
    list_init(&context->changed);
    list_init(&context->regions);
    list_init(&context->placements);
    list_init(&context->complete);
    context->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    context->leader_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (context->timer_fd >= 0 && context->leader_fd >= 0) context->loop = event_loop_try_new();
    result = context->loop ? 0 : -errno;
    if (result == 0)
        result = event_io_set(context->loop, &context->timer_io, context->timer_fd, EVENT_READ, timer_ready);
    if (result == 0) {
        event_loop_take_posts(context->loop);
        list_append(&contexts, &context->link);
    } else
        destroy(context);
    pthread_mutex_unlock(&contexts_lock);
    if (result == 0) return context;
    snprintf(text, sizeof text, "a context cannot be created: %s", strerror(-result));
    fail_text(error, error_size, text);
    errno = -result;
    return NULL;
}

void valkeyrdma_context_free(struct valkeyrdma_context *context) {
    if (!context || !context_is_ours(context)) return;
    pthread_mutex_lock(&contexts_lock);
    context_take(context);
    placements_destroy(context);
    while (context->connections.len)
        connection_orphan(container_of(list_first(&context->connections), struct valkeyrdma, link));
    while (context->regions.len)
        region_destroy(container_of(list_first(&context->regions), struct valkeyrdma_region, link));
    list_remove(&contexts, &context->link);
    context_give(context);
    destroy(context);
    pthread_mutex_unlock(&contexts_lock);
}

bool context_is_ours(const struct valkeyrdma_context *context) {
    return context->generation == atomic_load_explicit(&generation, memory_order_relaxed);
}

static bool lock_context(struct valkeyrdma_context *context) {
    if (!context_is_ours(context)) return false;
    context_take(context);
    return true;
}
bool context_enter(struct valkeyrdma_context *context) {
    enum { LAG_US = 20 }; /* less than any time that the transport measures with the cached clock */
    if (!lock_context(context)) return false;
    clock_follow_within(LAG_US); /* the cached time belongs to the thread */
    return true;
}

/* --- Waiting --- */

/* A thread that waits while another one leads. */
struct waiter {
    struct list_link link;
    int fd; /* eventfd; -1: there was none left, and the thread looks again by itself */
};

static void wake(int fd) { /* also in signal handlers */
    uint64_t one = 1;
    int saved = errno;
    while (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    errno = saved;
}

static void wake_waiters(struct valkeyrdma_context *context) {
    list_each(&context->waiters, link) wake(container_of(link, struct waiter, link)->fd);
}

void context_turn(struct valkeyrdma_context *context) {
    context->turns++;
    if (event_loop_turn(context->loop, 0) == 0) return;
    if (context->leading) wake(context->leader_fd); /* it may wait for what has just been handled */
    if (context->waiters.len) wake_waiters(context);
}

/* Lets the descriptor become readable when the next timer is due. One that is set too early stays: its wake-up is
 * cheaper than a system call for each change. */
static void arm_timer(struct valkeyrdma_context *context) {
    uint64_t due = event_loop_next_due(context->loop);
    if (due == INT64_MAX || (context->timer_due && context->timer_due <= due)) return;
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(due / 1000000), .tv_nsec = (long)(due % 1000000) * 1000 + 1}};
    if (timerfd_settime(context->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0) context->timer_due = due;
}

void context_leave(struct valkeyrdma_context *context) {
    if (context->leading) arm_timer(context); /* for a timer that was set while the leader waits */
    context_give(context);
}

/* poll() for a descriptor, and for an eventfd (-1: none), which it reads, until the deadline (INT64_MAX: none). False:
 * a signal was handled. */
static bool wait_for_descriptors(int fd, int event_fd, uint64_t deadline_us, int most_ms) {
    struct pollfd descriptors[2] = {{.fd = fd, .events = POLLIN}, {.fd = event_fd, .events = POLLIN}};
    uint64_t now = clock_monotonic_us(), left_ms = deadline_us > now ? (deadline_us - now + 999) / 1000 : 0;
    int ms = deadline_us == INT64_MAX ? -1 : left_ms > 1000000 ? 1000000 : (int)left_ms;
    if (most_ms >= 0 && (ms < 0 || ms > most_ms)) ms = most_ms;
    if (poll(descriptors, 2, ms) < 0) return errno != EINTR;
    uint64_t count;
    while (descriptors[1].revents && read(event_fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    return true;
}

static bool follow(struct valkeyrdma_context *context, uint64_t deadline_us) {
    enum { LOOK_MS = 10 };
    struct waiter waiter = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    list_append(&context->waiters, &waiter.link);
    context_give(context);
    bool undisturbed = wait_for_descriptors(waiter.fd, -1, deadline_us, waiter.fd < 0 ? LOOK_MS : -1);
    context_take(context);
    list_remove(&context->waiters, &waiter.link);
    if (waiter.fd >= 0) close(waiter.fd);
    return undisturbed;
}

static bool lead(struct valkeyrdma_context *context, uint64_t deadline_us) {
    enum { SPIN_US = 50 };
    bool undisturbed = true;
    int64_t spin_us = 0;
    context->leading = true;
    if (event_loop_prepare_wait(context->loop, true)) {
        arm_timer(context);
        context_give(context);
        undisturbed = wait_for_descriptors(event_loop_fd(context->loop), context->leader_fd, deadline_us, -1);
        context_take(context);
    } else if (atomic_load_explicit(&context->contenders, memory_order_relaxed) > 0) {
        context_give(context);
        sched_yield();
        context_take(context);
    } else
        spin_us = SPIN_US; /* the loop polls the device before it sleeps, for "busy-poll-us" */
    context->leading = false;
    context->turns++;
    if (event_loop_turn(context->loop, spin_us) && context->waiters.len) wake_waiters(context);
    return undisturbed;
}

int context_wait(struct valkeyrdma_context *context, bool (*reached)(const void *argument), const void *argument,
                 int timeout_ms) {
    if (reached(argument)) return 0;
    context_turn(context);
    if (reached(argument)) return 0;
    if (timeout_ms == 0) return -EAGAIN;
    clock_follow();
    uint64_t deadline_us = timeout_ms < 0 ? INT64_MAX : clock_mono() + CLOCK_LAG_US + (uint64_t)timeout_ms * 1000;
    int result = 0;
    while (result == 0 && !reached(argument)) {
        clock_follow();
        if (clock_mono() >= deadline_us)
            result = -ETIMEDOUT;
        else if (!(context->leading ? follow(context, deadline_us) : lead(context, deadline_us)) ||
                 (atomic_load_explicit(&context->interrupted, memory_order_relaxed) &&
                  atomic_exchange(&context->interrupted, false)))
            result = reached(argument) ? 0 : -EINTR;
    }
    if (!context->leading && context->waiters.len)
        wake(container_of(list_first(&context->waiters), struct waiter, link)->fd); /* it leads from now on */
    return result;
}

void context_notify(struct valkeyrdma_context *context) {
    if (context->leading) wake(context->leader_fd);
    wake_waiters(context);
}

static bool has_changes(const void *argument) {
    const struct valkeyrdma_context *context = argument;
    return context->changed.len > 0 || context->complete.len > 0;
}

int valkeyrdma_context_wait(struct valkeyrdma_context *context, int timeout_ms) {
    if (!context_enter(context)) return -EPERM;
    int result = context_wait(context, has_changes, context, timeout_ms);
    context_leave(context);
    return result == 0 ? 1 : result;
}

int valkeyrdma_context_process(struct valkeyrdma_context *context) {
    enum { TURNS_MAX = 16 };
    if (!context_enter(context)) return -EPERM;
    context->interrupted = false;
    context_turn(context);
    int turns = 1;
    while (!has_changes(context) && !event_loop_prepare_wait(context->loop, false)) {
        if (turns++ == TURNS_MAX) {
            event_loop_wake(context->loop); /* the caller comes again at once, and does its own work meanwhile */
            break;
        }
        context_turn(context);
    }
    /* A caller that has connections to look at calls again before it waits. One that does not is woken again. */
    if (has_changes(context) && !event_loop_prepare_wait(context->loop, false)) event_loop_wake(context->loop);
    arm_timer(context);
    int result = has_changes(context);
    context_leave(context);
    return result;
}

void valkeyrdma_context_wake(struct valkeyrdma_context *context) {
    if (!context_is_ours(context)) return;
    context->interrupted = true;
    event_loop_wake(context->loop);
    wake(context->leader_fd);
}

int valkeyrdma_context_fd(const struct valkeyrdma_context *context) {
    return event_loop_fd(context->loop);
}

struct valkeyrdma *valkeyrdma_context_next(struct valkeyrdma_context *context) {
    struct valkeyrdma *c = NULL;
    if (!lock_context(context)) return NULL; /* takes no time of the clock */
    if (context->changed.len) {
        c = container_of(list_first(&context->changed), struct valkeyrdma, changed_link);
        list_remove(&context->changed, &c->changed_link);
    }
    context_give(context);
    return c;
}

void context_finish(struct valkeyrdma_context *context, uint64_t limit_us) {
    const struct rdma_loop *transport = rdma_loop_find(context->loop);
    uint64_t end = clock_monotonic_us() + limit_us;
    while (transport && transport->connections.len) {
        uint64_t now = clock_monotonic_us();
        if (now >= end) return;
        event_loop_turn(context->loop, (int64_t)(end - now));
    }
}
