/* rdma.c: the life of an RDMA connection, the same for both ends: it opens, reports to its owner, ticks and ends.
 * rdma_wire.h describes the protocol, rdma_connection.h the structure; rdma_send.c sends, rdma_receive.c receives,
 * rdma_control.c handles control messages. */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    LINGER_US = 2 * 1000 * 1000,
    STALL_WAKE_US = 1000, /* a peer whose buffer is full for this long gets its first Keepalive */
    STALL_WAKE_MOST_US = 250 * 1000,
    IN_LIMIT_DEFAULT = 1024 * 1024 * 1024,
};

struct rdma_hooks rdma_hooks;
_Atomic uint32_t rdma_accepted;

const char *rdma_error_name(enum rdma_error error) {
    static const char *const names[RDMA_ERRORS] = {
        [RDMA_ERROR_PROTOCOL] = "protocol",
        [RDMA_ERROR_TIMEOUT] = "timeout",
        [RDMA_ERROR_RNR] = "rnr",
        [RDMA_ERROR_ACCESS] = "access",
        [RDMA_ERROR_PEER_GONE] = "peer_gone",
        [RDMA_ERROR_CONNECT] = "connect",
        [RDMA_ERROR_REGISTRATION] = "registration",
        [RDMA_ERROR_RESOURCES] = "resources",
        [RDMA_ERROR_DEVICE] = "device",
        [RDMA_ERROR_OTHER] = "other",
    };
    return names[error];
}

const char *rdma_refusal_name(enum rdma_refusal refusal) {
    static const char *const names[RDMA_REFUSALS] = {
        [RDMA_REFUSED_MAX_CLIENTS] = "max_clients",  [RDMA_REFUSED_FULL] = "full",
        [RDMA_REFUSED_MEMORY] = "registered_memory", [RDMA_REFUSED_UNTRUSTED] = "unauthenticated_memory",
        [RDMA_REFUSED_RESOURCES] = "resources",
    };
    return names[refusal];
}

static enum rdma_error error_kind(const struct rdma_connection *c, int error) {
    switch (error) {
    case EPROTO: return RDMA_ERROR_PROTOCOL;
    case ETIMEDOUT: return RDMA_ERROR_TIMEOUT;
    case ENODEV: return c->phase == RDMA_ESTABLISHED ? RDMA_ERROR_DEVICE : RDMA_ERROR_CONNECT;
    case ENOBUFS: return RDMA_ERROR_RNR;
    case EACCES: return RDMA_ERROR_ACCESS;
    case ECONNRESET: return RDMA_ERROR_PEER_GONE;
    default: return c->phase == RDMA_ESTABLISHED ? RDMA_ERROR_OTHER : RDMA_ERROR_CONNECT;
    }
}

/* Names for the log */

const char *rdma_connection_name(const struct rdma_connection *c, char name[static RDMA_NAME_MAX]) {
    char device[RDMA_NAME_MAX];
    snprintf(name, RDMA_NAME_MAX, "%s (%.160s)", c->target, rdma_device_text(c->id, device));
    return name;
}

static void log_end(const struct rdma_connection *c, const char *note) {
    char name[RDMA_NAME_MAX];
    if (log_level > LOG_LEVEL_VERBOSE || c->phase != RDMA_ESTABLISHED) return;
    rdma_connection_name(c, name);
    if (!c->failure)
        log_verbose("RDMA: %s disconnected", name);
    else
        log_verbose("RDMA: the connection with %s failed: %s (%s, errno %d)", name, note ? note : "reason unknown",
                    strerror(c->failure), c->failure);
}

/* Waits. A wait begins and ends rarely, so these functions read the clock: with the loop's cached time, half of the
 * waits would seem to take no time. */

static uint64_t waited(struct rdma_connection *c, uint64_t since_us) {
    uint64_t now = clock_monotonic_us(), us = now > since_us ? now - since_us : 0;
    if (rdma_hooks.stalled) rdma_hooks.stalled(&c->conn, us);
    return us;
}

/* A client of the base protocol that waits for our buffer inside its write polls its completion queue there, and takes
 * the completions of our replies with it. When these have filled its own buffer, no further event of ours wakes it, and
 * it may sleep with all of them unread. A Keepalive is an event. It is repeated at growing intervals while the peer
 * does not announce a buffer; a peer that is only slow ignores it. */
static uint64_t wake_stalled(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    if (!c->stalled || c->conn.state != CONN_OPEN || c->end_pending || c->finished) return 0;
    rdma_control_keepalive(c);
    uint64_t stalled_us = clock_monotonic_us() - c->stalled_us;
    return stalled_us < STALL_WAKE_MOST_US ? stalled_us + STALL_WAKE_US : STALL_WAKE_MOST_US;
}

void rdma_stall_begin(struct rdma_connection *c) {
    if (c->stalled) return;
    c->stalled = true;
    c->stalled_us = 0;
    if (!c->peer_size) return; /* it has not announced its first buffer yet */
    c->stalled_us = clock_monotonic_us();
    c->owner->stats.stalls++;
    if (!c->ring.out && c->conn.state == CONN_OPEN && !c->flushed)
        event_timer_set(c->conn.loop, &c->timer, STALL_WAKE_US, wake_stalled);
}

void rdma_stall_end(struct rdma_connection *c) {
    if (c->stalled && c->stalled_us) c->owner->stats.stall_us += waited(c, c->stalled_us);
    c->stalled = false;
    c->stalled_us = 0;
}

void rdma_starved_begin(struct rdma_connection *c) {
    if (list_is_linked(&c->starved_link)) return;
    list_append(&c->device->starved, &c->starved_link);
    c->starved_us = clock_monotonic_us();
    c->owner->stats.memory_waits++;
}

void rdma_starved_end(struct rdma_connection *c) {
    if (!list_is_linked(&c->starved_link)) return;
    list_remove(&c->device->starved, &c->starved_link);
    c->owner->stats.memory_wait_us += waited(c, c->starved_us);
}

/* Reports to the owner */

void rdma_connection_ready(struct rdma_connection *c) {
    if (!list_is_linked(&c->ready_link) && !c->finished) list_append(&c->owner->ready, &c->ready_link);
}

static uint64_t connecting_failed(struct event_timer *timer) {
    rdma_connection_run(container_of(timer, struct rdma_connection, timer));
    return 0;
}

void rdma_connection_failed(struct rdma_connection *c, int error, const char *note) {
    if (error != EPROTO) rdma_polled_take(c); /* report the bytes that arrived before the failure first */
    if (c->end_pending || c->finished) return;
    c->end_pending = true;
    c->failure = error;
    if (note && !c->error_note) c->error_note = mem_strdup(note);
    if (error) {
        c->owner->stats.failed++;
        c->owner->stats.errors[error_kind(c, error)]++;
    }
    if (error != EPROTO) log_end(c, note); /* rdma_violation() has logged it */
    rdma_stall_end(c);
    rdma_send_drop(c);
    if (c->lingering || (c->passive && c->conn.state == CONN_CONNECTING))
        rdma_connection_finish(c); /* no owner is left to notify */
    else if (c->conn.state == CONN_CONNECTING)
        event_timer_set(c->conn.loop, &c->timer, 0,
                        connecting_failed); /* there may be no device whose poller runs the ready list */
    else
        rdma_connection_ready(c);
}

static void end_now(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    conn->state = CONN_ENDED;
    conn->error = c->failure;
    event_timer_cancel(conn->loop, &c->timer);
    conn->events->closed(conn);
}

static uint64_t still_silent(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    if (c->refused)
        rdma_connection_failed(c, EACCES,
                               c->refused_read ? "the peer's device refused a READ: its key, bounds or rights"
                                               : "remote access error");
    else
        rdma_connection_failed(c, ECONNRESET, "the queue pair was flushed");
    return 0;
}

void rdma_connection_run(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (c->finished || c->showing || conn->state >= CONN_ENDED) return;
    if (conn->state == CONN_OPEN) {
        rdma_receive_settle(c);
        while (rdma_may_receive(c) && c->received > c->taken) {
            rdma_receive_show(c);
            c->showing = true;
            conn->events->readable(conn);
            c->showing = false;
            if (conn->state != CONN_OPEN) return;
            rdma_receive_settle(c);
        }
        if (c->reads) rdma_reads_run(c);
        if (conn->state != CONN_OPEN) return;
        if (c->waiting && rdma_send_pending(c) == 0 && !c->end_pending) {
            c->waiting = false;
            if (conn->events->drained) conn->events->drained(conn);
            if (conn->state != CONN_OPEN) return;
        }
    }
    if (c->end_pending && (conn->state == CONN_CONNECTING || rdma_receive_unshown(c) == 0)) {
        rdma_reads_fail(c, c->failure ? -c->failure : -ECONNRESET);
        if (conn->state < CONN_ENDED) end_now(c);
    } else if (c->flushed && !c->end_pending)
        event_timer_set(conn->loop, &c->timer, 20000, still_silent);
}

static int error_of(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return ETIMEDOUT;
    case IBV_WC_RNR_RETRY_EXC_ERR: return ENOBUFS;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR: return EACCES;
    default: return EIO;
    }
}

void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc) {
    if (c->end_pending || c->finished) return;
    if (wc->status == IBV_WC_WR_FLUSH_ERR || wc->status == IBV_WC_REM_ACCESS_ERR) {
        /* Requests are also flushed when the peer disconnects, and the device of a peer that exits may refuse our
         * WRITEs because the peer deregisters its buffer first. The event that reports the end may follow. */
        if (wc->status == IBV_WC_REM_ACCESS_ERR) {
            c->refused = true;
            c->refused_read = rdma_reads_holds(c, (uint32_t)(wc->wr_id >> 1));
        }
        if (c->flushed) return;
        c->flushed = true;
        if (c->lingering)
            rdma_connection_finish(c);
        else
            rdma_connection_ready(c);
        return;
    }
    if (rdma_is_receive(wc)) {
        rdma_violation(c, "a message that does not fit a control message (%s)", ibv_wc_status_str(wc->status));
        return;
    }
    rdma_connection_failed(c, error_of(wc->status), ibv_wc_status_str(wc->status));
}

/* Life */

void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state) {
    c->conn.out.ops = &rdma_output_ops;
    c->conn.transport = &transport_rdma;
    c->conn.loop = owner->loop;
    c->conn.state = state;
    c->conn.in_limit = IN_LIMIT_DEFAULT;
    c->owner = owner;
    c->held_end = &c->held;
    c->began_us = clock_monotonic_us();
    rdma_control_tick(c, 0);
    rdma_polled_init(c);
    output_queue_init(&c->output);
    list_init(&c->values);
    list_append(&owner->connections, &c->link);
    owner->stats.connections++;
    rdma_loop_tick_start(owner);
}

/* The time a peer may take to announce its buffer. It counts as part of connecting, but nothing else has to be waited
 * for then. */
static uint64_t register_timeout_us(void) {
    return 2 * 1000 * (uint64_t)(rdma_settings.connect_timeout_ms ? rdma_settings.connect_timeout_ms : 5000);
}

static uint64_t never_registered(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    rdma_violation(c, "no RegisterXferMemory within %llu ms", (unsigned long long)register_timeout_us() / 1000);
    return 0;
}

void rdma_connection_opened(struct rdma_connection *c) {
    c->phase = RDMA_ESTABLISHED;
    c->conn.state = CONN_OPEN;
    /* When our receives run out, the peer should try again soon; the connection manager's default is 655 ms. */
    struct ibv_qp_attr attr = {.min_rnr_timer = 1 /* 10 us */};
    ibv_modify_qp(c->qp, &attr, IBV_QP_MIN_RNR_TIMER);
    event_timer_cancel(c->conn.loop, &c->timer);
    if (!c->peer_size) event_timer_set(c->conn.loop, &c->timer, register_timeout_us(), never_registered);
    rdma_receive_begin(c);
    rdma_control_open(c);
    c->last_control_us = clock_mono();
    if (rdma_hooks.connected) rdma_hooks.connected(&c->conn, clock_monotonic_us() - c->began_us);
}

void rdma_connection_tick(struct rdma_connection *c, uint64_t now) {
    rdma_control_tick(c, now);
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    rdma_send_tick(c);
    if (c->end_pending || c->conn.state != CONN_OPEN) return;
    rdma_receive_tick(c, now);
    rdma_polled_tick(c);
}

static uint64_t lingered_enough(struct event_timer *timer) {
    rdma_connection_finish(container_of(timer, struct rdma_connection, timer));
    return 0;
}

static void rdma_close(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    bool linger = rdma_takes_output(c) && c->phase == RDMA_ESTABLISHED && !c->flushed &&
                  (rdma_send_pending(c) || c->posted != c->retired);
    conn->state = CONN_CLOSED;
    rdma_reads_close(c);
    if (linger) {
        if (list_is_linked(&c->ready_link)) list_remove(&c->owner->ready, &c->ready_link);
        c->lingering = true;
        event_timer_set(conn->loop, &c->timer, LINGER_US, lingered_enough);
        rdma_send_pump(c);
        rdma_send_check_linger(c);
    } else if (rdma_usable()) {
        rdma_connection_finish(c);
    }
    conn->in_len = 0;
    conn->sink = NULL;
}

void rdma_connection_release(struct rdma_connection *c) {
    if (c->released) return;
    c->released = true;
    list_remove(&c->owner->connections, &c->link);
    c->owner->stats.connections--;
    if (c->features & RDMA_FEATURE_RING) c->owner->stats.ring_connections--;
    if (c->passive) rdma_accepted--;
    if (c->device) {
        rdma_device_drain(c->device); /* its receives must complete before the queue pair is destroyed */
        rdma_queue_pair_destroy(c);
    }
    rdma_reads_close(c);
    if (c->device) rdma_polled_release(c);
    rdma_send_release(c);
    rdma_receive_release(c);
    if (c->id) rdma_destroy_id(c->id);
    c->id = NULL;
    if (c->device) rdma_device_left(c->device);
    c->device = NULL;
    mem_free(c->error_note);
    c->error_note = NULL;
}

/* What the transport offers */

static void rdma_consume(struct connection *conn, size_t len) {
    rdma_receive_consume(rdma_of(conn), len);
}
static void rdma_set_reading(struct connection *conn) {
    if (conn->state == CONN_OPEN) rdma_connection_ready(rdma_of(conn));
}
static void rdma_set_trusted(struct connection *conn) {
    if (conn->trusted) rdma_untrusted_leave(rdma_of(conn));
}
static void rdma_flush(struct connection *conn) {
    rdma_send_flush(rdma_of(conn));
}
static size_t rdma_pending(const struct connection *conn) {
    return rdma_send_pending(rdma_of(conn));
}

/* For display */

static int rdma_fd(const struct connection *conn) {
    return -1;
}
static int rdma_set_keepalive(struct connection *conn, int seconds) {
    return 0;
} /* rdma_settings.keepalive_ms, for all */

static const char *rdma_error_text(const struct connection *conn) {
    const struct rdma_connection *c = rdma_of(conn);
    if (c->error_note) return c->error_note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

static size_t rdma_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct rdma_connection *c = rdma_of(conn);
    size_t in = (c->rx ? c->rx->capacity : 0) + (c->next ? c->next->capacity : 0) +
                (c->spare ? c->spare->capacity : 0) + c->bounce_size;
    size_t out = rdma_send_memory(c);
    if (input) *input = in;
    if (output) *output = out;
    return sizeof *c + in + out;
}

static void rdma_describe(const struct connection *conn, char *text, size_t size) {
    const struct rdma_connection *c = rdma_of(conn);
    static const char *const features[] = {"none", "ring", "polled", "ring,polled"};
    unsigned which = (c->features & RDMA_FEATURE_RING ? 1 : 0) + (c->features & RDMA_FEATURE_POLLED ? 2 : 0);
    snprintf(text, size, "device=%s qp=%u rx=%u rx-free=%u tx=%u tx-free=%u queued=%zu rdma-features=%s",
             c->device ? c->device->name : "?", c->qp ? c->qp_num : 0, c->rx ? c->rx->size : 0, c->rx ? c->writable : 0,
             c->peer_size, c->window, rdma_send_pending(c), features[which]);
}

const struct transport transport_rdma = {
    .name = "rdma",
    .connect = rdma_connect_start,
    .listen = rdma_listen_start,
    .join = rdma_join,
    .consume = rdma_consume,
    .set_reading = rdma_set_reading,
    .set_trusted = rdma_set_trusted,
    .flush = rdma_flush,
    .pending = rdma_pending,
    .close = rdma_close,
    .address = rdma_connection_address,
    .fd = rdma_fd,
    .is_local = rdma_connection_is_local,
    .set_keepalive = rdma_set_keepalive,
    .error_text = rdma_error_text,
    .memory = rdma_memory,
    .describe = rdma_describe,
};
