/* rdma_connection.h: an RDMA connection as the files of the transport see it: rdma.c (the data path), rdma_cm.c (making and ending connections,
 * listening), rdma_device.c (completions).
 *
 * Sending.  conn.out writes into a chunk of registered memory. What is written makes segments; a flush sends as much as the peer's buffer and
 *   the send queue take, in messages of at most MESSAGE_MAX bytes: WRITE … WRITE_WITH_IMM(total), each gathering several
 *   segments. Small messages travel inside the work request, so their chunk is free at once. Chunks that a request still reads wait in `held`
 *   until a completion says so; completions are asked for every quarter of the send queue or 64 KiB, and by
 *   the tick when a connection has become quiet. What waits beyond a limit waits in ordinary memory.
 * Receiving.  The peer writes into `rx` from its start on; each immediate says how much. The bytes are shown in place. When the buffer is exactly full
 *   and consumed, RegisterXferMemory starts it anew; a rest that is not consumed by then moves to `side` first, and further bytes are
 *   added there a few at a time until the request that straddles the end is complete; then showing in place goes on.
 *   rx: [0 … taken) were shown, [taken … received) arrived and are not shown yet.
 * Ending.  The peer's end, a failure and what arrived before it are told from the ready list, in order. Closing lingers until what was written has been
 *   received by the peer's card, for LINGER_US at most. */
#ifndef NET_RDMA_CONNECTION_H
#define NET_RDMA_CONNECTION_H
#include "net/rdma_device.h"

enum rdma_phase {
    RDMA_RESOLVING_ADDRESS,
    RDMA_RESOLVING_ROUTE,
    RDMA_CONNECTING, /* or accepting */
    RDMA_ESTABLISHED,
    RDMA_OVER, /* disconnected, failed or never connected */
};

struct rdma_listener {
    struct listener listener; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id;
    struct list_link link;
    bool closed;
    struct event_deferred deferred;
};

struct rdma_connection {
    struct connection conn; /* must be first */
    struct rdma_loop *owner;
    struct rdma_device *device;     /* NULL until the address is resolved */
    struct rdma_listener *listener; /* that accepts it, until it is established */
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    struct rdma_queue *send_queue;
    uint32_t qp_num;
    enum rdma_phase phase;
    struct list_link link, ready_link, starved_link;
    struct event_timer timer; /* of connecting, registering, lingering */
    char *error_note;

    /* connecting */
    struct addrinfo *addresses, *next_address, *source;
    uint64_t deadline_us;
    char target[128]; /* for people */

    /* receiving */
    struct rdma_rx *rx;
    uint32_t received, taken;
    char *side;
    size_t side_size;
    size_t
        side_from_rx; /* so many bytes at the end of what is shown from `side` lie in rx before `taken`, too */
    bool in_side, showing, registered /* our buffer is announced */;
    struct rdma_slot *slots; /* without shared receive queue */
    struct ibv_mr *slots_mr;

    /* sending */
    uint64_t peer_addr; /* the peer's buffer */
    uint32_t peer_size, peer_key, peer_used;
    struct rdma_chunk *chunk; /* that conn.out writes to */
    char *chunk_start;        /* its bytes from here on belong to no segment yet */
    struct rdma_chunk *held, **held_end;
    struct list segments;
    size_t queued; /* bytes in segments */
    uint32_t posted, retired, last_signalled;
    uint32_t send_depth, max_inline;
    size_t unsignalled_bytes;
    struct rdma_chunk *control; /* places of control messages where the device has no inline sends */
    uint32_t tick_posted;       /* `posted` at the last tick */
    uint64_t last_control_us;
    unsigned control_budget; /* control messages the peer may still send in this tick */
    bool waiting;            /* a flush left something; `drained` is owed */
    bool stalled;            /* the peer's buffer is full */
    bool want_register, want_feature_reply;
    uint16_t feature_select;

    int failure;      /* errno to end with, from the ready list */
    bool end_pending; /* the peer has ended or the transport failed: tell after what arrived */
    bool
        flushed; /* the queue pair has failed without saying why: the peer has gone, or soon an event tells more */
    bool passive; /* we accepted it */
    bool lingering, finished, released;
};

static inline struct rdma_connection *rdma_of(const struct connection *conn) {
    return (struct rdma_connection *)(uintptr_t)conn;
}

/* rdma.c */
void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state);
void rdma_connection_opened(
    struct rdma_connection *c); /* the phase is RDMA_ESTABLISHED: announce the buffer */
void rdma_connection_ready(struct rdma_connection *c); /* put on the ready list */
void rdma_connection_run(struct rdma_connection *c);   /* off the ready list: tell what there is to tell */
void rdma_connection_pump(struct rdma_connection *c);
void rdma_connection_unregister_queue(struct rdma_connection *c); /* what waits moves to ordinary memory */
void rdma_connection_failed(struct rdma_connection *c, int error, const char *note); /* note may be NULL */
void rdma_connection_tick(struct rdma_connection *c, uint64_t now);
void rdma_connection_release(struct rdma_connection *c); /* gives back all memory but the struct */
/* Completions */
void rdma_connection_received(struct rdma_connection *c, const struct ibv_wc *wc,
                              const union rdma_wire_message *message);
void rdma_connection_sent(struct rdma_connection *c, uint32_t seq);
void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc);

/* rdma_cm.c */
struct connection *rdma_connect_start(struct event_loop *loop, const struct connect_options *options);
struct listener *rdma_listen_start(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size);
void rdma_cm_handle_events(struct rdma_loop *loop);
/* Ends the connection for good: the struct goes at the end of the turn. */
void rdma_connection_finish(struct rdma_connection *c);
bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address);
bool rdma_connection_is_local(const struct connection *conn);
#endif
