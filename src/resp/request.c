/* request.c: see request.h.
 *
 * The state between two calls: the number of missing arguments (args_left; 0: the head has not been read), the length
 * of the current argument (bulk_len; BULK_UNKNOWN, BULK_TAIL), and how far the input was read (offset) or searched for
 * the end of a line (scanned). A call continues from there, so fragmentation never causes a byte to be read twice.
 *
 * Found arguments are pointers into the input. If the input has moved at the next call, they are adjusted; this happens
 * only to a request that arrived in pieces, and changes only argv. Rejected: storing offsets and converting them to
 * pointers at the end, which costs a pass over argv for every request to avoid one for the rare request.
 *
 * Before a large argument is received into its blob, the input up to it is consumed; the arguments in it are copied to
 * `detached` first. The copy is cheap: few requests have both a large argument and many bytes before it.
 *
 * Line ends are checked, as Valkey 9.1 does: CR LF after a length and after the bytes of a bulk string. A client that
 * announces a wrong length is disconnected immediately, before its data is parsed as requests. */
#include "resp/request.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "lib/text/output.h"
#include <limits.h>
#include <stdio.h>

enum {
    BULK_UNKNOWN = -1, /* the "$len" line has not been read */
    BULK_TAIL = -2,    /* the bytes are in a blob; the CRLF after them is missing */
    ARGV_INLINE = 8,
    ARGV_KEEP = 1024, /* a larger argv is freed after the request */
    DETACHED_KEEP = 16 * 1024,
    BULK_MAX_DEFAULT = 512 * 1024 * 1024,
};

static __attribute__((cold)) enum request_status request_fail(struct request_reader *reader, struct slice input,
                                                              const char *text) {
    snprintf(reader->error, sizeof reader->error, "ERR Protocol error: %s", text);
    reader->unread = slice_make(input.data + reader->offset, input.len - reader->offset);
    return REQUEST_FAILED;
}

static void memory_count(struct request_reader *reader) {
    reader->memory = reader->detached_capacity + (size_t)reader->larges_capacity * sizeof *reader->larges;
    if (reader->argv != reader->argv_inline) reader->memory += (size_t)reader->argv_capacity * sizeof *reader->argv;
    for (int i = 0; i < reader->larges_count; i++) {
        if (reader->larges[i].blob) reader->memory += sizeof(struct blob) + reader->larges[i].blob->capacity;
    }
}

void request_reader_init(struct request_reader *reader) {
    memset(reader, 0, sizeof *reader);
    reader->argv = reader->argv_inline;
    reader->argv_capacity = ARGV_INLINE;
    reader->bulk_len = BULK_UNKNOWN;
}

static void larges_drop(struct request_reader *reader) {
    for (int i = 0; i < reader->larges_count; i++) {
        if (reader->larges[i].blob) blob_release(reader->larges[i].blob);
    }
    reader->larges_count = 0;
    reader->large = NULL;
    reader->large_have = reader->large_missing = 0;
}

void request_reader_free(struct request_reader *reader) {
    larges_drop(reader);
    if (reader->argv != reader->argv_inline) mem_free(reader->argv);
    mem_free(reader->detached);
    mem_free(reader->larges);
    request_reader_init(reader);
}

/* Frees the memory of an unusually large request, so that an idle client does not keep it. */
static void memory_trim(struct request_reader *reader) {
    larges_drop(reader);
    if (reader->argv_capacity > ARGV_KEEP) {
        mem_free(reader->argv);
        reader->argv = reader->argv_inline;
        reader->argv_capacity = ARGV_INLINE;
    }
    if (reader->detached_capacity > DETACHED_KEEP) {
        mem_free(reader->detached);
        reader->detached = NULL;
        reader->detached_capacity = 0;
    }
    if (reader->larges_capacity) {
        mem_free(reader->larges);
        reader->larges = NULL;
        reader->larges_capacity = 0;
    }
    memory_count(reader);
}

void request_done(struct request_reader *reader) {
    reader->argc = 0;
    reader->size = 0;
    reader->is_inline = false;
    reader->args_left = 0;
    reader->bulk_len = BULK_UNKNOWN;
    reader->base = NULL;
    reader->offset = reader->scanned = 0;
    reader->args_detached = 0;
    reader->detached_len = 0;
    if (__builtin_expect(reader->memory != 0, 0)) memory_trim(reader);
}

/* Memory grows with the arguments that have arrived, not with the number that the client announced. */
static __attribute__((noinline)) bool argv_grow(struct request_reader *reader) {
    bool is_inline = reader->argv == reader->argv_inline;
    if (reader->argv_capacity > INT_MAX / 2) return false;
    int capacity = reader->argv_capacity * 2;
    struct slice *argv = mem_try_realloc(is_inline ? NULL : reader->argv, (size_t)capacity * sizeof *argv);
    if (!argv) return false;
    if (is_inline) memcpy(argv, reader->argv_inline, sizeof reader->argv_inline);
    reader->argv = argv;
    reader->argv_capacity = capacity;
    memory_count(reader);
    return true;
}

/* False: out of memory. */
static inline bool argv_add(struct request_reader *reader, const char *data, size_t len) {
    if (__builtin_expect(reader->argc == reader->argv_capacity, 0) && !argv_grow(reader)) return false;
    reader->argv[reader->argc++] = (struct slice){data, len};
    return true;
}

static enum request_status no_memory(struct request_reader *reader, struct slice input) {
    return request_fail(reader, input, "not enough memory for the arguments");
}

/* Reserves `len` more bytes in the detached memory and adjusts arguments that point into it. False: out of memory. */
static bool detached_reserve(struct request_reader *reader, size_t len) {
    size_t needed = reader->detached_len + len;
    if (needed <= reader->detached_capacity) return true;
    size_t capacity = reader->detached_capacity * 2 > needed ? reader->detached_capacity * 2 : needed;
    const char *old = reader->detached;
    uintptr_t from = (uintptr_t)old;
    char *detached = mem_try_realloc(reader->detached, capacity);
    if (!detached) return false;
    reader->detached = detached;
    reader->detached_capacity = capacity;
    for (int i = 0; old && i < reader->argc; i++) { /* args_detached does not count arguments of an inline request */
        uintptr_t at = (uintptr_t)reader->argv[i].data;
        if (at >= from && at - from <= reader->detached_len) reader->argv[i].data = reader->detached + (at - from);
    }
    memory_count(reader);
    return true;
}

/* Copies the arguments in the input, which is about to be consumed. False: out of memory. */
static bool arguments_detach(struct request_reader *reader) {
    size_t len = 0;
    for (int i = reader->args_detached; i < reader->argc; i++) len += reader->argv[i].len;
    if (!detached_reserve(reader, len)) return false;
    for (; reader->args_detached < reader->argc; reader->args_detached++) {
        struct slice *arg = &reader->argv[reader->args_detached];
        char *copy = reader->detached + reader->detached_len;
        if (arg->len) memcpy(copy, arg->data, arg->len);
        reader->detached_len += arg->len;
        arg->data = copy;
    }
    return true;
}

/* The input has moved since the last call. */
static __attribute__((noinline)) void arguments_move(struct request_reader *reader, const char *base) {
    for (int i = reader->args_detached; i < reader->argc; i++) {
        reader->argv[i].data = base + (reader->argv[i].data - reader->base);
    }
    reader->base = base;
}

void request_moved(struct request_reader *reader, struct slice input) {
    if (input.data != reader->base) arguments_move(reader, input.data);
}

/* Frees an argv that remained after an earlier request was handed over. */
void request_release_argv(struct request_reader *reader) {
    mem_free(reader->argv);
    reader->argv = reader->argv_inline;
    reader->argv_capacity = ARGV_INLINE;
    memory_count(reader);
}

bool request_hand_over(struct request_reader *from, struct request_reader *to) {
    if (!arguments_detach(from)) {
        no_memory(from, slice_make(from->base, from->offset));
        return false;
    }
    if (to->argv != to->argv_inline) mem_free(to->argv);
    mem_free(to->detached);
    mem_free(to->larges);
    *to = *from;
    if (from->argv == from->argv_inline) {
        to->argv = to->argv_inline;
        to->argv_capacity = ARGV_INLINE;
    }
    to->base = NULL;
    request_reader_init(from);
    memory_count(to);
    return true;
}

/* A length line: `*123\r\n` without its first byte. */
enum request_line { LINE_PARTIAL, LINE_VALUE, LINE_BAD, LINE_TOO_LONG, LINE_BAD_END };

static enum request_status bad_line_end(struct request_reader *reader, struct slice input) {
    return request_fail(reader, input, "invalid CRLF in request");
}

static __attribute__((noinline)) enum request_line length_read_slow(struct request_reader *reader, struct slice input,
                                                                    int64_t *value, size_t *next) {
    size_t start = reader->offset, from = reader->scanned > start ? reader->scanned : start;
    const char *cr = memchr(input.data + from, '\r', input.len - from);
    if (!cr) {
        reader->scanned = input.len;
        return input.len - start > REQUEST_INLINE_MAX ? LINE_TOO_LONG : LINE_PARTIAL;
    }
    reader->scanned = (size_t)(cr - input.data);
    if (reader->scanned + 2 > input.len) return LINE_PARTIAL;
    if (cr[1] != '\n') return LINE_BAD_END;
    *next = reader->scanned + 2;
    const char *digits = input.data + start + 1;
    return cr > digits && parse_int64((struct slice){digits, (size_t)(cr - digits)}, value) ? LINE_VALUE : LINE_BAD;
}

/* Reads the line at reader->offset. The common case, a few digits and their line end, needs neither memchr nor a call.
 */
static inline enum request_line length_read(struct request_reader *reader, struct slice input, int64_t *value,
                                            size_t *next) {
    const char *first = input.data + reader->offset + 1, *end = input.data + input.len, *p = first;
    if (end - first > 12) end = first + 12;
    int64_t sum = 0;
    for (; p < end && (unsigned char)(*p - '0') < 10; p++) sum = sum * 10 + (*p - '0');
    if (__builtin_expect(p + 1 < end && *p == '\r' && p[1] == '\n' && p > first && (*first != '0' || p == first + 1),
                         1)) {
        *value = sum;
        *next = (size_t)(p + 2 - input.data);
        return LINE_VALUE;
    }
    return length_read_slow(reader, input, value, next);
}

static enum request_status head_read(struct request_reader *reader, struct slice input,
                                     const struct request_limits *limits) {
    int64_t count;
    size_t next;
    switch (length_read(reader, input, &count, &next)) {
    case LINE_PARTIAL: return REQUEST_PARTIAL;
    case LINE_TOO_LONG: return request_fail(reader, input, "too big mbulk count string");
    case LINE_BAD: return request_fail(reader, input, "invalid multibulk length");
    case LINE_BAD_END: return bad_line_end(reader, input);
    case LINE_VALUE: break;
    }
    if (count > INT_MAX) return request_fail(reader, input, "invalid multibulk length");
    if (count > limits->multibulk_max) {
        return request_fail(reader, input,
                            limits->unauthenticated ? "unauthenticated multibulk length" : "invalid multibulk length");
    }
    reader->offset = next;
    reader->args_left = count > 0 ? count : 0;
    return REQUEST_READY;
}

static enum request_status bulk_head_read(struct request_reader *reader, struct slice input,
                                          const struct request_limits *limits) {
    int64_t len;
    size_t next;
    enum request_line line = length_read(reader, input, &len, &next);
    if (line == LINE_PARTIAL) return REQUEST_PARTIAL;
    if (line == LINE_TOO_LONG) return request_fail(reader, input, "too big bulk count string");
    char first = input.data[reader->offset];
    if (first != '$') {
        char text[] = "expected '$', got 'x'";
        text[sizeof text - 3] = first == '\r' || first == '\n' || first == '\0' ? ' ' : first;
        return request_fail(reader, input, text);
    }
    if (line == LINE_BAD_END) return bad_line_end(reader, input);
    if (line == LINE_BAD || len < 0) return request_fail(reader, input, "invalid bulk length");
    if (len > limits->bulk_max) {
        return request_fail(reader, input,
                            limits->unauthenticated && len <= BULK_MAX_DEFAULT ? "unauthenticated bulk length"
                                                                               : "invalid bulk length");
    }
    reader->offset = next;
    reader->bulk_len = len;
    return REQUEST_READY;
}

/* Reserves space for one more large argument. */
static bool larges_reserve(struct request_reader *reader) {
    if (reader->larges_count < reader->larges_capacity) return true;
    int capacity = reader->larges_capacity ? reader->larges_capacity * 2 : 2;
    struct request_large *larges = mem_try_realloc(reader->larges, (size_t)capacity * sizeof *larges);
    if (!larges) return false;
    reader->larges = larges;
    reader->larges_capacity = capacity;
    return true;
}

/* Called for an argument that is large and incomplete: the rest is received into a blob. */
static __attribute__((noinline)) enum request_status large_begin(struct request_reader *reader, struct slice input) {
    struct blob *blob = blob_try_new((size_t)reader->bulk_len);
    if (!blob) return request_fail(reader, input, "not enough memory for the argument");
    if (!arguments_detach(reader) || !larges_reserve(reader) || !argv_add(reader, blob->data, blob->len)) {
        blob_release(blob);
        return no_memory(reader, input);
    }
    reader->large_have = input.len - reader->offset;
    if (reader->large_have) memcpy(blob->data, input.data + reader->offset, reader->large_have);
    reader->larges[reader->larges_count++] = (struct request_large){reader->argc - 1, false, blob};
    reader->args_detached = reader->argc;
    reader->large = blob;
    reader->size = input.len;
    reader->offset = reader->scanned = 0;
    reader->base = NULL;
    reader->bulk_len = BULK_TAIL;
    memory_count(reader);
    return REQUEST_LARGE;
}

/* Moves the first `have` bytes of the large argument to a blob of `len` bytes. False: out of memory. */
static bool large_resize(struct request_reader *reader, size_t have, size_t len) {
    struct blob *blob = blob_try_new(len), *old = reader->large;
    if (!blob) return false;
    if (have) memcpy(blob->data, old->data, have);
    reader->larges[reader->larges_count - 1].blob = reader->large = blob;
    reader->argv[reader->argc - 1] = blob_slice(blob);
    blob_release(old);
    memory_count(reader);
    return true;
}

void request_shrink_large(struct request_reader *reader, size_t missing) {
    size_t have = reader->large->len - missing;
    if (missing && !blob_is_shared(reader->large) && large_resize(reader, have, have)) reader->large_missing = missing;
}

/* More has arrived of an argument after request_shrink_large(). */
static __attribute__((noinline)) enum request_status large_again(struct request_reader *reader, struct slice input) {
    size_t have = reader->large->len, missing = reader->large_missing, left = input.len - reader->offset;
    if (!large_resize(reader, have, have + missing)) return no_memory(reader, input);
    if (left > missing) left = missing;
    memcpy(reader->large->data + have, input.data + reader->offset, left);
    reader->large_missing = 0;
    reader->offset += left;
    if (left == missing) return REQUEST_READY;
    reader->large_have = have + left;
    reader->size = reader->offset;
    reader->offset = reader->scanned = 0;
    return REQUEST_LARGE;
}

static inline bool is_line_end(const char *at) {
    return at[0] == '\r' && at[1] == '\n';
}

static enum request_status arguments_read(struct request_reader *reader, struct slice input,
                                          const struct request_limits *limits) {
    while (reader->args_left > 0) {
        if (reader->bulk_len == BULK_UNKNOWN) {
            if (reader->offset >= input.len) return REQUEST_PARTIAL;
            enum request_status status = bulk_head_read(reader, input, limits);
            if (status != REQUEST_READY) return status;
        }
        size_t left = input.len - reader->offset;
        if (__builtin_expect(reader->bulk_len == BULK_TAIL, 0)) {
            if (reader->large_missing) {
                enum request_status status = large_again(reader, input);
                if (status != REQUEST_READY) return status;
                left = input.len - reader->offset;
            }
            if (left < 2) return REQUEST_PARTIAL;
            if (!is_line_end(input.data + reader->offset)) return bad_line_end(reader, input);
            reader->large = NULL;
            reader->offset += 2;
        } else {
            size_t len = (size_t)reader->bulk_len;
            if (left < len && len >= REQUEST_LARGE_MIN && !limits->unauthenticated) return large_begin(reader, input);
            if (left < len + 2) return REQUEST_PARTIAL;
            if (__builtin_expect(!is_line_end(input.data + reader->offset + len), 0))
                return bad_line_end(reader, input);
            if (__builtin_expect(!argv_add(reader, input.data + reader->offset, len), 0))
                return no_memory(reader, input);
            reader->offset += len + 2;
        }
        reader->bulk_len = BULK_UNKNOWN;
        reader->args_left--;
    }
    reader->size = reader->offset;
    return REQUEST_READY;
}

/* Separators of words (after a closing quote, before a word): C's isspace. Only four of them end an unquoted word. */
static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static bool ends_word(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Decodes the character after a backslash inside "..." and moves *at past it. */
static char escape_read(const char **at, const char *end) {
    const char *p = *at;
    if (*p == 'x' && end - p > 2 && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
        *at = p + 3;
        return (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
    }
    *at = p + 1;
    switch (*p) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return *p;
    }
}

enum { WORD_UNBALANCED = -1 /* quotes */, WORD_NO_SPACE = -2 };

/* Finds the next word in [*at, end) and moves *at past it. A word without quotes is a slice of the line; a quoted word
 * is decoded into `buffer`, which needs `space` for the rest of the line. Text directly after a closing quote belongs
 * to the same word. As in Valkey, a quote at the end of an inline request closes the word even after a backslash.
 * Returns 1: a word; 0: no more; WORD_UNBALANCED; WORD_NO_SPACE: *at is the start of the word, which is quoted. */
static int word_next(const char **at, const char *end, char *buffer, size_t space, bool in_request,
                     struct slice *word) {
    const char *p = *at;
    while (p < end && is_space(*p)) p++;
    *at = p;
    if (p == end) return 0;
    const char *start = p;
    while (p < end && !ends_word(*p) && *p != '"' && *p != '\'') p++;
    if (p == end || ends_word(*p)) {
        *word = (struct slice){start, (size_t)(p - start)};
        *at = p;
        return 1;
    }
    if ((size_t)(end - start) > space) return WORD_NO_SPACE;
    char *out = buffer;
    memcpy(out, start, (size_t)(p - start));
    out += p - start;
    char quote = 0;
    for (;;) {
        if (p == end) {
            if (quote) return WORD_UNBALANCED;
            break;
        }
        if (!quote) {
            if (ends_word(*p)) break;
            if (*p == '"' || *p == '\'')
                quote = *p++;
            else
                *out++ = *p++;
        } else if (*p == quote) {
            p++;
            quote = 0;
        } else if (quote == '"' && *p == '\\' && p + 1 + in_request < end) {
            p++;
            *out++ = escape_read(&p, end);
        } else if (quote == '\'' && *p == '\\' && p + 1 + in_request < end && p[1] == '\'') {
            *out++ = '\'';
            p += 2;
        } else {
            *out++ = *p++;
        }
    }
    *word = (struct slice){buffer, (size_t)(out - buffer)};
    *at = p;
    return 1;
}

static enum request_status inline_read(struct request_reader *reader, struct slice input) {
    const char *newline = memchr(input.data + reader->scanned, '\n', input.len - reader->scanned);
    if (!newline) {
        reader->scanned = input.len;
        return input.len > REQUEST_INLINE_MAX ? request_fail(reader, input, "too big inline request") : REQUEST_PARTIAL;
    }
    const char *at = input.data, *end = newline;
    if (end > at && end[-1] == '\r') end--;
    reader->is_inline = true;
    struct slice word;
    int found;
    for (;;) {
        char *buffer = reader->detached + reader->detached_len;
        found = word_next(&at, end, buffer, reader->detached_capacity - reader->detached_len, true, &word);
        if (found == WORD_NO_SPACE) { /* decoded words never need more space than their line */
            if (!detached_reserve(reader, (size_t)(end - at))) return no_memory(reader, input);
            continue;
        }
        if (found <= 0) break;
        if (word.data == buffer) reader->detached_len += word.len;
        if (!argv_add(reader, word.data, word.len)) return no_memory(reader, input);
    }
    if (found < 0) return request_fail(reader, input, "unbalanced quotes in request");
    reader->size = (size_t)(newline + 1 - input.data);
    return REQUEST_READY;
}

enum request_status request_read(struct request_reader *reader, struct slice input,
                                 const struct request_limits *limits) {
    if (__builtin_expect(input.data != reader->base, 1)) {
        if (reader->argc > reader->args_detached) arguments_move(reader, input.data);
        reader->base = input.data;
    }
    if (reader->args_left == 0) {
        if (input.len == 0) return REQUEST_PARTIAL;
        if (input.data[0] != '*') return inline_read(reader, input);
        enum request_status status = head_read(reader, input, limits);
        if (status != REQUEST_READY) return status;
    }
    return arguments_read(reader, input, limits);
}

static size_t digits_of(size_t value) {
    char text[NUMBER_TEXT_MAX];
    return format_uint64(text, value);
}

/* `size` covers only the rest of a request of which parts were consumed before or have their own memory. */
size_t request_wire_size(const struct request_reader *reader) {
    if (!reader->larges_count && reader->size > 1) return reader->size;
    size_t size = 3 + digits_of((size_t)reader->argc);
    for (int i = 0; i < reader->argc; i++) size += 5 + digits_of(reader->argv[i].len) + reader->argv[i].len;
    return size;
}

struct request_figures request_figures(const struct request_reader *reader, size_t input, size_t sink) {
    struct request_figures figures = {0};
    for (int i = 0; i < reader->argc; i++) figures.arguments += reader->argv[i].len;
    /* The running request, the requests before it and the complete arguments of a partial request are not waiting. */
    size_t done = reader->args_left ? reader->offset : reader->size;
    if (input > done) figures.waiting = input - done;
    if (!reader->large) return figures;
    /* A large argument that is being received counts as input until the line end after it has arrived. */
    size_t large = reader->argv[reader->argc - 1].len, missing = sink < large ? sink : large;
    figures.arguments -= large;
    figures.waiting += large - missing;
    if (missing) figures.missing = missing + 2; /* and its line end */
    return figures;
}

struct blob *request_take_blob(struct request_reader *reader, int index) {
    for (int i = 0; i < reader->larges_count; i++) {
        struct request_large *large = &reader->larges[i];
        if (large->index != index || large->taken) continue;
        large->taken = true;
        return blob_hold(large->blob);
    }
    return NULL;
}

struct blob *request_find_blob(const struct request_reader *reader, struct slice argument) {
    for (int i = 0; i < reader->larges_count; i++) {
        struct blob *blob = reader->larges[i].blob;
        if (blob->data == argument.data && blob->len == argument.len) return blob;
    }
    return NULL;
}

int words_split(struct slice line, struct slice **words) {
    const char *at = line.data, *end = line.data + line.len;
    struct slice *list = NULL;
    int count = 0, capacity = 0, found;
    char *buffer = mem_alloc(line.len + 1);
    struct slice word;
    while ((found = word_next(&at, end, buffer, line.len, false, &word)) > 0) {
        mem_grow(list, count, capacity, 8);
        list[count++] = (struct slice){mem_strndup(word.data, word.len), word.len};
    }
    mem_free(buffer);
    if (found < 0) {
        words_free(list, count);
        *words = NULL;
        return -1;
    }
    *words = list ? list : mem_alloc(sizeof *list); /* never NULL on success */
    return count;
}

void words_free(struct slice *words, int count) {
    for (int i = 0; i < count; i++) mem_free((char *)words[i].data);
    mem_free(words);
}

static void head_write(struct output *out, char type, size_t value) {
    char *p = output_reserve(out, 24);
    p[0] = type;
    size_t len = 1 + format_uint64(p + 1, value);
    p[len] = '\r', p[len + 1] = '\n';
    output_commit(out, len + 2);
}

void request_write_count(struct output *out, size_t argc) {
    head_write(out, '*', argc);
}

void request_write_argument(struct output *out, struct slice argument) {
    head_write(out, '$', argument.len);
    output_write(out, argument);
    output_write(out, SLICE("\r\n"));
}

void request_write_blob(struct output *out, struct blob *argument) {
    head_write(out, '$', argument->len);
    output_write_blob(out, argument);
    output_write(out, SLICE("\r\n"));
}

void request_write(struct output *out, int argc, const struct slice *argv) {
    request_write_count(out, (size_t)argc);
    for (int i = 0; i < argc; i++) request_write_argument(out, argv[i]);
}

void word_write(struct output *out, struct slice word, bool always_quoted) {
    bool plain = word.len && !always_quoted;
    for (size_t i = 0; i < word.len && plain; i++) {
        unsigned char c = (unsigned char)word.data[i];
        plain = c > ' ' && c < 127 && c != '"' && c != '\'' && c != '\\' && (c != '#' || i);
    }
    if (plain) {
        output_write(out, word);
        return;
    }
    output_write(out, SLICE("\""));
    for (size_t i = 0; i < word.len; i++) {
        static const char special[] = "\n\r\t\a\b", letters[] = "nrtab";
        unsigned char c = (unsigned char)word.data[i];
        const char *found = c ? strchr(special, c) : NULL;
        char text[8] = {(char)c};
        if (c == '"' || c == '\\')
            snprintf(text, sizeof text, "\\%c", c);
        else if (found)
            snprintf(text, sizeof text, "\\%c", letters[found - special]);
        else if (c < ' ' || c > 126)
            snprintf(text, sizeof text, "\\x%02x", c);
        output_write(out, slice_of(text));
    }
    output_write(out, SLICE("\""));
}
