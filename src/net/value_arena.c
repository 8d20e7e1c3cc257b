/* value_arena.c: see value_arena.h.
 *
 * A region is divided into units of 8 KiB, with a bit each that says whether it is in use. A block of more than
 * SMALL_MAX bytes is a number of units, first fit. Smaller ones are cut from runs of RUN_UNITS units, each for one size
 * of block: eight sizes between a number and its double, so that at most an eighth is lost. A value has a few bytes of
 * head, so sizes that are powers of two would nearly double what values of such sizes need. What is known of blocks
 * lies elsewhere than in them: a free block is never looked at, and the next to take it finds it as it left the caches.
 * The block given last is the next one taken.
 *
 * Regions are as large as an eighth of what there is, between 2 and 32 MiB: a small server locks little memory, a large
 * one has few regions. An empty one is kept where the arena has no other, so that one value that comes and goes does
 * not map and register a region each time.
 *
 * Rejected: jemalloc's arenas with hooks of our own (the build without jemalloc, which is the one that sanitizers
 * check, would go without; its caches mix blocks of several arenas); huge pages of hugetlbfs (a forked child that finds
 * the pool empty is killed). Transparent ones are asked for. */
#include "net/value_arena.h"
#include "lib/list.h"
#include "lib/memory.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

enum {
    UNIT_BITS = 13,
    UNIT = 1 << UNIT_BITS,
    RUN_UNITS = 32,
    RUN_BYTES = RUN_UNITS * UNIT,
    SMALL_MAX = 64 * 1024,
    STEPS = 8, /* sizes of blocks in a doubling */
    DOUBLINGS = 6,
    CLASSES = STEPS * DOUBLINGS + 1,
    RUN_BLOCKS_MAX = RUN_BYTES / VALUE_BLOCK_MIN,
    GRANULE = 1 << VALUE_GRANULE_BITS,
    REGION_MAX = 32 * 1024 * 1024,
};
_Static_assert(VALUE_BLOCK_MIN << DOUBLINGS == SMALL_MAX, "");
_Static_assert(RUN_BLOCKS_MAX <= 256, "numbers of blocks are bytes");

struct region {
    struct value_region seen; /* must be first */
    struct list_link link;
    uint32_t units, free_units;
    uint32_t longest; /* no row of free units is longer; often an overestimate */
    uint64_t *bits;   /* a bit for each unit: in use */
    /* For the first unit of a large block how many there are, times two, and one; for each unit of a run the run. */
    uintptr_t *owners;
};

struct run {
    struct list_link link; /* of its class, where it has free blocks */
    struct region *region;
    uint32_t first_unit, class, block_size;
    uint16_t capacity, free_count;
    uint8_t free[RUN_BLOCKS_MAX]; /* numbers of free blocks; the last one is the next to be taken */
};

struct value_arena_map value_arena_map;
static struct {
    pthread_mutex_t lock;
    bool tried;
    struct list regions;
    struct list runs[CLASSES];
    size_t limit, granules;
    uint64_t *indices; /* a bit for each: in use */
    struct value_arena_stats stats;
    uint32_t empty_regions;
    struct run *spare; /* the run that became empty last: one that comes and goes need not be made each time */
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = SIZE_MAX};

/* Sizes */

/* The class whose blocks are just large enough, for sizes up to SMALL_MAX. */
static uint32_t class_of(size_t size) {
    if (size <= VALUE_BLOCK_MIN) return 0;
    size_t last = size - 1;
    uint32_t doubling = (uint32_t)(63 - __builtin_clzl(last)) - (uint32_t)__builtin_ctz(VALUE_BLOCK_MIN);
    size_t step = ((size_t)VALUE_BLOCK_MIN << doubling) / STEPS;
    return doubling * STEPS + (uint32_t)((last - ((size_t)VALUE_BLOCK_MIN << doubling)) / step) + 1;
}
static uint32_t class_size(uint32_t class) {
    uint32_t base = (uint32_t)VALUE_BLOCK_MIN << (class / STEPS);
    return base + class % STEPS * (base / STEPS);
}

/* Rows of bits */

static uint32_t next_bit(const uint64_t *bits, uint32_t from, uint32_t end, bool value) {
    while (from < end) {
        uint64_t word = bits[from / 64] ^ (value ? 0 : UINT64_MAX);
        word >>= from % 64;
        if (word) {
            from += (uint32_t)__builtin_ctzl(word);
            return from < end ? from : end;
        }
        from = (from / 64 + 1) * 64;
    }
    return end;
}

static void set_bits(uint64_t *bits, uint32_t from, uint32_t count, bool value) {
    for (uint32_t i = from; i < from + count; i++) {
        if (value)
            bits[i / 64] |= UINT64_C(1) << i % 64;
        else
            bits[i / 64] &= ~(UINT64_C(1) << i % 64);
    }
}

/* Regions */

static void before_fork(void) {
    pthread_mutex_lock(&arena.lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&arena.lock);
}

bool value_arena_open(void) {
    pthread_mutex_lock(&arena.lock);
    if (!arena.tried) {
        arena.tried = true;
        list_init(&arena.regions);
        for (int i = 0; i < CLASSES; i++) list_init(&arena.runs[i]);
        size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
        size_t size = (memory * 2 + GRANULE - 1) & ~(size_t)(GRANULE - 1);
        char *base = mmap(NULL, size + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED) {
            arena.granules = size >> VALUE_GRANULE_BITS;
            value_arena_map.regions = mem_calloc(arena.granules, sizeof *value_arena_map.regions);
            arena.indices = mem_calloc((arena.granules + 63) / 64, sizeof *arena.indices);
            value_arena_map.base = (char *)(((uintptr_t)base + GRANULE - 1) & ~(uintptr_t)(GRANULE - 1));
            value_arena_map.size = size;
            pthread_atfork(before_fork, after_fork, after_fork);
        }
    }
    bool there = value_arena_map.size != 0;
    pthread_mutex_unlock(&arena.lock);
    return there;
}

void value_arena_set_limit(size_t bytes) {
    pthread_mutex_lock(&arena.lock);
    arena.limit = bytes;
    pthread_mutex_unlock(&arena.lock);
}

/* The first of `count` granules in a row that nobody has. */
static size_t find_granules(size_t count) {
    size_t row = 0;
    for (size_t at = 0; at < arena.granules; at++) {
        row = value_arena_map.regions[at] ? 0 : row + 1;
        if (row == count) return at + 1 - count;
    }
    return SIZE_MAX;
}

/* A region in which `units` units fit. */
static struct region *region_new(size_t units) {
    size_t size = arena.stats.mapped / 8, needed = units << UNIT_BITS;
    if (size > REGION_MAX) size = REGION_MAX;
    if (size < needed) size = needed;
    size = (size + GRANULE - 1) & ~(size_t)(GRANULE - 1);
    if (arena.stats.mapped + size > arena.limit) size = (needed + GRANULE - 1) & ~(size_t)(GRANULE - 1);
    if (arena.stats.mapped + size > arena.limit || size >> UNIT_BITS > UINT32_MAX) return NULL;
    size_t first = find_granules(size >> VALUE_GRANULE_BITS);
    if (first == SIZE_MAX) return NULL;
    char *base = value_arena_map.base + (first << VALUE_GRANULE_BITS);
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return NULL;
    madvise(base, size, MADV_HUGEPAGE);
    ASAN_POISON_MEMORY_REGION(base, size);
    struct region *region = mem_calloc(1, sizeof *region);
    region->seen = (struct value_region){.base = base, .size = size};
    region->seen.index = next_bit(arena.indices, 0, (uint32_t)arena.granules, false);
    set_bits(arena.indices, region->seen.index, 1, true);
    region->units = region->free_units = region->longest = (uint32_t)(size >> UNIT_BITS);
    region->bits = mem_calloc((region->units + 63) / 64, sizeof *region->bits);
    region->owners = mem_calloc(region->units, sizeof *region->owners);
    for (size_t i = 0; i < size >> VALUE_GRANULE_BITS; i++) value_arena_map.regions[first + i] = &region->seen;
    list_append(&arena.regions, &region->link);
    arena.stats.mapped += size;
    arena.stats.regions++;
    arena.empty_regions++;
    return region;
}

/* An empty region goes, unless somebody holds it or it is the only empty one. */
static void region_may_go(struct region *region) {
    if (region->free_units < region->units || region->seen.holders || arena.empty_regions <= 1) return;
    char *base = region->seen.base;
    size_t size = region->seen.size, first = (size_t)(base - value_arena_map.base) >> VALUE_GRANULE_BITS;
    ASAN_UNPOISON_MEMORY_REGION(base, size);
    /* Where the addresses cannot be reserved anew, they stay taken up by pages that are empty. */
    if (mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        madvise(base, size, MADV_DONTNEED);
    for (size_t i = 0; i < size >> VALUE_GRANULE_BITS; i++) value_arena_map.regions[first + i] = NULL;
    set_bits(arena.indices, region->seen.index, 1, false);
    list_remove(&arena.regions, &region->link);
    arena.stats.mapped -= size;
    arena.stats.regions--;
    arena.empty_regions--;
    mem_free(region->bits);
    mem_free(region->owners);
    mem_free(region);
}

/* An empty region that the caller holds and that had better go. It stays until the caller lets go of it. */
static const struct value_region *find_to_go(bool (*holds)(void *context, const struct value_region *region),
                                             void *context) {
    const struct value_region *found = NULL;
    pthread_mutex_lock(&arena.lock);
    if (arena.empty_regions > 1) {
        list_each(&arena.regions, link) {
            struct region *region = container_of(link, struct region, link);
            if (region->free_units < region->units || !holds(context, &region->seen)) continue;
            found = &region->seen;
            break;
        }
    }
    pthread_mutex_unlock(&arena.lock);
    return found;
}

void value_arena_sweep(bool (*holds)(void *context, const struct value_region *region),
                       bool (*release)(void *context, const struct value_region *region), void *context) {
    for (const struct value_region *region; (region = find_to_go(holds, context)) && release(context, region);)
        value_arena_release(region);
}

void value_arena_hold(const struct value_region *region) {
    pthread_mutex_lock(&arena.lock);
    ((struct region *)region)->seen.holders++;
    pthread_mutex_unlock(&arena.lock);
}

void value_arena_release(const struct value_region *region) {
    pthread_mutex_lock(&arena.lock);
    ((struct region *)region)->seen.holders--;
    region_may_go((struct region *)region);
    pthread_mutex_unlock(&arena.lock);
}

/* Units */

static bool find_units(struct region *region, uint32_t count, uint32_t *first) {
    if (region->longest < count || region->free_units < count) return false;
    uint32_t longest = 0;
    for (uint32_t at = 0; at < region->units;) {
        uint32_t start = next_bit(region->bits, at, region->units, false);
        at = next_bit(region->bits, start, region->units, true);
        if (at - start >= count) {
            *first = start;
            return true;
        }
        if (at - start > longest) longest = at - start;
    }
    region->longest = longest;
    return false;
}

static struct region *take_units(size_t count, uint32_t *first) {
    struct region *found = NULL;
    list_each(&arena.regions, link) {
        struct region *region = container_of(link, struct region, link);
        if (count <= region->units && find_units(region, (uint32_t)count, first)) {
            found = region;
            break;
        }
    }
    if (!found) {
        if (!(found = region_new(count))) return NULL;
        *first = 0;
    }
    if (found->free_units == found->units) arena.empty_regions--;
    set_bits(found->bits, *first, (uint32_t)count, true);
    found->free_units -= (uint32_t)count;
    return found;
}

static void give_units(struct region *region, uint32_t first, uint32_t count) {
    set_bits(region->bits, first, count, false);
    region->free_units += count;
    region->longest = region->free_units;
    if (region->free_units < region->units) return;
    arena.empty_regions++;
    region_may_go(region);
}

/* Runs */

static struct run *run_new(uint32_t class) {
    uint32_t first;
    struct region *region = take_units(RUN_UNITS, &first);
    if (!region) return NULL;
    struct run *run = mem_calloc(1, sizeof *run);
    run->region = region;
    run->first_unit = first;
    run->class = class;
    run->block_size = class_size(class);
    run->capacity = run->free_count = (uint16_t)(RUN_BYTES / run->block_size);
    for (int i = 0; i < run->capacity; i++) run->free[i] = (uint8_t)(run->capacity - 1 - i);
    for (uint32_t i = 0; i < RUN_UNITS; i++) region->owners[first + i] = (uintptr_t)run;
    list_append(&arena.runs[class], &run->link);
    return run;
}

static char *run_base(const struct run *run) {
    return run->region->seen.base + ((size_t)run->first_unit << UNIT_BITS);
}

static void run_free(struct run *run) {
    list_remove(&arena.runs[run->class], &run->link);
    give_units(run->region, run->first_unit, RUN_UNITS);
    mem_free(run);
}

static void run_give(struct run *run, void *block) {
    uint32_t number = (uint32_t)((char *)block - run_base(run)) / run->block_size;
    run->free[run->free_count++] = (uint8_t)number;
    if (run->free_count == 1) list_prepend(&arena.runs[run->class], &run->link);
    if (run->free_count < run->capacity) return;
    struct run *before = arena.spare;
    arena.spare = run;
    if (before) run_free(before);
}

/* Blocks */

static void *take_small(size_t size, size_t *usable) {
    uint32_t class = class_of(size);
    struct list *runs = &arena.runs[class];
    struct run *run = runs->len ? container_of(list_first(runs), struct run, link) : run_new(class);
    if (!run) return NULL;
    if (run == arena.spare) arena.spare = NULL;
    void *block = run_base(run) + (size_t)run->free[--run->free_count] * run->block_size;
    if (run->free_count == 0) list_remove(runs, &run->link);
    *usable = run->block_size;
    return block;
}

static void *take_large(size_t size, size_t *usable) {
    size_t units = (size + UNIT - 1) >> UNIT_BITS;
    uint32_t first;
    struct region *region = take_units(units, &first);
    if (!region) return NULL;
    region->owners[first] = units << 1 | 1;
    *usable = units << UNIT_BITS;
    return region->seen.base + ((size_t)first << UNIT_BITS);
}

void *value_arena_take(size_t size, size_t *usable) {
    if (size > value_arena_map.size) return NULL;
    pthread_mutex_lock(&arena.lock);
    void *block = size <= SMALL_MAX ? take_small(size, usable) : take_large(size, usable);
    if (block) {
        arena.stats.used += *usable;
        arena.stats.blocks++;
    }
    pthread_mutex_unlock(&arena.lock);
    if (!block) return NULL;
    ASAN_UNPOISON_MEMORY_REGION(block, *usable);
    mem_count(*usable);
    return block;
}

/* The owner's word of the unit that the block begins in. */
static uintptr_t owner_of(const void *block, struct region **region, uint32_t *unit) {
    *region = (struct region *)value_arena_region(block);
    *unit = (uint32_t)((size_t)((const char *)block - (*region)->seen.base) >> UNIT_BITS);
    return (*region)->owners[*unit];
}

static size_t size_of_owner(uintptr_t owner) {
    return owner & 1 ? (size_t)(owner >> 1) << UNIT_BITS : ((const struct run *)owner)->block_size;
}

void value_arena_give(void *block) {
    struct region *region;
    uint32_t unit;
    pthread_mutex_lock(&arena.lock);
    uintptr_t owner = owner_of(block, &region, &unit);
    size_t size = size_of_owner(owner);
    ASAN_POISON_MEMORY_REGION(block, size);
    arena.stats.used -= size;
    arena.stats.blocks--;
    if (owner & 1)
        give_units(region, unit, (uint32_t)(owner >> 1));
    else
        run_give((struct run *)owner, block);
    pthread_mutex_unlock(&arena.lock);
    mem_count(-size);
}

size_t value_arena_block_size(const void *block) {
    struct region *region;
    uint32_t unit;
    pthread_mutex_lock(&arena.lock);
    size_t size = size_of_owner(owner_of(block, &region, &unit));
    pthread_mutex_unlock(&arena.lock);
    return size;
}

void value_arena_read_stats(struct value_arena_stats *stats) {
    pthread_mutex_lock(&arena.lock);
    *stats = arena.stats;
    pthread_mutex_unlock(&arena.lock);
}
