/* value_arena.c: see value_arena.h.
 *
 * A region is divided into units of 8 KiB, with a bit each that says whether it is in use. A block of more than
 * SMALL_MAX bytes is a number of units, first fit. Smaller ones are cut from runs of RUN_UNITS units, each for one size
 * of block: eight sizes between a power of two and the next, so that at most an eighth is lost. A value has a header of
 * a few bytes, so block sizes that are powers of two would nearly double the memory of values whose sizes are. The
 * state of blocks is stored outside of them, so giving and taking a block does not access its memory. The block that
 * was given last is taken first.
 *
 * Threads.  Each thread that takes small blocks keeps a few free ones of each class it uses (4 MiB in the worst case),
 * so that it takes the lock once for several blocks, or not at all where it gives back what it takes. Large blocks take
 * the lock each time: a memory copy of 64 KiB costs a hundred times as much. The lock is also held while regions are
 * mapped.
 *
 * Fork.  A kernel copies the page tables of private memory when a process forks, and since Linux 5.12 the pages of
 * pinned private memory as well, at half a second a gigabyte. It copies neither for shared mappings, so regions are
 * shared mappings, and parent and child see the same bytes. Then nothing that the child reads may change: while a child
 * lives, blocks that were in use at the fork are not reused (they wait in `deferred`) and not written to
 * (blob_is_shared() is true for them). Blocks taken since the fork are `fresh` and can be reused and written. A child
 * takes and gives no blocks.
 *
 * A new region has an eighth of the size of the existing ones, between 2 and 32 MiB: a small server locks little
 * memory, a large one has few regions. A region for large blocks has space for REGION_BLOCKS of them: in one of 2 MiB,
 * a value of a little more than 1 MiB would leave half unused.
 *
 * Empty regions.  Values that are created and deleted repeatedly should not map, fault in and register a region each
 * time: for 50 clients that overwrite values of 1 MiB this was more than half of the server's time. So empty regions
 * are kept as far as all regions were in use at a time in the last PEAK_MS to twice that, or up to EMPTY_KEPT bytes.
 * The owner calls value_arena_age() regularly, so that memory which is no longer needed goes back to the system in
 * time. Where the limit, or registered memory, is short, empty regions go first.
 *
 * Rejected: jemalloc's arenas with hooks of our own (the build without jemalloc, which the sanitizers use, would have
 * no arena; jemalloc's caches mix blocks of several arenas); huge pages of hugetlbfs (a forked child that finds the
 * pool empty is killed). Regions use transparent huge pages. */
#include "net/value_arena.h"
#include "lib/structures/linked_list.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/blob.h"
#include <pthread.h>
#include <stdatomic.h>
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
    REGION_BLOCKS = 4,            /* blocks of the size that a new region is for, unless they are larger than that */
    EMPTY_KEPT = 8 * 1024 * 1024, /* bytes of empty regions that are always kept */
    PEAK_MS = 2000,
    AGE_BUDGET_US = 1000, /* of freeing regions, which takes milliseconds for a large one; one is always freed */
    POPULATE_FROM = 16 * 1024 * 1024, /* bytes of blocks in use */
    CACHE_BLOCKS = 16,                /* free blocks of a class that a thread caches, at most, */
    CACHE_BYTES = 64 * 1024,          /* and their bytes, but at least two blocks */
};
_Static_assert(VALUE_BLOCK_MIN << DOUBLINGS == SMALL_MAX, "");
_Static_assert(RUN_BLOCKS_MAX <= 256, "numbers of blocks are bytes");

struct region {
    struct value_region shown; /* must be first */
    struct list_link link;
    uint32_t units, free_units;
    uint32_t touched_units; /* those before it are not populated */
    uint32_t longest;       /* upper bound of the longest run of free units; often an overestimate */
    uint64_t emptied;       /* the value of arena.emptied when it became empty */
    uint64_t *bits;         /* a bit for each unit: in use */
    /* For each unit of a run the run. For the first unit of a large block: one, 31 bits of how many units there are,
     * and the period (below) in which it was taken. */
    uint64_t *owners;
};

struct arena_run {
    struct list_link link; /* in its class, while it has free blocks */
    struct region *region;
    uint32_t first_unit, class, block_size;
    uint16_t capacity, free_count;
    uint32_t period; /* that `fresh` is of: a bit for each block that was taken while a child reads the others */
    uint64_t fresh[RUN_BLOCKS_MAX / 64];
    uint8_t free[RUN_BLOCKS_MAX]; /* numbers of free blocks; the last one is the next to be taken */
};

struct value_arena_map value_arena_map;
static struct {
    pthread_mutex_t lock;
    bool tried;
    struct list regions;
    struct list gone; /* regions that are not used any more and are still mapped */
    bool ending;      /* a job unmaps them */
    struct list runs[CLASSES];
    size_t limit, granules;
    uint64_t *indices; /* a bit for each: in use */
    struct value_arena_stats stats;
    size_t empty_bytes; /* of regions */
    uint64_t emptied;   /* times that a region became empty */
    /* The most bytes of regions that were not empty at a time: since aged_ms, and in the period before. */
    size_t peak, peak_before;
    uint64_t aged_ms;
    struct list caches;
    uint32_t period; /* of deferring; 0: there was none yet */
    void **deferred; /* blocks given back while a child may still read them */
    size_t deferred_count, deferred_capacity;
    struct arena_run
        *spare; /* the run that became empty last, kept so that a run used on and off is not created each time */
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = SIZE_MAX};
static atomic_bool deferring;
static bool in_child; /* this process is a forked child, which only reads */

/* Free blocks that one thread keeps, by class. They are in use as far as the runs know. */
struct cache {
    struct list_link link;
    _Atomic size_t bytes, count; /* of all blocks in it; its thread writes */
    struct {
        uint32_t count;
        void *blocks[CACHE_BLOCKS];
    } classes[CLASSES];
};
static pthread_key_t cache_key; /* for its destructor */
static _Thread_local struct cache *my_cache;

/* --- Sizes --- */

/* The smallest class whose blocks fit, for sizes up to SMALL_MAX. */
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

/* --- Rows of bits --- */

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
    for (uint32_t end = from + count, next; from < end; from = next) {
        next = (from / 64 + 1) * 64;
        uint64_t mask = UINT64_MAX << from % 64;
        if (next > end) {
            mask &= UINT64_MAX >> (next - end);
            next = end;
        }
        if (value)
            bits[(next - 1) / 64] |= mask;
        else
            bits[(next - 1) / 64] &= ~mask;
    }
}

/* --- Regions --- */

static void value_arena_before_fork(void) {
    pthread_mutex_lock(&arena.lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&arena.lock);
}
/* The regions are shared with the parent, which would see what a child writes to them, reference counts included. */
static void after_fork_in_child(void) {
    in_child = true;
    blob_set_large_use(BLOB_LARGE_FOREIGN);
    pthread_mutex_unlock(&arena.lock);
}

struct cache;
static void cache_end(void *ended);
static void cache_flush(struct cache *cache);
static void unlock_arena(void);

bool value_arena_open(void) {
    pthread_mutex_lock(&arena.lock);
    if (!arena.tried) {
        arena.tried = true;
        list_init(&arena.regions);
        list_init(&arena.gone);
        list_init(&arena.caches);
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
            pthread_key_create(&cache_key, cache_end);
            pthread_atfork(value_arena_before_fork, after_fork, after_fork_in_child);
        }
    }
    bool there = value_arena_map.size != 0;
    pthread_mutex_unlock(&arena.lock);
    return there;
}

void value_arena_set_limit(size_t bytes) {
    pthread_mutex_lock(&arena.lock);
    arena.limit = bytes;
    unlock_arena();
}

/* Finds `count` consecutive free granules and returns the first. */
static size_t find_granules(size_t count) {
    size_t row = 0;
    for (size_t at = 0; at < arena.granules; at++) {
        row = value_arena_map.regions[at] ? 0 : row + 1;
        if (row == count) return at + 1 - count;
    }
    return SIZE_MAX;
}

static size_t whole_granules(size_t bytes) {
    return (bytes + GRANULE - 1) & ~(size_t)(GRANULE - 1);
}

static bool exceeds_limit(size_t size) {
    return arena.stats.mapped + size > arena.limit;
}

static void free_surplus(uint64_t budget_us);

/* Empty regions beyond EMPTY_KEPT are not needed from here on. */
static void forget_peak(void) {
    arena.peak = arena.peak_before = arena.stats.mapped - arena.empty_bytes;
    free_surplus(UINT64_MAX);
}

static size_t region_overhead(const struct region *region) {
    return mem_size(region) + mem_size(region->bits) + mem_size(region->owners);
}

static void description_free(struct region *region) {
    mem_free(region->bits);
    mem_free(region->owners);
    mem_free(region);
}

/* What describes a region of `units` units. NULL: out of memory. */
static struct region *description_new(uint32_t units) {
    struct region *region = mem_try_calloc(1, sizeof *region);
    if (!region) return NULL;
    region->bits = mem_try_calloc((units + 63) / 64, sizeof *region->bits);
    region->owners = mem_try_calloc(units, sizeof *region->owners);
    region->units = region->free_units = region->longest = units;
    if (region->bits && region->owners) return region;
    description_free(region);
    return NULL;
}

/* A region with space for `units` consecutive units. */
static struct region *region_new(size_t units) {
    size_t size = arena.stats.mapped / 8, needed = units << UNIT_BITS;
    if (size < needed * REGION_BLOCKS) size = needed * REGION_BLOCKS;
    if (size > REGION_MAX) size = REGION_MAX;
    if (size < needed) size = needed;
    size = whole_granules(size);
    if (exceeds_limit(size)) size = whole_granules(needed);
    if (exceeds_limit(size)) forget_peak();
    if (exceeds_limit(size) || size >> UNIT_BITS > UINT32_MAX) return NULL;
    size_t first = find_granules(size >> VALUE_GRANULE_BITS);
    if (first == SIZE_MAX) return NULL;
    struct region *region = description_new((uint32_t)(size >> UNIT_BITS));
    if (!region) return NULL;
    char *base = value_arena_map.base + (first << VALUE_GRANULE_BITS);
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        description_free(region);
        return NULL;
    }
    madvise(base, size, MADV_HUGEPAGE);
    ASAN_POISON_MEMORY_REGION(base, size);
    region->shown = (struct value_region){.base = base, .size = size};
    region->shown.index = next_bit(arena.indices, 0, (uint32_t)arena.granules, false);
    set_bits(arena.indices, region->shown.index, 1, true);
    for (size_t i = 0; i < size >> VALUE_GRANULE_BITS; i++) value_arena_map.regions[first + i] = &region->shown;
    list_append(&arena.regions, &region->link);
    arena.stats.mapped += size;
    arena.stats.regions++;
    arena.stats.overhead += region_overhead(region);
    arena.empty_bytes += size;
    return region;
}

/* Whether the region is empty, and enough others are. */
static bool is_surplus(const struct region *region) {
    if (region->free_units < region->units || arena.empty_bytes <= EMPTY_KEPT) return false;
    size_t peak = arena.peak > arena.peak_before ? arena.peak : arena.peak_before;
    return arena.stats.mapped - region->shown.size >= peak;
}

static bool region_may_go(struct region *region) {
    if (!is_surplus(region) || region->shown.holders) return false;
    list_remove(&arena.regions, &region->link);
    list_append(&arena.gone, &region->link);
    arena.stats.mapped -= region->shown.size;
    arena.stats.regions--;
    arena.stats.overhead -= region_overhead(region);
    arena.empty_bytes -= region->shown.size;
    return true;
}

/* Without the lock, and, where there is one, in a background thread: it takes milliseconds. */
static void region_end(struct region *region) {
    char *base = region->shown.base;
    size_t size = region->shown.size, first = (size_t)(base - value_arena_map.base) >> VALUE_GRANULE_BITS;
    ASAN_UNPOISON_MEMORY_REGION(base, size);
    madvise(base, size, MADV_REMOVE); /* frees the pages without keeping other threads from mapping memory */
    /* If the addresses cannot be reserved again, empty pages keep occupying them. */
    mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    pthread_mutex_lock(&arena.lock);
    for (size_t i = 0; i < size >> VALUE_GRANULE_BITS; i++) value_arena_map.regions[first + i] = NULL;
    set_bits(arena.indices, region->shown.index, 1, false);
    pthread_mutex_unlock(&arena.lock);
    description_free(region);
}

static void end_gone(void *unused) {
    for (;;) {
        pthread_mutex_lock(&arena.lock);
        struct region *region = arena.gone.len ? container_of(list_first(&arena.gone), struct region, link) : NULL;
        if (region)
            list_remove(&arena.gone, &region->link);
        else
            arena.ending = false;
        pthread_mutex_unlock(&arena.lock);
        if (!region) return;
        region_end(region);
    }
}

static void unlock_arena(void) {
    bool end = arena.gone.len && !arena.ending;
    if (end) arena.ending = true;
    pthread_mutex_unlock(&arena.lock);
    if (end) background_submit(BACKGROUND_LAZY_FREE, end_gone, NULL);
}

static void free_surplus(uint64_t budget_us) {
    uint64_t began = clock_monotonic_us();
    if (arena.empty_bytes <= EMPTY_KEPT) return;
    list_each(&arena.regions, link) {
        if (region_may_go(container_of(link, struct region, link)) && clock_monotonic_us() - began >= budget_us) return;
    }
}

/* A new period begins. */
static void age(uint64_t now_ms) {
    arena.peak_before = now_ms - arena.aged_ms < 2 * PEAK_MS ? arena.peak : 0;
    arena.peak = arena.stats.mapped - arena.empty_bytes;
    arena.aged_ms = now_ms;
}

void value_arena_age(uint64_t now_ms) {
    if (in_child || !value_arena_map.size) return;
    pthread_mutex_lock(&arena.lock);
    if (now_ms - arena.aged_ms >= PEAK_MS) age(now_ms);
    free_surplus(AGE_BUDGET_US);
    unlock_arena();
}

/* An empty region that the caller holds and that should be freed: the one that was not used for the longest time. It
 * stays until the caller releases it. */
static const struct value_region *find_to_go(bool (*holds)(void *context, const struct value_region *region),
                                             void *context) {
    const struct region *found = NULL;
    pthread_mutex_lock(&arena.lock);
    list_each_entry(&arena.regions, struct region, link, region) {
        if (!is_surplus(region) || !holds(context, &region->shown)) continue;
        if (!found || region->emptied < found->emptied) found = region;
    }
    unlock_arena();
    return found ? &found->shown : NULL;
}

void value_arena_sweep(bool (*holds)(void *context, const struct value_region *region),
                       bool (*release)(void *context, const struct value_region *region), void *context) {
    cache_flush(my_cache);
    for (const struct value_region *region; (region = find_to_go(holds, context)) && release(context, region);)
        continue;
}

void value_arena_hold(const struct value_region *region) {
    pthread_mutex_lock(&arena.lock);
    ((struct region *)region)->shown.holders++;
    unlock_arena();
}

void value_arena_release(const struct value_region *region) {
    pthread_mutex_lock(&arena.lock);
    must(((struct region *)region)->shown.holders > 0);
    ((struct region *)region)->shown.holders--;
    region_may_go((struct region *)region);
    unlock_arena();
}

/* --- Units --- */

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
    list_each_entry(&arena.regions, struct region, link, region) {
        if (count <= region->units && find_units(region, (uint32_t)count, first)) {
            found = region;
            break;
        }
    }
    if (!found) {
        if (!(found = region_new(count))) return NULL;
        *first = 0;
    }
    if (found->free_units == found->units) {
        arena.empty_bytes -= found->shown.size;
        size_t used = arena.stats.mapped - arena.empty_bytes;
        if (used > arena.peak) arena.peak = used;
    }
    must_within(count, found->free_units);
    set_bits(found->bits, *first, (uint32_t)count, true);
    found->free_units -= (uint32_t)count;
    return found;
}

static void give_units(struct region *region, uint32_t first, uint32_t count) {
    must_hold(next_bit(region->bits, first, first + count, false) == first + count, "%u units at %u", count, first);
    set_bits(region->bits, first, count, false);
    region->free_units += count;
    must_within(region->free_units, region->units);
    region->longest = region->free_units;
    if (region->free_units < region->units) return;
    region->emptied = ++arena.emptied;
    arena.empty_bytes += region->shown.size;
    region_may_go(region);
}

/* --- Runs --- */

/* Touches the pages of a run in one call, unless that was done before: filling values in order (loading a data set)
 * would take a page fault for each page, a microsecond and more. A server with few values touches only the pages it
 * uses. */
static void populate(struct region *region, uint32_t first) {
    if (first < region->touched_units || arena.stats.used < POPULATE_FROM) return;
    region->touched_units = first + RUN_UNITS;
#ifdef MADV_POPULATE_WRITE
    madvise(region->shown.base + ((size_t)first << UNIT_BITS), RUN_BYTES, MADV_POPULATE_WRITE); /* may fail: a hint */
#endif
}

static struct arena_run *run_new(uint32_t class) {
    uint32_t first;
    struct region *region = take_units(RUN_UNITS, &first);
    if (!region) return NULL;
    populate(region, first);
    struct arena_run *run = mem_calloc(1, sizeof *run);
    run->region = region;
    run->first_unit = first;
    run->class = class;
    run->block_size = class_size(class);
    run->capacity = run->free_count = (uint16_t)(RUN_BYTES / run->block_size);
    for (int i = 0; i < run->capacity; i++) run->free[i] = (uint8_t)(run->capacity - 1 - i);
    for (uint32_t i = 0; i < RUN_UNITS; i++) region->owners[first + i] = (uintptr_t)run;
    list_append(&arena.runs[class], &run->link);
    arena.stats.overhead += mem_size(run);
    return run;
}

static char *run_base(const struct arena_run *run) {
    return run->region->shown.base + ((size_t)run->first_unit << UNIT_BITS);
}

static void run_free(struct arena_run *run) {
    list_remove(&arena.runs[run->class], &run->link);
    give_units(run->region, run->first_unit, RUN_UNITS);
    arena.stats.overhead -= mem_size(run);
    mem_free(run);
}

static void run_give(struct arena_run *run, void *block) {
    uint32_t number = (uint32_t)((char *)block - run_base(run)) / run->block_size;
    must_less(run->free_count, run->capacity);
    run->free[run->free_count++] = (uint8_t)number;
    run->fresh[number / 64] &= ~(UINT64_C(1) << number % 64);
    if (run->free_count == 1) list_prepend(&arena.runs[run->class], &run->link);
    if (run->free_count < run->capacity) return;
    struct arena_run *before = arena.spare;
    arena.spare = run;
    if (before) run_free(before);
}

/* --- Blocks, under the lock --- */

static inline uint32_t number_in_run(const struct arena_run *run, const void *block) {
    return (uint32_t)((const char *)block - run_base(run)) / run->block_size;
}

static void mark_fresh(struct arena_run *run, const void *block) {
    uint32_t number = number_in_run(run, block);
    if (run->period != arena.period) memset(run->fresh, 0, sizeof run->fresh);
    run->period = arena.period;
    run->fresh[number / 64] |= UINT64_C(1) << number % 64;
}

static void *take_small(uint32_t class) {
    struct list *runs = &arena.runs[class];
    struct arena_run *run = runs->len ? container_of(list_first(runs), struct arena_run, link) : run_new(class);
    if (!run) return NULL;
    if (run == arena.spare) arena.spare = NULL;
    must(run->free_count > 0);
    void *block = run_base(run) + (size_t)run->free[--run->free_count] * run->block_size;
    if (run->free_count == 0) list_remove(runs, &run->link);
    if (atomic_load_explicit(&deferring, memory_order_relaxed)) mark_fresh(run, block);
    arena.stats.used += run->block_size;
    arena.stats.blocks++;
    return block;
}

static void *take_large(size_t size, size_t *usable) {
    size_t units = (size + UNIT - 1) >> UNIT_BITS;
    uint32_t first;
    struct region *region = units > INT32_MAX ? NULL : take_units(units, &first);
    if (!region) return NULL;
    region->owners[first] = (uint64_t)arena.period << 32 | units << 1 | 1;
    *usable = units << UNIT_BITS;
    arena.stats.used += *usable;
    arena.stats.blocks++;
    return region->shown.base + ((size_t)first << UNIT_BITS);
}

/* The owner of the unit that the block begins in. It does not change while the block is in use, so its user needs no
 * lock. */
static uint64_t owner_of(const void *block, struct region **region, uint32_t *unit) {
    *region = (struct region *)value_arena_region(block);
    *unit = (uint32_t)((size_t)((const char *)block - (*region)->shown.base) >> UNIT_BITS);
    return (*region)->owners[*unit];
}
static inline struct arena_run *run_of(uint64_t owner) {
    return owner & 1 ? NULL : (struct arena_run *)(uintptr_t)owner;
}
static inline uint32_t units_of(uint64_t owner) {
    return (uint32_t)owner >> 1;
}
static size_t size_of_owner(uint64_t owner) {
    return owner & 1 ? (size_t)units_of(owner) << UNIT_BITS : run_of(owner)->block_size;
}

static void give_block(void *block) {
    struct region *region;
    uint32_t unit;
    uint64_t owner = owner_of(block, &region, &unit);
    must_within(size_of_owner(owner), arena.stats.used);
    arena.stats.used -= size_of_owner(owner);
    arena.stats.blocks--;
    if (owner & 1)
        give_units(region, unit, units_of(owner));
    else
        run_give(run_of(owner), block);
}

/* The block was taken after the fork, so the child does not use it. */
static bool is_fresh(const void *block, uint64_t owner) {
    if (owner & 1) return arena.period && owner >> 32 == arena.period;
    const struct arena_run *run = run_of(owner);
    uint32_t number = number_in_run(run, block);
    return run->period == arena.period && run->fresh[number / 64] >> number % 64 & 1;
}

/* --- Caches --- */

static inline uint32_t cache_depth(uint32_t class) {
    uint32_t count = CACHE_BYTES / class_size(class);
    return count < 2 ? 2 : count > CACHE_BLOCKS ? CACHE_BLOCKS : count;
}

static inline void cache_count(struct cache *cache, size_t bytes, size_t count) {
    atomic_store_explicit(&cache->bytes, atomic_load_explicit(&cache->bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&cache->count, atomic_load_explicit(&cache->count, memory_order_relaxed) + count,
                          memory_order_relaxed);
}

static void lock_arena(void) {
    pthread_mutex_lock(&arena.lock);
    arena.stats.locked++;
}

/* Gives back `count` blocks of the class. */
static void cache_give(struct cache *cache, uint32_t class, uint32_t count) {
    cache_count(cache, -(size_t)count * class_size(class), -(size_t)count);
    while (count-- > 0) give_block(cache->classes[class].blocks[--cache->classes[class].count]);
}

static void cache_flush(struct cache *cache) {
    if (!cache || in_child) return;
    lock_arena();
    for (uint32_t class = 0; class < CLASSES; class ++) cache_give(cache, class, cache->classes[class].count);
    unlock_arena();
}

static void cache_end(void *ended) {
    cache_flush(ended);
    pthread_mutex_lock(&arena.lock);
    list_remove(&arena.caches, &((struct cache *)ended)->link);
    unlock_arena();
    mem_free(ended);
}

static void cache_begin(void) {
    my_cache = mem_calloc(1, sizeof *my_cache);
    pthread_setspecific(cache_key, my_cache);
    pthread_mutex_lock(&arena.lock);
    list_append(&arena.caches, &my_cache->link);
    unlock_arena();
}

static void *cache_take(uint32_t class) {
    struct cache *cache = my_cache;
    if (!cache->classes[class].count) {
        lock_arena();
        for (uint32_t i = cache_depth(class) / 2; i > 0; i--) {
            void *block = take_small(class);
            if (!block) break;
            cache->classes[class].blocks[cache->classes[class].count++] = block;
        }
        unlock_arena();
        uint32_t got = cache->classes[class].count;
        cache_count(cache, (size_t)got * class_size(class), got);
        if (!got) return NULL;
    }
    cache_count(cache, -(size_t)class_size(class), -(size_t)1);
    return cache->classes[class].blocks[--cache->classes[class].count];
}

static void cache_put(uint32_t class, void *block) {
    struct cache *cache = my_cache;
    uint32_t depth = cache_depth(class);
    if (cache->classes[class].count == depth) {
        lock_arena();
        cache_give(cache, class, (depth + 1) / 2);
        unlock_arena();
    }
    cache->classes[class].blocks[cache->classes[class].count++] = block;
    cache_count(cache, class_size(class), 1);
}

/* --- While a child reads --- */

struct deferred_blocks {
    size_t count;
    void **blocks;
};

static void give_deferred(void *arg) {
    enum { AT_ONCE = 256 };
    struct deferred_blocks *list = arg;
    for (size_t at = 0; at < list->count;) {
        lock_arena();
        for (int i = 0; i < AT_ONCE && at < list->count; i++) give_block(list->blocks[at++]);
        unlock_arena();
    }
    mem_free(list->blocks);
    mem_free(list);
}

void value_arena_defer_free(bool defer_them) {
    static unsigned children;
    struct deferred_blocks *list = NULL;
    if (in_child || !value_arena_map.size || (!defer_them && !children)) return;
    pthread_mutex_lock(&arena.lock);
    if (defer_them) {
        children++;
        if (++arena.period == 0) arena.period = 1;
    } else if (--children) {
        unlock_arena();
        return;
    }
    atomic_store(&deferring, defer_them);
    if (!defer_them && arena.deferred_count) {
        list = mem_alloc(sizeof *list);
        *list = (struct deferred_blocks){arena.deferred_count, arena.deferred};
        arena.deferred = NULL;
        arena.deferred_count = arena.deferred_capacity = 0;
    }
    unlock_arena();
    blob_set_large_use(defer_them ? BLOB_LARGE_READ_BY_CHILD : BLOB_LARGE_OWN);
    if (list) background_submit(BACKGROUND_LAZY_FREE, give_deferred, list);
}

bool value_arena_is_writable(const void *block) {
    struct region *region;
    uint32_t unit;
    if (!atomic_load(&deferring)) return true;
    pthread_mutex_lock(&arena.lock);
    bool fresh = is_fresh(block, owner_of(block, &region, &unit));
    unlock_arena();
    return fresh;
}

/* --- Blocks --- */

void *value_arena_take(size_t size, size_t *usable) {
    if (size > value_arena_map.size || in_child) return NULL;
    void *block;
    bool small = size <= SMALL_MAX;
    uint32_t class = small ? class_of(size) : 0;
    if (small) *usable = class_size(class);
    if (small && !atomic_load_explicit(&deferring, memory_order_acquire)) {
        if (!my_cache) cache_begin();
        block = cache_take(class);
    } else {
        lock_arena();
        block = small ? take_small(class) : take_large(size, usable);
        unlock_arena();
    }
    if (!block) return NULL;
    ASAN_UNPOISON_MEMORY_REGION(block, *usable);
    mem_count(*usable);
    return block;
}

void value_arena_give(void *block) {
    struct region *region;
    uint32_t unit;
    if (in_child) return;
    uint64_t owner = owner_of(block, &region, &unit);
    size_t size = size_of_owner(owner);
    mem_count(-size);
    ASAN_POISON_MEMORY_REGION(block, size);
    bool waits = atomic_load_explicit(&deferring, memory_order_acquire);
    /* A thread that never takes a block (one that frees in the background) caches none. */
    if (!waits && !(owner & 1) && my_cache) {
        cache_put(run_of(owner)->class, block);
        return;
    }
    lock_arena();
    if (waits && !is_fresh(block, owner)) { /* the child may still read it */
        mem_grow(arena.deferred, arena.deferred_count, arena.deferred_capacity, 1024);
        arena.deferred[arena.deferred_count++] = block;
    } else {
        give_block(block);
    }
    unlock_arena();
}

size_t value_arena_block_size(const void *block) {
    struct region *region;
    uint32_t unit;
    return size_of_owner(owner_of(block, &region, &unit));
}

void value_arena_trim(void) {
    if (in_child || !value_arena_map.size) return;
    cache_flush(my_cache);
    pthread_mutex_lock(&arena.lock);
    forget_peak();
    unlock_arena();
}

void value_arena_read_stats(struct value_arena_stats *stats) {
    pthread_mutex_lock(&arena.lock);
    *stats = arena.stats;
    stats->deferred = arena.deferred_count;
    list_each_entry(&arena.caches, const struct cache, link, cache) {
        stats->used -= atomic_load_explicit(&cache->bytes, memory_order_relaxed);
        stats->blocks -= atomic_load_explicit(&cache->count, memory_order_relaxed);
    }
    unlock_arena();
}
