/* The slow way to a region: several segments, and the partial pages at its ends, which are in the owner's
 * private memory.
 *
 * Those are read and written with process_vm_readv/writev. An atomic there is a read and a write under a lock
 * on a byte of the owner's memfd: the kernel drops such a lock when its holder dies. Atomics on whole pages
 * are the processor's; an eight-byte word is always in one class or the other, because words are aligned. */
#define _GNU_SOURCE
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "stats.h"

static int edge_copy(struct peer *peer, uint64_t va, void *local, uint64_t len, bool to_peer) {
    if (peer->is_self) {
        if (to_peer)
            memmove((void *)(uintptr_t)va, local, len);
        else
            memmove(local, (void *)(uintptr_t)va, len);
        return 0;
    }
    stats_inc(edge_copies);
    for (uint64_t done = 0; done < len;) {
        struct iovec here = {(char *)local + done, len - done}, there = {(void *)(uintptr_t)(va + done), len - done};
        ssize_t n = to_peer ? process_vm_writev((pid_t)peer->pid, &here, 1, &there, 1, 0)
                            : process_vm_readv((pid_t)peer->pid, &here, 1, &there, 1, 0);
        if (n <= 0) return n ? -errno : -EFAULT;
        done += (uint64_t)n;
    }
    return 0;
}

int copy_scattered(struct peer *peer, const struct mr_slot *slot, uint64_t at, void *local, uint64_t len,
                   bool to_peer) {
    struct mr_seg first = {slot->lo, slot->hi, slot->off};
    const struct mr_seg *segs = slot->nseg > 1 ? peer_ptr(peer, slot->off) : &first;
    uint32_t i = 0, n = slot->nseg;
    for (uint8_t *p = local; len;) {
        while (i < n && segs[i].hi <= at) i++;
        bool inside = i < n && at >= segs[i].lo;
        uint64_t end = inside ? segs[i].hi : i < n ? segs[i].lo : at + len;
        uint64_t part = end - at < len ? end - at : len;
        if (inside) {
            uint8_t *there = peer->base + segs[i].off + (at - segs[i].lo);
            memcpy(to_peer ? there : p, to_peer ? p : there, part);
        } else {
            int r = edge_copy(peer, slot->va + at, p, part, to_peer);
            if (r) return r;
        }
        p += part;
        at += part;
        len -= part;
    }
    return 0;
}

static uint64_t atomic_step(_Atomic uint64_t *word, bool add, uint64_t compare, uint64_t swap) {
    if (add) return atomic_fetch_add(word, compare);
    uint64_t old = compare;
    atomic_compare_exchange_strong(word, &old, swap);
    return old;
}

static int edge_atomic(struct peer *peer, uint64_t va, bool add, uint64_t compare, uint64_t swap, uint64_t *old) {
    static pthread_mutex_t in_process = PTHREAD_MUTEX_INITIALIZER; /* the file lock is one per process */
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    pthread_mutex_lock(&in_process);
    int r = 0;
    while ((r = fcntl(peer->memfd, F_SETLKW, &whole)) && errno == EINTR) {
    }
    r = r ? -errno : edge_copy(peer, va, old, sizeof(*old), false);
    uint64_t next = add ? *old + compare : swap;
    if (!r && (add || *old == compare)) r = edge_copy(peer, va, &next, sizeof(next), true);
    whole.l_type = F_UNLCK;
    fcntl(peer->memfd, F_SETLK, &whole);
    pthread_mutex_unlock(&in_process);
    return r;
}

int copy_atomic(struct peer *peer, const struct mr_slot *slot, uint64_t at, bool add, uint64_t compare, uint64_t swap,
                uint64_t *old) {
    uint8_t *word = copy_direct(peer, slot, at, 8);
    if (!word && slot->nseg > 1) {
        const struct mr_seg *segs = peer_ptr(peer, slot->off);
        for (uint32_t i = 0; i < slot->nseg && !word; i++)
            if (at >= segs[i].lo && at + 8 <= segs[i].hi) word = peer->base + segs[i].off + (at - segs[i].lo);
    }
    if (!word) return edge_atomic(peer, slot->va + at, add, compare, swap, old);
    *old = atomic_step((_Atomic uint64_t *)word, add, compare, swap);
    return 0;
}
