/* What librdmacm offers on top of the connection manager: queue pairs and completion queues made for an
 * identifier, end points, address information, the list of devices. Also the calls that are declined. */
#define _GNU_SOURCE
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cm.h"
#include "net.h"

/* --- protection domains and completion queues by default --- */

static struct ibv_pd *default_pd(struct ibv_context *verbs) {
    static struct {
        struct ibv_context *verbs;
        struct ibv_pd *pd;
    } known[64];
    struct ibv_pd *pd = NULL;
    cm_lock();
    for (size_t i = 0; i < ARRAY_LEN(known) && !pd; i++) {
        if (known[i].verbs && known[i].verbs != verbs) continue;
        if (!known[i].verbs) known[i].pd = ibv_alloc_pd(verbs);
        if (known[i].pd) known[i].verbs = verbs;
        pd = known[i].pd;
        break;
    }
    cm_unlock();
    return pd;
}

void cm_destroy_cqs(struct rdma_cm_id *id) {
    if (id->recv_cq) ibv_destroy_cq(id->recv_cq);
    if (id->recv_cq_channel) ibv_destroy_comp_channel(id->recv_cq_channel);
    if (id->send_cq) ibv_destroy_cq(id->send_cq);
    if (id->send_cq_channel) ibv_destroy_comp_channel(id->send_cq_channel);
    id->recv_cq = id->send_cq = NULL;
    id->recv_cq_channel = id->send_cq_channel = NULL;
}

static int make_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **channel, struct ibv_cq **cq) {
    *channel = ibv_create_comp_channel(id->verbs);
    if (!*channel) return -1;
    *cq = ibv_create_cq(id->verbs, size ? (int)size : 1, id, *channel, 0);
    return *cq ? 0 : -1;
}

static int make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
    if (!attr->recv_cq && make_cq(id, attr->srq ? 1024 : attr->cap.max_recv_wr, &id->recv_cq_channel, &id->recv_cq))
        return -1;
    if (!attr->send_cq && make_cq(id, attr->cap.max_send_wr, &id->send_cq_channel, &id->send_cq)) return -1;
    if (!attr->recv_cq) attr->recv_cq = id->recv_cq;
    if (!attr->send_cq) attr->send_cq = id->send_cq;
    return 0;
}

/* --- queue pairs --- */

SR_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
    if (id->qp || !id->verbs) return fail(EINVAL);
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
        attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr->pd = id->pd ? id->pd : default_pd(id->verbs);
    }
    if (!attr->pd) return fail(ENOMEM);
    if (attr->pd->context != id->verbs) return fail(EINVAL);
    if (!attr->srq) attr->srq = id->srq;
    id->pd = attr->pd;
    if (make_cqs(id, attr)) {
        cm_destroy_cqs(id);
        return -1;
    }
    struct ibv_qp *qp = qp_create_ex(id->verbs, attr);
    int err = qp ? cm_to_init(id, qp) : errno;
    if (err) {
        if (qp) ibv_destroy_qp(qp);
        cm_destroy_cqs(id);
        return fail(err);
    }
    id->qp = qp;
    return 0;
}

SR_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all,
                                     .comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0,
                                     .pd = pd};
    int r = rdma_create_qp_ex(id, &ex);
    if (!r) {
        attr->cap = ex.cap;
        attr->send_cq = ex.send_cq;
        attr->recv_cq = ex.recv_cq;
    }
    return r;
}

SR_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id) {
    cm_lock();
    struct ibv_qp *qp = id->qp;
    id->qp = NULL;
    cm_unlock();
    if (qp) ibv_destroy_qp(qp);
    cm_destroy_cqs(id);
}

SR_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    cm_lock();
    int err = cm_init_qp_attr(to_cm(id), attr, mask);
    cm_unlock();
    return fail(err);
}

SR_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr) {
    if (id->srq || !id->verbs) return fail(EINVAL);
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
        attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr->pd = id->pd ? id->pd : default_pd(id->verbs);
    }
    id->srq = attr->pd ? srq_create_ex(id->verbs, attr) : NULL;
    if (!id->srq) return -1;
    id->pd = attr->pd;
    return 0;
}

SR_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    struct ibv_srq_init_attr_ex ex = {
        .srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = pd ? IBV_SRQ_INIT_ATTR_PD : 0, .pd = pd};
    int r = rdma_create_srq_ex(id, &ex);
    if (!r) attr->attr = ex.attr;
    return r;
}

SR_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id) {
    if (id->srq) ibv_destroy_srq(id->srq);
    id->srq = NULL;
}

/* An event of the queue pair that the connection manager ought to know of: the first message may overtake the
 * RTU. */
SR_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event) {
    struct cm_id *c = to_cm(id);
    if (event != IBV_EVENT_COMM_EST) return 0;
    cm_lock();
    if (c->state == CM_ACCEPTED) {
        timer_cancel(&c->timer);
        c->state = CM_ESTABLISHED;
        cm_raise(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
    }
    cm_unlock();
    return 0;
}

/* --- address information --- */

static struct sockaddr *copy_address(const struct sockaddr *addr, socklen_t len) {
    struct sockaddr *copy = calloc(1, sizeof(struct sockaddr_storage));
    if (copy) memcpy(copy, addr, len);
    return copy;
}

/* What getaddrinfo found becomes the side that `passive` says. 0, or -1 with errno. */
static int fill_side(struct rdma_addrinfo *rai, const struct addrinfo *ai, bool passive) {
    struct sockaddr *addr = copy_address(ai->ai_addr, ai->ai_addrlen);
    char *name = ai->ai_canonname ? strdup(ai->ai_canonname) : NULL;
    if (!addr) {
        free(name);
        return fail(ENOMEM);
    }
    rai->ai_family = ai->ai_family;
    if (passive) {
        rai->ai_src_addr = addr;
        rai->ai_src_len = ai->ai_addrlen;
        rai->ai_src_canonname = name;
    } else {
        rai->ai_dst_addr = addr;
        rai->ai_dst_len = ai->ai_addrlen;
        rai->ai_dst_canonname = name;
    }
    return 0;
}

SR_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res) {
    while (res) {
        struct rdma_addrinfo *next = res->ai_next;
        free(res->ai_src_addr);
        free(res->ai_dst_addr);
        free(res->ai_src_canonname);
        free(res->ai_dst_canonname);
        free(res->ai_connect);
        free(res->ai_route);
        free(res);
        res = next;
    }
}

SR_EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                               struct rdma_addrinfo **res) {
    static const struct rdma_addrinfo none;
    if (!hints) hints = &none;
    if (!node && !service && !hints->ai_src_addr && !hints->ai_dst_addr) return fail(EINVAL);
    bool passive = hints->ai_flags & RAI_PASSIVE;
    struct addrinfo *found = NULL, ask = {.ai_socktype = SOCK_STREAM,
                                          .ai_family = hints->ai_flags & RAI_FAMILY ? hints->ai_family : AF_UNSPEC};
    if (passive) ask.ai_flags |= AI_PASSIVE;
    if (hints->ai_flags & RAI_NUMERICHOST) ask.ai_flags |= AI_NUMERICHOST;
    if (node || service) {
        int r = getaddrinfo(node, service, &ask, &found);
        if (r) {
            if (r != EAI_SYSTEM) errno = EADDRNOTAVAIL;
            return r;
        }
    }
    struct rdma_addrinfo *rai = calloc(1, sizeof(*rai));
    int r = rai ? 0 : fail(ENOMEM);
    if (!r && found) r = fill_side(rai, found, passive);
    if (!r && hints->ai_src_len && !rai->ai_src_addr) {
        rai->ai_src_addr = copy_address(hints->ai_src_addr, hints->ai_src_len);
        rai->ai_src_len = hints->ai_src_len;
    }
    if (!r && hints->ai_dst_len && !rai->ai_dst_addr) {
        rai->ai_dst_addr = copy_address(hints->ai_dst_addr, hints->ai_dst_len);
        rai->ai_dst_len = hints->ai_dst_len;
    }
    if (found) freeaddrinfo(found);
    if (r) {
        rdma_freeaddrinfo(rai);
        return r;
    }
    rai->ai_flags = hints->ai_flags;
    rai->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
    rai->ai_port_space = hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
    *res = rai;
    return 0;
}

/* --- end points --- */

static int ep_passive(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                      struct ibv_qp_init_attr *attr) {
    struct cm_id *c = to_cm(id);
    if (rdma_bind_addr(id, res->ai_src_addr)) return -1;
    id->pd = pd;
    c->ep_has_attr = attr != NULL;
    if (!attr) return 0;
    attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
    c->ep_attr = *attr;
    return 0;
}

static int ep_active(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                     struct ibv_qp_init_attr *attr) {
    if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000)) return -1;
    if (rdma_resolve_route(id, 2000)) return -1;
    if (!attr) return 0;
    attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
    return rdma_create_qp(id, pd, attr);
}

SR_EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                             struct ibv_qp_init_attr *attr) {
    struct rdma_cm_id *made;
    if (rdma_create_id(NULL, &made, NULL, (enum rdma_port_space)res->ai_port_space)) return -1;
    made->qp_type = (enum ibv_qp_type)res->ai_qp_type;
    int r = res->ai_flags & RAI_PASSIVE ? ep_passive(made, res, pd, attr) : ep_active(made, res, pd, attr);
    if (r) {
        int err = errno;
        rdma_destroy_ep(made);
        return fail(err);
    }
    *id = made;
    return 0;
}

SR_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id) {
    if (id->qp) rdma_destroy_qp(id);
    if (id->srq) rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

SR_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id) {
    struct cm_id *c = to_cm(listen);
    struct rdma_cm_event *event;
    if (!c->sync) return fail(EINVAL);
    if (listen->event) {
        rdma_ack_cm_event(listen->event);
        listen->event = NULL;
    }
    if (rdma_get_cm_event(listen->channel, &event)) return -1;
    int err = event->status                                   ? (event->status < 0 ? -event->status : ECONNABORTED)
              : event->event != RDMA_CM_EVENT_CONNECT_REQUEST ? EINVAL
                                                              : 0;
    if (!err && c->ep_has_attr) {
        struct ibv_qp_init_attr attr = c->ep_attr;
        attr.qp_context = event->id;
        if (rdma_create_qp(event->id, listen->pd, &attr)) {
            err = errno;
            rdma_reject(event->id, NULL, 0);
            struct rdma_cm_id *child = event->id;
            rdma_ack_cm_event(event);
            rdma_destroy_id(child);
            return fail(err);
        }
    }
    if (err) {
        rdma_ack_cm_event(event);
        return fail(err);
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
}

/* --- devices --- */

SR_EXPORT struct ibv_context **rdma_get_devices(int *num) {
    int n = device_start() ? 0 : (int)device_count();
    struct ibv_context **list = calloc((size_t)n + 1, sizeof(*list));
    for (int i = 0; list && i < n; i++)
        if (!(list[i] = device_context((uint32_t)i))) n = i;
    if (num) *num = list ? n : 0;
    if (n || !list) return list;
    free(list);
    errno = ENODEV;
    return NULL;
}

SR_EXPORT void rdma_free_devices(struct ibv_context **list) {
    free(list);
}

/* --- declined --- */

SR_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
    return (void)id, (void)addr, (void)context, fail(EOPNOTSUPP);
}
SR_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context) {
    return (void)id, (void)attr, (void)context, fail(EOPNOTSUPP);
}
SR_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr) {
    return (void)id, (void)addr, fail(EOPNOTSUPP);
}
SR_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    return (void)id, (void)ece, fail(EOPNOTSUPP);
}
SR_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    return (void)id, (void)ece, fail(EOPNOTSUPP);
}
SR_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len) {
    return rdma_reject(id, data, len);
}
SR_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    return (void)qp, (void)ece, EOPNOTSUPP;
}
SR_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    return (void)qp, (void)ece, EOPNOTSUPP;
}

#define DECLINE(name, ...)                                                                                             \
    SR_EXPORT struct ibv_ah *name(__VA_ARGS__) {                                                                       \
        errno = EOPNOTSUPP;                                                                                            \
        return NULL;                                                                                                   \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
DECLINE(ibv_create_ah, struct ibv_pd *pd, struct ibv_ah_attr *attr)
DECLINE(ibv_create_ah_from_wc, struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
SR_EXPORT int ibv_init_ah_from_wc(struct ibv_context *ib, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                                  struct ibv_ah_attr *attr) {
    return fail(EOPNOTSUPP);
}
SR_EXPORT int ibv_destroy_ah(struct ibv_ah *ah) {
    return EINVAL;
}
SR_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    return EOPNOTSUPP;
}
SR_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    return EOPNOTSUPP;
}
#pragma GCC diagnostic pop
