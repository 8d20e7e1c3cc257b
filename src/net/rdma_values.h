/* rdma_values.h: values that are sent from where they lie.
 *
 * Blobs of at least rdma_settings.zero_copy_min bytes come from regions of memory of their own (value_arena.h). A
 * region is registered, with nothing but the right to be read by our own card, for each device context that sends
 * something out of it. That takes up to milliseconds, so a background thread does it; until then values are copied to
 * be sent. From then on a work request names the value itself. Whoever posts it holds a reference to the blob until the
 * request has completed, so a value may be overwritten, deleted or evicted at any moment; and since only the holder of
 * a single reference may write to a blob, what is being sent does not change.
 *
 * Where it cannot be had - no addresses, the bound on registered memory, of which values take half at most, a device
 * that refuses - values lie in ordinary memory, or are sent from it by copying them. Nobody else notices.
 *
 * Fork.  A child must be able to read all values as they were at the fork. Where registered memory is hidden from
 * children (kernels before 5.12) or not protected at all, values are not registered and nothing of this is in use:
 * ibv_is_fork_initialized() must say IBV_FORK_UNNEEDED. Such a kernel copies pinned pages of private memory when the
 * process forks, half a second for a gigabyte; regions are shared mappings, of which it copies nothing (value_arena.h).
 */
#ifndef NET_RDMA_VALUES_H
#define NET_RDMA_VALUES_H
#include "lib/blob.h"
#include "net/value_arena.h"
#include <infiniband/verbs.h>

struct rdma_device;

/* Of a device context. Its thread alone touches it. */
struct rdma_values {
    struct ibv_mr **regions; /* by the index of a region; NULL: not registered */
    uint32_t count;
    uint64_t bytes;               /* registered, or about to be */
    struct rdma_values_job *jobs; /* registrations by the background thread */
    uint64_t retry_us;            /* not before this time: it has failed */
    bool failure_told;
};

/* At the first use of RDMA. The settings have changed: rdma_values_changed(). */
void rdma_values_start(void);
void rdma_values_changed(void);
/* Whether the blob is one that may be sent without a copy. */
static inline bool rdma_values_has(const struct blob *blob) {
    return blob->large;
}

struct ibv_mr *rdma_values_register(struct rdma_device *device, struct rdma_values *values,
                                    const struct value_region *region);
/* The local key for memory that a blob lies in. False: it has to be copied. */
static inline bool rdma_values_key(struct rdma_device *device, struct rdma_values *values, const void *data,
                                   uint32_t *key) {
    const struct value_region *region = value_arena_region(data);
    if (!region) return false;
    const struct ibv_mr *mr = region->index < values->count ? values->regions[region->index] : NULL;
    if (__builtin_expect(!mr, 0) && !(mr = rdma_values_register(device, values, region))) return false;
    *key = mr->lkey;
    return true;
}

/* Unregisters regions in which nothing is left. Returns whether there is any registered. */
bool rdma_values_tidy(struct rdma_device *device);
void rdma_values_free(struct rdma_device *device); /* all; nothing is on its way any more */
#endif
