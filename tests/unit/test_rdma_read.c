/* One-sided reads: windows, their access rights and their end, reads in flight, failures. Both ends run in one loop.
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma, with faults that act
 * while a file exists. */
#ifdef USE_RDMA
#pragma GCC diagnostic ignored "-Wunused-function" /* only the ends of the suite are used */
#include "net/rdma/rdma.h"
#include "net/rdma/connection.h"
#include "net/rdma/read.h"
#include "rdma_device_arranged.h"
#include "transport_suite.h"
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>

enum { AREA = 1024 * 1024, PIECE = 64 * 1024 };

static _Alignas(4096) char bytes[AREA], copy[AREA];
static struct rdma_window offered, target;

static int use_rdma(void **state) {
    suite = (struct suite){.transport = &transport_rdma};
    const char *ip = getenv("RDMA_IP");
    snprintf(suite.host, sizeof suite.host, "%s", ip ? ip : "127.0.0.1");
    rdma_settings.rx_size = 64 * 1024;
    return 0;
}

/* --- Faults of the software device that act while the file exists --- */

enum fault { FAULT_READ_REFUSED, FAULT_READ_LOST, FAULT_READ_DELAYED, FAULT_REGISTRATION, FAULTS };

static const char *fault_file(enum fault fault) {
    static char path[100];
    snprintf(path, sizeof path, "/tmp/test_rdma_read.%d.%d", (int)getpid(), (int)fault);
    return path;
}
static void arrange_faults(void) {
    static const char *const rules[FAULTS] = {
        [FAULT_READ_REFUSED] = "send:error=REM_ACCESS_ERR,op=read",
        [FAULT_READ_LOST] = "send:error=RETRY_EXC_ERR,op=read",
        [FAULT_READ_DELAYED] = "send:delay=300000,op=read",
        [FAULT_REGISTRATION] = "reg_mr:fail=ENOMEM",
    };
    char all[1000] = "";
    for (int i = 0; i < FAULTS; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s,while=%s;", rules[i], fault_file((enum fault)i));
    setenv("SOFTRDMA_FAULTS", all, 1);
}
static void fault_begin(enum fault fault) {
    if (strncmp(rdma_device_name(), "softrdma", 8) != 0) skip();
    int fd = open(fault_file(fault), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}
static void fault_end(enum fault fault) {
    unlink(fault_file(fault));
}

/* --- Setting up --- */

static void leave_open(struct end *end) {}

static int setup(void **state) {
    for (size_t i = 0; i < AREA; i++) bytes[i] = stream_byte(5, i);
    memset(copy, 0, AREA);
    memset(&offered, 0, sizeof offered);
    memset(&target, 0, sizeof target);
    return suite_setup(state);
}
static int teardown(void **state) {
    for (int i = 0; i < FAULTS; i++) fault_end((enum fault)i);
    return suite_teardown(state);
}

static void open_windows(void) {
    open_both();
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), 0);
    assert_int_equal(rdma_window_open(client.conn, RDMA_WINDOW_TARGET, copy, AREA, &target), 0);
}

/* The reads of a test, in the order of their callbacks. */
static struct outcome {
    int count, bad, next;
    int64_t last;
    bool chain;
} outcome;

static int start_at(size_t at, uint32_t length);

static void on_done(struct connection *conn, void *context, int64_t result) {
    int number = (int)(intptr_t)context;
    assert_ptr_equal(conn->owner, &client);
    if (number != outcome.count) outcome.bad++;
    outcome.count++;
    outcome.last = result;
    if (outcome.chain && result > 0 && outcome.next < AREA / PIECE)
        assert_int_equal(start_at((size_t)outcome.next * PIECE, PIECE), 0);
}

static int start_at(size_t at, uint32_t length) {
    int result = rdma_read_start(client.conn, &target, at, (uintptr_t)offered.base + at, offered.rkey, length, on_done,
                                 (void *)(intptr_t)outcome.next);
    if (result == 0) outcome.next++;
    return result;
}

static void begin(void) {
    outcome = (struct outcome){0};
    open_windows();
}

/* One read that the peer's device rejects: the connection ends, other connections continue. */
static void expect_refused(uint64_t address, uint32_t rkey, uint32_t length) {
    client.on_closed = leave_open;
    uint64_t failed = rdma_stats()->reads_failed;
    assert_int_equal(rdma_read_start(client.conn, &target, 0, address, rkey, length, on_done, NULL), 0);
    turn_until(client.closed == 1);
    assert_int_equal(outcome.count, 1);
    assert_int_equal(outcome.last, -EACCES);
    assert_int_equal(client.conn->error, EACCES);
    assert_non_null(strstr(conn_error_text(client.conn), "READ"));
    assert_int_equal(rdma_stats()->reads_failed, failed + 1);
    assert_int_equal(rdma_read_start(client.conn, &target, 0, address, rkey, length, on_done, NULL), -ENOTCONN);
    end_close(&client);
    assert_int_equal(outcome.count, 1);
    turn_until(server.closed == 1);
    memset(&client, 0, sizeof client);
    memset(&server, 0, sizeof server);
    client.send_seed = server.expect_seed = 5;
    client.pending_bound = 1 << 20;
    open_both();
    send_stream(&client, 100000);
    turn_until(server.consumed == 100000);
}

/* --- The tests --- */

#define READ_TEST(name) TEST_WITH(name, setup, teardown)

READ_TEST(bytes_of_the_peer_arrive_through_several_reads_at_once) {
    begin();
    struct rdma_stats before = *rdma_stats();
    outcome.chain = true;
    for (int i = 0; i < 4; i++) assert_int_equal(start_at((size_t)i * PIECE, PIECE), 0);
    turn_until(outcome.count == AREA / PIECE);
    assert_memory_equal(bytes, copy, AREA);
    assert_int_equal(outcome.bad, 0);
    assert_int_equal(outcome.last, PIECE);
    assert_int_equal(rdma_stats()->reads - before.reads, AREA / PIECE);
    assert_int_equal(rdma_stats()->read_bytes - before.read_bytes, AREA);
}

READ_TEST(reads_of_every_alignment_arrive) {
    begin();
    for (size_t i = 0; i < 100; i++) {
        size_t at = random_below(AREA), length = 1 + random_below(AREA - at);
        memset(copy, 0, AREA);
        assert_int_equal(start_at(at, (uint32_t)length), 0);
        turn_until(outcome.count == (int)i + 1);
        assert_memory_equal(bytes + at, copy + at, length);
        if (at) assert_int_equal(copy[at - 1], 0);
        if (at + length < AREA) assert_int_equal(copy[at + length], 0);
    }
}

READ_TEST(no_more_reads_are_in_flight_than_were_negotiated) {
    begin();
    unsigned depth = rdma_read_depth(client.conn);
    assert_in_range(depth, 1, RDMA_READS_MAX);
    for (unsigned i = 0; i < depth; i++) assert_int_equal(start_at(0, 100), 0);
    assert_int_equal(start_at(0, 100), -EAGAIN);
    turn_until(outcome.count == (int)depth);
    assert_int_equal(start_at(0, 100), 0);
    turn_until(outcome.count == (int)depth + 1);
}

/* The limits of the device context stand in for those of another device at the peer. */
READ_TEST(each_end_is_bound_by_what_the_other_grants) {
    static const struct {
        int initiates, responds;
        unsigned depth;
    } cases[] = {{16, 3, 3}, {2, 16, 2}, {16, 0, 0}, {0, 16, 0}, {100, 16, 16}, {-1, 16, 0}};
    open_both();
    struct ibv_device_attr *limits = &rdma_of(client.conn)->qp.device->limits, real = *limits;
    if (real.max_qp_rd_atom < RDMA_READS_MAX || real.max_qp_init_rd_atom < RDMA_READS_MAX) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        end_close(&client);
        turn_until(server.conn == NULL);
        memset(&client, 0, sizeof client);
        limits->max_qp_init_rd_atom = cases[i].initiates;
        limits->max_qp_rd_atom = cases[i].responds;
        outcome = (struct outcome){0};
        open_windows();
        *limits = real;
        assert_int_equal(rdma_read_depth(client.conn), cases[i].depth);
        for (unsigned k = 0; k < cases[i].depth; k++) assert_int_equal(start_at(0, PIECE), 0);
        assert_int_equal(start_at(0, PIECE), -EAGAIN);
        turn_until(outcome.count == (int)cases[i].depth);
    }
}

READ_TEST(reads_work_where_the_traffic_class_is_set) {
    rdma_settings.traffic_class = 104;
    begin();
    rdma_settings.traffic_class = -1;
    assert_int_equal(start_at(100, 5000), 0);
    turn_until(outcome.count == 1);
    assert_memory_equal(bytes + 100, copy + 100, 5000);
}

READ_TEST(reads_and_streams_pass_at_once) {
    begin();
    client.on_drained = server.on_drained = end_pump;
    send_stream(&client, 20 << 20);
    send_stream(&server, 20 << 20);
    for (int rounds = 0; server.consumed < 20 << 20 || client.consumed < 20 << 20 || rounds < 50; rounds++) {
        outcome = (struct outcome){.chain = true};
        memset(copy, 0, AREA);
        assert_int_equal(start_at(0, PIECE), 0);
        assert_int_equal(start_at(PIECE, PIECE), 0);
        turn_until(outcome.count == AREA / PIECE);
        assert_int_equal(outcome.bad, 0);
        assert_memory_equal(bytes, copy, AREA);
    }
    assert_false(server.corrupt || client.corrupt);
}

READ_TEST(a_read_waits_while_the_send_queue_is_full) {
    begin();
    struct rdma_connection *c = rdma_of(client.conn);
    uint32_t posted;
    turn_until(c->send.window > 0);
    do { /* no completion is handled meanwhile */
        posted = c->send.posted;
        send_stream(&client, client.sent + 1);
    } while (c->send.posted != posted);
    assert_int_equal(start_at(0, PIECE), 0);
    assert_int_equal(c->send.posted, posted);
    turn_until(outcome.count == 1 && server.consumed == client.sent);
    assert_memory_equal(bytes, copy, PIECE);
    assert_false(server.corrupt);
}

READ_TEST(a_closed_window_cannot_be_read) {
    begin();
    uint32_t rkey = offered.rkey;
    rdma_window_close(&offered);
    expect_refused((uintptr_t)bytes, rkey, 100);
}
READ_TEST(a_window_opened_again_has_another_key) {
    begin();
    uint32_t rkey = offered.rkey;
    rdma_window_close(&offered);
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), 0);
    assert_int_not_equal(offered.rkey, rkey);
    expect_refused((uintptr_t)bytes, rkey, 100);
}
READ_TEST(bytes_before_and_behind_the_window_cannot_be_read) {
    open_both();
    outcome = (struct outcome){0};
    assert_int_equal(rdma_window_open(client.conn, RDMA_WINDOW_TARGET, copy, AREA, &target), 0);
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes + 100, 1000, &offered), 0);
    expect_refused((uintptr_t)bytes + 99, offered.rkey, 2);
    outcome = (struct outcome){0};
    assert_int_equal(rdma_window_open(client.conn, RDMA_WINDOW_TARGET, copy, AREA, &target), 0);
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes + 100, 1000, &offered), 0);
    expect_refused((uintptr_t)bytes + 1099, offered.rkey, 2);
    assert_memory_equal(copy, (char[2]){0}, 2);
}
READ_TEST(a_target_cannot_be_read_by_the_peer) {
    begin();
    struct rdma_window other = {0};
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_TARGET, bytes, AREA, &other), 0);
    assert_int_equal(other.rkey, 0);
    expect_refused((uintptr_t)bytes, other.mr->rkey, 100);
}
READ_TEST(a_receive_buffer_cannot_be_read_by_the_peer) {
    begin();
    const struct rdma_rx *rx = rdma_of(server.conn)->receive.rx;
    expect_refused((uintptr_t)rx->data, rx->mr->rkey, 100);
}

READ_TEST(an_offered_window_cannot_be_written) {
    begin();
    client.on_closed = leave_open;
    struct rdma_connection *c = rdma_of(client.conn);
    struct ibv_sge sge = {.addr = (uintptr_t)copy, .length = 100, .lkey = target.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = (uint64_t)(c->send.posted + 1) << 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {.remote_addr = (uintptr_t)bytes, .rkey = offered.rkey}},
                       *bad;
    assert_int_equal(ibv_post_send(c->qp.verbs, &wr, &bad), 0);
    turn_until(client.closed == 1);
    assert_int_equal(client.conn->error, EACCES);
    for (size_t i = 0; i < 100; i++) assert_int_equal(bytes[i], stream_byte(5, i));
}

READ_TEST(closing_the_connection_cancels_its_reads_and_closes_its_windows) {
    begin();
    struct rdma_stats before = *rdma_stats();
    for (int i = 0; i < 4; i++) assert_int_equal(start_at((size_t)i * PIECE, PIECE), 0);
    end_close(&client);
    assert_int_equal(outcome.count, 4);
    assert_int_equal(outcome.bad, 0);
    assert_int_equal(outcome.last, -ECANCELED);
    assert_null(target.conn);
    assert_int_equal(rdma_stats()->windows, before.windows - 1);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_WINDOWS], before.registered[RDMA_MEMORY_WINDOWS] - AREA);
    rdma_window_close(&target); /* again */
    client.conn = NULL;
    turn_until(server.closed == 1);
    assert_null(offered.conn);
    assert_int_equal(rdma_stats()->windows, 0);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_WINDOWS], 0);
    assert_int_equal(outcome.count, 4);
}

static void close_in_done(struct connection *conn, void *context, int64_t result) {
    outcome.count++;
    if (result < 0) {
        assert_int_equal(result, -ECANCELED);
        return;
    }
    conn_close(conn);
    assert_int_equal(outcome.count, 3);
    assert_int_equal(rdma_read_start(conn, &target, 0, 0, 0, 1, close_in_done, NULL), -ENOTCONN);
    client.conn = NULL;
}
READ_TEST(a_callback_may_close_the_connection) {
    begin();
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            rdma_read_start(client.conn, &target, 0, (uintptr_t)bytes, offered.rkey, 10, close_in_done, NULL), 0);
    turn_until(server.closed == 1);
    assert_int_equal(outcome.count, 3);
    assert_null(client.conn);
}

READ_TEST(reads_in_flight_fail_when_the_peer_leaves) {
    begin();
    fault_begin(FAULT_READ_DELAYED);
    client.on_closed = leave_open;
    for (int i = 0; i < 3; i++) assert_int_equal(start_at(0, PIECE), 0);
    end_close(&server);
    turn_until(client.closed == 1);
    assert_int_equal(outcome.count, 3);
    assert_int_equal(outcome.bad, 0);
    assert_int_equal(outcome.last, -ECONNRESET);
}

READ_TEST(a_delayed_read_arrives) {
    begin();
    fault_begin(FAULT_READ_DELAYED);
    assert_int_equal(start_at(0, PIECE), 0);
    fault_end(FAULT_READ_DELAYED);
    send_stream(&client, 10000); /* after the read */
    turn_until(outcome.count == 1 && server.consumed == 10000);
    assert_memory_equal(bytes, copy, PIECE);
}

READ_TEST(a_read_that_the_device_fails_ends_the_connection) {
    static const struct {
        enum fault fault;
        int error;
    } cases[] = {{FAULT_READ_REFUSED, EACCES}, {FAULT_READ_LOST, ETIMEDOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(&client, 0, sizeof client);
        memset(&server, 0, sizeof server);
        begin();
        fault_begin(cases[i].fault);
        client.on_closed = leave_open;
        assert_int_equal(start_at(0, PIECE), 0);
        assert_int_equal(start_at(0, PIECE), 0);
        turn_until(client.closed == 1);
        assert_int_equal(outcome.count, 2);
        assert_int_equal(outcome.last, -cases[i].error);
        assert_int_equal(client.conn->error, cases[i].error);
        fault_end(cases[i].fault);
        end_close(&client);
        turn_until(server.closed == 1);
    }
}

READ_TEST(a_registration_that_fails_opens_no_window) {
    open_both();
    fault_begin(FAULT_REGISTRATION);
    uint64_t windows = rdma_stats()->windows, registered = rdma_registered();
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), -ENOMEM);
    assert_null(offered.conn);
    rdma_window_close(&offered);
    assert_int_equal(rdma_stats()->windows, windows);
    assert_int_equal(rdma_registered(), registered);
    assert_true(conn_is_open(server.conn));
}

READ_TEST(windows_count_as_registered_memory_within_its_limit) {
    begin();
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_WINDOWS], 2 * AREA);
    assert_int_equal(rdma_stats()->windows, 2);
    struct rdma_window more = {0};
    rdma_settings.max_registered = rdma_registered() + AREA; /* less than an eighth would be left */
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &more), -EDQUOT);
    rdma_settings.max_registered = (rdma_registered() + AREA) * 8 / 7 + 8;
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &more), 0);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_WINDOWS], 3 * AREA);
    rdma_settings.max_registered = 0;
    rdma_window_close(&more);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_WINDOWS], 2 * AREA);
}

READ_TEST(wrong_arguments_are_refused) {
    open_both();
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, 0, &offered), -EINVAL);
    assert_null(offered.conn);
    assert_int_equal(start_at(0, 1), -ENOTCONN); /* the target is not open */
    end_close(&client);
    turn_until(server.conn == NULL);
    memset(&client, 0, sizeof client);
    begin();
    assert_int_equal(start_at(0, 0), -EINVAL);
    assert_int_equal(start_at(0, RDMA_READ_LENGTH_MAX + 1), -EINVAL);
    assert_int_equal(start_at(AREA, 1), -EINVAL);
    assert_int_equal(start_at(AREA - 1, 2), -EINVAL);
    assert_int_equal(start_at(SIZE_MAX, 1), -EINVAL);
    assert_int_equal(rdma_read_start(client.conn, &offered, 0, 0, 0, 1, on_done, NULL), -ENOTCONN);
    assert_int_equal(rdma_read_start(server.conn, &offered, 0, 0, 0, 1, on_done, NULL), -ENOTCONN);
    assert_int_equal(start_at(AREA - 1, 1), 0);
    turn_until(outcome.count == 1);
    assert_int_equal(copy[AREA - 1], bytes[AREA - 1]);
}

static void accept_socket(struct listener *from, struct connection *conn) {
    conn_close(conn);
}
READ_TEST(other_transports_have_no_reads) {
    char error[256];
    struct listen_options options = {.host = "127.0.0.1", .backlog = 5, .accepted = accept_socket};
    struct listener *sockets = conn_listen(&transport_tcp, loop, &options, error, sizeof error);
    assert_non_null(sockets);
    struct connect_options to = {
        .host = "127.0.0.1", .port = sockets->address.port, .events = &end_events, .owner = &client};
    client.conn = conn_connect(&transport_tcp, loop, &to);
    assert_int_equal(conn_wait_open(client.conn, 30000), 0);
    assert_int_equal(rdma_read_depth(client.conn), 0);
    assert_int_equal(rdma_window_open(client.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), -EOPNOTSUPP);
    listener_close(sockets);
}

READ_TEST(a_forked_child_leaves_windows_alone) {
    begin();
    pid_t pid = fork();
    if (pid == 0) {
        rdma_after_fork_child();
        rdma_window_close(&offered);
        bool unusable = rdma_read_depth(client.conn) == 0 && start_at(0, 1) == -ENOTCONN;
        end_close(&client);
        _exit(unusable && target.conn == NULL ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(start_at(0, AREA), 0);
    turn_until(outcome.count == 1);
    assert_memory_equal(bytes, copy, AREA);
}

int main(int argc, char **argv) {
    arrange_faults();
    if (!rdma_device_arranged(argv[0])) return 1;
    return RUN_TESTS_WITH(use_rdma, NULL);
}
#endif
