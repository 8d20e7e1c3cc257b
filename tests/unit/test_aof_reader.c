/* Append-only files: the reader finds commands, annotations and transactions inside its window and across its ends; it
 * accepts a truncated file up to a record and reports corruption with its position. */
#include "unit.h"
#include "formats/aof_reader.h"
#include "lib/system/memory.h"
#include "lib/text/output.h"
#include <errno.h>
#include <stdio.h>

static enum aof_record read_to_end(struct aof_reader *reader, struct memory_output *seen) {
    enum aof_record record;
    while ((record = aof_reader_next(reader)) == AOF_COMMAND || record == AOF_ANNOTATION) {
        char text[32];
        if (!seen) continue;
        if (record == AOF_ANNOTATION) {
            int len = snprintf(text, sizeof text, "@%lld\n", (long long)reader->timestamp);
            output_write(&seen->out, slice_make(text, (size_t)len));
            continue;
        }
        for (int i = 0; i < reader->argc; i++) {
            if (reader->blobs[i]) assert_true(blob_slice(reader->blobs[i]).data == reader->argv[i].data);
            output_write(&seen->out, reader->argv[i]);
            output_write(&seen->out, i + 1 < reader->argc ? SLICE(" ") : SLICE("\n"));
        }
    }
    return record;
}

static void add(struct memory_output *file, int argc, const struct slice *argv) {
    char text[32];
    int len = snprintf(text, sizeof text, "*%d\r\n", argc);
    output_write(&file->out, slice_make(text, (size_t)len));
    for (int i = 0; i < argc; i++) {
        len = snprintf(text, sizeof text, "$%zu\r\n", argv[i].len);
        output_write(&file->out, slice_make(text, (size_t)len));
        output_write(&file->out, argv[i]);
        output_write(&file->out, SLICE("\r\n"));
    }
}

static ssize_t trickle(struct source *source, void *to, size_t len) {
    struct slice *rest = source->context;
    size_t piece = 1 + (rest->len * 13) % 5000;
    if (piece > len) piece = len;
    if (piece > rest->len) piece = rest->len;
    memcpy(to, rest->data, piece);
    rest->data += piece, rest->len -= piece;
    return (ssize_t)piece;
}
static const struct source_ops trickle_ops = {.read = trickle};

TEST(commands_are_read_whatever_their_size) {
    static char value[400000];
    for (size_t i = 0; i < sizeof value; i++) value[i] = (char)('a' + i % 26);
    static const size_t sizes[] = {0, 1, 100, 16383, 16384, 16385, 65536, 70000, 262144, 400000};
    struct memory_output file, expected, seen;
    memory_output_init(&file);
    memory_output_init(&expected);
    output_write(&file.out, SLICE("#TS:1700000000\r\n# any text that is longer than a line of numbers may be, which is "
                                  "passed over whole, whatever is in it: *1\\r\\n$4\\r\\nPING\\r\\n, and so on\r\n"));
    output_write(&expected.out, SLICE("@1700000000\n@1700000000\n"));
    for (int round = 0; round < 40; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct slice argv[] = {SLICE("set"), SLICE("key"), {value, sizes[(i * 7 + (size_t)round) % 10]}};
            add(&file, 3, argv);
            for (int a = 0; a < 3; a++) {
                output_write(&expected.out, argv[a]);
                output_write(&expected.out, a < 2 ? SLICE(" ") : SLICE("\n"));
            }
        }
    for (int way = 0; way < 3; way++) {
        struct slice rest = memory_output_slice(&file);
        struct source source;
        struct aof_reader reader;
        if (way)
            source_init(&source, &trickle_ops, &rest, way == 1 ? rest.len : UINT64_MAX);
        else
            source_init_memory(&source, rest);
        memory_output_init(&seen);
        aof_reader_init(&reader, &source);
        assert_int_equal(read_to_end(&reader, &seen), AOF_END);
        assert_int_equal(reader.good_offset, memory_output_slice(&file).len);
        assert_int_equal(reader.line, 1 + 400 * 7);
        assert_true(slice_equal(memory_output_slice(&seen), memory_output_slice(&expected)));
        aof_reader_free(&reader);
        source_free(&source);
        memory_output_free(&seen);
    }
    memory_output_free(&file);
    memory_output_free(&expected);
}

#define SELECT "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
#define SET    "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\n1\r\n"
#define MULTI  "*1\r\n$5\r\nMULTI\r\n"
#define EXEC   "*1\r\n$4\r\nEXEC\r\n"

TEST(a_truncated_file_is_valid_up_to_a_record) {
    static const char whole[] = "#TS:5\r\n" SELECT SET MULTI SET SET EXEC SET;
    static const size_t ends[] = {0,
                                  7,
                                  7 + sizeof SELECT - 1,
                                  7 + sizeof SELECT + sizeof SET - 2,
                                  7 + sizeof SELECT + 3 * sizeof SET + sizeof MULTI + sizeof EXEC - 6,
                                  sizeof whole - 1};
    for (size_t len = 0; len < sizeof whole; len++) {
        size_t good = 0;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (ends[i] <= len) good = ends[i];
        char *exact = mem_alloc(len + 1);
        memcpy(exact, whole, len);
        struct source source;
        struct aof_reader reader;
        source_init_memory(&source, (struct slice){exact, len});
        aof_reader_init(&reader, &source);
        assert_int_equal(read_to_end(&reader, NULL), good == len ? AOF_END : AOF_TRUNCATED);
        assert_int_equal(reader.good_offset, good);
        aof_reader_free(&reader);
        source_free(&source);
        mem_free(exact);
    }
}

TEST(corruption_is_reported_with_its_position) {
    static const struct {
        const char *tail;
        uint64_t part;
        const char *reason;
    } cases[] = {
        {"*x\r\n", 0, "Expected \\r\\n, got: 780d"},
        {"*2\r\n$3\r\nget\r\n$x\r\n", 13, "Expected \\r\\n, got: 780d"},
        {"*2\r\n$3\r\ngetxx$1\r\n", 8, "Expected \\r\\n, got: 7878"},
        {EXEC, 8, "Unexpected EXEC"},
        {MULTI MULTI, 23, "Unexpected MULTI"},
        {"garbage", 0, "format error"},
        {"*1\r\n:5\r\nMULTI\r\n", 4, "Expected prefix '$', got: ':'"},
        {"*-1\r\n", 0, "Invalid length"},
        {"*1\r\n$-1\r\n", 4, "Invalid length"},
        {"*99999999999999999999\r\n", 0, "Invalid length"},
        {"*9999999999\r\n", 0, "Invalid number of arguments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_output file;
        struct source source;
        struct aof_reader reader;
        memory_output_init(&file);
        output_write(&file.out, SLICE(SET));
        output_write(&file.out, slice_of(cases[i].tail));
        source_init_memory(&source, memory_output_slice(&file));
        aof_reader_init(&reader, &source);
        assert_int_equal(read_to_end(&reader, NULL), AOF_DAMAGED);
        assert_string_equal(reader.reason, cases[i].reason);
        assert_int_equal(reader.good_offset, sizeof SET - 1);
        if (reader.part_offset - (sizeof SET - 1) != cases[i].part)
            fail_msg("%s: at %llu", cases[i].tail, (unsigned long long)reader.part_offset);
        aof_reader_free(&reader);
        source_free(&source);
        memory_output_free(&file);
    }
}

TEST(lengths_that_nothing_follows_cost_no_memory) {
    static const char *const files[] = {"*2147483647\r\n$1\r\na\r\n", "*1\r\n$9223372036854775807\r\nx",
                                        "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1000000000000\r\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int unknown = 0; unknown < 2; unknown++) {
            struct slice rest = slice_of(files[i]);
            struct source source;
            struct aof_reader reader;
            size_t before = mem_used();
            if (unknown)
                source_init(&source, &trickle_ops, &rest, UINT64_MAX);
            else
                source_init_memory(&source, rest);
            aof_reader_init(&reader, &source);
            assert_int_equal(read_to_end(&reader, NULL), AOF_TRUNCATED);
            assert_in_range(mem_used() - before, 0, 8 * 1024 * 1024);
            aof_reader_free(&reader);
            source_free(&source);
        }
}

static ssize_t broken(struct source *source, void *to, size_t len) {
    return -EIO;
}
TEST(a_disk_that_fails_is_no_end_of_a_file) {
    static const struct source_ops ops = {.read = broken};
    struct source source;
    struct aof_reader reader;
    source_init(&source, &ops, NULL, 1000);
    aof_reader_init(&reader, &source);
    assert_int_equal(read_to_end(&reader, NULL), AOF_FAILED);
    assert_int_equal(source.error, -EIO);
    aof_reader_free(&reader);
    source_free(&source);
}
