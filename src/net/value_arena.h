/* value_arena.h: memory for large values, in a few large regions of whole pages. A region is registered with a device
 * once, and then each value in it can be sent without a copy.
 *
 * The regions lie in one range of addresses that is reserved at the start. So a comparison decides whether a block
 * belongs to the arena, and a shift finds its region. A region stays as long as a block in it is in use or a holder (a
 * device context that registered it) keeps it; then its pages go back to the system.
 *
 * Regions are shared with forked children; see value_arena_defer_free() for the consequences.
 *
 * Pages go back to the system in a background thread, which takes milliseconds for a large region.
 *
 * Any thread may take and give blocks. The bytes count as used memory (lib/system/memory.h), like any other allocation.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VALUE_BLOCK_MIN = 1024, VALUE_GRANULE_BITS = 21 };

/* The public part of a region. */
struct value_region {
    char *base;
    size_t size;
    uint32_t index; /* small, unique among the existing regions */
    uint32_t holders;
};

struct value_arena_stats {
    size_t mapped; /* bytes of regions */
    size_t used;   /* bytes of blocks in use */
    size_t blocks, regions;
    size_t overhead; /* bytes that describe regions and runs of blocks; they come and go with these */
    size_t deferred; /* blocks whose reuse waits for the end of a child */
    size_t locked;   /* times that taking or giving a block took the lock */
};

/* Reserves the addresses, once; later calls change nothing. False: the reservation failed. */
bool value_arena_open(void);
/* Limits the total size of the regions; existing regions stay. */
void value_arena_set_limit(size_t bytes);

/* Returns a block of at least `size` bytes; *usable is its actual size. NULL: none is available. */
void *value_arena_take(size_t size, size_t *usable);
void value_arena_give(void *block);
size_t value_arena_block_size(const void *block);
/* The owner of child processes that read values calls this with `true` right before it forks, and with `false` when the
 * child has ended or the fork failed. In between, blocks that were in use at the fork keep their bytes: blocks given
 * back are reused only afterwards (they no longer count as used memory), and value_arena_is_writable() returns false
 * for them. Several children may run at a time, each with its own pair of calls: a further fork also protects the
 * blocks that were taken since the one before, and all stay protected until the last child has ended. The thread that
 * writes to values calls it. Without an open arena, and in a child, it does nothing. A forked child may read blocks
 * until it ends, if the parent passed `true`. */
void value_arena_defer_free(bool defer_them);
/* Whether the block's owner may change its bytes: no child reads them. */
bool value_arena_is_writable(const void *block);
/* Frees empty regions that were not needed lately, one or a few in a call. Call it from time to time; `now_ms` is of a
 * clock that does not go back. Regions that a holder keeps go by value_arena_sweep(). */
void value_arena_age(uint64_t now_ms);
/* Frees the free blocks that the calling thread caches, and empty regions now, not after a while. */
void value_arena_trim(void);
void value_arena_read_stats(struct value_arena_stats *stats);

/* An empty region stays until each of its holders has released it. The sweep visits the regions that should be freed
 * and that the caller holds, as `holds` says; `release` begins to undo the holder's work, which ends, on any thread,
 * with value_arena_release(), and the caller does not hold the region from then on. If it returns false, it could not,
 * and the sweep ends. A block may be taken in such a region meanwhile; the region then stays, without the holder. */
void value_arena_sweep(bool (*holds)(void *context, const struct value_region *region),
                       bool (*release)(void *context, const struct value_region *region), void *context);
/* Adds a holder. The caller must know a block in the region that is in use. */
void value_arena_hold(const struct value_region *region);
/* Removes a holder. An empty region may go then. Any thread. */
void value_arena_release(const struct value_region *region);

/* The region that contains `address`; NULL: not in the arena. It stays valid while a block in it is in use. */
extern struct value_arena_map {
    char *base;
    size_t size;
    struct value_region **regions; /* by granule */
} value_arena_map;
static inline const struct value_region *value_arena_region(const void *address) {
    size_t offset = (size_t)((const char *)address - value_arena_map.base);
    return offset < value_arena_map.size ? value_arena_map.regions[offset >> VALUE_GRANULE_BITS] : NULL;
}
