/* bitfield.c: BITFIELD and BITFIELD_RO: integers of any width in a string. The whole command is validated before the
 * first operation runs. */
#include "commands/string/bitmap.h"
#include "lib/structures/bits.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

enum overflow { OVERFLOW_WRAP, OVERFLOW_SAT, OVERFLOW_FAIL };
struct bitfield_operation {
    enum { OPERATION_GET, OPERATION_SET, OPERATION_INCRBY } what;
    enum overflow overflow;
    bool is_signed;
    uint8_t width;
    uint64_t offset;
    int64_t value;
};

/* "i16", "u8" */
static bool type_read(struct call *call, struct slice text, struct bitfield_operation *operation) {
    int64_t width;
    bool good = text.len > 1 && (text.data[0] == 'i' || text.data[0] == 'u') &&
                parse_int64((struct slice){text.data + 1, text.len - 1}, &width);
    if (good) {
        operation->is_signed = text.data[0] == 'i';
        good = width >= 1 && width <= (operation->is_signed ? 64 : 63);
        operation->width = (uint8_t)(good ? width : 0);
    }
    if (!good)
        reply_error(call->reply,
                    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
    return good;
}

static bool overflow_read(struct call *call, struct slice text, enum overflow *overflow) {
    if (slice_is(text, "wrap"))
        *overflow = OVERFLOW_WRAP;
    else if (slice_is(text, "sat"))
        *overflow = OVERFLOW_SAT;
    else if (slice_is(text, "fail"))
        *overflow = OVERFLOW_FAIL;
    else {
        return reply_error(call->reply, "ERR Invalid OVERFLOW type specified");
    }
    return true;
}

/* Reads the operation at argv[*at] and moves *at past it. Returns 1: an operation; 0: an OVERFLOW clause; -1: replied
 * with an error. */
static int operation_read(struct call *call, int *at, enum overflow *overflow, struct bitfield_operation *operation) {
    struct slice word = call->argv[*at];
    int left = call->argc - *at - 1;
    if (slice_is(word, "overflow") && left >= 1) {
        if (!overflow_read(call, call->argv[*at + 1], overflow)) return -1;
        *at += 2;
        return 0;
    }
    bool get = slice_is(word, "get"), set = slice_is(word, "set"), increment = slice_is(word, "incrby");
    if (!(get && left >= 2) && !((set || increment) && left >= 3)) {
        reply_syntax_error(call->reply);
        return -1;
    }
    *operation = (struct bitfield_operation){.what = get   ? OPERATION_GET
                                                     : set ? OPERATION_SET
                                                           : OPERATION_INCRBY,
                                             .overflow = *overflow};
    if (!type_read(call, call->argv[*at + 1], operation) ||
        !argument_bit_offset(call, *at + 2, operation->width, &operation->offset))
        return -1;
    if (!get && !argument_int64(call, *at + 3, &operation->value)) return -1;
    *at += get ? 3 : 4;
    return 1;
}

/* Converts the sum to a value of the field. False: out of range with OVERFLOW FAIL. */
static bool fit(const struct bitfield_operation *operation, __int128 sum, uint64_t *value) {
    __int128 max = ((__int128)1 << (operation->width - operation->is_signed)) - 1,
             min = operation->is_signed ? -max - 1 : 0;
    if (sum > max || sum < min) {
        if (operation->overflow == OVERFLOW_FAIL) return false;
        if (operation->overflow == OVERFLOW_SAT) sum = sum > max ? max : min;
    }
    *value = (uint64_t)sum; /* wrapping drops the higher bits */
    return true;
}

static int64_t number(const struct bitfield_operation *operation, uint64_t bits) {
    unsigned unused = 64 - operation->width;
    return operation->is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)(bits << unused >> unused);
}

static void reply_number(struct reply *reply, const struct bitfield_operation *operation, uint64_t bits) {
    reply_integer(reply, number(operation, bits));
}

static void operation_run(struct call *call, const struct bitfield_operation *operation, char *bytes, size_t len,
                          bool grown, uint64_t *changes) {
    uint64_t bits = bits_get(bytes, len, operation->offset, operation->width), result;
    if (operation->what == OPERATION_GET) {
        reply_number(call->reply, operation, bits);
        return;
    }
    __int128 sum = operation->what == OPERATION_INCRBY ? (__int128)number(operation, bits) + operation->value
                   : operation->is_signed              ? operation->value
                                                       : (__int128)(uint64_t)operation->value;
    if (!fit(operation, sum, &result)) {
        reply_null(call->reply);
        return;
    }
    bits_set(bytes, operation->offset, operation->width, result);
    *changes += grown || bits_get(bytes, len, operation->offset, operation->width) != bits;
    reply_number(call->reply, operation, operation->what == OPERATION_SET ? bits : result);
}

static void run_all(struct call *call, const struct bitfield_operation *operations, int count, size_t needed) {
    struct slice key = call->argv[1];
    struct entry *entry = needed ? find_replace(call, key) : find_read(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry ? entry_string(entry, text) : SLICE("");
    char *bytes = (char *)(uintptr_t)value.data;
    uint64_t changes = 0;
    bool grown = false; /* growing changes the string, whatever value is written */
    if (needed) {
        grown = !entry || needed > value.len;
        if (!grown) needed = value.len;
        if (grown && !string_memory_ok(call, needed)) return;
        bytes = bitmap_edit(call, key, entry, needed);
        value.len = needed;
    }
    reply_array(call->reply, (size_t)count);
    for (int i = 0; i < count; i++) operation_run(call, &operations[i], bytes, value.len, grown, &changes);
    if (!changes) return;
    db_changed(call->db, key);
    notify(call->db, NOTIFY_STRING, "setbit", key);
    call->dirty += changes;
}

static void bitfield(struct call *call, bool read_only) {
    struct bitfield_operation *operations = mem_alloc((size_t)call->argc * sizeof *operations);
    enum overflow overflow = OVERFLOW_WRAP;
    int count = 0, step = 0;
    size_t needed = 0; /* bytes required for writes */
    for (int at = 2; at < call->argc && step >= 0;) {
        struct bitfield_operation *operation = &operations[count];
        step = operation_read(call, &at, &overflow, operation);
        if (step <= 0) continue;
        count++;
        if (operation->what == OPERATION_GET) continue;
        size_t end = (operation->offset + operation->width + 7) / 8;
        if (end > needed) needed = end;
    }
    if (step >= 0 && read_only && needed)
        reply_error(call->reply, "ERR BITFIELD_RO only supports the GET subcommand");
    else if (step >= 0)
        run_all(call, operations, count, needed);
    mem_free(operations);
}
static void bitfield_run(struct call *call) {
    bitfield(call, false);
}
static void bitfield_ro_run(struct call *call) {
    bitfield(call, true);
}

static int bitfield_find_keys(const struct command *command, int argc, const struct slice *argv,
                              struct key_position *positions, int max) {
    bool writes = false;
    for (int i = 2; i < argc && !writes;) {
        bool get = slice_is(argv[i], "get");
        writes = !get && !slice_is(argv[i], "overflow");
        i += get ? 3 : 2;
    }
    if (max > 0)
        positions[0] = (struct key_position){1, writes ? KEY_RW | KEY_ACCESS | KEY_UPDATE : KEY_RO | KEY_ACCESS};
    return 1;
}

#define NUMBER "encoding:string offset:integer"
const struct command_spec bitfield_commands[] = {
    {COMMAND("bitfield", bitfield_run, -2, CMD_WRITE | CMD_DENYOOM, ON_BITMAPS, "3.2.0"),
     .complexity = "O(1) for each operation", .summary = "Reads and changes integers of any width in a string.",
     .syntax = "key:key [operation(GET get-block{" NUMBER
               "}|write{[OVERFLOW overflow-block(WRAP|SAT|FAIL)] write-operation(SET set-block{" NUMBER
               " value:integer}|INCRBY incrby-block{" NUMBER " increment:integer})})]...",
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE | KEY_VARIABLE_FLAGS),
     .keys[0].notes = "only reads where all operations are `GET`", .find_keys = bitfield_find_keys},
    {COMMAND("bitfield_ro", bitfield_ro_run, -2, CMD_READONLY | CMD_FAST, ON_BITMAPS, "6.0.0"),
     .complexity = "O(1) for each operation", .summary = "Reads integers of any width in a string.",
     .syntax = "key:key [GET get-block{" NUMBER "}]...", .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {.name = NULL},
};
