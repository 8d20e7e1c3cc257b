/* stream.c: reading, writing, connecting and accepting on stream sockets. stream.h describes the design.
 *
 * The loop reads once for each readiness event. If the kernel still holds bytes after that, the level-triggered epoll
 * reports them again, after the other connections had their turn. Failures found while writing are reported to the
 * owner by a timer that is due at once, never from inside conn_flush(). */
#include "net/stream.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SHARED_SIZE = 64 * 1024,
    JOIN_MAX = 16 * 1024,   /* leftovers up to this size are copied in front of the next read */
    OWN_SPACE = 16 * 1024,  /* minimum size of a read into private memory */
    CHUNK_SIZE = 16 * 1024, /* header included */
    CHUNK_SMALL = 512,
    CHUNKS_KEPT = 64,
    PIECES_A_WRITE = 64,
    WRITTEN_A_TURN = 1024 * 1024, /* bytes to write before other connections get their turn */
    RETRY_US = 1000,
    ACCEPT_PAUSE_US = 100 * 1000,
    HANDSHAKES_BEYOND = 16, /* at once, for peers that get the error of maxclients */
    LINGER_US = 2 * 1000 * 1000,
    LINGER_BYTES = 16 * 1024 * 1024,
    LINGER_MAX = 64,
    LINGER_READS = 4, /* reads in one iteration */
};

struct stream_chunk {
    struct output_chunk queued; /* must be first */
    uint32_t size;              /* header included */
    struct stream_chunk *next_free;
    char data[];
};

/* State shared by all streams of a loop. */
struct stream_pool {
    struct event_attachment attachment;
    struct event_loop *loop;
    bool lent; /* a handler on the stack uses `shared` */
    unsigned free_count;
    unsigned used_count; /* chunks that streams hold */
    struct stream_chunk *free;
    char *shared;
    struct list handshakes; /* accepted streams that are not complete, the oldest first */
    struct list has_input;  /* streams that can be read although their socket may not be readable */
    struct list lingering;  /* streams, the oldest first */
    struct event_timer input_timer;
};

/* An accepted stream until its handshake is complete. */
struct stream_handshake {
    struct stream_listener *listener;         /* that accepted it, or NULL: placed on this loop */
    void (*arrived)(struct connection *conn); /* when placed */
};

struct stream_settings stream_settings = {.handshake_timeout_ms = 10 * 1000};
struct stream_stats stream_stats;

static struct stream *stream_of(const struct connection *conn) {
    return (struct stream *)(uintptr_t)conn;
}

/* Plain sockets */

static inline ssize_t plain_read(struct stream *s, const struct iovec *parts, int count) {
    ssize_t n = count == 1 ? read(s->fd, parts->iov_base, parts->iov_len) : readv(s->fd, parts, count);
    return n < 0 ? -errno : n;
}

static inline ssize_t plain_write(struct stream *s, const struct iovec *parts, int count) {
    ssize_t n;
    if (count == 1)
        n = send(s->fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL);
    else {
        struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
        n = sendmsg(s->fd, &message, MSG_NOSIGNAL);
    }
    return n < 0 ? -errno : n;
}

const struct stream_io stream_io_plain = {.read = plain_read, .write = plain_write};

/* The comparison lets the compiler put the system calls of plain sockets here, without a call through the table. */
static inline ssize_t io_read(struct stream *s, const struct iovec *parts, int count) {
    return __builtin_expect(s->io->read == plain_read, 1) ? plain_read(s, parts, count) : s->io->read(s, parts, count);
}
static inline ssize_t io_write(struct stream *s, const struct iovec *parts, int count) {
    return __builtin_expect(s->io->write == plain_write, 1) ? plain_write(s, parts, count)
                                                            : s->io->write(s, parts, count);
}

/* The pool */

static const char pool_key;

static void linger_end(struct stream *s);
static void arrival_drop(struct stream *s);

static void pool_free(struct event_attachment *attachment) {
    struct stream_pool *pool = container_of(attachment, struct stream_pool, attachment);
    while (pool->handshakes.len) arrival_drop(container_of(list_first(&pool->handshakes), struct stream, pool_link));
    while (pool->lingering.len) linger_end(container_of(list_first(&pool->lingering), struct stream, pool_link));
    while (pool->free) {
        struct stream_chunk *chunk = pool->free;
        pool->free = chunk->next_free;
        mem_free(chunk);
    }
    mem_free(pool->shared);
    mem_free(pool);
}

static struct stream_pool *pool_of(struct event_loop *loop) {
    struct event_attachment *attachment = event_loop_attachment(loop, &pool_key);
    if (attachment) return container_of(attachment, struct stream_pool, attachment);
    struct stream_pool *pool = mem_calloc(1, sizeof *pool);
    pool->loop = loop;
    pool->shared = mem_alloc(SHARED_SIZE);
    list_init(&pool->handshakes);
    list_init(&pool->has_input);
    list_init(&pool->lingering);
    pool->attachment.key = &pool_key;
    pool->attachment.free = pool_free;
    event_loop_attach(loop, &pool->attachment);
    return pool;
}

/* Space for at least `len` bytes more of a stream that has `queued` bytes in other chunks. While many streams hold
 * chunks, which happens when one command writes to thousands of clients, their chunks begin small and grow: each would
 * otherwise be 16 KiB of memory that the kernel has to map again. */
static struct stream_chunk *chunk_take(struct stream_pool *pool, size_t len, size_t queued) {
    struct stream_chunk *chunk = pool->free;
    if (chunk) {
        pool->free = chunk->next_free;
        pool->free_count--;
    } else {
        size_t size = CHUNK_SIZE;
        if (pool->used_count >= CHUNKS_KEPT) {
            size = sizeof *chunk + (len > queued * 4 ? len : queued * 4);
            if (size < CHUNK_SMALL) size = CHUNK_SMALL;
            if (size > CHUNK_SIZE) size = CHUNK_SIZE;
        }
        chunk = mem_alloc(size);
        chunk->size = (uint32_t)size;
    }
    pool->used_count++;
    chunk->queued.segments = 0;
    return chunk;
}

/* NULL is allowed. */
static void chunk_give(struct stream_pool *pool, struct output_chunk *queued) {
    struct stream_chunk *chunk = (struct stream_chunk *)queued;
    if (!chunk) return;
    pool->used_count--;
    if (pool->free_count == CHUNKS_KEPT || chunk->size < CHUNK_SIZE) {
        mem_free(chunk);
        return;
    }
    chunk->next_free = pool->free;
    pool->free = chunk;
    pool->free_count++;
}

/* Output */

static void first_remove(struct stream *s) {
    chunk_give(s->pool, output_queue_remove(&s->output, output_queue_first(&s->output)));
}

static void leave_chunk(struct stream *s) {
    chunk_give(s->pool, output_queue_leave(&s->output, &s->conn.out));
}

static void drop_output(struct stream *s) {
    while (s->output.segments.len) first_remove(s);
    leave_chunk(s);
    s->blocked = false;
}

/* A peer that has ended without an error may have shut down only its sending direction. */
static bool takes_output(const struct stream *s) {
    return s->conn.state != CONN_CLOSED && !s->conn.error && !s->write_error;
}

static void stream_make_space(struct output *out, size_t len) {
    struct stream *s = stream_of((struct connection *)out);
    if (!takes_output(s)) {
        output_discard(out);
        return;
    }
    output_queue_seal(&s->output, out);
    leave_chunk(s);
    struct stream_chunk *chunk = chunk_take(s->pool, len, s->output.queued);
    output_queue_open(&s->output, out, &chunk->queued, chunk->data, chunk->size - sizeof *chunk);
}

static void stream_share(struct output *out, struct blob *blob) {
    struct stream *s = stream_of((struct connection *)out);
    if (!takes_output(s) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    output_queue_share(&s->output, out, blob);
}

static const struct output_ops stream_output_ops = {
    .make_space = stream_make_space, .share = stream_share, .share_min = OUTPUT_SHARE_MIN};

size_t stream_pending(const struct connection *conn) {
    return output_queue_pending(&stream_of(conn)->output, &conn->out);
}

static void update_interest(struct stream *s);
static void stream_ready(struct event_watch *watch, int mask);

static uint64_t tell_failure(struct event_timer *timer) {
    struct stream *s = container_of(timer, struct stream, timer);
    s->conn.state = CONN_ENDED;
    s->conn.events->closed(&s->conn);
    return 0;
}

/* Ends a connection whose failure was found outside the loop's own calls. */
static void fail_later(struct stream *s, int error) {
    s->conn.error = error;
    drop_output(s);
    event_watch_remove(s->conn.loop, &s->watch);
    event_timer_set(s->conn.loop, &s->timer, 0, tell_failure);
}

static void end_now(struct stream *s, int error) {
    s->conn.error = error;
    s->conn.state = CONN_ENDED;
    if (error) {
        drop_output(s);
        event_watch_remove(s->conn.loop, &s->watch);
    } else
        update_interest(s);
    event_timer_cancel(s->conn.loop, &s->timer);
    s->conn.events->closed(&s->conn);
}

/* Removes `len` written bytes from the queue. */
static void advance(struct stream *s, size_t len) {
    s->conn.bytes_out += len;
    while (len) {
        struct output_segment *segment = output_queue_first(&s->output);
        if (len < segment->len) {
            output_queue_advance(&s->output, segment, len);
            break;
        }
        len -= segment->len;
        first_remove(s);
    }
}

/* Writes the queue. Returns 0: all written; 1: the socket is full or the limit of this turn is reached; -errno. */
static int write_queue(struct stream *s) {
    const struct list *segments = &s->output.segments;
    size_t written = 0;
    while (segments->len) {
        struct iovec pieces[PIECES_A_WRITE];
        int count = 0;
        size_t total = 0;
        for (const struct list_link *link = segments->head.next; link != &segments->head; link = link->next) {
            const struct output_segment *segment = container_of(link, const struct output_segment, link);
            pieces[count].iov_base = (void *)(uintptr_t)segment->data;
            pieces[count].iov_len = segment->len;
            total += segment->len;
            if (++count == PIECES_A_WRITE || total >= WRITTEN_A_TURN) break;
        }
        ssize_t n = io_write(s, pieces, count);
        if (n < 0) {
            if (n == -EINTR) continue;
            return n == -EAGAIN ? 1 : (int)n;
        }
        advance(s, (size_t)n);
        written += (size_t)n;
        if ((size_t)n < total || (written >= WRITTEN_A_TURN && segments->len)) return 1;
    }
    return 0;
}

/* Writes all output. Returns the same as write_queue(). */
static int write_all(struct stream *s) {
    struct output_queue *output = &s->output;
    if (output->segments.len == 0) {
        size_t len = output_queue_unsealed(output, &s->conn.out);
        while (len) {
            struct iovec piece = {output->chunk_start, len};
            ssize_t n = io_write(s, &piece, 1);
            if (n < 0) {
                if (n == -EINTR) continue;
                return n == -EAGAIN ? 1 : (int)n;
            }
            s->conn.bytes_out += (size_t)n;
            output->chunk_start += n;
            if ((size_t)n < len) return 1;
            break;
        }
    } else {
        output_queue_seal(output, &s->conn.out);
        int result = write_queue(s);
        if (result != 0) return result;
    }
    leave_chunk(s);
    return 0;
}

/* Bytes that the peer sent before it closed may still be in the socket: reading finds the end, if reading is on. */
static void write_failed(struct stream *s, int error) {
    s->write_error = error;
    drop_output(s);
    if (s->conn.state == CONN_OPEN && !(s->watch.mask & EVENT_READ)) fail_later(s, error);
}

void stream_flush(struct connection *conn) {
    struct stream *s = stream_of(conn);
    if (s->blocked || conn->state < CONN_OPEN || !takes_output(s)) return;
    int result = write_all(s);
    if (result == 0) return;
    if (result < 0)
        write_failed(s, -result);
    else
        s->blocked = true;
    update_interest(s);
}

/* Input */

/* A read stopped before it had taken all input of the I/O table, so that the others had their turn. */
static uint64_t read_again(struct event_timer *timer) {
    struct stream_pool *pool = container_of(timer, struct stream_pool, input_timer);
    for (size_t left = pool->has_input.len; left > 0 && pool->has_input.len > 0; left--) {
        struct stream *s = container_of(list_first(&pool->has_input), struct stream, pool_link);
        list_remove(&pool->has_input, &s->pool_link);
        if (s->watch.mask & EVENT_READ && !s->showing) stream_ready(&s->watch, EVENT_READ); /* it may queue it again */
    }
    return 0;
}

static void queue_input(struct stream *s) {
    if (list_is_linked(&s->pool_link) || !s->io->has_input(s)) return;
    list_append(&s->pool->has_input, &s->pool_link);
    if (!s->pool->input_timer.heap_index) event_timer_set(s->pool->loop, &s->pool->input_timer, 0, read_again);
}

static bool wants_input(const struct stream *s) {
    const struct connection *conn = &s->conn;
    return !conn->reading_paused && (conn->sink || conn->in_len < conn->in_limit);
}

static void update_interest(struct stream *s) {
    struct connection *conn = &s->conn;
    bool blocked = s->blocked, open = conn->state == CONN_OPEN;
    if ((!open && conn->state != CONN_ENDED) || conn->error) return;
    bool wants = open && wants_input(s);
    if (wants && s->io->has_input) queue_input(s);
    if (__builtin_expect(s->wants_read && blocked, 0)) wants = true, blocked = false;
    int mask = (wants ? EVENT_READ : 0) | (blocked || s->wants_write ? EVENT_WRITE : 0);
    if (mask == s->watch.mask) return;
    int result = event_watch_set(conn->loop, &s->watch, s->fd, mask, stream_ready);
    if (result >= 0) return;
    if (open)
        fail_later(s, -result);
    else
        write_failed(s, -result);
}

void stream_set_reading(struct connection *conn) {
    update_interest(stream_of(conn));
}

void stream_consume(struct connection *conn, size_t len) {
    bool was_full = conn->in_len >= conn->in_limit;
    conn->in += len;
    conn->in_len -= len;
    if (was_full) update_interest(stream_of(conn));
}

/* Makes space behind the unconsumed bytes in private memory. */
static void own_make_space(struct stream *s) {
    struct connection *conn = &s->conn;
    size_t at = conn->in_len ? (size_t)(conn->in - s->own) : 0;
    size_t space = conn->in_len > OWN_SPACE ? conn->in_len : OWN_SPACE;
    if (s->own && s->own_size - at - conn->in_len >= OWN_SPACE) return;
    if (s->own && at && s->own_size - conn->in_len >= space) {
        memmove(s->own, conn->in, conn->in_len);
        conn->in = s->own;
        return;
    }
    char *grown = mem_alloc_usable(conn->in_len + space, &s->own_size);
    if (conn->in_len) memcpy(grown, conn->in, conn->in_len);
    mem_free(s->own);
    s->own = grown;
    conn->in = grown;
}

/* Call after a handler: moves what is left out of the shared buffer, and frees private memory that is empty. */
static void settle(struct stream *s, bool shared) {
    struct connection *conn = &s->conn;
    if (conn->in_len == 0) {
        conn->in = NULL;
        mem_free(s->own);
        s->own = NULL;
        s->own_size = 0;
    } else if (shared) {
        if (s->own_size < conn->in_len) {
            mem_free(s->own);
            s->own = mem_alloc_usable(conn->in_len, &s->own_size);
        }
        memcpy(s->own, conn->in, conn->in_len);
        conn->in = s->own;
    }
    update_interest(s);
}

/* Adds `n` bytes that were read: the first of them to the sink, the others at conn->in + in_len. */
static void take_in(struct connection *conn, size_t n) {
    conn->bytes_in += n;
    if (conn->sink) {
        size_t part = n < conn->sink_len ? n : conn->sink_len;
        conn->sink_len -= part;
        conn->sink = conn->sink_len ? conn->sink + part : NULL;
        n -= part;
    }
    conn->in_len += n;
}

static void stream_read(struct stream *s) {
    struct connection *conn = &s->conn;
    struct stream_pool *pool = s->pool;
    bool shared = !pool->lent && conn->in_len <= JOIN_MAX;
    char *base;
    size_t space;
    if (shared) {
        base = pool->shared + conn->in_len;
        space = SHARED_SIZE - conn->in_len;
    } else {
        own_make_space(s);
        base = s->own + (conn->in_len ? (size_t)(conn->in - s->own) : 0) + conn->in_len;
        space = s->own_size - (size_t)(base - s->own);
    }
    if (conn->in_len < conn->in_limit && space > conn->in_limit - conn->in_len) space = conn->in_limit - conn->in_len;
    struct iovec parts[2] = {{conn->sink, conn->sink_len}, {base, space}};
    ssize_t n = conn->sink ? io_read(s, parts, 2) : io_read(s, parts + 1, 1);
    if (n <= 0) {
        int error = (int)-n;
        if (conn->in_len == 0) settle(s, false);
        if (error == EAGAIN || error == EINTR) return;
        end_now(s, error ? error : s->write_error);
        return;
    }
    if (shared) {
        if (conn->in_len) memcpy(pool->shared, conn->in, conn->in_len);
        conn->in = pool->shared;
    } else if (conn->in_len == 0)
        conn->in = s->own;
    take_in(conn, (size_t)n);
    if (shared) pool->lent = true;
    s->showing = true;
    conn->events->readable(conn);
    s->showing = false;
    if (shared) pool->lent = false;
    if (conn->state != CONN_CLOSED) settle(s, shared);
}

static void stream_ready(struct event_watch *watch, int mask) {
    struct stream *s = container_of(watch, struct stream, watch);
    struct connection *conn = &s->conn;
    if (__builtin_expect(s->wants_read && mask & EVENT_READ, 0)) {
        s->wants_read = false;
        mask |= EVENT_WRITE;
        update_interest(s);
    }
    if ((mask & EVENT_WRITE) && s->blocked) {
        int result = write_all(s);
        if (result < 0) {
            write_failed(s, -result);
            update_interest(s);
        } else if (result == 0) {
            s->blocked = false;
            update_interest(s);
        } else if (s->wants_read)
            update_interest(s);
        bool over = result < 0 && conn->state == CONN_ENDED; /* nothing else reports that the queue is gone */
        if ((result == 0 || over) && conn->events->drained) conn->events->drained(conn);
        if (conn->state != CONN_OPEN || conn->error) return;
    }
    if (s->wants_write && mask & EVENT_WRITE) {
        s->wants_write = false;
        mask |= EVENT_READ;
    }
    if (!(mask & EVENT_READ) || !(watch->mask & EVENT_READ) || !wants_input(s)) return;
    if (s->showing)
        event_watch_set(conn->loop, watch, s->fd, watch->mask & ~EVENT_READ, stream_ready); /* settle() sets it again */
    else
        stream_read(s);
}

/* Opening and closing */

static struct stream *stream_new(struct event_loop *loop, const struct transport *transport, int fd,
                                 enum connection_state state) {
    struct stream *s = mem_calloc(1, sizeof *s);
    s->conn.out.ops = &stream_output_ops;
    s->conn.transport = transport;
    s->io = transport->io;
    s->conn.loop = loop;
    s->conn.state = state;
    s->conn.in_limit = STREAM_IN_LIMIT_DEFAULT;
    s->fd = fd;
    s->watch.fd = -1;
    s->pool = pool_of(loop);
    output_queue_init(&s->output);
    return s;
}

struct stream *stream_accept(struct event_loop *loop, const struct transport *transport, int fd) {
    struct stream *s = stream_new(loop, transport, fd, CONN_OPEN);
    s->accepted = true;
    return s;
}

void stream_start(struct stream *s) {
    if (s->conn.state == CONN_OPEN) update_interest(s);
}

static void stream_free(struct event_deferred *deferred) {
    struct stream *s = stream_of(container_of(deferred, struct connection, deferred));
    mem_free(s->arrival);
    mem_free(s->own);
    mem_free(s->error_note);
    mem_free(s);
}

static void session_end(struct stream *s, bool orderly) {
    if (!s->session) return;
    if (orderly) s->io->shutdown(s);
    s->io->free(s);
    s->session = NULL;
}

/* Lingering: the owner closed the stream, the sending direction is shut down, and the stream waits for the peer's end.
 */

static void linger_end(struct stream *s) {
    list_remove(&s->pool->lingering, &s->pool_link);
    event_watch_remove(s->conn.loop, &s->watch);
    event_timer_cancel(s->conn.loop, &s->timer);
    close(s->fd);
    s->fd = -1;
    event_loop_defer(s->conn.loop, &s->conn.deferred, stream_free);
}

static uint64_t lingered_enough(struct event_timer *timer) {
    linger_end(container_of(timer, struct stream, timer));
    return 0;
}

/* Reads and discards input. False: the peer has ended, or has sent too much. */
static bool linger_drain(struct stream *s) {
    char dropped[16 * 1024];
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t n = read(s->fd, dropped, sizeof dropped);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        s->lingered += (size_t)n;
        if (n == 0 || s->lingered > LINGER_BYTES) return false;
    }
    return true;
}

static void linger_ready(struct event_watch *watch, int mask) {
    struct stream *s = container_of(watch, struct stream, watch);
    if (!linger_drain(s)) linger_end(s);
}

static bool linger_begin(struct stream *s) {
    struct connection *conn = &s->conn;
    if (!s->accepted || !(conn->bytes_out || s->arrival) || conn->error || s->write_error) return false;
    if (shutdown(s->fd, SHUT_WR) < 0 || !linger_drain(s)) return false;
    if (event_watch_set(conn->loop, &s->watch, s->fd, EVENT_READ, linger_ready) < 0) return false;
    event_timer_set(conn->loop, &s->timer, LINGER_US, lingered_enough);
    struct list *all = &s->pool->lingering;
    list_append(all, &s->pool_link);
    if (all->len > LINGER_MAX) linger_end(container_of(list_first(all), struct stream, pool_link));
    return true;
}

void stream_close(struct connection *conn) {
    struct stream *s = stream_of(conn);
    bool open = conn->state == CONN_OPEN;
    if (conn->state >= CONN_OPEN && takes_output(s)) write_all(s); /* send what the socket accepts at once */
    conn->state = CONN_CLOSED;
    conn->in_len = 0;
    conn->sink = NULL;
    event_watch_remove(conn->loop, &s->watch);
    event_timer_cancel(conn->loop, &s->timer);
    if (list_is_linked(&s->pool_link))
        list_remove(s->arrival ? &s->pool->handshakes : &s->pool->has_input, &s->pool_link);
    session_end(s, open && !conn->error && !s->write_error && !s->blocked);
    drop_output(s);
    if (open && linger_begin(s)) return;
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    if (s->dial) s->dial->free(s->dial);
    s->dial = NULL;
    event_loop_defer(conn->loop, &conn->deferred, stream_free);
}

/* Moving to another loop. Unconsumed bytes are in private memory between two reads, and OpenSSL's state is the
 * session's, so both move along. */

bool stream_leave(struct connection *conn) {
    struct stream *s = stream_of(conn);
    bool waits = s->blocked || s->wants_read || s->wants_write || s->timer.heap_index || s->showing;
    if (conn->state != CONN_OPEN || conn->error || s->write_error || waits || stream_pending(conn)) return false;
    leave_chunk(s);
    event_watch_remove(conn->loop, &s->watch);
    if (list_is_linked(&s->pool_link)) list_remove(&s->pool->has_input, &s->pool_link);
    conn->loop = NULL;
    s->pool = NULL;
    return true;
}

void stream_enter(struct connection *conn, struct event_loop *loop) {
    struct stream *s = stream_of(conn);
    conn->loop = loop;
    s->pool = pool_of(loop);
    update_interest(s);
}

/* Handshakes of accepted streams. The server knows nothing of the stream before its handshake is complete. */

static void arrival_end(struct stream *s) {
    list_remove(&s->pool->handshakes, &s->pool_link);
    event_timer_cancel(s->conn.loop, &s->timer);
    event_watch_remove(s->conn.loop, &s->watch);
    atomic_fetch_sub_explicit(&stream_stats.handshakes, 1, memory_order_relaxed);
}

/* The peer may still have to read an alert, so the socket lingers. */
static void arrival_drop(struct stream *s) {
    arrival_end(s);
    session_end(s, false);
    s->conn.state = CONN_CLOSED;
    if (linger_begin(s)) return;
    close(s->fd);
    s->fd = -1;
    event_loop_defer(s->conn.loop, &s->conn.deferred, stream_free);
}

static void arrival_fail(struct stream *s, int error) {
    static _Thread_local uint64_t last_told_us;
    struct connection *conn = &s->conn;
    char peer[128], own[128];
    conn->error = error;
    conn_format_address(conn, true, peer);
    conn_format_address(conn, false, own);
    uint64_t now = clock_mono();
    bool tell = now - last_told_us > 1000000 || last_told_us == 0; /* peers must not fill the log */
    if (tell) last_told_us = now;
    LOG(tell ? LOG_LEVEL_WARNING : LOG_LEVEL_VERBOSE, "Error accepting a client connection: %s (addr=%s laddr=%s)",
        stream_error_text(conn), peer, own);
    conn->error = 0;
    atomic_fetch_add_explicit(&stream_stats.handshakes_failed, 1, memory_order_relaxed);
    arrival_drop(s);
}

static uint64_t arrival_timeout(struct event_timer *timer) {
    arrival_fail(container_of(timer, struct stream, timer), ETIMEDOUT);
    return 0;
}

static void arrival_report(struct stream *s, struct stream_listener *listener, void (*arrived)(struct connection *)) {
    if (listener)
        listener->listener.accepted(&listener->listener, &s->conn);
    else
        arrived(&s->conn);
    stream_start(s);
}

static void arrival_ready(struct event_watch *watch, int mask) {
    struct stream *s = container_of(watch, struct stream, watch);
    int wants = 0, result = s->io->handshake(s, &wants);
    if (result == -EAGAIN) result = event_watch_set(s->conn.loop, watch, s->fd, wants, arrival_ready) < 0 ? -ENOMEM : 1;
    if (result > 0) return;
    if (result < 0) {
        arrival_fail(s, -result);
        return;
    }
    struct stream_handshake *arrival = s->arrival;
    arrival_end(s);
    s->arrival = NULL;
    s->conn.state = CONN_OPEN;
    arrival_report(s, arrival->listener, arrival->arrived);
    mem_free(arrival);
}

/* Reports an accepted stream: to the listener, or if it is NULL through `arrived`; after the handshake if there is one.
 */
static void arrival_begin(struct stream *s, struct stream_listener *listener, void (*arrived)(struct connection *)) {
    if (!s->io->handshake) {
        arrival_report(s, listener, arrived);
        return;
    }
    s->conn.state = CONN_CONNECTING;
    s->arrival = mem_alloc(sizeof *s->arrival);
    *s->arrival = (struct stream_handshake){listener, arrived};
    list_append(&s->pool->handshakes, &s->pool_link);
    atomic_fetch_add_explicit(&stream_stats.handshakes, 1, memory_order_relaxed);
    uint64_t timeout_ms = atomic_load_explicit(&stream_settings.handshake_timeout_ms, memory_order_relaxed);
    event_timer_set(s->conn.loop, &s->timer, timeout_ms * 1000, arrival_timeout);
    if (!s->io->start(s))
        arrival_fail(s, ENOMEM);
    else if (event_watch_set(s->conn.loop, &s->watch, s->fd, EVENT_READ, arrival_ready) < 0)
        arrival_fail(s, ENOMEM);
}

static void arrivals_drop(struct stream_listener *l) {
    list_each(&pool_of(l->listener.loop)->handshakes, link) {
        struct stream *s = container_of(link, struct stream, pool_link);
        if (s->arrival->listener == l) arrival_drop(s);
    }
}

int stream_fd(const struct connection *conn) {
    return stream_of(conn)->fd;
}

void stream_set_error_note(struct stream *s, const char *text) {
    mem_free(s->error_note);
    s->error_note = mem_strdup(text);
}

const char *stream_error_text(const struct connection *conn) {
    const struct stream *s = stream_of(conn);
    if (s->error_note) return s->error_note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

size_t stream_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct stream *s = stream_of(conn);
    const struct output_queue *q = &s->output;
    const struct stream_chunk *chunk = (const struct stream_chunk *)q->chunk;
    size_t in = s->own_size,
           out = q->queued + (chunk ? chunk->size : 0) + q->segments.len * sizeof(struct output_segment);
    if (input) *input = in;
    if (output) *output = out;
    return sizeof *s + in + out + (s->session ? s->io->memory(s) : 0);
}

void stream_describe(const struct connection *conn, char *text, size_t size) {
    if (size) text[0] = '\0';
}

/* Connecting */

static void dial_next(struct stream *s);
static uint64_t dial_timer(struct event_timer *timer);

static void dial_failed(struct stream *s, int error) {
    s->conn.state = CONN_ENDED;
    s->conn.error = error;
    event_watch_remove(s->conn.loop, &s->watch);
    event_timer_cancel(s->conn.loop, &s->timer);
    s->conn.events->closed(&s->conn);
}

static void arm_deadline(struct stream *s) {
    uint64_t now = clock_monotonic_us();
    event_timer_set(s->conn.loop, &s->timer, s->dial->deadline_us > now ? s->dial->deadline_us - now : 0, dial_timer);
}

static uint64_t dial_timer(struct event_timer *timer) {
    struct stream *s = container_of(timer, struct stream, timer);
    if (s->conn.error)
        dial_failed(s, s->conn.error);
    else if (clock_monotonic_us() >= s->dial->deadline_us)
        dial_failed(s, ETIMEDOUT);
    else if (s->fd >= 0) /* connecting, or in the handshake */
        arm_deadline(s);
    else
        dial_next(s);
    return 0;
}

static void dial_done(struct stream *s) {
    event_timer_cancel(s->conn.loop, &s->timer);
    s->dial->free(s->dial);
    s->dial = NULL;
    s->conn.state = CONN_OPEN;
    event_watch_remove(s->conn.loop, &s->watch);
    update_interest(s);
    if (s->conn.events->connected) s->conn.events->connected(&s->conn);
    if (s->conn.state == CONN_OPEN) stream_flush(&s->conn);
}

static void dial_handshake(struct event_watch *watch, int mask) {
    struct stream *s = container_of(watch, struct stream, watch);
    int wants = 0, result = s->io->handshake(s, &wants);
    if (result == -EAGAIN) {
        result = event_watch_set(s->conn.loop, watch, s->fd, wants, dial_handshake);
        if (result == 0) return;
    }
    if (result < 0)
        dial_failed(s, -result);
    else
        dial_done(s);
}

static void dial_connected(struct stream *s) {
    if (s->io->handshake)
        dial_handshake(&s->watch, 0);
    else
        dial_done(s);
}

static void dial_ready(struct event_watch *watch, int mask) {
    struct stream *s = container_of(watch, struct stream, watch);
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (error == 0) {
        dial_connected(s);
        return;
    }
    s->dial->last_error = error;
    event_watch_remove(s->conn.loop, watch);
    close(s->fd);
    s->fd = -1;
    dial_next(s);
}

static void dial_next(struct stream *s) {
    bool in_progress = false;
    int fd = s->dial->attempt(s->dial, &in_progress);
    if (fd == -EAGAIN) {
        event_timer_set(s->conn.loop, &s->timer, RETRY_US, dial_timer);
        return;
    }
    if (fd < 0) {
        dial_failed(s, -fd);
        return;
    }
    s->fd = fd;
    arm_deadline(s);
    if (!in_progress) {
        dial_connected(s);
        return;
    }
    int result = event_watch_set(s->conn.loop, &s->watch, fd, EVENT_WRITE, dial_ready);
    if (result < 0) dial_failed(s, -result);
}

struct stream *stream_connect(struct event_loop *loop, const struct transport *transport,
                              const struct connect_options *options, struct stream_dial *dial, int failure,
                              const char *note) {
    struct stream *s = stream_new(loop, transport, -1, CONN_CONNECTING);
    s->conn.events = options->events;
    s->conn.owner = options->owner;
    s->dial = dial;
    s->conn.error = failure;
    if (note) s->error_note = mem_strdup(note);
    if (dial) {
        uint64_t timeout_us = options->timeout_ms ? (uint64_t)options->timeout_ms * 1000 : 60u * 1000000u;
        dial->deadline_us = clock_monotonic_us() + timeout_us;
    }
    /* The first attempt also runs from the loop, so that no callback comes before this function returns. */
    event_timer_set(loop, &s->timer, 0, dial_timer);
    return s;
}

/* Listening */

static uint64_t accept_again(struct event_timer *timer) {
    struct stream_listener *l = container_of(timer, struct stream_listener, retry);
    event_watch_set(l->listener.loop, &l->watch, l->fd, EVENT_READ, l->watch.ready);
    return 0;
}

/* No descriptors or memory: the backlog stays readable, so stop watching it for a while instead of spinning. */
static void accept_failed(struct stream_listener *l, int error) {
    struct list *lingering = &pool_of(l->listener.loop)->lingering;
    while (lingering->len) linger_end(container_of(list_first(lingering), struct stream, pool_link));
    static _Thread_local uint64_t last_told_us;
    uint64_t now = clock_mono();
    if (now - last_told_us > 1000000 || last_told_us == 0) {
        last_told_us = now;
        log_warning("Accepting client connection on %s:%d failed: %s", l->listener.address.host,
                    l->listener.address.port, strerror(error));
    }
    event_watch_remove(l->listener.loop, &l->watch);
    event_timer_set(l->listener.loop, &l->retry, ACCEPT_PAUSE_US, accept_again);
}

/* An accepted descriptor on its way to another thread's loop. */
struct placed {
    struct event_post post; /* must be first */
    struct event_loop *loop;
    const struct transport *transport;
    void (*arrived)(struct connection *conn);
    int fd;
};

static void placed_arrives(struct event_post *post) {
    struct placed *placed = (struct placed *)post;
    arrival_begin(stream_accept(placed->loop, placed->transport, placed->fd), NULL, placed->arrived);
    mem_free(placed);
}

/* False: the connection stays on this loop. */
static bool accept_elsewhere(struct listener *listener, int fd) {
    struct event_loop *loop = listener->place ? listener->place(listener) : NULL;
    if (!loop || loop == listener->loop) return false;
    struct placed *placed = mem_alloc(sizeof *placed);
    *placed = (struct placed){.post.run = placed_arrives,
                              .loop = loop,
                              .transport = listener->transport,
                              .arrived = listener->arrived,
                              .fd = fd};
    event_loop_post(loop, &placed->post);
    return true;
}

/* The server can send the reason of a refusal only after the handshake. So it completes a few handshakes at maxclients,
 * too. */
static bool handshake_affordable(struct stream_listener *l) {
    if (!l->listener.transport->io->handshake || !l->listener.has_capacity) return true;
    if (atomic_load_explicit(&stream_stats.handshakes, memory_order_relaxed) < HANDSHAKES_BEYOND) return true;
    return l->listener.has_capacity(&l->listener);
}

static void accept_ready(struct event_watch *watch, int mask) {
    struct stream_listener *l = container_of(watch, struct stream_listener, watch);
    for (int i = 0; i < l->listener.accept_batch; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN) return;
            if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM) continue;
            accept_failed(l, errno);
            return;
        }
        if (!handshake_affordable(l)) {
            close(fd);
            continue;
        }
        if (l->prepare) l->prepare(fd);
        if (accept_elsewhere(&l->listener, fd)) continue;
        arrival_begin(stream_accept(l->listener.loop, l->listener.transport, fd), l, NULL);
        if (l->closed) return;
    }
}

static void listener_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct stream_listener, deferred));
}

static void listener_stop(struct listener *listener) {
    struct stream_listener *l = (struct stream_listener *)listener;
    if (l->closed) return;
    l->closed = true;
    event_watch_remove(listener->loop, &l->watch);
    event_timer_cancel(listener->loop, &l->retry);
    arrivals_drop(l);
    if (l->release) l->release(l);
    /* A child process that was just forked holds the descriptor, too: the address must be free at once all the same. */
    shutdown(l->fd, SHUT_RDWR);
    close(l->fd);
    event_loop_defer(listener->loop, &l->deferred, listener_free);
}

int stream_listener_start(struct stream_listener *l, const struct transport *transport, struct event_loop *loop,
                          const struct listen_options *options, int fd) {
    l->listener.transport = transport;
    l->listener.loop = loop;
    l->listener.accepted = options->accepted;
    l->listener.place = options->place;
    l->listener.arrived = options->arrived;
    l->listener.has_capacity = options->has_capacity;
    l->listener.owner = options->owner;
    l->listener.close = listener_stop;
    l->listener.accept_batch = options->accept_batch ? options->accept_batch : ACCEPT_BATCH_DEFAULT;
    l->fd = fd;
    return event_watch_set(loop, &l->watch, fd, EVENT_READ, accept_ready);
}
