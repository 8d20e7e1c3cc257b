/* ring.h: the credit ring (feature RDMA_FEATURE_RING, described in wire.h): a receive buffer that does not
 * fill up as long as it is read.
 *
 * Receiving
 *   When the peer reaches the end of the buffer it continues at the start. Credit messages return bytes that were
 *   taken, a quarter of the ring at a time, so the peer never waits for a round trip as long as the receiver keeps up.
 *   Bytes are copied out of the ring as in the base protocol: `received` and `taken` count within the current lap, and
 *   `wrapped` counts the bytes that the peer has meanwhile written beyond the end. A byte that has arrived and is not
 *   taken is occupied, any other one is free. The peer knows of `writable` free bytes and may write those.
 *
 * Credits
 *   A Credit is sent when a quarter of the ring is free and not yet credited. A smaller one is sent only if the peer
 *   has no space left, which is the case after all earlier credits have reached it. So at most five are in flight, and
 *   the peer's receives need no separate accounting for them.
 *
 * Changing the buffer
 *   At the end of a lap the receiver may announce a buffer of another size by RegisterXferMemory. The peer answers
 *   BufferTaken and writes to the new buffer from then on; the bytes in the old one are taken first. No credits are
 *   sent meanwhile. A connection that has been quiet for long returns to its first size within a lap.
 *
 * Sending
 *   A message that reaches the end of the ring continues at its start with another WRITE.
 *
 * Rejected
 *   Mapping the ring twice in a row, so that nothing crosses the end: two mappings for each connection, shared memory
 *   instead of private memory, and nothing is gained where all bytes are copied out of the ring.
 *   Credits in the immediates of replies: an immediate has space for them, but a peer that only receives has no
 *   replies, so the message is needed anyway, and it is cheap (docs/performance-log.md).
 *   A counter of consumed bytes written into the peer's memory: the peer does not notice when it changes, so a sleeping
 *   peer needs a message anyway. */
#pragma once
#include "net/rdma/connection.h"

void rdma_ring_begin_in(struct rdma_connection *c);
void rdma_ring_arrived(struct rdma_connection *c,
                       uint32_t len);             /* beyond the end of the lap, or while there is another buffer */
void rdma_ring_settle(struct rdma_connection *c); /* part of rdma_receive_settle() */
void rdma_ring_on_credit(struct rdma_connection *c, const struct rdma_wire_credit *credit);
void rdma_ring_moved(struct rdma_connection *c); /* the peer has answered BufferTaken */
/* Sends BufferTaken and Credit that waited for space in the send queue. False: it is still full. */
bool rdma_ring_pump(struct rdma_connection *c);
void rdma_ring_tick(struct rdma_connection *c, uint64_t now);
