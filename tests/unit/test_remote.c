/* Connections on another thread's loop behave like local connections, also when they move. Two I/O threads run their
 * own loops; the peer is a plain socket. */
#include "unit.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/remote.h"
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct event_loop *home, *away, *beyond;
static struct remote_worker worker, other; /* of away and beyond */
static struct listener *listener;
static pthread_t thread, other_thread;
static struct event_post stop_post, other_stop_post;
static char path[64];

/* The I/O thread's end: everything received is one message, with little space for replies. */
enum { REPLY_CAPACITY = 64 };
struct test_end {
    struct remote_end end;
};
static struct remote_end *end_opened(struct remote_worker *w, struct connection *conn) {
    return &((struct test_end *)mem_calloc(1, sizeof(struct test_end)))->end;
}
static void end_readable(struct remote_end *end) {
    struct slice in = conn_peek(end->conn);
    struct remote_message *message = remote_message_new(sizeof *message + in.len + REPLY_CAPACITY);
    char *bytes = (char *)(message + 1);
    memcpy(bytes, in.data, in.len);
    message->bytes = bytes;
    message->len = message->stream_len = in.len;
    message->reply = bytes + in.len;
    message->reply_capacity = REPLY_CAPACITY;
    conn_consume(end->conn, in.len);
    remote_send_input(end, message);
}
static void end_free(struct remote_end *end) {
    mem_free(end);
}

/* The user of the connection. */
static struct connection *conn;
static int readables, draineds, closeds, hung_ups;
static void (*on_readable)(struct connection *conn);
static void user_readable(struct connection *c) {
    readables++;
    if (on_readable) on_readable(c);
}
static void user_drained(struct connection *c) {
    draineds++;
}
static void user_closed(struct connection *c) {
    closeds++;
}
static int grown;
static void user_grown(struct connection *c) {
    grown++;
}
static void user_hung_up(struct connection *c) {
    hung_ups++;
}
static const struct connection_events events = {.readable = user_readable,
                                                .drained = user_drained,
                                                .closed = user_closed,
                                                .hung_up = user_hung_up,
                                                .grown = user_grown};
static void accepted(struct connection *c) {
    conn = c;
    c->events = &events;
}

/* The thread to which a connection moves; NULL: home. */
static struct remote_worker *next_worker;
static bool ends_idle;
static int lefts;
static bool end_idle(const struct remote_end *end) {
    return ends_idle;
}
static struct remote_worker *left(struct connection *c) {
    lefts++;
    struct connection *real = next_worker ? NULL : remote_take(c);
    if (!real) return next_worker ? next_worker : remote_worker_of(c);
    conn = real;
    return NULL;
}
static const struct remote_worker_ops ops = {.opened = end_opened,
                                             .readable = end_readable,
                                             .free = end_free,
                                             .accepted = accepted,
                                             .left = left,
                                             .idle = end_idle};

static void *run(void *loop) {
    event_loop_run(loop);
    return NULL;
}
static void stop(struct event_post *post) {
    event_loop_stop(post == &stop_post ? away : beyond);
}
static struct event_loop *place(struct listener *l) {
    return away;
}

static int setup(void **state) {
    char error[200];
    snprintf(path, sizeof path, "/tmp/test_remote.%d", (int)getpid());
    unlink(path);
    home = event_loop_new();
    away = event_loop_new();
    beyond = event_loop_new();
    remote_worker_init(&worker, away, home, &ops);
    remote_worker_init(&other, beyond, home, &ops);
    struct listen_options options = {.host = path, .place = place, .arrived = remote_arrived};
    listener = conn_listen(&transport_unix, home, &options, error, sizeof error);
    assert_non_null(listener);
    pthread_create(&thread, NULL, run, away);
    pthread_create(&other_thread, NULL, run, beyond);
    conn = NULL;
    on_readable = NULL;
    next_worker = NULL;
    ends_idle = true;
    lefts = 0;
    readables = draineds = closeds = hung_ups = 0;
    return 0;
}
#define turn_until(condition)                                                                                          \
    do {                                                                                                               \
        uint64_t end = clock_monotonic_us() + 5000000;                                                                 \
        while (!(condition) && clock_monotonic_us() < end) event_loop_turn(home, 10000);                               \
        assert_true(condition);                                                                                        \
    } while (0)

static int teardown(void **state) {
    if (conn) {
        conn_close(conn);
        turn_until(worker.count == 0 && other.count == 0);
    }
    listener_close(listener);
    event_outbox_publish(&worker.to_loop);
    event_outbox_publish(&other.to_loop);
    stop_post.run = other_stop_post.run = stop;
    event_loop_post(away, &stop_post);
    event_loop_post(beyond, &other_stop_post);
    pthread_join(thread, NULL);
    pthread_join(other_thread, NULL);
    event_loop_free(away);
    event_loop_free(beyond);
    event_loop_free(home);
    unlink(path);
    return 0;
}

static int dial(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    turn_until(conn != NULL);
    return fd;
}
/* Reads `len` bytes while the home loop keeps running. */
static void receive(int fd, char *to, size_t len) {
    while (len) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        event_loop_turn(home, 0);
        if (poll(&ready, 1, 1) <= 0) continue;
        ssize_t n = read(fd, to, len);
        assert_true(n > 0);
        to += n, len -= (size_t)n;
    }
}

static void echo(struct connection *c) {
    output_write(&c->out, conn_peek(c));
    conn_consume(c, c->in_len);
    conn_flush(c);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown)

FIXTURE_TEST(it_shows_the_name_and_addresses_of_the_real_one) {
    char text[128];
    int fd = dial();
    assert_true(conn_is_remote(conn));
    assert_string_equal(conn_transport_name(conn), "unix");
    conn_format_address(conn, true, text);
    assert_non_null(strstr(text, path));
    assert_true(conn_is_local(conn));
    close(fd);
}

FIXTURE_TEST(bytes_go_both_ways_in_order) {
    int fd = dial();
    on_readable = echo;
    char sent[512], got[512];
    for (int round = 0; round < 300; round++) {
        size_t len = 1 + (size_t)round * 7 % sizeof sent; /* also more than the space of the message */
        for (size_t i = 0; i < len; i++) sent[i] = (char)(round + (int)i);
        assert_int_equal(write(fd, sent, len), len);
        receive(fd, got, len);
        assert_memory_equal(sent, got, len);
    }
    turn_until(conn_pending(conn) == 0 || (conn_memory(conn, NULL, NULL), conn_pending(conn) == 0));
    assert_int_equal(conn->bytes_in, conn->bytes_out);
    close(fd);
}

static void consume_all(struct connection *c) {
    conn_consume(c, c->in_len);
    conn_flush(c);
}

static void leave_half(struct connection *c) {
    output_write(&c->out, SLICE("half "));
    if (c->in_len > 2) conn_consume(c, 2);
    conn_flush(c);
}
FIXTURE_TEST(input_that_is_left_stays_and_replies_leave_all_the_same) {
    int fd = dial();
    char got[16];
    on_readable = leave_half;
    assert_int_equal(write(fd, "abcd", 4), 4);
    receive(fd, got, 5);
    assert_memory_equal(got, "half ", 5);
    assert_int_equal(conn->in_len, 2);
    assert_memory_equal(conn->in, "cd", 2);
    output_write(&conn->out, SLICE("again"));
    conn_flush(conn);
    receive(fd, got, 5);
    assert_memory_equal(got, "again", 5);
    /* More input is shown after this input is consumed. */
    on_readable = NULL;
    assert_int_equal(write(fd, "ef", 2), 2);
    for (int i = 0; i < 20; i++) event_loop_turn(home, 1000);
    assert_int_equal(readables, 1);
    conn_consume(conn, 2);
    turn_until(readables == 2);
    assert_memory_equal(conn->in, "ef", 2);
    close(fd);
}

FIXTURE_TEST(pausing_holds_input_and_the_end_back) {
    int fd = dial();
    conn_set_reading(conn, false);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    for (int i = 0; i < 20; i++) event_loop_turn(home, 1000);
    assert_int_equal(readables, 0);
    assert_int_equal(closeds, 0);
    on_readable = echo;
    conn_set_reading(conn, true);
    turn_until(closeds == 1);
    assert_int_equal(readables, 1);
    assert_int_equal(conn->state, CONN_ENDED);
}

FIXTURE_TEST(a_connection_with_unread_input_is_notified_of_the_end) {
    int fd = dial();
    assert_int_equal(write(fd, "kept", 4), 4);
    turn_until(readables == 1);
    close(fd);
    turn_until(hung_ups == 1);
    assert_int_equal(closeds, 0);
    conn_consume(conn, 4);
    turn_until(closeds == 1);
    assert_int_equal(hung_ups, 1);
}

FIXTURE_TEST(the_end_is_found_behind_much_unread_input) {
    enum { LEN = 8 * 1024 * 1024 };
    int fd = dial();
    char *much = mem_calloc(1, LEN);
    for (size_t sent = 0; sent < LEN;) {
        ssize_t n = send(fd, much + sent, LEN - sent, MSG_DONTWAIT);
        if (n > 0) sent += (size_t)n;
        event_loop_turn(home, 1000);
    }
    mem_free(much);
    assert_true(readables > 1); /* also for input that cannot be exposed yet */
    close(fd);
    turn_until(hung_ups == 1);
    assert_int_equal(remote_unread(conn), LEN);
    assert_int_equal(closeds, 0);
}

FIXTURE_TEST(unread_input_is_limited) {
    enum { LIMIT = 2 * 1024 * 1024 };
    int fd = dial();
    conn_set_in_limit(conn, LIMIT);
    char *much = mem_calloc(1, 64 * 1024);
    for (int idle = 0; idle < 50;) {
        idle = send(fd, much, 64 * 1024, MSG_DONTWAIT) > 0 ? 0 : idle + 1;
        event_loop_turn(home, 1000);
    }
    mem_free(much);
    assert_true(remote_unread(conn) >= LIMIT);
    assert_true(remote_unread(conn) < 2 * LIMIT);
    close(fd);
}

/* Consumes its input only after much more has arrived. */
static void go_on_late(struct connection *c) {
    if (remote_unread(c) > c->in_len + REMOTE_AT_HOME_MAX / 2) on_readable = NULL;
    if (!on_readable) conn_consume(c, c->in_len);
    if (!on_readable) on_readable = consume_all;
}
FIXTURE_TEST(input_behind_unread_input_is_shown_when_the_user_goes_on) {
    enum { LEN = 2 * 1024 * 1024 };
    int fd = dial();
    on_readable = go_on_late;
    char *much = mem_calloc(1, LEN);
    for (size_t sent = 0; sent < LEN;) {
        ssize_t n = send(fd, much + sent, LEN - sent, MSG_DONTWAIT);
        if (n > 0) sent += (size_t)n;
        event_loop_turn(home, 1000);
    }
    mem_free(much);
    close(fd);
    turn_until(closeds == 1);
    assert_int_equal(remote_unread(conn), 0);
    assert_int_equal(conn->bytes_in, LEN);
}

/* A handler that turns the loop, as a busy script does. */
static struct event_timer nesting;
static uint64_t consume_and_turn(struct event_timer *timer) {
    conn_consume(conn, conn->in_len);
    turn_until(closeds == 1);
    return 0;
}
FIXTURE_TEST(input_is_shown_in_nested_turns) {
    int fd = dial();
    assert_int_equal(write(fd, "first", 5), 5);
    turn_until(readables == 1);
    assert_int_equal(write(fd, "second", 6), 6);
    while (remote_unread(conn) < 11) event_loop_turn(home, 1000);
    on_readable = consume_all;
    close(fd);
    turn_until(hung_ups == 1);
    event_timer_set(home, &nesting, 0, consume_and_turn);
    turn_until(closeds == 1);
    assert_int_equal(readables, 2);
}

FIXTURE_TEST(a_peer_that_only_stops_sending_gets_output) {
    enum { LEN = 4 * 1024 * 1024 };
    int fd = dial();
    on_readable = echo;
    assert_int_equal(write(fd, "x", 1), 1);
    shutdown(fd, SHUT_WR);
    turn_until(closeds == 1);
    char *text = mem_calloc(1, LEN + 1);
    output_write(&conn->out, slice_make(text, LEN));
    conn->wants_drained = true;
    conn_flush(conn);
    receive(fd, text, LEN + 1);
    assert_int_equal(text[0], 'x');
    turn_until(draineds == 1);
    assert_int_equal(conn_pending(conn), 0);
    mem_free(text);
    close(fd);
}

FIXTURE_TEST(large_blobs_and_long_output_count_as_pending_until_they_arrive) {
    enum { LEN = 3 * 1024 * 1024 };
    int fd = dial();
    struct blob *blob = blob_new(LEN, LEN);
    for (size_t i = 0; i < LEN; i++) blob->data[i] = (char)(i * 31 >> 5);
    output_write(&conn->out, SLICE("head"));
    output_write_blob(&conn->out, blob);
    output_write(&conn->out, blob_slice(blob));
    output_write(&conn->out, SLICE("tail"));
    conn->wants_drained = true;
    conn_flush(conn);
    for (int i = 0; i < 10; i++) event_loop_turn(home, 1000);
    assert_true(conn_pending(conn) > LEN / 2);
    assert_int_equal(draineds, 0);
    char *got = mem_alloc(2 * LEN + 8);
    receive(fd, got, 2 * LEN + 8);
    assert_memory_equal(got, "head", 4);
    assert_memory_equal(got + 4, blob->data, LEN);
    assert_memory_equal(got + 4 + LEN, blob->data, LEN);
    assert_memory_equal(got + 4 + 2 * LEN, "tail", 4);
    turn_until(draineds == 1);
    assert_int_equal(conn_pending(conn), 0);
    turn_until(!blob_is_shared(blob));
    blob_release(blob);
    mem_free(got);
    close(fd);
}

static void answer_and_close(struct connection *c) {
    struct slice shown = conn_peek(c);
    output_write(&c->out, SLICE("bye"));
    conn_close(c);
    conn = NULL;
    /* The input shown before is still valid. */
    assert_memory_equal(shown.data, "close me", 8);
}
FIXTURE_TEST(closing_inside_a_handler_sends_what_was_written) {
    int fd = dial();
    char got[4];
    on_readable = answer_and_close;
    assert_int_equal(write(fd, "close me", 8), 8);
    receive(fd, got, 3);
    assert_memory_equal(got, "bye", 3);
    turn_until(worker.count == 0); /* the close may be sent only in the next turn */
    assert_int_equal(read(fd, got, 1), 0);
    assert_int_equal(closeds, 0);
    close(fd);
}

FIXTURE_TEST(reading_stops_while_too_much_is_at_home) {
    int fd = dial();
    conn_set_reading(conn, false);
    char *much = mem_calloc(1, 64 * 1024);
    size_t sent = 0;
    for (int idle = 0; idle < 50 && sent < 64 * 1024 * 1024;) {
        ssize_t n = send(fd, much, 64 * 1024, MSG_DONTWAIT);
        if (n > 0)
            sent += (size_t)n, idle = 0;
        else
            idle++;
        event_loop_turn(home, 1000);
    }
    assert_true(sent < 8 * 1024 * 1024);
    on_readable = echo;
    conn_set_reading(conn, true);
    char *got = mem_alloc(sent);
    receive(fd, got, sent);
    mem_free(got);
    mem_free(much);
    close(fd);
}

struct called {
    struct connection *real;
    pthread_t thread;
    int times;
};
static void note_call(struct connection *real, void *context) {
    struct called *called = context;
    called->real = real;
    called->thread = pthread_self();
    called->times++;
}

FIXTURE_TEST(a_call_runs_on_the_workers_thread_before_it_returns) {
    struct called called = {0};
    int fd = dial();
    for (int i = 1; i <= 100; i++) {
        assert_true(remote_run(conn, note_call, &called));
        assert_int_equal(called.times, i);
    }
    assert_true(pthread_equal(called.thread, thread));
    assert_false(conn_is_remote(called.real));
    assert_ptr_equal(called.real->loop, away);
    close(fd);
}

FIXTURE_TEST(a_call_for_a_connection_that_was_closed_is_refused) {
    struct called called = {0};
    int fd = dial();
    close(fd);
    turn_until(closeds == 1);
    assert_true(remote_run(conn, note_call, &called)); /* closed by the peer, but not by its user */
    conn_close(conn);
    assert_false(remote_run(conn, note_call, &called));
    turn_until(worker.count == 0);
    conn = NULL;
    assert_int_equal(called.times, 1);
}

/* --- Moving --- */

static struct remote_worker *where(void) {
    return conn_is_remote(conn) ? remote_worker_of(conn) : NULL;
}
/* Continues moving the connection; true: it has arrived. */
static bool moved(void) {
    if (conn_is_remote(conn) && remote_is_leaving(conn)) return false;
    if (where() == next_worker) return true;
    struct connection *away_now = NULL;
    if (where())
        remote_leave(conn);
    else
        away_now = remote_adopt(next_worker, conn);
    if (away_now) conn = away_now;
    return away_now != NULL;
}

FIXTURE_TEST(it_moves_between_threads_and_home_in_the_middle_of_a_stream) {
    struct remote_worker *const ways[] = {&other, &worker, NULL, &other, NULL, &worker};
    int fd = dial();
    on_readable = echo;
    char sent[512], got[512];
    uint64_t total = 0;
    for (int round = 0; round < 300; round++) {
        size_t len = 1 + (size_t)round * 7 % sizeof sent;
        for (size_t i = 0; i < len; i++) sent[i] = (char)(round + (int)i);
        next_worker = ways[round % 6];
        if (round % 2) moved(); /* the bytes arrive while it moves */
        assert_int_equal(write(fd, sent, len), len);
        turn_until(moved());
        receive(fd, got, len);
        assert_memory_equal(sent, got, len);
        total += len;
        assert_int_equal(worker.count, where() == &worker);
        assert_int_equal(other.count, where() == &other);
    }
    assert_int_equal(conn->bytes_in, total);
    turn_until((conn_memory(conn, NULL, NULL), conn_pending(conn)) == 0);
    assert_int_equal(conn->bytes_out, total);
    close(fd);
    turn_until(closeds == 1);
}

FIXTURE_TEST(output_that_is_written_while_it_moves_follows) {
    int fd = dial();
    char got[16];
    struct remote_worker *const ways[] = {&other, &worker, &other, NULL};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        next_worker = ways[i];
        assert_true(remote_leave(conn));
        assert_false(remote_leave(conn)); /* it is on its way */
        output_write(&conn->out, SLICE("written"));
        conn_flush(conn);
        receive(fd, got, 7);
        assert_memory_equal(got, "written", 7);
        turn_until(moved());
    }
    close(fd);
}

FIXTURE_TEST(closing_it_while_it_moves_sends_what_was_written) {
    int fd = dial();
    char got[16];
    next_worker = &other;
    assert_true(remote_leave(conn));
    output_write(&conn->out, SLICE("bye"));
    conn_close(conn);
    conn = NULL;
    receive(fd, got, 3);
    assert_memory_equal(got, "bye", 3);
    turn_until(worker.count == 0);
    assert_int_equal(read(fd, got, 1), 0);
    assert_int_equal(lefts, 0);
    close(fd);
}

FIXTURE_TEST(an_end_with_a_part_of_a_request_does_not_move_home) {
    int fd = dial();
    ends_idle = false;
    assert_true(remote_leave(conn));
    turn_until(lefts == 1);
    assert_false(remote_is_leaving(conn));
    assert_ptr_equal(where(), &worker);
    on_readable = echo;
    char got[4];
    assert_int_equal(write(fd, "abcd", 4), 4);
    receive(fd, got, 4);
    assert_memory_equal(got, "abcd", 4);
    close(fd);
}

FIXTURE_TEST(a_connection_with_unread_input_does_not_leave) {
    int fd = dial();
    assert_int_equal(write(fd, "abcd", 4), 4);
    turn_until(conn->in_len == 4);
    assert_false(remote_leave(conn));
    close(fd);
}

FIXTURE_TEST(the_memory_of_a_new_connection_is_no_growth) {
    grown = 0;
    remote_report_growth(1);
    int fd = dial();
    assert_int_equal(grown, 0);
    on_readable = echo;
    char got[4];
    assert_int_equal(write(fd, "abcd", 4), 4);
    receive(fd, got, 4);
    assert_memory_equal(got, "abcd", 4);
    remote_report_growth(0);
    close(fd);
}
