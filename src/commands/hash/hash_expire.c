/* hash_expire.c: field expiration: the HEXPIRE and HTTL families, HPERSIST, HGETEX, HSETEX; and HGETDEL, which has
 * similar arguments.
 *
 * Times are propagated as absolute milliseconds: HPEXPIREAT, or HSETEX with PXAT. A time in the past deletes the fields
 * immediately and is propagated as HDEL. For all these commands a field that has expired but is not deleted yet does
 * not exist: they do not change or propagate it, unless they set it. */
#include "commands/expire_time.h"
#include "commands/hash/hash_common.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

/* --- FIELDS numfields field … --- */

struct fields {
    int first, count; /* position and number in argv */
};
static void reply_numfields(struct call *call) {
    reply_error(call->reply, "ERR numfields should be greater than 0 and match the provided number of fields");
}
/* Returns the index of FIELDS, at or after argv[first], which a count must follow. 0: replied with an error. */
static int fields_find(struct call *call, int first) {
    for (int i = first; i < call->argc - 1; i++)
        if (slice_is(call->argv[i], "fields")) return i;
    reply_numfields(call);
    return 0;
}
/* Reads the count after argv[index], which is FIELDS, and takes all following arguments as fields, each with `step` - 1
 * further arguments. If the count does not match their number it calls `mismatch`. False: replied with an error. */
static bool fields_read(struct call *call, int index, int step, void (*mismatch)(struct call *call),
                        struct fields *fields) {
    int64_t count;
    if (!argument_int64(call, index + 1, &count)) return false;
    int left = call->argc - index - 2;
    if (count < 1 || count != left / step || left % step) {
        mismatch(call);
        return false;
    }
    *fields = (struct fields){index + 2, (int)count};
    return true;
}
static void reply_syntax(struct call *call) {
    reply_syntax_error(call->reply);
}
/* The same for commands in which FIELDS must follow the key. */
static bool fields_only(struct call *call, void (*mismatch)(struct call *call), struct fields *fields) {
    if (slice_is(call->argv[2], "fields")) return fields_read(call, 2, 1, mismatch, fields);
    return reply_syntax_error(call->reply);
}

/* --- Propagation --- */

/* The fields that a call changed, after space for the arguments of a command. */
enum { HEAD_MAX = 5 };
struct changes {
    struct slice *words;
    int count;
};
static struct changes changes_begin(struct fields fields) {
    return (struct changes){.words = mem_alloc((size_t)(HEAD_MAX + fields.count) * sizeof(struct slice))};
}
static void changes_add(struct changes *changes, struct slice field) {
    changes->words[HEAD_MAX + changes->count++] = field;
}
static void changes_end(struct changes *changes) {
    mem_free(changes->words);
}
static void propagate_hdel(struct call *call, const struct changes *changes) {
    struct slice *words = changes->words + HEAD_MAX - 2;
    words[0] = SLICE("HDEL"), words[1] = call->argv[1];
    call_propagate(call, changes->count + 2, words);
}
static void propagate_hpersist(struct call *call, const struct changes *changes) {
    char count[NUMBER_TEXT_MAX];
    struct slice *words = changes->words + HEAD_MAX - 4;
    words[0] = SLICE("HPERSIST"), words[1] = call->argv[1], words[2] = SLICE("FIELDS");
    words[3] = (struct slice){count, format_int64(count, changes->count)};
    call_propagate(call, changes->count + 4, words);
}
static void propagate_hpexpireat(struct call *call, const struct changes *changes, int64_t at) {
    char count[NUMBER_TEXT_MAX], time[NUMBER_TEXT_MAX];
    struct slice *words = changes->words;
    words[0] = SLICE("HPEXPIREAT"), words[1] = call->argv[1], words[2] = (struct slice){time, format_int64(time, at)},
    words[3] = SLICE("FIELDS");
    words[4] = (struct slice){count, format_int64(count, changes->count)};
    call_propagate(call, changes->count + 5, words);
}

/* --- Setting and removing expiry --- */

/* Fields got an expiry (at >= 0) or lost it. */
static void fields_expiry_changed(struct call *call, int fields, int64_t at) {
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, at >= 0 ? "hexpire" : "hpersist", call->argv[1]);
    call->dirty += (uint64_t)fields;
}
/* The fields were deleted because their new expiry is in the past. */
static void expired_at_once(struct call *call, struct entry *entry, const struct changes *changes) {
    if (!changes->count) return;
    store_stats.expired_fields += (uint64_t)changes->count;
    propagate_hdel(call, changes);
    hash_fields_removed(call, entry, changes->count, "hexpired");
}

/* All fields of a call get the same time, so HGETEX and HEXPIRE decide once per call whether they delete fields. */
static int64_t expire_field(struct call *call, struct entry *entry, struct slice field, int64_t at, unsigned wanted,
                            bool past, struct changes *changes) {
    int64_t now_at = entry ? hash_expire_at(entry, field) : HASH_NO_FIELD;
    if (now_at == HASH_NO_FIELD) return -2;
    if (!expire_conditions_met(wanted, now_at, at)) return 0;
    changes_add(changes, field);
    if (past)
        hash_delete(call->db, entry, field);
    else
        hash_set_expire(call->db, entry, field, at);
    return past ? 2 : 1;
}

static void propagate_time(struct call *call, const struct entry *entry, int64_t at, int first) {
    char text[NUMBER_TEXT_MAX];
    struct slice *args = mem_alloc((size_t)call->argc * sizeof *args);
    memcpy(args, call->argv, (size_t)call->argc * sizeof *args);
    args[0] = SLICE("HPEXPIREAT");
    args[2] = (struct slice){text, format_int64(text, at)};
    if (!propagate_without_expired(call, entry, args, first)) call_propagate(call, call->argc, args);
    mem_free(args);
}

static void hexpire_run(struct call *call) {
    bool seconds = call_variant(call) & EXPIRE_SECONDS, relative = call_variant(call) & EXPIRE_RELATIVE;
    int at_fields = fields_find(call, 3);
    struct fields fields;
    struct entry *entry;
    unsigned wanted = 0;
    int64_t value, at;
    if (!at_fields || !expire_conditions_read(call, 3, at_fields, &wanted) ||
        !fields_read(call, at_fields, 1, reply_numfields, &fields) || !argument_int64(call, 2, &value))
        return;
    if (value < 0 || !expire_time_make(value, seconds, relative, &at)) {
        reply_invalid_expire(call);
        return;
    }
    if (!find_hash_write(call, &entry)) return;
    bool past = expire_time_is_past(call, at);
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++)
        reply_integer(call->reply, expire_field(call, entry, call->argv[i], at, wanted, past, &changes));
    if (past) {
        expired_at_once(call, entry, &changes);
    } else if (changes.count) {
        fields_expiry_changed(call, changes.count, at);
        if (at <= clock_data_ms()) /* in import mode: the fields count as expired now, but are not left out */
            propagate_hpexpireat(call, &changes, at);
        else if (seconds || relative)
            propagate_time(call, entry, at, fields.first);
        else
            propagate_without_expired(call, entry, call->argv, fields.first);
    }
    changes_end(&changes);
}

/* Returns -2: no such field; -1: it had no expiry; 1: its expiry was removed. */
static int64_t persist_field(struct call *call, struct entry *entry, struct slice field) {
    int64_t at = entry ? hash_expire_at(entry, field) : HASH_NO_FIELD;
    if (at < 0) return at;
    hash_set_expire(call->db, entry, field, HASH_NEVER);
    return 1;
}

static void hpersist_run(struct call *call) {
    struct fields fields;
    struct entry *entry;
    if (!fields_only(call, reply_numfields, &fields) || !find_hash_write(call, &entry)) return;
    int persisted = 0;
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        int64_t outcome = persist_field(call, entry, call->argv[i]);
        persisted += outcome == 1;
        reply_integer(call->reply, outcome);
    }
    if (!persisted) return;
    fields_expiry_changed(call, persisted, HASH_NEVER);
    propagate_without_expired(call, entry, call->argv, fields.first);
}

/* --- Reading expiry --- */

static void httl_run(struct call *call) {
    bool seconds = call_variant(call) & EXPIRE_SECONDS, relative = call_variant(call) & EXPIRE_RELATIVE;
    struct fields fields;
    if (!fields_only(call, reply_syntax, &fields)) return;
    struct entry *entry = find_read_with(call, call->argv[1], LOOKUP_NOTOUCH);
    if (!type_ok(call, entry, TYPE_HASH)) return;
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        int64_t at = entry ? hash_expire_at(entry, call->argv[i]) : HASH_NO_FIELD;
        reply_integer(call->reply, at < 0 ? at : expire_time_shown(at, seconds, relative));
    }
}

/* --- HGETEX, HGETDEL, HSETEX --- */

static void hgetex_run(struct call *call) {
    struct expire_option option = {0};
    struct fields fields;
    struct entry *entry;
    int64_t at;
    int at_fields = fields_find(call, 2);
    if (!at_fields) return;
    for (int i = 2; i < at_fields; i++) {
        if (expire_option_read(call, &i, &option, EXPIRE_TIMES | EXPIRE_PERSIST) && i < at_fields) continue;
        reply_syntax_error(call->reply);
        return;
    }
    if (!fields_read(call, at_fields, 1, reply_numfields, &fields) || !find_hash_to_retime(call, &entry) ||
        !expire_option_time_or_zero(call, &option, &at))
        return;
    bool past = at >= 0 && expire_time_is_past(call, at);
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        struct slice field = call->argv[i];
        reply_field(call, entry, field);
        if (option.kind == EXPIRE_PERSIST) {
            if (persist_field(call, entry, field) == 1) changes_add(&changes, field);
        } else if (option.kind != EXPIRE_NONE) {
            expire_field(call, entry, field, at, 0, past, &changes);
        }
    }
    if (past) {
        expired_at_once(call, entry, &changes);
    } else if (changes.count) {
        fields_expiry_changed(call, changes.count, at);
        if (at >= 0)
            propagate_hpexpireat(call, &changes, at);
        else
            propagate_hpersist(call, &changes);
    }
    changes_end(&changes);
}

static void hgetdel_run(struct call *call) {
    struct fields fields;
    struct entry *entry;
    if (!fields_only(call, reply_numfields, &fields) || !find_hash_write(call, &entry)) return;
    int64_t deleted = 0;
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        reply_field(call, entry, call->argv[i]);
        if (entry) deleted += delete_field(call, entry, call->argv[i]);
    }
    if (!deleted) return;
    propagate_without_expired(call, entry, call->argv, fields.first);
    hash_fields_removed(call, entry, deleted, "hdel");
}

struct hsetex {
    bool nx, xx, fnx, fxx;
    struct expire_option option;
    struct fields fields;
    int64_t at;
};
/* Reads one of two mutually exclusive options. */
static bool either(struct slice word, const char *name, bool *set, bool other) {
    if (!slice_is(word, name) || other) return false;
    *set = true;
    return true;
}
static bool hsetex_read(struct call *call, struct hsetex *how) {
    int at_fields = fields_find(call, 2);
    if (!at_fields) return false;
    for (int i = 2; i < at_fields; i++) {
        struct slice word = call->argv[i];
        if (either(word, "nx", &how->nx, how->xx) || either(word, "xx", &how->xx, how->nx) ||
            either(word, "fnx", &how->fnx, how->fxx) || either(word, "fxx", &how->fxx, how->fnx) ||
            (expire_option_read(call, &i, &how->option, EXPIRE_TIMES | EXPIRE_KEEPTTL) && i < at_fields))
            continue;
        return reply_syntax_error(call->reply);
    }
    return fields_read(call, at_fields, 2, reply_numfields, &how->fields);
}

static bool hsetex_fields_allowed(const struct call *call, const struct entry *entry, const struct hsetex *how) {
    for (int i = how->fields.first; (how->fnx || how->fxx) && i < call->argc; i += 2) {
        bool there = entry && hash_has(entry, call->argv[i]);
        if (there ? how->fnx : how->fxx) return false;
    }
    return true;
}

/* Conditions are not propagated: they are met here, but other fields may have expired on a replica or when an AOF is
 * loaded. */
static void hsetex_propagate(struct call *call, const struct hsetex *how) {
    bool conditions = how->nx || how->xx || how->fnx || how->fxx;
    bool absolute = !(how->option.kind & (EXPIRE_EX | EXPIRE_PX | EXPIRE_EXAT));
    if (!conditions && absolute && !call->propagated) return; /* propagate the call unchanged */
    char text[NUMBER_TEXT_MAX];
    struct slice *args = mem_alloc((size_t)call->argc * sizeof *args);
    int count = 0;
    args[count++] = call->argv[0];
    args[count++] = call->argv[1];
    if (how->option.kind == EXPIRE_KEEPTTL) {
        args[count++] = SLICE("KEEPTTL");
    } else if (how->at >= 0) {
        args[count++] = SLICE("PXAT");
        args[count++] = (struct slice){text, format_int64(text, how->at)};
    }
    for (int i = how->fields.first - 2; i < call->argc; i++) args[count++] = call->argv[i];
    call_propagate(call, count, args);
    mem_free(args);
}

/* With a time in the past, the fields are set and expire immediately. Other clients see only the events, and that
 * existing fields with these names are deleted. A missing hash is not created. */
static void hsetex_expire(struct call *call, struct entry *entry, const struct hsetex *how) {
    struct changes changes = changes_begin(how->fields);
    for (int i = how->fields.first; i < call->argc; i += 2)
        if (entry && hash_delete(call->db, entry, call->argv[i])) changes_add(&changes, call->argv[i]);
    if (!entry) notify(call->db, NOTIFY_NEW, "new", call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hset", call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hexpire", call->argv[1]);
    store_stats.expired_fields += (uint64_t)how->fields.count;
    if (changes.count) {
        propagate_hdel(call, &changes);
        hash_fields_removed(call, entry, changes.count, "hexpired");
    } else {
        notify(call->db, NOTIFY_HASH, "hexpired", call->argv[1]);
        if (!entry) notify(call->db, NOTIFY_GENERIC, "del", call->argv[1]);
    }
    changes_end(&changes);
}

/* With KEEPTTL a replica would keep the time of a field that has expired here, so the deletion of such fields is
 * propagated. */
static void hsetex_drop_expired(struct call *call, struct entry *entry, const struct hsetex *how) {
    if (!hash_is_volatile(entry)) return;
    struct changes changes = changes_begin(how->fields);
    changes.count = drop_expired_fields(call, entry, how->fields.first, call->argc, 2, changes.words + HEAD_MAX);
    if (changes.count && how->option.kind == EXPIRE_KEEPTTL) propagate_hdel(call, &changes);
    changes_end(&changes);
}

static void hsetex_set(struct call *call, struct entry *entry, const struct hsetex *how) {
    int64_t at = how->option.kind == EXPIRE_KEEPTTL ? HASH_KEEP : how->at;
    hsetex_drop_expired(call, entry, how);
    for (int i = how->fields.first; i < call->argc; i += 2)
        hash_put_until(call->db, entry, call->argv[i], call->argv[i + 1], argument_blob(call, i + 1), at);
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hset", call->argv[1]);
    if (at >= 0) notify(call->db, NOTIFY_HASH, "hexpire", call->argv[1]);
    call->dirty += (uint64_t)how->fields.count;
    hsetex_propagate(call, how);
}

static void hsetex_run(struct call *call) {
    struct hsetex how = {0};
    struct entry *entry;
    if (!hsetex_read(call, &how) || !find_hash_write(call, &entry)) return;
    bool allowed = !(how.nx && entry) && !(how.xx && !entry);
    if (allowed && !expire_option_time_or_zero(call, &how.option, &how.at)) return;
    allowed = allowed && hsetex_fields_allowed(call, entry, &how);
    reply_integer(call->reply, allowed);
    if (!allowed) return;
    if (how.at >= 0 && expire_time_is_past(call, how.at))
        hsetex_expire(call, entry, &how);
    else
        hsetex_set(call, hash_need(call, entry), &how);
}

/* --- Table --- */

#define FIELDS_SYNTAX    " FIELDS fields{numfields:integer(#0) field:string...}"
#define CONDITION_SYNTAX " [condition(NX|XX|GT|LT)@9.0.0]"
#define TIMES_SYNTAX                                                                                                   \
    "EX seconds:integer|PX milliseconds:integer|EXAT unix-time-seconds:unix-time|PXAT "                                \
    "unix-time-milliseconds:unix-time"
#define EACH_FIELD  "O(N) where N is how many fields are named."
#define EACH_TIMED  "O(N*log(M)) where N is how many fields are named and M how many of the hash expire."
#define FAST_WRITE  (CMD_WRITE | CMD_FAST)
#define FAST_READ   (CMD_READONLY | CMD_FAST)
#define UPDATED_KEY FIRST_KEY(KEY_RW | KEY_UPDATE)
#define READ_KEY    FIRST_KEY(KEY_RO | KEY_ACCESS)

const struct command_spec hash_expire_commands[] = {
    {COMMAND("hexpire", hexpire_run, -6, FAST_WRITE, ON_HASHES, "9.0.0"), .variant = EXPIRE_SECONDS | EXPIRE_RELATIVE,
     .complexity = EACH_TIMED, .summary = "Sets the time to live of hash fields in seconds.",
     .syntax = "key:key seconds:integer [condition(NX|XX|GT|LT)] FIELDS fields{numfields:integer field:string...}",
     .keys = UPDATED_KEY},
    {COMMAND("hpexpire", hexpire_run, -6, FAST_WRITE, ON_HASHES, "9.0.0"), .variant = EXPIRE_RELATIVE,
     .complexity = EACH_TIMED, .summary = "Sets the time to live of hash fields in milliseconds.",
     .syntax = "key:key milliseconds:integer" CONDITION_SYNTAX FIELDS_SYNTAX, .keys = UPDATED_KEY},
    {COMMAND("hexpireat", hexpire_run, -6, FAST_WRITE, ON_HASHES, "9.0.0"), .variant = EXPIRE_SECONDS,
     .complexity = EACH_TIMED, .summary = "Sets the expiration times of hash fields as Unix times in seconds.",
     .syntax = "key:key unix-time-seconds:integer" CONDITION_SYNTAX FIELDS_SYNTAX, .keys = UPDATED_KEY},
    {COMMAND("hpexpireat", hexpire_run, -6, FAST_WRITE, ON_HASHES, "9.0.0"), .complexity = EACH_TIMED,
     .summary = "Sets the expiration times of hash fields as Unix times in milliseconds.",
     .syntax = "key:key unix-time-milliseconds:integer" CONDITION_SYNTAX FIELDS_SYNTAX, .keys = UPDATED_KEY},
    {COMMAND("hpersist", hpersist_run, -5, FAST_WRITE, ON_HASHES, "9.0.0"), .complexity = EACH_TIMED,
     .summary = "Removes the expiration times of hash fields.", .syntax = "key:key" FIELDS_SYNTAX, .keys = UPDATED_KEY},
    {COMMAND("httl", httl_run, -5, FAST_READ, ON_HASHES, "9.0.0"), .variant = EXPIRE_SECONDS | EXPIRE_RELATIVE,
     .complexity = EACH_FIELD, .summary = "Returns the remaining time to live of hash fields in seconds.",
     .syntax = "key:key" FIELDS_SYNTAX, .keys = READ_KEY},
    {COMMAND("hpttl", httl_run, -5, FAST_READ, ON_HASHES, "9.0.0"), .variant = EXPIRE_RELATIVE,
     .complexity = EACH_FIELD, .summary = "Returns the remaining time to live of hash fields in milliseconds.",
     .syntax = "key:key" FIELDS_SYNTAX, .keys = READ_KEY},
    {COMMAND("hexpiretime", httl_run, -5, FAST_READ, ON_HASHES, "9.0.0"), .variant = EXPIRE_SECONDS,
     .complexity = EACH_FIELD, .summary = "Returns the expiration times of hash fields as Unix times in seconds.",
     .syntax = "key:key" FIELDS_SYNTAX, .keys = READ_KEY},
    {COMMAND("hpexpiretime", httl_run, -5, FAST_READ, ON_HASHES, "9.0.0"), .complexity = EACH_FIELD,
     .summary = "Returns the expiration times of hash fields as Unix times in milliseconds.",
     .syntax = "key:key" FIELDS_SYNTAX, .keys = READ_KEY},
    {COMMAND("hgetex", hgetex_run, -5, FAST_WRITE, ON_HASHES, "9.0.0"), .complexity = EACH_TIMED,
     .summary = "Returns the values of fields and optionally sets or removes their expiration times.",
     .syntax = "key:key [expiration(" TIMES_SYNTAX "|PERSIST)]" FIELDS_SYNTAX,
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("hsetex", hsetex_run, -6, FAST_WRITE | CMD_DENYOOM, ON_HASHES, "9.0.0"), .complexity = EACH_TIMED,
     .summary = "Sets fields of a hash and their expiration time, optionally under a condition.",
     .syntax = "key:key [key-condition(NX|XX)] [fields-condition(FNX|FXX)] [expiration(" TIMES_SYNTAX
               "|KEEPTTL)] FIELDS fields{numfields:integer(#0) data{field:string value:string}...}",
     .keys = FIRST_KEY(KEY_RW | KEY_INSERT)},
    {COMMAND("hgetdel", hgetdel_run, -5, FAST_WRITE, ON_HASHES, "9.1.0"), .complexity = EACH_FIELD,
     .summary = "Returns the values of fields and deletes them, and the key with the last of them.",
     .syntax = "key:key" FIELDS_SYNTAX, .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_DELETE)},
    {.name = NULL},
};
