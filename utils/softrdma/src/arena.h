/* The memory of this process that its peers can map: one sparse memfd. wire.h says what lies in it. */
#pragma once

#include "wire.h"

struct arena {
    uint8_t *base;
    uint64_t size;
    int fd;
    uint64_t inode, dev; /* of the memfd: how a mapping is known to be ours */
};

extern struct arena arena;

/* Objects of one kind are only ever replaced by objects of the same kind, so that a peer that still holds a
 * stale offset reads a `sender` field where it expects one. */
enum arena_kind { ARENA_QP, ARENA_CQ, ARENA_CHANNEL, ARENA_SRQ, ARENA_RING, ARENA_KINDS };

int arena_start(void);   /* idempotent; 0 or -errno */
void arena_forget(void); /* in a forked child: the arena is the parent's */
void arena_protect_fork(void);

/* Zeroed memory at the returned offset; 0: none left. The same byte count must be given back. */
uint64_t arena_alloc(enum arena_kind kind, size_t bytes);
void arena_free(enum arena_kind kind, uint64_t off, size_t bytes);

/* Page spans for registered memory, of which off % align == skew % align. A freed span is not used again
 * before the whole arena has been gone through. */
struct arena_span {
    struct link link; /* in address order */
    uint64_t off, bytes;
};
struct arena_span *arena_span_alloc(uint64_t bytes, uint64_t align, uint64_t skew); /* NULL: none left */
void arena_span_free(struct arena_span *span);

static inline void *arena_ptr(uint64_t off) {
    return arena.base + off;
}
static inline struct arena_head *arena_head(void) {
    return (struct arena_head *)arena.base;
}
static inline struct mr_slot *arena_mr_slots(void) {
    return (struct mr_slot *)(arena.base + arena_head()->mr_table);
}
