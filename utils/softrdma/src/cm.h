/* The connection manager's insides, shared by its files: cm_event.c (channels and events), cm_id.c
 * (identifiers, addresses, options), cm_port.c (port numbers), cm_conn.c (the handshake), cm_ep.c (what
 * librdmacm builds from these). */
#pragma once

#include <errno.h>
#include <rdma/rdma_cma.h>

#include "peer.h"
#include "qp.h"

#define REQ_PRIVATE_MAX 56
#define REP_PRIVATE_MAX 196
#define REJ_PRIVATE_MAX 148

/* Reasons for a rejection, numbered as on InfiniBand. */
enum { REJ_NO_LISTENER = 8, REJ_CONSUMER = 28 };

enum cm_state {
    CM_IDLE,
    CM_BOUND,
    CM_LISTENING,
    CM_ADDR_RESOLVED,
    CM_ROUTE_RESOLVED,
    CM_CONNECTING, /* request sent */
    CM_REQUESTED,  /* request received */
    CM_ACCEPTED,   /* answer sent */
    CM_ANSWERED,   /* answer received, the program has not taken the event or not called rdma_establish */
    CM_ESTABLISHED,
    CM_DREQ_SENT,
    CM_DREQ_RECEIVED,
    CM_TIMEWAIT,
    CM_CLOSED /* rejected, unreachable, or timewait is over */
};

struct cm_channel {
    struct rdma_event_channel ib;
    struct link events;
};

struct cm_port {
    struct door doors[2];
    uint32_t door_count;
    uint16_t number; /* 0: none */
    bool ephemeral;  /* from this process's blocks */
};

struct cm_id {
    struct rdma_cm_id id;
    struct link link;
    enum cm_state state;
    uint32_t number;
    bool sync, destroyed, reuse_addr, af_only, bound_any;
    uint8_t ack_timeout, tos;
    uint32_t unacked; /* events the program holds */
    struct cm_port port;
    /* listening */
    uint32_t backlog, queued;
    bool ep_has_attr;
    struct ibv_qp_init_attr ep_attr;
    /* connecting */
    struct peer *peer;
    uint32_t remote; /* number of the identifier at the other end */
    struct qp_address remote_qp;
    struct cm_body request; /* ours or theirs: parameters of the connection */
    bool retried_dial;
    uint8_t responder_resources, initiator_depth, retry_count, rnr_retry;
    struct timer timer;
    struct ibv_sa_path_rec path;
    struct task free_task;
};

struct cm_event {
    struct rdma_cm_event ib;
    struct link link;
    struct cm_id *owner; /* whose unacked it counts in */
    bool answer;         /* taking it completes the handshake of the active side */
    struct timer timer;  /* a fault delays it */
    uint8_t private_data[256];
};

static inline struct cm_id *to_cm(struct rdma_cm_id *id) {
    return (struct cm_id *)id;
}
static inline struct sockaddr *cm_src(struct cm_id *c) {
    return &c->id.route.addr.src_addr;
}
static inline struct sockaddr *cm_dst(struct cm_id *c) {
    return &c->id.route.addr.dst_addr;
}

void cm_lock(void), cm_unlock(void); /* guards everything of the connection manager; outside qp->lock */

/* cm_id.c */
struct cm_id *cm_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
struct cm_id *cm_find(uint32_t number);                         /* locked */
void cm_each(void (*visit)(struct cm_id *, void *), void *arg); /* locked */
void cm_maybe_free(struct cm_id *c);                            /* locked */
int cm_attach_device(struct cm_id *c, const struct sockaddr *addr);
void cm_fill_path(struct cm_id *c);

/* cm_port.c */
uint16_t port_take_ephemeral(void);
void port_give_back(uint16_t port);
int port_bind(struct cm_port *port, enum rdma_port_space ps, const struct sockaddr *addr,
              bool af_only); /* addr has the number */
void port_release(struct cm_port *port);
uint32_t port_names(char names[3][64], enum rdma_port_space ps,
                    const struct sockaddr *addr); /* doors a dialler tries */
void port_forget(void);

/* cm_event.c */
struct cm_channel *cm_channel_create(void);
/* Queues an event; `body` may be NULL. Locked. */
void cm_raise(struct cm_id *c, enum rdma_cm_event_type type, int status, const struct cm_body *body,
              struct cm_id *listener);
void cm_drop_events(struct cm_id *c); /* of an identifier that is being destroyed. Locked. */
int cm_wait(struct cm_id *c);         /* synchronous identifiers wait for the outcome; others return 0 */

/* cm_conn.c */
void cm_conn_start(void);
int cm_complete_answer(struct cm_id *c); /* moves the queue pair and confirms. Not locked; 0 or errno. */
void cm_prepare_timer(struct cm_id *c);
void cm_hang_up(struct cm_id *c); /* tells the other end as rdma_destroy_id does. Locked. */
int cm_to_init(struct rdma_cm_id *id, struct ibv_qp *qp);
int cm_init_qp_attr(struct cm_id *c, struct ibv_qp_attr *attr, int *mask);

/* cm_ep.c */
void cm_destroy_cqs(struct rdma_cm_id *id);

static inline int fail(int err) {
    errno = err;
    return err ? -1 : 0;
}
