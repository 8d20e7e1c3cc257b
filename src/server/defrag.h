/* defrag.h: active defragmentation (activedefrag): the server moves values together while it runs, so that pages become
 * free.
 *
 * Once a second the server compares the memory of the allocator's active pages with the memory of the blocks in them.
 * If the difference exceeds active-defrag-ignore-bytes and active-defrag-threshold-lower percent, it walks over all
 * keys (store/relocate_keys.h), for active-defrag-cycle-us at a time, and takes between active-defrag-cycle-min and
 * active-defrag-cycle-max percent of a CPU: the more, the nearer the difference is to active-defrag-threshold-upper.
 * Changes of these options take effect immediately. A large value moves in parts of a few blocks, and the clock is read
 * after each part. The server moves nothing while data is loaded, while a child process shares the memory (each move
 * would copy pages), and while a script serves the loop.
 *
 * It needs an allocator that reports how full its slabs are (lib/system/relocate.h): jemalloc 5.3 as distributions ship
 * it. */
#pragma once
#include "lib/system/relocate.h"

/* For INFO. Hits are moved blocks and keys with moved blocks; misses those that stayed. */
struct defrag_stats {
    uint64_t hits, misses, key_hits, key_misses;
    uint64_t total_us, current_us; /* of all walks; of the current one, 0: none */
    int running;                   /* percent of a CPU; 0: there is no walk now */
};
/* Relocates memory that no key has, once in each walk. NULL: there is none. */
extern void (*defrag_more)(struct relocation *r);
struct defrag_stats defrag_stats(void);
void defrag_reset_stats(void); /* CONFIG RESETSTAT */
