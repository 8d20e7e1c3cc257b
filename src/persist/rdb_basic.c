/* rdb_basic.c: lengths and strings of rdb.h, and what surrounds a value in DUMP. */
#include "lib/crc64.h"
#include "lib/lzf.h"
#include "lib/memory.h"
#include "lib/number.h"
#include "persist/rdb.h"
#include <endian.h>
#include <math.h>

enum {
    LENGTH_14 = 0x40,
    LENGTH_32 = 0x80,
    LENGTH_64 = 0x81,
    ENCODED = 0xc0,
    ENCODED_8 = 0,
    ENCODED_16 = 1,
    ENCODED_32 = 2,
    ENCODED_LZF = 3,
    TWO_BITS = 0xc0
};
enum { INTEGER_TEXT_MAX = 11, COMPRESS_MIN = 21, COMPRESS_GAIN = 4, FOOTER = 10, TEXT_NAN = 253, TEXT_INF = 254 };
enum { LARGE_MIN = 256 * 1024 };
struct rdb_settings rdb_settings = {.compression = true};

/* Writing */

static void write_bytes(struct output *out, const void *bytes, size_t len) {
    output_write(out, slice_make(bytes, len));
}

void rdb_write_length(struct output *out, uint64_t length) {
    unsigned char bytes[9];
    if (length < 64) {
        bytes[0] = (unsigned char)length;
        write_bytes(out, bytes, 1);
    } else if (length < 1 << 14) {
        bytes[0] = (unsigned char)(LENGTH_14 | length >> 8);
        bytes[1] = (unsigned char)length;
        write_bytes(out, bytes, 2);
    } else if (length <= UINT32_MAX) {
        uint32_t big = htobe32((uint32_t)length);
        bytes[0] = LENGTH_32;
        memcpy(bytes + 1, &big, 4);
        write_bytes(out, bytes, 5);
    } else {
        uint64_t big = htobe64(length);
        bytes[0] = LENGTH_64;
        memcpy(bytes + 1, &big, 8);
        write_bytes(out, bytes, 9);
    }
}

/* As an integer, where that gives the same text again. */
static bool write_integer(struct output *out, struct slice text) {
    int64_t value;
    char again[NUMBER_TEXT_MAX];
    if (text.len > INTEGER_TEXT_MAX || !parse_int64(text, &value) || value < INT32_MIN || value > INT32_MAX)
        return false;
    if (!slice_equal(text, (struct slice){again, format_int64(again, value)})) return false;
    unsigned char bytes[5] = {ENCODED | ENCODED_8, (unsigned char)value};
    size_t len = 2;
    if (value != (int8_t)value) {
        bool wide = value != (int16_t)value;
        uint32_t little = htole32((uint32_t)value);
        bytes[0] = ENCODED | (wide ? ENCODED_32 : ENCODED_16);
        memcpy(bytes + 1, &little, 4);
        len = wide ? 5 : 3;
    }
    write_bytes(out, bytes, len);
    return true;
}

static bool write_compressed(struct output *out, struct slice text) {
    if (!rdb_settings.compression || text.len < COMPRESS_MIN) return false;
    size_t room = text.len - COMPRESS_GAIN;
    char *packed = mem_alloc(room);
    size_t len = lzf_pack(text, packed, room);
    if (len) {
        unsigned char head = ENCODED | ENCODED_LZF;
        write_bytes(out, &head, 1);
        rdb_write_length(out, len);
        rdb_write_length(out, text.len);
        write_bytes(out, packed, len);
    }
    mem_free(packed);
    return len != 0;
}

void rdb_write_string(struct output *out, struct slice text) {
    if (write_integer(out, text) || write_compressed(out, text)) return;
    rdb_write_length(out, text.len);
    output_write(out, text);
}

void rdb_write_time(struct output *out, int64_t ms) {
    uint64_t little = htole64((uint64_t)ms);
    write_bytes(out, &little, sizeof little);
}

/* Reading */

static bool take(struct rdb_reader *in, void *to, size_t len) {
    if (in->failed || (size_t)(in->end - in->at) < len) {
        in->failed = true;
        memset(to, 0, len);
        return false;
    }
    memcpy(to, in->at, len);
    in->at += len;
    return true;
}

/* A length, or the kind of an encoded string. */
static uint64_t read_length(struct rdb_reader *in, bool *encoded) {
    unsigned char first, second;
    uint32_t four;
    uint64_t eight;
    take(in, &first, 1);
    *encoded = (first & TWO_BITS) == ENCODED;
    if (*encoded || (first & TWO_BITS) == 0) return first & 63;
    if ((first & TWO_BITS) == LENGTH_14) {
        take(in, &second, 1);
        return (uint64_t)(first & 63) << 8 | second;
    }
    if (first == LENGTH_32) {
        take(in, &four, 4);
        return be32toh(four);
    }
    if (first != LENGTH_64) in->failed = true;
    take(in, &eight, 8);
    return be64toh(eight);
}

uint64_t rdb_read_length(struct rdb_reader *in) {
    bool encoded;
    uint64_t length = read_length(in, &encoded);
    if (encoded) in->failed = true;
    return in->failed ? 0 : length;
}

void rdb_read_bytes(struct rdb_reader *in, void *to, size_t len) {
    take(in, to, len);
}

double rdb_read_double(struct rdb_reader *in) {
    uint64_t bits;
    double value;
    take(in, &bits, sizeof bits);
    bits = le64toh(bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

int64_t rdb_read_time(struct rdb_reader *in) {
    uint64_t ms = 0;
    take(in, &ms, sizeof ms);
    return (int64_t)le64toh(ms);
}

double rdb_read_double_text(struct rdb_reader *in) {
    unsigned char len = 0;
    double value = 0;
    take(in, &len, 1);
    if (len >= TEXT_NAN) return len == TEXT_NAN ? NAN : len == TEXT_INF ? INFINITY : -INFINITY;
    struct slice text = {in->at, len};
    if ((size_t)(in->end - in->at) < len || !parse_double(text, &value))
        in->failed = true;
    else
        in->at += len;
    return value;
}

static struct slice read_integer(struct rdb_reader *in, uint64_t kind, char **made) {
    unsigned char bytes[4] = {0};
    size_t width = kind == ENCODED_8 ? 1 : kind == ENCODED_16 ? 2 : 4;
    if (!take(in, bytes, width)) return SLICE("");
    int64_t value = width == 1   ? (int8_t)bytes[0]
                    : width == 2 ? (int16_t)(bytes[0] | bytes[1] << 8)
                                 : (int32_t)(bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24);
    *made = mem_alloc(NUMBER_TEXT_MAX);
    return (struct slice){*made, format_int64(*made, value)};
}

/* A string becomes a value or a part of one. One that is large is refused where memory is too short for that copy. */
static struct slice fitting(struct rdb_reader *in, struct slice text) {
    if (text.len < LARGE_MIN || mem_is_available(text.len + text.len / 16)) return text;
    in->failed = true;
    return SLICE("");
}

static struct slice read_compressed(struct rdb_reader *in, char **made) {
    uint64_t packed = rdb_read_length(in), length = rdb_read_length(in);
    /* LZF makes at most 264 bytes of 3. */
    if (in->failed || packed > (uint64_t)(in->end - in->at) || length == 0 || length / 88 > packed + 1) {
        in->failed = true;
        return SLICE("");
    }
    struct slice from = {in->at, packed};
    in->at += packed;
    /* The payload chose the length, up to 88 times its own size. */
    *made = mem_try_alloc(length);
    if (!*made || !lzf_unpack(from, *made, length)) in->failed = true;
    return in->failed ? SLICE("") : fitting(in, (struct slice){*made, length});
}

struct slice rdb_read_string(struct rdb_reader *in, char **made) {
    bool encoded;
    *made = NULL;
    uint64_t length = read_length(in, &encoded);
    if (in->failed) return SLICE("");
    if (encoded) {
        if (length <= ENCODED_32) return read_integer(in, length, made);
        if (length == ENCODED_LZF) return read_compressed(in, made);
        in->failed = true;
        return SLICE("");
    }
    if (length > (uint64_t)(in->end - in->at)) {
        in->failed = true;
        return SLICE("");
    }
    struct slice text = {in->at, length};
    in->at += length;
    return fitting(in, text);
}

/* DUMP */

void dump_write(struct output *out, const struct entry *entry) {
    struct memory_output whole;
    memory_output_init(&whole);
    rdb_write_value(&whole.out, entry);
    /* The least version that can express it: older servers take it, too. */
    uint16_t version = htole16((uint16_t)rdb_value_version(entry));
    write_bytes(&whole.out, &version, 2);
    struct slice so_far = memory_output_slice(&whole);
    uint64_t crc = htole64(crc64(0, so_far.data, so_far.len));
    write_bytes(&whole.out, &crc, 8);
    output_write(out, memory_output_slice(&whole));
    memory_output_free(&whole);
}

bool dump_open(struct slice payload, struct rdb_reader *in) {
    uint16_t version;
    uint64_t crc;
    if (payload.len < FOOTER) return false;
    const char *footer = payload.data + payload.len - FOOTER;
    memcpy(&version, footer, 2);
    memcpy(&crc, footer + 2, 8);
    version = le16toh(version);
    crc = le64toh(crc);
    if (version > RDB_VERSION || (version >= RDB_VERSION_FOREIGN_MIN && version <= RDB_VERSION_FOREIGN_MAX))
        return false;
    if (crc != crc64(0, payload.data, payload.len - 8) && !rdb_settings.skip_checksum) return false;
    *in = (struct rdb_reader){.at = payload.data, .end = footer};
    return true;
}
