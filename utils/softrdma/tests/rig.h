/* What the tests stand on. Every test runs in a process of its own, which has not touched the device yet; so
 * it may set the device's environment first. `other` is a second process; a `pair` is two queue pairs of one
 * process connected by hand; an `end` is one side of a connection made by the connection manager. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "../softrdma.h"

#define PATIENCE_US 8000000ull /* how long a test waits for an event */

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};
void test_add(struct test *test);

#define TEST(name)                                                                                                     \
    static void name(void);                                                                                            \
    __attribute__((constructor)) static void add_##name(void) {                                                        \
        static struct test test = {#name, name, NULL};                                                                 \
        test_add(&test);                                                                                               \
    }                                                                                                                  \
    static void name(void)

_Noreturn void failed(const char *file, int line, const char *what, long long a, long long b, bool values);
#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) failed(__FILE__, __LINE__, #x, 0, 0, false);                                                         \
    } while (0)
#define EQUAL(a, b)                                                                                                    \
    do {                                                                                                               \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                            \
        if (a_ != b_) failed(__FILE__, __LINE__, #a " == " #b, a_, b_, true);                                          \
    } while (0)
/* A call that must fail with this errno, however the interface says so. */
#define FAILS(call, err)                                                                                               \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK(call);                                                                                                   \
        EQUAL(errno, err);                                                                                             \
    } while (0)

/* --- a second process --- */
struct other {
    pid_t pid;
    int sock;
};
struct other other_start(void (*run)(int sock));
void other_join(struct other *o); /* it must end well */
int other_wait(struct other *o);  /* its wait status */
void tell(int sock, uint64_t value);
uint64_t hear(int sock); /* fails the test when the other side has gone */

uint64_t now_us(void);
struct softrdma_counters counters(void);
void assert_no_leaks(void); /* of verbs and connection manager objects in this process */

/* --- a pair --- */
struct pair_options {
    int cqe, send_wr, recv_wr, send_sge, recv_sge, inline_data;
    bool sig_all, separate_cqs, events;
    int access;    /* of queue pairs and regions; 0: everything */
    int mr_access; /* of regions, when different */
    int rnr_retry, retry_cnt, timeout, rnr_timer;
    int rd_atomic, dest_rd_atomic; /* -1: none */
    int srq_wr;
    size_t bytes;
    bool unaligned; /* buffers from malloc, off by some bytes: no whole pages when small */
};

struct pair {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq, *cq2; /* cq2: of the second queue pair, when separate */
    struct ibv_srq *srq;
    struct ibv_qp *qp[2];
    uint8_t *buf[2];
    struct ibv_mr *mr[2];
    struct pair_options o;
};

struct ibv_context *open_first(void);
struct pair pair_make(struct pair_options o);
void pair_free(struct pair *p);
struct ibv_qp *qp_make(struct pair *p, struct ibv_cq *cq);
int qp_init(struct ibv_qp *qp, int access);
int qp_rtr(struct ibv_qp *qp, uint32_t dest, const struct pair_options *o);
int qp_rts(struct ibv_qp *qp, const struct pair_options *o);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

/* One request: everything a test may want to vary. */
struct ask {
    enum ibv_wr_opcode op;
    uint64_t id;
    uint32_t len, imm;
    uint64_t at, to; /* offsets in the local and the remote buffer */
    unsigned flags;
    uint32_t lkey, rkey; /* 0: the right ones */
    uint64_t compare, swap;
};
int pair_post(struct pair *p, int from, struct ask a); /* the return value of ibv_post_send */
int pair_recv(struct pair *p, int at, uint64_t id, uint64_t off, uint32_t len);
struct ibv_wc poll_one(struct ibv_cq *cq); /* within a few seconds */
void expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
bool stays_empty(struct ibv_cq *cq);

/* --- an end --- */
struct end {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener, *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint8_t *buf;
    struct ibv_mr *mr;
    struct ibv_qp_cap cap;
    uint64_t peer_addr;
    uint32_t peer_rkey;
    uint8_t rnr_retry; /* said to the other side */
    uint8_t retry_count;
};
#define END_BYTES 65536

struct sockaddr_in loopback(uint16_t port_be);
struct rdma_cm_event *next_event(struct end *e);
struct rdma_cm_id *expect_event(struct end *e, enum rdma_cm_event_type type); /* acks it */
uint16_t end_listen(struct end *e);                                           /* on a port of its own; network order */
void end_resolve(struct end *e, uint16_t port);
void end_build(struct end *e);
void end_accept(struct end *e);
void end_connect(struct end *e, uint16_t port);
int end_post(struct end *e, struct ask a);
int end_recv(struct end *e, uint64_t id, uint64_t off, uint32_t len);
void end_hang_up(struct end *e); /* rdma_disconnect, DISCONNECTED */
void end_free(struct end *e);
