/* endpoint.h: the options that all tools share: the server's address, the transport, and credentials. */
#pragma once
#include "net/connection.h"

struct endpoint {
    char *host; /* owned, like all texts here */
    int port;
    char *socket; /* path of a Unix socket; overrides host and port */
    char *user, *password;
    int db;     /* from the URI */
    int family; /* AF_INET or AF_INET6: preferred addresses of a host name; 0: in the system's order */
    bool rdma, tls, mptcp;
    /* TLS; all texts but the name are as in tls.h */
    char *server_name, *ca_file, *ca_dir, *cert_file, *key_file, *ciphers, *ciphersuites;
    bool insecure; /* do not verify the server's certificate */
};

void endpoint_init(struct endpoint *e);
void endpoint_free(struct endpoint *e);
/* Parses the option argv[i]. Returns the number of arguments used; 0: not one of these options; -1: its argument is
 * missing; -2: it is invalid, and `error` has the reason. */
int endpoint_option(struct endpoint *e, int argc, char **argv, int i, char *error, size_t error_size);
/* Checks for options that exclude each other, and prepares TLS for all connections of the process. Call it once, after
 * the last option. False: `error` has the reason. */
bool endpoint_prepare(const struct endpoint *e, char *error, size_t error_size);
struct connection *endpoint_connect(const struct endpoint *e, struct event_loop *loop, uint32_t timeout_ms,
                                    const struct connection_events *events, void *owner);
/* "127.0.0.1:6379", "[::1]:6379" or the path */
void endpoint_format(const struct endpoint *e, char *text, size_t size);
/* "tcp", "tls", "unix", "rdma (softrdma0)", "rdma-tls (softrdma0)" */
void endpoint_format_transport(const struct endpoint *e, char *text, size_t size);
/* Why a connection could not be made, or ended. OpenSSL's "error:0A00010B:SSL routines::wrong version number" becomes
 * "SSL_connect failed: wrong version number", as Valkey's tools print it, and "TLS: ..." if it was made. Valid until
 * the thread's next call. */
const char *endpoint_error_text(const struct connection *conn, bool connecting);
/* Replaces an owned string by a copy of `value`. */
void text_set(char **field, const char *value);
