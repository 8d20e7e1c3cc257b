/* socket_linger.c: closed sockets that wait for the peer's end. socket.h says why. */
#include "net/socket_private.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINGER_US = 2 * 1000 * 1000,
    LINGER_BYTES = 16 * 1024 * 1024,
    LINGER_MAX = 64,
    LINGER_READS = 4, /* reads in one iteration */
};

void socket_linger_end(struct socket_connection *s) {
    list_remove(&s->pool->lingering, &s->pool_link);
    event_io_remove(s->conn.loop, &s->event);
    event_timer_cancel(s->conn.loop, &s->timer);
    close(s->fd);
    s->fd = -1;
    event_loop_defer(s->conn.loop, &s->conn.deferred, socket_free);
}

static uint64_t lingered_enough(struct event_timer *timer) {
    socket_linger_end(container_of(timer, struct socket_connection, timer));
    return 0;
}

/* Reads and discards input. False: the peer has ended, or has sent too much. */
static bool linger_drain(struct socket_connection *s) {
    char dropped[16 * 1024];
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t n = read(s->fd, dropped, sizeof dropped);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        s->lingered += (size_t)n;
        if (n == 0 || s->lingered > LINGER_BYTES) return false;
    }
    return true;
}

static void linger_ready(struct event_io *event, int mask) {
    struct socket_connection *s = container_of(event, struct socket_connection, event);
    if (!linger_drain(s)) socket_linger_end(s);
}

bool socket_linger_begin(struct socket_connection *s) {
    struct connection *conn = &s->conn;
    if (!s->accepted || !(conn->bytes_out || s->arrival) || conn->error || s->write_error) return false;
    if (shutdown(s->fd, SHUT_WR) < 0 || !linger_drain(s)) return false;
    if (event_io_set(conn->loop, &s->event, s->fd, EVENT_READ, linger_ready) < 0) return false;
    event_timer_set(conn->loop, &s->timer, LINGER_US, lingered_enough);
    struct list *all = &s->pool->lingering;
    list_append(all, &s->pool_link);
    if (all->len > LINGER_MAX) socket_linger_end(container_of(list_first(all), struct socket_connection, pool_link));
    event_loop_defer(conn->loop, &conn->deferred, socket_free);
    return true;
}
