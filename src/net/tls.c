/* tls.c: reading and writing sockets through OpenSSL, as an I/O table of socket.c. See tls.h.
 *
 * OpenSSL reads and writes the socket through a BIO of ours: send() must not raise SIGPIPE, and socket.c owns the
 * descriptor. It reads ahead, so a request in one record costs one system call. What it holds after that does not make
 * the socket readable again: `more` says that the next read need not wait.
 *
 * A write that would block leaves an encrypted record in OpenSSL, which must be offered the same bytes again, at least.
 * socket.c keeps all output that was not accepted and only appends to it, so it always does.
 *
 * Rejected: memory BIOs between OpenSSL and the socket (a further copy of everything, and output that OpenSSL has
 * accepted but the socket has not would need a queue of its own); kTLS (needs a kernel module, and gains only where
 * files are sent). */
#include "lib/system/memory.h"
#include "net/socket.h"
#include "net/tcp.h"
#include "net/tls_private.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RECORD_MAX = 16 * 1024,     /* bytes of plain text in a record */
    SESSION_MEMORY = 18 * 1024, /* bytes of an open session without buffers, as measured */
    NAMES_MAX = 4096,           /* names of a certificate longer than this are not looked at */
};

struct session {
    SSL *ssl;
    bool more;   /* read() has input, or an end to report, without the socket */
    bool broken; /* a write has failed */
    int failure; /* to report by the next read: -errno */
    char *names; /* conn_peer_names() */
};

struct tls_stats tls_stats;
static _Atomic enum tls_names names_wanted;

/* --- The BIO --- */

static int bio_read(BIO *bio, char *data, size_t size, size_t *len) {
    const struct socket_connection *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n;
    do n = read(s->fd, data, size);
    while (n < 0 && errno == EINTR);
    *len = n > 0 ? (size_t)n : 0;
    if (n < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
    if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return n > 0;
}

static int bio_write(BIO *bio, const char *data, size_t size, size_t *len) {
    const struct socket_connection *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n;
    do n = send(s->fd, data, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    *len = n > 0 ? (size_t)n : 0;
    if (n < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
    return n > 0;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    switch (command) {
    case BIO_CTRL_FLUSH: return 1;
    case BIO_CTRL_EOF: return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default: return 0;
    }
}

static BIO_METHOD *bio_method;

static void bio_method_make(void) {
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (!bio_method) return;
    BIO_meth_set_read_ex(bio_method, bio_read);
    BIO_meth_set_write_ex(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_control);
}

static bool session_new(struct socket_connection *s, enum tls_role role) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tls_start();
    pthread_once(&once, bio_method_make);
    SSL *ssl = tls_session_open(role);
    BIO *bio = ssl && bio_method ? BIO_new(bio_method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        ERR_clear_error();
        return false;
    }
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (role == TLS_SERVER)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    struct session *session = mem_calloc(1, sizeof *session);
    session->ssl = ssl;
    s->session = session;
    return true;
}

/* A resumed session is not verified again. One that began at a listener for anybody must not be resumed here: it has
 * another context. */
static void need_certificate(SSL *ssl) {
    static const unsigned char context[] = "verified";
    SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_set_session_id_context(ssl, context, sizeof context - 1);
}

static bool tls_accept(struct socket_connection *s) {
    if (!session_new(s, TLS_SERVER)) {
        socket_set_error_note(s, "TLS is not configured");
        return false;
    }
    if (s->needs_certificate) need_certificate(((const struct session *)s->session)->ssl);
    return true;
}

static void tls_free(struct socket_connection *s) {
    struct session *session = s->session;
    SSL_free(session->ssl);
    mem_free(session->names);
    mem_free(session);
}

static size_t tls_memory(const struct socket_connection *s) {
    return SESSION_MEMORY;
}

/* --- Failures --- */

/* What a failed call means: -EAGAIN, 0 (the peer has closed) or another -errno. */
static int call_failed(struct socket_connection *s, const struct session *session, int result, int error) {
    switch (SSL_get_error(session->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
        if (!ERR_peek_error()) return error == EAGAIN ? 0 : -error;
        /* fall through */
    default: {
        char text[256];
        socket_set_error_note(s, tls_error_text(text, sizeof text));
        return -EPROTO;
    }
    }
}

/* --- The handshake --- */

/* Appends a name to a list of them, each with a NUL behind it. Names with a NUL inside could pass for others. */
static void name_add(char *list, size_t *len, const unsigned char *name, int size) {
    if (size <= 0 || *len + (size_t)size + 2 > NAMES_MAX || memchr(name, 0, (size_t)size)) return;
    memcpy(list + *len, name, (size_t)size);
    *len += (size_t)size;
    list[(*len)++] = '\0';
}

static void common_name_add(char *list, size_t *len, X509 *certificate) {
    X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0) return;
    unsigned char *text = NULL;
    int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size >= 0) name_add(list, len, text, size);
    OPENSSL_free(text);
}

static void uris_add(char *list, size_t *len, X509 *certificate) {
    GENERAL_NAMES *all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
        if (name->type != GEN_URI) continue;
        const ASN1_STRING *uri = name->d.uniformResourceIdentifier;
        name_add(list, len, ASN1_STRING_get0_data(uri), ASN1_STRING_length(uri));
    }
    GENERAL_NAMES_free(all);
}

static void names_keep(struct session *session) {
    enum tls_names wanted = atomic_load_explicit(&names_wanted, memory_order_relaxed);
    X509 *certificate = wanted ? SSL_get0_peer_certificate(session->ssl) : NULL;
    if (!certificate || SSL_get_verify_result(session->ssl) != X509_V_OK) return;
    char list[NAMES_MAX];
    size_t len = 0;
    if (wanted == TLS_NAMES_CN)
        common_name_add(list, &len, certificate);
    else
        uris_add(list, &len, certificate);
    ERR_clear_error();
    list[len++] = '\0';
    session->names = mem_alloc(len);
    memcpy(session->names, list, len);
}

static int tls_handshake(struct socket_connection *s, int *wants) {
    struct session *session = s->session;
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(session->ssl);
    if (result == 1) {
        session->more = SSL_has_pending(session->ssl);      /* requests may have come in the same packet */
        if (!session->more) SSL_free_buffers(session->ssl); /* of the handshake */
        if (!s->accepted) return 0;
        names_keep(session);
        atomic_fetch_add_explicit(&tls_stats.handshakes, 1, memory_order_relaxed);
        if (SSL_session_reused(session->ssl)) atomic_fetch_add_explicit(&tls_stats.resumed, 1, memory_order_relaxed);
        return 0;
    }
    int error = errno;
    *wants = SSL_want_write(session->ssl) ? EVENT_WRITE : EVENT_READ;
    int meaning = call_failed(s, session, result, error);
    if (meaning) return meaning;
    socket_set_error_note(s, "The peer closed the connection in the TLS handshake");
    return -ECONNRESET;
}

/* --- Reading and writing --- */

/* Returns bytes read; less than `size`: the reason is in session->failure, or there is no more for now. */
static size_t read_part(struct socket_connection *s, char *data, size_t size) {
    struct session *session = s->session;
    size_t have = 0;
    while (have < size) {
        size_t n;
        errno = 0;
        int result = SSL_read_ex(session->ssl, data + have, size - have, &n);
        if (result <= 0) {
            int error = errno;
            s->wants_write = SSL_want_write(session->ssl);
            int meaning = call_failed(s, session, result, error);
            session->failure = meaning ? meaning : -ECONNABORTED; /* for 0 */
            break;
        }
        have += n;
        if (!SSL_has_pending(session->ssl)) {
            session->failure = -EAGAIN;
            break;
        }
    }
    return have;
}

static ssize_t tls_read(struct socket_connection *s, const struct iovec *parts, int count) {
    struct session *session = s->session;
    ssize_t total = 0;
    if (session->broken) return -EPROTO;
    ERR_clear_error();
    session->failure = 0;
    for (int i = 0; i < count && !session->failure; i++)
        total += (ssize_t)read_part(s, parts[i].iov_base, parts[i].iov_len);
    /* OpenSSL keeps its buffer after the first read ahead, in spite of SSL_MODE_RELEASE_BUFFERS. */
    SSL_free_buffers(session->ssl);
    /* An end after some bytes is reported by the next read: OpenSSL repeats it. */
    session->more = total && session->failure != -EAGAIN;
    if (total) return total;
    return session->failure == -ECONNABORTED ? 0 : session->failure;
}

static bool tls_has_input(const struct socket_connection *s) {
    const struct session *session = s->session;
    return session->more;
}

/* A position in the pieces of a write. */
struct position {
    const struct iovec *parts;
    int count;
    size_t used; /* bytes of the first part */
};

static void position_advance(struct position *at, size_t len) {
    while (at->count && len >= at->parts->iov_len - at->used) {
        len -= at->parts->iov_len - at->used;
        at->parts++;
        at->count--;
        at->used = 0;
    }
    at->used += len;
}

/* The next bytes to encrypt: a large piece where it lies, small ones copied together, so that they share a record. */
static struct slice position_bytes(const struct position *at, char buffer[static RECORD_MAX]) {
    const char *first = (const char *)at->parts->iov_base + at->used;
    size_t len = at->parts->iov_len - at->used;
    if (at->count == 1 || len >= RECORD_MAX) return (struct slice){first, len};
    size_t have = 0;
    for (int i = 0; i < at->count && have < RECORD_MAX; i++) {
        size_t skip = i ? 0 : at->used, part = at->parts[i].iov_len - skip;
        if (part > RECORD_MAX - have) part = RECORD_MAX - have;
        memcpy(buffer + have, (const char *)at->parts[i].iov_base + skip, part);
        have += part;
    }
    return (struct slice){buffer, have};
}

_Atomic bool tls_writes_blocked;

static ssize_t tls_write(struct socket_connection *s, const struct iovec *parts, int count) {
    if (__builtin_expect(atomic_load_explicit(&tls_writes_blocked, memory_order_relaxed), 0)) return -EAGAIN;
    static _Thread_local char buffer[RECORD_MAX];
    struct session *session = s->session;
    struct position at = {parts, count, 0};
    ssize_t total = 0;
    ERR_clear_error();
    for (;;) {
        while (at.count && at.used == at.parts->iov_len) position_advance(&at, 0); /* empty parts */
        if (!at.count) return total;
        struct slice bytes = position_bytes(&at, buffer);
        size_t n;
        errno = 0;
        int result = SSL_write_ex(session->ssl, bytes.data, bytes.len, &n);
        if (result <= 0) {
            int error = errno, meaning = call_failed(s, session, result, error);
            if (meaning == 0) meaning = -EPIPE;
            /* A message after the handshake (a ticket) that has come in part must be complete before OpenSSL writes. */
            s->wants_read = meaning == -EAGAIN && !SSL_want_write(session->ssl);
            if (meaning != -EAGAIN) session->broken = session->more = true; /* the next read reports it */
            return total ? total : meaning;
        }
        total += (ssize_t)n;
        position_advance(&at, n);
    }
}

static void tls_shutdown(struct socket_connection *s) {
    struct session *session = s->session;
    if (session->failure == -EPROTO || session->broken) return; /* OpenSSL forbids it after a fatal error */
    ERR_clear_error();
    SSL_shutdown(session->ssl);
    ERR_clear_error();
}

static const struct socket_io tls_io = {.start = tls_accept,
                                        .handshake = tls_handshake,
                                        .read = tls_read,
                                        .write = tls_write,
                                        .has_input = tls_has_input,
                                        .shutdown = tls_shutdown,
                                        .free = tls_free,
                                        .memory = tls_memory};

/* --- The transport --- */

void tls_set_peer_names(enum tls_names names) {
    atomic_store_explicit(&names_wanted, names, memory_order_relaxed);
}

static const char *tls_peer_names(const struct connection *conn) {
    const struct session *session = ((const struct socket_connection *)conn)->session;
    return session ? session->names : NULL;
}

static struct connection *tls_connect(struct event_loop *loop, const struct connect_options *options) {
    struct connection *conn = tcp_connect(&transport_tls, loop, options);
    struct socket_connection *s = (struct socket_connection *)conn;
    if (!session_new(s, TLS_CLIENT)) {
        if (!conn->error) conn->error = EPROTO;
        socket_set_error_note(s, "TLS is not configured");
    } else if (options->server_name && options->server_name[0]) {
        SSL_set_tlsext_host_name(((struct session *)s->session)->ssl, options->server_name);
    }
    return conn;
}

static struct listener *tls_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size) {
    return tcp_listen(&transport_tls, loop, options, error, error_size);
}

static void tls_describe(const struct connection *conn, char *text, size_t size) {
    const struct session *session = ((const struct socket_connection *)conn)->session;
    if (!size) return;
    text[0] = '\0';
    if (session)
        snprintf(text, size, "tls=%s cipher=%s", SSL_get_version(session->ssl), SSL_get_cipher_name(session->ssl));
}

const struct transport transport_tls = {
    .name = "tls",
    .io = &tls_io,
    .connect = tls_connect,
    .listen = tls_listen,
    TCP_OPERATIONS,
    .describe = tls_describe,
    .peer_names = tls_peer_names,
};
