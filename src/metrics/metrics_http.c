/* metrics_http.c: see metrics.h. An HTTP/1.1 server with one page.
 *
 * A connection serves one request and closes after the reply. Scrapes are seconds apart, so keeping the connection
 * would gain little. A connection is closed after SECONDS, and at most CONNECTIONS exist; further ones are closed. A
 * request has at most REQUEST_MAX bytes without its body, which is not read.
 *
 * Rejected: an HTTP library, which would bring its own event loop or threads to replace a hundred lines. Also rejected:
 * serving the page on the client port, which closes connections that send HTTP, to protect against web browsers. */
#include "lib/structures/linked_list.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "metrics/metrics.h"
#include "net/connection.h"
#include "server/clients/reply_barrier.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/config/config.h"
#include "server/stats/info.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONNECTIONS = 16, REQUEST_MAX = 4096, SECONDS = 10, LISTENERS_MAX = 16 };

struct http_session {
    struct list_link link;
    struct connection *conn;
    struct event_timer timer;
    bool replied;
};

static int port;
static struct config_strings addresses;
static char *unix_path;
static struct listener *listeners[LISTENERS_MAX + 1];
static int listeners_count;
static struct list sessions = LIST_INIT(sessions);
static bool started;

static void session_end(struct http_session *session) {
    list_remove(&sessions, &session->link);
    event_timer_cancel(server.loop, &session->timer);
    conn_close(session->conn);
    mem_free(session);
}

/* --- Replies --- */

static void reply(struct http_session *session, const char *status, const char *headers, struct slice body,
                  bool with_body) {
    struct output *out = &session->conn->out;
    char head[512];
    int len = snprintf(head, sizeof head,
                       "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
                       status, headers, body.len);
    output_write(out, slice_make(head, (size_t)len));
    if (with_body) output_write(out, body);
    session->replied = true;
    session->conn->wants_drained = true;
    conn_flush(session->conn);
    if (!conn_pending(session->conn)) session_end(session);
}

static void http_error(struct http_session *session, const char *status, const char *headers) {
    char headers_all[128], body[64];
    snprintf(headers_all, sizeof headers_all, "%sContent-Type: text/plain; charset=utf-8\r\n", headers);
    int len = snprintf(body, sizeof body, "%s\n", status);
    reply(session, status, headers_all, slice_make(body, (size_t)len), true);
}

/* A page cannot wait. While writes are not safe it has no sections of modules, which may show them. */
static bool metrics_show_data(void) {
    if (!reply_barrier_armed || !reply_barrier_guards()) return true;
    return !reply_barrier_refusal() && reply_barrier_shows_now() && reply_barrier_may_show();
}

static void reply_page(struct http_session *session, bool with_body) {
    static const struct slice everything = {"everything", 10};
    struct memory_output info = MEMORY_OUTPUT_INIT, page = MEMORY_OUTPUT_INIT;
    info_write(&info.out, 1, &everything, metrics_show_data());
    metrics_write(&page.out, memory_output_slice(&info));
    reply(session, "200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", memory_output_slice(&page),
          with_body);
    memory_output_free(&info);
    memory_output_free(&page);
}

/* --- Requests --- */

/* The length of the request up to the empty line after its headers; 0: it is not complete. Lines may end with CRLF or
 * LF. */
static size_t request_length(struct slice input) {
    for (size_t i = 0; i + 1 < input.len; i++) {
        if (input.data[i] != '\n') continue;
        if (input.data[i + 1] == '\n') return i + 2;
        if (i + 2 < input.len && input.data[i + 1] == '\r' && input.data[i + 2] == '\n') return i + 3;
    }
    return 0;
}

/* Takes the next token of the request line; empty: there is none. */
static struct slice word_take(struct slice *line) {
    size_t len = 0;
    while (len < line->len && line->data[len] > ' ' && line->data[len] < 127) len++;
    struct slice word = slice_make(line->data, len);
    bool blank = len < line->len && line->data[len] == ' ';
    *line = slice_make(line->data + len + blank, line->len - len - blank);
    return word;
}

static bool same(struct slice word, const char *text) {
    return slice_equal(word, slice_of(text));
}

static void request_serve(struct http_session *session, struct slice request) {
    struct slice line =
        slice_make(request.data, (size_t)((const char *)memchr(request.data, '\n', request.len) - request.data));
    if (line.len && line.data[line.len - 1] == '\r') line.len--;
    struct slice method = word_take(&line), target = word_take(&line), version = word_take(&line);
    bool head = same(method, "HEAD");
    if (line.len || !method.len || !target.len || (!same(version, "HTTP/1.1") && !same(version, "HTTP/1.0"))) {
        http_error(session, "400 Bad Request", "");
        return;
    }
    const char *query = memchr(target.data, '?', target.len);
    if (query) target.len = (size_t)(query - target.data);
    if (!head && !same(method, "GET"))
        http_error(session, "405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    else if (!same(target, "/metrics"))
        http_error(session, "404 Not Found", "");
    else
        reply_page(session, !head);
}

static void on_readable(struct connection *conn) {
    struct http_session *session = conn->owner;
    if (session->replied) {
        conn_consume(conn, conn->in_len);
        return;
    }
    struct slice input = conn_peek(conn);
    size_t len = request_length(input);
    if (len && len <= REQUEST_MAX)
        request_serve(session, slice_make(input.data, len));
    else if (input.len >= REQUEST_MAX)
        http_error(session, "431 Request Header Fields Too Large", "");
}
static void on_drained(struct connection *conn) {
    struct http_session *session = conn->owner;
    if (session->replied && !conn_pending(conn)) session_end(session);
}
/* The peer may have closed only its sending direction, and still wait for the rest of the reply. */
static void metrics_on_closed(struct connection *conn) {
    struct http_session *session = conn->owner;
    if (conn->error || !session->replied || !conn_pending(conn)) session_end(session);
}
static uint64_t on_timeout(struct event_timer *timer) {
    struct http_session *session = container_of(timer, struct http_session, timer);
    session->conn->drops_output = true;
    session_end(session);
    return 0;
}

static const struct connection_events events = {
    .readable = on_readable, .drained = on_drained, .closed = metrics_on_closed};

static void on_accepted(struct listener *listener, struct connection *conn) {
    if (sessions.len >= CONNECTIONS) {
        conn_close(conn);
        return;
    }
    struct http_session *session = mem_calloc(1, sizeof *session);
    session->conn = conn;
    conn->owner = session;
    conn->events = &events;
    conn_set_in_limit(conn, REQUEST_MAX);
    list_append(&sessions, &session->link);
    event_timer_set(server.loop, &session->timer, (uint64_t)SECONDS * 1000000, on_timeout);
}

/* --- Listeners --- */

static bool listen_at(const char *transport, const char *host, int at_port) {
    bool optional = at_port && host[0] == '-';
    struct listen_options options = {
        .host = host + optional, .port = at_port, .backlog = CONNECTIONS, .accepted = on_accepted};
    char error[256] = "";
    struct listener *listener = conn_listen(transport_find(transport), server.loop, &options, error, sizeof error);
    if (listener) {
        listeners[listeners_count++] = listener;
        return true;
    }
    int reason = errno;
    if (optional && (reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT)) return true;
    log_warning("Could not listen for metrics at %s:%d: %s", options.host, at_port, strerror(reason));
    return false;
}
static void close_all(void) {
    while (listeners_count) listener_close(listeners[--listeners_count]);
}
static bool listen_all(void) {
    for (int i = 0; port && i < addresses.count; i++)
        if (!listen_at("tcp", addresses.items[i], port)) return false;
    return !unix_path[0] || listen_at("unix", unix_path, 0);
}

static const char *metrics_apply(void) {
    if (!started) return NULL;
    close_all();
    return listen_all() ? NULL : "Failed to listen for metrics. Check server logs.";
}

static const char *check_bind(const struct config_option *option, struct slice text) {
    int count = text.len > 0;
    for (size_t i = 0; i < text.len; i++) count += text.data[i] == ' ';
    return count > LISTENERS_MAX ? "Too many bind addresses specified." : NULL;
}

/* CONFIG SET dir changes what a relative path means, and in the data directory the socket could take the name of a file
 * that the server is about to write. */
static const char *check_path(const struct config_option *option, struct slice text) {
    return text.len && text.data[0] != '/' ? "The path must be absolute." : NULL;
}

static void metrics_start(void) {
    started = true;
    if (!listen_all()) {
        log_warning("Failed listening for metrics, aborting.");
        exit(1);
    }
    for (int i = 0; i < listeners_count; i++) {
        const struct address *address = &listeners[i]->address;
        if (address->port)
            log_notice("Metrics are served at port %d of %s", address->port, address->host);
        else
            log_notice("Metrics are served at %s", unix_path);
    }
}
static void metrics_stop(void) {
    close_all();
    list_each(&sessions, link) session_end(container_of(link, struct http_session, link));
}

static const struct config_option metrics_options[] = {
    {OPTION("metrics-port", CONFIG_INT, &port, "0"), .min = 0, .max = 65535, .apply = metrics_apply},
    {OPTION("metrics-bind", CONFIG_STRINGS, &addresses, "127.0.0.1 -::1"), .flags = CONFIG_MULTI_ARG,
     .check = check_bind, .apply = metrics_apply},
    {OPTION("metrics-unixsocket", CONFIG_STRING, &unix_path, ""), .check = check_path, .apply = metrics_apply},
    {.name = NULL},
};

static const struct server_part metrics_part = {.name = "metrics", .start = metrics_start, .stop = metrics_stop};

const struct feature metrics_feature = {
    .name = "metrics", .options = OPTIONS(metrics_options), .parts = PARTS(&metrics_part)};
