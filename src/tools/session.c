/* session.c: see session.h. The connection's event handlers do nothing: functions that wait run the loop and check the
 * state of the connection. */
#include "tools/session.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include <errno.h>
#include <stdio.h>

static void event_ignored(struct connection *conn) {}
static const struct connection_events events = {
    .connected = event_ignored, .readable = event_ignored, .closed = event_ignored};

enum { IN_LIMIT = 16 * 1024 * 1024, INTERRUPT_LOOK_MS = 50 };

void session_init(struct session *s) {
    memset(s, 0, sizeof *s);
    s->loop = event_loop_new();
    reply_reader_init(&s->reader);
}

void session_close(struct session *s) {
    if (!s->conn) return;
    conn_close(s->conn);
    s->conn = NULL;
    event_loop_turn(s->loop, 0); /* frees the memory of the closed connection */
    reply_reader_free(&s->reader);
}

void session_free(struct session *s) {
    session_close(s);
    reply_reader_free(&s->reader);
    event_loop_free(s->loop);
    s->loop = NULL;
}

int session_connect(struct session *s, const struct endpoint *e, uint32_t timeout_ms) {
    session_close(s);
    s->conn = endpoint_connect(e, s->loop, timeout_ms, &events, s);
    int result = conn_wait_open(s->conn, timeout_ms ? (int64_t)timeout_ms : -1);
    if (result == 0) {
        conn_set_in_limit(s->conn, IN_LIMIT);
        return 0;
    }
    const char *text = result == -ETIMEDOUT ? strerror(ETIMEDOUT) : endpoint_error_text(s->conn, true);
    snprintf(s->error, sizeof s->error, "%s", text && *text ? text : strerror(-result));
    session_close(s);
    return result;
}

bool session_is_open(const struct session *s) {
    return s->conn && (conn_is_open(s->conn) || conn_peek(s->conn).len > 0);
}

void session_send(struct session *s, int argc, const struct slice *argv) {
    if (!s->conn) return;
    request_write(&s->conn->out, argc, argv);
    conn_flush(s->conn);
}

/* Like conn_wait_readable(), but checks s->interrupt every INTERRUPT_LOOK_MS. */
static int wait_input(struct session *s, size_t more_than, int64_t timeout_ms) {
    if (!s->interrupt) return conn_wait_readable(s->conn, more_than, timeout_ms);
    for (int64_t left = timeout_ms;;) {
        int64_t piece = left >= 0 && left < INTERRUPT_LOOK_MS ? left : INTERRUPT_LOOK_MS;
        int result = *s->interrupt ? -EINTR : conn_wait_readable(s->conn, more_than, piece);
        if (result != -ETIMEDOUT) return result;
        if (left >= 0 && (left -= piece) <= 0) return -ETIMEDOUT;
    }
}

struct resp_value *session_read(struct session *s, int64_t timeout_ms) {
    if (!s->conn) {
        snprintf(s->error, sizeof s->error, "not connected");
        return NULL;
    }
    for (;;) {
        size_t used;
        struct slice input = conn_peek(s->conn);
        enum reply_status status = reply_read(&s->reader, input, &used);
        if (status == REPLY_FAILED) {
            snprintf(s->error, sizeof s->error, "Protocol error, %s", s->reader.error);
            return NULL;
        }
        if (used) conn_consume(s->conn, used);
        if (status == REPLY_READY) return &s->reader.value;
        int result = wait_input(s, input.len - used, timeout_ms);
        if (result == 0) continue;
        if (result == -ETIMEDOUT || result == -EINTR)
            snprintf(s->error, sizeof s->error, "%s", strerror(-result));
        else if (s->conn->error)
            snprintf(s->error, sizeof s->error, "%s", endpoint_error_text(s->conn, false));
        else
            snprintf(s->error, sizeof s->error, "Server closed the connection");
        return NULL;
    }
}

struct resp_value *session_call(struct session *s, int argc, const struct slice *argv) {
    session_send(s, argc, argv);
    struct resp_value *value;
    /* Push messages and attributes are not replies. */
    do {
        value = session_read(s, -1);
    } while (value && (value->type == RESP_PUSH || value->type == RESP_ATTRIBUTE));
    return value;
}

struct resp_value *session_call_words(struct session *s, int count, const char *const *words) {
    struct slice *argv = mem_alloc((size_t)count * sizeof *argv);
    for (int i = 0; i < count; i++) argv[i] = slice_of(words[i]);
    struct resp_value *reply = session_call(s, count, argv);
    mem_free(argv);
    return reply;
}

static bool call_succeeded(struct session *s, const struct resp_value *value) {
    if (!value) return false;
    if (value->type != RESP_ERROR) return true;
    snprintf(s->error, sizeof s->error, "%s", value->text.data);
    return false;
}

bool session_authenticate(struct session *s, const struct endpoint *e) {
    if (!e->password) return true;
    return call_succeeded(s, e->user ? SESSION_CALL(s, "AUTH", e->user, e->password)
                                     : SESSION_CALL(s, "AUTH", e->password));
}
