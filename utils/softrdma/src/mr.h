/* Memory regions. */
#pragma once

#include "device.h"
#include "wire.h"

void mr_forget(void);

/* The slot of `key` if it allows [addr, addr + len) with `access` under protection domain `pd`, else NULL.
 * `slots` is the table of the process that owns the memory. `*at` is where in the region it begins. */
static inline const struct mr_slot *mr_check(const struct mr_slot *slots, uint32_t count, uint32_t key, uint64_t addr,
                                             uint64_t len, uint32_t pd, uint32_t access, uint64_t *at) {
    uint32_t index = key >> 8;
    if (unlikely(index >= count)) return NULL;
    const struct mr_slot *slot = &slots[index];
    if (unlikely(load_acquire((_Atomic uint32_t *)&slot->key) != key || key == 0)) return NULL;
    uint64_t from = addr - slot->iova;
    if (unlikely(slot->pd != pd || (slot->access & access) != access)) return NULL;
    if (unlikely(from > slot->len || len > slot->len - from)) return NULL;
    *at = from;
    return slot;
}
