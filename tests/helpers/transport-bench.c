/* transport-bench: what a transport costs the CPU, without a server behind it.
 *
 *   transport-bench [tcp|unix|rdma] [HOST or PATH] [CONNECTIONS] [BYTES] [ROUNDS]
 *
 * Both ends of all connections live in one thread and one loop; each connection has one request of BYTES under way, which is echoed. Shown is the thread's
 * CPU time of one side for one request and its reply (half of what both sides took). For RDMA on the software device:
 *
 *   utils/softrdma/softrdma tests/helpers/transport-bench rdma 127.0.0.1 1 64 */
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "net/connection.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

int main(int argc, char **argv) {
    const struct transport *transport = transport_find(argc > 1 ? argv[1] : "tcp");
    const char *host = argc > 2 ? argv[2] : "127.0.0.1";
    size_t connections = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    size = argc > 4 ? strtoul(argv[4], NULL, 10) : 64;
    uint64_t rounds = argc > 5 ? strtoul(argv[5], NULL, 10) : 500000;
    if (!transport || !connections || !size) {
        fprintf(stderr,
                "usage: transport-bench [tcp|unix|rdma] [HOST or PATH] [CONNECTIONS] [BYTES] [ROUNDS]\n");
        return 2;
    }
    log_level = LOG_LEVEL_WARNING;
    payload = mem_calloc(1, size);
    loop = event_loop_new();
    char error[300];
    struct listen_options listen = {
        .host = host, .backlog = 4096, .accept_batch = 1000, .accepted = on_accepted};
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
    transport->describe(callers[0].conn, what, sizeof what);
    printf("%s %s: %zu connections, %zu bytes: %.0f ns CPU a side for a request and its reply, %.0f round "
           "trips a second\n",
           transport->name, what, connections, size, (double)cpu / 2 / (double)done,
           (double)done * 1e9 / (double)wall);
    return 0;
}
