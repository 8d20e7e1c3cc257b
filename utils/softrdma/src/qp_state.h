/* Which attributes each change of state of a reliable connection takes. */
#ifndef SOFTRDMA_QP_STATE_H
#define SOFTRDMA_QP_STATE_H

#include <infiniband/verbs.h>

/* 0 or EINVAL */
int qp_state_check(enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask, uint32_t max_rd_atomic);

#endif
