/* tls.h: TLS over TCP, with OpenSSL.
 *
 * transport_tls is tcp.c and socket.c with another I/O table (tls.c). socket.h describes its connections. The
 * process has two contexts: one for accepted connections, one for those made by conn_connect().
 * They are built from files and texts (tls_context.c) by any thread, and replaced at any time: connections keep the
 * context with which they began.
 *
 * Handshake
 *   It runs on the thread of the connection's loop. An accepted connection is reported when its handshake is complete.
 *   A peer that is silent, or sends something else, costs a socket and a session until
 *   socket_settings.handshake_timeout_ms has passed.
 *
 * Refused
 *   Renegotiation and compression, always. Versions below TLS 1.2, unless the settings name them.
 *
 * End of the stream
 *   Both sides send close_notify. A peer that closes its socket without one counts as closed as well: RESP has lengths,
 *   so the receiver detects a truncated message anyway. An incomplete request is never executed.
 *
 * Names
 *   The chain of the peer's certificate is verified. The host name in it is not, as in Valkey's tools and replicas, so
 *   the certificate authority must issue certificates for this purpose only.
 *
 * Errors
 *   conn->error is EPROTO, or the socket's errno; conn_error_text() has OpenSSL's text. */
#pragma once
#include "net/connection.h"

enum tls_role { TLS_SERVER, TLS_CLIENT };
enum tls_auth { TLS_AUTH_NO, TLS_AUTH_YES, TLS_AUTH_OPTIONAL };
enum tls_names { TLS_NAMES_NONE, TLS_NAMES_CN, TLS_NAMES_URI };

/* Texts may be NULL or empty: not set. */
struct tls_settings {
    const char *cert_file, *key_file, *key_password; /* PEM */
    const char *ca_file, *ca_dir;
    bool system_ca;        /* without ca_file and ca_dir: trust the system's certificate authorities */
    const char *protocols; /* "TLSv1.2 TLSv1.3" */
    const char *ciphers, *ciphersuites;
    const char *dh_file;        /* server: parameters for DHE ciphers */
    bool prefer_server_ciphers; /* server */
    bool session_caching;       /* server; off: no session is resumed */
    int session_cache_size;     /* server; sessions, 0: no limit */
    int session_cache_timeout;  /* server; seconds */
    enum tls_auth auth;         /* the peer's certificate. A client verifies its server's unless it is TLS_AUTH_NO */
};

struct tls_context;
/* Thread-safe. NULL: `error` has the reason, as a sentence without a line end. */
struct tls_context *tls_context_new(enum tls_role role, const struct tls_settings *settings, char *error,
                                    size_t error_size);
void tls_context_free(struct tls_context *context); /* NULL: nothing. Connections that use it keep what they need */
/* From now on connections of this role use the context; takes it over, and frees the former one. NULL: none. */
void tls_use(enum tls_role role, struct tls_context *context);

/* What INFO shows of a certificate. */
struct tls_certificate {
    char serial[64];    /* hexadecimal; "none": there is none */
    int64_t expires_in; /* seconds, negative once it has expired; 0: there is none */
};
struct tls_certificates {
    struct tls_certificate own, ca; /* ca: the first one to expire of ca_file */
};
void tls_certificates(enum tls_role role, struct tls_certificates *certificates); /* of the context in use */

/* Which names of a client's certificate conn_peer_names() returns; for handshakes from now on. */
void tls_set_peer_names(enum tls_names names);

struct tls_stats {
    _Atomic uint64_t handshakes, resumed; /* of accepted connections, complete */
};
extern struct tls_stats tls_stats;

/* While it is set, no connection writes: as if its socket were full. For tests; any thread. */
extern _Atomic bool tls_writes_blocked;

extern const struct transport transport_tls;
