/* Completion queues and completion channels. */
#pragma once

#include "device.h"
#include "peer.h"

#define CQ_HOT 8

struct qp;

struct channel {
    struct ibv_comp_channel ib;
    struct link link;
    uint32_t id;
    uint64_t off;
    struct channel_shared *sh;
    pthread_mutex_t lock;
    struct cq **cqs; /* by channel_bit */
    uint32_t cq_capacity;
};

/* A completion this process made: of a send, or a flushed receive. */
struct local_wc {
    struct ibv_wc wc;
    struct qp *qp;
    uint64_t not_before; /* 0, unless a fault delays it */
    uint32_t sq_index;   /* polling it frees the send queue up to here */
    bool is_send;
};

struct cq {
    union {
        struct ibv_cq ib;
        struct ibv_cq_ex ex;
    };
    struct spinlock lock; /* guards all that follows */
    struct cq_shared *sh;
    uint64_t off;
    struct channel *channel;
    struct local_wc *ring; /* grows up to cqe */
    uint32_t ring_capacity, ring_head, ring_len;
    struct qp **members; /* queue pairs that receive here, by bit */
    uint32_t member_capacity, member_count, leaves, bit_hint;
    struct qp *hot[CQ_HOT]; /* polled directly, without the ready set */
    uint32_t hot_idle[CQ_HOT];
    uint32_t hot_count, hot_turn;
    uint64_t taken; /* members of leaf taken_leaf still to drain */
    uint32_t taken_leaf, next_leaf;
    uint32_t capacity; /* sum of the queue depths that complete here: above cqe it may overrun */
    uint32_t since_check;
    bool local_last, overrun, destroyed, was_empty;
    uint32_t users; /* attached queues */
    uint64_t slow_until;
    uint64_t polls, completions;
    struct ibv_wc current; /* extended polling */
    struct link link;
};

static inline struct cq *to_cq(struct ibv_cq *ib) {
    return (struct cq *)ib;
}

void cq_start(void);
void cq_forget(void);

int cq_poll(struct ibv_cq *ib, int n, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *ib, int solicited_only);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *ib, struct ibv_cq_init_attr_ex *attr);
int cq_modify(struct ibv_cq *ib, struct ibv_modify_cq_attr *attr);

int cq_attach_recv(struct cq *cq, struct qp *qp, uint32_t depth); /* gives qp its bit; -ENOMEM */
void cq_attach_send(struct cq *cq, uint32_t depth);
void cq_detach(struct cq *cq, struct qp *qp, bool recv, uint32_t depth);
void cq_purge(struct cq *cq, struct qp *qp); /* drops the completions of a queue pair */
/* Adds a local completion and wakes a waiting program. */
void cq_push(struct cq *cq, const struct local_wc *entry);
/* Until cq_wake_now(), cq_push() of this thread wakes nobody: a program that is woken while the thread still holds a
 * lock spins for it. All completions in between are of one queue, which exists until then. */
void cq_wake_later(void);
void cq_wake_now(void);

/* Wakes the owner of `sh` if it is armed for this. `peer` is the owner's process. */
void cq_fire(struct peer *peer, struct cq_shared *sh, bool solicited);
static inline void cq_notify(struct peer *peer, struct cq_shared *sh, bool solicited) {
    if (unlikely(load_relaxed(&sh->armed) != CQ_IDLE)) cq_fire(peer, sh, solicited);
}
/* After a peer's death: finishes what it may have left half done. */
void cq_repair(struct cq *cq);

struct softrdma_counters;
void cq_sum_counters(struct softrdma_counters *out);
