/* rdma_loop.c: the RDMA state of an event loop, its timers, and what the loops of the process share: settings,
 * counters, the list of loops. See rdma_device.h. */
#include "lib/clock.h"
#include "lib/memory.h"
#include "net/rdma_connection.h"
#include "net/rdma_srq.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    TIDY_US = 10 * 1000,   /* between two rounds of tidying, at least … */
    TIDY_BUDGET_US = 1000, /* … of this duration each, or of one buffer … */
    TIDY_SHARE = 10,       /* … and at most this part of the thread's time, however slow the device is */
    STATS_WAIT_MS = 100,
};

struct rdma_settings rdma_settings = {
    .rx_size = RDMA_RX_SIZE_DEFAULT,
    .completion_vector = -1,
    .busy_poll_us = 20,
    .keepalive_ms = 3000,
    .connect_timeout_ms = 5000,
    .ack_timeout_ms = 250,
    .traffic_class = -1,
    .trust_timeout_ms = 10000,
    .features = RDMA_FEATURE_RING | RDMA_FEATURE_POLLED,
    .poll_after = 64,
    .send_memory = 256 * 1024 * 1024,
    .zero_copy_min = RDMA_ZERO_COPY_MIN_DEFAULT,
};
#ifdef ABLATION
_Atomic uint32_t rdma_left_out;
#endif

/* The process */

static bool in_forked_child;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stats_shown = PTHREAD_COND_INITIALIZER;
static struct list registry;             /* of rdma_loops */
static struct rdma_stats finished_stats; /* of loops that are gone */

static void process_init(void) {
    /* Before anything is registered. Where the kernel copies pinned pages of private memory it is not needed, and must
     * not be called: libibverbs would hide all registered memory from children, values included (rdma_values.h). */
    if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) ibv_fork_init();
    list_init(&registry);
}

void rdma_settings_changed(void) {
    pthread_mutex_lock(&registry_lock);
    rdma_values_changed();
    pthread_mutex_unlock(&registry_lock);
}

bool rdma_usable(void) {
    return !in_forked_child;
}
void rdma_after_fork_child(void) {
    in_forked_child = true;
}

static void add_stats(struct rdma_stats *sum, const struct rdma_stats *part) {
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)part;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) to[i] += from[i];
}

static void loop_trim(struct rdma_loop *owner) {
    list_each(&owner->devices, link) {
        struct rdma_device *device = container_of(link, struct rdma_device, link);
        rdma_polls_tidy(device);
        rdma_values_tidy(device);
        rdma_memory_trim(&device->memory);
    }
}

static void show_stats(struct event_post *post) {
    struct rdma_loop *owner = container_of(post, struct rdma_loop, show_stats);
    pthread_mutex_lock(&registry_lock);
    bool trim = owner->trim;
    owner->trim = false;
    if (trim) { /* slow, so do it after the others were released */
        pthread_mutex_unlock(&registry_lock);
        loop_trim(owner);
        pthread_mutex_lock(&registry_lock);
    }
    owner->shown = owner->stats;
    owner->asked = false;
    pthread_cond_broadcast(&stats_shown);
    pthread_mutex_unlock(&registry_lock);
}

/* Requests the loops of other threads to copy their counters, and waits for it; a thread that is stuck does not delay
 * the caller for long. */
static void ask_stats(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STATS_WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    list_each(&registry, link) {
        struct rdma_loop *owner = container_of(link, struct rdma_loop, registry_link);
        if (!owner->joined || owner->asked) continue;
        owner->asked = true;
        owner->show_stats.run = show_stats;
        event_loop_post(owner->loop, &owner->show_stats);
    }
    list_each(&registry, link) {
        const struct rdma_loop *owner = container_of(link, struct rdma_loop, registry_link);
        while (owner->asked && pthread_cond_timedwait(&stats_shown, &registry_lock, &until) != ETIMEDOUT) {
        }
    }
}

const struct rdma_stats *rdma_stats(void) {
    static _Thread_local struct rdma_stats sum;
    pthread_once(&process_once, process_init);
    pthread_mutex_lock(&registry_lock);
    ask_stats();
    sum = finished_stats;
    list_each(&registry, link) {
        const struct rdma_loop *owner = container_of(link, struct rdma_loop, registry_link);
        add_stats(&sum, owner->joined ? &owner->shown : &owner->stats);
    }
    pthread_mutex_unlock(&registry_lock);
    sum.registered[RDMA_MEMORY_VALUES] = rdma_values_bytes();
    sum.registered_bytes += rdma_values_bytes();
    return &sum;
}

void rdma_trim(struct event_loop *loop) {
    loop_trim(rdma_loop_of(loop));
    pthread_mutex_lock(&registry_lock);
    list_each(&registry, link) {
        struct rdma_loop *owner = container_of(link, struct rdma_loop, registry_link);
        owner->trim = owner->joined;
    }
    ask_stats();
    pthread_mutex_unlock(&registry_lock);
}

bool rdma_join(struct event_loop *loop) {
    char error[300];
    struct rdma_loop *owner = rdma_loop_of(loop);
    pthread_mutex_lock(&registry_lock);
    owner->joined = true;
    pthread_mutex_unlock(&registry_lock);
    return rdma_loop_open(owner, error, sizeof error) == 0;
}

struct rdma_loop *rdma_loop_find(const struct event_loop *loop) {
    struct rdma_loop *found = NULL;
    pthread_mutex_lock(&registry_lock);
    list_each(&registry, link) {
        struct rdma_loop *owner = container_of(link, struct rdma_loop, registry_link);
        if (owner->loop == loop) found = owner;
    }
    pthread_mutex_unlock(&registry_lock);
    return found;
}

void rdma_loops_visit_others(const struct rdma_loop *self, void (*visit)(struct rdma_loop *other, void *context),
                             void *context) {
    pthread_mutex_lock(&registry_lock);
    list_each(&registry, link) {
        struct rdma_loop *other = container_of(link, struct rdma_loop, registry_link);
        if (other != self) visit(other, context);
    }
    pthread_mutex_unlock(&registry_lock);
}

/* The state of a loop */

static const char loop_key;

static uint64_t loop_tick(struct event_timer *timer) {
    struct rdma_loop *owner = container_of(timer, struct rdma_loop, tick);
    if (!rdma_usable()) return 0;
    uint64_t now = clock_mono();
    owner->ticked_before_us = owner->ticked_us;
    owner->ticked_us = now;
    list_each(&owner->connections, link) rdma_connection_tick(container_of(link, struct rdma_connection, link), now);
    rdma_untrusted_tick(owner);
    list_each(&owner->devices, device_link) {
        struct rdma_device *device = container_of(device_link, struct rdma_device, link);
        device->memory.growths_left = RDMA_GROWTHS_A_TICK;
        rdma_shared_rearm(device);
        if (!device->starved.len) continue;
        rdma_device_relieve(device);
        rdma_device_feed(device);
    }
    return owner->connections.len ? RDMA_TICK_US : 0;
}

void rdma_loop_tick_start(struct rdma_loop *owner) {
    if (owner->tick.heap_index) return;
    owner->ticked_us = owner->ticked_before_us = clock_monotonic_us();
    event_timer_set(owner->loop, &owner->tick, RDMA_TICK_US, loop_tick);
}

/* Work that can wait: buffers that were given back, unused memory, receives that the device did not accept. */
static uint64_t loop_tidy(struct event_timer *timer) {
    struct rdma_loop *owner = container_of(timer, struct rdma_loop, tidy);
    if (!rdma_usable()) return 0;
    uint64_t began = clock_monotonic_us(), now = clock_mono();
    bool age = now - owner->aged_us >= RDMA_MEMORY_AGE_US, soon = false, later = false;
    if (age) owner->aged_us = now;
    list_each(&owner->devices, link) {
        struct rdma_device *device = container_of(link, struct rdma_device, link);
        if (!rdma_receives_retry(device)) soon = true;
        if (rdma_memory_tidy(&device->memory, TIDY_BUDGET_US)) soon = true;
        if (!age || rdma_memory_age(&device->memory)) later = true;
        if (rdma_values_tidy(device)) later = true;
        rdma_polls_tidy(device);
    }
    uint64_t ended = clock_monotonic_us(), pause_us = (ended - began) * (TIDY_SHARE - 1);
    if (pause_us < TIDY_US) pause_us = TIDY_US;
    if (pause_us > RDMA_MEMORY_AGE_US) pause_us = RDMA_MEMORY_AGE_US;
    owner->tidy_from_us = ended + pause_us;
    return soon ? pause_us : later ? RDMA_MEMORY_AGE_US : 0;
}

void rdma_loop_tidy_soon(struct rdma_loop *owner) {
    uint64_t now = clock_mono(), after_us = TIDY_US;
    if (owner->tidy_from_us > now + after_us) after_us = owner->tidy_from_us - now;
    if (!owner->tidy.heap_index || owner->tidy.due_us > now + after_us)
        event_timer_set(owner->loop, &owner->tidy, after_us, loop_tidy);
}

static void loop_free(struct event_attachment *attachment) {
    struct rdma_loop *owner = container_of(attachment, struct rdma_loop, attachment);
    if (!rdma_usable()) return; /* all of it belongs to the parent */
    while (owner->listeners.len)
        listener_close(&container_of(list_first(&owner->listeners), struct rdma_listener, link)->listener);
    list_each(&owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        c->conn.state = CONN_CLOSED;
        rdma_connection_finish(c);
    }
    list_each(&owner->devices, link) container_of(link, struct rdma_device, link)->removed =
        false;                       /* all devices are freed below */
    while (owner->connections.len) { /* free their memory before the devices */
        struct rdma_connection *c = container_of(list_first(&owner->connections), struct rdma_connection, link);
        rdma_connection_release(c);
    }
    event_timer_cancel(owner->loop, &owner->tick);
    event_timer_cancel(owner->loop, &owner->tidy);
    event_watch_remove(owner->loop, &owner->channel_watch);
    while (owner->devices.len) {
        struct rdma_device *device = container_of(list_first(&owner->devices), struct rdma_device, link);
        list_remove(&owner->devices, &device->link);
        rdma_device_free(device);
    }
    if (owner->channel) rdma_destroy_event_channel(owner->channel);
    pthread_mutex_lock(&registry_lock);
    list_remove(&registry, &owner->registry_link);
    add_stats(&finished_stats, &owner->stats);
    pthread_mutex_unlock(&registry_lock);
    mem_free(owner);
}

static void cm_ready(struct event_watch *watch, int mask) {
    rdma_cm_handle_events(container_of(watch, struct rdma_loop, channel_watch));
}

struct rdma_loop *rdma_loop_of(struct event_loop *loop) {
    struct event_attachment *attachment = event_loop_attachment(loop, &loop_key);
    if (attachment) return container_of(attachment, struct rdma_loop, attachment);
    pthread_once(&process_once, process_init);
    struct rdma_loop *owner = mem_calloc(1, sizeof *owner);
    owner->loop = loop;
    owner->channel_watch.fd = -1;
    list_init(&owner->devices);
    list_init(&owner->connections);
    list_init(&owner->listeners);
    list_init(&owner->untrusted);
    list_init(&owner->ready);
    owner->attachment.key = &loop_key;
    owner->attachment.free = loop_free;
    event_loop_attach(loop, &owner->attachment);
    pthread_mutex_lock(&registry_lock);
    rdma_values_start();
    list_append(&registry, &owner->registry_link);
    pthread_mutex_unlock(&registry_lock);
    return owner;
}

int rdma_loop_open(struct rdma_loop *owner, char *error, size_t error_size) {
    if (owner->channel) return 0;
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (devices) ibv_free_device_list(devices);
    if (!devices || count == 0) {
        snprintf(error, error_size, "no RDMA device was found");
        return -ENODEV;
    }
    struct rdma_event_channel *channel = rdma_create_event_channel();
    int result = channel ? rdma_set_nonblocking(channel->fd) : -errno;
    if (result == 0) result = event_watch_set(owner->loop, &owner->channel_watch, channel->fd, EVENT_READ, cm_ready);
    if (result == 0) {
        owner->channel = channel;
        return 0;
    }
    snprintf(error, error_size, "the connection manager (/dev/infiniband/rdma_cm) cannot be used: %s",
             strerror(-result));
    if (channel) rdma_destroy_event_channel(channel);
    return result;
}
