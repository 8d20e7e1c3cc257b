/* aof_reader.c: see aof_reader.h.
 *
 * The reader first tries to parse a command in the window, which holds most commands completely. All other commands,
 * including invalid ones, are read part by part, which finds the reason and the offset of an error. */
#include "formats/aof_reader.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

enum { LINE_MAX_BYTES = 128, ARGUMENT_BYTES_MIN = 5, ARGV_MIN = 16 };

void aof_reader_init(struct aof_reader *reader, struct source *source) {
    *reader = (struct aof_reader){.source = source, .line = 1};
    reader->good_offset = reader->record_offset = reader->part_offset = source_offset(source);
}

static void release_blobs(struct aof_reader *reader) {
    for (int i = 0; i < reader->argc; i++) {
        if (reader->blobs[i]) blob_release(reader->blobs[i]);
        reader->blobs[i] = NULL;
    }
    reader->argc = 0;
}

void aof_reader_free(struct aof_reader *reader) {
    release_blobs(reader);
    mem_free(reader->argv);
    mem_free(reader->blobs);
    source_buffer_free(&reader->pool);
}

/* --- Results --- */

static enum aof_record bad(struct aof_reader *reader, enum aof_record record, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum aof_record bad(struct aof_reader *reader, enum aof_record record, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->reason, sizeof reader->reason, format, arguments);
    va_end(arguments);
    return record;
}
/* The source has failed. */
static enum aof_record stopped(struct aof_reader *reader) {
    return reader->source->truncated ? bad(reader, AOF_TRUNCATED, "The file ends inside a record") : AOF_FAILED;
}

static bool is_word(const struct aof_reader *reader, const char *word) {
    return reader->argc == 1 && slice_is(reader->argv[0], word);
}

static enum aof_record command_read(struct aof_reader *reader) {
    if (__builtin_expect(is_word(reader, "multi"), 0)) {
        if (reader->in_transaction) return bad(reader, AOF_DAMAGED, "Unexpected MULTI");
        reader->in_transaction = true;
    } else if (__builtin_expect(is_word(reader, "exec"), 0)) {
        if (!reader->in_transaction) return bad(reader, AOF_DAMAGED, "Unexpected EXEC");
        reader->in_transaction = false;
    }
    if (!reader->in_transaction) reader->good_offset = source_offset(reader->source);
    return AOF_COMMAND;
}

static bool argv_reserve(struct aof_reader *reader, int count) {
    if (count <= reader->capacity) return true;
    int capacity = reader->capacity < ARGV_MIN ? ARGV_MIN : reader->capacity;
    while (capacity < count) capacity = capacity > INT_MAX / 2 ? INT_MAX : capacity * 2;
    struct slice *argv = mem_try_realloc(reader->argv, (size_t)capacity * sizeof *argv);
    if (argv) reader->argv = argv;
    struct blob **blobs = argv ? mem_try_realloc(reader->blobs, (size_t)capacity * sizeof(struct blob *)) : NULL;
    if (!blobs) return source_fail(reader->source, -ENOMEM, "no memory for a command of %d arguments", count);
    memset(blobs + reader->capacity, 0, (size_t)(capacity - reader->capacity) * sizeof *blobs);
    reader->blobs = blobs;
    reader->capacity = capacity;
    return true;
}

/* --- In the window --- */

/* Parses a line of a prefix and a number. NULL: the line is invalid or not completely in the window. */
static const char *window_number(const char *at, const char *end, char prefix, uint32_t *number) {
    uint32_t value = 0;
    if (end - at < 4 || *at++ != prefix) return NULL;
    const char *digits = at;
    for (; at < end && *at >= '0' && *at <= '9' && at - digits < 8; at++) value = value * 10 + (uint32_t)(*at - '0');
    if (at == digits || end - at < 2 || at[0] != '\r' || at[1] != '\n') return NULL;
    *number = value;
    return at + 2;
}

static bool window_command(struct aof_reader *reader) {
    struct source *source = reader->source;
    const char *at = source->at, *end = source->end;
    uint32_t count, len;
    if (!(at = window_number(at, end, '*', &count)) || count == 0 || count > (size_t)(end - at) / ARGUMENT_BYTES_MIN ||
        !argv_reserve(reader, (int)count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!(at = window_number(at, end, '$', &len)) || (size_t)(end - at) < (size_t)len + 2 || len >= AOF_BLOB_MIN ||
            at[len] != '\r' || at[len + 1] != '\n')
            return false;
        reader->argv[i] = (struct slice){at, len};
        at += len + 2;
    }
    reader->argc = (int)count;
    reader->line += 1 + 2 * (uint64_t)count;
    reader->part_offset = source_offset(source) + (uint64_t)(reader->argv[count - 1].data - source->at);
    source->at = at;
    return true;
}

/* --- Part by part --- */

/* Reads a line up to and including its newline, but at most LINE_MAX_BYTES - 1 bytes. */
static bool read_line(struct aof_reader *reader, char text[static LINE_MAX_BYTES], size_t *len) {
    reader->part_offset = source_offset(reader->source);
    for (*len = 0; *len < LINE_MAX_BYTES - 1;) {
        uint8_t byte;
        if (!source_byte(reader->source, &byte)) return false;
        text[(*len)++] = (char)byte;
        if (byte == '\n') break;
    }
    return true;
}

static enum aof_record read_number(struct aof_reader *reader, char prefix, int64_t *number) {
    char text[LINE_MAX_BYTES + 2] = {0};
    size_t len, digits = 1;
    if (!read_line(reader, text, &len)) return stopped(reader);
    if (text[0] != prefix) return bad(reader, AOF_DAMAGED, "Expected prefix '%c', got: '%c'", prefix, text[0]);
    while (digits < len && ((text[digits] >= '0' && text[digits] <= '9') || (digits == 1 && text[1] == '-'))) digits++;
    if (text[digits] != '\r' || text[digits + 1] != '\n')
        return bad(reader, AOF_DAMAGED, "Expected \\r\\n, got: %02x%02x", (unsigned char)text[digits],
                   (unsigned char)text[digits + 1]);
    reader->line++;
    if (!parse_int64((struct slice){text + 1, digits - 1}, number) || *number < 0)
        return bad(reader, AOF_DAMAGED, "Invalid length");
    return AOF_COMMAND;
}

/* If the size of the input is unknown, the memory of a large argument grows with the bytes that arrive. */
static struct blob *read_blob(struct source *source, uint64_t len) {
    uint64_t got = 0, capacity = source_left(source) == UINT64_MAX && len > SOURCE_STEP ? SOURCE_STEP : len;
    struct blob *blob = blob_try_new((size_t)capacity);
    while (blob && got < len) {
        if (!source_read(source, blob->data + got, (size_t)(capacity - got))) {
            blob_release(blob);
            return NULL;
        }
        got = capacity;
        if (got == len) break;
        capacity = capacity < len / 2 ? capacity * 2 : len;
        struct blob *larger = blob_try_new((size_t)capacity);
        if (larger) memcpy(larger->data, blob->data, (size_t)got);
        blob_release(blob);
        blob = larger;
    }
    if (!blob) source_fail(source, -ENOMEM, "no memory for an argument of %llu bytes", (unsigned long long)len);
    return blob;
}

/* Small arguments are stored one after the other in the pool, which may move, so argv holds offsets until the command
 * is complete. */
static bool pool_read(struct aof_reader *reader, size_t len, struct slice *argument) {
    struct source *source = reader->source;
    size_t needed = reader->pool_len + len;
    if (needed > reader->pool.capacity || !reader->pool.data) {
        size_t capacity = needed + needed / 2 + 256;
        char *data = mem_try_realloc(reader->pool.data, capacity);
        if (!data) return source_fail(source, -ENOMEM, "no memory for an argument of %zu bytes", len);
        reader->pool = (struct source_buffer){data, capacity};
    }
    *argument = (struct slice){(const char *)reader->pool_len, len};
    reader->pool_len = needed;
    return source_read(source, reader->pool.data + reader->pool_len - len, len);
}

static enum aof_record read_argument(struct aof_reader *reader, int index) {
    struct source *source = reader->source;
    int64_t len;
    char end[2];
    enum aof_record record = read_number(reader, '$', &len);
    if (record != AOF_COMMAND) return record;
    reader->part_offset = source_offset(source);
    uint64_t left = source_left(source);
    if ((uint64_t)len > left)
        return bad(reader, AOF_TRUNCATED, "Expected to read %llu bytes, got %llu bytes", (unsigned long long)len + 2,
                   (unsigned long long)left);
    if (!argv_reserve(reader, index + 1)) return AOF_FAILED;
    if (len >= AOF_BLOB_MIN) {
        struct blob *blob = read_blob(source, (uint64_t)len);
        if (!blob) return stopped(reader);
        reader->blobs[index] = blob;
        reader->argv[index] = blob_slice(blob);
        reader->argc = index + 1;
    } else if (!pool_read(reader, (size_t)len, &reader->argv[index])) {
        return stopped(reader);
    }
    left = source_left(source);
    if (left < sizeof end)
        return bad(reader, AOF_TRUNCATED, "Expected to read %lld bytes, got %llu bytes", (long long)len + 2,
                   (unsigned long long)len + left);
    if (!source_read(source, end, sizeof end)) return stopped(reader);
    if (end[0] != '\r' || end[1] != '\n')
        return bad(reader, AOF_DAMAGED, "Expected \\r\\n, got: %02x%02x", (unsigned char)end[0], (unsigned char)end[1]);
    reader->line++;
    return AOF_COMMAND;
}

static enum aof_record read_command(struct aof_reader *reader) {
    int64_t count;
    enum aof_record record = read_number(reader, '*', &count);
    if (record != AOF_COMMAND) return record;
    if (count < 1 || count > INT_MAX) return bad(reader, AOF_DAMAGED, "Invalid number of arguments");
    reader->pool_len = 0;
    for (int i = 0; i < (int)count; i++)
        if ((record = read_argument(reader, i)) != AOF_COMMAND) return record;
    for (int i = 0; i < (int)count; i++)
        if (!reader->blobs[i]) reader->argv[i].data = reader->pool.data + (size_t)reader->argv[i].data;
    reader->argc = (int)count;
    return AOF_COMMAND;
}

/* --- Annotations --- */

static enum aof_record read_annotation(struct aof_reader *reader) {
    char text[LINE_MAX_BYTES];
    size_t len;
    int64_t timestamp;
    if (!read_line(reader, text, &len)) return stopped(reader);
    for (uint8_t byte = (uint8_t)text[len - 1]; byte != '\n';)
        if (!source_byte(reader->source, &byte)) return stopped(reader);
    if (len > 6 && memcmp(text, "#TS:", 4) == 0 && parse_int64((struct slice){text + 4, len - 6}, &timestamp) &&
        timestamp > 0)
        reader->timestamp = timestamp;
    if (!reader->in_transaction) reader->good_offset = source_offset(reader->source);
    return AOF_ANNOTATION;
}

enum aof_record aof_reader_next(struct aof_reader *reader) {
    struct source *source = reader->source;
    release_blobs(reader);
    if (source->failed) return stopped(reader);
    source_want(source, SOURCE_NEED_MAX);
    if (source_at_end(source)) {
        if (source->failed) return stopped(reader);
        return reader->in_transaction ? bad(reader, AOF_TRUNCATED, "Reached EOF before reading EXEC for MULTI")
                                      : AOF_END;
    }
    reader->record_offset = reader->part_offset = source_offset(source);
    if (*source->at == '#') return read_annotation(reader);
    if (*source->at != '*') return bad(reader, AOF_DAMAGED, "format error");
    if (window_command(reader)) return command_read(reader);
    if (source->failed) return stopped(reader);
    enum aof_record record = read_command(reader);
    return record == AOF_COMMAND ? command_read(reader) : record;
}
