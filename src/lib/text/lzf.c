/* lzf.c: see lzf.h.
 *
 * The format:
 *
 *     000lllll                     literal: l + 1 bytes follow
 *     lllooooo oooooooo            match, l of 1..6: l + 2 bytes from o + 1 bytes back; 13 bits of o, high bits first
 *     111ooooo llllllll oooooooo   match of l + 9 bytes
 *
 * liblzf compresses long input. For short input, which most values are, its table of 2^16 slots costs more in cache
 * misses than the search for matches; the compressor here uses a table with about as many slots as the input has bytes.
 * Decompression is implemented here because copying words is several times as fast as copying bytes, as liblzf does. */
#include "lib/text/lzf.h"
#include <limits.h>
#include <lzf.h>
#include <stdint.h>

enum {
    SHORT_MAX = 4096, /* longest input compressed here */
    SLOTS_LOG_MAX = 12,
    LITERALS_MAX = 32,
    MATCH_MIN = 3,
    MATCH_MAX = 264,
    OFFSET_MAX = 8192,
    WORD = 8
};

/* --- Compressing --- */

static inline uint32_t load3(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}
static inline unsigned slot_of(uint32_t three, unsigned log) {
    return (three * 2654435761u) >> (32 - log);
}
static size_t match_length(const uint8_t *a, const uint8_t *b, size_t most) {
    size_t len = MATCH_MIN;
    while (len < most && a[len] == b[len]) len++;
    return len;
}

/* Writes the literals [from, to). NULL: no space. */
static uint8_t *put_literals(uint8_t *out, const uint8_t *end, const uint8_t *from, const uint8_t *to) {
    while (from < to) {
        size_t len = (size_t)(to - from) < LITERALS_MAX ? (size_t)(to - from) : LITERALS_MAX;
        if ((size_t)(end - out) < len + 1) return NULL;
        *out++ = (uint8_t)(len - 1);
        memcpy(out, from, len);
        out += len, from += len;
    }
    return out;
}
static uint8_t *put_match(uint8_t *out, const uint8_t *end, size_t offset, size_t len) {
    if (end - out < 3) return NULL;
    len -= 2;
    if (len < 7) {
        *out++ = (uint8_t)(offset >> 8 | len << 5);
    } else {
        *out++ = (uint8_t)(offset >> 8 | 7 << 5);
        *out++ = (uint8_t)(len - 7);
    }
    *out++ = (uint8_t)offset;
    return out;
}

static size_t pack_short(const uint8_t *from, size_t len, uint8_t *to, size_t space) {
    uint16_t slots[1 << SLOTS_LOG_MAX]; /* position + 1; 0: empty slot */
    unsigned log = 5;
    while (log < SLOTS_LOG_MAX && (size_t)1 << log < len) log++;
    memset(slots, 0, sizeof *slots << log);
    const uint8_t *at = from, *literals = from, *last = from + len - MATCH_MIN, *end = to + space;
    uint8_t *out = to;
    while (at <= last) {
        uint32_t three = load3(at);
        unsigned slot = slot_of(three, log);
        const uint8_t *before = from + slots[slot] - 1;
        bool found = slots[slot] && load3(before) == three;
        slots[slot] = (uint16_t)(at - from + 1);
        if (!found) {
            at++;
            continue;
        }
        size_t left = (size_t)(from + len - at), most = left < MATCH_MAX ? left : MATCH_MAX;
        size_t matched = match_length(before, at, most);
        if (!(out = put_literals(out, end, literals, at)) ||
            !(out = put_match(out, end, (size_t)(at - before) - 1, matched)))
            return 0;
        at += matched, literals = at;
        if (at - 1 <= last) slots[slot_of(load3(at - 1), log)] = (uint16_t)(at - from);
    }
    out = put_literals(out, end, literals, from + len);
    return out ? (size_t)(out - to) : 0;
}

size_t lzf_pack(struct slice from, char *to, size_t space) {
    if (from.len == 0 || space == 0 || from.len > UINT_MAX) return 0;
    if (from.len >= MATCH_MIN && from.len <= SHORT_MAX)
        return pack_short((const uint8_t *)from.data, from.len, (uint8_t *)to, space);
    return lzf_compress(from.data, (unsigned)from.len, to, space > UINT_MAX ? UINT_MAX : (unsigned)space);
}

/* --- Unpacking --- */

/* Copies a match that may overlap its destination: a pattern of `offset` bytes repeats. */
static void repeat(uint8_t *to, size_t offset, size_t len) {
    const uint8_t *from = to - offset;
    if (offset >= len) {
        memcpy(to, from, len);
    } else if (offset == 1) {
        memset(to, *from, len);
    } else if (offset >= WORD) {
        for (; len >= WORD; to += WORD, from += WORD, len -= WORD) memcpy(to, from, WORD);
        while (len--) *to++ = *from++;
    } else {
        while (len--) *to++ = *from++;
    }
}

bool lzf_unpack(struct slice from, char *to, size_t len) {
    const uint8_t *in = (const uint8_t *)from.data, *in_end = in + from.len;
    uint8_t *out = (uint8_t *)to, *out_end = out + len;
    if (from.len == 0 || len == 0) return false;
    while (in < in_end) {
        unsigned head = *in++;
        if (head < LITERALS_MAX) {
            size_t count = head + 1;
            if ((size_t)(in_end - in) < count || (size_t)(out_end - out) < count) return false;
            memcpy(out, in, count);
            in += count, out += count;
            continue;
        }
        size_t count = head >> 5, offset = (size_t)(head & 31) << 8;
        if (count == 7) {
            if (in == in_end) return false;
            count += *in++;
        }
        if (in == in_end) return false;
        offset += *in++ + 1u;
        count += 2;
        if (offset > (size_t)(out - (uint8_t *)to) || (size_t)(out_end - out) < count) return false;
        repeat(out, offset, count);
        out += count;
    }
    return out == out_end;
}
