/* How connections over RDMA end, with and without TLS: what arrives before the end, and what the owner is told.
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "net/rdma/completion.h"
#include "net/rdma/lifetime.h"
#include "rdma_suite.h"
#include <fcntl.h>
#ifdef USE_TLS
#include "certificates.h"
#include "net/rdma/tls_connection.h"
#include "net/socket.h"
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

/* --- What arrived before a failure --- */

static char fails[64]; /* posting to the send queue whose number is in this file fails */

static void fail_posting(const struct rdma_connection *c) {
    char number[16];
    int fd = open(fails, O_CREAT | O_WRONLY | O_TRUNC, 0600), len = snprintf(number, sizeof number, "%u", c->qp.number);
    assert_int_equal(write(fd, number, (size_t)len), len);
    close(fd);
}

enum failure { SEND_FAILED, POST_FAILED, FLUSHED, DEVICE_GONE, FAILURES };

static void fail_now(struct rdma_connection *c, enum failure failure) {
    struct ibv_wc wc = {.status = failure == FLUSHED ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR,
                        .wr_id = (uint64_t)c->send.posted << 1};
    switch (failure) {
    case SEND_FAILED: rdma_connection_broken(c, &wc); break;
    case POST_FAILED:
        fail_posting(c);
        send_stream(&server, server.sent + 100);
        unlink(fails);
        break;
    case FLUSHED: c->timer.fire(&c->timer); break; /* of an earlier completion */
    default: rdma_device_gone(c->qp.device);
    }
}

/* The completion of a message may be in a queue that is fetched later than the one that tells of the failure. */
static void messages_that_arrived_before_a_failure_are_delivered(void **state) {
    static const int errors[] = {ETIMEDOUT, EIO, ECONNRESET, ENODEV};
    for (enum failure i = 0; i < FAILURES; i++) {
        if (i == POST_FAILED && strncmp(rdma_device_name(), "softrdma", 8) != 0) continue;
        open_with(&hearing);
        struct rdma_connection *c = rdma_of(server.conn);
        turn_some();
        if (i == FLUSHED) {
            rdma_connection_broken(c, &(struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR});
            turn_until(c->timer.heap_index);
        }
        server.on_closed = leave_everything;
        send_stream(&client, 100);
        fail_now(c, i);
        turn_until(server.closed == 1);
        assert_int_equal(server.consumed, 100);
        assert_int_equal(server.conn->error, errors[i]);
        assert_false(server.corrupt);
        close_self(&server);
        turn_some();
        if (client.conn) close_self(&client);
        turn_some();
    }
}

static enum ibv_qp_state state_of(const struct rdma_connection *c) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(c->qp.verbs, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* Until it is destroyed it would use receives of the shared queue, whose completions go with it. */
static void a_queue_pair_receives_nothing_after_the_end_of_its_connection(void **state) {
    struct rdma_connection *c;
    for (bool connecting = false; !connecting;) { /* it is caught before it is open, sooner or later */
        server.conn = NULL;
        dial(&client);
        c = rdma_of(client.conn);
        turn_until(c->qp.verbs);
        connecting = c->phase != RDMA_ESTABLISHED;
        client.conn->drops_output = true;
        conn_close(client.conn);
        assert_int_equal(state_of(c), IBV_QPS_ERR);
        turn_some();
    }
    open_with(&hearing);
    c = rdma_of(client.conn);
    client.conn->drops_output = true;
    conn_close(client.conn);
    assert_int_equal(state_of(c), IBV_QPS_ERR);
    client.conn = NULL;
    turn_until(server.closed);
}

static void a_connection_that_is_cut_has_no_queue_pair_and_delivers_what_arrived(void **state) {
    open_with(&hearing);
    struct rdma_connection *c = rdma_of(server.conn);
    turn_some();
    uint64_t pairs = rdma_stats()->queue_pairs;
    server.on_closed = leave_everything;
    send_stream(&client, 100);
    rdma_connection_cut(c, EIO, "as if memory could not be deregistered");
    assert_null(c->qp.verbs);
    assert_int_equal(rdma_stats()->queue_pairs, pairs - 1);
    turn_until(server.closed == 1);
    assert_int_equal(server.consumed, 100);
    assert_int_equal(server.conn->error, EIO);
    close_self(&server);
    turn_until(client.closed);
}

/* A crowd whose queue pairs fail has more requests to flush than a completion queue of a few connections has entries.
 */
static void draining_leaves_no_completion(void **state) {
    enum { CROWD = 200, REQUESTS = 60 };
    struct end *near = mem_calloc(CROWD, sizeof *near);
    for (int i = 0; i < CROWD; i++) {
        server.conn = NULL;
        near[i].pending_bound = 1;
        dial(&near[i]);
        turn_until(conn_is_open(near[i].conn) && server.conn);
    }
    turn_some();
    struct rdma_device *device = rdma_of(near[0].conn)->qp.device;
    uint64_t before = rdma_stats()->completions;
    for (int i = 0; i < CROWD; i++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        assert_int_equal(ibv_modify_qp(rdma_of(near[i].conn)->qp.verbs, &attr, IBV_QP_STATE), 0);
        for (int k = 0; k < REQUESTS; k++) send_stream(&near[i], near[i].sent + 1);
    }
    rdma_device_drain(device);
    assert_true(rdma_stats()->completions - before > 10000);
    struct ibv_wc wc;
    for (int i = 0; i < device->queue_count; i++) assert_int_equal(ibv_poll_cq(device->queues[i].cq, 1, &wc), 0);
    turn_until(server.closed == CROWD);
    for (int i = 0; i < CROWD; i++) turn_until(near[i].closed == 1);
    server.conn = NULL;
    mem_free(near);
}

#define OWNER_TESTS                                                                                                    \
    SUITE_TEST(an_owner_that_does_not_read_hears_of_an_end_behind_bytes),                                              \
        SUITE_TEST(an_owner_that_waits_for_its_output_hears_of_the_end),                                               \
        SUITE_TEST(an_owner_may_close_when_it_hears_of_the_end),                                                       \
        SUITE_TEST(an_end_with_an_error_waits_until_its_owner_reads_again)

static const struct CMUnitTest plain_tests[] = {
    OWNER_TESTS,
    SUITE_TEST(messages_that_arrived_before_a_failure_are_delivered),
    SUITE_TEST(a_queue_pair_receives_nothing_after_the_end_of_its_connection),
    SUITE_TEST(a_connection_that_is_cut_has_no_queue_pair_and_delivers_what_arrived),
    SUITE_TEST(draining_leaves_no_completion),
    SUITE_TEST(an_owner_without_the_handler_gets_the_end_although_it_does_not_read),
};

/* --- TLS --- */

#ifdef USE_TLS
static struct tls_settings server_settings, client_settings;
static char long_cert[64];

/* Of 50 KB, more than OpenSSL reads in a step of a handshake. */
static bool make_long_certificate(void) {
    char path[64], command[500];
    path_make(path, "long.ext");
    path_make(long_cert, "long.crt");
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fputs("subjectAltName=IP:127.0.0.1", file);
    for (int i = 0; i < 1000; i++) fprintf(file, ",DNS:host-%05d.some.long.domain.of.an.example.test", i);
    fputc('\n', file);
    fclose(file);
    snprintf(
        command, sizeof command,
        "cd %s && exec 2>/dev/null && openssl req -new -key server.key -subj /CN=long -out long.csr && openssl x509 "
        "-req -in long.csr -sha256 -days 1 -CA ca.crt -CAkey ca.key -set_serial 99 -extfile long.ext -out long.crt",
        folder);
    return system(command) == 0;
}
static int use_tls(void **state) {
    use_rdma(state);
    suite.transport = &transport_rdma_tls;
    if (!certificates_make()) return -1;
    server_settings = (struct tls_settings){.cert_file = own_cert, .key_file = own_key, .ca_file = ca};
    client_settings = (struct tls_settings){.ca_file = ca, .auth = TLS_AUTH_YES};
    use(TLS_SERVER, server_settings);
    use(TLS_CLIENT, client_settings);
    return make_long_certificate() ? 0 : -1;
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

/* The peer sends its certificates, its last message of the handshake and a request, and disconnects while most of them
 * wait for their step of the handshake. */
static void a_request_of_a_peer_that_ends_behind_its_handshake_is_delivered(void **state) {
    struct tls_settings asking = server_settings, owning = client_settings;
    asking.auth = TLS_AUTH_YES;
    owning.cert_file = long_cert;
    owning.key_file = own_key;
    use(TLS_SERVER, asking);
    use(TLS_CLIENT, owning);
    uint64_t failed = socket_stats.handshakes_failed;
    struct list *handshakes = &rdma_tls_pool_of(loop)->handshakes;
    client.to_send = 100;
    client.on_connected = client.on_drained = end_pump;
    dial(&client);
    turn_until(client.sent == 100 && conn_pending(client.conn) == 0);
    struct rdma_tls *arrival = container_of(list_first(handshakes), struct rdma_tls, handshake_link);
    struct rdma_connection *carrier = rdma_of(arrival->raw);
    rdma_device_drain(carrier->qp.device);
    carrier->callbacks->failed(carrier, 0, NULL);
    rdma_connection_run(carrier);
    turn_until(server.closed == 1 || socket_stats.handshakes_failed != failed);
    use(TLS_SERVER, server_settings);
    use(TLS_CLIENT, client_settings);
    assert_int_equal(server.consumed, 100);
    assert_int_equal(socket_stats.handshakes_failed, failed);
    assert_false(server.corrupt);
}

/* The peer asks for new keys and does not take the answers, until this end reads nothing more. Then it is gone. */
static void a_peer_that_takes_no_answers_and_is_gone_has_ended(void **state) {
    open_both();
    conn_set_trusted(server.conn, true);
    SSL *ssl = tls_of(client.conn)->ssl;
    conn_set_reading(client.conn, false);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(ssl), 1);
    }
    conn_flush(tls_of(client.conn)->raw);
    turn_until(tls_of(server.conn)->answers_wait);
    client.conn->drops_output = true;
    close_self(&client);
    turn_until(server.closed == 1);
}

static const struct CMUnitTest tls_tests[] = {
    SUITE_TEST(a_request_of_a_peer_that_ends_behind_its_handshake_is_delivered),
    SUITE_TEST(a_peer_that_takes_no_answers_and_is_gone_has_ended),
    OWNER_TESTS,
    SUITE_TEST(a_stream_that_closing_cuts_off_ends_without_close_notify),
};
#endif

int main(int argc, char **argv) {
    snprintf(fails, sizeof fails, "/tmp/test-rdma-ends.%d", (int)getpid());
    if (!getenv("RDMA_TEST_FAULTS")) { /* the device reads its rules at the start */
        char rule[128];
        snprintf(rule, sizeof rule, "post_send:fail=EIO,while=%s", fails);
        setenv("SOFTRDMA_FAULTS", rule, 1);
        setenv("RDMA_TEST_FAULTS", "1", 1);
        execv("/proc/self/exe", argv);
    }
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
