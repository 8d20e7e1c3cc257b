/* The request reader: the result must not depend on the fragmentation of the input. */
#include "unit.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/output.h"
#include "resp/request.h"
#include <stdio.h>

static const struct request_limits limits = {INT32_MAX, 512 * 1024 * 1024, false};
static const struct request_limits before_auth = {10, 16384, true};

/* Simulates a connection: the stream arrives in pieces, and unconsumed bytes are passed again at another address. */
struct feed {
    struct slice stream;
    size_t arrived, consumed;
    size_t (*piece)(struct feed *feed);
    size_t piece_size;
    char *memory; /* the current input: a new block for each call */
};
static size_t piece_fixed(struct feed *feed) {
    return feed->piece_size;
}
static size_t piece_random(struct feed *feed) {
    return 1 + random_below(feed->piece_size);
}

static struct slice feed_show(struct feed *feed) {
    mem_free(feed->memory);
    size_t len = feed->arrived - feed->consumed;
    feed->memory = mem_alloc(len ? len : 1);
    memcpy(feed->memory, feed->stream.data + feed->consumed, len);
    return (struct slice){feed->memory, len};
}
static bool feed_more(struct feed *feed) {
    if (feed->arrived == feed->stream.len) return false;
    feed->arrived += feed->piece(feed);
    if (feed->arrived > feed->stream.len) feed->arrived = feed->stream.len;
    return true;
}
/* conn_receive_into(): the next bytes of the stream go directly to memory. */
static void feed_receive(struct feed *feed, char *memory, size_t len) {
    assert_true(feed->stream.len - feed->consumed >= len);
    memcpy(memory, feed->stream.data + feed->consumed, len);
    feed->consumed += len;
    if (feed->arrived < feed->consumed) feed->arrived = feed->consumed;
}

/* Reads all requests of a stream and writes "argc:[arg][arg]" for each, or the error text. */
static void stream_describe(struct feed *feed, struct memory_output *meaning) {
    struct request_reader reader;
    request_reader_init(&reader);
    for (;;) {
        struct slice input = feed_show(feed);
        enum request_status status = request_read(&reader, input, &limits);
        if (status == REQUEST_PARTIAL) {
            if (!feed_more(feed)) break;
        } else if (status == REQUEST_LARGE) {
            feed->consumed += reader.size;
            feed_receive(feed, reader.large->data + reader.large_have, reader.large->len - reader.large_have);
        } else if (status == REQUEST_FAILED) {
            output_write(&meaning->out, slice_of(reader.error));
            break;
        } else {
            char head[32];
            snprintf(head, sizeof head, "%d:", reader.argc);
            output_write(&meaning->out, slice_of(head));
            for (int i = 0; i < reader.argc; i++) {
                output_write(&meaning->out, SLICE("["));
                output_write(&meaning->out, reader.argv[i]);
                output_write(&meaning->out, SLICE("]"));
            }
            feed->consumed += reader.size;
            request_done(&reader);
        }
    }
    request_reader_free(&reader);
    mem_free(feed->memory);
}

static void expect_meaning_by(struct slice stream, struct slice expected, size_t (*piece)(struct feed *), size_t size) {
    struct feed feed = {.stream = stream, .piece = piece, .piece_size = size};
    struct memory_output meaning;
    memory_output_init(&meaning);
    stream_describe(&feed, &meaning);
    struct slice got = memory_output_slice(&meaning);
    if (!slice_equal(got, expected)) {
        char wanted[300] = "", found[300] = "";
        memcpy(wanted, expected.data, expected.len < 299 ? expected.len : 299);
        memcpy(found, got.data, got.len < 299 ? got.len : 299);
        fail_msg("expected %s, got %s", wanted, found);
    }
    memory_output_free(&meaning);
}
static void expect_meaning(struct slice stream, struct slice expected) {
    expect_meaning_by(stream, expected, piece_fixed, stream.len);
    expect_meaning_by(stream, expected, piece_fixed, 1);
    for (int i = 0; i < 20; i++)
        expect_meaning_by(stream, expected, piece_random, stream.len < 8 ? stream.len : stream.len / 3);
}
#define EXPECT(stream, meaning) expect_meaning(SLICE(stream), SLICE(meaning))

TEST(arrays_of_bulks) {
    EXPECT("*1\r\n$4\r\nPING\r\n", "1:[PING]");
    EXPECT("*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n", "2:[GET][]1:[PING]");
    EXPECT("*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$3\r\n\0$*\r\n", "3:[SET][a\r\nb][\0$*]");
    EXPECT("*10\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n6\r\n$1\r\n7\r\n$"
           "1\r\n8\r\n$1\r\n9\r\n",
           "10:[0][1][2][3][4][5][6][7][8][9]");
}

TEST(arrays_without_elements_are_empty_requests) {
    EXPECT("*0\r\n*-1\r\n*-100\r\n*1\r\n$4\r\nPING\r\n", "0:0:0:1:[PING]");
}

TEST(line_ends_are_checked) {
    static const char error[] = "ERR Protocol error: invalid CRLF in request";
    EXPECT("*1\rX$4\r\nPING\r\n", error);
    EXPECT("*1\r\n$4\rYPING\r\n", error);
    EXPECT("*1\r\n$4\r\nPINGZZ", error);
    EXPECT("*1\r\n$4\r\nPING\rZ", error);
    EXPECT("*1\r\n$4\r\nPINGZ\n", error);
    EXPECT("*x\rX", error);
    EXPECT("*1\r\n$4\r\nPING\r\n*0\rX", "1:[PING]ERR Protocol error: invalid CRLF in request");
}

TEST(inline_requests) {
    EXPECT("PING\r\n", "1:[PING]");
    EXPECT("PING\n", "1:[PING]");
    EXPECT("PING\r\r\n", "1:[PING]");
    EXPECT("\r\n\n  \r\n PING  \r\n", "0:0:0:1:[PING]");
    EXPECT("ECHO \t\x0b"
           "ab\x0c\r\n",
           "2:[ECHO][ab\x0c]");
    EXPECT("+OK\r\n$5\r\n", "1:[+OK]1:[$5]");
}

TEST(inline_quotes) {
    EXPECT("PING \"\\x41\\xzz\\n\\q\" 'a\\'b\\n' \"\" ''\r\n", "5:[PING][Axzz\nq][a'b\\n][][]");
    EXPECT("ECHO a\"b c\"\r\n", "2:[ECHO][ab c]");
    EXPECT("SET \"k 1\" 'v 2' plain \"\\r\\t\\b\\a\\\\\"\n", "5:[SET][k 1][v 2][plain][\r\t\b\a\\]");
}

TEST(a_word_may_be_quoted_in_part) {
    EXPECT("PING \"a\"b 'c'\"d\"e \"\"f\r\n", "4:[PING][ab][cde][f]");
    EXPECT("PI'N'G\r\n", "1:[PING]");
}

TEST(a_quote_at_the_end_closes_behind_a_backslash) {
    EXPECT("ECHO \"a\\\"\r\n", "2:[ECHO][a\\]");
    EXPECT("ECHO 'a\\'\n", "2:[ECHO][a\\]");
    EXPECT("ECHO 'a\\''\n", "2:[ECHO][a']");
}

TEST(inline_quotes_unbalanced) {
    EXPECT("PING \"a\r\n", "ERR Protocol error: unbalanced quotes in request");
    EXPECT("PING\r\nPING \"a\\\r\n", "1:[PING]ERR Protocol error: unbalanced quotes in request");
}

TEST(malformed_lengths) {
    const char *counts[] = {"*x\r\n",
                            "*\r\n",
                            "*+1\r\n",
                            "* 1\r\n",
                            "*01\r\n",
                            "*-0\r\n",
                            "*2147483648\r\n",
                            "*99999999999999999999999999\r\n",
                            "*1\n\n$4\r\nPING\r\n"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        expect_meaning(slice_of(counts[i]), SLICE("ERR Protocol error: invalid multibulk length"));
    }
    const char *lengths[] = {"*1\r\n$x\r\n",
                             "*1\r\n$\r\n",
                             "*1\r\n$-1\r\n",
                             "*1\r\n$-0\r\n",
                             "*1\r\n$007\r\n",
                             "*1\r\n$536870913\r\n",
                             "*1\r\n$9223372036854775808\r\n"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        expect_meaning(slice_of(lengths[i]), SLICE("ERR Protocol error: invalid bulk length"));
    }
    EXPECT("*1\r\nfoo\r\n", "ERR Protocol error: expected '$', got 'f'");
    EXPECT("*1\r\n\r\n", "ERR Protocol error: expected '$', got ' '");
    EXPECT("*1\r\n\xff"
           "1\r\n",
           "ERR Protocol error: expected '$', got '\xff'");
}

static void expect_long_line(const char *head, char fill, const char *error) {
    enum { LEN = REQUEST_INLINE_MAX + 1 };
    size_t head_len = strlen(head);
    char *text = mem_alloc(head_len + LEN);
    memcpy(text, head, head_len);
    memset(text + head_len, fill, LEN);
    struct slice stream = {text, head_len + LEN};
    expect_meaning_by(stream, slice_of(error), piece_fixed, stream.len);
    expect_meaning_by(stream, slice_of(error), piece_random, 1000);
    mem_free(text);
}
TEST(lines_without_end) {
    expect_long_line("", 'A', "ERR Protocol error: too big inline request");
    expect_long_line("*", '1', "ERR Protocol error: too big mbulk count string");
    expect_long_line("*1\r\n$", '1', "ERR Protocol error: too big bulk count string");
    expect_long_line("*1\r\n", 'x', "ERR Protocol error: too big bulk count string");
}

static void expect_failure(const char *input, const struct request_limits *bounds, const char *error) {
    struct request_reader reader;
    request_reader_init(&reader);
    assert_int_equal(request_read(&reader, slice_of(input), bounds), REQUEST_FAILED);
    assert_string_equal(reader.error, error);
    request_reader_free(&reader);
}
TEST(less_is_allowed_before_auth) {
    expect_failure("*11\r\n", &before_auth, "ERR Protocol error: unauthenticated multibulk length");
    expect_failure("*1\r\n$16385\r\n", &before_auth, "ERR Protocol error: unauthenticated bulk length");
    expect_failure("*2147483648\r\n", &before_auth, "ERR Protocol error: invalid multibulk length");
    expect_failure("*1\r\n$536870913\r\n", &before_auth, "ERR Protocol error: invalid bulk length");
    struct request_reader reader;
    request_reader_init(&reader);
    assert_int_equal(request_read(&reader, SLICE("*10\r\n$16384\r\n"), &before_auth), REQUEST_PARTIAL);
    request_reader_free(&reader);
}

TEST(an_announced_count_costs_no_memory) {
    struct request_reader reader;
    request_reader_init(&reader);
    assert_int_equal(request_read(&reader, SLICE("*2147483647\r\n"), &limits), REQUEST_PARTIAL);
    assert_int_equal(reader.memory, 0);
    request_reader_free(&reader);
}

TEST(arguments_lie_in_the_input) {
    struct request_reader reader;
    request_reader_init(&reader);
    struct slice input = SLICE("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    assert_int_equal(request_read(&reader, input, &limits), REQUEST_READY);
    assert_ptr_equal(reader.argv[0].data, input.data + 8);
    assert_ptr_equal(reader.argv[1].data, input.data + 17);
    assert_int_equal(reader.size, input.len);
    request_reader_free(&reader);
}

/* A request of small, large, small, large, small arguments. The large ones are in blobs unless the whole input is
 * available. */
static struct slice large_request(struct memory_output *stream, struct memory_output *meaning, size_t large) {
    char *bytes = mem_alloc(large);
    for (size_t i = 0; i < large; i++) bytes[i] = (char)('a' + i % 26);
    struct slice argv[] = {SLICE("MSET"), SLICE("k1"), {bytes, large}, SLICE("k2"), {bytes, large - 1}, SLICE("")};
    for (int round = 0; round < 3; round++) {
        request_write(&stream->out, 6, argv);
        output_write(&meaning->out, SLICE("6:"));
        for (int i = 0; i < 6; i++) {
            output_write(&meaning->out, SLICE("["));
            output_write(&meaning->out, argv[i]);
            output_write(&meaning->out, SLICE("]"));
        }
    }
    mem_free(bytes);
    return memory_output_slice(stream);
}
TEST(large_arguments) {
    struct memory_output stream, meaning;
    memory_output_init(&stream);
    memory_output_init(&meaning);
    struct slice all = large_request(&stream, &meaning, 3 * REQUEST_LARGE_MIN);
    struct slice expected = memory_output_slice(&meaning);
    expect_meaning_by(all, expected, piece_fixed, all.len);
    expect_meaning_by(all, expected, piece_fixed, 4096);
    expect_meaning_by(all, expected, piece_fixed, 65536);
    for (int i = 0; i < 30; i++) expect_meaning_by(all, expected, piece_random, 100000);
    memory_output_free(&stream);
    memory_output_free(&meaning);
}

TEST(a_large_argument_can_be_taken) {
    struct request_reader reader;
    request_reader_init(&reader);
    struct slice head = SLICE("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\nabc");
    assert_int_equal(request_read(&reader, head, &limits), REQUEST_LARGE);
    assert_int_equal(reader.size, head.len);
    assert_int_equal(reader.large_have, 3);
    assert_int_equal(reader.large->len, 100000);
    assert_true(reader.memory >= 100000);
    memset(reader.large->data + 3, 'z', 100000 - 3);
    assert_int_equal(request_read(&reader, SLICE("\r"), &limits), REQUEST_PARTIAL);
    assert_int_equal(request_read(&reader, SLICE("\r\n*1\r\n"), &limits), REQUEST_READY);
    assert_int_equal(reader.size, 2);
    assert_int_equal(reader.argc, 3);
    assert_true(slice_equal(reader.argv[1], SLICE("k")));
    assert_null(request_take_blob(&reader, 1));
    struct blob *blob = request_take_blob(&reader, 2);
    assert_non_null(blob);
    assert_null(request_take_blob(&reader, 2));
    assert_ptr_equal(reader.argv[2].data, blob->data);
    request_done(&reader);
    assert_memory_equal(blob->data, "abczzz", 6);
    blob_release(blob);
    assert_true(reader.memory < 100); /* it may keep the small copy of the arguments before the large one */
    request_reader_free(&reader);
}

static void assert_argument(const struct request_reader *reader, int index, const char *text) {
    assert_int_equal(reader->argv[index].len, strlen(text));
    assert_memory_equal(reader->argv[index].data, text, strlen(text));
}

TEST(a_large_argument_shrinks_and_grows_again) {
    struct request_reader reader;
    request_reader_init(&reader);
    struct slice head = SLICE("*3\r\n$3\r\nset\r\n$20000\r\nabc");
    assert_int_equal(request_read(&reader, head, &limits), REQUEST_LARGE);
    assert_true(reader.memory > 20000);
    request_shrink_large(&reader, 20000 - 3);
    assert_true(reader.memory < 1000);
    assert_int_equal(request_figures(&reader, 0, 0).waiting, 3);
    assert_int_equal(request_read(&reader, SLICE("defg"), &limits), REQUEST_LARGE);
    assert_int_equal(reader.size, 4);
    assert_int_equal(reader.large_have, 7);
    assert_int_equal(reader.large->len, 20000);
    assert_memory_equal(reader.large->data, "abcdefg", 7);
    memset(reader.large->data + 7, 'x', 10000);
    request_shrink_large(&reader, 20000 - 10007);
    char rest[9993 + 7];
    memset(rest, 'y', 9993);
    memcpy(rest + 9993, "\r\n$1\r\n", 7);
    /* The whole rest is there: no more of it is received apart. */
    assert_int_equal(request_read(&reader, (struct slice){rest, sizeof rest - 1}, &limits), REQUEST_PARTIAL);
    struct memory_output all;
    memory_output_init(&all);
    output_write(&all.out, (struct slice){rest, 9993});
    output_write(&all.out, SLICE("\r\n$1\r\nz\r\n"));
    assert_int_equal(request_read(&reader, memory_output_slice(&all), &limits), REQUEST_READY);
    assert_int_equal(reader.argc, 3);
    assert_int_equal(reader.argv[1].len, 20000);
    assert_memory_equal(reader.argv[1].data, "abcdefgxx", 9);
    assert_memory_equal(reader.argv[1].data + 19998, "yy", 2);
    assert_argument(&reader, 2, "z");
    request_done(&reader);
    request_reader_free(&reader);
    memory_output_free(&all);
}

TEST(a_complete_large_argument_stays_in_the_input) {
    struct memory_output stream;
    memory_output_init(&stream);
    char *bytes = mem_calloc(1, REQUEST_LARGE_MIN);
    struct slice argv[] = {SLICE("ECHO"), {bytes, REQUEST_LARGE_MIN}};
    request_write(&stream.out, 2, argv);
    struct slice all = memory_output_slice(&stream);
    struct request_reader reader;
    request_reader_init(&reader);
    /* Only the line end is missing: waiting for it is cheaper than a copy. */
    assert_int_equal(request_read(&reader, (struct slice){all.data, all.len - 2}, &limits), REQUEST_PARTIAL);
    assert_int_equal(request_read(&reader, all, &limits), REQUEST_READY);
    assert_true(reader.argv[1].data > all.data && reader.argv[1].data < all.data + all.len);
    request_reader_free(&reader);
    mem_free(bytes);
    memory_output_free(&stream);
}

TEST(a_request_is_handed_over_whole) {
    struct request_reader from, to;
    request_reader_init(&from);
    request_reader_init(&to);
    for (int round = 0; round < 3; round++) { /* the second request reuses memory of the first */
        char line[] = "set \"a b\" plain 'c d'\r\n";
        assert_int_equal(request_read(&from, slice_of(line), &limits), REQUEST_READY);
        assert_true(request_is_detached(&from));
        request_hand_over(&from, &to);
        memset(line, 'x', sizeof line);
        assert_int_equal(from.argc, 0);
        assert_int_equal(to.argc, 4);
        assert_argument(&to, 0, "set");
        assert_argument(&to, 1, "a b");
        assert_argument(&to, 2, "plain");
        assert_argument(&to, 3, "c d");
        request_done(&to);
    }
    /* A request with a large argument, followed by another one. */
    char head[] = "*3\r\n$3\r\nset\r\n$70000\r\nlar", tail[] = "\r\n$4\r\nlast\r\n";
    assert_int_equal(request_read(&from, slice_of(head), &limits), REQUEST_LARGE);
    memset(from.large->data + from.large_have, 'g', from.large->len - from.large_have);
    memset(head, 'x', sizeof head);
    assert_int_equal(request_read(&from, slice_of(tail), &limits), REQUEST_READY);
    request_hand_over(&from, &to);
    memset(tail, 'x', sizeof tail);
    assert_int_equal(to.argc, 3);
    assert_argument(&to, 0, "set");
    assert_int_equal(to.argv[1].len, 70000);
    assert_memory_equal(to.argv[1].data, "larg", 4);
    assert_argument(&to, 2, "last");
    struct blob *blob = request_take_blob(&to, 1);
    assert_non_null(blob);
    request_done(&to);
    assert_false(blob_is_shared(blob));
    blob_release(blob);
    /* The other reader starts again from the beginning. */
    assert_int_equal(request_read(&from, SLICE("*1\r\n$4\r\nPING\r\n"), &limits), REQUEST_READY);
    assert_false(request_is_detached(&from));
    assert_argument(&from, 0, "PING");
    request_reader_free(&from);
    request_reader_free(&to);
}

TEST(a_lent_request_leaves_the_reader_as_it_was) {
    struct request_reader reader;
    request_reader_init(&reader);
    struct slice argv[20] = {SLICE("get"), SLICE("k")};
    request_lend(&reader, argv, 20, 99);
    assert_int_equal(reader.argc, 20);
    assert_argument(&reader, 1, "k");
    request_give_back(&reader);
    assert_int_equal(request_read(&reader, SLICE("*1\r\n$4\r\nPING\r\n"), &limits), REQUEST_READY);
    assert_argument(&reader, 0, "PING");
    request_reader_free(&reader);
}

/* An earlier request with many arguments leaves its argv, as does a request that was handed over. */
TEST(a_lent_request_frees_the_argv_of_the_one_before) {
    struct request_reader reader;
    request_reader_init(&reader);
    struct slice many = SLICE("*9\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"
                              "$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n");
    struct slice argv[2] = {SLICE("get"), SLICE("k")};
    size_t before = mem_used();
    assert_int_equal(request_read(&reader, many, &limits), REQUEST_READY);
    request_done(&reader);
    request_lend(&reader, argv, 2, 9);
    assert_argument(&reader, 1, "k");
    request_give_back(&reader);
    assert_int_equal(reader.memory, 0);
    assert_int_equal(mem_used(), before);
    assert_int_equal(request_read(&reader, many, &limits), REQUEST_READY);
    assert_int_equal(reader.argc, 9);
    assert_argument(&reader, 8, "a");
    request_reader_free(&reader);
}

TEST(requests_of_many_arguments) {
    struct memory_output stream;
    memory_output_init(&stream);
    enum { COUNT = 20000 };
    struct slice *argv = mem_alloc(COUNT * sizeof *argv);
    for (int i = 0; i < COUNT; i++) argv[i] = i % 2 ? SLICE("value") : SLICE("k");
    request_write(&stream.out, COUNT, argv);
    struct slice all = memory_output_slice(&stream);
    struct request_reader reader;
    request_reader_init(&reader);
    for (size_t at = 1000; at < all.len; at += 5000) {
        assert_int_equal(request_read(&reader, (struct slice){all.data, at}, &limits), REQUEST_PARTIAL);
    }
    assert_int_equal(request_read(&reader, all, &limits), REQUEST_READY);
    assert_int_equal(reader.argc, COUNT);
    for (int i = 0; i < COUNT; i++) assert_true(slice_equal(reader.argv[i], argv[i]));
    request_done(&reader);
    assert_int_equal(reader.memory, 0);
    request_reader_free(&reader);
    mem_free(argv);
    memory_output_free(&stream);
}

TEST(words) {
    struct slice *list;
    assert_int_equal(words_split(SLICE("  set \"a b\\x0a\" 'c''"), &list), -1);
    int count = words_split(SLICE("  set \"a b\\x0a\" 'c' \"d\"'e'"), &list);
    assert_int_equal(count, 4);
    assert_true(slice_equal(list[1], SLICE("a b\n")));
    assert_true(slice_equal(list[2], SLICE("c")));
    assert_true(slice_equal(list[3], SLICE("de")));
    words_free(list, count);
    assert_int_equal(words_split(SLICE("a \"b\\\""), &list), -1);
    assert_int_equal(words_split(SLICE("   "), &list), 0);
    words_free(list, 0);
}

/* Random bytes that resemble requests: the reader must return a status and do nothing else. */
TEST(rubbish) {
    static const char alphabet[] = "**$$\r\n\r\n0123-\"'\\x a";
    for (int round = 0; round < 3000; round++) {
        char bytes[200];
        size_t len = random_below(sizeof bytes);
        for (size_t i = 0; i < len; i++) bytes[i] = alphabet[random_below(sizeof alphabet - 1)];
        struct feed feed = {.stream = {bytes, len}, .piece = piece_random, .piece_size = 10};
        struct memory_output meaning;
        memory_output_init(&meaning);
        stream_describe(&feed, &meaning);
        struct slice whole = memory_output_slice(&meaning);
        expect_meaning_by((struct slice){bytes, len}, whole, piece_fixed, sizeof bytes);
        memory_output_free(&meaning);
    }
}
