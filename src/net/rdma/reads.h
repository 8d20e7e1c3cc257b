/* reads.h: the reads of a connection (read.h), as the layers above see them. Functions without a remark need c->reads.
 */
#pragma once
#include "net/rdma/connection.h"

bool rdma_reads_pump(struct rdma_connection *c);      /* posts waiting reads. False: the send queue is full */
void rdma_reads_completed(struct rdma_connection *c); /* c->send.retired has grown */
bool rdma_reads_holds(const struct rdma_connection *c, uint32_t seq); /* a READ in flight; works without c->reads */
void rdma_reads_run(struct rdma_connection *c); /* calls completed reads back; a callback may close the connection */
void rdma_reads_fail(struct rdma_connection *c, int error); /* calls all reads back; works without c->reads */
void rdma_reads_close(struct rdma_connection *c); /* closes the windows, and cancels reads; works without c->reads */
