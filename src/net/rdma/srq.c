/* srq.c: posted receives and shared receive queues. See srq.h. */
#include "net/rdma/srq.h"
#include "lib/system/log.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* --- Posting --- */

static void fill_receive(struct ibv_recv_wr *wr, struct ibv_sge *sge, struct rdma_slot *slot, uint32_t lkey) {
    *sge = (struct ibv_sge){.addr = (uintptr_t)slot, .length = sizeof *slot, .lkey = lkey};
    *wr = (struct ibv_recv_wr){.wr_id = (uintptr_t)slot | RDMA_RECEIVE_TAG, .sg_list = sge, .num_sge = 1};
}

/* The device did not accept the receive. Without it the queue would stay short, so it is posted again a little later.
 */
static void keep_unposted(struct rdma_device *device, const struct rdma_repost *repost) {
    struct rdma_slot *slot = repost->slot;
    slot->unposted.next = device->unposted;
    slot->unposted.qp = repost->qp;
    slot->unposted.shared = repost->shared;
    device->unposted = slot;
    device->owner->stats.unposted_receives++;
}

static inline bool same_queue(const struct rdma_repost *a, const struct rdma_queue_pair *qp,
                              const struct rdma_shared *shared) {
    return a->qp == qp && a->shared == shared;
}

/* Posts slots given by `reposts`, all to one queue, with one doorbell; keeps those that cannot be. Returns how many
 * were posted; errno when it is less than all. */
static int post_receives(struct rdma_device *device, const struct rdma_repost *reposts, int count) {
    struct ibv_recv_wr wrs[RDMA_BATCH], *bad = NULL;
    struct ibv_sge sges[RDMA_BATCH];
    struct rdma_queue_pair *qp = reposts[0].qp;
    struct rdma_shared *shared = reposts[0].shared;
    uint32_t lkey = qp ? qp->slots_mr->lkey : shared->slots_mr->lkey;
    for (int i = 0; i < count; i++) {
        fill_receive(&wrs[i], &sges[i], reposts[i].slot, lkey);
        if (i) wrs[i - 1].next = &wrs[i];
    }
    int error = qp ? ibv_post_recv(qp->verbs, wrs, &bad) : ibv_post_srq_recv(shared->srq, wrs, &bad);
    int posted = !error ? count : bad ? (int)(bad - wrs) : 0;
    for (int i = posted; i < count; i++) keep_unposted(device, &reposts[i]);
    if (!qp) rdma_shared_note(device, shared, posted);
    errno = error;
    return posted;
}

static void could_not_post(struct rdma_device *device) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000};
    int error = errno;
    log_limited(&limit, LOG_LEVEL_WARNING, "RDMA: cannot post receives (%s): %s (errno %d); trying again", device->name,
                strerror(error), error);
    rdma_loop_tidy_soon(device->owner);
}

/* Posts the remaining ones. True: none are left. */
bool rdma_receives_retry(struct rdma_device *device) {
    struct rdma_repost reposts[RDMA_BATCH];
    while (device->unposted) {
        int count = 0;
        struct rdma_queue_pair *qp = device->unposted->unposted.qp;
        struct rdma_shared *shared = device->unposted->unposted.shared;
        while (count < RDMA_BATCH && device->unposted && device->unposted->unposted.qp == qp &&
               device->unposted->unposted.shared == shared) {
            reposts[count++] = (struct rdma_repost){device->unposted, qp, shared};
            device->unposted = device->unposted->unposted.next;
            device->owner->stats.unposted_receives--;
        }
        if (post_receives(device, reposts, count) < count) return false;
    }
    return true;
}

/* The slots of a connection, or (qp NULL) of a shared queue, are to go. */
static void forget_unposted(struct rdma_device *device, const struct rdma_queue_pair *qp,
                            const struct rdma_shared *shared) {
    for (struct rdma_slot **at = &device->unposted; *at;) {
        struct rdma_slot *slot = *at;
        if (slot->unposted.qp != qp || slot->unposted.shared != shared) {
            at = &slot->unposted.next;
            continue;
        }
        *at = slot->unposted.next;
        device->owner->stats.unposted_receives--;
    }
}

void rdma_receives_flush(struct rdma_device *device) {
    for (int from = 0, to; from < device->repost_count; from = to) {
        const struct rdma_repost *first = &device->reposts[from];
        for (to = from + 1; to < device->repost_count && same_queue(&device->reposts[to], first->qp, first->shared);)
            to++;
        if (post_receives(device, &device->reposts[from], to - from) < to - from) could_not_post(device);
    }
    device->repost_count = 0;
}

/* Maps and registers `count` slots. On pages of their own: a forked child does not get the pages of registered memory.
 */
static struct rdma_slot *make_slots(struct rdma_device *device, size_t count, struct ibv_mr **mr) {
    size_t size = count * sizeof(struct rdma_slot);
    struct rdma_slot *slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED) return NULL;
    madvise(slots, size, MADV_DONTFORK);
    *mr = rdma_register(&device->memory, slots, size, IBV_ACCESS_LOCAL_WRITE, RDMA_MEMORY_CONTROL);
    if (*mr) return slots;
    int error = errno;
    munmap(slots, size);
    errno = error;
    return NULL;
}

static void drop_slots(struct rdma_device *device, struct rdma_slot *slots, size_t count, struct ibv_mr *mr) {
    if (!slots) return;
    rdma_unregister(&device->memory, mr, RDMA_MEMORY_CONTROL);
    munmap(slots, count * sizeof *slots);
}

/* If some can be posted, the others follow later. Returns 0, or -errno when none can. */
static int post_all(struct rdma_device *device, struct rdma_queue_pair *qp, struct rdma_shared *shared,
                    struct rdma_slot *slots, uint32_t count) {
    struct rdma_repost reposts[RDMA_BATCH];
    for (uint32_t at = 0; at < count;) {
        int n = 0;
        while (n < RDMA_BATCH && at < count) reposts[n++] = (struct rdma_repost){&slots[at++], qp, shared};
        int posted = post_receives(device, reposts, n);
        if (posted == n) continue;
        if (at == (uint32_t)n && posted == 0) {
            int error = errno;
            forget_unposted(device, qp, shared);
            return -error;
        }
        could_not_post(device);
        while (at < count) keep_unposted(device, &(struct rdma_repost){&slots[at++], qp, shared});
    }
    return 0;
}

/* --- Receives of a connection's own queue --- */

int rdma_receives_add(struct rdma_queue_pair *qp, uint32_t count) {
    qp->slots = make_slots(qp->device, count, &qp->slots_mr);
    return qp->slots ? post_all(qp->device, qp, NULL, qp->slots, count) : -errno;
}

void rdma_receives_drop(struct rdma_queue_pair *qp, uint32_t count) {
    if (count) forget_unposted(qp->device, qp, NULL);
    drop_slots(qp->device, qp->slots, count, qp->slots_mr);
    qp->slots = NULL;
}

/* --- Shared receive queues --- */

struct rdma_shared *rdma_shared_find(struct rdma_device *device, const struct ibv_srq *srq) {
    for (int i = 0; i < device->shared_count; i++)
        if (device->shared[i].srq == srq) return &device->shared[i];
    return NULL;
}

/* The device reports the limit once each time it is set. Where it cannot, the queue works without. */
static void arm_limit(struct rdma_device *device, struct rdma_shared *shared) {
    struct ibv_srq_attr attr = {.srq_limit = shared->depth / RDMA_SHARED_LIMIT};
    shared->armed = true;
    int error = attr.srq_limit ? ibv_modify_srq(shared->srq, &attr, IBV_SRQ_LIMIT) : 0;
    if (error) log_debug("RDMA: %s does not report a low receive queue: %s", device->name, strerror(error));
}

void rdma_shared_rearm(struct rdma_device *device) {
    for (int i = 0; i < device->shared_count; i++) {
        struct rdma_shared *shared = &device->shared[i];
        if (!shared->armed && shared->posted > shared->depth / RDMA_SHARED_LIMIT) arm_limit(device, shared);
    }
}

/* Makes a shared receive queue, full of receives. NULL: the device has none (left), or no memory. */
struct rdma_shared *rdma_shared_add(struct rdma_device *device) {
    const struct ibv_device_attr *limits = &device->limits;
    if (limits->max_srq <= device->shared_count || limits->max_srq_wr <= 0) return NULL;
    if (device->shared_count == RDMA_SHARED_MAX) return NULL;
    uint32_t depth = RDMA_SHARED_DEPTH;
    if (depth > (uint32_t)limits->max_srq_wr) depth = (uint32_t)limits->max_srq_wr;
    if (depth > device->queues[0].capacity / 2) depth = device->queues[0].capacity / 2;
    struct rdma_queue *queue = rdma_queue_with_capacity(device, depth);
    if (!queue) return NULL;
    struct rdma_shared *shared = &device->shared[device->shared_count];
    *shared = (struct rdma_shared){.depth = depth, .cq = queue->cq};
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = depth, .max_sge = 1}};
    shared->srq = ibv_create_srq(device->pd, &attr);
    if (!shared->srq) {
        device->owner->stats.errors[RDMA_ERROR_RESOURCES]++;
        return NULL;
    }
    shared->slots = make_slots(device, depth, &shared->slots_mr);
    if (shared->slots && post_all(device, NULL, shared, shared->slots, depth) == 0) {
        queue->committed += depth;
        device->shared_count++;
        device->owner->stats.shared_queues++;
        arm_limit(device, shared);
        return shared;
    }
    ibv_destroy_srq(shared->srq);
    forget_unposted(device, NULL, shared);
    rdma_shared_note(device, shared, -shared->posted);
    drop_slots(device, shared->slots, depth, shared->slots_mr);
    return NULL;
}

/* The shared receive queue of a new connection; NULL: the device has none. */
struct rdma_shared *rdma_shared_choose(struct rdma_device *device) {
    struct rdma_shared *least = NULL;
    for (int i = 0; i < device->shared_count; i++) {
        struct rdma_shared *shared = &device->shared[i];
        uint32_t most = shared->depth < RDMA_SHARED_USERS ? shared->depth : RDMA_SHARED_USERS;
        if (!shared->was_low && shared->users < most) return shared;
        if (!least || shared->users < least->users) least = shared;
    }
    if (least && !least->users) {
        least->was_low = false; /* the connections that emptied it have ended */
        return least;
    }
    struct rdma_shared *another = least ? rdma_shared_add(device) : NULL;
    return another ? another : least;
}

void rdma_shared_free(struct rdma_device *device) {
    for (int i = 0; i < device->shared_count; i++) {
        struct rdma_shared *shared = &device->shared[i];
        ibv_destroy_srq(shared->srq);
        rdma_shared_note(device, shared, -shared->posted);
        forget_unposted(device, NULL, shared);
        drop_slots(device, shared->slots, shared->depth, shared->slots_mr);
        device->owner->stats.shared_queues--;
    }
    device->shared_count = 0;
}
