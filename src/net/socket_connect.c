/* socket_connect.c: outgoing connections. See socket.h. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/socket_private.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRY_US = 1000 };

static void dial_next(struct socket_connection *s);
static uint64_t dial_timer(struct event_timer *timer);

static void dial_failed(struct socket_connection *s, int error) {
    s->conn.state = CONN_ENDED;
    s->conn.error = error;
    event_io_remove(s->conn.loop, &s->event);
    event_timer_cancel(s->conn.loop, &s->timer);
    s->conn.events->closed(&s->conn);
}

static void arm_deadline(struct socket_connection *s) {
    uint64_t now = clock_monotonic_us();
    event_timer_set(s->conn.loop, &s->timer, s->dial->deadline_us > now ? s->dial->deadline_us - now : 0, dial_timer);
}

static uint64_t dial_timer(struct event_timer *timer) {
    struct socket_connection *s = container_of(timer, struct socket_connection, timer);
    if (s->conn.error)
        dial_failed(s, s->conn.error);
    else if (clock_monotonic_us() >= s->dial->deadline_us)
        dial_failed(s, ETIMEDOUT);
    else if (s->fd >= 0) /* connecting, or in the handshake */
        arm_deadline(s);
    else
        dial_next(s);
    return 0;
}

static void dial_done(struct socket_connection *s) {
    event_timer_cancel(s->conn.loop, &s->timer);
    s->dial->free(s->dial);
    s->dial = NULL;
    s->conn.state = CONN_OPEN;
    event_io_remove(s->conn.loop, &s->event);
    socket_update_interest(s);
    if (s->conn.events->connected) s->conn.events->connected(&s->conn);
    if (s->conn.state == CONN_OPEN) socket_flush(&s->conn);
}

static void dial_handshake(struct event_io *event, int mask) {
    struct socket_connection *s = container_of(event, struct socket_connection, event);
    int wants = 0, result = s->io->handshake(s, &wants);
    if (result == -EAGAIN) {
        result = event_io_set(s->conn.loop, event, s->fd, wants, dial_handshake);
        if (result == 0) return;
    }
    if (result < 0)
        dial_failed(s, -result);
    else
        dial_done(s);
}

static void dial_connected(struct socket_connection *s) {
    if (s->io->handshake)
        dial_handshake(&s->event, 0);
    else
        dial_done(s);
}

static void dial_ready(struct event_io *event, int mask) {
    struct socket_connection *s = container_of(event, struct socket_connection, event);
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (error == 0) {
        dial_connected(s);
        return;
    }
    s->dial->last_error = error;
    event_io_remove(s->conn.loop, event);
    close(s->fd);
    s->fd = -1;
    dial_next(s);
}

static void dial_next(struct socket_connection *s) {
    bool in_progress = false;
    int fd = s->dial->attempt(s->dial, &in_progress);
    if (fd == -EAGAIN) {
        event_timer_set(s->conn.loop, &s->timer, RETRY_US, dial_timer);
        return;
    }
    if (fd < 0) {
        dial_failed(s, -fd);
        return;
    }
    s->fd = fd;
    arm_deadline(s);
    if (!in_progress) {
        dial_connected(s);
        return;
    }
    int result = event_io_set(s->conn.loop, &s->event, fd, EVENT_WRITE, dial_ready);
    if (result < 0) dial_failed(s, -result);
}

struct socket_connection *socket_connect(struct event_loop *loop, const struct transport *transport,
                                         const struct connect_options *options, struct socket_dial *dial, int failure,
                                         const char *note) {
    struct socket_connection *s = socket_new(loop, transport, -1, CONN_CONNECTING);
    s->conn.events = options->events;
    s->conn.owner = options->owner;
    s->dial = dial;
    s->conn.error = failure;
    if (note) s->error_note = mem_strdup(note);
    if (dial) {
        uint64_t timeout_us = options->timeout_ms ? (uint64_t)options->timeout_ms * 1000 : 60u * 1000000u;
        dial->deadline_us = clock_monotonic_us() + timeout_us;
    }
    /* The first attempt also runs from the loop, so that no callback comes before this function returns. */
    event_timer_set(loop, &s->timer, 0, dial_timer);
    return s;
}
