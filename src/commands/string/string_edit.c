/* string_edit.c: commands on a part of a string: APPEND, SETRANGE, GETRANGE, STRLEN. */
#include "commands/lookup.h"
#include "server/command/spec.h"

static void append_run(struct call *call) {
    struct slice key = call->argv[1], tail = call->argv[2];
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    size_t len = entry ? entry_string_len(entry) : 0;
    if (entry) {
        if (!string_size_ok(call, len, tail.len)) return;
        char *bytes;
        db_edit_string(call->db, entry, len + tail.len, &bytes);
        if (tail.len) memcpy(bytes + len, tail.data, tail.len);
    } else {
        db_set_string(call->db, key, tail, argument_blob(call, 2), false);
        notify(call->db, NOTIFY_NEW, "new", key);
    }
    notify(call->db, NOTIFY_STRING, "append", key);
    call->dirty++;
    reply_integer(call->reply, (int64_t)(len + tail.len));
}

static void setrange_run(struct call *call) {
    struct slice key = call->argv[1], value = call->argv[3];
    int64_t offset;
    if (!argument_int64(call, 2, &offset)) return;
    if (offset < 0) {
        reply_error(call->reply, "ERR offset is out of range");
        return;
    }
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    size_t len = entry ? entry_string_len(entry) : 0;
    if (value.len == 0) {
        reply_integer(call->reply, (int64_t)len);
        return;
    }
    if (!string_size_ok(call, (uint64_t)offset, value.len)) return;
    size_t end = (size_t)offset + value.len;
    if (end > len) len = end;
    if (!entry) {
        entry = db_set_string(call->db, key, SLICE(""), NULL, false);
        notify(call->db, NOTIFY_NEW, "new", key);
    }
    char *bytes;
    db_edit_string(call->db, entry, len, &bytes);
    memcpy(bytes + offset, value.data, value.len);
    notify(call->db, NOTIFY_STRING, "setrange", key);
    call->dirty++;
    reply_integer(call->reply, (int64_t)len);
}

static void getrange_run(struct call *call) {
    int64_t start, end;
    if (!argument_int64(call, 2, &start) || !argument_int64(call, 3, &end)) return;
    struct entry *entry = find_read(call, call->argv[1]);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry ? entry_string(entry, text) : SLICE("");
    int64_t len = (int64_t)value.len;
    /* Negative values count from the end. A range that ends before it starts is empty; this is decided before it is
     * clipped to the string: 0 -100 on "abc" returns its first byte, as in Valkey. */
    bool empty = len == 0 || (start < 0 && end < 0 && start > end);
    if (start < 0) start += len;
    if (end < 0) end += len;
    if (start < 0) start = 0;
    if (end < 0) end = 0;
    if (end >= len) end = len - 1;
    if (empty || start > end) {
        reply_bulk(call->reply, SLICE(""));
    } else {
        reply_bulk(call->reply, (struct slice){value.data + start, (size_t)(end - start + 1)});
    }
}

static void strlen_run(struct call *call) {
    struct entry *entry = find_read(call, call->argv[1]);
    if (type_ok(call, entry, TYPE_STRING)) reply_integer(call->reply, entry ? (int64_t)entry_string_len(entry) : 0);
}

#define RANGE_COMPLEXITY                                                                                               \
    "O(N) where N is how long the returned part is. Making a part is cheap, so for small strings it may be "           \
    "taken for O(1)."

const struct command_spec string_edit_commands[] = {
    {COMMAND("append", append_run, 3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_STRINGS, "2.0.0"),
     .complexity = "O(1). Amortized, for small additions to a string of any size: its memory grows in advance.",
     .summary = "Appends bytes to a string; creates a missing key.", .syntax = "key:key value:string",
     .keys = FIRST_KEY(KEY_RW | KEY_INSERT)},
    {COMMAND("setrange", setrange_run, 4, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "2.2.0"),
     .complexity = "O(1), without the copying of the new bytes. Usually they are few; otherwise O(M) where M "
                   "is the length of the value.",
     .summary = "Overwrites a part of a string, starting at an offset; pads a shorter string with zero bytes.",
     .syntax = "key:key offset:integer value:string", .keys = FIRST_KEY(KEY_RW | KEY_UPDATE)},
    {COMMAND("getrange", getrange_run, 4, CMD_READONLY, ON_STRINGS, "2.4.0"), .complexity = RANGE_COMPLEXITY,
     .summary = "Returns a part of a string.", .syntax = "key:key start:integer end:integer",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("substr", getrange_run, 4, CMD_READONLY, ON_STRINGS, "1.0.0"), .complexity = RANGE_COMPLEXITY,
     .summary = "Returns a part of a string.", .syntax = "key:key start:integer end:integer",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("strlen", strlen_run, 2, CMD_READONLY | CMD_FAST, ON_STRINGS, "2.2.0"), .complexity = "O(1)",
     .summary = "Returns the length of a string in bytes.", .syntax = "key:key", .keys = FIRST_KEY(KEY_RO)},
    {.name = NULL},
};
