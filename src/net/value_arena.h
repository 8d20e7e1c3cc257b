/* value_arena.h: memory for large values, in few large regions of whole pages, so that a region can be registered with
 * a device once and each value in it be sent from where it lies.
 *
 * The regions lie in one range of addresses that is reserved at the start, so whether a block is one of ours is a
 * comparison, and its region is found by a shift. A region stays as long as something in it is in use or somebody holds
 * it (who has registered it); then its pages go back to the system.
 *
 * Regions are shared with forked children (value_arena_defer_free() tells why and what follows).
 *
 * Any thread may take and give blocks. The bytes count as used memory (lib/memory.h), as those of any other allocation.
 */
#ifndef NET_VALUE_ARENA_H
#define NET_VALUE_ARENA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VALUE_BLOCK_MIN = 1024, VALUE_GRANULE_BITS = 21 };

/* What others see of a region. */
struct value_region {
    char *base;
    size_t size;
    uint32_t index; /* small, unique among those that live */
    uint32_t holders;
};

struct value_arena_stats {
    size_t mapped; /* bytes of regions */
    size_t used;   /* bytes of blocks that were taken */
    size_t blocks, regions;
    size_t deferred; /* blocks that wait for the end of a child */
    size_t locked;   /* times that taking and giving blocks took the lock */
};

/* Reserves the addresses, once; later calls change nothing. False: there are none to be had. */
bool value_arena_open(void);
/* The most that regions may take up together; what is there already stays. */
void value_arena_set_limit(size_t bytes);

/* A block of at least `size` bytes; *usable is how many it has. NULL: there is none to be had. */
void *value_arena_take(size_t size, size_t *usable);
void value_arena_give(void *block);
size_t value_arena_block_size(const void *block);
/* The owner of child processes that read values calls this with `true` right before it forks, and with `false` when the
 * child has ended or could not be made. In between, blocks that were in use at the fork keep their bytes: those given
 * back are taken again only afterwards (they no longer count as used memory), and value_arena_is_writable() is false of
 * them. One child at a time; a repeated call changes nothing. The thread that writes to values calls it. Without an
 * open arena, and in a child, it does nothing. A forked child may read blocks until it ends, if the parent said `true`.
 */
void value_arena_defer_free(bool defer_them);
/* The block's owner may change its bytes: no child reads them. */
bool value_arena_is_writable(const void *block);
/* Gives back the free blocks that the calling thread keeps for itself. */
void value_arena_trim(void);
void value_arena_read_stats(struct value_arena_stats *stats);

/* An empty region stays for its holders until each has let go here: of the regions that had better go and that `holds`
 * says the caller holds, `release` undoes what it holds them for. False: it cannot, and the sweep ends. Something may
 * be put into such a region meanwhile; then it stays, without the holder. */
void value_arena_sweep(bool (*holds)(void *context, const struct value_region *region),
                       bool (*release)(void *context, const struct value_region *region), void *context);
/* The caller knows of a block in the region that is in use. */
void value_arena_hold(const struct value_region *region);
/* The caller lets go; nothing of it happens while the region is in use. */
void value_arena_release(const struct value_region *region);

/* The region in which `address` lies; NULL: it is not the arena's. It stays valid while a block in it is in use. */
extern struct value_arena_map {
    char *base;
    size_t size;
    struct value_region **regions; /* by granule */
} value_arena_map;
static inline const struct value_region *value_arena_region(const void *address) {
    size_t offset = (size_t)((const char *)address - value_arena_map.base);
    return offset < value_arena_map.size ? value_arena_map.regions[offset >> VALUE_GRANULE_BITS] : NULL;
}
#endif
