/* tcp.c: TCP over IPv4 and IPv6. socket.c has everything except addresses and socket options.
 *
 * getaddrinfo() resolves names and may wait for a name server; numeric addresses never wait. When a name has several
 * addresses, they are tried one after the other within one time limit. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/socket.h"
#include "net/tcp.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void set_flag(int fd, int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
}

/* --- Addresses --- */

bool tcp_address(const struct connection *conn, bool peer, struct address *address) {
    struct sockaddr_storage found;
    socklen_t len = sizeof found;
    int fd = socket_fd(conn);
    if (fd < 0) return false;
    if ((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&found, &len) < 0) return false;
    return address_from((const struct sockaddr *)&found, address);
}

bool tcp_is_local(const struct connection *conn) {
    struct address address;
    if (!tcp_address(conn, true, &address)) return false;
    return address_is_loopback(&address);
}

int tcp_set_keepalive(struct connection *conn, int seconds) {
    int fd = socket_fd(conn), on = seconds > 0, interval = seconds / 3 > 0 ? seconds / 3 : 1, probes = 3;
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) < 0) return -errno;
    if (!on) return 0;
    if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) < 0)
        return -errno;
    return 0;
}

int tcp_set_nodelay(struct connection *conn, bool on) {
    int value = on;
    return setsockopt(socket_fd(conn), IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) < 0 ? -errno : 0;
}

/* --- Connecting --- */

struct tcp_dial {
    struct socket_dial dial; /* must be first */
    struct addrinfo *addresses, *next;
    struct addrinfo *source; /* NULL: any */
    uint32_t mark;
    bool mptcp, source_optional;
};

static int bind_source(int fd, int family, const struct addrinfo *source) {
    set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    for (; source; source = source->ai_next)
        if (source->ai_family == family) return bind(fd, source->ai_addr, source->ai_addrlen) < 0 ? -errno : 0;
    return -EADDRNOTAVAIL;
}

static int try_address(const struct tcp_dial *dial, const struct addrinfo *to, bool *in_progress) {
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, dial->mptcp ? IPPROTO_MPTCP : 0);
    if (fd < 0) return -errno;
    int result = 0;
    if (dial->source) result = bind_source(fd, to->ai_family, dial->source);
    if (dial->source_optional) result = 0;
    if (result == 0 && dial->mark && setsockopt(fd, SOL_SOCKET, SO_MARK, &dial->mark, sizeof dial->mark) < 0)
        result = -errno;
    set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (result == 0 && connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
        if (errno == EINPROGRESS)
            *in_progress = true;
        else
            result = errno == EAGAIN ? -EADDRNOTAVAIL : -errno; /* EAGAIN: no local port is free */
    }
    if (result == 0) return fd;
    close(fd);
    return result;
}

static int tcp_attempt(struct socket_dial *base, bool *in_progress) {
    struct tcp_dial *dial = (struct tcp_dial *)base;
    while (dial->next) {
        const struct addrinfo *to = dial->next;
        dial->next = to->ai_next;
        int fd = try_address(dial, to, in_progress);
        if (fd >= 0) return fd;
        base->last_error = -fd;
    }
    return -(base->last_error ? base->last_error : EHOSTUNREACH);
}

static void tcp_dial_free(struct socket_dial *base) {
    struct tcp_dial *dial = (struct tcp_dial *)base;
    if (dial->addresses) freeaddrinfo(dial->addresses);
    if (dial->source) freeaddrinfo(dial->source);
    mem_free(dial);
}

struct connection *tcp_connect(const struct transport *transport, struct event_loop *loop,
                               const struct connect_options *options) {
    struct tcp_dial *dial = mem_calloc(1, sizeof *dial);
    dial->dial.attempt = tcp_attempt;
    dial->dial.free = tcp_dial_free;
    dial->mark = options->mark;
    dial->mptcp = options->mptcp;
    dial->source_optional = options->source_optional;
    int result = address_resolve(options->host, options->port, 0, &dial->addresses);
    if (result == 0 && options->source_host && options->source_host[0]) {
        result = address_resolve(options->source_host, 0, 0, &dial->source);
        if (options->source_optional) result = 0;
    }
    dial->next = dial->addresses;
    int failure = result == 0 ? 0 : result == EAI_SYSTEM ? errno : EHOSTUNREACH;
    const char *note = result != 0 && result != EAI_SYSTEM ? gai_strerror(result) : NULL;
    return &socket_connect(loop, transport, options, &dial->dial, failure, note)->conn;
}

/* --- Listening --- */

static void warn_of_somaxconn(int backlog) {
    static bool warned;
    int limit;
    FILE *file = warned ? NULL : fopen("/proc/sys/net/core/somaxconn", "re");
    if (!file) return;
    if (fscanf(file, "%d", &limit) == 1 && limit < backlog) {
        warned = true;
        log_warning("WARNING: The TCP backlog setting of %d cannot be enforced because "
                    "/proc/sys/net/core/somaxconn is set to the lower value of %d.",
                    backlog, limit);
    }
    fclose(file);
}

static int listening_socket(const struct addrinfo *at, const struct listen_options *options) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, options->mptcp ? IPPROTO_MPTCP : 0);
    if (fd < 0) return -errno;
    if (at->ai_family == AF_INET6) set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if ((options->mark && setsockopt(fd, SOL_SOCKET, SO_MARK, &options->mark, sizeof options->mark) < 0) ||
        bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, options->backlog > 0 ? options->backlog : 511) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

static void tcp_prepare(int fd) {
    set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

struct listener *tcp_listen(const struct transport *transport, struct event_loop *loop,
                            const struct listen_options *options, char *error, size_t error_size) {
    const char *host = strcmp(options->host, "*") == 0     ? "0.0.0.0"
                       : strcmp(options->host, "::*") == 0 ? "::"
                                                           : options->host;
    struct addrinfo *found = NULL;
    int result = address_resolve(host, options->port, AI_PASSIVE, &found);
    if (result != 0) {
        snprintf(error, error_size, "TCP: cannot listen on %s:%d: %s", options->host, options->port,
                 result == EAI_SYSTEM ? strerror(errno) : gai_strerror(result));
        if (result != EAI_SYSTEM) errno = EADDRNOTAVAIL;
        return NULL;
    }
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) fd = listening_socket(at, options);
    freeaddrinfo(found);
    if (fd < 0) {
        snprintf(error, error_size, "TCP: cannot listen on %s:%d: %s", options->host, options->port, strerror(-fd));
        errno = -fd;
        return NULL;
    }
    warn_of_somaxconn(options->backlog);
    struct socket_listener *l = mem_calloc(1, sizeof *l);
    l->prepare = tcp_prepare;
    result = socket_listener_start(l, transport, loop, options, fd);
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    if (result == 0 && (getsockname(fd, (struct sockaddr *)&bound, &len) < 0 ||
                        !address_from((struct sockaddr *)&bound, &l->listener.address)))
        result = -EADDRNOTAVAIL;
    if (result < 0) {
        listener_close(&l->listener);
        snprintf(error, error_size, "TCP: cannot listen on %s:%d: %s", options->host, options->port, strerror(-result));
        errno = -result;
        return NULL;
    }
    return &l->listener;
}

static struct connection *plain_connect(struct event_loop *loop, const struct connect_options *options) {
    return tcp_connect(&transport_tcp, loop, options);
}
static struct listener *plain_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                     size_t error_size) {
    return tcp_listen(&transport_tcp, loop, options, error, error_size);
}

const struct transport transport_tcp = {
    .name = "tcp",
    .io = &socket_io_plain,
    .connect = plain_connect,
    .listen = plain_listen,
    TCP_OPERATIONS,
};
