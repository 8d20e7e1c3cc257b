/* relocate.c: see relocate.h. */
#include "lib/relocate.h"
#include "lib/memory.h"
#include <string.h>
#ifdef USE_JEMALLOC
#include <jemalloc/jemalloc.h>

/* What experimental.utilization.query answers for a block, in this order. */
struct utilization {
    void *current;                   /* the slab that new blocks of the class come from */
    size_t free, blocks;             /* in the block's slab: blocks that are free, and all */
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

/* A slab that is used by up to an eighth more than the average is sparse, too: with slabs that are used alike, none
 * would be below it. If the class has fewer free blocks than a slab, no slab can become free. */
static bool is_sparse(const struct utilization *u, const void *block) {
    const char *current = u->current;
    if (u->blocks <= 1 || u->free == 0 || u->class_free < u->blocks) return false;
    if (current && (const char *)block >= current && (const char *)block < current + u->size) return false;
    return 8.0 * (double)(u->blocks - u->free) * (double)u->class_blocks <=
           9.0 * (double)(u->class_blocks - u->class_free) * (double)u->blocks;
}

static void *better_place(void *block, size_t size) {
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
static void *better_place(void *block, size_t size) {
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
    void *copy = all ? mem_alloc(size) : better_place(block, size);
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
