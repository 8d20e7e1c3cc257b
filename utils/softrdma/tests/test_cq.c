/* Completion queues, channels, events; shared receive queues. */
#include <fcntl.h>
#include <poll.h>

#include "rig.h"

static bool readable(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

static bool becomes_readable(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 5000) == 1;
}

static void take_event(struct pair *p, struct ibv_cq *cq) {
    struct ibv_cq *got;
    void *context;
    CHECK(becomes_readable(p->channel->fd));
    CHECK(!ibv_get_cq_event(p->channel, &got, &context));
    CHECK(got == cq);
    ibv_ack_cq_events(got, 1);
}

static void message(struct pair *p, unsigned flags) {
    EQUAL(pair_recv(p, 1, 1, 0, 64), 0);
    EQUAL(pair_post(p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8, .flags = flags}), 0);
}

TEST(an_armed_queue_fires_once) {
    struct pair p = pair_make((struct pair_options){.events = true});
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    message(&p, 0);
    take_event(&p, p.cq);
    message(&p, 0);
    CHECK(!readable(p.channel->fd));
    EQUAL(counters().wakeups, 1);
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    CHECK(!readable(p.channel->fd)); /* what is there already does not fire: poll after arming */
    message(&p, 0);
    take_event(&p, p.cq);
    pair_free(&p);
}

TEST(an_unarmed_queue_costs_no_wakeup) {
    struct pair p = pair_make((struct pair_options){.events = true});
    for (int i = 0; i < 10; i++) message(&p, 0);
    EQUAL(counters().wakeups, 0);
    pair_free(&p);
}

TEST(a_solicited_arm_fires_for_solicited_messages_and_errors_only) {
    struct pair p = pair_make((struct pair_options){.events = true});
    EQUAL(ibv_req_notify_cq(p.cq, 1), 0);
    message(&p, 0);
    CHECK(!readable(p.channel->fd));
    message(&p, IBV_SEND_SOLICITED);
    take_event(&p, p.cq);
    EQUAL(ibv_req_notify_cq(p.cq, 1), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .rkey = 1, .flags = IBV_SEND_SIGNALED}), 0);
    take_event(&p, p.cq);
    pair_free(&p);
}

TEST(send_completions_fire_too) {
    struct pair p = pair_make((struct pair_options){.events = true});
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    take_event(&p, p.cq);
    pair_free(&p);
}

TEST(a_channel_tells_its_queues_apart) {
    struct pair p = pair_make((struct pair_options){.events = true, .separate_cqs = true});
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    EQUAL(ibv_req_notify_cq(p.cq2, 0), 0);
    message(&p, 0);
    take_event(&p, p.cq2);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    take_event(&p, p.cq);
    pair_free(&p);
}

TEST(a_nonblocking_channel_says_eagain) {
    struct pair p = pair_make((struct pair_options){.events = true});
    struct ibv_cq *cq;
    void *context;
    fcntl(p.channel->fd, F_SETFL, O_NONBLOCK);
    FAILS(ibv_get_cq_event(p.channel, &cq, &context) == -1, EAGAIN);
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    message(&p, 0);
    CHECK(!ibv_get_cq_event(p.channel, &cq, &context));
    CHECK(context == cq->cq_context);
    ibv_ack_cq_events(cq, 5); /* programs acknowledge more than they got */
    FAILS(ibv_get_cq_event(p.channel, &cq, &context) == -1, EAGAIN);
    pair_free(&p);
}

static void sleeper(int sock) {
    struct end e = {.rnr_retry = 7};
    tell(sock, end_listen(&e));
    end_accept(&e);
    for (uint64_t i = 0; i < 64; i++) EQUAL(end_recv(&e, i, 0, 0), 0);
    tell(sock, 0);
    for (uint32_t got = 0; got < 500;) {
        struct ibv_cq *cq;
        void *context;
        struct ibv_wc wc;
        EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
        int n = ibv_poll_cq(e.cq, 1, &wc);
        if (!n) {
            CHECK(becomes_readable(e.channel->fd));
            CHECK(!ibv_get_cq_event(e.channel, &cq, &context));
            ibv_ack_cq_events(cq, 1);
        }
        while (n || (n = ibv_poll_cq(e.cq, 1, &wc))) {
            EQUAL(wc.status, 0);
            EQUAL(wc.imm_data, got++);
            EQUAL(end_recv(&e, 0, 0, 0), 0);
            n = 0;
        }
        tell(sock, got);
    }
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    end_free(&e);
}

TEST(no_wakeup_is_lost_between_processes) {
    struct other o = other_start(sleeper);
    struct end e = {.rnr_retry = 7};
    end_connect(&e, (uint16_t)hear(o.sock));
    hear(o.sock);
    for (uint32_t i = 0, got = 0; i < 500; i++) {
        EQUAL(end_post(&e, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .imm = i, .flags = IBV_SEND_SIGNALED}), 0);
        EQUAL(poll_one(e.cq).status, 0);
        while (i % 3 == 0 && got <= i) got = (uint32_t)hear(o.sock);
    }
    end_hang_up(&e);
    other_join(&o);
    end_free(&e);
}

TEST(a_completion_queue_may_be_destroyed_before_its_queue_pairs) {
    struct pair p = pair_make((struct pair_options){.events = true});
    message(&p, IBV_SEND_SIGNALED);
    EQUAL(ibv_destroy_cq(p.cq), 0);
    EQUAL(ibv_destroy_comp_channel(p.channel), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    for (int i = 0; i < 2; i++) {
        EQUAL(ibv_destroy_qp(p.qp[i]), 0);
        EQUAL(ibv_dereg_mr(p.mr[i]), 0);
    }
    EQUAL(ibv_dealloc_pd(p.pd), 0);
    EQUAL(ibv_close_device(p.ctx), 0);
    assert_no_leaks();
}

TEST(a_channel_with_queues_is_busy) {
    struct pair p = pair_make((struct pair_options){.events = true});
    EQUAL(ibv_destroy_comp_channel(p.channel), EBUSY);
    pair_free(&p);
}

TEST(an_event_of_a_destroyed_queue_is_not_delivered) {
    struct pair p = pair_make((struct pair_options){.events = true, .separate_cqs = true});
    fcntl(p.channel->fd, F_SETFL, O_NONBLOCK);
    EQUAL(ibv_req_notify_cq(p.cq2, 0), 0);
    message(&p, 0);
    EQUAL(ibv_destroy_qp(p.qp[1]), 0);
    p.qp[1] = NULL;
    EQUAL(ibv_destroy_cq(p.cq2), 0);
    p.cq2 = p.cq;
    struct ibv_cq *cq;
    void *context;
    FAILS(ibv_get_cq_event(p.channel, &cq, &context) == -1, EAGAIN);
    pair_free(&p);
}

TEST(destroying_a_queue_pair_takes_its_completions_out) {
    struct pair p = pair_make((struct pair_options){0});
    message(&p, IBV_SEND_SIGNALED);
    for (int i = 0; i < 2; i++) {
        EQUAL(ibv_destroy_qp(p.qp[i]), 0);
        p.qp[i] = NULL;
    }
    CHECK(stays_empty(p.cq));
    pair_free(&p);
}

TEST(too_many_send_completions_overrun_the_queue) {
    struct pair p = pair_make((struct pair_options){.cqe = 4});
    for (int i = 0; i < 5; i++)
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    struct ibv_wc wc;
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(p.ctx, &event));
    EQUAL(event.event_type, IBV_EVENT_CQ_ERR);
    CHECK(event.element.cq == p.cq);
    ibv_ack_async_event(&event);
    EQUAL(ibv_poll_cq(p.cq, 1, &wc), -1);
    CHECK(!ibv_get_async_event(p.ctx, &event));
    EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
    EQUAL(qp_state(event.element.qp), IBV_QPS_ERR);
    pair_free(&p);
}

TEST(too_many_received_messages_overrun_the_queue) {
    struct pair p = pair_make((struct pair_options){.cqe = 8});
    for (int i = 0; i < 8; i++) message(&p, 0);
    struct ibv_wc wc[16];
    EQUAL(ibv_poll_cq(p.cq, 16, wc), 8); /* full is not overrun */
    EQUAL(ibv_poll_cq(p.cq, 16, wc), 0);
    for (int i = 0; i < 9; i++) message(&p, 0);
    EQUAL(ibv_poll_cq(p.cq, 16, wc), -1);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(p.ctx, &event));
    EQUAL(event.event_type, IBV_EVENT_CQ_ERR);
    pair_free(&p);
}

TEST(many_queue_pairs_share_one_queue_fairly) {
    enum { N = 300 };
    static struct ibv_qp *qp[N][2];
    struct pair p = pair_make((struct pair_options){.recv_wr = 8, .send_wr = 8, .cqe = 16384, .rnr_retry = 7});
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 2; k++) {
            qp[i][k] = qp_make(&p, p.cq);
            EQUAL(qp_init(qp[i][k], 0), 0);
        }
        for (int k = 0; k < 2; k++) EQUAL(qp_rtr(qp[i][k], qp[i][!k]->qp_num, &p.o), 0);
        for (int k = 0; k < 2; k++) EQUAL(qp_rts(qp[i][k], &p.o), 0);
    }
    for (int round = 0; round < 20; round++) {
        static int seen[N];
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < N; i++) {
            struct ibv_recv_wr rwr = {.wr_id = (uint64_t)i}, *rbad;
            struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                     .imm_data = (uint32_t)i,
                                     .send_flags = round % 4 ? 0 : IBV_SEND_SIGNALED},
                               *bad;
            for (int k = 0; k < 2; k++) {
                EQUAL(ibv_post_recv(qp[i][1], &rwr, &rbad), 0);
                EQUAL(ibv_post_send(qp[i][0], &wr, &bad), 0);
            }
        }
        for (int got = 0; got < N * 2;) {
            struct ibv_wc wc = poll_one(p.cq);
            EQUAL(wc.status, 0);
            if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
            EQUAL(wc.wr_id, wc.imm_data);
            EQUAL(wc.qp_num, qp[wc.imm_data][1]->qp_num);
            seen[wc.imm_data]++;
            got++;
        }
        for (int i = 0; i < N; i++) EQUAL(seen[i], 2);
        struct ibv_wc wc;
        while (ibv_poll_cq(p.cq, 1, &wc)) {
        }
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 2; k++) EQUAL(ibv_destroy_qp(qp[i][k]), 0);
    pair_free(&p);
    assert_no_leaks();
}

TEST(extended_polling_reads_the_same_completions) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(p.ctx, &attr);
    CHECK(ex);
    struct ibv_cq *plain = p.cq;
    p.cq = ibv_cq_ex_to_cq(ex);
    struct ibv_qp *qp[2];
    for (int i = 0; i < 2; i++) EQUAL(qp_init(qp[i] = qp_make(&p, p.cq), 0), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rtr(qp[i], qp[!i]->qp_num, &p.o), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rts(qp[i], &p.o), 0);
    struct ibv_recv_wr rwr = {.wr_id = 9}, *rbad;
    EQUAL(ibv_post_recv(qp[1], &rwr, &rbad), 0);
    struct ibv_send_wr wr = {.wr_id = 8,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = 77,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    EQUAL(ibv_post_send(qp[0], &wr, &bad), 0);
    struct ibv_poll_cq_attr poll_attr = {0};
    EQUAL(ibv_start_poll(ex, &poll_attr), 0);
    int seen = 0;
    for (int more = 0; !more; more = ibv_next_poll(ex)) {
        EQUAL(ex->status, IBV_WC_SUCCESS);
        if (ibv_wc_read_opcode(ex) == IBV_WC_RECV_RDMA_WITH_IMM) {
            EQUAL(ex->wr_id, 9);
            EQUAL(ibv_wc_read_imm_data(ex), 77);
            EQUAL(ibv_wc_read_qp_num(ex), qp[1]->qp_num);
        } else {
            EQUAL(ex->wr_id, 8);
        }
        seen++;
    }
    EQUAL(seen, 2);
    ibv_end_poll(ex);
    EQUAL(ibv_start_poll(ex, &poll_attr), ENOENT);
    for (int i = 0; i < 2; i++) EQUAL(ibv_destroy_qp(qp[i]), 0);
    EQUAL(ibv_destroy_cq(p.cq), 0);
    p.cq = plain;
    pair_free(&p);
}

TEST(queues_can_be_resized_and_moderated) {
    struct pair p = pair_make((struct pair_options){.cqe = 4});
    EQUAL(ibv_resize_cq(p.cq, 200), 0);
    for (int i = 0; i < 20; i++)
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(ibv_resize_cq(p.cq, 10), EINVAL); /* more is in it */
    for (int i = 0; i < 20; i++) EQUAL(poll_one(p.cq).status, 0);
    struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {16, 10}};
    EQUAL(ibv_modify_cq(p.cq, &attr), 0);
    FAILS(!ibv_create_cq(p.ctx, 0, NULL, NULL, 0), EINVAL);
    FAILS(!ibv_create_cq(p.ctx, 16, NULL, NULL, p.ctx->num_comp_vectors), EINVAL);
    CHECK(p.ctx->num_comp_vectors > 1);
    pair_free(&p);
}

/* --- shared receive queues --- */

TEST(queue_pairs_share_the_receives_of_an_srq) {
    struct pair p = pair_make((struct pair_options){.srq_wr = 16});
    for (uint64_t i = 0; i < 16; i++) EQUAL(pair_recv(&p, 0, i, i * 64, 64), 0);
    EQUAL(pair_recv(&p, 0, 16, 0, 64), ENOMEM);
    uint32_t used = 0;
    for (int i = 0; i < 16; i++) {
        p.buf[i % 2][60000] = (uint8_t)i;
        EQUAL(pair_post(&p, i % 2,
                        (struct ask){.op = i % 3 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM,
                                     .at = 60000,
                                     .to = 61000,
                                     .len = 1,
                                     .imm = (uint32_t)i}),
              0);
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, 0);
        EQUAL(wc.imm_data, i);
        EQUAL(wc.qp_num, p.qp[!(i % 2)]->qp_num);
        if (i % 3) EQUAL(p.buf[0][wc.wr_id * 64], i);
        used |= 1u << wc.wr_id;
    }
    EQUAL(used, 0xffff);
    for (uint64_t round = 0; round < 5000; round++) { /* the ring goes round */
        EQUAL(pair_recv(&p, 0, round, 0, 64), 0);
        EQUAL(pair_post(&p, round % 2, (struct ask){.op = IBV_WR_SEND, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
        for (int i = 0; i < 2; i++) {
            struct ibv_wc wc = poll_one(p.cq);
            EQUAL(wc.status, 0);
            if (wc.opcode == IBV_WC_RECV) EQUAL(wc.wr_id, round);
        }
    }
    pair_free(&p);
    assert_no_leaks();
}

TEST(an_empty_srq_is_rnr) {
    struct pair p = pair_make((struct pair_options){.srq_wr = 4});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8, .id = 1}), 0);
    expect_wc(p.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    pair_free(&p);
}

TEST(the_limit_of_an_srq_raises_one_event) {
    struct pair p = pair_make((struct pair_options){.srq_wr = 8});
    for (uint64_t i = 0; i < 8; i++) EQUAL(pair_recv(&p, 0, i, 0, 64), 0);
    struct ibv_srq_attr attr = {.srq_limit = 6};
    EQUAL(ibv_modify_srq(p.srq, &attr, IBV_SRQ_LIMIT), 0);
    for (int i = 0; i < 2; i++) EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8}), 0);
    fcntl(p.ctx->async_fd, F_SETFL, O_NONBLOCK);
    struct ibv_async_event event;
    usleep(2000);
    FAILS(ibv_get_async_event(p.ctx, &event) == -1, EAGAIN);
    for (int i = 0; i < 2; i++) EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8}), 0);
    CHECK(becomes_readable(p.ctx->async_fd));
    CHECK(!ibv_get_async_event(p.ctx, &event));
    EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    CHECK(event.element.srq == p.srq);
    FAILS(ibv_get_async_event(p.ctx, &event) == -1, EAGAIN);
    EQUAL(ibv_query_srq(p.srq, &attr), 0);
    EQUAL(attr.srq_limit, 0);
    EQUAL(attr.max_wr, 8);
    pair_free(&p);
}

TEST(a_failed_queue_pair_leaves_the_srq_to_the_others) {
    struct pair p = pair_make((struct pair_options){.srq_wr = 8});
    for (uint64_t i = 0; i < 2; i++) EQUAL(pair_recv(&p, 0, i, 0, 64), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE), 0);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(p.ctx, &event));
    EQUAL(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    CHECK(stays_empty(p.cq));
    EQUAL(ibv_destroy_srq(p.srq), EBUSY);
    pair_free(&p);
}
