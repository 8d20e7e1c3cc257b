/* rdma.h: the RDMA transport for its users: `transport_rdma`, the settings and the counters. One-sided reads have a
 * header of their own, read.h. Compiled in with BUILD_RDMA=yes. README.md in this directory describes the layers below.
 */
#pragma once
#include "net/connection.h"
#include "net/rdma/port.h"
#include "net/rdma/settings.h"

extern const struct transport transport_rdma;

void rdma_settings_changed(void); /* call after a change of zero_copy_min or max_registered while connections exist */
const struct rdma_stats *rdma_stats(void); /* of all threads; valid until this thread calls it again */
/* For an owner that only counts what it receives: the next `len` bytes of the stream are dropped where they are,
 * without a look at them, and `readable` is called, also if nothing follows them. conn_peek() must be empty. False: the
 * connection is of another transport. */
bool rdma_discard(struct connection *conn, size_t len);
/* For an owner whose peer writes into memory that the owner has registered: call it right after conn_connect().
 * Messages are then found by completions, which order memory behind them, and never by looking at memory (polled.h). */
void rdma_find_by_completions(struct connection *conn);
/* Returns free registered memory of this loop and of the loops of other threads to the system. */
void rdma_trim(struct event_loop *loop);
