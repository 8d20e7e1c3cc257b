/* The replication stream: readers and the backlog against a model that keeps all bytes. */
#include "unit.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "repl/settings.h"
#include "repl/stream.h"
#include "server/role.h"
#include <stdlib.h>

enum { READERS = 5, STEPS = 10000, BACKLOG = 64 * 1024, PIECE_MAX = 300, BLOB_MAX = 40 * 1024, START = 1000 };

static struct {
    struct memory_output all; /* every byte since START */
    struct repl_stream_reader readers[READERS];
} model;

static int64_t end_offset(void) {
    return START + (int64_t)memory_output_slice(&model.all).len;
}
static const char *byte_at(int64_t offset) {
    return model.all.data + (offset - START);
}

static void fill(char *data, size_t len) {
    for (size_t i = 0; i < len; i++) data[i] = (char)random_u64();
}

static void write_bytes(void) {
    char piece[PIECE_MAX];
    size_t len = random_below(PIECE_MAX);
    fill(piece, len);
    output_write(&model.all.out, (struct slice){piece, len});
    repl_stream_write((struct slice){piece, len});
    repl_stream_written();
}

static void write_blob(void) {
    size_t len = 1 + random_below(BLOB_MAX);
    struct blob *blob = blob_new(len, len);
    fill(blob->data, len);
    output_write(&model.all.out, blob_slice(blob));
    repl_stream_write_blob(blob);
    blob_release(blob);
    repl_stream_written();
}

/* A group whose prefix is inserted at its start, after bytes and blobs. */
static void write_group(void) {
    static const struct slice prefix = {"*1\r\n$5\r\nMULTI\r\n", 15};
    struct memory_output before = model.all;
    memory_output_init(&model.all);
    repl_stream_mark();
    for (size_t i = random_below(random_below(10) ? 5 : 400); i; i--)
        if (random_below(30))
            write_bytes();
        else
            write_blob();
    repl_stream_insert_at_mark(prefix);
    write_bytes();
    repl_stream_unmark();
    repl_stream_written();
    struct memory_output group = model.all;
    model.all = before;
    output_write(&model.all.out, prefix);
    output_write(&model.all.out, memory_output_slice(&group));
    memory_output_free(&group);
}

static void reader_attach(struct repl_stream_reader *reader) {
    if (!random_below(3)) {
        repl_stream_attach_end(reader);
        assert_int_equal(repl_stream_reader_offset(reader), end_offset());
        return;
    }
    int64_t start = repl_stream_backlog_start();
    int64_t offset = start - 10 + (int64_t)random_below((uint64_t)(end_offset() - start) + 20);
    bool covered = offset >= start && offset <= end_offset();
    assert_int_equal(repl_stream_attach(reader, offset), covered);
    if (covered) assert_int_equal(repl_stream_reader_offset(reader), offset);
}

static void reader_read(struct repl_stream_reader *reader) {
    struct memory_output out;
    memory_output_init(&out);
    int64_t offset = repl_stream_reader_offset(reader);
    size_t max = 1 + random_below(BACKLOG), lag = repl_stream_reader_lag(reader);
    size_t got = repl_stream_read(reader, &out.out, max);
    assert_int_equal(memory_output_slice(&out).len, got);
    assert_true(got == (max < lag ? max : lag));
    if (got) assert_memory_equal(out.data, byte_at(offset), got);
    assert_int_equal(repl_stream_reader_offset(reader), offset + (int64_t)got);
    assert_int_equal(repl_stream_reader_lag(reader), lag - got);
    memory_output_free(&out);
}

static void reader_step(struct repl_stream_reader *reader) {
    if (!reader->block)
        reader_attach(reader);
    else if (random_below(20) == 0)
        repl_stream_detach(reader);
    else
        reader_read(reader);
}

static void check_backlog(void) {
    while (repl_stream_excess) repl_stream_trim();
    int64_t len = repl_stream_backlog_len(), written = end_offset() - START;
    assert_int_equal(role->position.offset, end_offset());
    assert_int_equal(repl_stream_backlog_start() + len, end_offset());
    assert_true(len >= (written < BACKLOG ? written : BACKLOG));
    /* The bytes that the slowest reader needs, its oldest block, and the bytes written since the backlog was trimmed:
     * the allocator may have made the last block larger than BACKLOG / 16. */
    int64_t needed = BACKLOG;
    for (int i = 0; i < READERS; i++) {
        int64_t lag = model.readers[i].block ? (int64_t)repl_stream_reader_lag(&model.readers[i]) : 0;
        if (lag > needed) needed = lag;
    }
    assert_true(len <= needed + BLOB_MAX + BACKLOG / 8);
    struct repl_stream_memory memory = repl_stream_memory();
    assert_int_equal(memory.blocks, memory.backlog + memory.replicas);
}

static void begin_at(int64_t offset) {
    struct stream_position position = role->position;
    position.offset = offset;
    role_set_position(&position);
}

TEST(readers_and_backlog_see_what_was_written) {
    repl_settings.backlog_size = BACKLOG;
    begin_at(START);
    memory_output_init(&model.all);
    assert_false(repl_stream_active());
    size_t before = mem_used();
    repl_stream_create_backlog();
    assert_true(repl_stream_active());
    assert_int_equal(repl_stream_backlog_start(), START);
    for (int i = 0; i < STEPS; i++) {
        switch (random_below(8)) {
        case 0: write_group(); break;
        case 1: write_blob(); break;
        case 2:
        case 3: write_bytes(); break;
        default: reader_step(&model.readers[random_below(READERS)]);
        }
        check_backlog();
    }
    for (int i = 0; i < READERS; i++) repl_stream_detach(&model.readers[i]);
    repl_stream_free_backlog();
    assert_false(repl_stream_active());
    assert_int_equal(repl_stream_memory().blocks, 0);
    memory_output_free(&model.all);
    assert_int_equal(mem_used(), before);
    assert_true(repl_stream_memory().peak > BACKLOG);
}

TEST(nobody_reads_beyond_the_mark) {
    struct repl_stream_reader reader = {.block = NULL};
    struct memory_output out;
    memory_output_init(&out);
    repl_settings.backlog_size = BACKLOG;
    begin_at(0);
    repl_stream_create_backlog();
    repl_stream_attach_end(&reader);
    repl_stream_write(SLICE("before "));
    repl_stream_mark();
    for (int i = 0; i < 3000; i++) repl_stream_write(SLICE("group ")); /* several blocks */
    assert_int_equal(repl_stream_read(&reader, &out.out, SIZE_MAX), strlen("before "));
    assert_int_equal(repl_stream_read(&reader, &out.out, SIZE_MAX), 0);
    repl_stream_insert_at_mark(SLICE("multi "));
    assert_int_equal(repl_stream_read(&reader, &out.out, SIZE_MAX), 0);
    repl_stream_unmark();
    repl_stream_written();
    assert_int_equal(repl_stream_read(&reader, &out.out, SIZE_MAX), strlen("multi ") + 3000 * strlen("group "));
    assert_memory_equal(out.data, "before multi group group ", strlen("before multi group group "));
    memory_output_free(&out);
    repl_stream_detach(&reader);
    repl_stream_free_backlog();
}

TEST(without_readers_only_the_offset_advances) {
    begin_at(7);
    repl_stream_write(SLICE("abc"));
    assert_int_equal(role->position.offset, 10);
    assert_int_equal(repl_stream_memory().blocks, 0);
}

TEST(the_backlog_keeps_what_a_slow_reader_needs) {
    struct repl_stream_reader reader = {.block = NULL};
    char piece[1000];
    repl_settings.backlog_size = BACKLOG;
    begin_at(0);
    repl_stream_create_backlog();
    repl_stream_attach_end(&reader);
    for (int i = 0; i < 1000; i++) {
        memset(piece, i, sizeof piece);
        repl_stream_write((struct slice){piece, sizeof piece});
    }
    repl_stream_written();
    assert_int_equal(repl_stream_backlog_start(), 0);
    assert_int_equal(repl_stream_reader_lag(&reader), 1000000);
    assert_true(repl_stream_memory().replicas > 800000);
    struct memory_output out;
    memory_output_init(&out);
    assert_int_equal(repl_stream_read(&reader, &out.out, SIZE_MAX), 1000000);
    for (int i = 0; i < 1000; i++) assert_int_equal((unsigned char)out.data[i * 1000 + 999], i & 255);
    assert_false(repl_stream_excess); /* a megabyte of small blocks is freed in one turn */
    assert_true(repl_stream_backlog_start() > 800000);
    assert_true(repl_stream_memory().replicas < BACKLOG / 8 + BLOB_MAX);
    memory_output_free(&out);
    repl_stream_detach(&reader);
    repl_stream_free_backlog();
}

TEST(a_blob_is_shared_not_copied) {
    begin_at(0);
    repl_stream_create_backlog();
    struct blob *blob = blob_new(100000, 100000);
    repl_stream_write_blob(blob);
    repl_stream_written();
    assert_true(blob_is_shared(blob));
    assert_int_equal(role->position.offset, 100000);
    repl_stream_free_backlog();
    assert_false(blob_is_shared(blob));
    blob_release(blob);
}
