/* device.c: device contexts and queue pairs. See device.h.
 *
 * Rejected: a completion queue, channel or protection domain for each connection. Each would need a descriptor and a
 * system call when its connection has a completion, and polling all of them is linear in connections. Rejected:
 * resizing the completion queue for new connections. Few drivers can do that; another queue always works. */
#include "net/rdma/device.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "net/pin.h"
#include "net/rdma/srq.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    QUEUE_CAPACITY = 8192,
    MESSAGE_MOST = 1024 * 1024 * 1024,
    MESSAGE_UNKNOWN = 8 * 1024 * 1024, /* every device takes messages of this length */
};

/* --- Queue pairs by number --- */

static struct rdma_queue_pair **table_entry(struct rdma_device *device, uint32_t qp_num, bool make) {
    struct rdma_queue_pair ***page = &device->pages[qp_num >> 12 & (RDMA_QP_PAGE - 1)];
    if (!*page) {
        if (!make) return NULL;
        *page = mem_calloc(RDMA_QP_PAGE, sizeof **page);
    }
    return &(*page)[qp_num & (RDMA_QP_PAGE - 1)];
}

static void device_leaves(struct event_deferred *deferred) {
    struct rdma_device *device = container_of(deferred, struct rdma_device, deferred);
    list_remove(&device->owner->devices, &device->link);
    rdma_device_free(device);
}

static void leave_if_unused(struct rdma_device *device) {
    if (device->removed && device->users == 0) event_loop_defer(device->owner->loop, &device->deferred, device_leaves);
}

void rdma_device_left(struct rdma_device *device) {
    must(device->users > 0);
    device->users--;
    leave_if_unused(device);
}

void rdma_device_set_removed(struct rdma_device *device) {
    device->removed = true;
    event_io_remove(device->owner->loop, &device->async_io);
    leave_if_unused(device);
}

/* --- Queues and queue pairs --- */

/* The choice is kept: further queues of this thread use the same vector, and a connect must not read files. */
static int own_vector(struct rdma_device *device, int vectors) {
    if (device->own_vector != RDMA_VECTOR_AUTO) return device->own_vector;
    cpu_set_t cpus;
    char reason[256];
    int error = pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (error) {
        snprintf(reason, sizeof reason, "the CPUs of the thread are unknown: %s", strerror(error));
        device->own_vector = -1;
    } else {
        device->own_vector =
            pin_completion_vector(&pin_trees_here, device->name, vectors, &cpus, reason, sizeof reason);
    }
    if (device->own_vector >= 0)
        log_notice("RDMA: completion vector %d of %s: %s", device->own_vector, device->name, reason);
    else
        log_notice("RDMA: a random completion vector of %s: %s", device->name, reason);
    return device->own_vector;
}

static int choose_vector(struct rdma_device *device) {
    int vectors = device->verbs->num_comp_vectors > 0 ? device->verbs->num_comp_vectors : 1;
    int vector = rdma_settings.completion_vector;
    if (vector == RDMA_VECTOR_AUTO) vector = own_vector(device, vectors);
    return vector < 0 ? (int)random_below((uint64_t)vectors) : vector % vectors;
}

static bool add_queue(struct rdma_device *device, uint32_t capacity) {
    if (device->queue_count == RDMA_QUEUES_MAX) {
        errno = ENOSPC;
        return false;
    }
    if (device->limits.max_cqe > 0 && capacity > (uint32_t)device->limits.max_cqe)
        capacity = (uint32_t)device->limits.max_cqe;
    struct rdma_queue *queue = &device->queues[device->queue_count];
    *queue = (struct rdma_queue){.capacity = capacity};
    queue->cq = ibv_create_cq(device->verbs, (int)capacity, queue, device->channel, choose_vector(device));
    if (!queue->cq) return false;
    device->queue_count++;
    device->owner->stats.completion_queues++;
    return true;
}

struct rdma_queue *rdma_queue_with_capacity(struct rdma_device *device, uint32_t need) {
    for (int i = 0; i < device->queue_count; i++)
        if (device->queues[i].capacity - device->queues[i].committed >= need) return &device->queues[i];
    struct rdma_queue *last = &device->queues[device->queue_count - 1];
    if (!add_queue(device, last->capacity * 2)) return NULL;
    last = &device->queues[device->queue_count - 1];
    return last->capacity >= need ? last : NULL;
}

static int create_with_inline(struct rdma_queue_pair *qp, struct ibv_qp_init_attr *wanted) {
    struct rdma_device *device = qp->device;
    static const uint32_t smaller[] = {RDMA_INLINE_WANTED, 128, 64, 32, 0};
    int error = EINVAL;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++) {
        if (smaller[i] > device->max_inline) continue;
        struct ibv_qp_init_attr attr = *wanted;
        attr.cap.max_inline_data = smaller[i];
        if (rdma_create_qp(qp->id, device->pd, &attr) == 0) {
            device->max_inline = smaller[i]; /* do not ask for more again */
            qp->max_inline = smaller[i] < attr.cap.max_inline_data ? smaller[i] : attr.cap.max_inline_data;
            return 0;
        }
        error = errno;
    }
    return -error;
}

int rdma_queue_pair_create(struct rdma_queue_pair *qp) {
    struct rdma_device *device = qp->device;
    struct rdma_shared *shared = rdma_shared_choose(device);
    uint32_t own = shared ? 0 : device->own_depth, need = device->send_depth + own;
    struct rdma_queue *queue = rdma_queue_with_capacity(device, need);
    if (!queue) {
        device->owner->stats.errors[RDMA_ERROR_RESOURCES]++;
        return -errno;
    }
    struct ibv_qp_init_attr attr = {
        .send_cq = queue->cq,
        .recv_cq = shared ? shared->cq : queue->cq,
        .srq = shared ? shared->srq : NULL,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = device->send_depth,
                .max_recv_wr = own,
                .max_send_sge = (uint32_t)device->max_sge,
                .max_recv_sge = 1},
    };
    int result = create_with_inline(qp, &attr);
    if (result < 0) {
        device->owner->stats.errors[RDMA_ERROR_RESOURCES]++;
        return result;
    }
    device->owner->stats.queue_pairs++;
    device->owner->stats.receives_posted += own;
    qp->verbs = qp->id->qp;
    qp->shared = shared;
    if (shared) shared->users++;
    qp->number = qp->verbs->qp_num;
    qp->send_queue = queue;
    qp->send_depth = device->send_depth;
    queue->committed += need;
    *table_entry(device, qp->number, true) = qp;
    return own ? rdma_receives_add(qp, own) : result;
}

void rdma_queue_pair_forget(struct rdma_queue_pair *qp) {
    if (!qp->verbs) return;
    struct rdma_queue_pair **place = table_entry(qp->device, qp->number, false);
    if (place && *place == qp) *place = NULL;
}

void rdma_queue_pair_stop(struct rdma_queue_pair *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (qp->verbs) ibv_modify_qp(qp->verbs, &attr, IBV_QP_STATE); /* fails in RESET, where nothing arrives */
}

void rdma_queue_pair_destroy(struct rdma_queue_pair *qp) {
    struct rdma_device *device = qp->device;
    if (!qp->verbs) return;
    rdma_queue_pair_forget(qp);
    rdma_destroy_qp(qp->id);
    device->owner->stats.queue_pairs--;
    qp->verbs = NULL;
    uint32_t own = qp->shared ? 0 : device->own_depth;
    if (qp->shared) qp->shared->users--;
    qp->send_queue->committed -= device->send_depth + own;
    device->owner->stats.receives_posted -= own;
    rdma_receives_drop(qp, own);
    qp->shared = NULL;
}

/* --- Making and freeing device contexts --- */

/* The longest message that all ports take. */
static uint32_t longest_message(struct ibv_context *verbs, int ports) {
    uint32_t longest = MESSAGE_MOST;
    for (int port = 1; port <= ports; port++) {
        struct ibv_port_attr attr;
        uint32_t most = ibv_query_port(verbs, (uint8_t)port, &attr) == 0 ? attr.max_msg_sz : 0;
        if (!most) most = MESSAGE_UNKNOWN;
        if (most < longest) longest = most;
    }
    return longest;
}

static void memory_has_work(struct rdma_memory *memory) {
    rdma_loop_tidy_soon(container_of(memory, struct rdma_device, memory)->owner);
}

void rdma_device_free(struct rdma_device *device) {
    event_poller_remove(device->owner->loop, &device->poller);
    event_io_remove(device->owner->loop, &device->io);
    event_io_remove(device->owner->loop, &device->async_io);
    rdma_shared_free(device);
    for (int i = 0; i < device->queue_count; i++) {
        if (device->queues[i].unacknowledged) ibv_ack_cq_events(device->queues[i].cq, device->queues[i].unacknowledged);
        ibv_destroy_cq(device->queues[i].cq);
        device->owner->stats.completion_queues--;
    }
    if (device->channel) ibv_destroy_comp_channel(device->channel);
    rdma_values_free(&device->values);
    rdma_polls_free(&device->polls);
    if (device->pd) { /* without a protection domain there is no memory */
        rdma_memory_free(&device->memory);
        ibv_dealloc_pd(device->pd);
    }
    for (int i = 0; i < RDMA_QP_PAGE; i++) mem_free(device->pages[i]);
    mem_free(device);
}

int rdma_set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Fills the context. False: errno, and `what` failed. */
static bool device_open(struct rdma_device *device, const struct rdma_device_handlers *handlers, const char **what) {
    struct event_loop *loop = device->owner->loop;
    *what = "query the device";
    int error = ibv_query_device(device->verbs, &device->limits);
    if (error) {
        errno = error;
        return false;
    }
    *what = "allocate a protection domain";
    if (!(device->pd = ibv_alloc_pd(device->verbs))) return false;
    rdma_memory_init(&device->memory, device->pd, &device->owner->stats);
    device->memory.work = memory_has_work;
    device->values.memory = device->polls.memory = &device->memory;
    device->values.loop = device->owner->loop;
    *what = "create a completion channel";
    if (!(device->channel = ibv_create_comp_channel(device->verbs)) || rdma_set_nonblocking(device->channel->fd) < 0)
        return false;
    *what = "create a completion queue";
    if (!add_queue(device, QUEUE_CAPACITY)) return false;
    int max_wr = device->limits.max_qp_wr > 0 ? device->limits.max_qp_wr : RDMA_SEND_DEPTH;
    device->send_depth = max_wr < RDMA_SEND_DEPTH ? (uint32_t)max_wr : RDMA_SEND_DEPTH;
    device->own_depth = max_wr < RDMA_OWN_DEPTH ? (uint32_t)max_wr : RDMA_OWN_DEPTH;
    device->max_sge =
        device->limits.max_sge > 0 && device->limits.max_sge < RDMA_SGE_MAX ? device->limits.max_sge : RDMA_SGE_MAX;
    device->max_inline = RDMA_INLINE_WANTED;
    device->max_message = longest_message(device->verbs, device->limits.phys_port_cnt);
    *what = "register memory";
    rdma_shared_add(device);
    struct rdma_chunk *chunk = rdma_chunk_take(&device->memory); /* so that send memory is always available */
    if (!chunk) return false;
    rdma_chunk_give(&device->memory, chunk);
    *what = "watch the completion channel";
    int result = event_io_set(loop, &device->io, device->channel->fd, EVENT_READ, handlers->channel_ready);
    if (result < 0) {
        errno = -result;
        return false;
    }
    if (device->verbs->async_fd >= 0 && rdma_set_nonblocking(device->verbs->async_fd) == 0)
        event_io_set(loop, &device->async_io, device->verbs->async_fd, EVENT_READ, handlers->async_ready);
    device->poller.poll = handlers->poll;
    device->poller.prepare_sleep = handlers->prepare_sleep;
    event_poller_add(loop, &device->poller);
    return true;
}

struct rdma_device *rdma_device_known(struct rdma_loop *owner, const struct ibv_context *verbs) {
    list_each_entry(&owner->devices, struct rdma_device, link, device)
        if (device->verbs == verbs && !device->removed) return device;
    return NULL;
}

bool rdma_device_fits(const struct ibv_context *verbs, char *error, size_t error_size) {
    if (verbs->device->transport_type != IBV_TRANSPORT_IWARP) return true;
    snprintf(error, error_size, "%s is an iWARP device, which has no RDMA WRITE with immediate data",
             ibv_get_device_name(verbs->device));
    errno = EOPNOTSUPP;
    return false;
}

struct rdma_device *rdma_device_of(struct rdma_loop *owner, struct ibv_context *verbs,
                                   const struct rdma_device_handlers *handlers, char *error, size_t error_size) {
    struct rdma_device *device = rdma_device_known(owner, verbs);
    if (device) return device;
    if (!rdma_device_fits(verbs, error, error_size)) return NULL;
    device = mem_calloc(1, sizeof *device);
    device->owner = owner;
    device->verbs = verbs;
    device->opened_us = clock_monotonic_us();
    device->name = ibv_get_device_name(verbs->device);
    device->own_vector = RDMA_VECTOR_AUTO;
    device->io.fd = device->async_io.fd = -1;
    list_init(&device->starved);
    const char *what;
    if (device_open(device, handlers, &what)) {
        list_append(&owner->devices, &device->link);
        return device;
    }
    int failure = errno;
    if (strcmp(what, "register memory") == 0)
        rdma_registration_error(failure, device->name, error, error_size);
    else
        snprintf(error, error_size, "RDMA: cannot %s (%s): %s", what, device->name, strerror(failure));
    rdma_device_free(device);
    errno = failure;
    return NULL;
}
