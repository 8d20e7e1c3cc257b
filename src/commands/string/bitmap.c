/* bitmap.c: bitmaps in strings: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. BITFIELD is in bitfield.c, the bit functions
 * in lib/structures/bits.h. */
#include "commands/string/bitmap.h"
#include "lib/structures/bits.h"
#include "server/command/spec.h"

bool argument_bit_offset(struct call *call, int index, unsigned width, uint64_t *offset) {
    struct slice text = call->argv[index];
    bool counted = width && text.len && text.data[0] == '#';
    if (counted) text = (struct slice){text.data + 1, text.len - 1};
    int64_t value;
    bool good = parse_int64(text, &value) && value >= 0 && !(counted && value > INT64_MAX / 64);
    if (good && counted) value *= width;
    /* The last bit must be within the maximum length of a string. */
    if (good && (client_must_be_obeyed(call->client) || (value >> 3) < client_settings.bulk_max)) {
        *offset = (uint64_t)value;
        return true;
    }
    return reply_error(call->reply, "ERR bit offset is not an integer or out of range");
}

char *bitmap_edit(struct call *call, struct slice key, struct entry *entry, size_t len) {
    char *bytes;
    if (!entry) {
        entry = db_set_string(call->db, key, SLICE(""), NULL, false);
        notify(call->db, NOTIFY_NEW, "new", key);
    }
    size_t present = entry_string_len(entry);
    db_edit_string_silently(call->db, entry, len > present ? len : present, &bytes);
    return bytes;
}

static void setbit_run(struct call *call) {
    struct slice key = call->argv[1];
    uint64_t offset;
    int64_t bit;
    if (!argument_bit_offset(call, 2, 0, &offset)) return;
    if (!parse_int64(call->argv[3], &bit) || (bit & ~1)) {
        reply_error(call->reply, "ERR bit is not an integer or out of range");
        return;
    }
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry ? entry_string(entry, text) : SLICE("");
    bool old = bits_get(value.data, value.len, offset, 1);
    bool changes = old != (bool)bit || offset / 8 >= value.len || !entry;
    if (offset / 8 >= value.len && !string_memory_ok(call, offset / 8 + 1)) return;
    bits_set(bitmap_edit(call, key, entry, offset / 8 + 1), offset, 1, (uint64_t)bit);
    if (changes) {
        db_changed(call->db, key);
        notify(call->db, NOTIFY_STRING, "setbit", key);
        call->dirty++;
    }
    reply_integer(call->reply, old);
}

static void getbit_run(struct call *call) {
    uint64_t offset;
    if (!argument_bit_offset(call, 2, 0, &offset)) return;
    struct entry *entry = find_read(call, call->argv[1]);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry ? entry_string(entry, text) : SLICE("");
    reply_integer(call->reply, (int64_t)bits_get(value.data, value.len, offset, 1));
}

/* A range of BITCOUNT and BITPOS: [start [end [BYTE|BIT]]], in the arguments from `index` on; negative start and end
 * count from the end. */
struct bit_range {
    int64_t start, end;
    bool in_bits, has_end;
};

static bool range_read(struct call *call, int index, struct bit_range *range) {
    int count = call->argc - index;
    *range = (struct bit_range){.end = -1};
    if (count > 3) return reply_syntax_error(call->reply);
    if (count > 0 && !argument_int64(call, index, &range->start)) return false;
    if (count > 2) {
        range->in_bits = slice_is(call->argv[index + 2], "bit");
        if (!range->in_bits && !slice_is(call->argv[index + 2], "byte")) return reply_syntax_error(call->reply);
    }
    if (count > 1 && !argument_int64(call, index + 1, &range->end)) return false;
    range->has_end = count > 1;
    return true;
}

/* Applies the range to `len` bytes: sets the first and last bit. False: empty. */
static bool range_apply(const struct bit_range *range, size_t len, uint64_t *first, uint64_t *last) {
    int64_t total = range->in_bits ? (int64_t)len * 8 : (int64_t)len, start = range->start, end = range->end;
    if (start < 0) start += total;
    if (end < 0) end += total;
    if (start < 0) start = 0;
    if (end < 0) end = 0;
    if (end >= total) end = total - 1;
    if (start > end) return false;
    *first = range->in_bits ? (uint64_t)start : (uint64_t)start * 8;
    *last = range->in_bits ? (uint64_t)end : (uint64_t)end * 8 + 7;
    return true;
}

static void bitcount_run(struct call *call) {
    struct bit_range range;
    if (!range_read(call, 2, &range)) return;
    struct entry *entry = find_read(call, call->argv[1]);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry ? entry_string(entry, text) : SLICE("");
    uint64_t first, last, ones = 0;
    /* Unlike in BITPOS, a range with negative bounds whose end precedes its start is empty, even if both lie before the
     * start of the string. */
    bool empty = range.start < 0 && range.end < 0 && range.start > range.end;
    if (!empty && range_apply(&range, value.len, &first, &last)) {
        ones = bits_count(value.data + first / 8, last / 8 - first / 8 + 1);
        if (first % 8)
            ones -= bits_count(
                &(unsigned char){(unsigned char)bits_get(value.data, value.len, first & ~UINT64_C(7), first % 8)}, 1);
        if (last % 8 != 7)
            ones -=
                bits_count(&(unsigned char){(unsigned char)bits_get(value.data, value.len, last + 1, 7 - last % 8)}, 1);
    }
    reply_integer(call->reply, (int64_t)ones);
}

/* Returns the first bit with that value from `first` to `last`, or -1. */
static int64_t find_between(const char *bytes, uint64_t first, uint64_t last, bool bit) {
    for (; first <= last && first % 8; first++)
        if (bits_get(bytes, last / 8 + 1, first, 1) == bit) return (int64_t)first;
    if (first > last) return -1;
    uint64_t at = first / 8;
    int64_t found = bits_find(bytes + at, last / 8 - at + 1, bit);
    return found < 0 || (uint64_t)found + first > last ? -1 : found + (int64_t)first;
}

static void bitpos_run(struct call *call) {
    struct bit_range range;
    int64_t bit;
    if (!argument_int64(call, 2, &bit)) return;
    if (bit & ~1) {
        reply_error(call->reply, "ERR The bit argument must be 1 or 0.");
        return;
    }
    if (!range_read(call, 3, &range)) return;
    struct entry *entry = find_read(call, call->argv[1]);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    if (!entry) {
        reply_integer(call->reply, bit ? -1 : 0);
        return;
    }
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry_string(entry, text);
    uint64_t first, last;
    int64_t found = -1;
    if (range_apply(&range, value.len, &first, &last)) {
        found = find_between(value.data, first, last, bit);
        /* Without a given end, zeros follow the string. */
        if (found < 0 && !bit && !range.has_end) found = (int64_t)value.len * 8;
    }
    reply_integer(call->reply, found);
}

/* --- BITOP --- */

enum { NOT = -1, NO_OPERATION = -2 };
static int operation_of(struct slice name) {
    return slice_is(name, "and")   ? BITS_AND
           : slice_is(name, "or")  ? BITS_OR
           : slice_is(name, "xor") ? BITS_XOR
           : slice_is(name, "not") ? NOT
                                   : NO_OPERATION;
}

/* Checks that all sources are strings or missing, and sets the length of the longest. False: replied with an error. */
static bool sources_check(struct call *call, size_t *longest) {
    *longest = 0;
    for (int i = 3; i < call->argc; i++) {
        struct entry *entry = find_read(call, call->argv[i]);
        if (!type_ok(call, entry, TYPE_STRING)) return false;
        size_t len = entry ? entry_string_len(entry) : 0;
        if (len > *longest) *longest = len;
    }
    return true;
}

static void combine_sources(struct call *call, int operation, char *result, size_t len) {
    for (int i = 3; i < call->argc; i++) {
        char text[STRING_NUMBER_TEXT];
        struct entry *entry = db_find(call->db, call->argv[i], LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
        struct slice value = entry ? entry_string(entry, text) : SLICE("");
        if (operation == NOT) {
            bits_invert(result, value.data, value.len);
        } else if (i == 3) {
            if (value.len) memcpy(result, value.data, value.len);
            memset(result + value.len, 0, len - value.len);
        } else {
            if (value.len) bits_combine(result, value.data, value.len, (enum bits_operation)operation);
            if (operation == BITS_AND)
                memset(result + value.len, 0, len - value.len); /* pads a shorter string with zeros */
        }
    }
}

static void bitop_run(struct call *call) {
    struct slice destination = call->argv[2];
    int operation = operation_of(call->argv[1]);
    if (operation == NO_OPERATION) {
        reply_syntax_error(call->reply);
        return;
    }
    if (operation == NOT && call->argc != 4) {
        reply_error(call->reply, "ERR BITOP NOT must be called with a single source key.");
        return;
    }
    size_t len;
    if (!sources_check(call, &len)) return;
    if (len) {
        struct blob *blob = blob_try_new(len);
        if (!blob) {
            reply_no_memory(call->reply);
            return;
        }
        combine_sources(call, operation, blob->data, len);
        bool existed;
        char *bytes;
        struct entry *entry =
            db_put_string(call->db, destination, blob_slice(blob), blob, -1, put_flags(call) | PUT_TEXT, &existed);
        db_edit_string(call->db, entry, len, &bytes); /* its encoding is raw, even if it is short */
        if (!existed) notify(call->db, NOTIFY_NEW, "new", destination);
        notify(call->db, NOTIFY_STRING, "set", destination);
        call->dirty++;
    } else {
        delete_destination(call, destination);
    }
    reply_integer(call->reply, (int64_t)len);
}

#define RANGE_SYNTAX_END "[unit(BYTE|BIT)@7.0.0]"
const struct command_spec bitmap_commands[] = {
    {COMMAND("setbit", setbit_run, 4, CMD_WRITE | CMD_DENYOOM, ON_BITMAPS, "2.2.0"), .complexity = "O(1)",
     .summary = "Sets a bit of a string, which grows if necessary, and returns its previous value.",
     .syntax = "key:key offset:integer value:integer", .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("getbit", getbit_run, 3, CMD_READONLY | CMD_FAST, ON_BITMAPS, "2.2.0"), .complexity = "O(1)",
     .summary = "Returns a bit of a string.", .syntax = "key:key offset:integer",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("bitcount", bitcount_run, -2, CMD_READONLY, ON_BITMAPS, "2.6.0"), .complexity = "O(N)",
     .summary = "Counts the ones in a string or a part of it.",
     .syntax = "key:key [range{start:integer [end-unit-block{end:integer " RANGE_SYNTAX_END "}]}]",
     .history = WORDS("7.0.0", "`BYTE` and `BIT`.", "8.0.0", "`end` may be left out: until the last byte."),
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("bitpos", bitpos_run, -3, CMD_READONLY, ON_BITMAPS, "2.8.7"), .complexity = "O(N)",
     .summary = "Finds the first one or zero in a string or a part of it.",
     .syntax = "key:key bit:integer [range{start:integer [end-unit-block{end:integer " RANGE_SYNTAX_END "}]}]",
     .history = WORDS("7.0.0", "`BYTE` and `BIT`."), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("bitop", bitop_run, -4, CMD_WRITE | CMD_DENYOOM, ON_BITMAPS, "2.6.0"), .complexity = "O(N)",
     .summary = "Combines strings bit by bit and stores the result.",
     .syntax = "operation(AND|OR|XOR|NOT) destkey:key key:key(#1)...",
     .keys = {KEY_RANGE(2, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(3, -1, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
