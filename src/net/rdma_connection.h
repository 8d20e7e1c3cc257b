/* rdma_connection.h: an RDMA connection as the files of the transport see it:
 *
 *   rdma.c          lifetime
 *   rdma_send.c     data path: sending
 *   rdma_receive.c  data path: receiving
 *   rdma_ring.c     the credit ring
 *   rdma_read.c     one-sided reads
 *   rdma_control.c  control messages, feature negotiation
 *   rdma_cm.c       connecting, disconnecting, listening
 *   rdma_device.c   completions
 *   rdma_srq.c      posted receives
 *   rdma_loop.c     the state of a loop, counters
 *
 * Sending
 *   conn.out writes into a chunk of registered memory, and the written bytes become segments. A flush sends as much as
 *   the peer's buffer and the send queue accept, in messages of at most MESSAGE_MAX bytes: some WRITEs and a
 *   WRITE_WITH_IMM(total), each gathering several segments. Small messages travel inside the work request, so their
 *   chunk is free at once. Chunks that a posted request still reads stay in `held` until it has completed. Requests are
 *   signalled at every quarter of the send queue or 64 KiB, and by the tick when the connection has become quiet.
 *   Output beyond the limit on send memory waits in ordinary memory.
 *
 * Receiving
 *   The peer writes into `rx` from its start; each immediate says how many bytes. The bytes are exposed in place:
 *   [0 … taken) were exposed, [taken … received) arrived and are not exposed yet.
 *   In the base protocol the peer must stop when the buffer is full. A second buffer, `next`, is announced at that
 *   moment, before the bytes in the first one have been read. The two alternate, and the unused one is `spare`. If
 *   memory does not suffice for a second buffer, the same buffer is announced again when all of it has been exposed.
 *   A request that crosses the end of the buffer moves to the bounce buffer, `bounce`. Further bytes are added there a
 *   few at a time until the request is complete; after that, bytes are exposed in place again.
 *   With a peer that agreed to it, the buffer is a ring: rdma_ring.h.
 *
 * Ending
 *   The peer's disconnect or a failure is reported from the ready list, after the bytes that arrived before it. Closing
 *   lingers until the peer's device has received the output, for LINGER_US at most. */
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

/* State of the feature negotiation. The accepting end uses NONE and AGREED only. */
enum rdma_negotiation {
    RDMA_NEGOTIATION_NONE,
    RDMA_ASKED, /* GetServerFeature is sent */
    RDMA_SET,   /* the answer has arrived; SetClientFeature is sent or waits to be sent */
    RDMA_AGREED,
};

struct rdma_listener {
    struct listener listener; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id; /* NULL: its device is missing, and listening is retried */
    struct list_link link;
    char *host; /* as configured */
    int port, backlog;
    struct event_timer retry;
    uint64_t logged_us; /* time of the last log line about retrying */
    bool closed;
    struct event_deferred deferred;
};

struct rdma_connection {
    struct connection conn; /* must be first */
    struct rdma_loop *owner;
    struct rdma_device *device;               /* NULL until the address is resolved */
    struct rdma_listener *listener;           /* that accepts it, until it is established */
    void (*arrived)(struct connection *conn); /* in place of `listener`, if a listener of another loop placed it here */
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
    bool source_optional;
    uint64_t deadline_us;
    char target[128]; /* for display */

    /* receiving */
    struct rdma_rx *rx;
    uint32_t received, taken;
    uint32_t writable;        /* bytes the peer may write now */
    uint32_t rx_least;        /* the buffer's first size; it never becomes smaller */
    uint32_t untrusted_bytes; /* share of max_untrusted, while it is in the list of untrusted connections */
    uint64_t rx_since_us;     /* when the latest buffer was announced, or the present lap of a ring began */
    uint32_t rx_messages;     /* messages that arrived in the latest buffer; base protocol */
    uint32_t write_length;    /* of the peer's latest complete write; 0: none was complete yet; base protocol */
    uint32_t write_part;      /* bytes of the present write that filled a buffer; the rest is missing */
    bool write_guessed;       /* `write_length` is that of the first request, whose header has arrived */
    uint8_t writes_alike;     /* writes of the same length in a row before the latest one, 255 at most */
    uint8_t size_changes;     /* of the buffer since one ended with a write */
    struct rdma_rx *next;     /* the buffer after `rx` */
    uint32_t next_received;   /* bytes that arrived in it */
    struct rdma_rx *spare;    /* unused buffer of the size of `rx`, known to this peer; base protocol */
    uint32_t second_bytes;    /* the second buffer's share of rdma_memory.second_bytes */
    uint64_t quiet_at, quiet_since_us; /* bytes received by quiet_since_us, and none since */
    char *bounce;                      /* the bounce buffer */
    size_t bounce_size;
    size_t bounce_from_rx; /* bytes at the end of those exposed from `bounce` that are also in rx before `taken` */
    bool in_bounce, showing, registered /* our buffer is announced */;
    struct rdma_shared *shared; /* receive queue; NULL: the connection has its own */
    struct rdma_slot *slots;    /* of its own queue */
    struct ibv_mr *slots_mr;

    /* sending */
    uint64_t peer_addr; /* the peer's buffer */
    uint32_t peer_size, peer_key;
    uint32_t peer_used; /* offset in it of the next byte */
    uint32_t window;    /* bytes it accepts now */
    struct output_queue output;
    struct rdma_chunk *held, **held_end;
    struct rdma_chunk *copies; /* that what cannot be named is copied to */
    uint32_t copies_used;      /* bytes of it */
    size_t chunks;             /* that the connection holds, but for `control` */
    struct list values;        /* segments of blobs sent without a copy, until their requests have completed */
    uint32_t posted, retired, last_signalled;
    uint32_t send_depth, max_inline;
    uint32_t signal_every;                       /* a signalled request at the latest after this many */
    uint32_t message_requests, request_elements; /* limits: requests per message, SGEs per request */
    size_t unsignalled_bytes;
    struct rdma_chunk *control; /* memory of control messages where the device has no inline sends */
    uint32_t tick_posted;       /* `posted` at the last tick */
    uint64_t last_control_us;
    uint32_t control_count;          /* control messages in this tick that no other limit covers */
    bool waiting;                    /* a flush left output behind; `drained` is due later */
    bool stalled;                    /* the peer's buffer is full: rdma_stall_begin(), _end() */
    uint64_t stalled_us, starved_us; /* start of the stall; of the wait for send memory (starved_link) */
    uint64_t began_us;               /* start of connecting */
    bool want_register, want_ask, want_feature_reply, want_set; /* control messages to send */
    bool wants_control; /* any of them, one of the ring's or the polled word's, or a READ */
    uint16_t feature_select;
    enum rdma_negotiation negotiation;
    uint64_t offered;  /* features we offered, or, on an outgoing connection, have set */
    uint64_t features; /* features agreed on */
    struct rdma_ring ring;
    struct rdma_polled polled;

    struct rdma_reads *reads; /* windows and reads; NULL: there never were any */
    uint8_t read_depth;       /* reads in flight, at most, as negotiated */

    int failure;       /* errno to end with, from the ready list */
    bool end_pending;  /* the peer disconnected or the transport failed: report it after the bytes that arrived */
    bool flushed;      /* the queue pair failed without a cause: the peer is gone, or an event gives the cause soon */
    bool refused;      /* it failed because the peer's device refused a request: key, bounds or rights */
    bool refused_read; /* which was a READ */
    bool passive;      /* accepted, not connected by us */
    bool notified;     /* the connection manager knows that data arrived before the connection was established */
    bool lingering, finished, released;
};

static inline struct rdma_connection *rdma_of(const struct connection *conn) {
    return (struct rdma_connection *)(uintptr_t)conn;
}

/* Whether all work requests up to number `seq` are among those up to number `by`. */
static inline bool rdma_seq_reached(uint32_t seq, uint32_t by) {
    return (int32_t)(by - seq) >= 0;
}

/* Whether output written to the connection can still be sent. */
static inline bool rdma_takes_output(const struct rdma_connection *c) {
    return c->conn.state <= CONN_OPEN && !c->end_pending && rdma_usable();
}

/* rdma.c: lifetime */
/* The connection's name in the log, "127.0.0.1:4711 (softrdma0, GID ::ffff:127.0.0.1)": the peer, our device, and the
 * address of the port in use. */
enum { RDMA_NAME_MAX = 300 };
const char *rdma_connection_name(const struct rdma_connection *c, char name[static RDMA_NAME_MAX]);
void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state);
void rdma_connection_opened(struct rdma_connection *c); /* the phase is RDMA_ESTABLISHED: announce the buffer */
void rdma_stall_begin(struct rdma_connection *c);       /* there is output to send, and the peer's buffer is full */
void rdma_stall_end(struct rdma_connection *c);         /* the peer has space again, or the connection is over */
void rdma_starved_begin(struct rdma_connection *c);     /* enter the device's list of connections without send memory */
void rdma_starved_end(struct rdma_connection *c);       /* leave it */
void rdma_connection_ready(struct rdma_connection *c);  /* put on the ready list */
void rdma_connection_run(struct rdma_connection *c);    /* off the ready list: call the owner's handlers */
void rdma_connection_failed(struct rdma_connection *c, int error, const char *note); /* note may be NULL */
#define RDMA_REMOVED "the RDMA device was removed"
void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc); /* a completion with an error */
void rdma_connection_tick(struct rdma_connection *c, uint64_t now);
void rdma_connection_release(struct rdma_connection *c); /* frees all memory except the struct */

/* rdma_send.c */
extern struct output_ops rdma_output_ops; /* share_min changes with the settings */
void rdma_send_flush(struct rdma_connection *c);
void rdma_send_pump(struct rdma_connection *c);            /* sends what can be sent now */
void rdma_send_resume(struct rdma_connection *c);          /* the peer has space again */
size_t rdma_send_pending(const struct rdma_connection *c); /* bytes */
/* Sends a control message. False: the send queue is full; try again after a completion. */
bool rdma_send_control(struct rdma_connection *c, const union rdma_wire_message *message);
/* Posts a READ, signalled. False: the send queue is full; try again after a completion. */
bool rdma_send_read(struct rdma_connection *c, struct ibv_send_wr *wr);
void rdma_connection_sent(struct rdma_connection *c, uint32_t seq); /* a completion: all up to `seq` are done */
void rdma_send_check_linger(struct rdma_connection *c); /* finishes a closed connection whose last bytes have arrived */
void rdma_send_unregister(struct rdma_connection *c);   /* moves queued output to ordinary memory */
void rdma_send_drop(struct rdma_connection *c);         /* discards queued output */
void rdma_send_tick(struct rdma_connection *c);
size_t rdma_send_memory(const struct rdma_connection *c); /* bytes held */
void rdma_send_release(struct rdma_connection *c);

/* rdma_receive.c */
void rdma_receive_data(struct rdma_connection *c, uint32_t len); /* an immediate has arrived */
bool rdma_may_receive(const struct rdma_connection *c);          /* the owner wants more bytes */
void rdma_receive_show(struct rdma_connection *c); /* exposes bytes that arrived, or as many as are useful now */
/* Call after a handler and before the next one. Leaves the bounce buffer when the request that crossed the end is
 * consumed, and restarts a full buffer at its beginning. */
void rdma_receive_settle(struct rdma_connection *c);
void rdma_receive_consume(struct rdma_connection *c, size_t len);
uint32_t rdma_receive_first_size(bool passive);
void rdma_receive_to_bounce(struct rdma_connection *c); /* moves the bytes exposed in place to the bounce buffer */
/* Bytes that arrived and are not exposed yet. */
static inline size_t rdma_receive_unshown(const struct rdma_connection *c) {
    return (size_t)(c->received - c->taken) + c->ring.wrapped + c->next_received;
}
/* Allocates the first buffer. False: errno. */
bool rdma_receive_allocate(struct rdma_connection *c);
/* Announces the buffer again, from its start. */
void rdma_receive_begin(struct rdma_connection *c);
/* The best size for a ring, given that `bytes` arrived in the last `took_us` microseconds. For an untrusted peer never
 * more than the first size. */
uint32_t rdma_receive_ring_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us);
/* The same for a buffer of the base protocol, which `messages` messages filled in `took_us` microseconds. */
uint32_t rdma_receive_plain_size(const struct rdma_connection *c, uint32_t messages, uint64_t took_us);
/* Takes a buffer of that size to replace the present one. NULL: none is available. */
struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size);
/* The next buffer, which there is, becomes the present one, with the bytes that arrived in it. Returns the one before.
 */
struct rdma_rx *rdma_receive_enter_next(struct rdma_connection *c);
/* For how long nothing has arrived, as far as the ticks have noticed. */
uint64_t rdma_receive_quiet_us(struct rdma_connection *c, uint64_t now);
void rdma_receive_drop_spare(struct rdma_connection *c);
void rdma_receive_tick(struct rdma_connection *c, uint64_t now);
void rdma_receive_release(struct rdma_connection *c);

/* rdma_read.c. Those without a remark need c->reads. */
bool rdma_reads_pump(struct rdma_connection *c);      /* posts waiting reads. False: the send queue is full */
void rdma_reads_completed(struct rdma_connection *c); /* c->retired has grown */
bool rdma_reads_holds(const struct rdma_connection *c, uint32_t seq); /* a READ in flight; works without c->reads */
void rdma_reads_run(struct rdma_connection *c); /* calls completed reads back; a callback may close the connection */
void rdma_reads_fail(struct rdma_connection *c, int error); /* calls all reads back; works without c->reads */
void rdma_reads_close(struct rdma_connection *c); /* closes the windows, and cancels reads; works without c->reads */

/* rdma_control.c */
void rdma_connection_received(struct rdma_connection *c, const struct ibv_wc *wc,
                              const union rdma_wire_message *message); /* a completion of a receive */
/* Announces our buffer (`next` if there is one), to be written from its start. */
void rdma_control_announce(struct rdma_connection *c);
void rdma_control_keepalive(struct rdma_connection *c); /* does nothing if the send queue is full */
bool rdma_control_send_memory(struct rdma_connection *c,
                              const struct rdma_rx *rx); /* RegisterXferMemory. False: the send queue is full */
void rdma_control_open(
    struct rdma_connection *c); /* the connection is established and our buffer announced: ask for features */
void rdma_control_pump(struct rdma_connection *c); /* c->wants_control: sends control messages that had to wait */
void rdma_control_tick(struct rdma_connection *c, uint64_t now);
/* The peer broke the protocol: logs the message and ignores all further input of the peer. */
void rdma_violation(struct rdma_connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* rdma_untrusted.c: the memory limit for untrusted peers. A connection claims its share before it is accepted and
 * returns it when its peer becomes trusted or the connection is over. */
bool rdma_untrusted_claim(
    struct rdma_loop *owner,
    uint32_t size); /* False: the limit is reached. May close a connection of the loop that was untrusted too long */
void rdma_untrusted_unclaim(uint32_t size); /* the connection was not accepted */
void rdma_untrusted_enter(struct rdma_connection *c, uint32_t claimed);
void rdma_untrusted_leave(struct rdma_connection *c);
void rdma_untrusted_tick(struct rdma_loop *owner);
uint64_t rdma_untrusted_bytes(void); /* of the process */

/* rdma_port.c */
/* "softrdma0, GID ::ffff:127.0.0.1", or less if the identifier is bound to no device. */
const char *rdma_device_text(const struct rdma_cm_id *id, char text[static RDMA_NAME_MAX]);
void rdma_port_note(struct rdma_cm_id *id); /* records the port as the one in use, unless one is recorded */
void rdma_port_forget(void);                /* the recorded port may be gone: the next one replaces it */

/* rdma_cm.c */
struct connection *rdma_connect_start(struct event_loop *loop, const struct connect_options *options);
struct listener *rdma_listen_start(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size);
void rdma_cm_handle_events(struct rdma_loop *loop);
extern _Atomic uint32_t rdma_accepted; /* accepted connections of the process */
/* Ends the connection for good; the struct is freed at the end of the iteration. */
void rdma_connection_finish(struct rdma_connection *c);
bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address);
bool rdma_connection_is_local(const struct connection *conn);
#endif
