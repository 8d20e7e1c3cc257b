/* TLS: the guarantees of every transport, and those specific to TLS: failing handshakes, versions, certificates. */
#ifdef USE_TLS
#include "certificates.h"
#include "net/socket.h"
#include "transport_suite.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static char client_cert[64], client_key[64], error[512];

static struct tls_settings server_settings_plain(void) {
    return (struct tls_settings){.cert_file = own_cert,
                                 .key_file = own_key,
                                 .ca_file = ca,
                                 .session_caching = true,
                                 .session_cache_size = 100,
                                 .session_cache_timeout = 300};
}
static struct tls_settings client_settings_plain(void) {
    return (struct tls_settings){.ca_file = ca, .auth = TLS_AUTH_YES};
}

static int use_tls(void **state) {
    if (!certificates_make()) return -1;
    path_make(client_cert, "client.crt");
    path_make(client_key, "client.key");
    suite = (struct suite){
        .transport = &transport_tls, .host = "127.0.0.1", .bulk = 16 << 20, .crowd = 200, .idle = 20 * 1024};
    return 0;
}
static int tls_setup(void **state) {
    use(TLS_SERVER, server_settings_plain());
    use(TLS_CLIENT, client_settings_plain());
    tls_set_peer_names(TLS_NAMES_NONE);
    socket_settings.handshake_timeout_ms = 10000;
    return suite_setup(state);
}

/* Fails to connect; returns the text of the error. */
static const char *refused_text(void) {
    client.on_closed = leave_everything;
    dial(&client);
    turn_until(client.closed == 1);
    return conn_error_text(client.conn);
}

static int raw_dial(void) {
    int raw = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)suite.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(raw, (struct sockaddr *)&at, sizeof at), 0);
    return raw;
}

/* Runs the loop until the peer has ended or reset the stream. */
static void raw_wait_end(int raw) {
    char dropped[4096];
    fcntl(raw, F_SETFL, O_NONBLOCK);
    for (;;) {
        ssize_t n = read(raw, dropped, sizeof dropped);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return;
        event_loop_turn(loop, 1000);
    }
}

/* An OpenSSL client on a nonblocking socket, because one thread runs both ends. */
static SSL *plain_client(SSL_CTX **context, int raw) {
    *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(*context);
    fcntl(raw, F_SETFL, O_NONBLOCK);
    SSL_set_fd(ssl, raw);
    SSL_set_connect_state(ssl);
    return ssl;
}
static void plain_handshake(SSL *ssl) {
    while (SSL_do_handshake(ssl) <= 0) {
        assert_true(SSL_want_read(ssl) || SSL_want_write(ssl));
        event_loop_turn(loop, 1000);
    }
}

/* --- Certificates --- */

static void the_server_needs_a_certificate_of_a_known_authority(void **state) {
    struct tls_settings settings = client_settings_plain();
    char foreign[64];
    path_make(foreign, "foreign-ca.crt");
    settings.ca_file = foreign;
    use(TLS_CLIENT, settings);
    assert_non_null(strstr(refused_text(), "certificate verify failed"));
    assert_int_equal(client.conn->error, EPROTO);
    assert_null(server.conn); /* the listener was not notified */
}

static void the_clients_verification_can_be_switched_off(void **state) {
    use(TLS_CLIENT, (struct tls_settings){.auth = TLS_AUTH_NO});
    open_both();
}

static void a_client_without_a_certificate_is_refused_where_one_is_needed(void **state) {
    struct tls_settings settings = server_settings_plain();
    settings.auth = TLS_AUTH_YES;
    use(TLS_SERVER, settings);
    /* In TLS 1.3 a client is connected before the server has checked its certificate. */
    assert_non_null(strstr(refused_text(), "certificate required"));
    assert_null(server.conn);
}

static void a_client_certificate_is_optional_if_the_server_says_so(void **state) {
    struct tls_settings settings = server_settings_plain(), own = client_settings_plain();
    settings.auth = TLS_AUTH_OPTIONAL;
    use(TLS_SERVER, settings);
    open_both();
    assert_null(conn_peer_names(server.conn));
    conn_close(client.conn);
    turn_until(server.conn == NULL);
    client.connected = 0;
    char foreign[64], foreign_key[64];
    path_make(foreign, "foreign.crt");
    path_make(foreign_key, "foreign.key");
    own.cert_file = foreign;
    own.key_file = foreign_key;
    use(TLS_CLIENT, own); /* optional, but not any certificate */
    assert_non_null(strstr(refused_text(), "unknown ca"));
}

static void the_names_of_a_client_certificate_are_known(void **state) {
    static const struct {
        enum tls_names wanted;
        const char *names;
        size_t len;
    } cases[] = {{TLS_NAMES_CN, "default\0", 9}, {TLS_NAMES_URI, "urn:nobody\0urn:default\0", 24}};
    struct tls_settings settings = server_settings_plain(), own = client_settings_plain();
    settings.auth = TLS_AUTH_YES;
    own.cert_file = client_cert;
    own.key_file = client_key;
    use(TLS_SERVER, settings);
    use(TLS_CLIENT, own);
    for (int i = 0; i < 2; i++) {
        tls_set_peer_names(cases[i].wanted);
        client.connected = 0;
        open_both();
        assert_non_null(conn_peer_names(server.conn));
        assert_memory_equal(conn_peer_names(server.conn), cases[i].names, cases[i].len);
        conn_close(client.conn);
        turn_until(server.conn == NULL);
    }
    client.conn = NULL;
}

static void certificates_are_described(void **state) {
    struct tls_certificates certificates;
    tls_certificates(TLS_SERVER, &certificates);
    assert_true(strlen(certificates.own.serial) >= 16);
    assert_in_range(certificates.own.expires_in, 23 * 3600, 24 * 3600);
    assert_in_range(certificates.ca.expires_in, 47 * 3600, 48 * 3600);
    tls_certificates(TLS_CLIENT, &certificates);
    assert_string_equal(certificates.own.serial, "none");
    assert_int_equal(certificates.own.expires_in, 0);
}

static void a_connection_outlives_the_context_it_began_with(void **state) {
    open_both();
    use(TLS_SERVER, server_settings_plain());
    tls_use(TLS_CLIENT, NULL);
    send_stream(&client, 100000);
    turn_until(server.consumed == 100000);
    assert_false(server.corrupt);
}

static void without_a_context_connections_fail(void **state) {
    tls_use(TLS_CLIENT, NULL);
    assert_string_equal(refused_text(), "TLS is not configured");
    tls_use(TLS_SERVER, NULL);
    int raw = raw_dial();
    raw_wait_end(raw);
    close(raw);
}

/* --- Settings --- */

static void wrong_settings_are_refused_with_their_reason(void **state) {
    static const char *const cases[][2] = {{"server.crt/no", "Failed to load certificate: "},
                                           {"no.key", "Failed to load private key: "},
                                           {"client.key", "Failed to load private key: "},
                                           {"locked.key", "Failed to load private key: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tls_settings settings = server_settings_plain();
        char path[64];
        path_make(path, cases[i][0]);
        if (i == 0)
            settings.cert_file = path;
        else
            settings.key_file = path;
        assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
        assert_memory_equal(error, cases[i][1], strlen(cases[i][1]));
        assert_int_equal(ERR_peek_error(), 0);
    }
    struct tls_settings settings = server_settings_plain();
    settings.protocols = "TLSv1.2 SSLv3";
    assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
    assert_memory_equal(error, "Invalid tls-protocols", 21);
    settings.protocols = NULL;
    settings.ciphers = "bogus";
    assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
    assert_string_equal(error, "Failed to configure ciphers: bogus");
    settings.ciphers = NULL;
    settings.dh_file = own_cert;
    assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
    settings.dh_file = NULL;
    settings.ca_file = NULL;
    settings.auth = TLS_AUTH_YES;
    assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
    assert_memory_equal(error, "Either tls-ca-cert-file", 23);
    settings.cert_file = NULL;
    assert_null(tls_context_new(TLS_SERVER, &settings, error, sizeof error));
    assert_string_equal(error, "No tls-cert-file configured!");
}

static void a_key_with_a_password_and_dh_parameters_are_read(void **state) {
    struct tls_settings settings = server_settings_plain();
    char locked[64], dh[64];
    path_make(locked, "locked.key");
    path_make(dh, "dh.pem");
    settings.key_file = locked;
    settings.key_password = "secret";
    settings.dh_file = dh;
    use(TLS_SERVER, settings);
    open_both();
}

static void both_sides_must_have_a_version_in_common(void **state) {
    struct tls_settings settings = server_settings_plain(), own = client_settings_plain();
    char text[128];
    settings.protocols = "TLSv1.2";
    use(TLS_SERVER, settings);
    open_both();
    transport_tls.describe(server.conn, text, sizeof text);
    assert_memory_equal(text, "tls=TLSv1.2 cipher=ECDHE-", 25);
    conn_close(client.conn);
    turn_until(server.conn == NULL);
    own.protocols = "tlsv1.3";
    use(TLS_CLIENT, own);
    assert_non_null(strstr(refused_text(), "protocol version"));
}

/* --- Sessions --- */

static void sessions_are_resumed_unless_caching_is_off(void **state) {
    for (int caching = 1; caching >= 0; caching--) {
        struct tls_settings settings = server_settings_plain();
        settings.session_caching = caching;
        use(TLS_SERVER, settings);
        SSL_CTX *context;
        SSL_SESSION *session = NULL;
        for (int i = 0; i < 2; i++) {
            int raw = raw_dial();
            uint64_t resumed = tls_stats.resumed;
            server.conn = NULL;
            SSL *ssl = plain_client(&context, raw);
            if (session) SSL_set_session(ssl, session);
            plain_handshake(ssl);
            turn_until(server.conn != NULL);
            output_write(&server.conn->out, SLICE("x"));
            conn_flush(server.conn);
            char byte;
            while (SSL_read(ssl, &byte, 1) <= 0) event_loop_turn(loop, 1000); /* and reads the ticket before it */
            assert_int_equal(tls_stats.resumed - resumed, i == 1 && caching);
            assert_int_equal(SSL_session_reused(ssl), i == 1 && caching);
            SSL_SESSION_free(session);
            session = SSL_get1_session(ssl);
            SSL_shutdown(ssl);
            SSL_free(ssl);
            SSL_CTX_free(context);
            close(raw);
            turn_until(server.conn == NULL);
        }
        SSL_SESSION_free(session);
    }
}

/* A certificate that the authority of the tests has signed for `key`, valid for `seconds`. */
static X509 *certificate_lasting(EVP_PKEY *key, int seconds) {
    char path[64];
    FILE *file;
    path_make(path, "ca.key");
    EVP_PKEY *authority_key = (file = fopen(path, "r")) ? PEM_read_PrivateKey(file, NULL, NULL, NULL) : NULL;
    fclose(file);
    X509 *authority = (file = fopen(ca, "r")) ? PEM_read_X509(file, NULL, NULL, NULL) : NULL, *made = X509_new();
    fclose(file);
    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 77);
    X509_gmtime_adj(X509_getm_notBefore(made), -60);
    X509_gmtime_adj(X509_getm_notAfter(made), seconds);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC, (const uint8_t *)"short", -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(authority));
    X509_set_pubkey(made, key);
    assert_true(X509_sign(made, authority_key, EVP_sha256()) > 0);
    X509_free(authority);
    EVP_PKEY_free(authority_key);
    return made;
}

/* A client of `version` connects with the certificate, offers *session and replaces it. Returns whether the server
 * resumed it. */
static bool resumed_with(X509 *certificate, EVP_PKEY *key, int version, SSL_SESSION **session) {
    SSL_CTX *context;
    int raw = raw_dial();
    server.conn = NULL;
    SSL *ssl = plain_client(&context, raw);
    SSL_set_min_proto_version(ssl, version);
    SSL_set_max_proto_version(ssl, version);
    assert_int_equal(SSL_use_certificate(ssl, certificate), 1);
    assert_int_equal(SSL_use_PrivateKey(ssl, key), 1);
    if (*session) SSL_set_session(ssl, *session);
    plain_handshake(ssl);
    turn_until(server.conn != NULL);
    output_write(&server.conn->out, SLICE("x"));
    conn_flush(server.conn);
    char byte;
    while (SSL_read(ssl, &byte, 1) <= 0) event_loop_turn(loop, 1000); /* and reads the ticket before it */
    bool resumed = SSL_session_reused(ssl);
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(ssl);
    end_close(&server);
    while (SSL_read(ssl, &byte, 1) <= 0 && !SSL_get_shutdown(ssl)) event_loop_turn(loop, 1000);
    SSL_shutdown(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(raw);
    return resumed;
}

static void a_ticket_ends_with_the_certificate_of_the_client(void **state) {
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct tls_settings settings = server_settings_plain();
    settings.auth = TLS_AUTH_YES;
    use(TLS_SERVER, settings);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *brief = certificate_lasting(key, 3), *renewed = certificate_lasting(key, 3600);
    SSL_SESSION *sessions[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        assert_false(resumed_with(brief, key, versions[i], &sessions[i]));
        assert_true(resumed_with(brief, key, versions[i], &sessions[i]));
    }
    turn_until(X509_cmp_current_time(X509_get0_notAfter(brief)) < 0);
    for (int i = 0; i < 2; i++) {
        assert_false(resumed_with(renewed, key, versions[i], &sessions[i]));
        assert_true(resumed_with(renewed, key, versions[i], &sessions[i]));
        SSL_SESSION_free(sessions[i]);
    }
    X509_free(brief);
    X509_free(renewed);
    EVP_PKEY_free(key);
}

/* --- Peers that misbehave --- */

static void a_peer_that_speaks_no_tls_is_closed(void **state) {
    int raw = raw_dial();
    uint64_t failed = socket_stats.handshakes_failed;
    assert_int_equal(write(raw, "*1\r\n$4\r\nPING\r\n", 14), 14);
    raw_wait_end(raw);
    assert_int_equal(socket_stats.handshakes_failed, failed + 1);
    turn_until(socket_stats.handshakes == 0);
    assert_null(server.conn);
    close(raw);
}

static void a_peer_that_closes_in_the_handshake_leaves_nothing(void **state) {
    int raw = raw_dial();
    turn_until(socket_stats.handshakes == 1);
    close(raw);
    turn_until(socket_stats.handshakes == 0);
    assert_null(server.conn);
}

static void a_silent_peer_is_closed_when_its_time_is_over(void **state) {
    socket_settings.handshake_timeout_ms = 50;
    int raw = raw_dial();
    turn_until(socket_stats.handshakes == 1);
    raw_wait_end(raw);
    assert_int_equal(socket_stats.handshakes, 0);
    assert_null(server.conn);
    close(raw);
}

static void closing_the_listener_closes_handshakes(void **state) {
    int raw = raw_dial();
    turn_until(socket_stats.handshakes == 1);
    listener_close(listener);
    listener = NULL;
    assert_int_equal(socket_stats.handshakes, 0);
    raw_wait_end(raw);
    close(raw);
}

static void the_client_gives_up_when_its_time_is_over(void **state) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    getsockname(fd, (struct sockaddr *)&at, &len);
    client.on_closed = leave_everything;
    struct connect_options options = {
        .host = "127.0.0.1", .port = ntohs(at.sin_port), .timeout_ms = 100, .events = &end_events, .owner = &client};
    client.conn = conn_connect(&transport_tls, loop, &options);
    turn_until(client.closed == 1);
    assert_int_equal(client.conn->error, ETIMEDOUT);
    close(fd);
}

/* An OpenSSL peer: a server if our end connects, otherwise a client. Its stream ends after `cut` bytes. Returns the
 * number of bytes that it had sent when its handshake was complete or its stream ended. */
static size_t cut_handshake(int listening, int version, size_t cut) {
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    SSL_set_max_proto_version(ssl, version);
    int raw = -1;
    if (listening >= 0) {
        assert_int_equal(SSL_use_certificate_file(ssl, own_cert, SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_use_PrivateKey_file(ssl, own_key, SSL_FILETYPE_PEM), 1);
        SSL_set_accept_state(ssl);
        client.closed = 0;
        client.on_closed = leave_everything;
        dial(&client);
        turn_until((raw = accept(listening, NULL, NULL)) >= 0);
    } else {
        SSL_set_connect_state(ssl);
        raw = raw_dial();
        turn_until(socket_stats.handshakes == 1);
    }
    fcntl(raw, F_SETFL, O_NONBLOCK);
    size_t sent = 0;
    for (bool complete = false; sent < cut && !complete;) {
        char bytes[16384];
        complete = SSL_do_handshake(ssl) == 1;
        ERR_clear_error();
        int len = BIO_read(out, bytes, (int)(cut - sent < sizeof bytes ? cut - sent : sizeof bytes));
        if (len > 0) {
            assert_int_equal(write(raw, bytes, (size_t)len), len);
            sent += (size_t)len;
            complete = false;
        }
        event_loop_turn(loop, len > 0 || complete ? 0 : 1000);
        ssize_t n = read(raw, bytes, sizeof bytes);
        if (n > 0) BIO_write(in, bytes, (int)n);
    }
    shutdown(raw, SHUT_WR);
    if (listening >= 0) {
        turn_until(client.closed == 1);
        end_close(&client);
    } else {
        turn_until(socket_stats.handshakes == 0 && server.conn == NULL);
    }
    close(raw);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return sent;
}

static void a_handshake_cut_at_every_byte_leaves_nothing(void **state) {
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; i++) {
        size_t whole = cut_handshake(-1, versions[i], SIZE_MAX);
        assert_true(whole > 200);
        uint64_t complete = tls_stats.handshakes, failed = socket_stats.handshakes_failed;
        for (size_t cut = 0; cut < whole; cut++) assert_int_equal(cut_handshake(-1, versions[i], cut), cut);
        assert_int_equal(tls_stats.handshakes, complete);
        assert_int_equal(socket_stats.handshakes_failed, failed + whole);
    }
}

/* The length of a signature differs by a few bytes from one handshake to the next. */
static void a_servers_handshake_cut_at_every_byte_ends_the_connection(void **state) {
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), port = suite.port;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    assert_int_equal(bind(listening, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listening, 16), 0);
    getsockname(listening, (struct sockaddr *)&at, &len);
    suite.port = ntohs(at.sin_port);
    for (int i = 0; i < 2; i++) {
        size_t whole = cut_handshake(listening, versions[i], SIZE_MAX);
        assert_true(whole > 500);
        assert_int_equal(client.connected, 1);
        client.connected = 0;
        for (size_t cut = 0; cut + 16 < whole; cut++) cut_handshake(listening, versions[i], cut);
        /* In TLS 1.3 two tickets of more than 200 bytes follow the handshake. */
        assert_true(versions[i] == TLS1_3_VERSION ? client.connected > 0 : client.connected == 0);
        client.connected = 0;
    }
    suite.port = port;
    close(listening);
}

static void changed_bytes_in_the_handshake_and_after_it_end_the_connection(void **state) {
    for (int i = 0; i < 200; i++) {
        SSL_CTX *context;
        int raw = raw_dial();
        server.conn = NULL;
        SSL *ssl = plain_client(&context, raw);
        SSL_do_handshake(ssl); /* sends the hello */
        char junk[64];
        size_t len = 1 + random_below(sizeof junk);
        for (size_t k = 0; k < len; k++) junk[k] = (char)random_below(256);
        if (i % 2) {
            plain_handshake(ssl);
            turn_until(server.conn != NULL);
        }
        ssize_t written = write(raw, junk, len);
        assert_int_equal(written, len);
        shutdown(raw, SHUT_WR);
        raw_wait_end(raw);
        turn_until(socket_stats.handshakes == 0 && server.conn == NULL);
        SSL_free(ssl);
        SSL_CTX_free(context);
        close(raw);
    }
}

static void renegotiation_is_refused(void **state) {
    struct tls_settings settings = server_settings_plain();
    settings.protocols = "TLSv1.2";
    use(TLS_SERVER, settings);
    SSL_CTX *context;
    int raw = raw_dial();
    SSL *ssl = plain_client(&context, raw);
    plain_handshake(ssl);
    turn_until(server.conn != NULL);
    assert_int_equal(SSL_renegotiate(ssl), 1);
    while (SSL_get_error(ssl, SSL_do_handshake(ssl)) == SSL_ERROR_WANT_READ) event_loop_turn(loop, 1000);
    assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_NO_RENEGOTIATION);
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(raw);
}

/* A peer can send messages without data faster than they are handled. Other connections are served in between. */
static void a_peer_that_sends_key_updates_without_end_holds_up_nobody(void **state) {
    enum { UPDATES = 5000 };
    SSL_CTX *context;
    int raw = raw_dial(), unread = 0;
    SSL *ssl = plain_client(&context, raw);
    plain_handshake(ssl);
    turn_until(server.conn != NULL);
    for (int i = 0; i < UPDATES; i++) {
        assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(ssl), 1); /* the socket takes all of them */
    }
    turn_until(ioctl(conn_fd(server.conn), FIONREAD, &unread) == 0 && unread > 22 * UPDATES * 3 / 4);
    event_loop_turn(loop, 0);
    assert_int_equal(ioctl(conn_fd(server.conn), FIONREAD, &unread), 0);
    assert_true(unread > 22 * UPDATES / 2);
    char byte = (char)stream_byte(78, 0);
    server.expect_seed = 78;
    assert_int_equal(SSL_write(ssl, &byte, 1), 1);
    turn_until(server.consumed == 1);
    assert_false(server.corrupt);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(raw);
}

static void a_peer_that_sends_byte_by_byte_is_served(void **state) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    int raw = raw_dial();
    fcntl(raw, F_SETFL, O_NONBLOCK);
    bool sent = false;
    server.expect_seed = 77;
    while (server.consumed < 300) {
        char bytes[4096];
        if (SSL_do_handshake(ssl) == 1 && !sent) {
            for (int i = 0; i < 300; i++) bytes[i] = stream_byte(77, (uint64_t)i);
            sent = SSL_write(ssl, bytes, 300) == 300;
        }
        int len = BIO_read(out, bytes, sizeof bytes);
        for (int i = 0; i < len; i++) {
            assert_int_equal(write(raw, bytes + i, 1), 1);
            event_loop_turn(loop, 0);
        }
        ssize_t n = read(raw, bytes, 1); /* and reads byte by byte */
        if (n > 0)
            BIO_write(in, bytes, (int)n);
        else
            event_loop_turn(loop, 1000);
    }
    assert_false(server.corrupt);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(raw);
}

static void a_stream_that_ends_without_a_notice_has_ended(void **state) {
    SSL_CTX *context;
    int raw = raw_dial();
    SSL *ssl = plain_client(&context, raw);
    plain_handshake(ssl);
    turn_until(server.conn != NULL);
    server.on_closed = leave_everything;
    close(raw);
    turn_until(server.closed == 1);
    assert_true(server.conn->error == 0 || server.conn->error == ECONNRESET);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void input_that_openssl_holds_is_read_when_reading_goes_on(void **state) {
    open_both();
    /* Many small records arrive together: OpenSSL reads ahead, and the records that it holds do not make the socket
     * readable. */
    conn_set_in_limit(server.conn, 1000);
    server.on_readable = leave_everything;
    for (int i = 0; i < 100; i++) {
        char piece[100];
        for (size_t k = 0; k < sizeof piece; k++) piece[k] = stream_byte(client.send_seed, client.sent++);
        output_write(&client.conn->out, slice_make(piece, sizeof piece));
        conn_flush(client.conn);
    }
    turn_until(server.conn->in_len == 1000);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_int_equal(server.conn->in_len, 1000);
    conn_set_reading(server.conn, false);
    conn_set_in_limit(server.conn, 1 << 20);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_int_equal(server.conn->in_len, 1000);
    server.on_readable = NULL;
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == client.sent);
    assert_false(server.corrupt);
}

/* A ticket of several records has come in part, so OpenSSL must read its rest before it writes. `len` bytes of data
 * follow the ticket. */
static void write_in_a_ticket(int listening, bool paused, int len) {
    char bytes[16384], junk[2000] = {0}, data[100];
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    assert_int_equal(SSL_use_certificate_file(ssl, own_cert, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_use_PrivateKey_file(ssl, own_key, SSL_FILETYPE_PEM), 1);
    SSL_set_num_tickets(ssl, 0);
    SSL_set_max_send_fragment(ssl, 512);
    SSL_set_accept_state(ssl);
    client.closed = client.connected = 0;
    client.consumed = 0;
    dial(&client);
    int raw = -1;
    turn_until((raw = accept(listening, NULL, NULL)) >= 0);
    fcntl(raw, F_SETFL, O_NONBLOCK);
    setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    while (!client.connected || !SSL_is_init_finished(ssl)) {
        event_loop_turn(loop, 1);
        ssize_t n = read(raw, bytes, sizeof bytes);
        if (n > 0) BIO_write(in, bytes, (int)n);
        SSL_do_handshake(ssl);
        int size = BIO_read(out, bytes, sizeof bytes);
        if (size > 0) assert_int_equal(write(raw, bytes, (size_t)size), size);
    }
    SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), junk, sizeof junk);
    assert_int_equal(SSL_new_session_ticket(ssl), 1);
    for (int i = 0; i < len; i++) data[i] = (char)stream_byte(client.expect_seed, (uint64_t)i);
    assert_int_equal(SSL_write(ssl, data, len), len);
    int size = BIO_read(out, bytes, sizeof bytes), first = 5 + ((uint8_t)bytes[3] << 8 | (uint8_t)bytes[4]);
    assert_true(size > 2000 && first < 600);
    assert_int_equal(write(raw, bytes, (size_t)first), first);
    int unread = 0;
    turn_until(ioctl(conn_fd(client.conn), FIONREAD, &unread) == 0 && unread == 0);
    conn_set_reading(client.conn, !paused);
    assert_int_equal(write(raw, bytes + first, (size_t)(size - first)), size - first);
    do assert_int_equal(ioctl(conn_fd(client.conn), FIONREAD, &unread), 0);
    while (unread < size - first);
    output_write(&client.conn->out, SLICE("x"));
    conn_flush(client.conn); /* reads the ticket and the data */
    assert_int_equal(ioctl(conn_fd(client.conn), FIONREAD, &unread), 0);
    assert_int_equal(unread, 0);
    conn_set_reading(client.conn, true);
    turn_until(client.consumed == (uint64_t)len);
    assert_false(client.corrupt);
    end_close(&client);
    close(raw);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void input_that_openssl_reads_for_a_write_is_delivered(void **state) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), port = suite.port;
    assert_int_equal(bind(listening, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listening, 1), 0);
    getsockname(listening, (struct sockaddr *)&at, &len);
    suite.port = ntohs(at.sin_port);
    write_in_a_ticket(listening, false, 100);
    write_in_a_ticket(listening, true, 100);
    suite.port = port;
    close(listening);
}

int main(void) {
#define TLS_TEST(name) cmocka_unit_test_setup_teardown(name, tls_setup, suite_teardown)
#undef SUITE_TEST
#define SUITE_TEST TLS_TEST
    const struct CMUnitTest tests[] = {
        SUITE_TESTS,
        TLS_TEST(the_server_needs_a_certificate_of_a_known_authority),
        TLS_TEST(the_clients_verification_can_be_switched_off),
        TLS_TEST(a_client_without_a_certificate_is_refused_where_one_is_needed),
        TLS_TEST(a_client_certificate_is_optional_if_the_server_says_so),
        TLS_TEST(the_names_of_a_client_certificate_are_known),
        TLS_TEST(certificates_are_described),
        TLS_TEST(a_connection_outlives_the_context_it_began_with),
        TLS_TEST(without_a_context_connections_fail),
        TLS_TEST(wrong_settings_are_refused_with_their_reason),
        TLS_TEST(a_key_with_a_password_and_dh_parameters_are_read),
        TLS_TEST(both_sides_must_have_a_version_in_common),
        TLS_TEST(sessions_are_resumed_unless_caching_is_off),
        TLS_TEST(a_ticket_ends_with_the_certificate_of_the_client),
        TLS_TEST(a_peer_that_speaks_no_tls_is_closed),
        TLS_TEST(a_peer_that_closes_in_the_handshake_leaves_nothing),
        TLS_TEST(a_silent_peer_is_closed_when_its_time_is_over),
        TLS_TEST(closing_the_listener_closes_handshakes),
        TLS_TEST(the_client_gives_up_when_its_time_is_over),
        TLS_TEST(a_handshake_cut_at_every_byte_leaves_nothing),
        TLS_TEST(a_servers_handshake_cut_at_every_byte_ends_the_connection),
        TLS_TEST(changed_bytes_in_the_handshake_and_after_it_end_the_connection),
        TLS_TEST(renegotiation_is_refused),
        TLS_TEST(a_peer_that_sends_key_updates_without_end_holds_up_nobody),
        TLS_TEST(a_peer_that_sends_byte_by_byte_is_served),
        TLS_TEST(a_stream_that_ends_without_a_notice_has_ended),
        TLS_TEST(input_that_openssl_holds_is_read_when_reading_goes_on),
        TLS_TEST(input_that_openssl_reads_for_a_write_is_delivered),
    };
    return cmocka_run_group_tests_name("tls", tests, use_tls, leave_tls);
}
#else
#include <stdio.h>
int main(void) {
    printf("[       OK ] skipped: built without TLS\n");
    return 0;
}
#endif
