/* receive.c: see receive.h.
 */
#include "net/rdma/receive.h"
#include "lib/system/clock.h"
#include "lib/system/must.h"
#include "net/rdma/buffer.h"
#include "net/rdma/ring.h"
#include "net/rdma/size.h"

enum {
    SECOND_MOST = 64 * 1024 * 1024,   /* bytes of second buffers of a device context */
    INPUT_KEPT_MOST = 1024 * 1024,    /* bytes of empty memory for input that stay */
    SPARE_QUIET_US = 2 * 1000 * 1000, /* the second buffer is released when nothing has arrived for this long */
};

/* Replaces receive.rx by a buffer of that size. All bytes of receive.rx are taken. The caller announces the new
 * buffer. False: none is available, and receive.rx stays. */
static bool switch_to(struct rdma_connection *c, uint32_t size) {
    struct rdma_rx *rx = rdma_receive_take_other(c, size);
    if (!rx) return false;
    rdma_rx_give(&c->qp.device->memory, c->receive.rx);
    c->receive.rx = rx;
    return true;
}

/* The peer may fill the buffer from its start. */
static void announce(struct rdma_connection *c, struct rdma_rx *rx) {
    c->receive.writable = rx->size;
    c->receive.since_us = clock_mono();
    c->receive.messages = 0;
    rx->announced = true;
    rdma_receive_announce(c);
}

void rdma_receive_begin(struct rdma_connection *c) {
    c->receive.received = c->receive.taken = 0;
    announce(c, c->receive.rx);
}

/* Takes a buffer in which the peer continues while the full one is read: one of a better size, the spare one, or
 * another one. NULL: none is available. */
static struct rdma_rx *take_next(struct rdma_connection *c) {
    rdma_size_guess_write(c);
    uint32_t capacity = rdma_receive_plain_size(c, c->receive.messages, clock_mono() - c->receive.since_us);
    struct rdma_rx *rx = capacity != c->receive.rx->capacity ? rdma_receive_take_other(c, capacity) : NULL;
    if (rx) {
        rx->size = rdma_size_fitting(c, capacity);
        return rx;
    }
    rx = c->receive.spare;
    c->receive.spare = NULL;
    if (!rx && c->qp.device->memory.second_bytes + c->receive.rx->capacity <= SECOND_MOST) {
        rx = rdma_rx_take_to_grow(&c->qp.device->memory, c->receive.rx->capacity);
        if (rx) c->qp.device->memory.second_bytes += c->receive.second_bytes = rx->capacity;
    }
    if (rx) rx->size = rdma_size_fitting(c, rx->capacity);
    return rx;
}

/* The full buffer is about to be read. True: it is better to announce the next one after that. */
static bool later_is_better(const struct rdma_connection *c) {
    /* The buffer ended with a write. The peer waits for the reply to it, not for a buffer. Reply and announcement then
     * arrive together, and one buffer is enough for the peer. */
    if (!c->receive.write_part) return rdma_receive_unshown(c) + c->conn.in_len <= c->receive.write_length;
    /* The first write has filled the first buffer. The header of the request shows how much is missing. */
    return !c->receive.write_length && c->receive.write_part == c->receive.rx->size &&
           c->receive.rx->capacity < rdma_size_largest_plain(c);
}

/* The buffer is full and not read yet. An untrusted peer has only one buffer. */
static void announce_next(struct rdma_connection *c) {
    if (c->receive.next || c->receive.is_ring || !c->conn.trusted || c->conn.state != CONN_OPEN || c->end_pending)
        return;
    if (rdma_may_receive(c) && later_is_better(c)) return;
    c->receive.next = take_next(c);
    if (!c->receive.next) return;
    rdma_size_count(c, c->receive.next->size == c->receive.rx->size);
    announce(c, c->receive.next);
}

/* All of the buffer is taken, and the next one is announced. */
static void enter_next(struct rdma_connection *c) {
    struct rdma_rx *old = rdma_receive_enter_next(c);
    if (c->receive.spare || old->capacity != c->receive.rx->capacity) {
        rdma_receive_drop_spare(c);
        rdma_rx_give(&c->qp.device->memory, old);
    } else
        c->receive.spare = old;
    if (c->receive.writable == 0) announce_next(c);
}

void rdma_receive_tick(struct rdma_connection *c, uint64_t now) {
    if (c->receive.is_ring) {
        rdma_ring_tick(c, now);
        return;
    }
    uint64_t quiet_us = rdma_receive_quiet_us(c, now);
    if (quiet_us >= SPARE_QUIET_US || (quiet_us && rdma_memory_is_short())) rdma_receive_drop_spare(c);
}

void rdma_receive_settle(struct rdma_connection *c) {
    if (!c->receive.rx || c->receive.showing) return;
    must_within(c->receive.taken, c->receive.received);
    must_within(c->receive.received, c->receive.rx->size);
    if (c->receive.is_ring) {
        bool maybe_credit = c->receive.writable <= c->receive.rx->size - c->receive.rx->size / 4;
        if (maybe_credit || c->receive.taken == c->receive.rx->size || c->receive.next) rdma_ring_settle(c);
        return;
    }
    if (c->receive.taken < c->receive.rx->size || !rdma_may_receive(c) || (c->end_pending && !c->receive.next)) return;
    if (c->receive.next) {
        enter_next(c);
        return;
    }
    rdma_size_guess_write(c);
    uint32_t capacity = rdma_receive_plain_size(c, c->receive.messages, clock_mono() - c->receive.since_us);
    uint32_t size = rdma_size_fitting(c, capacity), before = c->receive.rx->size;
    if (capacity == c->receive.rx->capacity || switch_to(c, capacity)) c->receive.rx->size = size;
    rdma_size_count(c, c->receive.rx->size == before);
    rdma_receive_begin(c);
}

void rdma_receive_consume(struct rdma_connection *c, size_t len) {
    struct connection *conn = &c->conn;
    bool was_full = conn->in_len >= conn->in_limit;
    must_within(len, conn->in_len);
    conn->in += len;
    conn->in_len -= len;
    if (c->receive.showing) return;
    if (conn->takes_later && conn->in_len == 0 && c->receive.input.own_size > INPUT_KEPT_MOST)
        input_buffer_free(&c->receive.input);
    if (was_full) rdma_connection_ready(c);
}

/* A write of the peer has arrived, or the part of it that filled the buffer. */
static void note_write(struct rdma_connection *c, uint32_t len) {
    uint32_t length = c->receive.write_part <= UINT32_MAX - len ? c->receive.write_part + len : 0;
    if (c->receive.writable == 0 && length != c->receive.write_length) {
        c->receive.write_part = length;
        return;
    }
    c->receive.write_part = 0;
    c->receive.write_guessed = false;
    if (length != c->receive.write_length) {
        c->receive.write_length = length;
        c->receive.writes_alike = 0;
    } else if (c->receive.writes_alike < UINT8_MAX) {
        c->receive.writes_alike++;
    }
}

void rdma_receive_data(struct rdma_connection *c, uint32_t len) {
    if (!c->receive.registered)
        rdma_violation(c, "data before the receive buffer was announced");
    else if (len == 0)
        rdma_violation(c, "an immediate of zero bytes");
    else if (len > c->receive.writable)
        rdma_violation(c, "a message of %u bytes while %u are free", len, c->receive.writable);
    else {
        c->receive.writable -= len;
        c->receive.messages++;
        if (!c->receive.is_ring) note_write(c, len);
        /* The peer's bytes are in no cache or in another core's. Prefetch them while the rest of the batch of
         * completions is handled. */
        const char *arrived = c->receive.rx->data + c->receive.received;
        __builtin_prefetch(arrived);
        if (len > 64) __builtin_prefetch(arrived + 64);
        if (len <= c->receive.rx->size - c->receive.received && !c->receive.next)
            c->receive.received += len;
        else if (c->receive.is_ring)
            rdma_ring_arrived(c, len);
        else {
            must(c->receive.next); /* the buffer before has no space for what was writable */
            c->receive.next_received += len;
            must_within(c->receive.next_received, c->receive.next->size);
        }
        c->conn.bytes_in += len;
        c->owner->stats.bytes_in += len;
        c->owner->stats.messages_in++;
        if (c->receive.writable == 0) announce_next(c);
        if (!c->lingering) rdma_connection_ready(c);
    }
}

void rdma_receive_release(struct rdma_connection *c) {
    if (c->receive.next) rdma_rx_give(&c->qp.device->memory, c->receive.next);
    c->receive.next = NULL;
    rdma_receive_drop_spare(c);
    if (c->receive.rx) rdma_rx_give(&c->qp.device->memory, c->receive.rx);
    c->receive.rx = NULL;
    input_buffer_free(&c->receive.input);
}
