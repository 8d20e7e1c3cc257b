/* rdma_device.h: state shared by all RDMA connections of one event loop: a device context for each device (protection
 * domain, completion queues, completion channel, shared receive queue, memory), and the loop's connection manager
 * channel.
 *
 * Completions
 *   One poller for each device context drains the queues in batches. It changes the state of connections but calls none
 *   of their handlers: a connection with something to report goes on the loop's ready list, which is processed after
 *   the batch. So handlers may run the loop, and one call reports several messages of a connection.
 *
 * Sleeping
 *   When nothing arrived for rdma_settings.busy_poll_us, the loop has the poller arm the queues. The poller polls them
 *   once more after arming, because a completion that arrived in between raises no event.
 *   Falling asleep and waking takes both CPUs longer than many a pause between two messages: a peer copies a large
 *   value, or announces its buffer. So after RDMA_SHORT_WAITS sleeps that lasted only a moment the thread spins
 *   for RDMA_SPIN_LONG_US, until such a spin finds nothing.
 *
 * Queue sizes
 *   A completion queue never overflows: each connection commits its whole send queue (on failure, unsignalled requests
 *   complete too), and the receive queue its whole depth. When the capacity of a queue is committed, another one is
 *   created for further connections.
 *
 * Receives
 *   Connections share receive queues of RDMA_SHARED_DEPTH receives. A queue serves RDMA_SHARED_USERS connections; then
 *   another one is created for further connections. The device reports when a queue falls below 1/RDMA_SHARED_LIMIT of
 *   its depth: the loop handles completions at once, which posts receives again, and later connections use another
 *   queue. Until then, the devices of senders that find no receive retry.
 *   Rejected: resizing the queue (mlx5 cannot); one queue for the maximum number of connections (megabytes of pinned
 *   memory in each thread, for connections that rarely exist). */
#ifndef NET_RDMA_DEVICE_H
#define NET_RDMA_DEVICE_H
#include "net/rdma_memory.h"
#include "net/rdma_polled.h"
#include "net/rdma_values.h"
#include "net/rdma_wire.h"
#include <rdma/rdma_cma.h>

enum {
    RDMA_SEND_DEPTH = 64,     /* outstanding work requests of a connection */
    RDMA_SHARED_DEPTH = 4096, /* receives of a shared receive queue */
    RDMA_SHARED_USERS = 2048, /* connections that one serves, unless no other can be made */
    RDMA_SHARED_LIMIT = 8,    /* the device reports when less than one receive in RDMA_SHARED_LIMIT is left */
    RDMA_SHARED_MAX = 16,     /* shared receive queues of a device context */
    RDMA_OWN_DEPTH = 512,     /* receives of a connection, on a device without shared receive queues */
    RDMA_BATCH = 32,          /* completions fetched at once */
    RDMA_POLL_MAX = 128,      /* completions handled before other work of the loop */
    RDMA_INLINE_WANTED = 220,
    RDMA_SGE_MAX = 4,
    RDMA_MESSAGE_REQUESTS = 4, /* work requests of one message, at most */
    RDMA_QUEUES_MAX = 16,
    RDMA_QP_PAGE = 4096,
    RDMA_TICK_US = 250 * 1000,
    RDMA_SPIN_LONG_US = 200, /* after RDMA_SHORT_WAITS sleeps in a row that were shorter, spin for this long */
    RDMA_SHORT_WAITS = 2,
};

struct rdma_connection;
struct rdma_device;
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
            struct rdma_connection *conn; /* NULL: of a shared queue */
            struct rdma_shared *shared;   /* then this one */
        } unposted;
    };
};

/* Receives to post again. */
struct rdma_repost {
    struct rdma_slot *slot;
    struct rdma_connection *conn; /* NULL: to a shared queue */
    struct rdma_shared *shared;   /* then this one */
};

struct rdma_loop {
    struct event_attachment attachment;
    struct event_loop *loop;
    struct rdma_event_channel *channel; /* NULL: not opened */
    struct event_watch channel_watch;
    struct list devices, connections, listeners;
    struct list untrusted;   /* connections of untrusted peers, the oldest first */
    struct list ready;       /* connections with something to report to their owners */
    struct event_timer tick; /* keepalive, idle memory; runs while there are connections */
    struct event_timer tidy; /* freed memory, receives that could not be posted; runs while there is work */
    uint64_t ticked_us, ticked_before_us; /* the last tick, and the one before it */
    uint64_t aged_us;                     /* when memory was last aged */
    uint64_t tidy_from_us;                /* tidying goes on at this time, not earlier */
    uint64_t courtesy_second;             /* connections accepted only to send them "server full": this second's */
    unsigned courtesies;                  /* and their count */
    struct rdma_stats stats;
    struct list_link registry_link; /* in the process's list of loops, for rdma_stats() */
    /* For a loop of another thread (rdma_join), which copies the counters on request. Under the registry lock. */
    bool joined, asked, trim;
    struct event_post show_stats;
    struct rdma_stats shown;
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
    struct rdma_connection **pages[RDMA_QP_PAGE]; /* by queue pair number, 12 + 12 bits */
    struct event_poller poller;
    struct event_watch watch, async_watch;
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
};

/* The RDMA state of the loop, created by the first call. */
struct rdma_loop *rdma_loop_of(struct event_loop *loop);
/* Call for a loop that another thread will run, before it runs: connections placed there need the loop's RDMA state.
 * From then on rdma_loop_find() finds that state from any thread. */
bool rdma_join(struct event_loop *loop);
struct rdma_loop *rdma_loop_find(const struct event_loop *loop);
/* Calls `visit` for each other loop of the process, under the lock of their list. */
void rdma_loops_visit_others(const struct rdma_loop *self, void (*visit)(struct rdma_loop *other, void *context),
                             void *context);
/* Opens the channel unless it is open. Returns 0, or -errno with the reason in `error`. */
int rdma_loop_open(struct rdma_loop *loop, char *error, size_t error_size);
/* The context of the device, created by the first call. NULL: text in `error`, errno. */
struct rdma_device *rdma_device_of(struct rdma_loop *loop, struct ibv_context *verbs, char *error, size_t error_size);

/* Whether the device supports what the protocol needs. False: text in `error`, errno. */
bool rdma_device_fits(const struct ibv_context *verbs, char *error, size_t error_size);
/* The context if it exists, or NULL. */
struct rdma_device *rdma_device_known(struct rdma_loop *loop, const struct ibv_context *verbs);

/* The device was removed: fails its connections, also those of other threads. */
void rdma_device_gone(struct rdma_device *device);
void rdma_device_left(struct rdma_device *device); /* a connection no longer uses the device */

/* Creates a queue pair on conn->id and enters it in the table of queue pairs. Sets conn->qp and its depths. 0 or
 * -errno. */
int rdma_queue_pair_create(struct rdma_connection *conn);
void rdma_queue_pair_forget(struct rdma_connection *conn);  /* its completions are ignored from now on */
void rdma_queue_pair_destroy(struct rdma_connection *conn); /* after rdma_queue_pair_forget() */

/* A completion queue with capacity for `need` more requests; NULL: errno. */
struct rdma_queue *rdma_queue_with_capacity(struct rdma_device *device, uint32_t need);

/* Handles all available completions without calling any connection's handlers. */
void rdma_device_drain(struct rdma_device *device);
/* A completion has woken the thread so long after its last work. */
void rdma_device_woke(struct rdma_device *device, uint64_t waited_us);
void rdma_device_feed(struct rdma_device *device);    /* resumes connections that waited for send memory */
void rdma_device_free(struct rdma_device *device);    /* its connections must be gone */
int rdma_set_nonblocking(int fd);                     /* 0 or -errno */
void rdma_device_relieve(struct rdma_device *device); /* frees send memory, which has run out */
void rdma_loop_run_ready(struct rdma_loop *loop);
void rdma_loop_tidy_soon(struct rdma_loop *loop);  /* there is work for the loop's tidying */
void rdma_loop_tick_start(struct rdma_loop *loop); /* call when there is a connection */

/* False in a forked child. */
bool rdma_usable(void);
#endif
