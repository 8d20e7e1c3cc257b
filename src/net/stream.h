/* stream.h: a connection over a stream socket, for tcp.c and unix.c: everything but the addresses.
 *
 * Receiving.  All connections of a loop read into one shared buffer; the bytes are shown there while `readable` runs,
 * and only what is then left unconsumed is copied out. An idle connection holds no receive memory. While a handler that
 * was shown the shared buffer is on the stack (it may turn the loop), others read into memory of their own. Sending.
 * conn->out writes into a chunk from the loop's pool. A flush writes it with one system call and the chunk goes back.
 *   Only what a flush could not write, and shared blobs, become segments in a queue, written by writev.
 * Ending.  A socket that is closed while input lies unread in it, or comes later, is reset by the kernel, which then
 * drops what it has not yet sent: the last reply is lost, and it is the one that says why. So who has accepted a
 * connection and wrote to it says that there is no more (shutdown), and keeps the socket until the peer ends too: for
 * LINGER_US, LINGER_BYTES of input, and LINGER_MAX such sockets of a loop at most. Rejected: to do so for connections
 * that we made; who calls has nothing to tell any more. */
#ifndef NET_STREAM_H
#define NET_STREAM_H
#include "net/connection.h"

enum { STREAM_IN_LIMIT_DEFAULT = 1024 * 1024 * 1024, ACCEPT_BATCH_DEFAULT = 10 };

struct stream_pool;
struct stream_chunk;
struct stream_dial;

struct stream {
    struct connection conn; /* must be first */
    int fd;
    int write_error; /* writing has failed; reading finds the end */
    struct event_watch watch;
    struct event_timer timer; /* connecting: the limit; open: tells of a failure from the loop */
    struct stream_pool *pool;
    struct stream_dial *dial; /* while connecting */
    char *error_note;         /* text of a failure that errno does not tell, or NULL */
    char *own;                /* receive memory of its own: unconsumed bytes between two reads */
    size_t own_size;
    struct stream_chunk *chunk; /* that conn.out writes to */
    char *chunk_start;          /* its bytes from here to conn.out.pos belong to no segment yet */
    struct list segments;
    size_t queued; /* bytes in segments */
    bool blocked;  /* the socket took no more; waiting to write */
    bool showing;  /* `readable` is on the stack: an inner turn of the loop must not move what it looks at */
    bool accepted; /* the peer called us */
    struct list_link linger_link; /* closed, and waiting for the peer's end */
    size_t lingered;              /* bytes that came meanwhile */
};

/* How a transport makes its outgoing sockets. */
struct stream_dial {
    /* Starts the next attempt: a descriptor, connected or connecting (`*in_progress`); -errno when nothing is left to
     * try; -EAGAIN: try again in a moment. */
    int (*attempt)(struct stream_dial *dial, bool *in_progress);
    void (*free)(struct stream_dial *dial);
    uint64_t deadline_us;
    int last_error;
};

struct stream *stream_accept(struct event_loop *loop, const struct transport *transport, int fd);
/* Takes the dial over. `failure`: errno of what already failed (then `note` may say it better), 0: go. */
struct stream *stream_connect(struct event_loop *loop, const struct transport *transport,
                              const struct connect_options *options, struct stream_dial *dial, int failure,
                              const char *note);
/* Call after `accepted` has returned. */
void stream_start(struct stream *stream);

void stream_consume(struct connection *conn, size_t len);
void stream_set_reading(struct connection *conn);
void stream_flush(struct connection *conn);
size_t stream_pending(const struct connection *conn);
void stream_close(struct connection *conn);
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
    void (*release)(struct stream_listener *listener); /* before it goes; may be NULL */
    struct event_deferred deferred;
    bool closed;
};
/* Starts to watch. The struct is the caller's allocation (mem_alloc) and is freed with listener_close. 0 or -errno. */
int stream_listener_start(struct stream_listener *listener, const struct transport *transport, struct event_loop *loop,
                          const struct listen_options *options, int fd);
#endif
