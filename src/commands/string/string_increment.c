/* string_increment.c: counters in strings: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.
 *
 * An existing counter is updated in its entry. INCRBYFLOAT is propagated with its result, so that rounding cannot
 * differ between machines. */
#include "commands/lookup.h"
#include "server/command/spec.h"
#include <math.h>

static void increment(struct call *call, int64_t by) {
    struct slice key = call->argv[1];
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    int64_t value = 0;
    if (entry && !entry_string_int64(entry, &value)) {
        reply_not_integer(call->reply);
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        reply_error(call->reply, "ERR increment or decrement would overflow");
        return;
    }
    if (entry) {
        db_replace_int64(call->db, entry, value);
    } else {
        db_set_int64(call->db, key, value, false);
        notify(call->db, NOTIFY_NEW, "new", key);
    }
    notify(call->db, NOTIFY_STRING, "incrby", key);
    call->dirty++;
    reply_integer(call->reply, value);
}

static void incr_run(struct call *call) {
    increment(call, 1);
}
static void decr_run(struct call *call) {
    increment(call, -1);
}
static void incrby_run(struct call *call) {
    int64_t by;
    if (argument_int64(call, 2, &by)) increment(call, by);
}
static void decrby_run(struct call *call) {
    int64_t by;
    if (!argument_int64(call, 2, &by)) return;
    if (by == INT64_MIN) { /* it cannot be negated */
        reply_error(call->reply, "ERR decrement would overflow");
        return;
    }
    increment(call, -by);
}

static void incrbyfloat_run(struct call *call) {
    struct slice key = call->argv[1];
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    char number[STRING_NUMBER_TEXT];
    long double value = 0, by;
    if ((entry && !parse_long_double(entry_string(entry, number), &value)) || !parse_long_double(call->argv[2], &by)) {
        reply_error(call->reply, "ERR value is not a valid float");
        return;
    }
    value += by;
    if (isnan(value) || isinf(value)) {
        reply_error(call->reply, "ERR increment would produce NaN or Infinity");
        return;
    }
    char text[DOUBLE_TEXT_MAX];
    struct slice result = {text, format_long_double(text, value)};
    bool existed;
    db_put_string(call->db, key, result, NULL, -1, put_flags(call) | PUT_KEEP_TTL | PUT_TEXT, &existed);
    if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
    notify(call->db, NOTIFY_STRING, "incrbyfloat", key);
    call->dirty++;
    call_propagate(call, 4, (struct slice[]){SLICE("SET"), key, result, SLICE("KEEPTTL")});
    reply_bulk(call->reply, result);
}

#define COUNTER_FLAGS (CMD_WRITE | CMD_DENYOOM | CMD_FAST)
#define COUNTER_KEY   FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)

const struct command_spec string_increment_commands[] = {
    {COMMAND("incr", incr_run, 2, COUNTER_FLAGS, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Increments the integer value of a key by one; a missing key counts as 0.", .syntax = "key:key",
     .keys = COUNTER_KEY},
    {COMMAND("decr", decr_run, 2, COUNTER_FLAGS, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Decrements the integer value of a key by one; a missing key counts as 0.", .syntax = "key:key",
     .keys = COUNTER_KEY},
    {COMMAND("incrby", incrby_run, 3, COUNTER_FLAGS, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Increments the integer value of a key by a number; a missing key counts as 0.",
     .syntax = "key:key increment:integer", .keys = COUNTER_KEY},
    {COMMAND("decrby", decrby_run, 3, COUNTER_FLAGS, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Decrements the integer value of a key by a number; a missing key counts as 0.",
     .syntax = "key:key decrement:integer", .keys = COUNTER_KEY},
    {COMMAND("incrbyfloat", incrbyfloat_run, 3, COUNTER_FLAGS, ON_STRINGS, "2.6.0"), .complexity = "O(1)",
     .summary = "Increments the floating point value of a key by a number; a missing key counts as 0.",
     .syntax = "key:key increment:double", .keys = COUNTER_KEY},
    {.name = NULL},
};
