/* Shared receive queues: any number of senders, in any number of processes, take receives from one ring.
 *
 * Taking is two compare-and-swaps and holds nothing: a sender swings the entry at `head` from POSTED to
 * CLAIMED by its queue pair, then moves `head`; a sender that finds a CLAIMED entry at `head` moves it for the
 * claimer. The completion goes to the ring of the queue pair, like any other. Receives complete out of order,
 * so their slots (wqes) are handed to the ring by number and return to a free stack when their completion is
 * polled. A claim whose sender died before completing is found by `claimed_by` and given back when the queue
 * pair is torn down; dying between the claim and that note loses one receive. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "fault.h"
#include "qp.h"
#include "stats.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct link srqs = {&srqs, &srqs};
static uint32_t live, numbers;

static uint32_t wqe_stride(uint32_t max_sge) {
    return (uint32_t)(sizeof(struct recv_wqe) + max_sge * sizeof(struct ibv_sge));
}

static int srq_memory(struct srq *srq) {
    srq->ring_size = pow2_at_least(srq->max_wr);
    srq->wr_ids = malloc(srq->max_wr * sizeof(*srq->wr_ids));
    srq->free_wqes = malloc(srq->max_wr * sizeof(*srq->free_wqes));
    srq->off = arena_alloc(ARENA_SRQ, sizeof(*srq->sh));
    if (!srq->wr_ids || !srq->free_wqes || !srq->off) return ENOMEM;
    srq->sh = arena_ptr(srq->off);
    srq->sh->mask = srq->ring_size - 1;
    srq->sh->shift = log2_of(srq->ring_size);
    srq->sh->pd = srq->pd->id;
    srq->sh->wqe_stride = (uint16_t)wqe_stride(srq->max_sge);
    srq->sh->ring = arena_alloc(ARENA_RING, srq->ring_size * sizeof(uint64_t));
    srq->sh->wqes = arena_alloc(ARENA_RING, (size_t)srq->max_wr * srq->sh->wqe_stride);
    for (uint32_t i = 0; i < srq->max_wr; i++) srq->free_wqes[i] = srq->max_wr - 1 - i;
    srq->free_count = srq->max_wr;
    return srq->sh->ring && srq->sh->wqes ? 0 : ENOMEM;
}

static void srq_free(struct srq *srq) {
    if (srq->off) {
        arena_free(ARENA_RING, srq->sh->ring, srq->ring_size * sizeof(uint64_t));
        arena_free(ARENA_RING, srq->sh->wqes, (size_t)srq->max_wr * srq->sh->wqe_stride);
        arena_free(ARENA_SRQ, srq->off, sizeof(*srq->sh));
    }
    free(srq->wr_ids);
    free(srq->free_wqes);
    free(srq);
}

struct ibv_srq *srq_create_ex(struct ibv_context *ib, struct ibv_srq_init_attr_ex *attr) {
    const struct config *c = config();
    int err = fault_errno(FAULT_CREATE_SRQ);
    bool basic = !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || attr->srq_type == IBV_SRQT_BASIC;
    if (!err && (!basic || !c->max_srq)) err = EOPNOTSUPP;
    if (!err && (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)) err = EINVAL;
    if (!err && (!attr->attr.max_wr || attr->attr.max_wr > c->max_srq_wr || attr->attr.max_sge > c->max_sge))
        err = EINVAL;
    struct srq *srq = err ? NULL : calloc(1, sizeof(*srq));
    pthread_mutex_lock(&lock);
    if (!err && (!srq || live >= c->max_srq)) err = ENOMEM;
    if (!err) live++;
    pthread_mutex_unlock(&lock);
    if (err) {
        free(srq);
        errno = err;
        return NULL;
    }
    srq->pd = to_pd(attr->pd);
    srq->max_wr = attr->attr.max_wr;
    srq->max_sge = attr->attr.max_sge ? attr->attr.max_sge : 1;
    srq->ib = (struct ibv_srq){.context = ib, .srq_context = attr->srq_context, .pd = attr->pd};
    pthread_mutex_init(&srq->ib.mutex, NULL);
    pthread_cond_init(&srq->ib.cond, NULL);
    err = srq_memory(srq);
    pthread_mutex_lock(&lock);
    if (err) live--;
    if (!err) {
        srq->ib.handle = srq->sh->id = ++numbers;
        list_append(&srqs, &srq->link);
    }
    pthread_mutex_unlock(&lock);
    if (err) {
        srq_free(srq);
        errno = err;
        return NULL;
    }
    attr->attr.max_sge = srq->max_sge;
    atomic_fetch_add(&srq->pd->users, 1);
    stats_inc(srqs);
    return &srq->ib;
}

SR_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    struct ibv_srq_init_attr_ex ex = {
        .srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd};
    struct ibv_srq *srq = srq_create_ex(pd->context, &ex);
    if (srq) attr->attr = ex.attr;
    return srq;
}

SR_EXPORT int ibv_destroy_srq(struct ibv_srq *ib) {
    struct srq *srq = to_srq(ib);
    if (!device_is_ours(ib->context)) return EPERM;
    if (load_acquire(&srq->users)) return EBUSY;
    pthread_mutex_lock(&lock);
    list_remove(&srq->link);
    live--;
    pthread_mutex_unlock(&lock);
    async_purge(ib->context, ib);
    stats_add(recv_wrs, srq->posts);
    atomic_fetch_sub(&srq->pd->users, 1);
    stats_dec(srqs);
    srq_free(srq);
    return 0;
}

SR_EXPORT int ibv_modify_srq(struct ibv_srq *ib, struct ibv_srq_attr *attr, int mask) {
    struct srq *srq = to_srq(ib);
    if (mask & ~IBV_SRQ_LIMIT) return EOPNOTSUPP; /* no resizing */
    if (mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->max_wr) return EINVAL;
        atomic_store(&srq->sh->limit, attr->srq_limit);
    }
    return 0;
}

SR_EXPORT int ibv_query_srq(struct ibv_srq *ib, struct ibv_srq_attr *attr) {
    struct srq *srq = to_srq(ib);
    *attr = (struct ibv_srq_attr){srq->max_wr, srq->max_sge, load_relaxed(&srq->sh->limit)};
    return 0;
}

int srq_post_recv(struct ibv_srq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct srq *srq = to_srq(ib);
    struct srq_shared *sh = srq->sh;
    _Atomic uint64_t *ring = arena_ptr(sh->ring);
    uint8_t *wqes = arena_ptr(sh->wqes);
    int err = fault_errno(FAULT_POST_RECV);
    spin_lock(&srq->lock);
    for (; wr && !err; wr = wr->next) {
        if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge) {
            err = EINVAL;
            break;
        }
        if (!srq->free_count) {
            err = ENOMEM;
            break;
        }
        uint32_t n = srq->free_wqes[--srq->free_count];
        struct recv_wqe *wqe = wqe_at(wqes, sh->wqe_stride, n);
        wqe->num_sge = (uint32_t)wr->num_sge;
        store_relaxed(&wqe->claimed_by, 0);
        for (int i = 0; i < wr->num_sge; i++) wqe->sge[i] = wr->sg_list[i];
        srq->wr_ids[n] = wr->wr_id;
        uint32_t at = srq->posted++;
        store_release(&ring[at & sh->mask], SRQ_ENTRY((at >> sh->shift) + 1, SRQ_POSTED, n));
        srq->posts++;
    }
    store_release(&sh->posted, srq->posted);
    spin_unlock(&srq->lock);
    if (err) *bad = wr;
    return err;
}

void srq_release(struct srq *srq, uint32_t wqe) {
    spin_lock(&srq->lock);
    store_relaxed(&wqe_at(arena_ptr(srq->sh->wqes), srq->sh->wqe_stride, wqe)->claimed_by, 0);
    srq->free_wqes[srq->free_count++] = wqe;
    spin_unlock(&srq->lock);
}

void srq_reclaim(struct srq *srq, uint32_t qpn) {
    for (uint32_t i = 0; i < srq->max_wr; i++) {
        struct recv_wqe *wqe = wqe_at(arena_ptr(srq->sh->wqes), srq->sh->wqe_stride, i);
        if (load_acquire(&wqe->claimed_by) == qpn) srq_release(srq, i);
    }
}

/* --- the sender's side --- */

/* The limit is armed once. The sender whose receive goes below it reports it to the owner. */
static void check_limit(struct peer *peer, struct srq_shared *sh, uint32_t head) {
    uint32_t limit = load_relaxed(&sh->limit);
    if (likely(!limit) || load_relaxed(&sh->posted) - head >= limit) return;
    if (!atomic_compare_exchange_strong(&sh->limit, &limit, 0)) return;
    struct message msg = {.type = MSG_SRQ_LIMIT, .value = sh->id};
    peer_send(peer, &msg, -1);
}

int64_t srq_claim(struct peer *peer, struct srq_shared *sh, uint32_t qpn) {
    _Atomic uint64_t *ring = peer_ptr(peer, sh->ring);
    for (;;) {
        uint32_t head = load_acquire(&sh->head);
        if (head == load_acquire(&sh->posted)) return -1;
        uint32_t turn = (head >> sh->shift) + 1;
        uint64_t entry = load_acquire(&ring[head & sh->mask]);
        uint64_t posted = SRQ_ENTRY(turn, SRQ_POSTED, 0);
        bool mine = (entry & ~0xffffffffull) == posted &&
                    atomic_compare_exchange_strong(&ring[head & sh->mask], &entry, SRQ_ENTRY(turn, SRQ_CLAIMED, qpn));
        uint32_t next = head;
        if (mine) {
            uint32_t wqe = (uint32_t)entry;
            store_release(&wqe_at(peer_ptr(peer, sh->wqes), sh->wqe_stride, wqe)->claimed_by, qpn);
            atomic_compare_exchange_strong(&sh->head, &next, head + 1);
            check_limit(peer, sh, head + 1);
            return wqe;
        }
        if (SRQ_TURN(entry) == (turn & 0xffffff) && SRQ_STATE(entry) == SRQ_CLAIMED)
            atomic_compare_exchange_strong(&sh->head, &next, head + 1);
    }
}

static void on_srq_limit(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    pthread_mutex_lock(&lock);
    for (struct link *l = srqs.next; l != &srqs; l = l->next) {
        struct srq *srq = container_of(l, struct srq, link);
        if (srq->ib.handle == msg->value) async_raise(srq->ib.context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->ib);
    }
    pthread_mutex_unlock(&lock);
}

void srq_start(void) {
    list_init(&srqs);
    peer_handle(MSG_SRQ_LIMIT, on_srq_limit);
}

void srq_forget(void) {
    list_init(&srqs);
    live = 0;
    pthread_mutex_init(&lock, NULL);
}

RACES_ALLOWED void srq_sum_counters(struct softrdma_counters *out) {
    pthread_mutex_lock(&lock);
    for (struct link *l = srqs.next; l && l != &srqs; l = l->next)
        out->recv_wrs += container_of(l, struct srq, link)->posts;
    pthread_mutex_unlock(&lock);
}
