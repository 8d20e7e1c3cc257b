/* pair.c: see proxy.h.
 *
 * The end of a pair
 *   What one end sent before it closed is passed on first, then the other end is closed. A client over a socket may end
 *   only its sending and wait for replies (`nc`, `valkey-cli --pipe`), and a client that is gone looks the same. RDMA
 *   has no such half-closed state, and a server that learns of the end drops replies. So, if the client has sent
 *   something after the server's last bytes, the RDMA connection stays until the server has replied and then been quiet
 *   for QUIET_US, or until `linger_ms` have passed. */
#include "client/proxy/proxy.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <string.h>

enum { QUIET_US = 200 * 1000, LOOK_US = 20 * 1000 };

struct side {
    struct connection *conn; /* NULL: closed */
    struct proxy_pair *pair;
    struct side *other;
    bool ended;            /* the peer has sent its last byte */
    bool closing;          /* to be closed when all is sent */
    uint64_t last_us;      /* of its last bytes */
    _Atomic uint64_t *sum; /* of the bytes that went to it */
};
struct proxy_pair {
    struct list_link link; /* in worker->pairs */
    struct proxy_worker *worker;
    struct side client, server;
    bool connected;
    char name[128];
    uint64_t linger_until_us;
    struct event_timer timer; /* while a client that has ended waits for replies */
    struct event_deferred deferred;
};

static void pair_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct proxy_pair, deferred));
}

static void side_close(struct side *side) {
    struct proxy_pair *pair = side->pair;
    if (!side->conn) return;
    conn_close(side->conn);
    side->conn = NULL;
    if (side->other->conn) return;
    event_timer_cancel(pair->worker->loop, &pair->timer);
    list_remove(&pair->worker->pairs, &pair->link);
    atomic_fetch_sub(&pair->worker->clients, 1);
    event_loop_defer(pair->worker->loop, &pair->deferred, pair_free);
}

/* Closes the side when nothing is left to send to it. */
static void close_drained(struct side *side) {
    if (!side->conn) return;
    side->closing = true;
    if (side->conn->state == CONN_CONNECTING) return; /* on_connected() or on_closed() follows */
    if (conn_pending(side->conn) == 0) side_close(side);
}

/* Passes on what has come from `side`, as far as the other end has space. */
static void forward(struct side *side) {
    struct connection *from = side->conn, *to = side->other->conn;
    if (!from) return;
    if (!to || side->other->closing) { /* nobody wants it */
        conn_consume(from, from->in_len);
        return;
    }
    /* A flush may send all of it at once, and then nobody calls on_drained(): go on while there is space. */
    while (from->in_len) {
        size_t pending = conn_pending(to), len = from->in_len;
        if (pending >= proxy_options.buffer) break;
        if (len > proxy_options.buffer - pending) len = proxy_options.buffer - pending;
        output_write(&to->out, slice_make(from->in, len));
        conn_consume(from, len);
        conn_flush(to);
        side->last_us = clock_mono();
        atomic_fetch_add_explicit(side->other->sum, len, memory_order_relaxed);
    }
    if (from->state != CONN_OPEN) return;
    bool full = from->in_len > 0 || conn_pending(to) >= proxy_options.buffer;
    conn_set_reading(from, !full);
}

static void finish_forwarding(struct side *side);

static void on_readable(struct connection *conn) {
    struct side *side = conn->owner;
    forward(side);
    if (side->ended) finish_forwarding(side);
}

/* What was sent to this side has gone: the other one may be read again. */
static void on_drained(struct connection *conn) {
    struct side *side = conn->owner;
    if (side->closing) {
        side_close(side);
        return;
    }
    if (!side->other->conn) return;
    forward(side->other);
    if (side->other->ended) finish_forwarding(side->other);
}

static uint64_t waited_for_replies(struct event_timer *timer) {
    struct proxy_pair *pair = container_of(timer, struct proxy_pair, timer);
    uint64_t now = clock_mono();
    bool replied = pair->server.last_us > pair->client.last_us;
    bool busy = pair->client.conn && conn_pending(pair->client.conn) > 0; /* it takes its replies */
    if (now < pair->linger_until_us && (busy || !replied || now - pair->server.last_us < QUIET_US)) return LOOK_US;
    close_drained(&pair->server);
    close_drained(&pair->client);
    return 0;
}

/* The side has ended. Once everything it sent is passed on, the other one ends, too. */
static void finish_forwarding(struct side *side) {
    struct proxy_pair *pair = side->pair;
    if (side->conn && side->conn->in_len && side->other->conn) return; /* on_drained() goes on */
    if (side == &pair->server || !pair->server.conn || side->conn->error) {
        side_close(side);
        close_drained(side->other);
        return;
    }
    if (pair->server.last_us > pair->client.last_us || pair->client.last_us == 0) {
        close_drained(&pair->server);
        side_close(side);
        return;
    }
    if (!pair->linger_until_us) {
        pair->linger_until_us = clock_mono() + (uint64_t)proxy_options.linger_ms * 1000;
        event_timer_set(pair->worker->loop, &pair->timer, LOOK_US, waited_for_replies);
    }
}

static void pair_on_closed(struct connection *conn) {
    struct side *side = conn->owner;
    struct proxy_pair *pair = side->pair;
    side->ended = true;
    if (side == &pair->server && !pair->connected) {
        atomic_fetch_add(&pair->worker->failed, 1);
        proxy_print("%s: %s", pair->name, conn_error_text(conn));
        if (pair->client.conn) {
            char text[600];
            snprintf(text, sizeof text, "-ERR valkey-rdma-proxy: %.500s\r\n", conn_error_text(conn));
            for (char *c = text; *c && c < text + strlen(text) - 2; c++)
                if (*c == '\r' || *c == '\n') *c = ' ';
            output_write(&pair->client.conn->out, slice_of(text));
            conn_flush(pair->client.conn);
        }
    } else if (conn->error || proxy_options.verbose)
        proxy_print("%s: the %s: %s", pair->name, side == &pair->server ? "server" : "client", conn_error_text(conn));
    forward(side);
    finish_forwarding(side);
}

static void pair_on_connected(struct connection *conn) {
    struct side *side = conn->owner;
    side->pair->connected = true;
    conn_flush(conn);
    if (side->closing && conn_pending(conn) == 0) {
        side_close(side);
        return;
    }
    if (!side->other->conn) return;
    forward(side->other); /* it was not read while there was no connection to drain */
    if (side->other->ended) finish_forwarding(side->other);
}

static const struct connection_events events = {
    .connected = pair_on_connected, .readable = on_readable, .drained = on_drained, .closed = pair_on_closed};

void pair_start(struct proxy_worker *worker, struct connection *client) {
    struct proxy_pair *pair = mem_calloc(1, sizeof *pair);
    pair->worker = worker;
    pair->client =
        (struct side){.conn = client, .pair = pair, .other = &pair->server, .sum = &worker->bytes_to_clients};
    pair->server = (struct side){.pair = pair, .other = &pair->client, .sum = &worker->bytes_to_server};
    list_append(&worker->pairs, &pair->link);
    atomic_fetch_add(&worker->accepted, 1);
    conn_format_address(client, true, pair->name);
    client->events = &events;
    client->owner = &pair->client;
    conn_set_in_limit(client, proxy_options.buffer);
    struct connect_options options = {.host = proxy_options.server_host,
                                      .port = proxy_options.server_port,
                                      .source_host = proxy_options.source_host,
                                      .timeout_ms = proxy_options.connect_timeout_ms,
                                      .events = &events,
                                      .owner = &pair->server};
    pair->server.conn = conn_connect(transport_find("rdma"), worker->loop, &options);
    conn_set_in_limit(pair->server.conn, proxy_options.buffer);
    if (proxy_options.verbose) proxy_print("%s: connected", pair->name);
}

void pairs_end(struct proxy_worker *worker) {
    list_each_entry(&worker->pairs, struct proxy_pair, link, pair) {
        close_drained(&pair->client);
        close_drained(&pair->server);
    }
}

static void refusal_ended(struct connection *conn) {
    conn_close(conn);
}
static void refusal_read(struct connection *conn) {
    conn_consume(conn, conn->in_len);
}

void pair_refuse(struct connection *client, const char *reason) {
    static const struct connection_events refused = {.readable = refusal_read, .closed = refusal_ended};
    client->events = &refused;
    output_write(&client->out, slice_of(reason));
    conn_flush(client);
    conn_close(client);
}
