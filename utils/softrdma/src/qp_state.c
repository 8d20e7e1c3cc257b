/* The state machine of a reliable connection as the InfiniBand specification has it: for every change, the
 * attributes that must be given and those that may be. Anything else is refused, as drivers refuse it. */
#include "qp_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct change {
    enum ibv_qp_state from, to;
    int must, may;
};

#define ALT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)

static const struct change changes[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_RATE_LIMIT | ALT},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | ALT},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | ALT},
};

static bool values_ok(const struct ibv_qp_attr *a, int mask, uint32_t max_rd_atomic) {
    if ((mask & IBV_QP_PORT) && a->port_num != 1) return false;
    if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0) return false;
    if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) return false;
    if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31) return false;
    if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7) return false;
    if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7) return false;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31) return false;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > max_rd_atomic) return false;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > max_rd_atomic) return false;
    if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num > 0xffffff) return false;
    if ((mask & IBV_QP_AV) && a->ah_attr.port_num > 1) return false;
    return true;
}

int qp_state_check(enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask, uint32_t max_rd_atomic) {
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) return EINVAL;
    if (!values_ok(attr, mask, max_rd_atomic)) return EINVAL;
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask & ~IBV_QP_CUR_STATE ? EINVAL : 0;
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        const struct change *c = &changes[i];
        if (c->from != from || c->to != to) continue;
        return (mask & c->must) == c->must && !(mask & ~(c->must | c->may)) ? 0 : EINVAL;
    }
    return EINVAL;
}
