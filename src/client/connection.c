/* connection.c: connections of libvalkeyrdma. See library.h and valkeyrdma.h.
 *
 * The handlers of the transport's connection only note what has changed; they run in a turn of the loop, under the
 * context's lock. */
#include "client/library.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/rdma/rdma.h"
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <string.h>

enum {
    SEND_LIMIT = 1024 * 1024,
    RECEIVE_LIMIT = 64 * 1024 * 1024,
    IN_LIMIT = 256 * 1024, /* unconsumed bytes that are gathered in one piece without being asked for */
    PIECE = 64 * 1024,     /* output is flushed in pieces, so that it is written to registered memory */
    CONNECT_MS = 5000,
    LINGER_US = 2500 * 1000,
};

static void connection_changed(struct valkeyrdma *c) {
    if (c->watch)
        c->watch(c);
    else if (!list_is_linked(&c->changed_link))
        list_append(&c->context->changed, &c->changed_link);
}

static bool may_retry(struct valkeyrdma *c);

static void connection_on_connected(struct connection *conn) {
    struct valkeyrdma *c = conn->owner;
    c->connected = true;
    connection_changed(c);
}
static void on_change(struct connection *conn) {
    connection_changed(conn->owner);
}
static void connection_on_closed(struct connection *conn) {
    struct valkeyrdma *c = conn->owner;
    snprintf(c->error_text, sizeof c->error_text, "%s", conn_error_text(conn));
    c->error = conn->error;
    if (!c->connected && may_retry(c)) return;
    c->ended = true;
    connection_changed(c);
}
static const struct connection_events events = {
    .connected = connection_on_connected, .readable = on_change, .drained = on_change, .closed = connection_on_closed};

/* --- Connecting --- */

static void forget_addresses(struct valkeyrdma *c) {
    if (c->addresses) freeaddrinfo(c->addresses);
    c->addresses = c->next_address = NULL;
    mem_free(c->source_host);
    c->source_host = NULL;
}

/* Begins with the next address. The transport gets it as text: it would resolve a name under the context's lock. */
static bool attempt(struct valkeyrdma *c) {
    char host[NI_MAXHOST];
    const struct addrinfo *address = c->next_address;
    uint64_t now = clock_monotonic_us();
    if (!address || now >= c->deadline_us) return false;
    c->next_address = address->ai_next;
    if (getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST)) return false;
    struct connect_options options = {.host = host,
                                      .port = c->port,
                                      .source_host = c->source_host,
                                      .timeout_ms = (uint32_t)((c->deadline_us - now + 999) / 1000),
                                      .events = &events,
                                      .owner = c};
    c->conn = conn_connect(transport_find("rdma"), c->context->loop, &options);
    c->conn->takes_later = !c->watch;
    if (c->one_sided) rdma_find_by_completions(c->conn);
    conn_set_in_limit(c->conn, IN_LIMIT);
    return true;
}

static bool may_retry(struct valkeyrdma *c) {
    struct connection *failed = c->conn;
    if (!c->next_address || !attempt(c)) return false;
    conn_close(failed);
    return true;
}

static int resolve(struct valkeyrdma *c, const char *host, int port, char *error, size_t error_size) {
    if (port < 1 || port > 65535) {
        fail_text(error, error_size, "the port is not between 1 and 65535");
        return -EINVAL;
    }
    int unknown = address_resolve(host, port, 0, &c->addresses);
    if (!unknown) {
        c->next_address = c->addresses;
        return 0;
    }
    int result = unknown == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
    c->addresses = NULL;
    snprintf(c->error_text, sizeof c->error_text, "%.255s: %s", host,
             unknown == EAI_SYSTEM ? strerror(-result) : gai_strerror(unknown));
    fail_text(error, error_size, c->error_text);
    return result;
}

static void take_options(struct valkeyrdma *c, const struct valkeyrdma_options *options) {
    struct valkeyrdma_options all = {0};
    if (options) memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    c->send_limit = all.send_limit ? all.send_limit : SEND_LIMIT;
    c->receive_limit = all.receive_limit ? all.receive_limit : RECEIVE_LIMIT;
    c->source_host = all.source_host ? mem_strdup(all.source_host) : NULL;
    c->data = all.data;
    c->one_sided = all.one_sided != 0;
}

void connection_free(struct valkeyrdma *c) {
    forget_addresses(c);
    mem_free(c);
}

struct valkeyrdma *connection_new(const char *host, int port, const struct valkeyrdma_options *options, int timeout_ms,
                                  char *error, size_t error_size) {
    struct valkeyrdma *c = mem_calloc(1, sizeof *c);
    take_options(c, options);
    c->port = port;
    int result = resolve(c, host, port, error, error_size);
    if (result < 0) {
        connection_free(c);
        errno = -result;
        return NULL;
    }
    c->deadline_us = clock_monotonic_us() + (uint64_t)(timeout_ms < 0 ? CONNECT_MS
                                                       : timeout_ms   ? timeout_ms
                                                                      : 1) *
                                                1000;
    return c;
}

bool connection_begin(struct valkeyrdma *c, struct valkeyrdma_context *context) {
    c->context = context;
    list_append(&context->connections, &c->link);
    return attempt(c);
}

struct valkeyrdma *valkeyrdma_connect_start(struct valkeyrdma_context *context, const char *host, int port,
                                            const struct valkeyrdma_options *options, int timeout_ms, char *error,
                                            size_t error_size) {
    struct valkeyrdma *c = connection_new(host, port, options, timeout_ms, error, error_size);
    if (!c) return NULL;
    c->own_context = !context;
    if (!context && !(context = valkeyrdma_context_new(error, error_size))) {
        int failure = errno;
        connection_free(c);
        errno = failure;
        return NULL;
    }
    if (!context_enter(context)) {
        connection_free(c);
        fail_text(error, error_size, "the context belongs to the parent process");
        errno = EPERM;
        return NULL;
    }
    bool begun = connection_begin(c, context);
    context_leave(context);
    if (begun) return c;
    fail_text(error, error_size, strerror(EHOSTUNREACH)); /* the address has no text */
    valkeyrdma_close(c);
    errno = EHOSTUNREACH;
    return NULL;
}

static bool is_decided(const void *argument) {
    const struct valkeyrdma *c = argument;
    return c->connected || c->ended;
}

int valkeyrdma_connect_finish(struct valkeyrdma *c, int timeout_ms) {
    if (!context_enter(c->context)) return -EPERM;
    int result = context_wait(c->context, is_decided, c, timeout_ms);
    if (result == 0 && !c->connected) result = c->error ? -c->error : -ECONNRESET;
    if (c->connected) forget_addresses(c);
    context_leave(c->context);
    return result;
}

struct valkeyrdma *valkeyrdma_connect(struct valkeyrdma_context *context, const char *host, int port,
                                      const struct valkeyrdma_options *options, int timeout_ms, char *error,
                                      size_t error_size) {
    struct valkeyrdma *c = valkeyrdma_connect_start(context, host, port, options, timeout_ms, error, error_size);
    if (!c) return NULL;
    int result = valkeyrdma_connect_finish(c, -1); /* the attempt has the timeout */
    if (result == 0) return c;
    fail_text(error, error_size, *c->error_text ? c->error_text : strerror(-result));
    valkeyrdma_close(c);
    errno = -result;
    return NULL;
}

/* --- State --- */

/* True: nothing more of the peer will come, and all that came is consumed. */
static bool is_at_end(const struct valkeyrdma *c) {
    return c->ended && c->conn->in_len == 0;
}

static bool is_writable(const void *argument) {
    const struct valkeyrdma *c = argument;
    return c->ended || (c->connected && conn_pending(c->conn) < c->send_limit);
}

int valkeyrdma_state(const struct valkeyrdma *c) {
    if (!context_enter(c->context)) return 0;
    int state = c->connected ? VALKEYRDMA_OPEN : 0;
    if (c->ended) state |= VALKEYRDMA_ENDED | VALKEYRDMA_READABLE;
    if (c->conn && c->conn->in_len) state |= VALKEYRDMA_READABLE;
    if (is_writable(c)) state |= VALKEYRDMA_WRITABLE;
    if (c->ended || (c->connected && conn_pending(c->conn) == 0)) state |= VALKEYRDMA_DRAINED;
    context_leave(c->context);
    return state;
}

int valkeyrdma_error(const struct valkeyrdma *c) {
    if (!context_enter(c->context)) return -EPERM;
    int error = c->ended ? -c->error : 0;
    context_leave(c->context);
    return error;
}

const char *valkeyrdma_error_text(const struct valkeyrdma *c) {
    if (!context_enter(c->context)) return "the connection belongs to the parent process";
    bool ended = c->ended;
    context_leave(c->context);
    return ended ? c->error_text : ""; /* it does not change after the end */
}

struct valkeyrdma_context *valkeyrdma_context_of(const struct valkeyrdma *c) {
    return c->context;
}
int valkeyrdma_fd(const struct valkeyrdma *c) {
    return valkeyrdma_context_fd(c->context);
}
void *valkeyrdma_data(const struct valkeyrdma *c) {
    return c->data;
}
void valkeyrdma_set_data(struct valkeyrdma *c, void *data) {
    c->data = data;
}

int valkeyrdma_address(const struct valkeyrdma *c, int peer, char text[VALKEYRDMA_ADDRESS_MAX]) {
    struct address address;
    if (!context_enter(c->context)) return -EPERM;
    bool known = c->connected && conn_address(c->conn, peer != 0, &address);
    if (known) conn_format_address(c->conn, peer != 0, text);
    context_leave(c->context);
    return known ? 0 : -ENOTCONN;
}

void valkeyrdma_describe(const struct valkeyrdma *c, char *text, size_t size) {
    if (size) *text = '\0';
    if (!context_enter(c->context)) return;
    if (c->connected && !c->ended) conn_describe(c->conn, text, size);
    context_leave(c->context);
}

/* --- Sending --- */

/* Queues bytes from the pieces, beginning `skip` bytes into the first, `max` at most. */
static size_t queue_some(struct valkeyrdma *c, const struct iovec *pieces, int count, size_t skip, size_t max) {
    size_t total = 0;
    for (int i = 0; i < count && total < max; i++) {
        size_t from = skip < pieces[i].iov_len ? skip : pieces[i].iov_len, len = pieces[i].iov_len - from;
        skip -= from;
        if (len > max - total) len = max - total;
        if (len) output_write(&c->conn->out, slice_make((const char *)pieces[i].iov_base + from, len));
        total += len;
    }
    return total;
}

/* True: the send queue has room for this many bytes. */
static bool takes(const struct valkeyrdma *c, size_t len) {
    return is_writable(c) && !c->ended && len <= PIECE && len <= c->send_limit - conn_pending(c->conn);
}

static ssize_t total_of(const struct iovec *pieces, int count) {
    size_t total = 0;
    if (count < 0) return -EINVAL;
    for (int i = 0; i < count; i++) {
        if (pieces[i].iov_len > (size_t)SSIZE_MAX - total) return -EINVAL;
        total += pieces[i].iov_len;
    }
    return (ssize_t)total;
}

ssize_t valkeyrdma_sendv(struct valkeyrdma *c, const struct iovec *pieces, int count, int timeout_ms) {
    ssize_t total = total_of(pieces, count), sent = 0;
    if (total <= 0) return total;
    if (!context_enter(c->context)) return -EPERM;
    int result = 0;
    if (takes(c, (size_t)total)) {
        sent = (ssize_t)queue_some(c, pieces, count, 0, (size_t)total);
        conn_flush(c->conn);
    }
    bool waits = timeout_ms > 0 && sent < total; /* reading the clock takes a tenth of a small request */
    uint64_t deadline_us = waits ? clock_monotonic_us() + (uint64_t)timeout_ms * 1000 : 0;
    while (sent < total) {
        int left_ms = timeout_ms;
        if (waits && sent) {
            uint64_t now = clock_monotonic_us();
            left_ms = now < deadline_us ? (int)((deadline_us - now + 999) / 1000) : 0;
        }
        result = context_wait(c->context, is_writable, c, left_ms);
        if (result < 0) break;
        if (c->ended) {
            result = c->error ? -c->error : -EPIPE;
            break;
        }
        size_t space = c->send_limit - conn_pending(c->conn), max = (size_t)(total - sent);
        if (max > space) max = space;
        if (max > PIECE) max = PIECE;
        sent += (ssize_t)queue_some(c, pieces, count, (size_t)sent, max);
        conn_flush(c->conn);
    }
    context_leave(c->context);
    return sent ? sent : result;
}

ssize_t valkeyrdma_send(struct valkeyrdma *c, const void *bytes, size_t len, int timeout_ms) {
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    return valkeyrdma_sendv(c, &piece, 1, timeout_ms);
}

static bool is_drained(const void *argument) {
    const struct valkeyrdma *c = argument;
    return c->ended || (c->connected && conn_pending(c->conn) == 0);
}

int valkeyrdma_flush(struct valkeyrdma *c, int timeout_ms) {
    if (!context_enter(c->context)) return -EPERM;
    int result = context_wait(c->context, is_drained, c, timeout_ms);
    if (result == 0 && c->ended) result = c->error ? -c->error : -EPIPE;
    context_leave(c->context);
    return result;
}

size_t valkeyrdma_queued(const struct valkeyrdma *c) {
    if (!context_enter(c->context)) return 0;
    size_t queued = c->ended ? 0 : conn_pending(c->conn);
    context_leave(c->context);
    return queued;
}

/* --- Receiving --- */

/* The caller has done with the bytes that peek() showed. */
static void resume(struct valkeyrdma *c) {
    if (!c->peeked) return;
    c->peeked = false;
    conn_set_reading(c->conn, true);
}

struct wanted {
    const struct valkeyrdma *c;
    size_t at_least;
};

static bool has_bytes(const void *argument) {
    const struct wanted *wanted = argument;
    return wanted->c->ended || wanted->c->conn->in_len >= wanted->at_least;
}

/* Waits for bytes. 0: they are there, or the end is. */
static int wait_for_bytes(struct valkeyrdma *c, size_t at_least, int timeout_ms) {
    struct wanted wanted = {.c = c, .at_least = at_least};
    if (has_bytes(&wanted)) return 0;
    /* Just after a turn there is nothing new. A caller that has served other connections since then does not pay for
     * another turn. */
    if (timeout_ms == 0 && c->seen_turns != c->context->turns) {
        c->seen_turns = c->context->turns;
        return -EAGAIN;
    }
    int result = context_wait(c->context, has_bytes, &wanted, timeout_ms);
    if (result == -EAGAIN) c->seen_turns = c->context->turns;
    return result;
}

static ssize_t end_of(const struct valkeyrdma *c) {
    return c->error ? -c->error : 0;
}

ssize_t valkeyrdma_recvv(struct valkeyrdma *c, const struct iovec *pieces, int count, int timeout_ms) {
    ssize_t total = total_of(pieces, count);
    if (total <= 0) return total;
    if (!context_enter(c->context)) return -EPERM;
    resume(c);
    ssize_t result = wait_for_bytes(c, 1, timeout_ms);
    if (result == 0 && is_at_end(c))
        result = end_of(c);
    else if (result == 0) {
        const char *from = c->conn->in;
        size_t left = c->conn->in_len;
        for (int i = 0; i < count && left; i++) {
            size_t len = pieces[i].iov_len < left ? pieces[i].iov_len : left;
            if (len) memcpy(pieces[i].iov_base, from, len);
            from += len;
            left -= len;
        }
        result = (ssize_t)(c->conn->in_len - left);
        conn_consume(c->conn, (size_t)result);
    }
    context_leave(c->context);
    return result;
}

ssize_t valkeyrdma_recv(struct valkeyrdma *c, void *buffer, size_t len, int timeout_ms) {
    struct iovec piece = {.iov_base = buffer, .iov_len = len};
    return valkeyrdma_recvv(c, &piece, 1, timeout_ms);
}

ssize_t valkeyrdma_peek(struct valkeyrdma *c, const void **bytes, size_t at_least, int timeout_ms) {
    enum { CHECKED = 1024 * 1024 };
    *bytes = NULL;
    if (at_least == 0) at_least = 1;
    if (at_least > c->receive_limit) return -EMSGSIZE;
    if (!context_enter(c->context)) return -EPERM;
    ssize_t result = 0;
    if (c->conn->in_len < at_least) {
        if (at_least > CHECKED && !mem_is_available(2 * at_least)) result = -ENOMEM;
        resume(c);
        if (result == 0 && at_least > c->conn->in_limit) conn_set_in_limit(c->conn, at_least);
        if (result == 0) result = wait_for_bytes(c, at_least, timeout_ms);
    }
    if (result == 0 && is_at_end(c))
        result = end_of(c);
    else if (result == 0) {
        *bytes = c->conn->in;
        result = (ssize_t)c->conn->in_len;
        c->peeked = true;
        conn_set_reading(c->conn, false);
    }
    context_leave(c->context);
    return result;
}

int valkeyrdma_consume(struct valkeyrdma *c, size_t len) {
    if (!context_enter(c->context)) return -EPERM;
    int result = len <= c->conn->in_len && c->peeked ? 0 : -EINVAL;
    if (result == 0) {
        conn_consume(c->conn, len);
        if (c->conn->in_limit > IN_LIMIT && c->conn->in_len < IN_LIMIT) conn_set_in_limit(c->conn, IN_LIMIT);
        resume(c);
    }
    context_leave(c->context);
    return result;
}

size_t valkeyrdma_received(const struct valkeyrdma *c) {
    if (!context_enter(c->context)) return 0;
    size_t received = c->conn ? c->conn->in_len : 0;
    context_leave(c->context);
    return received;
}

/* --- End --- */

void connection_orphan(struct valkeyrdma *c) {
    if (list_is_linked(&c->changed_link)) list_remove(&c->context->changed, &c->changed_link);
    list_remove(&c->context->connections, &c->link);
    if (c->conn) conn_close(c->conn);
    connection_free(c);
}

void valkeyrdma_close(struct valkeyrdma *c) {
    if (!c) return;
    struct valkeyrdma_context *context = c->context;
    bool own = c->own_context;
    if (!context_enter(context)) { /* the child gives back its copy; everything else is the parent's */
        connection_free(c);
        return;
    }
    connection_orphan(c);
    if (own) context_finish(context, LINGER_US);
    context_leave(context);
    if (own) valkeyrdma_context_free(context);
}
