/* The handshake and its end.
 *
 *   active                                  passive
 *   rdma_connect       -- REQ -->           a new identifier, CONNECT_REQUEST
 *                      <-- REP --           rdma_accept (or REJ: rdma_reject)
 *   event taken        -- RTU -->           ESTABLISHED
 *   ESTABLISHED
 *   rdma_disconnect    -- DREQ -->          DISCONNECTED
 *   DISCONNECTED       <-- DREP --          rdma_disconnect, rdma_destroy_id, or death
 *   TIMEWAIT_EXIT                           TIMEWAIT_EXIT
 *
 * As with librdmacm, the queue pair of the active side is moved by the thread that takes the event; that of a
 * side that receives DISCONNECTED stays as it is until the program says rdma_disconnect. The death of a
 * process looks to its peers like what its kernel would have sent for it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm.h"
#include "config.h"
#include "fault.h"
#include "net.h"
#include "qpn.h"
#include "stats.h"

#define DEFAULT_ACK_TIMEOUT 15 /* 4.096 us << 15 = 134 ms; with 7 retries a dead peer costs about a second */
#define DEFAULT_RNR_TIMER   12 /* 0.64 ms */
#define DREQ_TIMEOUT_MS     2000

struct cm_dial {
    struct dial dial;
    uint32_t number;
};

static void say(struct cm_id *c, enum msg_type type, int status, const struct cm_body *body) {
    struct message msg = {.type = type};
    if (body) msg.cm = *body;
    msg.cm.from = c->number;
    msg.cm.to = c->remote;
    msg.cm.status = status;
    if (c->peer) peer_send(c->peer, &msg, -1);
}

static void copy_private(struct cm_body *body, const void *data, uint8_t len) {
    body->private_len = len;
    if (len) memcpy(body->private_data, data, len);
}

static void start_timer(struct cm_id *c, uint32_t ms) {
    timer_set(&c->timer, now_ns() + ms * NS_PER_MS);
}

static void enter_timewait(struct cm_id *c) {
    c->state = CM_TIMEWAIT;
    start_timer(c, config()->timewait_ms);
}

/* --- queue pairs --- */

static unsigned int access_flags(const struct cm_id *c) {
    return IBV_ACCESS_REMOTE_WRITE | (c->responder_resources ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
}

int cm_init_qp_attr(struct cm_id *c, struct ibv_qp_attr *attr, int *mask) {
    switch (attr->qp_state) {
    case IBV_QPS_INIT:
        attr->pkey_index = 0;
        attr->port_num = 1;
        attr->qp_access_flags = c->peer ? access_flags(c) : 0;
        *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        return 0;
    case IBV_QPS_RTR:
        attr->path_mtu = IBV_MTU_4096;
        attr->dest_qp_num = c->remote_qp.qpn;
        attr->rq_psn = c->remote & 0xffffff;
        attr->max_dest_rd_atomic = c->responder_resources;
        attr->min_rnr_timer = DEFAULT_RNR_TIMER;
        attr->ah_attr = (struct ibv_ah_attr){
            .is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .traffic_class = c->request.traffic_class}};
        net_gid_of(cm_dst(c), &attr->ah_attr.grh.dgid);
        *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        return 0;
    case IBV_QPS_RTS:
        attr->timeout = c->ack_timeout ? c->ack_timeout : DEFAULT_ACK_TIMEOUT;
        attr->retry_cnt = c->retry_count;
        attr->rnr_retry = c->rnr_retry;
        attr->sq_psn = c->number & 0xffffff;
        attr->max_rd_atomic = c->initiator_depth;
        *mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                IBV_QP_MAX_QP_RD_ATOMIC;
        return 0;
    default: return EINVAL;
    }
}

static int move_qp(struct cm_id *c, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask, err = cm_init_qp_attr(c, &attr, &mask);
    return err ? err : ibv_modify_qp(c->id.qp, &attr, mask);
}

int cm_to_init(struct rdma_cm_id *id, struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask;
    cm_init_qp_attr(to_cm(id), &attr, &mask);
    return ibv_modify_qp(qp, &attr, mask);
}

/* From INIT to sending, towards the queue pair that the other side has named. */
static int connect_qp(struct cm_id *c) {
    struct qp *qp = to_qp(c->id.qp);
    int err = move_qp(c, IBV_QPS_INIT); /* again, now with the rights that the resources imply */
    if (err) return err;
    if (c->remote_qp.off) {
        spin_lock(&qp->lock);
        qp_set_route(qp, c->peer, &c->remote_qp);
        spin_unlock(&qp->lock);
    }
    err = move_qp(c, IBV_QPS_RTR);
    return err ? err : move_qp(c, IBV_QPS_RTS);
}

static void fail_qp(struct cm_id *c) {
    if (!c->id.qp) return;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ibv_modify_qp(c->id.qp, &attr, IBV_QP_STATE);
}

/* The queue pair a message speaks of: the identifier's, or one the program keeps itself. */
static int own_qp(struct cm_id *c, uint32_t qp_num, struct qp_address *out) {
    struct qp *qp = c->id.qp ? to_qp(c->id.qp) : qpn_find(qp_num);
    if (!qp) return EINVAL;
    *out = qp_address(qp);
    return 0;
}

/* --- active side --- */

static bool takes_resources(uint8_t asked, uint8_t *out) {
    uint32_t most = config()->max_rd_atomic;
    *out = asked == 0xff ? (uint8_t)most : asked; /* RDMA_MAX_… */
    return *out <= most;
}

static int take_params(struct cm_id *c, const struct rdma_conn_param *p, uint32_t private_max, struct cm_body *body) {
    static const struct rdma_conn_param defaults = {
        .responder_resources = 0xff, .initiator_depth = 0xff, .retry_count = 7, .rnr_retry_count = 7};
    if (!p) p = &defaults;
    if (p->private_data_len > private_max || (p->private_data_len && !p->private_data)) return EINVAL;
    if (!takes_resources(p->responder_resources, &c->responder_resources)) return EINVAL;
    if (!takes_resources(p->initiator_depth, &c->initiator_depth)) return EINVAL;
    *body = (struct cm_body){.responder_resources = c->responder_resources,
                             .initiator_depth = c->initiator_depth,
                             .retry_count = p->retry_count & 7,
                             .rnr_retry_count = p->rnr_retry_count & 7,
                             .flow_control = p->flow_control,
                             .srq = c->id.qp ? c->id.qp->srq != NULL : p->srq,
                             .ps = (uint16_t)c->id.ps};
    copy_private(body, p->private_data, p->private_data_len);
    return 0;
}

static void give_up(struct cm_id *c, enum rdma_cm_event_type type, int status, const struct cm_body *body) {
    static const struct cm_body empty;
    bool known = c->state != CM_REQUESTED;
    timer_cancel(&c->timer);
    c->state = CM_CLOSED;
    /* Linux reports nothing of a connection that the program has not accepted yet: accepting it fails. */
    if (!known) return;
    cm_raise(c, type, status, type == RDMA_CM_EVENT_REJECTED && !body ? &empty : body, NULL);
}

static int dial_listener(struct cm_id *c, bool skip_cache);

static void dialled(struct dial *dial, struct peer *peer, int err) {
    struct cm_dial *d = container_of(dial, struct cm_dial, dial);
    cm_lock();
    struct cm_id *c = cm_find(d->number);
    if (!c || c->state != CM_CONNECTING) {
        peer_put(peer);
    } else if (!peer) {
        /* Nobody listens, or listening ended while we knocked: that is a rejection. Else the path does not
         * work. */
        if (err == ECONNREFUSED || err == ECONNRESET)
            give_up(c, RDMA_CM_EVENT_REJECTED, REJ_NO_LISTENER, NULL);
        else
            give_up(c, RDMA_CM_EVENT_UNREACHABLE, -err, NULL);
    } else {
        peer_put(c->peer);
        c->peer = peer;
        struct message msg = {.type = MSG_CM_REQ, .qp = c->remote_qp, .cm = c->request};
        own_qp(c, c->remote_qp.qpn, &msg.qp);
        msg.cm.from = c->number;
        peer_send(peer, &msg, -1);
    }
    cm_unlock();
    free(d);
}

static int dial_listener(struct cm_id *c, bool skip_cache) {
    struct cm_dial *d = calloc(1, sizeof(*d));
    if (!d) return ENOMEM;
    d->number = c->number;
    d->dial.done = dialled;
    d->dial.skip_cache = skip_cache;
    port_names(d->dial.names, c->id.ps, cm_dst(c));
    peer_dial(&d->dial);
    return 0;
}

/* Returns true when a fault has decided how connecting ends. */
static bool connect_fault(struct cm_id *c, int *err) {
    struct fault f;
    if (!fault_hit(FAULT_CONNECT, NULL, &f)) return false;
    if (f.action == ACT_FAIL) *err = (int)f.value;
    if (f.action == ACT_REJECT) give_up(c, RDMA_CM_EVENT_REJECTED, (int)f.value, NULL);
    if (f.action == ACT_UNREACHABLE) give_up(c, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
    return f.action != ACT_DELAY; /* ACT_DROP: the request is lost, the timer will tell */
}

SR_EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    struct cm_id *c = to_cm(id);
    struct qp_address mine;
    cm_lock();
    int err = c->state == CM_ROUTE_RESOLVED ? 0 : EINVAL;
    if (!err) err = own_qp(c, param ? param->qp_num : 0, &mine);
    if (!err) err = take_params(c, param, REQ_PRIVATE_MAX, &c->request);
    if (!err) {
        memcpy(&c->request.src, cm_src(c), net_len(cm_src(c)));
        memcpy(&c->request.dst, cm_dst(c), net_len(cm_dst(c)));
        c->request.traffic_class = c->tos;
        c->retry_count = c->request.retry_count;
        c->remote_qp.qpn = mine.qpn; /* until the answer brings theirs */
        c->state = CM_CONNECTING;
        start_timer(c, config()->cm_timeout_ms);
        if (!connect_fault(c, &err)) err = dial_listener(c, false);
        if (err) {
            timer_cancel(&c->timer);
            c->state = CM_ROUTE_RESOLVED;
        }
    }
    cm_unlock();
    return err ? fail(err) : cm_wait(c);
}

static void on_rep(struct peer *peer, const struct message *msg, int fd) {
    struct fault f;
    cm_lock();
    struct cm_id *c = cm_find(msg->cm.to);
    if (!c || c->state != CM_CONNECTING) { /* we have given up meanwhile */
        struct message rej = {.type = MSG_CM_REJ, .cm = {.to = msg->cm.from, .status = REJ_CONSUMER}};
        peer_send(peer, &rej, -1);
    } else if (!fault_hit(FAULT_ESTABLISH, NULL, &f) || f.action != ACT_DROP) {
        timer_cancel(&c->timer);
        c->remote = msg->cm.from;
        c->remote_qp = msg->qp;
        c->initiator_depth = msg->cm.responder_resources;
        c->responder_resources = msg->cm.initiator_depth;
        c->rnr_retry = msg->cm.rnr_retry_count;
        c->state = CM_ANSWERED;
        cm_raise(c, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &msg->cm, NULL);
    }
    cm_unlock();
}

int cm_complete_answer(struct cm_id *c) {
    cm_lock();
    int err = c->state == CM_ANSWERED ? 0 : ECONNRESET;
    if (!err && c->id.qp) err = connect_qp(c);
    if (!err) {
        struct fault f;
        c->state = CM_ESTABLISHED;
        if (!fault_hit(FAULT_RTU, NULL, &f) || f.action != ACT_DROP) say(c, MSG_CM_RTU, 0, NULL);
    } else if (c->state == CM_ANSWERED) {
        say(c, MSG_CM_REJ, REJ_CONSUMER, NULL);
        c->state = CM_CLOSED;
    }
    cm_unlock();
    return err;
}

SR_EXPORT int rdma_establish(struct rdma_cm_id *id) {
    if (id->qp) return fail(EINVAL); /* then it has been done */
    return fail(cm_complete_answer(to_cm(id)));
}

/* --- passive side --- */

static bool listens_at(struct cm_id *c, const struct cm_body *req, bool exact) {
    const struct sockaddr *dst = (const struct sockaddr *)&req->dst, *at = cm_src(c);
    if (c->state != CM_LISTENING || c->destroyed || c->id.ps != req->ps || net_port(at) != net_port(dst)) return false;
    if (net_is_wildcard(at))
        return !exact && (at->sa_family == dst->sa_family || (at->sa_family == AF_INET6 && !c->af_only));
    union ibv_gid a, b;
    net_gid_of(at, &a);
    net_gid_of(dst, &b);
    return exact && !memcmp(&a, &b, sizeof(a));
}

struct listener_search {
    const struct cm_body *req;
    struct cm_id *exact, *wildcard;
};

static void consider_listener(struct cm_id *c, void *arg) {
    struct listener_search *s = arg;
    if (listens_at(c, s->req, true)) s->exact = c;
    if (listens_at(c, s->req, false)) s->wildcard = c;
}

/* The identifier of a request, with both addresses and what the peer asked for. NULL: out of memory. */
static struct cm_id *child_create(struct cm_id *listener, struct peer *peer, const struct message *msg) {
    struct cm_id *c = cm_create(listener->id.channel, listener->id.context, listener->id.ps);
    if (!c) return NULL;
    memcpy(cm_src(c), &msg->cm.dst, sizeof(msg->cm.dst));
    memcpy(cm_dst(c), &msg->cm.src, sizeof(msg->cm.src));
    if (cm_attach_device(c, cm_src(c))) {
        c->destroyed = true;
        stats_dec(cm_ids);
        cm_maybe_free(c);
        return NULL;
    }
    cm_fill_path(c);
    c->peer = peer_get(peer);
    c->remote = msg->cm.from;
    c->remote_qp = msg->qp;
    c->request = msg->cm;
    c->state = CM_REQUESTED;
    return c;
}

static bool request_fault(int *status) {
    struct fault f;
    if (!fault_hit(FAULT_REQUEST, NULL, &f)) return false;
    if (f.action == ACT_REJECT) *status = (int)f.value;
    return f.action == ACT_DROP;
}

static void on_req(struct peer *peer, const struct message *msg, int fd) {
    int status = 0;
    if (request_fault(&status)) return;
    cm_lock();
    struct listener_search s = {.req = &msg->cm};
    cm_each(consider_listener, &s);
    struct cm_id *listener = s.exact ? s.exact : s.wildcard;
    if (!listener)
        status = REJ_NO_LISTENER;
    else if (!status && listener->queued >= listener->backlog)
        status = REJ_CONSUMER;
    struct cm_id *c = status ? NULL : child_create(listener, peer, msg);
    if (c) {
        cm_raise(c, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &msg->cm, listener);
    } else {
        struct message rej = {.type = MSG_CM_REJ, .cm = {.to = msg->cm.from, .status = status ? status : REJ_CONSUMER}};
        peer_send(peer, &rej, -1);
    }
    cm_unlock();
}

SR_EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    struct cm_id *c = to_cm(id);
    struct fault f;
    struct message rep = {.type = MSG_CM_REP};
    cm_lock();
    int err = c->state == CM_REQUESTED ? 0 : EINVAL;
    struct rdma_conn_param filled =
        param ? *param
              : (struct rdma_conn_param){.responder_resources = 0xff, .initiator_depth = 0xff, .rnr_retry_count = 7};
    if (filled.responder_resources == 0xff && c->request.initiator_depth < config()->max_rd_atomic)
        filled.responder_resources = c->request.initiator_depth;
    if (filled.initiator_depth == 0xff && c->request.responder_resources < config()->max_rd_atomic)
        filled.initiator_depth = c->request.responder_resources;
    if (!err) err = own_qp(c, filled.qp_num, &rep.qp);
    if (!err) err = take_params(c, &filled, REP_PRIVATE_MAX, &rep.cm);
    c->retry_count = c->request.retry_count;
    c->rnr_retry = c->request.rnr_retry_count;
    bool hit = !err && fault_hit(FAULT_ACCEPT, NULL, &f);
    if (hit && f.action == ACT_FAIL) err = (int)f.value;
    if (!err && id->qp) err = connect_qp(c);
    if (!err) {
        rep.cm.from = c->number;
        rep.cm.to = c->remote;
        c->state = CM_ACCEPTED;
        start_timer(c, config()->cm_timeout_ms);
        if (!hit || f.action != ACT_DROP) peer_send(c->peer, &rep, -1);
    }
    cm_unlock();
    return err ? fail(err) : cm_wait(c);
}

SR_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len) {
    struct cm_id *c = to_cm(id);
    struct cm_body body = {0};
    if (len > REJ_PRIVATE_MAX || (len && !data)) return fail(EINVAL);
    cm_lock();
    int err = c->state == CM_REQUESTED ? 0 : EINVAL;
    if (!err) {
        copy_private(&body, data, len);
        say(c, MSG_CM_REJ, REJ_CONSUMER, &body);
        c->state = CM_CLOSED;
    }
    cm_unlock();
    return fail(err);
}

static void on_rtu(struct peer *peer, const struct message *msg, int fd) {
    cm_lock();
    struct cm_id *c = cm_find(msg->cm.to);
    if (c && c->state == CM_ACCEPTED) {
        timer_cancel(&c->timer);
        c->state = CM_ESTABLISHED;
        cm_raise(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
    }
    cm_unlock();
}

static void on_rej(struct peer *peer, const struct message *msg, int fd) {
    cm_lock();
    struct cm_id *c = cm_find(msg->cm.to);
    bool waits = c && (c->state == CM_CONNECTING || c->state == CM_ACCEPTED || c->state == CM_REQUESTED);
    if (waits && c->state == CM_CONNECTING && msg->cm.status == REJ_NO_LISTENER && !c->retried_dial) {
        /* The remembered process does not answer. Look up which process listens there now, if any. */
        c->retried_dial = true;
        if (dial_listener(c, true)) give_up(c, RDMA_CM_EVENT_REJECTED, REJ_NO_LISTENER, NULL);
    } else if (waits) {
        give_up(c, RDMA_CM_EVENT_REJECTED, msg->cm.status, &msg->cm);
    }
    cm_unlock();
}

/* --- the end --- */

SR_EXPORT int rdma_disconnect(struct rdma_cm_id *id) {
    struct cm_id *c = to_cm(id);
    struct fault f;
    if (id->verbs && !device_is_ours(id->verbs)) return fail(EPERM);
    bool lost = fault_hit(FAULT_DISCONNECT, NULL, &f) && f.action == ACT_DROP;
    cm_lock();
    enum cm_state state = c->state;
    int err = state == CM_ESTABLISHED || state == CM_DREQ_RECEIVED ? 0 : EINVAL;
    fail_qp(c); /* in any state, as librdmacm does */
    if (state == CM_ESTABLISHED) {
        if (!lost) say(c, MSG_CM_DREQ, 0, NULL);
        c->state = CM_DREQ_SENT;
        start_timer(c, DREQ_TIMEOUT_MS);
    } else if (state == CM_DREQ_RECEIVED) {
        if (!lost) say(c, MSG_CM_DREP, 0, NULL);
        enter_timewait(c);
    }
    cm_unlock();
    return err ? fail(err) : state == CM_ESTABLISHED ? cm_wait(c) : 0;
}

static void on_dreq(struct peer *peer, const struct message *msg, int fd) {
    cm_lock();
    struct cm_id *c = cm_find(msg->cm.to);
    struct message drep = {.type = MSG_CM_DREP, .cm = {.to = msg->cm.from}};
    if (c && c->state == CM_ACCEPTED) { /* their confirmation is implied */
        timer_cancel(&c->timer);
        c->state = CM_ESTABLISHED;
        cm_raise(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
    }
    if (!c || (c->state != CM_ESTABLISHED && c->state != CM_DREQ_SENT)) {
        peer_send(peer, &drep, -1);
    } else if (c->state == CM_ESTABLISHED) {
        c->state = CM_DREQ_RECEIVED;
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
    } else {
        peer_send(peer, &drep, -1);
        enter_timewait(c);
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
    }
    cm_unlock();
}

static void on_drep(struct peer *peer, const struct message *msg, int fd) {
    cm_lock();
    struct cm_id *c = cm_find(msg->cm.to);
    if (c && c->state == CM_DREQ_SENT) {
        enter_timewait(c);
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
    }
    cm_unlock();
}

void cm_hang_up(struct cm_id *c) {
    switch (c->state) {
    case CM_REQUESTED:
    case CM_ACCEPTED:
    case CM_ANSWERED: say(c, MSG_CM_REJ, REJ_CONSUMER, NULL); break;
    case CM_ESTABLISHED: say(c, MSG_CM_DREQ, 0, NULL); break;
    case CM_DREQ_RECEIVED: say(c, MSG_CM_DREP, 0, NULL); break;
    default: break;
    }
    c->state = CM_CLOSED;
}

static void on_timer(struct cm_id *c) {
    switch (c->state) {
    case CM_CONNECTING:
    case CM_ACCEPTED: give_up(c, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL); break;
    case CM_DREQ_SENT:
        enter_timewait(c);
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
        break;
    case CM_TIMEWAIT:
        c->state = CM_CLOSED;
        cm_raise(c, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, NULL);
        break;
    default: break;
    }
}

static void timer_fired(struct timer *timer) {
    struct cm_id *c = container_of(timer, struct cm_id, timer);
    cm_lock();
    if (!c->destroyed) on_timer(c);
    cm_unlock();
}

static void lost_peer(struct cm_id *c, void *arg) {
    if (c->peer != arg || c->destroyed) return;
    switch (c->state) {
    case CM_CONNECTING:
    case CM_REQUESTED:
    case CM_ACCEPTED: give_up(c, RDMA_CM_EVENT_REJECTED, REJ_CONSUMER, NULL); break;
    case CM_ANSWERED:
    case CM_ESTABLISHED:
        c->state = CM_DREQ_RECEIVED;
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
        break;
    case CM_DREQ_SENT:
        enter_timewait(c);
        cm_raise(c, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
        break;
    default: break;
    }
}

static void on_peer_death(struct peer *peer) {
    cm_lock();
    cm_each(lost_peer, peer);
    cm_unlock();
}

void cm_prepare_timer(struct cm_id *c) {
    c->timer.fire = timer_fired;
}

void cm_conn_start(void) {
    peer_handle(MSG_CM_REQ, on_req);
    peer_handle(MSG_CM_REP, on_rep);
    peer_handle(MSG_CM_RTU, on_rtu);
    peer_handle(MSG_CM_REJ, on_rej);
    peer_handle(MSG_CM_DREQ, on_dreq);
    peer_handle(MSG_CM_DREP, on_drep);
    peer_on_death(on_peer_death);
}
