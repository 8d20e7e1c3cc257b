/* memory.c: counted allocation over jemalloc or libc.
 *
 * The count is the size that the allocator really reserves (the size class), which is the meaning of used_memory. With
 * jemalloc the class of a new block follows from the requested size, and a table holds the classes of small sizes, so
 * an allocation reads no metadata of the block. A free asks the allocator for the block's size.
 *
 * Each thread adds to a counter on its own cache line. The list of counters only grows: a thread that ends leaves its
 * counter, with its sum, to the next thread that starts, so no byte is counted twice or lost. A counter has a single
 * writer. It is atomic only because mem_used() reads it from other threads; the addition is not an atomic
 * read-modify-write.
 *
 * Rejected: one shared atomic counter (a contended cache line in every allocation once there are I/O threads); headers
 * in front of the blocks (16 bytes per block); sdallocx with the size just queried (slower than free: 20 against 15 ns
 * for an allocation and its free, jemalloc 5.3; jemalloc alone takes 8). */
#include "lib/system/memory.h"
#include "lib/system/likely.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef USE_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

enum { CACHE_LINE = 64 };

struct memory_counter {
    _Alignas(CACHE_LINE) _Atomic size_t bytes;
    _Atomic size_t libraries[MEM_LIBRARIES];
    struct memory_counter *next; /* link in `counters`; immutable once published */
    _Atomic bool owned;          /* by a running thread */
};
static _Atomic(struct memory_counter *) counters;
#ifdef LIBRARY_THAT_IS_LOADED /* by dlopen(): static TLS is scarce, and one such variable takes all others along */
static _Thread_local struct memory_counter *my_counter;
#else
static _Thread_local struct memory_counter *my_counter __attribute__((tls_model("initial-exec")));
#endif
static pthread_key_t counter_key;
static pthread_once_t counter_once = PTHREAD_ONCE_INIT;

static void counter_leave(void *counter) {
    my_counter = NULL;
    atomic_store_explicit(&((struct memory_counter *)counter)->owned, false, memory_order_release);
}
static void counter_setup(void) {
    if (pthread_key_create(&counter_key, counter_leave)) abort();
}

static __attribute__((noinline)) struct memory_counter *counter_claim(void) {
    pthread_once(&counter_once, counter_setup);
    struct memory_counter *c;
    for (c = atomic_load(&counters); c; c = c->next) {
        bool owned = false;
        if (atomic_compare_exchange_strong(&c->owned, &owned, true)) break;
    }
    if (!c) {
        c = aligned_alloc(CACHE_LINE, sizeof(*c));
        if (!c) abort();
        memset(c, 0, sizeof(*c));
        c->owned = true;
        c->next = atomic_load(&counters);
        while (!atomic_compare_exchange_weak(&counters, &c->next, c))
            ;
    }
    my_counter = c;
    pthread_setspecific(counter_key, c);
    return c;
}

static inline struct memory_counter *counter_own(void) {
    struct memory_counter *c = my_counter;
    return unlikely(!c) ? counter_claim() : c;
}

static inline void mem_add(_Atomic size_t *sum, size_t bytes) { /* a negative count wraps, and so does the sum */
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static inline void count(size_t bytes) {
    mem_add(&counter_own()->bytes, bytes);
}

void mem_count(size_t bytes) {
    count(bytes);
}

size_t mem_used(void) {
    size_t sum = 0;
    for (struct memory_counter *c = atomic_load(&counters); c; c = c->next)
        sum += atomic_load_explicit(&c->bytes, memory_order_relaxed);
    /* The counters are not read at one instant, so a block freed by another thread may be missing. */
    return (ptrdiff_t)sum < 0 ? 0 : sum;
}

size_t mem_used_by_library(enum mem_library library) {
    size_t sum = 0;
    for (struct memory_counter *c = atomic_load(&counters); c; c = c->next)
        sum += atomic_load_explicit(&c->libraries[library], memory_order_relaxed);
    return (ptrdiff_t)sum < 0 ? 0 : sum;
}

/* --- The allocators --- */

enum { SIZE_MIN = 1 };
/* A larger size is an error or an attack, whatever the allocator returns. (AddressSanitizer ends the process above its
 * own limit.) */
#ifdef __SANITIZE_ADDRESS__
#define SIZE_LIMIT ((size_t)1 << 39)
#else
#define SIZE_LIMIT ((size_t)1 << 46)
#endif

#ifdef USE_JEMALLOC
/* The size classes of small sizes, in units of 16 bytes: they are multiples of 16 except the smallest, 8. */
enum { SMALL_MAX = 4096 };
static uint16_t small_classes[SMALL_MAX / 16 + 1]; /* 0: not queried yet */
static __attribute__((noinline)) size_t class_lookup(size_t size) {
    size_t class = nallocx(size, 0);
    if (size > 8 && size <= SMALL_MAX)
        __atomic_store_n(&small_classes[(size + 15) / 16], (uint16_t) class, __ATOMIC_RELAXED);
    return class;
}
static inline size_t class_of(void *block, size_t size) {
    if (size > 8 && size <= SMALL_MAX) {
        size_t class = __atomic_load_n(&small_classes[(size + 15) / 16], __ATOMIC_RELAXED);
        if (likely(class)) return class;
    }
    return class_lookup(size);
}
#else
static inline size_t class_of(void *block, size_t size) {
    return malloc_usable_size(block);
}
#endif

static void oom_default(size_t size) {
    fprintf(stderr, "Out of memory trying to allocate %zu bytes\n", size);
    fflush(stderr);
}
static void (*oom_handler)(size_t size) = oom_default;
void mem_set_oom_handler(void (*handler)(size_t size)) {
    oom_handler = handler ? handler : oom_default;
}

static __attribute__((noinline, noreturn, cold)) void out_of_memory(size_t size) {
    oom_handler(size);
    abort();
}

static inline void *try_alloc(size_t size, size_t *usable) {
    if (unlikely(size > SIZE_LIMIT)) return NULL;
    if (unlikely(!size)) size = SIZE_MIN;
    void *block = malloc(size);
    if (unlikely(!block)) return NULL;
    *usable = class_of(block, size);
    count(*usable);
    return block;
}

static inline void *try_realloc(void *block, size_t size, size_t *usable) {
    if (!block) return try_alloc(size, usable);
    if (unlikely(size > SIZE_LIMIT)) return NULL;
    size_t before = malloc_usable_size(block);
    void *moved = realloc(block, size);
    if (unlikely(!moved)) return NULL;
    *usable = class_of(moved, size);
    count(*usable - before);
    return moved;
}

void *mem_alloc(size_t size) {
    size_t usable;
    void *block = try_alloc(size, &usable);
    if (unlikely(!block)) out_of_memory(size);
    return block;
}

void *mem_try_calloc(size_t number, size_t size) {
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(number, size, &bytes) || bytes > SIZE_LIMIT)) return NULL;
    if (!bytes) bytes = SIZE_MIN;
    void *block = calloc(1, bytes);
    if (likely(block != NULL)) count(class_of(block, bytes));
    return block;
}

void *mem_calloc(size_t number, size_t size) {
    void *block = mem_try_calloc(number, size);
    if (unlikely(!block)) out_of_memory(size && number > SIZE_MAX / size ? SIZE_MAX : number * size);
    return block;
}

void *mem_realloc(void *block, size_t size) {
    size_t usable;
    if (unlikely(!size)) {
        mem_free(block);
        return NULL;
    }
    void *moved = try_realloc(block, size, &usable);
    if (unlikely(!moved)) out_of_memory(size);
    return moved;
}

void *mem_try_alloc(size_t size) {
    size_t usable;
    return try_alloc(size, &usable);
}

void *mem_try_realloc(void *block, size_t size) {
    size_t usable;
    return try_realloc(block, size ? size : SIZE_MIN, &usable);
}

bool mem_is_available(size_t size) {
    void *block = mem_try_alloc(size);
    mem_free(block);
    return block != NULL;
}

void *mem_alloc_usable(size_t size, size_t *usable) {
    void *block = try_alloc(size, usable);
    if (unlikely(!block)) out_of_memory(size);
    return block;
}

void *mem_realloc_usable(void *block, size_t size, size_t *usable) {
    void *moved = try_realloc(block, size ? size : SIZE_MIN, usable);
    if (unlikely(!moved)) out_of_memory(size);
    return moved;
}

void mem_free(void *block) {
    if (!block) return;
    size_t usable = malloc_usable_size(block);
    count(-usable);
    free(block);
}

void *mem_library_alloc(enum mem_library library, size_t size) {
    if (unlikely(size > SIZE_LIMIT)) return NULL;
    void *block = malloc(size ? size : SIZE_MIN);
    if (likely(block != NULL)) mem_add(&counter_own()->libraries[library], class_of(block, size ? size : SIZE_MIN));
    return block;
}

void *mem_library_realloc(enum mem_library library, void *block, size_t size) {
    if (!block) return mem_library_alloc(library, size);
    if (!size) {
        mem_library_free(library, block);
        return NULL;
    }
    if (unlikely(size > SIZE_LIMIT)) return NULL;
    size_t before = malloc_usable_size(block);
    void *moved = realloc(block, size);
    if (likely(moved != NULL)) mem_add(&counter_own()->libraries[library], class_of(moved, size) - before);
    return moved;
}

void mem_library_free(enum mem_library library, void *block) {
    if (!block) return;
    mem_add(&counter_own()->libraries[library], -malloc_usable_size(block));
    free(block);
}

size_t mem_size(const void *block) {
    return block ? malloc_usable_size((void *)block) : 0;
}

char *mem_strndup(const char *text, size_t len) {
    char *copy = mem_alloc(len + 1);
    if (len) memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}
char *mem_strdup(const char *text) {
    return mem_strndup(text, strlen(text));
}

/* --- Statistics --- */

static size_t resident_now(void) {
    char text[256];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len <= 0) return 0;
    text[len] = '\0';
    unsigned long size, resident;
    if (sscanf(text, "%lu %lu", &size, &resident) != 2) return 0;
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

#ifdef USE_JEMALLOC
static size_t jemalloc_number(const char *name) {
    size_t value = 0, len = sizeof(value);
    return mallctl(name, &value, &len, NULL, 0) == 0 ? value : 0;
}
static void allocator_stats(struct mem_stats *stats) {
    uint64_t epoch = 1;
    size_t len = sizeof(epoch);
    mallctl("epoch", &epoch, &len, &epoch, len);
    stats->allocated = jemalloc_number("stats.allocated");
    stats->active = jemalloc_number("stats.active");
    stats->resident = jemalloc_number("stats.resident");
    char name[64];
    snprintf(name, sizeof(name), "stats.arenas.%u.pmuzzy", (unsigned)MALLCTL_ARENAS_ALL);
    stats->muzzy = jemalloc_number(name) * jemalloc_number("arenas.page");
}
const char *mem_allocator(void) {
    static char name[32]; /* every thread writes the same value */
    if (!name[0]) {
        const char *version = NULL;
        size_t len = sizeof(version);
        char text[32] = "jemalloc-";
        if (mallctl("version", &version, &len, NULL, 0) == 0 && version) {
            size_t digits = strcspn(version, "-");
            if (digits < sizeof(text) - 10) memcpy(text + 9, version, digits);
        }
        memcpy(name, text, sizeof(name));
    }
    return name;
}
void mem_purge(void) {
    char name[64];
    snprintf(name, sizeof(name), "arena.%u.purge", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
}
bool mem_purge_in_background(bool on) {
    return mallctl("background_thread", NULL, NULL, &on, sizeof(on)) == 0;
}
#else
static void allocator_stats(struct mem_stats *stats) {
    struct mallinfo2 info = mallinfo2();
    stats->allocated = info.uordblks + info.hblkhd;
    stats->active = stats->resident = info.arena + info.hblkhd;
}
const char *mem_allocator(void) {
    return "libc";
}
void mem_purge(void) {
    malloc_trim(0);
}
bool mem_purge_in_background(bool on) {
    return !on;
}
#endif

void mem_read_stats(struct mem_stats *stats) {
    memset(stats, 0, sizeof(*stats));
    allocator_stats(stats);
    stats->rss = resident_now();
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) stats->total_system = (size_t)pages * (size_t)page;
}
