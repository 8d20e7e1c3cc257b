/* endpoint.c: see endpoint.h. */
#include "tools/endpoint.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#ifdef USE_RDMA
#include "net/rdma/rdma.h"
#endif
#ifdef USE_TLS
#include "net/tls.h"
#endif
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

/* The connect timeout without a timeout option, on every transport. */
enum { CONNECT_TIMEOUT_MS = 60 * 1000 };

void text_set(char **field, const char *value) {
    char *copy = value ? mem_strdup(value) : NULL;
    mem_free(*field);
    *field = copy;
}

static const struct {
    const char *option;
    size_t offset;
} tls_texts[] = {{"--sni", offsetof(struct endpoint, server_name)},
                 {"--cacert", offsetof(struct endpoint, ca_file)},
                 {"--cacertdir", offsetof(struct endpoint, ca_dir)},
                 {"--cert", offsetof(struct endpoint, cert_file)},
                 {"--key", offsetof(struct endpoint, key_file)},
                 {"--tls-ciphers", offsetof(struct endpoint, ciphers)},
                 {"--tls-ciphersuites", offsetof(struct endpoint, ciphersuites)}};

static char **tls_text(struct endpoint *e, size_t i) {
    return (char **)(void *)((char *)e + tls_texts[i].offset);
}

void endpoint_init(struct endpoint *e) {
    memset(e, 0, sizeof *e);
    e->host = mem_strdup("127.0.0.1");
    e->port = 6379;
}

void endpoint_free(struct endpoint *e) {
    mem_free(e->host);
    mem_free(e->socket);
    mem_free(e->user);
    mem_free(e->password);
    for (size_t i = 0; i < sizeof tls_texts / sizeof *tls_texts; i++) mem_free(*tls_text(e, i));
    memset(e, 0, sizeof *e);
}

/* Decodes "%40" to '@'. Returns false for a percent sign without two hex digits, or "%00". */
static bool percent_decode(char **field, const char *text, size_t len) {
    char *out = mem_alloc(len + 1), *p = out;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            *p++ = text[i];
            continue;
        }
        int high = i + 2 < len ? hex_digit(text[i + 1]) : -1, low = i + 2 < len ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0 || high + low == 0) {
            mem_free(out);
            return false;
        }
        *p++ = (char)(high << 4 | low);
        i += 2;
    }
    *p = '\0';
    mem_free(*field);
    *field = out;
    return true;
}

static bool uri_fail(char *error, size_t error_size, const char *text) {
    snprintf(error, error_size, "%s", text);
    return false;
}

/* Parses an optional "user:password@". */
static bool uri_read_user(struct endpoint *e, const char **at, const char *end) {
    const char *sign = memchr(*at, '@', (size_t)(end - *at));
    if (!sign) return true;
    const char *colon = memchr(*at, ':', (size_t)(sign - *at));
    const char *password = colon ? colon + 1 : *at;
    if (colon && colon > *at && !percent_decode(&e->user, *at, (size_t)(colon - *at))) return false;
    if (!percent_decode(&e->password, password, (size_t)(sign - password))) return false;
    *at = sign + 1;
    return true;
}

/* Parses valkey://, redis://, valkeys://, rediss:// (TLS), rdma:// or unix:// with user, password, port and database.
 * False: `error` has the reason. */
static bool endpoint_parse_uri(struct endpoint *e, const char *uri, char *error, size_t error_size) {
    static const struct {
        const char *text;
        bool tls, rdma, path;
    } schemes[] = {{"valkey://", false, false, false}, {"redis://", false, false, false},
                   {"valkeys://", true, false, false}, {"rediss://", true, false, false},
                   {"rdma://", false, true, false},    {"unix://", false, false, true}};
    size_t i = 0, count = sizeof schemes / sizeof *schemes;
    while (i < count && strncasecmp(uri, schemes[i].text, strlen(schemes[i].text)) != 0) i++;
    if (i == count) return uri_fail(error, error_size, "Invalid URI scheme");
    const char *at = uri + strlen(schemes[i].text);
    if (schemes[i].tls) e->tls = true;
    if (schemes[i].rdma) e->rdma = true;
    const char *end = schemes[i].path ? at + strlen(at) : at + strcspn(at, "/?#");
    if (!uri_read_user(e, &at, end))
        return uri_fail(error, error_size, "Invalid URI: a percent sign needs two hexadecimal digits");
    if (schemes[i].path) {
        if (at == end) return uri_fail(error, error_size, "Invalid URI: the path of the socket is missing");
        text_set(&e->socket, at);
        return true;
    }
    const char *host_end = end;
    if (*at == '[') { /* an IPv6 address */
        const char *bracket = memchr(at, ']', (size_t)(end - at));
        if (!bracket) return uri_fail(error, error_size, "Invalid URI: ']' is missing");
        at++;
        host_end = bracket;
    } else {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        if (colon) host_end = colon;
    }
    if (host_end > at && !percent_decode(&e->host, at, (size_t)(host_end - at))) {
        return uri_fail(error, error_size, "Invalid URI: a percent sign needs two hexadecimal digits");
    }
    if (host_end < end && *host_end == ']') host_end++;
    if (host_end < end && *host_end == ':') {
        char *rest;
        long port = strtol(host_end + 1, &rest, 10);
        if (rest != end || port < 0 || port > 65535) return uri_fail(error, error_size, "Invalid URI: bad port number");
        if (host_end + 1 < end) e->port = (int)port;
    }
    if (*end == '/') e->db = atoi(end + 1);
    return true;
}

static int port_parse(struct endpoint *e, const char *text, char *error, size_t error_size) {
    int64_t port;
    if (!parse_int64(slice_of(text), &port) || port < 0 || port > 65535) {
        snprintf(error, error_size, "Invalid server port.");
        return -2;
    }
    e->port = (int)port;
    return 2;
}

int endpoint_option(struct endpoint *e, int argc, char **argv, int i, char *error, size_t error_size) {
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(name, "--rdma") == 0) {
        e->rdma = true;
        return 1;
    }
    if (strcmp(name, "--mptcp") == 0) {
        e->mptcp = true;
        return 1;
    }
    if (strcmp(name, "--rdma-base-protocol") == 0) {
#ifdef USE_RDMA
        rdma_settings.features = 0; /* for all connections of the tool */
#endif
        return 1;
    }
    if (strcmp(name, "--tls") == 0 || strcmp(name, "--insecure") == 0) {
        *(name[2] == 't' ? &e->tls : &e->insecure) = true;
        return 1;
    }
    for (size_t k = 0; k < sizeof tls_texts / sizeof *tls_texts; k++) {
        if (strcmp(name, tls_texts[k].option) != 0) continue;
        if (!value) return -1;
        text_set(tls_text(e, k), value);
        return 2;
    }
    static const char *const others[] = {"-h", "-p", "-s", "-a", "--pass", "--user", "-u"};
    size_t k = 0, count = sizeof others / sizeof *others;
    while (k < count && strcmp(name, others[k]) != 0) k++;
    if (k == count) return 0;
    if (!value) return -1;
    switch (k) {
    case 0: text_set(&e->host, value); break;
    case 1: return port_parse(e, value, error, error_size);
    case 2: text_set(&e->socket, value); break;
    case 3:
    case 4: text_set(&e->password, value); break;
    case 5: text_set(&e->user, value); break;
    default:
        if (!endpoint_parse_uri(e, value, error, error_size)) return -2;
    }
    return 2;
}

static bool tls_prepare(const struct endpoint *e, char *error, size_t error_size) {
#ifdef USE_TLS
    const struct tls_settings settings = {.cert_file = e->cert_file,
                                          .key_file = e->key_file,
                                          .ca_file = e->ca_file,
                                          .ca_dir = e->ca_dir,
                                          .system_ca = !e->ca_file && !e->ca_dir,
                                          .ciphers = e->ciphers,
                                          .ciphersuites = e->ciphersuites,
                                          .auth = e->insecure ? TLS_AUTH_NO : TLS_AUTH_YES};
    if ((e->cert_file != NULL) != (e->key_file != NULL)) {
        snprintf(error, error_size, "--cert and --key belong together");
        return false;
    }
    struct tls_context *context = tls_context_new(TLS_CLIENT, &settings, error, error_size);
    tls_use(TLS_CLIENT, context);
    return context != NULL;
#else
    snprintf(error, error_size, "--tls was asked for, but this program is built without TLS (make BUILD_TLS=yes)");
    return false;
#endif
}

static const struct transport *endpoint_transport(const struct endpoint *e) {
    if (e->rdma) return transport_find(e->tls ? "rdma-tls" : "rdma");
    if (e->tls) return transport_find("tls");
    return e->socket ? &transport_unix : &transport_tcp;
}

bool endpoint_prepare(const struct endpoint *e, char *error, size_t error_size) {
    if (e->tls && e->socket && !e->rdma) {
        snprintf(error, error_size, "TLS needs TCP or RDMA: use --tls without a Unix socket");
        return false;
    }
    if (e->mptcp && (e->rdma || e->socket)) {
        snprintf(error, error_size, "Options --mptcp is only supported by TCP.");
        return false;
    }
    if (e->tls && !tls_prepare(e, error, error_size)) return false;
    if (endpoint_transport(e)) return true;
    snprintf(error, error_size, "--rdma was asked for, but this program is built without RDMA (make BUILD_RDMA=yes)");
    return false;
}

/* The host name's first address of the preferred family, or the name itself if there is none. */
static const char *host_prefer(const struct endpoint *e, char address[static INET6_ADDRSTRLEN]) {
    struct addrinfo hints = {.ai_family = e->family, .ai_socktype = SOCK_STREAM}, *found;
    if (!e->family || getaddrinfo(e->host, NULL, &hints, &found) != 0) return e->host;
    int failed = getnameinfo(found->ai_addr, found->ai_addrlen, address, INET6_ADDRSTRLEN, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return failed ? e->host : address;
}

struct connection *endpoint_connect(const struct endpoint *e, struct event_loop *loop, uint32_t timeout_ms,
                                    const struct connection_events *events, void *owner) {
    bool path = e->socket && !e->rdma;
    char address[INET6_ADDRSTRLEN];
    struct connect_options options = {.host = path ? e->socket : host_prefer(e, address),
                                      .port = path ? 0 : e->port,
                                      .server_name = e->server_name,
                                      .mptcp = e->mptcp,
                                      .timeout_ms = timeout_ms ? timeout_ms : CONNECT_TIMEOUT_MS,
                                      .events = events,
                                      .owner = owner};
    return conn_connect(endpoint_transport(e), loop, &options);
}

void endpoint_format(const struct endpoint *e, char *text, size_t size) {
    if (e->socket && !e->rdma)
        snprintf(text, size, "%s", e->socket);
    else
        snprintf(text, size, strchr(e->host, ':') ? "[%s]:%d" : "%s:%d", e->host, e->port);
}

const char *endpoint_error_text(const struct connection *conn, bool connecting) {
    static _Thread_local char described[320];
    const char *text = conn_error_text(conn), *reason = text;
    if (!text || strncmp(text, "error:", 6) != 0) return text;
    for (int i = 0; i < 4 && reason; i++) reason = strchr(reason, ':') ? strchr(reason, ':') + 1 : NULL;
    if (!reason) return text;
    snprintf(described, sizeof described, "%s: %s", connecting ? "SSL_connect failed" : "TLS", reason);
    return described;
}
void endpoint_format_transport(const struct endpoint *e, char *text, size_t size) {
#ifdef USE_RDMA
    if (e->rdma) {
        const char *device = rdma_device_name();
        snprintf(text, size, "%s (%s)", e->tls ? "rdma-tls" : "rdma", device ? device : "no device");
        return;
    }
#endif
    snprintf(text, size, "%s", e->socket ? "unix" : e->tls ? "tls" : "tcp");
}
