/* Writes that memory shows out of order, for the fault `write:scatter`. */
#pragma once

#include "qp.h"

/* All but scatter_discard: qp locked, between enter and leave of send.c. */
/* Carries out a WRITE whose remote range has been checked. Of each cache line it touches chance decides whether it
 * shows now or up to `ns` nanoseconds later. 0 or -errno. */
int scatter_write(struct qp *qp, const struct ibv_send_wr *wr, uint64_t len, uint64_t ns);
/* All lines show. A completion of the peer is about to be written, or the queue pair ends. */
void scatter_show_all(struct qp *qp);
/* Lines that are withheld and overlap the range show first: two writes of the same bytes keep their order. */
void scatter_show(struct qp *qp, uint64_t addr, uint64_t len);
void scatter_discard(struct qp *qp); /* nothing can be shown any more */
