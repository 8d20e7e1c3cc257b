/* remote.h: a connection that lives on another thread's loop, as its user sees it. The threading manual of what is
 * below the server; server/clients/io_threads.h is that of what is above.
 *
 * Roles.   A connection that was placed on a worker's loop (listen_options.place) has two halves. The END belongs to
 * the worker's thread: the real connection of whatever transport, with its descriptor or queue pair, its buffers and
 * timers. The HOME half belongs to the thread of the user: a struct connection like any other, of a transport that
 * shows the real one's name, whose input and output are memory. Who uses it cannot tell, but for what connection.h says
 * of times: what was flushed is under way, and conn_pending() counts it until the end has told that it went. Parcels.
 * The halves share nothing but what is told below; all else travels. A message is a piece of memory that belongs to one
 * thread at a time: whoever holds it. It goes through the two outboxes of the worker (event_loop.h: posts), so messages
 * of a connection arrive in the order in which they were sent. end to home   OPENED, INPUT, DRAINED (was asked for),
 * ENDED (peer closed or transport failed), GONE (last of all) home to end   INPUT returned, OUTPUT, TRUST, KEEPALIVE,
 * ASK_DRAINED, CLOSE (last of all) Input.   The end's user (remote_worker_ops.readable, on the worker's thread) looks
 * at the real connection's bytes, puts what is worth a turn into an INPUT message and consumes it. The home half shows
 * the messages' bytes one message after the other, each as `readable`; when one is consumed it goes back with the next
 * flush. So the real connection goes on receiving while its requests are executed. What is at home at a time is
 * bounded: beyond REMOTE_AT_HOME_MAX bytes reading pauses. Output.  conn->out writes into the room for replies that an
 * INPUT message brings along: the way back of the message is the way of the reply, and nothing is allocated for either.
 * What does not fit, and what is written without being asked, goes into OUTPUT messages; shared blobs travel with them.
 * The end copies small pieces to the real connection's send memory, on its own core, and shares large ones; it flushes
 * once for all messages that came together. Life.    Home closes: CLOSE follows the output, the end closes the real
 * connection, frees itself and answers GONE; until then the home half stays, closed. The end never goes by itself: when
 * the peer has gone it tells ENDED and waits for CLOSE. Shared.  Counters and sizes that home shows to people are
 * relaxed atomics written by the end; `described`, a text, has a lock. Nothing else.
 *
 * Rejected: handing the real connection itself back and forth (both sides would touch its transport's state, its loop's
 * watches and its queue pair: the way other servers went, and where their crashes are). Parsing in place without
 * consuming (saves one copy of the request's bytes on the worker's core; but over sockets all connections read into one
 * buffer, and reading would have to be paused for every request, two system calls). A lock for each connection. */
#ifndef NET_REMOTE_H
#define NET_REMOTE_H
#include "net/connection.h"

enum { REMOTE_AT_HOME_MAX = 1024 * 1024, REMOTE_DESCRIBED_MAX = 192 };

struct remote;
struct remote_end;
struct remote_worker;

enum parcel_kind {
    PARCEL_OPENED,
    PARCEL_INPUT,
    PARCEL_DRAINED,
    PARCEL_ENDED,
    PARCEL_GONE,
    PARCEL_OUTPUT,
    PARCEL_TRUST,
    PARCEL_KEEPALIVE,
    PARCEL_ASK_DRAINED,
    PARCEL_CLOSE
};

struct message {
    struct event_post post; /* must be first */
    enum parcel_kind kind;
    int number;   /* ENDED: errno; KEEPALIVE: seconds */
    bool trusted; /* INPUT returned, TRUST: conn->trusted */
    struct remote *home;
    struct remote_end *end;
    size_t size; /* bytes held, for the accounts */
    /* Input: bytes to be shown, and how many bytes of the stream they stand for. */
    const char *bytes;
    size_t len, stream_len;
    uint64_t sent; /* bytes of output that have gone by now */
    /* Output: bytes, then a blob. */
    char *reply;
    size_t reply_room, reply_len;
    struct blob *blob;
    void (*drop)(struct message *message); /* frees it, on either thread; NULL: mem_free */
};

/* The end, on the worker's thread. Embedded in what its user keeps for a connection. */
struct remote_end {
    struct connection *conn; /* the real one */
    struct remote_worker *worker;
    struct remote *home; /* whose it is; not to be looked into */
    struct list_link dirty_link, stale_link;
    size_t held;        /* bytes of memory that the user holds for it besides; the user keeps it true */
    size_t at_home;     /* bytes of input that are there */
    uint64_t taken_out; /* bytes of output that came from home */
    bool full;          /* reading is paused until some come back */
    bool paused;        /* the user paused it, remote_end_pause() */
    bool ended, drain_asked;
    /* What home shows to people. */
    _Atomic uint64_t sent;                    /* of the bytes of output */
    _Atomic size_t memory, memory_out, spare; /* in all; for output; for input, with nothing in it */
    char described[REMOTE_DESCRIBED_MAX];     /* under the worker's lock */
};

struct remote_worker_ops {
    /* A connection has come: allocate the struct that embeds its end, the end zeroed. */
    struct remote_end *(*opened)(struct remote_worker *worker, struct connection *conn);
    void (*readable)(struct remote_end *end); /* conn_peek(end->conn) has more, or a sink has filled */
    void (*returned)(struct remote_end *end,
                     struct message *message); /* an INPUT message; conn->trusted is up to date. May be NULL */
    void (*free)(struct remote_end *end);
    /* Home: what a listener's `accepted` is. */
    void (*accepted)(struct connection *conn);
};

struct remote_worker {
    const struct remote_worker_ops *ops;
    struct event_loop *loop, *home;
    struct event_outbox to_home; /* worker's thread */
    struct event_outbox to_loop; /* home's thread */
    struct list dirty;           /* ends with output to flush */
    struct list stale;           /* ends that have changed since they were described */
    struct event_timer describe;
    struct event_attachment attachment;
    struct remote_lock *lock; /* of `described` */
    size_t count;             /* connections placed there and not gone; home's */
    _Atomic uint64_t reads, writes;
};

/* Before the worker's thread runs its loop; both loops take posts from then on. */
void remote_worker_init(struct remote_worker *worker, struct event_loop *loop, struct event_loop *home,
                        const struct remote_worker_ops *ops);

/* For listeners: conn arrived on a worker's loop, on the worker's thread. */
void remote_arrived(struct connection *conn);
void remote_worker_flush(struct remote_worker *worker); /* worker's thread: now, not before the loop waits */

/* The end's user. */
struct message *remote_message_new(size_t size); /* zeroed header; bytes behind it */
void remote_send_input(struct remote_end *end, struct message *message);
void remote_end_pause(struct remote_end *end, bool pause);
void remote_message_drop(struct message *message);

/* Home. */
bool conn_is_remote(const struct connection *conn);
struct message *remote_shown(const struct connection *conn); /* whose bytes conn->in shows; NULL: none */
#endif
