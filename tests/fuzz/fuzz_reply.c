/* The two reply readers: a tree does not depend on the fragmentation of the stream, and the counter counts the replies
 * that the tree builder builds. The counter does not check scalars, so it may accept input that the tree builder
 * rejects, but not vice versa. Input: the cuts, the stream. */
#include "fuzz.h"
#include "lib/system/memory.h"
#include "lib/text/output.h"
#include "resp/reply_reader.h"

struct result {
    int64_t replies, asides, errors;
    bool failed;
    struct memory_output trees;
};

static void describe(struct output *out, const struct resp_value *value) {
    char text[96];
    snprintf(text, sizeof text, "%c%.3s%lld/%zu/%zu", value->type, value->extension, (long long)value->integer,
             value->text.len, value->count);
    output_write(out, slice_of(text));
    output_write(out, value->text);
    if (value->text.data) FUZZ_CHECK(value->text.data[value->text.len] == '\0', "text without end");
    for (size_t i = 0; i < value->count; i++) describe(out, &value->children[i]);
}

static void build(struct slice stream, struct fuzz_cuts *cuts, struct result *result) {
    struct reply_reader reader;
    reply_reader_init(&reader);
    memory_output_init(&result->trees);
    size_t at = 0, arrived = cuts ? 0 : stream.len;
    for (;;) {
        char *shown = mem_alloc(arrived - at + 1); /* of the exact size, so that reads past the end are detected */
        if (arrived > at) memcpy(shown, stream.data + at, arrived - at);
        size_t used = SIZE_MAX;
        enum reply_status status = reply_read(&reader, (struct slice){shown, arrived - at}, &used);
        mem_free(shown);
        if (status == REPLY_FAILED) {
            FUZZ_CHECK(reader.error[0], "no reason");
            result->failed = true;
            break;
        }
        FUZZ_CHECK(used <= arrived - at, "%zu of %zu used", used, arrived - at);
        at += used;
        if (status == REPLY_READY) {
            bool aside = reader.value.type == RESP_PUSH || reader.value.type == RESP_ATTRIBUTE;
            result->replies += !aside;
            result->asides += aside;
            result->errors += reader.value.type == RESP_ERROR;
            describe(&result->trees.out, &reader.value);
        } else {
            if (arrived == stream.len) break;
            size_t piece = fuzz_piece(cuts);
            arrived += piece < stream.len - arrived ? piece : stream.len - arrived;
        }
    }
    reply_reader_free(&reader);
}

static void count(struct slice stream, struct fuzz_cuts *cuts, struct result *result) {
    struct reply_counter counter = {0};
    size_t at = 0, arrived = 0;
    while (arrived < stream.len) {
        size_t piece = fuzz_piece(cuts);
        arrived += piece < stream.len - arrived ? piece : stream.len - arrived;
        char *shown = mem_alloc(arrived - at + 1);
        memcpy(shown, stream.data + at, arrived - at);
        size_t used = SIZE_MAX;
        int64_t ended = reply_count(&counter, (struct slice){shown, arrived - at}, INT64_MAX, &used);
        mem_free(shown);
        if (ended < 0) {
            result->failed = true;
            return;
        }
        FUZZ_CHECK(used <= arrived - at, "%zu of %zu used", used, arrived - at);
        at += used;
        result->replies += ended;
    }
    result->errors = (int64_t)counter.errors;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, data + size};
    struct fuzz_cuts cuts = fuzz_take_cuts(&in), same = cuts, none = {{NULL, 0}, 0};
    struct slice stream = fuzz_take(&in, size);
    struct result whole = {0}, pieces = {0}, counted = {0}, counted_whole = {0};
    build(stream, NULL, &whole);
    build(stream, &cuts, &pieces);
    count(stream, &same, &counted);
    count(stream, &none, &counted_whole);
    FUZZ_CHECK(whole.failed == pieces.failed && whole.replies == pieces.replies && whole.asides == pieces.asides,
               "cut otherwise");
    FUZZ_CHECK(slice_equal(memory_output_slice(&whole.trees), memory_output_slice(&pieces.trees)), "other trees");
    if (!counted.failed && !counted_whole.failed)
        FUZZ_CHECK(counted.replies == counted_whole.replies && counted.errors == counted_whole.errors,
                   "counted %lld and %lld", (long long)counted.replies, (long long)counted_whole.replies);
    FUZZ_CHECK(counted.failed == counted_whole.failed, "failed only in pieces or only whole");
    if (!counted.failed) {
        FUZZ_CHECK(whole.failed ? counted.replies >= whole.replies : counted.replies == whole.replies,
                   "counted %lld, built %lld", (long long)counted.replies, (long long)whole.replies);
        /* A bulk error is counted at its start, and also if it is null. */
        if (!whole.failed && !memchr(stream.data, '!', stream.len))
            FUZZ_CHECK(counted.errors == whole.errors, "counted %lld errors, built %lld", (long long)counted.errors,
                       (long long)whole.errors);
    }
    memory_output_free(&whole.trees);
    memory_output_free(&pieces.trees);
    return 0;
}
