/* Large READs and WRITEs, which a thread of the device copies. Their parts have 64 KiB. */
#include "rig.h"

#define SIGNALED IBV_SEND_SIGNALED
#define WRITE    IBV_WR_RDMA_WRITE
#define READ     IBV_WR_RDMA_READ
#define BYTES    (16u << 20)
#define HUGE     (64u << 20)
#define MANY     60 /* of these take the device so long that it is still at them when the test goes on */

TEST(a_large_write_and_a_large_read_move_all_bytes_and_no_others) {
    struct pair p = pair_make((struct pair_options){.bytes = BYTES});
    const uint32_t lengths[] = {65535, 65536, 65537, 262143, 262144, 3 << 20, (3 << 20) + 61};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int reads = 0; reads < 2; reads++) {
            uint32_t len = lengths[i], at = 4097 + i, to = 8191 - i;
            uint8_t *into = reads ? p.buf[0] + at : p.buf[1] + to, *from = reads ? p.buf[1] + to : p.buf[0] + at;
            memset(into - 1, 0xee, len + 2);
            for (uint32_t k = 0; k < len; k++) from[k] = (uint8_t)(k * 13 + i);
            struct ask a = {.op = reads ? READ : WRITE, .id = i, .at = at, .to = to, .len = len, .flags = SIGNALED};
            EQUAL(pair_post(&p, 0, a), 0);
            struct ibv_wc wc = poll_one(p.cq);
            EQUAL(wc.status, 0);
            if (reads) EQUAL(wc.byte_len, len);
            CHECK(!memcmp(into, from, len));
            CHECK(into[-1] == 0xee && into[len] == 0xee);
        }
    }
    pair_free(&p);
    assert_no_leaks();
}

TEST(what_is_posted_behind_a_large_write_arrives_after_its_bytes) {
    struct pair p = pair_make((struct pair_options){.bytes = BYTES, .separate_cqs = true});
    for (int turn = 1; turn < 20; turn++) {
        memset(p.buf[0], turn, BYTES);
        EQUAL(pair_recv(&p, 1, 7, 0, 0), 0);
        EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .id = 1, .len = BYTES / 2, .flags = SIGNALED}), 0);
        EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .id = 2, .to = BYTES / 2, .len = 8, .flags = SIGNALED}), 0);
        EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 3, .flags = SIGNALED}), 0);
        expect_wc(p.cq2, 7, IBV_WC_SUCCESS);
        for (uint32_t at = 0; at <= BYTES / 2; at += 4096) EQUAL(p.buf[1][at], turn);
        for (uint64_t id = 1; id <= 3; id++) expect_wc(p.cq, id, IBV_WC_SUCCESS);
    }
    pair_free(&p);
}

TEST(a_sleeping_program_is_woken_by_the_end_of_a_large_read) {
    struct pair p = pair_make((struct pair_options){.bytes = BYTES, .events = true});
    EQUAL(ibv_req_notify_cq(p.cq, 0), 0);
    EQUAL(pair_post(&p, 0, (struct ask){.op = READ, .id = 4, .len = BYTES, .flags = SIGNALED}), 0);
    struct ibv_cq *cq;
    void *context;
    EQUAL(ibv_get_cq_event(p.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    expect_wc(p.cq, 4, IBV_WC_SUCCESS);
    pair_free(&p);
}

TEST(several_queue_pairs_take_turns_with_large_requests) {
    struct pair p = pair_make((struct pair_options){.bytes = BYTES}), q = p;
    struct pair_options o = {0};
    for (int i = 0; i < 2; i++) EQUAL(qp_init(q.qp[i] = qp_make(&p, p.cq), 0), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rtr(q.qp[i], q.qp[!i]->qp_num, &o), 0);
    for (int i = 0; i < 2; i++) EQUAL(qp_rts(q.qp[i], &o), 0);
    for (uint64_t id = 0; id < 4; id++)
        EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .id = id, .len = BYTES, .flags = SIGNALED}), 0);
    EQUAL(pair_post(&q, 0, (struct ask){.op = READ, .id = 9, .len = 1 << 20, .flags = SIGNALED}), 0);
    bool seen[10] = {false};
    for (int n = 0; n < 5; n++) {
        struct ibv_wc wc = poll_one(p.cq);
        EQUAL(wc.status, 0);
        seen[wc.wr_id] = true;
        if (n == 4) CHECK(wc.wr_id != 9); /* it is not the last: it did not wait for all that was before it */
    }
    CHECK(seen[0] && seen[1] && seen[2] && seen[3] && seen[9]);
    for (int i = 0; i < 2; i++) EQUAL(ibv_destroy_qp(q.qp[i]), 0);
    pair_free(&p);
}

static void post_many(struct pair *p, enum ibv_wr_opcode op) {
    for (uint64_t id = 0; id < MANY; id++)
        EQUAL(pair_post(p, 0, (struct ask){.op = op, .id = id, .len = HUGE, .flags = SIGNALED}), 0);
}

/* The requests end in order: some well, one with this status, all behind it are flushed. */
static void expect_many_to_end(struct pair *p, enum ibv_wc_status status) {
    enum ibv_wc_status last = IBV_WC_SUCCESS;
    for (uint64_t id = 0; id < MANY; id++) {
        struct ibv_wc wc = poll_one(p->cq);
        EQUAL(wc.wr_id, id);
        if (last == IBV_WC_SUCCESS && wc.status != IBV_WC_SUCCESS)
            EQUAL(wc.status, status);
        else
            EQUAL(wc.status, last == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
        last = wc.status;
    }
    CHECK(last != IBV_WC_SUCCESS);
}

static void expect_untouched(const uint8_t *memory, uint8_t value) {
    for (uint32_t at = 0; at < HUGE; at += 4096) EQUAL(memory[at], value);
}

TEST(a_region_withdrawn_under_a_large_write_ends_it_with_an_access_error) {
    struct pair p = pair_make((struct pair_options){.bytes = HUGE});
    post_many(&p, WRITE);
    EQUAL(ibv_dereg_mr(p.mr[1]), 0);
    p.mr[1] = NULL;
    memset(p.buf[1], 0x5a, HUGE);
    expect_many_to_end(&p, IBV_WC_REM_ACCESS_ERR);
    expect_untouched(p.buf[1], 0x5a);
    pair_free(&p);
}

TEST(local_memory_withdrawn_under_a_large_read_is_a_local_protection_error) {
    struct pair p = pair_make((struct pair_options){.bytes = HUGE});
    post_many(&p, READ);
    EQUAL(ibv_dereg_mr(p.mr[0]), 0);
    p.mr[0] = NULL;
    memset(p.buf[0], 0x5a, HUGE);
    expect_many_to_end(&p, IBV_WC_LOC_PROT_ERR);
    expect_untouched(p.buf[0], 0x5a);
    pair_free(&p);
}

TEST(after_the_error_state_nothing_writes_to_the_memory_of_flushed_requests) {
    struct pair p = pair_make((struct pair_options){.bytes = HUGE});
    post_many(&p, READ);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE), 0);
    memset(p.buf[0], 0x5a, HUGE);
    expect_many_to_end(&p, IBV_WC_WR_FLUSH_ERR);
    CHECK(stays_empty(p.cq));
    expect_untouched(p.buf[0], 0x5a);
    pair_free(&p);
}

TEST(a_queue_pair_is_destroyed_and_reset_amid_large_requests) {
    for (int turn = 0; turn < 4; turn++) {
        struct pair p = pair_make((struct pair_options){.bytes = BYTES});
        for (uint64_t id = 0; id < 8; id++)
            EQUAL(pair_post(&p, 0, (struct ask){.op = id % 2 ? READ : WRITE, .id = id, .len = BYTES}), 0);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        if (turn % 2) EQUAL(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE), 0);
        EQUAL(ibv_destroy_qp(p.qp[0]), 0);
        p.qp[0] = NULL;
        memset(p.buf[0], turn, BYTES);
        for (uint32_t at = 0; at < BYTES; at += 4096) EQUAL(p.buf[0][at], turn);
        pair_free(&p);
    }
    assert_no_leaks();
}

static void reader_that_dies(int sock) {
    struct end e = {0};
    end_connect(&e, (uint16_t)hear(sock));
    struct ask a = {.op = hear(sock) ? WRITE : READ, .len = END_BYTES};
    for (int i = 0; i < 60; i++) EQUAL(end_post(&e, a), 0);
    _exit(0);
}

TEST(a_process_that_dies_amid_large_requests_disturbs_nobody) {
    for (uint64_t writes = 0; writes < 2; writes++) {
        struct other o = other_start(reader_that_dies);
        struct end e = {0};
        tell(o.sock, end_listen(&e));
        end_accept(&e);
        tell(o.sock, writes);
        other_wait(&o);
        expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
        end_free(&e);
    }
    assert_no_leaks();
}

TEST(without_the_thread_the_poster_copies) {
    setenv("SOFTRDMA_BULK", "0", 1);
    struct pair p = pair_make((struct pair_options){.bytes = BYTES});
    EQUAL(pair_post(&p, 0, (struct ask){.op = WRITE, .id = 1, .len = BYTES, .flags = SIGNALED}), 0);
    CHECK(!memcmp(p.buf[0], p.buf[1], BYTES)); /* it is there before ibv_post_send has returned */
    expect_wc(p.cq, 1, IBV_WC_SUCCESS);
    pair_free(&p);
}
