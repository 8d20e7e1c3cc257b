/* The arena: creation, and two allocators whose book-keeping is private to the owner.
 *
 * Objects (queues, rings) come from power-of-two size classes, one set of free lists per kind, filled by
 * bumping a cursor. Spans come from a next-fit walk over the list of spans in use: the cursor only moves
 * forward and wraps at the end, so a freed span rests until 3/4 of the arena has been handed out once.
 * Untouched pages of a sparse memfd cost nothing, so neither allocator tries to be tight; freed pages are
 * given back to the kernel.
 *
 * Rejected: a memfd per region, passed to every peer (a descriptor and a mapping per region and peer). */
#define _GNU_SOURCE
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"

#define HUGE_PAGE (2ull << 20)
#define CLASSES   33

struct free_block {
    struct free_block *next;
    uint64_t off;
};

struct arena arena = {.fd = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t object_cursor, object_end;
static uint64_t span_cursor;
static struct link spans;
static struct free_block *free_blocks[ARENA_KINDS][CLASSES];

static void *map_arena(int fd, uint64_t size) {
    /* Aligned to a huge page, so that peers and owner can use huge pages where the kernel offers them. */
    uint8_t *hole = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED) return NULL;
    uint8_t *at = (uint8_t *)round_up((uint64_t)(uintptr_t)hole, HUGE_PAGE);
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        munmap(hole, size + HUGE_PAGE);
        return NULL;
    }
    if (at > hole) munmap(hole, (size_t)(at - hole));
    munmap(at + size, (size_t)(hole + HUGE_PAGE - at));
    return at;
}

static int arena_create(void) {
    int fd = memfd_create("softrdma", MFD_CLOEXEC);
    if (fd < 0) return -errno;
    int err = ENOMEM;
    /* A process with a limit of address space gets a smaller arena. */
    for (uint64_t size = round_up(config()->arena_bytes, HUGE_PAGE); size >= 64ull << 20;
         size = round_up(size / 2, HUGE_PAGE)) {
        if (ftruncate(fd, (off_t)size)) {
            err = errno;
            continue;
        }
        uint8_t *base = map_arena(fd, size);
        if (!base) continue;
        struct stat st;
        fstat(fd, &st);
        arena.base = base;
        arena.size = size;
        arena.fd = fd;
        arena.inode = st.st_ino;
        arena.dev = st.st_dev;
        return 0;
    }
    close(fd);
    return -err;
}

static void arena_lay_out(void) {
    struct arena_head *head = arena_head();
    head->magic = ARENA_MAGIC;
    head->version = WIRE_VERSION;
    head->pid = (uint32_t)getpid();
    head->size = arena.size;
    head->mr_table = PAGE;
    head->mr_slots = config()->max_mr + 1; /* index 0 is never given out: a key is never 0 */
    while (getrandom(&head->uuid, sizeof(head->uuid), 0) != sizeof(head->uuid)) {
    }
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0)) head->fences = 1;
    object_cursor = round_up(PAGE + (uint64_t)head->mr_slots * sizeof(struct mr_slot), PAGE);
    object_end = round_up(arena.size / 4, HUGE_PAGE);
    span_cursor = object_end;
    list_init(&spans);
}

int arena_start(void) {
    pthread_mutex_lock(&lock);
    int r = 0;
    if (!arena.base && !(r = arena_create())) arena_lay_out();
    pthread_mutex_unlock(&lock);
    return r;
}

void arena_protect_fork(void) {
    if (arena.base) madvise(arena.base, arena.size, MADV_DONTFORK);
}

void arena_forget(void) {
    if (arena.fd >= 0) close(arena.fd);
    arena = (struct arena){.fd = -1};
    memset(free_blocks, 0, sizeof(free_blocks));
    pthread_mutex_init(&lock, NULL);
}

static uint32_t size_class(size_t bytes) {
    if (bytes < CACHE_LINE) bytes = CACHE_LINE;
    return bytes > (1u << 31) ? CLASSES : log2_of(pow2_at_least((uint32_t)bytes));
}

/* The whole pages of a large free ring have been given back to the kernel: they read as zero. */
static bool block_has_hole(enum arena_kind kind, size_t bytes) {
    return kind == ARENA_RING && bytes >= 16 * PAGE;
}

static void clear_block(enum arena_kind kind, uint64_t off, size_t bytes) {
    if (!block_has_hole(kind, bytes)) {
        memset(arena_ptr(off), 0, bytes);
        return;
    }
    uint64_t from = round_up(off, PAGE), to = round_down(off + bytes, PAGE);
    memset(arena_ptr(off), 0, from - off);
    memset(arena_ptr(to), 0, off + bytes - to);
}

uint64_t arena_alloc(enum arena_kind kind, size_t bytes) {
    uint32_t class = size_class(bytes);
    if (class >= CLASSES) return 0;
    uint64_t off = 0, size = 1ull << class;
    pthread_mutex_lock(&lock);
    struct free_block *block = free_blocks[kind][class];
    if (block) {
        free_blocks[kind][class] = block->next;
        off = block->off;
        free(block);
    } else if (object_cursor + size <= object_end) {
        off = object_cursor;
        /* Objects need the bytes asked for, not their class: big sparse ones (ready sets) pack to the
         * line. */
        object_cursor += kind == ARENA_RING ? size : round_up(bytes, CACHE_LINE);
        pthread_mutex_unlock(&lock);
        return off; /* fresh pages are zero */
    }
    pthread_mutex_unlock(&lock);
    if (off) clear_block(kind, off, bytes);
    return off;
}

void arena_free(enum arena_kind kind, uint64_t off, size_t bytes) {
    if (!off) return;
    uint32_t class = size_class(bytes);
    struct free_block *block = malloc(sizeof(*block));
    if (!block) return; /* lost until exit: better than failing a destroy */
    if (block_has_hole(kind, bytes)) {
        uint64_t from = round_up(off, PAGE), to = round_down(off + bytes, PAGE);
        fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
    }
    pthread_mutex_lock(&lock);
    *block = (struct free_block){free_blocks[kind][class], off};
    free_blocks[kind][class] = block;
    pthread_mutex_unlock(&lock);
}

/* The first gap of `bytes` at or after `from`; fills in the span to put before. */
static uint64_t find_gap(uint64_t from, uint64_t bytes, uint64_t align, uint64_t skew, struct link **before) {
    uint64_t gap = object_end;
    for (struct link *l = spans.next;; l = l->next) {
        struct arena_span *next = l == &spans ? NULL : container_of(l, struct arena_span, link);
        uint64_t end = next ? next->off : arena.size;
        uint64_t at = gap > from ? gap : from;
        at = at <= skew % align ? skew % align : round_up(at - skew % align, align) + skew % align;
        if (at + bytes <= end) {
            *before = l;
            return at;
        }
        if (!next) return 0;
        gap = next->off + next->bytes;
    }
}

struct arena_span *arena_span_alloc(uint64_t bytes, uint64_t align, uint64_t skew) {
    struct arena_span *span = malloc(sizeof(*span));
    if (!span) return NULL;
    struct link *before = &spans;
    pthread_mutex_lock(&lock);
    struct arena_span *last = list_empty(&spans) ? NULL : container_of(spans.prev, struct arena_span, link);
    uint64_t off = 0;
    if (!last || last->off + last->bytes <= span_cursor) { /* the usual case: past everything in use */
        uint64_t at = round_up(span_cursor - skew % align, align) + skew % align;
        if (at + bytes <= arena.size) off = at;
    }
    if (!off) off = find_gap(span_cursor, bytes, align, skew, &before);
    if (!off) off = find_gap(object_end, bytes, align, skew, &before);
    if (off) {
        span->off = off;
        span->bytes = bytes;
        list_append(before, &span->link); /* appending to a link puts in front of it */
        span_cursor = off + bytes;
    }
    pthread_mutex_unlock(&lock);
    if (off) return span;
    free(span);
    return NULL;
}

void arena_span_free(struct arena_span *span) {
    fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)span->off, (off_t)span->bytes);
    pthread_mutex_lock(&lock);
    list_remove(&span->link);
    pthread_mutex_unlock(&lock);
    free(span);
}
