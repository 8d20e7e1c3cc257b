/* values.h: sends large values without copying them, and reads into them (place.c).
 *
 * Blobs of at least rdma_settings.zero_copy_min bytes are allocated in separate regions of memory (value_arena.h). Each
 * device context that sends a value registers its region, for access by this end only. A region counts once as
 * registered memory, however many contexts register it: they pin the same pages. A registration takes up
 * to milliseconds, so a background thread does it; until it is done, values are copied to be sent. After that a work
 * request names the value itself. The sender holds a reference to the blob until the request has completed, so a value
 * may be overwritten, deleted or evicted at any time. Only the holder of the single reference may write to a blob, so
 * the bytes do not change while they are sent.
 *
 * Without a region (no free addresses, the limit on registered memory, of which values take at most half, or a device
 * that refuses) values are allocated in ordinary memory, or copied to be sent. The difference is invisible to callers.
 *
 * Fork
 *   A child must be able to read all values as they were at the fork. Where registered memory is hidden from children
 *   (kernels before 5.12, or the environment variables RDMAV_FORK_SAFE and IBV_FORK_SAFE) or not protected at all,
 *   values are not registered and this module is off: ibv_is_fork_initialized() must return IBV_FORK_UNNEEDED, and
 *   ibv_fork_init() is not called then. Newer kernels copy pinned pages of private memory when the process forks, which
 *   takes half a second for a gigabyte. Regions are shared mappings, which the kernel does not copy (value_arena.h). */
#pragma once
#include "lib/text/blob.h"
#include "net/rdma/memory.h"
#include "net/value_arena.h"
#include <infiniband/verbs.h>

/* State of a device context, used by its thread only. */
struct rdma_values {
    struct rdma_memory *memory; /* of the device context */
    struct event_loop *loop;    /* of its thread */
    struct ibv_mr **regions;    /* by region index; NULL: not registered */
    uint32_t count;
    uint32_t held;                /* regions that are registered, or being registered */
    struct rdma_values_job *jobs; /* registrations by the background thread */
    bool ended;                   /* see rdma_values_ended() */
    uint64_t retry_us;            /* after a failure: time of the next attempt */
    bool failure_logged;
};

/* rdma_values_start(): at the first use of RDMA. rdma_values_changed(): after the settings changed. */
void rdma_values_start(void);
void rdma_values_changed(void);
/* The smallest blob that is worth sending by reference; 0: none is, beyond the usual size of shared output. */
size_t rdma_values_share_min(void);
/* Whether the blob may be sent without a copy. */
static inline bool rdma_values_has(const struct blob *blob) {
    return blob->large;
}

struct ibv_mr *rdma_values_register(struct rdma_values *values, const struct value_region *region);
/* The local key of the memory that holds a blob. False: the blob has to be copied. */
static inline bool rdma_values_key(struct rdma_values *values, const void *data, uint32_t *key) {
    const struct value_region *region = value_arena_region(data);
    if (!region) return false;
    const struct ibv_mr *mr = region->index < values->count ? values->regions[region->index] : NULL;
    if (__builtin_expect(!mr, 0) && !(mr = rdma_values_register(values, region))) return false;
    *key = mr->lkey;
    return true;
}

/* Whether the background thread is registering the memory that holds a blob. */
bool rdma_values_pending(const struct rdma_values *values, const void *data);
/* Whether a registration has ended since the last call, successfully or not: what waits for it may go on. */
bool rdma_values_ended(struct rdma_values *values);

/* Has empty regions unregistered and freed in the background, one at least, for about `budget_us`. True: more are left.
 */
bool rdma_values_tidy(struct rdma_values *values, uint64_t budget_us);
void rdma_values_free(struct rdma_values *values); /* unregisters all; no request may be outstanding */
uint64_t rdma_values_bytes(void);                  /* of registered regions, in the process */
