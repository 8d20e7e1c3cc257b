/* How connections over RDMA end, with and without TLS: what arrives before the end, and what the owner is told.
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "rdma_suite.h"
#ifdef USE_TLS
#include "net/rdma/tls_connection.h"
#endif

/* --- Owners that do not read --- */

static int hung_ups;
static void note_hung_up(struct connection *conn) {
    hung_ups++;
}
static const struct connection_events hearing = {
    .readable = end_readable, .drained = end_drained, .closed = end_closed, .hung_up = note_hung_up};

static void open_with(const struct connection_events *events) {
    client.connected = server.closed = hung_ups = 0;
    client.sent = server.sent = client.consumed = server.consumed = 0;
    client.on_closed = server.on_closed = NULL;
    open_both();
    conn_set_trusted(server.conn, true);
    server.conn->events = events;
}
static void turn_some(void) {
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
}

/* Nothing else tells an owner that will never read again, and whose output is dropped: it would stay for ever. */
static void an_owner_that_does_not_read_hears_of_an_end_behind_bytes(void **state) {
    open_with(&hearing);
    conn_set_reading(server.conn, false);
    send_stream(&client, 100);
    close_self(&client);
    turn_until(hung_ups == 1);
    assert_true(server.conn->hung_up);
    turn_some();
    assert_int_equal(server.closed + server.readable, 0);
    conn_set_reading(server.conn, true);
    turn_until(server.closed == 1);
    assert_int_equal(server.consumed, 100);
    assert_int_equal(hung_ups, 1);
    assert_false(server.corrupt);
}

/* Its output has been dropped, so it gets no `drained`. */
static void an_owner_that_waits_for_its_output_hears_of_the_end(void **state) {
    open_with(&hearing);
    conn_set_reading(client.conn, false);
    server.pending_bound = 64 << 20;
    send_stream(&server, 24 << 20);
    turn_some();
    assert_true(conn_pending(server.conn) > 0);
    send_stream(&client, 100);
    turn_until(server.consumed == 100);
    conn_set_reading(server.conn, false);
    send_stream(&client, 200);
    turn_some();
    client.conn->drops_output = true;
    close_self(&client);
    turn_until(hung_ups == 1);
    assert_int_equal(server.drained + server.closed, 0);
    assert_int_equal(conn_pending(server.conn), 0);
    close_self(&server);
}

static void close_in_hung_up(struct connection *conn) {
    hung_ups++;
    close_self(conn->owner);
}
static void an_owner_may_close_when_it_hears_of_the_end(void **state) {
    static const struct connection_events closing = {
        .readable = end_readable, .drained = end_drained, .closed = end_closed, .hung_up = close_in_hung_up};
    open_with(&closing);
    conn_set_reading(server.conn, false);
    send_stream(&client, 100);
    close_self(&client);
    turn_until(server.conn == NULL);
    turn_some();
    assert_int_equal(server.closed, 0);
    assert_int_equal(rdma_stats()->connections, 0);
}

static void an_owner_without_the_handler_gets_the_end_although_it_does_not_read(void **state) {
    open_with(&end_events);
    conn_set_reading(server.conn, false);
    close_self(&client);
    turn_until(server.closed == 1);
}

/* Paused because it still executes what it has got: `closed` would discard that. */
static void an_end_with_an_error_waits_until_its_owner_reads_again(void **state) {
    for (int i = 0; i < 2; i++) {
        open_with(&hearing);
        server.on_readable = leave_everything;
        send_stream(&client, 100);
        turn_until(server.conn->in_len == 100);
        conn_set_reading(server.conn, false);
        struct connection *carrier = conn_carrier(server.conn);
        rdma_of(carrier)->callbacks->failed(rdma_of(carrier), i ? ETIMEDOUT : 0, NULL);
        turn_until(hung_ups == 1);
        turn_some();
        assert_int_equal(server.closed, 0);
        assert_int_equal(server.conn->in_len, 100);
        server.on_readable = NULL;
        server.on_closed = leave_everything;
        end_readable(server.conn);
        conn_set_reading(server.conn, true);
        turn_until(server.closed == 1);
        assert_int_equal(server.consumed, 100);
        assert_int_equal(server.conn->error, i ? ETIMEDOUT : 0);
        assert_int_equal(hung_ups, 1);
        close_self(&server);
        close_self(&client);
    }
}

#define OWNER_TESTS                                                                                                    \
    SUITE_TEST(an_owner_that_does_not_read_hears_of_an_end_behind_bytes),                                              \
        SUITE_TEST(an_owner_that_waits_for_its_output_hears_of_the_end),                                               \
        SUITE_TEST(an_owner_may_close_when_it_hears_of_the_end),                                                       \
        SUITE_TEST(an_end_with_an_error_waits_until_its_owner_reads_again)

static const struct CMUnitTest plain_tests[] = {
    OWNER_TESTS,
    SUITE_TEST(an_owner_without_the_handler_gets_the_end_although_it_does_not_read),
};

/* --- TLS --- */

#ifdef USE_TLS
static char folder[] = "/tmp/test-rdma-ends-XXXXXX";

static void use(enum tls_role role, const struct tls_settings *settings) {
    char error[512];
    struct tls_context *context = tls_context_new(role, settings, error, sizeof error);
    if (!context) fail_msg("%s", error);
    tls_use(role, context);
}
static int use_tls(void **state) {
    char command[200], ca[64], cert[64], key[64];
    use_rdma(state);
    suite.transport = &transport_rdma_tls;
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command, "tests/harness/make-certificates %s", folder);
    if (system(command) != 0) return -1;
    snprintf(ca, sizeof ca, "%s/ca.crt", folder);
    snprintf(cert, sizeof cert, "%s/server.crt", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    use(TLS_SERVER, &(struct tls_settings){.cert_file = cert, .key_file = key, .ca_file = ca});
    use(TLS_CLIENT, &(struct tls_settings){.ca_file = ca, .auth = TLS_AUTH_YES});
    return 0;
}
static int leave_tls(void **state) {
    char command[200];
    tls_use(TLS_SERVER, NULL);
    tls_use(TLS_CLIENT, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Ends of the stream that no close_notify authenticates are errors for this peer. */
static void heed_the_notice(struct end *end) {
    SSL_clear_options(tls_of(end->conn)->ssl, SSL_OP_IGNORE_UNEXPECTED_EOF);
}

/* conn_close() encrypts 16 MiB. The rest is lost, and a complete stream ends with close_notify. */
static void a_stream_that_closing_cuts_off_ends_without_close_notify(void **state) {
    static const uint64_t sizes[] = {1 << 20, 24 << 20};
    for (int i = 0; i < 2; i++) {
        client.connected = client.closed = 0;
        client.consumed = server.sent = 0;
        open_both();
        heed_the_notice(&client);
        client.on_closed = leave_everything;
        conn_set_reading(client.conn, false);
        server.pending_bound = 64 << 20;
        send_stream(&server, sizes[i]);
        close_self(&server);
        conn_set_reading(client.conn, true);
        turn_until(client.closed == 1);
        assert_false(client.corrupt);
        assert_int_equal(client.consumed == sizes[i], i == 0);
        assert_int_equal(client.conn->error == 0, i == 0);
        close_self(&client);
    }
}

static const struct CMUnitTest tls_tests[] = {
    OWNER_TESTS,
    SUITE_TEST(a_stream_that_closing_cuts_off_ends_without_close_notify),
};
#endif

int main(int argc, char **argv) {
    if (!rdma_device_arranged(argv[0])) return 1;
    int failed = cmocka_run_group_tests_name("ends of rdma", plain_tests, use_rdma, NULL);
#ifdef USE_TLS
    failed += cmocka_run_group_tests_name("ends of rdma-tls", tls_tests, use_tls, leave_tls);
#endif
    return failed;
}
#else
int main(void) {
    return 0;
}
#endif
