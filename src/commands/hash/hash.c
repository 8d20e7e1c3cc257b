/* hash.c: the commands on hashes.
 *
 * A reply is written directly from the hash, without collecting it first. A command that deletes the last field deletes
 * the key. HINCRBYFLOAT is propagated with its result, so that rounding cannot differ between machines. hash_expire.c
 * has the commands for field expiration. */
#include "commands/hash/hash_common.h"
#include "commands/signed_count.h"
#include "commands/value_scan.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include <math.h>
#include <string.h>

/* --- Setting and deleting --- */

int drop_expired_fields(struct call *call, struct entry *entry, int first, int end, int step, struct slice *dropped) {
    int count = 0;
    for (int i = first; i < end && hash_is_volatile(entry); i += step) {
        if (!hash_drop_expired(call->db, entry, call->argv[i])) continue;
        if (dropped) dropped[count] = call->argv[i];
        count++;
    }
    if (count) notify(call->db, NOTIFY_HASH, "hexpired", call->argv[1]);
    return count;
}

bool propagate_without_expired(struct call *call, const struct entry *entry, const struct slice *argv, int first) {
    int skipped = 0;
    for (int i = first; i < call->argc && hash_is_volatile(entry); i++) skipped += hash_holds_expired(entry, argv[i]);
    if (__builtin_expect(skipped == 0, 1)) return false;
    char count[NUMBER_TEXT_MAX];
    struct slice *words = mem_alloc((size_t)(call->argc - skipped) * sizeof *words);
    memcpy(words, argv, (size_t)first * sizeof *words);
    int argc = first;
    for (int i = first; i < call->argc; i++)
        if (!hash_holds_expired(entry, argv[i])) words[argc++] = argv[i];
    if (first > 2) words[first - 1] = (struct slice){count, format_int64(count, argc - first)};
    call_propagate(call, argc, words);
    mem_free(words);
    return true;
}

/* Sets one field, which keeps its expiry. If the hash has field expiration, the call is propagated with the field's
 * resulting value and expiry: replicas and the AOF may delete an expired field sooner or later than this server and
 * must reach the same value. Returns true if it was propagated this way. */
static bool set_field(struct call *call, struct entry *entry, struct slice value, struct blob *blob) {
    struct slice key = call->argv[1], field = call->argv[2];
    if (!hash_is_volatile(entry)) {
        hash_put(call->db, entry, field, value, blob);
        return false;
    }
    char text[NUMBER_TEXT_MAX];
    int64_t at = hash_expire_at(entry, field);
    if (at >= 0) {
        struct slice time = {text, format_int64(text, at)};
        call_propagate(
            call, 8,
            (struct slice[]){SLICE("HSETEX"), key, SLICE("PXAT"), time, SLICE("FIELDS"), SLICE("1"), field, value});
    } else {
        call_propagate(call, 4, (struct slice[]){SLICE("HSET"), key, field, value});
    }
    drop_expired_fields(call, entry, 2, 3, 1, NULL);
    hash_put_until(call->db, entry, field, value, blob, at >= 0 ? at : HASH_NEVER);
    return true;
}

/* HSET and HMSET; returns the number of new fields; -1: replied with an error. */
static int64_t set_fields(struct call *call) {
    if (call->argc % 2) {
        reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", call->command->full_name);
        return -1;
    }
    struct entry *entry;
    int pairs = call->argc / 2 - 1;
    if (!find_hash_write(call, &entry)) return -1;
    entry = hash_need(call, entry);
    drop_expired_fields(call, entry, 2, call->argc, 2, NULL);
    if (pairs > 1) hash_expect(call->db, entry, (size_t)pairs);
    int64_t added = 0;
    for (int i = 2; i < call->argc; i += 2)
        added += hash_put(call->db, entry, call->argv[i], call->argv[i + 1], argument_blob(call, i + 1));
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hset", call->argv[1]);
    call->dirty += (uint64_t)pairs;
    return added;
}
static void hset_run(struct call *call) {
    int64_t added = set_fields(call);
    if (added >= 0) reply_integer(call->reply, added);
}
static void hmset_run(struct call *call) {
    if (set_fields(call) >= 0) reply_ok(call->reply);
}

static void hsetnx_run(struct call *call) {
    struct entry *entry;
    if (!find_hash_write(call, &entry)) return;
    if (entry && hash_has(entry, call->argv[2])) {
        reply_integer(call->reply, 0);
        return;
    }
    entry = hash_need(call, entry);
    set_field(call, entry, call->argv[3], argument_blob(call, 3));
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hset", call->argv[1]);
    call->dirty++;
    reply_integer(call->reply, 1);
}

void hash_fields_removed(struct call *call, struct entry *entry, int64_t deleted, const char *event) {
    key_elements_removed(call, call->argv[1], hash_len(entry) == 0, NOTIFY_HASH, event);
    call->dirty += (uint64_t)deleted;
}

static void hdel_run(struct call *call) {
    struct entry *entry;
    if (!find_hash_write(call, &entry)) return;
    int64_t deleted = 0;
    for (int i = 2; entry && i < call->argc; i++) deleted += delete_field(call, entry, call->argv[i]);
    if (deleted) {
        propagate_without_expired(call, entry, call->argv, 2);
        hash_fields_removed(call, entry, deleted, "hdel");
    }
    reply_integer(call->reply, deleted);
}

/* --- Numbers --- */

static void hincrby_run(struct call *call) {
    int64_t by, number = 0;
    struct entry *entry;
    struct hash_value value;
    if (!argument_int64(call, 3, &by) || !find_hash_write(call, &entry)) return;
    if (entry && hash_get(entry, call->argv[2], &value) && !parse_int64(value.bytes, &number)) {
        reply_error(call->reply, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(number, by, &number)) {
        reply_error(call->reply, "ERR increment or decrement would overflow");
        return;
    }
    entry = hash_need(call, entry);
    char text[NUMBER_TEXT_MAX];
    set_field(call, entry, (struct slice){text, format_int64(text, number)}, NULL);
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hincrby", call->argv[1]);
    call->dirty++;
    reply_integer(call->reply, number);
}

static void hincrbyfloat_run(struct call *call) {
    long double by, number = 0;
    struct entry *entry;
    struct hash_value value;
    if (!parse_long_double(call->argv[3], &by)) {
        reply_error(call->reply, "ERR value is not a valid float");
        return;
    }
    if (isnan(by) || isinf(by)) {
        reply_error(call->reply, "ERR value is NaN or Infinity");
        return;
    }
    if (!find_hash_write(call, &entry)) return;
    if (entry && hash_get(entry, call->argv[2], &value) && !parse_long_double(value.bytes, &number)) {
        reply_error(call->reply, "ERR hash value is not a float");
        return;
    }
    number += by;
    if (isnan(number) || isinf(number)) {
        reply_error(call->reply, "ERR increment would produce NaN or Infinity");
        return;
    }
    entry = hash_need(call, entry);
    char text[DOUBLE_TEXT_MAX];
    struct slice shown = {text, format_long_double(text, number)};
    bool propagated = set_field(call, entry, shown, NULL);
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hincrbyfloat", call->argv[1]);
    call->dirty++;
    reply_bulk(call->reply, shown);
    if (!propagated) call_propagate(call, 4, (struct slice[]){SLICE("HSET"), call->argv[1], call->argv[2], shown});
}

/* --- Reading --- */

static void hget_run(struct call *call) {
    struct entry *entry;
    if (find_hash(call, &entry)) reply_field(call, entry, call->argv[2]);
}
static void hmget_run(struct call *call) {
    struct entry *entry;
    if (!find_hash(call, &entry)) return;
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) reply_field(call, entry, call->argv[i]);
}
static void hexists_run(struct call *call) {
    struct entry *entry;
    if (find_hash(call, &entry)) reply_integer(call->reply, entry && hash_has(entry, call->argv[2]));
}
static void hlen_run(struct call *call) {
    struct entry *entry;
    if (find_hash(call, &entry)) reply_integer(call->reply, entry ? (int64_t)hash_len(entry) : 0);
}
static void hstrlen_run(struct call *call) {
    struct entry *entry;
    struct hash_value value;
    if (!find_hash(call, &entry)) return;
    bool there = entry && hash_get(entry, call->argv[2], &value);
    reply_integer(call->reply, there ? (int64_t)value.bytes.len : 0);
}

enum parts { FIELDS = 1, VALUES = 2 };
static void hgetall_run(struct call *call) {
    int parts = call_variant(call);
    struct entry *entry;
    if (!find_hash(call, &entry)) return;
    size_t len = entry ? hash_len_now(entry) : 0;
    if (parts == (FIELDS | VALUES))
        reply_map(call->reply, len);
    else
        reply_array(call->reply, len);
    if (!entry) return;
    struct hash_iterator it;
    struct hash_item item;
    hash_iterate(&it, entry);
    while (hash_next(&it, &item)) {
        if (parts & FIELDS) reply_bulk(call->reply, item.field);
        if (parts & VALUES) reply_value(call->reply, &item.value);
    }
    hash_iterate_end(&it);
}

/* --- Random fields --- */

struct hash_random_reply {
    struct reply *reply;
    bool values;
    const struct call *call;
    int64_t drawn;
};
static void reply_random(void *context, const struct hash_item *item) {
    const struct hash_random_reply *r = context;
    if (r->values && r->reply->protocol > 2) reply_array(r->reply, 2);
    reply_bulk(r->reply, item->field);
    if (r->values) reply_value(r->reply, &item->value);
}
static bool reply_drawn(void *context, const struct hash_item *item) {
    struct hash_random_reply *r = context;
    reply_random(r, item);
    return reply_continues(r->call, ++r->drawn);
}
static void reply_random_head(const struct hash_random_reply *r, size_t count) {
    reply_array(r->reply, r->values && r->reply->protocol == 2 ? count * 2 : count);
}

static void random_fields(struct call *call, int64_t wanted, bool values) {
    struct entry *entry;
    if (!find_hash(call, &entry)) return;
    struct hash_random_reply r = {.reply = call->reply, .values = values, .call = call};
    size_t len = entry ? hash_len_now(entry) : 0;
    if (len == 0 || wanted == 0) {
        reply_array(call->reply, 0);
    } else if (wanted < 0) {
        reply_random_head(&r, (size_t)-wanted);
        hash_draw(entry, (size_t)-wanted, reply_drawn, &r);
    } else if ((uint64_t)wanted < len) {
        reply_random_head(&r, (size_t)wanted);
        hash_sample(entry, (size_t)wanted, reply_random, &r);
    } else {
        struct hash_iterator it;
        struct hash_item item;
        reply_random_head(&r, len);
        hash_iterate(&it, entry);
        while (hash_next(&it, &item)) reply_random(&r, &item);
        hash_iterate_end(&it);
    }
}

static void hrandfield_run(struct call *call) {
    if (call->argc > 2) {
        int64_t wanted;
        if (!signed_count_read(call, 2, &wanted)) return;
        if (call->argc > 4 || (call->argc == 4 && !slice_is(call->argv[3], "withvalues"))) {
            reply_syntax_error(call->reply);
        } else if (call->argc == 4 && (wanted < -INT64_MAX / 2 || wanted > INT64_MAX / 2)) {
            reply_error(call->reply, "ERR value is out of range");
        } else {
            random_fields(call, wanted, call->argc == 4);
        }
        return;
    }
    struct entry *entry;
    struct hash_item item;
    if (!find_hash(call, &entry)) return;
    if (!entry || hash_len_now(entry) == 0) {
        reply_null(call->reply);
        return;
    }
    hash_random(entry, &item);
    reply_bulk(call->reply, item.field);
}

/* --- HSCAN --- */

static void scan_seen(void *context, const struct hash_item *item) {
    struct value_scan *scan = context;
    if (!value_scan_wants(scan, item->field, scan->names_only ? 1 : 2)) return;
    reply_bulk(scan->reply, item->field);
    if (!scan->names_only) reply_value(scan->reply, &item->value);
}
static uint64_t scan_step(const struct entry *entry, uint64_t cursor, struct value_scan *scan) {
    return hash_scan(entry, cursor, scan_seen, scan);
}
static void hscan_run(struct call *call) {
    uint64_t cursor;
    struct entry *entry;
    struct value_scan scan;
    if (value_scan_find(call, TYPE_HASH, &cursor, &entry) && value_scan_options(call, &scan, SCAN_NO_VALUES))
        value_scan_run(call, &scan, cursor, entry, scan_step);
}

const struct command_spec hash_commands[] = {
    {COMMAND("hset", hset_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HASHES, "2.0.0"),
     .complexity = "O(1) for each pair of field and value.", .summary = "Sets fields of a hash.",
     .syntax = "key:key data{field:string value:string}...",
     .history = WORDS("4.0.0", "Takes several pairs of `field` and `value`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_UPDATE)}},
    {COMMAND("hmset", hmset_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HASHES, "2.0.0"),
     .complexity = "O(N) where N is the number of fields set.", .summary = "Sets fields of a hash, and replies OK.",
     .syntax = "key:key data{field:string value:string}...", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_UPDATE)}},
    {COMMAND("hsetnx", hsetnx_run, 4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HASHES, "2.0.0"), .complexity = "O(1)",
     .summary = "Sets a field of a hash if it does not exist.", .syntax = "key:key field:string value:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("hget", hget_run, 3, CMD_READONLY | CMD_FAST, ON_HASHES, "2.0.0"), .complexity = "O(1)",
     .summary = "Returns the value of a field.", .syntax = "key:key field:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hmget", hmget_run, -3, CMD_READONLY | CMD_FAST, ON_HASHES, "2.0.0"),
     .complexity = "O(N) where N is the number of fields requested.", .summary = "Returns the values of fields.",
     .syntax = "key:key field:string...", .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hdel", hdel_run, -3, CMD_WRITE | CMD_FAST, ON_HASHES, "2.0.0"),
     .complexity = "O(N) where N is the number of fields deleted.",
     .summary = "Deletes fields, and the key with the last of them.", .syntax = "key:key field:string...",
     .history = WORDS("2.4.0", "Takes several `field` arguments."), .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("hexists", hexists_run, 3, CMD_READONLY | CMD_FAST, ON_HASHES, "2.0.0"), .complexity = "O(1)",
     .summary = "Determines whether a hash has a field.", .syntax = "key:key field:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("hlen", hlen_run, 2, CMD_READONLY | CMD_FAST, ON_HASHES, "2.0.0"), .complexity = "O(1)",
     .summary = "Returns the number of fields in a hash.", .syntax = "key:key", .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("hstrlen", hstrlen_run, 3, CMD_READONLY | CMD_FAST, ON_HASHES, "3.2.0"), .complexity = "O(1)",
     .summary = "Returns the length of the value of a field.", .syntax = "key:key field:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("hgetall", hgetall_run, 2, CMD_READONLY, ON_HASHES, "2.0.0"), .variant = FIELDS | VALUES,
     .complexity = "O(N) where N is the number of fields in the hash.", .summary = "Returns all fields and values.",
     .syntax = "key:key", .tips = WORDS("nondeterministic_output_order"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hkeys", hgetall_run, 2, CMD_READONLY, ON_HASHES, "2.0.0"), .variant = FIELDS,
     .complexity = "O(N) where N is the number of fields in the hash.", .summary = "Returns all fields.",
     .syntax = "key:key", .tips = WORDS("nondeterministic_output_order"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hvals", hgetall_run, 2, CMD_READONLY, ON_HASHES, "2.0.0"), .variant = VALUES,
     .complexity = "O(N) where N is the number of fields in the hash.", .summary = "Returns all values.",
     .syntax = "key:key", .tips = WORDS("nondeterministic_output_order"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hincrby", hincrby_run, 4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HASHES, "2.0.0"), .complexity = "O(1)",
     .summary = "Increments the integer value of a field by a number; a missing field counts as 0.",
     .syntax = "key:key field:string increment:integer",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_UPDATE)}},
    {COMMAND("hincrbyfloat", hincrbyfloat_run, 4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HASHES, "2.6.0"),
     .complexity = "O(1)",
     .summary = "Increments the floating point value of a field by a number; a missing field counts as 0.",
     .syntax = "key:key field:string increment:double", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_UPDATE)}},
    {COMMAND("hrandfield", hrandfield_run, -2, CMD_READONLY, ON_HASHES, "6.2.0"),
     .complexity = "O(N) where N is the number of fields returned.",
     .summary = "Returns random fields, with their values if requested.",
     .syntax = "key:key [options{count:integer [WITHVALUES]}]", .tips = WORDS("nondeterministic_output"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("hscan", hscan_run, -3, CMD_READONLY, ON_HASHES, "2.8.0"),
     .complexity = "O(1) for each call. O(N) for a whole walk, of as many calls as it takes until the cursor is 0 "
                   "again. N is the number of fields.",
     .summary = "Iterates over the fields of a hash, a few with each call.",
     .syntax = "key:key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOVALUES]",
     .tips = WORDS("nondeterministic_output"), .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
