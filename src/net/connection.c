/* connection.c: the parts that all transports share. */
#include "net/connection.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/remote.h"
#include "net/socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#ifdef USE_RDMA
#include "net/rdma/rdma.h"
#ifdef USE_TLS
#include "net/rdma/tls.h"
#endif
#endif
#ifdef USE_TLS
#include "net/tls.h"
#endif

const struct transport *transport_find(const char *name) {
    static const struct transport *const all[] = {
        &transport_tcp,
        &transport_unix,
#ifdef USE_TLS
        &transport_tls,
#endif
#ifdef USE_RDMA
        &transport_rdma,
#endif
#if defined USE_RDMA && defined USE_TLS
        &transport_rdma_tls,
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

struct connection *conn_connect(const struct transport *transport, struct event_loop *loop,
                                const struct connect_options *options) {
    struct connection *conn = transport->connect(loop, options);
    conn->trusted = true; /* no handler was called yet */
    return conn;
}

struct listener *conn_listen(const struct transport *transport, struct event_loop *loop,
                             const struct listen_options *options, char *error, size_t error_size) {
    if (error_size) error[0] = '\0';
    return transport->listen(loop, options, error, error_size);
}

void listener_close(struct listener *listener) {
    listener->close(listener);
}

void *conn_take_input(struct connection *conn) {
    if (conn_is_remote(conn) || !conn->transport->io) return NULL;
    struct socket_connection *stream = container_of(conn, struct socket_connection, conn);
    void *own = stream->input.own;
    if (!own || stream->showing) return NULL;
    stream->input = (struct input_buffer){0};
    conn->in = NULL;
    conn->in_len = 0;
    return own;
}

/* Small allocations elsewhere cannot fail, so a connection with much output leaves some memory free for them. */
void *conn_output_alloc(size_t size, size_t queued) {
    enum { MUCH = 16 * 1024 * 1024, RESERVE = 256 * 1024 };
    if (queued >= MUCH && !mem_is_available(RESERVE)) return NULL;
    return mem_try_alloc(size);
}

void conn_receive_into(struct connection *conn, char *memory, size_t len) {
    size_t there = conn->in_len < len ? conn->in_len : len;
    if (there) {
        memcpy(memory, conn->in, there);
        conn_consume(conn, there);
    }
    conn->sink = there < len ? memory + there : NULL;
    conn->sink_len = len - there;
    if (conn->sink) conn->transport->set_reading(conn);
}

void conn_receive_stop(struct connection *conn) {
    conn->sink = NULL;
    conn->sink_len = 0;
    conn->transport->set_reading(conn);
}

void conn_set_reading(struct connection *conn, bool on) {
    if (conn->reading_paused == !on) return;
    conn->reading_paused = !on;
    conn->transport->set_reading(conn);
}

void conn_set_in_limit(struct connection *conn, size_t limit) {
    if (conn->in_limit == limit) return;
    conn->in_limit = limit;
    conn->transport->set_reading(conn);
}

void conn_set_trusted(struct connection *conn, bool trusted) {
    if (conn->trusted == trusted) return;
    conn->trusted = trusted;
    if (conn->transport->set_trusted) conn->transport->set_trusted(conn);
}

void conn_close(struct connection *conn) {
    if (conn->state != CONN_CLOSED) conn->transport->close(conn);
}

const char *conn_error_text(const struct connection *conn) {
    return conn->transport->error_text(conn);
}

int conn_set_keepalive(struct connection *conn, int seconds) {
    return conn->transport->set_keepalive ? conn->transport->set_keepalive(conn, seconds) : 0;
}

int conn_set_nodelay(struct connection *conn, bool on) {
    return conn->transport->set_nodelay ? conn->transport->set_nodelay(conn, on) : 0;
}

bool conn_is_encrypted(const struct connection *conn) {
    return strcmp(conn->transport->name, "tls") == 0 || strcmp(conn->transport->name, "rdma-tls") == 0;
}

void conn_describe(const struct connection *conn, char *text, size_t size) {
    if (size) text[0] = '\0';
    if (conn->transport->describe) conn->transport->describe(conn, text, size);
}

const char *conn_peer_certificate(const struct connection *conn) {
    return conn->transport->certificate ? conn->transport->certificate(conn) : NULL;
}
const char *conn_peer_names(const struct connection *conn) {
    return conn->transport->peer_names ? conn->transport->peer_names(conn) : NULL;
}

/* --- Addresses --- */

bool address_from(const struct sockaddr *from, struct address *address) {
    const void *ip;
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        ip = &v4->sin_addr;
        address->port = ntohs(v4->sin_port);
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        ip = &v6->sin6_addr;
        address->port = ntohs(v6->sin6_port);
    } else
        return false;
    return inet_ntop(from->sa_family, ip, address->host, sizeof address->host) != NULL;
}

bool address_is_loopback(const struct address *address) {
    return strncmp(address->host, "127.", 4) == 0 || strcmp(address->host, "::1") == 0;
}

int address_resolve(const char *host, int port, int flags, struct addrinfo **found) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, service, &hints, found);
}

void conn_format_address(const struct connection *conn, bool peer, char text[static 128]) {
    struct address address;
    if (!conn_address(conn, peer, &address))
        snprintf(text, 128, "?:0");
    else
        snprintf(text, 128, strchr(address.host, ':') && address.host[0] != '/' ? "[%s]:%d" : "%s:%d", address.host,
                 address.port);
}

/* --- Blocking use --- */

static bool is_open(const struct connection *conn, size_t argument) {
    return conn->state == CONN_OPEN;
}
static bool has_more(const struct connection *conn, size_t argument) {
    return conn->in_len > argument;
}
static bool is_drained(const struct connection *conn, size_t argument) {
    return conn->state != CONN_CONNECTING && conn_pending(conn) == 0;
}

static int wait_until(struct connection *conn, bool (*reached)(const struct connection *, size_t), size_t argument,
                      int64_t timeout_ms) {
    uint64_t end = clock_monotonic_us() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000;
    for (;;) {
        if (conn->state >= CONN_ENDED && reached != has_more) break;
        if (reached(conn, argument)) return 0;
        if (conn->state >= CONN_ENDED) break;
        uint64_t now = clock_monotonic_us();
        if (timeout_ms >= 0 && now >= end) return -ETIMEDOUT;
        event_loop_turn(conn->loop, timeout_ms < 0 ? -1 : (int64_t)(end - now));
    }
    return conn->error ? -conn->error : -ECONNRESET;
}

int conn_wait_open(struct connection *conn, int64_t timeout_ms) {
    return wait_until(conn, is_open, 0, timeout_ms);
}
int conn_wait_readable(struct connection *conn, size_t more_than, int64_t timeout_ms) {
    return wait_until(conn, has_more, more_than, timeout_ms);
}
int conn_wait_drained(struct connection *conn, int64_t timeout_ms) {
    conn_flush(conn);
    return wait_until(conn, is_drained, 0, timeout_ms);
}
