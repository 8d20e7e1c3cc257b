/* The links of the cluster bus: two buses in one loop, and peers that send anything; over TCP and over TLS. */
#include "unit.h"
#include "cluster/bus.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#ifdef USE_TLS
#include "certificates.h"
#include "net/tls.h"
#endif
#include <stdio.h>
#include <stdlib.h>

static struct event_loop *loop;
static const struct transport *transport = &transport_tcp;
static int port;

#define turn_until(condition)                                                                                          \
    do {                                                                                                               \
        uint64_t give_up = clock_monotonic_us() + 60 * 1000000ull;                                                     \
        while (!(condition)) {                                                                                         \
            if (clock_monotonic_us() > give_up) fail_msg("waited too long for %s", #condition);                        \
            event_loop_turn(loop, 10000);                                                                              \
        }                                                                                                              \
    } while (0)

/* What a bus has reported. */
static struct node {
    struct bus bus;
    struct bus_link *in, *out;
    int accepted, opened, received, messages, dropped, ended;
    enum bus_end reason;
    char error[100]; /* of the link that has ended */
    unsigned types[100];
    enum bus_verdict verdict;
    size_t text_len; /* of the last published message */
    char last_byte;
    bool closes_in_message;
} one, two;

static void on_accepted(struct bus_link *link) {
    struct node *node = link->bus->owner;
    node->accepted++;
    node->in = link;
    assert_true(link->inbound && bus_link_is_open(link));
}
static void on_opened(struct bus_link *link) {
    struct node *node = link->bus->owner;
    node->opened++;
    assert_ptr_equal(link->owner, node);
    assert_ptr_equal(link, node->out);
    assert_false(link->inbound);
}
static void on_received(struct bus_link *link) {
    struct node *node = link->bus->owner;
    node->received++;
}
static void on_message(struct bus_link *link, const struct bus_message *message, enum bus_verdict verdict,
                       const uint8_t *bad_id) {
    struct node *node = link->bus->owner;
    node->types[node->messages++ % 100] = message->header.type;
    node->verdict = verdict;
    if (message->message.len) {
        node->text_len = message->message.len;
        node->last_byte = message->message.data[message->message.len - 1];
    }
    if (node->closes_in_message) bus_link_close(link);
}
static void on_dropped(struct bus_link *link, const struct bus_message *message) {
    struct node *node = link->bus->owner;
    node->dropped++;
}
static void on_ended(struct bus_link *link, enum bus_end reason) {
    struct node *node = link->bus->owner;
    node->ended++;
    node->reason = reason;
    snprintf(node->error, sizeof node->error, "%s", bus_link_error(link));
    if (link == node->in) node->in = NULL;
    if (link == node->out) node->out = NULL;
}
static const struct bus_events events = {.accepted = on_accepted,
                                         .opened = on_opened,
                                         .received = on_received,
                                         .message = on_message,
                                         .dropped = on_dropped,
                                         .ended = on_ended};

static int setup(void **state) {
    static const char *const hosts[] = {"127.0.0.1", "-192.0.2.1"};
    loop = event_loop_new();
    one = two = (struct node){.accepted = 0};
    bus_init(&one.bus, loop, transport, &events, &one);
    bus_init(&two.bus, loop, transport, &events, &two);
    if (!bus_listen(&two.bus, hosts, 2, 0, 100)) return -1;
    port = two.bus.listeners[0]->address.port;
    return 0;
}
static int teardown(void **state) {
    bus_free(&one.bus);
    bus_free(&two.bus);
    event_loop_turn(loop, 0);
    event_loop_free(loop);
    return 0;
}

static void connect_nodes(void) {
    one.out = bus_connect(&one.bus, "127.0.0.1", port, &one);
    turn_until(one.opened && two.accepted);
}

static struct bus_message message_of(unsigned type) {
    struct bus_message message = {.header = {.type = type, .port = 6379, .bus_port = 16379}, .channel = SLICE("c")};
    memset(message.header.sender.text, 'a', NODE_ID_LEN);
    memset(message.node.text, 'b', NODE_ID_LEN);
    return message;
}
static void send_one(struct bus_link *link, unsigned type) {
    struct bus_message message = message_of(type);
    bus_link_send(link, &message);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown)

FIXTURE_TEST(nodes_talk_in_both_directions) {
    connect_nodes();
    int64_t now = clock_wall_us() / 1000;
    assert_true(one.out->created_ms > now - 60000 && one.out->created_ms <= now);
    struct address a, b;
    assert_true(bus_link_address(one.out, true, &a));
    assert_int_equal(a.port, port);
    assert_string_equal(a.host, "127.0.0.1");
    assert_true(bus_link_address(one.out, false, &a) && bus_link_address(two.in, true, &b));
    assert_int_equal(a.port, b.port);

    for (int i = 0; i < 10; i++) send_one(one.out, BUS_PING);
    send_one(one.out, BUS_UPDATE); /* does not fit into what an output reserves at once */
    turn_until(two.messages == 11);
    assert_true(two.received > 0);
    assert_int_equal(two.types[0], BUS_PING);
    assert_int_equal(two.types[10], BUS_UPDATE);
    send_one(two.in, BUS_PONG);
    turn_until(one.messages == 1);
    assert_int_equal(one.types[0], BUS_PONG);
    assert_int_equal(one.verdict, BUS_ACCEPTED);

    assert_int_equal(one.bus.stats.sent[BUS_PING], 10);
    assert_int_equal(two.bus.stats.received[BUS_PING], 10);
    assert_int_equal(one.bus.stats.bytes_sent, 10 * 2256 + 4352);
    assert_int_equal(two.bus.stats.bytes_received, 10 * 2256 + 4352);
    assert_true(bus_memory(&one.bus) >= sizeof(struct bus_link));
    assert_int_equal(bus_memory(&one.bus), bus_link_memory(one.out));

    bus_link_close(one.out);
    turn_until(two.ended == 1);
    assert_int_equal(two.reason, BUS_END_PEER);
    assert_int_equal(one.ended, 0);
    assert_int_equal(two.bus.inbound, 0);
}

FIXTURE_TEST(a_published_message_is_encoded_once) {
    enum { LEN = 300000 };
    char *text = mem_calloc(1, LEN);
    text[LEN - 1] = 'z';
    connect_nodes();
    struct bus_message message = message_of(BUS_PUBLISH);
    message.message = slice_make(text, LEN);
    message.header.light = true;
    struct blob *encoded = bus_encode_shared(&message);
    bus_link_send_shared(one.out, encoded);
    bus_link_send_shared(two.in, encoded);
    blob_release(encoded);
    turn_until(one.messages && two.messages);
    assert_int_equal(one.text_len, LEN);
    assert_int_equal(two.text_len, LEN);
    assert_int_equal(two.last_byte, 'z');
    assert_int_equal(one.bus.stats.published_bytes_sent, 16 + 8 + 1 + LEN);
    assert_int_equal(two.bus.stats.published_bytes_received, 16 + 8 + 1 + LEN);
    mem_free(text);

    struct memory_output out;
    memory_output_init(&out);
    send_one(one.out, BUS_FAIL);
    bus_info(&one.bus, &out.out);
    output_write(&out.out, (struct slice){"", 1});
    assert_string_equal(memory_output_slice(&out).data, "cluster_stats_messages_fail_sent:1\r\n"
                                                        "cluster_stats_messages_publish_sent:1\r\n"
                                                        "cluster_stats_messages_sent:2\r\n"
                                                        "cluster_stats_messages_publish_received:1\r\n"
                                                        "cluster_stats_messages_received:1\r\n"
                                                        "cluster_stats_bytes_sent:302321\r\n"
                                                        "cluster_stats_bytes_received:300025\r\n"
                                                        "cluster_stats_pubsub_bytes_sent:300025\r\n"
                                                        "cluster_stats_pubsub_bytes_received:300025\r\n"
                                                        "cluster_stats_module_bytes_sent:0\r\n"
                                                        "cluster_stats_module_bytes_received:0\r\n"
                                                        "total_cluster_links_buffer_limit_exceeded:0\r\n");
    memory_output_free(&out);
}

/* A peer that sends bytes of its own. */
static struct connection *raw;
static bool raw_connected, raw_closed;
static void raw_on_connected(struct connection *conn) {
    raw_connected = true;
}
static void raw_on_readable(struct connection *conn) {
    conn_consume(conn, conn_peek(conn).len);
}
static void raw_on_closed(struct connection *conn) {
    raw_closed = true;
    conn_close(conn);
    raw = NULL;
}
static const struct connection_events raw_events = {
    .connected = raw_on_connected, .readable = raw_on_readable, .closed = raw_on_closed};
static void raw_connect(void) {
    int before = two.accepted;
    raw_connected = raw_closed = false;
    raw = conn_connect(transport, loop,
                       &(struct connect_options){.host = "127.0.0.1", .port = port, .events = &raw_events});
    turn_until(raw_connected && two.accepted > before);
}
static void raw_send(const void *bytes, size_t len) {
    output_write(&raw->out, slice_make(bytes, len));
    conn_flush(raw);
}
static void raw_close(void) {
    int before = two.ended;
    conn_close(raw);
    raw = NULL;
    turn_until(two.ended > before);
}
static void raw_message(unsigned type, size_t at, uint8_t byte) {
    struct bus_message message = message_of(type);
    uint8_t bytes[5000];
    assert_true(bus_encoded_size(&message) <= sizeof bytes);
    bus_encode(&message, bytes);
    if (at) bytes[at] = byte;
    raw_send(bytes, bus_encoded_size(&message));
}

FIXTURE_TEST(messages_may_come_in_pieces) {
    struct bus_message message = message_of(BUS_FAIL);
    uint8_t bytes[3 * 2296];
    for (int i = 0; i < 3; i++) bus_encode(&message, bytes + i * 2296);
    raw_connect();
    for (size_t at = 0; at < sizeof bytes;) {
        size_t len = at < 30 ? 1 : at % 2296 < 30 ? 7 : 777;
        if (len > sizeof bytes - at) len = sizeof bytes - at;
        int before = two.received;
        raw_send(bytes + at, len);
        turn_until(two.received > before);
        at += len;
        assert_int_equal(two.messages, at / 2296);
    }
    raw_close();
}

FIXTURE_TEST(what_is_no_message_ends_the_link) {
    raw_connect();
    raw_send("GET / HTTP/1.1", 14);
    turn_until(raw_closed);
    assert_int_equal(two.reason, BUS_END_INVALID);
    raw_connect();
    raw_send("RCmb\0\0\0\x0f\0\1\0\0\x80\4", 14);
    turn_until(raw_closed);
    assert_int_equal(two.ended, 2);
    assert_int_equal(two.messages, 0);
}

FIXTURE_TEST(a_message_that_is_too_long_ends_the_link) {
    raw_connect();
    raw_send("RCmb\x7f\xff\xff\xff\0\1\0\0\0\0", 14); /* a PING of 2 GiB */
    turn_until(raw_closed);
    assert_int_equal(two.reason, BUS_END_INVALID);
    /* Published texts may be long, but not those of anybody. */
    for (int known = 0; known < 2; known++) {
        raw_connect();
        two.in->known = known;
        raw_send("RCmb\x01\0\0\0\0\1\0\0\0\4", 14);
        if (known) {
            for (int i = 0; i < 10; i++) event_loop_turn(loop, 1000);
            assert_false(raw_closed);
            assert_true(bus_link_memory(two.in) < 20000); /* grows with what has come */
            raw_close();
        } else {
            turn_until(raw_closed);
        }
    }
}

FIXTURE_TEST(the_link_survives_messages_that_are_dropped) {
    raw_connect();
    raw_message(BUS_PING, 9, 2);     /* another version */
    raw_message(BUS_PING, 15, 1);    /* a gossip entry that is not there */
    raw_message(BUS_PING, 12, 0x80); /* light */
    raw_message(BUS_MFSTART, 13, 77);
    turn_until(two.messages == 1);
    assert_int_equal(two.verdict, BUS_UNKNOWN_TYPE);
    assert_int_equal(two.types[0], 77);
    raw_message(BUS_PING, 0, 0);
    turn_until(two.messages == 2);
    assert_int_equal(two.verdict, BUS_ACCEPTED);
    assert_int_equal(two.bus.stats.received[BUS_PING], 4);
    raw_close();
}

FIXTURE_TEST(the_debug_filter_drops_messages) {
    raw_connect();
    two.bus.debug.drop = BUS_FAIL;
    raw_message(BUS_FAIL, 0, 0);
    raw_message(BUS_PING, 0, 0);
    turn_until(two.messages == 1);
    assert_int_equal(two.types[0], BUS_PING);
    assert_int_equal(two.dropped, 1);
    two.bus.debug.drop = BUS_DROP_ALL;
    two.bus.debug.close_on_drop = true;
    raw_message(BUS_PING, 0, 0);
    turn_until(raw_closed);
    assert_int_equal(two.reason, BUS_END_DROPPED);
    assert_int_equal(two.messages, 1);
}

FIXTURE_TEST(a_callback_may_close_the_link) {
    connect_nodes();
    two.closes_in_message = true;
    for (int i = 0; i < 3; i++) send_one(one.out, BUS_PING);
    turn_until(one.ended);
    assert_int_equal(two.messages, 1);
    assert_int_equal(two.ended, 0);
}

static void pause_peer(struct listener *listener, struct connection *conn) {
    conn->events = &raw_events;
    raw = conn;
    conn_set_reading(conn, false);
}
FIXTURE_TEST(a_peer_that_does_not_read_loses_its_link) {
    char error[256];
    struct listener *deaf = conn_listen(
        transport, loop, &(struct listen_options){.host = "127.0.0.1", .backlog = 1, .accepted = pause_peer}, error,
        sizeof error);
    assert_non_null(deaf);
    one.out = bus_connect(&one.bus, "127.0.0.1", deaf->address.port, &one);
    raw = NULL;
    turn_until(one.opened && raw);
    for (int i = 0; i < 20000 && !one.ended; i++) {
        one.bus.settings.link_limit = i < 4000 ? 0 : 1024 * 1024;
        for (int n = 0; n < 10 && !one.ended; n++) send_one(one.out, BUS_PING);
        event_loop_turn(loop, 0);
        if (i == 3999) {
            size_t allocated;
            assert_false(one.ended);
            assert_true(bus_link_queued(one.out, &allocated) > 1024 * 1024);
            assert_true(allocated >= bus_link_queued(one.out, &allocated));
        }
    }
    assert_int_equal(one.ended, 1);
    assert_int_equal(one.reason, BUS_END_LIMIT);
    assert_int_equal(one.bus.stats.over_limit, 1);
    conn_close(raw);
    listener_close(deaf);
}

FIXTURE_TEST(a_link_that_cannot_be_opened_ends) {
    bus_free(&two.bus);
    one.out = bus_connect(&one.bus, "127.0.0.1", port, &one);
    struct bus_link *link = one.out;
    send_one(link, BUS_PING); /* is not kept for later */
    assert_false(bus_link_is_open(link));
    turn_until(one.ended);
    assert_int_equal(one.reason, BUS_END_PEER);
    assert_string_equal(one.error, "Connection refused");
    assert_int_equal(one.opened, 0);
    assert_int_equal(one.bus.stats.sent[BUS_PING], 0);
}

FIXTURE_TEST(links_are_refused_while_loading_and_beyond_the_maximum) {
    two.bus.settings.refuses = true;
    one.out = bus_connect(&one.bus, "127.0.0.1", port, &one);
    turn_until(one.ended == 1);
    assert_int_equal(two.accepted, 0);
    two.bus.settings.refuses = false;
    two.bus.settings.inbound_max = 1;
    one.opened = 0;
    connect_nodes();
    one.out = bus_connect(&one.bus, "127.0.0.1", port, &one);
    turn_until(one.ended == 2);
    assert_int_equal(two.accepted, 1);
}

FIXTURE_TEST(a_bus_needs_an_address) {
    static const char *const hosts[] = {"127.0.0.1"};
    assert_false(bus_listen(&one.bus, NULL, 0, 0, 1));
    assert_false(bus_listen(&one.bus, hosts, 1, port, 1));
    assert_int_equal(one.bus.listener_count, 0);
}

#ifdef USE_TLS
static int use_tls(void **state) {
    if (!certificates_make()) return -1;
    struct tls_settings settings = {.cert_file = own_cert, .key_file = own_key, .ca_file = ca, .auth = TLS_AUTH_YES};
    use(TLS_SERVER, settings);
    use(TLS_CLIENT, settings);
    transport = &transport_tls;
    return 0;
}
#endif

int main(void) {
    log_level = LOG_LEVEL_NOTHING;
    int failed = cmocka_run_group_tests_name("tcp", unit_tests, NULL, NULL);
#ifdef USE_TLS
    failed += cmocka_run_group_tests_name("tls", unit_tests, use_tls, leave_tls);
#endif
    return failed;
}
