/* resp_client.c: see resp_client.h.
 *
 * A client lives until the end of the loop's turn in which it ended, so that functions on the stack may return through
 * it. `conn` is NULL from the end on. */
#include "net/resp_client.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include <errno.h>
#include <stdio.h>

enum { REPLY_MAX = 1024 * 1024, OUTPUT_MAX = 1024 * 1024, PENDING_MAX = 100, QUEUE_MIN = 8 };

struct pending_request {
    resp_client_replied *replied;
    void *context;
};

struct resp_client {
    struct event_loop *loop;
    struct connection *conn; /* NULL: ended */
    const struct resp_client_events *events;
    void *owner;
    struct pending_request *queue; /* a ring */
    unsigned first, count, capacity, pending_max;
    struct memory_output early; /* requests sent before the connection is open */
    struct reply_reader reader;
    size_t reply_len, reply_max, output_max;
    unsigned keepalive_s;
    bool reading, flush_planned, subscriber;
    struct event_deferred flush, end;
};

static const struct connection_events connection_events;

struct resp_client *resp_client_new(struct event_loop *loop, const struct resp_client_options *options) {
    struct resp_client *client = mem_calloc(1, sizeof *client);
    client->loop = loop;
    client->events = options->events;
    client->owner = options->owner;
    client->reply_max = options->reply_max ? options->reply_max : REPLY_MAX;
    client->output_max = options->output_max ? options->output_max : OUTPUT_MAX;
    client->pending_max = options->pending_max ? options->pending_max : PENDING_MAX;
    client->keepalive_s = options->keepalive_s;
    client->subscriber = options->subscriber;
    memory_output_init(&client->early);
    reply_reader_init(&client->reader);
    client->conn = conn_connect(options->transport, loop,
                                &(struct connect_options){.host = options->host,
                                                          .port = options->port,
                                                          .source_host = options->source_host,
                                                          .source_optional = options->source_optional,
                                                          .server_name = options->server_name,
                                                          .timeout_ms = options->timeout_ms,
                                                          .mark = options->mark,
                                                          .mptcp = options->mptcp,
                                                          .events = &connection_events,
                                                          .owner = client});
    return client;
}

bool resp_client_is_open(const struct resp_client *client) {
    return client->conn && conn_is_open(client->conn);
}
unsigned resp_client_pending(const struct resp_client *client) {
    return client->count;
}
struct connection *resp_client_connection(const struct resp_client *client) {
    return client->conn;
}

/* --- The end --- */

static void client_free(struct event_deferred *deferred) {
    struct resp_client *client = container_of(deferred, struct resp_client, end);
    reply_reader_free(&client->reader);
    memory_output_free(&client->early);
    mem_free(client->queue);
    mem_free(client);
}

static struct pending_request take_pending(struct resp_client *client) {
    must(client->count > 0 && client->first < client->capacity);
    struct pending_request pending = client->queue[client->first];
    client->first = (client->first + 1) % client->capacity;
    client->count--;
    return pending;
}

/* reason NULL: the owner ends it. The callbacks may call resp_client_send(), which refuses, and
 * resp_client_close(), which then does nothing. */
static void client_end(struct resp_client *client, const char *reason) {
    if (!client->conn) return;
    char text[256];
    if (reason) snprintf(text, sizeof text, "%s", reason); /* it may belong to the connection */
    struct connection *conn = client->conn;
    client->conn = NULL;
    if (client->flush_planned && conn_is_open(conn)) conn_flush(conn);
    conn->owner = NULL;
    conn_close(conn);
    while (client->count) {
        struct pending_request pending = take_pending(client);
        if (pending.replied) pending.replied(client, pending.context, NULL);
    }
    if (reason) client->events->ended(client, client->owner, text);
    /* A planned flush runs in the same turn, before this. */
    event_loop_defer(client->loop, &client->end, client_free);
}
void resp_client_close(struct resp_client *client) {
    client_end(client, NULL);
}

/* --- Sending --- */

static void flush_now(struct event_deferred *deferred) {
    struct resp_client *client = container_of(deferred, struct resp_client, flush);
    client->flush_planned = false;
    if (resp_client_is_open(client)) conn_flush(client->conn);
}

static bool queue_grow(struct resp_client *client) {
    if (client->count < client->capacity) return true;
    unsigned capacity = client->capacity ? client->capacity * 2 : QUEUE_MIN;
    struct pending_request *queue = mem_try_alloc(capacity * sizeof *queue);
    if (!queue) return false;
    for (unsigned i = 0; i < client->count; i++) queue[i] = client->queue[(client->first + i) % client->capacity];
    mem_free(client->queue);
    client->queue = queue, client->capacity = capacity, client->first = 0;
    return true;
}

static void write_head(struct output *out, char mark, size_t len) {
    char *text = output_reserve(out, NUMBER_TEXT_MAX + 3);
    size_t at = 0;
    text[at++] = mark;
    at += format_uint64(text + at, len);
    text[at++] = '\r', text[at++] = '\n';
    output_commit(out, at);
}

int resp_client_send(struct resp_client *client, int argc, const struct slice *argv, resp_client_replied *replied,
                     void *context) {
    if (!client->conn || client->conn->state > CONN_OPEN) return -ENOTCONN;
    bool open = conn_is_open(client->conn);
    size_t queued = open ? conn_pending(client->conn) : memory_output_slice(&client->early).len;
    size_t len = 0;
    for (int i = 0; i < argc; i++) len += argv[i].len + NUMBER_TEXT_MAX;
    if (client->count >= client->pending_max || queued + len > client->output_max || !queue_grow(client))
        return -ENOBUFS;
    struct output *out = open ? &client->conn->out : &client->early.out;
    write_head(out, '*', (size_t)argc);
    for (int i = 0; i < argc; i++) {
        write_head(out, '$', argv[i].len);
        output_write(out, argv[i]);
        output_write(out, SLICE("\r\n"));
    }
    client->queue[(client->first + client->count++) % client->capacity] = (struct pending_request){replied, context};
    if (open && !client->flush_planned) {
        client->flush_planned = true;
        event_loop_defer(client->loop, &client->flush, flush_now);
    }
    return 0;
}

static void opened(struct connection *conn) {
    struct resp_client *client = conn->owner;
    if (!client) return;
    if (client->keepalive_s) conn_set_keepalive(conn, (int)client->keepalive_s);
    output_write(&conn->out, memory_output_slice(&client->early));
    memory_output_free(&client->early);
    memory_output_init(&client->early);
    if (client->events->opened) client->events->opened(client, client->owner);
    if (resp_client_is_open(client)) conn_flush(conn);
}

/* --- Receiving --- */

/* A message of a RESP2 subscription is an array like a reply. */
static bool is_message(const struct resp_client *client, const struct resp_value *value) {
    if (value->type == RESP_PUSH) return true;
    if (!client->subscriber || value->type != RESP_ARRAY || value->count < 3 || value->children[0].type != RESP_BULK)
        return false;
    struct slice kind = value->children[0].text;
    return slice_equal(kind, SLICE("message")) || slice_equal(kind, SLICE("pmessage")) ||
           slice_equal(kind, SLICE("smessage"));
}
/* A RESP3 confirmation of a subscription is a push, but it answers a request. */
static bool is_confirmation(const struct resp_value *value) {
    static const char *const words[] = {"subscribe",   "psubscribe",   "ssubscribe",
                                        "unsubscribe", "punsubscribe", "sunsubscribe"};
    if (value->type != RESP_PUSH || value->count != 3) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (slice_equal(value->children[0].text, slice_of(words[i]))) return true;
    return false;
}

static void deliver(struct resp_client *client) {
    const struct resp_value *value = &client->reader.value;
    if (value->type == RESP_ATTRIBUTE) return;
    if (is_message(client, value) && !(is_confirmation(value) && client->count)) {
        if (client->events->push) client->events->push(client, client->owner, value);
        return;
    }
    if (!client->count) {
        client_end(client, "the peer sent a reply without a request");
        return;
    }
    struct pending_request pending = take_pending(client);
    if (pending.replied) pending.replied(client, pending.context, value);
}

static void resp_client_readable(struct connection *conn) {
    struct resp_client *client = conn->owner;
    if (!client || client->reading) return; /* in a callback that runs the loop */
    client->reading = true;
    while (client->conn) {
        struct slice in = conn_peek(conn);
        if (!in.len) break;
        size_t left = client->reply_max - client->reply_len, used;
        if (in.len > left) in.len = left;
        enum reply_status status = reply_read(&client->reader, in, &used);
        conn_consume(conn, used);
        client->reply_len += used;
        if (status == REPLY_FAILED) {
            client_end(client, client->reader.error);
        } else if (status == REPLY_READY) {
            client->reply_len = 0;
            deliver(client);
            resp_value_free(&client->reader.value); /* else it would stay until the next reply */
        } else if (client->reply_len >= client->reply_max || (used == 0 && in.len == left)) {
            client_end(client, "the peer sent a reply that is too long");
        } else if (used == 0) {
            break;
        }
    }
    client->reading = false;
}

static void resp_client_closed(struct connection *conn) {
    struct resp_client *client = conn->owner;
    if (!client) return;
    client_end(client, conn->error ? conn_error_text(conn) : "the peer closed the connection");
}

static const struct connection_events connection_events = {
    .connected = opened, .readable = resp_client_readable, .closed = resp_client_closed};
