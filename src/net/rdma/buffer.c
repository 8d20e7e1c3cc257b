/* buffer.c: see buffer.h. */
#include "net/rdma/buffer.h"
#include "lib/system/memory.h"
#include "net/rdma/send.h"
#include "net/rdma/size.h"
#include <endian.h>
#include <errno.h>
#include <string.h>

enum { BOUNCE_STEP = 4 * 1024 };

/* --- Buffers --- */

bool rdma_receive_allocate(struct rdma_connection *c) {
    c->receive.least = rdma_receive_first_size(c->passive);
    c->receive.in_bounce = !rdma_uses(RDMA_ZERO_COPY_IN); /* and stays there */
    c->receive.rx = rdma_rx_take(&c->qp.device->memory, c->receive.least);
    return c->receive.rx != NULL;
}

struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size) {
    bool grow = size > c->receive.rx->capacity;
    struct rdma_rx *rx =
        grow ? rdma_rx_take_to_grow(&c->qp.device->memory, size) : rdma_rx_take(&c->qp.device->memory, size);
    if (rx) *(grow ? &c->owner->stats.grown : &c->owner->stats.shrunk) += 1;
    return rx;
}

void rdma_receive_drop_spare(struct rdma_connection *c) {
    if (c->receive.spare) rdma_rx_give(&c->qp.device->memory, c->receive.spare);
    c->receive.spare = NULL;
    if (c->receive.second_bytes) c->qp.device->memory.second_bytes -= c->receive.second_bytes;
    c->receive.second_bytes = 0;
}

struct rdma_rx *rdma_receive_enter_next(struct rdma_connection *c) {
    struct rdma_rx *old = c->receive.rx;
    c->receive.rx = c->receive.next;
    c->receive.taken = 0;
    c->receive.received = c->receive.next_received;
    c->receive.next = NULL;
    c->receive.next_received = 0;
    return old;
}

uint64_t rdma_receive_quiet_us(struct rdma_connection *c, uint64_t now) {
    if (c->conn.bytes_in != c->receive.quiet_at) {
        c->receive.quiet_at = c->conn.bytes_in;
        c->receive.quiet_since_us = now;
    }
    return now - c->receive.quiet_since_us;
}

bool rdma_receive_send_memory(struct rdma_connection *c, const struct rdma_rx *rx) {
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_REGISTER_XFER_MEMORY),
                                                  .addr = htobe64((uintptr_t)rx->data),
                                                  .length = htobe32(rx->size),
                                                  .key = htobe32(rx->mr->rkey)}};
    return rdma_send_control(c, &message);
}

void rdma_receive_announce(struct rdma_connection *c) {
    c->receive.want_register = !rdma_receive_send_memory(c, c->receive.next ? c->receive.next : c->receive.rx);
    c->receive.registered = !c->receive.want_register;
    if (c->receive.want_register) c->send.wants_control = true;
}

/* --- Exposing bytes --- */

/* Makes space for `more` bytes behind those exposed from the bounce buffer. False: there is no memory. */
static bool bounce_reserve(struct rdma_connection *c, size_t more) {
    struct connection *conn = &c->conn;
    size_t at = (size_t)(conn->in - c->receive.bounce);
    if (c->receive.bounce_size - at - conn->in_len >= more) return true;
    if (c->receive.bounce_size >= conn->in_len + more && at >= conn->in_len) {
        memcpy(c->receive.bounce, conn->in, conn->in_len);
        conn->in = c->receive.bounce;
        return true;
    }
    char *grown = mem_try_alloc((conn->in_len + more) * 2);
    if (!grown) return false;
    c->receive.bounce_size = mem_size(grown);
    if (conn->in_len) memcpy(grown, conn->in, conn->in_len);
    mem_free(c->receive.bounce);
    conn->in = c->receive.bounce = grown;
    return true;
}

void rdma_receive_show(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    size_t there = c->receive.received - c->receive.taken;
    if (conn->sink) {
        char *sink = conn->sink;
        size_t part = conn_fill_sink(conn, there);
        memcpy(sink, c->receive.rx->data + c->receive.taken, part);
        c->receive.taken += (uint32_t)part;
        there -= part;
        if (there == 0) return;
    }
    if (c->receive.in_bounce) {
        size_t part = conn->in_len > BOUNCE_STEP ? conn->in_len : BOUNCE_STEP;
        if (part > there || !rdma_uses(RDMA_ZERO_COPY_IN)) part = there;
        if (!bounce_reserve(c, part)) {
            c->callbacks->failed(c, ENOMEM, "no memory for its input");
            return;
        }
        memcpy(c->receive.bounce + (conn->in - c->receive.bounce) + conn->in_len,
               c->receive.rx->data + c->receive.taken, part);
        c->receive.bounce_from_rx += part;
        if (c->receive.is_ring) { /* bytes kept for the return from the bounce buffer are not free for the peer */
            size_t most = c->receive.rx->size / 4;
            c->receive.bounce_from_rx = part < most ? part : most;
        }
        there = part;
    } else if (conn->in_len == 0)
        conn->in = c->receive.rx->data + c->receive.taken;
    c->receive.taken += (uint32_t)there;
    conn->in_len += there;
}

void rdma_receive_to_bounce(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    c->receive.bounce = mem_alloc_usable(conn->in_len + BOUNCE_STEP, &c->receive.bounce_size);
    memcpy(c->receive.bounce, conn->in, conn->in_len);
    conn->in = c->receive.bounce;
    c->receive.in_bounce = true;
}
