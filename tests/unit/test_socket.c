/* TCP and Unix sockets: the guarantees of every transport, and those specific to these two. */
#include "transport_suite.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/test-stream-XXXXXX";

static int use_tcp(void **state) {
    suite = (struct suite){.transport = &transport_tcp, .host = "127.0.0.1", .bulk = 48 << 20, .crowd = 1500};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 3100) suite.crowd = (int)(limit.rlim_cur - 100) / 2;
    return 0;
}
static int use_tcp6(void **state) {
    use_tcp(state);
    suite.bulk = 4 << 20;
    suite.crowd = 50;
    strcpy(suite.host, "::1");
    return 0;
}
static int use_unix(void **state) {
    use_tcp(state);
    suite.transport = &transport_unix;
    if (!mkdtemp(folder)) return -1;
    snprintf(suite.host, sizeof suite.host, "%s/socket", folder);
    return 0;
}
static int leave_unix(void **state) {
    return rmdir(folder);
}

/* --- TCP alone --- */

static void the_star_listens_on_all_addresses(void **state) {
    char error[256];
    struct listen_options options = {.host = "*", .backlog = 16, .accepted = take_server};
    struct event_loop *own = event_loop_new();
    struct listener *any = conn_listen(&transport_tcp, own, &options, error, sizeof error);
    assert_non_null(any);
    assert_string_equal(any->address.host, "0.0.0.0");
    options.host = "::*";
    options.port = any->address.port; /* the same port: IPv6 sockets do not bind IPv4 */
    struct listener *any6 = conn_listen(&transport_tcp, own, &options, error, sizeof error);
    if (any6) {
        assert_string_equal(any6->address.host, "::");
        listener_close(any6);
    } else
        assert_true(errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL);
    listener_close(any);
    event_loop_free(own);
}

static void a_closed_listeners_port_is_free_while_a_child_process_holds_its_descriptor(void **state) {
    char error[256];
    struct listen_options options = {.host = "127.0.0.1", .backlog = 16, .accepted = take_server};
    struct event_loop *own = event_loop_new();
    struct listener *first = conn_listen(&transport_tcp, own, &options, error, sizeof error);
    assert_non_null(first);
    options.port = first->address.port;
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    assert_true(child > 0);
    listener_close(first);
    struct listener *second = conn_listen(&transport_tcp, own, &options, error, sizeof error);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_non_null(second);
    listener_close(second);
    event_loop_free(own);
}

static int protocol_of(const struct connection *conn) {
    int protocol = 0;
    socklen_t len = sizeof protocol;
    assert_int_equal(getsockopt(conn_fd(conn), SOL_SOCKET, SO_PROTOCOL, &protocol, &len), 0);
    return protocol;
}

static void a_listener_accepts_multipath_tcp_if_it_was_asked_to(void **state) {
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    if (fd < 0) skip(); /* the kernel has none */
    close(fd);
    char error[256];
    struct listen_options options = listen_here();
    options.mptcp = true;
    struct listener *multipath = conn_listen(suite.transport, loop, &options, error, sizeof error);
    assert_non_null(multipath);
    for (int mptcp = 0; mptcp < 2; mptcp++) {
        struct connect_options to = {.host = suite.host,
                                     .port = multipath->address.port,
                                     .timeout_ms = 30000,
                                     .mptcp = mptcp,
                                     .events = &end_events,
                                     .owner = &client};
        server.conn = NULL;
        client.conn = conn_connect(suite.transport, loop, &to);
        assert_int_equal(conn_wait_open(client.conn, 30000), 0);
        turn_until(server.conn != NULL);
        if (mptcp) assert_int_equal(protocol_of(server.conn), IPPROTO_MPTCP);
        end_close(&client);
        turn_until(server.conn == NULL);
    }
    listener_close(multipath);
    client.connected = 0;
    open_both(); /* with the other listener */
    assert_int_equal(protocol_of(server.conn), IPPROTO_TCP);
}

static void a_taken_port_is_named_in_the_error(void **state) {
    char error[256];
    struct listen_options options = {.host = "127.0.0.1", .port = suite.port, .backlog = 16, .accepted = take_server};
    assert_null(conn_listen(&transport_tcp, loop, &options, error, sizeof error));
    assert_int_equal(errno, EADDRINUSE);
    assert_non_null(strstr(error, "127.0.0.1"));
    assert_non_null(strstr(error, "Address already in use"));
}

static void an_unknown_name_fails_with_its_reason(void **state) {
    client.on_closed = leave_everything;
    struct connect_options options = {
        .host = "no-such-host.invalid", .port = 1, .events = &end_events, .owner = &client};
    client.conn = conn_connect(&transport_tcp, loop, &options);
    turn_until(client.closed == 1);
    assert_true(client.conn->error != 0);
}

static void an_unanswered_connect_times_out(void **state) {
    /* A listener with a full backlog drops connection requests, so connects to it hang. */
    int fd = socket(AF_INET, SOCK_STREAM, 0), hold[8];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 0), 0);
    getsockname(fd, (struct sockaddr *)&at, &len);
    for (int i = 0; i < 8; i++) {
        hold[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(hold[i], (struct sockaddr *)&at, sizeof at);
    }
    usleep(10000);
    client.on_closed = leave_everything;
    struct connect_options options = {
        .host = "127.0.0.1", .port = ntohs(at.sin_port), .timeout_ms = 100, .events = &end_events, .owner = &client};
    client.conn = conn_connect(&transport_tcp, loop, &options);
    uint64_t begin = clock_monotonic_us();
    turn_until(client.closed == 1);
    assert_int_equal(client.conn->error, ETIMEDOUT);
    assert_true(clock_monotonic_us() - begin >= 99000);
    for (int i = 0; i < 8; i++) close(hold[i]);
    close(fd);
}

static void the_source_address_can_be_chosen(void **state) {
    struct connect_options options = {
        .host = suite.host, .port = suite.port, .source_host = "127.0.0.5", .events = &end_events, .owner = &client};
    client.conn = conn_connect(&transport_tcp, loop, &options);
    assert_int_equal(conn_wait_open(client.conn, 5000), 0);
    turn_until(server.conn != NULL);
    struct address address;
    assert_true(transport_tcp.address(server.conn, true, &address));
    assert_string_equal(address.host, "127.0.0.5");
}

static void keepalive_can_be_set(void **state) {
    open_both();
    assert_int_equal(transport_tcp.set_keepalive(server.conn, 300), 0);
    int on = 0;
    socklen_t len = sizeof on;
    getsockopt(transport_tcp.fd(server.conn), SOL_SOCKET, SO_KEEPALIVE, &on, &len);
    assert_int_equal(on, 1);
    assert_int_equal(transport_tcp.set_keepalive(server.conn, 0), 0);
}

static void running_out_of_descriptors_pauses_accepting(void **state) {
    struct rlimit limit, low;
    getrlimit(RLIMIT_NOFILE, &limit);
    int raw = socket(AF_INET, SOCK_STREAM, 0);
    low = limit;
    low.rlim_cur = (rlim_t)raw + 1; /* nothing above `raw` can be opened */
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)suite.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setrlimit(RLIMIT_NOFILE, &low);
    assert_int_equal(connect(raw, (struct sockaddr *)&at, sizeof at), 0);
    uint64_t turns = event_loop_stats(loop)->turns, end = clock_monotonic_us() + 50000;
    while (clock_monotonic_us() < end) event_loop_turn(loop, 50000);
    assert_true(event_loop_stats(loop)->turns - turns < 10); /* it does not spin */
    assert_null(server.conn);
    setrlimit(RLIMIT_NOFILE, &limit);
    turn_until(server.conn != NULL);
    close(raw);
}

static void a_reset_while_output_waits_ends_the_connection(void **state) {
    int raw = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)suite.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(raw, (struct sockaddr *)&at, sizeof at), 0);
    turn_until(server.conn != NULL);
    char piece[4096] = {0};
    for (int i = 0; i < 8000; i++) output_write(&server.conn->out, slice_make(piece, sizeof piece));
    conn_flush(server.conn);
    assert_true(conn_pending(server.conn) > 0);
    conn_set_reading(server.conn, false);
    struct linger hard = {.l_onoff = 1};
    setsockopt(raw, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(raw);
    turn_until(server.closed == 1);
}

/* A peer on a plain socket that reads little at a time. */
static int raw_dial(void) {
    int raw = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)suite.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(raw, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(raw, (struct sockaddr *)&at, sizeof at), 0);
    turn_until(server.conn != NULL);
    return raw;
}

/* Returns the bytes until the end of the stream; -1: reset. */
static ssize_t raw_read_all(int raw) {
    static char piece[65536];
    ssize_t total = 0;
    fcntl(raw, F_SETFL, O_NONBLOCK);
    for (;;) {
        ssize_t n = read(raw, piece, sizeof piece);
        if (n == 0) return total;
        if (n > 0)
            total += n;
        else if (errno != EAGAIN)
            return -1;
        else
            event_loop_turn(loop, 1000);
    }
}

enum { LAST_WORDS = 100000 };

/* The kernel has accepted all of the output, but the peer has read almost nothing: a reset now would lose it. */
static void say_last_words(void) {
    char piece[1000] = {0};
    for (int i = 0; i < LAST_WORDS / 1000; i++) output_write(&server.conn->out, slice_make(piece, sizeof piece));
    conn_flush(server.conn);
    assert_int_equal(conn_pending(server.conn), 0);
}

static void data_written_before_close_arrives_despite_unread_input(void **state) {
    int raw = raw_dial();
    conn_set_reading(server.conn, false);
    say_last_words();
    assert_int_equal(write(raw, "nobody reads this", 17), 17);
    shutdown(raw, SHUT_WR);
    conn_close(server.conn);
    server.conn = NULL;
    assert_int_equal(raw_read_all(raw), LAST_WORDS);
    close(raw);
}

static void data_written_before_close_arrives_despite_later_input(void **state) {
    int raw = raw_dial();
    say_last_words();
    conn_close(server.conn);
    server.conn = NULL;
    event_loop_turn(loop, 0);
    assert_int_equal(write(raw, "nobody reads this", 17), 17);
    event_loop_turn(loop, 0);
    assert_int_equal(raw_read_all(raw), LAST_WORDS);
    close(raw);
}

static void keep_all(struct end *end) {}

static void a_closed_connection_keeps_no_input_while_it_waits_for_the_peer(void **state) {
    enum { INPUT = 200000 };
    static char input[INPUT];
    int raw = raw_dial();
    server.on_readable = keep_all;
    output_write(&server.conn->out, slice_make("reply", 5));
    conn_flush(server.conn);
    fcntl(raw, F_SETFL, O_NONBLOCK);
    size_t before = mem_used(), sent = 0;
    while (sent < INPUT) {
        ssize_t n = write(raw, input + sent, INPUT - sent);
        if (n > 0) sent += (size_t)n;
        event_loop_turn(loop, 1000);
    }
    turn_until(conn_peek(server.conn).len == INPUT);
    assert_true(mem_used() > before + INPUT - 20000);
    conn_close(server.conn);
    server.conn = NULL;
    event_loop_turn(loop, 0);
    assert_true(mem_used() < before + 20000);
    char reply[6];
    assert_int_equal(read(raw, reply, sizeof reply), 5);
    assert_int_equal(read(raw, reply, sizeof reply), 0);
    close(raw);
}

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 4096; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void closed_connections_whose_peers_do_not_end_are_few(void **state) {
    enum { PEERS = 200 };
    int before = open_descriptors(), raws[PEERS];
    for (int i = 0; i < PEERS; i++) {
        server.conn = NULL;
        raws[i] = raw_dial();
        output_write(&server.conn->out, slice_make("bye", 3));
        conn_flush(server.conn);
        conn_close(server.conn);
    }
    event_loop_turn(loop, 0);
    assert_in_range(open_descriptors() - before - PEERS, 1, PEERS / 2);
    turn_until(open_descriptors() - before == PEERS);
    for (int i = 0; i < PEERS; i++) close(raws[i]);
    server.conn = NULL;
}

/* Receives from all peers and compares with the expected bytes; `have` counts the bytes of each. Returns the total. */
static size_t receive_expected(const int *raws, size_t *have, int count, struct slice expected) {
    size_t all = 0;
    for (int i = 0; i < count; i++) {
        char piece[4096];
        ssize_t got = recv(raws[i], piece, sizeof piece, MSG_DONTWAIT);
        if (got <= 0) continue;
        assert_true((size_t)got <= expected.len - have[i]);
        assert_memory_equal(piece, expected.data + have[i], (size_t)got);
        have[i] += (size_t)got;
        all += (size_t)got;
    }
    return all;
}

static void output_of_many_connections_takes_little_memory_and_grows(void **state) {
    enum { PEERS = 300, PIECE = 100, PIECES = 300 };
    int raws[PEERS];
    struct connection *conns[PEERS];
    char expected[PIECE * PIECES];
    for (size_t i = 0; i < sizeof expected; i++) expected[i] = stream_byte(5, i);
    for (int i = 0; i < PEERS; i++) {
        server.conn = NULL;
        raws[i] = raw_dial();
        conns[i] = server.conn;
    }
    size_t before = mem_used();
    for (int i = 0; i < PEERS; i++) output_write(&conns[i]->out, slice_make(expected, PIECE));
    assert_true(mem_used() - before < 2 << 20); /* not 16 KiB for each */
    for (int piece = 1; piece < PIECES; piece++)
        for (int i = 0; i < PEERS; i++)
            output_write(&conns[i]->out, slice_make(expected + (size_t)piece * PIECE, PIECE));
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(conn_pending(conns[i]), sizeof expected);
        conn_flush(conns[i]);
    }
    size_t have[PEERS] = {0}, all = 0;
    turn_until((all += receive_expected(raws, have, PEERS, slice_make(expected, sizeof expected))) ==
               PEERS * sizeof expected);
    for (int i = 0; i < PEERS; i++) {
        conn_close(conns[i]);
        close(raws[i]);
    }
    event_loop_turn(loop, 0);
    assert_true(mem_used() - before < 2 << 20);
    server.conn = NULL;
}

/* --- Unix alone --- */

static void a_stale_socket_file_is_replaced_and_the_file_goes_on_close(void **state) {
    char error[256];
    struct stat found;
    struct listen_options options = listen_here();
    options.unix_mode = 0700;
    struct listener *second = conn_listen(&transport_unix, loop, &options, error, sizeof error);
    assert_non_null(second);
    assert_int_equal(stat(suite.host, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    listener_close(listener); /* its socket file was replaced: the new one stays */
    listener = NULL;
    assert_int_equal(stat(suite.host, &found), 0);
    listener_close(second);
    assert_int_equal(stat(suite.host, &found), -1);
}

static void a_file_that_is_not_a_socket_is_not_replaced(void **state) {
    char path[160], error[256];
    snprintf(path, sizeof path, "%s/data", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    struct listen_options options = listen_here();
    options.host = path;
    assert_null(conn_listen(&transport_unix, loop, &options, error, sizeof error));
    assert_non_null(strstr(error, path));
    unlink(path);
}

static void a_path_that_is_too_long_is_refused(void **state) {
    char path[300], error[512];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct listen_options options = listen_here();
    options.host = path;
    assert_null(conn_listen(&transport_unix, loop, &options, error, sizeof error));
    assert_int_equal(errno, ENAMETOOLONG);
}

int main(void) {
    const struct CMUnitTest tcp[] = {
        SUITE_TESTS,
        cmocka_unit_test(the_star_listens_on_all_addresses),
        cmocka_unit_test(a_closed_listeners_port_is_free_while_a_child_process_holds_its_descriptor),
        SUITE_TEST(a_listener_accepts_multipath_tcp_if_it_was_asked_to),
        SUITE_TEST(a_taken_port_is_named_in_the_error),
        SUITE_TEST(an_unknown_name_fails_with_its_reason),
        SUITE_TEST(an_unanswered_connect_times_out),
        SUITE_TEST(the_source_address_can_be_chosen),
        SUITE_TEST(keepalive_can_be_set),
        SUITE_TEST(running_out_of_descriptors_pauses_accepting),
        SUITE_TEST(a_reset_while_output_waits_ends_the_connection),
        SUITE_TEST(data_written_before_close_arrives_despite_unread_input),
        SUITE_TEST(data_written_before_close_arrives_despite_later_input),
        SUITE_TEST(a_closed_connection_keeps_no_input_while_it_waits_for_the_peer),
        SUITE_TEST(closed_connections_whose_peers_do_not_end_are_few),
        SUITE_TEST(output_of_many_connections_takes_little_memory_and_grows),
    };
    const struct CMUnitTest tcp6[] = {SUITE_TESTS};
    const struct CMUnitTest local[] = {
        SUITE_TESTS,
        SUITE_TEST(a_stale_socket_file_is_replaced_and_the_file_goes_on_close),
        SUITE_TEST(a_file_that_is_not_a_socket_is_not_replaced),
        SUITE_TEST(a_path_that_is_too_long_is_refused),
    };
    int failed = cmocka_run_group_tests_name("tcp", tcp, use_tcp, NULL);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0)
        failed += cmocka_run_group_tests_name("tcp6", tcp6, use_tcp6, NULL);
    if (fd >= 0) close(fd);
    return failed + cmocka_run_group_tests_name("unix", local, use_unix, leave_unix);
}
