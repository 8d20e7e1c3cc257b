/* What the device can do: two processes, the server on CPU 0, the client on CPU 1 (when there are two),
 * connected by the connection manager. Run it with `make bench`, or `softrdma ../../build/softrdma/bench [seconds per
 * test [part of a name]]`. The figures are this machine's memory and caches, never a card's. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define DEPTH     1024
#define SIGNAL    64
#define BUFFER    (4u << 20)
#define CREDIT_AT (BUFFER - 64) /* the receiver writes here how much it has taken */
#define STOP      0xffffffffu
#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            perror(#x);                                                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct end {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint8_t *buf;
    uint64_t peer_addr;
    uint32_t peer_rkey;
    uint32_t unsignaled;
    int sock; /* to step through the tests together */
};

struct remote {
    uint64_t addr;
    uint32_t rkey;
};

static double seconds = 1.0;
static int use_srq;

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static struct rdma_cm_id *wait_event(struct end *e, enum rdma_cm_event_type type, struct remote *remote) {
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(e->events, &event));
    if (event->event != type) {
        fprintf(stderr, "unexpected event %s (%d)\n", rdma_event_str(event->event), event->status);
        exit(1);
    }
    if (remote && event->param.conn.private_data) memcpy(remote, event->param.conn.private_data, sizeof(*remote));
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    return id;
}

static void post_receives(struct end *e, int n) {
    static struct ibv_recv_wr wrs[64];
    struct ibv_recv_wr *bad;
    for (int i = 0; i < n; i++) wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
    if (n) CHECK(!(e->srq ? ibv_post_srq_recv(e->srq, wrs, &bad) : ibv_post_recv(e->id->qp, wrs, &bad)));
}

static void end_build(struct end *e) {
    CHECK(e->pd = ibv_alloc_pd(e->id->verbs));
    CHECK(e->channel = ibv_create_comp_channel(e->id->verbs));
    CHECK(e->cq = ibv_create_cq(e->id->verbs, 4 * DEPTH, NULL, e->channel, 0));
    struct ibv_qp_init_attr attr = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .cap = {.max_send_wr = DEPTH,
                                            .max_recv_wr = DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    if (use_srq) CHECK(attr.srq = e->srq = ibv_create_srq(e->pd, &srq));
    CHECK(!rdma_create_qp(e->id, e->pd, &attr));
    e->buf = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(e->buf, 1, BUFFER);
    CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, BUFFER,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    memset(e->buf, 0, BUFFER);
    for (int i = 0; i < DEPTH; i += 64) post_receives(e, 64);
}

static struct rdma_conn_param params(struct end *e, struct remote *mine) {
    *mine = (struct remote){(uint64_t)(uintptr_t)e->buf, e->mr->rkey};
    return (struct rdma_conn_param){.private_data = mine,
                                    .private_data_len = sizeof(*mine),
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

static void accept_one(struct end *e) {
    struct rdma_cm_id *listener;
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct remote theirs, mine;
    CHECK(e->events = rdma_create_event_channel());
    CHECK(!rdma_create_id(e->events, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&any));
    CHECK(!rdma_listen(listener, 1));
    uint16_t port = rdma_get_src_port(listener);
    CHECK(write(e->sock, &port, sizeof(port)) == sizeof(port));
    e->id = wait_event(e, RDMA_CM_EVENT_CONNECT_REQUEST, &theirs);
    end_build(e);
    struct rdma_conn_param p = params(e, &mine);
    CHECK(!rdma_accept(e->id, &p));
    wait_event(e, RDMA_CM_EVENT_ESTABLISHED, NULL);
    e->peer_addr = theirs.addr;
    e->peer_rkey = theirs.rkey;
}

static void connect_one(struct end *e) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct remote theirs, mine;
    CHECK(read(e->sock, &to.sin_port, sizeof(to.sin_port)) == sizeof(to.sin_port));
    CHECK(e->events = rdma_create_event_channel());
    CHECK(!rdma_create_id(e->events, &e->id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, 1000));
    wait_event(e, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
    CHECK(!rdma_resolve_route(e->id, 1000));
    wait_event(e, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
    end_build(e);
    struct rdma_conn_param p = params(e, &mine);
    CHECK(!rdma_connect(e->id, &p));
    wait_event(e, RDMA_CM_EVENT_ESTABLISHED, &theirs);
    e->peer_addr = theirs.addr;
    e->peer_rkey = theirs.rkey;
}

/* The two take each step together. */
static void meet(struct end *e) {
    char c = 0;
    CHECK(write(e->sock, &c, 1) == 1 && read(e->sock, &c, 1) == 1);
}

static void post_write(struct end *e, enum ibv_wr_opcode op, uint64_t at, uint32_t len, uint32_t imm) {
    struct ibv_sge sge = {(uint64_t)(uintptr_t)e->buf + at, len, e->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .imm_data = imm}, *bad;
    wr.wr.rdma.remote_addr = e->peer_addr + at;
    wr.wr.rdma.rkey = e->peer_rkey;
    if (len <= 64) wr.send_flags |= IBV_SEND_INLINE;
    if (++e->unsignaled == SIGNAL) {
        wr.send_flags |= IBV_SEND_SIGNALED;
        e->unsignaled = 0;
    }
    CHECK(!ibv_post_send(e->id->qp, &wr, &bad));
}

/* Takes up to 64 completions: the number of messages, their bytes, and whether the last was STOP. */
static int take(struct end *e, uint64_t *bytes, int *stop) {
    struct ibv_wc wc[64];
    int n = ibv_poll_cq(e->cq, 64, wc), messages = 0;
    CHECK(n >= 0);
    for (int i = 0; i < n; i++) {
        CHECK(wc[i].status == IBV_WC_SUCCESS);
        if (!(wc[i].opcode & IBV_WC_RECV)) continue;
        messages++;
        if (bytes) *bytes += wc[i].byte_len;
        if (wc[i].imm_data == STOP) *stop = 1;
    }
    post_receives(e, messages);
    return messages;
}

static volatile uint64_t *credit(struct end *e) {
    return (volatile uint64_t *)(e->buf + CREDIT_AT);
}

static void stream_in(struct end *e) {
    uint64_t got = 0, told = 0;
    int stop = 0;
    meet(e);
    while (!stop) {
        got += (uint64_t)take(e, NULL, &stop);
        if (got - told < DEPTH / 4 && !stop) continue;
        told = got;
        *credit(e) = got;
        post_write(e, IBV_WR_RDMA_WRITE, CREDIT_AT, 8, 0);
    }
    meet(e);
    *credit(e) = 0;
    meet(e);
}

static void stream_out(struct end *e, const char *name, uint32_t size, enum ibv_wr_opcode op) {
    uint64_t sent = 0;
    meet(e);
    double start = now(), end = start + seconds;
    for (int stop = 0;; sent++) {
        while (sent - *credit(e) >= DEPTH - 1 || sent % 32 == 0) {
            take(e, NULL, &stop);
            if (sent - *credit(e) < DEPTH - 1) break;
        }
        if (sent % 256 == 0 && now() > end) break;
        post_write(e, op, (sent % 16) * (uint64_t)size % (BUFFER / 2), size, 0);
    }
    post_write(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, STOP);
    while (*credit(e) < sent) {
    }
    double t = now() - start;
    printf("%-44s %8.2f M messages/s %8.2f GB/s\n", name, (double)sent / t / 1e6, (double)sent * size / t / 1e9);
    meet(e);
    *credit(e) = 0;
    meet(e);
}

static void sleep_for_event(struct end *e) {
    struct ibv_cq *cq;
    void *context;
    CHECK(!ibv_get_cq_event(e->channel, &cq, &context));
    ibv_ack_cq_events(cq, 1);
}

/* Waits for one message, spinning or sleeping. */
static void await_message(struct end *e, int sleeps, int *stop) {
    while (!take(e, NULL, stop)) {
        if (!sleeps) continue;
        CHECK(!ibv_req_notify_cq(e->cq, 0));
        if (take(e, NULL, stop)) return;
        sleep_for_event(e);
    }
}

static void pong(struct end *e, uint32_t size, int sleeps) {
    int stop = 0;
    meet(e);
    for (;;) {
        await_message(e, sleeps, &stop);
        if (stop) break;
        post_write(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, size, 0);
    }
    meet(e);
}

static void ping(struct end *e, const char *name, uint32_t size, int sleeps) {
    int stop = 0;
    uint64_t rounds = 0;
    meet(e);
    double start = now(), end = start + seconds;
    for (; rounds % 64 || now() < end; rounds++) {
        post_write(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, size, 0);
        await_message(e, sleeps, &stop);
    }
    printf("%-44s %8.3f us\n", name, (now() - start) / (double)rounds * 1e6);
    post_write(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, STOP);
    meet(e);
}

static void reads(struct end *e, const char *name, uint32_t size) {
    struct ibv_sge sge = {(uint64_t)(uintptr_t)e->buf, size, e->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = e->peer_addr;
    wr.wr.rdma.rkey = e->peer_rkey;
    uint64_t n = 0;
    meet(e);
    double start = now(), end = start + seconds;
    for (; now() < end; n++) {
        struct ibv_wc wc;
        CHECK(!ibv_post_send(e->id->qp, &wr, &bad));
        while (!ibv_poll_cq(e->cq, 1, &wc)) {
        }
    }
    double t = now() - start;
    printf("%-44s %8.2f M reads/s    %8.2f GB/s\n", name, (double)n / t / 1e6, (double)n * size / t / 1e9);
    meet(e);
}

static void idle(struct end *e) {
    meet(e);
    meet(e);
}

static const struct bench {
    const char *name;
    enum { STREAM, PING, SLEEPY_PING, READ } kind;
    uint32_t size;
} benches[] = {
    {"64-byte WRITE_WITH_IMM, inline, one a post", STREAM, 64},
    {"4 KiB WRITE_WITH_IMM", STREAM, 4096},
    {"64 KiB WRITE_WITH_IMM", STREAM, 65536},
    {"1 MiB WRITE_WITH_IMM", STREAM, 1 << 20},
    {"64-byte round trip, both spin", PING, 64},
    {"4 KiB round trip, both spin", PING, 4096},
    {"64-byte round trip, both sleep", SLEEPY_PING, 64},
    {"64-byte READ", READ, 64},
    {"1 MiB READ", READ, 1 << 20},
};

static void run(struct end *e, const struct bench *b, int is_server) {
    switch (b->kind) {
    case STREAM: is_server ? stream_in(e) : stream_out(e, b->name, b->size, IBV_WR_RDMA_WRITE_WITH_IMM); break;
    case PING:
    case SLEEPY_PING:
        is_server ? pong(e, b->size, b->kind == SLEEPY_PING) : ping(e, b->name, b->size, b->kind == SLEEPY_PING);
        break;
    case READ: is_server ? idle(e) : reads(e, b->name, b->size); break;
    }
}

int main(int argc, char **argv) {
    int pair[2];
    if (argc > 1) seconds = atof(argv[1]);
    use_srq = argc > 3 && !strcmp(argv[3], "srq");
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct end e = {0};
    pid_t child = fork();
    pin(child ? 0 : 1);
    e.sock = pair[child ? 0 : 1];
    close(pair[child ? 1 : 0]);
    if (child)
        accept_one(&e);
    else
        connect_one(&e);
    for (size_t i = 0; i < sizeof(benches) / sizeof(*benches); i++)
        if (argc < 3 || strstr(benches[i].name, argv[2])) run(&e, &benches[i], child != 0);
    if (!child) exit(0);
    int status;
    waitpid(child, &status, 0);
    return status ? 1 : 0;
}
