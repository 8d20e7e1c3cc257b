/* connection.h: the one interface to all transports (tcp, unix, rdma; later tls).
 *
 * A connection shows the bytes it received where they lie (conn_peek), and gives room to write the reply where it will
 * be sent from (conn->out, an output.h output). Nothing above this header asks which transport it has, except to show
 * it to people.
 *
 * Reading.  conn_peek() is what was received and not yet consumed, always contiguous. After conn_consume() the rest
 * stays in place; a later `readable` may find it moved, so keep offsets, not pointers, between two calls. The transport
 * receives more by itself; it stops when `in_limit` bytes lie unconsumed (the caller's protection against a peer that
 * sends without end: when a single request needs more, the caller raises it). Writing.  Write to &conn->out and call
 * conn_flush() when there is nothing to add for now. What the peer cannot take yet stays queued in the connection and
 * goes out by itself; `drained` tells when all is gone. conn_pending() is what is queued: the caller bounds it. Life.
 * conn_close() at any moment, from any handler: no callback follows it; the memory goes at the end of the loop's turn.
 *   When the peer closes or the transport fails, `closed` is called once, with conn->error (0: orderly end); the owner
 * then calls conn_close(). Bytes received before the end are still shown first. What was written before conn_close()
 * still goes: over RDMA until the peer's card has it (2 seconds at most), over a socket as far as the kernel takes it
 * at once; wait for conn_pending() == 0 where that is not enough. What the kernel has taken arrives, even if the peer
 * goes on sending (stream.h). Inner turns. While `readable` runs, what it was shown stays, even if it turns the loop.
 * Elsewhere, pause reading to keep it in place. Fork.     A child shares the loop's epoll instance and must not use or
 * close connections; it closes descriptors where it has to. Threads.  A connection belongs to the thread of its loop. A
 * listener may place what it accepts on another thread's loop; see remote.h for how its user then goes on as if it were
 * here. */
#ifndef NET_CONNECTION_H
#define NET_CONNECTION_H
#include "lib/output.h"
#include "net/event_loop.h"

struct connection;
struct connect_options;
struct listen_options;
struct listener;
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
};

struct connection {
    struct output out; /* must be first: the room in the send memory */
    const struct transport *transport;
    const struct connection_events *events;
    void *owner;
    struct event_loop *loop;
    enum connection_state state;
    int error; /* errno of the failure */
    bool reading_paused;
    bool wants_drained; /* set before conn_flush(): `drained` is wanted. A connection on another thread tells it only
                           then */
    bool trusted;       /* the owner knows the peer; see conn_set_trusted() */
    const char *in;     /* received, not consumed */
    size_t in_len;
    size_t in_limit;
    char *sink; /* conn_receive_into: where the next bytes go, NULL: nowhere special */
    size_t sink_len;
    uint64_t bytes_in, bytes_out;
    struct event_deferred deferred;
};

struct address {
    char host[108]; /* IP address, or path of a Unix socket */
    int port;       /* 0: Unix socket */
};

/* What a transport offers. Everybody else uses the conn_ functions below. */
struct transport {
    const char *name; /* "tcp", "unix", "rdma" */
    /* Sending costs a system call and wakes the peer: replies to several connections had better leave one after the
     * other, before the loop waits, than each between two reads. */
    bool flush_late;
    struct connection *(*connect)(struct event_loop *loop, const struct connect_options *options);
    struct listener *(*listen)(struct event_loop *loop, const struct listen_options *options, char *error,
                               size_t error_size);
    bool (*join)(struct event_loop *loop); /* before connections are placed there, and before its thread runs; NULL:
                                              nothing to do. False: none can be */
    void (*consume)(struct connection *conn, size_t len);
    void (*set_reading)(struct connection *conn); /* reading_paused, in_limit or sink changed */
    void (*set_trusted)(struct connection *conn); /* NULL: makes no difference */
    void (*flush)(struct connection *conn);
    size_t (*pending)(const struct connection *conn);
    void (*close)(struct connection *conn);
    bool (*address)(const struct connection *conn, bool peer, struct address *address);
    int (*fd)(const struct connection *conn);        /* -1 where it has none of its own */
    bool (*is_local)(const struct connection *conn); /* the peer is on this machine, as protected mode means it */
    int (*set_keepalive)(struct connection *conn, int seconds);
    const char *(*error_text)(const struct connection *conn);
    size_t (*memory)(const struct connection *conn, size_t *input,
                     size_t *output); /* bytes held in all, for input, for output */
    void (*describe)(const struct connection *conn, char *text,
                     size_t size); /* "device=… rx=…" for people; may be empty */
};

struct connect_options {
    const char *host; /* name, IP address, or path */
    int port;
    const char *source_host; /* NULL: any */
    uint32_t timeout_ms;     /* 0: the transport's own */
    uint32_t mark;           /* SO_MARK, 0: none */
    const struct connection_events *events;
    void *owner;
};
/* Never NULL: a failure, even an immediate one, comes through `closed` from the loop. */
struct connection *conn_connect(const struct transport *transport, struct event_loop *loop,
                                const struct connect_options *options);

struct listener {
    const struct transport *transport;
    struct event_loop *loop;
    struct address address; /* really bound; shows the port where 0 was asked */
    bool waiting;           /* for its device: the transport tries until it is there (again) */
    /* Called for each new connection, already open. Set conn->events and conn->owner, or conn_close() it. */
    void (*accepted)(struct listener *listener, struct connection *conn);
    /* Chooses the loop where the next connection shall live; NULL: here. On another thread's loop `arrived` is called
     * there instead of `accepted` here. Both may be NULL. */
    struct event_loop *(*place)(struct listener *listener);
    void (*arrived)(struct connection *conn);
    void *owner;
    void (*close)(struct listener *listener);
    /* Whether a further connection could stay; NULL: always. A transport that can refuse one before it costs anything
     * may ask; it still lets some through to `accepted`, which tells them why they must go. */
    bool (*has_room)(struct listener *listener);
    int accept_batch; /* the most to accept in one turn of the loop; may be changed at any time */
};
struct listen_options {
    const char *host; /* IP address, "*" for all IPv4, "::*" for all IPv6, or a path */
    int port;
    int backlog;
    int unix_mode;          /* permissions of the socket file, 0: as they come */
    const char *unix_group; /* NULL: as it comes */
    uint32_t mark;          /* SO_MARK, 0: none */
    bool may_wait;    /* where the address, or its device, is not there yet, a transport that can wait for it does, and
                         succeeds */
    int accept_batch; /* 0: 10 */
    void (*accepted)(struct listener *, struct connection *);
    bool (*has_room)(struct listener *);            /* as in struct listener; may be NULL */
    struct event_loop *(*place)(struct listener *); /* as in struct listener */
    void (*arrived)(struct connection *);
    void *owner;
};
/* A listener that loses its device, where the transport tells, waits for it by itself. NULL on failure, with errno set
 * and `error` saying what failed: device or family, address, and the errno's text. */
struct listener *conn_listen(const struct transport *transport, struct event_loop *loop,
                             const struct listen_options *options, char *error, size_t error_size);
void listener_close(struct listener *listener);

static inline struct slice conn_peek(const struct connection *conn) {
    return (struct slice){conn->in, conn->in_len};
}
static inline void conn_consume(struct connection *conn, size_t len) {
    conn->transport->consume(conn, len);
}
/* The next `len` bytes of the stream, those in conn_peek() first, go to `memory` instead of being shown: a large
 * argument lands once, where it stays. `readable` is called on progress; conn->sink_len is what is still missing.
 * `memory` must live until then or until conn_close(). */
void conn_receive_into(struct connection *conn, char *memory, size_t len);
void conn_set_reading(struct connection *conn, bool on); /* off: nothing is received, the peer is made to wait */
void conn_set_in_limit(struct connection *conn, size_t limit);
/* Whether the peer is known (authenticated, or nobody has to be). A connection that was accepted begins untrusted, and
 * a transport spends no more on it than it must until its owner trusts it; one that we made is trusted: we chose the
 * peer. */
void conn_set_trusted(struct connection *conn, bool trusted);
static inline void conn_flush(struct connection *conn) {
    conn->transport->flush(conn);
}
static inline size_t conn_pending(const struct connection *conn) {
    return conn->transport->pending(conn);
}
void conn_close(struct connection *conn);
static inline bool conn_is_open(const struct connection *conn) {
    return conn->state == CONN_OPEN;
}
const char *conn_error_text(const struct connection *conn);
/* False: a family without IP addresses. */
struct sockaddr;
bool address_from(const struct sockaddr *from, struct address *address);
bool address_is_loopback(const struct address *address);
/* Streams to or at host and port (AI_ flags); freeaddrinfo() what is found. 0, or the error number of getaddrinfo. */
struct addrinfo;
int address_resolve(const char *host, int port, int flags, struct addrinfo **found);
/* "127.0.0.1:6379", "[::1]:6379", "/path:0" */
void conn_format_address(const struct connection *conn, bool peer, char text[static 128]);

/* Blocking use (tools, replication handshakes): turns conn->loop until `done` or the time is over. 0, -ETIMEDOUT, or
 * -conn->error
 * (-ECONNRESET for an orderly end). The connection's handlers run as ever, but must not conn_close() it
 * meanwhile. Not to be called inside the connection's own `readable`, which is not called again while it runs. */
int conn_wait_open(struct connection *conn, int64_t timeout_ms);
int conn_wait_readable(struct connection *conn, size_t more_than, int64_t timeout_ms); /* until in_len > more_than */
int conn_wait_drained(struct connection *conn, int64_t timeout_ms);

extern const struct transport transport_tcp, transport_unix;
const struct transport *
transport_find(const char *name); /* NULL: not compiled in. "rdma" is there with BUILD_RDMA=yes */
#endif
