/* settings.h: what all parts of the RDMA transport share in the process: settings, the names of causes, the counters,
 * and whether this is a forked child. The lowest layer; it needs no verbs. rdma.h hands it on to the transport's users.
 *
 * Settings are read when a connection is made, or (busy_poll_us, keepalive_ms) at use. The server's options set them
 * while other threads may read them, so each is atomic. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct connection;

struct rdma_settings {
    _Atomic uint32_t rx_size;      /* largest receive buffer of a connection, bytes; 64 KiB … 16 MiB, default 1 MiB */
    _Atomic uint32_t rx_initial;   /* first receive buffer of an accepted connection, bytes; 0: rx_size. Outgoing
                                      connections start with rx_size */
    _Atomic int completion_vector; /* -1: random; N: vector N modulo the device's count; or RDMA_VECTOR_AUTO */
    _Atomic uint32_t busy_poll_us; /* spin for this long after the last completion before sleeping */
    _Atomic uint32_t keepalive_ms; /* period of Keepalive messages, 0: none */
    _Atomic uint32_t connect_timeout_ms;
    _Atomic uint32_t ack_timeout_ms; /* local ACK timeout: a request not acknowledged within it is retransmitted, seven
                                        times; 0: the connection manager's value */
    _Atomic int traffic_class;    /* of the packets of new connections, 0 to 255; -1: the connection manager's value */
    _Atomic uint32_t max_clients; /* accepted connections; 0: no limit of the transport */
    _Atomic uint64_t max_registered;   /* bytes of registered memory of all kinds in the process; 0: no limit */
    _Atomic uint32_t trust_timeout_ms; /* when max_untrusted is reached, a new connection may replace one that has been
                                          untrusted for longer than this; 0: never */
    _Atomic uint64_t max_untrusted;    /* bytes of receive buffers of untrusted peers, in the process; 0: no limit */
    _Atomic uint64_t features;    /* RDMA_FEATURE_… (wire.h) to offer as a server and to request as a client; 0: the
                                     base protocol */
    _Atomic uint32_t poll_after;  /* poll a peer (polled.h) after this many messages without a sleep; later if
                                     polling it was not worthwhile */
    _Atomic uint64_t send_memory; /* bytes of registered send memory in the process, not counting 2 MiB for each device
                                     context of a loop; further output waits in ordinary memory */
    _Atomic uint64_t zero_copy_min; /* smallest value that is sent without a copy (values.h), bytes; 0: none */
};
extern struct rdma_settings rdma_settings;

/* RDMA_VECTOR_AUTO: the vector whose interrupt is served on the CPUs that the thread is pinned to (net/pin.h), or a
 * random one if there is none. */
enum { RDMA_VECTOR_AUTO = -2 };
enum { RDMA_ZERO_COPY_MIN_DEFAULT = 2 * 1024 };
enum { RDMA_RX_INITIAL_MIN = 4 * 1024 };
enum { RDMA_RX_SIZE_MIN = 64 * 1024, RDMA_RX_SIZE_MAX = 16 * 1024 * 1024, RDMA_RX_SIZE_DEFAULT = 1024 * 1024 };

/* Causes of connection failures, as INFO counts them. */
enum rdma_error {
    RDMA_ERROR_PROTOCOL,     /* the peer broke the protocol */
    RDMA_ERROR_TIMEOUT,      /* the peer did not answer: while connecting, or it did not acknowledge a request */
    RDMA_ERROR_RNR,          /* receiver not ready: the peer posted no receives for too long */
    RDMA_ERROR_ACCESS,       /* remote access error: the peer's device refused a WRITE: key, bounds, rights */
    RDMA_ERROR_PEER_GONE,    /* the queue pair was flushed without a reported cause */
    RDMA_ERROR_CONNECT,      /* the connection manager: rejected, unreachable, no address */
    RDMA_ERROR_REGISTRATION, /* local memory could not be registered */
    RDMA_ERROR_RESOURCES,    /* local queue pairs or completion queues could not be created */
    RDMA_ERROR_DEVICE,       /* the local device failed or was removed */
    RDMA_ERROR_OTHER,
    RDMA_ERRORS
};
const char *rdma_error_name(enum rdma_error error); /* "protocol", "peer_gone" … */

/* Why a connection request was rejected. */
enum rdma_refusal {
    RDMA_REFUSED_MAX_CLIENTS, /* rdma_settings.max_clients */
    RDMA_REFUSED_FULL,        /* the listener's owner is full, and too many requests arrive to send each the reason */
    RDMA_REFUSED_MEMORY,      /* rdma_settings.max_registered */
    RDMA_REFUSED_UNTRUSTED,   /* rdma_settings.max_untrusted */
    RDMA_REFUSED_RESOURCES,   /* resources of the device */
    RDMA_REFUSALS
};
const char *rdma_refusal_name(enum rdma_refusal refusal); /* "max_clients", … */

/* Use of registered memory. */
enum rdma_memory_kind {
    RDMA_MEMORY_RECEIVE, /* receive buffers, written by peers */
    RDMA_MEMORY_SEND,
    RDMA_MEMORY_CONTROL, /* buffers of receives for control messages */
    RDMA_MEMORY_VALUES,  /* regions of large values */
    RDMA_MEMORY_WINDOWS, /* memory for one-sided reads: read.h */
    RDMA_MEMORY_OTHER,
    RDMA_MEMORY_KINDS
};

/* Counters of the process, for INFO and DEBUG RDMA. All members are uint64_t and are summed over the loops. */
struct rdma_stats {
    uint64_t accepted, refused, failed;
    uint64_t bytes_in, bytes_out, messages_in, messages_out, control_in, control_out;
    uint64_t doorbells, work_requests, inlined, signalled, completions, polls, empty_polls, sleeps;
    uint64_t zero_copies, zero_copy_bytes;    /* pieces of values that were sent without a copy */
    uint64_t reads, read_bytes, reads_failed; /* one-sided reads (read.h) by this process */
    uint64_t stalls, stall_us;                /* waits for space in a peer's full buffer */
    uint64_t memory_waits, memory_wait_us;    /* waits for send memory */
    uint64_t receives_low;                    /* reports of the device that few receives are left in a shared queue */
    uint64_t credits_in, credits_out;         /* Credit messages */
    uint64_t polled_in, polled_out;           /* messages announced by polled words */
    uint64_t polled_again;                    /* words that were visible before the bytes they announce, read again */
    uint64_t polled_given_up;                 /* polling periods that ended because words did not match their bytes */
    uint64_t errors[RDMA_ERRORS];
    uint64_t refusals[RDMA_REFUSALS]; /* `refused` by cause */
    uint64_t grown, shrunk;           /* receive buffers */
    uint64_t poll_pauses;             /* times that a thread stopped polling because other threads took its CPU */
    uint64_t untrusted_closed;        /* untrusted connections replaced by new ones: trust_timeout_ms */
    /* Current values. */
    uint64_t ring_connections;             /* connections that agreed on the credit ring */
    uint64_t listeners, listeners_waiting; /* all listeners; those whose device is missing */
    uint64_t polled_connections;           /* connections whose words are polled */
    uint64_t connections, queue_pairs, completion_queues, memory_regions, registered_bytes;
    uint64_t registered[RDMA_MEMORY_KINDS]; /* bytes; registered_bytes is their sum */
    uint64_t value_regions; /* memory_regions that hold large values; they stay registered as long as the values live */
    uint64_t windows;       /* of one-sided reads: memory_regions that are offered to peers, or targets */
    uint64_t huge_bytes;    /* registered bytes in reserved huge pages */
    uint64_t unposted_receives;              /* receives that the device did not accept; posting is retried */
    uint64_t untrusted_bytes;                /* receive buffers of untrusted peers */
    uint64_t send_chunks, send_chunks_used;  /* chunks of send memory */
    uint64_t receive_buffers, receive_ready; /* in use by connections; registered and free */
    uint64_t receives_posted;                /* receives posted for control messages and immediates */
    uint64_t shared_queues;                  /* shared receive queues */
};
/* Events that the transport reports to its user. Each is called on the thread of the connection's loop and may be
 * NULL. */
struct rdma_hooks {
    /* Sending waited for `us` microseconds, for space in the peer's buffer or for send memory. */
    void (*stalled)(const struct connection *conn, uint64_t us);
    /* A connection was established, `us` microseconds after its request. */
    void (*connected)(const struct connection *conn, uint64_t us);
};
extern struct rdma_hooks rdma_hooks;
/* Call first in a forked child, which must not touch verbs objects. */
void rdma_after_fork_child(void);
bool rdma_usable(void); /* false in a forked child */
