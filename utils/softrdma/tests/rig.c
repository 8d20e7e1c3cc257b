#include "rig.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

_Noreturn void failed(const char *file, int line, const char *what, long long a, long long b, bool values) {
    int err = errno;
    if (values)
        fprintf(stderr, "    %s:%d: %s: %lld is not %lld\n", file, line, what, a, b);
    else
        fprintf(stderr, "    %s:%d: %s (errno %d)\n", file, line, what, err);
    _exit(1);
}

uint64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

struct softrdma_counters counters(void) {
    void (*get)(struct softrdma_counters *);
    struct softrdma_counters c;
    *(void **)&get = dlsym(RTLD_DEFAULT, "softrdma_counters");
    CHECK(get);
    get(&c);
    return c;
}

void assert_no_leaks(void) {
    struct softrdma_counters c = counters();
    EQUAL(c.contexts, 0);
    EQUAL(c.pds, 0);
    EQUAL(c.mrs, 0);
    EQUAL(c.cqs, 0);
    EQUAL(c.qps, 0);
    EQUAL(c.srqs, 0);
    EQUAL(c.comp_channels, 0);
    EQUAL(c.cm_ids, 0);
    EQUAL(c.cm_channels, 0);
    EQUAL(c.cm_events_unacked, 0);
    EQUAL(c.registered_bytes, 0);
}

/* --- a second process --- */

struct other other_start(void (*run)(int sock)) {
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    struct other o = {fork(), pair[0]};
    if (!o.pid) {
        close(pair[0]);
        run(pair[1]);
        exit(0);
    }
    CHECK(o.pid > 0);
    close(pair[1]);
    return o;
}

int other_wait(struct other *o) {
    int status;
    CHECK(waitpid(o->pid, &status, 0) == o->pid);
    close(o->sock);
    return status;
}

void other_join(struct other *o) {
    EQUAL(other_wait(o), 0);
}
void tell(int sock, uint64_t value) {
    CHECK(write(sock, &value, sizeof(value)) == sizeof(value));
}

uint64_t hear(int sock) {
    uint64_t value;
    CHECK(read(sock, &value, sizeof(value)) == sizeof(value));
    return value;
}

/* --- a pair --- */

struct ibv_context *open_first(void) {
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);
    CHECK(list && n > 0);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    CHECK(ctx);
    ibv_free_device_list(list);
    return ctx;
}

static int or_default(int value, int fallback) {
    return value ? value : fallback;
}

struct ibv_qp *qp_make(struct pair *p, struct ibv_cq *cq) {
    struct ibv_qp_init_attr attr = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = p->srq,
                                    .cap = {.max_send_wr = (uint32_t)or_default(p->o.send_wr, 64),
                                            .max_recv_wr = (uint32_t)or_default(p->o.recv_wr, 64),
                                            .max_send_sge = (uint32_t)or_default(p->o.send_sge, 4),
                                            .max_recv_sge = (uint32_t)or_default(p->o.recv_sge, 4),
                                            .max_inline_data = (uint32_t)p->o.inline_data},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = p->o.sig_all};
    struct ibv_qp *qp = ibv_create_qp(p->pd, &attr);
    CHECK(qp);
    return qp;
}

#define ALL_ACCESS                                                                                                     \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

int qp_init(struct ibv_qp *qp, int access) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)or_default(access, ALL_ACCESS)};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static uint8_t resources(int wish) {
    return (uint8_t)(wish < 0 ? 0 : or_default(wish, 4));
}

int qp_rtr(struct ibv_qp *qp, uint32_t dest, const struct pair_options *o) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = dest,
                               .max_dest_rd_atomic = resources(o->dest_rd_atomic),
                               .min_rnr_timer = (uint8_t)or_default(o->rnr_timer, 1),
                               .ah_attr = {.is_global = 1, .port_num = 1}};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int qp_rts(struct ibv_qp *qp, const struct pair_options *o) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = (uint8_t)or_default(o->timeout, 10),
                               .retry_cnt = (uint8_t)or_default(o->retry_cnt, 3),
                               .rnr_retry = (uint8_t)o->rnr_retry,
                               .max_rd_atomic = resources(o->rd_atomic)};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

static void buffer_make(struct pair *p, int i) {
    size_t bytes = p->o.bytes ? p->o.bytes : 65536;
    if (p->o.unaligned)
        p->buf[i] = (uint8_t *)malloc(bytes + 64) + 24;
    else
        CHECK((p->buf[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) !=
              MAP_FAILED);
    for (size_t k = 0; k < bytes; k++) p->buf[i][k] = (uint8_t)(k * 7 + (size_t)i);
    int access = p->o.mr_access ? p->o.mr_access : or_default(p->o.access, ALL_ACCESS);
    CHECK((p->mr[i] = ibv_reg_mr(p->pd, p->buf[i], bytes, access)));
}

struct pair pair_make(struct pair_options o) {
    struct pair p = {.o = o, .ctx = open_first()};
    CHECK((p.pd = ibv_alloc_pd(p.ctx)));
    if (o.events) CHECK((p.channel = ibv_create_comp_channel(p.ctx)));
    CHECK((p.cq = ibv_create_cq(p.ctx, or_default(o.cqe, 1024), &p, p.channel, 0)));
    p.cq2 = p.cq;
    if (o.separate_cqs) CHECK((p.cq2 = ibv_create_cq(p.ctx, or_default(o.cqe, 1024), NULL, p.channel, 0)));
    if (o.srq_wr) {
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = (uint32_t)o.srq_wr, .max_sge = 4}};
        CHECK((p.srq = ibv_create_srq(p.pd, &attr)));
    }
    for (int i = 0; i < 2; i++) {
        p.qp[i] = qp_make(&p, i ? p.cq2 : p.cq);
        buffer_make(&p, i);
        EQUAL(qp_init(p.qp[i], o.access), 0);
    }
    for (int i = 0; i < 2; i++) EQUAL(qp_rtr(p.qp[i], p.qp[!i]->qp_num, &o), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rts(p.qp[i], &o), 0);
    return p;
}

void pair_free(struct pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->qp[i]) EQUAL(ibv_destroy_qp(p->qp[i]), 0);
        if (p->mr[i]) EQUAL(ibv_dereg_mr(p->mr[i]), 0);
    }
    if (p->srq) EQUAL(ibv_destroy_srq(p->srq), 0);
    if (p->cq2 != p->cq) EQUAL(ibv_destroy_cq(p->cq2), 0);
    EQUAL(ibv_destroy_cq(p->cq), 0);
    if (p->channel) EQUAL(ibv_destroy_comp_channel(p->channel), 0);
    EQUAL(ibv_dealloc_pd(p->pd), 0);
    EQUAL(ibv_close_device(p->ctx), 0);
}

static int post(struct ibv_qp *qp, struct ask a, uint64_t local, uint32_t lkey, uint64_t remote, uint32_t rkey) {
    struct ibv_sge sge = {local + a.at, a.len, a.lkey ? a.lkey : lkey};
    struct ibv_send_wr wr = {.wr_id = a.id,
                             .sg_list = &sge,
                             .num_sge = a.len ? 1 : 0,
                             .opcode = a.op,
                             .send_flags = a.flags,
                             .imm_data = a.imm},
                       *bad = NULL;
    if (a.op == IBV_WR_ATOMIC_CMP_AND_SWP || a.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = remote + a.to;
        wr.wr.atomic.rkey = a.rkey ? a.rkey : rkey;
        wr.wr.atomic.compare_add = a.compare;
        wr.wr.atomic.swap = a.swap;
    } else {
        wr.wr.rdma.remote_addr = remote + a.to;
        wr.wr.rdma.rkey = a.rkey ? a.rkey : rkey;
    }
    int r = ibv_post_send(qp, &wr, &bad);
    CHECK(!r == (bad == NULL));
    return r;
}

int pair_post(struct pair *p, int from, struct ask a) {
    return post(p->qp[from], a, (uint64_t)(uintptr_t)p->buf[from], p->mr[from]->lkey,
                (uint64_t)(uintptr_t)p->buf[!from], p->mr[!from]->rkey);
}

int pair_recv(struct pair *p, int at, uint64_t id, uint64_t off, uint32_t len) {
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p->buf[at] + off, len, p->mr[at]->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0}, *bad;
    return p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp[at], &wr, &bad);
}

struct ibv_wc poll_one(struct ibv_cq *cq) {
    struct ibv_wc wc;
    for (uint64_t start = now_us(); now_us() - start < PATIENCE_US;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        CHECK(n >= 0);
        if (n) return wc;
        sched_yield();
    }
    CHECK(!"a completion came in time");
    return wc;
}

void expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status) {
    struct ibv_wc wc = poll_one(cq);
    EQUAL(wc.status, status);
    EQUAL(wc.wr_id, id);
}

bool stays_empty(struct ibv_cq *cq) {
    struct ibv_wc wc;
    for (int i = 0; i < 20; i++) {
        if (ibv_poll_cq(cq, 1, &wc)) return false;
        usleep(500);
    }
    return true;
}

/* --- an end --- */

struct sockaddr_in loopback(uint16_t port_be) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port_be, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

struct rdma_cm_event *next_event(struct end *e) {
    struct rdma_cm_event *event;
    struct pollfd fd = {e->events->fd, POLLIN, 0};
    EQUAL(poll(&fd, 1, (int)(PATIENCE_US / 1000)), 1);
    CHECK(!rdma_get_cm_event(e->events, &event));
    return event;
}

struct remote {
    uint64_t addr;
    uint32_t rkey;
};

struct rdma_cm_id *expect_event(struct end *e, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = next_event(e);
    if (event->event != type) fprintf(stderr, "    got %s (%d)\n", rdma_event_str(event->event), event->status);
    EQUAL(event->event, type);
    struct rdma_cm_id *id = event->id;
    struct remote remote = {0};
    if (event->param.conn.private_data_len >= sizeof(remote))
        memcpy(&remote, event->param.conn.private_data, sizeof(remote));
    if (remote.addr) {
        e->peer_addr = remote.addr;
        e->peer_rkey = remote.rkey;
    }
    EQUAL(rdma_ack_cm_event(event), 0);
    return id;
}

uint16_t end_listen(struct end *e) {
    struct sockaddr_in any = loopback(0);
    CHECK((e->events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e->events, &e->listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(e->listener, (struct sockaddr *)&any));
    CHECK(!rdma_listen(e->listener, 16));
    return rdma_get_src_port(e->listener);
}

void end_build(struct end *e) {
    CHECK((e->pd = ibv_alloc_pd(e->id->verbs)));
    CHECK((e->channel = ibv_create_comp_channel(e->id->verbs)));
    CHECK((e->cq = ibv_create_cq(e->id->verbs, 1024, NULL, e->channel, 0)));
    struct ibv_qp_init_attr attr = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2},
                                    .qp_type = IBV_QPT_RC};
    CHECK(!rdma_create_qp(e->id, e->pd, &attr));
    e->cap = attr.cap;
    CHECK((e->buf = mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    CHECK((e->mr = ibv_reg_mr(e->pd, e->buf, END_BYTES, ALL_ACCESS)));
}

static struct rdma_conn_param conn_param(struct end *e, struct remote *mine) {
    *mine = (struct remote){(uint64_t)(uintptr_t)e->buf, e->mr->rkey};
    return (struct rdma_conn_param){.private_data = mine,
                                    .private_data_len = sizeof(*mine),
                                    .responder_resources = 4,
                                    .initiator_depth = 4,
                                    .retry_count = e->retry_count ? e->retry_count : 7,
                                    .rnr_retry_count = e->rnr_retry};
}

void end_accept(struct end *e) {
    e->id = expect_event(e, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(e);
    struct remote mine;
    struct rdma_conn_param p = conn_param(e, &mine);
    CHECK(!rdma_accept(e->id, &p));
    CHECK(expect_event(e, RDMA_CM_EVENT_ESTABLISHED) == e->id);
}

void end_resolve(struct end *e, uint16_t port) {
    struct sockaddr_in to = loopback(port);
    CHECK((e->events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e->events, &e->id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, 1000));
    expect_event(e, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(e->id, 1000));
    expect_event(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void end_connect(struct end *e, uint16_t port) {
    struct remote mine;
    end_resolve(e, port);
    end_build(e);
    struct rdma_conn_param p = conn_param(e, &mine);
    CHECK(!rdma_connect(e->id, &p));
    expect_event(e, RDMA_CM_EVENT_ESTABLISHED);
}

int end_post(struct end *e, struct ask a) {
    return post(e->id->qp, a, (uint64_t)(uintptr_t)e->buf, e->mr->lkey, e->peer_addr, e->peer_rkey);
}

int end_recv(struct end *e, uint64_t id, uint64_t off, uint32_t len) {
    struct ibv_sge sge = {(uint64_t)(uintptr_t)e->buf + off, len, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0}, *bad;
    return ibv_post_recv(e->id->qp, &wr, &bad);
}

void end_hang_up(struct end *e) {
    CHECK(!rdma_disconnect(e->id));
    expect_event(e, RDMA_CM_EVENT_DISCONNECTED);
}

void end_free(struct end *e) {
    if (e->id && e->id->qp) rdma_destroy_qp(e->id);
    if (e->mr) EQUAL(ibv_dereg_mr(e->mr), 0);
    if (e->cq) EQUAL(ibv_destroy_cq(e->cq), 0);
    if (e->channel) EQUAL(ibv_destroy_comp_channel(e->channel), 0);
    if (e->pd) EQUAL(ibv_dealloc_pd(e->pd), 0);
    if (e->id) EQUAL(rdma_destroy_id(e->id), 0);
    if (e->listener) EQUAL(rdma_destroy_id(e->listener), 0);
    if (e->events) rdma_destroy_event_channel(e->events);
}
