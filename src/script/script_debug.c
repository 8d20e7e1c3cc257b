/* script_debug.c: see script_debug.h.
 *
 * A client in debugging mode has a struct debugger. EVAL copies its arguments into a session and takes the client over
 * (CLIENT_TAKEN_OVER), so that this file receives further requests.
 *
 * Forked: EVAL forks and does not reply. The server writes requests to its end of the socket pair and passes the bytes
 * that it receives there to the client. The child executes the call of EVAL that was on the stack at the fork, and
 * exits. The session ends when the child has ended and all its output was passed on.
 *
 * In the server: EVAL does not reply, and a timer calls it again outside the client's turn, so that the event loop can
 * run nested in that call and the client's input may move. Requests wait in a queue. */
#include "script/script_debug.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "script/script_engine.h"
#include "script/script_run.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/nested_turn.h"
#include "server/process/child.h"
#include "server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINES_MAX = 8 * 1024 * 1024, READ_SIZE = 64 * 1024, RETRY_US = 10000, RETRY_HELD_US = 500 };

struct debug_request {
    struct list_link link;
    int argc;
    struct slice argv[]; /* followed by the bytes */
};

struct script_session {
    struct list_link link; /* in `sessions` */
    struct client *client; /* NULL: disconnected */
    char *engine;          /* as in struct debugger */
    bool forked;
    struct command *command;
    struct debug_request *call; /* EVAL */
    void (*eval)(struct call *call);
    struct debug_request *current; /* the last one that the debugger read */
    struct memory_output output;   /* not sent yet: requests for the child, or lines for the client */
    bool flushed;                  /* script_session_flush() was called since the last request */
    size_t lines, dropped;         /* lines in `output`; lines that did not fit */

    /* Forked sessions. */
    struct child_process process;
    struct child_job job;
    struct call *running; /* in the child: the call of EVAL */
    int fd;               /* this process's end of the socket pair; -1: closed */
    struct event_io io;
    bool held, failed;            /* held: the client waits for the child; failed: the child has crashed */
    struct request_reader reader; /* in the child */
    struct memory_output input;
    size_t used; /* bytes of `input` that were read */

    /* Sessions in the server. */
    struct event_timer start;
    struct list requests;
};

enum mode { FORKED, IN_SERVER };
struct debugger {
    enum mode mode;
    char *engine;                   /* the name of one that a module has; NULL: Lua */
    struct script_session *session; /* NULL: none yet */
};

struct script_session *script_session;
/* All sessions, so that leak checkers find a session whose child still runs when the server stops. */
static struct list sessions = LIST_INIT(sessions);

/* --- Requests --- */

static struct debug_request *request_copy(int argc, const struct slice *argv) {
    size_t bytes = 0, count = (size_t)argc;
    for (size_t i = 0; i < count; i++) bytes += argv[i].len;
    struct debug_request *request = mem_alloc(sizeof *request + count * sizeof *argv + bytes);
    char *at = (char *)&request->argv[count];
    *request = (struct debug_request){.argc = argc};
    for (size_t i = 0; i < count; i++) {
        if (argv[i].len) memcpy(at, argv[i].data, argv[i].len);
        request->argv[i] = (struct slice){at, argv[i].len};
        at += argv[i].len;
    }
    return request;
}

/* --- Sessions --- */

static struct debugger *debugger_of(const struct client *client);

static void session_free(struct script_session *session) {
    while (session->requests.len) {
        struct debug_request *request = container_of(list_first(&session->requests), struct debug_request, link);
        list_remove(&session->requests, &request->link);
        mem_free(request);
    }
    mem_free(session->current);
    mem_free(session->call);
    memory_output_free(&session->output);
    list_remove(&sessions, &session->link);
    mem_free(session->engine);
    mem_free(session);
}

/* Ends the session; the connection closes after its output was sent. */
static void session_end(struct script_session *session) {
    if (session->client) {
        debugger_of(session->client)->session = NULL;
        client_free_after_reply(session->client);
    }
    session_free(session);
}

static void set_held(struct script_session *session, bool hold) {
    if (hold == session->held || !session->client) return;
    session->held = hold;
    if (hold)
        client_hold(session->client);
    else
        client_release(session->client);
}

/* --- Lines --- */

void script_session_line(struct slice text) {
    struct script_session *session = script_session;
    struct output *out = &session->output.out;
    if (memory_output_slice(&session->output).len + text.len > LINES_MAX) {
        session->dropped++;
        return;
    }
    output_write(out, SLICE("+"));
    output_write(out, text);
    char *line = out->pos - text.len;
    for (size_t i = 0; i < text.len; i++)
        if (line[i] == '\r' || line[i] == '\n' || !line[i]) line[i] = ' ';
    output_write(out, SLICE("\r\n"));
    session->lines++;
}

void script_session_format(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    script_session_line((struct slice){text, len < (int)sizeof text ? (size_t)len : sizeof text - 1});
}

/* Ends the child. The connection and its client belong to the server. */
static _Noreturn void child_leave(void) {
    log_notice("Lua debugging session child exiting");
    _exit(0);
}

static void write_out(struct script_session *session, struct slice bytes) {
    if (!session->forked) {
        if (!session->client) return;
        output_write(&session->client->conn->out, bytes);
        client_flush_later(session->client);
        return;
    }
    while (bytes.len) {
        ssize_t written = send(session->fd, bytes.data, bytes.len, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) child_leave();
        bytes.data += written;
        bytes.len -= (size_t)written;
    }
}

static void send_lines(struct script_session *session) {
    char head[32];
    int len;
    if (session->dropped) {
        char hint[64];
        len = snprintf(hint, sizeof hint, "+<hint> %zu more lines were dropped.\r\n", session->dropped);
        output_write(&session->output.out, (struct slice){hint, (size_t)len});
        session->lines++;
        session->dropped = 0;
    }
    len = snprintf(head, sizeof head, "*%zu\r\n", session->lines);
    write_out(session, (struct slice){head, (size_t)len});
    write_out(session, memory_output_slice(&session->output));
    memory_output_clear(&session->output);
    session->lines = 0;
}

/* --- Reading requests --- */

/* In the child: receives more. */
static void child_receive(struct script_session *session) {
    if (session->used == memory_output_slice(&session->input).len) {
        memory_output_clear(&session->input);
        session->used = 0;
    }
    char bytes[READ_SIZE];
    ssize_t got;
    do got = recv(session->fd, bytes, sizeof bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0) child_leave();
    output_write(&session->input.out, (struct slice){bytes, (size_t)got});
}

static struct debug_request *child_read(struct script_session *session) {
    /* Generous limits: the server has validated the request and forwards it. */
    static const struct request_limits limits = {
        .multibulk_max = INT32_MAX, .bulk_max = INT32_MAX, .unauthenticated = true};
    for (;;) {
        struct slice input = memory_output_slice(&session->input);
        input.data += session->used;
        input.len -= session->used;
        enum request_status status = input.len ? request_read(&session->reader, input, &limits) : REQUEST_PARTIAL;
        if (status == REQUEST_PARTIAL) {
            child_receive(session);
            continue;
        }
        if (status != REQUEST_READY) child_leave();
        struct debug_request *request = request_copy(session->reader.argc, session->reader.argv);
        session->used += session->reader.size;
        request_done(&session->reader);
        return request;
    }
}

/* In the server: other clients are served meanwhile; their commands get the error BUSY. */
static struct debug_request *server_read(struct script_session *session) {
    while (!session->requests.len) {
        if (!session->client || script_running->killed) return NULL;
        nested_turn(-1);
    }
    struct debug_request *request = container_of(list_first(&session->requests), struct debug_request, link);
    list_remove(&session->requests, &request->link);
    if (!session->requests.len) set_held(session, false);
    return request;
}

const struct slice *script_session_read(int *argc) {
    struct script_session *session = script_session;
    if (session->lines || !session->flushed) send_lines(session);
    session->flushed = false;
    mem_free(session->current);
    session->current = session->forked ? child_read(session) : server_read(session);
    if (!session->current) return NULL;
    *argc = session->current->argc;
    return session->current->argv;
}

void script_session_flush(void) {
    if (script_session->lines) send_lines(script_session);
    script_session->flushed = true;
}

bool script_session_poll(void) {
    struct script_session *session = script_session;
    if (session->forked) {
        struct pollfd peer = {.fd = session->fd, .events = POLLRDHUP};
        if (poll(&peer, 1, 0) > 0 && peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) child_leave();
        return false;
    }
    nested_turn(0);
    return script_running->killed;
}

struct slice script_session_text(void) {
    return script_session->call->argv[1];
}
bool script_session_blocks_server(void) {
    return !script_session->forked;
}

/* --- Running --- */

/* Executes EVAL. Its reply follows the last lines. */
static void session_run(struct script_session *session, struct call *call) {
    struct client *client = call->client;
    struct memory_output bytes;
    struct reply reply = client->reply; /* a copy, because the loop may redirect the client's replies */
    memory_output_init(&bytes);
    reply.out = &bytes.out;
    call->reply = &reply;
    script_session = session;
    if (!session->forked) reply_barrier_call_replies_elsewhere(client);
    struct script_engine *engine = session->engine ? script_engine_find(slice_of(session->engine)) : NULL;
    if (engine && engine->debug_start) engine->debug_start(engine, script_session_text());
    session->eval(call);
    if (engine && engine->debug_end) engine->debug_end(engine);
    script_session_line(SLICE("<endsession>"));
    send_lines(session);
    script_session = NULL;
    if (session->forked) {
        write_out(session, memory_output_slice(&bytes));
        child_leave();
    }
    call->reply = &client->reply;
    call->reply->failed = reply.failed;
    if (reply_barrier_armed) reply_barrier_before_call(client, dispatch_flags(client, call->command, call->argv));
    output_write(call->reply->out, memory_output_slice(&bytes));
    memory_output_free(&bytes);
}

static uint64_t start_in_server(struct event_timer *timer) {
    struct script_session *session = container_of(timer, struct script_session, start);
    struct client *client = session->client;
    if (dispatch_running()) return RETRY_US; /* a long command runs the loop */
    /* The lines of the session do not wait for a reply barrier, so replies that wait for one must be sent first. */
    if (reply_barrier_holds_replies(client)) return RETRY_HELD_US;
    log_notice("Valkey synchronous debugging eval session started");
    client->flags |= CLIENT_CALLED_AGAIN;
    dispatch_ticks = ticks_now();
    dispatch_call(client, session->command, session->call->argc, session->call->argv, -1);
    client->flags &= ~(uint32_t)CLIENT_CALLED_AGAIN;
    log_notice("Valkey synchronous debugging eval session ended");
    session_end(session);
    return 0;
}

/* --- Forked sessions, in the server --- */

static int run_in_child(struct child_job *job) {
    struct script_session *session = container_of(job, struct script_session, job);
    log_notice("Valkey forked for debugging eval");
    request_reader_init(&session->reader);
    memory_output_init(&session->input);
    session_run(session, session->running);
    return 0;
}

static void relay_close(struct script_session *session) {
    event_io_remove(server.loop, &session->io);
    close(session->fd);
    session->fd = -1;
}

static void relay_finish(struct script_session *session) {
    if (session->fd >= 0 || session->process.job) return;
    if (session->failed && session->client)
        client_push(session->client,
                    SLICE("*1\r\n+<endsession>\r\n-ERR The process of the debugging session has failed\r\n"));
    session_end(session);
}

static void child_done(struct child_job *job, int status, int signal) {
    struct script_session *session = container_of(job, struct script_session, job);
    session->failed = status || signal;
    relay_finish(session);
}

static void relay_ready(struct event_io *io, int mask);

/* Passes requests to the child. While the child accepts no more, the client is held. */
static void relay_send(struct script_session *session) {
    struct slice bytes = memory_output_slice(&session->output);
    while (bytes.len > session->used) {
        ssize_t sent = send(session->fd, bytes.data + session->used, bytes.len - session->used, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) break; /* the child has ended */
        if (sent < 0) {
            set_held(session, true);
            event_io_set(server.loop, &session->io, session->fd, EVENT_READ | EVENT_WRITE, relay_ready);
            return;
        }
        session->used += (size_t)sent;
    }
    memory_output_clear(&session->output);
    session->used = 0;
    if (!session->held) return;
    set_held(session, false);
    event_io_set(server.loop, &session->io, session->fd, EVENT_READ, relay_ready);
}

static void relay_ready(struct event_io *io, int mask) {
    struct script_session *session = container_of(io, struct script_session, io);
    char bytes[READ_SIZE];
    if (mask & EVENT_WRITE && session->held) relay_send(session);
    if (!(mask & EVENT_READ)) return;
    ssize_t got = recv(session->fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got > 0) {
        client_push(session->client, (struct slice){bytes, (size_t)got});
        return;
    }
    relay_close(session);
    relay_finish(session);
}

/* Forks. Returns 0 or -errno. */
static int start_in_child(struct script_session *session, struct call *call) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return -errno;
    session->running = call;
    session->fd = ends[1];
    session->job = (struct child_job){.kind = CHILD_SESSION,
                                      .title = "valkey-debug-eval",
                                      .log_name = "debugging",
                                      .keep = session->fd,
                                      .run = run_in_child,
                                      .done = child_done};
    pid_t pid = child_start_session(&session->process, &session->job);
    close(ends[1]);
    session->fd = ends[0];
    int result = pid < 0 ? (int)pid : 0;
    if (!result && fcntl(session->fd, F_SETFL, O_NONBLOCK) < 0) result = -errno;
    if (!result) result = event_io_set(server.loop, &session->io, session->fd, EVENT_READ, relay_ready);
    if (result < 0) close(session->fd);
    if (result < 0 && pid > 0) { /* the session stays until its child has ended */
        session->fd = -1;
        session->client = NULL;
        child_kill_process(&session->process);
    }
    return result;
}

/* --- Clients --- */

static void client_freed(struct client *client);
static void client_was_reset(struct client *client);
static void client_request(struct client *client, int argc, const struct slice *argv);
static void client_add_memory(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {
    .freed = client_freed, .reset = client_was_reset, .request = client_request, .report = client_add_memory};

static struct debugger *debugger_of(const struct client *client) {
    return client_state(client, &client_listener);
}

static void debugger_free(struct debugger *debugger) {
    struct script_engine *engine = debugger->engine ? script_engine_find(slice_of(debugger->engine)) : NULL;
    if (engine && engine->debug_disable) engine->debug_disable(engine);
    mem_free(debugger->engine);
    mem_free(debugger);
}

static void client_was_reset(struct client *client) {
    struct debugger *debugger = debugger_of(client);
    if (!debugger || debugger->session) return;
    client_set_state(client, &client_listener, NULL);
    debugger_free(debugger);
}

static void client_freed(struct client *client) {
    struct debugger *debugger = debugger_of(client);
    if (!debugger) return;
    struct script_session *session = debugger->session;
    client_set_state(client, &client_listener, NULL);
    debugger_free(debugger);
    if (!session) return;
    session->client = NULL;
    if (session->forked) {
        child_kill_process(&session->process);
        if (session->fd >= 0) relay_close(session);
        relay_finish(session);
    } else if (session != script_session) { /* not started */
        event_timer_cancel(server.loop, &session->start);
        session_free(session);
    }
}

static void client_request(struct client *client, int argc, const struct slice *argv) {
    enum { QUEUE_MAX = 64 };
    struct script_session *session = debugger_of(client)->session;
    if (!session || (session->forked && session->fd < 0)) return; /* the session has ended */
    if (session->forked) {
        request_write(&session->output.out, argc, argv);
        relay_send(session);
        return;
    }
    list_append(&session->requests, &request_copy(argc, argv)->link);
    if (session->requests.len >= QUEUE_MAX) set_held(session, true);
}

/* Adds the memory of the EVAL, of waiting requests and of output that is not sent yet. */
static void client_add_memory(const struct client *client, struct client_report *report) {
    const struct debugger *debugger = debugger_of(client);
    const struct script_session *session = debugger->session;
    report->memory += mem_size(debugger);
    if (!session) return;
    report->memory += mem_size(session) + mem_size(session->call) + memory_output_slice(&session->output).len;
    for (const struct list_link *link = session->requests.head.next; link != &session->requests.head; link = link->next)
        report->memory += mem_size(container_of(link, struct debug_request, link));
}

void script_debug_set(struct call *call, struct slice mode, struct script_engine *engine) {
    struct client *client = call->client;
    bool on = slice_is(mode, "yes") || slice_is(mode, "sync");
    if (!on && !slice_is(mode, "no")) {
        reply_error(call->reply, "ERR Use SCRIPT DEBUG YES/SYNC/NO");
        return;
    }
    if (client->flags & CLIENT_DENY_BLOCKING) {
        reply_error(call->reply, "ERR SCRIPT DEBUG must be called outside a pipeline");
        return;
    }
    /* The lines of a session in the server do not wait, and the script may write between them. */
    if (slice_is(mode, "sync") && reply_barrier_armed && reply_barrier_guards()) {
        reply_error(call->reply, "ERR With synchronous replication scripts are debugged in a copy: SCRIPT DEBUG YES");
        return;
    }
    client_was_reset(client);
    if (on && !script_engine_is_lua(engine) && !engine->debug_enable(engine)) {
        reply_error_format(call->reply, "ERR The scripting engine '%s' failed to initialize the debugger.",
                           engine->name);
        return;
    }
    if (on) {
        struct debugger *debugger = mem_calloc(1, sizeof *debugger);
        debugger->mode = slice_is(mode, "sync") ? IN_SERVER : FORKED;
        if (!script_engine_is_lua(engine)) debugger->engine = mem_strdup(engine->name);
        client_set_state(client, &client_listener, debugger);
    }
    reply_ok(call->reply);
}

bool script_debug_is_on(const struct call *call) {
    return debugger_of(call->client) != NULL;
}

bool script_debug_takes(struct call *call, void (*eval)(struct call *call)) {
    struct debugger *debugger = debugger_of(call->client);
    if (__builtin_expect(!debugger, 1) || script_session) return false;
    if (debugger->session) { /* called by start_in_server() */
        session_run(debugger->session, call);
        return true;
    }
    if (call->client->flags & CLIENT_DENY_BLOCKING) {
        reply_error(call->reply, "ERR A script cannot be debugged in a transaction");
        return true;
    }
    struct script_session *session = mem_calloc(1, sizeof *session);
    session->client = call->client;
    session->forked = debugger->mode == FORKED;
    session->engine = debugger->engine ? mem_strdup(debugger->engine) : NULL;
    session->command = (struct command *)call->command;
    session->call = request_copy(call->argc, call->argv);
    session->eval = eval;
    session->fd = session->io.fd = -1;
    memory_output_init(&session->output);
    list_init(&session->requests);
    list_append(&sessions, &session->link);
    int result = 0;
    if (session->forked)
        result = start_in_child(session, call);
    else
        event_timer_set(server.loop, &session->start, 0, start_in_server);
    if (result < 0) {
        log_warning("Could not start a debugging session: %s", strerror(-result));
        reply_error_format(call->reply, "ERR Could not start a debugging session: %s", strerror(-result));
        if (session->client) session_free(session);
        return true;
    }
    debugger->session = session;
    call->client->flags |= CLIENT_TAKEN_OVER;
    call->blocked = true;
    return true;
}
