/* tls_handshake.c: handshakes of both ends, listening, and the carrier's events. See tls.h. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/rdma.h"
#include "net/rdma/tls_connection.h"
#include "net/socket.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum {
    HANDSHAKE_LEAST_US = 1000 * 1000,
    CONNECT_MS = 10 * 1000,
    CARRIER_IN_MAX = 64 * 1024, /* bytes of records that wait for OpenSSL */
    FIRST_BYTE = 0x16,          /* of a TLS handshake record */
    SECOND_BYTE = 0x03,
};

_Atomic uint32_t rdma_tls_handshakes_max = 1024;

struct tls_listener {
    struct listener listener; /* must be first */
    struct listener *raw;     /* of transport_rdma; its owner is this struct */
    bool allows_clear;
    struct event_deferred deferred;
};

static inline struct rdma_tls *owner_of(const struct connection *raw) {
    return raw->owner;
}

/* --- Accepted connections --- */

static void arrival_end(struct rdma_tls *t) {
    list_remove(&t->pool->handshakes, &t->handshake_link);
    if (list_is_linked(&t->step_link)) list_remove(&t->pool->steps, &t->step_link);
    event_timer_cancel(t->conn.loop, &t->timer);
    atomic_fetch_sub_explicit(&socket_stats.handshakes, 1, memory_order_relaxed);
}

void rdma_tls_arrival_drop(struct rdma_tls *t) {
    arrival_end(t);
    rdma_tls_finish(t);
}

/* Counts and logs: at most once a second, and always at loglevel verbose, because peers must not fill the log. */
static void tls_handshake_failed(const struct connection *conn, const char *reason) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000};
    char peer[128], own[128];
    conn_format_address(conn, true, peer);
    conn_format_address(conn, false, own);
    LOG(log_limit_allows(&limit) ? LOG_LEVEL_WARNING : LOG_LEVEL_VERBOSE,
        "Error accepting a client connection: %s (addr=%s laddr=%s, RDMA)", reason, peer, own);
    atomic_fetch_add_explicit(&socket_stats.handshakes_failed, 1, memory_order_relaxed);
}

static void arrival_fail(struct rdma_tls *t, int error) {
    t->conn.error = error;
    tls_handshake_failed(&t->conn, conn_error_text(&t->conn));
    rdma_tls_arrival_drop(t);
}

static void arrival_report(struct rdma_tls *t, struct connection *conn) {
    if (t->listener)
        t->listener->listener.accepted(&t->listener->listener, conn);
    else
        t->arrived(conn);
}

/* The peer speaks no TLS, and may. */
static void arrival_is_clear(struct rdma_tls *t) {
    struct connection *raw = t->raw;
    arrival_end(t);
    t->raw = NULL;
    raw->events = NULL;
    raw->owner = NULL;
    arrival_report(t, raw);
    rdma_tls_finish(t);
    if (raw->state == CONN_OPEN && raw->in_len && !raw->reading_paused) raw->events->readable(raw);
}

static void handshake_complete(struct rdma_tls *t) {
    struct connection *conn = &t->conn;
    t->stage = STAGE_OPEN;
    if (t->accepted) {
        arrival_end(t);
        t->names = tls_session_accepted(t->ssl);
        t->certificate = tls_session_certificate(t->ssl);
        conn->state = CONN_OPEN;
        arrival_report(t, conn);
    } else {
        event_timer_cancel(conn->loop, &t->timer);
        rdma_tls_keep_buffers(t);
        conn->state = CONN_OPEN;
        if (conn->events->connected) conn->events->connected(conn);
        if (conn->state == CONN_OPEN) conn_flush(conn);
    }
    if (conn->state == CONN_OPEN) rdma_tls_input_run(t); /* requests may have come with the last message */
}

static void handshake_failed(struct rdma_tls *t, int error) {
    conn_flush(t->raw); /* an alert */
    if (t->accepted)
        arrival_fail(t, error);
    else
        rdma_tls_end(t, error);
}

static void step_soon(struct rdma_tls *t);

static void handshake_step(struct rdma_tls *t) {
    tls_errors_clear();
    t->fed = 0;
    int result = SSL_do_handshake(t->ssl);
    if (result == 1) {
        tls_errors_clear(); /* for the calls that follow */
        conn_flush(t->raw);
        handshake_complete(t);
        return;
    }
    int meaning = rdma_tls_call_failed(t, result);
    if (meaning == -EAGAIN) {
        conn_flush(t->raw);
        if (t->raw->in_len) step_soon(t); /* a call reads TLS_CALL_MAX bytes; long certificates need several */
        return;
    }
    if (meaning == 0) rdma_tls_note(t, "The peer closed the connection in the TLS handshake");
    handshake_failed(t, meaning ? -meaning : ECONNRESET);
}

static uint64_t run_step(struct event_timer *timer) {
    struct tls_pool *pool = container_of(timer, struct tls_pool, step_timer);
    if (!pool->steps.len) return 0;
    struct rdma_tls *t = container_of(list_first(&pool->steps), struct rdma_tls, step_link);
    list_remove(&pool->steps, &t->step_link);
    if (pool->steps.len) event_timer_set(pool->loop, timer, 0, run_step);
    handshake_step(t);
    return 0;
}

static void step_soon(struct rdma_tls *t) {
    struct tls_pool *pool = t->pool;
    if (!t->accepted) {
        handshake_step(t);
        return;
    }
    if (!list_is_linked(&t->step_link)) list_append(&pool->steps, &t->step_link);
    if (!pool->step_timer.heap_index) event_timer_set(pool->loop, &pool->step_timer, 0, run_step);
}

static void handshake_begin(struct rdma_tls *t) {
    t->stage = STAGE_HANDSHAKE;
    if (!rdma_tls_session_begin(t, t->accepted ? TLS_SERVER : TLS_CLIENT)) {
        rdma_tls_note(t, "TLS is not configured");
        handshake_failed(t, EPROTO);
        return;
    }
    conn_set_in_limit(t->raw, CARRIER_IN_MAX);
    if (t->listener && t->listener->listener.needs_certificate) tls_session_need_certificate(t->ssl);
}

static uint64_t arrival_timeout(struct event_timer *timer) {
    struct rdma_tls *t = container_of(timer, struct rdma_tls, timer);
    if (t->stage == STAGE_UNDECIDED && !t->raw->in_len)
        arrival_is_clear(t);
    else
        arrival_fail(t, ETIMEDOUT);
    return 0;
}

static uint64_t connect_timeout(struct event_timer *timer) {
    rdma_tls_end(container_of(timer, struct rdma_tls, timer), ETIMEDOUT);
    return 0;
}

/* Ends the oldest handshake that waits for its peer, if it has done so for long enough. */
static bool make_place(struct tls_pool *pool) {
    uint64_t now = clock_monotonic_us();
    list_each_entry(&pool->handshakes, struct rdma_tls, handshake_link, t) {
        if (now - t->began_us < HANDSHAKE_LEAST_US) return false;
        if (list_is_linked(&t->step_link)) continue;
        rdma_tls_note(t, "replaced by another handshake, because too many are in progress");
        arrival_fail(t, ETIMEDOUT);
        return true;
    }
    return false;
}

/* A carrier has been accepted on this loop. */
static void arrival_begin(struct connection *raw, struct tls_listener *listener, void (*arrived)(struct connection *),
                          bool allows_clear) {
    struct tls_pool *pool = rdma_tls_pool_of(raw->loop);
    if (pool->handshakes.len >= atomic_load_explicit(&rdma_tls_handshakes_max, memory_order_relaxed) &&
        !make_place(pool)) {
        tls_handshake_failed(raw, "refused, because too many handshakes are in progress");
        conn_close(raw);
        return;
    }
    struct rdma_tls *t = rdma_tls_new(raw->loop);
    t->pool = pool;
    t->raw = raw;
    raw->events = &rdma_tls_carrier_events;
    raw->owner = t;
    t->accepted = true;
    t->listener = listener;
    t->arrived = arrived;
    t->began_us = clock_monotonic_us();
    list_append(&pool->handshakes, &t->handshake_link);
    atomic_fetch_add_explicit(&socket_stats.handshakes, 1, memory_order_relaxed);
    uint64_t timeout_ms = atomic_load_explicit(&socket_settings.handshake_timeout_ms, memory_order_relaxed);
    event_timer_set(raw->loop, &t->timer, timeout_ms * 1000, arrival_timeout);
    if (allows_clear)
        t->stage = STAGE_UNDECIDED;
    else
        handshake_begin(t);
}

/* The first bytes of an accepted connection. False: it is not undecided any more, or waits for its second byte. */
static bool decide(struct rdma_tls *t) {
    const unsigned char *first = (const unsigned char *)t->raw->in;
    if (!t->raw->in_len || (first[0] == FIRST_BYTE && t->raw->in_len == 1)) return false;
    if (first[0] != FIRST_BYTE || first[1] != SECOND_BYTE) {
        arrival_is_clear(t);
        return false;
    }
    handshake_begin(t);
    return t->stage == STAGE_HANDSHAKE && t->ssl;
}

/* --- The carrier's events --- */

static void raw_connected(struct connection *raw) {
    struct rdma_tls *t = owner_of(raw);
    uint64_t timeout_ms = t->timeout_ms ? t->timeout_ms : CONNECT_MS;
    event_timer_set(t->conn.loop, &t->timer, timeout_ms * 1000, connect_timeout);
    handshake_begin(t);
    if (t->conn.state == CONN_CONNECTING && t->ssl) handshake_step(t);
}

static void raw_readable(struct connection *raw) {
    struct rdma_tls *t = owner_of(raw);
    switch (t->stage) {
    case STAGE_CARRIER: return;
    case STAGE_UNDECIDED:
        if (!decide(t)) return;
        /* fall through */
    case STAGE_HANDSHAKE: step_soon(t); return;
    case STAGE_OPEN: break;
    }
    rdma_tls_raw_run(t);
}

static void raw_drained(struct connection *raw) {
    struct rdma_tls *t = owner_of(raw);
    if (t->stage == STAGE_OPEN) rdma_tls_output_continue(t);
}

static void raw_closed(struct connection *raw) {
    struct rdma_tls *t = owner_of(raw);
    t->raw_ended = true;
    if (raw->error && !t->note) rdma_tls_note(t, conn_error_text(raw));
    if (t->stage == STAGE_OPEN) {
        rdma_tls_raw_over(t);
        return;
    }
    if (t->stage == STAGE_HANDSHAKE && raw->in_len) {
        /* Perhaps the handshake completes with these bytes, and requests follow; or the peer's alert says why. The last
         * step finds the end. */
        rdma_tls_note(t, NULL);
        step_soon(t);
        return;
    }
    if (!raw->error) rdma_tls_note(t, "The peer closed the connection in the TLS handshake");
    if (t->accepted)
        arrival_fail(t, raw->error ? raw->error : ECONNRESET);
    else
        rdma_tls_end(t, raw->error ? raw->error : ECONNRESET);
}

/* The carrier has ended behind bytes that this layer does not want now. */
static void raw_hung_up(struct connection *raw) {
    struct rdma_tls *t = owner_of(raw);
    if (t->stage == STAGE_OPEN) rdma_tls_raw_over(t);
}

const struct connection_events rdma_tls_carrier_events = {.connected = raw_connected,
                                                          .readable = raw_readable,
                                                          .drained = raw_drained,
                                                          .closed = raw_closed,
                                                          .hung_up = raw_hung_up};

/* --- Listening --- */

static void raw_accepted(struct listener *raw_listener, struct connection *raw) {
    struct tls_listener *l = raw_listener->owner;
    if (l->listener.has_capacity && !l->listener.has_capacity(&l->listener)) {
        conn_close(raw); /* it was available when the peer asked */
        return;
    }
    arrival_begin(raw, l, NULL, l->allows_clear);
}

/* Of all listeners: the connections that they place on other loops arrive there without their listener. */
static void (*_Atomic user_arrived)(struct connection *conn);

static void raw_arrived(struct connection *raw) {
    arrival_begin(raw, NULL, atomic_load(&user_arrived), false);
}
static void raw_arrived_clear(struct connection *raw) {
    arrival_begin(raw, NULL, atomic_load(&user_arrived), true);
}

static bool raw_has_capacity(struct listener *raw_listener) {
    struct tls_listener *l = raw_listener->owner;
    return l->listener.has_capacity(&l->listener);
}
static struct event_loop *raw_place(struct listener *raw_listener) {
    struct tls_listener *l = raw_listener->owner;
    return l->listener.place(&l->listener);
}

static void listener_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct tls_listener, deferred));
}

static void listener_stop(struct listener *listener) {
    struct tls_listener *l = (struct tls_listener *)listener;
    struct tls_pool *pool = rdma_tls_pool_of(listener->loop);
    list_each_entry(&pool->handshakes, struct rdma_tls, handshake_link, t)
        if (t->listener == l) rdma_tls_arrival_drop(t);
    listener_close(l->raw);
    event_loop_defer(listener->loop, &l->deferred, listener_free);
}

struct listener *rdma_tls_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                 size_t error_size) {
    struct tls_listener *l = mem_calloc(1, sizeof *l);
    struct listen_options below = *options;
    l->allows_clear = options->allows_clear;
    below.owner = l;
    below.accepted = raw_accepted;
    below.arrived = l->allows_clear ? raw_arrived_clear : raw_arrived;
    below.rejects = true; /* the reason could be sent only after the handshake */
    if (options->has_capacity) below.has_capacity = raw_has_capacity;
    if (options->place) below.place = raw_place;
    if (options->arrived) atomic_store(&user_arrived, options->arrived);
    l->raw = conn_listen(&transport_rdma, loop, &below, error, error_size);
    if (!l->raw) {
        int reason = errno;
        mem_free(l);
        errno = reason;
        return NULL;
    }
    rdma_tls_pool_of(loop);
    l->listener = (struct listener){.transport = &transport_rdma_tls,
                                    .loop = loop,
                                    .address = l->raw->address,
                                    .waiting = l->raw->waiting,
                                    .accepted = options->accepted,
                                    .has_capacity = options->has_capacity,
                                    .place = options->place,
                                    .arrived = options->arrived,
                                    .owner = options->owner,
                                    .close = listener_stop,
                                    .accept_batch = options->accept_batch,
                                    .needs_certificate = options->needs_certificate};
    return &l->listener;
}
