/* socket_accept.c: listening sockets, and accepted connections until their handshake is complete. See socket.h. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/socket_private.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPT_PAUSE_US = 100 * 1000, LOG_US = 1000 * 1000 };

struct socket_settings socket_settings = {.handshake_timeout_ms = 10 * 1000};
struct socket_stats socket_stats;

static struct socket_connection *socket_accept(struct event_loop *loop, const struct transport *transport, int fd) {
    struct socket_connection *s = socket_new(loop, transport, fd, CONN_OPEN);
    s->accepted = true;
    return s;
}

/* Handshakes of accepted connections. The owner learns of a connection when its handshake is complete. */

static void arrival_end(struct socket_connection *s) {
    list_remove(&s->pool->handshakes, &s->pool_link);
    event_timer_cancel(s->conn.loop, &s->timer);
    event_io_remove(s->conn.loop, &s->event);
    atomic_fetch_sub_explicit(&socket_stats.handshakes, 1, memory_order_relaxed);
}

/* The peer may still have to read an alert, so the socket lingers. */
void socket_arrival_drop(struct socket_connection *s) {
    arrival_end(s);
    socket_session_end(s, false);
    s->conn.state = CONN_CLOSED;
    if (socket_linger_begin(s)) return;
    close(s->fd);
    s->fd = -1;
    event_loop_defer(s->conn.loop, &s->conn.deferred, socket_free);
}

static void arrival_fail(struct socket_connection *s, int error) {
    static _Thread_local struct log_limit limit = {.interval_us = LOG_US}; /* peers must not fill the log */
    struct connection *conn = &s->conn;
    char peer[128], own[128];
    conn->error = error;
    conn_format_address(conn, true, peer);
    conn_format_address(conn, false, own);
    LOG(log_limit_allows(&limit) ? LOG_LEVEL_WARNING : LOG_LEVEL_VERBOSE,
        "Error accepting a client connection: %s (addr=%s laddr=%s)", socket_error_text(conn), peer, own);
    conn->error = 0;
    atomic_fetch_add_explicit(&socket_stats.handshakes_failed, 1, memory_order_relaxed);
    socket_arrival_drop(s);
}

static uint64_t arrival_timeout(struct event_timer *timer) {
    arrival_fail(container_of(timer, struct socket_connection, timer), ETIMEDOUT);
    return 0;
}

static void arrival_report(struct socket_connection *s, struct socket_listener *listener,
                           void (*arrived)(struct connection *)) {
    if (listener)
        listener->listener.accepted(&listener->listener, &s->conn);
    else
        arrived(&s->conn);
    if (s->conn.state == CONN_OPEN) socket_update_interest(s);
}

static void arrival_ready(struct event_io *event, int mask) {
    struct socket_connection *s = container_of(event, struct socket_connection, event);
    int wants = 0, result = s->io->handshake(s, &wants);
    if (result == -EAGAIN) result = event_io_set(s->conn.loop, event, s->fd, wants, arrival_ready) < 0 ? -ENOMEM : 1;
    if (result > 0) return;
    if (result < 0) {
        arrival_fail(s, -result);
        return;
    }
    struct socket_handshake *arrival = s->arrival;
    arrival_end(s);
    s->arrival = NULL;
    s->conn.state = CONN_OPEN;
    arrival_report(s, arrival->listener, arrival->arrived);
    mem_free(arrival);
}

/* Reports an accepted connection, after its handshake if there is one: to the listener, or if it is NULL through
 * `arrived`. */
static void arrival_begin(struct socket_connection *s, struct socket_listener *listener,
                          void (*arrived)(struct connection *)) {
    if (!s->io->handshake) {
        arrival_report(s, listener, arrived);
        return;
    }
    s->conn.state = CONN_CONNECTING;
    s->arrival = mem_alloc(sizeof *s->arrival);
    *s->arrival = (struct socket_handshake){listener, arrived};
    list_append(&s->pool->handshakes, &s->pool_link);
    atomic_fetch_add_explicit(&socket_stats.handshakes, 1, memory_order_relaxed);
    uint64_t timeout_ms = atomic_load_explicit(&socket_settings.handshake_timeout_ms, memory_order_relaxed);
    event_timer_set(s->conn.loop, &s->timer, timeout_ms * 1000, arrival_timeout);
    s->needs_certificate = listener && listener->listener.needs_certificate;
    if (!s->io->start(s) || event_io_set(s->conn.loop, &s->event, s->fd, EVENT_READ, arrival_ready) < 0)
        arrival_fail(s, ENOMEM);
}

/* --- Listening --- */

static uint64_t accept_again(struct event_timer *timer) {
    struct socket_listener *l = container_of(timer, struct socket_listener, retry);
    event_io_set(l->listener.loop, &l->event, l->fd, EVENT_READ, l->event.ready);
    return 0;
}

/* No descriptors or memory: the backlog stays readable, so stop watching it for a while instead of spinning. */
static void accept_failed(struct socket_listener *l, int error) {
    struct list *lingering = &socket_pool_of(l->listener.loop)->lingering;
    while (lingering->len) socket_linger_end(container_of(list_first(lingering), struct socket_connection, pool_link));
    static _Thread_local struct log_limit limit = {.interval_us = LOG_US};
    log_limited(&limit, LOG_LEVEL_WARNING, "Accepting client connection on %s:%d failed: %s", l->listener.address.host,
                l->listener.address.port, strerror(error));
    event_io_remove(l->listener.loop, &l->event);
    event_timer_set(l->listener.loop, &l->retry, ACCEPT_PAUSE_US, accept_again);
}

/* An accepted descriptor on its way to another thread's loop. */
struct socket_placed {
    struct event_post post; /* must be first */
    struct event_loop *loop;
    const struct transport *transport;
    void (*arrived)(struct connection *conn);
    int fd;
};

static void placed_arrives(struct event_post *post) {
    struct socket_placed *placed = (struct socket_placed *)post;
    arrival_begin(socket_accept(placed->loop, placed->transport, placed->fd), NULL, placed->arrived);
    mem_free(placed);
}

static void placed_dropped(struct event_post *post) {
    close(((struct socket_placed *)post)->fd);
    mem_free(post);
}

/* False: the connection stays on this loop. */
static bool accept_elsewhere(struct listener *listener, int fd) {
    struct event_loop *loop = listener->place ? listener->place(listener) : NULL;
    if (!loop || loop == listener->loop) return false;
    struct socket_placed *placed = mem_alloc(sizeof *placed);
    *placed = (struct socket_placed){.post = {.run = placed_arrives, .drop = placed_dropped},
                                     .loop = loop,
                                     .transport = listener->transport,
                                     .arrived = listener->arrived,
                                     .fd = fd};
    event_loop_post(loop, &placed->post);
    return true;
}

/* The server could send the reason of a refusal only after the handshake. So it closes a connection that needs one. */
static bool handshake_affordable(struct socket_listener *l) {
    if (!l->listener.transport->io->handshake || !l->listener.has_capacity) return true;
    return l->listener.has_capacity(&l->listener);
}

static void accept_ready(struct event_io *event, int mask) {
    struct socket_listener *l = container_of(event, struct socket_listener, event);
    for (int i = 0; i < l->listener.accept_batch; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN) return;
            if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM) continue;
            accept_failed(l, errno);
            return;
        }
        if (!handshake_affordable(l)) {
            close(fd);
            continue;
        }
        if (l->prepare) l->prepare(fd);
        if (accept_elsewhere(&l->listener, fd)) continue;
        arrival_begin(socket_accept(l->listener.loop, l->listener.transport, fd), l, NULL);
        if (l->closed) return;
    }
}

static void listener_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct socket_listener, deferred));
}

static void listener_stop(struct listener *listener) {
    struct socket_listener *l = (struct socket_listener *)listener;
    if (l->closed) return;
    l->closed = true;
    event_io_remove(listener->loop, &l->event);
    event_timer_cancel(listener->loop, &l->retry);
    list_each_entry(&socket_pool_of(l->listener.loop)->handshakes, struct socket_connection, pool_link, s)
        if (s->arrival->listener == l) socket_arrival_drop(s);
    if (l->release) l->release(l);
    /* A child process that was just forked holds the descriptor as well. The address must be free all the same. */
    shutdown(l->fd, SHUT_RDWR);
    close(l->fd);
    event_loop_defer(listener->loop, &l->deferred, listener_free);
}

int socket_listener_start(struct socket_listener *l, const struct transport *transport, struct event_loop *loop,
                          const struct listen_options *options, int fd) {
    l->listener.transport = transport;
    l->listener.loop = loop;
    l->listener.accepted = options->accepted;
    l->listener.place = options->place;
    l->listener.arrived = options->arrived;
    l->listener.has_capacity = options->has_capacity;
    l->listener.owner = options->owner;
    l->listener.needs_certificate = options->needs_certificate;
    l->listener.close = listener_stop;
    l->listener.accept_batch = options->accept_batch ? options->accept_batch : ACCEPT_BATCH_DEFAULT;
    l->fd = fd;
    return event_io_set(loop, &l->event, fd, EVENT_READ, accept_ready);
}
