/* rdma_memory.h: registered memory of one device context, cut from slabs, and the bound of the whole process on it.
 *
 * Send memory.  Chunks of RDMA_CHUNK_SIZE bytes in slabs of 2 MiB, registered once, slab by slab, without any remote
 * right. They are taken when a connection has something to send and given back when it has gone; the last one given is
 * the next one taken, so that a server with many quiet connections writes its replies to the same few warm chunks.
 * Slabs that were not needed for a while go again, but for the first. Receive memory.  A buffer is what its peer writes
 * into, so it has a memory region, and with it a remote key, of its own: with one region over a slab, each peer could
 * write into its neighbours' buffers. There is a class for each size in use, and a buffer of it is ready  registered,
 * wiped, its key told to nobody: the next connection's; stale  given back, but a peer still knows its key. It waits for
 * rdma_memory_tidy(), which unregisters and wipes it and either registers it anew or leaves it cold: connections
 * neither come, grow nor go by a registration as long as there are ready ones. Nobody else gets it before; cold   not
 * registered, and its pages given back to the system. It is wiped as a whole, because a later peer could otherwise
 * announce bytes that it never wrote and have another's requests interpreted, also those that the other had written and
 * not yet announced. The cost is in proportion to what was written all the same: a buffer larger than the first is
 * taken by those alone who have just filled one a quarter of its size. One whose key was told to nobody (a connection
 * that never came about) is ready at once. What is left: keys are 32 bits, and a peer may guess a neighbour's. A wrong
 * guess costs it the connection. Memory windows of type 2 would close that; not every device has them. The bound.
 * rdma_settings.max_registered holds for all of the process: whoever registers memory does it by rdma_register(). At
 * the bound, ready buffers that nobody uses go first; then it fails with EDQUOT, and the caller does without. Huge
 * pages.  Slabs are huge pages where the system has them: reserved ones (MAP_HUGETLB), which are counted, else
 * transparent ones on advice. A slab of small buffers fills its huge page with many of them; but where a fork needs
 * registered pages to be taken out of the child's memory one by one (kernels before 5.12), a region cannot end amid a
 * huge page: such slabs are then made of ordinary pages. So they are where registering shows that the device cannot do
 * it (soft-RoCE of Linux 6.1 and parts of reserved huge pages). */
#ifndef NET_RDMA_MEMORY_H
#define NET_RDMA_MEMORY_H
#include "lib/list.h"
#include "net/rdma.h"
#include <infiniband/verbs.h>

enum {
    RDMA_CHUNK_SIZE = 16 * 1024,
    RDMA_SLAB_SIZE = 2 * 1024 * 1024,
    RDMA_RX_KEPT_MOST = 64 * 1024 * 1024, /* ready receive buffers after many connections have gone */
    RDMA_RX_KEPT_LEAST = 1024 * 1024,     /* and when there was no use for them for a while */
    RDMA_GROWTHS_A_TICK = 64,
};

struct rdma_slab;
struct rdma_rx_class;

/* A piece of send memory. It belongs to one connection at a time. */
struct rdma_chunk {
    struct rdma_chunk *next;
    struct rdma_slab *slab;
    char *data;
    uint32_t lkey;
    uint32_t last_seq; /* the last work request that reads it; of the connection's send queue */
    uint32_t unsent;   /* queued segments that lie in it */
    bool registered;   /* false: ordinary memory, must be copied to be sent */
    bool used;         /* last_seq means something */
};

struct rdma_rx {
    struct list_link link; /* of its class, while no connection has it */
    struct rdma_slab *slab;
    char *data;
    uint32_t size;
    bool told; /* a peer knows the key: set it before announcing the buffer */
    struct ibv_mr *mr;
};

struct rdma_memory {
    struct ibv_pd *pd;
    struct rdma_stats *stats;
    struct rdma_slab *slabs;
    struct rdma_chunk *free_chunks;
    size_t send_bytes;
    uint64_t send_peak; /* chunks in use at a time, since the last ageing */
    struct rdma_rx_class *classes;
    size_t rx_kept_bytes;  /* of the ready ones */
    uint64_t second_bytes; /* of receive buffers that are the second ones of connections */
    unsigned growths_left; /* registrations for growth in this tick; RDMA_GROWTHS_A_TICK */
    bool exhausted_told;
    bool no_reserved_huge[2];                 /* the device cannot register them: as a whole, in parts */
    void (*work)(struct rdma_memory *memory); /* rdma_memory_tidy() shall be called soon; may be NULL */
};

void rdma_memory_init(struct rdma_memory *memory, struct ibv_pd *pd, struct rdma_stats *stats);
void rdma_memory_free(struct rdma_memory *memory); /* nothing may be taken any more */

/* Registration of whatever memory, counted and bounded. NULL: errno; EDQUOT is the bound. */
struct ibv_mr *rdma_register(struct rdma_memory *memory, void *base, size_t size, int access,
                             enum rdma_memory_kind kind);
/* The same in three steps, for a registration by another thread: claims the bytes of the bound (false: EDQUOT); then
 * that thread calls ibv_reg_mr() on memory->pd; then the outcome is counted here. `mr` NULL: it failed with `error`. */
bool rdma_register_claim(struct rdma_memory *memory, size_t size);
void rdma_register_done(struct rdma_memory *memory, const struct ibv_mr *mr, size_t size, int error,
                        enum rdma_memory_kind kind);
/* mr may be NULL. False: the device kept it; the memory must not be given to anybody else. */
bool rdma_unregister(struct rdma_memory *memory, struct ibv_mr *mr, enum rdma_memory_kind kind);
uint64_t rdma_registered(void); /* bytes, of the process */
/* Why a registration failed, for people; names the option, or the limit of locked memory where that is the likely
 * cause. */
void rdma_registration_error(int error, const char *device, char *text, size_t size);

struct rdma_chunk *rdma_chunk_take(struct rdma_memory *memory); /* NULL: none to be had now; errno */
void rdma_chunk_give(struct rdma_memory *memory, struct rdma_chunk *chunk);
/* A chunk of ordinary memory, for what has to wait. */
struct rdma_chunk *rdma_chunk_plain(void);

struct rdma_rx *rdma_rx_take(struct rdma_memory *memory, uint32_t size); /* NULL: errno */
void rdma_rx_give(struct rdma_memory *memory, struct rdma_rx *rx);
bool rdma_rx_available(struct rdma_memory *memory, uint32_t size); /* a take has not to fail for the bound */
/* Like rdma_rx_take(), for a connection that could do without: part of the bound is left to connections that come, and
 * registrations are few in a tick. */
struct rdma_rx *rdma_rx_take_to_grow(struct rdma_memory *memory, uint32_t size);
bool rdma_memory_is_short(void); /* near the bound: who can do with less shall */

/* Makes stale buffers ready or cold, for about `budget_us`. Returns whether there are more. */
bool rdma_memory_tidy(struct rdma_memory *memory, uint64_t budget_us);
/* To be called about every RDMA_MEMORY_AGE_US: gives up half of what was not needed since the last time. False: there
 * is nothing more to give up. */
enum { RDMA_MEMORY_AGE_US = 1000 * 1000 };
bool rdma_memory_age(struct rdma_memory *memory);
/* Gives up at once all that nobody uses, but one slab to send from. */
void rdma_memory_trim(struct rdma_memory *memory);
#endif
