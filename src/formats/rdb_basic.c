/* rdb_basic.c: lengths and strings of rdb.h, and the frame of a DUMP payload. */
#include "formats/rdb.h"
#include "lib/hash/crc64.h"
#include "lib/system/memory.h"
#include "lib/text/lzf.h"
#include "lib/text/number.h"
#include "store/bulk.h"
#include <endian.h>
#include <errno.h>
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
enum { INTEGER_TEXT_MAX = 11, FOOTER = 10, TEXT_NAN = 253, TEXT_INF = 254 };
enum {
    COMPRESS_MIN = 21, /* minimum bytes of a text to compress, and of the gain */
    COMPRESS_GAIN = 4,
    COMPRESS_ON_STACK = 4096,
    PROBE_MIN = 8192, /* of longer texts two pieces are tried first */
    PROBE = 1024,
    PROBE_GAIN = 16,
    LARGE_MIN = 256 * 1024, /* strings of at least this size need a memory check */
    LZF_EXPANSION = 88      /* LZF expands 3 bytes to at most 264 */
};
struct rdb_settings rdb_settings = {.compression = true};
uint64_t rdb_sanitizations;

/* --- Writing --- */

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

static bool write_small_integer(struct output *out, int64_t value) {
    if (value < INT32_MIN || value > INT32_MAX) return false;
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
/* Writes text as an integer if it is in canonical form, so that a reader gets the same text. */
static bool write_integer(struct output *out, struct slice text) {
    int64_t value;
    return text.len <= INTEGER_TEXT_MAX && parse_int64(text, &value) && write_small_integer(out, value);
}

void rdb_write_compressed(struct output *out, struct slice packed, size_t length) {
    unsigned char head = ENCODED | ENCODED_LZF;
    write_bytes(out, &head, 1);
    rdb_write_length(out, packed.len);
    rdb_write_length(out, length);
    output_write(out, packed);
}

/* Compressing takes as long for incompressible text as for other text. So for a long text two short pieces are tried
 * first, one at the beginning and one in the middle. If neither shrinks, the text is probably compressed or encrypted
 * already. */
static bool seems_compressible(struct slice text) {
    char packed[PROBE];
    return text.len < PROBE_MIN || lzf_pack((struct slice){text.data, PROBE}, packed, PROBE - PROBE_GAIN) ||
           lzf_pack((struct slice){text.data + text.len / 2, PROBE}, packed, PROBE - PROBE_GAIN);
}

static bool write_packed(struct output *out, struct slice text) {
    char small[COMPRESS_ON_STACK], *packed = small;
    if (!seems_compressible(text)) return false;
    size_t capacity = text.len - COMPRESS_GAIN;
    if (capacity > sizeof small && !(packed = mem_try_alloc(capacity))) return false;
    size_t len = lzf_pack(text, packed, capacity);
    if (len) rdb_write_compressed(out, (struct slice){packed, len}, text.len);
    if (packed != small) mem_free(packed);
    return len != 0;
}

void rdb_write_plain(struct output *out, struct slice text, struct blob *blob) {
    rdb_write_length(out, text.len);
    if (blob)
        output_write_blob(out, blob);
    else
        output_write(out, text);
}

static void write_text(struct output *out, struct slice text, struct blob *blob) {
    if (write_integer(out, text)) return;
    if (text.len < COMPRESS_MIN)
        rdb_write_plain(out, text, blob);
    else if (out->ops->string) /* perhaps on a thread that must not read the settings */
        out->ops->string(out, text, blob);
    else if (!rdb_settings.compression || !write_packed(out, text))
        rdb_write_plain(out, text, blob);
}

void rdb_write_string(struct output *out, struct slice text) {
    write_text(out, text, NULL);
}
void rdb_write_blob(struct output *out, struct blob *blob) {
    write_text(out, blob_slice(blob), blob);
}
bool rdb_write_packed(struct output *out, struct slice text) {
    return write_packed(out, text);
}

void rdb_write_int64(struct output *out, int64_t value) {
    char text[NUMBER_TEXT_MAX];
    if (write_small_integer(out, value)) return;
    rdb_write_string(out, (struct slice){text, format_int64(text, value)});
}

void rdb_write_time(struct output *out, int64_t ms) {
    uint64_t little = htole64((uint64_t)ms);
    write_bytes(out, &little, sizeof little);
}

/* --- Reading --- */

void rdb_reader_init(struct rdb_reader *in, struct source *source) {
    *in = (struct rdb_reader){.source = source};
}
void rdb_reader_free(struct rdb_reader *in) {
    source_buffer_free(&in->first);
    source_buffer_free(&in->second);
    source_buffer_free(&in->packed);
}

/* Reads a length, or the form of an encoded string. */
static uint64_t read_length(struct rdb_reader *in, bool *encoded) {
    struct source *source = in->source;
    uint8_t first, second;
    uint32_t four;
    uint64_t eight;
    *encoded = false;
    if (!source_byte(source, &first)) return 0;
    *encoded = (first & TWO_BITS) == ENCODED;
    if (*encoded || (first & TWO_BITS) == 0) return first & 63;
    if ((first & TWO_BITS) == LENGTH_14) return source_byte(source, &second) ? (uint64_t)(first & 63) << 8 | second : 0;
    if (first == LENGTH_32) return source_read(source, &four, 4) ? be32toh(four) : 0;
    if (first == LENGTH_64) return source_read(source, &eight, 8) ? be64toh(eight) : 0;
    source_fail_at(source, source_offset(source) - 1, -EINVAL, "Unknown length encoding %u", first >> 6);
    return 0;
}

uint64_t rdb_read_length(struct rdb_reader *in) {
    bool encoded;
    uint64_t length = read_length(in, &encoded);
    if (!encoded) return length;
    source_fail_at(in->source, source_offset(in->source) - 1, -EINVAL, "an encoded string where a length is expected");
    return 0;
}

double rdb_read_double(struct rdb_reader *in) {
    uint64_t bits = 0;
    double value;
    if (!source_read(in->source, &bits, sizeof bits)) return 0;
    bits = le64toh(bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

int64_t rdb_read_time(struct rdb_reader *in) {
    uint64_t ms = 0;
    return source_read(in->source, &ms, sizeof ms) ? (int64_t)le64toh(ms) : 0;
}

double rdb_read_double_text(struct rdb_reader *in) {
    uint8_t len;
    double value = 0;
    char text[TEXT_NAN];
    if (!source_byte(in->source, &len)) return 0;
    if (len >= TEXT_NAN) return len == TEXT_NAN ? NAN : len == TEXT_INF ? INFINITY : -INFINITY;
    if (source_read(in->source, text, len) && !parse_double((struct slice){text, len}, &value))
        source_fail(in->source, -EINVAL, "Zset score is not a number");
    return value;
}

/* The form of a string in the input. */
struct rdb_form {
    enum { FORM_PLAIN, FORM_INTEGER, FORM_COMPRESSED } kind;
    uint64_t length, packed; /* bytes of the string; of its compressed form */
    int64_t number;
};

static bool read_form(struct rdb_reader *in, struct rdb_form *form) {
    struct source *source = in->source;
    bool encoded;
    uint64_t length = read_length(in, &encoded);
    *form = (struct rdb_form){.length = length};
    if (__builtin_expect(!encoded, 1)) return !source->failed;
    if (length == ENCODED_LZF) {
        form->kind = FORM_COMPRESSED;
        form->packed = rdb_read_length(in);
        form->length = rdb_read_length(in);
        if (source->failed) return false;
        if (!form->packed || !form->length || form->length / LZF_EXPANSION > form->packed + 1 ||
            form->packed > source_left(source))
            return source_fail(source, -EINVAL, "Invalid LZF compressed string");
        return true;
    }
    if (length > ENCODED_32)
        return source_fail_at(source, source_offset(source) - 1, -EINVAL, "Unknown RDB string encoding type %u",
                              (unsigned)length);
    uint8_t b[4] = {0};
    if (!source_read(source, b, (size_t)1 << length)) return false;
    form->kind = FORM_INTEGER;
    form->number = length == ENCODED_8    ? (int8_t)b[0]
                   : length == ENCODED_16 ? (int16_t)(b[0] | b[1] << 8)
                                          : (int32_t)(b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24);
    return true;
}

static bool rdb_basic_unpack(struct rdb_reader *in, const struct rdb_form *form, char *to) {
    struct slice packed;
    if (!source_view(in->source, &in->packed, form->packed, &packed)) return false;
    return lzf_unpack(packed, to, (size_t)form->length) ||
           source_fail(in->source, -EINVAL, "Invalid LZF compressed string");
}

static bool read_string(struct rdb_reader *in, const struct rdb_form *form, struct source_buffer *buffer, bool keep,
                        struct slice *text) {
    struct source *source = in->source;
    if (__builtin_expect(form->kind == FORM_PLAIN, 1))
        return keep ? source_keep(source, buffer, form->length, text) : source_view(source, buffer, form->length, text);
    if (!source_buffer_reserve(source, buffer, form->kind == FORM_INTEGER ? NUMBER_TEXT_MAX : form->length))
        return false;
    *text = (struct slice){buffer->data, (size_t)form->length};
    if (form->kind == FORM_COMPRESSED) return rdb_basic_unpack(in, form, buffer->data);
    text->len = format_int64(buffer->data, form->number);
    return true;
}

/* True: there is memory for a copy of the string with mem_alloc(), which cannot fail. */
static bool fits_memory(struct rdb_reader *in, struct slice text) {
    if (__builtin_expect(text.len < LARGE_MIN, 1) || mem_is_available(text.len + text.len / 16)) return true;
    return source_fail(in->source, -ENOMEM, "no memory for a string of %zu bytes", text.len);
}
static bool read_any(struct rdb_reader *in, struct source_buffer *buffer, bool keep, struct slice *text) {
    struct rdb_form form;
    *text = SLICE("");
    return read_form(in, &form) && read_string(in, &form, buffer, keep, text) && fits_memory(in, *text);
}
bool rdb_read_string(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text) {
    return read_any(in, buffer, false, text);
}
bool rdb_read_string_kept(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text) {
    return read_any(in, buffer, true, text);
}

/* If the size of the input is unknown, memory grows with the bytes that arrive. */
static uint8_t *read_plain_block(struct source *source, uint64_t length) {
    uint64_t left = source_left(source), got = 0, step = left == UINT64_MAX ? SOURCE_STEP : length;
    uint8_t *block = NULL;
    if (length > left) source_fail_truncated(source);
    while (!source->failed && (got < length || !block)) {
        uint64_t next = got + (got > step ? got : step);
        if (next > length) next = length;
        uint8_t *larger = mem_try_realloc(block, next ? (size_t)next : 1);
        if (!larger)
            source_fail(source, -ENOMEM, "no memory for a string of %llu bytes", (unsigned long long)length);
        else if (block = larger, source_read(source, block + got, (size_t)(next - got)))
            got = next;
    }
    if (!source->failed) return block;
    mem_free(block);
    return NULL;
}

uint8_t *rdb_read_block(struct rdb_reader *in, size_t *len) {
    struct rdb_form form;
    if (!read_form(in, &form)) return NULL;
    *len = (size_t)form.length;
    if (form.kind == FORM_PLAIN) return read_plain_block(in->source, form.length);
    uint8_t *block = mem_try_alloc(form.kind == FORM_INTEGER ? NUMBER_TEXT_MAX : (size_t)form.length);
    if (!block) {
        source_fail(in->source, -ENOMEM, "no memory for a string of %llu bytes", (unsigned long long)form.length);
        return NULL;
    }
    if (form.kind == FORM_INTEGER) {
        *len = format_int64((char *)block, form.number);
    } else if (!rdb_basic_unpack(in, &form, (char *)block)) {
        mem_free(block);
        return NULL;
    }
    return block;
}

/* If the input is known to have enough bytes, the blob is allocated in full; otherwise it grows with the bytes that
 * arrive. `later`: the caller does not read its content before source_settle(), so a helper of the source may still
 * write it. */
static struct blob *read_blob(struct rdb_reader *in, const struct rdb_form *form, bool later) {
    struct source *source = in->source;
    uint64_t left = source_left(source), got = 0;
    if (form->kind == FORM_PLAIN && form->length > left) {
        source_fail_truncated(source);
        return NULL;
    }
    uint64_t capacity =
        form->kind == FORM_PLAIN && left == UINT64_MAX && form->length > SOURCE_STEP ? SOURCE_STEP : form->length;
    struct blob *blob = blob_try_new((size_t)capacity);
    while (blob && got < form->length) {
        if (got == capacity) {
            capacity = capacity < form->length / 2 ? capacity * 2 : form->length;
            struct blob *larger = blob_try_new((size_t)capacity);
            if (larger) memcpy(larger->data, blob->data, (size_t)got);
            blob_release(blob);
            if (!(blob = larger)) break;
        }
        size_t len = (size_t)(capacity - got);
        if (form->kind == FORM_COMPRESSED ? !rdb_basic_unpack(in, form, blob->data)
            : later                       ? !source_read_blob(source, blob, (size_t)got, len)
                                          : !source_read(source, blob->data + got, len)) {
            blob_release(blob);
            return NULL;
        }
        got = capacity;
    }
    if (!blob) source_fail(source, -ENOMEM, "no memory for a string of %llu bytes", (unsigned long long)form->length);
    return blob;
}

struct entry *rdb_read_string_entry(struct rdb_reader *in, struct slice key, int64_t expire_at) {
    struct rdb_form form;
    struct slice text;
    if (!read_form(in, &form)) return NULL;
    if (form.kind == FORM_INTEGER) return entry_new_int64(key, expire_at, form.number);
    if (form.length <= ENTRY_EMBED_MAX)
        return read_string(in, &form, &in->second, false, &text) ? entry_new_string(key, expire_at, text, NULL) : NULL;
    struct blob *blob = read_blob(in, &form, true);
    return blob ? entry_new_string(key, expire_at, blob_slice(blob), blob) : NULL;
}

struct blob *rdb_read_blob(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text) {
    struct rdb_form form;
    if (!read_form(in, &form)) return NULL;
    if (form.kind == FORM_INTEGER || form.length <= RDB_BLOB_MIN) {
        read_string(in, &form, buffer, false, text);
        return NULL;
    }
    struct blob *blob = read_blob(in, &form, false);
    if (blob) *text = blob_slice(blob);
    return blob;
}

bool rdb_skip_string(struct rdb_reader *in) {
    struct rdb_form form;
    if (!read_form(in, &form)) return false;
    return form.kind == FORM_INTEGER ||
           source_skip(in->source, form.kind == FORM_COMPRESSED ? form.packed : form.length);
}

bool rdb_skip_items(struct rdb_reader *in) {
    while (!in->source->failed) {
        uint64_t kind = rdb_read_length(in);
        switch (kind) {
        case RDB_ITEM_END: return !in->source->failed;
        case RDB_ITEM_SIGNED:
        case RDB_ITEM_UNSIGNED: rdb_read_length(in); break;
        case RDB_ITEM_FLOAT: source_skip(in->source, sizeof(float)); break;
        case RDB_ITEM_DOUBLE: source_skip(in->source, sizeof(double)); break;
        case RDB_ITEM_STRING: rdb_skip_string(in); break;
        default:
            return source_fail(in->source, -EINVAL, "Unknown code %llu in the data of a module",
                               (unsigned long long)kind);
        }
    }
    return false;
}

static const char extension_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
enum { LETTER_BITS = 6, LETTER_MASK = 63, ENCODING_MAX = (1 << EXTENSION_VERSION_BITS) - 1 };

void rdb_extension_name(uint64_t id, char name[static EXTENSION_NAME + 1]) {
    id >>= EXTENSION_VERSION_BITS;
    for (int i = EXTENSION_NAME - 1; i >= 0; i--, id >>= LETTER_BITS) name[i] = extension_letters[id & LETTER_MASK];
    name[EXTENSION_NAME] = '\0';
}
uint64_t rdb_extension_id(const char *name, int version) {
    uint64_t id = 0;
    if (version < 0 || version > ENCODING_MAX || strlen(name) != EXTENSION_NAME) return 0;
    for (int i = 0; i < EXTENSION_NAME; i++) {
        const char *letter = strchr(extension_letters, name[i]);
        if (!letter) return 0;
        id = id << LETTER_BITS | (uint64_t)(letter - extension_letters);
    }
    return id << EXTENSION_VERSION_BITS | (uint64_t)version;
}

/* --- DUMP --- */

/* The payload is one string of a reply, so all of it is in memory when the checksum is computed. */
void dump_write(struct output *out, const struct entry *entry, int db) {
    struct memory_output whole = MEMORY_OUTPUT_INIT;
    enum rdb_type type = rdb_value_type(entry, RDB_VERSION);
    uint8_t type_byte = (uint8_t)type;
    write_bytes(&whole.out, &type_byte, 1);
    rdb_write_value(&whole.out, entry, db, type);
    /* The lowest version that can represent the value, so that older servers accept it. */
    uint16_t version = htole16((uint16_t)rdb_value_version(entry));
    write_bytes(&whole.out, &version, 2);
    struct slice so_far = memory_output_slice(&whole);
    uint64_t crc = htole64(crc64(0, so_far.data, so_far.len));
    write_bytes(&whole.out, &crc, 8);
    output_write(out, memory_output_slice(&whole));
    memory_output_free(&whole);
}

bool rdb_version_accepted(int version) {
    if (version < 1) return false;
    return rdb_settings.version_check == RDB_VERSION_RELAXED || version <= RDB_VERSION_COMMON || version == RDB_VERSION;
}

bool dump_open(struct slice payload, bool accepted, struct source *source) {
    enum { CHECKSUM = 8 };
    uint16_t version;
    uint64_t crc;
    if (payload.len < FOOTER) return false;
    size_t len = payload.len - FOOTER, summed = payload.len - CHECKSUM;
    memcpy(&version, payload.data + len, sizeof version);
    memcpy(&crc, payload.data + summed, sizeof crc);
    if (!accepted && !rdb_version_accepted(le16toh(version))) return false;
    if (!accepted && !rdb_settings.skip_checksum && le64toh(crc) != crc64(0, payload.data, summed)) return false;
    source_init_memory(source, (struct slice){payload.data, len});
    return true;
}
