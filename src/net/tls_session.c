/* tls_session.c: what the sessions of all TLS transports share: how they begin, what their calls mean, and what a
 * server keeps of a complete handshake. See tls_private.h. */
#include "lib/system/memory.h"
#include "net/tls_private.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <string.h>

enum { NAMES_MAX = 4096 /* names of a certificate longer than this are not looked at */ };

struct tls_stats tls_stats;
_Atomic bool tls_writes_blocked;
static _Atomic enum tls_names names_wanted;

void tls_set_peer_names(enum tls_names names) {
    atomic_store_explicit(&names_wanted, names, memory_order_relaxed);
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    switch (command) {
    case BIO_CTRL_FLUSH: return 1;
    case BIO_CTRL_EOF: return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default: return 0;
    }
}

BIO_METHOD *tls_bio_method_new(const char *name, tls_bio_read *read, tls_bio_write *write) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, name);
    if (!method) return NULL;
    BIO_meth_set_read_ex(method, read);
    BIO_meth_set_write_ex(method, write);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

SSL *tls_session_new(enum tls_role role, const BIO_METHOD *method, void *data) {
    SSL *ssl = tls_session_open(role);
    BIO *bio = ssl && method ? BIO_new(method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_data(bio, data);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (role == TLS_SERVER)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

/* A resumed session is not verified again. One that began at a listener for anybody must not be resumed here: it has
 * another context. */
void tls_session_need_certificate(SSL *ssl) {
    static const unsigned char context[] = "verified";
    SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_set_session_id_context(ssl, context, sizeof context - 1);
}

int tls_session_failed(const SSL *ssl, int result, int error, char text[static TLS_ERROR_MAX]) {
    text[0] = '\0';
    switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
        if (!ERR_peek_error()) return error == EAGAIN ? 0 : -error;
        /* fall through */
    default: tls_error_text(text, TLS_ERROR_MAX); return -EPROTO;
    }
}

/* --- Names --- */

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

char *tls_session_certificate(const SSL *ssl) {
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK) return NULL;
    BIO *text = BIO_new(BIO_s_mem());
    char *bytes = NULL, *copy = NULL;
    if (text && PEM_write_bio_X509(text, certificate)) {
        long len = BIO_get_mem_data(text, &bytes);
        if (len > 0) copy = mem_strndup(bytes, (size_t)len);
    }
    BIO_free(text);
    ERR_clear_error();
    return copy;
}

char *tls_session_accepted(SSL *ssl) {
    atomic_fetch_add_explicit(&tls_stats.handshakes, 1, memory_order_relaxed);
    if (SSL_session_reused(ssl)) atomic_fetch_add_explicit(&tls_stats.resumed, 1, memory_order_relaxed);
    enum tls_names wanted = atomic_load_explicit(&names_wanted, memory_order_relaxed);
    X509 *certificate = wanted ? SSL_get0_peer_certificate(ssl) : NULL;
    if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK) return NULL;
    char list[NAMES_MAX];
    size_t len = 0;
    if (wanted == TLS_NAMES_CN)
        common_name_add(list, &len, certificate);
    else
        uris_add(list, &len, certificate);
    ERR_clear_error();
    list[len++] = '\0';
    char *names = mem_alloc(len);
    memcpy(names, list, len);
    return names;
}
