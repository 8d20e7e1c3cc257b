/* lifetime.c: see lifetime.h. */
#include "net/rdma/lifetime.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/buffer.h"
#include "net/rdma/completion.h"
#include "net/rdma/control.h"
#include "net/rdma/polled.h"
#include "net/rdma/reads.h"
#include "net/rdma/receive.h"
#include "net/rdma/send.h"
#include "net/rdma/srq.h"
#include "net/rdma/untrusted.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum {
    LINGER_US = 2 * 1000 * 1000,
    IN_LIMIT_DEFAULT = 1024 * 1024 * 1024,
};

_Atomic uint32_t rdma_accepted;

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

static void log_end(const struct rdma_connection *c, const char *note) {
    char name[RDMA_NAME_MAX];
    if (log_level > LOG_LEVEL_VERBOSE || c->phase != RDMA_ESTABLISHED) return;
    rdma_connection_name(c, name);
    if (!c->ending.failure)
        log_verbose("RDMA: %s disconnected", name);
    else
        log_verbose("RDMA: the connection with %s failed: %s (%s, errno %d)", name, note ? note : "reason unknown",
                    strerror(c->ending.failure), c->ending.failure);
}

/* --- Reports to the owner --- */

static uint64_t connecting_failed(struct event_timer *timer) {
    rdma_connection_run(container_of(timer, struct rdma_connection, timer));
    return 0;
}

/* Nothing that came before such a failure is reported. */
static bool ends_at_once(int error) {
    return error == EPROTO || error == ENOMEM;
}

void rdma_connection_failed(struct rdma_connection *c, int error, const char *note) {
    bool at_once = ends_at_once(error);
    if (!at_once) rdma_polled_take(c); /* report the bytes that arrived before the failure first */
    if (c->end_pending || c->finished) return;
    if (at_once) { /* discard the bytes that were not taken yet */
        c->receive.received = c->receive.taken;
        c->receive.wrapped = c->receive.next_received = 0;
    }
    c->end_pending = true;
    c->ending.failure = error;
    if (note && !c->ending.note) c->ending.note = mem_strdup(note);
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

static void rdma_request_failed(struct rdma_connection *c, int error, const char *note) {
    if (c->end_pending || c->failing || c->finished) return;
    if (c->conn.state != CONN_OPEN) { /* no owner waits for what arrived */
        rdma_connection_failed(c, error, note);
        return;
    }
    c->failing = error;
    c->ending.request_note = note;
    rdma_connection_ready(c);
}

static void end_now(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    conn->state = CONN_ENDED;
    conn->error = c->ending.failure;
    event_timer_cancel(conn->loop, &c->timer);
    conn->events->closed(conn);
}

static const char *refusal(const struct rdma_connection *c) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000, .lines = 20};
    if (!c->ending.refused_place)
        return c->ending.refused_read ? "the peer's device refused a READ: its key, bounds or rights"
                                      : "remote access error";
    const char *what = c->ending.refused_read
                           ? "its device refused a READ of the memory that a placement names: key, bounds or rights"
                           : "its device refused a WRITE to the memory that a placement names: key, bounds or rights";
    char name[RDMA_NAME_MAX];
    log_limited(&limit, LOG_LEVEL_WARNING, "RDMA: closing the connection of %s: %s", rdma_connection_name(c, name),
                what);
    return what;
}

static uint64_t still_silent(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    rdma_device_drain(c->qp.device);
    if (c->ending.refused)
        rdma_connection_failed(c, EACCES, refusal(c));
    else
        rdma_connection_failed(c, ECONNRESET, "the queue pair was flushed");
    return 0;
}

/* The owner gets the end behind the bytes before it. An owner that has paused reading may execute what it has got, and
 * `closed` would discard that. */
static bool end_waits(const struct rdma_connection *c) {
    if (c->conn.state == CONN_CONNECTING) return false;
    bool at_once = ends_at_once(c->ending.failure);
    return rdma_receive_unshown(c) || (c->conn.reading_paused && c->conn.events->hung_up && !at_once);
}

static void hang_up(struct connection *conn) {
    if (conn->hung_up) return;
    conn->hung_up = true;
    if (conn->events->hung_up) conn->events->hung_up(conn);
}

static __attribute__((noinline)) void run_end(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (c->end_pending && end_waits(c)) {
        hang_up(conn);
    } else if (c->end_pending) {
        rdma_reads_fail(c, c->ending.failure ? -c->ending.failure : -ECONNRESET);
        if (conn->state < CONN_ENDED) end_now(c);
    } else if (c->failing) {
        rdma_connection_ready(c); /* since it was drained */
    } else {
        event_timer_set(conn->loop, &c->timer, 20000, still_silent);
    }
}

static __attribute__((noinline)) void fail_drained(struct rdma_connection *c) {
    if (c->end_pending) return;
    rdma_device_drain(c->qp.device);
    rdma_connection_failed(c, c->failing, c->ending.request_note);
}

void rdma_connection_run(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (c->lingering && !c->finished && !c->flushed) rdma_send_continue(c); /* what is placed in several turns */
    if (c->finished || c->receive.showing || conn->state >= CONN_ENDED) return;
    if (__builtin_expect(c->failing, 0)) fail_drained(c);
    if (conn->state == CONN_OPEN) {
        rdma_receive_settle(c);
        while (rdma_may_receive(c) && c->receive.received > c->receive.taken) {
            rdma_receive_show(c);
            if (conn->state != CONN_OPEN) return;
            rdma_receive_settle(c);
        }
        if (c->reads) rdma_reads_run(c);
        if (conn->state != CONN_OPEN) return;
        if (c->send.places.len) rdma_send_continue(c);
        if (c->send.waiting && rdma_send_pending(c) == 0 && !c->send.places.len && !c->end_pending && !c->failing) {
            c->send.waiting = false;
            if (conn->events->drained) conn->events->drained(conn);
            if (conn->state != CONN_OPEN) return;
        }
    }
    if (__builtin_expect(c->end_pending || c->failing || c->flushed, 0)) run_end(c);
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
            c->ending.refused = true;
            uint32_t seq = (uint32_t)(wc->wr_id >> 1);
            c->ending.refused_read = rdma_reads_holds(c, seq);
            c->ending.refused_place = rdma_place_holds(c, seq, &c->ending.refused_read);
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
    rdma_request_failed(c, error_of(wc->status), ibv_wc_status_str(wc->status));
}

/* --- The tick of a loop --- */

static uint64_t loop_tick(struct event_timer *timer) {
    struct rdma_loop *owner = container_of(timer, struct rdma_loop, tick);
    if (!rdma_usable()) return 0;
    uint64_t now = clock_mono();
    owner->ticked_before_us = owner->ticked_us;
    owner->ticked_us = now;
    list_each(&owner->connections, link) rdma_connection_tick(container_of(link, struct rdma_connection, link), now);
    rdma_untrusted_tick(owner);
    list_each_entry(&owner->devices, struct rdma_device, link, device) {
        device->memory.growths_left = RDMA_GROWTHS_A_TICK;
        rdma_shared_rearm(device);
        if (!device->starved.len) continue;
        rdma_send_relieve(device);
        rdma_send_feed(device);
    }
    return owner->connections.len ? RDMA_TICK_US : 0;
}

static void tick_start(struct rdma_loop *owner) {
    if (owner->tick.heap_index) return;
    owner->ticked_us = owner->ticked_before_us = clock_monotonic_us();
    event_timer_set(owner->loop, &owner->tick, RDMA_TICK_US, loop_tick);
}

/* --- Life --- */

static const struct rdma_callbacks callbacks = {.failed = rdma_connection_failed,
                                                .request_failed = rdma_request_failed,
                                                .finish = rdma_connection_finish,
                                                .pump_control = rdma_control_pump};

void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state) {
    c->conn.transport = owner->transport;
    c->callbacks = &callbacks;
    c->conn.loop = owner->loop;
    c->conn.state = state;
    c->conn.in_limit = IN_LIMIT_DEFAULT;
    c->owner = owner;
    rdma_send_init(c);
    c->connecting.began_us = clock_monotonic_us();
    rdma_control_tick(c, 0);
    rdma_polled_init(c);
    list_append(&owner->connections, &c->link);
    owner->stats.connections++;
    tick_start(owner);
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
    ibv_modify_qp(c->qp.verbs, &attr, IBV_QP_MIN_RNR_TIMER);
    event_timer_cancel(c->conn.loop, &c->timer);
    if (!c->send.peer_size) event_timer_set(c->conn.loop, &c->timer, register_timeout_us(), never_registered);
    rdma_receive_begin(c);
    rdma_control_open(c);
    c->send.last_control_us = clock_mono();
    if (rdma_hooks.connected) rdma_hooks.connected(&c->conn, clock_monotonic_us() - c->connecting.began_us);
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

void rdma_connection_close(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    bool linger = !conn->drops_output && rdma_takes_output(c) && c->phase == RDMA_ESTABLISHED && !c->flushed &&
                  !c->failing && (rdma_send_pending(c) || c->send.posted != c->send.retired);
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
    if (c->ending.released) return;
    c->ending.released = true;
    list_remove(&c->owner->connections, &c->link);
    c->owner->stats.connections--;
    if (c->features & RDMA_FEATURE_RING) c->owner->stats.ring_connections--;
    if (c->passive) rdma_accepted--;
    if (c->qp.device) {
        rdma_device_drain(c->qp.device); /* its receives must complete before the queue pair is destroyed */
        rdma_queue_pair_destroy(&c->qp);
    }
    rdma_reads_close(c);
    if (c->qp.device) rdma_polled_release(c);
    rdma_send_release(c);
    rdma_untrusted_leave(c);
    rdma_receive_release(c);
    if (c->qp.id) rdma_destroy_id(c->qp.id);
    c->qp.id = NULL;
    if (c->qp.device) rdma_device_left(c->qp.device);
    c->qp.device = NULL;
    mem_free(c->ending.note);
    c->ending.note = NULL;
}

static void connection_free(struct event_deferred *deferred) {
    struct rdma_connection *c = rdma_of(container_of(deferred, struct connection, deferred));
    rdma_connection_release(c);
    if (c->connecting.addresses) freeaddrinfo(c->connecting.addresses);
    if (c->connecting.source) freeaddrinfo(c->connecting.source);
    mem_free(c);
}

void rdma_connection_finish(struct rdma_connection *c) {
    if (c->finished) return;
    c->finished = true;
    c->conn.state = CONN_CLOSED;
    event_timer_cancel(c->conn.loop, &c->timer);
    if (list_is_linked(&c->ready_link)) list_remove(&c->owner->ready, &c->ready_link);
    rdma_starved_end(c);
    rdma_stall_end(c);
    rdma_queue_pair_forget(&c->qp);
    /* A disconnect moves the queue pair to ERR first. */
    bool stopped = c->phase == RDMA_ESTABLISHED && rdma_disconnect(c->qp.id) == 0;
    if (!stopped) rdma_queue_pair_stop(&c->qp);
    c->phase = RDMA_OVER;
    event_loop_defer(c->conn.loop, &c->conn.deferred, connection_free);
}

void rdma_connection_cut(struct rdma_connection *c, int error, const char *note) {
    rdma_queue_pair_stop(&c->qp);
    if (c->qp.device) rdma_device_drain(c->qp.device);
    rdma_connection_failed(c, error, note);
    rdma_queue_pair_destroy(&c->qp);
}
