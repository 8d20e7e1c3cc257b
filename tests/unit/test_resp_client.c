/* The asynchronous RESP client: order of replies, limits, and its end from any callback. The peer is a listener on the
 * same loop that records what it gets and sends what the test says. */
#include "unit.h"
#include "lib/system/clock.h"
#include "net/resp_client.h"
#include <errno.h>
#include <stdio.h>

static struct event_loop *loop;
static struct listener *listener;
static struct connection *peer;
static char peer_got[4096], seen[4096], reason[256];
static bool ended, close_in_callback, close_in_push, send_in_callback;
static struct resp_client *client;

static void note(const char *text, size_t len) {
    size_t at = strlen(seen);
    snprintf(seen + at, sizeof seen - at, "%.*s;", (int)len, text);
}
static void peer_readable(struct connection *conn) {
    struct slice in = conn_peek(conn);
    size_t at = strlen(peer_got);
    snprintf(peer_got + at, sizeof peer_got - at, "%.*s", (int)in.len, in.data);
    conn_consume(conn, in.len);
}
static void peer_closed(struct connection *conn) {
    conn_close(conn);
    if (peer == conn) peer = NULL;
}
static const struct connection_events peer_events = {.readable = peer_readable, .closed = peer_closed};
static void accepted(struct listener *from, struct connection *conn) {
    peer = conn;
    conn->events = &peer_events;
}
static void say(const char *text) {
    output_write(&peer->out, slice_of(text));
    conn_flush(peer);
}
static void opened(struct resp_client *from, void *owner) {
    assert_ptr_equal(owner, &client);
    note("opened", 6);
}
/* The client frees itself after its end. */
static void forget(struct resp_client *from) {
    assert_int_equal(resp_client_send(from, 1, (struct slice[]){SLICE("LATE")}, NULL, NULL), -ENOTCONN);
    client = NULL;
}
static void pushed(struct resp_client *from, void *owner, const struct resp_value *message) {
    struct slice text = message->children[message->count - 1].text;
    note("push", 4);
    note(text.data, text.len);
    if (!close_in_push) return;
    resp_client_close(from);
    forget(from);
}
static void when_ended(struct resp_client *from, void *owner, const char *why) {
    snprintf(reason, sizeof reason, "%s", why);
    ended = true;
    resp_client_close(from); /* does nothing */
    forget(from);
}
static const struct resp_client_events events = {.opened = opened, .push = pushed, .ended = when_ended};

static void replied(struct resp_client *from, void *context, const struct resp_value *reply) {
    note(context, strlen(context));
    if (!reply)
        note("nothing", 7);
    else if (reply->type == RESP_ARRAY)
        note("array", 5);
    else
        note(reply->text.data, reply->text.len);
    if (send_in_callback) {
        send_in_callback = false;
        resp_client_send(from, 1, (struct slice[]){SLICE("AGAIN")}, replied, "again");
    }
    if (!close_in_callback) return;
    resp_client_close(from);
    forget(from);
}

static void turn_until(bool (*done)(void)) {
    uint64_t until = clock_monotonic_us() + 10000000;
    while (!done() && clock_monotonic_us() < until) event_loop_turn(loop, 20000);
    assert_true(done());
}
static char awaited[256];
static bool is_seen(void) {
    return strcmp(seen, awaited) == 0;
}
static void expect(const char *text) {
    snprintf(awaited, sizeof awaited, "%s", text);
    uint64_t until = clock_monotonic_us() + 10000000;
    while (!is_seen() && clock_monotonic_us() < until) event_loop_turn(loop, 20000);
    assert_string_equal(seen, text);
}
static bool peer_has(void) {
    return strstr(peer_got, awaited) != NULL;
}
static void expect_sent(const char *text) {
    snprintf(awaited, sizeof awaited, "%s", text);
    turn_until(peer_has);
}
static bool is_ended(void) {
    return ended;
}

static int begin(void **state) {
    char error[256];
    clock_update();
    loop = event_loop_new();
    listener = conn_listen(&transport_tcp, loop,
                           &(struct listen_options){.host = "127.0.0.1", .backlog = 4, .accepted = accepted}, error,
                           sizeof error);
    peer = NULL;
    *peer_got = *seen = *reason = 0;
    ended = close_in_callback = close_in_push = send_in_callback = false;
    return listener ? 0 : -1;
}
static int finish(void **state) {
    if (client) resp_client_close(client);
    if (peer) conn_close(peer);
    listener_close(listener);
    event_loop_turn(loop, 0);
    event_loop_free(loop);
    return 0;
}
static void start(size_t reply_max, unsigned pending_max, bool subscriber) {
    client = resp_client_new(loop, &(struct resp_client_options){.transport = &transport_tcp,
                                                                 .host = "127.0.0.1",
                                                                 .port = listener->address.port,
                                                                 .reply_max = reply_max,
                                                                 .pending_max = pending_max,
                                                                 .subscriber = subscriber,
                                                                 .events = &events,
                                                                 .owner = &client});
}
static int request(const char *name, const char *context) {
    return resp_client_send(client, 1, (struct slice[]){slice_of(name)}, replied, (void *)context);
}

#define FIXTURE_TEST(name) TEST_WITH(name, begin, finish)

FIXTURE_TEST(replies_come_in_the_order_of_the_requests) {
    start(0, 0, false);
    assert_int_equal(request("ONE", "1"), 0); /* before the connection is open */
    assert_int_equal(resp_client_send(client, 2, (struct slice[]){SLICE("TWO"), SLICE("")}, replied, "2"), 0);
    expect_sent("*1\r\n$3\r\nONE\r\n*2\r\n$3\r\nTWO\r\n$0\r\n\r\n");
    request("THREE", "3");
    request("FOUR", "4");
    expect_sent("$4\r\nFOUR\r\n");
    assert_int_equal(resp_client_pending(client), 4);
    say("+first\r\n-ERR s");
    expect("opened;1;first;");
    say("econd\r\n*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n>2\r\n+x\r\n+pushed\r\n$-1\r\n");
    expect("opened;1;first;2;ERR second;3;array;push;pushed;4;;");
    assert_int_equal(resp_client_pending(client), 0);
    send_in_callback = true;
    request("FIVE", "5");
    expect_sent("FIVE");
    say(":5\r\n");
    expect_sent("AGAIN");
}

FIXTURE_TEST(messages_of_a_subscriber_are_no_replies) {
    start(0, 0, true);
    request("SUBSCRIBE", "s");
    request("PING", "p");
    expect_sent("PING");
    say("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
        "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    expect("opened;s;array;push;hi;p;array;");
}

FIXTURE_TEST(every_request_is_called_back_when_the_peer_ends_it) {
    start(0, 0, false);
    request("ONE", "1");
    request("TWO", "2");
    expect_sent("TWO");
    assert_true(resp_client_is_open(client));
    assert_string_equal(conn_transport_name(resp_client_connection(client)), "tcp");
    conn_close(peer);
    peer = NULL;
    turn_until(is_ended);
    assert_string_equal(seen, "opened;1;nothing;2;nothing;");
    assert_string_equal(reason, "the peer closed the connection");
}

FIXTURE_TEST(a_refused_connection_ends_with_its_reason) {
    start(0, 0, false);
    resp_client_close(client); /* while it connects */
    int port = listener->address.port;
    event_loop_turn(loop, 0);
    client = resp_client_new(loop, &(struct resp_client_options){.transport = &transport_unix,
                                                                 .host = "/nowhere/to/be/found",
                                                                 .port = port,
                                                                 .events = &events,
                                                                 .owner = &client});
    request("ONE", "1");
    turn_until(is_ended);
    assert_string_equal(seen, "1;nothing;");
    assert_non_null(strstr(reason, "No such file"));
    assert_int_equal(ended, 1);
}

FIXTURE_TEST(the_owner_may_close_in_a_callback) {
    start(0, 0, false);
    close_in_callback = true;
    request("ONE", "1");
    request("TWO", "2");
    expect_sent("TWO");
    say("+a\r\n+b\r\n");
    expect("opened;1;a;2;nothing;");
    assert_false(ended);
    start(0, 0, false);
    close_in_callback = false, close_in_push = true;
    request("LATER", "1");
    expect_sent("LATER");
    say(">2\r\n+x\r\n+y\r\n+a\r\n");
    expect("opened;1;a;2;nothing;opened;push;y;1;nothing;");
}

FIXTURE_TEST(limits_hold) {
    start(100, 3, false);
    for (int i = 0; i < 3; i++) assert_int_equal(request("X", "x"), 0);
    assert_int_equal(request("X", "x"), -ENOBUFS);
    expect_sent("X");
    say("$20\r\n01234567890123456789\r\n"); /* allowed, and counted for itself */
    expect("opened;x;01234567890123456789;");
    say("$200\r\n012345678901234567890123456789012345678901234567890123456789");
    event_loop_turn(loop, 10000);
    assert_false(ended);
    say("01234567890123456789012345678901234567890123456789");
    turn_until(is_ended);
    assert_string_equal(reason, "the peer sent a reply that is too long");
}

FIXTURE_TEST(a_reply_without_a_request_and_nonsense_end_it) {
    start(0, 0, false);
    request("ONE", "1");
    expect_sent("ONE");
    say("+a\r\n+b\r\n");
    turn_until(is_ended);
    assert_string_equal(reason, "the peer sent a reply without a request");
    ended = false;
    start(0, 0, false);
    request("TWO", "2");
    expect_sent("TWO");
    say("nonsense\r\n");
    turn_until(is_ended);
}
