/* receive.h: the receiving half of the data path.
 *
 * The peer writes into the buffer `rx`, from its start. Each immediate says how many bytes have arrived. The bytes in
 * [0, taken) were copied to private memory (buffer.h), where the owner finds them. Those in [taken, received) have
 * arrived and are not taken yet.
 *
 * Base protocol
 *   The peer must stop when the buffer is full, and waits inside its write for the next RegisterXferMemory. Therefore
 *   the completion that fills `rx` announces a second buffer, `next`, before the requests in `rx` are executed. The
 *   peer copies its next bytes in the meantime. When all of `rx` is taken, `next` becomes `rx`. The old buffer
 *   is kept as `spare` and is the next one to be announced. Without memory for a second buffer, and with an untrusted
 *   peer, `rx` is announced again when all of it is taken.
 *
 *   buffer   holds                                        is announced
 *   rx       the bytes that are taken now                 when the connection opens, and again when all of it is taken
 *                                                         and there is no `next`
 *   next     the bytes that arrive while `rx` is read     when `rx` is full
 *   spare    nothing                                      as `next`, when `rx` is full
 *
 *   Example: buffers A and B of 32,768 bytes, and a trusted peer that sends requests of 300 bytes, one at a time.
 *
 *   event                                rx                next           spare
 *   the connection opens                 A, announced      -              -
 *   requests 1 to 109 arrive             A, 32,700 used    -              -
 *   68 bytes of request 110 arrive       A, full           B, announced   -
 *   these bytes are taken                B, empty          -              A
 *   the other 232 bytes arrive           B, 232 used       -              A
 *   requests 111 to 218 arrive           B, 32,632 used    -              A
 *   136 bytes of request 219 arrive      B, full           A, announced   -
 *
 *   The second buffer also prevents a stall. A client that polls its completion queue while it waits takes the
 *   completions of our replies there, and may then sleep although replies have arrived. rdma_stall_begin() has the
 *   remedy where there is no second buffer. The memory of all second buffers together is limited, because many large
 *   ones cost more in the processor's caches than the waiting that they save. size.h says how large buffers are.
 *
 * Ring
 *   With a peer that agreed to it, the buffer is a ring: ring.h. */
#pragma once
#include "net/rdma/connection.h"

/* Announces the buffer again, from its start. */
void rdma_receive_begin(struct rdma_connection *c);
void rdma_receive_data(struct rdma_connection *c, uint32_t len); /* a message of `len` bytes has arrived */
/* Call after a handler and before the next one. Restarts a full buffer at its beginning. */
void rdma_receive_settle(struct rdma_connection *c);
void rdma_receive_consume(struct rdma_connection *c, size_t len);
void rdma_receive_tick(struct rdma_connection *c, uint64_t now);
void rdma_receive_release(struct rdma_connection *c);
