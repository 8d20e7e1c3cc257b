/* loop.c: the list of the process's loops, the sum of their counters, and tidying. See loop.h. */
#include "net/rdma/loop.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/rdma/device.h"
#include "net/rdma/srq.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

enum {
    TIDY_US = 10 * 1000,   /* the shortest pause between two rounds of tidying */
    TIDY_BUDGET_US = 1000, /* the duration of a round; one buffer may take longer */
    TIDY_SHARE = 10,       /* tidying takes one part in TIDY_SHARE of the thread's time, however slow the device is */
    STATS_WAIT_MS = 100,
};

/* --- The process --- */

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stats_shown;
static struct list registry = LIST_INIT(registry); /* of rdma_loops */
static struct rdma_stats finished_stats;           /* of loops that are gone */

static void process_init(void) {
    /* Before anything is registered. Where the kernel copies pinned pages of private memory it is not needed, and must
     * not be called: libibverbs would hide all registered memory from children, values included (values.h). */
    if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) ibv_fork_init();
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&stats_shown, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void add_stats(struct rdma_stats *sum, const struct rdma_stats *part) {
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)part;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) to[i] += from[i];
}

static void count_pauses(struct rdma_loop *owner) {
    owner->stats.poll_pauses = event_loop_stats(owner->loop)->spin_pauses;
}

static void loop_trim(struct rdma_loop *owner) {
    list_each_entry(&owner->devices, struct rdma_device, link, device) {
        rdma_polls_tidy(&device->polls);
        value_arena_trim();
        rdma_values_tidy(&device->values, UINT64_MAX);
        background_drain(BACKGROUND_REGISTER);
        background_drain(BACKGROUND_LAZY_FREE); /* which unmaps */
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
    count_pauses(owner);
    owner->shown = owner->stats;
    owner->asked = false;
    pthread_cond_broadcast(&stats_shown);
    pthread_mutex_unlock(&registry_lock);
}

/* Requests the loops of other threads to copy their counters, and waits for it; a thread that is stuck does not delay
 * the caller for long. */
static void ask_stats(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += STATS_WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    list_each_entry(&registry, struct rdma_loop, registry_link, owner) {
        if (!owner->joined || owner->asked) continue;
        owner->asked = true;
        owner->show_stats.run = show_stats;
        event_loop_post(owner->loop, &owner->show_stats);
    }
    list_each_entry(&registry, const struct rdma_loop, registry_link, owner) {
        while (owner->asked && pthread_cond_timedwait(&stats_shown, &registry_lock, &until) != ETIMEDOUT) {
        }
    }
}

void rdma_loops_sum(struct rdma_stats *sum) {
    pthread_once(&process_once, process_init);
    pthread_mutex_lock(&registry_lock);
    ask_stats();
    *sum = finished_stats;
    list_each_entry(&registry, struct rdma_loop, registry_link, owner) {
        if (!owner->joined) count_pauses(owner);
        add_stats(sum, owner->joined ? &owner->shown : &owner->stats);
    }
    pthread_mutex_unlock(&registry_lock);
    sum->registered[RDMA_MEMORY_VALUES] = rdma_values_bytes();
    sum->registered_bytes += rdma_values_bytes();
}

void rdma_loops_trim(struct rdma_loop *self) {
    loop_trim(self);
    pthread_mutex_lock(&registry_lock);
    list_each_entry(&registry, struct rdma_loop, registry_link, owner) owner->trim = owner->joined;
    ask_stats();
    pthread_mutex_unlock(&registry_lock);
}

void rdma_loop_joined(struct rdma_loop *owner) {
    pthread_mutex_lock(&registry_lock);
    owner->joined = true;
    pthread_mutex_unlock(&registry_lock);
}

struct rdma_loop *rdma_loop_find(const struct event_loop *loop) {
    struct rdma_loop *found = NULL;
    pthread_mutex_lock(&registry_lock);
    list_each_entry(&registry, struct rdma_loop, registry_link, owner)
        if (owner->loop == loop) found = owner;
    pthread_mutex_unlock(&registry_lock);
    return found;
}

void rdma_loops_visit_others(const struct rdma_loop *self, void (*visit)(struct rdma_loop *other, void *context),
                             void *context) {
    pthread_mutex_lock(&registry_lock);
    list_each_entry(&registry, struct rdma_loop, registry_link, other)
        if (other != self) visit(other, context);
    pthread_mutex_unlock(&registry_lock);
}

/* --- Tidying --- */

/* Work that can wait: buffers that were given back, unused memory, receives that the device did not accept. */
static uint64_t loop_tidy(struct event_timer *timer) {
    struct rdma_loop *owner = container_of(timer, struct rdma_loop, tidy);
    if (!rdma_usable()) return 0;
    uint64_t began = clock_monotonic_us(), now = clock_mono();
    bool age = now - owner->aged_us >= RDMA_MEMORY_AGE_US, soon = false, later = false;
    if (age) owner->aged_us = now;
    list_each_entry(&owner->devices, struct rdma_device, link, device) {
        if (!rdma_receives_retry(device)) soon = true;
        if (rdma_memory_tidy(&device->memory, TIDY_BUDGET_US)) soon = true;
        if (!age || rdma_memory_age(&device->memory)) later = true;
        if (rdma_values_tidy(&device->values, TIDY_BUDGET_US)) soon = true;
        if (device->values.held) later = true;
        rdma_polls_tidy(&device->polls);
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

/* --- The state of a loop --- */

struct rdma_loop *rdma_loop_new(struct event_loop *loop, const struct transport *transport) {
    pthread_once(&process_once, process_init);
    struct rdma_loop *owner = mem_calloc(1, sizeof *owner);
    owner->loop = loop;
    owner->transport = transport;
    owner->channel_io.fd = -1;
    owner->input.data = mem_alloc(INPUT_SHARED_SIZE);
    list_init(&owner->devices);
    list_init(&owner->connections);
    list_init(&owner->listeners);
    list_init(&owner->untrusted);
    list_init(&owner->ready);
    pthread_mutex_lock(&registry_lock);
    list_append(&registry, &owner->registry_link);
    pthread_mutex_unlock(&registry_lock);
    return owner;
}

void rdma_loop_free(struct rdma_loop *owner) {
    event_timer_cancel(owner->loop, &owner->tick);
    event_timer_cancel(owner->loop, &owner->tidy);
    event_io_remove(owner->loop, &owner->channel_io);
    while (owner->devices.len) {
        struct rdma_device *device = container_of(list_first(&owner->devices), struct rdma_device, link);
        list_remove(&owner->devices, &device->link);
        rdma_device_free(device);
    }
    if (owner->channel) rdma_destroy_event_channel(owner->channel);
    pthread_mutex_lock(&registry_lock);
    list_remove(&registry, &owner->registry_link);
    count_pauses(owner);
    add_stats(&finished_stats, &owner->stats);
    pthread_mutex_unlock(&registry_lock);
    event_loop_drop_posts(owner->loop); /* show_stats, and what other loops have passed on until now */
    mem_free(owner->input.data);
    mem_free(owner);
}
