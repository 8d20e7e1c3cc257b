/* The request reader: the requests do not depend on the fragmentation of the stream; memory is proportional to the
 * bytes that arrived, and very small for an unauthenticated peer. Input: a byte of flags, the cuts, the stream; in the
 * stream 0xFF n means n * 1024 bytes, so that small inputs can have large arguments. */
#include "fuzz.h"
#include "lib/system/memory.h"
#include "lib/text/output.h"
#include "resp/request.h"
#include "resp/request_ahead.h"

enum { STREAM_MAX = 200 * 1024, BULK_MAX = 100 * 1024 };
static const struct request_limits authenticated = {1024 * 1024 * 1024, BULK_MAX, false},
                                   before_auth = {10, 16384, true};

struct feed {
    const char *stream;
    size_t len, arrived, consumed;
    struct fuzz_cuts *cuts; /* NULL: whole */
    char *shown;            /* the last input, in a new block each time, so that stale pointers are detected */
};

static struct slice feed_show(struct feed *feed) {
    mem_free(feed->shown);
    size_t len = feed->arrived - feed->consumed;
    feed->shown = mem_alloc(len ? len : 1);
    if (len) memcpy(feed->shown, feed->stream + feed->consumed, len);
    return (struct slice){feed->shown, len};
}

static bool feed_more(struct feed *feed) {
    size_t left = feed->len - feed->arrived, piece = feed->cuts ? fuzz_piece(feed->cuts) : left;
    if (piece < feed->len / 128) piece = feed->len / 128; /* each is shown in a separate block */
    if (left == 0) return false;
    feed->arrived += piece < left ? piece : left;
    return true;
}

static void describe(struct memory_output *meaning, const struct request_reader *reader) {
    char text[48];
    snprintf(text, sizeof text, "%d%c", reader->argc, reader->is_inline ? 'i' : 'a');
    output_write(&meaning->out, slice_of(text));
    for (int i = 0; i < reader->argc; i++) {
        snprintf(text, sizeof text, "[%zu:", reader->argv[i].len);
        output_write(&meaning->out, slice_of(text));
        output_write(&meaning->out, reader->argv[i]);
    }
}

static void check_memory(const struct request_reader *reader, const struct feed *feed,
                         const struct request_limits *limits) {
    size_t bound =
        limits->unauthenticated ? 32 * 1024 + 2 * feed->arrived : 2 * BULK_MAX + 32 * 1024 + 8 * feed->arrived;
    FUZZ_CHECK(reader->memory <= bound, "%zu bytes for %zu that arrived", reader->memory, feed->arrived);
    if (limits->unauthenticated) FUZZ_CHECK(reader->larges_count == 0, "a blob before AUTH");
}

/* requests_ahead() finds the same keys as the reader. */
static void check_ahead(const struct request_reader *reader, struct slice input) {
    struct slice key = {NULL, 0};
    size_t seen;
    if (!requests_ahead(input, &key, 1, &seen)) return;
    FUZZ_CHECK(seen == reader->size, "%zu seen ahead, %zu read", seen, reader->size);
    FUZZ_CHECK(reader->argc > 1 && slice_equal(key, reader->argv[1]), "another key");
}

/* Feeds the stream and records the result. True: the stream failed. */
static bool read_all(struct feed *feed, const struct request_limits *limits, struct memory_output *meaning,
                     char *error) {
    struct request_reader reader;
    request_reader_init(&reader);
    bool failed = false, fresh = true;
    *error = '\0';
    while (!failed) {
        struct slice input = feed_show(feed);
        enum request_status status = request_read(&reader, input, limits);
        check_memory(&reader, feed, limits);
        if (status == REQUEST_PARTIAL) {
            if (!feed_more(feed)) break;
        } else if (status == REQUEST_READY) {
            FUZZ_CHECK(reader.size <= input.len && (reader.size || !input.len), "%zu of %zu", reader.size, input.len);
            describe(meaning, &reader);
            if (fresh && !reader.is_inline && reader.argc) check_ahead(&reader, input);
            for (int i = 0; i < reader.argc; i++) {
                struct blob *blob = request_take_blob(&reader, i);
                if (blob) blob_release(blob);
            }
            feed->consumed += reader.size;
            request_done(&reader);
            FUZZ_CHECK(reader.memory <= 64 * 1024, "%zu bytes kept by an idle reader", reader.memory);
            fresh = true;
            continue;
        } else if (status == REQUEST_LARGE) {
            FUZZ_CHECK(reader.size == input.len && reader.large_have <= reader.large->len, "large");
            feed->consumed += reader.size;
            size_t missing = reader.large->len - reader.large_have;
            if (feed->len - feed->consumed < missing) break;
            memcpy(reader.large->data + reader.large_have, feed->stream + feed->consumed, missing);
            feed->consumed += missing;
            feed->arrived = feed->consumed > feed->arrived ? feed->consumed : feed->arrived;
        } else {
            failed = true;
            memcpy(error, reader.error, sizeof reader.error);
        }
        fresh = false;
    }
    mem_free(feed->shown);
    request_reader_free(&reader);
    return failed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char stream[STREAM_MAX];
    struct fuzz_input in = {data, data + size};
    const struct request_limits *limits = fuzz_byte(&in) & 1 ? &before_auth : &authenticated;
    struct fuzz_cuts cuts = fuzz_take_cuts(&in);
    size_t len = 0;
    while (in.at < in.end && len < STREAM_MAX) {
        uint8_t byte = fuzz_byte(&in);
        size_t run = byte == 0xFF ? fuzz_byte(&in) * (size_t)1024 : 1;
        if (run > STREAM_MAX - len) run = STREAM_MAX - len;
        memset(stream + len, byte == 0xFF ? 'x' : byte, run);
        len += run;
    }
    struct feed whole = {.stream = stream, .len = len}, pieces = {.stream = stream, .len = len, .cuts = &cuts};
    struct memory_output one, other;
    char error[128], other_error[128];
    memory_output_init(&one);
    memory_output_init(&other);
    whole.arrived = len;
    bool failed = read_all(&whole, limits, &one, error), other_failed = read_all(&pieces, limits, &other, other_error);
    /* A line is too long only if its end has not arrived when it reaches the limit. */
    if (!strstr(error, "too big") && !strstr(other_error, "too big")) {
        FUZZ_CHECK(failed == other_failed && strcmp(error, other_error) == 0, "\"%s\" and \"%s\"", error, other_error);
        FUZZ_CHECK(slice_equal(memory_output_slice(&one), memory_output_slice(&other)), "other requests");
    }
    memory_output_free(&one);
    memory_output_free(&other);
    return 0;
}
