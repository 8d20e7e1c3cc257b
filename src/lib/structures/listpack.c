/* listpack.c: see listpack.h for the format.
 *
 * Every change is one splice: the bytes after the position move once and the memory is resized once, for any number of
 * elements. The new elements are measured first (`struct listpack_element`), so nothing is written twice.
 *
 * Memory grows to the size needed: the allocator's size classes leave enough slack to make repeated appending cheap, so
 * growing by half would only waste memory in the many small listpacks. Memory shrinks when less than half of it is
 * used. */
#include "lib/structures/listpack.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include <stdlib.h>

enum {
    HEADER = 6,
    END = 0xff,
    COUNT_UNKNOWN = 0xffff,
    TEXT32 = 0xf0,
    INT16 = 0xf1,
    INT24 = 0xf2,
    INT32 = 0xf3,
    INT64 = 0xf4,
    HEAD_MAX = 9, /* bytes of encoding and integer */
    BACKLEN_MAX = 5,
    NUMBER_DIGITS = 20 /* longer text is not an integer */
};

/* --- Header --- */

static inline uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void put32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16), p[3] = (uint8_t)(v >> 24);
}
static inline uint32_t header_count(const uint8_t *lp) {
    return (uint32_t)lp[4] | (uint32_t)lp[5] << 8;
}
static inline void header_set_count(uint8_t *lp, size_t count) {
    if (count > COUNT_UNKNOWN) count = COUNT_UNKNOWN;
    lp[4] = (uint8_t)count, lp[5] = (uint8_t)(count >> 8);
}
static inline bool at_end(const uint8_t *p) {
    return *p == END;
}

size_t listpack_bytes(const uint8_t *lp) {
    return get32(lp);
}

/* --- Elements --- */

/* Bytes of encoding and data. */
static inline size_t body_bytes(const uint8_t *p) {
    uint8_t b = *p;
    if (b < 0x80) return 1;
    if (b < 0xc0) return 1 + (size_t)(b & 0x3f);
    if (b < 0xe0) return 2;
    if (b < 0xf0) return 2 + ((size_t)(b & 0x0f) << 8 | p[1]);
    switch (b) {
    case TEXT32: return 5 + (size_t)get32(p + 1);
    case INT16: return 3;
    case INT24: return 4;
    case INT32: return 5;
    case INT64: return 9;
    default: must_equal(b, END); return 1; /* a valid listpack has nothing else here */
    }
}
static inline size_t backlen_bytes(size_t body) {
    return body <= 127 ? 1 : body < 16383 ? 2 : body < 2097151 ? 3 : body < 268435455 ? 4 : 5;
}
static inline const uint8_t *skip(const uint8_t *p) {
    size_t body = body_bytes(p);
    return p + body + backlen_bytes(body);
}
static size_t backlen_write(uint8_t *p, size_t body) {
    size_t bytes = backlen_bytes(body);
    for (size_t i = bytes; i-- > 0; body >>= 7) p[i] = (uint8_t)((body & 127) | (i ? 128 : 0));
    return bytes;
}
/* Reads the backlen that ends at p. */
static inline size_t backlen_read(const uint8_t *p) {
    size_t body = 0;
    for (unsigned shift = 0; shift < BACKLEN_MAX * 7; shift += 7, p--) {
        body |= (size_t)(*p & 127) << shift;
        if (!(*p & 128)) break;
    }
    return body;
}

size_t listpack_element_bytes(const uint8_t *element) {
    size_t body = body_bytes(element);
    return body + backlen_bytes(body);
}

/* An element to be written. */
struct listpack_element {
    uint8_t head[HEAD_MAX];
    uint8_t head_len;
    const char *text;
    size_t text_len, bytes;
};

static void element_number(struct listpack_element *e, int64_t v) {
    uint64_t u = (uint64_t)v;
    unsigned data;
    if (v >= 0 && v <= 127) {
        e->head[0] = (uint8_t)v, data = 0;
    } else if (v >= -4096 && v <= 4095) {
        e->head[0] = (uint8_t)(0xc0 | (u >> 8 & 0x1f)), e->head[1] = (uint8_t)u;
        e->head_len = 2, e->text_len = 0, e->bytes = 3;
        return;
    } else if (v >= INT16_MIN && v <= INT16_MAX) {
        e->head[0] = INT16, data = 2;
    } else if (v >= -(1 << 23) && v < 1 << 23) {
        e->head[0] = INT24, data = 3;
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        e->head[0] = INT32, data = 4;
    } else {
        e->head[0] = INT64, data = 8;
    }
    for (unsigned i = 0; i < data; i++) e->head[1 + i] = (uint8_t)(u >> 8 * i);
    e->head_len = (uint8_t)(1 + data);
    e->text_len = 0;
    e->bytes = e->head_len + 1u;
}

static inline bool is_number(struct slice text, int64_t *number) {
    return text.len && text.len <= NUMBER_DIGITS && (unsigned char)text.data[0] <= '9' && parse_int64(text, number);
}

static void element_text(struct listpack_element *e, struct slice text) {
    int64_t number;
    if (is_number(text, &number)) {
        element_number(e, number);
        return;
    }
    if (text.len < 64) {
        e->head[0] = (uint8_t)(0x80 | text.len);
        e->head_len = 1;
    } else if (text.len < 4096) {
        e->head[0] = (uint8_t)(0xe0 | text.len >> 8), e->head[1] = (uint8_t)text.len;
        e->head_len = 2;
    } else {
        must_hold(text.len <= UINT32_MAX - 64, "%zu bytes", text.len);
        e->head[0] = TEXT32;
        put32(e->head + 1, (uint32_t)text.len);
        e->head_len = 5;
    }
    e->text = text.data;
    e->text_len = text.len;
    size_t body = e->head_len + text.len;
    e->bytes = body + backlen_bytes(body);
}
static void element_value(struct listpack_element *e, const struct listpack_value *value) {
    if (value->data)
        element_text(e, (struct slice){value->data, value->len});
    else
        element_number(e, value->number);
}
static uint8_t *element_write(uint8_t *p, const struct listpack_element *e) {
    memcpy(p, e->head, e->head_len);
    if (e->text_len) memcpy(p + e->head_len, e->text, e->text_len);
    size_t body = e->head_len + e->text_len;
    return p + body + backlen_write(p + body, body);
}

size_t listpack_size_of(struct slice text) {
    struct listpack_element e;
    element_text(&e, text);
    return e.bytes;
}
size_t listpack_size_of_number(int64_t number) {
    struct listpack_element e;
    element_number(&e, number);
    return e.bytes;
}

/* --- Creation and destruction --- */

uint8_t *listpack_new(size_t capacity) {
    uint8_t *lp = mem_alloc(capacity > LISTPACK_EMPTY_BYTES ? capacity : LISTPACK_EMPTY_BYTES);
    put32(lp, LISTPACK_EMPTY_BYTES);
    lp[4] = lp[5] = 0;
    lp[HEADER] = END;
    return lp;
}
uint8_t *listpack_copy(const uint8_t *lp) {
    size_t bytes = listpack_bytes(lp);
    uint8_t *copy = mem_alloc(bytes);
    memcpy(copy, lp, bytes);
    return copy;
}
void listpack_free(uint8_t *lp) {
    mem_free(lp);
}
uint8_t *listpack_shrink(uint8_t *lp) {
    size_t bytes = listpack_bytes(lp);
    return mem_size(lp) > bytes ? mem_realloc(lp, bytes) : lp;
}
bool listpack_has_space(const uint8_t *lp, size_t more) {
    size_t now = lp ? listpack_bytes(lp) : LISTPACK_EMPTY_BYTES;
    return more <= LISTPACK_BYTES_MAX && now + more <= LISTPACK_BYTES_MAX;
}

/* --- Iteration --- */

size_t listpack_count(const uint8_t *lp) {
    size_t count = header_count(lp);
    if (__builtin_expect(count != COUNT_UNKNOWN, 1)) return count;
    count = 0;
    for (const uint8_t *p = lp + HEADER; !at_end(p); p = skip(p)) count++;
    return count;
}
uint8_t *listpack_first(const uint8_t *lp) {
    return at_end(lp + HEADER) ? NULL : (uint8_t *)lp + HEADER;
}
uint8_t *listpack_last(const uint8_t *lp) {
    return listpack_prev(lp, lp + listpack_bytes(lp) - 1);
}
uint8_t *listpack_next_any(const uint8_t *lp, const uint8_t *element) {
    const uint8_t *p = skip(element);
    return at_end(p) ? NULL : (uint8_t *)p;
}
uint8_t *listpack_prev_any(const uint8_t *lp, const uint8_t *element) {
    if (element == lp + HEADER) return NULL;
    size_t body = backlen_read(element - 1);
    must_within(body + backlen_bytes(body), (size_t)(element - lp) - HEADER);
    return (uint8_t *)element - body - backlen_bytes(body);
}
uint8_t *listpack_seek(const uint8_t *lp, int64_t index) {
    size_t count = header_count(lp);
    if (count != COUNT_UNKNOWN) {
        if (index < 0) index += (int64_t)count;
        if (index < 0 || index >= (int64_t)count) return NULL;
        if (index > (int64_t)count / 2) index -= (int64_t)count;
    }
    if (index >= 0) {
        const uint8_t *p = lp + HEADER;
        for (; !at_end(p); p = skip(p))
            if (index-- == 0) return (uint8_t *)p;
        return NULL;
    }
    uint8_t *p = listpack_last(lp);
    while (p && ++index < 0) p = listpack_prev(lp, p);
    return p;
}

/* --- Reading --- */

/* Reads the number of an integer element. */
static inline bool read_number(const uint8_t *p, int64_t *number) {
    uint8_t b = *p;
    if (b < 0x80) {
        *number = b;
        return true;
    }
    if ((b & 0xe0) == 0xc0) {
        int64_t v = (int64_t)(b & 0x1f) << 8 | p[1];
        *number = v < 4096 ? v : v - 8192;
        return true;
    }
    switch (b) {
    case INT16: *number = (int16_t)(p[1] | p[2] << 8); return true;
    case INT24:
        *number = (int32_t)((uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24) >> 8;
        return true;
    case INT32: *number = (int32_t)get32(p + 1); return true;
    case INT64: *number = (int64_t)((uint64_t)get32(p + 1) | (uint64_t)get32(p + 5) << 32); return true;
    default: return false;
    }
}
static inline struct slice read_text(const uint8_t *p) {
    uint8_t b = *p;
    if (b < 0xc0) return (struct slice){(const char *)p + 1, b & 0x3f};
    if (b < 0xf0) return (struct slice){(const char *)p + 2, (size_t)(b & 0x0f) << 8 | p[1]};
    must_equal(b, TEXT32); /* not the end */
    return (struct slice){(const char *)p + 5, get32(p + 1)};
}

bool listpack_number_any(const uint8_t *element, int64_t *number) {
    return read_number(element, number);
}
struct listpack_value listpack_get(const uint8_t *element) {
    struct listpack_value value = {0};
    if (!read_number(element, &value.number)) {
        struct slice text = read_text(element);
        value.data = text.data, value.len = text.len;
    }
    return value;
}
struct slice listpack_value_text(const struct listpack_value *value, char text[static LISTPACK_TEXT]) {
    if (value->data) return (struct slice){value->data, value->len};
    return (struct slice){text, format_int64(text, value->number)};
}
struct slice listpack_text(const uint8_t *element, char text[static LISTPACK_TEXT]) {
    int64_t number;
    if (!read_number(element, &number)) return read_text(element);
    return (struct slice){text, format_int64(text, number)};
}
bool listpack_equal(const uint8_t *element, struct slice text) {
    int64_t number, wanted;
    if (!read_number(element, &number)) return slice_equal(read_text(element), text);
    return is_number(text, &wanted) && number == wanted;
}

uint8_t *listpack_find(const uint8_t *lp, const uint8_t *p, struct slice text, unsigned pass) {
    if (!p) return NULL;
    int64_t wanted = 0, number;
    bool numeric = is_number(text, &wanted);
    while (!at_end(p)) {
        /* Another implementation may have stored an integer as a string: compare both forms. */
        if (*p >= 0x80 && *p < 0xc0) {
            if ((size_t)(*p & 0x3f) == text.len && memcmp(p + 1, text.data, text.len) == 0) return (uint8_t *)p;
        } else if (read_number(p, &number)) {
            if (numeric && number == wanted) return (uint8_t *)p;
        } else if (slice_equal(read_text(p), text)) {
            return (uint8_t *)p;
        }
        p = skip(p);
        for (unsigned i = 0; i < pass && !at_end(p); i++) p = skip(p);
    }
    return NULL;
}

/* --- Changing --- */

/* The text is not in the listpack, which may move. */
static inline bool is_outside(const uint8_t *lp, const struct listpack_element *e) {
    return !e->text_len || (const uint8_t *)e->text + e->text_len <= lp ||
           (const uint8_t *)e->text >= lp + listpack_bytes(lp);
}

/* Replaces the `old` bytes at an offset with `new` bytes, which the caller writes. */
static uint8_t *splice(uint8_t *lp, size_t offset, size_t old, size_t new) {
    size_t bytes = listpack_bytes(lp), total = bytes - old + new, tail = bytes - offset - old;
    must_hold(offset >= HEADER && offset + old < bytes, "%zu bytes at %zu of %zu", old, offset, bytes);
    must_hold(total <= UINT32_MAX, "%zu bytes", total);
    if (new > old) {
        if (total > mem_size(lp)) lp = mem_realloc(lp, total);
        memmove(lp + offset + new, lp + offset + old, tail);
    } else if (new < old) {
        memmove(lp + offset + new, lp + offset + old, tail);
        size_t capacity = mem_size(lp);
        if (capacity > 64 && total < capacity / 2) lp = mem_realloc(lp, total);
    }
    put32(lp, (uint32_t)total);
    return lp;
}
static void count_change(uint8_t *lp, size_t added, size_t removed) {
    size_t count = header_count(lp);
    if (count == COUNT_UNKNOWN) return;
    must_within(removed, count + added);
    header_set_count(lp, count + added - removed);
}

static uint8_t *insert_element(uint8_t *lp, size_t offset, const struct listpack_element *e) {
    must(is_outside(lp, e));
    lp = splice(lp, offset, 0, e->bytes);
    element_write(lp + offset, e);
    count_change(lp, 1, 0);
    return lp;
}
static size_t end_offset(const uint8_t *lp) {
    return listpack_bytes(lp) - 1;
}

uint8_t *listpack_append(uint8_t *lp, struct slice text) {
    struct listpack_element e;
    element_text(&e, text);
    return insert_element(lp, end_offset(lp), &e);
}
uint8_t *listpack_append_number(uint8_t *lp, int64_t number) {
    struct listpack_element e;
    element_number(&e, number);
    return insert_element(lp, end_offset(lp), &e);
}
uint8_t *listpack_prepend(uint8_t *lp, struct slice text) {
    struct listpack_element e;
    element_text(&e, text);
    return insert_element(lp, HEADER, &e);
}

static uint8_t *insert_values(uint8_t *lp, size_t offset, const struct listpack_value *values, size_t count) {
    size_t bytes = 0;
    struct listpack_element e;
    for (size_t i = 0; i < count; i++) {
        element_value(&e, &values[i]);
        must(is_outside(lp, &e));
        bytes += e.bytes;
    }
    lp = splice(lp, offset, 0, bytes);
    uint8_t *p = lp + offset;
    for (size_t i = 0; i < count; i++) {
        if (count > 1) element_value(&e, &values[i]);
        p = element_write(p, &e);
    }
    must_equal((size_t)(p - lp), offset + bytes);
    count_change(lp, count, 0);
    return lp;
}
uint8_t *listpack_append_many(uint8_t *lp, const struct listpack_value *values, size_t count) {
    return insert_values(lp, end_offset(lp), values, count);
}
uint8_t *listpack_insert_many(uint8_t *lp, uint8_t **element, const struct listpack_value *values, size_t count) {
    size_t offset = *element ? (size_t)(*element - lp) : end_offset(lp);
    lp = insert_values(lp, offset, values, count);
    *element = lp + offset;
    return lp;
}
uint8_t *listpack_insert(uint8_t *lp, uint8_t **element, struct listpack_value value) {
    return listpack_insert_many(lp, element, &value, 1);
}

uint8_t *listpack_replace(uint8_t *lp, uint8_t **element, struct listpack_value value) {
    struct listpack_element e;
    element_value(&e, &value);
    must(!at_end(*element) && is_outside(lp, &e));
    size_t offset = (size_t)(*element - lp), old = listpack_element_bytes(*element);
    if (old != e.bytes) lp = splice(lp, offset, old, e.bytes);
    element_write(lp + offset, &e);
    *element = lp + offset;
    return lp;
}

uint8_t *listpack_delete(uint8_t *lp, uint8_t **element, size_t count) {
    const uint8_t *p = *element;
    size_t offset = (size_t)(p - lp), deleted = 0;
    for (; deleted < count && !at_end(p); deleted++) p = skip(p);
    lp = splice(lp, offset, (size_t)(p - lp) - offset, 0);
    count_change(lp, 0, deleted);
    *element = at_end(lp + offset) ? NULL : lp + offset;
    return lp;
}
uint8_t *listpack_delete_range(uint8_t *lp, int64_t index, size_t count) {
    uint8_t *element = count ? listpack_seek(lp, index) : NULL;
    return element ? listpack_delete(lp, &element, count) : lp;
}

uint8_t *listpack_next_random(const uint8_t *lp, uint8_t *element, size_t *index, size_t total, size_t wanted,
                              unsigned group) {
    for (const uint8_t *p = element; p && wanted && *index < total; ++*index) {
        /* `wanted` of the remaining groups are still to be chosen: choose this one with that probability. */
        if (random_below(total - *index) < wanted) {
            ++*index;
            return (uint8_t *)p;
        }
        for (unsigned i = 0; i < group; i++) {
            must_hold(!at_end(p), "group %zu of %zu", *index, total);
            p = skip(p);
        }
    }
    return NULL;
}

/* --- Validating --- */

/* Returns the bytes of the element that begins at p and must end before `end`; 0: invalid. */
static size_t element_check(const uint8_t *p, const uint8_t *end) {
    size_t space = (size_t)(end - p), needed = *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : *p == TEXT32 ? 5 : 1;
    if (*p > INT64 || space < needed) return 0;
    size_t body = body_bytes(p);
    if (body > space) return 0;
    size_t backlen = backlen_bytes(body);
    uint8_t expected[BACKLEN_MAX];
    if (body + backlen > space) return 0;
    backlen_write(expected, body);
    return memcmp(expected, p + body, backlen) == 0 ? body + backlen : 0;
}

bool listpack_validate(const uint8_t *bytes, size_t size, bool deep,
                       bool (*seen)(void *context, const uint8_t *element, size_t index), void *context) {
    if (size < LISTPACK_EMPTY_BYTES || get32(bytes) != size || bytes[size - 1] != END) return false;
    if (!deep) return true;
    const uint8_t *end = bytes + size - 1;
    size_t count = 0;
    for (const uint8_t *p = bytes + HEADER; p < end; count++) {
        size_t len = element_check(p, end);
        if (!len || (seen && !seen(context, p, count))) return false;
        p += len;
    }
    return header_count(bytes) == COUNT_UNKNOWN || header_count(bytes) == count;
}
