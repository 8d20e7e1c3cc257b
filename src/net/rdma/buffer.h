/* buffer.h: what both kinds of receive buffers share: taking and announcing them, and receiving the bytes in them.
 * receive.h describes the buffers of the base protocol, ring.h the ring.
 *
 * Private bytes
 *   The peer may write to an announced buffer at any time, also to bytes that it has reported. Bytes that are looked at
 *   in a buffer may therefore differ from one look to the next: a name that was checked from the name that is used, a
 *   length that was measured from the length that is written. So rdma_receive_show() copies them to memory that no
 *   peer can write, before the owner of the connection looks at the first of them, and nothing reads them in the
 *   buffer again. The copy goes to the input buffer of the loop (input_buffer.h), which is in a cache of the
 *   processor, or, if the owner has named the place (conn_receive_into), to its final place. The only other reader of
 *   a buffer, the checksum of polled.h, decides nothing but when bytes are taken.
 *
 * Pieces
 *   The bytes of a large argument would be copied twice if they came into the input buffer first. After an argument
 *   that the owner had received into its own memory, or discarded, the next piece is therefore small: enough for the
 *   head of a request. It grows again when pieces are used up without such an argument.
 *
 * Rejected
 *   Parsing in the receive buffer and copying what is checked: each command checks its arguments in many places, and
 *   each of them would have to know.
 *   Revoking the peer's right to write while its bytes are looked at: a system call, or a work request and a wait,
 *   for each message. */
#pragma once
#include "net/rdma/connection.h"

/* Allocates the first buffer. False: errno. */
bool rdma_receive_allocate(struct rdma_connection *c);
/* Takes a buffer of that size to replace receive.rx. NULL: none is available. */
struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size);
/* receive.next becomes receive.rx, with the bytes that arrived in it. Returns the buffer before. */
struct rdma_rx *rdma_receive_enter_next(struct rdma_connection *c);
void rdma_receive_drop_spare(struct rdma_connection *c);
/* For how long nothing has arrived, as far as the ticks have noticed. */
uint64_t rdma_receive_quiet_us(struct rdma_connection *c, uint64_t now);

/* RegisterXferMemory. False: the send queue is full. */
bool rdma_receive_send_memory(struct rdma_connection *c, const struct rdma_rx *rx);
/* Announces receive.rx (receive.next if there is one), to be written from its start, now or when there is space in the
 * send queue. */
void rdma_receive_announce(struct rdma_connection *c);

/* The owner wants more bytes. */
static inline bool rdma_may_receive(const struct rdma_connection *c) {
    return c->conn.state == CONN_OPEN && !c->conn.reading_paused && !c->receive.showing &&
           (c->conn.sink || c->conn.in_len < c->conn.in_limit);
}
/* Bytes that arrived and were not taken from the buffer yet. */
static inline size_t rdma_receive_unshown(const struct rdma_connection *c) {
    return (size_t)(c->receive.received - c->receive.taken) + c->receive.wrapped + c->receive.next_received;
}
/* Takes bytes that arrived out of the buffer, calls `readable`, and settles the input. Call it if rdma_may_receive()
 * and bytes of receive.rx were not taken. */
void rdma_receive_show(struct rdma_connection *c);
