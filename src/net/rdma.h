/* rdma.h: the RDMA transport, `transport_rdma`. Compiled in with BUILD_RDMA=yes. Settings are of the whole process and
 * are read when a connection is made or (spin, keepalive) at use; the server's options set them, while other threads
 * may read them: each is atomic. */
#ifndef NET_RDMA_H
#define NET_RDMA_H
#include "net/connection.h"

extern const struct transport transport_rdma;

struct rdma_settings {
    _Atomic uint32_t rx_size;      /* largest receive buffer of a connection, bytes; 64 KiB … 16 MiB, default 1 MiB */
    _Atomic uint32_t rx_initial;   /* the first one of a connection that we accept, bytes; 0: rx_size from the start.
                                      Those we make start with rx_size */
    _Atomic int completion_vector; /* -1: random, N: that one (modulo what the device has), RDMA_VECTOR_AUTO */
    _Atomic uint32_t busy_poll_us; /* spin this long after the last completion before sleeping */
    _Atomic uint32_t keepalive_ms; /* period of Keepalive messages, 0: none */
    _Atomic uint32_t connect_timeout_ms;
    _Atomic uint32_t ack_timeout_ms; /* a request that the peer's device has not acknowledged by then is repeated, seven
                                        times; 0: as the connection manager says */
    _Atomic int traffic_class;    /* of the packets of connections set up from now on, 0 to 255; -1: as the connection
                                     manager says */
    _Atomic uint32_t max_clients; /* accepted connections; 0: no bound of its own */
    _Atomic uint64_t max_registered;   /* bytes of registered memory of all kinds in the process; 0: no bound */
    _Atomic uint32_t trust_timeout_ms; /* whoever is not trusted after this may be closed for others that come when
                                          max_untrusted is reached; 0: never */
    _Atomic uint64_t
        max_untrusted; /* bytes of receive buffers of peers that are not trusted yet, in the process; 0: no bound */
    _Atomic uint64_t features;   /* RDMA_FEATURE_… (rdma_wire.h) to offer to those who ask, and to ask for where we
                                    connect; 0: the base protocol */
    _Atomic uint32_t poll_after; /* a peer is polled (rdma_polled.h) after so many messages without a sleep; later where
                                    that was not worth it */
    _Atomic uint64_t send_memory; /* bytes of registered send memory in the process, but for 2 MiB that each device
                                     context of a loop has; more waits in ordinary memory */
    _Atomic uint64_t
        zero_copy_min; /* values of so many bytes and more are sent from where they lie (rdma_values.h); 0: none */
    _Atomic uint32_t
        without; /* enum rdma_technique, or'ed: left out, to measure what they gain; of connections made from then on */
};
extern struct rdma_settings rdma_settings;
void rdma_settings_changed(void); /* zero_copy_min or max_registered, while there are connections */

enum rdma_technique {
    RDMA_INLINE = 1, /* small messages travel inside the work request */
    RDMA_CHAINING =
        2, /* several places of memory, and several WRITEs, make one message with one immediate and one doorbell */
    RDMA_SIGNALLING = 4,   /* selective: completions only now and then */
    RDMA_ZERO_COPY_IN = 8, /* what was received is shown where it arrived */
    RDMA_HUGE_PAGES = 16,  /* for registered memory; of slabs made from then on */
    RDMA_POLLED = 32,      /* messages of busy peers are looked for in memory (rdma_polled.h) */
};

/* The vector whose interrupt is served on the CPUs that the thread is pinned to (net/pin.h); a random one where there
 * is none. */
enum { RDMA_VECTOR_AUTO = -2 };
enum { RDMA_ZERO_COPY_MIN_DEFAULT = 2 * 1024 };
enum { RDMA_RX_INITIAL_MIN = 4 * 1024, RDMA_RX_INITIAL_DEFAULT = 32 * 1024 };
enum { RDMA_RX_SIZE_MIN = 64 * 1024, RDMA_RX_SIZE_MAX = 16 * 1024 * 1024, RDMA_RX_SIZE_DEFAULT = 1024 * 1024 };

/* Why connections fail, as INFO counts it. */
enum rdma_error {
    RDMA_ERROR_PROTOCOL,     /* the peer broke the protocol */
    RDMA_ERROR_TIMEOUT,      /* it did not answer: connecting, or a request that was never acknowledged */
    RDMA_ERROR_RNR,          /* it posted no receives for too long */
    RDMA_ERROR_ACCESS,       /* it refused what we wrote: key, bounds, rights */
    RDMA_ERROR_PEER_GONE,    /* the queue pair was flushed and nobody said why */
    RDMA_ERROR_CONNECT,      /* the connection manager: rejected, unreachable, no address */
    RDMA_ERROR_REGISTRATION, /* memory that could not be registered, here */
    RDMA_ERROR_RESOURCES,    /* queue pairs and completion queues that could not be made, here */
    RDMA_ERROR_DEVICE,       /* the device failed or was removed */
    RDMA_ERROR_OTHER,
    RDMA_ERRORS
};
const char *rdma_error_name(enum rdma_error error); /* "protocol", "peer_gone" … */

/* Why a connection was refused before it came about. */
enum rdma_refusal {
    RDMA_REFUSED_MAX_CLIENTS, /* rdma_settings.max_clients */
    RDMA_REFUSED_FULL,        /* the listener's owner has no room, and too many ask at once to tell each */
    RDMA_REFUSED_MEMORY,      /* rdma_settings.max_registered */
    RDMA_REFUSED_UNTRUSTED,   /* rdma_settings.max_untrusted */
    RDMA_REFUSED_RESOURCES,   /* the device */
    RDMA_REFUSALS
};
const char *rdma_refusal_name(enum rdma_refusal refusal); /* "max_clients", … */

/* What registered memory is for. */
enum rdma_memory_kind {
    RDMA_MEMORY_RECEIVE, /* what peers write into */
    RDMA_MEMORY_SEND,
    RDMA_MEMORY_CONTROL, /* places for control messages to arrive at */
    RDMA_MEMORY_VALUES,  /* regions that large values lie in */
    RDMA_MEMORY_OTHER,
    RDMA_MEMORY_KINDS
};

/* Counters of the process, for INFO and DEBUG RDMA; nothing but uint64_t, summed over the loops. */
struct rdma_stats {
    uint64_t accepted, refused, failed;
    uint64_t bytes_in, bytes_out, messages_in, messages_out, control_in, control_out;
    uint64_t doorbells, work_requests, inlined, signalled, completions, polls, empty_polls, sleeps;
    uint64_t zero_copies, zero_copy_bytes; /* pieces of values that were sent from where they lie */
    uint64_t stalls, stall_us;             /* on a peer's full buffer */
    uint64_t memory_waits, memory_wait_us; /* for send memory */
    uint64_t receives_low;                 /* reports of the device that few receives are left in a shared queue */
    uint64_t credits_in, credits_out;      /* Credit messages */
    uint64_t polled_in, polled_out;        /* messages that polled words announced */
    uint64_t polled_again;                 /* words that were read before all bytes they announce, and are read again */
    uint64_t polled_given_up;              /* polling periods that ended because words did not agree with their bytes */
    uint64_t protocol_errors, errors[RDMA_ERRORS];
    uint64_t refusals[RDMA_REFUSALS]; /* `refused` by its cause */
    uint64_t grown, shrunk;           /* receive buffers */
    uint64_t untrusted_closed;        /* for others that came: trust_timeout_ms */
    /* What is held now. */
    uint64_t ring_connections;             /* that agreed to the credit ring */
    uint64_t listeners, listeners_waiting; /* all of them; those whose device is not there */
    uint64_t polled_connections;           /* whose words are looked at */
    uint64_t connections, queue_pairs, completion_queues, memory_regions, registered_bytes;
    uint64_t registered[RDMA_MEMORY_KINDS]; /* bytes; registered_bytes is their sum */
    uint64_t value_regions; /* of the memory_regions: those that large values lie in; they stay as long as the values */
    uint64_t huge_bytes;    /* of them in reserved huge pages */
    uint64_t unposted_receives;              /* places for receives that the device did not take; it is tried again */
    uint64_t untrusted_bytes;                /* receive buffers of peers that are not trusted yet */
    uint64_t send_chunks, send_chunks_used;  /* pieces of send memory */
    uint64_t receive_buffers, receive_ready; /* of connections; registered and waiting for one */
    uint64_t receives_posted;                /* places for control messages and immediates */
    uint64_t shared_queues;                  /* shared receive queues */
};
const struct rdma_stats *rdma_stats(void);
/* Registered memory that this loop and those of other threads keep for later goes back to the system. */
void rdma_trim(struct event_loop *loop);

/* What the transport tells who is above it. Each is called in the thread of the connection's loop, and may be NULL. */
struct rdma_hooks {
    /* Sending waited so long: for the peer's buffer, or for send memory. */
    void (*stalled)(const struct connection *conn, uint64_t us);
    /* A connection has come about; so long after its request. */
    void (*connected)(const struct connection *conn, uint64_t us);
};
extern struct rdma_hooks rdma_hooks;
/* The port that listeners and connections use; before there are any the first active one of the machine. NULL: none.
 * Valid until the thread asks again. */
struct rdma_port {
    char device[64];
    unsigned number;
    bool active;
    char gid[46]; /* "" where it has none */
    uint32_t mtu; /* bytes of a packet */
};
const struct rdma_port *rdma_port_used(void);
const char *rdma_device_name(void); /* its device, for banners */
/* Call in a forked child before anything else: it must not touch verbs objects. */
void rdma_after_fork_child(void);
#endif
