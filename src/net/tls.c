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
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tls_session {
    SSL *ssl;
    bool more;         /* read() has input, or an end to report, without the socket */
    bool broken;       /* a write has failed */
    size_t fed;        /* bytes that the current call of OpenSSL has read */
    int failure;       /* to report by the next read: -errno */
    char *names;       /* conn_peer_names() */
    char *certificate; /* conn_peer_certificate() */
};

/* --- The BIO --- */

static int bio_read(BIO *bio, char *data, size_t size, size_t *len) {
    const struct socket_connection *s = BIO_get_data(bio);
    struct tls_session *session = s->session;
    BIO_clear_retry_flags(bio);
    ssize_t n = -1;
    errno = EAGAIN;
    if (session->fed < TLS_CALL_MAX) { /* else the socket stays readable, and the loop comes again */
        do n = read(s->fd, data, size);
        while (n < 0 && errno == EINTR);
    }
    *len = n > 0 ? (size_t)n : 0;
    session->fed += *len;
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

static BIO_METHOD *bio_method;

static void bio_method_make(void) {
    bio_method = tls_bio_method_new("socket", bio_read, bio_write);
}

static bool session_new(struct socket_connection *s, enum tls_role role) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tls_start();
    pthread_once(&once, bio_method_make);
    SSL *ssl = tls_session_new(role, bio_method, s);
    if (!ssl) return false;
    struct tls_session *session = mem_calloc(1, sizeof *session);
    session->ssl = ssl;
    s->session = session;
    return true;
}

static bool tls_accept(struct socket_connection *s) {
    if (!session_new(s, TLS_SERVER)) {
        socket_set_error_note(s, "TLS is not configured");
        return false;
    }
    if (s->needs_certificate) tls_session_need_certificate(((const struct tls_session *)s->session)->ssl);
    return true;
}

static void tls_free(struct socket_connection *s) {
    struct tls_session *session = s->session;
    SSL_free(session->ssl);
    mem_free(session->names);
    mem_free(session->certificate);
    mem_free(session);
}

static size_t tls_memory(const struct socket_connection *s) {
    return TLS_SESSION_MEMORY;
}

/* --- Failures --- */

static int call_failed(struct socket_connection *s, const struct tls_session *session, int result, int error) {
    char text[TLS_ERROR_MAX];
    int meaning = tls_session_failed(session->ssl, result, error, text);
    if (text[0]) socket_set_error_note(s, text);
    return meaning;
}

/* --- The handshake --- */

static int tls_handshake(struct socket_connection *s, int *wants) {
    struct tls_session *session = s->session;
    tls_errors_clear();
    errno = 0;
    session->fed = 0;
    int result = SSL_do_handshake(session->ssl);
    if (result == 1) {
        session->more = SSL_has_pending(session->ssl);      /* requests may have come in the same packet */
        if (!session->more) SSL_free_buffers(session->ssl); /* of the handshake */
        if (!s->accepted) return 0;
        session->names = tls_session_accepted(session->ssl);
        session->certificate = tls_session_certificate(session->ssl);
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
    struct tls_session *session = s->session;
    size_t have = 0;
    while (have < size) {
        size_t n;
        errno = 0;
        session->fed = 0;
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
    struct tls_session *session = s->session;
    ssize_t total = 0;
    if (session->broken) return -EPROTO;
    tls_errors_clear();
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
    const struct tls_session *session = s->session;
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
static struct slice position_bytes(const struct position *at, char buffer[static TLS_RECORD_MAX]) {
    const char *first = (const char *)at->parts->iov_base + at->used;
    size_t len = at->parts->iov_len - at->used;
    if (at->count == 1 || len >= TLS_RECORD_MAX) return (struct slice){first, len};
    size_t have = 0;
    for (int i = 0; i < at->count && have < TLS_RECORD_MAX; i++) {
        size_t skip = i ? 0 : at->used, part = at->parts[i].iov_len - skip;
        if (part > TLS_RECORD_MAX - have) part = TLS_RECORD_MAX - have;
        memcpy(buffer + have, (const char *)at->parts[i].iov_base + skip, part);
        have += part;
    }
    return (struct slice){buffer, have};
}

static ssize_t tls_write(struct socket_connection *s, const struct iovec *parts, int count) {
    if (__builtin_expect(atomic_load_explicit(&tls_writes_blocked, memory_order_relaxed), 0)) return -EAGAIN;
    static _Thread_local char buffer[TLS_RECORD_MAX];
    struct tls_session *session = s->session;
    struct position at = {parts, count, 0};
    ssize_t total = 0;
    tls_errors_clear();
    for (;;) {
        while (at.count && at.used == at.parts->iov_len) position_advance(&at, 0); /* empty parts */
        if (!at.count) return total;
        struct slice bytes = position_bytes(&at, buffer);
        size_t n;
        errno = 0;
        session->fed = 0;
        int result = SSL_write_ex(session->ssl, bytes.data, bytes.len, &n);
        /* The rest of a message that had come in part was read, and perhaps data behind it: the socket has them no
         * more. */
        if (__builtin_expect(session->fed > 0, 0) && SSL_has_pending(session->ssl)) session->more = true;
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
    struct tls_session *session = s->session;
    /* OpenSSL forbids it after a fatal error. */
    if (session->failure == -EPROTO || session->broken) return;
    tls_errors_clear();
    SSL_shutdown(session->ssl);
    tls_errors_clear();
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

static const char *tls_peer_names(const struct connection *conn) {
    const struct tls_session *session = ((const struct socket_connection *)conn)->session;
    return session ? session->names : NULL;
}

static const char *tls_peer_certificate(const struct connection *conn) {
    const struct tls_session *session = ((const struct socket_connection *)conn)->session;
    return session ? session->certificate : NULL;
}

static struct connection *tls_connect(struct event_loop *loop, const struct connect_options *options) {
    struct connection *conn = tcp_connect(&transport_tls, loop, options);
    struct socket_connection *s = (struct socket_connection *)conn;
    if (!session_new(s, TLS_CLIENT)) {
        if (!conn->error) conn->error = EPROTO;
        socket_set_error_note(s, "TLS is not configured");
    } else if (options->server_name && options->server_name[0]) {
        SSL_set_tlsext_host_name(((struct tls_session *)s->session)->ssl, options->server_name);
    }
    return conn;
}

static struct listener *tls_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size) {
    return tcp_listen(&transport_tls, loop, options, error, error_size);
}

static void tls_describe(const struct connection *conn, char *text, size_t size) {
    const struct tls_session *session = ((const struct socket_connection *)conn)->session;
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
    .certificate = tls_peer_certificate,
};
