/* remote.h: a connection on another thread's loop, as its user sees it. This is the threading manual of the layers
 * below the server; server/clients/io_threads.h is the one of the layers above.
 *
 * Roles
 *   A connection that was placed on a worker's loop (listen_options.place) has two halves. The END belongs to the
 *   worker's thread: the real connection of any transport, with its descriptor or queue pair, its buffers and timers.
 *   The HOME half belongs to the user's thread: an ordinary struct connection whose transport has the real one's name
 *   and whose input and output are in memory. The user notices only a difference in time (connection.h): flushed output
 *   is in transit, and conn_pending() counts it until the end has reported it as sent.
 *
 * Messages
 *   The halves share nothing except what is listed below; everything else travels in messages. A message is a piece of
 *   memory that belongs to one thread at a time. It goes through the two outboxes of the worker (event_loop.h: posts),
 *   so the messages of a connection arrive in the order in which they were sent.
 *     end to home   OPENED, INPUT, DRAINED (if requested), GROWN (if requested), LEFT (the reply to LEAVE), ENDED (peer
 *                   closed or transport failed), GONE (the last)
 *     home to end   INPUT returned, READ_ON, OUTPUT, TRUST, KEEPALIVE, NODELAY, ASK_DRAINED, LEAVE, ENTER, CLOSE (the
 *                   last)
 *
 * Input
 *   The end's user (remote_worker_ops.readable, on the worker's thread) examines the real connection's bytes, copies
 *   those that it passes on into an INPUT message and consumes them. The home half exposes the bytes of one
 *   message after the other and calls `readable` for each. A consumed message returns with the next flush. So the real
 *   connection keeps receiving while its requests are executed. The input at home is limited: beyond
 *   REMOTE_AT_HOME_MAX bytes the end pauses reading, because the user is slower than the peer. This limit is lifted
 *   (READ_ON) while the user leaves its input unconsumed with reading on: the peer's end may be behind the bytes of a
 *   user that waits for something else, and over TCP only reading finds it. Then conn->in_limit is the limit, of
 *   remote_unread(), and `readable` is called for such messages although they cannot be exposed yet.
 *
 * Output
 *   conn->out writes into the reply space of an INPUT message. The returning message carries the reply, so neither
 *   allocates memory. Output that does not fit, and output without a request, goes into OUTPUT messages; shared blobs
 *   and placements travel with them. The end copies small pieces to the real connection's send memory, on its own core,
 * and shares large ones. It flushes once for all messages that arrived together.
 *
 * Lifetime
 *   Home closes a connection by CLOSE, after the output. The end closes the real connection, frees itself and answers
 *   GONE; until then the home half remains, closed. The end never frees itself before: when the peer closes, it sends
 *   ENDED and waits for CLOSE. `closed` follows the input before it; if that input waits, `hung_up` is called first.
 *
 * Moving
 *   remote_leave() asks the end to leave its loop (LEAVE). The end sends the output that came before; if nothing is
 *   pending then and no input is at home, it takes the real connection from its loop and answers LEFT. From the request
 *   to the answer, home keeps its messages. A connection that has left belongs to home: remote_worker_ops.left()
 *   chooses the next worker, which gets the same end with ENTER, or takes the real connection for home's own loop with
 *   remote_take(). The messages that home kept follow. remote_adopt() is the reverse of remote_take(). The user's half
 *   stays the same when a connection moves from one worker to another, so the user notices nothing, not even within a
 *   request. RDMA connections do not move: their queue pairs complete into the queues of their thread.
 *
 * Calls
 *   remote_run() runs a function on the worker's thread with the real connection, and home waits for it. It is for rare
 *   work that only the owner of the connection can do, such as registering memory (rdma/read.h). It takes one turn of
 *   the worker's loop; a worker never waits for home, so that this cannot deadlock.
 *
 * Shared
 *   The end writes counters and sizes as relaxed atomics, which home displays. A lock protects the text `described`.
 *
 * Rejected
 *   Handing the real connection itself back and forth: both sides would touch the state of its transport, its loop's
 *   watches and its queue pair.
 *   Parsing in place without consuming: it saves one copy of the request on the worker's core, but over sockets all
 *   connections read into one buffer, and reading would have to be paused for every request, two system calls.
 *   A lock for each connection. */
#pragma once
#include "net/connection.h"

enum { REMOTE_AT_HOME_MAX = 1024 * 1024, REMOTE_DESCRIBED_MAX = 192 };

struct remote;
struct remote_end;
struct remote_worker;

enum message_kind {
    MESSAGE_OPENED,
    MESSAGE_INPUT,
    MESSAGE_DRAINED,
    MESSAGE_GROWN,
    MESSAGE_ENDED,
    MESSAGE_GONE,
    MESSAGE_READ_ON,
    MESSAGE_OUTPUT,
    MESSAGE_TRUST,
    MESSAGE_KEEPALIVE,
    MESSAGE_NODELAY,
    MESSAGE_ASK_DRAINED,
    MESSAGE_LEAVE,
    MESSAGE_LEFT,
    MESSAGE_ENTER,
    MESSAGE_CLOSE
};

struct remote_message {
    struct event_post post; /* must be first; its drop() frees the message, on either thread */
    enum message_kind kind;
    int number;   /* ENDED: errno; KEEPALIVE: seconds; NODELAY, READ_ON, LEFT: whether; CLOSE: conn->drops_output */
    bool trusted; /* INPUT returned, TRUST: conn->trusted */
    struct remote *home;
    struct remote_end *end;
    size_t size; /* bytes held, for memory accounting */
    /* Input: the bytes to expose, and the number of bytes of the stream they represent. */
    const char *bytes;
    size_t len, stream_len;
    uint64_t sent; /* bytes of output sent so far */
    /* Output: bytes, then a blob, or a placement. */
    char *reply;
    size_t reply_capacity, reply_len;
    struct blob *blob;
    struct placement *placement;
};

/* The end, on the worker's thread. Its user embeds it in its own struct for a connection. */
struct remote_end {
    struct connection *conn; /* the real connection */
    struct remote_worker *worker;
    struct remote *home; /* opaque here */
    struct list_link dirty_link, stale_link;
    size_t held;        /* further bytes of memory that the user holds for it; the user updates it */
    size_t at_home;     /* bytes of input that are at home */
    uint64_t taken_out; /* bytes of output received from home */
    bool full;          /* reading is paused until messages return */
    bool reads_on;      /* REMOTE_AT_HOME_MAX is lifted */
    bool paused;        /* the user paused it, remote_end_pause() */
    bool finished;      /* remote_end_finish() */
    bool ended, drain_asked;
    /* Values that home displays. */
    _Atomic uint64_t sent;                    /* bytes of output */
    _Atomic size_t memory, memory_out, spare; /* in total; for output; for input, without the bytes of input */
    _Atomic size_t waiting, queued;           /* input that is in no message yet; output that the transport holds */
    _Atomic uint64_t sent_home;               /* bytes of input in all messages, as message->size */
    size_t reported_memory;                   /* that the last GROWN reported */
    char described[REMOTE_DESCRIBED_MAX];     /* under the worker's lock */
};

struct remote_worker_ops {
    /* A connection arrived: allocates the struct that embeds its end, with the end zeroed. */
    struct remote_end *(*opened)(struct remote_worker *worker, struct connection *conn);
    void (*readable)(struct remote_end *end); /* conn_peek(end->conn) has more, or a sink has filled */
    void (*returned)(struct remote_end *end,
                     struct remote_message *message); /* an INPUT message; conn->trusted is up to date. May be NULL */
    void (*free)(struct remote_end *end);
    /* On the home thread: what a listener's `accepted` is. */
    void (*accepted)(struct connection *conn);
    /* On the home thread, outside all handlers: the connection has left its worker, as remote_leave() asked. Returns
     * the worker that takes it, which may be the same, or NULL after remote_take(). NULL if no connection leaves. */
    struct remote_worker *(*left)(struct connection *conn);
    bool (*idle)(const struct remote_end *end); /* holds nothing of the stream; for remote_take() */
    /* Bytes of input that are received and in no message yet, without those of complete arguments. May be NULL. */
    size_t (*waiting)(const struct remote_end *end);
    /* On the home thread, before an INPUT message is handled: may look at it and at those behind it
     * (remote_next_message()), and changes nothing. May be NULL. */
    void (*upcoming)(struct remote_message *message);
};

struct remote_worker {
    const struct remote_worker_ops *ops;
    struct event_loop *loop, *home;
    struct event_outbox to_home; /* worker's thread */
    struct event_outbox to_loop; /* home's thread */
    struct list dirty;           /* ends with output to flush */
    struct list stale;           /* ends that changed since `described` was written */
    struct event_timer describe;
    struct event_attachment attachment;
    struct remote_lock *lock; /* of `described` */
    bool stopped;             /* its thread has ended; home's thread */
    size_t count;             /* connections placed on the worker that have not gone or left; home's thread */
    _Atomic uint64_t reads, writes;
    uint64_t handed;        /* bytes of messages with output given to the ends; home's thread */
    _Atomic uint64_t taken; /* of them, those that the ends have received */
};

/* Call before the worker's thread runs its loop; both loops accept posts from then on. */
void remote_worker_init(struct remote_worker *worker, struct event_loop *loop, struct event_loop *home,
                        const struct remote_worker_ops *ops);

/* The `arrived` of listeners: conn arrived on a worker's loop, on the worker's thread. */
void remote_arrived(struct connection *conn);
void remote_worker_flush(struct remote_worker *worker); /* worker's thread: now, not before the loop waits */

/* For the end's user. */
/* Returns a zeroed header with `size` bytes, itself included. A drop() of the user's, in place of the default one, ends
 * with remote_message_free(). */
struct remote_message *remote_message_new(size_t size);
struct remote_message *remote_message_try_new(size_t size); /* NULL: out of memory */
void remote_message_free(struct event_post *post);
void remote_send_input(struct remote_end *end, struct remote_message *message);
void remote_end_pause(struct remote_end *end, bool pause);
void remote_end_finish(struct remote_end *end); /* reads nothing more, and drops what comes before the end */

/* For the home thread. */
bool conn_is_remote(const struct connection *conn);
/* Bytes of the messages with output that no end of the worker has received. */
size_t remote_in_transit(const struct remote_worker *worker);
size_t remote_unread(const struct connection *conn);  /* bytes that are at home and not consumed */
size_t remote_waiting(const struct connection *conn); /* bytes received, in either half, and not shown yet */
/* Bytes of output for display: without those that the transport has queued, but with those in transit to the end, which
 * the peer may have received before the end reports them as sent. */
uint64_t remote_bytes_out(const struct connection *conn);
/* From now on an end whose memory has grown by `step` bytes (0: never) notifies home, which calls `grown` of the
 * connection's events. */
void remote_report_growth(size_t step);
struct remote_message *remote_shown(const struct connection *conn); /* the message that conn->in points into, or NULL */
/* Within upcoming(): the message that home handles after this one in this turn; NULL: there is none. */
struct remote_message *remote_next_message(const struct remote_message *message);
/* The connection that the message concerns; NULL: it is closed. */
struct connection *remote_message_connection(const struct remote_message *message);
/* Runs `run` on the worker's thread and returns when it has ended. False: it was not run, because conn is closed or the
 * worker has stopped. `run` must not close the connection. */
bool remote_run(struct connection *conn, void (*run)(struct connection *real, void *context), void *context);
/* Moving. All on the home thread, outside handlers and callbacks of the connection. */
struct remote_worker *remote_worker_of(const struct connection *conn);
bool remote_can_leave(const struct connection *conn);  /* its transport can move it */
bool remote_is_leaving(const struct connection *conn); /* from remote_leave() on, until it is on a worker again */
/* Asks the end to leave; remote_worker_ops.left() follows unless the end is busy. False: home is busy with it now, or
 * it is on its way already. Try again later in both cases. */
bool remote_leave(struct connection *conn);
/* Within left(): returns the real connection, on home's loop, with the events, the owner and the counters of conn,
 * which is gone. NULL: a part of a request is in the end or output waits; then return a worker. */
struct connection *remote_take(struct connection *conn);
/* Moves home's own connection to the worker. Returns its half at home, which takes over events, owner and counters, and
 * replaces it. NULL: it cannot move, or not now. The caller has consumed all input. */
struct connection *remote_adopt(struct remote_worker *worker, struct connection *conn);
/* The worker's thread has ended. */
void remote_worker_stopped(struct remote_worker *worker);
