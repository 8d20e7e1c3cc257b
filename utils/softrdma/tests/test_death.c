/* Processes that die, and faults on demand. */
#include <signal.h>
#include <sys/wait.h>

#include "rig.h"

static void sits_connected(int sock) {
    struct end e = {.rnr_retry = 7};
    tell(sock, end_listen(&e));
    end_accept(&e);
    for (uint64_t i = 0; i < 64; i++) EQUAL(end_recv(&e, i, 0, 64), 0);
    tell(sock, 0);
    pause();
}

TEST(a_killed_peer_disconnects_and_sends_to_it_time_out_after_a_while) {
    struct other o = other_start(sits_connected);
    struct end e = {.rnr_retry = 7, .retry_count = 3}; /* 4 * 134 ms */
    end_connect(&e, (uint16_t)hear(o.sock));
    hear(o.sock);
    for (uint64_t i = 0; i < 4; i++) EQUAL(end_recv(&e, 50 + i, 0, 64), 0);
    kill(o.pid, SIGKILL);
    CHECK(WIFSIGNALED(other_wait(&o)));
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    EQUAL(qp_state(e.id->qp), IBV_QPS_RTS); /* nothing is flushed until the program acts or its sends fail */
    CHECK(stays_empty(e.cq));
    uint64_t start = now_us();
    EQUAL(end_post(&e, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 7, .len = 8}), 0);
    EQUAL(end_post(&e, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 8, .len = 8}), 0);
    uint64_t send = 7, recv = 50; /* each queue in order, the two in any */
    for (int i = 0; i < 6; i++) {
        struct ibv_wc wc = poll_one(e.cq);
        CHECK(now_us() - start > 400000);
        EQUAL(wc.status, wc.wr_id == 7 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
        if (wc.wr_id < 50)
            EQUAL(wc.wr_id, send++);
        else
            EQUAL(wc.wr_id, recv++);
    }
    CHECK(!rdma_disconnect(e.id));
    end_free(&e);
    assert_no_leaks();
}

TEST(a_peer_killed_amid_a_stream_disturbs_no_other_connection) {
    struct other a = other_start(sits_connected), b = other_start(sits_connected);
    struct end ea = {.rnr_retry = 7, .retry_count = 1}, eb = {.rnr_retry = 7};
    end_connect(&ea, (uint16_t)hear(a.sock));
    end_connect(&eb, (uint16_t)hear(b.sock));
    hear(a.sock);
    hear(b.sock);
    for (uint64_t i = 0; i < 60; i++) {
        if (i == 30) kill(a.pid, SIGKILL);
        EQUAL(end_post(&ea, (struct ask){.op = IBV_WR_SEND, .id = i, .len = 60, .flags = IBV_SEND_SIGNALED}), 0);
        EQUAL(end_post(&eb, (struct ask){.op = IBV_WR_SEND, .id = i, .len = 60, .flags = IBV_SEND_SIGNALED}), 0);
        EQUAL(poll_one(eb.cq).status, 0);
    }
    other_wait(&a);
    expect_event(&ea, RDMA_CM_EVENT_DISCONNECTED); /* before that, sends may still have found its memory */
    EQUAL(end_post(&ea, (struct ask){.op = IBV_WR_SEND, .id = 60, .len = 60}), 0);
    while (poll_one(ea.cq).status == IBV_WC_SUCCESS) {
    }
    EQUAL(qp_state(ea.id->qp), IBV_QPS_ERR);
    EQUAL(end_post(&eb, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 99, .len = 60, .flags = IBV_SEND_SIGNALED}), 0);
    expect_wc(eb.cq, 99, IBV_WC_SUCCESS);
    kill(b.pid, SIGKILL);
    other_wait(&b);
    end_free(&ea);
    end_free(&eb);
}

static void fault_then(const char *faults, void (*run)(int), int sock) {
    setenv("SOFTRDMA_FAULTS", faults, 1);
    run(sock);
}

static void streams_to(int sock) {
    struct end e = {.rnr_retry = 7};
    end_connect(&e, (uint16_t)hear(sock));
    tell(sock, 0);
    hear(sock);
    for (uint64_t i = 0; i < 1000; i++) {
        EQUAL(end_post(&e, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM,
                                        .imm = (uint32_t)i,
                                        .len = 4096,
                                        .flags = IBV_SEND_SIGNALED}),
              0);
        EQUAL(poll_one(e.cq).status, 0);
    }
    end_hang_up(&e);
    end_free(&e);
}

static void dies_before_send(int sock) {
    fault_then("send:kill,nth=500", streams_to, sock);
}
static void dies_amid_message(int sock) {
    fault_then("payload:kill,nth=500", streams_to, sock);
}
static void dies_disconnecting(int sock) {
    fault_then("disconnect:kill", streams_to, sock);
}

/* The survivor's view: `messages` arrive, then DISCONNECTED, and the device still works. */
static void survive(void (*mortal)(int), uint32_t messages) {
    struct other o = other_start(mortal);
    struct end e = {.rnr_retry = 7};
    tell(o.sock, end_listen(&e));
    end_accept(&e);
    hear(o.sock);
    for (uint64_t i = 0; i < 64; i++) EQUAL(end_recv(&e, i, 0, 0), 0);
    tell(o.sock, 0);
    for (uint32_t i = 0; i < messages; i++) {
        struct ibv_wc wc = poll_one(e.cq);
        EQUAL(wc.status, 0);
        EQUAL(wc.imm_data, i);
        EQUAL(end_recv(&e, 0, 0, 0), 0);
    }
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    int status = other_wait(&o);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(stays_empty(e.cq));
    CHECK(!rdma_disconnect(e.id));
    for (int i = 0; i < 64; i++) EQUAL(poll_one(e.cq).status, IBV_WC_WR_FLUSH_ERR);
    end_free(&e);
    assert_no_leaks();
}

TEST(death_before_a_send) {
    survive(dies_before_send, 499);
}
TEST(death_between_payload_and_completion) {
    survive(dies_amid_message, 499);
}
TEST(death_while_disconnecting) {
    survive(dies_disconnecting, 1000);
}

static void connects_and_dies(const char *faults, int sock) {
    setenv("SOFTRDMA_FAULTS", faults, 1);
    struct end e = {0};
    uint16_t port = (uint16_t)hear(sock);
    end_connect(&e, port);
}

static void dies_connecting(int sock) {
    connects_and_dies("connect:kill", sock);
}
static void dies_answered(int sock) {
    connects_and_dies("establish:kill", sock);
}

TEST(a_client_that_dies_before_its_request_leaves_no_trace) {
    struct end e = {0};
    struct other o = other_start(dies_connecting);
    tell(o.sock, end_listen(&e));
    CHECK(WIFSIGNALED(other_wait(&o)));
    usleep(10000);
    CHECK(!counters().cm_events_unacked && counters().cm_ids == 1);
    end_free(&e);
    assert_no_leaks();
}

TEST(a_client_that_dies_upon_the_answer_is_a_rejection_for_the_server) {
    struct end e = {0};
    struct other o = other_start(dies_answered);
    tell(o.sock, end_listen(&e));
    e.id = expect_event(&e, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_accept(e.id, &p));
    expect_event(&e, RDMA_CM_EVENT_REJECTED);
    CHECK(WIFSIGNALED(other_wait(&o)));
    end_free(&e);
    assert_no_leaks();
}

static void listens_and_dies(const char *faults, int sock) {
    setenv("SOFTRDMA_FAULTS", faults, 1);
    struct end e = {0};
    tell(sock, end_listen(&e));
    end_accept(&e);
}

static void dies_requested(int sock) {
    listens_and_dies("request:kill", sock);
}
static void dies_accepting(int sock) {
    listens_and_dies("accept:kill", sock);
}

static void expect_rejection_by(void (*mortal)(int)) {
    struct other o = other_start(mortal);
    struct end e = {0};
    end_resolve(&e, (uint16_t)hear(o.sock));
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e.id, &p));
    expect_event(&e, RDMA_CM_EVENT_REJECTED);
    CHECK(WIFSIGNALED(other_wait(&o)));
    end_free(&e);
    assert_no_leaks();
}

TEST(a_server_that_dies_upon_the_request_rejects) {
    expect_rejection_by(dies_requested);
}
TEST(a_server_that_dies_accepting_rejects) {
    expect_rejection_by(dies_accepting);
}

/* --- faults that kill no process --- */

TEST(a_dropped_message_ends_in_retry_exceeded) {
    setenv("SOFTRDMA_FAULTS", "send:drop,nth=3", 1);
    struct pair p = pair_make((struct pair_options){.timeout = 8, .retry_cnt = 1});
    for (uint64_t i = 0; i < 3; i++)
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = i, .len = 8, .flags = IBV_SEND_SIGNALED}),
              0);
    expect_wc(p.cq, 0, IBV_WC_SUCCESS);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    expect_wc(p.cq, 2, IBV_WC_RETRY_EXC_ERR);
    EQUAL(counters().faults, 1);
    pair_free(&p);
}

TEST(a_chosen_status_can_be_had_for_a_chosen_kind_of_request) {
    setenv("SOFTRDMA_FAULTS", "send:error=REM_OP_ERR,op=read", 1);
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_READ, .id = 2, .len = 8}), 0);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    expect_wc(p.cq, 2, IBV_WC_REM_OP_ERR);
    pair_free(&p);
}

/* The second write of a chain shows before the whole of the first; a completion shows all. */
TEST(writes_can_be_made_to_show_out_of_order_but_not_behind_a_completion) {
    setenv("SOFTRDMA_FAULTS", "write:scatter=60000000", 1);
    struct pair p = pair_make((struct pair_options){0});
    bool out_of_order = false;
    for (uint64_t i = 1; i <= 20; i++) {
        memset(p.buf[0], (int)i, 2048);
        struct ask first = {.op = IBV_WR_RDMA_WRITE, .len = 1024, .flags = IBV_SEND_SIGNALED};
        struct ask second = {.op = IBV_WR_RDMA_WRITE, .len = 64, .at = 1024, .to = 1024, .flags = IBV_SEND_SIGNALED};
        EQUAL(pair_post(&p, 0, first), 0);
        EQUAL(pair_post(&p, 0, second), 0);
        for (int k = 0; k < 2; k++) EQUAL(poll_one(p.cq).status, 0);
        out_of_order |= p.buf[1][1024] == i && memcmp(p.buf[1], p.buf[0], 1024);
        EQUAL(pair_recv(&p, 1, i, 0, 0), 0);
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 4, .to = 1100, .id = i}), 0);
        expect_wc(p.cq, i, IBV_WC_SUCCESS);
        CHECK(!memcmp(p.buf[1], p.buf[0], 1088));
    }
    CHECK(out_of_order);
    CHECK(counters().withheld_lines > 0);
    pair_free(&p);
}

TEST(what_shows_late_shows_when_its_time_has_come) {
    setenv("SOFTRDMA_FAULTS", "write:scatter=1-1000", 1);
    struct pair p = pair_make((struct pair_options){0});
    memset(p.buf[0], 7, 4096);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 4096, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(poll_one(p.cq).status, 0);
    for (uint64_t end = now_us() + 5000000; memcmp(p.buf[1], p.buf[0], 4096);) CHECK(now_us() < end);
    pair_free(&p);
}

TEST(a_delayed_message_keeps_its_connection_in_order_and_lets_others_pass) {
    setenv("SOFTRDMA_FAULTS", "send:delay=30000,nth=1", 1);
    struct pair p = pair_make((struct pair_options){.events = true}), q = p;
    for (int i = 0; i < 2; i++) EQUAL(qp_init(q.qp[i] = qp_make(&p, p.cq), 0), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rtr(q.qp[i], q.qp[!i]->qp_num, &p.o), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rts(q.qp[i], &p.o), 0);
    uint64_t start = now_us();
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 2, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(pair_post(&q, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 3, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    expect_wc(p.cq, 3, IBV_WC_SUCCESS);
    CHECK(now_us() - start < 30000);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    CHECK(now_us() - start >= 30000);
    expect_wc(p.cq, 2, IBV_WC_SUCCESS);
    for (int i = 0; i < 2; i++) EQUAL(ibv_destroy_qp(q.qp[i]), 0);
    pair_free(&p);
}

TEST(a_held_message_waits_until_the_rule_ends) {
    char file[] = "/tmp/softrdma-hold-XXXXXX", rule[100];
    int fd = mkstemp(file);
    CHECK(fd >= 0);
    close(fd);
    snprintf(rule, sizeof rule, "send:hold,op=read,while=%s", file);
    setenv("SOFTRDMA_FAULTS", rule, 1);
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_wc wc;
    memset(p.buf[1], 7, 8);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_READ, .id = 1, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    for (uint64_t end = now_us() + 20000; now_us() < end;) EQUAL(ibv_poll_cq(p.cq, 1, &wc), 0);
    CHECK(memcmp(p.buf[0], p.buf[1], 8));
    unlink(file);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    CHECK(!memcmp(p.buf[0], p.buf[1], 8));
    pair_free(&p);
}

TEST(a_delayed_completion_wakes_a_sleeper_when_it_is_due) {
    setenv("SOFTRDMA_FAULTS", "complete:delay=20000", 1);
    struct pair p = pair_make((struct pair_options){.events = true});
    struct ibv_cq *cq;
    void *context;
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    uint64_t start = now_us();
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    CHECK(!ibv_get_cq_event(p.channel, &cq, &context));
    CHECK(now_us() - start >= 20000);
    struct ibv_wc wc;
    EQUAL(ibv_poll_cq(cq, 1, &wc), 1);
    EQUAL(wc.status, 0);
    pair_free(&p);
}

TEST(an_injected_rnr_uses_up_the_retries) {
    setenv("SOFTRDMA_FAULTS", "send:rnr", 1);
    struct pair p = pair_make((struct pair_options){.rnr_retry = 2});
    EQUAL(pair_recv(&p, 1, 1, 0, 64), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .id = 1, .len = 8}), 0);
    expect_wc(p.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    pair_free(&p);
}

TEST(an_injected_rnr_ends_after_its_count_even_with_retries_for_ever) {
    setenv("SOFTRDMA_FAULTS", "send:rnr=5,nth=1", 1);
    struct pair p = pair_make((struct pair_options){.rnr_retry = 7});
    for (int i = 1; i <= 2; i++) EQUAL(pair_recv(&p, 1, (uint64_t)i, 0, 64), 0);
    for (int i = 1; i <= 2; i++)
        EQUAL(pair_post(&p, 0,
                        (struct ask){.op = IBV_WR_SEND, .id = (uint64_t)(i + 2), .len = 8, .flags = IBV_SEND_SIGNALED}),
              0);
    bool seen[5] = {false};
    for (int i = 0; i < 4; i++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, IBV_WC_SUCCESS);
        seen[wc.wr_id] = true;
    }
    CHECK(seen[1] && seen[2] && seen[3] && seen[4]);
    pair_free(&p);
}

TEST(a_rule_sleeps_while_its_file_is_not_there) {
    char file[64], rules[128];
    snprintf(file, sizeof(file), "/tmp/softrdma-while.%d", (int)getpid());
    snprintf(rules, sizeof(rules), "reg_mr:fail=ENOMEM,nth=2,while=%s", file);
    setenv("SOFTRDMA_FAULTS", rules, 1);
    struct pair p = pair_make((struct pair_options){0});
    FILE *f = fopen(file, "w");
    CHECK(f && !fclose(f));
    struct ibv_mr *mr = ibv_reg_mr(p.pd, p.buf[0], 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && !ibv_dereg_mr(mr));
    FAILS(!ibv_reg_mr(p.pd, p.buf[0], 4096, IBV_ACCESS_LOCAL_WRITE), ENOMEM);
    EQUAL(unlink(file), 0);
    mr = ibv_reg_mr(p.pd, p.buf[0], 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && !ibv_dereg_mr(mr));
    pair_free(&p);
}

TEST(a_number_in_the_file_of_a_rule_chooses_the_queue_pair) {
    char file[64], rules[128];
    snprintf(file, sizeof(file), "/tmp/softrdma-while.%d", (int)getpid());
    snprintf(rules, sizeof(rules), "send:error=REM_OP_ERR,while=%s", file);
    setenv("SOFTRDMA_FAULTS", rules, 1);
    struct pair p = pair_make((struct pair_options){0});
    FILE *f = fopen(file, "w");
    CHECK(f && fprintf(f, "%u\n", p.qp[1]->qp_num) > 0 && !fclose(f));
    for (int i = 0; i < 2; i++)
        EQUAL(pair_post(&p, i,
                        (struct ask){.op = IBV_WR_RDMA_WRITE, .id = (uint64_t)i, .len = 8, .flags = IBV_SEND_SIGNALED}),
              0);
    expect_wc(p.cq, 0, IBV_WC_SUCCESS);
    expect_wc(p.cq, 1, IBV_WC_REM_OP_ERR);
    EQUAL(unlink(file), 0);
    pair_free(&p);
}

TEST(a_slow_receiver_sees_its_messages_late) {
    setenv("SOFTRDMA_FAULTS", "poll:delay=20000,nth=1", 1);
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_recv(&p, 1, 1, 0, 64), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8}), 0);
    uint64_t start = now_us();
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    CHECK(now_us() - start >= 20000);
    pair_free(&p);
}

TEST(calls_can_be_made_to_fail) {
    setenv("SOFTRDMA_FAULTS",
           "reg_mr:fail=ENOMEM,nth=3; create_qp:fail=EAGAIN,from=3; create_cq:fail=EMFILE,from=2;"
           "post_send:fail=ENOMEM,nth=2; modify_qp:fail=EIO,nth=7; alloc_pd:fail=12,nth=2;"
           "create_channel:fail=EMFILE; create_srq:fail=ENOSPC; post_recv:fail=EINVAL; "
           "reg_mr:fail=1,proc=nobody",
           1);
    struct pair p = pair_make((struct pair_options){0});
    FAILS(!ibv_reg_mr(p.pd, p.buf[0], 4096, IBV_ACCESS_LOCAL_WRITE), ENOMEM);
    struct ibv_qp_init_attr attr = {.send_cq = p.cq, .recv_cq = p.cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    FAILS(!ibv_create_qp(p.pd, &attr), EAGAIN);
    FAILS(!ibv_create_cq(p.ctx, 1, NULL, NULL, 0), EMFILE);
    FAILS(!ibv_create_comp_channel(p.ctx), EMFILE);
    FAILS(!ibv_alloc_pd(p.ctx), ENOMEM);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
    FAILS(!ibv_create_srq(p.pd, &srq), ENOSPC);
    EQUAL(pair_recv(&p, 0, 1, 0, 0), EINVAL);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE}), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE}), ENOMEM);
    EQUAL(qp_rts(p.qp[0], &p.o), EIO);
    pair_free(&p);
}

static struct rdma_cm_event *connect_under(struct end *s, struct end *e, const char *faults) {
    setenv("SOFTRDMA_FAULTS", faults, 1);
    end_resolve(e, end_listen(s));
    end_build(e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e->id, &p));
    return next_event(e);
}

TEST(a_request_can_be_rejected_by_fault) {
    struct end s = {0}, e = {0};
    struct rdma_cm_event *event = connect_under(&s, &e, "request:reject=5");
    EQUAL(event->event, RDMA_CM_EVENT_REJECTED);
    EQUAL(event->status, 5);
    rdma_ack_cm_event(event);
    end_free(&e);
    end_free(&s);
}

TEST(the_removal_of_the_device_can_be_told) {
    struct end s = {0}, e = {0};
    struct rdma_cm_event *event = connect_under(&s, &e, "event:remove=1000,op=RDMA_CM_EVENT_REJECTED; request:reject");
    EQUAL(event->event, RDMA_CM_EVENT_REJECTED);
    rdma_ack_cm_event(event);
    event = next_event(&e);
    EQUAL(event->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(event->id == e.id);
    rdma_ack_cm_event(event);
    CHECK(expect_event(&s, RDMA_CM_EVENT_DEVICE_REMOVAL) == s.listener);
    struct ibv_async_event async;
    CHECK(!ibv_get_async_event(e.id->verbs, &async));
    EQUAL(async.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&async);
    end_free(&e);
    end_free(&s);
}

TEST(a_lost_request_is_unreachable_after_the_timeout) {
    setenv("SOFTRDMA_CM_TIMEOUT_MS", "50", 1);
    struct end s = {0}, e = {0};
    uint64_t start = now_us();
    struct rdma_cm_event *event = connect_under(&s, &e, "connect:drop");
    EQUAL(event->event, RDMA_CM_EVENT_UNREACHABLE);
    EQUAL(event->status, -ETIMEDOUT);
    CHECK(now_us() - start >= 50000);
    rdma_ack_cm_event(event);
    end_free(&e);
    end_free(&s);
}

TEST(unreachable_can_be_had_at_once) {
    struct end s = {0}, e = {0};
    struct rdma_cm_event *event = connect_under(&s, &e, "connect:unreachable");
    EQUAL(event->event, RDMA_CM_EVENT_UNREACHABLE);
    rdma_ack_cm_event(event);
    end_free(&e);
    end_free(&s);
}

TEST(resolving_can_fail_by_fault) {
    setenv("SOFTRDMA_FAULTS", "resolve_addr:unreachable,nth=1;resolve_route:unreachable", 1);
    struct end e = {0};
    struct sockaddr_in to = loopback(htons(1));
    CHECK((e.events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e.events, &e.id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(e.id, NULL, (struct sockaddr *)&to, 10));
    expect_event(&e, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(!rdma_resolve_addr(e.id, NULL, (struct sockaddr *)&to, 10));
    expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(e.id, 10));
    expect_event(&e, RDMA_CM_EVENT_ROUTE_ERROR);
    end_free(&e);
}

TEST(an_event_can_be_delayed) {
    setenv("SOFTRDMA_FAULTS", "event:delay=30000,op=RDMA_CM_EVENT_ADDR_RESOLVED", 1);
    struct end e = {0};
    struct sockaddr_in to = loopback(htons(1));
    CHECK((e.events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e.events, &e.id, NULL, RDMA_PS_TCP));
    uint64_t start = now_us();
    CHECK(!rdma_resolve_addr(e.id, NULL, (struct sockaddr *)&to, 10));
    expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(now_us() - start >= 30000);
    CHECK(!rdma_resolve_route(e.id, 10));
    end_free(&e); /* with an event in the queue */
    assert_no_leaks();
}

static void mistyped(int sock) {
    setenv("SOFTRDMA_FAULTS", "sned:drop", 1);
    open_first();
}

TEST(a_mistyped_fault_ends_the_program) {
    fclose(stderr);
    struct other o = other_start(mistyped);
    int status = other_wait(&o);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

static void random_drops(int sock) {
    setenv("SOFTRDMA_FAULTS", "send:delay=1,p=20,seed=7", 1);
    struct pair p = pair_make((struct pair_options){.sig_all = true});
    for (int i = 0; i < 500; i++) {
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8}), 0);
        EQUAL(poll_one(p.cq).status, 0);
    }
    tell(sock, counters().faults);
    pair_free(&p);
}

TEST(chance_is_repeatable_by_its_seed) {
    uint64_t faults[2];
    for (int i = 0; i < 2; i++) {
        struct other o = other_start(random_drops);
        faults[i] = hear(o.sock);
        other_join(&o);
    }
    EQUAL(faults[0], faults[1]);
    CHECK(faults[0] > 60 && faults[0] < 140);
}

static void writes_stats(int sock) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8}), 0);
    pair_free(&p);
}

TEST(statistics_are_written_at_exit) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/tmp/softrdma-test-%d-%%p", getpid());
    setenv("SOFTRDMA_STATS", path, 1);
    struct other o = other_start(writes_stats);
    pid_t pid = o.pid;
    other_join(&o);
    snprintf(path, sizeof(path), "/tmp/softrdma-test-%d-%d", getpid(), pid);
    FILE *f = fopen(path, "r");
    CHECK(f);
    int found = 0;
    while (fgets(line, sizeof(line), f))
        found += !strcmp(line, "qps:0\n") + !strcmp(line, "doorbells:1\n") + !strcmp(line, "bytes:8\n");
    fclose(f);
    unlink(path);
    EQUAL(found, 3);
}
