/* relocate.h: moves blocks of memory out of pages that hold few of them.
 *
 * jemalloc serves blocks of a size class from slabs: some pages, cut into blocks of that size. After many deletions the
 * slabs are sparse, and none of them is empty, so that none returns to the system. A block of a slab that is used less
 * than the average of its class is copied to the slab that new blocks come from; once all blocks of a slab have moved,
 * its pages are free.
 *
 * Where blocks are, and how full their slabs are, is what jemalloc 5.3 tells by experimental.utilization.query. Other
 * allocators do not tell it: nothing can be relocated then. Copies bypass the thread cache, which would return blocks
 * of sparse slabs. A query takes a lock and about 300 ns.
 *
 * The caller knows every pointer to the block: it makes the copy, replaces the pointers, and frees the old block.
 * Blocks of mem_alloc() and its relatives only; the count of used memory stays the same. Any thread. */
#ifndef LIB_RELOCATE_H
#define LIB_RELOCATE_H
#include <stdbool.h>
#include <stdint.h>

struct relocation {
    uint64_t moved, stayed; /* blocks */
    uint64_t limit;         /* about how many blocks one call for a large value looks at */
};
bool relocate_is_supported(void);
/* Returns a copy of the block in a better place; the caller then uses the copy and calls relocate_end() for the old
 * block. NULL: the block stays. */
void *relocate_begin(struct relocation *r, void *block);
void relocate_end(void *old);
/* Relocates a block with a single pointer to it, which is replaced. */
void relocate_block(struct relocation *r, void **pointer);
/* For tests: every block moves, with any allocator. */
void relocate_set_all(bool on);
#endif
