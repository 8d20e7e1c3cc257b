/* Peers of the RDMA transport that die, violate the protocol, or use a device that fails: only their own connection
 * ends, and nothing leaks. The peers are separate processes: this program called with --peer (rdma_peers.h).
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "rdma_suite.h"
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

static const char *own_path;

static pid_t start_peer(const char *mode) {
    char port[16];
    snprintf(port, sizeof port, "%d", suite.port);
    pid_t pid = fork();
    if (pid == 0) {
        execl(own_path, own_path, "--peer", mode, suite.host, port, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int wait_for_peer(pid_t pid) {
    int status = -1;
    uint64_t give_up = clock_monotonic_us() + 90 * 1000000ull;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        event_loop_turn(loop, 10000);
        if (clock_monotonic_us() > give_up) {
            kill(pid, SIGKILL);
            fail_msg("the peer does not end");
        }
    }
    return status;
}

static void the_listener_still_serves(void) {
    memset(&client, 0, sizeof client);
    memset(&server, 0, sizeof server);
    client.send_seed = server.expect_seed = 5;
    client.pending_bound = 1 << 20;
    open_both();
    send_stream(&client, 200000);
    turn_until(server.consumed == 200000);
    assert_false(server.corrupt);
}

static void a_killed_peer_is_detected(void **state) {
    pid_t pid = start_peer("talk");
    turn_until(server.conn != NULL && server.consumed > 50000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    turn_until(server.closed == 1);
    the_listener_still_serves();
}

static void a_killed_peer_with_unread_data_is_detected(void **state) {
    pid_t pid = start_peer("deaf");
    turn_until(server.conn != NULL && conn_is_open(server.conn));
    server.on_drained = end_pump;
    send_stream(&server, 8 << 20);
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 10000);
    assert_true(conn_pending(server.conn) > 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    turn_until(server.closed == 1);
    the_listener_still_serves();
}

static void a_close_does_not_wait_forever_for_a_peer_that_does_not_read(void **state) {
    pid_t pid = start_peer("deaf");
    turn_until(server.conn != NULL && conn_is_open(server.conn));
    send_stream(&server, 1 << 20);
    close_self(&server);
    uint64_t begin = clock_monotonic_us();
    assert_int_equal(wait_for_peer(pid), 0); /* it exits when it is disconnected */
    assert_true(clock_monotonic_us() - begin < 10 * 1000000);
    the_listener_still_serves();
}

static void refuse_violation(const char *mode) {
    uint64_t before = rdma_stats()->errors[RDMA_ERROR_PROTOCOL];
    pid_t pid = start_peer(mode);
    turn_until(server.closed == 1);
    assert_int_equal(wait_for_peer(pid), 0);
    assert_int_equal(rdma_stats()->errors[RDMA_ERROR_PROTOCOL], before + 1);
    the_listener_still_serves();
}
#define VIOLATION_TEST(name, mode)                                                                                     \
    static void name(void **state) {                                                                                   \
        refuse_violation(mode);                                                                                        \
    }
VIOLATION_TEST(an_immediate_beyond_the_buffer_ends_the_connection, "imm-beyond")
VIOLATION_TEST(a_huge_immediate_ends_the_connection, "imm-huge")
VIOLATION_TEST(an_immediate_of_zero_ends_the_connection, "imm-zero")
VIOLATION_TEST(a_short_control_message_ends_the_connection, "short")
VIOLATION_TEST(a_long_control_message_ends_the_connection, "long")
VIOLATION_TEST(an_unknown_opcode_ends_the_connection, "opcode")
VIOLATION_TEST(a_peer_buffer_of_no_bytes_ends_the_connection, "register-empty")
VIOLATION_TEST(an_absurd_peer_buffer_ends_the_connection, "register-huge")
VIOLATION_TEST(a_peer_buffer_that_wraps_around_ends_the_connection, "register-wrap")
VIOLATION_TEST(announcing_a_buffer_twice_ends_the_connection, "register-twice")
VIOLATION_TEST(unknown_features_end_the_connection, "features")
VIOLATION_TEST(a_flood_of_control_messages_ends_the_connection, "flood")

static void writing_outside_its_buffer_fails_the_writer_alone(void **state) {
    pid_t pid = start_peer("write-outside");
    turn_until(server.closed == 1);
    assert_int_equal(wait_for_peer(pid), 0);
    the_listener_still_serves();
}

static void a_wrong_remote_key_ends_only_that_connection(void **state) {
    pid_t pid = start_peer("bad-key");
    turn_until(server.conn != NULL && conn_is_open(server.conn));
    send_stream(&server, 1000); /* to the rkey that the peer announced */
    turn_until(server.closed == 1);
    wait_for_peer(pid);
    the_listener_still_serves();
}

static void features_are_answered_with_those_of_the_settings(void **state) {
    pid_t pid = start_peer(rdma_settings.features ? "get-features" : "get-no-features");
    assert_int_equal(wait_for_peer(pid), 0);
    the_listener_still_serves();
}

static void random_failures_leak_nothing(void **state) {
    static const char *const faults[] = {
        "send:delay=10-2000,p=1,seed=7",
        "complete:error=REM_ACCESS_ERR,p=1,seed=1; complete:error=RETRY_EXC_ERR,p=1,seed=2",
        "create_qp:fail=ENOMEM,p=20,seed=3; reg_mr:fail=ENOMEM,p=30,from=4,seed=4",
        "connect:reject,p=10; request:drop,p=5; accept:drop,p=5; establish:drop,p=5; disconnect:drop,p=20",
        "post_send:fail=ENOMEM,p=1,seed=5; post_recv:fail=ENOMEM,p=1,seed=6",
        ("resolve_addr:fail=ENODEV,p=10; resolve_route:unreachable,p=10; create_id:fail=ENOMEM,p=5; "
         "req_notify:fail=EIO,p=5"),
        "event:delay=100-50000,p=50,seed=8; poll:delay=10-1000,p=1,seed=9",
        "write:scatter=1-300,p=50,seed=10",
    };
    if (strncmp(rdma_device_name(), "softrdma", 8) != 0) skip();
    enum { STORMS = sizeof faults / sizeof *faults };
    pid_t pids[STORMS];
    int status[STORMS];
    for (size_t i = 0; i < STORMS; i++) { /* in parallel, because each runs for a fixed time */
        setenv("SOFTRDMA_FAULTS", faults[i], 1);
        pids[i] = start_peer("storm");
        unsetenv("SOFTRDMA_FAULTS");
    }
    for (size_t i = 0; i < STORMS; i++) status[i] = wait_for_peer(pids[i]);
    for (size_t i = 0; i < STORMS; i++)
        if (status[i] != 0) fail_msg("with \"%s\": status %x", faults[i], (unsigned)status[i]);
}

/* Runs this program with `argument` in a separate process, on a device with these faults. */
static void run_with_faults(const char *faults, const char *argument) {
    if (strncmp(rdma_device_name(), "softrdma", 8) != 0) skip();
    setenv("SOFTRDMA_FAULTS", faults, 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl(own_path, own_path, argument, (char *)NULL);
        _exit(127);
    }
    unsetenv("SOFTRDMA_FAULTS");
    assert_int_equal(wait_for_peer(pid), 0);
}

/* The accepting end recognizes by data from the peer that the connection is established. */
static void a_lost_rtu_does_not_end_the_connection(void **state) {
    run_with_faults("rtu:drop", "--lost-rtu");
}
static int lost_rtu_main(void) {
    use_rdma(NULL);
    rdma_settings.connect_timeout_ms = 600000; /* the accept must not wait for it */
    if (suite_setup(NULL)) return 2;
    dial(&client);
    turn_until(server.conn && conn_is_open(server.conn) && conn_is_open(client.conn));
    send_stream(&client, 100000);
    send_stream(&server, 100000);
    turn_until(server.consumed == 100000 && client.consumed == 100000);
    if (server.corrupt || client.corrupt) return 3;
    suite_teardown(NULL);
    return rdma_stats()->failed ? 4 : 0;
}

/* A peer that announces its buffer does not stop the accept timer. Only the event stops it, which is delayed here. */
static void a_buffer_announced_early_does_not_stop_the_accept_timer(void **state) {
    run_with_faults("event:delay=3600000000,op=RDMA_CM_EVENT_ESTABLISHED", "--early-buffer");
}
static struct rdma_connection *being_accepted(void) {
    list_each(&rdma_of(client.conn)->owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->passive) return c;
    }
    return NULL;
}
static int early_buffer_main(void) {
    struct rdma_connection *accepted;
    use_rdma(NULL);
    rdma_settings.connect_timeout_ms = 600000;
    if (suite_setup(NULL)) return 2;
    dial(&client);
    turn_until((accepted = being_accepted()) && accepted->send.peer_size);
    if (accepted->phase != RDMA_CONNECTING || !accepted->timer.heap_index) return 3;
    event_timer_set(loop, &accepted->timer, 1, accepted->timer.fire); /* as if the time had expired */
    turn_until(rdma_stats()->failed == 1);
    if (rdma_stats()->errors[RDMA_ERROR_TIMEOUT] != 1 || server.conn) return 4;
    suite_teardown(NULL);
    return 0;
}

#include "rdma_peers.h"

static const struct CMUnitTest tests[] = {
    SUITE_TEST(a_killed_peer_is_detected),
    SUITE_TEST(a_killed_peer_with_unread_data_is_detected),
    SUITE_TEST(a_close_does_not_wait_forever_for_a_peer_that_does_not_read),
    SUITE_TEST(an_immediate_beyond_the_buffer_ends_the_connection),
    SUITE_TEST(a_huge_immediate_ends_the_connection),
    SUITE_TEST(an_immediate_of_zero_ends_the_connection),
    SUITE_TEST(a_short_control_message_ends_the_connection),
    SUITE_TEST(a_long_control_message_ends_the_connection),
    SUITE_TEST(an_unknown_opcode_ends_the_connection),
    SUITE_TEST(a_peer_buffer_of_no_bytes_ends_the_connection),
    SUITE_TEST(an_absurd_peer_buffer_ends_the_connection),
    SUITE_TEST(a_peer_buffer_that_wraps_around_ends_the_connection),
    SUITE_TEST(announcing_a_buffer_twice_ends_the_connection),
    SUITE_TEST(unknown_features_end_the_connection),
    SUITE_TEST(a_flood_of_control_messages_ends_the_connection),
    SUITE_TEST(writing_outside_its_buffer_fails_the_writer_alone),
    SUITE_TEST(a_wrong_remote_key_ends_only_that_connection),
    SUITE_TEST(features_are_answered_with_those_of_the_settings),
    SUITE_TEST(a_lost_rtu_does_not_end_the_connection),
    SUITE_TEST(a_buffer_announced_early_does_not_stop_the_accept_timer),
    SUITE_TEST(random_failures_leak_nothing),
};

static const struct CMUnitTest base_tests[] = {
    SUITE_TEST(announcing_a_buffer_twice_ends_the_connection),
    SUITE_TEST(an_immediate_beyond_the_buffer_ends_the_connection),
    SUITE_TEST(features_are_answered_with_those_of_the_settings),
};

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--lost-rtu") == 0) return lost_rtu_main();
    if (argc == 2 && strcmp(argv[1], "--early-buffer") == 0) return early_buffer_main();
    if (argc == 5 && strcmp(argv[1], "--peer") == 0) _exit(peer_main(argv)); /* without cleanup: it may hold events */
    own_path = argv[0];
    if (!rdma_device_arranged(own_path)) return 1;
    int failed = cmocka_run_group_tests_name("rdma peers", tests, use_rdma, NULL);
    return failed + cmocka_run_group_tests_name("rdma peers, base protocol", base_tests, use_base_protocol, NULL);
}
#endif
