/* memory.h: registered memory of one device context, cut from slabs, and the process-wide limit on it.
 *
 * Send memory
 *   Chunks of RDMA_CHUNK_SIZE bytes in slabs of 2 MiB. Each slab is registered once, without any remote access right. A
 *   connection takes a chunk when it has something to send and gives it back when the bytes are sent. The last chunk
 *   given back is the next one taken, so a server with many quiet connections writes its replies to the same few warm
 *   chunks. Slabs that were not needed for a while are freed, except the first.
 *
 * Receive memory
 *   The peer writes into a receive buffer, so each buffer has its own memory region and remote key. With one region
 *   over a slab, each peer could write into its neighbours' buffers. There is a class for each size in use. A free
 *   buffer is in one of three states:
 *   - ready: registered and wiped, and no peer knows its key. The next connection can use it.
 *   - stale: given back, but a peer still knows its key. rdma_memory_tidy() unregisters and wipes it, and then
 *     registers it again or leaves it cold. No other connection gets it before.
 *   - cold: not registered, and its pages are returned to the system.
 *   Connecting, growing and disconnecting therefore cost no registration as long as there are ready buffers.
 *
 *   The whole buffer is wiped. Otherwise a later peer could announce bytes that it never wrote and have the server
 *   interpret another peer's requests, even requests that the other had written and not yet announced. The cost is
 *   still proportional to the bytes written: only a peer that has just filled a buffer a quarter of the size gets a
 *   buffer larger than the first. A buffer whose key no peer received (the connection failed before) is ready
 *   immediately.
 *
 *   Remaining risk: keys are 32 bits, and a peer may guess a neighbour's. A wrong guess ends its connection. Memory
 *   windows of type 2 would prevent this, but not every device has them.
 *
 * Limit
 *   rdma_settings.max_registered applies to the whole process: all memory is registered through rdma_register(). At the
 *   limit, unused ready buffers are freed first; after that rdma_register() fails with EDQUOT and the caller does
 *   without.
 *
 * Failures
 *   A device may refuse to end a registration. Then its memory is not used again and keeps counting, and
 *   rdma_memory_free() tries once more, when no queue pair is left. Until then the protection domain is in use as well.
 *
 * Huge pages
 *   Slabs use huge pages where the system has them: reserved ones (MAP_HUGETLB), which are counted, else transparent
 *   ones (madvise). A slab of small buffers fills its huge page with many of them. But where a fork requires registered
 *   pages to be excluded from the child's memory one by one (kernels before 5.12), a region cannot end inside a huge
 *   page, so such slabs use ordinary pages. Slabs also use ordinary pages after a registration has shown that the
 *   device cannot register huge pages (soft-RoCE of Linux 6.1, for parts of reserved huge pages). */
#pragma once
#include "lib/structures/linked_list.h"
#include "net/output_queue.h"
#include "net/rdma/settings.h"
#include <infiniband/verbs.h>

enum {
    RDMA_CHUNK_SIZE = 16 * 1024,
    RDMA_SLAB_SIZE = 2 * 1024 * 1024,
    RDMA_RX_KEPT_MOST = 64 * 1024 * 1024, /* bytes of ready receive buffers after many connections have closed */
    RDMA_RX_KEPT_LEAST = 1024 * 1024,     /* and after a while without use */
    RDMA_GROWTHS_A_TICK = 256,
};

struct rdma_slab;
struct rdma_rx_class;
struct rdma_refused;

/* A piece of send memory. It belongs to one connection at a time. */
struct rdma_chunk {
    struct output_chunk queued; /* must be first */
    struct rdma_chunk *next;
    struct rdma_slab *slab;
    char *data;
    uint32_t lkey;
    uint32_t last_seq; /* sequence number of the last work request that reads it, in the connection's send queue */
    bool registered;   /* false: ordinary memory, which must be copied to be sent */
    bool used;         /* last_seq is valid */
};

struct rdma_rx {
    struct list_link link; /* in its class, while no connection uses it */
    struct rdma_slab *slab;
    char *data;
    uint32_t capacity;
    uint32_t size;  /* that is announced to the peer: `capacity`, or less (size.h) */
    bool announced; /* a peer knows the key: set it before announcing the buffer */
    struct ibv_mr *mr;
};

struct rdma_memory {
    struct ibv_pd *pd;
    struct rdma_stats *stats;
    struct rdma_slab *slabs;
    struct rdma_chunk *free_chunks;
    size_t send_bytes;
    uint64_t send_peak; /* the most chunks in use at a time since the last ageing */
    struct rdma_rx_class *classes;
    size_t rx_kept_bytes;         /* in ready buffers */
    uint64_t second_bytes;        /* in second receive buffers of connections */
    unsigned growths_left;        /* registrations for growth left in this tick; RDMA_GROWTHS_A_TICK */
    struct rdma_refused *refused; /* registrations that the device failed to end */
    bool exhausted_logged;
    bool no_reserved_huge[2];                 /* the device cannot register reserved huge pages: whole, in parts */
    void (*work)(struct rdma_memory *memory); /* requests a call of rdma_memory_tidy() soon; may be NULL */
};

void rdma_memory_init(struct rdma_memory *memory, struct ibv_pd *pd, struct rdma_stats *stats);
void rdma_memory_free(struct rdma_memory *memory); /* all chunks and buffers must have been given back */

/* Registers memory of any kind, counted and limited. NULL: errno; EDQUOT means the limit. */
struct ibv_mr *rdma_register(struct rdma_memory *memory, void *base, size_t size, int access,
                             enum rdma_memory_kind kind);
/* The same in steps, for memory that another thread registers, or several device contexts. The claim reserves the bytes
 * (false: EDQUOT), once for the process. A thread then calls ibv_reg_mr() on memory->pd, and each context counts its
 * region with rdma_register_done(); `mr` NULL: the registration failed with `error`. */
bool rdma_register_claim(struct rdma_memory *memory, size_t size);
void rdma_register_unclaim(size_t size);
void rdma_register_done(struct rdma_memory *memory, const struct ibv_mr *mr, int error);
/* Ends a registration and its claim. False as for rdma_unregister(). */
bool rdma_unregister_claimed(struct rdma_memory *memory, struct ibv_mr *mr, size_t claimed);
/* mr may be NULL. False: the device failed to unregister it; the memory must not be reused. rdma_memory_free() tries
 * again. */
bool rdma_unregister(struct rdma_memory *memory, struct ibv_mr *mr, enum rdma_memory_kind kind);
uint64_t rdma_registered(void);                                   /* bytes, of the process */
const char *rdma_memory_device(const struct rdma_memory *memory); /* the name of its device */
/* Describes why a registration failed. Names the option, or the limit on locked memory where that is the likely
 * cause. */
void rdma_registration_error(int error, const char *device, char *text, size_t size);

struct rdma_chunk *rdma_chunk_take(struct rdma_memory *memory); /* NULL: none is available now; errno */
void rdma_chunk_give(struct rdma_memory *memory, struct rdma_chunk *chunk);
/* A chunk of ordinary memory, for output that has to wait, as conn_output_alloc(). */
struct rdma_chunk *rdma_chunk_plain(size_t queued);

struct rdma_rx *rdma_rx_take(struct rdma_memory *memory, uint32_t size); /* NULL: errno */
void rdma_rx_give(struct rdma_memory *memory, struct rdma_rx *rx);
bool rdma_rx_available(struct rdma_memory *memory, uint32_t size); /* the limit allows rdma_rx_take() */
/* Like rdma_rx_take(), for a connection that can do without. Leaves part of the limit to new connections, and allows
 * only RDMA_GROWTHS_A_TICK registrations in a tick. */
struct rdma_rx *rdma_rx_take_to_grow(struct rdma_memory *memory, uint32_t size);
bool rdma_memory_leaves_share(uint64_t size); /* with `size` bytes more, part of the limit is left to connections */
bool rdma_memory_is_plentiful(uint64_t size); /* with `size` bytes more, at least half of the limit is left */
bool rdma_memory_is_short(void);              /* near the limit: connections that can do with less should */

/* Makes stale buffers ready or cold, for about `budget_us` microseconds. Returns whether more remain. */
bool rdma_memory_tidy(struct rdma_memory *memory, uint64_t budget_us);
/* Call about every RDMA_MEMORY_AGE_US: frees half of what was not needed since the last call. False: nothing is left to
 * free. */
enum { RDMA_MEMORY_AGE_US = 1000 * 1000 };
bool rdma_memory_age(struct rdma_memory *memory);
/* Frees all unused memory now, except one slab of send memory. */
void rdma_memory_trim(struct rdma_memory *memory);
