/* string_multi.c: commands on several strings: MGET, MSET, MSETNX, MSETEX. */
#include "commands/expire_time.h"
#include "commands/lookup.h"
#include "server/command/spec.h"
#include <limits.h>

static void mget_run(struct call *call) {
    reply_array(call->reply, (size_t)call->argc - 1);
    for (int i = 1; i < call->argc; i++) {
        keys_ahead(call, 1, i, 1, call->argc);
        struct entry *entry = find_read(call, call->argv[i]);
        if (entry && entry_type(entry) == TYPE_STRING) {
            reply_string_value(call, entry);
        } else {
            reply_null(call->reply);
        }
    }
}

/* Sets the pairs argv[first], argv[first + 1], …; the time is -1 for no expiry. */
static void pairs_put(struct call *call, int first, int pairs, int64_t expire_at, bool keep_ttl) {
    int flags = put_flags(call) | (keep_ttl ? PUT_KEEP_TTL : 0);
    for (int i = first; i < first + 2 * pairs; i += 2) {
        keys_ahead(call, first, i, 2, first + 2 * pairs);
        struct slice key = call->argv[i];
        bool existed;
        db_put_string(call->db, key, call->argv[i + 1], argument_blob(call, i + 1), expire_at, flags, &existed);
        if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
        notify(call->db, NOTIFY_STRING, "set", key);
        if (expire_at != -1) notify(call->db, NOTIFY_GENERIC, "expire", key);
        call->dirty++;
    }
}

/* True: one of the keys of these pairs exists (`existing`), or does not exist (otherwise). */
static bool pairs_any(struct call *call, int first, int pairs, bool existing) {
    for (int i = first; i < first + 2 * pairs; i += 2)
        if ((find_replace(call, call->argv[i]) != NULL) == existing) return true;
    return false;
}

static bool pairs_complete(struct call *call) {
    if (call->argc % 2) return true;
    return reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", call->command->full_name);
}

static void mset_run(struct call *call) {
    if (!pairs_complete(call)) return;
    pairs_put(call, 1, call->argc / 2, -1, false);
    reply_ok(call->reply);
}

static void msetnx_run(struct call *call) {
    if (!pairs_complete(call)) return;
    bool refused = pairs_any(call, 1, call->argc / 2, true);
    if (!refused) pairs_put(call, 1, call->argc / 2, -1, false);
    reply_integer(call->reply, !refused);
}

static void msetex_run(struct call *call) {
    int64_t pairs;
    if (!parse_int64(call->argv[1], &pairs) || pairs < 1 || pairs > INT_MAX) {
        reply_error(call->reply, "ERR invalid numkeys value or out of range");
        return;
    }
    if (pairs > (call->argc - 2) / 2) {
        reply_syntax_error(call->reply);
        return;
    }
    int count = (int)pairs;
    bool nx = false, xx = false;
    struct expire_option option = {0};
    for (int i = 2 + 2 * count; i < call->argc; i++) {
        if (slice_is(call->argv[i], "nx") && !xx) {
            nx = true;
        } else if (slice_is(call->argv[i], "xx") && !nx) {
            xx = true;
        } else if (!expire_option_read(call, &i, &option, EXPIRE_TIMES | EXPIRE_KEEPTTL)) {
            reply_syntax_error(call->reply);
            return;
        }
    }
    int64_t at;
    if (!expire_option_time(call, &option, &at)) return;
    if ((nx && pairs_any(call, 2, count, true)) || (xx && pairs_any(call, 2, count, false))) {
        reply_integer(call->reply, 0);
        return;
    }
    reply_integer(call->reply, 1);
    /* With XX, only a key that the command has itself set with a time in the past can have expired now, if it is given
     * again. Its deletion, propagated before the command, would make XX fail on the replicas. */
    bool shown = store_settings.show_expired;
    store_settings.show_expired |= xx;
    pairs_put(call, 2, count, at, option.kind == EXPIRE_KEEPTTL);
    store_settings.show_expired = shown;
    if (option.kind & (EXPIRE_EX | EXPIRE_PX | EXPIRE_EXAT)) expire_option_propagate(call, 2 + 2 * count, &option, at);
}

const struct command_spec string_multi_commands[] = {
    {COMMAND("mget", mget_run, -2, CMD_READONLY | CMD_FAST, ON_STRINGS, "1.0.0"),
     .complexity = "O(N) where N is the number of keys requested.",
     .summary = "Returns the string values of several keys.", .syntax = "key:key...",
     .tips = WORDS("request_policy:multi_shard"), .keys = ALL_KEYS(KEY_RO | KEY_ACCESS)},
    {COMMAND("mset", mset_run, -3, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "1.0.1"),
     .complexity = "O(N) where N is the number of keys set.",
     .summary = "Sets the string values of several keys in one step.", .syntax = "data{key:key value:string}...",
     .tips = WORDS("request_policy:multi_shard", "response_policy:all_succeeded"),
     .keys = {KEY_RANGE(1, -1, 2, KEY_OW | KEY_UPDATE)}},
    {COMMAND("msetnx", msetnx_run, -3, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "1.0.1"),
     .complexity = "O(N) where N is the number of keys set.",
     .summary = "Sets the string values of several keys in one step, if none of the keys exists.",
     .syntax = "data{key:key value:string}...", .keys = {KEY_RANGE(1, -1, 2, KEY_OW | KEY_INSERT)}},
    {COMMAND("msetex", msetex_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_STRINGS, "9.1.0"),
     .complexity = "O(N) where N is the number of keys set.",
     .summary = "Sets the string values of several keys in one step, with one expiration time and one "
                "condition for all.",
     .syntax = "numkeys:integer data{key:key value:string}... [condition(NX|XX)] [expiration(EX "
               "seconds:integer|PX milliseconds:integer|"
               "EXAT unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|KEEPTTL)]",
     .tips = WORDS("request_policy:multi_shard", "response_policy:all_succeeded"),
     .keys = {{.flags = KEY_OW | KEY_UPDATE,
               .begin = BEGIN_INDEX,
               .index = 1,
               .find = FIND_KEYNUM,
               .a = 0,
               .b = 1,
               .c = 2}}},
    {.name = NULL},
};
