/* Queue pairs and shared receive queues. qp.c creates and changes them, send.c is the data path of the
 * sender, recv.c posts receives and turns what peers wrote into completions, srq.c has the shared queues. */
#pragma once

#include "cq.h"

struct srq {
    struct ibv_srq ib;
    struct pd *pd;
    uint64_t off;
    struct srq_shared *sh;
    struct spinlock lock;
    uint32_t max_wr, max_sge, ring_size;
    uint64_t *wr_ids;    /* by receive */
    uint32_t *free_wqes; /* stack */
    uint32_t free_count;
    uint32_t posted;
    _Atomic uint32_t users;
    uint64_t posts;
    struct link link;
};

/* Where a queue pair sends to. All pointers are into the peer's arena. */
struct route {
    struct peer *peer; /* holds a reference; NULL: not known yet */
    struct qp_shared *rqp;
    struct recv_cqe *cqes;
    uint8_t *wqes;
    struct srq_shared *srq;
    struct cq_shared *cq;
    const struct mr_slot *mrs;
    uint32_t mr_slots;
    uint32_t mask, shift, stride;
    uint32_t cq_bit;
    uint32_t prod;   /* completions written so far */
    uint32_t credit; /* may be written up to here, as last seen */
    uint32_t qpn, token;
    uint32_t pd;
    bool rung, solicited; /* a doorbell is owed */
    uint32_t unrung_bytes;
};

enum stall { STALL_NONE, STALL_RNR, STALL_RETRY, STALL_FULL, STALL_DELAY, STALL_BULK };

/* A work request that could not be carried out when it was posted. */
struct pending {
    struct link link;
    struct ibv_send_wr wr;
    uint32_t index;
    bool lost;        /* by a fault: it will time out */
    uint64_t rnr;     /* by a fault: so often there is no receive */
    bool faults_done; /* faults have been looked up */
    uint64_t not_before;
    /* bulk.c: the thread copies it */
    uint64_t total, copied;
    bool carried; /* it has, with this outcome */
    uint32_t status;
};

struct qp {
    union {
        struct ibv_qp ib;
        struct ibv_qp_ex ex;
    };
    /* Sending: guarded by lock. */
    struct spinlock lock;
    _Atomic uint32_t state; /* enum ibv_qp_state */
    uint32_t sq_head;
    _Atomic uint32_t sq_done; /* moved by polling */
    uint32_t max_send_wr, max_send_sge, max_inline;
    bool sig_all;
    struct qp_shared *sh;
    struct route route;
    struct pd *pd;
    struct cq *scq, *rcq;
    uint64_t doorbells, send_wrs, messages, bytes;
    struct link pending;
    enum stall stall;
    uint32_t rnr_tries, retry_round;
    uint64_t stalled_since;
    struct timer timer;
    struct link late; /* scatter.c: lines of WRITEs that memory does not show yet */
    struct timer late_timer;
    uint64_t late_seed;
    struct link bulk_link;
    _Atomic uint32_t bulk_turn;   /* changes when a copy under way must stop */
    _Atomic uint32_t bulk_copies; /* the thread is copying */
    bool bulk_left;               /* being destroyed; under the lock of bulk.c */

    /* Receiving: posts are guarded by rlock, polling by the lock of rcq. */
    struct spinlock rlock;
    struct recv_cqe *cqes;
    uint8_t *wqes;
    uint32_t cqe_shift, cqe_mask, wqe_mask, stride;
    _Atomic uint32_t posted, head;
    uint64_t *wr_ids;
    struct srq *srq;
    uint32_t max_recv_wr, max_recv_sge;
    uint32_t cq_bit;
    int hot; /* place in rcq->hot, or -1 */
    _Atomic bool flushing;
    uint64_t recv_wrs;

    /* Control: guarded by lock. */
    uint64_t off;
    uint32_t token;
    struct ibv_qp_attr attr;
    struct link all;
    struct wr_builder *builder; /* ibv_wr_* interface */
    size_t cqe_bytes, wqe_bytes;
};

static inline struct qp *to_qp(struct ibv_qp *ib) {
    return (struct qp *)ib;
}
static inline struct srq *to_srq(struct ibv_srq *ib) {
    return (struct srq *)ib;
}

void qp_start(void);
void qp_forget(void);

/* data path */
int qp_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int srq_post_recv(struct ibv_srq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Polls what peers and flushing have completed; call with rcq locked. */
int qp_drain(struct qp *qp, struct ibv_wc *wc, int n);
/* How many receives are completed and unpolled, counted up to `limit`. */
uint32_t qp_count_done(const struct qp *qp, uint32_t limit);
static inline bool qp_has_done(const struct qp *qp) {
    uint32_t head = load_relaxed(&qp->head);
    return load_acquire(&qp->cqes[head & qp->cqe_mask].word) >> 16 == CQE_TURN(head, qp->cqe_shift) ||
           (load_acquire(&qp->flushing) && !qp->srq && load_acquire(&qp->posted) != head);
}

/* send.c */
void send_retry(struct timer *timer);
bool send_bulk(struct qp *qp); /* copies some of the first waiting request: whether it must go on */
void send_show_late(struct timer *timer);
void send_show_all_late(struct qp *qp); /* qp locked, and not entered */
void send_flush(struct qp *qp);         /* all that is pending, with WR_FLUSH_ERR; qp locked */
void send_resume(struct qp *qp);        /* qp locked */
void send_discard(struct qp *qp);
void wr_ops_install(struct qp *qp);

/* qp.c */
struct ibv_qp *qp_create_ex(struct ibv_context *ib, struct ibv_qp_init_attr_ex *attr);
/* To the error state: flushes both queues. qp locked. */
void qp_fail(struct qp *qp);
void qp_fail_by_number(uint32_t qpn, uint32_t token, enum ibv_event_type event);
/* Points the queue pair at its peer's (the caller keeps its reference). */
void qp_set_route(struct qp *qp, struct peer *peer, const struct qp_address *address);
struct qp_address qp_address(const struct qp *qp);
/* Waits until no peer is inside this process's memory that got in by what has been withdrawn. */
void qp_quiesce_all(void);
void qp_sum_counters(struct softrdma_counters *out);

/* srq.c */
void srq_start(void);
void srq_forget(void);
void srq_sum_counters(struct softrdma_counters *out);
struct ibv_srq *srq_create_ex(struct ibv_context *ib, struct ibv_srq_init_attr_ex *attr);
/* Takes a receive from a peer's shared queue for queue pair `qpn`: its number, or -1. */
int64_t srq_claim(struct peer *peer, struct srq_shared *sh, uint32_t qpn);
void srq_release(struct srq *srq, uint32_t wqe); /* polled: may be posted again */
void srq_reclaim(struct srq *srq, uint32_t qpn); /* what a dead sender took and never completed */
static inline struct recv_wqe *wqe_at(uint8_t *wqes, uint32_t stride, uint32_t i) {
    return (struct recv_wqe *)(wqes + (size_t)stride * i);
}
