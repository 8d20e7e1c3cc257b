/* connection.h: the common interface of all transports (tcp, tls, unix, rdma, rdma-tls).
 *
 * A connection exposes received bytes (conn_peek) and provides memory for the reply in the buffer that it is sent from
 * (conn->out, an output as in output.h). Code above this header does not depend on the transport, except to display its
 * name.
 *
 * Reading
 *   conn_peek() returns the bytes that were received and not yet consumed; they are always contiguous. They lie in
 *   memory that no peer can write: what was checked there stays as it is (rdma/buffer.h).
 *   conn_consume() leaves the remaining bytes in place. They may have moved at a later `readable`, so keep offsets
 *   between two calls, not pointers.
 *   The transport receives more bytes by itself. It stops when `in_limit` bytes are unconsumed, which protects the
 *   caller from a peer that sends without end. The caller raises the limit when a single request needs more.
 *
 * Writing
 *   Write to &conn->out and call conn_flush() when there is nothing to add for now. Bytes that the peer cannot take yet
 *   stay queued in the connection and are sent later without another call; `drained` is called when the queue is empty.
 *   conn_pending() returns the size of the queue; the caller limits it.
 *
 * Lifetime
 *   conn_close() may be called at any time, from any handler. No callback follows it, and the memory is freed at the
 *   end of the loop's iteration.
 *   When the peer closes or the transport fails, `closed` is called once, with conn->error (0: orderly end). The owner
 *   then calls conn_close(). Bytes received before the end are still delivered first.
 *   After an orderly end over a socket, output can still be sent until conn_close(): the peer may have shut down its
 *   sending direction only. Over RDMA it is discarded.
 *   Output for which there is no memory ends the connection with ENOMEM. A caller that writes very much looks at
 *   conn->error from time to time, and stops.
 *   A connection whose owner leaves its input unconsumed, or has paused reading, may have bytes that it cannot deliver
 *   yet (remote.h, RDMA). It calls `hung_up`, once, when the end has come behind such bytes. An owner that may never
 *   consume its input then calls conn_close(); any other owner ignores it, and gets those bytes and `closed` later.
 *   Over RDMA an owner with this handler gets `closed` only while it reads.
 *   Output written before conn_close() is still sent: over RDMA until the peer's device has it (2 seconds at most),
 *   over a socket as far as the kernel accepts it immediately. Wait for conn_pending() == 0 where that is not enough.
 *   The peer receives all that the kernel accepted, even if the peer keeps sending (socket.h).
 *
 *   An owner that closes because too much output is queued sets `drops_output`.
 *
 * Nested iterations
 *   The bytes that `readable` was called for stay in place while it runs, even if it runs the loop. To keep bytes in
 *   place outside `readable`, pause reading.
 *
 * Fork
 *   A child shares the loop's epoll instance and must not use or close connections. It closes descriptors itself where
 *   it has to.
 *
 * Threads
 *   A connection belongs to the thread of its loop. A listener may place an accepted connection on another thread's
 *   loop; remote.h describes how its user works with it from its own thread. */
#pragma once
#include "lib/system/must.h"
#include "lib/text/output.h"
#include "net/event_loop.h"
#include <sys/types.h>

struct connection;
struct connect_options;
struct listen_options;
struct listener;
struct socket_io;
struct transport;

enum connection_state {
    CONN_CONNECTING,
    CONN_OPEN,
    CONN_ENDED /* peer closed or failed */,
    CONN_CLOSED /* by conn_close */
};

struct connection_events {
    void (*connected)(struct connection *conn); /* after conn_connect; on failure `closed` comes instead */
    void (*readable)(struct connection *conn);  /* more bytes in conn_peek(), or progress of conn_receive_into() */
    void (*drained)(struct connection *conn);   /* what was queued has gone out; may be NULL */
    void (*closed)(struct connection *conn);    /* conn->error, conn_error_text() */
    void (*hung_up)(struct connection *conn);   /* the end has come behind undelivered bytes; may be NULL */
    void (*grown)(struct connection *conn);     /* uses much more memory than before (remote.h); may be NULL */
};

struct connection {
    struct output out; /* must be first: writes into the send memory */
    const struct transport *transport;
    const struct connection_events *events;
    void *owner;
    struct event_loop *loop;
    enum connection_state state;
    int error; /* errno of the failure */
    bool reading_paused;
    bool keeps_input;   /* the owner calls conn_trim(): receive memory may stay when it is empty */
    bool takes_later;   /* the owner takes its input after `readable`, so it is received to where it can stay */
    bool hung_up;       /* `hung_up` was called */
    bool wants_drained; /* set before conn_flush() to get `drained`. A connection on another thread reports it only
                           then */
    bool trusted;       /* the owner trusts the peer; see conn_set_trusted() */
    bool drops_output;  /* set before conn_close(): what is not sent yet is not to be sent any more */
    const char *in;     /* received, not consumed */
    size_t in_len;
    size_t in_limit;
    size_t in_kept; /* with keeps_input: receive memory of this size stays when it is empty */
    char *sink;     /* conn_receive_into(): destination of the next bytes, or NULL */
    size_t sink_len;
    size_t awaited; /* bytes of a large value that TLS waits for: this transport sizes its buffer for them */
    uint64_t bytes_in, bytes_out;
    struct event_deferred deferred;
};

struct address {
    char host[108]; /* IP address, or path of a Unix socket */
    int port;       /* 0: Unix socket */
};

/* The operations of a transport. Only net/ calls them; all others use the conn_ functions below. */
struct transport {
    const char *name;           /* "tcp", "tls", "unix", "rdma", "rdma-tls" */
    const struct socket_io *io; /* how its sockets read and write, socket.h; NULL: it has none */
    /* Sending costs a system call and wakes the peer. It is cheaper to send the replies to several connections one
     * after the other before the loop waits than each of them between two reads. */
    bool flush_late;
    struct connection *(*connect)(struct event_loop *loop, const struct connect_options *options);
    struct listener *(*listen)(struct event_loop *loop, const struct listen_options *options, char *error,
                               size_t error_size);
    bool (*join)(struct event_loop *loop); /* called before connections are placed on the loop and before its thread
                                              runs; may be NULL. False: the loop cannot hold connections */
    void (*consume)(struct connection *conn, size_t len);
    void (*set_reading)(struct connection *conn); /* reading_paused, in_limit or sink changed */
    void (*set_trusted)(struct connection *conn); /* may be NULL */
    void (*flush)(struct connection *conn);
    size_t (*pending)(const struct connection *conn);
    void (*close)(struct connection *conn);
    /* Move a connection to another loop, NULL: the transport cannot (RDMA: a queue pair is tied to the completion queue
     * of its thread). `leave` takes it from its loop unless output is pending or it is not open; on false nothing has
     * changed. Until `enter`, which may run on another thread, nobody may use it. Received bytes stay in place. */
    bool (*leave)(struct connection *conn);
    void (*enter)(struct connection *conn, struct event_loop *loop);
    bool (*address)(const struct connection *conn, bool peer, struct address *address);
    int (*fd)(const struct connection *conn);
    bool (*is_local)(const struct connection *conn);
    int (*set_keepalive)(struct connection *conn, int seconds); /* NULL: there is nothing to set */
    int (*set_nodelay)(struct connection *conn, bool on);       /* NULL: there is nothing to set */
    const char *(*error_text)(const struct connection *conn);
    size_t (*memory)(const struct connection *conn, size_t *input, size_t *output);
    void (*trim)(struct connection *conn);           /* conn_trim(); NULL: nothing to free */
    size_t (*shared)(const struct connection *conn); /* bytes of pending() in shared blobs; NULL: always 0 */
    void (*describe)(const struct connection *conn, char *text,
                     size_t size);                                /* conn_describe(); NULL: nothing to say */
    const char *(*peer_names)(const struct connection *conn);     /* conn_peer_names(); may be NULL */
    const char *(*certificate)(const struct connection *conn);    /* conn_peer_certificate(); may be NULL */
    struct connection *(*carrier)(const struct connection *conn); /* conn_carrier(); may be NULL */
};

struct connect_options {
    const char *host; /* name, IP address, or path */
    int port;
    const char *source_host; /* to connect from; NULL: any */
    bool source_optional;    /* connect from any address where that one is not of this machine */
    const char *server_name; /* TLS: the name to ask for (SNI); NULL: none */
    uint32_t timeout_ms;     /* 0: the transport's default */
    uint32_t mark;           /* SO_MARK, 0: none */
    bool mptcp; /* TCP: ask for Multipath TCP; the kernel falls back to TCP if the peer does not speak it */
    const struct connection_events *events;
    void *owner;
};
/* Never returns NULL. A failure, even an immediate one, is reported through `closed` from the loop. */
struct connection *conn_connect(const struct transport *transport, struct event_loop *loop,
                                const struct connect_options *options);

struct listener {
    const struct transport *transport;
    struct event_loop *loop;
    struct address address; /* the bound address, with the actual port where port 0 was requested */
    bool waiting;           /* the device is missing; the transport retries until it is back */
    /* Called for each new connection, which is already open. Set conn->events and conn->owner, or conn_close() it. */
    void (*accepted)(struct listener *listener, struct connection *conn);
    /* Chooses the loop for the next connection; NULL: this one. If the loop belongs to another thread, `arrived` is
     * called there instead of `accepted` here. Both may be NULL. */
    struct event_loop *(*place)(struct listener *listener);
    void (*arrived)(struct connection *conn);
    void *owner;
    void (*close)(struct listener *listener);
    /* Whether the owner can keep one more connection; NULL: always. A transport that can reject a connection before it
     * costs anything may ask: RDMA still passes some to `accepted`, which sends the peer the reason; TLS passes none.
     */
    bool (*has_capacity)(struct listener *listener);
    int accept_batch; /* connections to accept in one iteration of the loop, at most; may be changed at any time */
    bool needs_certificate; /* TLS: peers must have one, whatever the context says; fixed */
    bool rejects;           /* RDMA: a connection without capacity never reaches `accepted`; fixed */
};
struct listen_options {
    const char *host; /* IP address, "*" for all IPv4, "::*" for all IPv6, or a path */
    int port;
    int backlog;
    int unix_mode;          /* permissions of the socket file; 0: leave them */
    const char *unix_group; /* NULL: leave it */
    uint32_t mark;          /* SO_MARK, 0: none */
    bool mptcp;             /* TCP: accept also Multipath TCP; fails with a kernel that has none */
    bool may_wait;    /* succeed even if the address or its device is missing, on a transport that can wait for it */
    int accept_batch; /* 0: 10 */
    bool needs_certificate; /* as in struct listener */
    bool rejects;           /* as in struct listener */
    bool allows_clear;      /* RDMA with TLS: the peer may speak without TLS (rdma/tls.h) */
    void (*accepted)(struct listener *, struct connection *);
    bool (*has_capacity)(struct listener *);        /* as in struct listener; may be NULL */
    struct event_loop *(*place)(struct listener *); /* as in struct listener */
    void (*arrived)(struct connection *);
    void *owner;
};
/* A listener that loses its device waits for it by itself, on transports that report the loss. Returns NULL on failure,
 * with errno set and the failed device or family, the address, and the text of errno in `error`. */
struct listener *conn_listen(const struct transport *transport, struct event_loop *loop,
                             const struct listen_options *options, char *error, size_t error_size);
void listener_close(struct listener *listener);
/* The connections of the listener's transport stay on the loop where they were placed. */
static inline bool listener_pins_connections(const struct listener *listener) {
    return listener->transport->join != NULL;
}

static inline struct slice conn_peek(const struct connection *conn) {
    return (struct slice){conn->in, conn->in_len};
}
static inline void conn_consume(struct connection *conn, size_t len) {
    must_within(len, conn->in_len);
    conn->transport->consume(conn, len);
}
/* Stores the next `len` bytes of the stream in `memory`, starting with those in conn_peek(), instead of exposing them.
 * A large argument is thus received directly into its final memory. `readable` is called on progress; conn->sink_len is
 * the number of bytes still missing. `memory` must live until it is 0 or until conn_close(). */
void conn_receive_into(struct connection *conn, char *memory, size_t len);
/* Not while `readable` runs: the bytes that are missing come into conn_peek() instead. */
void conn_receive_stop(struct connection *conn);
/* For transports: memory for output of a connection in which `queued` bytes of it wait; mem_free(). NULL: memory is
 * short, because a client may ask for a reply of any length. The transport then sets conn->error to ENOMEM at once,
 * drops the output, discards what follows (output_discard), and ends the connection from the loop. */
void *conn_output_alloc(size_t size, size_t queued);
/* For transports: `len` bytes were received, to the sink if there is one. Returns how many of them it took. */
static inline size_t conn_fill_sink(struct connection *conn, size_t len) {
    if (!conn->sink) return 0;
    size_t part = len < conn->sink_len ? len : conn->sink_len;
    conn->sink_len -= part;
    conn->sink = conn->sink_len ? conn->sink + part : NULL;
    return part;
}
void conn_set_reading(struct connection *conn, bool on); /* off: receive nothing; the peer has to wait */
void conn_set_in_limit(struct connection *conn, size_t limit);
/* Trusted: the peer is authenticated, or needs no authentication. An accepted connection starts untrusted, and the
 * transport spends as little on it as possible until its owner trusts it. A connection made by conn_connect() is
 * trusted because the caller chose the peer. */
void conn_set_trusted(struct connection *conn, bool trusted);
static inline void conn_flush(struct connection *conn) {
    conn->transport->flush(conn);
}
static inline size_t conn_pending(const struct connection *conn) {
    return conn->transport->pending(conn);
}
/* Frees receive memory beyond in_kept that holds no bytes. Moves the bytes in conn_peek(). Not while `readable` runs.
 */
static inline void conn_trim(struct connection *conn) {
    if (conn->transport->trim) conn->transport->trim(conn);
}
static inline size_t conn_pending_shared(const struct connection *conn) { /* the part that is in shared blobs */
    return conn->transport->shared ? conn->transport->shared(conn) : 0;
}
void conn_close(struct connection *conn);
/* For a caller that drops the unconsumed input: the memory that holds it and nothing else, which the caller frees
 * (mem_free), perhaps on another thread. NULL: there is no such memory, and the input stays. */
void *conn_take_input(struct connection *conn);
static inline bool conn_is_open(const struct connection *conn) {
    return conn->state == CONN_OPEN;
}
const char *conn_error_text(const struct connection *conn);
static inline const char *conn_transport_name(const struct connection *conn) { /* struct transport: name */
    return conn->transport->name;
}
bool conn_is_encrypted(const struct connection *conn); /* by TLS */
/* The connection that carries the records of this one (TLS over RDMA), NULL once it is closed; else this one. */
static inline struct connection *conn_carrier(struct connection *conn) {
    return conn->transport->carrier ? conn->transport->carrier(conn) : conn;
}
/* False: the address is unknown. */
static inline bool conn_address(const struct connection *conn, bool peer, struct address *address) {
    return conn->transport->address(conn, peer, address);
}
/* The peer is on this machine, in the sense of protected mode. */
static inline bool conn_is_local(const struct connection *conn) {
    return conn->transport->is_local(conn);
}
/* -1: the connection has no descriptor of its own. The descriptor is for display and for waiting: bytes go through the
 * functions above, options through the two below. */
static inline int conn_fd(const struct connection *conn) {
    return conn->transport->fd(conn);
}
/* TCP keepalive after `seconds` without traffic; 0: off. Returns 0 or -errno. RDMA uses rdma_settings.keepalive_ms. */
int conn_set_keepalive(struct connection *conn, int seconds);
/* TCP_NODELAY, which every TCP connection begins with; does nothing on other transports. Returns 0 or -errno. */
int conn_set_nodelay(struct connection *conn, bool on);
/* The bytes of memory that the connection holds: in total, for input, and for output. `input` and `output` may be
 * NULL. */
static inline size_t conn_memory(const struct connection *conn, size_t *input, size_t *output) {
    return conn->transport->memory(conn, input, output);
}
/* The connection holds memory for input that the peer has not sent yet, so its size says nothing about the peer. */
static inline bool conn_reserves_input(const struct connection *conn) {
    return !conn->transport->io;
}
/* Writes "device=… rx=…" or another text of the transport for display; it may be empty. */
void conn_describe(const struct connection *conn, char *text, size_t size);
/* struct transport: flush_late */
static inline bool conn_flushes_late(const struct connection *conn) {
    return conn->transport->flush_late;
}
/* The connection can move to another loop (remote.h). */
static inline bool conn_can_move(const struct connection *conn) {
    return conn->transport->leave != NULL;
}
/* The names in the peer's verified certificate that tls_set_peer_names() selects: each ends with a NUL, the last is
 * followed by an empty one. NULL: there is no certificate, or names were not wanted. */
const char *conn_peer_names(const struct connection *conn);
/* The peer's verified certificate as PEM, of an accepted TLS connection; NULL: there is none. */
const char *conn_peer_certificate(const struct connection *conn);
/* False: the family has no IP addresses. */
struct sockaddr;
bool address_from(const struct sockaddr *from, struct address *address);
bool address_is_loopback(const struct address *address);
/* Stream addresses of host and port (`flags`: AI_…); free *found with freeaddrinfo(). Returns 0, or the error of
 * getaddrinfo. */
struct addrinfo;
int address_resolve(const char *host, int port, int flags, struct addrinfo **found);
/* "127.0.0.1:6379", "[::1]:6379", "/path:0" */
void conn_format_address(const struct connection *conn, bool peer, char text[static 128]);

/* Blocking use (tools, replication handshakes): run conn->loop until the condition holds or the time is over. Return 0,
 * -ETIMEDOUT, or -conn->error (-ECONNRESET for an orderly end). The connection's handlers still run, but must not
 * conn_close() it meanwhile. Do not call these inside the connection's own `readable`; they do not call it again while
 * it runs. */
int conn_wait_open(struct connection *conn, int64_t timeout_ms);
int conn_wait_readable(struct connection *conn, size_t more_than, int64_t timeout_ms); /* until in_len > more_than */
int conn_wait_drained(struct connection *conn, int64_t timeout_ms);

extern const struct transport transport_tcp, transport_unix;
const struct transport *transport_find(const char *name); /* NULL: not compiled in. "rdma" needs BUILD_RDMA=yes, "tls"
                                                             BUILD_TLS=yes, "rdma-tls" both */
static inline const char *transport_name(const struct transport *transport) {
    return transport->name;
}
