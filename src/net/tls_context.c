/* tls_context.c: builds OpenSSL contexts from settings, and holds those in use. See tls.h. */
#include "lib/system/memory.h"
#include "lib/text/slice.h"
#include "net/tls_private.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct tls_context {
    SSL_CTX *ssl;
    X509 *own, *ca; /* referenced; NULL: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tls_context *used[2]; /* by role; under the lock */

/* --- OpenSSL --- */

/* A peer that makes OpenSSL ask for too much does not abort the process. As in Valkey, used_memory does not include the
 * memory, so that clients with TLS evict no keys. */
static void *memory_allocate(size_t size, const char *file, int line) {
    return mem_library_alloc(MEM_TLS, size);
}
static void memory_release(void *block, const char *file, int line) {
    mem_library_free(MEM_TLS, block);
}
static void *memory_reallocate(void *block, size_t size, const char *file, int line) {
    return mem_library_realloc(MEM_TLS, block, size);
}

static void start_once(void) {
    CRYPTO_set_mem_functions(memory_allocate, memory_reallocate, memory_release);
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
}

void tls_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_once);
}

const char *tls_error_text(char *text, size_t size) {
    unsigned long code = ERR_get_error();
    if (code)
        ERR_error_string_n(code, text, size);
    else
        snprintf(text, size, "unknown error");
    ERR_clear_error();
    return text;
}

static bool is_set(const char *text) {
    return text && text[0];
}

/* --- Building --- */

static int password_give(char *text, int size, int writing, void *argument) {
    const char *password = argument;
    size_t len = password ? strlen(password) : 0;
    if (!len || len > (size_t)size) return -1; /* never ask at the terminal */
    memcpy(text, password, len);
    return (int)len;
}

static bool tls_context_fail(char *error, size_t error_size, const char *what, const char *name) {
    char reason[256];
    snprintf(error, error_size, "%s: %s: %s", what, name, tls_error_text(reason, sizeof reason));
    return false;
}

static bool set_protocols(SSL_CTX *ssl, const char *text, char *error, size_t error_size) {
    static const struct {
        const char *name;
        int version;
        uint64_t off;
    } known[] = {{"TLSv1", TLS1_VERSION, SSL_OP_NO_TLSv1},
                 {"TLSv1.1", TLS1_1_VERSION, SSL_OP_NO_TLSv1_1},
                 {"TLSv1.2", TLS1_2_VERSION, SSL_OP_NO_TLSv1_2},
                 {"TLSv1.3", TLS1_3_VERSION, SSL_OP_NO_TLSv1_3}};
    enum { KNOWN = sizeof known / sizeof *known };
    bool wanted[KNOWN] = {false, false, true, true}, any = false;
    for (const char *at = text ? text : ""; *(at += strspn(at, " "));) {
        struct slice word = {at, strcspn(at, " ")};
        int i = 0;
        while (i < KNOWN && !slice_is(word, known[i].name)) i++;
        if (i == KNOWN) {
            snprintf(error, error_size,
                     "Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and "
                     "'TLSv1.3'.");
            return false;
        }
        if (!any) memset(wanted, 0, sizeof wanted);
        any = wanted[i] = true;
        at += word.len;
    }
    for (int i = 0; i < KNOWN; i++) {
        if (!wanted[i]) SSL_CTX_set_options(ssl, known[i].off);
    }
    SSL_CTX_set_min_proto_version(ssl, wanted[0] ? TLS1_VERSION : wanted[1] ? TLS1_1_VERSION : TLS1_2_VERSION);
    return true;
}

static bool set_ciphers(SSL_CTX *ssl, const struct tls_settings *s, char *error, size_t error_size) {
    const char *what = NULL, *list = NULL;
    if (is_set(s->ciphers) && !SSL_CTX_set_cipher_list(ssl, s->ciphers)) what = "ciphers", list = s->ciphers;
    if (!what && is_set(s->ciphersuites) && !SSL_CTX_set_ciphersuites(ssl, s->ciphersuites))
        what = "ciphersuites", list = s->ciphersuites;
    ERR_clear_error();
    if (!what) return true;
    snprintf(error, error_size, "Failed to configure %s: %s", what, list);
    return false;
}

static bool set_certificate(SSL_CTX *ssl, const struct tls_settings *s, char *error, size_t error_size) {
    if (!is_set(s->cert_file)) return true;
    SSL_CTX_set_default_passwd_cb(ssl, password_give);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, (void *)(uintptr_t)s->key_password);
    if (SSL_CTX_use_certificate_chain_file(ssl, s->cert_file) <= 0)
        return tls_context_fail(error, error_size, "Failed to load certificate", s->cert_file);
    bool ok = SSL_CTX_use_PrivateKey_file(ssl, s->key_file, SSL_FILETYPE_PEM) > 0;
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (!ok) return tls_context_fail(error, error_size, "Failed to load private key", s->key_file);
    if (SSL_CTX_check_private_key(ssl) <= 0)
        return tls_context_fail(error, error_size, "The private key does not belong to the certificate", s->key_file);
    return true;
}

static bool set_authorities(SSL_CTX *ssl, const struct tls_settings *s, char *error, size_t error_size) {
    const char *file = is_set(s->ca_file) ? s->ca_file : NULL, *dir = is_set(s->ca_dir) ? s->ca_dir : NULL;
    if (!file && !dir) {
        if (s->system_ca && SSL_CTX_set_default_verify_paths(ssl) <= 0)
            return tls_context_fail(error, error_size, "Failed to use the system's CA certificates", "default paths");
        return true;
    }
    if (SSL_CTX_load_verify_locations(ssl, file, dir) <= 0)
        return tls_context_fail(error, error_size, "Failed to configure CA certificate(s) file/directory",
                                file ? file : dir);
    return true;
}

static bool set_dh(SSL_CTX *ssl, const char *path, char *error, size_t error_size) {
    if (!is_set(path)) return true;
    BIO *file = BIO_new_file(path, "r");
    if (!file) {
        snprintf(error, error_size, "Failed to load %s: %s", path, strerror(errno));
        ERR_clear_error();
        return false;
    }
    EVP_PKEY *parameters = PEM_read_bio_Parameters(file, NULL);
    BIO_free(file);
    if (!parameters) return tls_context_fail(error, error_size, "Failed to read DH parameters", path);
    if (SSL_CTX_set0_tmp_dh_pkey(ssl, parameters) <= 0) {
        EVP_PKEY_free(parameters);
        return tls_context_fail(error, error_size, "Failed to use DH parameters", path);
    }
    return true;
}

/* The certificate of a resumed session is not verified again, and each connection may get a new ticket, so that a
 * client could come back for ever with a certificate that has expired. Its ticket is not accepted: the handshake is
 * complete. A session without tickets is not renewed, so it ends after tls-session-cache-timeout. */
static SSL_TICKET_RETURN ticket_decrypted(SSL *ssl, SSL_SESSION *session, const unsigned char *key_name,
                                          size_t key_name_len, SSL_TICKET_STATUS status, void *argument) {
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) return SSL_TICKET_RETURN_IGNORE_RENEW;
    const X509 *peer = SSL_SESSION_get0_peer(session);
    if (peer && X509_cmp_current_time(X509_get0_notAfter(peer)) <= 0) return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

static void set_server(SSL_CTX *ssl, const struct tls_settings *s) {
    static const unsigned char name[] = "valkey";
    int verify = s->auth == TLS_AUTH_NO    ? SSL_VERIFY_NONE
                 : s->auth == TLS_AUTH_YES ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                                           : SSL_VERIFY_PEER;
    SSL_CTX_set_verify(ssl, verify, NULL);
    SSL_CTX_set_session_id_context(ssl, name, sizeof name - 1);
    if (s->prefer_server_ciphers) SSL_CTX_set_options(ssl, SSL_OP_CIPHER_SERVER_PREFERENCE);
    if (s->session_caching) {
        SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_SERVER);
        SSL_CTX_sess_set_cache_size(ssl, s->session_cache_size);
        SSL_CTX_set_timeout(ssl, s->session_cache_timeout);
        SSL_CTX_set_session_ticket_cb(ssl, NULL, ticket_decrypted, NULL);
        SSL_CTX_set_num_tickets(ssl, 1); /* a client that comes back needs one, and each costs part of the handshake */
    } else {
        SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(ssl, 0);
    }
}

/* The certificate of a file that expires first; NULL: there is none. */
static X509 *first_to_expire(const char *path) {
    FILE *file = is_set(path) ? fopen(path, "re") : NULL;
    X509 *first = NULL;
    if (!file) return NULL;
    for (X509 *next; (next = PEM_read_X509(file, NULL, NULL, NULL));) {
        if (first && ASN1_TIME_compare(X509_get0_notAfter(next), X509_get0_notAfter(first)) >= 0) {
            X509_free(next);
            continue;
        }
        X509_free(first);
        first = next;
    }
    ERR_clear_error();
    fclose(file);
    return first;
}

static bool check_settings(enum tls_role role, const struct tls_settings *s, char *error, size_t error_size) {
    const char *missing = NULL;
    if (role == TLS_SERVER && !is_set(s->cert_file))
        missing = "No tls-cert-file configured!";
    else if (is_set(s->cert_file) && !is_set(s->key_file))
        missing = "No tls-key-file configured!";
    else if (s->auth != TLS_AUTH_NO && !is_set(s->ca_file) && !is_set(s->ca_dir) && !s->system_ca)
        missing = "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or "
                  "tls-auth-clients are enabled!";
    if (missing) snprintf(error, error_size, "%s", missing);
    return !missing;
}

struct tls_context *tls_context_new(enum tls_role role, const struct tls_settings *s, char *error, size_t error_size) {
    tls_start();
    ERR_clear_error();
    if (!check_settings(role, s, error, error_size)) return NULL;
    SSL_CTX *ssl = SSL_CTX_new(role == TLS_SERVER ? TLS_server_method() : TLS_client_method());
    if (!ssl) {
        tls_context_fail(error, error_size, "Failed to create a context", "OpenSSL");
        return NULL;
    }
    SSL_CTX_set_options(ssl, SSL_OP_NO_SSLv3 | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_SINGLE_DH_USE);
    /* Buffers: an idle connection has none. Reading ahead saves the system call for the header of a record. */
    SSL_CTX_set_mode(ssl,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(ssl, 1);
    if (role == TLS_SERVER)
        set_server(ssl, s);
    else
        SSL_CTX_set_verify(ssl, s->auth == TLS_AUTH_NO ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (!set_protocols(ssl, s->protocols, error, error_size) || !set_certificate(ssl, s, error, error_size) ||
        !set_authorities(ssl, s, error, error_size) || !set_ciphers(ssl, s, error, error_size) ||
        !set_dh(ssl, s->dh_file, error, error_size)) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    struct tls_context *context = mem_calloc(1, sizeof *context);
    context->ssl = ssl;
    context->own = SSL_CTX_get0_certificate(ssl);
    if (context->own) X509_up_ref(context->own);
    context->ca = first_to_expire(s->ca_file);
    return context;
}

void tls_context_free(struct tls_context *context) {
    if (!context) return;
    SSL_CTX_free(context->ssl);
    X509_free(context->own);
    X509_free(context->ca);
    mem_free(context);
}

/* --- Using --- */

void tls_use(enum tls_role role, struct tls_context *context) {
    pthread_mutex_lock(&lock);
    struct tls_context *before = used[role];
    used[role] = context;
    pthread_mutex_unlock(&lock);
    tls_context_free(before);
}

SSL *tls_session_open(enum tls_role role) {
    pthread_mutex_lock(&lock);
    SSL *ssl = used[role] ? SSL_new(used[role]->ssl) : NULL; /* keeps a reference to its context */
    pthread_mutex_unlock(&lock);
    return ssl;
}

static void certificate_describe(struct tls_certificate *to, const X509 *from) {
    *to = (struct tls_certificate){.serial = "none"};
    if (!from) return;
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(from), NULL);
    char *text = number ? BN_bn2hex(number) : NULL;
    if (text) snprintf(to->serial, sizeof to->serial, "%s", text);
    OPENSSL_free(text);
    BN_free(number);
    int days, seconds;
    if (ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(from)))
        to->expires_in = (int64_t)days * 24 * 3600 + seconds;
    ERR_clear_error();
}

void tls_certificates(enum tls_role role, struct tls_certificates *certificates) {
    pthread_mutex_lock(&lock);
    const struct tls_context *context = used[role];
    certificate_describe(&certificates->own, context ? context->own : NULL);
    certificate_describe(&certificates->ca, context ? context->ca : NULL);
    pthread_mutex_unlock(&lock);
}
