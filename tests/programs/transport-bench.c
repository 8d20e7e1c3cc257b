/* transport-bench: what a transport costs the CPU, without a server behind it; and a crowd of quiet clients for one.
 *
 *   transport-bench [tcp|unix|rdma] [HOST or PATH] [CONNECTIONS] [BYTES] [ROUNDS]
 *
 * Both ends of all connections live in one thread and one loop; each connection has one request of BYTES under way,
 * which is echoed. Shown is the thread's CPU time of one side for one request and its reply (half of what both sides
 * took). For RDMA on the software device:
 *
 *   utils/softrdma/softrdma build/programs/transport-bench rdma 127.0.0.1 1 64
 *
 *   transport-bench crowd [tcp|rdma] HOST PORT CONNECTIONS [BYTES]
 *
 * Connects so often to a server, AT_ONCE connections under way at a time, and says "ready OPENED refused N". Then each
 * line of its input is a round: every connection asks for ECHO of BYTES bytes and must get them; when all have it says
 * "answered N wrong N lost N". At the end of its input all are closed. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/connection.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct caller {
    struct connection *conn;
    size_t received;
};

static struct event_loop *loop;
static size_t size, opened;
static uint64_t replies;
static char *payload;

static void send_request(struct connection *conn) {
    output_write(&conn->out, slice_make(payload, size));
    conn_flush(conn);
}

static void echo(struct connection *conn) {
    output_write(&conn->out, conn_peek(conn));
    conn_consume(conn, conn->in_len);
    conn_flush(conn);
}

static void take_reply(struct connection *conn) {
    struct caller *caller = conn->owner;
    caller->received += conn->in_len;
    conn_consume(conn, conn->in_len);
    if (caller->received < size) return;
    caller->received = 0;
    replies++;
    send_request(conn);
}

static void on_connected(struct connection *conn) {
    opened++;
    send_request(conn);
}
static void on_closed(struct connection *conn) {
    fprintf(stderr, "transport-bench: %s\n", conn_error_text(conn));
    exit(1);
}
static const struct connection_events caller_events = {
    .connected = on_connected, .readable = take_reply, .closed = on_closed};
static const struct connection_events echo_events = {.readable = echo, .closed = on_closed};

static void on_accepted(struct listener *listener, struct connection *conn) {
    conn->events = &echo_events;
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A crowd */

enum { AT_ONCE = 32 };

struct member {
    struct connection *conn;
    bool open;
    size_t matched; /* bytes of the reply so far */
};
static size_t refused, lost, answered, wrong, under_way, reply_len;
static char *reply;
static char refusal[200];

static void member_connected(struct connection *conn) {
    struct member *member = conn->owner;
    member->open = true;
    under_way--;
    opened++;
}
static void member_closed(struct connection *conn) {
    struct member *member = conn->owner;
    if (member->open) {
        lost++;
        opened--;
    } else {
        refused++;
        under_way--;
    }
    snprintf(refusal, sizeof refusal, "%s", conn_error_text(conn));
    member->open = false;
    conn_close(conn);
}
static void member_readable(struct connection *conn) {
    struct member *member = conn->owner;
    struct slice in = conn_peek(conn);
    bool right = member->matched + in.len <= reply_len && memcmp(in.data, reply + member->matched, in.len) == 0;
    member->matched += in.len;
    conn_consume(conn, in.len);
    if (!right)
        wrong++;
    else if (member->matched < reply_len)
        return;
    member->matched = 0;
    answered++;
}
static const struct connection_events member_events = {
    .connected = member_connected, .readable = member_readable, .closed = member_closed};

static int crowd(int argc, char **argv) {
    const struct transport *transport = argc > 5 ? transport_find(argv[2]) : NULL;
    size_t count = argc > 5 ? strtoul(argv[5], NULL, 10) : 0, bytes = argc > 6 ? strtoul(argv[6], NULL, 10) : 16;
    if (!transport || !count) {
        fprintf(stderr, "usage: transport-bench crowd [tcp|rdma] HOST PORT CONNECTIONS [BYTES]\n");
        return 2;
    }
    struct member *members = mem_calloc(count, sizeof *members);
    reply = mem_alloc(bytes + 64);
    reply_len = (size_t)sprintf(reply, "$%zu\r\n", bytes);
    memset(reply + reply_len, 'x', bytes);
    memcpy(reply + reply_len + bytes, "\r\n", 2);
    reply_len += bytes + 2;
    for (size_t i = 0; i < count; i++) {
        struct connect_options options = {.host = argv[3],
                                          .port = atoi(argv[4]),
                                          .timeout_ms = 60000,
                                          .events = &member_events,
                                          .owner = &members[i]};
        members[i].conn = conn_connect(transport, loop, &options);
        under_way++;
        while (under_way >= AT_ONCE) event_loop_turn(loop, -1);
    }
    while (under_way) event_loop_turn(loop, -1);
    printf("ready %zu refused %zu%s%s\n", opened, refused, refused ? ": " : "", refused ? refusal : "");
    fflush(stdout);
    for (char line[64];;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        while (poll(&input, 1, 0) == 0) event_loop_turn(loop, 20000);
        if (read(STDIN_FILENO, line, sizeof line) <= 0) break;
        answered = wrong = lost = 0;
        size_t asked = opened;
        for (size_t i = 0; i < count; i++) {
            if (!members[i].open) continue;
            output_write(&members[i].conn->out, slice_of("*2\r\n$4\r\nECHO\r\n"));
            output_write(&members[i].conn->out, slice_make(reply, reply_len));
            conn_flush(members[i].conn);
            if (i % 64 == 0) event_loop_turn(loop, 0);
        }
        while (answered + lost < asked) event_loop_turn(loop, 1000000);
        printf("answered %zu wrong %zu lost %zu\n", answered, wrong, lost);
        fflush(stdout);
    }
    for (size_t i = 0; i < count; i++)
        if (members[i].open) conn_close(members[i].conn);
    event_loop_turn(loop, 0);
    event_loop_free(loop);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "crowd") == 0) {
        log_level = LOG_LEVEL_WARNING;
        loop = event_loop_new();
        return crowd(argc, argv);
    }
    const struct transport *transport = transport_find(argc > 1 ? argv[1] : "tcp");
    const char *host = argc > 2 ? argv[2] : "127.0.0.1";
    size_t connections = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    size = argc > 4 ? strtoul(argv[4], NULL, 10) : 64;
    uint64_t rounds = argc > 5 ? strtoul(argv[5], NULL, 10) : 500000;
    if (!transport || !connections || !size) {
        fprintf(stderr, "usage: transport-bench [tcp|unix|rdma] [HOST or PATH] [CONNECTIONS] [BYTES] [ROUNDS]\n");
        return 2;
    }
    log_level = LOG_LEVEL_WARNING;
    payload = mem_calloc(1, size);
    loop = event_loop_new();
    char error[300];
    struct listen_options listen = {.host = host, .backlog = 4096, .accept_batch = 1000, .accepted = on_accepted};
    struct listener *listener = conn_listen(transport, loop, &listen, error, sizeof error);
    if (!listener) {
        fprintf(stderr, "transport-bench: %s\n", error);
        return 1;
    }
    struct caller *callers = mem_calloc(connections, sizeof *callers);
    for (size_t i = 0; i < connections; i++) {
        struct connect_options options = {.host = host,
                                          .port = listener->address.port,
                                          .timeout_ms = 30000,
                                          .events = &caller_events,
                                          .owner = &callers[i]};
        callers[i].conn = conn_connect(transport, loop, &options);
        while (opened <= i) event_loop_turn(loop, -1);
    }
    uint64_t warm = replies + rounds / 10;
    while (replies < warm) event_loop_turn(loop, -1);
    uint64_t begin_cpu = cpu_ns(), begin = clock_monotonic_ns(), first = replies;
    while (replies - first < rounds) event_loop_turn(loop, -1);
    uint64_t cpu = cpu_ns() - begin_cpu, wall = clock_monotonic_ns() - begin, done = replies - first;
    char what[128];
    conn_describe(callers[0].conn, what, sizeof what);
    printf("%s %s: %zu connections, %zu bytes: %.0f ns CPU a side for a request and its reply, %.0f round "
           "trips a second\n",
           transport->name, what, connections, size, (double)cpu / 2 / (double)done, (double)done * 1e9 / (double)wall);
    return 0;
}
