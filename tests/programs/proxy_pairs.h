/* proxy_pairs.h: carries TCP connections over connections of another transport, for rdma-proxy and tls-proxy.
 *
 * Listens on 127.0.0.1, prints "ready PORT", and carries every accepted connection over a connection of its own. When
 * one side closes, what it sent before is forwarded and then the other side is closed. A side that does not take what
 * is sent to it stops the reading of the other. Ends when standard input does. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/connection.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PENDING_HIGH = 1024 * 1024 };

struct pair;
struct side {
    struct connection *conn; /* NULL: closed */
    struct pair *pair;
    struct side *other;
    bool closing; /* to be closed when all is sent */
};
struct pair {
    struct side near, far; /* TCP, the other transport */
    struct event_deferred deferred;
};

static struct event_loop *loop;
static struct listener *listener;
static const char *proxy_name;
static const struct transport *far_transport;
static struct connect_options far_options; /* host, port, source_host, server_name */

static void pair_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct pair, deferred));
}

static void side_close(struct side *side) {
    if (!side->conn) return;
    conn_close(side->conn);
    side->conn = NULL;
    if (!side->other->conn) event_loop_defer(loop, &side->pair->deferred, pair_free);
}

/* Passes on what has come from `side`, as far as the other takes it. */
static void forward(struct side *side) {
    struct connection *from = side->conn, *to = side->other->conn;
    if (!to) {
        conn_consume(from, from->in_len);
        return;
    }
    output_write(&to->out, conn_peek(from));
    conn_consume(from, from->in_len);
    conn_flush(to);
    if (conn_pending(to) > PENDING_HIGH) conn_set_reading(from, false);
}

static void on_readable(struct connection *conn) {
    forward(conn->owner);
}

static void on_drained(struct connection *conn) {
    struct side *side = conn->owner;
    if (side->closing)
        side_close(side);
    else if (side->other->conn)
        conn_set_reading(side->other->conn, true);
}

/* When the server has ended, clients must not find the proxy still listening after their connections have ended. */
static void listener_end(void) {
    struct pollfd input = {.fd = STDIN_FILENO};
    if (!listener || poll(&input, 1, 0) <= 0 || !(input.revents & POLLHUP)) return;
    listener_close(listener);
    listener = NULL;
}

static void on_closed(struct connection *conn) {
    struct side *side = conn->owner, *other = side->other;
    if (side == &side->pair->far) listener_end();
    if (conn->error) fprintf(stderr, "%s: %s: %s\n", proxy_name, conn_transport_name(conn), conn_error_text(conn));
    side_close(side);
    if (!other->conn) return;
    other->closing = true;
    if (other->conn->state != CONN_CONNECTING && conn_pending(other->conn) == 0) side_close(other);
}

static void on_connected(struct connection *conn) {
    struct side *side = conn->owner;
    conn_flush(conn);
    if (side->closing && conn_pending(conn) == 0)
        side_close(side);
    else if (side->other->conn && conn_pending(conn) <= PENDING_HIGH)
        conn_set_reading(side->other->conn, true); /* paused while there was no connection to drain */
}

static const struct connection_events events = {
    .connected = on_connected, .readable = on_readable, .drained = on_drained, .closed = on_closed};

static void on_accepted(struct listener *from, struct connection *conn) {
    struct pair *pair = mem_calloc(1, sizeof *pair);
    pair->near = (struct side){.conn = conn, .pair = pair, .other = &pair->far};
    pair->far = (struct side){.pair = pair, .other = &pair->near};
    conn->events = &events;
    conn->owner = &pair->near;
    struct connect_options options = far_options;
    options.timeout_ms = 10000;
    options.events = &events;
    options.owner = &pair->far;
    pair->far.conn = conn_connect(far_transport, loop, &options);
}

static void on_stdin(struct event_io *io, int mask) {
    char text[256];
    if (read(STDIN_FILENO, text, sizeof text) <= 0) event_loop_stop(loop);
}

/* Runs the proxy; returns the exit status. */
static int proxy_run(const char *name, int port, const char *transport, const struct connect_options *to) {
    proxy_name = name;
    far_transport = transport_find(transport);
    far_options = *to;
    log_level = LOG_LEVEL_WARNING;
    loop = event_loop_new();
    char error[300];
    struct listen_options options = {
        .host = "127.0.0.1", .port = port, .backlog = 511, .accept_batch = 100, .accepted = on_accepted};
    listener = conn_listen(&transport_tcp, loop, &options, error, sizeof error);
    if (!listener) {
        fprintf(stderr, "%s: %s\n", name, error);
        return 1;
    }
    struct event_io input = {.fd = -1};
    /* A regular file or /dev/null as standard input cannot be watched: then there is nothing to wait for. */
    if (event_io_set(loop, &input, STDIN_FILENO, EVENT_READ, on_stdin) < 0) return 1;
    printf("ready %d\n", listener->address.port);
    fflush(stdout);
    event_loop_run(loop);
    if (listener) listener_close(listener);
    event_loop_free(loop); /* ends what is still being carried */
    return 0;
}
