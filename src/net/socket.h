/* socket.h: connections over stream sockets, for tcp.c and unix.c: everything except the addresses.
 *
 * Receiving
 *   All connections of a loop read into one shared buffer. The bytes are exposed there while `readable` runs, and only
 *   the bytes that are still unconsumed afterwards are copied out. An idle connection holds no receive memory. While a
 *   handler that uses the shared buffer is on the stack (it may run the loop), other connections read into memory of
 *   their own.
 *
 * Sending
 *   conn->out writes into a chunk from the loop's pool. A flush writes the chunk with one system call and returns it to
 *   the pool. While many connections hold output, further ones begin with a small chunk. Only bytes that a flush could
 *   not write, and shared blobs, become segments in a queue, which is sent with writev().
 *
 * Closing
 *   If unread input is in the socket when it is closed, or input arrives later, the kernel resets the connection and
 *   drops what it has not sent. The peer then loses the last reply, which often says why the connection was closed. So
 *   the accepting end, if it wrote to the connection, shuts down its sending direction and keeps the socket until the
 *   peer ends too: for at most LINGER_US, LINGER_BYTES of input, and LINGER_MAX sockets of a loop.
 *   Rejected: the same for outgoing connections; the end that connected has no last message for the peer.
 *
 * The I/O table
 *   A connection calls read, write and shutdown through a table of its transport, `struct socket_io`: socket_io_plain
 *   makes the system calls, tls.c encrypts. Everything else is the same for both. A table may have a handshake. Then a
 *   connection is CONN_CONNECTING until the handshake is complete, for at most `handshake_timeout_ms` if the peer
 *   connected; a listener reports it only afterwards. */
#pragma once
#include "net/connection.h"
#include "net/input_buffer.h"
#include "net/output_queue.h"
#include <sys/types.h>
#include <sys/uio.h>

enum { SOCKET_IN_LIMIT_DEFAULT = 1024 * 1024 * 1024, ACCEPT_BATCH_DEFAULT = 10 };

struct socket_connection;
struct socket_pool;
struct socket_dial;
struct socket_listener;

/* How the connections of a transport read and write their sockets. The functions return -errno on failure, -EAGAIN if
 * they would have to wait; then `socket->wants_write` says that reading waits for the socket to become writable, and
 * `socket->wants_read` that writing waits for input. After a write has failed, read() must fail as well. NULL entries:
 * nothing to do. Called on the thread of the connection's loop. */
struct socket_io {
    bool (*start)(struct socket_connection *socket); /* sets socket->session; false: no memory */
    int (*handshake)(struct socket_connection *socket,
                     int *wants); /* 0: complete; -EAGAIN: waits for *wants (EVENT_…) */
    ssize_t (*read)(struct socket_connection *socket, const struct iovec *parts,
                    int count); /* like readv; 0: end of the stream */
    ssize_t (*write)(struct socket_connection *socket, const struct iovec *parts,
                     int count);                               /* like writev, never SIGPIPE */
    bool (*has_input)(const struct socket_connection *socket); /* read() has more, even if the socket is not readable */
    void (*shutdown)(struct socket_connection *socket);        /* notifies the peer that no output follows */
    void (*free)(struct socket_connection *socket);            /* frees socket->session */
    size_t (*memory)(const struct socket_connection *socket);  /* bytes of socket->session */
};
extern const struct socket_io socket_io_plain;

struct socket_connection {
    struct connection conn; /* must be first */
    int fd;
    int write_error; /* errno of a failed write; the next read detects the end */
    struct event_io event;
    struct event_timer timer; /* connecting: the timeout; open: reports a failure from the loop */
    const struct socket_io *io;
    void *session; /* state of the I/O table; NULL: none */
    struct socket_pool *pool;
    struct socket_dial *dial;         /* while connecting */
    struct socket_handshake *arrival; /* accepted, and the handshake is not complete */
    char *error_note;                 /* text of a failure that errno does not express, or NULL */
    struct input_buffer input;
    struct output_queue output;
    size_t chunk_memory;        /* of the chunks that hold output */
    bool needs_certificate;     /* accepted: TLS verifies the peer, whatever the context says */
    bool blocked;               /* the socket is full; waiting to write */
    bool showing;               /* `readable` is on the stack: a nested iteration must not move the bytes it uses */
    bool wants_write;           /* reading waits for the socket to become writable */
    bool wants_read;            /* writing waits for the socket to become readable */
    bool accepted;              /* accepted, not connected by us */
    struct list_link pool_link; /* in the pool's list of handshakes, of those with input, or of lingering ones */
    size_t lingered;            /* bytes received while lingering */
};

/* Send memory. */
struct socket_chunk {
    struct output_chunk queued; /* must be first */
    uint32_t size;              /* header included */
    struct socket_chunk *next_free;
    char data[];
};

/* State shared by all sockets of a loop. */
struct socket_pool {
    struct event_attachment attachment;
    struct list_link link; /* in the list of all pools */
    struct event_loop *loop;
    _Atomic unsigned free_count; /* the loop's thread writes it, the main thread reads it */
    unsigned used_count;         /* chunks that connections hold */
    struct socket_chunk *free;
    struct input_shared input;
    struct list handshakes; /* accepted connections whose handshake is not complete, the oldest first */
    struct list has_input;  /* connections that can be read although their socket may not be readable */
    struct list lingering;  /* closed connections, the oldest first */
    struct event_timer input_timer;
};

/* How a transport creates outgoing sockets. */
struct socket_dial {
    /* Starts the next attempt. Returns a descriptor, connected or connecting (`*in_progress`); -EAGAIN to be called
     * again soon; another -errno when no address is left to try. */
    int (*attempt)(struct socket_dial *dial, bool *in_progress);
    void (*free)(struct socket_dial *dial);
    uint64_t deadline_us;
    int last_error;
};

struct socket_settings {
    _Atomic uint32_t handshake_timeout_ms; /* of connections that are accepted from now on */
};
extern struct socket_settings socket_settings; /* any thread reads it; the main thread sets it at any time */
struct socket_stats {
    _Atomic uint64_t handshakes; /* accepted connections whose handshake is not complete */
    _Atomic uint64_t handshakes_failed;
};
extern struct socket_stats socket_stats;

/* Takes ownership of the dial. `failure`: errno of an earlier failure, which `note` may describe better; 0: connect. */
struct socket_connection *socket_connect(struct event_loop *loop, const struct transport *transport,
                                         const struct connect_options *options, struct socket_dial *dial, int failure,
                                         const char *note);
/* Replaces the text of conn_error_text(). */
void socket_set_error_note(struct socket_connection *socket, const char *text);

/* The entries of `struct transport` that are the same for all transports over sockets. */
#define SOCKET_OPERATIONS                                                                                              \
    .flush_late = true, .consume = socket_consume, .set_reading = socket_set_reading, .flush = socket_flush,           \
    .pending = socket_pending, .close = socket_close, .leave = socket_leave, .enter = socket_enter, .fd = socket_fd,   \
    .error_text = socket_error_text, .memory = socket_memory, .trim = socket_trim_input, .shared = socket_shared
void socket_consume(struct connection *conn, size_t len);
void socket_set_reading(struct connection *conn);
void socket_flush(struct connection *conn);
size_t socket_pending(const struct connection *conn);
void socket_close(struct connection *conn);
bool socket_leave(struct connection *conn);
void socket_enter(struct connection *conn, struct event_loop *loop);
int socket_fd(const struct connection *conn);
const char *socket_error_text(const struct connection *conn);
size_t socket_memory(const struct connection *conn, size_t *input, size_t *output);
void socket_trim_input(struct connection *conn);
/* Bytes of send memory of all loops that no connection uses, beyond what a single one needs. Any thread. */
size_t socket_idle_memory(void);
size_t socket_shared(const struct connection *conn);
/* Allocates what all sockets of the loop share, so that its first connection does not add it to the memory in use. */
void socket_prepare(struct event_loop *loop);

/* A listening socket. */
struct socket_listener {
    struct listener listener; /* must be first */
    struct event_io event;
    struct event_timer retry;
    int fd;
    void (*prepare)(int fd);                           /* options of an accepted socket; may be NULL */
    void (*release)(struct socket_listener *listener); /* called before the listener is freed; may be NULL */
    struct event_deferred deferred;
    bool closed;
};
/* Starts to accept. The caller allocates the struct (mem_alloc); listener_close() frees it. Returns 0 or -errno. */
int socket_listener_start(struct socket_listener *listener, const struct transport *transport, struct event_loop *loop,
                          const struct listen_options *options, int fd);
