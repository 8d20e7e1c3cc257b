/* Completion queues: polling, arming, and waking sleepers.
 *
 * What arrives lies in the rings of the queue pairs (wire.h), written there by the senders; a completion
 * queue only knows which rings to look at. Up to CQ_HOT of them are `hot`: their queue pair is marked
 * watched, polling reads their next entry directly and their senders touch nothing but the ring. All others
 * announce themselves in the ready set. A hot entry is given up for another only when it has been idle for a
 * while, so the set of hot ones settles on the busiest ones. What this process completes itself, sends and
 * flushed receives, waits in `ring`.
 *
 * Overrun: a completion queue smaller than the sum of the queues that complete into it can overrun, and only
 * then is it watched: polling counts what lies unpolled. A card notices as it happens, this device when the
 * program polls next.
 *
 * Programs destroy a completion queue before its queue pairs; it then lives on unseen until the last of them
 * goes. */
#define _GNU_SOURCE
#include "cq.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "config.h"
#include "fault.h"
#include "qp.h"
#include "ready.h"
#include "stats.h"

#define BITS           (READY_LEAVES * 64)
#define HOT_IDLE_POLLS 64
#define DRAIN_AT_ONCE  16 /* completions of one queue pair before the next has its turn */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards lists and numbers */
static struct link cqs, channels;
static uint32_t live_cqs, cq_numbers, channel_numbers;
static uint64_t past_polls, past_completions;

/* --- channels --- */

SR_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ib) {
    int err = fault_errno(FAULT_CREATE_CHANNEL);
    struct channel *ch = err ? NULL : calloc(1, sizeof(*ch));
    if (!ch) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    ch->ib.context = ib;
    ch->ib.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    ch->off = ch->ib.fd < 0 ? 0 : arena_alloc(ARENA_CHANNEL, sizeof(*ch->sh));
    if (!ch->off) {
        err = ch->ib.fd < 0 ? errno : ENOMEM;
        if (ch->ib.fd >= 0) close(ch->ib.fd);
        free(ch);
        errno = err;
        return NULL;
    }
    ch->sh = arena_ptr(ch->off);
    pthread_mutex_init(&ch->lock, NULL);
    pthread_mutex_lock(&lock);
    ch->id = ch->sh->id = ++channel_numbers;
    list_append(&channels, &ch->link);
    pthread_mutex_unlock(&lock);
    stats_inc(comp_channels);
    return &ch->ib;
}

SR_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ib) {
    struct channel *ch = container_of(ib, struct channel, ib);
    if (!device_is_ours(ib->context)) return EPERM;
    pthread_mutex_lock(&lock);
    if (ib->refcnt) {
        pthread_mutex_unlock(&lock);
        return EBUSY;
    }
    list_remove(&ch->link);
    pthread_mutex_unlock(&lock);
    struct message gone = {.type = MSG_CHANNEL_GONE, .value = ch->id};
    peer_broadcast(&gone);
    peer_set_channel_fd(peer_self(), ch->id, -1);
    close(ib->fd);
    arena_free(ARENA_CHANNEL, ch->off, sizeof(*ch->sh));
    free(ch->cqs);
    stats_dec(comp_channels);
    free(ch);
    return 0;
}

static int channel_attach(struct channel *ch, struct cq *cq) {
    pthread_mutex_lock(&ch->lock);
    uint32_t bit = 0;
    while (bit < ch->cq_capacity && ch->cqs[bit]) bit++;
    if (bit == ch->cq_capacity) {
        uint32_t capacity = bit ? bit * 2 : 4;
        struct cq **bigger = bit >= BITS ? NULL : realloc(ch->cqs, capacity * sizeof(*bigger));
        if (!bigger) {
            pthread_mutex_unlock(&ch->lock);
            return -ENOMEM;
        }
        memset(bigger + bit, 0, (capacity - bit) * sizeof(*bigger));
        ch->cqs = bigger;
        ch->cq_capacity = capacity;
    }
    ch->cqs[bit] = cq;
    cq->channel = ch;
    cq->sh->channel_bit = bit;
    cq->sh->channel = ch->off;
    cq->sh->channel_id = ch->id;
    pthread_mutex_unlock(&ch->lock);
    pthread_mutex_lock(&lock);
    ch->ib.refcnt++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void channel_detach(struct cq *cq) {
    struct channel *ch = cq->channel;
    if (!ch) return;
    pthread_mutex_lock(&ch->lock);
    ch->cqs[cq->sh->channel_bit] = NULL;
    ready_remove(&ch->sh->fired, cq->sh->channel_bit);
    pthread_mutex_unlock(&ch->lock);
    pthread_mutex_lock(&lock);
    ch->ib.refcnt--;
    pthread_mutex_unlock(&lock);
    cq->channel = NULL;
}

/* The fired queue with an event left, or NULL. */
static struct cq *channel_take_event(struct channel *ch) {
    struct cq *cq = NULL;
    pthread_mutex_lock(&ch->lock);
    for (int bit; !cq && (bit = ready_take_one(&ch->sh->fired)) >= 0;) {
        struct cq *fired = (uint32_t)bit < ch->cq_capacity ? ch->cqs[bit] : NULL;
        uint32_t events = fired ? load_acquire(&fired->sh->events) : 0;
        if (!events) continue;
        if (atomic_fetch_sub(&fired->sh->events, 1) > 1) ready_add(&ch->sh->fired, (uint32_t)bit);
        cq = fired;
    }
    pthread_mutex_unlock(&ch->lock);
    return cq;
}

SR_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ib, struct ibv_cq **cq, void **cq_context) {
    struct channel *ch = container_of(ib, struct channel, ib);
    for (;;) {
        uint64_t one;
        if (read(ib->fd, &one, sizeof(one)) != sizeof(one)) return -1;
        struct cq *fired = channel_take_event(ch);
        if (!fired) continue; /* its queue has been destroyed meanwhile */
        *cq = &fired->ib;
        *cq_context = fired->ib.cq_context;
        return 0;
    }
}

SR_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_mutex_unlock(&cq->mutex);
}

/* --- waking --- */

static int own_channel_fd(uint32_t id) {
    int fd = -1;
    pthread_mutex_lock(&lock);
    for (struct link *l = channels.next; l != &channels && fd < 0; l = l->next) {
        struct channel *ch = container_of(l, struct channel, link);
        if (ch->id == id) fd = ch->ib.fd;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static void write_event(int fd) {
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n;
    stats_inc(wakeups);
}

static void wake_channel(struct peer *peer, uint32_t id) {
    if (peer->is_self) {
        int fd = own_channel_fd(id);
        if (fd >= 0) write_event(fd);
        return;
    }
    pthread_mutex_lock(&peer->lock);
    int fd = peer_channel_fd(peer, id);
    if (fd >= 0) write_event(fd);
    pthread_mutex_unlock(&peer->lock);
    struct message msg = {.type = MSG_CQ_WAKE, .value = id};
    if (fd < 0) peer_send(peer, &msg, -1);
}

void cq_fire(struct peer *peer, struct cq_shared *sh, bool solicited) {
    uint32_t armed = load_relaxed(&sh->armed);
    if (armed != CQ_ARMED && !(armed == CQ_ARMED_SOLICITED && solicited)) return;
    if (!atomic_compare_exchange_strong(&sh->armed, &armed, CQ_FIRING)) return;
    struct channel_shared *ch = peer_ptr(peer, sh->channel);
    atomic_fetch_add(&sh->events, 1);
    ready_add(&ch->fired, sh->channel_bit);
    wake_channel(peer, sh->channel_id);
    uint32_t firing = CQ_FIRING;
    atomic_compare_exchange_strong(&sh->armed, &firing, CQ_IDLE);
}

static void on_cq_wake(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    int own = own_channel_fd(msg->value);
    if (own < 0) return;
    write_event(own);
    struct message reply = {.type = MSG_CHANNEL_FD, .value = msg->value, .fds = 1};
    peer_send(peer, &reply, own);
}

static void on_channel_fd(struct peer *peer, const struct message *msg, int fd) {
    if (msg->value < 1u << 24) peer_set_channel_fd(peer, msg->value, fd);
}

static void on_channel_gone(struct peer *peer, const struct message *msg, int fd) {
    if (fd >= 0) close(fd);
    peer_set_channel_fd(peer, msg->value, -1);
}

int cq_req_notify(struct ibv_cq *ib, int solicited_only) {
    struct cq *cq = to_cq(ib);
    int err = fault_errno(FAULT_REQ_NOTIFY);
    if (err) return err;
    if (!cq->channel) return 0;
    atomic_store(&cq->sh->armed, solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED);
    full_fence();
    return 0;
}

void cq_repair(struct cq *cq) {
    if (!cq->channel) return;
    uint32_t firing = CQ_FIRING;
    if (atomic_compare_exchange_strong(&cq->sh->armed, &firing, CQ_ARMED)) cq_fire(peer_self(), cq->sh, true);
}

/* --- create, destroy --- */

static struct cq *cq_create(struct ibv_context *ib, int cqe, void *context, struct ibv_comp_channel *channel,
                            uint32_t vector) {
    int err = fault_errno(FAULT_CREATE_CQ);
    if (!err && (cqe < 1 || (uint32_t)cqe > config()->max_cqe || vector >= config()->comp_vectors)) err = EINVAL;
    struct cq *cq = err ? NULL : calloc(1, sizeof(*cq));
    if (!err && !cq) err = ENOMEM;
    pthread_mutex_lock(&lock);
    if (!err && live_cqs >= config()->max_cq) err = ENOMEM;
    if (!err) live_cqs++;
    pthread_mutex_unlock(&lock);
    if (err) {
        free(cq);
        errno = err;
        return NULL;
    }
    cq->ib.context = ib;
    cq->ib.channel = channel;
    cq->ib.cq_context = context;
    cq->ib.cqe = cqe;
    pthread_mutex_init(&cq->ib.mutex, NULL);
    pthread_cond_init(&cq->ib.cond, NULL);
    cq->off = arena_alloc(ARENA_CQ, sizeof(*cq->sh));
    cq->sh = arena_ptr(cq->off);
    if (!cq->off || (channel && channel_attach(container_of(channel, struct channel, ib), cq))) {
        arena_free(ARENA_CQ, cq->off, sizeof(*cq->sh));
        free(cq);
        pthread_mutex_lock(&lock);
        live_cqs--;
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_lock(&lock);
    cq->sh->id = cq->ib.handle = ++cq_numbers;
    list_append(&cqs, &cq->link);
    pthread_mutex_unlock(&lock);
    stats_inc(cqs);
    return cq;
}

SR_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ib, int cqe, void *context, struct ibv_comp_channel *channel,
                                       int vector) {
    struct cq *cq = cq_create(ib, cqe, context, channel, (uint32_t)vector);
    return cq ? &cq->ib : NULL;
}

static void cq_free(struct cq *cq) {
    pthread_mutex_lock(&lock);
    list_remove(&cq->link);
    live_cqs--;
    past_polls += cq->polls;
    past_completions += cq->completions;
    pthread_mutex_unlock(&lock);
    arena_free(ARENA_CQ, cq->off, sizeof(*cq->sh));
    free(cq->ring);
    free(cq->members);
    pthread_mutex_destroy(&cq->ib.mutex);
    pthread_cond_destroy(&cq->ib.cond);
    free(cq);
}

SR_EXPORT int ibv_destroy_cq(struct ibv_cq *ib) {
    struct cq *cq = to_cq(ib);
    if (!device_is_ours(ib->context)) return EPERM;
    store_release(&cq->sh->armed, CQ_IDLE);
    channel_detach(cq);
    async_purge(ib->context, ib);
    spin_lock(&cq->lock);
    cq->destroyed = true;
    bool idle = !cq->users;
    spin_unlock(&cq->lock);
    stats_dec(cqs);
    if (idle) cq_free(cq);
    return 0;
}

SR_EXPORT int ibv_resize_cq(struct ibv_cq *ib, int cqe) {
    struct cq *cq = to_cq(ib);
    if (cqe < 1 || (uint32_t)cqe > config()->max_cqe) return EINVAL;
    spin_lock(&cq->lock);
    int err = cq->ring_len > (uint32_t)cqe ? EINVAL : 0;
    if (!err) ib->cqe = cqe;
    spin_unlock(&cq->lock);
    return err;
}

/* Moderation is a hint about interrupts; there are none. */
int cq_modify(struct ibv_cq *ib, struct ibv_modify_cq_attr *attr) {
    return attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE ? EINVAL : 0;
}

/* --- members --- */

/* A queue pair may be watched only while it is in `hot`. Removing it re-announces what it may have missed. */
static void hot_remove(struct cq *cq, struct qp *qp) {
    if (qp->hot < 0) return;
    uint32_t last = --cq->hot_count;
    cq->hot[qp->hot] = cq->hot[last];
    cq->hot_idle[qp->hot] = cq->hot_idle[last];
    cq->hot[qp->hot]->hot = qp->hot;
    qp->hot = -1;
    atomic_store(&qp->sh->watched, 0);
    full_fence();
    if (qp_has_done(qp)) ready_add(&cq->sh->ready, qp->cq_bit);
}

static void hot_add(struct cq *cq, struct qp *qp) {
    qp->hot = (int)cq->hot_count;
    cq->hot_idle[cq->hot_count] = 0;
    cq->hot[cq->hot_count++] = qp;
    store_relaxed(&qp->sh->watched, 1);
}

/* A queue pair off the ready set wants to become hot. */
static void hot_consider(struct cq *cq, struct qp *qp) {
    if (qp->hot >= 0) return;
    if (cq->hot_count == CQ_HOT) {
        uint32_t victim = cq->hot_turn++ % CQ_HOT;
        if (cq->hot_idle[victim] < HOT_IDLE_POLLS) return;
        hot_remove(cq, cq->hot[victim]);
    }
    hot_add(cq, qp);
}

static int member_reserve(struct cq *cq) {
    if (cq->member_count < cq->member_capacity) return 0;
    uint32_t capacity = cq->member_capacity ? cq->member_capacity * 2 : 64;
    struct qp **bigger = capacity > BITS ? NULL : realloc(cq->members, capacity * sizeof(*bigger));
    if (!bigger) return -ENOMEM;
    memset(bigger + cq->member_capacity, 0, (capacity - cq->member_capacity) * sizeof(*bigger));
    cq->bit_hint = cq->member_capacity;
    cq->members = bigger;
    cq->member_capacity = capacity;
    cq->leaves = capacity / 64;
    return 0;
}

int cq_attach_recv(struct cq *cq, struct qp *qp, uint32_t depth) {
    spin_lock(&cq->lock);
    int r = member_reserve(cq);
    if (!r) {
        uint32_t bit = cq->bit_hint % cq->member_capacity;
        while (cq->members[bit]) bit = (bit + 1) % cq->member_capacity;
        cq->bit_hint = bit + 1;
        cq->members[bit] = qp;
        cq->member_count++;
        cq->users++;
        cq->capacity += depth;
        qp->cq_bit = bit;
        qp->hot = -1;
        if (cq->hot_count < CQ_HOT) hot_add(cq, qp);
    }
    spin_unlock(&cq->lock);
    return r;
}

void cq_attach_send(struct cq *cq, uint32_t depth) {
    spin_lock(&cq->lock);
    cq->users++;
    cq->capacity += depth;
    spin_unlock(&cq->lock);
}

void cq_purge(struct cq *cq, struct qp *qp) {
    spin_lock(&cq->lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cq->ring_len; i++) {
        struct local_wc *e = &cq->ring[(cq->ring_head + i) & (cq->ring_capacity - 1)];
        if (e->qp != qp) cq->ring[(cq->ring_head + kept++) & (cq->ring_capacity - 1)] = *e;
    }
    cq->ring_len = kept;
    spin_unlock(&cq->lock);
}

void cq_detach(struct cq *cq, struct qp *qp, bool recv, uint32_t depth) {
    cq_purge(cq, qp);
    spin_lock(&cq->lock);
    if (recv) {
        hot_remove(cq, qp);
        ready_remove(&cq->sh->ready, qp->cq_bit);
        if (cq->taken_leaf == qp->cq_bit / 64) cq->taken &= ~(1ull << (qp->cq_bit % 64));
        cq->members[qp->cq_bit] = NULL;
        cq->member_count--;
    }
    cq->capacity -= depth;
    bool last = !--cq->users && cq->destroyed;
    spin_unlock(&cq->lock);
    if (last) cq_free(cq);
}

/* --- local completions --- */

static bool ring_grow(struct cq *cq) {
    uint32_t capacity = cq->ring_capacity ? cq->ring_capacity * 2 : 16;
    struct local_wc *bigger = malloc(capacity * sizeof(*bigger));
    if (!bigger) return false;
    for (uint32_t i = 0; i < cq->ring_len; i++) bigger[i] = cq->ring[(cq->ring_head + i) & (cq->ring_capacity - 1)];
    free(cq->ring);
    cq->ring = bigger;
    cq->ring_capacity = capacity;
    cq->ring_head = 0;
    return true;
}

/* Into the error state, with every queue pair that completes here. cq locked. */
static void cq_overrun(struct cq *cq) {
    if (cq->overrun) return;
    cq->overrun = true;
    async_raise(cq->ib.context, IBV_EVENT_CQ_ERR, &cq->ib);
    for (uint32_t i = 0; i < cq->member_capacity; i++) {
        struct qp *qp = cq->members[i];
        if (!qp) continue;
        struct message msg = {
            .type = MSG_QP_ERROR, .value = IBV_EVENT_QP_FATAL, .qp = {qp->off, qp->ib.qp_num, qp->token}};
        peer_send(peer_self(), &msg, -1);
    }
}

/* A completion that a fault holds back wakes a sleeping program when it becomes visible, if the queue still exists. */
struct late_wake {
    struct timer timer;
    uint32_t id;
};

static void wake_late(struct timer *timer) {
    struct late_wake *late = container_of(timer, struct late_wake, timer);
    pthread_mutex_lock(&lock);
    struct cq_shared *sh = NULL;
    for (struct link *l = cqs.next; l != &cqs && !sh; l = l->next)
        if (container_of(l, struct cq, link)->ib.handle == late->id) sh = container_of(l, struct cq, link)->sh;
    pthread_mutex_unlock(&lock);
    if (sh) cq_notify(peer_self(), sh, false);
    free(late);
}

static void wake_at(struct cq *cq, uint64_t when) {
    struct late_wake *late = calloc(1, sizeof(*late));
    if (!late) return;
    *late = (struct late_wake){.timer.fire = wake_late, .id = cq->ib.handle};
    timer_set(&late->timer, when);
}

/* See cq_wake_later(). */
static _Thread_local struct {
    bool on, solicited;
    struct cq *cq;
} later;

void cq_wake_later(void) {
    later.on = true;
}

void cq_wake_now(void) {
    later.on = false;
    if (!later.cq) return;
    full_fence();
    cq_notify(peer_self(), later.cq->sh, later.solicited);
    later.cq = NULL;
    later.solicited = false;
}

void cq_push(struct cq *cq, const struct local_wc *entry) {
    spin_lock(&cq->lock);
    if (unlikely(cq->destroyed)) {
        spin_unlock(&cq->lock);
        return;
    }
    if (unlikely(cq->ring_len >= (uint32_t)cq->ib.cqe || cq->overrun ||
                 (cq->ring_len == cq->ring_capacity && !ring_grow(cq)))) {
        cq_overrun(cq);
    } else {
        cq->ring[(cq->ring_head + cq->ring_len++) & (cq->ring_capacity - 1)] = *entry;
    }
    spin_unlock(&cq->lock);
    if (unlikely(entry->not_before)) {
        wake_at(cq, entry->not_before);
        return;
    }
    bool failed = entry->wc.status != IBV_WC_SUCCESS;
    if (later.on) {
        later.cq = cq;
        later.solicited |= failed;
        return;
    }
    full_fence();
    cq_notify(peer_self(), cq->sh, failed);
}

static int take_local(struct cq *cq, struct ibv_wc *wc, int n) {
    int got = 0;
    while (got < n && cq->ring_len) {
        struct local_wc *e = &cq->ring[cq->ring_head];
        if (unlikely(e->not_before) && e->not_before > now_ns()) break;
        wc[got++] = e->wc;
        if (e->is_send) store_release(&e->qp->sq_done, e->sq_index + 1);
        cq->ring_head = (cq->ring_head + 1) & (cq->ring_capacity - 1);
        cq->ring_len--;
    }
    return got;
}

/* --- polling --- */

static int take_hot(struct cq *cq, struct ibv_wc *wc, int n) {
    int got = 0;
    for (uint32_t i = 0; i < cq->hot_count && got < n; i++) {
        int limit = n - got < DRAIN_AT_ONCE ? n - got : DRAIN_AT_ONCE;
        int k = qp_drain(cq->hot[i], wc + got, limit);
        cq->hot_idle[i] = k ? 0 : cq->hot_idle[i] + 1;
        got += k;
    }
    return got;
}

/* The next member to drain, or -1. */
static int next_ready(struct cq *cq) {
    while (!cq->taken) {
        int leaf = ready_next_leaf(&cq->sh->ready, cq->next_leaf, cq->leaves);
        if (leaf < 0) return -1;
        cq->taken_leaf = (uint32_t)leaf;
        cq->next_leaf = (uint32_t)leaf + 1;
        cq->taken = ready_take_leaf(&cq->sh->ready, (uint32_t)leaf);
    }
    return (int)(cq->taken_leaf * 64) + __builtin_ctzll(cq->taken);
}

static int take_ready(struct cq *cq, struct ibv_wc *wc, int n) {
    int got = 0;
    for (int bit; got < n && (bit = next_ready(cq)) >= 0;) {
        struct qp *qp = (uint32_t)bit < cq->member_capacity ? cq->members[bit] : NULL;
        int limit = n - got < DRAIN_AT_ONCE ? n - got : DRAIN_AT_ONCE;
        int k = qp ? qp_drain(qp, wc + got, limit) : 0;
        got += k;
        cq->taken &= ~(1ull << (bit % 64));
        if (!qp) continue;
        if (k == limit && qp_has_done(qp)) ready_add(&cq->sh->ready, (uint32_t)bit); /* more later, after the others */
        if (k) hot_consider(cq, qp);
    }
    return got;
}

static void check_overrun(struct cq *cq) {
    uint32_t limit = (uint32_t)cq->ib.cqe, found = cq->ring_len;
    for (uint32_t i = 0; i < cq->hot_count && found <= limit; i++)
        found += qp_count_done(cq->hot[i], limit + 1 - found);
    for (uint32_t leaf = 0; leaf < cq->leaves && found <= limit; leaf++) {
        uint64_t bits = load_relaxed(&cq->sh->ready.leaf[leaf]) | (cq->taken && cq->taken_leaf == leaf ? cq->taken : 0);
        for (; bits && found <= limit; bits &= bits - 1) {
            struct qp *qp = cq->members[leaf * 64 + (uint32_t)__builtin_ctzll(bits)];
            if (qp && qp->hot < 0) found += qp_count_done(qp, limit + 1 - found);
        }
    }
    if (found > limit) cq_overrun(cq);
}

/* Looks for an overrun when something may have gathered: after an empty poll, and every quarter of the
 * queue. */
static void maybe_check_overrun(struct cq *cq) {
    if (cq->was_empty || cq->since_check > (uint32_t)cq->ib.cqe / 4) {
        check_overrun(cq);
        cq->since_check = 0;
    }
}

static bool held_back(struct cq *cq) {
    struct fault f;
    uint64_t now = now_ns();
    if (now < cq->slow_until) return true;
    if (fault_look_up(FAULT_POLL, NULL, 0, &f) && f.action == ACT_DELAY) {
        cq->slow_until = now + f.value;
        wake_at(cq, cq->slow_until); /* a program that found nothing and sleeps */
    }
    return now < cq->slow_until;
}

int cq_poll(struct ibv_cq *ib, int n, struct ibv_wc *wc) {
    struct cq *cq = to_cq(ib);
    int got = 0;
    spin_lock(&cq->lock);
    cq->polls++;
    if (unlikely(fault_armed[FAULT_POLL]) && held_back(cq)) {
        spin_unlock(&cq->lock);
        return 0;
    }
    if (unlikely(cq->capacity > (uint32_t)ib->cqe)) maybe_check_overrun(cq);
    if (unlikely(cq->overrun)) {
        spin_unlock(&cq->lock);
        return -1;
    }
    /* Neither sends nor receives may starve the other when `n` is small. */
    cq->local_last = !cq->local_last;
    if (!cq->local_last && cq->ring_len) got = take_local(cq, wc, n);
    if (got < n) got += take_hot(cq, wc + got, n - got);
    if (got < n) got += take_ready(cq, wc + got, n - got);
    if (cq->local_last && got < n && cq->ring_len) got += take_local(cq, wc + got, n - got);
    cq->completions += (uint64_t)got;
    cq->since_check += (uint32_t)got;
    cq->was_empty = !got;
    spin_unlock(&cq->lock);
    return got;
}

/* --- extended polling --- */

static int ex_next(struct ibv_cq_ex *ex) {
    struct cq *cq = (struct cq *)ex;
    int n = cq_poll(&cq->ib, 1, &cq->current);
    if (n <= 0) return n ? EIO : ENOENT;
    ex->wr_id = cq->current.wr_id;
    ex->status = cq->current.status;
    return 0;
}

static int ex_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr) {
    return attr->comp_mask ? EINVAL : ex_next(ex);
}
static void ex_end(struct ibv_cq_ex *ex) {}

#define EX_READ(type, name, expression)                                                                                \
    static type ex_##name(struct ibv_cq_ex *ex) {                                                                      \
        const struct ibv_wc *wc = &((struct cq *)ex)->current;                                                         \
        (void)wc;                                                                                                      \
        return expression;                                                                                             \
    }
EX_READ(enum ibv_wc_opcode, opcode, wc->opcode)
EX_READ(uint32_t, vendor_err, wc->vendor_err)
EX_READ(uint32_t, byte_len, wc->byte_len)
EX_READ(__be32, imm_data, wc->imm_data)
EX_READ(uint32_t, qp_num, wc->qp_num)
EX_READ(uint32_t, src_qp, wc->src_qp)
EX_READ(unsigned int, wc_flags, wc->wc_flags)
EX_READ(uint32_t, slid, wc->slid)
EX_READ(uint8_t, sl, wc->sl)
EX_READ(uint8_t, dlid_path_bits, wc->dlid_path_bits)
EX_READ(uint64_t, completion_ts, now_ns())
EX_READ(uint64_t, wallclock, now_ns())

struct ibv_cq_ex *cq_create_ex(struct ibv_context *ib, struct ibv_cq_init_attr_ex *attr) {
    const uint64_t offered = IBV_WC_STANDARD_FLAGS;
    if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
        (attr->wc_flags & ~offered)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct cq *cq = cq_create(ib, (int)attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
    if (!cq) return NULL;
    struct ibv_cq_ex *ex = &cq->ex;
    ex->start_poll = ex_start;
    ex->next_poll = ex_next;
    ex->end_poll = ex_end;
    ex->read_opcode = ex_opcode;
    ex->read_vendor_err = ex_vendor_err;
    ex->read_byte_len = ex_byte_len;
    ex->read_imm_data = ex_imm_data;
    ex->read_qp_num = ex_qp_num;
    ex->read_src_qp = ex_src_qp;
    ex->read_wc_flags = ex_wc_flags;
    ex->read_slid = ex_slid;
    ex->read_sl = ex_sl;
    ex->read_dlid_path_bits = ex_dlid_path_bits;
    ex->read_completion_ts = ex_completion_ts;
    ex->read_completion_wallclock_ns = ex_wallclock;
    return ex;
}

/* --- the whole --- */

RACES_ALLOWED void cq_sum_counters(struct softrdma_counters *out) {
    pthread_mutex_lock(&lock);
    out->polls += past_polls;
    out->completions += past_completions;
    for (struct link *l = cqs.next; l && l != &cqs; l = l->next) {
        struct cq *cq = container_of(l, struct cq, link);
        out->polls += cq->polls;
        out->completions += cq->completions;
    }
    pthread_mutex_unlock(&lock);
}

void cq_start(void) {
    list_init(&cqs);
    list_init(&channels);
    peer_handle(MSG_CQ_WAKE, on_cq_wake);
    peer_handle(MSG_CHANNEL_FD, on_channel_fd);
    peer_handle(MSG_CHANNEL_GONE, on_channel_gone);
}

void cq_forget(void) {
    live_cqs = 0;
    past_polls = past_completions = 0;
    list_init(&cqs);
    list_init(&channels);
    pthread_mutex_init(&lock, NULL);
}
