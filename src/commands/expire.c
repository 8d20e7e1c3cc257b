/* expire.c: key expiration: the EXPIRE and TTL families, PERSIST.
 *
 * A time is propagated as PEXPIREAT with its conditions, which are met on replicas as well. A time in the past deletes
 * the key immediately. */
#include "commands/expire_time.h"
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/clients/blocking.h"
#include "server/command/spec.h"

static void propagate_pexpireat(struct call *call, int64_t at) {
    enum { WORDS_FEW = 8 };
    struct slice few[WORDS_FEW], *args = call->argc <= WORDS_FEW ? few : mem_alloc((size_t)call->argc * sizeof *args);
    char text[NUMBER_TEXT_MAX];
    memcpy(args, call->argv, (size_t)call->argc * sizeof *args);
    args[0] = SLICE("PEXPIREAT");
    args[2] = (struct slice){text, format_int64(text, at)};
    call_propagate(call, call->argc, args);
    if (args != few) mem_free(args);
}

static void expire_run(struct call *call) {
    bool seconds = call_variant(call) & EXPIRE_SECONDS, relative = call_variant(call) & EXPIRE_RELATIVE;
    struct slice key = call->argv[1];
    unsigned wanted = 0;
    int64_t value, at;
    if (!expire_conditions_read(call, 3, call->argc, &wanted) || !argument_int64(call, 2, &value)) return;
    if (!expire_time_make(value, seconds, relative, &at)) {
        reply_invalid_expire(call);
        return;
    }
    struct entry *entry = find_replace(call, key);
    if (!entry || !expire_conditions_met(wanted, entry_expire_at(entry), at)) {
        reply_integer(call->reply, 0);
        return;
    }
    reply_integer(call->reply, 1);
    if (expire_time_is_past(call, at)) {
        expire_now(call, key);
        return;
    }
    if (at < 0) at = 0; /* also in the past; -1 would mean no expiry */
    blocking_set_expire_quietly(call->db, entry, at);
    notify(call->db, NOTIFY_GENERIC, "expire", key);
    call->dirty++;
    if (seconds || relative) propagate_pexpireat(call, at);
}

static void persist_run(struct call *call) {
    struct slice key = call->argv[1];
    struct entry *entry = find_replace(call, key);
    bool had = entry && entry_expire_at(entry) != -1;
    if (had) {
        blocking_set_expire_quietly(call->db, entry, -1);
        notify(call->db, NOTIFY_GENERIC, "persist", key);
        call->dirty++;
    }
    reply_integer(call->reply, had);
}

static void ttl_run(struct call *call) {
    bool seconds = call_variant(call) & EXPIRE_SECONDS, relative = call_variant(call) & EXPIRE_RELATIVE;
    struct entry *entry = find_read_with(call, call->argv[1], LOOKUP_NOTOUCH);
    int64_t at = entry ? entry_expire_at(entry) : -2;
    if (at < 0) {
        reply_integer(call->reply, at);
        return;
    }
    reply_integer(call->reply, expire_time_shown(at, seconds, relative));
}

#define CONDITION_SYNTAX  " [condition(NX|XX|GT|LT)@7.0.0]"
#define CONDITION_HISTORY WORDS("7.0.0", "The options `NX`, `XX`, `GT` and `LT`.")
#define TTL_HISTORY       WORDS("2.8.0", "The reply -2.")
#define FAST_WRITE        (CMD_WRITE | CMD_FAST)
#define FAST_READ         (CMD_READONLY | CMD_FAST)
#define UPDATED_KEY       FIRST_KEY(KEY_RW | KEY_UPDATE)
#define READ_KEY          FIRST_KEY(KEY_RO | KEY_ACCESS)

const struct command_spec expire_commands[] = {
    {COMMAND("expire", expire_run, -3, FAST_WRITE, ON_KEYS, "1.0.0"), .variant = EXPIRE_SECONDS | EXPIRE_RELATIVE,
     .complexity = "O(1)", .summary = "Sets the time to live of a key in seconds.",
     .syntax = "key:key seconds:integer" CONDITION_SYNTAX, .history = CONDITION_HISTORY, .keys = UPDATED_KEY},
    {COMMAND("pexpire", expire_run, -3, FAST_WRITE, ON_KEYS, "2.6.0"), .variant = EXPIRE_RELATIVE, .complexity = "O(1)",
     .summary = "Sets the time to live of a key in milliseconds.",
     .syntax = "key:key milliseconds:integer" CONDITION_SYNTAX, .history = CONDITION_HISTORY, .keys = UPDATED_KEY},
    {COMMAND("expireat", expire_run, -3, FAST_WRITE, ON_KEYS, "1.2.0"), .variant = EXPIRE_SECONDS, .complexity = "O(1)",
     .summary = "Sets the expiration time of a key as a Unix time in seconds.",
     .syntax = "key:key unix-time-seconds:unix-time" CONDITION_SYNTAX, .history = CONDITION_HISTORY,
     .keys = UPDATED_KEY},
    {COMMAND("pexpireat", expire_run, -3, FAST_WRITE, ON_KEYS, "2.6.0"), .complexity = "O(1)",
     .summary = "Sets the expiration time of a key as a Unix time in milliseconds.",
     .syntax = "key:key unix-time-milliseconds:unix-time" CONDITION_SYNTAX, .history = CONDITION_HISTORY,
     .keys = UPDATED_KEY},
    {COMMAND("persist", persist_run, 2, FAST_WRITE, ON_KEYS, "2.2.0"), .complexity = "O(1)",
     .summary = "Removes the expiration time of a key.", .syntax = "key:key", .keys = UPDATED_KEY},
    {COMMAND("ttl", ttl_run, 2, FAST_READ, ON_KEYS, "1.0.0"), .variant = EXPIRE_SECONDS | EXPIRE_RELATIVE,
     .complexity = "O(1)", .summary = "Returns the remaining time to live of a key in seconds.", .syntax = "key:key",
     .history = TTL_HISTORY, .tips = WORDS("nondeterministic_output"), .keys = READ_KEY},
    {COMMAND("pttl", ttl_run, 2, FAST_READ, ON_KEYS, "2.6.0"), .variant = EXPIRE_RELATIVE, .complexity = "O(1)",
     .summary = "Returns the remaining time to live of a key in milliseconds.", .syntax = "key:key",
     .history = TTL_HISTORY, .tips = WORDS("nondeterministic_output"), .keys = READ_KEY},
    {COMMAND("expiretime", ttl_run, 2, FAST_READ, ON_KEYS, "7.0.0"), .variant = EXPIRE_SECONDS, .complexity = "O(1)",
     .summary = "Returns the expiration time of a key as a Unix time in seconds.", .syntax = "key:key",
     .keys = READ_KEY},
    {COMMAND("pexpiretime", ttl_run, 2, FAST_READ, ON_KEYS, "7.0.0"), .complexity = "O(1)",
     .summary = "Returns the expiration time of a key as a Unix time in milliseconds.", .syntax = "key:key",
     .keys = READ_KEY},
    {.name = NULL},
};
