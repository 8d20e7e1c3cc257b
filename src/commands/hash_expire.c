/* hash_expire.c: fields that expire: HEXPIRE, HTTL and their kin, HPERSIST, HGETEX, HSETEX; and HGETDEL, which has
 * their form.
 *
 * A time is repeated elsewhere as it came out, absolute and with the fields that it was given to: HPEXPIREAT, HPERSIST,
 * HSETEX with PXAT; a time that is over deletes at once, and is repeated as HDEL. */
#include "commands/commands.h"
#include "commands/expire_time.h"
#include "commands/hash_common.h"
#include "commands/spec.h"
#include "lib/memory.h"

/* --- FIELDS numfields field … --- */

struct fields {
    int first, count; /* in argv */
};
/* Reads it from argv[index], where the word FIELDS stands; each field comes with `step` - 1 more arguments, and behind
 * them there is nothing. False: the error is replied. */
static bool fields_read(struct call *call, int index, int step, struct fields *fields) {
    int64_t count;
    if (!argument_int64(call, index + 1, &count)) return false;
    int left = call->argc - index - 2;
    if (count < 1 || count != left / step || left % step) {
        reply_error(call->reply, "ERR numfields should be greater than 0 and match the provided number of fields");
        return false;
    }
    *fields = (struct fields){index + 2, (int)count};
    return true;
}
/* The same where nothing may stand before it. */
static bool fields_only(struct call *call, struct fields *fields) {
    if (slice_is(call->argv[2], "fields")) return fields_read(call, 2, 1, fields);
    reply_syntax_error(call->reply);
    return false;
}

/* --- What is repeated --- */

/* The fields that a call has changed, with room in front for the words of a command. */
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
static void repeat_hdel(struct call *call, const struct changes *changes) {
    struct slice *words = changes->words + HEAD_MAX - 2;
    words[0] = SLICE("HDEL"), words[1] = call->argv[1];
    call_propagate(call, changes->count + 2, words);
}
static void repeat_hpersist(struct call *call, const struct changes *changes) {
    char count[NUMBER_TEXT_MAX];
    struct slice *words = changes->words + HEAD_MAX - 4;
    words[0] = SLICE("HPERSIST"), words[1] = call->argv[1], words[2] = SLICE("FIELDS");
    words[3] = (struct slice){count, format_int64(count, changes->count)};
    call_propagate(call, changes->count + 4, words);
}
static void repeat_hpexpireat(struct call *call, const struct changes *changes, int64_t at) {
    char count[NUMBER_TEXT_MAX], time[NUMBER_TEXT_MAX];
    struct slice *words = changes->words;
    words[0] = SLICE("HPEXPIREAT"), words[1] = call->argv[1], words[2] = (struct slice){time, format_int64(time, at)},
    words[3] = SLICE("FIELDS");
    words[4] = (struct slice){count, format_int64(count, changes->count)};
    call_propagate(call, changes->count + 5, words);
}

/* --- Giving and taking times --- */

/* The fields were given a time (at >= 0), or lost theirs. */
static void retimed(struct call *call, const struct changes *changes, int64_t at) {
    if (!changes->count) return;
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, at >= 0 ? "hexpire" : "hpersist", call->argv[1]);
    call->dirty += (uint64_t)changes->count;
    if (at >= 0)
        repeat_hpexpireat(call, changes, at);
    else
        repeat_hpersist(call, changes);
}
/* The fields were deleted, because the time they were given was over. */
static void expired_at_once(struct call *call, struct entry *entry, const struct changes *changes) {
    if (!changes->count) return;
    repeat_hdel(call, changes);
    hash_lost(call, entry, changes->count, "hexpired");
}

/* Whether a client may see HGETEX and HEXPIRE delete is decided once for the call: the time is the same for all its
 * fields. */
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

static void hexpire_generic(struct call *call, bool seconds, bool relative) {
    int at_fields = 3;
    while (at_fields < call->argc - 1 && !slice_is(call->argv[at_fields], "fields")) at_fields++;
    struct fields fields;
    struct entry *entry;
    unsigned wanted = 0;
    int64_t value, at;
    if (at_fields == call->argc - 1) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!expire_conditions_read(call, 3, at_fields, &wanted) || !fields_read(call, at_fields, 1, &fields) ||
        !argument_int64(call, 2, &value))
        return;
    if (value < 0 || !expire_time_make(value, seconds, relative, &at)) {
        reply_invalid_expire(call);
        return;
    }
    if (!find_hash_write(call, &entry, fields.first, fields.count, 1)) return;
    bool past = expire_time_is_past(at);
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++)
        reply_integer(call->reply, expire_field(call, entry, call->argv[i], at, wanted, past, &changes));
    if (past)
        expired_at_once(call, entry, &changes);
    else
        retimed(call, &changes, at);
    changes_end(&changes);
}
static void hexpire_run(struct call *call) {
    hexpire_generic(call, true, true);
}
static void hpexpire_run(struct call *call) {
    hexpire_generic(call, false, true);
}
static void hexpireat_run(struct call *call) {
    hexpire_generic(call, true, false);
}
static void hpexpireat_run(struct call *call) {
    hexpire_generic(call, false, false);
}

/* -2: no such field, -1: it had no expiry, 1: it has none any more. */
static int64_t persist_field(struct call *call, struct entry *entry, struct slice field, struct changes *changes) {
    int64_t at = entry ? hash_expire_at(entry, field) : HASH_NO_FIELD;
    if (at < 0) return at;
    hash_set_expire(call->db, entry, field, HASH_NEVER);
    changes_add(changes, field);
    return 1;
}

static void hpersist_run(struct call *call) {
    struct fields fields;
    struct entry *entry;
    if (!fields_only(call, &fields) || !find_hash_write(call, &entry, fields.first, fields.count, 1)) return;
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++)
        reply_integer(call->reply, persist_field(call, entry, call->argv[i], &changes));
    retimed(call, &changes, HASH_NEVER);
    changes_end(&changes);
}

/* --- Asking for times --- */

static void httl_generic(struct call *call, bool seconds, bool relative) {
    struct fields fields;
    if (!fields_only(call, &fields)) return;
    struct entry *entry = find_read_with(call, call->argv[1], LOOKUP_NOTOUCH);
    if (!type_ok(call, entry, TYPE_HASH)) return;
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        int64_t at = entry ? hash_expire_at(entry, call->argv[i]) : HASH_NO_FIELD;
        reply_integer(call->reply, at < 0 ? at : expire_time_shown(at, seconds, relative));
    }
}
static void httl_run(struct call *call) {
    httl_generic(call, true, true);
}
static void hpttl_run(struct call *call) {
    httl_generic(call, false, true);
}
static void hexpiretime_run(struct call *call) {
    httl_generic(call, true, false);
}
static void hpexpiretime_run(struct call *call) {
    httl_generic(call, false, false);
}

/* --- HGETEX, HGETDEL, HSETEX --- */

static void hgetex_run(struct call *call) {
    struct expire_option option = {0};
    struct fields fields;
    struct entry *entry;
    int64_t at;
    int i = 2;
    for (; i < call->argc - 1 && !slice_is(call->argv[i], "fields"); i++) {
        if (expire_option_read(call, &i, &option, EXPIRE_TIMES | EXPIRE_PERSIST)) continue;
        reply_syntax_error(call->reply);
        return;
    }
    if (i >= call->argc - 1) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!fields_read(call, i, 1, &fields) || !expire_option_time_or_zero(call, &option, &at)) return;
    if (!find_hash_write(call, &entry, fields.first, fields.count, 1)) return;
    bool past = at >= 0 && expire_time_is_past(at);
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (i = fields.first; i < call->argc; i++) {
        reply_field(call, entry, call->argv[i]);
        if (option.kind == EXPIRE_PERSIST)
            persist_field(call, entry, call->argv[i], &changes);
        else if (option.kind != EXPIRE_NONE)
            expire_field(call, entry, call->argv[i], at, 0, past, &changes);
    }
    if (past)
        expired_at_once(call, entry, &changes);
    else
        retimed(call, &changes, at);
    changes_end(&changes);
}

static void hgetdel_run(struct call *call) {
    struct fields fields;
    struct entry *entry;
    if (!fields_only(call, &fields) || !find_hash_write(call, &entry, fields.first, fields.count, 1)) return;
    struct changes changes = changes_begin(fields);
    reply_array(call->reply, (size_t)fields.count);
    for (int i = fields.first; i < call->argc; i++) {
        reply_field(call, entry, call->argv[i]);
        if (entry && hash_delete(call->db, entry, call->argv[i])) changes_add(&changes, call->argv[i]);
    }
    if (changes.count) {
        repeat_hdel(call, &changes);
        hash_lost(call, entry, changes.count, "hdel");
    }
    changes_end(&changes);
}

struct hsetex {
    bool nx, xx, fnx, fxx;
    struct expire_option option;
    struct fields fields;
    int64_t at;
};
/* One of two words that exclude each other. */
static bool either(struct slice word, const char *name, bool *set, bool other) {
    if (!slice_is(word, name) || other) return false;
    *set = true;
    return true;
}
static bool hsetex_read(struct call *call, struct hsetex *how) {
    int i = 2;
    for (; i < call->argc - 1 && !slice_is(call->argv[i], "fields"); i++) {
        struct slice word = call->argv[i];
        if (either(word, "nx", &how->nx, how->xx) || either(word, "xx", &how->xx, how->nx) ||
            either(word, "fnx", &how->fnx, how->fxx) || either(word, "fxx", &how->fxx, how->fnx) ||
            expire_option_read(call, &i, &how->option, EXPIRE_TIMES | EXPIRE_KEEPTTL))
            continue;
        reply_syntax_error(call->reply);
        return false;
    }
    if (i >= call->argc - 1) {
        reply_syntax_error(call->reply);
        return false;
    }
    return fields_read(call, i, 2, &how->fields) && expire_option_time_or_zero(call, &how->option, &how->at);
}

static bool hsetex_allowed(const struct call *call, const struct entry *entry, const struct hsetex *how) {
    if ((how->nx && entry) || (how->xx && !entry)) return false;
    for (int i = how->fields.first; (how->fnx || how->fxx) && i < call->argc; i += 2) {
        bool there = entry && hash_has(entry, call->argv[i]);
        if (there ? how->fnx : how->fxx) return false;
    }
    return true;
}

static void hsetex_delete(struct call *call, struct entry *entry, const struct hsetex *how) {
    struct changes changes = changes_begin(how->fields);
    for (int i = how->fields.first; entry && i < call->argc; i += 2)
        if (hash_delete(call->db, entry, call->argv[i])) changes_add(&changes, call->argv[i]);
    expired_at_once(call, entry, &changes);
    changes_end(&changes);
}

static void hsetex_set(struct call *call, struct entry *entry, const struct hsetex *how) {
    int64_t at = how->option.kind == EXPIRE_KEEPTTL ? HASH_KEEP : how->at;
    entry = hash_need(call, entry);
    hash_expect(call->db, entry, (size_t)how->fields.count);
    for (int i = how->fields.first; i < call->argc; i += 2)
        hash_put_until(call->db, entry, call->argv[i], call->argv[i + 1], argument_blob(call, i + 1), at);
    db_changed(call->db, call->argv[1]);
    notify(call->db, NOTIFY_HASH, "hset", call->argv[1]);
    if (at >= 0) notify(call->db, NOTIFY_HASH, "hexpire", call->argv[1]);
    call->dirty += (uint64_t)how->fields.count;
    if (how->option.kind & (EXPIRE_EX | EXPIRE_PX | EXPIRE_EXAT)) expire_option_propagate(call, &how->option, at);
}

static void hsetex_run(struct call *call) {
    struct hsetex how = {0};
    struct entry *entry;
    if (!hsetex_read(call, &how) || !find_hash_write(call, &entry, how.fields.first, how.fields.count, 2)) return;
    bool allowed = hsetex_allowed(call, entry, &how);
    reply_integer(call->reply, allowed);
    if (!allowed) return;
    if (how.at >= 0 && expire_time_is_past(how.at))
        hsetex_delete(call, entry, &how);
    else
        hsetex_set(call, entry, &how);
}

/* --- Table --- */

#define FIELDS_SYNTAX    " FIELDS fields{numfields:integer field:string...}"
#define CONDITION_SYNTAX " [condition(NX|XX|GT|LT)]"
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
    {.name = "hexpire",
     .run = hexpire_run,
     .arity = -6,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Lets fields of a hash expire after some seconds.",
     .syntax = "key:key seconds:integer" CONDITION_SYNTAX FIELDS_SYNTAX,
     .keys = UPDATED_KEY},
    {.name = "hpexpire",
     .run = hpexpire_run,
     .arity = -6,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Lets fields of a hash expire after some milliseconds.",
     .syntax = "key:key milliseconds:integer" CONDITION_SYNTAX FIELDS_SYNTAX,
     .keys = UPDATED_KEY},
    {.name = "hexpireat",
     .run = hexpireat_run,
     .arity = -6,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Lets fields of a hash expire at a Unix time in seconds.",
     .syntax = "key:key unix-time-seconds:unix-time" CONDITION_SYNTAX FIELDS_SYNTAX,
     .keys = UPDATED_KEY},
    {.name = "hpexpireat",
     .run = hpexpireat_run,
     .arity = -6,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Lets fields of a hash expire at a Unix time in milliseconds.",
     .syntax = "key:key unix-time-milliseconds:unix-time" CONDITION_SYNTAX FIELDS_SYNTAX,
     .keys = UPDATED_KEY},
    {.name = "hpersist",
     .run = hpersist_run,
     .arity = -5,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Takes the expiry from fields of a hash.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .keys = UPDATED_KEY},
    {.name = "httl",
     .run = httl_run,
     .arity = -5,
     .flags = FAST_READ,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_FIELD,
     .summary = "Tells how many seconds fields of a hash have left.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .tips = WORDS("nondeterministic_output"),
     .keys = READ_KEY},
    {.name = "hpttl",
     .run = hpttl_run,
     .arity = -5,
     .flags = FAST_READ,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_FIELD,
     .summary = "Tells how many milliseconds fields of a hash have left.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .tips = WORDS("nondeterministic_output"),
     .keys = READ_KEY},
    {.name = "hexpiretime",
     .run = hexpiretime_run,
     .arity = -5,
     .flags = FAST_READ,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_FIELD,
     .summary = "Tells when fields of a hash expire, as Unix times in seconds.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .keys = READ_KEY},
    {.name = "hpexpiretime",
     .run = hpexpiretime_run,
     .arity = -5,
     .flags = FAST_READ,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_FIELD,
     .summary = "Tells when fields of a hash expire, as Unix times in milliseconds.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .keys = READ_KEY},
    {.name = "hgetex",
     .run = hgetex_run,
     .arity = -5,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Returns the values of fields, and gives them an expiry or takes it.",
     .syntax = "key:key [expiration(" TIMES_SYNTAX "|PERSIST)]" FIELDS_SYNTAX,
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {.name = "hsetex",
     .run = hsetex_run,
     .arity = -6,
     .flags = FAST_WRITE | CMD_DENYOOM,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.0.0",
     .complexity = EACH_TIMED,
     .summary = "Sets fields of a hash together with their expiry, under conditions.",
     .syntax = "key:key [condition(NX|XX)@9.1.0] [fields-condition(FNX|FXX)] [expiration(" TIMES_SYNTAX
               "|KEEPTTL)] FIELDS fields{numfields:integer data{field:string value:string}...}",
     .history = WORDS("9.1.0", "The options `NX` and `XX`."),
     .keys = UPDATED_KEY},
    {.name = "hgetdel",
     .run = hgetdel_run,
     .arity = -5,
     .flags = FAST_WRITE,
     .categories = CAT_HASH,
     .group = GROUP_HASH,
     .since = "9.1.0",
     .complexity = EACH_FIELD,
     .summary = "Returns the values of fields and deletes them, and the key with the last of them.",
     .syntax = "key:key" FIELDS_SYNTAX,
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_DELETE)},
    {.name = NULL},
};
