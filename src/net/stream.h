/* stream.h: connections over stream sockets, for tcp.c and unix.c: everything except the addresses.
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
 * not write, and shared blobs, become segments in a queue, which is sent with writev().
 *
 * Closing
 *   If unread input is in the socket when it is closed, or input arrives later, the kernel resets the connection and
 *   drops what it has not sent. The peer then loses the last reply, which often says why the connection was closed. So
 *   the accepting side, if it wrote to the connection, shuts down its sending direction and keeps the socket until the
 *   peer ends too: for at most LINGER_US, LINGER_BYTES of input, and LINGER_MAX sockets of a loop.
 *   Rejected: the same for outgoing connections; the side that connected has no last message for the peer.
 *
 * The I/O table
 *   A stream calls read, write and shutdown through a table of its transport, `struct stream_io`: stream_io_plain makes
 *   the system calls, tls.c encrypts. Everything else is the same for both. A table may have a handshake. Then a stream
 *   is CONN_CONNECTING until the handshake is complete, for at most `handshake_timeout_ms` if the peer connected; a
 *   listener reports it only afterwards. */
#ifndef NET_STREAM_H
#define NET_STREAM_H
#include "net/connection.h"
#include "net/output_queue.h"
#include <sys/types.h>
#include <sys/uio.h>

enum { STREAM_IN_LIMIT_DEFAULT = 1024 * 1024 * 1024, ACCEPT_BATCH_DEFAULT = 10 };

struct stream;
struct stream_pool;
struct stream_dial;
struct stream_listener;

/* How the streams of a transport read and write their sockets. The functions return -errno on failure, -EAGAIN if they
 * would have to wait; then `stream->wants_write` says that reading waits for the socket to become writable, and
 * `stream->wants_read` that writing waits for input. After a write has failed, read() must fail, too. NULL entries:
 * nothing to do. Called on the thread of the stream's loop. */
struct stream_io {
    bool (*start)(struct stream *stream);                /* sets stream->session; false: no memory */
    int (*handshake)(struct stream *stream, int *wants); /* 0: complete; -EAGAIN: waits for *wants (EVENT_…) */
    ssize_t (*read)(struct stream *stream, const struct iovec *parts, int count); /* like readv; 0: end of the stream */
    ssize_t (*write)(struct stream *stream, const struct iovec *parts, int count); /* like writev, never SIGPIPE */
    bool (*has_input)(const struct stream *stream); /* read() has more, even if the socket is not readable */
    void (*shutdown)(struct stream *stream);        /* tells the peer that no output follows */
    void (*free)(struct stream *stream);            /* frees stream->session */
    size_t (*memory)(const struct stream *stream);  /* bytes of stream->session */
};
extern const struct stream_io stream_io_plain;

struct stream {
    struct connection conn; /* must be first */
    int fd;
    int write_error; /* errno of a failed write; the next read detects the end */
    struct event_watch watch;
    struct event_timer timer; /* connecting: the timeout; open: reports a failure from the loop */
    const struct stream_io *io;
    void *session; /* state of the I/O table; NULL: none */
    struct stream_pool *pool;
    struct stream_dial *dial;         /* while connecting */
    struct stream_handshake *arrival; /* accepted, and the handshake is not complete */
    char *error_note;                 /* text of a failure that errno does not express, or NULL */
    char *own;                        /* private receive memory: unconsumed bytes between two reads */
    size_t own_size;
    struct output_queue output;
    bool blocked;               /* the socket is full; waiting to write */
    bool showing;               /* `readable` is on the stack: a nested iteration must not move the bytes it uses */
    bool wants_write;           /* reading waits for the socket to become writable */
    bool wants_read;            /* writing waits for the socket to become readable */
    bool accepted;              /* accepted, not connected by us */
    struct list_link pool_link; /* in the pool's list of handshakes, of streams with input, or of lingering streams */
    size_t lingered;            /* bytes received while lingering */
};

/* How a transport creates outgoing sockets. */
struct stream_dial {
    /* Starts the next attempt. Returns a descriptor, connected or connecting (`*in_progress`); -EAGAIN to be called
     * again soon; another -errno when no address is left to try. */
    int (*attempt)(struct stream_dial *dial, bool *in_progress);
    void (*free)(struct stream_dial *dial);
    uint64_t deadline_us;
    int last_error;
};

struct stream_settings {
    _Atomic uint32_t handshake_timeout_ms; /* of streams that are accepted from now on */
};
extern struct stream_settings stream_settings; /* any thread reads it; the main thread sets it at any time */
struct stream_stats {
    _Atomic uint64_t handshakes; /* accepted streams whose handshake is not complete */
    _Atomic uint64_t handshakes_failed;
};
extern struct stream_stats stream_stats;

struct stream *stream_accept(struct event_loop *loop, const struct transport *transport, int fd);
/* Takes ownership of the dial. `failure`: errno of an earlier failure, which `note` may describe better; 0: connect. */
struct stream *stream_connect(struct event_loop *loop, const struct transport *transport,
                              const struct connect_options *options, struct stream_dial *dial, int failure,
                              const char *note);
/* Call after `accepted` has returned. */
void stream_start(struct stream *stream);
/* Replaces the text of conn_error_text(). */
void stream_set_error_note(struct stream *stream, const char *text);

void stream_consume(struct connection *conn, size_t len);
void stream_set_reading(struct connection *conn);
void stream_flush(struct connection *conn);
size_t stream_pending(const struct connection *conn);
void stream_close(struct connection *conn);
bool stream_leave(struct connection *conn);
void stream_enter(struct connection *conn, struct event_loop *loop);
int stream_fd(const struct connection *conn);
const char *stream_error_text(const struct connection *conn);
size_t stream_memory(const struct connection *conn, size_t *input, size_t *output);
void stream_describe(const struct connection *conn, char *text, size_t size);

/* A listening socket. */
struct stream_listener {
    struct listener listener; /* must be first */
    struct event_watch watch;
    struct event_timer retry;
    int fd;
    void (*prepare)(int fd);                           /* options of an accepted socket; may be NULL */
    void (*release)(struct stream_listener *listener); /* called before the listener is freed; may be NULL */
    struct event_deferred deferred;
    bool closed;
};
/* Starts to accept. The caller allocates the struct (mem_alloc); listener_close() frees it. Returns 0 or -errno. */
int stream_listener_start(struct stream_listener *listener, const struct transport *transport, struct event_loop *loop,
                          const struct listen_options *options, int fd);
#endif
