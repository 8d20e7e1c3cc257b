/* transport_suite.h: tests of the guarantees of every transport, run over the transport in `suite`. Included by
 * test_socket.c (tcp, unix), test_tls.c and test_rdma*.c. Both ends run in one loop. */
#include "unit.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "net/connection.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct suite {
    const struct transport *transport;
    char host[100];
    int port;
    size_t bulk;   /* bytes of the long streams */
    int crowd;     /* connections of the test with many */
    size_t idle;   /* an idle connection holds fewer bytes; 0: 1024 */
    bool trusting; /* accepted connections are trusted immediately */
} suite;

static struct event_loop *loop;
static struct listener *listener;

/* Byte number `at` of the stream `seed`. */
static inline char stream_byte(uint32_t seed, uint64_t at) {
    uint64_t x = (at + seed) * 0x9E3779B97F4A7C15u;
    return (char)(x >> 56);
}

/* One end of a connection: sends a known stream, checks that it receives one, or runs the handlers of the test. */
struct end {
    struct connection *conn;
    uint32_t send_seed, expect_seed;
    uint64_t to_send, sent, received, consumed;
    size_t random_consume; /* maximum bytes consumed per call, random; 0: all */
    size_t pending_max, pending_bound;
    int connected, readable, drained, closed;
    void (*on_readable)(struct end *end);
    void (*on_drained)(struct end *end);
    void (*on_connected)(struct end *end);
    void (*on_closed)(struct end *end);
    bool close_when_sent;
    bool corrupt;
    char *area; /* receive_into */
    size_t area_len;
};
static struct end client, server;

static void end_connected(struct connection *conn) {
    struct end *end = conn->owner;
    end->connected++;
    if (end->on_connected) end->on_connected(end);
}

static void end_check(struct end *end, const char *data, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (data[i] != stream_byte(end->expect_seed, end->consumed + i)) end->corrupt = true;
}

static void end_readable(struct connection *conn) {
    struct end *end = conn->owner;
    end->readable++;
    if (end->on_readable) {
        end->on_readable(end);
        return;
    }
    struct slice in = conn_peek(conn);
    size_t len = end->random_consume ? random_below(in.len + 1) : in.len;
    if (end->random_consume && len > end->random_consume) len = end->random_consume;
    end_check(end, in.data, len);
    conn_consume(conn, len);
    end->consumed += len;
}

/* Sends more of the stream in pieces of random size while the pending output is small. */
static void end_pump(struct end *end) {
    struct connection *conn = end->conn;
    while (end->sent < end->to_send && conn_is_open(conn) && conn_pending(conn) < end->pending_bound) {
        char piece[20000];
        size_t len = random_below(8) ? 1 + random_below(3000) : 1 + random_below(sizeof piece);
        if (len > end->to_send - end->sent) len = end->to_send - end->sent;
        for (size_t i = 0; i < len; i++) piece[i] = stream_byte(end->send_seed, end->sent + i);
        output_write(&conn->out, slice_make(piece, len));
        end->sent += len;
        if (conn_pending(conn) > end->pending_max) end->pending_max = conn_pending(conn);
        if (random_below(4) == 0) conn_flush(conn);
    }
    conn_flush(conn);
    if (end->sent == end->to_send && end->close_when_sent) {
        end->close_when_sent = false;
        conn_close(conn);
        end->conn = NULL;
    }
}

static void end_drained(struct connection *conn) {
    struct end *end = conn->owner;
    end->drained++;
    if (end->on_drained) end->on_drained(end);
}

static void end_closed(struct connection *conn) {
    struct end *end = conn->owner;
    end->closed++;
    if (end->on_closed) {
        end->on_closed(end);
        return;
    }
    conn_close(conn);
    end->conn = NULL;
}

/* conn_close() frees the connection in the next turn. */
static inline void end_close(struct end *end) {
    conn_close(end->conn);
    end->conn = NULL;
}

static const struct connection_events end_events = {
    .connected = end_connected, .readable = end_readable, .drained = end_drained, .closed = end_closed};

static void take_server(struct listener *from, struct connection *conn) {
    conn->events = &end_events;
    conn->owner = &server;
    server.conn = conn;
    if (suite.trusting) conn_set_trusted(conn, true);
}

static struct listen_options listen_here(void) {
    return (struct listen_options){.host = suite.host, .backlog = 4096, .accepted = take_server, .accept_batch = 100};
}

static int suite_setup(void **state) {
    char error[256];
    log_level = LOG_LEVEL_NOTHING;
    random_seed(42);
    memset(&client, 0, sizeof client);
    memset(&server, 0, sizeof server);
    client.send_seed = server.expect_seed = 11;
    server.send_seed = client.expect_seed = 23;
    client.pending_bound = server.pending_bound = 1 << 20;
    loop = event_loop_new();
    struct listen_options options = listen_here();
    listener = conn_listen(suite.transport, loop, &options, error, sizeof error);
    if (!listener) {
        print_error("%s\n", error);
        return -1;
    }
    suite.port = listener->address.port;
    return 0;
}

static int suite_teardown(void **state) {
    if (client.conn) conn_close(client.conn);
    if (server.conn) conn_close(server.conn);
    if (listener) listener_close(listener);
    /* Closed ends may linger until their last sends have completed. */
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
    event_loop_free(loop);
    return 0;
}

static struct connection *dial(struct end *end) {
    struct connect_options options = {
        .host = suite.host, .port = suite.port, .timeout_ms = 30000, .events = &end_events, .owner = end};
    return end->conn = conn_connect(suite.transport, loop, &options);
}

#define turn_until(condition)                                                                                          \
    do {                                                                                                               \
        uint64_t give_up = clock_monotonic_us() + 120 * 1000000ull;                                                    \
        while (!(condition)) {                                                                                         \
            if (clock_monotonic_us() > give_up) fail_msg("waited too long for %s", #condition);                        \
            event_loop_turn(loop, 10000);                                                                              \
        }                                                                                                              \
    } while (0)

static void open_both(void) {
    dial(&client);
    assert_int_equal(conn_wait_open(client.conn, 30000), 0);
    turn_until(server.conn != NULL && conn_is_open(server.conn));
    assert_int_equal(client.connected, 1);
}

static void send_stream(struct end *end, uint64_t len) {
    end->to_send = len;
    end_pump(end);
}

/* --- The tests --- */

static void an_echo_of_every_small_size_comes_back(void **state) {
    open_both();
    for (size_t len = 1; len < 300; len++) {
        for (size_t i = 0; i < len; i++) {
            char byte = stream_byte(client.send_seed, client.sent++);
            output_write(&client.conn->out, slice_make(&byte, 1));
        }
        conn_flush(client.conn);
        turn_until(server.consumed == client.sent);
        for (size_t i = 0; i < len; i++) {
            char byte = stream_byte(server.send_seed, server.sent++);
            output_write(&server.conn->out, slice_make(&byte, 1));
        }
        conn_flush(server.conn);
        turn_until(client.consumed == server.sent);
    }
    assert_false(server.corrupt || client.corrupt);
    assert_int_equal(client.conn->bytes_out, client.sent);
    assert_int_equal(client.conn->bytes_in, server.sent);
}

static void long_streams_pass_both_ways_at_once(void **state) {
    open_both();
    client.on_drained = server.on_drained = end_pump;
    send_stream(&client, suite.bulk);
    send_stream(&server, suite.bulk);
    turn_until(server.consumed == suite.bulk && client.consumed == suite.bulk);
    assert_false(server.corrupt || client.corrupt);
    assert_int_equal(conn_pending(client.conn), 0);
    assert_int_equal(conn_pending(server.conn), 0);
}

static void bytes_consumed_in_odd_pieces_stay_in_order(void **state) {
    open_both();
    server.random_consume = 5000;
    client.on_drained = end_pump;
    uint64_t total = suite.bulk / 16;
    send_stream(&client, total);
    uint64_t give_up = clock_monotonic_us() + 120 * 1000000ull;
    while (server.consumed < total) {
        /* Input that `readable` left is consumed between the iterations. */
        event_loop_turn(loop, server.conn->in_len ? 0 : 1000);
        if (server.conn->in_len) end_readable(server.conn);
        assert_true(clock_monotonic_us() < give_up);
    }
    assert_false(server.corrupt);
    assert_int_equal(server.conn->in_len, 0);
}

static void shared_blobs_arrive_between_small_writes(void **state) {
    open_both();
    uint64_t total = 0;
    for (int i = 0; i < 60; i++) {
        size_t len = i % 7 == 0 ? 3 * 1024 * 1024 + (size_t)i : OUTPUT_SHARE_MIN + random_below(100000);
        size_t small = random_below(200);
        struct blob *blob = blob_new(len, len);
        for (size_t k = 0; k < len; k++) blob->data[k] = stream_byte(client.send_seed, total + k);
        output_write_blob(&client.conn->out, blob);
        blob_release(blob); /* the connection holds its own reference */
        total += len;
        for (size_t k = 0; k < small; k++) {
            char byte = stream_byte(client.send_seed, total++);
            output_write(&client.conn->out, slice_make(&byte, 1));
        }
        if (i % 3 == 0) conn_flush(client.conn);
    }
    conn_flush(client.conn);
    turn_until(server.consumed == total);
    assert_false(server.corrupt);
    assert_int_equal(conn_pending(client.conn), 0);
}

/* Consumes a head of 100 bytes, receives 50,000 bytes into its own memory, and repeats. */
static void receive_in_turns(struct end *end) {
    struct connection *conn = end->conn;
    for (;;) {
        if (end->area_len) {
            if (conn->sink_len) return;
            end_check(end, end->area, end->area_len);
            end->consumed += end->area_len;
            end->area_len = 0;
        }
        if (conn->in_len < 100) return;
        end_check(end, conn->in, 100);
        conn_consume(conn, 100);
        end->consumed += 100;
        end->area_len = random_below(3) ? 50000 : 1 + random_below(300);
        conn_receive_into(conn, end->area, end->area_len);
    }
}
static void large_arguments_land_in_the_callers_memory(void **state) {
    open_both();
    server.area = mem_alloc(50000);
    server.on_readable = receive_in_turns;
    client.on_drained = end_pump;
    uint64_t total = suite.bulk / 4;
    send_stream(&client, total);
    turn_until(server.conn->bytes_in == total);
    assert_true(server.consumed > total - 50100);
    assert_false(server.corrupt);
    conn_close(server.conn);
    server.conn = NULL;
    mem_free(server.area);
}

static void a_peer_that_does_not_read_makes_the_sender_wait(void **state) {
    open_both();
    conn_set_reading(server.conn, false);
    size_t piece = 64 * 1024, total = 0;
    char *zeros = mem_calloc(1, piece);
    while (total < 24 * 1024 * 1024) {
        output_write(&client.conn->out, slice_make(zeros, piece));
        total += piece;
    }
    conn_flush(client.conn);
    for (int i = 0; i < 50; i++) event_loop_turn(loop, 1000);
    assert_int_equal(server.readable, 0);
    size_t stuck = conn_pending(client.conn);
    assert_true(stuck > total / 4);
    assert_int_equal(client.drained, 0);
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == total);
    turn_until(client.drained == 1);
    assert_int_equal(conn_pending(client.conn), 0);
    mem_free(zeros);
}

static void leave_everything(struct end *end) {}
static void reading_stops_at_the_limit_and_goes_on_when_it_rises(void **state) {
    open_both();
    server.on_readable = leave_everything;
    conn_set_in_limit(server.conn, 100000);
    client.on_drained = end_pump;
    send_stream(&client, 3000000);
    turn_until(server.conn->in_len >= 100000);
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
    size_t stopped_at = server.conn->in_len;
    conn_set_in_limit(server.conn, 2500000);
    turn_until(server.conn->in_len >= 2500000);
    assert_true(stopped_at < 2500000);
    server.on_readable = NULL;
    end_readable(server.conn); /* consuming is enough to continue */
    turn_until(server.consumed == 3000000);
    assert_false(server.corrupt);
}

static void data_sent_before_an_orderly_close_arrives(void **state) {
    for (int round = 0; round < 5; round++) {
        server.consumed = client.sent = client.connected = server.closed = 0;
        open_both();
        client.close_when_sent = true;
        send_stream(&client, round == 0 ? 5 : 1 + random_below(40000));
        turn_until(server.closed == 1);
        assert_int_equal(server.consumed, client.sent);
        assert_false(server.corrupt);
    }
}

static void the_end_is_reported_once_without_error(void **state) {
    open_both();
    conn_close(client.conn);
    client.conn = NULL;
    turn_until(server.closed);
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
    assert_int_equal(server.closed, 1);
    assert_int_equal(client.closed, 0);
}

static void writing_after_the_end_is_harmless(void **state) {
    open_both();
    server.on_closed = leave_everything;
    conn_close(client.conn);
    client.conn = NULL;
    turn_until(server.closed);
    char text[5000] = {0};
    for (int i = 0; i < 100; i++) output_write(&server.conn->out, slice_make(text, sizeof text));
    struct blob *blob = blob_new(100000, 100000);
    output_write_blob(&server.conn->out, blob);
    blob_release(blob);
    conn_flush(server.conn);
    turn_until(conn_pending(server.conn) == 0);
    assert_int_equal(server.closed, 1);
    assert_false(conn_is_open(server.conn));
}

static void close_self(struct end *end) {
    conn_close(end->conn);
    end->conn = NULL;
}
static void close_at_once(struct listener *from, struct connection *conn) {
    conn_close(conn);
}

static void a_connection_may_be_closed_while_it_is_accepted(void **state) {
    listener->accepted = close_at_once;
    dial(&client);
    turn_until(client.closed == 1);
}
static void a_connection_may_be_closed_in_connected(void **state) {
    client.on_connected = close_self;
    dial(&client);
    turn_until(client.conn == NULL);
    turn_until(server.closed == 1 || server.conn == NULL);
}
static void a_connection_may_be_closed_while_connecting(void **state) {
    dial(&client);
    conn_close(client.conn);
    client.conn = NULL;
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
    assert_int_equal(client.connected + client.closed, 0);
}
static void a_connection_may_be_closed_in_readable(void **state) {
    open_both();
    server.on_readable = close_self;
    send_stream(&client, 100000);
    turn_until(server.conn == NULL);
    turn_until(client.closed == 1);
    assert_int_equal(server.readable, 1);
    assert_int_equal(server.closed, 0);
}
static void a_connection_may_be_closed_in_drained(void **state) {
    open_both();
    client.on_drained = close_self;
    client.pending_bound = 32 << 20;
    conn_set_reading(server.conn, false);
    send_stream(&client, 24 << 20);
    event_loop_turn(loop, 0);
    conn_set_reading(server.conn, true);
    turn_until(client.conn == NULL);
    turn_until(server.closed == 1);
    assert_int_equal(server.consumed, client.sent);
    assert_false(server.corrupt);
}
static void close_the_other(struct end *end) {
    struct end *other = end == &client ? &server : &client;
    close_self(end);
    if (other->conn) close_self(other);
}
static void both_ends_may_be_closed_in_one_handler(void **state) {
    open_both();
    server.on_readable = close_the_other;
    send_stream(&client, 1000);
    turn_until(server.conn == NULL);
    for (int i = 0; i < 20; i++) event_loop_turn(loop, 1000);
    assert_int_equal(client.closed + server.closed, 0);
}

/* A nested loop iteration must keep the input of the outer handler and serve other connections. */
static struct end second_client, second_server;
static void take_second(struct listener *from, struct connection *conn) {
    conn->events = &end_events;
    struct end *end = server.conn ? &second_server : &server;
    conn->owner = end;
    end->conn = conn;
}
static bool inner_done;
static void turn_inside(struct end *end) {
    struct slice in = conn_peek(end->conn);
    if (!inner_done) {
        inner_done = true;
        output_write(&second_client.conn->out, SLICE("from the second"));
        output_write(&client.conn->out, SLICE("more from the first"));
        conn_flush(second_client.conn);
        conn_flush(client.conn);
        turn_until(second_server.readable > 0);
    }
    /* The bytes shown before are unchanged. */
    if (in.len < 5 || memcmp(in.data, "first", 5) != 0) end->corrupt = true;
    end->consumed = in.len;
}
static void a_nested_iteration_keeps_the_input_of_the_outer_handler(void **state) {
    listener->accepted = take_second;
    memset(&second_client, 0, sizeof second_client);
    memset(&second_server, 0, sizeof second_server);
    inner_done = false;
    second_server.on_readable = leave_everything;
    open_both();
    dial(&second_client);
    turn_until(second_server.conn != NULL && conn_is_open(second_client.conn));
    server.on_readable = turn_inside;
    output_write(&client.conn->out, SLICE("first"));
    conn_flush(client.conn);
    turn_until(server.conn->in_len >= 24);
    assert_false(server.corrupt);
    assert_memory_equal(server.conn->in, "firstmore from the first", 24);
    assert_memory_equal(second_server.conn->in, "from the second", 15);
    conn_close(second_client.conn);
    conn_close(second_server.conn);
}

static void waiting_calls_work_without_handlers_of_the_tools(void **state) {
    open_both();
    assert_int_equal(conn_wait_readable(client.conn, 0, 20), -ETIMEDOUT);
    client.on_readable = leave_everything;
    send_stream(&server, 1000);
    assert_int_equal(conn_wait_drained(server.conn, 5000), 0);
    assert_int_equal(conn_wait_readable(client.conn, 999, 5000), 0);
    assert_int_equal(client.conn->in_len, 1000);
    close_self(&server);
    client.on_closed = leave_everything;
    assert_int_equal(conn_wait_readable(client.conn, 1000, 5000), -ECONNRESET);
}

static void many_connections_are_served_and_closed(void **state) {
    struct end *clients = mem_calloc((size_t)suite.crowd, sizeof *clients);
    struct end *all[1] = {clients};
    listener->accepted = take_server;
    for (int i = 0; i < suite.crowd; i++) {
        all[0][i].expect_seed = 23;
        dial(&clients[i]);
        server.conn = NULL;
        turn_until(conn_is_open(clients[i].conn) && server.conn);
        /* The server's end of each is `server`; it replies to each with the first bytes of the stream. */
        char hello[64];
        for (size_t k = 0; k < sizeof hello; k++) hello[k] = stream_byte(23, k);
        output_write(&server.conn->out, slice_make(hello, sizeof hello));
        conn_flush(server.conn);
    }
    for (int i = 0; i < suite.crowd; i++) turn_until(clients[i].consumed == 64);
    size_t input, output, total = conn_memory(server.conn, &input, &output);
    if (conn_fd(server.conn) >= 0) {
        assert_int_equal(input, 0); /* idle: no buffers */
        assert_int_equal(output, 0);
        assert_true(total < (suite.idle ? suite.idle : 1024));
    }
    for (int i = 0; i < suite.crowd; i++) {
        assert_false(clients[i].corrupt);
        close_self(&clients[i]);
    }
    server.conn = NULL; /* the owner closes each when notified */
    turn_until(server.closed == suite.crowd);
    mem_free(clients);
}

static void a_failed_connect_is_reported_from_the_loop(void **state) {
    listener_close(listener);
    listener = NULL;
    client.on_closed = leave_everything;
    dial(&client);
    assert_int_equal(client.closed, 0);
    turn_until(client.closed == 1);
    assert_int_equal(client.connected, 0);
    assert_true(client.conn->error != 0);
    assert_true(strlen(conn_error_text(client.conn)) > 0);
}

static void both_ends_know_their_addresses(void **state) {
    open_both();
    char text[128], other[128];
    conn_format_address(server.conn, false, text);
    conn_format_address(client.conn, true, other);
    assert_string_equal(text, other);
    char port[16];
    snprintf(port, sizeof port, ":%d", suite.port);
    assert_non_null(strstr(text, port));
    assert_true(conn_is_local(server.conn));
    assert_true(conn_is_local(client.conn));
}

#define SUITE_TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)
#define SUITE_TESTS                                                                                                    \
    SUITE_TEST(an_echo_of_every_small_size_comes_back), SUITE_TEST(long_streams_pass_both_ways_at_once),               \
        SUITE_TEST(bytes_consumed_in_odd_pieces_stay_in_order), SUITE_TEST(shared_blobs_arrive_between_small_writes),  \
        SUITE_TEST(large_arguments_land_in_the_callers_memory),                                                        \
        SUITE_TEST(a_peer_that_does_not_read_makes_the_sender_wait),                                                   \
        SUITE_TEST(reading_stops_at_the_limit_and_goes_on_when_it_rises),                                              \
        SUITE_TEST(data_sent_before_an_orderly_close_arrives), SUITE_TEST(the_end_is_reported_once_without_error),     \
        SUITE_TEST(writing_after_the_end_is_harmless), SUITE_TEST(a_connection_may_be_closed_while_it_is_accepted),    \
        SUITE_TEST(a_connection_may_be_closed_in_connected), SUITE_TEST(a_connection_may_be_closed_while_connecting),  \
        SUITE_TEST(a_connection_may_be_closed_in_readable), SUITE_TEST(a_connection_may_be_closed_in_drained),         \
        SUITE_TEST(both_ends_may_be_closed_in_one_handler),                                                            \
        SUITE_TEST(a_nested_iteration_keeps_the_input_of_the_outer_handler),                                           \
        SUITE_TEST(waiting_calls_work_without_handlers_of_the_tools),                                                  \
        SUITE_TEST(many_connections_are_served_and_closed), SUITE_TEST(a_failed_connect_is_reported_from_the_loop),    \
        SUITE_TEST(both_ends_know_their_addresses)
