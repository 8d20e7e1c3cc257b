/* Registration: keys, limits, and the slot that peers read. How the bytes come into the arena is the business
 * of pages.c.
 *
 * A key is an index and an eight-bit tag. Indices of dead regions queue up and are used again first in, first
 * out, once some thousands wait: a key in use after its region's end is caught, not taken for a newer
 * region's. */
#define _GNU_SOURCE
#include "mr.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena.h"
#include "bulk.h"
#include "config.h"
#include "fault.h"
#include "pages.h"
#include "qp.h"
#include "stats.h"

#define RESTING_KEYS 4096

struct mr {
    struct ibv_mr ib;
    struct page_hold hold;
    uint64_t pinned;
    uint64_t segs_off;
    uint32_t index;
    struct mr *next_free; /* of dead regions: resting indices */
    void *map;            /* of a DMA buffer; NULL */
    uint64_t map_len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t fresh_index = 1, live;
static uint64_t pinned_bytes;
static struct mr *rest_first, **rest_last = &rest_first;
static uint32_t resting;
static uint8_t *tags;

void mr_forget(void) {
    fresh_index = 1;
    live = resting = 0;
    pinned_bytes = 0;
    rest_first = NULL;
    rest_last = &rest_first;
    tags = NULL;
    pthread_mutex_init(&lock, NULL);
}

static bool may_lock_anything(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data)) return geteuid() == 0;
    return data[CAP_IPC_LOCK / 32].effective & (1u << (CAP_IPC_LOCK % 32));
}

static uint64_t lock_limit(void) {
    if (config()->memlock != UINT64_MAX) return config()->memlock;
    struct rlimit limit;
    if (may_lock_anything() || getrlimit(RLIMIT_MEMLOCK, &limit)) return UINT64_MAX;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static int check_access(unsigned int access) {
    const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
    if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND)) return EOPNOTSUPP;
    if (access & ~known) return EINVAL;
    bool remote_change = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    return remote_change && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/* Takes an index and accounts for the pages; 0 or errno. */
static int mr_admit(struct mr *mr) {
    uint64_t limit = lock_limit();
    pthread_mutex_lock(&lock);
    int err = 0;
    if (!tags) tags = calloc(config()->max_mr + 1, 1);
    if (!tags || live >= config()->max_mr || mr->pinned > limit || pinned_bytes > limit - mr->pinned) {
        err = ENOMEM;
    } else {
        if (resting >= RESTING_KEYS || fresh_index > config()->max_mr) {
            struct mr *old = rest_first;
            rest_first = old->next_free;
            if (!rest_first) rest_last = &rest_first;
            resting--;
            mr->index = old->index;
            free(old);
        } else {
            mr->index = fresh_index++;
        }
        live++;
        pinned_bytes += mr->pinned;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* Gives the index back; the struct itself rests in the queue. */
static void mr_dismiss(struct mr *mr) {
    pthread_mutex_lock(&lock);
    live--;
    resting++;
    pinned_bytes -= mr->pinned;
    mr->next_free = NULL;
    *rest_last = mr;
    rest_last = &mr->next_free;
    pthread_mutex_unlock(&lock);
}

/* Fills the slot in; the key goes last and makes it live. */
static int mr_publish(struct mr *mr, uint64_t iova, unsigned int access) {
    struct mr_slot *slot = &arena_mr_slots()[mr->index];
    slot->pd = to_pd(mr->ib.pd)->id;
    slot->access = access;
    slot->iova = iova;
    slot->len = mr->ib.length;
    slot->va = (uint64_t)(uintptr_t)mr->ib.addr;
    slot->nseg = mr->hold.nseg;
    slot->lo = slot->hi = slot->off = 0;
    if (slot->nseg == 1) {
        slot->lo = mr->hold.segs[0].lo;
        slot->hi = mr->hold.segs[0].hi;
        slot->off = mr->hold.segs[0].off;
    } else if (slot->nseg > 1) {
        mr->segs_off = arena_alloc(ARENA_RING, slot->nseg * sizeof(struct mr_seg));
        if (!mr->segs_off) return ENOMEM;
        memcpy(arena_ptr(mr->segs_off), mr->hold.segs, slot->nseg * sizeof(struct mr_seg));
        slot->off = mr->segs_off;
    }
    mr->ib.lkey = mr->ib.rkey = mr->index << 8 | ++tags[mr->index];
    mr->ib.handle = mr->index;
    store_release(&slot->key, mr->ib.lkey);
    return 0;
}

/* What is only ever sent is read by this process alone, by the thread that posts it or by the one that copies: it need
 * not be where peers can reach it, and stays ordinary memory, of which a forked child has its own copy. */
static bool stays_private(unsigned int access) {
    return !(access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)) && !config()->dontfork;
}

/* After ibv_fork_init() a child lacks these pages, too, as long as they are registered. */
static void advise_private(const struct mr *mr, int advice) {
    uint64_t va = (uint64_t)(uintptr_t)mr->ib.addr;
    if (pages_fork_safe()) madvise((void *)(uintptr_t)round_down(va, PAGE), mr->pinned, advice);
}

static struct ibv_mr *mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access) {
    int err = fault_errno(FAULT_REG_MR);
    uint64_t va = (uint64_t)(uintptr_t)addr;
    if (!err && !device_is_ours(pd->context)) err = EPERM;
    if (!err) err = check_access(access);
    if (!err && (!length || va + length < va || iova + length < iova)) err = EINVAL;
    struct mr *mr = err ? NULL : calloc(1, sizeof(*mr));
    if (!err && !mr) err = ENOMEM;
    if (err) {
        errno = err;
        return NULL;
    }
    mr->ib = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
    mr->pinned = round_up(va + length, PAGE) - round_down(va, PAGE);
    if ((err = mr_admit(mr))) {
        free(mr);
        errno = err;
        return NULL;
    }
    err = stays_private(access) ? -pages_check(va, length)
                                : -pages_hold(va, length, access & IBV_ACCESS_LOCAL_WRITE, &mr->hold);
    if (!err && (err = mr_publish(mr, iova, access))) pages_release(&mr->hold);
    if (err) {
        mr_dismiss(mr);
        errno = err;
        return NULL;
    }
    if (stays_private(access)) advise_private(mr, MADV_DONTFORK);
    atomic_fetch_add(&to_pd(pd)->users, 1);
    stats_inc(mrs);
    stats_add(registered_bytes, length);
    return &mr->ib;
}

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

SR_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    return mr_register(pd, addr, length, (uint64_t)(uintptr_t)addr, (unsigned int)access);
}

SR_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access) {
    return mr_register(pd, addr, length, iova, (unsigned int)access);
}

SR_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                          unsigned int access) {
    return mr_register(pd, addr, length, iova, access);
}

SR_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                           int access) {
    /* Any file of memory will do: udmabuf and memfd. It is mapped for the device, as an importer does. */
    bool writable = (unsigned int)access & IBV_ACCESS_LOCAL_WRITE;
    off_t size = lseek(fd, 0, SEEK_END);
    uint64_t start = round_down(offset, PAGE), end = round_up(offset + length, PAGE);
    if (size < 0) return NULL;
    if (!length || offset + length < offset || offset + length > (uint64_t)size || iova % PAGE != offset % PAGE) {
        errno = EINVAL;
        return NULL;
    }
    void *map = mmap(NULL, end - start, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, (off_t)start);
    if (map == MAP_FAILED) return NULL;
    struct ibv_mr *ib = mr_register(pd, (char *)map + (offset - start), length, iova, (unsigned int)access);
    if (!ib) {
        int err = errno;
        munmap(map, end - start);
        errno = err;
        return NULL;
    }
    struct mr *mr = container_of(ib, struct mr, ib);
    mr->map = map;
    mr->map_len = end - start;
    return ib;
}

SR_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access) {
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

SR_EXPORT int ibv_dereg_mr(struct ibv_mr *ib) {
    struct mr *mr = container_of(ib, struct mr, ib);
    int err = fault_errno(FAULT_DEREG_MR);
    if (!device_is_ours(ib->context)) return EPERM;
    if (load_relaxed(&arena_mr_slots()[mr->index].key) != ib->lkey) return EINVAL; /* a second time */
    if (err) return err;
    store_release(&arena_mr_slots()[mr->index].key, 0);
    qp_quiesce_all();
    bulk_quiesce();
    if (stays_private(arena_mr_slots()[mr->index].access)) advise_private(mr, MADV_DOFORK);
    pages_release(&mr->hold);
    if (mr->map) munmap(mr->map, mr->map_len);
    if (mr->segs_off) arena_free(ARENA_RING, mr->segs_off, arena_mr_slots()[mr->index].nseg * sizeof(struct mr_seg));
    mr->segs_off = 0;
    atomic_fetch_sub(&to_pd(ib->pd)->users, 1);
    stats_dec(mrs);
    stats_add(registered_bytes, -(int64_t)ib->length);
    mr_dismiss(mr);
    return 0;
}

/* Hides regions from children also where the kernel copies them, as libibverbs does. */
SR_EXPORT int ibv_fork_init(void) {
    pages_fork_init();
    return 0;
}

SR_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) {
    if (!config()->dontfork) return IBV_FORK_UNNEEDED;
    return pages_fork_safe() ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
SR_EXPORT int ibv_dontfork_range(void *base, size_t size) {
    return (void)base, (void)size, 0;
}
SR_EXPORT int ibv_dofork_range(void *base, size_t size) {
    return (void)base, (void)size, 0;
}
