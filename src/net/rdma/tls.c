/* tls.c: see tls.h. */
#include "net/rdma/tls_connection.h"
#include "lib/system/memory.h"
#include "net/rdma/rdma.h"
#include "net/socket.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    BUFFERS_KEPT_US = 2 * 1000 * 1000,
    BUFFERS_MEMORY = 40 * 1024,     /* bytes of the two buffers of a session, as measured */
    CHUNK_SIZE = TLS_RECORD_MAX,    /* plain text in a chunk: one record */
    CHUNKS_KEPT = 64,               /* free chunks of a loop */
    SEALED_MAX = 64 * 1024,         /* bytes of records that the carrier holds, at most */
    ANSWERS_MAX = 4 * SEALED_MAX,   /* with OpenSSL's answers to requests for new keys (KeyUpdate) */
    CLOSING_MAX = 16 * 1024 * 1024, /* bytes that conn_close() still encrypts */
};

struct tls_chunk {
    struct output_chunk queued; /* must be first */
    struct tls_chunk *next_free;
    char data[CHUNK_SIZE];
};

void rdma_tls_note(struct rdma_tls *t, const char *text) {
    mem_free(t->note);
    t->note = text ? mem_strdup(text) : NULL;
}

/* --- The BIO --- */

static int bio_read(BIO *bio, char *data, size_t size, size_t *len) {
    struct rdma_tls *t = BIO_get_data(bio);
    struct connection *raw = t->raw;
    BIO_clear_retry_flags(bio);
    *len = t->fed >= TLS_CALL_MAX ? 0 : raw->in_len < size ? raw->in_len : size;
    if (*len) {
        t->fed += *len;
        memcpy(data, raw->in, *len);
        conn_consume(raw, *len);
        return 1;
    }
    if (t->raw_ended && !raw->in_len)
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    else
        BIO_set_retry_read(bio);
    return 0;
}

static int bio_write(BIO *bio, const char *data, size_t size, size_t *len) {
    struct rdma_tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    output_write(&t->raw->out, slice_make(data, size));
    *len = size;
    return 1;
}

static BIO_METHOD *bio_method;

static void bio_method_make(void) {
    bio_method = tls_bio_method_new("rdma", bio_read, bio_write);
}

bool rdma_tls_session_begin(struct rdma_tls *t, enum tls_role role) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tls_start();
    pthread_once(&once, bio_method_make);
    t->ssl = tls_session_new(role, bio_method, t);
    if (t->ssl) SSL_set_read_ahead(t->ssl, 0); /* OpenSSL would keep the buffer */
    return t->ssl != NULL;
}

int rdma_tls_call_failed(struct rdma_tls *t, int result) {
    char text[TLS_ERROR_MAX];
    if (tls_awaits_input(t->ssl)) return -EAGAIN;
    int meaning = tls_session_failed(t->ssl, result, 0, text); /* the BIO has no errors of its own */
    if (text[0]) rdma_tls_note(t, text);
    if (meaning != -EAGAIN && meaning != 0) t->broken = true;
    return meaning;
}

/* --- Buffers ---
 *
 * OpenSSL allocates and frees a buffer for each record (SSL_MODE_RELEASE_BUFFERS), and calls the BIO for the header and
 * again for the rest of a record. That takes a fifth of a small request's time. The connection of a trusted peer
 * therefore keeps its two buffers while it is used, and reads ahead. A timer of the loop frees those that were not used
 * for BUFFERS_KEPT_US. */

static uint64_t free_buffers(struct event_timer *timer) {
    struct tls_pool *pool = container_of(timer, struct tls_pool, buffers_timer);
    list_each(&pool->buffered, link) {
        struct rdma_tls *t = container_of(link, struct rdma_tls, buffered_link);
        /* Fails while a part of a record is in them. */
        if (!t->buffers_used && SSL_free_buffers(t->ssl)) list_remove(&pool->buffered, link);
        t->buffers_used = false;
    }
    return pool->buffered.len ? BUFFERS_KEPT_US : 0;
}

static void note_buffers(struct rdma_tls *t) {
    struct tls_pool *pool = t->pool;
    t->buffers_used = true;
    if (__builtin_expect(list_is_linked(&t->buffered_link) || !t->keeps_buffers, 1)) return;
    list_append(&pool->buffered, &t->buffered_link);
    if (!pool->buffers_timer.heap_index)
        event_timer_set(pool->loop, &pool->buffers_timer, BUFFERS_KEPT_US, free_buffers);
}

void rdma_tls_keep_buffers(struct rdma_tls *t) {
    if (t->keeps_buffers) return;
    t->keeps_buffers = true;
    SSL_clear_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_read_ahead(t->ssl, 1);
}

/* --- The pool of a loop --- */

static const char pool_key;

static void pool_free(struct event_attachment *attachment) {
    struct tls_pool *pool = container_of(attachment, struct tls_pool, attachment);
    while (pool->handshakes.len)
        rdma_tls_arrival_drop(container_of(list_first(&pool->handshakes), struct rdma_tls, handshake_link));
    while (pool->free) {
        struct tls_chunk *chunk = pool->free;
        pool->free = chunk->next_free;
        mem_free(chunk);
    }
    event_timer_cancel(pool->loop, &pool->step_timer);
    event_timer_cancel(pool->loop, &pool->buffers_timer);
    mem_free(pool->input.data);
    mem_free(pool);
}

struct tls_pool *rdma_tls_pool_of(struct event_loop *loop) {
    struct event_attachment *attachment = event_loop_attachment(loop, &pool_key);
    if (attachment) return container_of(attachment, struct tls_pool, attachment);
    struct tls_pool *pool = mem_calloc(1, sizeof *pool);
    pool->loop = loop;
    pool->input.data = mem_alloc(INPUT_SHARED_SIZE);
    list_init(&pool->handshakes);
    list_init(&pool->steps);
    list_init(&pool->buffered);
    pool->attachment.key = &pool_key;
    pool->attachment.free = pool_free;
    event_loop_attach(loop, &pool->attachment);
    return pool;
}

/* NULL is allowed. */
static void chunk_give(struct rdma_tls *t, struct output_chunk *queued) {
    struct tls_chunk *chunk = (struct tls_chunk *)queued;
    struct tls_pool *pool = t->pool;
    if (!chunk) return;
    t->chunk_memory -= sizeof *chunk;
    if (pool->free_count == CHUNKS_KEPT) {
        mem_free(chunk);
        return;
    }
    chunk->next_free = pool->free;
    pool->free = chunk;
    pool->free_count++;
}

/* NULL: no memory is left. */
static struct tls_chunk *chunk_take(struct rdma_tls *t) {
    struct tls_pool *pool = t->pool;
    struct tls_chunk *chunk = pool->free;
    if (chunk) {
        pool->free = chunk->next_free;
        pool->free_count--;
    } else
        chunk = conn_output_alloc(sizeof *chunk, t->output.queued);
    if (!chunk) return NULL;
    chunk->queued.segments = 0;
    t->chunk_memory += sizeof *chunk;
    return chunk;
}

/* --- Output --- */

static bool takes_output(const struct rdma_tls *t) {
    return t->conn.state <= CONN_OPEN && !t->conn.error && !t->raw_ended && !t->broken;
}

static void leave_chunk(struct rdma_tls *t) {
    chunk_give(t, output_queue_leave(&t->output, &t->conn.out));
}

static void first_remove(struct rdma_tls *t) {
    chunk_give(t, output_queue_remove(&t->output, output_queue_first(&t->output)));
}

static void rdma_tls_drop_output(struct rdma_tls *t) {
    while (t->output.segments.len) first_remove(t);
    leave_chunk(t);
    t->waiting = false;
}

static void end_later(struct rdma_tls *t, int error);

static void tls_fail(struct output *out) {
    struct rdma_tls *t = tls_of((struct connection *)out);
    if (takes_output(t)) end_later(t, ENOMEM);
    out->failed = true;
    output_discard(out);
}

static void tls_make_space(struct output *out, size_t len) {
    struct rdma_tls *t = tls_of((struct connection *)out);
    if (!takes_output(t)) {
        output_discard(out);
        return;
    }
    output_queue_seal(&t->output, out);
    leave_chunk(t);
    struct tls_chunk *chunk = chunk_take(t);
    if (!chunk) {
        tls_fail(out);
        return;
    }
    output_queue_open(&t->output, out, &chunk->queued, chunk->data, CHUNK_SIZE);
}

static void tls_share(struct output *out, struct blob *blob) {
    struct rdma_tls *t = tls_of((struct connection *)out);
    if (!takes_output(t) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    output_queue_share(&t->output, out, blob);
}

static const struct output_ops output_ops = {
    .make_space = tls_make_space, .give_up = tls_fail, .share = tls_share, .share_min = OUTPUT_SHARE_MIN};

/* The bytes of the next record: a large piece where it lies, small ones copied together. */
static struct slice next_bytes(struct rdma_tls *t, char buffer[static TLS_RECORD_MAX]) {
    struct output_queue *q = &t->output;
    if (!q->segments.len) return slice_make(q->chunk_start, output_queue_unsealed(q, &t->conn.out));
    output_queue_seal(q, &t->conn.out);
    const struct output_segment *first = output_queue_first(q);
    if (first->len >= TLS_RECORD_MAX) return slice_make(first->data, TLS_RECORD_MAX);
    if (q->segments.len == 1) return slice_make(first->data, first->len);
    size_t have = 0;
    for (const struct list_link *link = q->segments.head.next; link != &q->segments.head && have < TLS_RECORD_MAX;
         link = link->next) {
        const struct output_segment *segment = container_of(link, const struct output_segment, link);
        size_t part = segment->len < TLS_RECORD_MAX - have ? segment->len : TLS_RECORD_MAX - have;
        memcpy(buffer + have, segment->data, part);
        have += part;
    }
    return slice_make(buffer, have);
}

static void output_advance(struct rdma_tls *t, size_t len) {
    t->conn.bytes_out += len;
    if (!t->output.segments.len) {
        t->output.chunk_start += len;
        return;
    }
    while (len) {
        struct output_segment *segment = output_queue_first(&t->output);
        if (len < segment->len) {
            output_queue_advance(&t->output, segment, len);
            break;
        }
        len -= segment->len;
        first_remove(t);
    }
}

static void update_reading(struct rdma_tls *t);

/* Encrypts output until the carrier holds `most` bytes that its peer does not take. */
static void output_run(struct rdma_tls *t, size_t most) {
    static _Thread_local char buffer[TLS_RECORD_MAX];
    if (__builtin_expect(atomic_load_explicit(&tls_writes_blocked, memory_order_relaxed), 0)) return;
    struct connection *raw = t->raw;
    t->write_waits = false;
    note_buffers(t);
    for (;;) {
        struct slice bytes = next_bytes(t, buffer);
        if (!bytes.len) break;
        if (conn_pending(raw) >= most) {
            conn_flush(raw);
            if (conn_pending(raw) >= most) break;
        }
        size_t n;
        t->fed = 0;
        int result = SSL_write_ex(t->ssl, bytes.data, bytes.len, &n);
        /* The rest of a message that had come in part was read, and perhaps data behind it: the carrier has them no
         * more. */
        if (__builtin_expect(t->fed > 0, 0) && SSL_has_pending(t->ssl)) t->more = true;
        if (result > 0) {
            output_advance(t, n);
            continue;
        }
        /* A message after the handshake (a ticket) that has come in part must be complete before OpenSSL writes. */
        int meaning = rdma_tls_call_failed(t, result);
        if (meaning == -EAGAIN)
            t->write_waits = true;
        else
            end_later(t, meaning ? -meaning : EPIPE);
        break;
    }
    if (!output_queue_pending(&t->output, &t->conn.out)) leave_chunk(t);
    conn_flush(raw);
}

static size_t rdma_tls_pending(const struct connection *conn) {
    const struct rdma_tls *t = tls_of(conn);
    return output_queue_pending(&t->output, &conn->out) + (t->raw ? conn_pending(t->raw) : 0);
}

static void rdma_tls_flush(struct connection *conn) {
    struct rdma_tls *t = tls_of(conn);
    if (conn->state != CONN_OPEN || !takes_output(t)) return;
    output_run(t, SEALED_MAX);
    if (__builtin_expect(t->write_waits || t->more, 0)) update_reading(t);
    if (rdma_tls_pending(conn)) t->waiting = true;
}

void rdma_tls_output_continue(struct rdma_tls *t) {
    if (!takes_output(t)) return;
    if (t->answers_wait) {
        t->answers_wait = false;
        update_reading(t);
    }
    output_run(t, SEALED_MAX);
    if (!t->waiting || !takes_output(t) || rdma_tls_pending(&t->conn)) return;
    t->waiting = false;
    if (t->conn.events->drained) t->conn.events->drained(&t->conn);
}

/* --- The end --- */

void rdma_tls_end(struct rdma_tls *t, int error) {
    struct connection *conn = &t->conn;
    conn->error = error;
    conn->state = CONN_ENDED;
    rdma_tls_drop_output(t);
    event_timer_cancel(conn->loop, &t->timer);
    conn->events->closed(conn);
}

static uint64_t report_failure(struct event_timer *timer) {
    struct rdma_tls *t = container_of(timer, struct rdma_tls, timer);
    if (t->conn.state < CONN_ENDED) rdma_tls_end(t, t->conn.error);
    return 0;
}

/* Ends a connection whose failure was found outside the loop's own calls. */
static void end_later(struct rdma_tls *t, int error) {
    t->conn.error = error;
    rdma_tls_drop_output(t);
    event_timer_set(t->conn.loop, &t->timer, 0, report_failure);
}

/* --- Input --- */

static bool wants_input(const struct rdma_tls *t) {
    const struct connection *conn = &t->conn;
    return conn->state == CONN_OPEN && !conn->error && !conn->reading_paused && !t->answers_wait &&
           (conn->sink || conn->in_len < conn->in_limit);
}

void rdma_tls_raw_run(struct rdma_tls *t) {
    if (t->write_waits) {
        /* OpenSSL reads the rest of the message, before any record of the peer. */
        t->write_waits = false;
        rdma_tls_output_continue(t);
        if (t->conn.state != CONN_OPEN) return;
    }
    rdma_tls_input_run(t);
}

static uint64_t read_again(struct event_timer *timer) {
    rdma_tls_raw_run(container_of(timer, struct rdma_tls, timer));
    return 0;
}

/* The carrier receives while the owner wants input, or while output waits for it. */
static void update_reading(struct rdma_tls *t) {
    if (t->conn.state != CONN_OPEN || t->conn.error) return;
    bool wants = wants_input(t);
    conn_set_reading(t->raw, wants || t->write_waits);
    if (t->showing) return;
    if ((wants && (t->more || t->raw_ended)) || ((wants || t->write_waits) && t->raw->in_len))
        event_timer_set(t->conn.loop, &t->timer, 0, read_again);
}

static void rdma_tls_set_reading(struct connection *conn) {
    struct rdma_tls *t = tls_of(conn);
    if (t->raw) t->raw->awaited = conn->sink_len;
    update_reading(t);
}

static void rdma_tls_consume(struct connection *conn, size_t len) {
    bool was_full = conn->in_len >= conn->in_limit;
    conn->in += len;
    conn->in_len -= len;
    if (was_full) update_reading(tls_of(conn));
}

/* Decrypts up to `size` bytes. Fewer: *failure has the reason, as tls_session_failed() gives it. */
static size_t read_part(struct rdma_tls *t, char *data, size_t size, int *failure) {
    size_t have = 0;
    while (have < size) {
        size_t n;
        t->fed = 0;
        int result = SSL_read_ex(t->ssl, data + have, size - have, &n);
        if (result <= 0) {
            *failure = rdma_tls_call_failed(t, result);
            break;
        }
        have += n;
        if (!t->raw->in_len && !t->raw_ended && !SSL_has_pending(t->ssl)) { /* spares a call that finds nothing */
            *failure = -EAGAIN;
            break;
        }
    }
    return have;
}

/* Reads once and calls `readable`. False: there is nothing to read now, or the connection is over. */
static bool read_once(struct rdma_tls *t) {
    struct connection *conn = &t->conn;
    struct input_shared *shared = &t->pool->input;
    struct input_space space = {0};
    int failure = 1;
    size_t n = 0, part = 0;
    note_buffers(t);
    if (conn->sink) {
        part = read_part(t, conn->sink, conn->sink_len, &failure);
        conn_fill_sink(conn, part);
        t->raw->awaited = conn->sink_len;
    }
    if (failure > 0) {
        space = input_buffer_space(&t->input, conn, shared);
        if (!space.at) {
            rdma_tls_end(t, ENOMEM);
            return false;
        }
        n = read_part(t, space.at, space.size, &failure);
    }
    t->answers_wait = conn_pending(t->raw) >= ANSWERS_MAX;
    conn->bytes_in += part + n;
    input_buffer_take(&t->input, conn, shared, &space, n);
    t->more = failure != -EAGAIN;
    if (!part && !n) {
        input_buffer_settle(&t->input, conn, shared, &space);
        if (failure == -EAGAIN) return false;
        conn_flush(t->raw); /* an alert */
        rdma_tls_end(t, failure ? -failure : t->raw_ended ? t->raw->error : 0);
        return false;
    }
    t->showing = true;
    conn->events->readable(conn);
    t->showing = false;
    if (!input_buffer_settle(&t->input, conn, shared, &space) && conn->state == CONN_OPEN) rdma_tls_end(t, ENOMEM);
    return conn->state == CONN_OPEN && t->more;
}

void rdma_tls_input_run(struct rdma_tls *t) {
    struct connection *conn = &t->conn;
    if (t->showing || conn->state != CONN_OPEN) return;
    while (wants_input(t) && read_once(t)) continue;
    if (conn->state == CONN_OPEN) update_reading(t);
    bool ended = t->raw_ended || (t->raw && t->raw->hung_up);
    if (__builtin_expect(!ended, 1) || conn->state != CONN_OPEN) return;
    if (conn->error || conn->hung_up || wants_input(t)) return;
    conn->hung_up = true;
    if (conn->events->hung_up) conn->events->hung_up(conn);
}

void rdma_tls_raw_over(struct rdma_tls *t) {
    rdma_tls_drop_output(t);
    t->answers_wait = false; /* OpenSSL's answers are dropped, too */
    rdma_tls_input_run(t);
}

static void rdma_tls_trim(struct connection *conn) {
    struct rdma_tls *t = tls_of(conn);
    if (!t->showing) input_buffer_trim(&t->input, conn);
    if (t->raw) conn_trim(t->raw);
}

/* --- The life of a connection --- */

struct rdma_tls *rdma_tls_new(struct event_loop *loop) {
    struct rdma_tls *t = mem_calloc(1, sizeof *t);
    t->conn.transport = &transport_rdma_tls;
    t->conn.out.ops = &output_ops;
    t->conn.loop = loop;
    t->conn.state = CONN_CONNECTING;
    t->conn.in_limit = SOCKET_IN_LIMIT_DEFAULT;
    output_queue_init(&t->output);
    return t;
}

static void tls_free(struct event_deferred *deferred) {
    struct rdma_tls *t = tls_of(container_of(deferred, struct connection, deferred));
    SSL_free(t->ssl);
    input_buffer_free(&t->input);
    mem_free(t->names);
    mem_free(t->certificate);
    mem_free(t->note);
    mem_free(t);
}

void rdma_tls_finish(struct rdma_tls *t) {
    t->conn.state = CONN_CLOSED;
    t->conn.in_len = 0;
    t->conn.sink = NULL;
    event_timer_cancel(t->conn.loop, &t->timer);
    if (list_is_linked(&t->buffered_link)) list_remove(&t->pool->buffered, &t->buffered_link);
    rdma_tls_drop_output(t);
    if (t->raw) {
        t->raw->drops_output = t->conn.drops_output;
        conn_close(t->raw);
    }
    event_loop_defer(t->conn.loop, &t->conn.deferred, tls_free);
}

/* --- The transport --- */

static bool rdma_tls_join(struct event_loop *loop) {
    return transport_rdma.join(loop);
}

static struct connection *rdma_tls_connect(struct event_loop *loop, const struct connect_options *options) {
    struct rdma_tls *t = rdma_tls_new(loop);
    struct connect_options below = *options;
    t->conn.events = options->events;
    t->conn.owner = options->owner;
    t->timeout_ms = options->timeout_ms;
    below.events = &rdma_tls_carrier_events;
    below.owner = t;
    t->raw = conn_connect(&transport_rdma, loop, &below);
    t->pool = rdma_tls_pool_of(loop);
    return &t->conn;
}

static void rdma_tls_set_trusted(struct connection *conn) {
    struct rdma_tls *t = tls_of(conn);
    if (t->raw) conn_set_trusted(t->raw, conn->trusted);
    if (conn->trusted && t->stage == STAGE_OPEN) rdma_tls_keep_buffers(t);
}

static void rdma_tls_close(struct connection *conn) {
    struct rdma_tls *t = tls_of(conn);
    if (conn->state == CONN_OPEN && takes_output(t) && !conn->drops_output) {
        conn->state = CONN_CLOSED; /* no callback follows */
        output_run(t, CLOSING_MAX);
        /* A peer that reads close_notify has the complete stream. */
        if (!t->broken && !output_queue_pending(&t->output, &conn->out)) {
            tls_errors_clear();
            SSL_shutdown(t->ssl);
            tls_errors_clear();
        }
    }
    rdma_tls_finish(t);
}

static bool rdma_tls_address(const struct connection *conn, bool peer, struct address *address) {
    const struct rdma_tls *t = tls_of(conn);
    return t->raw && conn_address(t->raw, peer, address);
}
static bool rdma_tls_is_local(const struct connection *conn) {
    const struct rdma_tls *t = tls_of(conn);
    return t->raw && conn_is_local(t->raw);
}
static int rdma_tls_fd(const struct connection *conn) {
    return -1;
}
static const char *rdma_tls_error_text(const struct connection *conn) {
    const struct rdma_tls *t = tls_of(conn);
    if (t->note) return t->note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

static size_t rdma_tls_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct rdma_tls *t = tls_of(conn);
    size_t in = 0, out = 0, below = t->raw ? conn_memory(t->raw, &in, &out) : 0;
    size_t own_out = t->chunk_memory + t->output.queued_blobs + t->output.segments.len * sizeof(struct output_segment);
    if (input) *input = in + t->input.own_size;
    if (output) *output = out + own_out;
    size_t buffers = list_is_linked(&t->buffered_link) ? BUFFERS_MEMORY : 0;
    return below + sizeof *t + t->input.own_size + own_out + (t->ssl ? TLS_SESSION_MEMORY : 0) + buffers;
}

static size_t rdma_tls_shared(const struct connection *conn) {
    return tls_of(conn)->output.queued_blobs;
}

static void rdma_tls_describe(const struct connection *conn, char *text, size_t size) {
    const struct rdma_tls *t = tls_of(conn);
    if (t->raw) conn_describe(t->raw, text, size);
    size_t len = strlen(text);
    if (t->ssl && len < size)
        snprintf(text + len, size - len, " tls=%s cipher=%s", SSL_get_version(t->ssl), SSL_get_cipher_name(t->ssl));
}

static const char *rdma_tls_peer_names(const struct connection *conn) {
    return tls_of(conn)->names;
}
static const char *rdma_tls_certificate(const struct connection *conn) {
    return tls_of(conn)->certificate;
}

static struct connection *rdma_tls_carrier(const struct connection *conn) {
    return tls_of(conn)->raw;
}

const struct transport transport_rdma_tls = {
    .name = "rdma-tls",
    .connect = rdma_tls_connect,
    .listen = rdma_tls_listen,
    .join = rdma_tls_join,
    .consume = rdma_tls_consume,
    .set_reading = rdma_tls_set_reading,
    .set_trusted = rdma_tls_set_trusted,
    .flush = rdma_tls_flush,
    .pending = rdma_tls_pending,
    .close = rdma_tls_close,
    .address = rdma_tls_address,
    .fd = rdma_tls_fd,
    .is_local = rdma_tls_is_local,
    .error_text = rdma_tls_error_text,
    .memory = rdma_tls_memory,
    .trim = rdma_tls_trim,
    .shared = rdma_tls_shared,
    .describe = rdma_tls_describe,
    .peer_names = rdma_tls_peer_names,
    .certificate = rdma_tls_certificate,
    .carrier = rdma_tls_carrier,
};
