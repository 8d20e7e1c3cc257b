/* The receiving side of a queue pair: posting receives, and turning what the peer wrote into completions. */
#define _GNU_SOURCE
#include <errno.h>

#include "fault.h"
#include "qp.h"
#include "ready.h"

int qp_post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct qp *qp = to_qp(ib);
    int err = fault_errno_qp(FAULT_POST_RECV, qp->ib.qp_num);
    if (unlikely(qp->srq || load_relaxed(&qp->state) == IBV_QPS_RESET)) err = EINVAL;
    spin_lock(&qp->rlock);
    uint32_t posted = load_relaxed(&qp->posted), first = posted, head = load_acquire(&qp->head);
    for (; wr && !err; wr = wr->next) {
        if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->max_recv_sge)) {
            err = EINVAL;
            break;
        }
        if (unlikely(posted - head >= qp->max_recv_wr)) {
            err = ENOMEM;
            break;
        }
        struct recv_wqe *wqe = wqe_at(qp->wqes, qp->stride, posted & qp->wqe_mask);
        wqe->num_sge = (uint32_t)wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++) wqe->sge[i] = wr->sg_list[i];
        qp->wr_ids[posted & qp->wqe_mask] = wr->wr_id;
        posted++;
    }
    qp->recv_wrs += posted - first;
    store_release(&qp->posted, posted);
    store_release(&qp->sh->posted, posted);
    spin_unlock(&qp->rlock);
    if (unlikely(err)) *bad = wr;
    if (unlikely(load_acquire(&qp->flushing)) && posted != first) { /* completes at once */
        full_fence();
        ready_add(&qp->rcq->sh->ready, qp->cq_bit);
        cq_notify(peer_self(), qp->rcq->sh, true);
    }
    return err;
}

static void fill(struct ibv_wc *wc, const struct qp *qp, const struct recv_cqe *cqe, uint32_t word) {
    uint32_t status = (word >> 8) & 0xff;
    wc->status = (enum ibv_wc_status)status;
    wc->opcode = word & CQE_IS_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    wc->vendor_err = status;
    wc->byte_len = cqe->byte_len;
    wc->imm_data = cqe->imm;
    wc->qp_num = qp->ib.qp_num;
    wc->src_qp = qp->route.qpn;
    wc->wc_flags = word & CQE_WITH_IMM ? IBV_WC_WITH_IMM : 0;
    wc->pkey_index = 0;
    wc->slid = 0;
    wc->sl = 0;
    wc->dlid_path_bits = 0;
}

/* Receives that no sender will fill. */
static int drain_flushed(struct qp *qp, struct ibv_wc *wc, int n) {
    uint32_t head = load_relaxed(&qp->head), posted = load_acquire(&qp->posted);
    int got = 0;
    for (; got < n && head != posted; head++)
        wc[got++] = (struct ibv_wc){.wr_id = qp->wr_ids[head & qp->wqe_mask],
                                    .status = IBV_WC_WR_FLUSH_ERR,
                                    .opcode = IBV_WC_RECV,
                                    .vendor_err = IBV_WC_WR_FLUSH_ERR,
                                    .qp_num = qp->ib.qp_num};
    store_release(&qp->head, head);
    return got;
}

int qp_drain(struct qp *qp, struct ibv_wc *wc, int n) {
    uint32_t head = load_relaxed(&qp->head);
    int got = 0;
    for (; got < n; got++, head++) {
        const struct recv_cqe *cqe = &qp->cqes[head & qp->cqe_mask];
        uint32_t word = load_acquire((_Atomic uint32_t *)&cqe->word);
        if (word >> 16 != CQE_TURN(head, qp->cqe_shift)) break;
        fill(&wc[got], qp, cqe, word);
        if (unlikely(qp->srq != NULL)) {
            wc[got].wr_id = qp->srq->wr_ids[cqe->srq_wqe];
            srq_release(qp->srq, cqe->srq_wqe);
        } else {
            wc[got].wr_id = qp->wr_ids[head & qp->wqe_mask];
        }
    }
    if (got) {
        store_release(&qp->head, head);
        if (unlikely(qp->srq != NULL)) store_release(&qp->sh->posted, head + qp->cqe_mask + 1);
    }
    if (got < n && unlikely(load_acquire(&qp->flushing)) && !qp->srq) got += drain_flushed(qp, wc + got, n - got);
    return got;
}

uint32_t qp_count_done(const struct qp *qp, uint32_t limit) {
    uint32_t head = load_relaxed(&qp->head);
    if (load_acquire(&qp->flushing) && !qp->srq) return load_acquire(&qp->posted) - head;
    /* Completed entries are a run from head: gallop, then halve. */
    uint32_t low = 0, high = 1, ring = qp->cqe_mask + 1;
#define DONE(i) (load_acquire(&qp->cqes[(head + (i)) & qp->cqe_mask].word) >> 16 == CQE_TURN(head + (i), qp->cqe_shift))
    while (high <= ring && low < limit && DONE(high - 1)) {
        low = high;
        high *= 2;
    }
    if (high > ring) high = ring + 1;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (DONE(mid - 1))
            low = mid;
        else
            high = mid;
    }
#undef DONE
    return low;
}
