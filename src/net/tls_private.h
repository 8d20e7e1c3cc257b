/* tls_private.h: what the TLS transports share: tls.c (sockets), rdma/tls.c (RDMA), tls_context.c and tls_session.c.
 * Functions without a remark are for the thread of the session's connection. */
#pragma once
#include "net/tls.h"
#include <openssl/err.h>
#include <openssl/ssl.h>

enum {
    TLS_RECORD_MAX = 16 * 1024, /* bytes of plain text in a record */
    /* When one call of OpenSSL has read this much, its BIO has no more until the next call. A peer may send messages
     * without data, such as KeyUpdate, faster than they are handled: OpenSSL would not return. */
    TLS_CALL_MAX = TLS_RECORD_MAX,
    TLS_SESSION_MEMORY = 18 * 1024, /* bytes of an open session without buffers, as measured */
    TLS_ERROR_MAX = 256,
};

/* tls_context.c */
void tls_start(void);                      /* once for the process, before any other call of OpenSSL; any thread */
SSL *tls_session_open(enum tls_role role); /* NULL: no context, or no memory */
/* The text of OpenSSL's first queued error, "error:0A00010B:SSL routines::wrong version number"; empties the queue. */
const char *tls_error_text(char *text, size_t size);

/* Empties OpenSSL's queue of errors, before a call whose result needs it empty. Clearing it takes as long as a tenth of
 * a small request, even if it is empty, so it is asked first. */
static inline void tls_errors_clear(void) {
    if (ERR_peek_error()) ERR_clear_error();
}

/* The call that has just failed waits for input. The session and its BIO say so. SSL_get_error() looks at OpenSSL's
 * queue of errors first, so that the queue would have to be emptied before each call. All code that uses OpenSSL leaves
 * it empty, but a connection must not end because of an error that is not its own. */
static inline bool tls_awaits_input(const SSL *ssl) {
    return SSL_want_read(ssl) && BIO_should_retry(SSL_get_rbio(ssl));
}

/* tls_session.c */
typedef int tls_bio_read(BIO *bio, char *data, size_t size, size_t *len);
typedef int tls_bio_write(BIO *bio, const char *data, size_t size, size_t *len);
BIO_METHOD *tls_bio_method_new(const char *name, tls_bio_read *read, tls_bio_write *write); /* NULL: no memory */
/* A session that reads and writes by such a method, of which `data` is BIO_get_data(). NULL: no context, or no memory.
 */
SSL *tls_session_new(enum tls_role role, const BIO_METHOD *method, void *data);
void tls_session_need_certificate(SSL *ssl); /* of a server, before the handshake: verify the peer in any case */
/* What a failed call means: -EAGAIN, 0 (the peer has closed) or another -errno; `text` says more, or is empty. `error`
 * is errno after the call. */
int tls_session_failed(const SSL *ssl, int result, int error, char text[static TLS_ERROR_MAX]);
/* A server's handshake is complete: counts it, and returns conn_peer_names(), which the caller frees (mem_free). */
char *tls_session_accepted(SSL *ssl);
char *tls_session_certificate(const SSL *ssl); /* conn_peer_certificate(), likewise */
