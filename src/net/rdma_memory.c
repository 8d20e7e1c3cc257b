/* rdma_memory.c: slabs of registered memory. See rdma_memory.h. */
#include "net/rdma_memory.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <errno.h>
#include <linux/mman.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A mapping, and what is registered of it. */
struct rdma_slab {
    struct rdma_slab *next;
    char *base;
    size_t size;
    struct ibv_mr *mr;         /* send slabs */
    struct rdma_chunk *chunks; /* send slabs */
    struct rdma_rx *buffers;   /* receive slabs */
    size_t buffer_count;
};

struct rdma_rx_class {
    struct rdma_rx_class *next;
    uint32_t size;
    struct rdma_rx *ready; /* registered, wiped */
    struct rdma_rx *cold;  /* neither registered nor in memory */
};

void rdma_memory_init(struct rdma_memory *memory, struct ibv_pd *pd, struct rdma_stats *stats) {
    *memory = (struct rdma_memory){.pd = pd, .stats = stats};
}

static struct ibv_mr *register_memory(struct rdma_memory *memory, void *base, size_t size, int access) {
    struct ibv_mr *mr = ibv_reg_mr(memory->pd, base, size, access);
    if (mr) memory->stats->registered_bytes += size;
    return mr;
}

static void unregister_memory(struct rdma_memory *memory, struct ibv_mr *mr) {
    if (!mr) return;
    memory->stats->registered_bytes -= mr->length;
    ibv_dereg_mr(mr);
}

/* Anonymous memory, aligned to huge pages and made of them where possible. */
static char *map_slab(size_t size) {
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
    if (base != MAP_FAILED) return base;
    size_t wide = size + RDMA_SLAB_SIZE;
    base = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t skip = (size_t)(-(uintptr_t)base & (RDMA_SLAB_SIZE - 1));
    if (skip) munmap(base, skip);
    if (wide - skip > size) munmap(base + skip + size, wide - skip - size);
    madvise(base + skip, size, MADV_HUGEPAGE);
    return base + skip;
}

static struct rdma_slab *slab_new(struct rdma_memory *memory, size_t size) {
    char *base = map_slab(size);
    if (!base) return NULL;
    struct rdma_slab *slab = mem_calloc(1, sizeof *slab);
    *slab = (struct rdma_slab){.base = base, .size = size, .next = memory->slabs};
    memory->slabs = slab;
    return slab;
}

void rdma_memory_free(struct rdma_memory *memory) {
    while (memory->slabs) {
        struct rdma_slab *slab = memory->slabs;
        memory->slabs = slab->next;
        for (size_t i = 0; i < slab->buffer_count; i++) unregister_memory(memory, slab->buffers[i].mr);
        unregister_memory(memory, slab->mr);
        munmap(slab->base, slab->size);
        mem_free(slab->buffers);
        mem_free(slab->chunks);
        mem_free(slab);
    }
    while (memory->classes) {
        struct rdma_rx_class *class = memory->classes;
        memory->classes = class->next;
        mem_free(class);
    }
}

void rdma_registration_error(int error, const char *device, char *text, size_t size) {
    struct rlimit limit;
    bool locked = (error == ENOMEM || error == EPERM || error == EAGAIN) &&
                  getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (locked)
        snprintf(text, size,
                 "RDMA: cannot register memory (%s): %s; the limit of locked memory (RLIMIT_MEMLOCK) is %llu "
                 "bytes: "
                 "raise it with \"ulimit -l unlimited\" or LimitMEMLOCK=infinity",
                 device, strerror(error), (unsigned long long)limit.rlim_cur);
    else
        snprintf(text, size, "RDMA: cannot register memory (%s): %s", device, strerror(error));
}

/* Send memory */

static bool add_send_slab(struct rdma_memory *memory) {
    if (memory->send_bytes && memory->send_bytes + RDMA_SLAB_SIZE > rdma_settings.send_memory) {
        errno = ENOBUFS;
        return false;
    }
    struct rdma_slab *slab = slab_new(memory, RDMA_SLAB_SIZE);
    if (!slab) return false;
    slab->mr = register_memory(memory, slab->base, slab->size, 0);
    if (!slab->mr) {
        int error = errno;
        memory->slabs = slab->next;
        munmap(slab->base, slab->size);
        mem_free(slab);
        if (!memory->exhausted_told) {
            char text[320];
            rdma_registration_error(error, ibv_get_device_name(memory->pd->context->device), text,
                                    sizeof text);
            log_warning("%s", text);
        }
        memory->exhausted_told = true;
        errno = error;
        return false;
    }
    enum { COUNT = RDMA_SLAB_SIZE / RDMA_CHUNK_SIZE };
    slab->chunks = mem_calloc(COUNT, sizeof *slab->chunks);
    for (int i = COUNT - 1; i >= 0; i--) {
        struct rdma_chunk *chunk = &slab->chunks[i];
        chunk->data = slab->base + (size_t)i * RDMA_CHUNK_SIZE;
        chunk->lkey = slab->mr->lkey;
        chunk->registered = true;
        chunk->next = memory->free_chunks;
        memory->free_chunks = chunk;
    }
    memory->send_bytes += slab->size;
    return true;
}

struct rdma_chunk *rdma_chunk_take(struct rdma_memory *memory) {
    if (!memory->free_chunks && !add_send_slab(memory)) return NULL;
    struct rdma_chunk *chunk = memory->free_chunks;
    memory->free_chunks = chunk->next;
    chunk->next = NULL;
    chunk->unsent = 0;
    chunk->used = false;
    return chunk;
}

struct rdma_chunk *rdma_chunk_plain(void) {
    struct rdma_chunk *chunk = mem_alloc(sizeof *chunk + RDMA_CHUNK_SIZE);
    *chunk = (struct rdma_chunk){.data = (char *)(chunk + 1)};
    return chunk;
}

void rdma_chunk_give(struct rdma_memory *memory, struct rdma_chunk *chunk) {
    if (!chunk->registered) {
        mem_free(chunk);
        return;
    }
    chunk->next = memory->free_chunks;
    memory->free_chunks = chunk;
}

/* Receive memory */

static struct rdma_rx_class *class_of(struct rdma_memory *memory, uint32_t size) {
    for (struct rdma_rx_class *class = memory->classes; class; class = class->next)
        if (class->size == size) return class;
    struct rdma_rx_class *class = mem_calloc(1, sizeof *class);
    *class = (struct rdma_rx_class){.size = size, .next = memory->classes};
    memory->classes = class;
    return class;
}

static bool add_rx_slab(struct rdma_memory *memory, struct rdma_rx_class *class) {
    size_t size = class->size < RDMA_SLAB_SIZE
                      ? RDMA_SLAB_SIZE
                      : (class->size + RDMA_SLAB_SIZE - 1) / RDMA_SLAB_SIZE * (size_t)RDMA_SLAB_SIZE;
    struct rdma_slab *slab = slab_new(memory, size);
    if (!slab) return false;
    slab->buffer_count = size / class->size;
    slab->buffers = mem_calloc(slab->buffer_count, sizeof *slab->buffers);
    for (size_t i = slab->buffer_count; i-- > 0;) {
        struct rdma_rx *rx = &slab->buffers[i];
        *rx =
            (struct rdma_rx){.data = slab->base + i * class->size, .size = class->size, .next = class->cold};
        class->cold = rx;
    }
    return true;
}

/* The peer writes, nobody reads from afar. */
static bool rx_register(struct rdma_memory *memory, struct rdma_rx *rx) {
    rx->mr = register_memory(memory, rx->data, rx->size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return rx->mr != NULL;
}

struct rdma_rx *rdma_rx_take(struct rdma_memory *memory, uint32_t size) {
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page;
    struct rdma_rx_class *class = class_of(memory, size);
    struct rdma_rx *rx = class->ready;
    if (rx) {
        class->ready = rx->next;
        memory->rx_kept_bytes -= rx->size;
        return rx;
    }
    if (!class->cold && !add_rx_slab(memory, class)) return NULL;
    rx = class->cold;
    if (!rx_register(memory, rx)) return NULL;
    class->cold = rx->next;
    return rx;
}

void rdma_rx_give(struct rdma_memory *memory, struct rdma_rx *rx) {
    struct rdma_rx_class *class = class_of(memory, rx->size);
    unregister_memory(memory, rx->mr);
    rx->mr = NULL;
    memset(rx->data, 0, rx->size);
    if (memory->rx_kept_bytes + rx->size <= RDMA_RX_KEPT_BYTES && rx_register(memory, rx)) {
        rx->next = class->ready;
        class->ready = rx;
        memory->rx_kept_bytes += rx->size;
        return;
    }
    madvise(rx->data, rx->size, MADV_DONTNEED);
    rx->next = class->cold;
    class->cold = rx;
}
