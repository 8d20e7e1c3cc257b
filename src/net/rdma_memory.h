/* rdma_memory.h: registered memory of one device context, cut from slabs.
 *
 * Send memory.  Chunks of RDMA_CHUNK_SIZE bytes in slabs of 2 MiB, registered once, slab by slab, without any remote right. They are taken when
 *   a connection has something to send and given back when it has gone; the last one given is the next one taken, so that a
 *   server with many quiet connections writes its replies to the same few warm chunks.
 * Receive memory.  A buffer is what its peer writes into, so it has a memory region, and with it a remote key, of its own: with one
 *   region over a slab, each peer could write into its neighbours' buffers. A peer that is gone still knows its key, so a buffer that is
 *   given back is registered anew right then, while nobody waits, and what the peer wrote is wiped: a later peer could otherwise
 *   announce bytes that it never wrote and have another's requests interpreted. Buffers beyond RX_KEPT_BYTES are unregistered and their pages returned.
 *   What is left: keys are 32 bits, and a peer may guess a neighbour's. A wrong guess costs it the connection. Memory windows of type 2 would close
 *   that; not every device has them.
 * All of it is huge pages where the system has them. */
#ifndef NET_RDMA_MEMORY_H
#define NET_RDMA_MEMORY_H
#include "net/rdma.h"
#include <infiniband/verbs.h>

enum {
    RDMA_CHUNK_SIZE = 16 * 1024,
    RDMA_SLAB_SIZE = 2 * 1024 * 1024,
    RDMA_RX_KEPT_BYTES = 64 * 1024 * 1024,
};

/* A piece of send memory. It belongs to one connection at a time. */
struct rdma_chunk {
    struct rdma_chunk *next;
    char *data;
    uint32_t lkey;
    uint32_t last_seq; /* the last work request that reads it; of the connection's send queue */
    uint32_t unsent;   /* queued segments that lie in it */
    bool registered;   /* false: ordinary memory, must be copied to be sent */
    bool used;         /* last_seq means something */
};

struct rdma_rx {
    struct rdma_rx *next;
    char *data;
    uint32_t size;
    struct ibv_mr *mr;
};

struct rdma_slab;
struct rdma_rx_class;
struct rdma_memory {
    struct ibv_pd *pd;
    struct rdma_stats *stats;
    struct rdma_slab *slabs;
    struct rdma_chunk *free_chunks;
    size_t send_bytes;
    struct rdma_rx_class *classes;
    size_t rx_kept_bytes;
    bool exhausted_told;
};

void rdma_memory_init(struct rdma_memory *memory, struct ibv_pd *pd, struct rdma_stats *stats);
void rdma_memory_free(struct rdma_memory *memory); /* nothing may be taken any more */

struct rdma_chunk *rdma_chunk_take(struct rdma_memory *memory); /* NULL: none to be had now; errno */
void rdma_chunk_give(struct rdma_memory *memory, struct rdma_chunk *chunk);
/* A chunk of ordinary memory, for what has to wait. */
struct rdma_chunk *rdma_chunk_plain(void);

struct rdma_rx *rdma_rx_take(struct rdma_memory *memory, uint32_t size); /* NULL: errno */
void rdma_rx_give(struct rdma_memory *memory, struct rdma_rx *rx);

/* Why a registration failed, for people; names the limit of locked memory where that is the likely cause. */
void rdma_registration_error(int error, const char *device, char *text, size_t size);
#endif
