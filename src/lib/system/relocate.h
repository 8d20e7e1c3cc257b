/* relocate.h: moves blocks of memory out of pages that hold few of them.
 *
 * jemalloc serves blocks of a size class from slabs: some pages, cut into blocks of that size. After many deletions the
 * slabs are sparse but not empty, so the allocator cannot return their pages to the kernel. If the slab of a block is
 * less full than the average of its class, the block is copied to the slab from which jemalloc serves new blocks. Once
 * all blocks of a slab have moved, its pages are free.
 *
 * jemalloc 5.3 reports the slab of a block and its utilization by experimental.utilization.query. With other allocators
 * no block is relocated. Copies bypass the thread cache, which may hold free blocks of sparse slabs. A query takes a
 * lock and about 300 ns.
 *
 * The caller knows every pointer to the block: the caller requests the copy, replaces the pointers, and frees the old
 * block. Only blocks of memory.h can be relocated; mem_used() does not change. Any thread may call these functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct relocation {
    uint64_t moved, stayed; /* blocks */
    uint64_t limit;         /* approximate number of blocks that one call for a large value examines */
};
bool relocate_is_supported(void);
/* Returns a copy of the block in a fuller slab; the caller then uses the copy and calls relocate_end() for the old
 * block. NULL: the block does not move. */
void *relocate_begin(struct relocation *r, void *block);
void relocate_end(void *old);
/* Relocates a block to which *pointer is the only pointer, and updates *pointer. */
void relocate_block(struct relocation *r, void **pointer);
/* For tests: every block moves, with any allocator. */
void relocate_set_all(bool on);
