/* lifetime.h: the life of an RDMA connection, the same for both ends: it opens, reports to its owner, ticks and ends.
 *
 * Reporting
 *   A connection with something to report goes on the loop's ready list, which is processed after a batch of
 *   completions (completion.h). So handlers may run the loop, and one call reports several messages.
 *
 * Ending
 *   The peer's disconnect or a failure is reported from the ready list, after the bytes that arrived before it. The
 *   completion of a failed request may be fetched before those of receives, which are in another queue: all queues are
 *   drained before the connection fails. While the owner leaves such bytes in the buffer, or has paused reading,
 *   `hung_up` is called in place of `closed`. Closing lingers until the peer's device has received the output, for
 *   LINGER_US at most.
 *   A connection ends in this order. The queue pair leaves the table, so that later completions find no connection. The
 *   peer gets a disconnect, and the queue pair is moved to ERR: it uses no further receive. At the end of the loop's
 *   turn the completions are drained once more, the queue pair is destroyed, the memory returns to its pools, and the
 *   identifier is destroyed. */
#pragma once
#include "net/rdma/connection.h"

#define RDMA_REMOVED "the RDMA device was removed"
extern _Atomic uint32_t rdma_accepted; /* accepted connections of the process */

void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state);
void rdma_connection_opened(struct rdma_connection *c); /* the phase is RDMA_ESTABLISHED: announces the buffer */
void rdma_connection_run(struct rdma_connection *c);    /* off the ready list: calls the owner's handlers */
void rdma_connection_failed(struct rdma_connection *c, int error, const char *note); /* note may be NULL */
void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc);     /* a completion with an error */
void rdma_connection_tick(struct rdma_connection *c, uint64_t now);
void rdma_connection_close(struct connection *conn);
/* Ends the connection for good; the struct is freed at the end of the iteration. */
void rdma_connection_finish(struct rdma_connection *c);
/* Fails the connection, and destroys its queue pair before it returns: the peer's device reaches no memory through it
 * any more. */
void rdma_connection_cut(struct rdma_connection *c, int error, const char *note);
void rdma_connection_release(struct rdma_connection *c); /* frees all memory except the struct */
