/* socket.c: reading, writing and closing sockets, and moving them to another loop. socket.h describes the design.
 *
 * The loop reads once for each readiness event. If the kernel still holds bytes after that, the level-triggered epoll
 * reports them again, after the other connections had their turn. Failures found while writing are reported to the
 * owner by a timer that is due immediately, never from inside conn_flush(). */
#include "net/socket.h"
#include "lib/system/memory.h"
#include "net/socket_private.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CHUNK_SMALL = 512,
    CHUNKS_KEPT = 64,
    PIECES_A_WRITE = 64,
    WRITTEN_A_TURN = 1024 * 1024, /* bytes to write before other connections get their turn */
};

/* --- Plain sockets --- */

static inline ssize_t plain_read(struct socket_connection *s, const struct iovec *parts, int count) {
    ssize_t n = count == 1 ? read(s->fd, parts->iov_base, parts->iov_len) : readv(s->fd, parts, count);
    return n < 0 ? -errno : n;
}

static inline ssize_t plain_write(struct socket_connection *s, const struct iovec *parts, int count) {
    ssize_t n;
    if (count == 1)
        n = send(s->fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL);
    else {
        struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
        n = sendmsg(s->fd, &message, MSG_NOSIGNAL);
    }
    return n < 0 ? -errno : n;
}

const struct socket_io socket_io_plain = {.read = plain_read, .write = plain_write};

/* The comparison lets the compiler put the system calls of plain sockets here, without a call through the table. */
static inline ssize_t io_read(struct socket_connection *s, const struct iovec *parts, int count) {
    return __builtin_expect(s->io->read == plain_read, 1) ? plain_read(s, parts, count) : s->io->read(s, parts, count);
}
static inline ssize_t io_write(struct socket_connection *s, const struct iovec *parts, int count) {
    return __builtin_expect(s->io->write == plain_write, 1) ? plain_write(s, parts, count)
                                                            : s->io->write(s, parts, count);
}

/* --- Chunks --- */

static inline unsigned free_count(const struct socket_pool *pool) {
    return atomic_load_explicit(&pool->free_count, memory_order_relaxed);
}
/* No atomic addition: only this thread writes it. */
static inline void free_count_add(struct socket_pool *pool, int change) {
    atomic_store_explicit(&pool->free_count, free_count(pool) + (unsigned)change, memory_order_relaxed);
}

/* Space for at least `len` bytes more of a connection that has `queued` bytes in other chunks. While many connections
 * hold chunks, which happens when one command writes to thousands of clients, their chunks begin small and grow: each
 * would otherwise be 16 KiB of memory that the kernel has to map again. NULL: no memory is left. */
static struct socket_chunk *chunk_take(struct socket_pool *pool, size_t len, size_t queued) {
    struct socket_chunk *chunk = pool->free;
    if (chunk) {
        pool->free = chunk->next_free;
        free_count_add(pool, -1);
    } else {
        size_t size = CHUNK_SIZE;
        if (pool->used_count >= CHUNKS_KEPT) {
            size = sizeof *chunk + (len > queued * 4 ? len : queued * 4);
            if (size < CHUNK_SMALL) size = CHUNK_SMALL;
            if (size > CHUNK_SIZE) size = CHUNK_SIZE;
        }
        chunk = conn_output_alloc(size, queued);
        if (!chunk) return NULL;
        chunk->size = (uint32_t)size;
    }
    pool->used_count++;
    chunk->queued.segments = 0;
    return chunk;
}

/* NULL is allowed. */
static void chunk_give(struct socket_pool *pool, struct output_chunk *queued) {
    struct socket_chunk *chunk = (struct socket_chunk *)queued;
    if (!chunk) return;
    pool->used_count--;
    if (free_count(pool) == CHUNKS_KEPT || chunk->size < CHUNK_SIZE) {
        mem_free(chunk);
        return;
    }
    chunk->next_free = pool->free;
    pool->free = chunk;
    free_count_add(pool, 1);
}

void socket_prepare(struct event_loop *loop) {
    struct socket_pool *pool = socket_pool_of(loop);
    while (free_count(pool) < CHUNKS_STEADY) {
        struct socket_chunk *chunk = mem_alloc(CHUNK_SIZE);
        chunk->size = CHUNK_SIZE;
        pool->used_count++;
        chunk_give(pool, &chunk->queued);
    }
}

/* A large queue was dropped: its memory is not to stay in the pool. */
static void pool_trim(struct socket_pool *pool) {
    while (free_count(pool) > CHUNKS_STEADY) {
        struct socket_chunk *chunk = pool->free;
        pool->free = chunk->next_free;
        free_count_add(pool, -1);
        mem_free(chunk);
    }
}

/* --- Output --- */

static void give_back(struct socket_connection *s, struct output_chunk *queued) {
    if (queued) s->chunk_memory -= ((struct socket_chunk *)queued)->size;
    chunk_give(s->pool, queued);
}

static void first_remove(struct socket_connection *s) {
    give_back(s, output_queue_remove(&s->output, output_queue_first(&s->output)));
}

static void leave_chunk(struct socket_connection *s) {
    give_back(s, output_queue_leave(&s->output, &s->conn.out));
}

static void drop_output(struct socket_connection *s) {
    bool burst = s->output.segments.len;
    while (s->output.segments.len) first_remove(s);
    leave_chunk(s);
    if (burst) pool_trim(s->pool);
    s->blocked = false;
}

/* A peer that has ended without an error may have shut down only its sending direction. */
static bool takes_output(const struct socket_connection *s) {
    return s->conn.state != CONN_CLOSED && !s->conn.error && !s->write_error;
}

static void socket_ready(struct event_io *event, int mask);

static uint64_t report_failure(struct event_timer *timer) {
    struct socket_connection *s = container_of(timer, struct socket_connection, timer);
    s->conn.state = CONN_ENDED;
    s->conn.events->closed(&s->conn);
    return 0;
}

/* Ends a connection whose failure was found outside the loop's own calls. */
static void fail_later(struct socket_connection *s, int error) {
    s->conn.error = error;
    drop_output(s);
    event_io_remove(s->conn.loop, &s->event);
    event_timer_set(s->conn.loop, &s->timer, 0, report_failure);
}

static void socket_fail(struct output *out) {
    struct socket_connection *s = socket_of((struct connection *)out);
    if (takes_output(s)) fail_later(s, ENOMEM);
    out->failed = true;
    output_discard(out);
}

static void socket_make_space(struct output *out, size_t len) {
    struct socket_connection *s = socket_of((struct connection *)out);
    if (!takes_output(s)) {
        output_discard(out);
        return;
    }
    output_queue_seal(&s->output, out);
    leave_chunk(s);
    struct socket_chunk *chunk = chunk_take(s->pool, len, s->output.queued);
    if (!chunk) {
        socket_fail(out);
        return;
    }
    s->chunk_memory += chunk->size;
    output_queue_open(&s->output, out, &chunk->queued, chunk->data, chunk->size - sizeof *chunk);
}

static void socket_share(struct output *out, struct blob *blob) {
    struct socket_connection *s = socket_of((struct connection *)out);
    if (!takes_output(s) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    output_queue_share(&s->output, out, blob);
}

static const struct output_ops socket_output_ops = {
    .make_space = socket_make_space, .give_up = socket_fail, .share = socket_share, .share_min = OUTPUT_SHARE_MIN};

static void end_now(struct socket_connection *s, int error) {
    s->conn.error = error;
    s->conn.state = CONN_ENDED;
    if (error) {
        drop_output(s);
        event_io_remove(s->conn.loop, &s->event);
    } else
        socket_update_interest(s);
    event_timer_cancel(s->conn.loop, &s->timer);
    s->conn.events->closed(&s->conn);
}

/* Removes `len` written bytes from the queue. */
static void advance(struct socket_connection *s, size_t len) {
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
static int write_queue(struct socket_connection *s) {
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
static int write_all(struct socket_connection *s) {
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
static void write_failed(struct socket_connection *s, int error) {
    s->write_error = error;
    drop_output(s);
    if (s->conn.state == CONN_OPEN && !(s->event.mask & EVENT_READ)) fail_later(s, error);
}

static void socket_written(struct socket_connection *s, int result) {
    if (result < 0)
        write_failed(s, -result);
    else
        s->blocked = result > 0;
    socket_update_interest(s);
}

void socket_flush(struct connection *conn) {
    struct socket_connection *s = socket_of(conn);
    if (s->blocked || conn->state < CONN_OPEN || !takes_output(s)) return;
    int result = write_all(s);
    if (result == 0 && !(s->io->has_input && s->io->has_input(s))) return; /* a write may have read input */
    socket_written(s, result);
}

/* --- Input --- */

/* A read stopped before it had taken all input of the I/O table, so that the others had their turn. */
static uint64_t read_again(struct event_timer *timer) {
    struct socket_pool *pool = container_of(timer, struct socket_pool, input_timer);
    for (size_t left = pool->has_input.len; left > 0 && pool->has_input.len > 0; left--) {
        struct socket_connection *s = container_of(list_first(&pool->has_input), struct socket_connection, pool_link);
        list_remove(&pool->has_input, &s->pool_link);
        if (s->event.mask & EVENT_READ && !s->showing) socket_ready(&s->event, EVENT_READ); /* it may queue it again */
    }
    return 0;
}

static void queue_input(struct socket_connection *s) {
    if (list_is_linked(&s->pool_link) || !s->io->has_input(s)) return;
    list_append(&s->pool->has_input, &s->pool_link);
    if (!s->pool->input_timer.heap_index) event_timer_set(s->pool->loop, &s->pool->input_timer, 0, read_again);
}

static bool wants_input(const struct socket_connection *s) {
    const struct connection *conn = &s->conn;
    return !conn->reading_paused && (conn->sink || conn->in_len < conn->in_limit);
}

void socket_update_interest(struct socket_connection *s) {
    struct connection *conn = &s->conn;
    bool blocked = s->blocked, open = conn->state == CONN_OPEN;
    if ((!open && conn->state != CONN_ENDED) || conn->error) return;
    bool wants = open && wants_input(s);
    if (wants && s->io->has_input) queue_input(s);
    if (__builtin_expect(s->wants_read && blocked, 0)) wants = true, blocked = false;
    int mask = (wants ? EVENT_READ : 0) | (blocked || s->wants_write ? EVENT_WRITE : 0);
    if (mask == s->event.mask) return;
    int result = event_io_set(conn->loop, &s->event, s->fd, mask, socket_ready);
    if (result >= 0) return;
    if (open)
        fail_later(s, -result);
    else
        write_failed(s, -result);
}

void socket_set_reading(struct connection *conn) {
    socket_update_interest(socket_of(conn));
}

void socket_consume(struct connection *conn, size_t len) {
    bool was_full = conn->in_len >= conn->in_limit;
    conn->in += len;
    conn->in_len -= len;
    if (was_full) socket_update_interest(socket_of(conn));
}

void socket_trim_input(struct connection *conn) {
    struct socket_connection *s = socket_of(conn);
    if (!s->showing) input_buffer_trim(&s->input, conn);
}

static void settle(struct socket_connection *s, const struct input_space *space) {
    bool kept = input_buffer_settle(&s->input, &s->conn, &s->pool->input, space);
    if (!kept && s->conn.state == CONN_OPEN)
        end_now(s, ENOMEM);
    else if (s->conn.state != CONN_CLOSED)
        socket_update_interest(s);
}

static void read_input(struct socket_connection *s) {
    struct connection *conn = &s->conn;
    struct input_shared *shared = &s->pool->input;
    struct input_space space = input_buffer_space(&s->input, conn, shared);
    if (!space.at) {
        end_now(s, ENOMEM);
        return;
    }
    struct iovec parts[2] = {{conn->sink, conn->sink_len}, {space.at, space.size}};
    ssize_t n = conn->sink ? io_read(s, parts, 2) : io_read(s, parts + 1, 1);
    if (n <= 0) {
        int error = (int)-n;
        space.shared = false;
        if (conn->in_len == 0) settle(s, &space);
        if (error == EAGAIN || error == EINTR) return;
        end_now(s, error ? error : s->write_error);
        return;
    }
    conn->bytes_in += (size_t)n;
    input_buffer_take(&s->input, conn, shared, &space, (size_t)n - conn_fill_sink(conn, (size_t)n));
    s->showing = true;
    conn->events->readable(conn);
    s->showing = false;
    settle(s, &space);
}

static void socket_ready(struct event_io *event, int mask) {
    struct socket_connection *s = container_of(event, struct socket_connection, event);
    struct connection *conn = &s->conn;
    if (__builtin_expect(s->wants_read && mask & EVENT_READ, 0)) {
        s->wants_read = false;
        mask |= EVENT_WRITE;
        socket_update_interest(s);
    }
    if ((mask & EVENT_WRITE) && s->blocked) {
        int result = write_all(s);
        socket_written(s, result);
        bool over = result < 0 && conn->state == CONN_ENDED; /* nothing else reports that the queue is gone */
        if ((result == 0 || over) && conn->events->drained) conn->events->drained(conn);
        if (conn->state != CONN_OPEN || conn->error) return;
    }
    if (s->wants_write && mask & EVENT_WRITE) {
        s->wants_write = false;
        mask |= EVENT_READ;
    }
    if (!(mask & EVENT_READ) || !(event->mask & EVENT_READ) || !wants_input(s)) return;
    if (s->showing)
        event_io_set(conn->loop, event, s->fd, event->mask & ~EVENT_READ, socket_ready); /* settle() sets it again */
    else
        read_input(s);
}

/* --- Opening and closing --- */

struct socket_connection *socket_new(struct event_loop *loop, const struct transport *transport, int fd,
                                     enum connection_state state) {
    struct socket_connection *s = mem_calloc(1, sizeof *s);
    s->conn.out.ops = &socket_output_ops;
    s->conn.transport = transport;
    s->io = transport->io;
    s->conn.loop = loop;
    s->conn.state = state;
    s->conn.in_limit = SOCKET_IN_LIMIT_DEFAULT;
    s->fd = fd;
    s->event.fd = -1;
    s->pool = socket_pool_of(loop);
    output_queue_init(&s->output);
    return s;
}

/* A closed connection: its owner no longer uses the input. One that lingers keeps no more than its socket. */
void socket_free(struct event_deferred *deferred) {
    struct socket_connection *s = socket_of(container_of(deferred, struct connection, deferred));
    input_buffer_free(&s->input);
    if (s->fd >= 0) return;
    mem_free(s->arrival);
    mem_free(s->error_note);
    mem_free(s);
}

void socket_session_end(struct socket_connection *s, bool orderly) {
    if (!s->session) return;
    if (orderly) s->io->shutdown(s);
    s->io->free(s);
    s->session = NULL;
}

void socket_close(struct connection *conn) {
    struct socket_connection *s = socket_of(conn);
    bool open = conn->state == CONN_OPEN;
    /* Send what the socket accepts now. */
    if (conn->state >= CONN_OPEN && !conn->drops_output && takes_output(s)) write_all(s);
    conn->state = CONN_CLOSED;
    conn->in_len = 0;
    conn->sink = NULL;
    event_io_remove(conn->loop, &s->event);
    event_timer_cancel(conn->loop, &s->timer);
    if (list_is_linked(&s->pool_link))
        list_remove(s->arrival ? &s->pool->handshakes : &s->pool->has_input, &s->pool_link);
    socket_session_end(s, open && !conn->error && !s->write_error && !s->blocked);
    drop_output(s);
    if (open && socket_linger_begin(s)) return;
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    if (s->dial) s->dial->free(s->dial);
    s->dial = NULL;
    event_loop_defer(conn->loop, &conn->deferred, socket_free);
}

/* Moving to another loop. Unconsumed bytes are in private memory between two reads, and OpenSSL's state is the
 * session's, so both move along. */

bool socket_leave(struct connection *conn) {
    struct socket_connection *s = socket_of(conn);
    bool waits = s->blocked || s->wants_read || s->wants_write || s->timer.heap_index || s->showing;
    if (conn->state != CONN_OPEN || conn->error || s->write_error || waits || socket_pending(conn)) return false;
    leave_chunk(s);
    if (conn->in_len == 0) input_buffer_free(&s->input);
    conn->keeps_input = false;
    event_io_remove(conn->loop, &s->event);
    if (list_is_linked(&s->pool_link)) list_remove(&s->pool->has_input, &s->pool_link);
    conn->loop = NULL;
    s->pool = NULL;
    return true;
}

void socket_enter(struct connection *conn, struct event_loop *loop) {
    struct socket_connection *s = socket_of(conn);
    conn->loop = loop;
    s->pool = socket_pool_of(loop);
    socket_update_interest(s);
}
