/* srq.h: the receives that are posted for control messages and immediates: those of connections with a receive
 * queue of their own, and those of the shared receive queues of a device context. device.h explains the depths.
 *
 * A receive whose completion was handled is collected in device->reposts, and rdma_receives_flush() posts all of a
 * batch with one call for each queue. What the device does not accept is kept, and the loop's tidying posts it again.
 */
#pragma once
#include "net/rdma/device.h"

void rdma_receives_flush(struct rdma_device *device); /* posts device->reposts */
bool rdma_receives_retry(struct rdma_device *device); /* posts what was kept. True: nothing is left */

/* The `count` receives of a connection without a shared queue. 0, or -errno when none can be posted. */
int rdma_receives_add(struct rdma_queue_pair *qp, uint32_t count);
/* After the queue pair was destroyed. `count` 0: it had none. */
void rdma_receives_drop(struct rdma_queue_pair *qp, uint32_t count);

/* Makes a shared receive queue, full of receives. NULL: the device has none (left), or no memory. */
struct rdma_shared *rdma_shared_add(struct rdma_device *device);
/* The shared receive queue of a new connection; NULL: the device has none. */
struct rdma_shared *rdma_shared_choose(struct rdma_device *device);
struct rdma_shared *rdma_shared_find(struct rdma_device *device, const struct ibv_srq *srq);
void rdma_shared_rearm(struct rdma_device *device); /* sets the limits that were reported, where it is time */
void rdma_shared_free(struct rdma_device *device);  /* all of them; no connection uses one */

static inline void rdma_shared_note(struct rdma_device *device, struct rdma_shared *shared, int64_t change) {
    shared->posted += change;
    device->owner->stats.receives_posted += (uint64_t)change;
}

/* The connection of a late completion may be forgotten, so the address says whose slot it is. NULL: a connection's. */
static inline struct rdma_shared *rdma_shared_of(struct rdma_device *device, const struct rdma_slot *slot) {
    for (int i = 0; i < device->shared_count; i++)
        if ((size_t)((uintptr_t)slot - (uintptr_t)device->shared[i].slots) < device->shared[i].depth * sizeof *slot)
            return &device->shared[i];
    return NULL;
}
