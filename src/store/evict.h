/* evict.h: deleting keys that are least worth keeping, where memory has a bound.
 *
 * Who counts memory and sets the bound is the caller: it says how much is too much through `excess`, which is asked
 * before every key. Evicted keys are told through hooks->evicted and then hooks->changed. */
#ifndef STORE_EVICT_H
#define STORE_EVICT_H
#include "store/keyspace.h"

enum eviction_kind {
    EVICT_LRU,    /* longest not used */
    EVICT_LFU,    /* least often used; needs store_settings.lfu */
    EVICT_RANDOM, /* any */
    EVICT_TTL     /* nearest to its expiry; volatile_only is implied */
};
struct eviction {
    enum eviction_kind kind;
    bool volatile_only;              /* among keys with an expiry */
    int samples;                     /* entries looked at in each database for one eviction, 1..64 */
    uint64_t limit_us;               /* stop after so long; 0: no limit */
    size_t (*excess)(void *context); /* bytes still too much */
    void *context;
};
enum eviction_result {
    EVICTION_DONE,   /* nothing is too much any more */
    EVICTION_UNDONE, /* the time was up: call again soon */
    EVICTION_NO_KEYS /* there is nothing left that may be evicted */
};
enum eviction_result keyspace_evict(struct keyspace *keyspace, const struct eviction *eviction);
#endif
