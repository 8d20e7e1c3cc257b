/* Which attributes each change of state of a reliable connection takes. */
#pragma once

#include <infiniband/verbs.h>

/* 0 or EINVAL */
int qp_state_check(enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask, uint32_t max_rd_atomic);
