/* Bytes between this process and a peer's region. */
#pragma once

#include <string.h>

#include "peer.h"

/* The slow way, for ranges that touch bytes outside whole pages: segment by segment, and process_vm for the
 * rest. 0 or -errno. */
int copy_scattered(struct peer *peer, const struct mr_slot *slot, uint64_t at, void *local, uint64_t len, bool to_peer);

/* Fetches the eight bytes at `at` of the region and replaces them: by `swap` if they equal `compare`, or,
 * when `add`, by their sum with `compare`. 0 or -errno. */
int copy_atomic(struct peer *peer, const struct mr_slot *slot, uint64_t at, bool add, uint64_t compare, uint64_t swap,
                uint64_t *old);

/* Up to 64 bytes without a call; two overlapping moves cover each size class. */
RACES_ALLOWED static inline void copy_bytes(void *to, const void *from, uint64_t n) {
    typedef struct {
        uint64_t a, b;
    } __attribute__((packed, may_alias)) pair;
    uint8_t *d = to;
    const uint8_t *s = from;
    if (n > 64) {
        memcpy(d, s, n);
    } else if (n >= 32) {
        pair p0 = *(const pair *)s, p1 = *(const pair *)(s + 16), q0 = *(const pair *)(s + n - 32),
             q1 = *(const pair *)(s + n - 16);
        *(pair *)d = p0;
        *(pair *)(d + 16) = p1;
        *(pair *)(d + n - 32) = q0;
        *(pair *)(d + n - 16) = q1;
    } else if (n >= 16) {
        pair p = *(const pair *)s, q = *(const pair *)(s + n - 16);
        *(pair *)d = p;
        *(pair *)(d + n - 16) = q;
    } else if (n >= 8) {
        uint64_t p, q;
        memcpy(&p, s, 8);
        memcpy(&q, s + n - 8, 8);
        memcpy(d, &p, 8);
        memcpy(d + n - 8, &q, 8);
    } else if (n >= 4) {
        uint32_t p, q;
        memcpy(&p, s, 4);
        memcpy(&q, s + n - 4, 4);
        memcpy(d, &p, 4);
        memcpy(d + n - 4, &q, 4);
    } else {
        for (uint64_t i = 0; i < n; i++) d[i] = s[i];
    }
}

/* Where the peer's bytes are in this process, or NULL when they are not all in the first segment. */
static inline uint8_t *copy_direct(const struct peer *peer, const struct mr_slot *slot, uint64_t at, uint64_t len) {
    if (unlikely(at < slot->lo || at + len > slot->hi)) return NULL;
    return peer->base + slot->off + (at - slot->lo);
}

static inline int copy_to_peer(struct peer *peer, const struct mr_slot *slot, uint64_t at, const void *from,
                               uint64_t len) {
    uint8_t *to = copy_direct(peer, slot, at, len);
    if (unlikely(!to)) return copy_scattered(peer, slot, at, (void *)(uintptr_t)from, len, true);
    copy_bytes(to, from, len);
    return 0;
}

static inline int copy_from_peer(struct peer *peer, const struct mr_slot *slot, uint64_t at, void *to, uint64_t len) {
    const uint8_t *from = copy_direct(peer, slot, at, len);
    if (unlikely(!from)) return copy_scattered(peer, slot, at, to, len, false);
    copy_bytes(to, from, len);
    return 0;
}
