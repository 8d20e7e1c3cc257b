/* Faults on demand: SOFTRDMA_FAULTS makes the device misbehave at chosen places. README.md gives the grammar.
 * With no faults each place costs one branch that is never taken. */
#pragma once

#include "base.h"

/* clang-format off */
#define FAULT_POINTS(X)                                                                                       \
    /* data path */                                                                                           \
    X(SEND, "send")         /* a work request is about to be carried out */                                   \
    X(WRITE, "write")       /* the bytes of an RDMA WRITE are about to be copied */                           \
    X(PAYLOAD, "payload")   /* its bytes have been copied, nothing has been completed */                      \
    X(COMPLETE, "complete") /* a send completion is about to enter its queue */                               \
    X(POLL, "poll")         /* poll_cq has been called */                                                     \
    /* connection manager */                                                                                  \
    X(CONNECT, "connect")       /* a request is about to be sent */                                           \
    X(REQUEST, "request")       /* a request has arrived */                                                   \
    X(ACCEPT, "accept")         /* an answer is about to be sent */                                           \
    X(ESTABLISH, "establish")   /* the answer has arrived */                                                  \
    X(RTU, "rtu")               /* the message that completes connecting is about to be sent */               \
    X(GREET, "greet")           /* another process's greeting is about to be answered */                      \
    X(DISCONNECT, "disconnect") /* a disconnect is about to be sent */                                        \
    X(EVENT, "event")           /* an event is about to be queued */                                          \
    X(RESOLVE_ADDR, "resolve_addr")                                                                           \
    X(RESOLVE_ROUTE, "resolve_route")                                                                         \
    /* calls that can be made to fail */                                                                      \
    X(OPEN_DEVICE, "open_device")                                                                             \
    X(ALLOC_PD, "alloc_pd")                                                                                   \
    X(REG_MR, "reg_mr")                                                                                       \
    X(DEREG_MR, "dereg_mr")                                                                                   \
    X(CREATE_CHANNEL, "create_channel")                                                                       \
    X(CREATE_CQ, "create_cq") X(CREATE_QP, "create_qp") X(CREATE_SRQ, "create_srq") X(MODIFY_QP, "modify_qp") \
        X(POST_SEND, "post_send") X(POST_RECV, "post_recv") X(REQ_NOTIFY, "req_notify")                       \
            X(CREATE_EVENT_CHANNEL, "create_event_channel") X(CREATE_ID, "create_id") X(BIND, "bind")         \
                X(LISTEN, "listen")
/* clang-format on */

enum fault_point {
#define X(id, name) FAULT_##id,
    FAULT_POINTS(X)
#undef X
        FAULT_POINT_COUNT
};

enum fault_action {
    ACT_DROP,
    ACT_DELAY,
    ACT_ERROR,
    ACT_RNR,
    ACT_FAIL,
    ACT_REJECT,
    ACT_UNREACHABLE,
    ACT_REMOVE,
    ACT_SCATTER,
    ACT_HOLD,
    ACT_KILL,
    ACT_EXIT
};

struct fault {
    enum fault_action action;
    uint64_t value; /* DELAY, SCATTER: nanoseconds; ERROR: ibv_wc_status; FAIL: errno; REJECT: status; RNR: how often,
                       0: for ever; REMOVE: after this many microseconds */
};

extern bool fault_armed[FAULT_POINT_COUNT];

void fault_start(void);
/* `what`: the kind of work request at a SEND point, or NULL; `qpn`: of the queue pair it happens to, or 0. Kills happen
 * inside. */
bool fault_look_up(enum fault_point point, const char *what, uint32_t qpn, struct fault *out);

static inline bool fault_hit_qp(enum fault_point point, const char *what, uint32_t qpn, struct fault *out) {
    return unlikely(fault_armed[point]) && fault_look_up(point, what, qpn, out);
}
static inline bool fault_hit(enum fault_point point, const char *what, struct fault *out) {
    return fault_hit_qp(point, what, 0, out);
}

/* For points that can only fail: the errno to fail with, or 0. */
static inline int fault_errno_qp(enum fault_point point, uint32_t qpn) {
    struct fault f;
    return fault_hit_qp(point, NULL, qpn, &f) && f.action == ACT_FAIL ? (int)f.value : 0;
}
static inline int fault_errno(enum fault_point point) {
    return fault_errno_qp(point, 0);
}
