/* The data path of the sender, which is nearly all there is: the thread that calls post_send carries the
 * request out.
 *
 * It checks local keys, checks that the peer admits it (wire.h), checks the remote key in the peer's table, copies
 * straight into the peer's arena, writes a completion into the ring of the peer's queue pair, and rings: one
 * full fence, then the ready set unless the peer watches the ring anyway, then the armed flag. A chain rings
 * once, so that its messages appear to a sleeper as one batch; a spinning receiver sees each as it is
 * written. There is no system call unless the peer sleeps.
 *
 * What cannot be carried out now waits in `pending`, and everything posted later waits behind it: no receive
 * posted (RNR), peer not ready or gone (the retries of a transport), a fault. The progress thread tries again
 * until the queue pair's retry counts and timeouts are used up, as a card would.
 *
 * Large READs and WRITEs wait there, too, until the thread of bulk.c has copied them.
 *
 * Slots of the send queue are freed the way a card frees them: when a signaled completion is polled, with all
 * before it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bulk.h"
#include "config.h"
#include "copy.h"
#include "fault.h"
#include "mr.h"
#include "qp.h"
#include "ready.h"
#include "scatter.h"
#include "stats.h"

#define RING_AFTER_BYTES 4096 /* a chain rings before its end when this much has been copied */

/* Outcomes other than an ibv_wc_status. */
enum { NOT_NOW_RNR = -1, NOT_NOW_RETRY = -2, NOT_NOW_FULL = -3, NOT_NOW_BULK = -4 };

/* See bulk.c. */
enum { BULK_PART = 64 << 10, BULK_STEP = 1 << 20, BULK_STREAM_LEAST = 256 << 10 };

static const char *op_name(enum ibv_wr_opcode op) {
    static const char *names[] = {[IBV_WR_RDMA_WRITE] = "write",
                                  [IBV_WR_RDMA_WRITE_WITH_IMM] = "write_imm",
                                  [IBV_WR_SEND] = "send",
                                  [IBV_WR_SEND_WITH_IMM] = "send_imm",
                                  [IBV_WR_RDMA_READ] = "read",
                                  [IBV_WR_ATOMIC_CMP_AND_SWP] = "atomic",
                                  [IBV_WR_ATOMIC_FETCH_AND_ADD] = "atomic"};
    return names[op];
}

/* --- entering, and ringing --- */

static inline void enter(struct qp *qp) {
    store_relaxed(&qp->sh->busy, 1);
    if (unlikely(arena_head()->fences))
        full_fence();
    else
        atomic_signal_fence(memory_order_seq_cst); /* the peer's membarrier makes it a fence */
}

static inline void doorbell(struct route *r) {
    if (!r->rung) return;
    full_fence();
    if (!load_relaxed(&r->rqp->watched)) ready_add(&r->cq->ready, r->cq_bit);
    cq_notify(r->peer, r->cq, r->solicited);
    r->rung = r->solicited = false;
    r->unrung_bytes = 0;
}

static inline void leave(struct qp *qp) {
    if (qp->route.rung) doorbell(&qp->route);
    store_release(&qp->sh->busy, 0);
}

/* The peer's queue pair has met an error of our making. */
static void tell_error(struct qp *qp, enum ibv_event_type event) {
    struct message msg = {.type = MSG_QP_ERROR, .value = event, .qp = {.qpn = qp->route.qpn, .token = qp->route.token}};
    peer_send(qp->route.peer, &msg, -1);
}

static inline void publish(struct route *r, uint64_t len, uint32_t imm, uint32_t wqe, uint32_t status, uint32_t flags) {
    struct recv_cqe *cqe = &r->cqes[r->prod & r->mask];
    cqe->byte_len = (uint32_t)len;
    cqe->imm = imm;
    cqe->srq_wqe = wqe;
    store_release(&cqe->word, CQE_WORD(CQE_TURN(r->prod, r->shift), status, flags));
    r->prod++;
    r->rung = true;
    r->solicited |= (flags & CQE_SOLICITED) || status;
    if ((r->unrung_bytes += (uint32_t)len) > RING_AFTER_BYTES) doorbell(r);
}

/* --- checks --- */

/* Total length, or the negated status of the failure. */
static inline int64_t check_local(const struct qp *qp, const struct ibv_send_wr *wr, uint32_t access) {
    uint64_t total = 0, at;
    const struct mr_slot *slots = arena_mr_slots();
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        total += sge->length;
        if ((wr->send_flags & IBV_SEND_INLINE) || !sge->length) continue;
        if (!mr_check(slots, arena_head()->mr_slots, sge->lkey, sge->addr, sge->length, qp->pd->id, access, &at))
            return -IBV_WC_LOC_PROT_ERR;
    }
    return total > config()->max_message ? -IBV_WC_LOC_LEN_ERR : (int64_t)total;
}

/* Checks that the peer lets us do `access` at the remote address of the request: 0 or a status. */
static inline int check_remote(struct qp *qp, uint64_t addr, uint32_t rkey, uint64_t len, uint32_t access,
                               const struct mr_slot **slot, uint64_t *at) {
    const struct route *r = &qp->route;
    if (unlikely(!(r->rqp->access & access))) {
        tell_error(qp, IBV_EVENT_QP_REQ_ERR);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    *slot = mr_check(r->mrs, r->mr_slots, rkey, addr, len, r->pd, access, at);
    if (likely(*slot != NULL)) return 0;
    tell_error(qp, IBV_EVENT_QP_ACCESS_ERR);
    return IBV_WC_REM_ACCESS_ERR;
}

/* Is there a receive, and space for its completion? With a shared receive queue, takes the receive. 0 or
 * NOT_NOW_…. */
static inline int take_receive(struct route *r, uint32_t *wqe) {
    if (unlikely(r->prod == r->credit)) {
        r->credit = load_acquire(&r->rqp->posted);
        if (r->prod == r->credit) return r->srq ? NOT_NOW_FULL : NOT_NOW_RNR;
    }
    *wqe = r->prod & r->mask;
    if (likely(!r->srq)) return 0;
    int64_t n = srq_claim(r->peer, r->srq, r->qpn);
    *wqe = (uint32_t)n;
    return n < 0 ? NOT_NOW_RNR : 0;
}

static int copy_failed(int err) {
    return err == -ESRCH ? NOT_NOW_RETRY : IBV_WC_REM_OP_ERR;
}

static void payload_fault(const struct qp *qp) {
    struct fault f;
    fault_hit_qp(FAULT_PAYLOAD, NULL, qp->ib.qp_num, &f);
}

/* --- the operations: 0, a status, or NOT_NOW_… --- */

static inline int do_write(struct qp *qp, const struct ibv_send_wr *wr, uint64_t *len) {
    struct route *r = &qp->route;
    const struct mr_slot *slot = NULL;
    uint64_t at = 0;
    uint32_t wqe = 0;
    int64_t total = check_local(qp, wr, 0);
    if (unlikely(total < 0)) return (int)-total;
    *len = (uint64_t)total;
    bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    int s = total
                ? check_remote(qp, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, *len, IBV_ACCESS_REMOTE_WRITE, &slot, &at)
                : 0;
    if (unlikely(s)) return s;
    if (!imm && !(wr->send_flags & IBV_SEND_INLINE) && bulk_takes(*len)) return NOT_NOW_BULK;
    if (imm && unlikely(s = take_receive(r, &wqe))) return s;
    struct fault f;
    if (unlikely(fault_armed[FAULT_WRITE])) {
        bool hit = !imm && total && fault_hit_qp(FAULT_WRITE, op_name(wr->opcode), qp->ib.qp_num, &f);
        if (hit && f.action == ACT_SCATTER) {
            s = scatter_write(qp, wr, *len, f.value);
            return s ? copy_failed(s) : 0;
        }
        if (imm)
            scatter_show_all(qp);
        else
            scatter_show(qp, wr->wr.rdma.remote_addr, *len);
    }
    atomic_thread_fence(
        memory_order_release); /* a reader of these bytes also reads those of earlier requests, as with cards */
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        if (!sge->length) continue;
        if (unlikely(s = copy_to_peer(r->peer, slot, at, (const void *)(uintptr_t)sge->addr, sge->length)))
            return copy_failed(s);
        at += sge->length;
    }
    if (unlikely(fault_armed[FAULT_PAYLOAD])) payload_fault(qp);
    if (imm)
        publish(r, *len, wr->imm_data, wqe, 0,
                CQE_WITH_IMM | CQE_IS_WRITE | (wr->send_flags & IBV_SEND_SOLICITED ? CQE_SOLICITED : 0));
    return 0;
}

/* Copies a message into the buffers of a receive, keys and lengths checked as it goes: 0 or the receiver's
 * status. */
static int scatter(struct route *r, const struct ibv_send_wr *wr, const struct recv_wqe *wqe, uint64_t total,
                   uint32_t pd) {
    uint32_t i = 0, used = 0;
    const struct mr_slot *slot = NULL;
    uint64_t at = 0;
    for (int s = 0; s < wr->num_sge; s++) {
        const uint8_t *from = (const uint8_t *)(uintptr_t)wr->sg_list[s].addr;
        for (uint64_t left = wr->sg_list[s].length; left;) {
            if (i >= wqe->num_sge) return IBV_WC_LOC_LEN_ERR;
            const struct ibv_sge *to = &wqe->sge[i];
            uint64_t space = to->length - used, part = left < space ? left : space;
            if (!used && space) {
                uint64_t need = space < total ? space : total;
                slot = mr_check(r->mrs, r->mr_slots, to->lkey, to->addr, need, pd, IBV_ACCESS_LOCAL_WRITE, &at);
                if (!slot) return IBV_WC_LOC_PROT_ERR;
            }
            if (part && copy_to_peer(r->peer, slot, at + used, from, part)) return IBV_WC_LOC_PROT_ERR;
            from += part;
            left -= part;
            total -= part;
            used += (uint32_t)part;
            if (used == to->length) {
                i++;
                used = 0;
            }
        }
    }
    return 0;
}

static uint64_t space_of(const struct recv_wqe *wqe) {
    uint64_t space = 0;
    for (uint32_t i = 0; i < wqe->num_sge; i++) space += wqe->sge[i].length;
    return space;
}

static inline int do_send(struct qp *qp, const struct ibv_send_wr *wr, uint64_t *len) {
    struct route *r = &qp->route;
    uint32_t n;
    int64_t total = check_local(qp, wr, 0);
    if (unlikely(total < 0)) return (int)-total;
    *len = (uint64_t)total;
    int s = take_receive(r, &n);
    if (unlikely(s)) return s;
    const struct recv_wqe *wqe =
        r->srq ? wqe_at(peer_ptr(r->peer, r->srq->wqes), r->srq->wqe_stride, n) : wqe_at(r->wqes, r->stride, n);
    s = space_of(wqe) < *len ? IBV_WC_LOC_LEN_ERR : scatter(r, wr, wqe, *len, r->srq ? r->srq->pd : r->pd);
    if (unlikely(fault_armed[FAULT_PAYLOAD])) payload_fault(qp);
    uint32_t flags = wr->send_flags & IBV_SEND_SOLICITED ? CQE_SOLICITED : 0;
    if (wr->opcode == IBV_WR_SEND_WITH_IMM) flags |= CQE_WITH_IMM;
    if (unlikely(s)) tell_error(qp, s == IBV_WC_LOC_LEN_ERR ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL);
    publish(r, *len, wr->imm_data, n, (uint32_t)s, flags);
    if (likely(!s)) return 0;
    return s == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

/* Reads and atomics need resources at both ends. They are carried out one at a time, so only zero matters. */
static int check_rd_atomic(struct qp *qp) {
    if (!qp->attr.max_rd_atomic) return IBV_WC_LOC_QP_OP_ERR;
    if (qp->route.rqp->max_dest_rd_atomic) return 0;
    tell_error(qp, IBV_EVENT_QP_REQ_ERR);
    return IBV_WC_REM_INV_REQ_ERR;
}

static int do_read(struct qp *qp, const struct ibv_send_wr *wr, uint64_t *len) {
    const struct mr_slot *slot = NULL;
    uint64_t at = 0;
    int64_t total = check_local(qp, wr, IBV_ACCESS_LOCAL_WRITE);
    if (total < 0) return (int)-total;
    *len = (uint64_t)total;
    int s = check_rd_atomic(qp);
    if (!s && total)
        s = check_remote(qp, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, *len, IBV_ACCESS_REMOTE_READ, &slot, &at);
    if (!s && bulk_takes(*len)) return NOT_NOW_BULK;
    for (int i = 0; i < wr->num_sge && !s && total; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        s = copy_from_peer(qp->route.peer, slot, at, (void *)(uintptr_t)sge->addr, sge->length);
        if (s) return copy_failed(s);
        at += sge->length;
    }
    return s;
}

static int do_atomic(struct qp *qp, const struct ibv_send_wr *wr, uint64_t *len) {
    const struct mr_slot *slot;
    uint64_t at, old = 0;
    bool add = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    int64_t total = check_local(qp, wr, IBV_ACCESS_LOCAL_WRITE);
    if (total < 0) return (int)-total;
    if (total != 8) return IBV_WC_LOC_LEN_ERR;
    *len = 8;
    int s = check_rd_atomic(qp);
    if (!s && wr->wr.atomic.remote_addr % 8) {
        tell_error(qp, IBV_EVENT_QP_REQ_ERR);
        s = IBV_WC_REM_INV_REQ_ERR;
    }
    if (!s)
        s = check_remote(qp, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey, 8, IBV_ACCESS_REMOTE_ATOMIC, &slot, &at);
    if (s) return s;
    s = copy_atomic(qp->route.peer, slot, at, add, wr->wr.atomic.compare_add, wr->wr.atomic.swap, &old);
    if (s) return copy_failed(s);
    const uint8_t *from = (const uint8_t *)&old;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy((void *)(uintptr_t)wr->sg_list[i].addr, from, wr->sg_list[i].length);
        from += wr->sg_list[i].length;
    }
    return 0;
}

static inline bool is_admitted(const struct qp *qp) {
    const struct route *r = &qp->route;
    return likely(r->peer && !peer_is_dead(r->peer) && load_acquire(&r->rqp->sender) == qp->token);
}

/* Between enter and leave. */
static inline int carry_out(struct qp *qp, const struct ibv_send_wr *wr, uint64_t *len) {
    *len = 0;
    if (unlikely(!is_admitted(qp))) return NOT_NOW_RETRY;
    if (likely(wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE))
        return do_write(qp, wr, len);
    if (unlikely(!list_empty(&qp->late))) scatter_show_all(qp);
    if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) return do_send(qp, wr, len);
    return wr->opcode == IBV_WR_RDMA_READ ? do_read(qp, wr, len) : do_atomic(qp, wr, len);
}

/* --- completing --- */

static const uint8_t wc_opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                     [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                     [IBV_WR_SEND] = IBV_WC_SEND,
                                     [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                                     [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
                                     [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
                                     [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD};

static void push_completion(struct qp *qp, const struct ibv_send_wr *wr, uint32_t index, uint64_t len, uint32_t status,
                            uint64_t not_before) {
    struct local_wc e = {.qp = qp, .sq_index = index, .is_send = true, .not_before = not_before};
    e.wc.wr_id = wr->wr_id;
    e.wc.status = (enum ibv_wc_status)status;
    e.wc.opcode = (enum ibv_wc_opcode)wc_opcodes[wr->opcode];
    e.wc.vendor_err = status;
    e.wc.byte_len = (uint32_t)len;
    e.wc.qp_num = qp->ib.qp_num;
    e.wc.src_qp = qp->route.qpn;
    cq_push(qp->scq, &e);
}

/* Completes one request; returns its status, which a fault may have changed. */
static inline uint32_t complete(struct qp *qp, const struct ibv_send_wr *wr, uint32_t index, uint64_t len,
                                uint32_t status) {
    uint64_t not_before = 0;
    struct fault f;
    if (fault_hit_qp(FAULT_COMPLETE, op_name(wr->opcode), qp->ib.qp_num, &f)) {
        if (f.action == ACT_ERROR) status = (uint32_t)f.value;
        if (f.action == ACT_DELAY) not_before = now_ns() + f.value;
    }
    if (likely(!status)) {
        qp->messages++;
        qp->bytes += len;
    }
    if (status || qp->sig_all || (wr->send_flags & IBV_SEND_SIGNALED))
        push_completion(qp, wr, index, len, status, not_before);
    return status;
}

/* --- waiting --- */

static const uint32_t rnr_us[32] = {655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
                                    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
                                    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

static uint64_t backoff(struct qp *qp, uint64_t first, uint64_t most) {
    uint64_t wait = first << (qp->retry_round < 16 ? qp->retry_round++ : 16);
    return wait < most ? wait : most;
}

static void wait_for(struct qp *qp, enum stall why, uint64_t until) {
    if (qp->stall == STALL_NONE) stats_inc(stalls);
    qp->stall = why;
    timer_set(&qp->timer, until);
}

/* 0: it waits. Otherwise the status to give up with. */
static uint32_t wait_or_give_up(struct qp *qp, int outcome) {
    uint64_t now = now_ns();
    enum stall why = outcome == NOT_NOW_RNR ? STALL_RNR : outcome == NOT_NOW_RETRY ? STALL_RETRY : STALL_FULL;
    if (qp->stall != why) {
        qp->stalled_since = now;
        qp->retry_round = 0;
    }
    if (why == STALL_RNR) {
        if (qp->attr.rnr_retry == 7) { /* for ever: no need to be slow about it */
            wait_for(qp, why, now + backoff(qp, 50 * NS_PER_US, NS_PER_MS));
            return 0;
        }
        if (qp->rnr_tries++ >= qp->attr.rnr_retry) return IBV_WC_RNR_RETRY_EXC_ERR;
        wait_for(qp, why, now + rnr_us[qp->route.rqp ? qp->route.rqp->min_rnr_timer & 31 : 12] * NS_PER_US);
        return 0;
    }
    if (why == STALL_RETRY && qp->attr.timeout) {
        uint64_t limit = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1ull);
        if (now - qp->stalled_since >= limit) return IBV_WC_RETRY_EXC_ERR;
    }
    wait_for(qp, why, now + backoff(qp, 50 * NS_PER_US, why == STALL_FULL ? NS_PER_MS : 8 * NS_PER_MS));
    return 0;
}

/* A deep copy: the caller may reuse everything it passed as soon as post_send returns (data only if
 * inline). */
static struct pending *pending_create(const struct ibv_send_wr *wr, uint32_t index) {
    size_t data = 0, sges = (size_t)wr->num_sge * sizeof(struct ibv_sge);
    bool inlined = wr->send_flags & IBV_SEND_INLINE;
    for (int i = 0; inlined && i < wr->num_sge; i++) data += wr->sg_list[i].length;
    struct pending *p = calloc(1, sizeof(*p) + sges + data);
    if (!p) return NULL;
    struct ibv_sge *copy = (struct ibv_sge *)(p + 1);
    uint8_t *bytes = (uint8_t *)(copy + wr->num_sge);
    p->wr = *wr;
    p->wr.next = NULL;
    p->wr.sg_list = copy;
    p->index = index;
    for (int i = 0; i < wr->num_sge; i++) {
        copy[i] = wr->sg_list[i];
        if (!inlined) continue;
        memcpy(bytes, (const void *)(uintptr_t)copy[i].addr, copy[i].length);
        copy[i].addr = (uint64_t)(uintptr_t)bytes;
        bytes += copy[i].length;
    }
    return p;
}

static void apply_faults(const struct qp *qp, struct pending *p, uint32_t *status) {
    struct fault f;
    p->faults_done = true;
    if (!fault_hit_qp(FAULT_SEND, op_name(p->wr.opcode), qp->ib.qp_num, &f)) return;
    p->lost = f.action == ACT_DROP;
    if (f.action == ACT_RNR) p->rnr = f.value ? f.value : UINT64_MAX;
    if (f.action == ACT_DELAY) p->not_before = now_ns() + f.value;
    if (f.action == ACT_HOLD) {
        p->not_before = now_ns() + NS_PER_MS;
        p->faults_done = false; /* it asks again then */
    }
    if (f.action == ACT_ERROR) *status = (uint32_t)f.value;
}

/* Tries the first of the waiting requests: true when it is done with, for good or bad (`*status`). */
static bool try_first(struct qp *qp, struct pending *p, uint64_t *len, uint32_t *status) {
    *status = p->status;
    *len = p->carried && !p->status ? p->total : 0;
    if (p->carried) return true;
    if (!p->faults_done) apply_faults(qp, p, status);
    if (*status) return true;
    if (p->not_before > now_ns()) {
        wait_for(qp, STALL_DELAY, p->not_before);
        return false;
    }
    int outcome = p->lost ? NOT_NOW_RETRY : p->rnr ? NOT_NOW_RNR : carry_out(qp, &p->wr, len);
    if (p->rnr && p->rnr != UINT64_MAX) p->rnr--;
    if (outcome == NOT_NOW_BULK) {
        p->total = *len;
        p->copied = 0;
        qp->stall = STALL_BULK;
        bulk_submit(qp);
        return false;
    }
    if (outcome < 0) {
        *status = wait_or_give_up(qp, outcome);
        return *status != 0;
    }
    *status = (uint32_t)outcome;
    return true;
}

/* Carries out what waits, in order, until something has to wait again. qp locked, state RTS. */
static void pump(struct qp *qp) {
    bool failed = false;
    if (qp->stall == STALL_BULK) return;
    enter(qp);
    while (!failed && !list_empty(&qp->pending)) {
        struct pending *p = container_of(qp->pending.next, struct pending, link);
        uint64_t len;
        uint32_t status;
        if (!try_first(qp, p, &len, &status)) break;
        list_remove(&p->link);
        failed = complete(qp, &p->wr, p->index, len, status);
        free(p);
        qp->stall = STALL_NONE;
        qp->rnr_tries = qp->retry_round = 0;
    }
    leave(qp);
    if (failed) qp_fail(qp);
}

void send_retry(struct timer *timer) {
    struct qp *qp = container_of(timer, struct qp, timer);
    spin_lock(&qp->lock);
    if (load_relaxed(&qp->state) == IBV_QPS_RTS) pump(qp);
    spin_unlock(&qp->lock);
}

/* --- large requests, on the thread of bulk.c --- */

/* Copies the next part of a request, which ends with one of its buffers at the latest. Checks all that carry_out has
 * checked, for this part. */
static int copy_part(struct qp *qp, const struct pending *p, uint64_t *len) {
    const struct route *r = &qp->route;
    const struct ibv_sge *sge = p->wr.sg_list;
    const struct mr_slot *slot;
    bool reads = p->wr.opcode == IBV_WR_RDMA_READ;
    uint64_t at = p->copied, there;
    while (at >= sge->length) at -= (sge++)->length;
    *len = sge->length - at < BULK_PART ? sge->length - at : BULK_PART;
    if (!is_admitted(qp)) return NOT_NOW_RETRY;
    if (!mr_check(arena_mr_slots(), arena_head()->mr_slots, sge->lkey, sge->addr + at, *len, qp->pd->id,
                  reads ? IBV_ACCESS_LOCAL_WRITE : 0, &there))
        return IBV_WC_LOC_PROT_ERR;
    int s = check_remote(qp, p->wr.wr.rdma.remote_addr + p->copied, p->wr.wr.rdma.rkey, *len,
                         reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, &slot, &there);
    if (s) return s;
    uint8_t *mine = (uint8_t *)(uintptr_t)sge->addr + at, *theirs = copy_direct(r->peer, slot, there, *len);
    if (!theirs) {
        s = copy_scattered(r->peer, slot, there, mine, *len, !reads);
        return s ? copy_failed(s) : 0;
    }
    (p->total < BULK_STREAM_LEAST ? copy_bytes : bulk_stream)(reads ? mine : theirs, reads ? theirs : mine, *len);
    return 0;
}

static int copy_step(struct qp *qp, struct pending *p, uint32_t turn) {
    int s = 0;
    for (uint64_t end = p->copied + BULK_STEP, len; !s && p->copied < p->total && p->copied < end;) {
        if (load_acquire(&qp->bulk_turn) != turn) return 0;
        bulk_part_begin();
        enter(qp);
        s = copy_part(qp, p, &len);
        leave(qp);
        bulk_part_end();
        if (!s) p->copied += len;
    }
    return s;
}

/* The request is copied, or cannot be. */
static void end_bulk(struct qp *qp, struct pending *p, int s) {
    qp->stall = STALL_NONE;
    if (s < 0 && !(s = (int)wait_or_give_up(qp, s))) return;
    if (!s && fault_armed[FAULT_PAYLOAD]) payload_fault(qp);
    p->carried = true;
    p->status = (uint32_t)s;
    if (load_relaxed(&qp->state) == IBV_QPS_RTS) pump(qp);
}

bool send_bulk(struct qp *qp) {
    spin_lock(&qp->lock);
    struct pending *p = qp->stall == STALL_BULK ? container_of(qp->pending.next, struct pending, link) : NULL;
    uint32_t turn = load_relaxed(&qp->bulk_turn);
    store_relaxed(&qp->bulk_copies, p != NULL);
    spin_unlock(&qp->lock);
    if (!p) return false;
    int s = copy_step(qp, p, turn);
    store_release(&qp->bulk_copies, 0);
    spin_lock(&qp->lock);
    bool mine = load_relaxed(&qp->bulk_turn) == turn; /* else it was flushed, and is freed */
    bool more = mine && !s && p->copied < p->total;
    cq_wake_later();
    if (mine && !more) end_bulk(qp, p, s);
    spin_unlock(&qp->lock);
    cq_wake_now();
    return more;
}

void send_show_all_late(struct qp *qp) {
    if (list_empty(&qp->late)) return;
    enter(qp);
    scatter_show_all(qp);
    leave(qp);
}

void send_show_late(struct timer *timer) {
    struct qp *qp = container_of(timer, struct qp, late_timer);
    spin_lock(&qp->lock);
    send_show_all_late(qp);
    spin_unlock(&qp->lock);
}

void send_resume(struct qp *qp) {
    if (qp->stall != STALL_BULK) qp->stall = STALL_NONE;
    pump(qp);
}

void send_flush(struct qp *qp) {
    bulk_stop(qp);
    for (struct link *l; (l = list_pop(&qp->pending));) {
        struct pending *p = container_of(l, struct pending, link);
        complete(qp, &p->wr, p->index, 0, IBV_WC_WR_FLUSH_ERR);
        free(p);
    }
    qp->stall = STALL_NONE;
    timer_cancel(&qp->timer);
    send_show_all_late(qp); /* they were carried out */
    timer_cancel(&qp->late_timer);
}

void send_discard(struct qp *qp) {
    bulk_stop(qp);
    for (struct link *l; (l = list_pop(&qp->pending));) free(container_of(l, struct pending, link));
    timer_cancel(&qp->timer);
    scatter_discard(qp);
    timer_cancel(&qp->late_timer);
}

/* --- posting --- */

static inline int check_wr(const struct qp *qp, const struct ibv_send_wr *wr) {
    if (unlikely(qp->sq_head - load_acquire(&qp->sq_done) >= qp->max_send_wr)) return ENOMEM;
    if (unlikely((uint32_t)wr->opcode >= ARRAY_LEN(wc_opcodes) || wr->num_sge < 0 ||
                 (uint32_t)wr->num_sge > qp->max_send_sge))
        return EINVAL;
    if (!(wr->send_flags & IBV_SEND_INLINE)) return 0;
    uint64_t total = 0;
    for (int i = 0; i < wr->num_sge; i++) total += wr->sg_list[i].length;
    return total > qp->max_inline || wr->opcode >= IBV_WR_RDMA_READ ? EINVAL : 0;
}

/* One request that does not go straight through: behind others, in another state, or under faults. */
static int post_one_slowly(struct qp *qp, const struct ibv_send_wr *wr) {
    uint32_t state = load_relaxed(&qp->state);
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR && state != IBV_QPS_SQE) return EINVAL;
    int err = check_wr(qp, wr);
    if (err) return err;
    qp->send_wrs++;
    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
        complete(qp, wr, qp->sq_head++, 0, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    struct pending *p = pending_create(wr, qp->sq_head);
    if (!p) return ENOMEM;
    qp->sq_head++;
    list_append(&qp->pending, &p->link);
    /* While the receiver is waited for, a call only checks a flag; the timer reads the clock. */
    bool look =
        qp->stall == STALL_NONE || qp->stall == STALL_FULL || (qp->stall == STALL_RNR && qp->attr.rnr_retry == 7);
    if (state == IBV_QPS_RTS && look) pump(qp);
    return 0;
}

/* The usual way: returns when the chain is done, or *wr points to what the slow way must take, or to what is
 * wrong. */
static inline int post_straight(struct qp *qp, struct ibv_send_wr **wr) {
    int err = 0;
    uint32_t status = 0;
    enter(qp);
    for (; *wr && !status; *wr = (*wr)->next) {
        if (unlikely(err = check_wr(qp, *wr))) break;
        uint64_t len;
        int outcome = carry_out(qp, *wr, &len);
        if (unlikely(outcome < 0)) break; /* again, slowly */
        qp->send_wrs++;
        status = complete(qp, *wr, qp->sq_head++, len, (uint32_t)outcome);
    }
    leave(qp);
    if (unlikely(status)) qp_fail(qp);
    return err;
}

int qp_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct qp *qp = to_qp(ib);
    int err = fault_errno_qp(FAULT_POST_SEND, qp->ib.qp_num);
    spin_lock(&qp->lock);
    qp->doorbells++;
    bool straight = load_relaxed(&qp->state) == IBV_QPS_RTS && list_empty(&qp->pending) && !fault_armed[FAULT_SEND];
    if (likely(straight && !err)) err = post_straight(qp, &wr);
    for (; wr && !err; wr = wr->next)
        if ((err = post_one_slowly(qp, wr))) break;
    spin_unlock(&qp->lock);
    if (unlikely(err)) *bad = wr;
    return err;
}
