/* connection.h: the state of an RDMA connection, and what all layers of a connection share.
 *
 * The state is one struct, so that reaching a member costs nothing on the data path. It is divided by layer: each
 * member struct belongs to the layer that its comment names. A layer uses the members of its own and of lower layers
 * only, which utils/check-includes checks. A lower layer calls a higher one through `callbacks` alone.
 *
 * Rejected: a struct for each layer with a pointer to the common part. Each access would cost a load, several in each
 * message. */
#pragma once
#include "net/connection.h"
#include "net/input_buffer.h"
#include "net/output_queue.h"
#include "net/rdma/device.h"
#include "net/rdma/port.h"
#include "net/rdma/wire.h"

struct rdma_connection;
struct rdma_listener;
struct rdma_reads;

enum rdma_phase {
    RDMA_RESOLVING_ADDRESS,
    RDMA_RESOLVING_ROUTE,
    RDMA_CONNECTING, /* or accepting */
    RDMA_ESTABLISHED,
    RDMA_OVER, /* disconnected, failed or never connected */
};

/* What lower layers call of higher ones. */
struct rdma_callbacks {
    /* The connection has failed: it reports the bytes that arrived before, then the end. `note` may be NULL. */
    void (*failed)(struct rdma_connection *c, int error, const char *note);
    /* A request has failed. Messages that arrived before may be in a queue that is not fetched yet, so the connection
     * fails from the ready list, after the queues were drained. `note` stays valid. */
    void (*request_failed)(struct rdma_connection *c, int error, const char *note);
    /* A closed connection has sent all of its output. */
    void (*finish)(struct rdma_connection *c);
    /* send.wants_control: there is space in the send queue for control messages that waited. */
    void (*pump_control)(struct rdma_connection *c);
};

/* send.h: output and the send queue */
struct rdma_sender {
    /* The peer's buffer. */
    uint64_t peer_addr;
    uint32_t peer_size, peer_key;
    uint32_t peer_used; /* offset of the next byte */
    uint32_t window;    /* bytes that the peer accepts now */
    bool to_ring;       /* the peer's buffer is a ring: from its SetClientFeature on */
    bool owes_taken;    /* the peer has announced another buffer; nothing is written before BufferTaken is sent */
    bool waiting;       /* a flush left output behind; `drained` is due later */
    bool stalled;       /* the peer's buffer is full */
    bool wants_control; /* a control message or a READ waits for space in the send queue */
    /* Output. */
    struct output_queue output;
    struct rdma_chunk *held, **held_end;            /* chunks that posted requests still read */
    struct rdma_chunk *copies;                      /* chunk for copies of bytes that a request cannot read in place */
    uint32_t copies_used;                           /* bytes of it */
    size_t chunks;                                  /* chunks that the connection holds, without `control` */
    struct list places;                             /* placements that are not posted yet, or in parts (placement.h) */
    struct list placed;                             /* those that are posted, until their requests have completed */
    uint64_t place_silent;                          /* bytes of placements since a signalled one */
    bool after_place;                               /* no message was sent since a WRITE of a placement */
    uint32_t place_reads;                           /* READs of placements that were posted, */
    uint32_t place_reads_told;                      /* and those up to the last signalled one */
    uint32_t place_read_seqs[RDMA_PLACE_READS_MAX]; /* of the last ones, by their number */
    struct list values;         /* segments of blobs sent without a copy, until their requests have completed */
    struct rdma_chunk *control; /* memory of control messages where the device has no inline sends */
    /* Sequence numbers of requests. */
    uint32_t posted, retired, last_signalled;
    uint32_t tick_posted;      /* `posted` at the last tick */
    uint32_t signal_every;     /* a signalled request after this many at the latest */
    uint32_t request_elements; /* limit: SGEs per request */
    size_t unsignalled_bytes;
    /* Times. */
    uint64_t last_control_us;
    uint64_t stalled_us;           /* start of the stall */
    uint64_t starved_us;           /* start of the wait for send memory */
    struct list_link starved_link; /* in the device context's list of connections that wait for send memory */
};

/* announce.h: messages to a peer that polls. Counts are bytes of the stream modulo 2^32; they do not change while the
 * peer does not poll. */
struct rdma_announcer {
    bool on; /* the peer polls: from our PollBegun to our PollEnded */
    bool owes_begun, owes_ended;
    uint32_t key, count, crc, base;
    uint64_t addr;
};

/* buffer.h, ring.h, receive.h: the receive buffers */
struct rdma_receiver {
    struct rdma_rx *rx;
    uint32_t received, taken;  /* offsets: bytes that arrived, and those of them that were copied out of the buffer */
    uint32_t wrapped;          /* ring: bytes that arrived beyond the end of this lap */
    uint32_t writable;         /* bytes the peer may write now */
    uint32_t piece;            /* bytes that are copied before a call of `readable`, at most */
    struct rdma_rx *next;      /* the buffer after `rx` */
    uint32_t next_received;    /* bytes that arrived in it */
    bool is_ring;              /* our buffer is a ring: from our SetClientFeature on */
    bool showing;              /* `readable` is on the stack */
    bool registered;           /* our buffer is announced */
    bool want_register;        /* its announcement waits for space in the send queue */
    struct input_buffer input; /* unconsumed bytes between two calls of `readable` */
    size_t discard;            /* the next bytes of the stream that nobody looks at (rdma_discard()) */
    uint32_t least;            /* the buffer's first size; it never becomes smaller */
    uint64_t since_us;         /* when the latest buffer was announced, or this lap of a ring began */
    uint64_t quiet_at, quiet_since_us; /* bytes received by quiet_since_us, and none since */
    /* Base protocol. */
    struct rdma_rx *spare; /* unused buffer of the size of `rx`, known to this peer */
    uint32_t second_bytes; /* the second buffer's share of rdma_memory.second_bytes */
    uint32_t messages;     /* messages that arrived in the latest buffer */
    uint32_t write_length; /* of the peer's latest complete write; 0: none was complete yet */
    uint32_t write_part;   /* bytes of an unfinished write that filled a buffer; the rest is missing */
    bool write_guessed;    /* `write_length` is that of the first request, whose header has arrived */
    uint8_t writes_alike;  /* writes of the same length in a row before the latest one, 255 at most */
    uint8_t size_changes;  /* of the buffer since one ended with a write */
};

/* ring.h */
struct rdma_ring {
    bool moving;       /* receive.next is announced, and the peer has not answered BufferTaken yet */
    bool credit_waits; /* a Credit waits for space in the send queue */
};

enum rdma_polled_state {
    RDMA_POLLED_OFF,
    RDMA_POLLED_ASKED, /* PollBegin is sent */
    RDMA_POLLED_ON,    /* PollBegun has arrived: there is an entry */
};

/* polled.h: messages of a peer that we poll. Counts as in struct rdma_announcer. */
struct rdma_polled {
    enum rdma_polled_state state;
    bool excluded;   /* rdma_find_by_completions() */
    bool agreed;     /* it is counted in rdma_polls.users */
    bool ending;     /* PollEnd is sent or waits for space in the send queue */
    bool want_end;   /* PollEnd waits */
    bool distrusted; /* its words did not match for too long: they are ignored until PollEnded */
    struct rdma_poll_slot *slot;
    int entry;
    uint32_t count_in, crc_in; /* bytes taken, and the checksum of those since base_in */
    uint32_t base_in;          /* the last count known from a completion */
    uint32_t doubt;            /* bytes checked without a match since the last message */
    uint32_t messages;         /* in this period */
    uint32_t immediates;       /* since the thread last slept */
    uint64_t sleeps;           /* the thread's number of sleeps at that time */
    uint32_t after;            /* immediates before polling begins */
    unsigned begins_left;      /* in this tick */
    uint32_t ticked;           /* count_in at the last tick */
};

/* State of the feature negotiation. The accepting end uses NONE and AGREED only. */
enum rdma_negotiation_state {
    RDMA_NEGOTIATION_NONE,
    RDMA_ASKED, /* GetServerFeature is sent */
    RDMA_SET,   /* the answer has arrived; SetClientFeature is sent or waits to be sent */
    RDMA_AGREED,
};

/* control.h */
struct rdma_negotiation {
    enum rdma_negotiation_state state;
    bool want_ask, want_reply, want_set; /* control messages that wait for space in the send queue */
    uint16_t select;                     /* of the peer's GetServerFeature */
    uint64_t offered;                    /* features we offered, or, on an outgoing connection, have set */
    uint32_t messages;                   /* control messages in this tick that no other limit covers */
};

/* untrusted.h */
struct rdma_untrusted {
    struct list_link link;
    uint32_t bytes; /* share of max_untrusted, while it is in the list of untrusted connections */
};

/* lifetime.h: how the connection ends */
struct rdma_ending {
    int failure;              /* errno to end with, from the ready list */
    char *note;               /* text of the failure */
    const char *request_note; /* of `failing` */
    bool refused;             /* the peer's device refused a request: key, bounds or rights */
    bool refused_read;        /* the refused request was a READ */
    bool refused_place;       /* it belonged to a placement */
    bool released;
};

/* cm.h: how it began. The lifetime layer frees the addresses. */
struct rdma_connecting {
    uint64_t began_us;
    uint64_t deadline_us;
    struct addrinfo *addresses, *next_address, *source;
    bool source_optional;
    struct rdma_listener *listener;           /* that accepts it, until it is established */
    void (*arrived)(struct connection *conn); /* in place of `listener`, if a listener of another loop placed it here */
};

struct rdma_connection {
    struct connection conn; /* must be first */
    /* For all layers. */
    struct rdma_loop *owner;
    const struct rdma_callbacks *callbacks;
    struct rdma_queue_pair qp;
    enum rdma_phase phase;
    bool passive;       /* accepted, not connected by us */
    bool end_pending;   /* the peer disconnected or the transport failed: report it after the bytes that arrived */
    bool flushed;       /* the queue pair failed without a cause: the peer is gone, or an event gives the cause soon */
    int failing;        /* errno: a request has failed, and the end follows from the ready list */
    bool lingering;     /* closed, and its output is still on its way */
    bool finished;      /* the struct is freed at the end of the iteration */
    uint64_t features;  /* features agreed on */
    uint8_t read_depth; /* READs in flight, at most, as negotiated */
    struct list_link link, ready_link;
    struct event_timer timer; /* of connecting, registering, stalling, lingering */
    char target[128];         /* address of the peer, for display */
    /* By layer, the lowest first. */
    struct rdma_sender send;
    struct rdma_announcer announce;
    struct rdma_receiver receive;
    struct rdma_ring ring;
    struct rdma_polled polled;
    struct rdma_reads *reads; /* read.h: windows and reads; NULL: there never were any */
    struct rdma_negotiation negotiation;
    bool notified; /* control.h: the connection manager knows that data arrived before the message that completes
                      connecting */
    struct rdma_untrusted untrusted;
    struct rdma_ending ending;
    struct rdma_connecting connecting;
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

/* Puts the connection on the ready list: its owner's handlers are called after the completions of this round. */
static inline void rdma_connection_ready(struct rdma_connection *c) {
    if (!list_is_linked(&c->ready_link) && !c->finished) list_append(&c->owner->ready, &c->ready_link);
}

/* The connection's name in the log, "127.0.0.1:4711 (softrdma0, GID ::ffff:127.0.0.1)": the peer, our device, and the
 * address of the port in use. */
const char *rdma_connection_name(const struct rdma_connection *c, char name[static RDMA_NAME_MAX]);
/* The peer broke the protocol: logs the message and ignores all further input of the peer. */
void rdma_violation(struct rdma_connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
