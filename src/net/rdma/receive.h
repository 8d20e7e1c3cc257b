/* receive.h: the receiving half of the data path.
 *
 * The peer writes into the buffer `rx`, from its start. Each immediate says how many bytes have arrived. The bytes are
 * exposed to the owner in place. The bytes in [0, taken) were exposed. Those in [taken, received) have arrived and are
 * not exposed yet.
 *
 * Base protocol
 *   The peer must stop when the buffer is full, and waits inside its write for the next RegisterXferMemory. Therefore
 *   the completion that fills `rx` announces a second buffer, `next`, before the requests in `rx` are executed. The
 *   peer copies its next bytes in the meantime. When all of `rx` has been exposed, `next` becomes `rx`. The old buffer
 *   is kept as `spare` and is the next one to be announced. Without memory for a second buffer, and with an untrusted
 *   peer, `rx` is announced again when all of it has been exposed.
 *   A request that crosses the end of the buffer moves to the bounce buffer. The bytes that follow are copied there, a
 *   few at a time, until the request is complete. After that, bytes are exposed in place again.
 *
 *   buffer   holds                                        is announced
 *   rx       the bytes that are exposed now               when the connection opens, and again when all of it has
 *                                                         been exposed and there is no `next`
 *   next     the bytes that arrive while `rx` is read     when `rx` is full
 *   spare    nothing                                      as `next`, when `rx` is full
 *   bounce   a request that crosses the end of `rx`       never; the peer does not know it
 *
 *   Example: buffers A and B of 32,768 bytes, and a trusted peer that sends requests of 300 bytes, one at a time.
 *
 *   event                                rx                next           spare   the owner sees
 *   the connection opens                 A, announced      -              -       nothing
 *   requests 1 to 109 arrive             A, 32,700 used    -              -       one request after the other, in A
 *   68 bytes of request 110 arrive       A, full           B, announced   -       68 bytes, in A
 *   these bytes have been exposed        B, empty          -              A       68 bytes, in the bounce buffer
 *   the other 232 bytes arrive           B, 232 used       -              A       request 110, in the bounce buffer
 *   requests 111 to 218 arrive           B, 32,632 used    -              A       one request after the other, in B
 *   136 bytes of request 219 arrive      B, full           A, announced   -       136 bytes, in B
 *
 *   The second buffer also prevents a stall. A client that polls its completion queue while it waits takes the
 *   completions of our replies there, and may then sleep although replies have arrived. rdma_stall_begin() has the
 *   remedy where there is no second buffer. The memory of all second buffers together is limited, because many large
 *   ones cost more in the processor's caches than the waiting that they save. size.h says how large buffers are.
 *
 * Ring
 *   With a peer that agreed to it, the buffer is a ring: ring.h. */
#ifndef NET_RDMA_RECEIVE_H
#define NET_RDMA_RECEIVE_H
#include "net/rdma/connection.h"

/* Announces the buffer again, from its start. */
void rdma_receive_begin(struct rdma_connection *c);
void rdma_receive_data(struct rdma_connection *c, uint32_t len); /* a message of `len` bytes has arrived */
/* Call after a handler and before the next one. Leaves the bounce buffer when the request that crossed the end is
 * consumed, and restarts a full buffer at its beginning. */
void rdma_receive_settle(struct rdma_connection *c);
void rdma_receive_consume(struct rdma_connection *c, size_t len);
void rdma_receive_tick(struct rdma_connection *c, uint64_t now);
void rdma_receive_release(struct rdma_connection *c);
#endif
