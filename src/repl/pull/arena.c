/* arena.c: see arena.h. */
#include "repl/pull/arena.h"
#include "lib/hash/crc32c.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { IDLE_MS = 1000, CACHE_LINE = 64 };

/* Header of a slot. The writer fills it before it publishes the chunk. */
struct slot {
    uint32_t length, checksum;
    uint64_t keys;
};

/* Shared between the server and the writer, apart from the chunks. */
struct shared {
    _Alignas(CACHE_LINE) _Atomic uint64_t published; /* written by the writer */
    _Atomic bool complete;
    _Alignas(CACHE_LINE) _Atomic uint64_t released; /* written by the server */
    _Atomic bool waiting;                           /* the writer waits for `released` to grow; set by the writer */
    _Atomic bool stopped;                           /* set by the server: the writer waits no longer */
    struct slot slots[];
};

struct pull_arena {
    struct shared *shared;
    size_t shared_size;
    char *chunks;
    uint64_t slots;
    int filled_fd, released_fd; /* eventfds: a chunk was published; a chunk was released */
    /* The writer's state */
    uint64_t number; /* of the chunk that is being filled */
    uint32_t used;   /* bytes of its text */
    struct pull_seal *seal;
    char *text; /* sealed: of the chunk, in private memory */
    const struct pull_writer *writer;
};

static void *map_shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct pull_arena *pull_arena_new(size_t memory, const struct pull_key *key) {
    struct pull_arena *arena = mem_calloc(1, sizeof *arena);
    arena->slots = memory / PULL_CHUNK_SIZE;
    if (arena->slots < PULL_SLOTS_MIN) arena->slots = PULL_SLOTS_MIN;
    if (arena->slots > PULL_SLOTS_MAX) arena->slots = PULL_SLOTS_MAX;
    arena->shared_size = sizeof *arena->shared + arena->slots * sizeof *arena->shared->slots;
    arena->shared = map_shared(arena->shared_size);
    arena->chunks = map_shared(arena->slots * PULL_CHUNK_SIZE);
    arena->filled_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    arena->released_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (key) {
        arena->seal = pull_seal_new(key);
        arena->text = mem_alloc(PULL_CHUNK_SIZE);
    }
    if (arena->shared && arena->chunks && arena->filled_fd >= 0 && arena->released_fd >= 0 && !key == !arena->seal)
        return arena;
    int error = errno ? errno : ENOMEM;
    pull_arena_free(arena);
    errno = error;
    return NULL;
}

void pull_arena_free(struct pull_arena *arena) {
    if (!arena) return;
    if (arena->shared) munmap(arena->shared, arena->shared_size);
    if (arena->chunks) munmap(arena->chunks, arena->slots * PULL_CHUNK_SIZE);
    if (arena->filled_fd >= 0) close(arena->filled_fd);
    if (arena->released_fd >= 0) close(arena->released_fd);
    pull_seal_free(arena->seal);
    mem_free(arena->text);
    mem_free(arena);
}

void *pull_arena_memory(const struct pull_arena *arena, size_t *size) {
    *size = arena->slots * PULL_CHUNK_SIZE;
    return arena->chunks;
}
uint64_t pull_arena_slots(const struct pull_arena *arena) {
    return arena->slots;
}

static char *chunk_at(const struct pull_arena *arena, uint64_t number) {
    return arena->chunks + number % arena->slots * PULL_CHUNK_SIZE;
}
static struct slot *slot_at(const struct pull_arena *arena, uint64_t number) {
    return &arena->shared->slots[number % arena->slots];
}
static void raise_event(int fd) {
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) return; /* EAGAIN: the counter is full, so the descriptor is readable */
}
static void reset_event(int fd) {
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) return; /* EAGAIN: no event */
}

/* --- In the server --- */

int pull_arena_fd(const struct pull_arena *arena) {
    return arena->filled_fd;
}
uint64_t pull_arena_published(struct pull_arena *arena) {
    reset_event(arena->filled_fd);
    return atomic_load_explicit(&arena->shared->published, memory_order_acquire);
}
bool pull_arena_chunk(const struct pull_arena *arena, uint64_t number, struct pull_chunk *chunk) {
    const struct slot *slot = slot_at(arena, number);
    *chunk = (struct pull_chunk){
        .bytes = chunk_at(arena, number), .length = slot->length, .checksum = slot->checksum, .keys = slot->keys};
    return chunk->length > 0 && chunk->length <= PULL_CHUNK_SIZE;
}
void pull_arena_release(struct pull_arena *arena, uint64_t count) {
    if (count <= pull_arena_released(arena)) return;
    atomic_store(&arena->shared->released, count);
    if (atomic_load(&arena->shared->waiting)) raise_event(arena->released_fd);
}
uint64_t pull_arena_released(const struct pull_arena *arena) {
    return atomic_load_explicit(&arena->shared->released, memory_order_relaxed);
}
bool pull_arena_complete(const struct pull_arena *arena) {
    return atomic_load_explicit(&arena->shared->complete, memory_order_acquire);
}

void pull_arena_stop(struct pull_arena *arena) {
    atomic_store(&arena->shared->stopped, true);
    raise_event(arena->released_fd);
}

/* --- In the writer --- */

static bool slot_is_free(const struct pull_arena *arena) {
    return arena->number - atomic_load(&arena->shared->released) < arena->slots;
}

unsigned pull_arena_free_slots(const struct pull_arena *arena) {
    return (unsigned)(arena->slots - (arena->number - pull_arena_released(arena)));
}

/* The writer sets `waiting` before it reads `released` again. The server stores `released` before it reads `waiting`.
 * So at least one of them sees the other's store, and no wakeup is lost. `stopped` raises the event in any case, and is
 * read again after the event was reset. False: the writer is to stop. */
static bool wait_for_slot(struct pull_arena *arena) {
    bool goes_on = true;
    while (goes_on && !slot_is_free(arena)) {
        atomic_store(&arena->shared->waiting, true);
        if (!slot_is_free(arena) && !atomic_load(&arena->shared->stopped)) {
            struct pollfd event = {.fd = arena->released_fd, .events = POLLIN};
            if (poll(&event, 1, IDLE_MS) == 0) goes_on = arena->writer->goes_on(arena->writer->context);
        }
        atomic_store(&arena->shared->waiting, false);
        reset_event(arena->released_fd);
        if (atomic_load(&arena->shared->stopped)) goes_on = false;
    }
    return goes_on;
}

/* Bytes of text that a chunk holds. */
static uint32_t chunk_capacity(const struct pull_arena *arena) {
    return arena->seal ? PULL_CHUNK_SIZE - PULL_TAG_SIZE : PULL_CHUNK_SIZE;
}
/* Where the text of the current chunk is written. */
static char *text_at(const struct pull_arena *arena) {
    return arena->seal ? arena->text : chunk_at(arena, arena->number);
}

static int publish(struct pull_arena *arena) {
    must(slot_is_free(arena) && arena->used && arena->used <= chunk_capacity(arena));
    char *chunk = chunk_at(arena, arena->number);
    if (arena->seal) {
        if (!pull_seal_close(arena->seal, arena->number, arena->text, arena->used, chunk)) return -EIO;
        arena->used += PULL_TAG_SIZE;
    }
    *slot_at(arena, arena->number) = (struct slot){.length = arena->used,
                                                   .checksum = crc32c(0, chunk, arena->used),
                                                   .keys = arena->writer->keys(arena->writer->context)};
    arena->number++;
    arena->used = 0;
    atomic_store_explicit(&arena->shared->published, arena->number, memory_order_release);
    raise_event(arena->filled_fd);
    return 0;
}

static int chunk_write(struct sink *sink, const void *bytes, size_t len) {
    struct pull_arena *arena = sink->context;
    const char *from = bytes;
    while (len) {
        if (!arena->used && !wait_for_slot(arena)) return -ECANCELED;
        size_t space = chunk_capacity(arena) - arena->used, step = len < space ? len : space;
        char *to = text_at(arena) + arena->used;
        if (to != from) memcpy(to, from, step); /* equal: the caller wrote to chunk_space() */
        arena->used += (uint32_t)step;
        from += step, len -= step;
        int result = arena->used == chunk_capacity(arena) ? publish(arena) : 0;
        if (result < 0) return result;
    }
    return 0;
}

/* The rest of the current chunk. NULL: no slot is free. */
static char *chunk_space(struct sink *sink, size_t *size) {
    const struct pull_arena *arena = sink->context;
    if (!arena->used && !slot_is_free(arena)) return NULL;
    *size = chunk_capacity(arena) - arena->used;
    return text_at(arena) + arena->used;
}

void pull_arena_sink(struct pull_arena *arena, struct sink *sink, const struct pull_writer *writer) {
    static const struct sink_ops ops = {.write = chunk_write, .space = chunk_space};
    arena->writer = writer;
    sink_init(sink, &ops, arena);
}

char *pull_arena_begin(struct pull_arena *arena, const struct pull_writer *writer, size_t *size) {
    arena->writer = writer;
    if (!wait_for_slot(arena)) return NULL;
    *size = chunk_capacity(arena);
    return text_at(arena);
}

int pull_arena_publish(struct pull_arena *arena, size_t len) {
    arena->used = (uint32_t)len;
    return publish(arena);
}

int pull_arena_finish(struct pull_arena *arena) {
    int result = arena->used ? publish(arena) : 0;
    if (result < 0) return result;
    atomic_store_explicit(&arena->shared->complete, true, memory_order_release);
    raise_event(arena->filled_fd);
    return 0;
}
