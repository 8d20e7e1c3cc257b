/* The reply readers: the result must not depend on the fragmentation of the input, and no input may cause invalid
 * memory accesses. */
#include "unit.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/output.h"
#include "resp/reply_reader.h"
#include <stdio.h>

/* A reply as text: type, then the text or (children). */
static void value_describe(const struct resp_value *v, struct output *out) {
    output_write(out, (struct slice){(char[]){(char)v->type}, 1});
    if (v->type == RESP_VERBATIM) output_write(out, (struct slice){v->extension, 3});
    if (!resp_is_aggregate(v)) {
        output_write(out, v->text);
        return;
    }
    output_write(out, SLICE("("));
    for (size_t i = 0; i < v->count; i++) {
        if (i) output_write(out, SLICE(" "));
        value_describe(&v->children[i], out);
    }
    output_write(out, SLICE(")"));
}

/* Reads a stream in pieces of at most `piece` bytes (random with `shuffle`); unconsumed bytes are passed again with the
 * next piece. */
static void stream_describe(struct slice stream, size_t piece, bool shuffle, struct output *out) {
    struct reply_reader reader;
    reply_reader_init(&reader);
    size_t consumed = 0, arrived = 0;
    for (;;) {
        size_t len = arrived - consumed, used = SIZE_MAX;
        char *input = mem_alloc(len ? len : 1); /* a separate block, so that a sanitizer detects reads past its end */
        memcpy(input, stream.data + consumed, len);
        enum reply_status status = reply_read(&reader, (struct slice){input, len}, &used);
        mem_free(input);
        assert_true(used <= len); /* also of a reply that is refused */
        if (status == REPLY_FAILED) {
            output_write(out, SLICE("failed"));
            break;
        }
        consumed += used;
        if (status == REPLY_READY) {
            value_describe(&reader.value, out);
            output_write(out, SLICE(";"));
        } else if (arrived == stream.len) {
            break;
        } else {
            arrived += shuffle ? 1 + random_below(piece) : piece;
            if (arrived > stream.len) arrived = stream.len;
        }
    }
    reply_reader_free(&reader);
}
static void expect_by(struct slice stream, const char *meaning, size_t piece, bool shuffle) {
    struct memory_output m;
    memory_output_init(&m);
    stream_describe(stream, piece, shuffle, &m.out);
    output_write(&m.out, (struct slice){"", 1});
    assert_string_equal(memory_output_slice(&m).data, meaning);
    memory_output_free(&m);
}
static int64_t count_by(struct slice stream, size_t piece, uint64_t *errors) {
    struct reply_counter counter = {0};
    size_t consumed = 0, arrived = 0;
    int64_t total = 0;
    for (;;) {
        size_t len = arrived - consumed, used;
        char *input = mem_alloc(len ? len : 1);
        memcpy(input, stream.data + consumed, len);
        int64_t count = reply_count(&counter, (struct slice){input, len}, INT64_MAX, &used);
        mem_free(input);
        if (count < 0) return -1;
        total += count;
        consumed += used;
        if (arrived == stream.len) break;
        arrived += piece;
        if (arrived > stream.len) arrived = stream.len;
    }
    *errors = counter.errors;
    return total;
}
static void expect_meaning(struct slice stream, const char *meaning, int64_t replies, uint64_t errors) {
    expect_by(stream, meaning, stream.len, false);
    expect_by(stream, meaning, 1, false);
    for (int i = 0; i < 20; i++) expect_by(stream, meaning, 12, true);
    for (size_t piece = 1; piece <= stream.len; piece++) {
        uint64_t seen = 0;
        assert_int_equal(count_by(stream, piece, &seen), replies);
        assert_int_equal(seen, errors);
    }
}
#define EXPECT(stream, meaning, replies, errors) expect_meaning(SLICE(stream), meaning, replies, errors)

TEST(simple_types) {
    EXPECT("+OK\r\n:-12\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n", "+OK;:-12;$a\r\n;$;_;_;", 6, 0);
    EXPECT("_\r\n,1.5\r\n,inf\r\n,nan\r\n#t\r\n#f\r\n(-123\r\n=7\r\ntxt:abc\r\n",
           "_;,1.5;,inf;,nan;#t;#f;(-123;=txtabc;", 8, 0);
    EXPECT("+\r\n", "+;", 1, 0);
}
TEST(errors_are_counted_where_they_are_the_reply) {
    EXPECT("-ERR x\r\n+OK\r\n*2\r\n-ERR inner\r\n+a\r\n*1\r\n-E\r\n!5\r\nERR z\r\n",
           "-ERR x;+OK;*(-ERR inner +a);*(-E);-ERR z;", 5, 2);
}
TEST(the_text_of_an_error_is_kept) {
    struct reply_counter counter = {0};
    size_t used;
    assert_int_equal(reply_count(&counter, SLICE("+OK\r\n-ERR unknown command\r\n+OK\r\n"), 100, &used), 3);
    assert_string_equal(counter.error_text, "ERR unknown command");
}
TEST(aggregates_nest) {
    EXPECT("*0\r\n*2\r\n*0\r\n*2\r\n:1\r\n%0\r\n:5\r\n", "*();*(*() *(:1 %()));:5;", 3, 0);
    EXPECT("%2\r\n+a\r\n~2\r\n:1\r\n:2\r\n+b\r\n*1\r\n$1\r\nx\r\n", "%(+a ~(:1 :2) +b *($x));", 1, 0);
    EXPECT("*3\r\n$-1\r\n*-1\r\n_\r\n", "*(_ _ _);", 1, 0);
}
TEST(pushes_and_attributes_are_not_counted) {
    EXPECT(">2\r\n+message\r\n*1\r\n:1\r\n+OK\r\n>0\r\n:1\r\n", ">(+message *(:1));+OK;>();:1;", 2, 0);
    EXPECT("|1\r\n+ttl\r\n:3600\r\n*2\r\n:1\r\n|1\r\n+a\r\n*1\r\n+b\r\n:2\r\n+OK\r\n",
           "|(+ttl :3600);*(:1 |(+a *(+b)) :2);+OK;", 2, 0);
    EXPECT("|0\r\n+OK\r\n", "|();+OK;", 1, 0);
}
TEST(counting_stops_at_the_limit) {
    struct reply_counter counter = {0};
    size_t used;
    struct slice stream = SLICE("+OK\r\n$3\r\nabc\r\n:1\r\n");
    assert_int_equal(reply_count(&counter, stream, 2, &used), 2);
    assert_int_equal(used, 14);
    assert_int_equal(reply_count(&counter, (struct slice){stream.data + 14, 4}, 2, &used), 1);
    assert_int_equal(reply_count(&counter, stream, 0, &used), 0);
    assert_int_equal(used, 0);
}
TEST(bytes_that_are_left_out_end_their_replies) {
    struct reply_counter counter = {0};
    size_t used;
    assert_int_equal(reply_count(&counter, SLICE("$5\r\nab"), 9, &used), 0);
    assert_int_equal(counter.skip, 5); /* cde and CRLF */
    assert_int_equal(reply_skipped(&counter), 1);
    assert_int_equal(reply_count(&counter, SLICE("+OK\r\n*2\r\n$9\r\n"), 9, &used), 1);
    assert_int_equal(reply_skipped(&counter), 0); /* the first element of two */
    assert_int_equal(reply_count(&counter, SLICE(":1\r\n>2\r\n+message\r\n$9\r\n"), 9, &used), 1);
    assert_int_equal(reply_skipped(&counter), 0); /* a push message */
    assert_int_equal(reply_count(&counter, SLICE(":1\r\n"), 9, &used), 1);
}

TEST(invalid_resp_is_rejected) {
    const char *bad[] = {"hello\r\n",
                         "\r\n",
                         "$x\r\n",
                         "$\r\n",
                         "*-2\r\n",
                         "$-2\r\n",
                         ":\r\n",
                         ":1.5\r\n",
                         "#x\r\n",
                         ",x\r\n",
                         "(12a\r\n",
                         "(\r\n",
                         "(-\r\n",
                         "=3\r\nabc\r\n",
                         "$99999999999999999999\r\n",
                         "*4611686018427387904\r\n",
                         "\xff\r\n",
                         "%-1\r\n",
                         "=-1\r\n",
                         "!-1\r\n",
                         ">-1\r\n",
                         "*2\r\n|-1\r\n:1\r\n",
                         "*1\r\n?\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_by(slice_of(bad[i]), "failed", 1000, false);
        expect_by(slice_of(bad[i]), "failed", 1, false);
    }
    uint64_t errors;
    assert_int_equal(count_by(SLICE("hello\r\n"), 3, &errors), -1);
    assert_int_equal(count_by(SLICE("*2\r\n*4611686018427387904\r\n"), 3, &errors), -1);
    assert_int_equal(count_by(SLICE("*2\r\n|-1\r\n:1\r\n"), 3, &errors), -1);
    assert_int_equal(count_by(SLICE("!-1\r\n"), 3, &errors), -1);
}
TEST(nesting_is_bounded) {
    struct memory_output m;
    memory_output_init(&m);
    for (int i = 0; i < REPLY_DEPTH_MAX; i++) output_write(&m.out, SLICE("*1\r\n"));
    struct reply_reader reader;
    reply_reader_init(&reader);
    size_t used;
    assert_int_equal(reply_read(&reader, memory_output_slice(&m), &used), REPLY_PARTIAL);
    assert_int_equal(reply_read(&reader, SLICE(":1\r\n"), &used), REPLY_READY);
    assert_int_equal(reply_read(&reader, memory_output_slice(&m), &used), REPLY_PARTIAL);
    assert_int_equal(reply_read(&reader, SLICE("*1\r\n"), &used), REPLY_FAILED);
    reply_reader_free(&reader);
    memory_output_free(&m);
}
TEST(an_announced_length_costs_no_memory) {
    size_t before = mem_used(), used;
    struct reply_reader reader;
    reply_reader_init(&reader);
    assert_int_equal(reply_read(&reader, SLICE("*1000000000000\r\n$1000000000000\r\nabc"), &used), REPLY_PARTIAL);
    assert_true(mem_used() - before < 10000);
    reply_reader_free(&reader);
    assert_int_equal(mem_used(), before);
}
TEST(a_line_without_end_is_refused) {
    char *line = mem_alloc(REPLY_LINE_MAX + 10);
    memset(line, '+', REPLY_LINE_MAX + 10);
    struct reply_reader reader;
    struct reply_counter counter = {0};
    size_t used;
    reply_reader_init(&reader);
    assert_int_equal(reply_read(&reader, (struct slice){line, REPLY_LINE_MAX}, &used), REPLY_PARTIAL);
    assert_int_equal(reply_read(&reader, (struct slice){line, REPLY_LINE_MAX + 10}, &used), REPLY_FAILED);
    assert_int_equal(reply_count(&counter, (struct slice){line, REPLY_LINE_MAX}, 1, &used), 0);
    assert_int_equal(reply_count(&counter, (struct slice){line, REPLY_LINE_MAX + 10}, 1, &used), -1);
    reply_reader_free(&reader);
    mem_free(line);
}
TEST(bulks_are_done_with_as_they_come) {
    struct reply_counter counter = {0};
    struct reply_reader reader;
    reply_reader_init(&reader);
    size_t used;
    struct slice part = SLICE("$100\r\n0123456789");
    assert_int_equal(reply_count(&counter, part, 1, &used), 0);
    assert_int_equal(used, part.len);
    assert_int_equal(reply_read(&reader, part, &used), REPLY_PARTIAL);
    assert_int_equal(used, part.len);
    reply_reader_free(&reader);
}
TEST(maps_are_looked_up) {
    struct reply_reader reader;
    reply_reader_init(&reader);
    size_t used;
    assert_int_equal(reply_read(&reader, SLICE("%2\r\n+a\r\n:1\r\n$2\r\nbc\r\n:2\r\n"), &used), REPLY_READY);
    assert_int_equal(resp_value_get(&reader.value, "BC")->integer, 2);
    assert_null(resp_value_get(&reader.value, "x"));
    reply_reader_free(&reader);
}
/* Random bytes that resemble replies: both readers report the same number of replies for any fragmentation, or fail. */
TEST(rubbish) {
    static const char alphabet[] = "+-:$*%~>|_#,=!(\r\n\r\n\r\n0123t";
    for (int round = 0; round < 5000; round++) {
        char bytes[100];
        size_t len = random_below(sizeof bytes);
        for (size_t i = 0; i < len; i++) bytes[i] = alphabet[random_below(sizeof alphabet - 1)];
        struct slice stream = {bytes, len};
        struct memory_output m;
        memory_output_init(&m);
        stream_describe(stream, 1000, false, &m.out);
        output_write(&m.out, (struct slice){"", 1});
        expect_by(stream, memory_output_slice(&m).data, 5, true);
        memory_output_free(&m);
        uint64_t errors = 0;
        int64_t whole = count_by(stream, sizeof bytes, &errors);
        assert_int_equal(count_by(stream, 1, &errors), whole);
    }
}
