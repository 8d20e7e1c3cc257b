/* The RDMA transport: the guarantees of every transport, and those specific to RDMA: full buffers, the credit ring, the
 * polled word, send memory, limits. test_rdma_peers.c has hostile and dying peers, test_rdma_keepalive.c keepalives,
 * test_rdma_memory.c sizes of buffers.
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "net/rdma/polled.h"
#include "net/rdma/ring.h"
#include "net/rdma/size.h"
#include "rdma_suite.h"
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <sys/wait.h>

static int use_polled_without_ring(void **state) {
    use_polled(state);
    rdma_settings.features = RDMA_FEATURE_POLLED;
    return 0;
}
static int use_large_buffers(void **state) {
    use_rdma(state);
    rdma_settings.rx_size = RDMA_RX_SIZE_DEFAULT;
    return 0;
}

/* --- Requests that straddle the end of the receive buffer --- */

/* Frames: a length of four bytes, followed by that number of stream bytes. Consumes whole frames only. */
static int frames_seen;
static void consume_frames(struct end *end) {
    for (;;) {
        struct slice in = conn_peek(end->conn);
        uint32_t len;
        if (in.len < sizeof len) return;
        memcpy(&len, in.data, sizeof len);
        if (in.len < sizeof len + len) return;
        end_check(end, in.data + sizeof len, len);
        end->consumed += len;
        frames_seen++;
        conn_consume(end->conn, sizeof len + len);
    }
}
static void send_frame(uint32_t len) {
    struct output *out = &client.conn->out;
    output_write(out, slice_make(&len, sizeof len));
    for (uint32_t i = 0; i < len; i++) {
        char byte = stream_byte(client.send_seed, client.sent++);
        output_write(out, slice_make(&byte, 1));
    }
    conn_flush(client.conn);
}
static void requests_of_every_size_around_the_buffer_end_arrive(void **state) {
    open_both();
    server.on_readable = consume_frames;
    frames_seen = 0;
    int frames = 0;
    uint32_t size = rdma_settings.rx_size;
    for (uint32_t gap = 0; gap < 24; gap++) {
        /* A frame that ends `gap` bytes before the end of the buffer, then one across it, then one to fill to the end
         * exactly. */
        uint32_t used = (uint32_t)(client.conn->bytes_out % size);
        send_frame((size - used - 4 - gap + size) % size);
        send_frame(1 + gap % 13);
        used = (uint32_t)(client.conn->bytes_out % size);
        send_frame((size - used - 4 + size) % size);
        frames += 3;
        turn_until(frames_seen == frames);
    }
    for (uint32_t len = size - 12; len < size + 12; len++) {
        send_frame(len);
        frames++;
    }
    send_frame(3 * size + 5);
    frames++;
    turn_until(frames_seen == frames);
    assert_false(server.corrupt);
    assert_int_equal(server.conn->in_len, 0);
}

static void many_requests_in_flight_straddle_and_stay_in_order(void **state) {
    open_both();
    server.on_readable = consume_frames;
    frames_seen = 0;
    for (int i = 0; i < 20000; i++) {
        send_frame((uint32_t)random_below(i % 50 ? 300 : 20000));
        if (i % 100 == 0) event_loop_turn(loop, 0);
    }
    turn_until(frames_seen == 20000);
    assert_false(server.corrupt);
}

/* --- The credit ring --- */

static bool agreed(const struct connection *conn) {
    char text[256];
    transport_rdma.describe(conn, text, sizeof text);
    return strstr(text, "rdma-features=ring") != NULL;
}
static void open_ring(void) {
    open_both();
    turn_until(agreed(client.conn) && agreed(server.conn));
}

static void both_ends_agree_on_the_ring_and_it_is_counted(void **state) {
    uint64_t in = rdma_stats()->credits_in, out = rdma_stats()->credits_out;
    open_ring();
    assert_int_equal(rdma_stats()->ring_connections, 2);
    send_stream(&client, 10 * rdma_settings.rx_size);
    turn_until(server.consumed == client.sent);
    assert_in_range(rdma_stats()->credits_out - out, 9, 50);
    assert_in_range(rdma_stats()->credits_in - in, 9, 50);
    assert_false(server.corrupt);
    close_self(&client);
    turn_until(server.closed);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_int_equal(rdma_stats()->ring_connections, 0);
}

static void a_peer_without_a_feature_request_gets_the_base_protocol(void **state) {
    uint64_t credits = rdma_stats()->credits_out, controls, features = rdma_settings.features;
    rdma_settings.features = 0;
    dial(&client);
    turn_until(conn_is_open(client.conn));
    rdma_settings.features = features; /* of the server, which may not have received our request yet */
    turn_until(server.conn != NULL);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    controls = rdma_stats()->control_out;
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_int_equal(rdma_stats()->control_out, controls);
    send_stream(&client, 4 * rdma_settings.rx_size);
    turn_until(server.consumed == client.sent);
    assert_false(agreed(client.conn) || agreed(server.conn) || server.corrupt);
    assert_int_equal(rdma_stats()->credits_out, credits);
}

static void a_server_that_offers_nothing_is_spoken_to_in_the_base_protocol(void **state) {
    uint64_t features = rdma_settings.features;
    dial(&client);
    turn_until(conn_is_open(client.conn)); /* it has sent its request */
    rdma_settings.features = 0;
    turn_until(server.conn != NULL);
    send_stream(&client, 4 * rdma_settings.rx_size);
    turn_until(server.consumed == client.sent);
    rdma_settings.features = features;
    assert_false(agreed(client.conn) || agreed(server.conn) || server.corrupt || server.closed || client.closed);
}

/* The messages of the negotiation arrive between messages of a stream, at any offset of the buffer. */
static void negotiating_in_the_middle_of_a_stream_loses_nothing(void **state) {
    for (uint32_t i = 0; i < 40; i++) {
        memset(&server, 0, sizeof server);
        memset(&client, 0, sizeof client);
        client.send_seed = server.expect_seed = 5;
        server.send_seed = client.expect_seed = 9;
        client.pending_bound = server.pending_bound = 1 << 20;
        client.on_drained = server.on_drained = end_pump;
        dial(&client);
        client.on_connected = end_pump;
        client.to_send = i % 4 * rdma_settings.rx_size / 2 + i * 100;
        turn_until(server.conn != NULL);
        send_stream(&server, (i + 1) % 4 * rdma_settings.rx_size / 2 + i * 77);
        turn_until(agreed(client.conn) && agreed(server.conn));
        send_stream(&client, 3 * rdma_settings.rx_size);
        send_stream(&server, 3 * rdma_settings.rx_size);
        turn_until(server.consumed == client.to_send && client.consumed == server.to_send);
        assert_false(server.corrupt || client.corrupt);
        close_self(&client);
        turn_until(server.conn == NULL);
    }
}

static void leave_half(struct end *end) {
    struct slice in = conn_peek(end->conn);
    size_t len = in.len / 2;
    end_check(end, in.data, len);
    conn_consume(end->conn, len);
    end->consumed += len;
}
static void requests_of_every_size_up_to_the_ring_and_beyond_pass(void **state) {
    open_ring();
    server.on_readable = consume_frames;
    frames_seen = 0;
    int frames = 0;
    uint32_t size = rdma_settings.rx_size;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t len = i % 3 == 0   ? size - 4 - i
                       : i % 3 == 1 ? (uint32_t)random_below(2 * size)
                                    : size * 3 / 4 + (uint32_t)random_below(100);
        send_frame(len);
        frames++;
        turn_until(frames_seen == frames);
    }
    assert_false(server.corrupt);
    assert_int_equal(server.conn->in_len, 0);
}
/* The ring is full of one incomplete request, except for a few free bytes, too few for a Credit until now. */
static void a_request_as_large_as_the_ring_gets_the_last_free_bytes(void **state) {
    uint32_t size = rdma_settings.rx_size;
    for (uint32_t left = 1; left < 40; left++) {
        open_ring();
        server.on_readable = consume_frames;
        server.consumed = client.sent = 0;
        frames_seen = 0;
        send_frame(size - left - 4);
        turn_until(frames_seen == 1);
        send_frame(left); /* across the end; its bytes are free, but the peer does not know */
        turn_until(frames_seen == 2);
        send_frame(size - 8);
        turn_until(frames_seen == 3);
        close_self(&client);
        turn_until(server.conn == NULL);
        client.connected = 0;
    }
}
static void a_reader_that_always_leaves_something_goes_on(void **state) {
    open_ring();
    server.on_readable = leave_half;
    client.on_drained = end_pump;
    send_stream(&client, 20 * rdma_settings.rx_size);
    turn_until(server.conn->bytes_in == client.to_send);
    server.on_readable = NULL;
    end_readable(server.conn);
    turn_until(server.consumed == client.to_send);
    assert_false(server.corrupt);
}

/* Rings of four kilobytes and more are exchanged for larger and smaller ones in the middle of a stream, while readers
 * stop, leave input, or receive a part of the stream into other memory. */
static void take_at_random(struct end *end) {
    struct connection *conn = end->conn;
    if (end->area_len) {
        if (conn->sink_len) return;
        end_check(end, end->area, end->area_len);
        end->consumed += end->area_len;
        end->area_len = 0;
    }
    size_t len = random_below(3) ? conn->in_len : random_below(conn->in_len + 1);
    end_check(end, conn->in, len);
    conn_consume(conn, len);
    end->consumed += len;
    if (random_below(8) || end->consumed + 30000 > end->received) return; /* received: length of the stream */
    end->area_len = 1 + random_below(random_below(2) ? 300 : 20000);
    conn_receive_into(conn, end->area, end->area_len);
}
static void disturb(struct end *end) {
    if (!end->conn) return;
    struct rdma_connection *c = rdma_of(end->conn);
    if (random_below(3) == 0) conn_set_reading(end->conn, random_below(3) != 0);
    if (random_below(4) == 0) c->receive.since_us = random_below(2) ? 0 : clock_mono(); /* slow, quick */
    if (random_below(50) == 0) conn_set_in_limit(end->conn, 1 + random_below(200000));
    /* conn_receive_into() may have filled the area with bytes already received: no `readable` follows. */
    bool ready = end->area_len ? !end->conn->sink_len : end->conn->in_len > 0;
    if (random_below(4) == 0 && ready) take_at_random(end);
}
static void random_streams_pass_through_tiny_rings(void **state) {
    uint64_t before = rdma_stats()->grown, shrunk = rdma_stats()->shrunk, total = suite.bulk / 10;
    rdma_settings.rx_initial = RDMA_RX_INITIAL_MIN;
    open_both();
    rdma_settings.rx_initial = 0;
    server.area = mem_alloc(20000);
    client.area = mem_alloc(20000);
    server.on_readable = client.on_readable = take_at_random;
    client.on_drained = server.on_drained = end_pump;
    server.received = client.received = total;
    rdma_of(client.conn)->receive.least = RDMA_RX_INITIAL_MIN;
    conn_set_trusted(server.conn, true);
    conn_set_in_limit(server.conn, 20000);
    send_stream(&client, total);
    send_stream(&server, total);
    uint64_t give_up = clock_monotonic_us() + 120 * 1000000ull;
    while (server.consumed < total || client.consumed < total) {
        event_loop_turn(loop, 1000);
        disturb(&server);
        disturb(&client);
        if (clock_monotonic_us() > give_up)
            fail_msg("the server has %zu of %zu bytes (%zu unread, %zu to receive), the client %zu (%zu, %zu)",
                     (size_t)server.consumed, (size_t)total, server.conn->in_len, server.conn->sink_len,
                     (size_t)client.consumed, client.conn->in_len, client.conn->sink_len);
        assert_false(server.closed || client.closed);
    }
    assert_false(server.corrupt || client.corrupt);
    if (total > 4 << 20) assert_true(rdma_stats()->grown - before > 5 && rdma_stats()->shrunk - shrunk > 5);
    mem_free(server.area);
    mem_free(client.area);
}
static void a_ring_grows_when_it_is_filled_quickly(void **state) {
    rdma_settings.rx_initial = RDMA_RX_INITIAL_MIN;
    open_ring();
    rdma_settings.rx_initial = 0;
    conn_set_trusted(server.conn, true);
    struct rdma_connection *c = rdma_of(server.conn);
    uint32_t size = c->receive.rx->size;
    assert_true(c->receive.is_ring);
    assert_int_equal(rdma_receive_ring_size(c, size, 50), 4 * size);
    assert_int_equal(rdma_receive_ring_size(c, size, 200), size);
}
static void stay_open(struct end *end) {}

static void data_received_before_the_end_is_delivered_from_both_buffers(void **state) {
    rdma_settings.rx_initial = RDMA_RX_INITIAL_MIN;
    for (int i = 0; i < 100; i++) {
        server.consumed = client.sent = client.connected = server.closed = 0;
        open_ring();
        conn_set_trusted(server.conn, true);
        server.on_readable = i % 2 ? leave_half : NULL;
        server.on_closed = i % 2 ? stay_open : NULL;   /* the end may come in the same turn as the last bytes */
        send_stream(&client, 1 + random_below(30000)); /* beyond the first buffer, and into the next */
        for (size_t turns = random_below(4); turns > 0; turns--) event_loop_turn(loop, 0);
        client.on_drained = end_pump;
        client.close_when_sent = true;
        send_stream(&client, client.sent + random_below(9000));
        if (i % 2) {
            turn_until(server.conn->bytes_in == client.to_send);
            server.on_readable = NULL;
            end_readable(server.conn);
            turn_until(server.closed == 1);
            server.on_closed = NULL;
            end_close(&server);
        }
        turn_until(server.closed == 1);
        assert_int_equal(server.consumed, client.to_send);
        assert_false(server.corrupt);
    }
    rdma_settings.rx_initial = 0;
}

/* --- The polled word --- */

static bool is_polled(const struct end *end) {
    return rdma_of(end->conn)->polled.state == RDMA_POLLED_ON;
}
static void open_polled(void) {
    open_both();
    turn_until(rdma_of(client.conn)->features & rdma_of(server.conn)->features & RDMA_FEATURE_POLLED);
    conn_set_trusted(server.conn, true);
}

static void messages_of_busy_peers_need_no_completions(void **state) {
    open_polled();
    for (int tries = 0; !is_polled(&server) || !is_polled(&client); tries++) {
        ping_pong(10);
        assert_true(tries < 100000);
    }
    assert_int_equal(rdma_stats()->polled_connections, 2);
    uint64_t in = rdma_stats()->polled_in, out = rdma_stats()->polled_out;
    ping_pong(1000);
    assert_true(rdma_stats()->polled_in > in && rdma_stats()->polled_out > out);
    close_self(&client);
    turn_until(server.closed);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_int_equal(rdma_stats()->polled_connections, 0);
}

static void an_idle_peer_is_no_longer_polled(void **state) {
    open_polled();
    for (int tries = 0; !is_polled(&server); tries++) {
        ping_pong(10);
        assert_true(tries < 100000);
    }
    rdma_settings.busy_poll_us = 1000000000; /* the loop does not sleep */
    turn_until(rdma_of(server.conn)->polled.state == RDMA_POLLED_OFF && !rdma_of(server.conn)->polled.slot);
    rdma_settings.busy_poll_us = 1000;
    ping_pong(10);
    assert_false(server.corrupt || client.corrupt);
}

/* Every polling period ends with a sleep and starts again: data written meanwhile is neither lost nor delayed forever.
 */
static void sleeping_and_polling_in_turn_loses_nothing(void **state) {
    open_polled();
    for (int i = 0; i < 500; i++) {
        rdma_of(server.conn)->polled.after = rdma_of(client.conn)->polled.after = 1;
        rdma_of(server.conn)->polled.begins_left = rdma_of(client.conn)->polled.begins_left = 1;
        rdma_settings.busy_poll_us = random_below(2) ? 0 : 1000;
        ping_pong(1 + (int)random_below(6));
        send_stream(&client, client.sent + random_below(200000));
        if (random_below(2)) send_stream(&server, server.sent + random_below(200000));
        for (size_t turns = random_below(4); turns > 0; turns--) event_loop_turn(loop, (int64_t)random_below(2) * 100);
        turn_until(server.consumed == client.to_send && client.consumed == server.to_send);
        rdma_of(server.conn)->negotiation.messages = rdma_of(client.conn)->negotiation.messages = 0;
    }
    assert_false(server.corrupt || client.corrupt);
    rdma_settings.busy_poll_us = 1000;
}

static void until_polled(const struct end *end) {
    for (int tries = 0; !is_polled(end); tries++) {
        ping_pong(10);
        assert_true(tries < 100000);
    }
}

/* Memory may show a word before the bytes that it announces. */
static void bytes_visible_after_their_polled_word_are_waited_for(void **state) {
    open_polled();
    rdma_settings.busy_poll_us = 1000000000; /* no loop sleeps */
    until_polled(&server);
    const struct rdma_connection *c = rdma_of(server.conn);
    turn_until(client.consumed == server.sent && server.consumed == client.sent);
    char *byte = c->receive.rx->data + (c->receive.received < c->receive.rx->size ? c->receive.received : 0), was;
    uint64_t again = rdma_stats()->polled_again, consumed = server.consumed;
    send_stream(&client, client.sent + 1);
    was = *byte;
    *byte = (char)(was ^ 1);
    for (int i = 0; i < 10; i++) assert_false(rdma_polled_check(c->qp.device));
    assert_true(rdma_stats()->polled_again >= again + 10);
    assert_int_equal(server.consumed, consumed);
    *byte = was;
    turn_until(server.consumed == client.sent);
    rdma_settings.busy_poll_us = 1000;
    ping_pong(10);
    assert_false(server.corrupt || client.corrupt);
}

/* The bytes never become visible: the reply to PollEnd is a completion, which carries the stream position. */
static void a_polled_word_that_never_matches_ends_only_the_polling_period(void **state) {
    open_polled();
    rdma_settings.busy_poll_us = 1000000000;
    until_polled(&server);
    turn_until(client.consumed == server.sent && server.consumed == client.sent);
    struct rdma_connection *c = rdma_of(server.conn);
    uint64_t given_up = rdma_stats()->polled_given_up;
    atomic_store(c->polled.slot->word, htobe64((uint64_t)(c->polled.count_in + 100) << 32 | 12345));
    turn_until(rdma_stats()->polled_given_up == given_up + 1 && !is_polled(&server));
    assert_true(c->polled.after > rdma_settings.poll_after);
    rdma_settings.busy_poll_us = 1000;
    ping_pong(10);
    assert_false(server.corrupt || client.corrupt);
}

/* The peer sends its last bytes, announces them by a word and disconnects while this end does not heed words: it has
 * announced another buffer, or the word before did not match. */
static void the_last_bytes_before_the_end_are_taken_although_words_are_ignored(void **state) {
    for (int i = 0; i < 2; i++) {
        client.connected = server.closed = 0;
        client.sent = server.sent = client.consumed = server.consumed = 0;
        open_polled();
        rdma_settings.busy_poll_us = 1000000000; /* no loop sleeps */
        until_polled(&server);
        turn_until(client.consumed == server.sent && server.consumed == client.sent);
        struct rdma_connection *c = rdma_of(server.conn);
        uint64_t word = atomic_load(c->polled.slot->word);
        c->receive.least = RDMA_RX_INITIAL_MIN;
        if (i == 0)
            for (uint64_t hour = 0; hour < 2; hour++) rdma_ring_tick(c, clock_mono() + hour * 3600 * 1000000);
        else
            c->polled.distrusted = true;
        assert_true(c->ring.moving || c->polled.distrusted);
        send_stream(&client, client.sent + 100);
        uint64_t end = clock_monotonic_us() + 10000000;
        while (atomic_load(c->polled.slot->word) == word) assert_true(clock_monotonic_us() < end);
        client.conn->drops_output = true; /* it does not linger, and so answers nothing */
        close_self(&client);
        rdma_settings.busy_poll_us = 1000;
        turn_until(server.closed == 1);
        assert_int_equal(server.consumed, client.to_send);
        assert_false(server.corrupt);
    }
}

/* The last bytes may become visible after their word, also where a word before was given up. */
static void an_ignored_word_is_checked_as_often_as_others_at_the_end(void **state) {
    open_polled();
    rdma_settings.busy_poll_us = 1000000000; /* no loop sleeps */
    until_polled(&server);
    turn_until(client.consumed == server.sent && server.consumed == client.sent);
    struct rdma_connection *c = rdma_of(server.conn);
    atomic_store(c->polled.slot->word, htobe64((uint64_t)(c->polled.count_in + 100) << 32 | 12345));
    uint64_t again = rdma_stats()->polled_again, given_up;
    while (!c->polled.distrusted) rdma_polled_check(c->qp.device);
    given_up = rdma_stats()->polled_again - again;
    c->callbacks->failed(c, 0, NULL);
    assert_int_equal(rdma_stats()->polled_again - again, 2 * given_up);
    rdma_settings.busy_poll_us = 1000;
    turn_until(server.closed == 1);
}

/* There are more busy peers than poll slots. */
static void connections_without_a_poll_slot_stay_with_completions(void **state) {
    enum { COUNT = RDMA_POLLED_MAX / 2 + 3 }; /* both ends are in this process and want a slot */
    struct end near[COUNT], far[COUNT];
    memset(near, 0, sizeof near);
    memset(far, 0, sizeof far);
    for (int i = 0; i < COUNT; i++) {
        server.conn = client.conn = NULL;
        client.connected = 0;
        open_polled();
        far[i].conn = server.conn;
        near[i].conn = client.conn;
    }
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < COUNT; i++) {
            output_write(&near[i].conn->out, slice_of("request"));
            output_write(&far[i].conn->out, slice_of("reply"));
            conn_flush(near[i].conn);
            conn_flush(far[i].conn);
        }
        for (int i = 0; i < COUNT; i++) {
            uint64_t rounds = (uint64_t)round + 1;
            turn_until(far[i].conn->bytes_in == rounds * 7 && near[i].conn->bytes_in == rounds * 5);
        }
    }
    assert_in_range(rdma_stats()->polled_connections, 1, RDMA_POLLED_MAX);
    for (int i = 0; i < COUNT; i++) {
        conn_close(near[i].conn);
        conn_close(far[i].conn);
    }
    server.conn = client.conn = NULL;
}

static void peers_without_trust_are_not_polled(void **state) {
    open_both();
    ping_pong(300);
    assert_int_equal(rdma_of(server.conn)->polled.state, RDMA_POLLED_OFF);
    assert_null(rdma_of(server.conn)->polled.slot);
}

/* --- Memory --- */

static void an_idle_connection_releases_its_send_memory(void **state) {
    open_both();
    send_stream(&client, 3000);
    turn_until(server.consumed == 3000);
    size_t output = 1;
    uint64_t end = clock_monotonic_us() + 5000000;
    while (output && clock_monotonic_us() < end) {
        event_loop_turn(loop, 10000);
        transport_rdma.memory(client.conn, NULL, &output);
    }
    assert_int_equal(output, 0);
}

static void buffers_are_used_again(void **state) {
    open_both();
    close_self(&client);
    turn_until(server.closed == 1);
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    uint64_t before = rdma_stats()->registered_bytes;
    for (int i = 0; i < 20; i++) {
        client.connected = 0;
        open_both();
        close_self(&client);
        turn_until(server.conn == NULL);
    }
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
    assert_in_range(rdma_stats()->registered_bytes, 0, before);
}

/* Twenty connections cannot send and one can, with send memory for eight: the queues of the waiting connections move to
 * other memory. */
static void waiting_connections_leave_send_memory_to_others(void **state) {
    enum { STUCK = 20 };
    struct end stuck[STUCK];
    struct connection *far[STUCK];
    uint64_t before = rdma_settings.send_memory;
    rdma_settings.send_memory = 2 * 1024 * 1024;
    memset(stuck, 0, sizeof stuck);
    for (int i = 0; i < STUCK; i++) {
        server.conn = NULL;
        dial(&stuck[i]);
        turn_until(conn_is_open(stuck[i].conn) && server.conn && conn_is_open(server.conn));
        far[i] = server.conn;
        conn_set_reading(far[i], false);
        char piece[4000] = {0};
        for (int k = 0; k < 60; k++) output_write(&stuck[i].conn->out, slice_make(piece, sizeof piece));
        conn_flush(stuck[i].conn); /* 64 KiB of it are sent, the rest waits */
    }
    server.conn = NULL;
    open_both();
    client.on_drained = server.on_drained = end_pump;
    send_stream(&client, 3000000);
    send_stream(&server, 3000000);
    turn_until(server.consumed == 3000000 && client.consumed == 3000000);
    assert_false(server.corrupt || client.corrupt);
    for (int i = 0; i < STUCK; i++) {
        conn_close(stuck[i].conn);
        conn_close(far[i]);
    }
    rdma_settings.send_memory = before;
}

static void it_describes_itself(void **state) {
    open_both();
    char text[128];
    transport_rdma.describe(server.conn, text, sizeof text);
    assert_non_null(strstr(text, "device="));
    assert_non_null(strstr(text, "rx=65536"));
    assert_non_null(strstr(text, "rdma-features="));
    assert_non_null(rdma_device_name());
    assert_int_equal(transport_rdma.fd(server.conn), -1);
    assert_ptr_equal(transport_find("rdma"), &transport_rdma);
}

/* The timeout is 4.096 us times a power of two. */
static void each_end_retransmits_after_the_configured_acknowledgement_timeout(void **state) {
    static const struct {
        uint32_t ms;
        int step;
    } cases[] = {{250, 16}, {67, 14}, {1, 8}, {600000, 28}};
    uint32_t before = rdma_settings.ack_timeout_ms;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rdma_settings.ack_timeout_ms = cases[i].ms;
        open_both();
        for (int side = 0; side < 2; side++) {
            struct ibv_qp_attr attr;
            struct ibv_qp_init_attr init;
            assert_int_equal(ibv_query_qp(rdma_of(side ? server.conn : client.conn)->qp.verbs, &attr,
                                          IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init),
                             0);
            assert_int_equal(attr.timeout, cases[i].step);
            assert_int_equal(attr.retry_cnt, 7);
        }
        conn_close(client.conn);
        turn_until(server.conn == NULL);
        client.connected = 0;
    }
    client.conn = NULL;
    rdma_settings.ack_timeout_ms = before;
}

static uint8_t traffic_class_of(struct connection *conn) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(rdma_of(conn)->qp.verbs, &attr, IBV_QP_AV, &init), 0);
    return attr.ah_attr.grh.traffic_class;
}

static void close_both(void) {
    conn_close(client.conn);
    turn_until(server.conn == NULL);
    client.connected = 0;
    client.conn = NULL;
}

/* The request carries the class of the client; the server's setting replaces it for the server's packets. */
static void each_end_sends_with_the_traffic_class_of_its_settings(void **state) {
    static const struct {
        int of_client, of_server;
        uint8_t client, server;
    } cases[] = {{-1, -1, 0, 0}, {104, -1, 104, 104}, {104, 8, 104, 8}, {-1, 255, 0, 255}, {104, 0, 104, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rdma_settings.traffic_class = cases[i].of_client;
        dial(&client);
        turn_until(rdma_of(client.conn)->qp.id != NULL);
        rdma_settings.traffic_class = cases[i].of_server;
        assert_int_equal(conn_wait_open(client.conn, 30000), 0);
        turn_until(server.conn != NULL && conn_is_open(server.conn));
        assert_int_equal(traffic_class_of(client.conn), cases[i].client);
        assert_int_equal(traffic_class_of(server.conn), cases[i].server);
        close_both();
    }
    rdma_settings.traffic_class = -1;
}

/* --- Limits and failures --- */

static void connections_over_the_limit_are_refused(void **state) {
    rdma_settings.max_clients = 1;
    open_both();
    memset(&second_client, 0, sizeof second_client);
    second_client.on_closed = leave_everything;
    dial(&second_client);
    turn_until(second_client.closed == 1);
    assert_int_equal(second_client.conn->error, ECONNREFUSED);
    assert_int_equal(second_client.connected, 0);
    conn_close(second_client.conn);
    rdma_settings.max_clients = 0;
}

static void a_connect_to_nowhere_names_address_and_reason(void **state) {
    listener_close(listener);
    listener = NULL;
    client.on_closed = leave_everything;
    dial(&client);
    turn_until(client.closed == 1);
    char target[128];
    snprintf(target, sizeof target, "%s:%d", suite.host, suite.port);
    assert_non_null(strstr(conn_error_text(client.conn), target));
    assert_non_null(strstr(conn_error_text(client.conn), "RDMA"));
}

static void a_taken_address_is_named_in_the_error(void **state) {
    char error[300], target[128];
    struct listen_options options = listen_here();
    options.host = "203.0.113.77"; /* not an address of this host */
    options.port = 7;
    snprintf(target, sizeof target, "203.0.113.77:7");
    assert_null(conn_listen(&transport_rdma, loop, &options, error, sizeof error));
    assert_non_null(strstr(error, target));
    assert_non_null(strstr(error, strerror(errno)));
}

static void a_forked_child_leaves_the_connections_alone(void **state) {
    open_both();
    pid_t pid = fork();
    if (pid == 0) {
        rdma_after_fork_child();
        output_write(&client.conn->out, SLICE("never"));
        conn_flush(client.conn);
        conn_close(client.conn);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    send_stream(&client, 100000);
    turn_until(server.consumed == 100000);
    assert_false(server.corrupt);
}

static const struct CMUnitTest small_tests[] = {
    SUITE_TESTS,
    SUITE_TEST(requests_of_every_size_around_the_buffer_end_arrive),
    SUITE_TEST(many_requests_in_flight_straddle_and_stay_in_order),
    SUITE_TEST(both_ends_agree_on_the_ring_and_it_is_counted),
    SUITE_TEST(a_peer_without_a_feature_request_gets_the_base_protocol),
    SUITE_TEST(a_server_that_offers_nothing_is_spoken_to_in_the_base_protocol),
    SUITE_TEST(negotiating_in_the_middle_of_a_stream_loses_nothing),
    SUITE_TEST(requests_of_every_size_up_to_the_ring_and_beyond_pass),
    SUITE_TEST(a_request_as_large_as_the_ring_gets_the_last_free_bytes),
    SUITE_TEST(a_reader_that_always_leaves_something_goes_on),
    SUITE_TEST(random_streams_pass_through_tiny_rings),
    SUITE_TEST(a_ring_grows_when_it_is_filled_quickly),
    SUITE_TEST(data_received_before_the_end_is_delivered_from_both_buffers),
    SUITE_TEST(an_idle_connection_releases_its_send_memory),
    SUITE_TEST(buffers_are_used_again),
    SUITE_TEST(waiting_connections_leave_send_memory_to_others),
    SUITE_TEST(it_describes_itself),
    SUITE_TEST(each_end_retransmits_after_the_configured_acknowledgement_timeout),
    SUITE_TEST(each_end_sends_with_the_traffic_class_of_its_settings),
    SUITE_TEST(connections_over_the_limit_are_refused),
    SUITE_TEST(a_connect_to_nowhere_names_address_and_reason),
    SUITE_TEST(a_taken_address_is_named_in_the_error),
    SUITE_TEST(a_forked_child_leaves_the_connections_alone),
};

static const struct CMUnitTest polled_tests[] = {
    SUITE_TESTS,
    SUITE_TEST(requests_of_every_size_around_the_buffer_end_arrive),
    SUITE_TEST(many_requests_in_flight_straddle_and_stay_in_order),
    SUITE_TEST(a_peer_without_a_feature_request_gets_the_base_protocol),
    SUITE_TEST(a_server_that_offers_nothing_is_spoken_to_in_the_base_protocol),
    SUITE_TEST(negotiating_in_the_middle_of_a_stream_loses_nothing),
    SUITE_TEST(random_streams_pass_through_tiny_rings),
    SUITE_TEST(data_received_before_the_end_is_delivered_from_both_buffers),
    SUITE_TEST(waiting_connections_leave_send_memory_to_others),
    SUITE_TEST(messages_of_busy_peers_need_no_completions),
    SUITE_TEST(an_idle_peer_is_no_longer_polled),
    SUITE_TEST(sleeping_and_polling_in_turn_loses_nothing),
    SUITE_TEST(bytes_visible_after_their_polled_word_are_waited_for),
    SUITE_TEST(a_polled_word_that_never_matches_ends_only_the_polling_period),
    SUITE_TEST(the_last_bytes_before_the_end_are_taken_although_words_are_ignored),
    SUITE_TEST(an_ignored_word_is_checked_as_often_as_others_at_the_end),
    SUITE_TEST(connections_without_a_poll_slot_stay_with_completions),
    SUITE_TEST(peers_without_trust_are_not_polled),
    SUITE_TEST(a_forked_child_leaves_the_connections_alone),
};

static const struct CMUnitTest polled_without_ring_tests[] = {
    SUITE_TEST(requests_of_every_size_around_the_buffer_end_arrive),
    SUITE_TEST(many_requests_in_flight_straddle_and_stay_in_order),
    SUITE_TEST(messages_of_busy_peers_need_no_completions),
    SUITE_TEST(sleeping_and_polling_in_turn_loses_nothing),
};

static const struct CMUnitTest base_tests[] = {
    SUITE_TESTS,
    SUITE_TEST(requests_of_every_size_around_the_buffer_end_arrive),
    SUITE_TEST(many_requests_in_flight_straddle_and_stay_in_order),
    SUITE_TEST(waiting_connections_leave_send_memory_to_others),
    SUITE_TEST(it_describes_itself),
};

static const struct CMUnitTest large_tests[] = {
    SUITE_TEST(long_streams_pass_both_ways_at_once),
    SUITE_TEST(shared_blobs_arrive_between_small_writes),
    SUITE_TEST(large_arguments_land_in_the_callers_memory),
    SUITE_TEST(a_peer_that_does_not_read_makes_the_sender_wait),
};

int main(int argc, char **argv) {
    if (!rdma_device_arranged(argv[0])) return 1;
    int failed = cmocka_run_group_tests_name("rdma", small_tests, use_rdma, NULL);
    failed += cmocka_run_group_tests_name("rdma, polled word", polled_tests, use_polled, leave_polled);
    failed += cmocka_run_group_tests_name("rdma, polled word without ring", polled_without_ring_tests,
                                          use_polled_without_ring, leave_polled);
    failed += cmocka_run_group_tests_name("rdma, base protocol", base_tests, use_base_protocol, NULL);
    return failed + cmocka_run_group_tests_name("rdma, large buffers", large_tests, use_large_buffers, NULL);
}
#endif
