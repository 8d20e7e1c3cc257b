/* Requests that are passed on in pieces: the bytes of all pieces are those of the requests, and each piece has whole
 * requests. */
#include "unit.h"
#include "cluster/migration/command_pieces.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include <stdlib.h>
#include <string.h>

static struct memory_output got, wanted;
static size_t pieces_count, longest;
static bool fails;

/* A piece has whole requests only. */
static void expect_requests(struct slice bytes) {
    static const struct request_limits limits = {.multibulk_max = INT32_MAX, .bulk_max = INT64_MAX / 4};
    struct request_reader reader;
    request_reader_init(&reader);
    while (bytes.len) {
        assert_int_equal(request_read(&reader, bytes, &limits), REQUEST_READY);
        bytes = slice_make(bytes.data + reader.size, bytes.len - reader.size);
        request_done(&reader);
    }
    request_reader_free(&reader);
}

static void take(void *context, struct command_piece *piece) {
    struct command_pieces *pieces = context;
    struct memory_output bytes = MEMORY_OUTPUT_INIT;
    command_piece_write(piece, &bytes.out);
    struct slice all = memory_output_slice(&bytes);
    assert_int_equal(all.len, command_piece_memory(piece));
    expect_requests(all);
    output_write(&got.out, all);
    pieces_count++;
    if (all.len > longest) longest = all.len;
    memory_output_free(&bytes);
    command_piece_free(piece);
    if (fails) pieces->out.failed = true;
}

static int setup(void **state) {
    memory_output_init(&got);
    memory_output_init(&wanted);
    pieces_count = longest = 0;
    fails = false;
    return 0;
}
static int teardown(void **state) {
    memory_output_free(&got);
    memory_output_free(&wanted);
    return 0;
}

static void expect_same(void) {
    struct slice a = memory_output_slice(&got), b = memory_output_slice(&wanted);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
}

/* Bytes with line ends and with what looks like the head of a request. */
static struct blob *random_text(size_t len) {
    static const char letters[] = "\r\n*$123";
    struct blob *blob = blob_new(len, len);
    for (size_t i = 0; i < len; i++) blob->data[i] = letters[(size_t)rand() % (sizeof letters - 1)];
    blob->len = len;
    return blob;
}

static size_t random_len(void) {
    switch (rand() % 40) {
    case 0: return 0;
    case 1: return 20000 + (size_t)rand() % 200000;
    case 2: return (size_t)rand() % 20000;
    default: return (size_t)rand() % 60;
    }
}

static void write_random(struct output *out, int arguments, int kinds, struct blob **texts) {
    request_write_count(out, (size_t)arguments);
    for (int i = 0; i < arguments; i++) {
        if (kinds >> i % 8 & 1)
            request_write_blob(out, texts[i]);
        else
            request_write_argument(out, blob_slice(texts[i]));
    }
}

static void run_random(bool copies) {
    struct command_pieces pieces;
    command_pieces_init(&pieces, take, &pieces);
    pieces.copies = copies;
    for (int i = 0; i < 3000; i++) {
        enum { MOST = 12 };
        struct blob *texts[MOST];
        int arguments = 1 + rand() % MOST, kinds = rand();
        for (int j = 0; j < arguments; j++) texts[j] = random_text(random_len());
        write_random(&pieces.out, arguments, kinds, texts);
        write_random(&wanted.out, arguments, kinds, texts);
        for (int j = 0; j < arguments; j++) {
            /* As a module does, by a pointer. */
            if (copies && texts[j]->len) texts[j]->data[0] = 'w';
            blob_release(texts[j]);
        }
        if (i % 500 == 499) command_pieces_end(&pieces);
    }
    command_pieces_end(&pieces);
    expect_same();
    assert_true(pieces_count > 20);
    command_pieces_free(&pieces);
}

TEST_WITH(random_requests_come_in_whole_pieces, setup, teardown) {
    run_random(false);
}

TEST_WITH(copied_strings_may_change_afterwards, setup, teardown) {
    run_random(true);
}

TEST_WITH(small_requests_make_pieces_of_about_the_size, setup, teardown) {
    struct command_pieces pieces;
    command_pieces_init(&pieces, take, &pieces);
    for (int i = 0; i < 100000; i++) {
        request_write(&pieces.out, 2, (struct slice[]){SLICE("PING"), SLICE("text")});
        request_write(&wanted.out, 2, (struct slice[]){SLICE("PING"), SLICE("text")});
    }
    command_pieces_end(&pieces);
    command_pieces_free(&pieces);
    expect_same();
    assert_true(longest >= COMMAND_PIECE && longest <= 2 * COMMAND_PIECE);
}

TEST_WITH(nothing_follows_a_failure, setup, teardown) {
    struct command_pieces pieces;
    fails = true;
    command_pieces_init(&pieces, take, &pieces);
    for (int i = 0; i < 100000 && !pieces.out.failed; i++)
        request_write(&pieces.out, 2, (struct slice[]){SLICE("PING"), SLICE("text")});
    assert_true(pieces.out.failed);
    command_pieces_end(&pieces);
    assert_int_equal(pieces_count, 1);
    assert_false(pieces.out.failed);
    command_pieces_free(&pieces);
}
