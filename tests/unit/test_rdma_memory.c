/* Receive buffers that grow and shrink, the limit of registered memory, early rejection, and the reuse of freed memory.
 * All guarantees of every transport are tested again for connections that start with a small buffer.
 *
 * Restarts under utils/softrdma/softrdma without a device, as test_rdma.c does. */
#ifdef USE_RDMA
#include "net/rdma/completion.h"
#include "net/rdma/receive.h"
#include "net/rdma/ring.h"
#include "net/rdma/size.h"
#include "rdma_device_arranged.h"
#include "transport_suite.h"
#include <sys/wait.h>

enum {
    SMALL = 16 * 1024,
    LARGE = 1024 * 1024,
    /* In the base protocol a buffer takes at most half of the largest size, plus a margin for the rest of the
     * request. */
    LARGEST_PLAIN = LARGE / 2 + 4096,
};

static const char *own_path;

static int use_small_buffers(void **state) {
    suite = (struct suite){.transport = &transport_rdma, .bulk = 30 << 20, .crowd = 100, .trusting = true};
    const char *ip = getenv("RDMA_IP");
    snprintf(suite.host, sizeof suite.host, "%s", ip ? ip : "127.0.0.1");
    rdma_settings.rx_size = LARGE;
    rdma_settings.rx_initial = SMALL;
    rdma_settings.features = RDMA_FEATURE_RING;
    rdma_settings.max_registered = rdma_settings.max_untrusted = 0;
    return 0;
}
static int use_base_protocol(void **state) {
    use_small_buffers(state);
    rdma_settings.features = 0;
    return 0;
}

static uint32_t size_now(const struct connection *conn) {
    return rdma_of(conn)->receive.rx->size;
}
/* Its memory: the size, or more if the size is a multiple of the length of the peer's writes. */
static uint32_t capacity_now(const struct connection *conn) {
    return rdma_of(conn)->receive.rx->capacity;
}

/* --- The choice of the size --- */

static struct rdma_rx fake_rx;
static struct rdma_connection fake = {.receive.rx = &fake_rx, .receive.least = SMALL};
static uint32_t next_size(uint32_t size, uint64_t took_us, size_t sink_len, bool trusted) {
    fake_rx.capacity = fake_rx.size = size;
    fake.conn.trusted = trusted;
    fake.conn.sink_len = sink_len;
    return rdma_receive_ring_size(&fake, size, took_us);
}
static uint32_t plain_size(uint32_t size, uint32_t messages, uint64_t took_us) {
    fake_rx.capacity = fake_rx.size = size;
    fake.conn.trusted = true;
    fake.conn.sink_len = 0;
    return rdma_receive_plain_size(&fake, messages, took_us);
}

static void the_next_size_follows_the_use_of_the_present_one(void **state) {
    assert_int_equal(next_size(SMALL, 50, 0, true), 4 * SMALL);
    assert_int_equal(next_size(4 * SMALL, 50, 0, true), 16 * SMALL);
    assert_int_equal(next_size(LARGE / 2, 50, 0, true), LARGE);
    assert_int_equal(next_size(LARGE, 50, 0, true), LARGE);
    assert_int_equal(next_size(SMALL, 20000, 0, true), SMALL);
    assert_int_equal(next_size(LARGE, 20000, 0, true), LARGE);
    assert_int_equal(next_size(LARGE, 2000000, 0, true), 16 * SMALL);
    assert_int_equal(next_size(16 * SMALL, 2000000, 0, true), 4 * SMALL);
    assert_int_equal(next_size(4 * SMALL, 2000000, 0, true), SMALL);
    assert_int_equal(next_size(SMALL, 2000000, 0, true), SMALL);
    assert_int_equal(rdma_receive_ring_size(&fake, 0, 1), SMALL);
}

static void a_plain_buffer_that_few_messages_fill_grows_once(void **state) {
    assert_int_equal(plain_size(SMALL, 100, 100), SMALL);    /* many small messages */
    assert_int_equal(plain_size(SMALL, 1, 100), 16 * SMALL); /* a part of something larger */
    assert_int_equal(plain_size(SMALL, 10, 100), 4 * SMALL);
    assert_int_equal(plain_size(SMALL, 4, 100), 16 * SMALL);
    assert_int_equal(plain_size(4 * SMALL, 31, 100), 16 * SMALL);
    assert_int_equal(plain_size(16 * SMALL, 1, 100), LARGEST_PLAIN);
    assert_int_equal(plain_size(LARGEST_PLAIN, 1, 100), LARGEST_PLAIN);
    /* No step ends just below the largest size. */
    fake.receive.least = 32 * 1024;
    assert_int_equal(plain_size(128 * 1024, 1, 100), LARGEST_PLAIN);
    assert_int_equal(plain_size(32 * 1024, 1, 100), LARGEST_PLAIN);
    fake.receive.least = SMALL;
    /* A size that was reached in this way is sufficient for the messages that caused it. */
    assert_int_equal(plain_size(4 * SMALL, 40, 100), 4 * SMALL);
    assert_int_equal(plain_size(16 * SMALL, 64, 100), 16 * SMALL);
    /* Between slow and quick nothing changes, however few the messages. */
    assert_int_equal(plain_size(16 * SMALL, 4, 2000000), 16 * SMALL);
    assert_int_equal(plain_size(16 * SMALL, 1000, 2000000), 16 * SMALL);
    /* The messages are so slow that the time of an announcement does not matter. */
    assert_int_equal(plain_size(LARGEST_PLAIN, 1, 11000000), 16 * SMALL);
    assert_int_equal(plain_size(4 * SMALL, 1000, 11000000), SMALL);
    assert_int_equal(plain_size(SMALL, 1, 11000000), SMALL);
    fake.conn.sink_len = 3 * SMALL; /* a large argument */
    assert_int_equal(rdma_receive_plain_size(&fake, 100, 2000000), 4 * SMALL);
    fake.conn.trusted = false;
    assert_int_equal(rdma_receive_plain_size(&fake, 1, 100), SMALL);
}

/* A peer whose buffer ends in a write, after one write of `length` bytes. */
static uint32_t size_for_writes(uint32_t length, uint32_t part, bool guessed) {
    fake.receive.write_length = length;
    fake.receive.write_part = part;
    fake.receive.write_guessed = guessed;
    uint32_t size = plain_size(16 * SMALL, 1, 100);
    fake.receive.write_length = fake.receive.write_part = 0;
    fake.receive.write_guessed = false;
    return size;
}
static void long_writes_that_are_alike_get_the_largest_buffer(void **state) {
    enum { LONG = 700000, LARGEST = LARGE + 4096 };
    assert_int_equal(size_for_writes(LONG, LONG - SMALL, false), LARGEST);
    assert_int_equal(size_for_writes(16 * LONG, LONG, false), LARGEST); /* only a part of the buffer */
    assert_int_equal(size_for_writes(LONG, SMALL, true), LARGEST);      /* it takes the rest of the first write */
    assert_int_equal(size_for_writes(LARGE / 2, SMALL, false), LARGEST_PLAIN);
    assert_int_equal(size_for_writes(LONG, SMALL, false), LARGEST_PLAIN);     /* may be a short one */
    assert_int_equal(size_for_writes(16 * LONG, SMALL, true), LARGEST_PLAIN); /* may be the only one */
    rdma_settings.max_registered = rdma_registered() + 2 * LARGE;
    assert_int_equal(size_for_writes(LONG, LONG - SMALL, false), LARGEST_PLAIN);
    rdma_settings.max_registered = 0;
}

static void a_large_argument_outweighs_a_slow_arrival(void **state) {
    assert_int_equal(next_size(SMALL, 20000, SMALL - 1, true), SMALL);
    assert_int_equal(next_size(SMALL, 20000, SMALL, true), 4 * SMALL);
    assert_int_equal(next_size(SMALL, 2000000, 512u << 20, true), LARGE);
    assert_int_equal(next_size(LARGE, 2000000, LARGE, true), LARGE);
}

static void an_untrusted_peer_keeps_its_first_buffer_size(void **state) {
    assert_int_equal(next_size(SMALL, 0, 512u << 20, false), SMALL);
    assert_int_equal(next_size(LARGE, 0, 512u << 20, false), SMALL); /* it is no longer trusted */
}

static void sizes_that_are_no_multiples_of_one_another_meet_both_ends(void **state) {
    rdma_settings.rx_size = 100000;
    assert_int_equal(next_size(SMALL, 50, 0, true), 4 * SMALL);
    assert_int_equal(next_size(4 * SMALL, 50, 0, true), 102400);
    assert_int_equal(next_size(102400, 2000000, 0, true), 4 * SMALL);
    rdma_settings.rx_size = SMALL; /* below the minimum */
    assert_int_equal(rdma_receive_first_size(false), RDMA_RX_SIZE_MIN);
    assert_int_equal(rdma_receive_first_size(true), SMALL);
    rdma_settings.rx_initial = 1;
    assert_int_equal(rdma_receive_first_size(true), RDMA_RX_INITIAL_MIN);
    rdma_settings.rx_initial = 0;
    assert_int_equal(rdma_receive_first_size(true), RDMA_RX_SIZE_MIN);
    use_base_protocol(state);
}

/* --- Growing and shrinking on a connection --- */

/* Like turn_until(), on a machine of any speed: the buffer of the server's end fills quickly. */
#define turn_quickly_until(condition)                                                                                  \
    turn_until(((server.conn ? rdma_of(server.conn)->receive.since_us = clock_mono() : 0), (condition)))

/* The next `len` bytes of the stream are received into the server's own memory, like a large argument. */
static void pass_argument(size_t len) {
    char *memory = mem_alloc(len);
    uint64_t from = server.consumed;
    conn_receive_into(server.conn, memory, len);
    client.on_drained = end_pump;
    send_stream(&client, client.sent + len);
    turn_quickly_until(server.conn->sink_len == 0);
    for (size_t i = 0; i < len; i++)
        if (memory[i] != stream_byte(server.expect_seed, from + i)) fail_msg("byte %zu of the argument", i);
    server.consumed += len;
    mem_free(memory);
}

static void pass_stream(uint64_t len) {
    client.on_drained = end_pump;
    send_stream(&client, client.sent + len);
    turn_quickly_until(server.consumed == client.sent);
    assert_false(server.corrupt);
}

static void a_connection_begins_small_and_grows_for_a_large_argument(void **state) {
    uint64_t before = rdma_stats()->grown;
    open_both();
    assert_int_equal(size_now(server.conn), SMALL);
    assert_int_equal(size_now(client.conn), LARGE); /* the connecting end has its full size */
    char text[200];
    transport_rdma.describe(server.conn, text, sizeof text);
    assert_non_null(strstr(text, "rx=16384"));
    pass_argument(3000000);
    /* The buffer may have grown before the ring was negotiated. */
    uint32_t size = capacity_now(server.conn);
    assert_true(size == LARGEST_PLAIN || (size == LARGE && rdma_settings.features & RDMA_FEATURE_RING));
    assert_true(rdma_stats()->grown > before);
    pass_stream(3000000);
    transport_rdma.describe(server.conn, text, sizeof text);
    char expected[40];
    snprintf(expected, sizeof expected, "rx=%u", size_now(server.conn));
    assert_non_null(strstr(text, expected));
}

/* --- Buffers that end with the writes of the peer, in the base protocol --- */

/* Passes one write of `len` bytes. True: the peer had to wait, because it filled a buffer in the middle of the
 * write. */
static bool pass_write(uint32_t len) {
    uint64_t stalls = rdma_stats()->stalls;
    char *bytes = mem_alloc(len);
    for (uint32_t i = 0; i < len; i++) bytes[i] = stream_byte(client.send_seed, client.sent + i);
    turn_until(rdma_of(client.conn)->send.window > 0);
    output_write(&client.conn->out, slice_make(bytes, len));
    mem_free(bytes);
    conn_flush(client.conn);
    client.sent = client.to_send += len;
    turn_quickly_until(server.consumed == client.sent);
    assert_false(server.corrupt);
    return rdma_stats()->stalls != stalls;
}

static void buffers_end_with_the_writes_of_a_peer_whose_writes_are_alike(void **state) {
    static const uint32_t lengths[] = {5000, 16433, 70001, 100003, 24000};
    open_both();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int k = 0; k < 300; k++) pass_write(lengths[i]);
        for (int k = 0; k < 100; k++) assert_false(pass_write(lengths[i]));
        assert_int_equal(size_now(server.conn) % lengths[i], 0);
        assert_in_range(size_now(server.conn), lengths[i], 4 * lengths[i]);
        assert_null(rdma_of(server.conn)->receive.next); /* one buffer is enough for it */
    }
    assert_in_range(rdma_of(server.conn)->receive.rx->capacity, 100003, LARGEST_PLAIN);
}

static void writes_of_many_lengths_do_not_change_the_size_again_and_again(void **state) {
    open_both();
    uint32_t size = size_now(server.conn);
    int changes = 0;
    for (int i = 0; i < 3000; i++) {
        pass_write(1000 + (uint32_t)random_below(i % 3 ? 3000 : 60000));
        turn_until(!rdma_of(server.conn)->receive.next);
        changes += size_now(server.conn) != size;
        size = size_now(server.conn);
    }
    assert_in_range(changes, 1, 10);
    assert_in_range(capacity_now(server.conn), LARGE / 2, LARGEST_PLAIN);
}

/* The header of the first write, which is larger than the buffer, has its length. */
static size_t argument_end; /* the offset of its end in the stream */
static void take_argument(struct end *end) {
    struct slice in = conn_peek(end->conn);
    if (end->conn->sink_len || !in.len) return;
    if (end->area && end->consumed < argument_end) end->consumed = argument_end; /* it has arrived */
    end_check(end, in.data, in.len);
    end->consumed += in.len;
    conn_consume(end->conn, in.len);
    if (end->area) return;
    end->area = mem_alloc(argument_end);
    conn_receive_into(end->conn, end->area, argument_end - end->consumed);
}
/* `len` bytes, the last two of which follow the argument. */
static void first_write_of(size_t len) {
    argument_end = len - 2;
    open_both();
    server.on_readable = take_argument;
    char *bytes = mem_alloc(len);
    for (size_t i = 0; i < len; i++) bytes[i] = stream_byte(client.send_seed, i);
    turn_until(rdma_of(client.conn)->send.window > 0);
    output_write(&client.conn->out, slice_make(bytes, len));
    conn_flush(client.conn);
    turn_quickly_until(server.area && server.consumed == len);
    assert_memory_equal(server.area, bytes + SMALL, len - 2 - SMALL);
    mem_free(bytes);
}
static void the_first_large_argument_tells_the_size_of_the_next_buffer(void **state) {
    enum { LEN = 60002 };
    first_write_of(LEN);
    assert_int_equal(size_now(server.conn), LEN - SMALL + 4 * LEN);
    mem_free(server.area);
}

/* The first write is one request that is larger than half of the largest buffer: its rest gets a separate buffer, and
 * later writes get a buffer of the size of one write. */
static void buffers_have_the_length_of_the_first_request_at_once(void **state) {
    enum { LEN = 60002 };
    rdma_settings.rx_size = RDMA_RX_SIZE_MIN;
    first_write_of(LEN);
    turn_until(size_now(server.conn) == LEN);
    client.sent = client.to_send = LEN;
    for (int i = 0; i < 10; i++) assert_false(pass_write(LEN));
    mem_free(server.area);
    use_base_protocol(state);
}

/* A sleep that soon ends costs more than spinning. */
static void the_thread_spins_for_longer_after_short_sleeps(void **state) {
    open_both();
    struct rdma_device *device = rdma_of(server.conn)->qp.device;
    uint32_t before = rdma_settings.busy_poll_us;
    const uint32_t *spin_us = &device->poller.spin_us;
    rdma_settings.busy_poll_us = 20;
    device->short_waits = 0;
    rdma_device_woke(device, RDMA_SPIN_LONG_US - 1);
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, 20);
    rdma_device_woke(device, RDMA_SPIN_LONG_US - 1);
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, RDMA_SPIN_LONG_US);
    rdma_settings.busy_poll_us = 0; /* never */
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, 0);
    rdma_settings.busy_poll_us = 1000;
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, 1000);
    rdma_device_woke(device, RDMA_SPIN_LONG_US);
    rdma_settings.busy_poll_us = 20;
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, 20);
    for (int i = 0; i < RDMA_SHORT_WAITS; i++) rdma_device_woke(device, 0);
    uint64_t sleeps = rdma_stats()->sleeps;
    turn_until(rdma_stats()->sleeps > sleeps); /* nothing has arrived meanwhile */
    device->poller.poll(&device->poller);
    assert_int_equal(*spin_us, 20);
    rdma_settings.busy_poll_us = before;
}

/* For the server, the rest of the current buffer takes 11 seconds to arrive. */
static void fill_the_rest_slowly(void) {
    struct rdma_connection *c = rdma_of(server.conn);
    c->receive.since_us = clock_mono() - 11000000;
    client.on_drained = end_pump;
    send_stream(&client, client.sent + c->receive.rx->size - c->receive.received);
    turn_until(server.consumed == client.sent);
    assert_false(server.corrupt);
    turn_until(c->receive.received < c->receive.rx->size && !c->receive.next);
}

static void a_connection_that_has_become_slow_shrinks_step_by_step(void **state) {
    open_both();
    pass_argument(3000000);
    turn_until(!rdma_of(server.conn)->receive.next);
    for (uint32_t expected = 16 * SMALL; expected >= SMALL; expected /= 4) {
        fill_the_rest_slowly();
        assert_int_equal(capacity_now(server.conn), expected);
    }
    fill_the_rest_slowly();
    assert_int_equal(capacity_now(server.conn), SMALL);
    pass_stream(1000000);
}

/* Half a minute of the tick's clock. */
static void a_connection_that_is_quiet_for_long_goes_back_to_its_first_buffer(void **state) {
    open_both();
    pass_argument(3000000);
    pass_stream(12345);
    struct rdma_connection *c = rdma_of(server.conn);
    turn_until(size_now(server.conn) >= LARGE && !c->receive.next);
    rdma_ring_tick(c, clock_mono());
    rdma_ring_tick(c, clock_mono() + 20000000);
    assert_null(c->receive.next);
    rdma_ring_tick(c, clock_mono() + 31000000);
    assert_non_null(c->receive.next);
    turn_until(size_now(server.conn) == SMALL);
    pass_stream(3000000);
    pass_argument(3000000);
    pass_stream(1000);
    assert_true(size_now(server.conn) > SMALL);
}

/* The same with data that the peer sends before it learns of the other buffer. */
static void going_back_to_a_small_buffer_amid_a_stream_loses_nothing(void **state) {
    open_both();
    for (int i = 0; i < 20; i++) {
        pass_argument(2500000);
        struct rdma_connection *c = rdma_of(server.conn);
        turn_until(!c->receive.next && size_now(server.conn) >= LARGE);
        rdma_ring_tick(c, clock_mono());
        client.on_drained = end_pump;
        send_stream(&client, client.sent + random_below(2000000));
        rdma_ring_tick(c, clock_mono() + 31000000);
        turn_until(server.consumed == client.sent);
        assert_false(server.corrupt);
    }
}

static void an_untrusted_connection_keeps_its_first_buffer(void **state) {
    suite.trusting = false;
    open_both();
    pass_stream(500000);
    pass_argument(2000000);
    assert_int_equal(size_now(server.conn), SMALL);
    conn_set_trusted(server.conn, true);
    pass_argument(2000000);
    assert_true(size_now(server.conn) > SMALL);
    suite.trusting = true;
}

/* --- The second buffer of the base protocol --- */

static uint64_t second_bytes(const struct rdma_connection *c) {
    return c->qp.device->memory.second_bytes;
}

/* Fills all receive space of the peer. */
static void fill_all_buffers(void) {
    conn_set_reading(server.conn, false);
    client.on_drained = end_pump;
    send_stream(&client, 8 * LARGE);
    turn_until(rdma_of(server.conn)->receive.writable == 0 && rdma_of(client.conn)->send.window == 0);
}

static void a_peer_may_go_on_in_a_second_buffer_before_the_first_is_read(void **state) {
    open_both();
    struct rdma_connection *c = rdma_of(server.conn);
    fill_all_buffers();
    turn_until(c->receive.next && c->receive.next_received == c->receive.next->size);
    assert_int_equal(c->receive.rx->size, SMALL);
    assert_int_equal(server.conn->bytes_in, SMALL + c->receive.next->size);
    assert_int_equal(server.readable, 0);
    size_t input;
    transport_rdma.memory(server.conn, &input, NULL);
    assert_int_equal(input, SMALL + c->receive.next->size);
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == client.to_send);
    assert_false(server.corrupt);
}

static void data_in_both_buffers_is_delivered_before_the_end(void **state) {
    open_both();
    fill_all_buffers();
    turn_until(rdma_of(server.conn)->receive.next);
    uint32_t held = SMALL + rdma_of(server.conn)->receive.next->size;
    turn_until(server.conn->bytes_in == held);
    conn_close(client.conn);
    client.conn = NULL;
    turn_until(rdma_of(server.conn)->end_pending);
    assert_int_equal(server.closed, 0);
    conn_set_reading(server.conn, true);
    turn_until(server.closed);
    assert_int_equal(server.consumed, held);
    assert_false(server.corrupt);
}

static void an_untrusted_peer_has_one_buffer(void **state) {
    suite.trusting = false;
    open_both();
    fill_all_buffers();
    assert_null(rdma_of(server.conn)->receive.next);
    assert_int_equal(server.conn->bytes_in, SMALL);
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == client.to_send);
    assert_int_equal(size_now(server.conn), SMALL);
    assert_int_equal(second_bytes(rdma_of(server.conn)), 0);
    suite.trusting = true;
}

static void two_buffers_take_turns_and_the_second_goes_when_the_peer_is_quiet(void **state) {
    rdma_settings.rx_initial = 0;
    rdma_settings.rx_size = RDMA_RX_SIZE_MIN; /* it cannot grow beyond this */
    open_both();
    struct rdma_connection *c = rdma_of(server.conn);
    assert_int_equal(second_bytes(c), 0);
    pass_stream(RDMA_RX_SIZE_MIN + 1);
    uint64_t with_two = second_bytes(c), registered = rdma_registered();
    assert_non_null(c->receive.spare);
    assert_in_range(with_two, RDMA_RX_SIZE_MIN, 2 * RDMA_RX_SIZE_MIN); /* the other end may have one as well */
    pass_stream(3000000);
    assert_int_equal(rdma_registered(), registered);
    rdma_receive_tick(c, clock_mono());
    assert_non_null(c->receive.spare);
    rdma_receive_tick(c, clock_mono() + 10000000);
    assert_null(c->receive.spare);
    assert_int_equal(second_bytes(c), with_two - RDMA_RX_SIZE_MIN);
    pass_stream(3000000);
    assert_non_null(c->receive.spare);
    use_base_protocol(state);
}

static void second_buffers_are_bounded_and_leave_nothing_behind(void **state) {
    rdma_settings.rx_initial = 0;
    open_both();
    struct rdma_connection *c = rdma_of(server.conn);
    struct rdma_memory *memory = &c->qp.device->memory;
    uint64_t others = 64 << 20; /* as if other connections used them all */
    memory->second_bytes += others;
    pass_stream(5 * LARGE);
    assert_null(c->receive.spare);
    assert_int_equal(memory->second_bytes, others);
    memory->second_bytes -= others;
    fill_all_buffers();
    assert_int_equal(memory->second_bytes, LARGE);
    conn_close(server.conn);
    server.conn = NULL;
    turn_until(memory->second_bytes == 0);
    use_base_protocol(state);
}

/* --- Limits --- */

static void leave(struct end *end) {}
/* Connects again; `far` is the server's end. Returns whether it succeeded. */
static bool dial_another(struct end *end, struct connection **far) {
    memset(end, 0, sizeof *end);
    end->on_closed = leave;
    server.conn = NULL;
    dial(end);
    turn_until(end->closed || (conn_is_open(end->conn) && server.conn));
    if (far) *far = server.conn;
    return !end->closed;
}
static void hang_up(struct end *end) {
    conn_close(end->conn);
    end->conn = NULL;
    for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
}

static void untrusted_connections_share_their_bound(void **state) {
    struct end ends[4];
    struct connection *far[4];
    uint64_t before = rdma_stats()->refusals[RDMA_REFUSED_UNTRUSTED];
    suite.trusting = false;
    rdma_settings.max_untrusted = 2 * SMALL;
    assert_true(dial_another(&ends[0], &far[0]));
    assert_true(dial_another(&ends[1], &far[1]));
    assert_int_equal(rdma_stats()->untrusted_bytes, 2 * SMALL);
    assert_false(dial_another(&ends[2], NULL));
    assert_int_equal(ends[2].conn->error, ECONNREFUSED);
    assert_int_equal(rdma_stats()->refusals[RDMA_REFUSED_UNTRUSTED], before + 1);
    conn_set_trusted(far[0], true);
    assert_int_equal(rdma_stats()->untrusted_bytes, SMALL);
    assert_true(dial_another(&ends[3], &far[3]));
    for (int i = 0; i < 4; i++) hang_up(&ends[i]);
    turn_until(rdma_stats()->untrusted_bytes == 0);
    server.conn = NULL;
    suite.trusting = true;
}

/* Its owner does not read its last bytes, so its buffer stays in use. */
static void an_untrusted_connection_keeps_its_share_while_its_end_waits(void **state) {
    struct end ends[3];
    struct connection *far[3];
    uint64_t closed = rdma_stats()->untrusted_closed;
    uint32_t timeout = rdma_settings.trust_timeout_ms;
    suite.trusting = false;
    rdma_settings.max_untrusted = 2 * SMALL;
    assert_true(dial_another(&ends[0], &far[0]));
    assert_true(dial_another(&ends[1], &far[1]));
    conn_set_reading(far[0], false);
    output_write(&ends[0].conn->out, SLICE("last"));
    hang_up(&ends[0]);
    turn_until(rdma_of(far[0])->end_pending);
    rdma_settings.trust_timeout_ms = 1;
    assert_true(dial_another(&ends[2], &far[2]));
    turn_until(ends[1].closed == 1);
    assert_true(conn_is_open(far[0]));
    assert_int_equal(rdma_stats()->untrusted_closed, closed + 1);
    assert_int_equal(rdma_stats()->untrusted_bytes, 2 * SMALL);
    conn_set_reading(far[0], true);
    if (ends[1].conn) hang_up(&ends[1]);
    hang_up(&ends[2]);
    turn_until(rdma_stats()->untrusted_bytes == 0);
    server.conn = NULL;
    rdma_settings.trust_timeout_ms = timeout;
    suite.trusting = true;
}

static void connections_not_trusted_in_time_are_closed_oldest_first(void **state) {
    struct end ends[4];
    struct connection *far[4];
    uint64_t refused = rdma_stats()->refusals[RDMA_REFUSED_UNTRUSTED], closed = rdma_stats()->untrusted_closed;
    uint32_t timeout = rdma_settings.trust_timeout_ms;
    suite.trusting = false;
    rdma_settings.max_untrusted = 2 * SMALL;
    rdma_settings.trust_timeout_ms = 60000;
    for (int i = 0; i < 3; i++) { /* the first one is trusted and does not count */
        assert_true(dial_another(&ends[i], &far[i]));
        if (i == 0) conn_set_trusted(far[0], true);
    }
    assert_false(dial_another(&ends[3], NULL));
    assert_int_equal(rdma_stats()->refusals[RDMA_REFUSED_UNTRUSTED], refused + 1);
    hang_up(&ends[3]);
    rdma_settings.trust_timeout_ms = 1;
    assert_true(dial_another(&ends[3], &far[3]));
    turn_until(ends[1].closed == 1);
    assert_int_equal(ends[0].closed + ends[2].closed + ends[3].closed, 0);
    assert_int_equal(rdma_stats()->untrusted_closed, closed + 1);
    assert_int_equal(rdma_stats()->untrusted_bytes, 2 * SMALL);
    /* Below the limit no connection gets a deadline. */
    conn_set_trusted(far[3], true);
    uint64_t until = clock_monotonic_us() + 600000;
    while (clock_monotonic_us() < until) event_loop_turn(loop, 10000);
    assert_int_equal(ends[2].closed, 0);
    for (int i = 0; i < 4; i++)
        if (ends[i].conn) hang_up(&ends[i]);
    turn_until(rdma_stats()->untrusted_bytes == 0);
    server.conn = NULL;
    rdma_settings.trust_timeout_ms = timeout;
    suite.trusting = true;
}

static void at_the_limit_buffers_stay_and_connections_are_refused(void **state) {
    struct end second, third;
    uint64_t before = rdma_stats()->refusals[RDMA_REFUSED_MEMORY];
    open_both();
    struct connection *first = server.conn;
    rdma_settings.max_registered = rdma_registered();
    pass_argument(3000000);
    assert_int_equal(size_now(first), SMALL);
    pass_stream(200000);
    /* Enough for the end that connects, not for the one that accepts. */
    rdma_settings.max_registered = rdma_registered() + LARGE + SMALL / 2;
    assert_false(dial_another(&second, NULL));
    assert_int_equal(second.conn->error, ECONNREFUSED);
    assert_int_equal(rdma_stats()->refusals[RDMA_REFUSED_MEMORY], before + 1);
    hang_up(&second);
    rdma_settings.max_registered = rdma_registered() + LARGE + SMALL;
    assert_true(dial_another(&third, NULL));
    assert_true(rdma_registered() <= rdma_settings.max_registered);
    hang_up(&third);
    rdma_settings.max_registered = 0;
    server.conn = first;
    pass_argument(3000000);
    assert_int_equal(capacity_now(first), LARGEST_PLAIN);
}

static void an_own_connection_beyond_the_bound_names_the_option(void **state) {
    open_both();
    struct connection *first = server.conn;
    struct end second;
    rdma_settings.max_registered = rdma_registered();
    assert_false(dial_another(&second, NULL));
    assert_non_null(strstr(conn_error_text(second.conn), "rdma-max-registered-memory"));
    hang_up(&second);
    rdma_settings.max_registered = 0;
    server.conn = first;
}

static bool no_space(struct listener *from) {
    return false;
}
static void at_the_limit_few_connections_are_accepted_to_receive_the_error(void **state) {
    enum { MANY = 130 };
    static struct end ends[MANY];
    uint64_t before = rdma_stats()->refusals[RDMA_REFUSED_FULL], accepted = rdma_stats()->accepted;
    rdma_settings.rx_size = RDMA_RX_SIZE_MIN;
    listener->has_capacity = no_space;
    int refused = 0;
    for (int i = 0; i < MANY; i++) refused += !dial_another(&ends[i], NULL);
    uint64_t seen = rdma_stats()->refusals[RDMA_REFUSED_FULL] - before;
    assert_int_equal(refused, seen);
    assert_int_equal(rdma_stats()->accepted - accepted, MANY - seen);
    assert_true(rdma_stats()->accepted - accepted >= 100);
    for (int i = 0; i < MANY; i++) hang_up(&ends[i]);
    server.conn = NULL;
    use_base_protocol(state);
}

/* --- Freed memory --- */

static struct rdma_memory *memory_of_the_loop(void) {
    open_both();
    return &rdma_of(server.conn)->qp.device->memory;
}

static void a_buffer_with_an_announced_key_is_reused_cleared_under_another_key(void **state) {
    struct rdma_memory *memory = memory_of_the_loop();
    enum { SIZE = 5 * 4096 }; /* a size that no other test uses */
    struct rdma_rx *rx = rdma_rx_take(memory, SIZE);
    const char *data = rx->data;
    uint32_t key = rx->mr->rkey;
    memset(rx->data, 'x', SIZE);
    rx->announced = true;
    rdma_rx_give(memory, rx);
    rx = rdma_rx_take(memory, SIZE); /* without a cleanup in between */
    assert_ptr_equal(rx->data, data);
    assert_int_not_equal(rx->mr->rkey, key);
    for (int i = 0; i < SIZE; i++) assert_int_equal(rx->data[i], 0);
    key = rx->mr->rkey;
    memset(rx->data, 'y', SIZE);
    rx->announced = true;
    rdma_rx_give(memory, rx);
    turn_until(rdma_stats()->receive_ready > 0);
    rx = rdma_rx_take(memory, SIZE);
    assert_ptr_equal(rx->data, data);
    assert_int_not_equal(rx->mr->rkey, key);
    for (int i = 0; i < SIZE; i++) assert_int_equal(rx->data[i], 0);
    rdma_rx_give(memory, rx);
}

static void a_buffer_with_an_unannounced_key_is_reused_at_once(void **state) {
    struct rdma_memory *memory = memory_of_the_loop();
    enum { SIZE = 5 * 4096 };
    struct rdma_rx *rx = rdma_rx_take(memory, SIZE);
    uint32_t key = rx->mr->rkey;
    for (int i = 0; i < 10; i++) {
        rdma_rx_give(memory, rx);
        rx = rdma_rx_take(memory, SIZE);
        assert_int_equal(rx->mr->rkey, key);
    }
    rdma_rx_give(memory, rx);
}

static void unused_ready_buffers_are_freed(void **state) {
    enum { MANY = 500, SIZE = 32 * 1024 };
    static struct rdma_rx *taken[MANY];
    struct rdma_memory *memory = memory_of_the_loop();
    uint64_t before = rdma_stats()->registered[RDMA_MEMORY_RECEIVE];
    for (int i = 0; i < MANY; i++) assert_non_null(taken[i] = rdma_rx_take(memory, SIZE));
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_RECEIVE], before + MANY * SIZE);
    for (int i = 0; i < MANY; i++) {
        taken[i]->announced = i % 2;
        rdma_rx_give(memory, taken[i]);
    }
    while (rdma_memory_tidy(memory, 1000)) continue;
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_RECEIVE], before + MANY * SIZE); /* they may be used again */
    int ages = 0;
    while (rdma_memory_age(memory) && ages < 20) ages++;
    assert_true(ages < 20);
    assert_true(rdma_stats()->registered[RDMA_MEMORY_RECEIVE] <= before + RDMA_RX_KEPT_LEAST);
}

static void ready_buffers_are_freed_at_the_limit(void **state) {
    enum { MANY = 16, SIZE = 64 * 1024 };
    static struct rdma_rx *taken[MANY];
    struct rdma_memory *memory = memory_of_the_loop();
    for (int i = 0; i < MANY; i++) assert_non_null(taken[i] = rdma_rx_take(memory, SIZE));
    for (int i = 0; i < MANY; i++) rdma_rx_give(memory, taken[i]);
    rdma_settings.max_registered = rdma_registered();
    assert_true(rdma_rx_available(memory, MANY * SIZE / 2));
    assert_false(rdma_rx_available(memory, MANY * SIZE + 4096));
    struct rdma_rx *other = rdma_rx_take(memory, MANY * SIZE / 2);
    assert_non_null(other);
    assert_true(rdma_registered() <= rdma_settings.max_registered);
    assert_null(rdma_rx_take(memory, MANY * SIZE + 4096));
    assert_int_equal(errno, EDQUOT);
    rdma_settings.max_registered = 0;
    rdma_rx_give(memory, other);
}

static void growth_leaves_the_last_part_of_the_bound_and_is_seldom_registered(void **state) {
    struct rdma_memory *memory = memory_of_the_loop();
    struct rdma_rx *taken[RDMA_GROWTHS_A_TICK];
    int count = 0;
    memory->growths_left = 3;
    while ((taken[count] = rdma_rx_take_to_grow(memory, 8192))) count++;
    assert_int_equal(count, 3);
    while (count > 0) rdma_rx_give(memory, taken[--count]);
    while ((taken[count] = rdma_rx_take_to_grow(memory, 8192))) count++;
    assert_int_equal(count, 3); /* ready buffers cost nothing */
    while (count > 0) rdma_rx_give(memory, taken[--count]);
    memory->growths_left = 1;
    rdma_settings.max_registered = rdma_registered() + 2 * LARGE;
    assert_null(rdma_rx_take_to_grow(memory, 2 * LARGE));
    struct rdma_rx *rx = rdma_rx_take(memory, 2 * LARGE);
    assert_non_null(rx);
    assert_true(rdma_memory_is_short());
    rdma_settings.max_registered = 0;
    assert_false(rdma_memory_is_short());
    rdma_rx_give(memory, rx);
}

/* Takes all chunks and returns their number. */
static size_t take_all(struct rdma_memory *memory) {
    size_t count = 0;
    while (rdma_chunk_take(memory)) count++; /* their slabs are freed with them */
    assert_int_equal(errno, ENOBUFS);
    return count;
}
static void send_memory_is_bounded_for_all_threads_together(void **state) {
    enum { A_SLAB = RDMA_SLAB_SIZE / RDMA_CHUNK_SIZE };
    open_both();
    struct rdma_device *device = rdma_of(client.conn)->qp.device;
    uint64_t before = rdma_settings.send_memory;
    struct rdma_stats stats = {0};
    struct rdma_memory first, second;
    rdma_memory_init(&first, device->pd, &stats);
    rdma_memory_init(&second, device->pd, &stats);
    rdma_settings.send_memory = device->memory.send_bytes + 3 * RDMA_SLAB_SIZE;
    assert_int_equal(take_all(&first), 3 * A_SLAB);
    assert_int_equal(take_all(&second), A_SLAB); /* this much is always available */
    rdma_memory_free(&first);
    assert_int_equal(take_all(&second), 2 * A_SLAB);
    rdma_memory_free(&second);
    assert_int_equal(stats.registered_bytes, 0);
    rdma_settings.send_memory = before;
}

static void unused_send_memory_is_freed(void **state) {
    enum { MANY = 5 * RDMA_SLAB_SIZE / RDMA_CHUNK_SIZE };
    static struct rdma_chunk *taken[MANY];
    struct rdma_memory *memory = memory_of_the_loop();
    uint64_t before = rdma_stats()->registered[RDMA_MEMORY_SEND];
    assert_int_equal(before, RDMA_SLAB_SIZE);
    for (int i = 0; i < MANY; i++) assert_non_null(taken[i] = rdma_chunk_take(memory));
    struct rdma_chunk *kept = taken[MANY / 2];
    for (int i = 0; i < MANY; i++)
        if (taken[i] != kept) rdma_chunk_give(memory, taken[i]);
    rdma_memory_age(memory); /* they were used recently */
    assert_true(rdma_stats()->registered[RDMA_MEMORY_SEND] > 2 * RDMA_SLAB_SIZE);
    for (int i = 0; i < 10; i++) rdma_memory_age(memory);
    assert_true(rdma_stats()->registered[RDMA_MEMORY_SEND] <= 2 * RDMA_SLAB_SIZE);
    memset(kept->data, 'k', RDMA_CHUNK_SIZE);
    rdma_chunk_give(memory, kept);
    for (int i = 0; i < 10; i++) rdma_memory_age(memory);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_SEND], before);
    pass_stream(1000000);
}

/* --- Receives that the device does not accept, in a separate process with faults --- */

static void receives_that_could_not_be_posted_are_posted_later(void **state) {
    static const char *const faults[] = {"post_recv:fail=ENOMEM,p=30,seed=3,from=200",
                                         "post_recv:fail=ENOMEM,from=150,count=400"};
    if (strncmp(rdma_device_name(), "softrdma", 8) != 0) skip();
    for (size_t i = 0; i < 4; i++) {
        setenv("SOFTRDMA_FAULTS", faults[i / 2], 1);
        if (i % 2) setenv("SOFTRDMA_MAX_SRQ", "0", 1);
        pid_t pid = fork();
        if (pid == 0) {
            execl(own_path, own_path, "--receives", (char *)NULL);
            _exit(127);
        }
        unsetenv("SOFTRDMA_FAULTS");
        unsetenv("SOFTRDMA_MAX_SRQ");
        int status;
        waitpid(pid, &status, 0);
        if (status)
            fail_msg("\"%s\"%s: status %x", faults[i / 2], i % 2 ? " without shared queue" : "", (unsigned)status);
    }
}
static int receives_main(void) {
    use_base_protocol(NULL);
    if (suite_setup(NULL)) return 2;
    open_both();
    uint64_t depth = rdma_stats()->receives_posted + rdma_stats()->unposted_receives, most = 0;
    for (int i = 0; i < 6000; i++) {
        send_stream(&client, client.sent + 1);
        while (server.consumed < client.sent) event_loop_turn(loop, 1000);
        if (rdma_stats()->unposted_receives > most) most = rdma_stats()->unposted_receives;
    }
    if (server.corrupt || server.closed || client.closed) return 3;
    if (most == 0) return 4; /* no fault was injected */
    unsetenv("SOFTRDMA_FAULTS");
    uint64_t end = clock_monotonic_us() + 20000000;
    while (rdma_stats()->unposted_receives && clock_monotonic_us() < end) event_loop_turn(loop, 10000);
    if (rdma_stats()->unposted_receives) return 5;
    event_loop_turn(loop, 0);
    bool shared = rdma_of(server.conn)->qp.device->shared_count;
    if (shared && rdma_stats()->receives_posted != depth) return 6;
    suite_teardown(NULL);
    return rdma_stats()->registered_bytes || rdma_stats()->unposted_receives ? 7 : 0;
}

/* --- A shared queue that runs low, in a separate process with short queues --- */

static void further_connections_use_another_queue_when_one_runs_low(void **state) {
    if (strncmp(rdma_device_name(), "softrdma", 8) != 0) skip();
    setenv("SOFTRDMA_MAX_SRQ_WR", "64", 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl(own_path, own_path, "--low", (char *)NULL);
        _exit(127);
    }
    unsetenv("SOFTRDMA_MAX_SRQ_WR");
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}
/* Sends messages of one byte, each of which uses a receive, while no completions are handled. */
static void use_up_receives(void) {
    for (int i = 0; i < 60; i++) {
        char byte = stream_byte(client.send_seed, client.sent++);
        output_write(&client.conn->out, slice_make(&byte, 1));
        conn_flush(client.conn);
    }
}
static int low_main(void) {
    use_base_protocol(NULL);
    if (suite_setup(NULL)) return 2;
    open_both();
    while (rdma_of(client.conn)->send.posted != rdma_of(client.conn)->send.retired) event_loop_turn(loop, 10000);
    const struct rdma_shared *first = rdma_of(server.conn)->qp.shared;
    if (!first || first->depth != 64 || rdma_stats()->receives_low || rdma_stats()->shared_queues != 1) return 3;
    use_up_receives();
    turn_until(server.consumed == client.sent && rdma_stats()->receives_low == 1);
    turn_until(first->armed); /* it is reported again */
    while (rdma_of(client.conn)->send.posted != rdma_of(client.conn)->send.retired) event_loop_turn(loop, 10000);
    use_up_receives();
    turn_until(server.consumed == client.sent && rdma_stats()->receives_low == 2);
    if (server.corrupt || first->posted != 64) return 4;
    struct end *other = &second_client;
    const struct connection *before = server.conn;
    listener->accepted = take_second;
    dial(other);
    turn_until(second_server.conn && conn_is_open(second_server.conn) && conn_is_open(other->conn));
    if (server.conn != before || rdma_of(second_server.conn)->qp.shared == first) return 5;
    if (rdma_stats()->shared_queues != 2 || rdma_stats()->receives_posted != 128) return 6;
    conn_close(other->conn);
    turn_until(second_server.closed);
    suite_teardown(NULL);
    return rdma_stats()->registered_bytes || rdma_stats()->shared_queues ? 7 : 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--low") == 0) return low_main();
    if (argc == 2 && strcmp(argv[1], "--receives") == 0) return receives_main();
    own_path = argv[0];
    if (!rdma_device_arranged(own_path)) return 1;
    const struct CMUnitTest ring[] = {
        SUITE_TESTS,
        SUITE_TEST(a_connection_begins_small_and_grows_for_a_large_argument),
        SUITE_TEST(a_connection_that_is_quiet_for_long_goes_back_to_its_first_buffer),
        SUITE_TEST(going_back_to_a_small_buffer_amid_a_stream_loses_nothing),
        SUITE_TEST(an_untrusted_connection_keeps_its_first_buffer),
    };
    const struct CMUnitTest base[] = {
        SUITE_TESTS,
        SUITE_TEST(the_next_size_follows_the_use_of_the_present_one),
        SUITE_TEST(a_large_argument_outweighs_a_slow_arrival),
        SUITE_TEST(an_untrusted_peer_keeps_its_first_buffer_size),
        SUITE_TEST(sizes_that_are_no_multiples_of_one_another_meet_both_ends),
        SUITE_TEST(a_connection_begins_small_and_grows_for_a_large_argument),
        SUITE_TEST(a_connection_that_has_become_slow_shrinks_step_by_step),
        SUITE_TEST(buffers_end_with_the_writes_of_a_peer_whose_writes_are_alike),
        SUITE_TEST(long_writes_that_are_alike_get_the_largest_buffer),
        SUITE_TEST(writes_of_many_lengths_do_not_change_the_size_again_and_again),
        SUITE_TEST(the_first_large_argument_tells_the_size_of_the_next_buffer),
        SUITE_TEST(buffers_have_the_length_of_the_first_request_at_once),
        SUITE_TEST(the_thread_spins_for_longer_after_short_sleeps),
        SUITE_TEST(an_untrusted_connection_keeps_its_first_buffer),
        SUITE_TEST(a_plain_buffer_that_few_messages_fill_grows_once),
        SUITE_TEST(a_peer_may_go_on_in_a_second_buffer_before_the_first_is_read),
        SUITE_TEST(data_in_both_buffers_is_delivered_before_the_end),
        SUITE_TEST(an_untrusted_peer_has_one_buffer),
        SUITE_TEST(two_buffers_take_turns_and_the_second_goes_when_the_peer_is_quiet),
        SUITE_TEST(second_buffers_are_bounded_and_leave_nothing_behind),
        SUITE_TEST(untrusted_connections_share_their_bound),
        SUITE_TEST(an_untrusted_connection_keeps_its_share_while_its_end_waits),
        SUITE_TEST(connections_not_trusted_in_time_are_closed_oldest_first),
        SUITE_TEST(at_the_limit_buffers_stay_and_connections_are_refused),
        SUITE_TEST(an_own_connection_beyond_the_bound_names_the_option),
        SUITE_TEST(at_the_limit_few_connections_are_accepted_to_receive_the_error),
        SUITE_TEST(a_buffer_with_an_announced_key_is_reused_cleared_under_another_key),
        SUITE_TEST(a_buffer_with_an_unannounced_key_is_reused_at_once),
        SUITE_TEST(unused_ready_buffers_are_freed),
        SUITE_TEST(ready_buffers_are_freed_at_the_limit),
        SUITE_TEST(growth_leaves_the_last_part_of_the_bound_and_is_seldom_registered),
        SUITE_TEST(unused_send_memory_is_freed),
        SUITE_TEST(send_memory_is_bounded_for_all_threads_together),
        SUITE_TEST(receives_that_could_not_be_posted_are_posted_later),
        SUITE_TEST(further_connections_use_another_queue_when_one_runs_low),
    };
    int failed = cmocka_run_group_tests_name("rdma, small first buffers", ring, use_small_buffers, NULL);
    return failed +
           cmocka_run_group_tests_name("rdma, small first buffers, base protocol", base, use_base_protocol, NULL);
}
#endif
