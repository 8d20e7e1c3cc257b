/* Queue pairs: creation, state, the way to the peer, and the end. The data path is in send.c and recv.c.
 *
 * Locks, outermost first: qp->lock (sending and control), the lock of a completion queue, srq->lock. rlock
 * stands alone. No lock is held while waiting for another process, except qp->lock in qp_fail, whose wait is
 * bounded. */
#define _GNU_SOURCE
#include "qp.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bulk.h"
#include "config.h"
#include "fault.h"
#include "net.h"
#include "qp_state.h"
#include "qpn.h"
#include "ready.h"
#include "stats.h"

#define SRQ_RING      512 /* completions of one queue pair on a shared receive queue that may be unpolled */
#define QUIESCE_LIMIT NS_PER_SEC
#define DIAL_LIMIT    (5 * NS_PER_SEC)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list of all */
static struct link all = {&all, &all};
static uint32_t live;

/* --- creation --- */

static int check_caps(struct ibv_qp_init_attr_ex *a) {
    const struct config *c = config();
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                         IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    if (a->qp_type != IBV_QPT_RC || (a->comp_mask & ~known)) return EOPNOTSUPP;
    if ((a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (a->send_ops_flags & ~ops)) return EOPNOTSUPP;
    if ((a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags) return EOPNOTSUPP;
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !a->send_cq || !a->recv_cq) return EINVAL;
    if (a->cap.max_send_wr > c->max_qp_wr || a->cap.max_send_sge > c->max_sge) return EINVAL;
    if (!a->srq && (a->cap.max_recv_wr > c->max_qp_wr || a->cap.max_recv_sge > c->max_sge)) return EINVAL;
    if (a->cap.max_inline_data > c->max_inline) return EINVAL;
    return 0;
}

/* Like a card, grants at least what was asked for, rounded to what it works with, and says so. */
static void grant_caps(struct qp *qp, struct ibv_qp_init_attr_ex *a) {
    qp->max_send_wr = a->cap.max_send_wr ? a->cap.max_send_wr : 1;
    qp->max_send_sge = a->cap.max_send_sge ? a->cap.max_send_sge : 1;
    qp->max_inline = a->cap.max_inline_data;
    qp->max_recv_wr = a->srq ? 0 : a->cap.max_recv_wr ? a->cap.max_recv_wr : 1;
    qp->max_recv_sge = a->srq ? 0 : a->cap.max_recv_sge ? a->cap.max_recv_sge : 1;
    a->cap = (struct ibv_qp_cap){.max_send_wr = qp->max_send_wr,
                                 .max_recv_wr = qp->max_recv_wr,
                                 .max_send_sge = qp->max_send_sge,
                                 .max_recv_sge = qp->max_recv_sge,
                                 .max_inline_data = qp->max_inline};
    qp->attr.cap = a->cap;
}

static int qp_memory(struct qp *qp) {
    uint32_t ring = pow2_at_least(qp->srq ? qp->srq->max_wr : qp->max_recv_wr);
    if (qp->srq && ring > SRQ_RING) ring = SRQ_RING;
    qp->stride = (uint32_t)(sizeof(struct recv_wqe) + qp->max_recv_sge * sizeof(struct ibv_sge));
    qp->cqe_mask = qp->wqe_mask = ring - 1;
    qp->cqe_shift = log2_of(ring);
    qp->cqe_bytes = ring * sizeof(struct recv_cqe);
    qp->wqe_bytes = qp->srq ? 0 : (size_t)ring * qp->stride;
    qp->off = arena_alloc(ARENA_QP, sizeof(*qp->sh));
    uint64_t cqes = arena_alloc(ARENA_RING, qp->cqe_bytes);
    uint64_t wqes = qp->srq ? 0 : arena_alloc(ARENA_RING, qp->wqe_bytes);
    if (!qp->srq) qp->wr_ids = malloc(ring * sizeof(*qp->wr_ids));
    if (!qp->off || !cqes || (!qp->srq && (!wqes || !qp->wr_ids))) {
        arena_free(ARENA_QP, qp->off, sizeof(*qp->sh));
        arena_free(ARENA_RING, cqes, qp->cqe_bytes);
        arena_free(ARENA_RING, wqes, qp->wqe_bytes);
        return ENOMEM;
    }
    qp->sh = arena_ptr(qp->off);
    qp->cqes = arena_ptr(cqes);
    qp->wqes = arena_ptr(wqes);
    qp->sh->cqes = cqes;
    qp->sh->wqes = wqes;
    qp->sh->wqe_stride = (uint16_t)qp->stride;
    qp->sh->cqe_shift = (uint8_t)qp->cqe_shift;
    qp->sh->pd = qp->pd->id;
    qp->sh->srq = qp->srq ? qp->srq->off : 0;
    qp->sh->cq = qp->rcq->off;
    return 0;
}

static void qp_free_memory(struct qp *qp) {
    if (qp->off) {
        arena_free(ARENA_RING, qp->sh->cqes, qp->cqe_bytes);
        arena_free(ARENA_RING, qp->sh->wqes, qp->wqe_bytes);
        arena_free(ARENA_QP, qp->off, sizeof(*qp->sh));
    }
    free(qp->wr_ids);
    free(qp->builder);
    free(qp);
}

static uint32_t new_token(void) {
    uint32_t token = 0;
    while (!token)
        if (getrandom(&token, sizeof(token), 0) != sizeof(token)) token = 0;
    return token;
}

/* Receives nothing and has no peer, as after creation. */
static void qp_clear(struct qp *qp) {
    qp->sq_head = 0;
    store_relaxed(&qp->sq_done, 0);
    store_relaxed(&qp->posted, 0);
    store_relaxed(&qp->head, 0);
    store_relaxed(&qp->flushing, false);
    qp->stall = STALL_NONE;
    qp->token = new_token();
    memset(qp->cqes, 0, qp->cqe_bytes);
    store_release(&qp->sh->posted, qp->srq ? qp->cqe_mask + 1 : 0);
    peer_put(qp->route.peer);
    qp->route = (struct route){0};
    qp->attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET, .cap = qp->attr.cap};
}

static int qp_admit(void) {
    pthread_mutex_lock(&lock);
    int err = live >= config()->max_qp ? ENOMEM : 0;
    if (!err) live++;
    pthread_mutex_unlock(&lock);
    return err;
}

static void qp_dismiss(void) {
    pthread_mutex_lock(&lock);
    live--;
    pthread_mutex_unlock(&lock);
}

static int qp_build(struct qp *qp, struct ibv_context *ib, struct ibv_qp_init_attr_ex *attr) {
    qp->pd = to_pd(attr->pd);
    qp->scq = to_cq(attr->send_cq);
    qp->rcq = to_cq(attr->recv_cq);
    qp->srq = attr->srq ? to_srq(attr->srq) : NULL;
    qp->sig_all = attr->sq_sig_all;
    list_init(&qp->pending);
    qp->timer.fire = send_retry;
    qp->late_timer.fire = send_show_late;
    list_init(&qp->late);
    grant_caps(qp, attr);
    int err = qp_memory(qp);
    if (err) return err;
    qp_clear(qp);
    qp->ib.context = ib;
    qp->ib.qp_context = attr->qp_context;
    qp->ib.pd = attr->pd;
    qp->ib.send_cq = attr->send_cq;
    qp->ib.recv_cq = attr->recv_cq;
    qp->ib.srq = attr->srq;
    qp->ib.qp_type = attr->qp_type;
    pthread_mutex_init(&qp->ib.mutex, NULL);
    pthread_cond_init(&qp->ib.cond, NULL);
    wr_ops_install(qp);
    if (cq_attach_recv(qp->rcq, qp, qp->srq ? qp->cqe_mask + 1 : qp->max_recv_wr)) return ENOMEM;
    qp->sh->cq_bit = qp->cq_bit;
    cq_attach_send(qp->scq, qp->max_send_wr);
    return 0;
}

static void qp_unbuild(struct qp *qp) {
    cq_detach(qp->rcq, qp, true, qp->srq ? qp->cqe_mask + 1 : qp->max_recv_wr);
    cq_detach(qp->scq, qp, false, qp->max_send_wr);
}

struct ibv_qp *qp_create_ex(struct ibv_context *ib, struct ibv_qp_init_attr_ex *attr) {
    int err = fault_errno(FAULT_CREATE_QP);
    if (!err) err = check_caps(attr);
    struct qp *qp = err ? NULL : calloc(1, sizeof(*qp));
    if (!err && !qp) err = ENOMEM;
    if (!err) err = qp_admit();
    if (err) {
        free(qp);
        errno = err;
        return NULL;
    }
    err = qp_build(qp, ib, attr);
    if (!err && !(qp->ib.qp_num = qpn_take(qp))) {
        qp_unbuild(qp);
        err = ENOMEM;
    }
    if (err) {
        qp_dismiss();
        qp_free_memory(qp);
        errno = err;
        return NULL;
    }
    qp->ib.handle = qp->sh->qpn = qp->ib.qp_num;
    pthread_mutex_lock(&lock);
    list_append(&all, &qp->all);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&qp->pd->users, 1);
    if (qp->srq) atomic_fetch_add(&qp->srq->users, 1);
    stats_inc(qps);
    return &qp->ib;
}

SR_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = pd};
    struct ibv_qp *qp = qp_create_ex(pd->context, &ex);
    if (qp) attr->cap = ex.cap;
    return qp;
}

SR_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    return &to_qp(qp)->ex;
}

/* --- the way to the peer --- */

struct qp_address qp_address(const struct qp *qp) {
    return (struct qp_address){qp->off, qp->ib.qp_num, qp->token};
}

void qp_set_route(struct qp *qp, struct peer *peer, const struct qp_address *to) {
    struct route *r = &qp->route;
    if (to->off % CACHE_LINE || to->off > peer->size - sizeof(struct qp_shared)) return;
    struct qp_shared *rqp = peer_ptr(peer, to->off);
    peer_put(r->peer);
    const struct arena_head *head = (const struct arena_head *)peer->base;
    *r = (struct route){.peer = peer_get(peer),
                        .rqp = rqp,
                        .cqes = peer_ptr(peer, rqp->cqes),
                        .wqes = peer_ptr(peer, rqp->wqes),
                        .srq = rqp->srq ? peer_ptr(peer, rqp->srq) : NULL,
                        .cq = peer_ptr(peer, rqp->cq),
                        .mrs = peer_ptr(peer, head->mr_table),
                        .mr_slots = head->mr_slots,
                        .mask = (1u << rqp->cqe_shift) - 1,
                        .shift = rqp->cqe_shift,
                        .stride = rqp->wqe_stride,
                        .cq_bit = rqp->cq_bit,
                        .pd = rqp->pd,
                        .qpn = to->qpn,
                        .token = to->token};
}

static void sender_admit(struct qp *qp) {
    if (qp->route.peer) store_release(&qp->sh->sender, qp->route.token);
}

static void membarrier_others(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* Until the peer's queue pair is not sending to us. Bounded: a stopped process must not stop others. */
static void wait_not_busy(const struct route *r) {
    if (!r->peer) return;
    uint64_t limit = 0;
    for (unsigned spins = 0; load_acquire(&r->rqp->busy) && !peer_is_dead(r->peer);) {
        if (++spins % 256) {
            cpu_relax();
            continue;
        }
        sched_yield();
        uint64_t now = now_ns();
        if (!limit) limit = now + QUIESCE_LIMIT;
        if (now > limit) return;
    }
}

static void sender_revoke(struct qp *qp) {
    if (!atomic_exchange(&qp->sh->sender, 0)) return;
    membarrier_others();
    wait_not_busy(&qp->route);
}

void qp_quiesce_all(void) {
    membarrier_others();
    pthread_mutex_lock(&lock);
    for (struct link *l = all.next; l != &all; l = l->next) {
        struct qp *qp = container_of(l, struct qp, all);
        if (load_acquire(&qp->sh->sender)) wait_not_busy(&qp->route);
    }
    pthread_mutex_unlock(&lock);
}

/* A queue pair that is connected by hand: ask the owner of the number where it is. */
struct qp_dial {
    struct dial dial;
    _Atomic uint32_t refs; /* the waiting programs, and the search */
    uint32_t from, to;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    struct peer *peer;
    struct qp_address address;
    struct link link;
};

static struct link dials = {&dials, &dials}; /* under lock */

static void qp_dial_put(struct qp_dial *d) {
    if (atomic_fetch_sub(&d->refs, 1) != 1) return;
    pthread_mutex_lock(&lock);
    list_remove(&d->link);
    pthread_mutex_unlock(&lock);
    peer_put(d->peer);
    free(d);
}

static void qp_dial_answer(struct qp_dial *d) {
    pthread_mutex_lock(&d->lock);
    d->done = true;
    pthread_cond_broadcast(&d->answered);
    pthread_mutex_unlock(&d->lock);
    qp_dial_put(d);
}

static void qp_dial_done(struct dial *dial, struct peer *peer, int err) {
    struct qp_dial *d = container_of(dial, struct qp_dial, dial);
    d->peer = peer;
    struct message msg = {.type = MSG_QP_QUERY, .value = d->from, .qp = {.qpn = d->to}};
    if (!peer || peer_send(peer, &msg, -1)) qp_dial_answer(d);
}

static void on_qp_query(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    struct message reply = {.type = MSG_QP_INFO, .value = msg->value, .qp = {.qpn = msg->qp.qpn}};
    pthread_mutex_lock(&lock);
    struct qp *qp = qpn_find(msg->qp.qpn);
    if (qp) reply.qp = qp_address(qp);
    pthread_mutex_unlock(&lock);
    peer_send(peer, &reply, -1);
}

static void on_qp_info(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    struct qp_dial *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct link *l = dials.next; l != &dials && !found; l = l->next) {
        struct qp_dial *d = container_of(l, struct qp_dial, link);
        if (d->from == msg->value && d->to == msg->qp.qpn && d->peer == peer && !d->done) found = d;
    }
    if (found) found->address = msg->qp;
    pthread_mutex_unlock(&lock);
    if (found) qp_dial_answer(found);
}

/* Waits for the answer; the route stays empty when there is none. Not under qp->lock. */
static void qp_find_route(struct qp *qp, uint32_t dest) {
    struct qp_dial *d = calloc(1, sizeof(*d));
    if (!d) return;
    d->refs = 2;
    d->from = qp->ib.qp_num;
    d->to = dest;
    d->dial.done = qp_dial_done;
    qpn_door(d->dial.names[0], dest);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->answered, NULL);
    pthread_mutex_lock(&lock);
    list_append(&dials, &d->link);
    pthread_mutex_unlock(&lock);
    peer_dial(&d->dial);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(DIAL_LIMIT / NS_PER_SEC);
    pthread_mutex_lock(&d->lock);
    while (!d->done && !pthread_cond_timedwait(&d->answered, &d->lock, &until)) {
    }
    bool found = d->done && d->peer && d->address.off;
    pthread_mutex_unlock(&d->lock);
    if (found) {
        spin_lock(&qp->lock);
        qp_set_route(qp, d->peer, &d->address);
        spin_unlock(&qp->lock);
    }
    qp_dial_put(d);
}

/* --- states --- */

void qp_fail(struct qp *qp) {
    uint32_t state = load_relaxed(&qp->state);
    if (state == IBV_QPS_ERR || state == IBV_QPS_RESET) return;
    store_release(&qp->state, IBV_QPS_ERR);
    qp->attr.qp_state = IBV_QPS_ERR;
    sender_revoke(qp);
    send_flush(qp);
    store_release(&qp->flushing, true);
    full_fence();
    ready_add(&qp->rcq->sh->ready, qp->cq_bit);
    cq_notify(peer_self(), qp->rcq->sh, true);
    if (qp->srq) async_raise(qp->ib.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->ib);
}

void qp_fail_by_number(uint32_t qpn, uint32_t token, enum ibv_event_type event) {
    pthread_mutex_lock(&lock); /* keeps it from being destroyed */
    struct qp *qp = qpn_find(qpn);
    if (qp) {
        spin_lock(&qp->lock);
        bool fails = qp->token == token && load_relaxed(&qp->state) != IBV_QPS_ERR;
        if (fails) qp_fail(qp);
        spin_unlock(&qp->lock);
        if (fails) async_raise(qp->ib.context, event, &qp->ib);
    }
    pthread_mutex_unlock(&lock);
}

static void on_qp_error(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    qp_fail_by_number(msg->qp.qpn, msg->qp.token, (enum ibv_event_type)msg->value);
}

static void merge_attr(struct qp *qp, const struct ibv_qp_attr *a, int mask) {
    struct ibv_qp_attr *to = &qp->attr;
    if (mask & IBV_QP_ACCESS_FLAGS) qp->sh->access = to->qp_access_flags = a->qp_access_flags;
    if (mask & IBV_QP_PKEY_INDEX) to->pkey_index = a->pkey_index;
    if (mask & IBV_QP_PORT) to->port_num = a->port_num;
    if (mask & IBV_QP_AV) to->ah_attr = a->ah_attr;
    if (mask & IBV_QP_PATH_MTU) to->path_mtu = a->path_mtu;
    if (mask & IBV_QP_DEST_QPN) to->dest_qp_num = a->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN) to->rq_psn = a->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN) to->sq_psn = a->sq_psn & 0xffffff;
    if (mask & IBV_QP_TIMEOUT) to->timeout = a->timeout;
    if (mask & IBV_QP_RETRY_CNT) to->retry_cnt = a->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) to->rnr_retry = a->rnr_retry;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to->max_rd_atomic = a->max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) qp->sh->max_dest_rd_atomic = to->max_dest_rd_atomic = a->max_dest_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER) qp->sh->min_rnr_timer = to->min_rnr_timer = a->min_rnr_timer;
}

/* The address in an address vector must be one of this machine, or nothing would answer. */
static int check_address(struct qp *qp, const struct ibv_qp_attr *attr, int mask) {
    if (!(mask & IBV_QP_AV) || !attr->ah_attr.is_global) return 0;
    union ibv_gid gids[NET_MAX_GIDS];
    uint32_t n = net_gids(to_context(qp->ib.context)->device->index, gids);
    return attr->ah_attr.grh.sgid_index < n ? 0 : EINVAL;
}

static void enter_state(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to) {
    qp->attr.qp_state = to;
    if (to == IBV_QPS_RESET) {
        send_show_all_late(qp);
        store_release(&qp->state, to);
        sender_revoke(qp);
        send_discard(qp);
        cq_purge(qp->scq, qp);
        if (qp->rcq != qp->scq) cq_purge(qp->rcq, qp);
        if (qp->srq) srq_reclaim(qp->srq, qp->ib.qp_num);
        qp_clear(qp);
        return;
    }
    if (to == IBV_QPS_ERR) {
        qp->attr.qp_state = from;
        qp_fail(qp);
        return;
    }
    store_release(&qp->state, to);
    if (to == IBV_QPS_RTR) sender_admit(qp);
    if (to == IBV_QPS_RTS && from != IBV_QPS_RTS) send_resume(qp);
    if (to == IBV_QPS_SQD && from != IBV_QPS_SQD && qp->attr.en_sqd_async_notify)
        async_raise(qp->ib.context, IBV_EVENT_SQ_DRAINED, &qp->ib);
}

SR_EXPORT int ibv_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask) {
    struct qp *qp = to_qp(ib);
    int err = fault_errno(FAULT_MODIFY_QP);
    if (!device_is_ours(ib->context)) err = EPERM;
    enum ibv_qp_state from = (enum ibv_qp_state)load_acquire(&qp->state);
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if (!err) err = qp_state_check(from, attr, mask, config()->max_rd_atomic);
    if (!err) err = check_address(qp, attr, mask);
    if (err) return err;
    bool known = qp->route.peer && qp->route.qpn == attr->dest_qp_num;
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT && !known) qp_find_route(qp, attr->dest_qp_num);
    spin_lock(&qp->lock);
    if (load_relaxed(&qp->state) != from) { /* failed meanwhile */
        spin_unlock(&qp->lock);
        return EINVAL;
    }
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) qp->attr.en_sqd_async_notify = attr->en_sqd_async_notify;
    merge_attr(qp, attr, mask);
    if (mask & IBV_QP_STATE) enter_state(qp, from, to);
    ib->state = to;
    spin_unlock(&qp->lock);
    return 0;
}

SR_EXPORT int ibv_query_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    struct qp *qp = to_qp(ib);
    if (!device_is_ours(ib->context)) return EPERM;
    spin_lock(&qp->lock);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)load_relaxed(&qp->state);
    attr->path_mig_state = IBV_MIG_MIGRATED;
    spin_unlock(&qp->lock);
    ib->state = attr->qp_state;
    *init = (struct ibv_qp_init_attr){.qp_context = ib->qp_context,
                                      .send_cq = ib->send_cq,
                                      .recv_cq = ib->recv_cq,
                                      .srq = ib->srq,
                                      .cap = qp->attr.cap,
                                      .qp_type = ib->qp_type,
                                      .sq_sig_all = qp->sig_all};
    return 0;
}

SR_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags) {
    return (void)qp, (void)op, (void)flags, 0;
}

SR_EXPORT int ibv_destroy_qp(struct ibv_qp *ib) {
    struct qp *qp = to_qp(ib);
    if (!device_is_ours(ib->context)) return EPERM;
    pthread_mutex_lock(&lock);
    list_remove(&qp->all);
    qpn_give_back(ib->qp_num);
    live--;
    stats_add(doorbells, qp->doorbells);
    stats_add(send_wrs, qp->send_wrs);
    stats_add(recv_wrs, qp->recv_wrs);
    stats_add(messages, qp->messages);
    stats_add(bytes, qp->bytes);
    pthread_mutex_unlock(&lock);
    spin_lock(&qp->lock);
    send_show_all_late(qp);
    store_release(&qp->state, IBV_QPS_RESET);
    sender_revoke(qp);
    bulk_stop(qp);
    spin_unlock(&qp->lock);
    timer_cancel_wait(&qp->timer);
    timer_cancel_wait(&qp->late_timer);
    bulk_leave(qp);
    send_discard(qp);
    qp_unbuild(qp);
    if (qp->srq) {
        srq_reclaim(qp->srq, ib->qp_num);
        atomic_fetch_sub(&qp->srq->users, 1);
    }
    async_purge(ib->context, ib);
    atomic_fetch_sub(&qp->pd->users, 1);
    peer_put(qp->route.peer);
    stats_dec(qps);
    qp_free_memory(qp);
    return 0;
}

/* --- the whole --- */

/* A sender may have died between writing a completion and announcing it. */
static void on_peer_death(struct peer *peer) {
    pthread_mutex_lock(&lock);
    for (struct link *l = all.next; l != &all; l = l->next) {
        struct qp *qp = container_of(l, struct qp, all);
        if (qp->route.peer != peer) continue;
        ready_add(&qp->rcq->sh->ready, qp->cq_bit);
        cq_repair(qp->rcq);
        if (qp_has_done(qp)) cq_notify(peer_self(), qp->rcq->sh, true);
    }
    for (struct link *l = dials.next, *next; l != &dials; l = next) {
        next = l->next;
        struct qp_dial *d = container_of(l, struct qp_dial, link);
        if (d->peer != peer || d->done) continue;
        pthread_mutex_unlock(&lock);
        qp_dial_answer(d);
        pthread_mutex_lock(&lock);
        next = dials.next;
    }
    pthread_mutex_unlock(&lock);
}

RACES_ALLOWED void qp_sum_counters(struct softrdma_counters *out) {
    pthread_mutex_lock(&lock);
    for (struct link *l = all.next; l && l != &all; l = l->next) {
        struct qp *qp = container_of(l, struct qp, all);
        out->doorbells += qp->doorbells;
        out->send_wrs += qp->send_wrs;
        out->recv_wrs += qp->recv_wrs;
        out->messages += qp->messages;
        out->bytes += qp->bytes;
    }
    pthread_mutex_unlock(&lock);
    srq_sum_counters(out);
}

void qp_start(void) {
    list_init(&all);
    list_init(&dials);
    peer_handle(MSG_QP_QUERY, on_qp_query);
    peer_handle(MSG_QP_INFO, on_qp_info);
    peer_handle(MSG_QP_ERROR, on_qp_error);
    peer_on_death(on_peer_death);
    srq_start();
}

void qp_forget(void) {
    list_init(&all);
    list_init(&dials);
    live = 0;
    pthread_mutex_init(&lock, NULL);
    qpn_forget();
    srq_forget();
}
