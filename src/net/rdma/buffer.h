/* buffer.h: what both kinds of receive buffers share: taking and announcing them, and exposing the bytes in them in
 * place. receive.h describes the buffers of the base protocol, ring.h the ring. */
#ifndef NET_RDMA_BUFFER_H
#define NET_RDMA_BUFFER_H
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
/* Bytes that arrived and are not exposed yet. */
static inline size_t rdma_receive_unshown(const struct rdma_connection *c) {
    return (size_t)(c->receive.received - c->receive.taken) + c->receive.wrapped + c->receive.next_received;
}
void rdma_receive_show(struct rdma_connection *c);      /* exposes bytes that arrived, or as many as are useful now */
void rdma_receive_to_bounce(struct rdma_connection *c); /* moves the bytes exposed in place to the bounce buffer */
#endif
