/* relocate.c: see relocate.h. */
#include "lib/system/relocate.h"
#include "lib/system/memory.h"
#include <string.h>
#ifdef USE_JEMALLOC
#include <jemalloc/jemalloc.h>

/* The result of experimental.utilization.query for a block, in this order. */
struct utilization {
    void *current;                   /* the slab from which new blocks of the class are served */
    size_t free, blocks;             /* in the block's slab: free blocks, and all blocks */
    size_t size;                     /* bytes of the slab */
    size_t class_free, class_blocks; /* the same of all slabs of the class, in the block's arena */
};
enum { MIB = 3 };
static size_t mib[MIB];
static bool supported;

static bool query(void *block, struct utilization *u) {
    size_t size = sizeof *u;
    return mallctlbymib(mib, MIB, u, &size, &block, sizeof block) == 0 && size == sizeof *u;
}

static __attribute__((constructor)) void probe(void) {
    size_t len = MIB;
    struct utilization u;
    if (mallctlnametomib("experimental.utilization.query", mib, &len) != 0 || len != MIB) return;
    void *block = malloc(sizeof u);
    supported = block && query(block, &u) && u.blocks > 0 && u.free <= u.blocks && u.class_blocks >= u.blocks;
    free(block);
}

bool relocate_is_supported(void) {
    return supported;
}

/* A slab is sparse if its utilization is less than an eighth above the average: if all slabs were used equally, none
 * would be below the average. If the class has fewer free blocks than a slab holds, no slab can become free. */
static bool is_sparse(const struct utilization *u, const void *block) {
    const char *current = u->current;
    if (u->blocks <= 1 || u->free == 0 || u->class_free < u->blocks) return false;
    if (current && (const char *)block >= current && (const char *)block < current + u->size) return false;
    return 8.0 * (double)(u->blocks - u->free) * (double)u->class_blocks <=
           9.0 * (double)(u->class_blocks - u->class_free) * (double)u->blocks;
}

static void *alloc_in_fuller_slab(void *block, size_t size) {
    struct utilization u;
    return supported && query(block, &u) && is_sparse(&u, block) ? mallocx(size, MALLOCX_TCACHE_NONE) : NULL;
}
static void free_uncached(void *block) {
    dallocx(block, MALLOCX_TCACHE_NONE);
}
#else
bool relocate_is_supported(void) {
    return false;
}
static void *alloc_in_fuller_slab(void *block, size_t size) {
    return NULL;
}
static void free_uncached(void *block) {}
#endif

static bool all; /* relocate_set_all() */

void relocate_set_all(bool on) {
    all = on;
}

void *relocate_begin(struct relocation *r, void *block) {
    size_t size = mem_size(block);
    void *copy = all ? mem_alloc(size) : alloc_in_fuller_slab(block, size);
    if (!copy) {
        r->stayed++;
        return NULL;
    }
    r->moved++;
    memcpy(copy, block, size);
    return copy;
}

void relocate_end(void *old) {
    if (all)
        mem_free(old);
    else
        free_uncached(old);
}

void relocate_block(struct relocation *r, void **pointer) {
    void *old = *pointer, *copy = relocate_begin(r, old);
    if (!copy) return;
    *pointer = copy;
    relocate_end(old);
}
