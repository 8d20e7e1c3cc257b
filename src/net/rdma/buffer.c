/* buffer.c: see buffer.h. */
#include "net/rdma/buffer.h"
#include "net/input_buffer.h"
#include "net/rdma/send.h"
#include "net/rdma/size.h"
#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
    PIECE_LEAST = 256, /* bytes of the smallest piece */
    PIECE_HEAD = 64,   /* after bytes that are discarded: the head of a reply, which lies in one or two cache lines */
    PIECE_FACTOR = 4,
};

/* --- Buffers --- */

bool rdma_receive_allocate(struct rdma_connection *c) {
    c->receive.least = rdma_receive_first_size(c->passive);
    c->receive.piece = INPUT_SHARED_SIZE;
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

/* --- Receiving bytes --- */

/* The next piece is small after an argument that went to the owner's memory, and larger after one of small requests. */
static void piece_adapt(struct rdma_connection *c, uint32_t taken) {
    if (c->receive.discard)
        c->receive.piece = PIECE_HEAD;
    else if (c->conn.sink)
        c->receive.piece = PIECE_LEAST;
    else if (taken == c->receive.piece && c->receive.piece < INPUT_SHARED_SIZE)
        c->receive.piece *= PIECE_FACTOR;
}

/* Shows whole small requests, the usual case, with fewer checks than below. False: this is another case. */
static bool show_small(struct rdma_connection *c, const char *from, uint32_t len) {
    struct connection *conn = &c->conn;
    struct input_shared *shared = &c->owner->input;
    if (len > c->receive.piece || len > conn->in_limit || conn->in_len || conn->sink || c->receive.discard ||
        conn->takes_later || shared->lent)
        return false;
    memcpy(shared->data, from, len);
    c->receive.taken += len;
    conn->in = shared->data;
    conn->in_len = len;
    shared->lent = true;
    c->receive.showing = true;
    conn->events->readable(conn);
    c->receive.showing = false;
    size_t kept = c->receive.input.own_size;
    if (conn->in_len == 0 && kept >= conn->in_kept && kept <= INPUT_SHARED_SIZE && conn->state != CONN_CLOSED) {
        shared->lent = false;
        conn->in = NULL;
    } else if (!input_buffer_settle(&c->receive.input, conn, shared, &(struct input_space){.shared = true})) {
        c->callbacks->failed(c, ENOMEM, "no memory for its input");
    }
    piece_adapt(c, len);
    return true;
}

void rdma_receive_show(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    struct input_shared *shared = &c->owner->input;
    struct input_space space = {0};
    uint32_t there = c->receive.received - c->receive.taken, piece = 0;
    const char *from = c->receive.rx->data + c->receive.taken;
    if (show_small(c, from, there)) return;
    if (c->receive.discard) {
        uint32_t part = there < c->receive.discard ? there : (uint32_t)c->receive.discard;
        c->receive.discard -= part;
        c->receive.taken += part;
        from += part;
        there -= part;
        if (c->receive.discard) return;
    }
    if (conn->sink) {
        char *sink = conn->sink;
        size_t part = conn_fill_sink(conn, there);
        memcpy(sink, from, part);
        from += part;
        there -= (uint32_t)part;
        c->receive.taken += (uint32_t)part;
    }
    if (there) {
        space = input_buffer_space(&c->receive.input, conn, shared);
        if (!space.at) {
            c->callbacks->failed(c, ENOMEM, "no memory for its input");
            return;
        }
        piece = there < c->receive.piece ? there : c->receive.piece;
        if (piece > space.size) piece = (uint32_t)space.size;
        memcpy(space.at, from, piece);
        c->receive.taken += piece;
        input_buffer_take(&c->receive.input, conn, shared, &space, piece);
    }
    c->receive.showing = true;
    conn->events->readable(conn);
    c->receive.showing = false;
    if (!input_buffer_settle(&c->receive.input, conn, shared, &space))
        c->callbacks->failed(c, ENOMEM, "no memory for its input");
    if (piece) piece_adapt(c, piece);
}
