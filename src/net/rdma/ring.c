/* ring.c: see ring.h. */
#include "net/rdma/ring.h"
#include "lib/system/clock.h"
#include "lib/system/must.h"
#include "net/rdma/announce.h"
#include "net/rdma/buffer.h"
#include "net/rdma/send.h"
#include "net/rdma/size.h"
#include <endian.h>

enum {
    QUIET_US = 30 * 1000 * 1000,  /* a connection that was quiet for this long returns to its first buffer size, */
    QUIET_SHORT_US = 1000 * 1000, /* or for this long if registered memory is short */
};

/* --- Receiving --- */

void rdma_ring_begin_in(struct rdma_connection *c) {
    must(!c->receive.is_ring && c->receive.registered);
    c->receive.is_ring = true;
    rdma_receive_drop_spare(c);
    rdma_connection_ready(c);
}

/* The peer has switched to the next buffer. */
static inline bool next_in_use(const struct rdma_connection *c) {
    return c->receive.next && !c->ring.moving;
}

void rdma_ring_arrived(struct rdma_connection *c, uint32_t len) {
    if (next_in_use(c)) {
        c->receive.next_received += len;
        must_within(c->receive.next_received, c->receive.next->size);
        return;
    }
    uint32_t lap = c->receive.rx->size - c->receive.received;
    if (len > lap) {
        c->receive.wrapped += len - lap;
        must_within(c->receive.wrapped, c->receive.taken); /* it does not overwrite what was not taken */
        len = lap;
    }
    c->receive.received += len;
}

/* Free bytes that are not credited to the peer yet. */
static uint32_t creditable(const struct rdma_connection *c) {
    uint32_t occupied = c->receive.received - c->receive.taken + c->receive.wrapped;
    must_within(occupied, c->receive.rx->size);
    must_within(c->receive.writable, c->receive.rx->size - occupied);
    return c->receive.rx->size - c->receive.writable - occupied;
}

static bool credit_due(const struct rdma_connection *c) {
    if (c->receive.next) return false;
    uint32_t bytes = creditable(c);
    return bytes && (bytes >= c->receive.rx->size / 4 || c->receive.writable == 0);
}

/* Sends a Credit if enough bytes are free. */
static void give_credit(struct rdma_connection *c) {
    if (!c->receive.is_ring || c->receive.showing || c->conn.state != CONN_OPEN || c->end_pending || !credit_due(c))
        return;
    uint32_t bytes = creditable(c);
    union rdma_wire_message message = {.credit = {.opcode = htobe16(RDMA_OP_CREDIT), .bytes = htobe32(bytes)}};
    c->ring.credit_waits = !rdma_send_control(c, &message);
    if (c->ring.credit_waits) {
        c->send.wants_control = true;
        return;
    }
    c->receive.writable += bytes;
    c->owner->stats.credits_out++;
}

static void move_to(struct rdma_connection *c, uint32_t size) {
    if (size == c->receive.rx->size || c->receive.next || c->end_pending) return;
    struct rdma_rx *rx = rdma_receive_take_other(c, size);
    if (!rx) return;
    c->receive.next = rx;
    rx->announced = c->ring.moving = rdma_receive_send_memory(c, rx);
    if (c->ring.moving) return;
    c->receive.next = NULL; /* the send queue is full: try again at the next lap */
    rdma_rx_give(&c->qp.device->memory, rx);
}

/* At the end of a lap: decides whether to change the buffer. */
static void consider_size(struct rdma_connection *c) {
    uint64_t now = clock_mono();
    uint32_t size = rdma_receive_ring_size(c, c->receive.rx->size, now - c->receive.since_us);
    c->receive.since_us = now;
    move_to(c, size);
}

void rdma_ring_tick(struct rdma_connection *c, uint64_t now) {
    if (c->receive.rx->size <= c->receive.least) return;
    if (rdma_receive_quiet_us(c, now) < (rdma_memory_is_short() ? QUIET_SHORT_US : QUIET_US)) return;
    if (c->receive.showing || c->conn.sink || c->receive.received != c->receive.taken || c->receive.wrapped) return;
    c->receive.quiet_since_us = now;
    move_to(c, c->receive.least);
}

void rdma_ring_settle(struct rdma_connection *c) {
    while (c->receive.taken == c->receive.received) {
        bool last = next_in_use(c) && c->receive.wrapped == 0;
        if (!last && c->receive.taken < c->receive.rx->size) break;
        c->receive.taken = 0;
        if (last)
            rdma_rx_give(&c->qp.device->memory, rdma_receive_enter_next(c));
        else {
            c->receive.received = c->receive.wrapped;
            c->receive.wrapped = 0;
            consider_size(c);
        }
    }
    give_credit(c);
}

void rdma_ring_moved(struct rdma_connection *c) {
    must(c->ring.moving && c->receive.next);
    c->ring.moving = false;
    c->receive.writable = c->receive.next->size;
    rdma_connection_ready(c);
}

/* --- Sending --- */

void rdma_ring_on_credit(struct rdma_connection *c, const struct rdma_wire_credit *credit) {
    uint32_t bytes = be32toh(credit->bytes), used = c->send.peer_size - c->send.window;
    if (!c->send.to_ring) {
        rdma_violation(c, "a Credit for a buffer that is no ring");
    } else if (bytes == 0 || bytes > used) {
        rdma_violation(c, "a Credit of %u bytes while %u are in the buffer", bytes, used);
    } else {
        c->owner->stats.credits_in++;
        c->send.window += bytes;
        rdma_send_resume(c);
    }
}

bool rdma_ring_pump(struct rdma_connection *c) {
    if (c->send.owes_taken) {
        union rdma_wire_message message = {
            .credit = {.opcode = htobe16(RDMA_OP_BUFFER_TAKEN), .bytes = htobe32(rdma_announce_taken_count(c))}};
        c->send.owes_taken = !rdma_send_control(c, &message);
        if (!c->send.owes_taken) rdma_announce_taken_sent(c);
    }
    if (c->ring.credit_waits) {
        c->ring.credit_waits = false; /* unless it waits again */
        give_credit(c);
    }
    return !c->send.owes_taken && !c->ring.credit_waits;
}
