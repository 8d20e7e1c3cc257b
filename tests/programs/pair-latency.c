/* pair-latency.c: the latency of SET followed by WAIT 1 0, for tests/perf/replication.
 *
 *     pair-latency HOST PORT tcp|rdma PAIRS [pipelined]
 *
 * One connection sends SET and, when its reply has arrived, WAIT; with "pipelined" both together. The program prints
 * the medians in microseconds of SET, WAIT and the pair, and the 99th percentile of the pair. An answer of WAIT that
 * is not at least one replica ends it with code 1. The first tenth of the pairs is not measured. */
#include "lib/structures/histogram.h"
#include "lib/system/clock.h"
#include "net/connection.h"
#include "resp/reply_reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 30000, BITS = 10 };
static const uint64_t LATENCY_MAX_NS = UINT64_C(60) * 1000 * 1000 * 1000;

static void nothing(struct connection *conn) {}
static const struct connection_events events = {.connected = nothing, .readable = nothing, .closed = nothing};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "pair-latency: %s: %s\n", what, why);
    exit(1);
}

/* Waits for the replies of one request or of two; the last byte of the answers comes last. */
static void receive(struct connection *conn, int replies) {
    struct reply_counter counter = {0};
    for (int64_t left = replies; left > 0;) {
        int result = conn->in_len ? 0 : conn_wait_readable(conn, 0, TIMEOUT_MS);
        if (result != 0) fail("no reply", strerror(-result));
        size_t used;
        int64_t count = reply_count(&counter, conn_peek(conn), left, &used);
        if (count < 0 || counter.errors) fail("unexpected reply", counter.error_text);
        if (count == left && conn->in[used - 3] == '0') fail("WAIT", "no replica has acknowledged");
        conn_consume(conn, used);
        left -= count;
    }
}

static uint64_t send_and_receive(struct connection *conn, struct slice first, struct slice second) {
    uint64_t before = clock_monotonic_ns();
    output_write(&conn->out, first);
    if (second.len) output_write(&conn->out, second);
    conn_flush(conn);
    receive(conn, second.len ? 2 : 1);
    return clock_monotonic_ns() - before;
}

static double microseconds(const struct histogram *h, double part) {
    return (double)histogram_percentile(h, part) / 1000;
}

int main(int argc, char **argv) {
    if (argc < 5) fail("arguments", "HOST PORT tcp|rdma PAIRS [pipelined]");
    const struct transport *transport = transport_find(argv[3]);
    if (!transport) fail("transport", argv[3]);
    int pairs = atoi(argv[4]);
    bool pipelined = argc > 5;
    struct event_loop *loop = event_loop_new();
    struct connect_options options = {.host = argv[1], .port = atoi(argv[2]), .events = &events};
    struct connection *conn = conn_connect(transport, loop, &options);
    if (conn_wait_open(conn, TIMEOUT_MS) != 0) fail("connect", conn_error_text(conn));
    struct histogram *sets = histogram_new(BITS, LATENCY_MAX_NS), *waits = histogram_new(BITS, LATENCY_MAX_NS),
                     *both = histogram_new(BITS, LATENCY_MAX_NS);
    struct slice set = SLICE("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"), none = SLICE("");
    struct slice wait = SLICE("*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n");
    for (int i = 0; i < pairs + pairs / 10; i++) {
        uint64_t of_set = send_and_receive(conn, set, pipelined ? wait : none);
        uint64_t of_wait = pipelined ? 0 : send_and_receive(conn, wait, none);
        if (i < pairs / 10) continue;
        histogram_record(sets, of_set, 1);
        histogram_record(waits, of_wait, 1);
        histogram_record(both, of_set + of_wait, 1);
    }
    printf("%.1f %.1f %.1f %.1f\n", microseconds(sets, 50), microseconds(waits, 50), microseconds(both, 50),
           microseconds(both, 99));
    conn_close(conn);
    event_loop_turn(loop, 0);
    event_loop_free(loop);
    histogram_free(sets);
    histogram_free(waits);
    histogram_free(both);
    return 0;
}
