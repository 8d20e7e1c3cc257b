/* evict.h: evicts keys when memory use exceeds a limit.
 *
 * The caller measures memory and sets the limit: evict calls `excess` before each eviction, which returns the number of
 * bytes to free. It ends when keys have released the excess measured at its start, or when `excess` returns 0. Each
 * eviction calls hooks->evicted, then hooks->changed. */
#pragma once
#include "store/keyspace.h"

enum eviction_kind {
    EVICT_LRU,    /* least recently used */
    EVICT_LFU,    /* least frequently used; needs store_settings.lfu */
    EVICT_RANDOM, /* random */
    EVICT_TTL     /* shortest time to live; implies volatile_only */
};
struct eviction {
    enum eviction_kind kind;
    bool volatile_only;              /* only keys with an expiry */
    int samples;                     /* entries sampled per database for each eviction, 1..64 */
    uint64_t limit_us;               /* time limit; 0: none */
    size_t (*excess)(void *context); /* returns the bytes still to free */
    void *context;
};
enum eviction_result {
    EVICTION_DONE,   /* memory is below the limit */
    EVICTION_UNDONE, /* time limit reached: call again soon */
    EVICTION_NO_KEYS /* no key may be evicted */
};
enum eviction_result keyspace_evict(struct keyspace *keyspace, const struct eviction *eviction);
