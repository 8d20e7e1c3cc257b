/* device.h: the device contexts of a loop, which its connections share: protection domain, completion queues,
 * completion channel, shared receive queues and memory; and the queue pairs on them.
 *
 * Queue sizes
 *   A completion queue never overflows: each connection commits its whole send queue (on failure, unsignalled requests
 *   complete as well), and the receive queue its whole depth. When the capacity of a queue is committed, another one is
 *   created for further connections.
 *
 * Receives
 *   Connections share receive queues of RDMA_SHARED_DEPTH receives. A queue serves RDMA_SHARED_USERS connections; then
 *   another one is created for further connections. The device reports when a queue falls below 1/RDMA_SHARED_LIMIT of
 *   its depth. The loop then handles completions immediately, which posts receives again, and later connections use
 *   another queue. Until then, the devices of senders that find no receive retry.
 *   Rejected: resizing the queue (mlx5 cannot); one queue for the maximum number of connections (megabytes of pinned
 *   memory in each thread, for connections that rarely exist). */
#pragma once
#include "net/rdma/loop.h"
#include "net/rdma/memory.h"
#include "net/rdma/poll_slot.h"
#include "net/rdma/values.h"
#include "net/rdma/wire.h"
#include <rdma/rdma_cma.h>

enum {
    RDMA_SEND_DEPTH = 64,     /* outstanding work requests of a connection */
    RDMA_SHARED_DEPTH = 4096, /* receives of a shared receive queue */
    RDMA_SHARED_USERS = 2048, /* connections that one serves, unless no other can be made */
    RDMA_SHARED_LIMIT = 8,    /* the device reports when less than one receive in RDMA_SHARED_LIMIT is left */
    RDMA_SHARED_MAX = 16,     /* shared receive queues of a device context */
    RDMA_OWN_DEPTH = 512,     /* receives of a connection, on a device without shared receive queues */
    RDMA_BATCH = 32,          /* completions fetched by one call */
    RDMA_POLL_MAX = 128,      /* completions handled before other work of the loop */
    RDMA_INLINE_WANTED = 220,
    RDMA_SGE_MAX = 4,
    RDMA_MESSAGE_REQUESTS = 4, /* work requests of one message, at most */
    RDMA_QUEUES_MAX = 16,
    RDMA_QP_PAGE = 4096,
    RDMA_TICK_US = 250 * 1000,
    RDMA_PLACE_READS_MAX = 16, /* READs of placements in flight on a connection */
    RDMA_SPIN_LONG_US = 200,   /* after RDMA_SHORT_WAITS sleeps in a row that were shorter, spin for this long */
    RDMA_SHORT_WAITS = 2,
};

struct rdma_device;
struct rdma_queue_pair;
struct rdma_slot;

/* A shared receive queue, and the slots that are posted to it. It stays until the device context goes. */
struct rdma_shared {
    struct ibv_srq *srq;
    struct rdma_slot *slots;
    struct ibv_mr *slots_mr;
    struct ibv_cq *cq; /* of the receives */
    uint32_t depth;
    uint32_t users; /* connections */
    int64_t posted;
    bool armed;   /* the device will report the limit, or cannot */
    bool was_low; /* it has reported it: further connections use another one */
};

struct rdma_queue {
    struct ibv_cq *cq;
    uint32_t capacity, committed;
    unsigned unacknowledged; /* events, acknowledged in bulk because ibv_ack_cq_events takes a lock */
    bool armed;
};

/* Work request ids: a receive has the address of its slot with bit 0 set, a send twice its sequence number. */
enum { RDMA_RECEIVE_TAG = 1 };
static inline bool rdma_is_receive(const struct ibv_wc *wc) {
    return wc->wr_id & RDMA_RECEIVE_TAG;
}

/* Buffer of a receive for one control message. */
struct rdma_slot {
    union {
        union rdma_wire_message message;
        struct { /* while it is not posted because the device did not accept it */
            struct rdma_slot *next;
            struct rdma_queue_pair *qp; /* NULL: of a shared queue */
            struct rdma_shared *shared; /* then this one */
        } unposted;
    };
};

/* Receives to post again. */
struct rdma_repost {
    struct rdma_slot *slot;
    struct rdma_queue_pair *qp; /* NULL: to a shared queue */
    struct rdma_shared *shared; /* then this one */
};

/* The queue pair of a connection. */
struct rdma_queue_pair {
    struct rdma_device *device; /* NULL until the address is resolved */
    struct rdma_cm_id *id;
    struct ibv_qp *verbs;
    uint32_t number;
    uint32_t send_depth;
    uint32_t max_inline;
    struct rdma_queue *send_queue;
    struct rdma_shared *shared; /* receive queue; NULL: it has its own */
    struct rdma_slot *slots;    /* of its own queue */
    struct ibv_mr *slots_mr;
};

struct rdma_device {
    struct list_link link;
    struct rdma_loop *owner;
    struct ibv_context *verbs;
    const char *name;
    struct ibv_device_attr limits;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct rdma_queue queues[RDMA_QUEUES_MAX];
    int queue_count;
    int queue_first; /* to be polled next: one with many receives must not keep the others waiting */
    int own_vector;  /* RDMA_VECTOR_AUTO's choice for this thread; RDMA_VECTOR_AUTO: not chosen yet */
    struct rdma_shared shared[RDMA_SHARED_MAX];
    int shared_count; /* 0: the device has no shared receive queues */
    struct rdma_slot *unposted;
    struct rdma_queue_pair **pages[RDMA_QP_PAGE]; /* by queue pair number, 12 + 12 bits */
    struct event_poller poller;
    struct event_io io, async_io;
    struct ibv_wc completions[RDMA_BATCH];
    int completion_next, completion_count;
    struct rdma_repost reposts[RDMA_BATCH];
    int repost_count;
    struct rdma_memory memory;
    struct rdma_values values;
    struct rdma_polls polls;
    struct list starved; /* connections waiting for send memory */
    size_t users;        /* connections */
    uint64_t opened_us;
    unsigned short_waits; /* in a row: sleeps that a completion ended within RDMA_SPIN_LONG_US after the last work */
    bool removed; /* the device is gone; the context is freed with its last connection, new ones get another context */
    struct event_deferred deferred;
    uint32_t max_inline; /* what creating a queue pair last granted */
    int max_sge;
    uint32_t send_depth, own_depth;
    uint32_t max_message; /* bytes of a request */
    uint32_t place_piece; /* place.c: bytes of a request of a placement */
    uint32_t placing;     /* large placements in progress: the thread does not spin until the device has moved them */
    bool placed_last;     /* nothing has arrived since a large one ended */
};

/* Handlers that the layer above installs (completion.h). */
struct rdma_device_handlers {
    int (*poll)(struct event_poller *poller); /* device->poller */
    bool (*prepare_sleep)(struct event_poller *poller);
    void (*channel_ready)(struct event_io *io, int mask); /* device->io: an armed completion queue has an event */
    void (*async_ready)(struct event_io *io, int mask);   /* device->async_io: the device has an asynchronous event */
};

/* The context of the device, created by the first call. NULL: text in `error`, errno. */
struct rdma_device *rdma_device_of(struct rdma_loop *loop, struct ibv_context *verbs,
                                   const struct rdma_device_handlers *handlers, char *error, size_t error_size);
/* The context if it exists, or NULL. */
struct rdma_device *rdma_device_known(struct rdma_loop *loop, const struct ibv_context *verbs);
/* Whether the device supports what the protocol needs. False: text in `error`, errno. */
bool rdma_device_fits(const struct ibv_context *verbs, char *error, size_t error_size);
void rdma_device_left(struct rdma_device *device); /* a connection no longer uses the device */
/* The device is gone: the context is freed when its last connection has left it. */
void rdma_device_set_removed(struct rdma_device *device);
void rdma_device_free(struct rdma_device *device); /* its connections must be gone */
int rdma_set_nonblocking(int fd);                  /* 0 or -errno */

/* Creates a queue pair on qp->id and enters it in the table of queue pairs. 0 or -errno. */
int rdma_queue_pair_create(struct rdma_queue_pair *qp);
void rdma_queue_pair_forget(struct rdma_queue_pair *qp); /* its completions are ignored from now on */
/* The state ERR: nothing more arrives, and what is posted completes. */
void rdma_queue_pair_stop(struct rdma_queue_pair *qp);
void rdma_queue_pair_destroy(struct rdma_queue_pair *qp);
/* NULL: it is forgotten. */
static inline struct rdma_queue_pair *rdma_queue_pair_find(const struct rdma_device *device, uint32_t number) {
    struct rdma_queue_pair **page = device->pages[number >> 12 & (RDMA_QP_PAGE - 1)];
    return page ? page[number & (RDMA_QP_PAGE - 1)] : NULL;
}

/* A completion queue with capacity for `need` more requests; NULL: errno. */
struct rdma_queue *rdma_queue_with_capacity(struct rdma_device *device, uint32_t need);
