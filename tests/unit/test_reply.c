/* The reply writer: the exact bytes of each function in both protocols. */
#include "unit.h"
#include "lib/system/memory.h"
#include "resp/reply.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct memory_output memory;
static struct reply r2, r3;

static int setup(void **state) {
    memory_output_init(&memory);
    r2 = (struct reply){.out = &memory.out, .protocol = 2};
    r3 = (struct reply){.out = &memory.out, .protocol = 3};
    return 0;
}
static int teardown(void **state) {
    memory_output_free(&memory);
    return 0;
}
static void expect(const char *bytes) {
    struct slice got = memory_output_slice(&memory);
    char text[400] = "";
    memcpy(text, got.data, got.len < sizeof text - 1 ? got.len : sizeof text - 1);
    assert_string_equal(text, bytes);
    assert_int_equal(got.len, strlen(bytes));
    memory_output_clear(&memory);
}
/* The same call in both protocols. */
#define BOTH(call2, call3, bytes2, bytes3) (call2, expect(bytes2), call3, expect(bytes3))

TEST_WITH(integers_and_heads_of_every_length, setup, teardown) {
    const int64_t values[] = {0, 9, 10, 99, 100, 12345678901, INT64_MAX, -1, -10, -100, INT64_MIN};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[40];
        snprintf(text, sizeof text, ":%lld\r\n", (long long)values[i]);
        reply_integer(&r2, values[i]);
        expect(text);
    }
    const size_t lens[] = {0, 9, 10, 99, 100, 1000000};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        char text[40];
        snprintf(text, sizeof text, "*%zu\r\n", lens[i]);
        reply_array(&r2, lens[i]);
        expect(text);
    }
}

TEST_WITH(simple_replies, setup, teardown) {
    reply_ok(&r2), expect("+OK\r\n");
    reply_status(&r2, "PONG"), expect("+PONG\r\n");
    reply_bulk(&r2, SLICE("")), expect("$0\r\n\r\n");
    reply_bulk_text(&r2, "hello world"), expect("$11\r\nhello world\r\n");
    reply_bulk_integer(&r2, -42), expect("$3\r\n-42\r\n");
    reply_raw(&r2, SLICE("+RAW\r\n")), expect("+RAW\r\n");
}

TEST_WITH(resp3_types_and_what_resp2_clients_get, setup, teardown) {
    BOTH(reply_null(&r2), reply_null(&r3), "$-1\r\n", "_\r\n");
    BOTH(reply_null_array(&r2), reply_null_array(&r3), "*-1\r\n", "_\r\n");
    BOTH(reply_map(&r2, 3), reply_map(&r3, 3), "*6\r\n", "%3\r\n");
    BOTH(reply_set(&r2, 12), reply_set(&r3, 12), "*12\r\n", "~12\r\n");
    BOTH(reply_push(&r2, 2), reply_push(&r3, 2), "*2\r\n", ">2\r\n");
    BOTH(reply_attribute(&r2, 1), reply_attribute(&r3, 1), "*2\r\n", "|1\r\n");
    BOTH(reply_boolean(&r2, true), reply_boolean(&r3, true), ":1\r\n", "#t\r\n");
    BOTH(reply_boolean(&r2, false), reply_boolean(&r3, false), ":0\r\n", "#f\r\n");
    BOTH(reply_double(&r2, 1.5), reply_double(&r3, 1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
    BOTH(reply_double(&r2, -INFINITY), reply_double(&r3, INFINITY), "$4\r\n-inf\r\n", ",inf\r\n");
    BOTH(reply_verbatim(&r2, "txt", SLICE("some text")), reply_verbatim(&r3, "txt", SLICE("some text")),
         "$9\r\nsome text\r\n", "=13\r\ntxt:some text\r\n");
    BOTH(reply_big_number(&r2, SLICE("12345678901234567890123")),
         reply_big_number(&r3, SLICE("12345678901234567890123")), "$23\r\n12345678901234567890123\r\n",
         "(12345678901234567890123\r\n");
}

static char hooked[100];
static void hook(struct reply *reply, struct slice text) {
    snprintf(hooked, sizeof hooked, "%.*s", (int)text.len, text.data);
}
TEST_WITH(errors_are_one_line_and_reported_to_the_hook, setup, teardown) {
    r2.error_hook = hook;
    reply_error(&r2, "ERR plain"), expect("-ERR plain\r\n");
    assert_true(r2.failed);
    assert_string_equal(hooked, "ERR plain");
    reply_error_format(&r2, "ERR unknown command '%s' %d", "a\r\n+OK\r\n", 7),
        expect("-ERR unknown command 'a  +OK  ' 7\r\n");
    assert_string_equal(hooked, "ERR unknown command 'a  +OK  ' 7");
    for (size_t len = 1; len < 40; len++) { /* a line break at each place of texts of each length */
        for (size_t at = 0; at < len; at++) {
            char text[64] = {0}, expected[64];
            memset(text, 0xe4, len);
            text[at] = at % 2 ? '\r' : '\n';
            reply_error(&r2, text);
            text[at] = ' ';
            snprintf(expected, sizeof expected, "-%.*s\r\n", (int)(at + 1 == len ? at : len), text);
            expect(expected);
        }
    }
    reply_syntax_error(&r2), expect("-ERR syntax error\r\n");
    reply_wrong_type(&r2), expect("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
}

TEST_WITH(long_texts_are_whole, setup, teardown) {
    enum { LEN = 20000 };
    char *text = mem_alloc(LEN + 1);
    memset(text, 'x', LEN);
    text[LEN] = '\0';
    reply_error_format(&r2, "ERR %s\n", text); /* the trailing line break is dropped */
    assert_int_equal(memory_output_slice(&memory).len, LEN + 7);
    memory_output_clear(&memory);
    for (size_t len = 4000; len < 4200; len++) { /* around the space that an output provides at once */
        reply_bulk(&r2, (struct slice){text, len});
        reply_status(&r2, text + LEN - len);
        assert_int_equal(memory_output_slice(&memory).len, 7 + len + 2 + 1 + len + 2);
        memory_output_clear(&memory);
    }
    struct blob *blob = blob_copy((struct slice){text, LEN});
    reply_bulk_blob(&r2, blob);
    assert_int_equal(memory_output_slice(&memory).len, 8 + LEN + 2);
    memory_output_clear(&memory);
    blob_release(blob);
    mem_free(text);
}

TEST_WITH(aggregates_of_unknown_length, setup, teardown) {
    struct reply_deferred outer, inner;
    reply_deferred_begin(&r3, &outer);
    reply_integer(&r3, 1);
    reply_deferred_begin(&r3, &inner);
    reply_bulk_text(&r3, "a");
    reply_ok(&r3);
    reply_deferred_end(&r3, &inner, REPLY_MAP, 1);
    reply_deferred_end(&r3, &outer, REPLY_SET, 2);
    assert_ptr_equal(r3.out, &memory.out);
    expect("~2\r\n:1\r\n%1\r\n$1\r\na\r\n+OK\r\n");
    reply_deferred_begin(&r2, &outer);
    reply_deferred_end(&r2, &outer, REPLY_ARRAY, 0);
    expect("*0\r\n");
}
