/* rdma_connection.h: an RDMA connection as the files of the transport see it: rdma.c (its life), rdma_send.c and
 * rdma_receive.c (the data path), rdma_ring.c (the credit ring), rdma_control.c (control messages, negotiation),
 * rdma_cm.c (making and ending connections, listening), rdma_device.c (completions).
 *
 * Sending.  conn.out writes into a chunk of registered memory. What is written makes segments; a flush sends as much as
 * the peer's buffer and the send queue take, in messages of at most MESSAGE_MAX bytes: WRITE … WRITE_WITH_IMM(total),
 * each gathering several segments. Small messages travel inside the work request, so their chunk is free at once.
 * Chunks that a request still reads wait in `held` until a completion says so; completions are asked for every quarter
 * of the send queue or 64 KiB, and by the tick when a connection has become quiet. What waits beyond a limit waits in
 * ordinary memory.
 *
 * Receiving.  The peer writes into `rx` from its start on; each immediate says how much. The bytes are shown in place.
 * rx: [0 … taken) were shown, [taken … received) arrived and are not shown yet. In the base protocol the peer must stop
 * when the buffer is full. A second buffer, `next`, is announced at that moment, before what the first one holds has
 * been read; the two take turns, and the one that is not in use is `spare`. Where memory allows no second one, the same
 * buffer is announced again when all of it has been shown. A request that straddles the end moves to `side`; further
 * bytes are added there a few at a time until it is complete; then showing in place goes on. With a peer that agreed to
 * it the buffer is a ring: rdma_ring.h.
 *
 * Ending.  The peer's end, a failure and what arrived before it are told from the ready list, in order. Closing lingers
 * until what was written has been received by the peer's card, for LINGER_US at most. */
#ifndef NET_RDMA_CONNECTION_H
#define NET_RDMA_CONNECTION_H
#include "net/rdma_device.h"
#include "net/rdma_ring.h"

enum rdma_phase {
    RDMA_RESOLVING_ADDRESS,
    RDMA_RESOLVING_ROUTE,
    RDMA_CONNECTING, /* or accepting */
    RDMA_ESTABLISHED,
    RDMA_OVER, /* disconnected, failed or never connected */
};

/* How far the peers are in agreeing on features. The accepting end knows NONE and AGREED only. */
enum rdma_negotiation {
    RDMA_NEGOTIATION_NONE,
    RDMA_ASKED, /* GetServerFeature is sent */
    RDMA_SET,   /* the answer has come; SetClientFeature is sent, or wants to be */
    RDMA_AGREED,
};

struct rdma_listener {
    struct listener listener; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id; /* NULL: its device is not there, and it is tried again */
    struct list_link link;
    char *host; /* as it was given */
    int port, backlog;
    struct event_timer retry;
    uint64_t told_us; /* the last line on the log about trying again */
    bool closed;
    struct event_deferred deferred;
};

struct rdma_connection {
    struct connection conn; /* must be first */
    struct rdma_loop *owner;
    struct rdma_device *device;               /* NULL until the address is resolved */
    struct rdma_listener *listener;           /* that accepts it, until it is established */
    void (*arrived)(struct connection *conn); /* instead: it was placed here by a listener of another loop */
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    struct rdma_queue *send_queue;
    uint32_t qp_num;
    enum rdma_phase phase;
    struct list_link link, ready_link, starved_link, untrusted_link;
    struct event_timer timer; /* of connecting, registering, lingering */
    char *error_note;

    /* connecting */
    struct addrinfo *addresses, *next_address, *source;
    uint64_t deadline_us;
    char target[128]; /* for people */

    /* receiving */
    struct rdma_rx *rx;
    uint32_t received, taken;
    uint32_t room;            /* what the peer may write now */
    uint32_t rx_least;        /* the size it began with: its buffer is never smaller */
    uint32_t untrusted_bytes; /* of the bound for peers that are not trusted, while it is in the list of them */
    uint64_t rx_since_us;     /* the buffer announced last was announced, or the present lap of a ring began */
    uint32_t rx_messages;     /* messages that came into the buffer announced last; base protocol */
    struct rdma_rx *next;     /* the buffer that comes after this one */
    uint32_t next_received;   /* bytes that arrived in it */
    struct rdma_rx *spare;    /* of the size of `rx`, known to this peer and not in use; base protocol */
    uint32_t second_bytes;    /* what the second buffer has of rdma_memory.second_bytes */
    uint64_t quiet_at, quiet_since_us; /* bytes received by then, and nothing since */
    char *side;
    size_t side_size;
    size_t side_from_rx; /* so many bytes at the end of what is shown from `side` lie in rx before `taken`, too */
    bool in_side, showing, registered /* our buffer is announced */;
    bool copies_in;             /* everything goes through `side` (RDMA_ZERO_COPY_IN is left out) */
    struct rdma_shared *shared; /* receive queue; NULL: the connection has its own */
    struct rdma_slot *slots;    /* of its own */
    struct ibv_mr *slots_mr;

    /* sending */
    uint64_t peer_addr; /* the peer's buffer */
    uint32_t peer_size, peer_key;
    uint32_t peer_used;       /* where in it the next byte goes */
    uint32_t window;          /* what it takes now */
    struct rdma_chunk *chunk; /* that conn.out writes to */
    char *chunk_start;        /* its bytes from here on belong to no segment yet */
    struct rdma_chunk *held, **held_end;
    struct rdma_chunk *copies; /* that what cannot be named is copied to */
    uint32_t copies_used;      /* bytes of it */
    size_t chunks;             /* that the connection holds, but for `control` */
    struct list segments;
    struct list values;  /* segments of blobs that have been sent from where they lie, until that has completed */
    size_t queued;       /* bytes in segments */
    size_t queued_blobs; /* of them in blobs */
    uint32_t posted, retired, last_signalled;
    uint32_t send_depth, max_inline;
    uint32_t signal_every;                       /* this many requests at the latest */
    uint32_t message_requests, request_elements; /* at most: requests of a message, pieces of memory of a request */
    size_t unsignalled_bytes;
    struct rdma_chunk *control; /* places of control messages where the device has no inline sends */
    uint32_t tick_posted;       /* `posted` at the last tick */
    uint64_t last_control_us;
    uint32_t control_count;          /* control messages in this tick that nothing else bounds */
    bool waiting;                    /* a flush left something; `drained` is owed */
    bool stalled;                    /* the peer's buffer is full: rdma_stall_begin(), _end() */
    uint64_t stalled_us, starved_us; /* since when; starved: send memory is waited for (starved_link) */
    uint64_t began_us;               /* of connecting */
    bool want_register, want_ask, want_feature_reply, want_set; /* control messages to be sent */
    bool wants_control;                                         /* any of them, or one of the ring's */
    uint16_t feature_select;
    enum rdma_negotiation negotiation;
    uint64_t offered;  /* we to it, or, where we connected, what we have set */
    uint64_t features; /* agreed */
    struct rdma_ring ring;
    struct rdma_polled polled;

    int failure;      /* errno to end with, from the ready list */
    bool end_pending; /* the peer has ended or the transport failed: tell after what arrived */
    bool flushed;     /* the queue pair has failed without saying why: the peer has gone, or soon an event tells more */
    bool refused;     /* it failed because the peer's device refused a request: key, bounds or rights */
    bool passive;     /* we accepted it */
    bool notified;    /* the connection manager knows that data arrived before the connection was established */
    bool lingering, finished, released;
};

static inline struct rdma_connection *rdma_of(const struct connection *conn) {
    return (struct rdma_connection *)(uintptr_t)conn;
}

/* Whether what is written to the connection can still go anywhere. */
static inline bool rdma_takes_output(const struct rdma_connection *c) {
    return c->conn.state <= CONN_OPEN && !c->end_pending && rdma_usable();
}

/* rdma.c: its life */
/* As the log names it: "127.0.0.1:4711 (softrdma0, GID ::ffff:127.0.0.1)": the peer, our device, and the address of the
 * port that is used. */
enum { RDMA_NAME_MAX = 300 };
const char *rdma_connection_name(const struct rdma_connection *c, char name[static RDMA_NAME_MAX]);
void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state);
void rdma_connection_opened(struct rdma_connection *c); /* the phase is RDMA_ESTABLISHED: announce the buffer */
void rdma_stall_begin(struct rdma_connection *c);       /* there is something to send, and no room at the peer */
void rdma_stall_end(struct rdma_connection *c);         /* there is room, or it is over */
void rdma_starved_begin(struct rdma_connection *c);     /* into the device's list of those that wait for send memory */
void rdma_starved_end(struct rdma_connection *c);       /* out of it */
void rdma_connection_ready(struct rdma_connection *c);  /* put on the ready list */
void rdma_connection_run(struct rdma_connection *c);    /* off the ready list: tell what there is to tell */
void rdma_connection_failed(struct rdma_connection *c, int error, const char *note); /* note may be NULL */
#define RDMA_REMOVED "the RDMA device was removed"
void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc); /* a completion with an error */
void rdma_connection_tick(struct rdma_connection *c, uint64_t now);
void rdma_connection_release(struct rdma_connection *c); /* gives back all memory but the struct */

/* rdma_send.c */
extern struct output_ops rdma_output_ops; /* share_min changes with the settings */
void rdma_send_flush(struct rdma_connection *c);
void rdma_send_pump(struct rdma_connection *c);            /* sends what can be sent now */
void rdma_send_resume(struct rdma_connection *c);          /* the peer has room again */
size_t rdma_send_pending(const struct rdma_connection *c); /* bytes */
/* Sends a control message. False: no room now, try again after a completion. */
bool rdma_send_control(struct rdma_connection *c, const union rdma_wire_message *message);
void rdma_connection_sent(struct rdma_connection *c, uint32_t seq); /* a completion: all up to `seq` are done */
void rdma_send_check_linger(struct rdma_connection *c); /* a closed connection whose last bytes have arrived may go */
void rdma_send_unregister(struct rdma_connection *c);   /* what waits moves to ordinary memory */
void rdma_send_drop(struct rdma_connection *c);         /* what waits is forgotten */
void rdma_send_tick(struct rdma_connection *c);
size_t rdma_send_memory(const struct rdma_connection *c); /* bytes held */
void rdma_send_release(struct rdma_connection *c);

/* rdma_receive.c */
void rdma_receive_data(struct rdma_connection *c, uint32_t len); /* an immediate has come */
bool rdma_may_receive(const struct rdma_connection *c);          /* the owner wants to be shown more */
void rdma_receive_show(struct rdma_connection *c); /* shows bytes that arrived, or as many of them as is good now */
/* After a handler, and before the next: back from the side buffer when the straddling request is gone; a full buffer
 * starts anew. */
void rdma_receive_settle(struct rdma_connection *c);
void rdma_receive_consume(struct rdma_connection *c, size_t len);
uint32_t rdma_receive_first_size(bool passive);
void rdma_receive_move_aside(struct rdma_connection *c); /* what is shown in place goes to the side buffer */
/* So many bytes arrived and are not shown yet. */
static inline size_t rdma_receive_unshown(const struct rdma_connection *c) {
    return (size_t)(c->received - c->taken) + c->ring.wrapped + c->next_received;
}
/* Takes the first buffer. False: errno. */
bool rdma_receive_allocate(struct rdma_connection *c);
/* Announces the buffer anew, from its start. */
void rdma_receive_begin(struct rdma_connection *c);
/* How large a ring had better be, when `bytes` have arrived in the last `took_us` microseconds. Never more than the
 * first size for a peer that is not trusted. */
uint32_t rdma_receive_ring_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us);
/* The same for a buffer of the base protocol, which `messages` messages filled in `took_us` microseconds. */
uint32_t rdma_receive_plain_size(const struct rdma_connection *c, uint32_t messages, uint64_t took_us);
/* A buffer of that size to take the place of the present one. NULL: there is none to be had. */
struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size);
/* Puts a buffer of that size in the place of the present one, of which nothing may be shown any more; the caller
 * announces it. False: there is none to be had, and the present one stays. */
bool rdma_receive_switch(struct rdma_connection *c, uint32_t size);
void rdma_receive_drop_spare(struct rdma_connection *c);
void rdma_receive_tick(struct rdma_connection *c, uint64_t now);
void rdma_receive_release(struct rdma_connection *c);

/* rdma_control.c */
void rdma_connection_received(struct rdma_connection *c, const struct ibv_wc *wc,
                              const union rdma_wire_message *message); /* a completion of a receive */
/* Our buffer, `next` where there is one, is there to be written from its start. */
void rdma_control_announce(struct rdma_connection *c);
void rdma_control_keepalive(struct rdma_connection *c); /* does nothing where the send queue has no room */
bool rdma_control_send_memory(struct rdma_connection *c,
                              const struct rdma_rx *rx); /* RegisterXferMemory. False: no room now */
void rdma_control_open(
    struct rdma_connection *c); /* the connection is established and our buffer announced: ask for features */
void rdma_control_pump(struct rdma_connection *c); /* c->wants_control: control messages that had no room */
void rdma_control_tick(struct rdma_connection *c, uint64_t now);
/* The peer broke the protocol: it is told to the log, and nothing more of it is looked at. */
void rdma_violation(struct rdma_connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* rdma_untrusted.c: a peer claims room before it is accepted, and leaves when it is trusted or over */
bool rdma_untrusted_claim(
    struct rdma_loop *owner,
    uint32_t size); /* False: there is none. It may close a connection of the loop that has been there too long */
void rdma_untrusted_unclaim(uint32_t size); /* it was not accepted */
void rdma_untrusted_enter(struct rdma_connection *c, uint32_t claimed);
void rdma_untrusted_leave(struct rdma_connection *c);
void rdma_untrusted_tick(struct rdma_loop *owner);
uint64_t rdma_untrusted_bytes(void); /* of the process */

/* rdma_port.c */
/* "softrdma0, GID ::ffff:127.0.0.1", or less where the identifier is bound to no device. */
const char *rdma_device_text(const struct rdma_cm_id *id, char text[static RDMA_NAME_MAX]);
void rdma_port_note(struct rdma_cm_id *id); /* this is the port we use, unless there is one already */
void rdma_port_forget(void);                /* it may have gone: the next one takes its place */

/* rdma_cm.c */
struct connection *rdma_connect_start(struct event_loop *loop, const struct connect_options *options);
struct listener *rdma_listen_start(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size);
void rdma_cm_handle_events(struct rdma_loop *loop);
extern _Atomic uint32_t rdma_accepted; /* connections that came to us, of the process */
/* Ends the connection for good: the struct goes at the end of the turn. */
void rdma_connection_finish(struct rdma_connection *c);
bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address);
bool rdma_connection_is_local(const struct connection *conn);
#endif
