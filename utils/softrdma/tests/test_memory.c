/* Registration, limits, fork. */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "rig.h"

#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct ctx {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
};

static struct ctx ctx_open(void) {
    struct ctx c = {.ctx = open_first()};
    CHECK((c.pd = ibv_alloc_pd(c.ctx)));
    return c;
}

static void ctx_close(struct ctx *c) {
    EQUAL(ibv_dealloc_pd(c->pd), 0);
    EQUAL(ibv_close_device(c->ctx), 0);
}

static uint8_t *pages(size_t n) {
    uint8_t *p = mmap(NULL, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

TEST(registering_keeps_the_contents_and_deregistering_too) {
    struct ctx c = ctx_open();
    uint8_t *p = pages(600);
    for (size_t i = 0; i < 600 * 4096; i += 97) p[i] = (uint8_t)(i / 97);
    struct ibv_mr *mr = ibv_reg_mr(c.pd, p + 100, 590 * 4096, RW);
    CHECK(mr && mr->addr == p + 100 && mr->length == 590 * 4096);
    for (size_t i = 0; i < 600 * 4096; i += 97) EQUAL(p[i], (uint8_t)(i / 97));
    p[97 * 50] = 1;
    EQUAL(ibv_dereg_mr(mr), 0);
    EQUAL(p[97 * 50], 1);
    p[97 * 50] = 50;
    for (size_t i = 0; i < 600 * 4096; i += 97) EQUAL(p[i], (uint8_t)(i / 97));
    ctx_close(&c);
    assert_no_leaks();
}

TEST(regions_may_overlap_and_end_in_any_order) {
    struct ctx c = ctx_open();
    uint8_t *p = pages(32);
    for (size_t i = 0; i < 32 * 4096; i++) p[i] = (uint8_t)(i * 31 / 7);
    struct ibv_mr *a = ibv_reg_mr(c.pd, p + 4096 * 8, 4096 * 8, RW);
    struct ibv_mr *b = ibv_reg_mr(c.pd, p, 4096 * 32, RW); /* three extents */
    struct ibv_mr *d = ibv_reg_mr(c.pd, p + 10, 4096 * 20, RW);
    CHECK(a && b && d);
    CHECK(a->lkey != b->lkey && b->lkey != d->lkey);
    EQUAL(ibv_dereg_mr(a), 0);
    EQUAL(ibv_dereg_mr(b), 0);
    for (size_t i = 0; i < 32 * 4096; i++) EQUAL(p[i], (uint8_t)(i * 31 / 7));
    EQUAL(ibv_dereg_mr(d), 0);
    for (size_t i = 0; i < 32 * 4096; i++) EQUAL(p[i], (uint8_t)(i * 31 / 7));
    ctx_close(&c);
}

TEST(a_region_of_several_pieces_is_reached_everywhere) {
    struct pair p = pair_make((struct pair_options){.bytes = 32 * 4096});
    uint8_t *m = pages(32);
    struct ibv_mr *part = ibv_reg_mr(p.pd, m + 4096 * 8, 4096 * 8, RW);
    struct ibv_mr *all = ibv_reg_mr(p.pd, m + 5, 4096 * 31, RW);
    CHECK(part && all);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[0], 4096 * 31, p.mr[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)m + 5;
    wr.wr.rdma.rkey = all->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    CHECK(!memcmp(m + 5, p.buf[0], 4096 * 31));
    memset(p.buf[0], 0, 4096 * 31);
    wr.opcode = IBV_WR_RDMA_READ;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    CHECK(!memcmp(m + 5, p.buf[0], 4096 * 31));
    EQUAL(ibv_dereg_mr(part), 0);
    EQUAL(ibv_dereg_mr(all), 0);
    pair_free(&p);
}

TEST(memory_unmapped_before_deregistration_is_left_alone) {
    struct ctx c = ctx_open();
    uint8_t *p = pages(16);
    struct ibv_mr *mr = ibv_reg_mr(c.pd, p, 16 * 4096, RW);
    CHECK(!munmap(p, 16 * 4096));
    uint8_t *again =
        mmap(p, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(again == p);
    memset(p, 0x5a, 16 * 4096);
    struct ibv_mr *second = ibv_reg_mr(c.pd, p, 16 * 4096, RW);
    CHECK(second);
    EQUAL(ibv_dereg_mr(mr), 0);
    for (size_t i = 0; i < 16 * 4096; i++) EQUAL(p[i], 0x5a);
    EQUAL(ibv_dereg_mr(second), 0);
    for (size_t i = 0; i < 16 * 4096; i++) EQUAL(p[i], 0x5a);
    ctx_close(&c);
}

TEST(wrong_registrations_are_refused) {
    struct ctx c = ctx_open();
    uint8_t *p = pages(4);
    FAILS(!ibv_reg_mr(c.pd, p, 0, RW), EINVAL);
    FAILS(!ibv_reg_mr(c.pd, p, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    FAILS(!ibv_reg_mr(c.pd, (void *)4096, 4096, RW), EFAULT);
    CHECK(!munmap(p + 4096 * 2, 4096));
    FAILS(!ibv_reg_mr(c.pd, p, 4096 * 4, RW), EFAULT);
    CHECK(!mprotect(p, 4096, PROT_READ));
    FAILS(!ibv_reg_mr(c.pd, p, 4096, RW), EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(c.pd, p, 4096, IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    EQUAL(ibv_dereg_mr(mr), 0);
    EQUAL(ibv_dereg_mr(mr), EINVAL);
    ctx_close(&c);
    assert_no_leaks();
}

TEST(shared_and_file_memory_can_be_registered) {
    struct pair p = pair_make((struct pair_options){0});
    uint8_t *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(p.pd, shared, 8192, RW);
    CHECK(mr);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 0}), 0);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[0], 8192, p.mr[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)shared;
    wr.wr.rdma.rkey = mr->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    CHECK(!memcmp(shared, p.buf[0], 8192));
    EQUAL(ibv_dereg_mr(mr), 0);
    pair_free(&p);
}

TEST(a_dma_buffer_is_written_without_a_mapping_of_the_program) {
    struct pair p = pair_make((struct pair_options){0});
    uint8_t got[100];
    int fd = memfd_create("buffer", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
    errno = 0;
    CHECK(!ibv_reg_dmabuf_mr(p.pd, 4096, 3 * 4096, 4096, fd, RW) && errno == EINVAL); /* beyond its end */
    CHECK(!ibv_reg_dmabuf_mr(p.pd, 4096 + 8, 100, 4096, fd, RW) && errno == EINVAL);
    CHECK(!ibv_reg_dmabuf_mr(p.pd, 0, 4096, 0, -1, RW) && errno == EBADF);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(p.pd, 4096 + 8, 4096, 0x100008, fd, RW);
    CHECK(mr);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[0], 100, p.mr[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = 0x100008 + 50;
    wr.wr.rdma.rkey = mr->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    EQUAL(pread(fd, got, 100, 4096 + 8 + 50), 100);
    CHECK(!memcmp(got, p.buf[0], 100));
    EQUAL(ibv_dereg_mr(mr), 0);
    close(fd);
    pair_free(&p);
}

TEST(an_iova_names_the_region_from_afar) {
    struct pair p = pair_make((struct pair_options){0});
    struct ibv_mr *mr = ibv_reg_mr_iova(p.pd, p.buf[1], 4096, 0x100000, RW);
    CHECK(mr);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)p.buf[0], 100, p.mr[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = 0x100000 + 50;
    wr.wr.rdma.rkey = mr->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    EQUAL(poll_one(p.cq).status, 0);
    CHECK(!memcmp(p.buf[1] + 50, p.buf[0], 100));
    EQUAL(ibv_dereg_mr(mr), 0);
    pair_free(&p);
}

TEST(the_limit_of_locked_memory_is_kept) {
    setenv("SOFTRDMA_MEMLOCK", "65536", 1);
    struct ctx c = ctx_open();
    uint8_t *p = pages(32);
    FAILS(!ibv_reg_mr(c.pd, p, 65537, RW), ENOMEM);
    struct ibv_mr *a = ibv_reg_mr(c.pd, p, 4096 * 10, RW), *b;
    CHECK(a);
    FAILS(!ibv_reg_mr(c.pd, p, 4096 * 7, RW), ENOMEM);
    EQUAL(ibv_dereg_mr(a), 0);
    CHECK((b = ibv_reg_mr(c.pd, p, 65536, RW)));
    EQUAL(ibv_dereg_mr(b), 0);
    ctx_close(&c);
}

TEST(rlimit_memlock_binds_an_ordinary_user) {
    struct rlimit limit = {65536, 65536};
    CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
    if (!geteuid()) CHECK(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
    struct ctx c = ctx_open();
    uint8_t *p = pages(32);
    FAILS(!ibv_reg_mr(c.pd, p, 65537, RW), ENOMEM);
    struct ibv_mr *mr = ibv_reg_mr(c.pd, p, 65536, RW);
    CHECK(mr);
    EQUAL(ibv_dereg_mr(mr), 0);
    ctx_close(&c);
}

TEST(limits_of_the_device_come_from_the_environment_and_are_kept) {
    setenv("SOFTRDMA_MAX_QP", "2", 1);
    setenv("SOFTRDMA_MAX_CQ", "1", 1);
    setenv("SOFTRDMA_MAX_MR", "3", 1);
    setenv("SOFTRDMA_MAX_PD", "1", 1);
    setenv("SOFTRDMA_MAX_SRQ", "0", 1);
    setenv("SOFTRDMA_MAX_INLINE", "16", 1);
    setenv("SOFTRDMA_MAX_QP_WR", "128", 1);
    setenv("SOFTRDMA_MAX_CQE", "1024", 1);
    setenv("SOFTRDMA_DEVICES", "3", 1);
    struct pair p = pair_make((struct pair_options){.inline_data = 16});
    struct ibv_device_attr attr;
    EQUAL(ibv_query_device(p.ctx, &attr), 0);
    EQUAL(attr.max_qp, 2);
    EQUAL(attr.max_srq, 0);
    struct ibv_qp_init_attr init = {.send_cq = p.cq, .recv_cq = p.cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    FAILS(!ibv_create_qp(p.pd, &init), ENOMEM);
    init.cap.max_inline_data = 17;
    FAILS(!ibv_create_qp(p.pd, &init), EINVAL);
    init.cap = (struct ibv_qp_cap){129, 1, 1, 1, 0};
    FAILS(!ibv_create_qp(p.pd, &init), EINVAL);
    FAILS(!ibv_create_cq(p.ctx, 1, NULL, NULL, 0), ENOMEM);
    FAILS(!ibv_create_cq(p.ctx, 1025, NULL, NULL, 0), EINVAL);
    FAILS(!ibv_alloc_pd(p.ctx), ENOMEM);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
    FAILS(!ibv_create_srq(p.pd, &srq), EOPNOTSUPP);
    struct ibv_mr *mr = ibv_reg_mr(p.pd, p.buf[0], 4096, RW);
    CHECK(mr);
    FAILS(!ibv_reg_mr(p.pd, p.buf[0], 4096, RW), ENOMEM);
    EQUAL(ibv_dereg_mr(mr), 0);
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);
    EQUAL(n, 3);
    CHECK(!strcmp(ibv_get_device_name(list[2]), "softrdma2") &&
          ibv_get_device_guid(list[1]) != ibv_get_device_guid(list[2]));
    ibv_free_device_list(list);
    pair_free(&p);
}

TEST(no_device_means_no_device) {
    setenv("SOFTRDMA_DEVICES", "0", 1);
    int n = 5;
    struct ibv_device **list = ibv_get_device_list(&n);
    CHECK(list && !n && !list[0]);
    ibv_free_device_list(list);
    FAILS(!rdma_create_event_channel(), ENODEV);
}

TEST(the_device_cannot_be_taken_for_a_card) {
    struct ibv_context *ctx = open_first();
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    __be16 pkey;
    CHECK(!ibv_query_device(ctx, &attr) && !ibv_query_port(ctx, 1, &port));
    CHECK(!strcmp(ctx->device->name, "softrdma0") && strstr(attr.fw_ver, "software"));
    EQUAL(port.state, IBV_PORT_ACTIVE);
    EQUAL(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EQUAL(port.active_mtu, IBV_MTU_4096);
    CHECK(port.gid_tbl_len > 0 && !ibv_query_gid(ctx, 1, 0, &gid) && ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid));
    EQUAL(ibv_query_port(ctx, 2, &port), EINVAL);
    struct ibv_gid_entry entries[300];
    EQUAL(ibv_query_gid_table(ctx, entries, 300, 0), port.gid_tbl_len);
    EQUAL(entries[0].gid_type, IBV_GID_TYPE_ROCE_V2);
    CHECK(!ibv_query_pkey(ctx, 1, 0, &pkey) && pkey == 0xffff);
    struct ibv_device_attr_ex ex;
    CHECK(!ibv_query_device_ex(ctx, NULL, &ex) && ex.orig_attr.max_qp == attr.max_qp);
    EQUAL(ibv_close_device(ctx), 0);
    assert_no_leaks();
}

TEST(a_program_that_loads_the_libraries_while_it_runs_gets_the_device) {
    void *cm = dlopen("librdmacm.so.1", RTLD_NOW), *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cm && verbs);
    struct rdma_event_channel *(*create)(void);
    struct ibv_device **(*list)(int *);
    *(void **)&create = dlsym(cm, "rdma_create_event_channel");
    *(void **)&list = dlsym(verbs, "ibv_get_device_list");
    CHECK(create == rdma_create_event_channel && list == ibv_get_device_list);
    CHECK(dlsym(cm, "rdma_event_str") && dlsym(verbs, "ibv_wc_status_str")); /* from the real ones */
    CHECK(dlopen("libm.so.6", RTLD_NOW) && !dlopen("libnowhere.so.9", RTLD_NOW));
}

/* --- fork --- */

static int child_of(void (*run)(struct pair *, uint8_t *), struct pair *p, uint8_t *heap) {
    pid_t pid = fork();
    if (!pid) {
        run(p, heap);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void child_scribbles(struct pair *p, uint8_t *heap) {
    CHECK(heap[0] == 1 && heap[8191] == 2 && p->buf[0][0] == 0);
    memset(p->buf[0], 0x77, 65536); /* its own copy */
    memset(heap, 0x77, 8192);
    struct ibv_wc wc;
    EQUAL(ibv_poll_cq(p->cq, 1, &wc), -1); /* inherited objects are dead */
    EQUAL(pair_post(p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .len = 8}), EPERM);
    EQUAL(ibv_destroy_qp(p->qp[0]), EPERM);
    EQUAL(ibv_dereg_mr(p->mr[0]), EPERM);
    struct pair own = pair_make((struct pair_options){0}); /* but it may begin anew */
    EQUAL(pair_post(&own, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 4, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    expect_wc(own.cq, 4, IBV_WC_SUCCESS);
    pair_free(&own);
}

TEST(a_forked_child_does_not_disturb_its_parent) {
    struct pair p = pair_make((struct pair_options){0});
    uint8_t *heap = malloc(8192);
    struct ibv_mr *mr = ibv_reg_mr(p.pd, heap + 100, 7000, RW); /* the rest of these pages belongs to the heap */
    CHECK(mr);
    heap[0] = 1;
    heap[8191] = 2;
    EQUAL(child_of(child_scribbles, &p, heap), 0);
    EQUAL(p.buf[0][0], 0);
    EQUAL(p.buf[0][1], 7);
    CHECK(heap[0] == 1 && heap[8191] == 2);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 4, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    expect_wc(p.cq, 4, IBV_WC_SUCCESS);
    EQUAL(ibv_dereg_mr(mr), 0);
    pair_free(&p);
    free(heap);
    assert_no_leaks();
}

static int forked[2]; /* the child reads from it before it continues */

static void child_keeps_the_descriptors(void) {
    char go;
    CHECK(read(forked[0], &go, 1) == 1);
}

static void connects_and_waits(int sock) {
    struct end e = {0};
    tell(sock, end_listen(&e));
    end_accept(&e);
    tell(sock, 0);
    pause();
}

/* A child has its parent's descriptors for a moment, however soon the device closes them there. */
TEST(a_link_that_ends_while_a_child_still_holds_its_descriptor_is_not_heard_of_again) {
    struct other o = other_start(connects_and_waits);
    CHECK(!pipe(forked) &&
          !pthread_atfork(NULL, NULL, child_keeps_the_descriptors)); /* before the device's own handler */
    struct end e = {0};
    end_connect(&e, (uint16_t)hear(o.sock));
    hear(o.sock);
    pid_t child = fork();
    if (!child) _exit(0);
    kill(o.pid, SIGKILL);
    CHECK(WIFSIGNALED(other_wait(&o)));
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);        /* the link has been closed, or is about to be */
    struct pair p = pair_make((struct pair_options){0}); /* the thread has work to do, and memory is used again */
    usleep(20000);
    EQUAL(pair_post(&p, 0, (struct ask){.op = IBV_WR_RDMA_WRITE, .id = 4, .len = 8, .flags = IBV_SEND_SIGNALED}), 0);
    expect_wc(p.cq, 4, IBV_WC_SUCCESS);
    pair_free(&p);
    int status;
    CHECK(write(forked[1], "", 1) == 1 && waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    CHECK(!rdma_disconnect(e.id));
    end_free(&e);
}

static void child_reads_neighbours(struct pair *p, uint8_t *heap) {
    for (int i = 0; i < 500; i++) {
        CHECK(heap[0] == 1 && heap[4095] == 1); /* a snapshot, whatever the parent does */
        usleep(100);
    }
}

static void child_touches_region(struct pair *p, uint8_t *heap) {
    ((volatile uint8_t *)p->buf[0])[0] = 1;
}

TEST(after_ibv_fork_init_regions_do_not_exist_in_a_child_and_their_neighbours_do) {
    setenv("SOFTRDMA_DONTFORK", "1", 1);
    EQUAL(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
    EQUAL(ibv_fork_init(), 0);
    EQUAL(ibv_is_fork_initialized(), IBV_FORK_ENABLED);
    struct pair p = pair_make((struct pair_options){0});
    uint8_t *heap = pages(3);
    memset(heap, 1, 4096);
    struct ibv_mr *mr = ibv_reg_mr(p.pd, heap + 4096, 2 * 4096, RW);
    CHECK(mr);
    EQUAL(child_of(child_reads_neighbours, &p, heap), 0);
    CHECK(child_of(child_touches_region, &p, heap) != 0); /* a fault, as with a card */
    EQUAL(ibv_dereg_mr(mr), 0);
    pair_free(&p);
}

static void child_sees_what_was_there(struct pair *p, uint8_t *sent) {
    for (int i = 0; i < 100; i++) {
        for (int at = 0; at < 4 * 4096; at += 512) CHECK(sent[at] == 3);
        usleep(100);
    }
}

TEST(memory_that_is_only_sent_from_is_a_childs_own_from_the_fork_on) {
    EQUAL(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    struct pair p = pair_make((struct pair_options){0});
    uint8_t *sent = pages(4);
    memset(sent, 3, 4 * 4096);
    struct ibv_mr *mr = ibv_reg_mr(p.pd, sent, 4 * 4096, 0);
    CHECK(mr);
    pid_t child = fork();
    if (!child) {
        child_sees_what_was_there(&p, sent);
        _exit(0);
    }
    memset(sent, 9, 4 * 4096);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    struct ibv_sge sge = {.addr = (uintptr_t)sent + 1, .length = 9000, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr_id = 4},
                       *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)p.buf[1];
    wr.wr.rdma.rkey = p.mr[1]->rkey;
    EQUAL(ibv_post_send(p.qp[0], &wr, &bad), 0);
    expect_wc(p.cq, 4, IBV_WC_SUCCESS);
    CHECK(p.buf[1][0] == 9 && p.buf[1][8999] == 9);
    EQUAL(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_mr(p.pd, (void *)4096, 4096, 0) && errno == EFAULT);
    pair_free(&p);
    assert_no_leaks();
}

static void keeps_sending(int sock) {
    struct end e = {.rnr_retry = 7};
    tell(sock, end_listen(&e));
    end_accept(&e);
    for (uint64_t i = 0; i < 64; i++) EQUAL(end_recv(&e, i, 0, 0), 0);
    tell(sock, 0);
    for (uint32_t i = 0; i < 2000; i++) {
        EQUAL(poll_one(e.cq).status, 0);
        EQUAL(end_recv(&e, 0, 0, 0), 0);
    }
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    end_free(&e);
}

TEST(a_parent_goes_on_while_its_child_saves_and_the_childs_end_is_not_noticed) {
    struct other o = other_start(keeps_sending);
    struct end e = {.rnr_retry = 7};
    end_connect(&e, (uint16_t)hear(o.sock));
    hear(o.sock);
    pid_t child = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        if (i % 500 == 100) {
            child = fork();
            if (!child) {
                usleep(3000);
                exit(0);
            }
        }
        EQUAL(end_post(&e,
                       (struct ask){.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 64, .imm = i, .flags = IBV_SEND_SIGNALED}),
              0);
        EQUAL(poll_one(e.cq).status, 0);
    }
    for (int status; waitpid(child, &status, 0) == child;) EQUAL(status, 0);
    end_hang_up(&e);
    end_free(&e);
    other_join(&o);
}
