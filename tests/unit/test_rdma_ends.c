/* How connections over RDMA end, with and without TLS: what arrives before the end, and what the owner is told.
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "rdma_suite.h"
#ifdef USE_TLS
#include "net/rdma/tls_connection.h"

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
    SUITE_TEST(a_stream_that_closing_cuts_off_ends_without_close_notify),
};
#endif

int main(int argc, char **argv) {
    int failed = 0;
    if (!rdma_device_arranged(argv[0])) return 1;
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
