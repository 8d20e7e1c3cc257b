/* rdma_values.c: see rdma_values.h. */
#include "net/rdma_values.h"
#include "lib/blob.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "net/rdma_connection.h"
#include <errno.h>
#include <string.h>

enum {
    RETRY_US = 1000 * 1000,
    SHARE = 2, /* of the bound on registered memory, values take one part in so many at most */
};

static const struct blob_allocator allocator = {value_arena_take, value_arena_give, value_arena_block_size};
static bool started, usable;

void rdma_values_changed(void) {
    if (!usable) return;
    uint64_t least = rdma_settings.zero_copy_min, bound = rdma_settings.max_registered;
    if (least && least < VALUE_BLOCK_MIN) least = VALUE_BLOCK_MIN;
    value_arena_set_limit(bound ? bound / SHARE : SIZE_MAX);
    blob_set_large_allocator(&allocator, least ? least : SIZE_MAX);
    rdma_output_ops.share_min = least && least < OUTPUT_SHARE_MIN ? least : OUTPUT_SHARE_MIN;
}

void rdma_values_start(void) {
    if (started) return;
    started = true;
    usable = ibv_is_fork_initialized() == IBV_FORK_UNNEEDED && value_arena_open();
    rdma_values_changed();
}

static void refused(struct rdma_device *device, struct rdma_values *values, int error) {
    values->retry_us = clock_mono() + RETRY_US;
    if (values->failure_told) return;
    char text[320];
    rdma_registration_error(error, device->name, text, sizeof text);
    log_notice("%s. Large values are copied to be sent", text);
    values->failure_told = true;
}

static void make_place(struct rdma_values *values, uint32_t index) {
    if (index < values->count) return;
    uint32_t count = values->count ? values->count : 8;
    while (count <= index) count *= 2;
    values->regions = mem_realloc(values->regions, count * sizeof *values->regions);
    memset(values->regions + values->count, 0, (count - values->count) * sizeof *values->regions);
    values->count = count;
}

struct ibv_mr *rdma_values_register(struct rdma_device *device, struct rdma_values *values,
                                    const struct value_region *region) {
    if (values->retry_us && clock_mono() < values->retry_us) return NULL;
    uint64_t bound = rdma_settings.max_registered;
    struct ibv_mr *mr = NULL;
    errno = EDQUOT;
    if (!bound || values->bytes + region->size <= bound / SHARE)
        mr = rdma_register(&device->memory, region->base, region->size, 0, RDMA_MEMORY_VALUES);
    if (!mr) {
        refused(device, values, errno);
        return NULL;
    }
    make_place(values, region->index);
    values->regions[region->index] = mr;
    values->bytes += region->size;
    values->retry_us = 0;
    device->owner->stats.value_regions++;
    value_arena_hold(region);
    if (device->memory.work) device->memory.work(&device->memory);
    return mr;
}

static bool forget(struct rdma_device *device, const struct value_region *region) {
    struct rdma_values *values = &device->values;
    struct ibv_mr *mr = region->index < values->count ? values->regions[region->index] : NULL;
    if (!mr || !rdma_unregister(&device->memory, mr, RDMA_MEMORY_VALUES)) return false;
    values->regions[region->index] = NULL;
    values->bytes -= region->size;
    device->owner->stats.value_regions--;
    return true;
}

static bool holds(void *device, const struct value_region *region) {
    const struct rdma_values *values = &((const struct rdma_device *)device)->values;
    return region->index < values->count && values->regions[region->index];
}

static bool release(void *device, const struct value_region *region) {
    return forget(device, region);
}

bool rdma_values_tidy(struct rdma_device *device) {
    if (device->values.bytes) value_arena_sweep(holds, release, device);
    return device->values.bytes != 0;
}

void rdma_values_free(struct rdma_device *device) {
    struct rdma_values *values = &device->values;
    for (uint32_t i = 0; i < values->count; i++) {
        if (!values->regions[i]) continue;
        const struct value_region *region = value_arena_region(values->regions[i]->addr);
        if (forget(device, region)) value_arena_release(region);
    }
    mem_free(values->regions);
    *values = (struct rdma_values){0};
}
