/* reply.c: see reply.h.
 *
 * A reply consists of small pieces, so each function reserves space once for its head and formats digits itself,
 * without printf or memory other than the output's. A head ("$5\r\n", "*2\r\n", ":1\r\n") of one or two digits, which
 * is nearly every one, needs neither a loop nor a table: a table of preformatted heads would cost a load that can miss
 * the cache, to save four stores. */
#include "resp/reply.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <stdarg.h>
#include <stdio.h>

enum { HEAD_MAX = 24 /* type, 20 digits, CRLF */ };

/* Writes type, number and CRLF at p, which has space for HEAD_MAX bytes; returns the length. */
static inline size_t head_put(char *p, char type, uint64_t value) {
    p[0] = type;
    if (value < 10) {
        p[1] = (char)('0' + value), p[2] = '\r', p[3] = '\n';
        return 4;
    }
    if (value < 100) {
        p[1] = (char)('0' + value / 10), p[2] = (char)('0' + value % 10), p[3] = '\r', p[4] = '\n';
        return 5;
    }
    size_t len = 1 + format_uint64(p + 1, value);
    p[len] = '\r', p[len + 1] = '\n';
    return len + 2;
}

static inline void head_write(struct reply *r, char type, uint64_t value) {
    char *p = output_reserve(r->out, HEAD_MAX);
    output_commit(r->out, head_put(p, type, value));
}

void reply_raw(struct reply *r, struct slice bytes) {
    output_write(r->out, bytes);
}

void reply_ok(struct reply *r) {
    memcpy(output_reserve(r->out, 5), "+OK\r\n", 5);
    output_commit(r->out, 5);
}

/* A line: one type byte, the text, CRLF. */
static __attribute__((noinline)) void line_write(struct reply *r, char type, struct slice text) {
    if (text.len + 3 > OUTPUT_RESERVE_MAX) {
        output_write(r->out, (struct slice){&type, 1});
        output_write(r->out, text);
        output_write(r->out, SLICE("\r\n"));
        return;
    }
    char *p = output_reserve(r->out, text.len + 3);
    p[0] = type;
    if (text.len) memcpy(p + 1, text.data, text.len);
    p[text.len + 1] = '\r', p[text.len + 2] = '\n';
    output_commit(r->out, text.len + 3);
}

void reply_status(struct reply *r, const char *text) {
    line_write(r, '+', slice_of(text));
}

/* The upper bit of a byte is set: it, or one before it, is below ' '. */
static inline uint64_t control_characters(const char *text) {
    const uint64_t each = 0x0101010101010101;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return (word - each * ' ') & ~word & each << 7;
}

/* False: the text has no line break. Looks at eight bytes at a time; the last eight may be looked at twice. */
static inline bool may_have_line_break(const char *text, size_t len) {
    if (len < sizeof(uint64_t)) return true;
    uint64_t found = control_characters(text + len - sizeof(uint64_t));
    for (size_t at = 0; at + sizeof(uint64_t) < len; at += sizeof(uint64_t)) found |= control_characters(text + at);
    return found != 0;
}

bool reply_error_line(struct reply *r, struct slice text) {
    line_write(r, '-', text);
    if (!r->failed) r->failed = 1;
    if (r->error_hook) r->error_hook(r, text);
    return false;
}

/* Text from a client may contain line breaks, which must not end the line. Trailing ones are dropped. */
static __attribute__((noinline)) void error_write_clean(struct reply *r, const char *text, size_t len) {
    char buffer[512], *clean = len < sizeof buffer ? buffer : mem_alloc(len + 1);
    while (len && (text[len - 1] == '\r' || text[len - 1] == '\n')) len--;
    for (size_t i = 0; i < len; i++) clean[i] = text[i] == '\r' || text[i] == '\n' ? ' ' : text[i];
    reply_error_line(r, (struct slice){clean, len});
    if (clean != buffer) mem_free(clean);
}

void reply_write_error(struct reply *r, const char *text) {
    size_t len = strlen(text);
    if (__builtin_expect(may_have_line_break(text, len), 0))
        error_write_clean(r, text, len);
    else
        reply_error_line(r, (struct slice){text, len});
}

bool reply_error_format(struct reply *r, const char *format, ...) {
    char buffer[512], *text = buffer;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(buffer, sizeof buffer, format, args);
    if (len >= (int)sizeof buffer) {
        text = mem_alloc((size_t)len + 1);
        vsnprintf(text, (size_t)len + 1, format, again);
    }
    va_end(again);
    va_end(args);
    reply_error(r, text);
    if (text != buffer) mem_free(text);
    return false;
}

void reply_integer(struct reply *r, int64_t value) {
    if (value >= 0) {
        head_write(r, ':', (uint64_t)value);
        return;
    }
    char *p = output_reserve(r->out, HEAD_MAX);
    p[0] = ':', p[1] = '-';
    size_t len = 2 + format_uint64(p + 2, 0 - (uint64_t)value);
    p[len] = '\r', p[len + 1] = '\n';
    output_commit(r->out, len + 2);
}

/* Not inline: otherwise gcc 12 warns about combinations of buffer size and copy length that cannot occur. */
__attribute__((noinline)) void reply_bulk(struct reply *r, struct slice bytes) {
    if (__builtin_expect(bytes.len > OUTPUT_RESERVE_MAX - HEAD_MAX - 2, 0)) {
        head_write(r, '$', bytes.len);
        output_write(r->out, bytes);
        output_write(r->out, SLICE("\r\n"));
        return;
    }
    char *p = output_reserve(r->out, HEAD_MAX + bytes.len + 2);
    size_t head = head_put(p, '$', bytes.len);
    p += head;
    if (bytes.len) memcpy(p, bytes.data, bytes.len);
    p[bytes.len] = '\r', p[bytes.len + 1] = '\n';
    output_commit(r->out, head + bytes.len + 2);
}

void reply_bulk_text(struct reply *r, const char *text) {
    reply_bulk(r, slice_of(text));
}

void reply_bulk_blob(struct reply *r, struct blob *blob) {
    if (!output_shares(r->out, blob)) {
        reply_bulk(r, blob_slice(blob));
        return;
    }
    head_write(r, '$', blob->len);
    output_write_blob(r->out, blob);
    output_write(r->out, SLICE("\r\n"));
}

void reply_bulk_integer(struct reply *r, int64_t value) {
    char text[NUMBER_TEXT_MAX];
    reply_bulk(r, (struct slice){text, format_int64(text, value)});
}

void reply_null(struct reply *r) {
    output_write(r->out, r->protocol > 2 ? SLICE("_\r\n") : SLICE("$-1\r\n"));
}

void reply_null_array(struct reply *r) {
    output_write(r->out, r->protocol > 2 ? SLICE("_\r\n") : SLICE("*-1\r\n"));
}

void reply_array(struct reply *r, size_t len) {
    head_write(r, '*', len);
}

void reply_map(struct reply *r, size_t pairs) {
    if (r->protocol > 2)
        head_write(r, '%', pairs);
    else
        head_write(r, '*', pairs * 2);
}

void reply_set(struct reply *r, size_t len) {
    head_write(r, r->protocol > 2 ? '~' : '*', len);
}

void reply_push(struct reply *r, size_t len) {
    head_write(r, r->protocol > 2 ? '>' : '*', len);
}

void reply_attribute(struct reply *r, size_t pairs) {
    if (r->protocol > 2)
        head_write(r, '|', pairs);
    else
        head_write(r, '*', pairs * 2);
}

void reply_double(struct reply *r, double value) {
    char text[40];
    struct slice digits = {text, format_double(text, value)};
    if (r->protocol > 2)
        line_write(r, ',', digits);
    else
        reply_bulk(r, digits);
}

void reply_boolean(struct reply *r, bool value) {
    if (r->protocol > 2)
        output_write(r->out, value ? SLICE("#t\r\n") : SLICE("#f\r\n"));
    else
        output_write(r->out, value ? SLICE(":1\r\n") : SLICE(":0\r\n"));
}

void reply_verbatim(struct reply *r, const char *extension, struct slice text) {
    if (r->protocol < 3) {
        reply_bulk(r, text);
        return;
    }
    /* The extension always has three bytes. */
    char head[4] = {' ', ' ', ' ', ':'};
    for (int i = 0; i < 3 && extension[i]; i++) head[i] = extension[i];
    head_write(r, '=', text.len + sizeof head);
    output_write(r->out, (struct slice){head, sizeof head});
    output_write(r->out, text);
    output_write(r->out, SLICE("\r\n"));
}

void reply_big_number(struct reply *r, struct slice digits) {
    if (r->protocol > 2)
        line_write(r, '(', digits);
    else
        reply_bulk(r, digits);
}

void reply_deferred_begin(struct reply *r, struct reply_deferred *deferred) {
    deferred->outer = r->out;
    memory_output_init_try(&deferred->memory);
    r->out = &deferred->memory.out;
}

void reply_deferred_end(struct reply *r, struct reply_deferred *deferred, enum reply_aggregate kind, size_t len) {
    r->out = deferred->outer;
    switch (kind) {
    case REPLY_ARRAY: reply_array(r, len); break;
    case REPLY_MAP: reply_map(r, len); break;
    case REPLY_SET: reply_set(r, len); break;
    case REPLY_PUSH: reply_push(r, len); break;
    }
    output_write(r->out, memory_output_slice(&deferred->memory));
    if (deferred->memory.out.failed) output_fail(r->out);
    memory_output_free(&deferred->memory);
}
