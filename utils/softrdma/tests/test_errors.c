/* What goes wrong, and how both sides see it. */
#include "rig.h"

#define SIGNALED IBV_SEND_SIGNALED
#define WRITE    IBV_WR_RDMA_WRITE

static enum ibv_event_type async_type(struct ibv_context *ctx) {
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(ctx, &event));
    ibv_ack_async_event(&event);
    return event.event_type;
}

static void expect_broken(struct pair *p, struct ask a, enum ibv_wc_status status) {
    a.flags |= SIGNALED;
    a.id = 99;
    EQUAL(pair_post(p, 0, a), 0);
    expect_wc(p->cq, 99, status);
    EQUAL(qp_state(p->qp[0]), IBV_QPS_ERR);
}

TEST(a_wrong_rkey_is_a_remote_access_error_on_both_sides) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .rkey = p.mr[1]->rkey + 1}, IBV_WC_REM_ACCESS_ERR);
    EQUAL(async_type(p.ctx), IBV_EVENT_QP_ACCESS_ERR);
    EQUAL(qp_state(p.qp[1]), IBV_QPS_ERR);
    pair_free(&p);
}

TEST(one_byte_past_a_region_is_a_remote_access_error_and_the_last_byte_is_not) {
    struct pair p = pair_make((struct pair_options){.bytes = 8192});
    EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .len = 8, .to = 8184, .flags = SIGNALED}), 0);
    expect_wc(p.cq, 0, IBV_WC_SUCCESS);
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .to = 8185}, IBV_WC_REM_ACCESS_ERR);
    pair_free(&p);
}

TEST(an_address_before_a_region_is_a_remote_access_error) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .to = (uint64_t)-1}, IBV_WC_REM_ACCESS_ERR);
    pair_free(&p);
}

TEST(rights_of_the_region_are_enforced) {
    struct pair p = pair_make((struct pair_options){.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8, .flags = SIGNALED}), 0);
    expect_wc(p.cq, 0, IBV_WC_SUCCESS);
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8}, IBV_WC_REM_ACCESS_ERR);
    pair_free(&p);
}

TEST(rights_of_the_queue_pair_are_enforced) {
    struct pair p = pair_make((struct pair_options){.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
    expect_broken(&p, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8}, IBV_WC_REM_INV_REQ_ERR);
    EQUAL(async_type(p.ctx), IBV_EVENT_QP_REQ_ERR);
    pair_free(&p);
}

TEST(a_region_of_another_protection_domain_is_out_of_reach) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_pd *pd = ibv_alloc_pd(p.ctx);
    struct ibv_mr *mr = ibv_reg_mr(pd, p.buf[1], 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr);
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .rkey = mr->rkey}, IBV_WC_REM_ACCESS_ERR);
    EQUAL(ibv_dealloc_pd(pd), EBUSY);
    EQUAL(ibv_dereg_mr(mr), 0);
    EQUAL(ibv_dealloc_pd(pd), 0);
    pair_free(&p);
}

TEST(a_wrong_lkey_is_a_local_protection_error) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .lkey = 0x7fffff00}, IBV_WC_LOC_PROT_ERR);
    EQUAL(qp_state(p.qp[1]), IBV_QPS_RTS); /* the other side never heard of it */
    pair_free(&p);
}

TEST(a_deregistered_region_is_dead_for_both_keys) {
    struct pair p = pair_make((struct pair_options){0});
    uint32_t rkey = p.mr[1]->rkey;
    EQUAL(ibv_dereg_mr(p.mr[1]), 0);
    CHECK((p.mr[1] = ibv_reg_mr(p.pd, p.buf[1], 65536, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
    CHECK(p.mr[1]->rkey != rkey);
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8, .rkey = rkey}, IBV_WC_REM_ACCESS_ERR);
    pair_free(&p);
}

TEST(reading_into_memory_without_local_write_is_a_local_protection_error) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_mr *mr = ibv_reg_mr(p.pd, p.buf[0], 4096, 0);
    expect_broken(&p, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8, .lkey = mr->lkey}, IBV_WC_LOC_PROT_ERR);
    EQUAL(ibv_dereg_mr(mr), 0);
    pair_free(&p);
}

TEST(a_send_too_long_for_its_receive_fails_on_both_sides) {
    struct pair p = pair_make((struct pair_options){.separate_cqs = true});
    EQUAL(pair_recv(&p, 1, 6, 0, 10), 0);
    EQUAL(pair_recv(&p, 1, 7, 0, 10), 0);
    expect_broken(&p, (struct ask){.op = IBV_WR_SEND, .len = 11}, IBV_WC_REM_INV_REQ_ERR);
    expect_wc(p.cq2, 6, IBV_WC_LOC_LEN_ERR);
    expect_wc(p.cq2, 7, IBV_WC_WR_FLUSH_ERR);
    EQUAL(qp_state(p.qp[1]), IBV_QPS_ERR);
    pair_free(&p);
}

TEST(a_receive_into_foreign_memory_is_a_local_protection_error_there) {
    struct pair p = pair_make((struct pair_options){.separate_cqs = true});
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[1], 100, 0x7fffff00};
    struct ibv_recv_wr wr = {.wr_id = 6, .sg_list = &sge, .num_sge = 1}, *bad;
    EQUAL(ibv_post_recv(p.qp[1], &wr, &bad), 0);
    expect_broken(&p, (struct ask){.op = IBV_WR_SEND, .len = 11}, IBV_WC_REM_OP_ERR);
    expect_wc(p.cq2, 6, IBV_WC_LOC_PROT_ERR);
    pair_free(&p);
}

TEST(an_unaligned_atomic_is_an_invalid_request) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .to = 4}, IBV_WC_REM_INV_REQ_ERR);
    pair_free(&p);
}

TEST(an_atomic_of_four_bytes_is_a_local_length_error) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 4}, IBV_WC_LOC_LEN_ERR);
    pair_free(&p);
}

TEST(reads_need_resources_of_the_initiator) {
    struct pair p = pair_make((struct pair_options){.rd_atomic = -1});
    expect_broken(&p, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8}, IBV_WC_LOC_QP_OP_ERR);
    pair_free(&p);
}

TEST(reads_need_resources_of_the_responder) {
    struct pair p = pair_make((struct pair_options){.dest_rd_atomic = -1});
    expect_broken(&p, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8}, IBV_WC_REM_INV_REQ_ERR);
    pair_free(&p);
}

TEST(without_a_receive_and_without_retries_the_first_message_fails) {
    struct pair p = pair_make((struct pair_options){.rnr_retry = 0});
    expect_broken(&p, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 8}, IBV_WC_RNR_RETRY_EXC_ERR);
    pair_free(&p);
}

TEST(rnr_retries_are_counted_and_take_their_time) {
    struct pair p = pair_make((struct pair_options){.rnr_retry = 3, .rnr_timer = 20}); /* 10.24 ms */
    uint64_t start = now_us();
    expect_broken(&p, (struct ask){.op = IBV_WR_SEND, .len = 8}, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(now_us() - start >= 30000);
    pair_free(&p);
}

TEST(rnr_retry_7_waits_until_a_receive_is_posted_and_keeps_order) {
    struct pair p = pair_make((struct pair_options){.rnr_retry = 7});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .imm = 1, .len = 8}), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8, .flags = SIGNALED, .id = 5}), 0);
    CHECK(stays_empty(p.cq));
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .imm = 2, .len = 8}), 0);
    for (uint64_t i = 0; i < 2; i++) EQUAL(pair_recv(&p, 1, 10 + i, 0, 0), 0);
    uint32_t imm = 0;
    for (int i = 0; i < 3; i++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, 0);
        if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) EQUAL(wc.imm_data, ++imm);
    }
    EQUAL(imm, 2);
    EQUAL(counters().stalls, 1);
    pair_free(&p);
}

TEST(a_failed_queue_pair_flushes_both_its_queues) {
    struct pair p = pair_make((struct pair_options){.rnr_retry = 7, .separate_cqs = true});
    for (uint64_t i = 0; i < 3; i++) EQUAL(pair_recv(&p, 0, 10 + i, 0, 64), 0);
    for (uint64_t i = 0; i < 2; i++) EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8, .id = i}), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE), 0);
    int sends = 0, recvs = 0;
    for (int i = 0; i < 5; i++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
        if (wc.wr_id >= 10)
            EQUAL(wc.wr_id, 10 + recvs++);
        else
            EQUAL(wc.wr_id, sends++);
    }
    EQUAL(sends, 2);
    EQUAL(recvs, 3);
    /* what is posted from now on is flushed too, signaled or not */
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8, .id = 33}), 0);
    expect_wc(p.cq, 33, IBV_WC_WR_FLUSH_ERR);
    EQUAL(pair_recv(&p, 0, 34, 0, 64), 0);
    expect_wc(p.cq, 34, IBV_WC_WR_FLUSH_ERR);
    pair_free(&p);
}

TEST(requests_behind_a_failed_one_in_a_chain_are_flushed) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_send_wr wr[3] = {{.wr_id = 1, .opcode = WRITE},
                                {.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
                                {.wr_id = 3, .opcode = WRITE}},
                       *bad;
    wr[0].next = &wr[1];
    wr[1].next = &wr[2];
    EQUAL(ibv_post_send(p.qp[0], wr, &bad), 0);
    expect_wc(p.cq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
    expect_wc(p.cq, 3, IBV_WC_WR_FLUSH_ERR);
    CHECK(stays_empty(p.cq));
    pair_free(&p);
}

TEST(sends_to_a_queue_pair_in_error_time_out) {
    struct pair p = pair_make((struct pair_options){.timeout = 12, .retry_cnt = 3}); /* 4 * 16.8 ms */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EQUAL(ibv_modify_qp(p.qp[1], &attr, IBV_QP_STATE), 0);
    uint64_t start = now_us();
    expect_broken(&p, (struct ask){.op = WRITE, .len = 8}, IBV_WC_RETRY_EXC_ERR);
    CHECK(now_us() - start >= 67000);
    pair_free(&p);
}

TEST(sends_to_a_destroyed_queue_pair_time_out) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(ibv_destroy_qp(p.qp[1]), 0);
    p.qp[1] = NULL;
    expect_broken(&p, (struct ask){.op = IBV_WR_SEND, .len = 8}, IBV_WC_RETRY_EXC_ERR);
    pair_free(&p);
}

TEST(sends_to_a_number_nobody_has_time_out) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_qp *qp = qp_make(&p, p.cq);
    EQUAL(qp_init(qp, 0), 0);
    EQUAL(qp_rtr(qp, 0xffffff, &p.o), 0);
    EQUAL(qp_rts(qp, &p.o), 0);
    struct ibv_send_wr wr = {.wr_id = 4, .opcode = WRITE}, *bad;
    EQUAL(ibv_post_send(qp, &wr, &bad), 0);
    expect_wc(p.cq, 4, IBV_WC_RETRY_EXC_ERR);
    EQUAL(ibv_destroy_qp(qp), 0);
    pair_free(&p);
}

TEST(a_queue_pair_takes_messages_from_its_own_peer_only) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_qp *foreign = qp_make(&p, p.cq);
    EQUAL(qp_init(foreign, 0), 0);
    EQUAL(qp_rtr(foreign, p.qp[1]->qp_num, &p.o), 0);
    EQUAL(qp_rts(foreign, &p.o), 0);
    struct ibv_send_wr wr = {.wr_id = 4, .opcode = WRITE}, *bad;
    EQUAL(ibv_post_send(foreign, &wr, &bad), 0);
    expect_wc(p.cq, 4, IBV_WC_RETRY_EXC_ERR);
    EQUAL(ibv_destroy_qp(foreign), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .len = 8, .id = 1, .flags = SIGNALED}), 0);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    pair_free(&p);
}

TEST(a_queue_pair_can_be_reset_and_connected_again) {
    struct pair p = pair_make((struct pair_options){0});
    expect_broken(&p, (struct ask){.op = IBV_WR_SEND, .len = 8}, IBV_WC_RNR_RETRY_EXC_ERR);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        EQUAL(ibv_modify_qp(p.qp[i], &attr, IBV_QP_STATE), 0);
        EQUAL(qp_init(p.qp[i], 0), 0);
    }
    for (int i = 0; i < 2; i++) EQUAL(qp_rtr(p.qp[i], p.qp[!i]->qp_num, &p.o), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rts(p.qp[i], &p.o), 0);
    EQUAL(pair_recv(&p, 1, 1, 0, 64), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 8}), 0);
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    pair_free(&p);
}

TEST(posting_in_the_wrong_state_is_refused) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_qp *qp = qp_make(&p, p.cq);
    struct ibv_send_wr wr = {.opcode = WRITE}, *bad;
    struct ibv_recv_wr rwr = {0}, *rbad;
    EQUAL(ibv_post_send(qp, &wr, &bad), EINVAL);
    EQUAL(ibv_post_recv(qp, &rwr, &rbad), EINVAL);
    EQUAL(qp_init(qp, 0), 0);
    EQUAL(ibv_post_recv(qp, &rwr, &rbad), 0);
    EQUAL(ibv_post_send(qp, &wr, &bad), EINVAL);
    EQUAL(qp_rtr(qp, p.qp[0]->qp_num, &p.o), 0);
    EQUAL(ibv_post_send(qp, &wr, &bad), EINVAL);
    EQUAL(ibv_destroy_qp(qp), 0);
    pair_free(&p);
}

TEST(the_state_machine_refuses_shortcuts_and_missing_attributes) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_qp *qp = qp_make(&p, p.cq);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    EQUAL(qp_rtr(qp, 5, &p.o), EINVAL);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX), EINVAL); /* no access flags */
    attr.port_num = 2;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), EINVAL);
    EQUAL(qp_init(qp, 0), 0);
    EQUAL(qp_rts(qp, &p.o), EINVAL);
    EQUAL(qp_state(qp), IBV_QPS_INIT);
    EQUAL(ibv_destroy_qp(qp), 0);
    pair_free(&p);
}

TEST(a_drained_send_queue_holds_requests_until_it_runs_again) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    EQUAL(async_type(p.ctx), IBV_EVENT_SQ_DRAINED);
    EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .len = 8, .id = 3, .flags = SIGNALED}), 0);
    CHECK(stays_empty(p.cq));
    attr.qp_state = IBV_QPS_RTS;
    EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE), 0);
    expect_wc(p.cq, 3, IBV_WC_SUCCESS);
    pair_free(&p);
}

TEST(unsupported_requests_are_refused) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND_WITH_INV}), EINVAL);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_BIND_MW}), EINVAL);
    struct ibv_sge sges[5] = {{0}};
    struct ibv_send_wr wr = {.sg_list = sges, .num_sge = 5, .opcode = WRITE}, *bad;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), EINVAL);
    struct ibv_recv_wr rwr = {.sg_list = sges, .num_sge = 5}, *rbad;
    EQUAL(ibv_post_recv(p.qp[0], &rwr, &rbad), EINVAL);
    struct ibv_qp_init_attr attr = {.send_cq = p.cq, .recv_cq = p.cq, .qp_type = IBV_QPT_UD};
    FAILS(!ibv_create_qp(p.pd, &attr), EOPNOTSUPP);
    struct ibv_ah_attr ah = {.port_num = 1};
    FAILS(!ibv_create_ah(p.pd, &ah), EOPNOTSUPP);
    pair_free(&p);
}
