/* rdma_ring.h: the credit ring (feature RDMA_FEATURE_RING, told in rdma_wire.h): a receive buffer that is never full
 * for as long as it is read.
 *
 * Receiving.  The peer writes on at the buffer's start when it has reached its end. What was read is given back by
 * Credit messages, a quarter of the ring at a time, so a peer never waits for a round trip as long as we keep up.
 * Showing in place stays as it is: `received` and `taken` count within the present lap, and what the peer wrote beyond
 * the end meanwhile is `wrapped`. Only a request that straddles the end is copied, to the side buffer of
 * rdma_receive.c. occupied: shown in place and not consumed (or kept to come back from the side buffer), and arrived
 * but not shown; what is not occupied is free; the peer knows of `room` bytes of it and may write those. Credits. Given
 * when a quarter of the ring is free to be told; less only when the peer has nothing left to write into, which it has
 * after all credits before have reached it. So no more than five are under way at any time, and they need no accounting
 * of their own at the receives of the peer. The side buffer never keeps more than a quarter of the ring occupied, hence
 * a full ring that is read is always credited. Another buffer.  At the end of a lap another size may be announced by
 * RegisterXferMemory. The peer answers BufferTaken, and writes to the new buffer from then on; what lies in the old one
 * is shown first. Meanwhile no credits are given. A connection that has been quiet for long goes back to the size it
 *   began with amid a lap.
 * Sending.  A message that reaches the ring's end goes on at its start with another WRITE.
 *
 * Rejected: mapping the ring twice in a row, so that nothing straddles: two mappings a connection, memory shared
 * between processes instead of private, and no gain where arguments are large, which go to their place without being
 * shown. Credits in the immediates of replies: an immediate has room for them, but who only receives has no replies to
 * put them on, so the message is needed anyway, and it is cheap (docs/performance-log.md). A counter of consumed bytes
 * that is written into the peer's memory: the peer does not learn when it changes, so one that sleeps needs a message,
 * too.
 */
#ifndef NET_RDMA_RING_H
#define NET_RDMA_RING_H
#include <stdbool.h>
#include <stdint.h>

struct rdma_connection;
struct rdma_rx;
struct rdma_wire_credit;

struct rdma_ring {
    /* receiving */
    bool in;           /* our buffer is a ring: from our SetClientFeature on */
    bool moving;       /* the connection's `next` is announced and not taken by the peer yet */
    uint32_t wrapped;  /* bytes that arrived beyond the end of the present lap */
    bool credit_waits; /* for room in the send queue */
    /* sending */
    bool out;        /* the peer's buffer is a ring: from its SetClientFeature on */
    bool owes_taken; /* the peer has announced another buffer; nothing is written before BufferTaken is sent */
};

void rdma_ring_begin_in(struct rdma_connection *c);
void rdma_ring_arrived(struct rdma_connection *c,
                       uint32_t len);             /* beyond the end of the lap, or while there is another buffer */
void rdma_ring_settle(struct rdma_connection *c); /* part of rdma_receive_settle() */
/* Something is to be done on the connection's turn though nothing is left to be shown of this lap. */
bool rdma_ring_wants_turn(const struct rdma_connection *c);
void rdma_ring_on_credit(struct rdma_connection *c, const struct rdma_wire_credit *credit);
void rdma_ring_on_taken(struct rdma_connection *c, const struct rdma_wire_credit *taken);
/* BufferTaken and Credit that had no room in the send queue. False: they still have none. */
bool rdma_ring_pump(struct rdma_connection *c);
void rdma_ring_forget(struct rdma_connection *c); /* what is not shown yet is not shown */
void rdma_ring_tick(struct rdma_connection *c, uint64_t now);
#endif
