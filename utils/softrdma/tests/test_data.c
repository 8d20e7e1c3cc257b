/* What a connected pair does when all is well, and the accounting of its queues. */
#include "rig.h"

TEST(a_write_arrives_in_the_remote_buffer_and_nowhere_else) {
    struct pair p = pair_make((struct pair_options){0});
    uint8_t before = p.buf[1][99], after = p.buf[1][200];
    EQUAL(pair_post(&p, 0,
                    (struct ask){
                        .op = IBV_WR_RDMA_WRITE, .id = 5, .at = 7, .to = 100, .len = 100, .flags = IBV_SEND_SIGNALED}),
          0);
    struct ibv_wc wc = poll_one(p.cq);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    EQUAL(wc.wr_id, 5);
    EQUAL(wc.qp_num, p.qp[0]->qp_num);
    CHECK(!memcmp(p.buf[1] + 100, p.buf[0] + 7, 100));
    EQUAL(p.buf[1][99], before);
    EQUAL(p.buf[1][200], after);
    pair_free(&p);
    assert_no_leaks();
}

TEST(write_with_imm_consumes_a_receive_and_carries_length_and_immediate) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_recv(&p, 1, 77, 0, 0), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 48, .imm = htonl(0x12345678)}), 0);
    struct ibv_wc wc = poll_one(p.cq);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EQUAL(wc.wr_id, 77);
    EQUAL(wc.byte_len, 48);
    EQUAL(ntohl(wc.imm_data), 0x12345678);
    CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
    EQUAL(wc.qp_num, p.qp[1]->qp_num);
    CHECK(stays_empty(p.cq)); /* the write was not signaled */
    pair_free(&p);
}

TEST(a_send_is_scattered_over_the_buffers_of_a_receive) {
    struct pair p = pair_make((struct pair_options){0});
    uint64_t base = (uint64_t)(uintptr_t)p.buf[1];
    struct ibv_sge to[3] = {
        {base, 10, p.mr[1]->lkey}, {base + 1000, 1, p.mr[1]->lkey}, {base + 8000, 500, p.mr[1]->lkey}};
    struct ibv_recv_wr rwr = {.wr_id = 3, .sg_list = to, .num_sge = 3}, *rbad;
    EQUAL(ibv_post_recv(p.qp[1], &rwr, &rbad), 0);
    uint64_t local = (uint64_t)(uintptr_t)p.buf[0];
    struct ibv_sge from[2] = {{local + 5, 4, p.mr[0]->lkey}, {local + 50, 96, p.mr[0]->lkey}};
    struct ibv_send_wr wr = {.wr_id = 4,
                             .sg_list = from,
                             .num_sge = 2,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    uint8_t sent[100];
    memcpy(sent, p.buf[0] + 5, 4);
    memcpy(sent + 4, p.buf[0] + 50, 96);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, 0);
        if (wc.opcode == IBV_WC_RECV) EQUAL(wc.byte_len, 100);
    }
    CHECK(!memcmp(p.buf[1], sent, 10) && p.buf[1][1000] == sent[10] && !memcmp(p.buf[1] + 8000, sent + 11, 89));
    pair_free(&p);
}

TEST(send_with_imm_and_zero_length_messages_complete) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(pair_recv(&p, 1, 1, 0, 64), 0);
    EQUAL(pair_recv(&p, 1, 2, 0, 0), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND_WITH_IMM, .len = 9, .imm = 42}), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND}), 0);
    struct ibv_wc wc = poll_one(p.cq);
    EQUAL(wc.opcode, IBV_WC_RECV);
    EQUAL(wc.imm_data, 42);
    EQUAL(wc.byte_len, 9);
    wc = poll_one(p.cq);
    EQUAL(wc.wr_id, 2);
    EQUAL(wc.byte_len, 0);
    EQUAL(wc.wc_flags, 0);
    pair_free(&p);
}

TEST(a_read_fetches_remote_bytes) {
    struct pair p = pair_make((struct pair_options){0});
    EQUAL(
        pair_post(&p, 0,
                  (struct ask){
                      .op = IBV_WR_RDMA_READ, .id = 1, .at = 3, .to = 5000, .len = 10000, .flags = IBV_SEND_SIGNALED}),
        0);
    struct ibv_wc wc = poll_one(p.cq);
    EQUAL(wc.status, 0);
    EQUAL(wc.opcode, IBV_WC_RDMA_READ);
    EQUAL(wc.byte_len, 10000);
    CHECK(!memcmp(p.buf[0] + 3, p.buf[1] + 5000, 10000));
    pair_free(&p);
}

TEST(atomics_return_the_old_value_and_change_the_remote_word) {
    struct pair p = pair_make((struct pair_options){0});
    uint64_t *word = (uint64_t *)(p.buf[1] + 64), *result = (uint64_t *)p.buf[0];
    *word = 100;
    EQUAL(pair_post(
              &p, 0,
              (struct ask){
                  .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .to = 64, .len = 8, .compare = 11, .flags = IBV_SEND_SIGNALED}),
          0);
    EQUAL(poll_one(p.cq).opcode, IBV_WC_FETCH_ADD);
    EQUAL(*result, 100);
    EQUAL(*word, 111);
    EQUAL(pair_post(&p, 0,
                    (struct ask){.op = IBV_WR_ATOMIC_CMP_AND_SWP,
                                 .to = 64,
                                 .len = 8,
                                 .compare = 5,
                                 .swap = 9,
                                 .flags = IBV_SEND_SIGNALED}),
          0);
    EQUAL(poll_one(p.cq).opcode, IBV_WC_COMP_SWAP);
    EQUAL(*result, 111);
    EQUAL(*word, 111);
    EQUAL(pair_post(&p, 0,
                    (struct ask){.op = IBV_WR_ATOMIC_CMP_AND_SWP,
                                 .to = 64,
                                 .len = 8,
                                 .compare = 111,
                                 .swap = 9,
                                 .flags = IBV_SEND_SIGNALED}),
          0);
    EQUAL(poll_one(p.cq).status, 0);
    EQUAL(*word, 9);
    pair_free(&p);
}

TEST(inline_data_may_be_reused_at_once_and_needs_no_key) {
    struct pair p = pair_make((struct pair_options){.inline_data = 220});
    uint8_t mine[220];
    memset(mine, 0xab, sizeof(mine));
    struct ibv_sge sge = {(uint64_t)(uintptr_t)mine, sizeof(mine), 0};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)p.buf[1];
    wr.wr.rdma.rkey = p.mr[1]->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    memset(mine, 0, sizeof(mine));
    EQUAL(poll_one(p.cq).status, 0);
    for (int i = 0; i < 220; i++) EQUAL(p.buf[1][i], 0xab);
    pair_free(&p);
}

TEST(more_inline_data_than_granted_is_refused) {
    struct pair p = pair_make((struct pair_options){.inline_data = 64});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 65, .flags = IBV_SEND_INLINE}), EINVAL);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_READ, .len = 8, .flags = IBV_SEND_INLINE}), EINVAL);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 64, .flags = IBV_SEND_INLINE}), 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = p.cq, .recv_cq = p.cq, .cap = {.max_inline_data = 100000}, .qp_type = IBV_QPT_RC};
    FAILS(!ibv_create_qp(p.pd, &attr), EINVAL);
    pair_free(&p);
}

TEST(every_size_from_0_to_300_arrives_whole) {
    struct pair p = pair_make((struct pair_options){.inline_data = 220});
    for (uint32_t len = 0; len <= 300; len++) {
        memset(p.buf[1], 0xee, 400);
        for (uint32_t i = 0; i < 300; i++) p.buf[0][i] = (uint8_t)(i + len);
        unsigned flags = IBV_SEND_SIGNALED | (len <= 220 && len % 2 ? IBV_SEND_INLINE : 0);
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = len, .to = 1, .flags = flags}), 0);
        EQUAL(poll_one(p.cq).status, 0);
        CHECK(!memcmp(p.buf[1] + 1, p.buf[0], len));
        EQUAL(p.buf[1][0], 0xee);
        EQUAL(p.buf[1][len + 1], 0xee);
    }
    pair_free(&p);
}

TEST(a_chain_is_carried_out_in_order_with_one_doorbell) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_send_wr wr[10] = {0}, *bad;
    struct ibv_sge sge[10];
    for (int i = 0; i < 10; i++) {
        EQUAL(pair_recv(&p, 1, (uint64_t)i, 0, 0), 0);
        sge[i] = (struct ibv_sge){(uint64_t)(uintptr_t)p.buf[0], 4, p.mr[0]->lkey};
        wr[i] = (struct ibv_send_wr){.next = i < 9 ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                     .imm_data = (uint32_t)i};
        wr[i].wr.rdma.remote_addr = (uint64_t)(uintptr_t)p.buf[1];
        wr[i].wr.rdma.rkey = p.mr[1]->rkey;
    }
    uint64_t doorbells = counters().doorbells;
    EQUAL(ibv_post_send(p.qp[0], wr, &bad), 0);
    EQUAL(counters().doorbells - doorbells, 1);
    for (uint32_t i = 0; i < 10; i++) EQUAL(poll_one(p.cq).imm_data, i);
    pair_free(&p);
}

TEST(a_full_send_queue_answers_enomem_and_names_the_bad_request) {
    struct pair p = pair_make((struct pair_options){.send_wr = 4});
    struct ibv_send_wr wr[6] = {0}, *bad = NULL;
    for (int i = 0; i < 6; i++)
        wr[i] = (struct ibv_send_wr){.next = i < 5 ? &wr[i + 1] : NULL, .opcode = IBV_WR_RDMA_WRITE};
    EQUAL(ibv_post_send(p.qp[0], wr, &bad), ENOMEM);
    CHECK(bad == &wr[4]);
    pair_free(&p);
}

TEST(unsignaled_sends_keep_their_slots_until_a_later_signaled_one_is_polled) {
    struct pair p = pair_make((struct pair_options){.send_wr = 4});
    struct ask quiet = {.op = IBV_WR_RDMA_WRITE, .len = 4},
               loud = {.op = IBV_WR_RDMA_WRITE, .len = 4, .flags = IBV_SEND_SIGNALED};
    for (int i = 0; i < 3; i++) EQUAL(pair_post(&p, 0, quiet), 0);
    EQUAL(pair_post(&p, 0, loud), 0);
    EQUAL(pair_post(&p, 0, quiet), ENOMEM); /* completed, but not polled */
    EQUAL(poll_one(p.cq).status, 0);
    for (int i = 0; i < 4; i++) EQUAL(pair_post(&p, 0, quiet), 0);
    EQUAL(pair_post(&p, 0, loud), ENOMEM); /* and now nothing can ever free them */
    CHECK(stays_empty(p.cq));
    EQUAL(pair_post(&p, 0, loud), ENOMEM);
    pair_free(&p);
}

TEST(sq_sig_all_signals_everything) {
    struct pair p = pair_make((struct pair_options){.sig_all = true});
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 8, .len = 4}), 0);
    expect_wc(p.cq, 8, IBV_WC_SUCCESS);
    pair_free(&p);
}

TEST(a_full_receive_queue_answers_enomem_until_a_completion_is_polled) {
    struct pair p = pair_make((struct pair_options){.recv_wr = 3});
    for (uint64_t i = 0; i < 3; i++) EQUAL(pair_recv(&p, 1, i, 0, 0), 0);
    EQUAL(pair_recv(&p, 1, 3, 0, 0), ENOMEM);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM}), 0);
    EQUAL(pair_recv(&p, 1, 3, 0, 0), ENOMEM);
    expect_wc(p.cq, 0, IBV_WC_SUCCESS);
    EQUAL(pair_recv(&p, 1, 3, 0, 0), 0);
    pair_free(&p);
}

TEST(a_receive_ring_can_go_round_many_times) {
    struct pair p = pair_make((struct pair_options){.recv_wr = 5, .send_wr = 8});
    for (uint64_t i = 0; i < 5; i++) EQUAL(pair_recv(&p, 1, i, 0, 0), 0);
    for (uint64_t i = 0; i < 700000; i++) {
        EQUAL(pair_post(&p, 0,
                        (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM,
                                     .imm = (uint32_t)i,
                                     .flags = i % 4 ? 0 : IBV_SEND_SIGNALED}),
              0);
        for (int got = 0; got < (i % 4 ? 1 : 2); got++) {
            struct ibv_wc wc = poll_one(p.cq);
            if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
            EQUAL(wc.imm_data, i);
            EQUAL(wc.wr_id, i % 5);
        }
        EQUAL(pair_recv(&p, 1, i % 5, 0, 0), 0);
    }
    pair_free(&p);
}

TEST(buffers_without_a_whole_page_work_as_well) {
    struct pair p = pair_make((struct pair_options){.bytes = 256, .unaligned = true});
    EQUAL(pair_recv(&p, 1, 1, 100, 100), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_SEND, .len = 100}), 0);
    EQUAL(poll_one(p.cq).byte_len, 100);
    CHECK(!memcmp(p.buf[1] + 100, p.buf[0], 100));
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_READ, .len = 50, .to = 200, .flags = IBV_SEND_SIGNALED}), 0);
    EQUAL(poll_one(p.cq).status, 0);
    CHECK(!memcmp(p.buf[0], p.buf[1] + 200, 50));
    uint64_t *word = (uint64_t *)p.buf[1];
    *word = 1;
    EQUAL(
        pair_post(&p, 0,
                  (struct ask){.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .compare = 5, .flags = IBV_SEND_SIGNALED}),
        0);
    EQUAL(poll_one(p.cq).status, 0);
    EQUAL(*word, 6);
    pair_free(&p);
}

/* The same between processes, where the edges of a region take another path. */
static void serve_edges(int sock) {
    struct pair_options o = {0};
    struct pair p = pair_make((struct pair_options){.bytes = 16000, .unaligned = true});
    struct ibv_qp *qp = qp_make(&p, p.cq);
    EQUAL(qp_init(qp, 0), 0);
    tell(sock, qp->qp_num);
    tell(sock, (uint64_t)(uintptr_t)p.buf[0]);
    tell(sock, p.mr[0]->rkey);
    EQUAL(qp_rtr(qp, (uint32_t)hear(sock), &o), 0);
    EQUAL(qp_rts(qp, &o), 0);
    tell(sock, 0);
    hear(sock); /* written */
    for (int i = 0; i < 16000; i++) EQUAL(p.buf[0][i], (uint8_t)(i * 3));
    *(uint64_t *)p.buf[0] = 40;
    tell(sock, 0);
    hear(sock);
    EQUAL(*(uint64_t *)p.buf[0], 42);
    EQUAL(ibv_destroy_qp(qp), 0);
    pair_free(&p);
}

TEST(another_process_reaches_partial_pages_too) {
    struct other o = other_start(serve_edges);
    struct pair p = pair_make((struct pair_options){.bytes = 16000});
    struct ibv_qp *qp = qp_make(&p, p.cq);
    EQUAL(qp_init(qp, 0), 0);
    uint32_t dest = (uint32_t)hear(o.sock);
    uint64_t addr = hear(o.sock);
    uint32_t rkey = (uint32_t)hear(o.sock);
    tell(o.sock, qp->qp_num);
    EQUAL(qp_rtr(qp, dest, &p.o), 0);
    EQUAL(qp_rts(qp, &p.o), 0);
    hear(o.sock);
    for (int i = 0; i < 16000; i++) p.buf[0][i] = (uint8_t)(i * 3);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[0], 16000, p.mr[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = rkey;
    EQUAL(ibv_post_send(qp, &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    memset(p.buf[0], 0, 16000);
    wr.opcode = IBV_WR_RDMA_READ;
    EQUAL(ibv_post_send(qp, &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    for (int i = 0; i < 16000; i++) EQUAL(p.buf[0][i], (uint8_t)(i * 3));
    CHECK(counters().edge_copies > 0);
    tell(o.sock, 0);
    hear(o.sock);
    sge.length = 8;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = addr;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = 2;
    EQUAL(ibv_post_send(qp, &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    EQUAL(*(uint64_t *)p.buf[0], 40);
    tell(o.sock, 0);
    other_join(&o);
    EQUAL(ibv_destroy_qp(qp), 0);
    pair_free(&p);
    assert_no_leaks();
}

static void serve_stream(int sock) {
    struct end e = {.rnr_retry = 7};
    tell(sock, end_listen(&e));
    end_accept(&e);
    for (uint64_t i = 0; i < 64; i++) EQUAL(end_recv(&e, i, i * 64, 64), 0);
    tell(sock, 0);
    for (uint64_t i = 0; i < 20000; i++) {
        struct ibv_wc wc = poll_one(e.cq);
        EQUAL(wc.status, 0);
        EQUAL(wc.wr_id, i % 64);
        EQUAL(*(uint64_t *)(e.buf + (i % 64) * 64), i);
        EQUAL(end_recv(&e, i % 64, (i % 64) * 64, 64), 0);
    }
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!rdma_disconnect(e.id));
    end_free(&e);
    assert_no_leaks();
}

TEST(a_stream_of_sends_between_processes_arrives_complete_and_in_order) {
    struct other o = other_start(serve_stream);
    struct end e = {.rnr_retry = 7};
    end_connect(&e, (uint16_t)hear(o.sock));
    hear(o.sock);
    for (uint64_t i = 0; i < 20000; i++) {
        *(uint64_t *)e.buf = i;
        EQUAL(end_post(&e, (struct ask){.op = IBV_WR_SEND, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
        EQUAL(poll_one(e.cq).status, 0);
    }
    end_hang_up(&e);
    end_free(&e);
    other_join(&o);
    assert_no_leaks();
}

TEST(the_newer_posting_interface_does_the_same) {
    struct pair p = pair_make((struct pair_options){.inline_data = 64});
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p.qp[0]);
    CHECK(ex);
    EQUAL(pair_recv(&p, 1, 1, 0, 0), 0);
    EQUAL(pair_recv(&p, 1, 2, 512, 64), 0);
    ibv_wr_start(ex);
    ex->wr_id = 10;
    ex->wr_flags = 0;
    ibv_wr_rdma_write(ex, p.mr[1]->rkey, (uint64_t)(uintptr_t)p.buf[1]);
    ibv_wr_set_sge(ex, p.mr[0]->lkey, (uint64_t)(uintptr_t)p.buf[0], 128);
    ibv_wr_rdma_write_imm(ex, p.mr[1]->rkey, (uint64_t)(uintptr_t)p.buf[1], 7);
    ex->wr_id = 11;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, "hello", 6);
    EQUAL(ibv_wr_complete(ex), 0);
    int seen = 0;
    for (int i = 0; i < 3; i++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, 0);
        seen |= wc.wr_id == 1 && wc.imm_data == 7 ? 1 : wc.wr_id == 2 && wc.byte_len == 6 ? 2 : wc.wr_id == 11 ? 4 : 0;
    }
    EQUAL(seen, 7);
    CHECK(!memcmp(p.buf[1], p.buf[0], 128) && !strcmp((char *)p.buf[1] + 512, "hello"));
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    CHECK(stays_empty(p.cq));
    pair_free(&p);
}
