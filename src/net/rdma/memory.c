/* memory.c: slabs of registered memory. See memory.h.
 *
 * Rejected: unregistering a buffer in the moment it is given back. It costs tens of microseconds on a card, and five
 * thousand connections may end in the same moment. */
#include "net/rdma/memory.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/connection.h"
#include <errno.h>
#include <linux/mman.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    CHUNKS_A_SLAB = RDMA_SLAB_SIZE / RDMA_CHUNK_SIZE,
    AGE_AT_ONCE = 256,                /* registrations undone in one ageing */
    RX_SLAB_MAX = 4 * RDMA_SLAB_SIZE, /* of receive slabs that are larger so that less of them is unused */
    GROWTH_SHARE = 8, /* growth and windows leave one part in GROWTH_SHARE of the limit to new connections */
};

/* A mapping, and its registered parts. */
struct rdma_slab {
    struct rdma_slab *next;
    char *base;
    size_t size;
    bool reserved_huge;        /* MAP_HUGETLB */
    bool in_parts;             /* registered piece by piece */
    bool whole_pages;          /* pages can be given back one buffer at a time */
    struct ibv_mr *mr;         /* send slabs */
    struct rdma_chunk *chunks; /* send slabs */
    size_t free_count;         /* send slabs, while rdma_memory_age() counts */
    struct rdma_rx *buffers;   /* receive slabs */
    size_t buffer_count, cold_count;
};

struct rdma_rx_class {
    struct rdma_rx_class *next;
    uint32_t size;
    struct list ready, stale, cold;
    size_t ready_low; /* minimum number of ready buffers since the last ageing */
};

void rdma_memory_init(struct rdma_memory *memory, struct ibv_pd *pd, struct rdma_stats *stats) {
    *memory = (struct rdma_memory){.pd = pd, .stats = stats, .growths_left = RDMA_GROWTHS_A_TICK};
}

const char *rdma_memory_device(const struct rdma_memory *memory) {
    return ibv_get_device_name(memory->pd->context->device);
}

/* --- Registration --- */

static _Atomic(uint64_t) registered, send_bytes; /* bytes, of the process: all registered memory; send slabs */

uint64_t rdma_registered(void) {
    return atomic_load_explicit(&registered, memory_order_relaxed);
}

static bool charge(size_t size) {
    uint64_t bound = rdma_settings.max_registered;
    if (atomic_fetch_add(&registered, size) + size <= bound || !bound) return true;
    atomic_fetch_sub(&registered, size);
    errno = EDQUOT;
    return false;
}

static void uncharge(size_t size) {
    uint64_t before = atomic_fetch_sub(&registered, size);
    must_within(size, before);
}

static bool unregister_ready(struct rdma_memory *memory, size_t size);

static struct ibv_mr *try_register(struct rdma_memory *memory, void *base, size_t size, int access) {
    if (!charge(size)) return NULL;
    struct ibv_mr *mr = ibv_reg_mr(memory->pd, base, size, access);
    if (mr) return mr;
    int error = errno;
    uncharge(size);
    errno = error;
    return NULL;
}

struct ibv_mr *rdma_register(struct rdma_memory *memory, void *base, size_t size, int access,
                             enum rdma_memory_kind kind) {
    struct ibv_mr *mr = try_register(memory, base, size, access);
    if (!mr && (errno == EDQUOT || errno == ENOMEM)) {
        int error = errno;
        if (unregister_ready(memory, size))
            mr = try_register(memory, base, size, access);
        else
            errno = error;
    }
    if (!mr) {
        int error = errno;
        if (error != EDQUOT) memory->stats->errors[RDMA_ERROR_REGISTRATION]++;
        errno = error;
        return NULL;
    }
    memory->stats->memory_regions++;
    memory->stats->registered_bytes += size;
    memory->stats->registered[kind] += size;
    return mr;
}

bool rdma_register_claim(struct rdma_memory *memory, size_t size) {
    return charge(size) || (unregister_ready(memory, size) && charge(size));
}

void rdma_register_unclaim(size_t size) {
    uncharge(size);
}

void rdma_register_done(struct rdma_memory *memory, const struct ibv_mr *mr, int error) {
    if (mr)
        memory->stats->memory_regions++;
    else if (error != EDQUOT)
        memory->stats->errors[RDMA_ERROR_REGISTRATION]++;
}

/* The registration has ended: it no longer counts. RDMA_MEMORY_KINDS: it was claimed, and no kind counts its bytes. */
static void ended(struct rdma_memory *memory, size_t size, enum rdma_memory_kind kind) {
    memory->stats->memory_regions--;
    if (kind != RDMA_MEMORY_KINDS) {
        must_within(size, memory->stats->registered[kind]);
        memory->stats->registered_bytes -= size;
        memory->stats->registered[kind] -= size;
    }
    uncharge(size);
}

/* A registration that the device failed to end. */
struct rdma_refused {
    struct rdma_refused *next;
    struct ibv_mr *mr;
    size_t size;
    enum rdma_memory_kind kind;
};

static bool unregister(struct rdma_memory *memory, struct ibv_mr *mr, size_t size, enum rdma_memory_kind kind) {
    int error = ibv_dereg_mr(mr);
    if (!error) {
        ended(memory, size, kind);
        return true;
    }
    log_warning("RDMA: cannot unregister memory (%s): %s", rdma_memory_device(memory), strerror(error));
    struct rdma_refused *refused = mem_alloc(sizeof *refused);
    *refused = (struct rdma_refused){.next = memory->refused, .mr = mr, .size = size, .kind = kind};
    memory->refused = refused;
    return false;
}

/* The last attempt: the queue pairs, which a device may have objected for, are gone. What fails even now went with a
 * device that was removed, and nothing can end it. */
static void unregister_refused(struct rdma_memory *memory) {
    while (memory->refused) {
        struct rdma_refused *refused = memory->refused;
        memory->refused = refused->next;
        int error = ibv_dereg_mr(refused->mr);
        if (error) log_warning("RDMA: memory stays registered (%s): %s", rdma_memory_device(memory), strerror(error));
        ended(memory, refused->size, refused->kind);
        mem_free(refused);
    }
}

bool rdma_unregister_claimed(struct rdma_memory *memory, struct ibv_mr *mr, size_t claimed) {
    return unregister(memory, mr, claimed, RDMA_MEMORY_KINDS);
}

bool rdma_unregister(struct rdma_memory *memory, struct ibv_mr *mr, enum rdma_memory_kind kind) {
    return !mr || unregister(memory, mr, mr->length, kind);
}

void rdma_registration_error(int error, const char *device, char *text, size_t size) {
    struct rlimit limit;
    bool locked = (error == ENOMEM || error == EPERM || error == EAGAIN) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                  limit.rlim_cur != RLIM_INFINITY;
    if (error == EDQUOT)
        snprintf(
            text, size,
            "RDMA: cannot register more memory (%s): %llu bytes are registered, rdma-max-registered-memory is %llu",
            device, (unsigned long long)rdma_registered(), (unsigned long long)rdma_settings.max_registered);
    else if (locked)
        snprintf(text, size,
                 "RDMA: cannot register memory (%s): %s; the limit of locked memory (RLIMIT_MEMLOCK) is %llu "
                 "bytes: "
                 "raise it with \"ulimit -l unlimited\" or LimitMEMLOCK=infinity",
                 device, strerror(error), (unsigned long long)limit.rlim_cur);
    else
        snprintf(text, size, "RDMA: cannot register memory (%s): %s", device, strerror(error));
}

/* --- Slabs --- */

/* Maps anonymous memory, aligned to huge pages and made of them where possible. `in_parts`: it will be registered piece
 * by piece. */
static char *map_slab(const struct rdma_memory *memory, size_t size, bool in_parts, struct rdma_slab *slab) {
    bool huge = !in_parts || ibv_is_fork_initialized() == IBV_FORK_UNNEEDED;
    slab->whole_pages = !huge;
    char *base = MAP_FAILED;
    slab->in_parts = in_parts;
    if (huge && !memory->no_reserved_huge[in_parts])
        base =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
    slab->reserved_huge = base != MAP_FAILED;
    if (slab->reserved_huge) {
        madvise(base, size, MADV_DONTFORK);
        return base;
    }
    size_t wide = size + RDMA_SLAB_SIZE;
    base = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t skip = (size_t)(-(uintptr_t)base & (RDMA_SLAB_SIZE - 1));
    if (skip) munmap(base, skip);
    if (wide - skip > size) munmap(base + skip + size, wide - skip - size);
    madvise(base + skip, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise(base + skip, size, MADV_DONTFORK); /* a child does not use it, and the kernel would copy its pinned pages */
    return base + skip;
}

static struct rdma_slab *slab_new(struct rdma_memory *memory, size_t size, bool in_parts) {
    struct rdma_slab *slab = mem_calloc(1, sizeof *slab);
    slab->base = map_slab(memory, size, in_parts, slab);
    if (!slab->base) {
        int error = errno;
        mem_free(slab);
        errno = error;
        return NULL;
    }
    slab->size = size;
    slab->next = memory->slabs;
    memory->slabs = slab;
    return slab;
}

static void slab_free(struct rdma_memory *memory, struct rdma_slab *slab) {
    struct rdma_slab **at = &memory->slabs;
    while (*at != slab) at = &(*at)->next;
    *at = slab->next;
    for (size_t i = 0; i < slab->buffer_count; i++) {
        struct rdma_rx *rx = &slab->buffers[i];
        if (slab->reserved_huge && rx->mr) memory->stats->huge_bytes -= rx->capacity;
        rdma_unregister(memory, rx->mr, RDMA_MEMORY_RECEIVE);
    }
    if (slab->reserved_huge && slab->mr) memory->stats->huge_bytes -= slab->size;
    rdma_unregister(memory, slab->mr, RDMA_MEMORY_SEND);
    munmap(slab->base, slab->size);
    mem_free(slab->buffers);
    mem_free(slab->chunks);
    mem_free(slab);
}

void rdma_memory_free(struct rdma_memory *memory) {
    memory->stats->send_chunks -= memory->send_bytes / RDMA_CHUNK_SIZE;
    atomic_fetch_sub(&send_bytes, memory->send_bytes);
    memory->send_bytes = 0;
    while (memory->slabs) slab_free(memory, memory->slabs);
    while (memory->classes) {
        struct rdma_rx_class *class = memory->classes;
        memory->classes = class->next;
        memory->stats->receive_ready -= class->ready.len;
        mem_free(class);
    }
    unregister_refused(memory);
}

/* Not every kernel and driver can register reserved huge pages (EINVAL); then none are used. True: try again without.
 */
static bool without_reserved_huge(struct rdma_memory *memory, bool reserved_huge, bool in_parts, int error) {
    if (!reserved_huge || error == EDQUOT || memory->no_reserved_huge[in_parts]) return false;
    memory->no_reserved_huge[in_parts] = true;
    log_notice("RDMA: %sreserved huge pages cannot be registered (%s): %s (errno %d); using ordinary pages",
               in_parts ? "parts of " : "", rdma_memory_device(memory), strerror(error), error);
    return true;
}

/* --- Send memory --- */

/* The first slab of a device context may exceed the limit: without any slab, output would wait forever. */
static bool claim_send_slab(const struct rdma_memory *memory) {
    if (atomic_fetch_add(&send_bytes, RDMA_SLAB_SIZE) + RDMA_SLAB_SIZE <= rdma_settings.send_memory ||
        !memory->send_bytes)
        return true;
    atomic_fetch_sub(&send_bytes, RDMA_SLAB_SIZE);
    errno = ENOBUFS;
    return false;
}

static bool add_send_slab(struct rdma_memory *memory) {
    if (!claim_send_slab(memory)) return false;
    struct rdma_slab *slab = slab_new(memory, RDMA_SLAB_SIZE, false);
    if (slab) slab->mr = rdma_register(memory, slab->base, slab->size, 0, RDMA_MEMORY_SEND);
    if (!slab || !slab->mr) {
        int error = errno;
        bool reserved_huge = slab && slab->reserved_huge;
        if (slab) slab_free(memory, slab);
        atomic_fetch_sub(&send_bytes, RDMA_SLAB_SIZE);
        if (without_reserved_huge(memory, reserved_huge, false, error)) return add_send_slab(memory);
        if (!memory->exhausted_logged) {
            char text[320];
            rdma_registration_error(error, rdma_memory_device(memory), text, sizeof text);
            log_warning("%s", text);
        }
        memory->exhausted_logged = true;
        errno = error;
        return false;
    }
    if (slab->reserved_huge) memory->stats->huge_bytes += slab->size;
    slab->chunks = mem_calloc(CHUNKS_A_SLAB, sizeof *slab->chunks);
    for (int i = CHUNKS_A_SLAB - 1; i >= 0; i--) {
        struct rdma_chunk *chunk = &slab->chunks[i];
        chunk->slab = slab;
        chunk->data = slab->base + (size_t)i * RDMA_CHUNK_SIZE;
        chunk->lkey = slab->mr->lkey;
        chunk->registered = true;
        chunk->next = memory->free_chunks;
        memory->free_chunks = chunk;
    }
    memory->send_bytes += slab->size;
    memory->stats->send_chunks += CHUNKS_A_SLAB;
    if (memory->send_bytes > RDMA_SLAB_SIZE && memory->work) memory->work(memory); /* it should be freed again */
    return true;
}

struct rdma_chunk *rdma_chunk_take(struct rdma_memory *memory) {
    if (!memory->free_chunks && !add_send_slab(memory)) return NULL;
    struct rdma_chunk *chunk = memory->free_chunks;
    memory->free_chunks = chunk->next;
    if (++memory->stats->send_chunks_used > memory->send_peak) memory->send_peak = memory->stats->send_chunks_used;
    chunk->next = NULL;
    chunk->queued.segments = 0;
    chunk->used = false;
    return chunk;
}

struct rdma_chunk *rdma_chunk_plain(size_t queued) {
    struct rdma_chunk *chunk = conn_output_alloc(sizeof *chunk + RDMA_CHUNK_SIZE, queued);
    if (chunk) *chunk = (struct rdma_chunk){.data = (char *)(chunk + 1)};
    return chunk;
}

void rdma_chunk_give(struct rdma_memory *memory, struct rdma_chunk *chunk) {
    if (!chunk->registered) {
        mem_free(chunk);
        return;
    }
    must(memory->stats->send_chunks_used > 0 && chunk->queued.segments == 0);
    memory->stats->send_chunks_used--;
    chunk->next = memory->free_chunks;
    memory->free_chunks = chunk;
}

/* Removes up to `most` slabs without a chunk in use from the free list, and frees them. */
static void drop_send_slabs(struct rdma_memory *memory, size_t most) {
    for (struct rdma_slab *slab = memory->slabs; slab; slab = slab->next) slab->free_count = 0;
    for (struct rdma_chunk *chunk = memory->free_chunks; chunk; chunk = chunk->next) chunk->slab->free_count++;
    size_t dropped = 0;
    for (struct rdma_slab *slab = memory->slabs; slab; slab = slab->next) {
        bool drop = slab->chunks && slab->free_count == CHUNKS_A_SLAB && dropped < most;
        slab->free_count = drop ? SIZE_MAX : 0;
        dropped += drop;
    }
    if (!dropped) return;
    struct rdma_chunk **at = &memory->free_chunks;
    while (*at) {
        if ((*at)->slab->free_count == SIZE_MAX)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    for (struct rdma_slab *slab = memory->slabs, *next; slab; slab = next) {
        next = slab->next;
        if (slab->free_count == SIZE_MAX) slab_free(memory, slab);
    }
    memory->send_bytes -= dropped * RDMA_SLAB_SIZE;
    atomic_fetch_sub(&send_bytes, dropped * RDMA_SLAB_SIZE);
    memory->stats->send_chunks -= dropped * CHUNKS_A_SLAB;
    memory->exhausted_logged = false;
}

/* Frees half of the slabs that were not needed since the last call. True: there may be more to free. */
static bool age_send(struct rdma_memory *memory) {
    uint64_t slabs = memory->send_bytes / RDMA_SLAB_SIZE,
             needed = (memory->send_peak + CHUNKS_A_SLAB - 1) / CHUNKS_A_SLAB;
    memory->send_peak = memory->stats->send_chunks_used;
    if (needed == 0) needed = 1;
    if (slabs > needed) drop_send_slabs(memory, (size_t)(slabs - needed + 1) / 2);
    return memory->send_bytes > RDMA_SLAB_SIZE;
}

/* --- Receive memory --- */

static struct rdma_rx_class *class_of(struct rdma_memory *memory, uint32_t size) {
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next)
        if (class->size == size) return class;
    struct rdma_rx_class *class = mem_calloc(1, sizeof *class);
    *class = (struct rdma_rx_class){.size = size, .next = memory->classes};
    list_init(&class->ready);
    list_init(&class->stale);
    list_init(&class->cold);
    memory->classes = class;
    return class;
}

static bool add_rx_slab(struct rdma_memory *memory, struct rdma_rx_class *class) {
    size_t size = ((size_t) class->size + RDMA_SLAB_SIZE - 1) / RDMA_SLAB_SIZE * RDMA_SLAB_SIZE;
    while (size < RX_SLAB_MAX && size % class->size > size / 8) size += RDMA_SLAB_SIZE;
    struct rdma_slab *slab = slab_new(memory, size, class->size != size);
    if (!slab) return false;
    slab->buffer_count = slab->cold_count = size / class->size;
    slab->buffers = mem_calloc(slab->buffer_count, sizeof *slab->buffers);
    for (size_t i = 0; i < slab->buffer_count; i++) {
        struct rdma_rx *rx = &slab->buffers[i];
        *rx = (struct rdma_rx){.slab = slab, .data = slab->base + i * class->size, .capacity = class->size};
        list_append(&class->cold, &rx->link);
    }
    return true;
}

/* The peer may write; there are no remote reads. */
static bool rx_register(struct rdma_memory *memory, struct rdma_rx *rx) {
    rx->mr = rdma_register(memory, rx->data, rx->capacity, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                           RDMA_MEMORY_RECEIVE);
    if (rx->mr && rx->slab->reserved_huge) memory->stats->huge_bytes += rx->capacity;
    rx->announced = false;
    return rx->mr != NULL;
}

/* False: a peer may still write to it. Then the buffer is never used again, and its slab stays to the end. */
static bool rx_unregister(struct rdma_memory *memory, struct rdma_rx *rx) {
    if (rx->slab->reserved_huge) memory->stats->huge_bytes -= rx->capacity;
    bool good = rdma_unregister(memory, rx->mr, RDMA_MEMORY_RECEIVE);
    rx->mr = NULL;
    return good;
}

/* The buffer is unregistered and in no list: returns its memory to the system, and frees a slab whose buffers are all
 * cold. */
static void rx_to_cold(struct rdma_memory *memory, struct rdma_rx_class *class, struct rdma_rx *rx) {
    struct rdma_slab *slab = rx->slab;
    must_less(slab->cold_count, slab->buffer_count);
    if (++slab->cold_count == slab->buffer_count) {
        for (size_t i = 0; i < slab->buffer_count; i++)
            if (list_is_linked(&slab->buffers[i].link)) list_remove(&class->cold, &slab->buffers[i].link);
        slab_free(memory, slab);
        return;
    }
    /* Part of a huge page cannot be returned without splitting it. */
    if (!slab->whole_pages || madvise(rx->data, rx->capacity, MADV_DONTNEED) < 0) memset(rx->data, 0, rx->capacity);
    list_append(&class->cold, &rx->link);
}

static void rx_to_ready(struct rdma_memory *memory, struct rdma_rx_class *class, struct rdma_rx *rx) {
    list_prepend(&class->ready, &rx->link); /* the last one given back is the warmest in the caches */
    memory->rx_kept_bytes += rx->capacity;
    memory->stats->receive_ready++;
}

static struct rdma_rx *pop(struct list *list) {
    struct list_link *link = list_first(list);
    if (!link) return NULL;
    list_remove(list, link);
    return container_of(link, struct rdma_rx, link);
}

static struct rdma_rx *pop_ready(struct rdma_memory *memory, struct rdma_rx_class *class) {
    struct rdma_rx *rx = pop(&class->ready);
    if (!rx) return NULL;
    must_within(rx->capacity, memory->rx_kept_bytes);
    memory->rx_kept_bytes -= rx->capacity;
    memory->stats->receive_ready--;
    if (class->ready.len < class->ready_low) class->ready_low = class->ready.len;
    return rx;
}

/* The limit is reached: frees ready buffers of any class until `size` bytes are available. */
static bool unregister_ready(struct rdma_memory *memory, size_t size) {
    size_t freed = 0;
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next) {
        struct rdma_rx *rx;
        while (freed < size && ((rx = pop(&class->stale)) || (rx = pop_ready(memory, class)))) {
            freed += rx->capacity;
            if (rx_unregister(memory, rx)) rx_to_cold(memory, class, rx);
        }
    }
    return freed > 0;
}

static struct rdma_rx *make_ready(struct rdma_memory *memory, struct rdma_rx_class *class) {
    struct rdma_rx *rx = pop(&class->stale);
    if (rx && rx_unregister(memory, rx)) {
        memset(rx->data, 0, rx->capacity);
        rx->slab->cold_count++;
        list_append(&class->cold, &rx->link);
    } else if (!class->cold.len && !add_rx_slab(memory, class))
        return NULL;
    /* The last one that became cold may still be in memory. Registering may turn other buffers cold, and free their
     * slabs, but this one is in no list then. */
    rx = container_of(class->cold.head.prev, struct rdma_rx, link);
    list_remove(&class->cold, &rx->link);
    must(rx->slab->cold_count > 0 && !rx->mr);
    rx->slab->cold_count--;
    if (rx_register(memory, rx)) return rx;
    int error = errno;
    bool reserved_huge = rx->slab->reserved_huge, in_parts = rx->slab->in_parts;
    rx_to_cold(memory, class, rx);
    if (without_reserved_huge(memory, reserved_huge, in_parts, error)) return make_ready(memory, class);
    errno = error;
    return NULL;
}

struct rdma_rx *rdma_rx_take(struct rdma_memory *memory, uint32_t size) {
    struct rdma_rx_class *class = class_of(memory, size);
    struct rdma_rx *rx = pop_ready(memory, class);
    if (!rx) rx = make_ready(memory, class);
    if (!rx) return NULL;
    memory->stats->receive_buffers++;
    rx->size = rx->capacity;
    return rx;
}

bool rdma_memory_leaves_share(uint64_t size) {
    uint64_t bound = rdma_settings.max_registered, most = bound - bound / GROWTH_SHARE, used = rdma_registered();
    return !bound || (used <= most && size <= most - used);
}

bool rdma_memory_is_plentiful(uint64_t size) {
    uint64_t bound = rdma_settings.max_registered;
    return !bound || rdma_registered() + size <= bound / 2;
}

bool rdma_memory_is_short(void) {
    return !rdma_memory_leaves_share(0);
}

struct rdma_rx *rdma_rx_take_to_grow(struct rdma_memory *memory, uint32_t size) {
    if (!class_of(memory, size)->ready.len) {
        if (memory->growths_left == 0 || !rdma_memory_leaves_share(size)) {
            errno = EDQUOT;
            return NULL;
        }
        memory->growths_left--;
    }
    return rdma_rx_take(memory, size);
}

bool rdma_rx_available(struct rdma_memory *memory, uint32_t size) {
    uint64_t bound = rdma_settings.max_registered, idle = memory->rx_kept_bytes;
    if (!bound || rdma_registered() + size <= bound) return true;
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next)
        idle += class->stale.len * class->size;
    return rdma_registered() + size <= bound + idle;
}

void rdma_rx_give(struct rdma_memory *memory, struct rdma_rx *rx) {
    struct rdma_rx_class *class = class_of(memory, rx->capacity);
    must(memory->stats->receive_buffers > 0 && rx->mr);
    memory->stats->receive_buffers--;
    if (rx->announced)
        list_append(&class->stale, &rx->link);
    else
        rx_to_ready(memory, class, rx);
    if (memory->work) memory->work(memory);
}

bool rdma_memory_tidy(struct rdma_memory *memory, uint64_t budget_us) {
    uint64_t end = clock_monotonic_us() + budget_us;
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next) {
        struct rdma_rx *rx;
        while ((rx = pop(&class->stale))) {
            if (!rx_unregister(memory, rx)) continue;
            if (memory->rx_kept_bytes + rx->capacity > RDMA_RX_KEPT_MOST || rdma_memory_is_short())
                rx_to_cold(memory, class, rx);
            else {
                memset(rx->data, 0, rx->capacity);
                if (rx_register(memory, rx))
                    rx_to_ready(memory, class, rx);
                else
                    rx_to_cold(memory, class, rx);
            }
            if (clock_monotonic_us() >= end) return true;
        }
    }
    return false;
}

static void age_class(struct rdma_memory *memory, struct rdma_rx_class *class) {
    size_t unused = class->ready_low < class->ready.len ? class->ready_low : class->ready.len, go = (unused + 1) / 2;
    if (go > AGE_AT_ONCE) go = AGE_AT_ONCE;
    while (go-- > 0 && memory->rx_kept_bytes > RDMA_RX_KEPT_LEAST) {
        struct rdma_rx *rx = container_of(class->ready.head.prev, struct rdma_rx, link);
        list_remove(&class->ready, &rx->link);
        memory->rx_kept_bytes -= rx->capacity;
        memory->stats->receive_ready--;
        if (rx_unregister(memory, rx)) rx_to_cold(memory, class, rx);
    }
    class->ready_low = class->ready.len;
}

bool rdma_memory_age(struct rdma_memory *memory) {
    bool more = age_send(memory);
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next) age_class(memory, class);
    return more || memory->rx_kept_bytes > RDMA_RX_KEPT_LEAST;
}

void rdma_memory_trim(struct rdma_memory *memory) {
    unregister_ready(memory, SIZE_MAX);
    if (memory->send_bytes > RDMA_SLAB_SIZE) drop_send_slabs(memory, memory->send_bytes / RDMA_SLAB_SIZE - 1);
}
