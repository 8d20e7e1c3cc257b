/* rdb_legacy.c: ziplists and zipmaps become listpacks, element by element. The formats are in rdb_legacy.h. */
#include "formats/rdb_legacy.h"
#include "lib/structures/listpack.h"

enum { ZIPLIST_HEADER = 10, ZIPLIST_UNCOUNTED = UINT16_MAX, ZIPMAP_UNCOUNTED = 254, LONG_LENGTH = 254, END = 0xff };

/* The bytes that are not read yet. */
struct bytes {
    const uint8_t *at, *end;
};

static bool take_number(struct bytes *in, size_t width, uint64_t *number) {
    if ((size_t)(in->end - in->at) < width) return false;
    *number = 0;
    for (size_t i = width; i-- > 0;) *number = *number << 8 | in->at[i];
    in->at += width;
    return true;
}
static bool take_big_number(struct bytes *in, size_t width, uint64_t *number) {
    if ((size_t)(in->end - in->at) < width) return false;
    *number = 0;
    for (size_t i = 0; i < width; i++) *number = *number << 8 | in->at[i];
    in->at += width;
    return true;
}
/* Reads a length of either format: a byte, or 254 and four bytes. A zipmap must use the short form if possible. */
static bool take_length(struct bytes *in, uint64_t *length) {
    if (!take_number(in, 1, length) || *length == END) return false;
    return *length < LONG_LENGTH || take_number(in, 4, length);
}

static bool append_text(uint8_t **lp, struct bytes *in, uint64_t len) {
    if (len > (uint64_t)(in->end - in->at)) return false;
    struct slice text = slice_make(in->at, (size_t)len);
    if (!listpack_has_space(*lp, listpack_size_of(text))) return false;
    *lp = listpack_append(*lp, text);
    in->at += len;
    return true;
}
static bool append_number(uint8_t **lp, int64_t number) {
    if (!listpack_has_space(*lp, listpack_size_of_number(number))) return false;
    *lp = listpack_append_number(*lp, number);
    return true;
}
static bool append_integer(uint8_t **lp, struct bytes *in, uint8_t encoding) {
    if (encoding > 0xf0 && encoding < 0xfe) return append_number(lp, encoding - 0xf1);
    size_t width = encoding == 0xc0   ? 2
                   : encoding == 0xd0 ? 4
                   : encoding == 0xe0 ? 8
                   : encoding == 0xf0 ? 3
                   : encoding == 0xfe ? 1
                                      : 0;
    uint64_t number;
    if (!width || !take_number(in, width, &number)) return false;
    unsigned unused = 64 - 8 * (unsigned)width; /* sign-extend */
    return append_number(lp, (int64_t)(number << unused) >> unused);
}

static bool append_element(uint8_t **lp, struct bytes *in) {
    uint64_t first, more = 0;
    if (!take_number(in, 1, &first)) return false;
    switch (first >> 6) {
    case 0: return append_text(lp, in, first);
    case 1: return take_number(in, 1, &more) && append_text(lp, in, (first & 63) << 8 | more);
    case 2: return take_big_number(in, 4, &more) && append_text(lp, in, more);
    default: return append_integer(lp, in, (uint8_t)first);
    }
}

static bool ziplist_read(struct slice bytes, uint8_t **lp) {
    const uint8_t *start = (const uint8_t *)bytes.data;
    struct bytes in = {start, start + bytes.len};
    uint64_t size, tail, count, before, seen = 0, last_offset = ZIPLIST_HEADER, last_size = 0;
    if (bytes.len <= ZIPLIST_HEADER || in.end[-1] != END) return false;
    in.end--;
    if (!take_number(&in, 4, &size) || !take_number(&in, 4, &tail) || !take_number(&in, 2, &count) || size != bytes.len)
        return false;
    for (; in.at < in.end; seen++) {
        const uint8_t *element = in.at;
        if (!take_length(&in, &before) || before != last_size || !append_element(lp, &in)) return false;
        last_offset = (uint64_t)(element - start);
        last_size = (uint64_t)(in.at - element);
    }
    return tail == last_offset && (count == ZIPLIST_UNCOUNTED || count == seen);
}

static bool take_zipmap_length(struct bytes *in, uint64_t *length) {
    bool is_long = in->at < in->end && *in->at == LONG_LENGTH;
    return take_length(in, length) && (!is_long || *length >= LONG_LENGTH);
}

static bool zipmap_read(struct slice bytes, uint8_t **lp) {
    const uint8_t *start = (const uint8_t *)bytes.data;
    struct bytes in = {start, start + bytes.len};
    uint64_t count, len, unused, seen = 0;
    if (bytes.len < 2 || in.end[-1] != END) return false;
    in.end--;
    if (!take_number(&in, 1, &count)) return false;
    for (; in.at < in.end; seen++) {
        if (!take_zipmap_length(&in, &len) || !append_text(lp, &in, len)) return false;
        if (!take_zipmap_length(&in, &len) || !take_number(&in, 1, &unused) || !append_text(lp, &in, len)) return false;
        if (unused > (uint64_t)(in.end - in.at)) return false;
        in.at += unused;
    }
    return count >= ZIPMAP_UNCOUNTED || count == seen;
}

static uint8_t *convert(struct slice bytes, bool (*read)(struct slice bytes, uint8_t **lp)) {
    uint8_t *lp = listpack_new(bytes.len);
    if (read(bytes, &lp)) return lp;
    listpack_free(lp);
    return NULL;
}
uint8_t *ziplist_to_listpack(struct slice bytes) {
    return convert(bytes, ziplist_read);
}
uint8_t *zipmap_to_listpack(struct slice bytes) {
    return convert(bytes, zipmap_read);
}
