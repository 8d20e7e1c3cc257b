/* arena.h: the snapshot of a pulled full synchronization (pull/primary.h) or of slots that migrate
 * (cluster/migration): a ring of chunks. A writer, the thread of a save or the main thread, fills the chunks, replicas
 * read them by one-sided RDMA READ, and the server's main thread releases them for reuse.
 *
 *   writer                           server                              replicas
 *     writes RDB bytes to chunk n
 *     published = n + 1       ---->    sends its descriptor         ---->   READ chunk n
 *                                      released = n + 1             <----   acknowledge chunk n
 *     reuses the memory       <----
 *
 * Chunk n is in slot n modulo the number of slots. Two counters, each changed by one side, order the hand-over. An
 * eventfd in each direction wakes the side that waits. The server never blocks; the writer blocks while all slots are
 * in use.
 *
 * The chunks have a memory mapping of their own, apart from the counters, so that an rkey for the chunks gives access
 * to nothing else. The mapping is a shared one: if a module or a debugged script forks meanwhile, the kernel copies no
 * registered pages. Each snapshot has an arena of its own, so the memory holds only zeros or bytes of this snapshot.
 *
 * An arena belongs to the thread that created it; another thread may free it on its behalf. Only the writer calls its
 * functions. */
#pragma once
#include "formats/sink.h"
#include "repl/pull/seal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PULL_CHUNK_SIZE = 1024 * 1024,
    PULL_SLOTS_MIN = 4,
    PULL_SLOTS_MAX = 16384,
};

struct pull_chunk {
    const char *bytes;
    uint32_t length;   /* 1 to PULL_CHUNK_SIZE */
    uint32_t checksum; /* CRC-32C of the bytes as they lie there */
    uint64_t keys;     /* saved when the chunk was filled, for displaying progress */
};

struct pull_arena;
/* Maps about `memory` bytes of chunks, at least PULL_SLOTS_MIN slots. With a key, which is copied, the chunks hold
 * encrypted bytes (pull/seal.h) at all times: the writer fills private memory and encrypts from there. NULL: see errno.
 * */
struct pull_arena *pull_arena_new(size_t memory, const struct pull_key *key);
/* Unmaps it. No window may be open on it (net/rdma/read.h), and the writer must have ended. NULL is accepted. */
void pull_arena_free(struct pull_arena *arena);
void *pull_arena_memory(const struct pull_arena *arena, size_t *size); /* the chunks, whole pages */
uint64_t pull_arena_slots(const struct pull_arena *arena);

/* In the server */
/* An eventfd that becomes readable when chunks are published; pull_arena_published() resets it. */
int pull_arena_fd(const struct pull_arena *arena);
uint64_t pull_arena_published(struct pull_arena *arena);
/* Chunk `number`, which must be published and not released. False: its header is damaged; give up the snapshot. */
bool pull_arena_chunk(const struct pull_arena *arena, uint64_t number, struct pull_chunk *chunk);
/* The writer may overwrite the chunks before `count`, which must all be published. */
void pull_arena_release(struct pull_arena *arena, uint64_t count);
uint64_t pull_arena_released(const struct pull_arena *arena);
/* Whether the writer has published its last chunk. Call it before pull_arena_published(), whose count then includes it.
 * */
bool pull_arena_complete(const struct pull_arena *arena);
/* The writer's functions fail with -ECANCELED instead of waiting. Any thread. */
void pull_arena_stop(struct pull_arena *arena);

/* In the writer */
/* A sink that writes into chunks. */
struct pull_writer {
    /* Called each second while the writer waits for a free slot. False: it waits no longer. */
    bool (*goes_on)(void *context);
    uint64_t (*keys)(void *context); /* number of keys written so far; stored with each chunk */
    void *context;
};
void pull_arena_sink(struct pull_arena *arena, struct sink *sink, const struct pull_writer *writer);
/* Instead of the sink, for chunks whose bytes the caller divides: the memory of the next chunk, and its size. Waits for
 * a free slot. NULL: goes_on() was false. */
char *pull_arena_begin(struct pull_arena *arena, const struct pull_writer *writer, size_t *size);
unsigned pull_arena_free_slots(const struct pull_arena *arena); /* that pull_arena_begin() does not wait for */
int pull_arena_publish(struct pull_arena *arena, size_t len);   /* its first `len` bytes; 0 or a negative errno */
/* Publishes the last chunk and marks the snapshot complete. Call it after sink_flush() succeeded. 0 or a negative
 * errno: the chunk could not be encrypted. */
int pull_arena_finish(struct pull_arena *arena);
