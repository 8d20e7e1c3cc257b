/* TLS between a connection of ours, as client or server, and an OpenSSL peer whose bytes are changed, truncated,
 * repeated and inserted in transit. Conditions:
 *   - A connection whose bytes arrive unchanged completes its handshake, and both ends get all data of the other end.
 *   - The data that our end delivers is always a prefix of the data that the peer has encrypted: no changed byte is
 *     delivered.
 *   - When the peer has ended, the connection ends and all its resources are freed.
 * Input: a byte of flags, the cuts, the number of edits and the edits, the payload. OpenSSL gets random numbers from a
 * generator that is reset for each input. */
#define OPENSSL_SUPPRESS_DEPRECATED /* RAND_set_rand_method() */
#include "fuzz.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "net/socket.h"
#include "net/tls.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef FUZZED_TRANSPORT /* fuzz_rdma_tls.c includes this file for another one */
#define FUZZED_TRANSPORT transport_tls
#endif

enum {
    WE_CONNECT = 1,       /* our end is the client */
    OLD_VERSION = 2,      /* TLS 1.2 */
    PEER_CERTIFICATE = 4, /* the client has a certificate */
    NAMES_URI = 8,
    NO_PEER = 16,     /* the peer sends the payload in place of a handshake */
    RAW_PAYLOAD = 32, /* the payload follows the handshake as it is, not encrypted */
    WE_SEND = 64,     /* our end also sends data */
};
enum { EDITS_MAX = 8, OWN_DATA = 20000, PATIENCE = 30000 /* turns of a millisecond */ };

/* A change at an offset of the peer's stream. */
struct edit {
    size_t at;
    uint8_t kind, value;
};
enum { EDIT_CHANGE, EDIT_INSERT, EDIT_DELETE, EDIT_END, EDIT_KINDS };

static struct event_loop *loop;
static struct listener *listener;
static int peer_listener; /* for connections that our end makes */
static SSL_CTX *peer_contexts[2];
static X509 *certificate;
static EVP_PKEY *key;

/* --- Random numbers --- */

static uint64_t random_state;

static int random_fill(unsigned char *bytes, int size) {
    for (int i = 0; i < size; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(random_state >> 56);
    }
    return 1;
}
static int random_is_seeded(void) {
    return 1;
}

/* --- Our side --- */

static struct ours {
    struct connection *conn;
    bool opened, ended;
    struct slice expected;
    size_t received;
} ours;
static char own_data[OWN_DATA];
static bool we_send;

static void ours_opened(struct connection *conn) {
    ours.opened = true;
    if (we_send) output_write(&conn->out, (struct slice){own_data, OWN_DATA});
    conn_flush(conn);
}
static void ours_readable(struct connection *conn) {
    struct slice in = conn_peek(conn);
    FUZZ_CHECK(in.len <= ours.expected.len - ours.received &&
                   memcmp(in.data, ours.expected.data + ours.received, in.len) == 0,
               "%zu bytes at %zu that were not sent", in.len, ours.received);
    ours.received += in.len;
    conn_consume(conn, in.len);
}
static void ours_closed(struct connection *conn) {
    FUZZ_CHECK(conn_error_text(conn)[0], "no text for error %d", conn->error);
    ours.ended = true;
    ours.conn = NULL;
    conn_close(conn);
}
static const struct connection_events ours_events = {
    .connected = ours_opened, .readable = ours_readable, .closed = ours_closed};

static void ours_accepted(struct listener *from, struct connection *conn) {
    conn->events = &ours_events;
    ours.conn = conn;
    const char *names = conn_peer_names(conn);
    while (names && *names) names += strlen(names) + 1;
    ours_opened(conn);
}

/* --- The peer --- */

static struct peer {
    int fd;
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    bool ready;    /* its handshake is complete */
    bool ended;    /* the stream to our end has ended */
    bool edited;
    struct slice payload;
    size_t written, received, sent; /* sent: bytes that its OpenSSL has made */
    struct edit edits[EDITS_MAX];
    int edit_count;
} peer;

static void peer_send(const char *data, size_t len, struct fuzz_cuts *cuts) {
    while (len && !peer.ended) {
        size_t piece = fuzz_piece(cuts);
        if (piece > len) piece = len;
        ssize_t n = send(peer.fd, data, piece, MSG_NOSIGNAL);
        if (n <= 0) return; /* our end has closed the connection, or does not read */
        data += n;
        len -= (size_t)n;
        while (event_loop_turn(loop, 0)) continue;
    }
}

static struct edit *edit_at(size_t at) {
    for (int i = 0; i < peer.edit_count; i++)
        if (peer.edits[i].at == at) return &peer.edits[i];
    return NULL;
}

/* Sends the output of OpenSSL, edited. */
static bool peer_pump(struct fuzz_cuts *cuts) {
    char from[4096], to[sizeof from * 4];
    int len = BIO_read(peer.out, from, sizeof from);
    if (len <= 0) return false;
    size_t have = 0, skip = 0;
    for (int i = 0; i < len; i++, peer.sent++) {
        struct edit *edit = edit_at(peer.sent);
        char byte = from[i];
        if (edit) peer.edited = true;
        if (edit && edit->kind == EDIT_END) {
            peer_send(to, have, cuts);
            peer.ended = true;
            return true;
        }
        if (edit && edit->kind == EDIT_CHANGE) byte = (char)(byte ^ (edit->value ? edit->value : 0xff));
        if (edit && edit->kind == EDIT_INSERT) {
            memset(to + have, edit->value, edit->value);
            have += edit->value;
        }
        if (edit && edit->kind == EDIT_DELETE) skip = (size_t)edit->value + 1;
        if (skip)
            skip--;
        else
            to[have++] = byte;
    }
    peer_send(to, have, cuts);
    return true;
}

static bool peer_receive(void) {
    char bytes[16384];
    ssize_t n = recv(peer.fd, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    BIO_write(peer.in, bytes, (int)n);
    return true;
}

/* Continues the handshake, or the data transfer after it. */
static void peer_step(bool raw) {
    char bytes[16384];
    int n;
    ERR_clear_error();
    if (!peer.ready && SSL_do_handshake(peer.ssl) == 1) peer.ready = true;
    if (!peer.ready) return;
    if (!raw && peer.written < peer.payload.len) {
        n = SSL_write(peer.ssl, peer.payload.data + peer.written, (int)(peer.payload.len - peer.written));
        if (n > 0) peer.written += (size_t)n;
    }
    while ((n = SSL_read(peer.ssl, bytes, sizeof bytes)) > 0) {
        FUZZ_CHECK((size_t)n <= OWN_DATA - peer.received && memcmp(bytes, own_data + peer.received, (size_t)n) == 0,
                   "the peer got %d bytes at %zu that were not sent", n, peer.received);
        peer.received += (size_t)n;
    }
}

static void peer_open(bool we_connect, int flags) {
    SSL_CTX *context = peer_contexts[!we_connect];
    peer.ssl = SSL_new(context);
    peer.in = BIO_new(BIO_s_mem());
    peer.out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(peer.in, -1);
    SSL_set_bio(peer.ssl, peer.in, peer.out);
    if (flags & OLD_VERSION) SSL_set_max_proto_version(peer.ssl, TLS1_2_VERSION);
    if (we_connect || flags & PEER_CERTIFICATE) {
        SSL_use_certificate(peer.ssl, certificate);
        SSL_use_PrivateKey(peer.ssl, key);
    }
    if (we_connect)
        SSL_set_accept_state(peer.ssl);
    else
        SSL_set_connect_state(peer.ssl);
}

/* --- Sockets --- */

static int socket_to(int port) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect: %s", strerror(errno));
    return fd;
}

static void connect_both(bool we_connect) {
    if (we_connect) {
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        getsockname(peer_listener, (struct sockaddr *)&at, &len);
        struct connect_options options = {.host = "127.0.0.1", .port = ntohs(at.sin_port), .events = &ours_events};
        ours.conn = conn_connect(&FUZZED_TRANSPORT, loop, &options);
        peer.fd = -1;
        for (int i = 0; i < PATIENCE && peer.fd < 0; i++) {
            event_loop_turn(loop, 1000);
            peer.fd = accept4(peer_listener, NULL, NULL, SOCK_CLOEXEC);
        }
        FUZZ_CHECK(peer.fd >= 0, "accept: %s", strerror(errno));
    } else {
        peer.fd = socket_to(listener->address.port);
        for (int i = 0; i < PATIENCE && !socket_stats.handshakes; i++) event_loop_turn(loop, 1000);
        FUZZ_CHECK(socket_stats.handshakes == 1, "not accepted");
    }
    fcntl(peer.fd, F_SETFL, O_NONBLOCK);
    setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* --- One input --- */

static bool all_done(void) {
    return ours.received == ours.expected.len && peer.ready && (!we_send || peer.received == OWN_DATA);
}

static bool all_ended(bool we_connect) {
    if (socket_stats.handshakes) return false;
    return ours.ended || (!we_connect && !ours.opened);
}

static void talk(struct fuzz_cuts *cuts, int flags) {
    bool raw = flags & RAW_PAYLOAD;
    for (int i = 0; i < PATIENCE; i++) {
        peer_step(raw);
        bool moved = peer_pump(cuts);
        if (peer.ended) return;
        while (event_loop_turn(loop, 0)) moved = true;
        if (peer_receive()) moved = true;
        if (moved) continue;
        /* More data must arrive only if all bytes were delivered unchanged. */
        if (all_done() || peer.edited) break;
        FUZZ_CHECK(!ours.ended, "the connection ended: %s and %s", ours.opened ? "open" : "not open",
                   peer.ready ? "ready" : "not ready");
        event_loop_turn(loop, 1000);
    }
    FUZZ_CHECK(peer.edited || all_done(), "received %zu of %zu, and %zu of %d; the handshake is %scomplete",
               ours.received, ours.expected.len, peer.received, we_send ? OWN_DATA : 0, peer.ready ? "" : "not ");
    if (raw) peer_send(peer.payload.data, peer.payload.len, cuts);
}

static void finish(bool we_connect) {
    shutdown(peer.fd, SHUT_WR);
    char dropped[16384];
    for (int i = 0; i < PATIENCE && !all_ended(we_connect); i++) {
        while (recv(peer.fd, dropped, sizeof dropped, 0) > 0) continue;
        if (!event_loop_turn(loop, 0)) event_loop_turn(loop, 1000);
    }
    FUZZ_CHECK(all_ended(we_connect), "the connection has not ended: %s", ours.opened ? "open" : "not open");
    close(peer.fd);
    SSL_free(peer.ssl);
    ERR_clear_error();
    for (int i = 0; i < 4; i++) event_loop_turn(loop, 0); /* frees the connection */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, data + size};
    uint8_t flags = fuzz_byte(&in);
    struct fuzz_cuts cuts = fuzz_take_cuts(&in);
    bool we_connect = flags & WE_CONNECT;
    random_state = 1;
    ours = (struct ours){0};
    peer = (struct peer){.edit_count = fuzz_byte(&in) % (EDITS_MAX + 1)};
    for (int i = 0; i < peer.edit_count; i++) {
        size_t at = (size_t)fuzz_byte(&in) << 8;
        at = (at | fuzz_byte(&in)) % 4096;
        uint8_t kind = fuzz_byte(&in) % EDIT_KINDS;
        peer.edits[i] = (struct edit){at, kind, fuzz_byte(&in)};
    }
    peer.payload = fuzz_take(&in, SIZE_MAX);
    if (!(flags & (NO_PEER | RAW_PAYLOAD))) ours.expected = peer.payload;
    we_send = flags & WE_SEND;
    tls_set_peer_names(flags & NAMES_URI ? TLS_NAMES_URI : TLS_NAMES_CN);
    connect_both(we_connect);
    peer_open(we_connect, flags);
    if (flags & NO_PEER)
        peer_send(peer.payload.data, peer.payload.len, &cuts);
    else
        talk(&cuts, flags);
    finish(we_connect);
    return 0;
}

/* --- The start --- */

/* A file that exists until the process ends. */
static const char *memory_file(char path[static 40]) {
    int fd = memfd_create("tls", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0, "memfd_create: %s", strerror(errno));
    snprintf(path, 40, "/proc/self/fd/%d", fd);
    return path;
}

static void extension_add(X509 *to, int nid, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    FUZZ_CHECK(extension && X509_add_ext(to, extension, -1), "extension %d", nid);
    X509_EXTENSION_free(extension);
}

/* The certificate is self-signed, so it is its own authority. */
static void certificate_make(void) {
    key = EVP_EC_gen("P-256");
    certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 365 * 24 * 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"default", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    extension_add(certificate, NID_basic_constraints, "CA:TRUE");
    extension_add(certificate, NID_subject_alt_name, "DNS:localhost,URI:urn:a,URI:urn:b");
    FUZZ_CHECK(X509_sign(certificate, key, EVP_sha256()), "no certificate");
}

static void contexts_make(void) {
    char cert_path[40], key_path[40], error[512];
    FILE *file = fopen(memory_file(cert_path), "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    file = fopen(memory_file(key_path), "w");
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    struct tls_settings settings = {.cert_file = cert_path,
                                    .key_file = key_path,
                                    .ca_file = cert_path,
                                    .session_caching = true,
                                    .session_cache_size = 100,
                                    .session_cache_timeout = 300,
                                    .auth = TLS_AUTH_OPTIONAL};
    for (int role = TLS_SERVER; role <= TLS_CLIENT; role++) {
        struct tls_context *context = tls_context_new((enum tls_role)role, &settings, error, sizeof error);
        FUZZ_CHECK(context, "%s", error);
        tls_use((enum tls_role)role, context);
        peer_contexts[role] = SSL_CTX_new(role == TLS_SERVER ? TLS_server_method() : TLS_client_method());
        SSL_CTX_set_session_cache_mode(peer_contexts[role], SSL_SESS_CACHE_OFF);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const RAND_METHOD method = {.bytes = random_fill, .pseudorand = random_fill, .status = random_is_seeded};
    char error[256];
    log_level = LOG_LEVEL_NOTHING;
    clock_update();
    /* The first context sets OpenSSL's memory functions, which must happen before any other call of OpenSSL. */
    tls_context_free(tls_context_new(TLS_CLIENT, &(struct tls_settings){.auth = TLS_AUTH_NO}, error, sizeof error));
    RAND_set_rand_method(&method);
    certificate_make();
    contexts_make();
    for (int i = 0; i < OWN_DATA; i++) own_data[i] = (char)(i * 7 + i / 256);
    loop = event_loop_new();
    struct listen_options options = {.host = "127.0.0.1", .accepted = ours_accepted};
    listener = conn_listen(&FUZZED_TRANSPORT, loop, &options, error, sizeof error);
    FUZZ_CHECK(listener, "%s", error);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    peer_listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(bind(peer_listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(peer_listener, 16) == 0,
               "listen: %s", strerror(errno));
    return 0;
}
