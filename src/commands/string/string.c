/* string.c: SET, GET and their variants.
 *
 * All writes end in string_put(): one search of the table and one replacement of the entry with its expiry. A large
 * value is not copied: the blob that received it becomes the value.
 *
 * Propagation: a SET with a relative time, or with one in seconds, becomes SET key value PXAT milliseconds, which has
 * the same effect whenever it is replayed; its conditions are dropped, because they have been met. Otherwise only GET
 * is dropped, because a replica's reply is not read. */
#include "commands/expire_time.h"
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

enum set_flag { SET_NX = 1, SET_XX = 2, SET_GET = 4, SET_IFEQ = 8 };
struct set_options {
    unsigned flags;
    int comparison; /* index of the comparison of IFEQ in argv */
    struct expire_option expire;
};

/* Sets the key to argv[value_index], whatever its current value. */
static void string_put(struct call *call, struct slice key, int value_index, int64_t expire_at, bool keep_ttl) {
    bool existed;
    db_put_string(call->db, key, call->argv[value_index], argument_blob(call, value_index), expire_at,
                  put_flags(call) | (keep_ttl ? PUT_KEEP_TTL : 0), &existed);
    if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
    notify(call->db, NOTIFY_STRING, "set", key);
    if (expire_at != -1) notify(call->db, NOTIFY_GENERIC, "expire", key);
    call->dirty++;
}

static void propagate_set_at(struct call *call, struct slice key, struct slice value, int64_t expire_at) {
    char text[NUMBER_TEXT_MAX];
    struct slice time = {text, format_int64(text, expire_at)};
    call_propagate(call, 5, (struct slice[]){SLICE("SET"), key, value, SLICE("PXAT"), time});
}

/* SET key value [NX|XX|IFEQ comparison] [GET] [EX …|KEEPTTL], from argv[3] on. */
static bool set_options_read(struct call *call, struct set_options *options) {
    for (int i = 3; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (slice_is(word, "nx") && !(options->flags & (SET_XX | SET_IFEQ))) {
            options->flags |= SET_NX;
        } else if (slice_is(word, "xx") && !(options->flags & (SET_NX | SET_IFEQ))) {
            options->flags |= SET_XX;
        } else if (slice_is(word, "get")) {
            options->flags |= SET_GET;
        } else if (slice_is(word, "ifeq") && !(options->flags & (SET_NX | SET_XX | SET_IFEQ)) && i + 1 < call->argc) {
            options->flags |= SET_IFEQ;
            options->comparison = ++i;
        } else if (!expire_option_read(call, &i, &options->expire, EXPIRE_TIMES | EXPIRE_KEEPTTL)) {
            return false;
        }
    }
    return true;
}

/* Propagates the request without GET. argv[comparison], unless `comparison` is 0, is not an option. */
static void propagate_set_without_reply(struct call *call, int comparison) {
    struct slice *args = mem_alloc((size_t)call->argc * sizeof *args);
    int count = 0;
    for (int i = 0; i < call->argc; i++) {
        bool dropped = i >= 3 && i != comparison && slice_is(call->argv[i], "get");
        if (!dropped) args[count++] = call->argv[i];
    }
    call_propagate(call, count, args);
    mem_free(args);
}

static void set_propagate(struct call *call, const struct set_options *options, int64_t at) {
    struct slice key = call->argv[1], value = call->argv[2];
    enum expire_kind kind = options->expire.kind;
    if (kind & (EXPIRE_EX | EXPIRE_PX | EXPIRE_EXAT)) {
        propagate_set_at(call, key, value, at);
    } else if (kind != EXPIRE_PXAT && (options->flags & SET_GET)) {
        propagate_set_without_reply(call, options->comparison);
    }
}

static bool string_equals(const struct entry *entry, struct slice value) {
    char text[STRING_NUMBER_TEXT];
    return slice_equal(entry_string(entry, text), value);
}

static void set_with_options(struct call *call) {
    struct slice key = call->argv[1];
    struct set_options options = {0};
    if (!set_options_read(call, &options)) {
        reply_syntax_error(call->reply);
        return;
    }
    int64_t at;
    if (!expire_option_time(call, &options.expire, &at)) return;

    bool get = options.flags & SET_GET;
    struct entry *entry = get ? find_read(call, key) : find_replace(call, key);
    if ((options.flags & (SET_GET | SET_IFEQ)) && !type_ok(call, entry, TYPE_STRING)) return;
    if (get && entry) reply_string_value(call, entry);
    if (get && !entry) reply_null(call->reply);
    bool refused = ((options.flags & SET_NX) && entry) || ((options.flags & SET_XX) && !entry) ||
                   ((options.flags & SET_IFEQ) && !(entry && string_equals(entry, call->argv[options.comparison])));
    if (refused) {
        if (!get) reply_null(call->reply);
        return;
    }
    if (!get) reply_ok(call->reply);
    if (at != -1 && expire_time_is_past(call, at)) {
        if (entry) expire_now(call, key);
        return;
    }
    string_put(call, key, 2, at, options.expire.kind == EXPIRE_KEEPTTL);
    set_propagate(call, &options, at);
}

static void set_run(struct call *call) {
    if (__builtin_expect(call->argc > 3, 0)) {
        set_with_options(call);
        return;
    }
    string_put(call, call->argv[1], 2, -1, false);
    reply_ok(call->reply);
}

static void setnx_run(struct call *call) {
    struct entry *entry = find_replace(call, call->argv[1]);
    if (!entry) string_put(call, call->argv[1], 2, -1, false);
    reply_integer(call->reply, entry == NULL);
}

static void set_expiring(struct call *call, enum expire_kind kind) {
    struct slice key = call->argv[1];
    int64_t at;
    if (!expire_option_time(call, &(struct expire_option){kind, 2}, &at)) return;
    reply_ok(call->reply);
    string_put(call, key, 3, at, false);
    propagate_set_at(call, key, call->argv[3], at);
}
static void setex_run(struct call *call) {
    set_expiring(call, EXPIRE_EX);
}
static void psetex_run(struct call *call) {
    set_expiring(call, EXPIRE_PX);
}

/* Replies like GET; false: replied with an error. *exists: the key had a value. */
static bool reply_current_value(struct call *call, bool *exists) {
    struct entry *entry = find_read(call, call->argv[1]);
    *exists = entry != NULL;
    if (!entry) {
        reply_null(call->reply);
    } else if (type_ok(call, entry, TYPE_STRING)) {
        reply_string_value(call, entry);
    } else {
        return false;
    }
    return true;
}

static void get_run(struct call *call) {
    bool exists;
    reply_current_value(call, &exists);
}

static void getset_run(struct call *call) {
    bool exists;
    if (!reply_current_value(call, &exists)) return;
    string_put(call, call->argv[1], 2, -1, false);
    call_propagate(call, 3, (struct slice[]){SLICE("SET"), call->argv[1], call->argv[2]});
}

static void getdel_run(struct call *call) {
    bool exists;
    struct slice key = call->argv[1];
    if (!reply_current_value(call, &exists) || !exists) return;
    db_delete(call->db, key, store_settings.lazy_user_del);
    notify(call->db, NOTIFY_GENERIC, "del", key);
    call->dirty++;
    call_propagate(call, 2, (struct slice[]){SLICE("DEL"), key});
}

static void getex_run(struct call *call) {
    struct slice key = call->argv[1];
    struct expire_option option = {0};
    for (int i = 2; i < call->argc; i++) {
        if (!expire_option_read(call, &i, &option, EXPIRE_TIMES | EXPIRE_PERSIST)) {
            reply_syntax_error(call->reply);
            return;
        }
    }
    int64_t at;
    if (!expire_option_time(call, &option, &at)) return;
    struct entry *entry = find_read(call, key);
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    if (!type_ok(call, entry, TYPE_STRING)) return;
    reply_string_value(call, entry);
    if (at != -1 && expire_time_is_past(call, at)) {
        expire_now(call, key);
    } else if (at != -1) {
        db_set_expire(call->db, entry, at);
        char text[NUMBER_TEXT_MAX];
        struct slice time = {text, format_int64(text, at)};
        call_propagate(call, 3, (struct slice[]){SLICE("PEXPIREAT"), key, time});
        notify(call->db, NOTIFY_GENERIC, "expire", key);
        call->dirty++;
    } else if (option.kind == EXPIRE_PERSIST && entry_expire_at(entry) != -1) {
        db_set_expire(call->db, entry, -1);
        call_propagate(call, 2, (struct slice[]){SLICE("PERSIST"), key});
        notify(call->db, NOTIFY_GENERIC, "persist", key);
        call->dirty++;
    }
}

static void delifeq_run(struct call *call) {
    struct slice key = call->argv[1];
    struct entry *entry = find_replace(call, key);
    if (!type_ok(call, entry, TYPE_STRING)) return;
    bool equal = entry && string_equals(entry, call->argv[2]);
    reply_integer(call->reply, equal);
    if (!equal) return;
    db_delete(call->db, key, store_settings.lazy_user_del);
    call_propagate(call, 2, (struct slice[]){SLICE("DEL"), key});
    notify(call->db, NOTIFY_GENERIC, "del", key);
    call->dirty++;
}

/* SET returns the value only with GET. */
static int set_find_keys(const struct command *command, int argc, const struct slice *argv,
                         struct key_position *positions, int max) {
    bool reads = false;
    for (int i = 3; i < argc && !reads; i++) reads = slice_is(argv[i], "get");
    if (max > 0)
        positions[0] = (struct key_position){1, reads ? KEY_RW | KEY_ACCESS | KEY_UPDATE : KEY_OW | KEY_UPDATE};
    return 1;
}

const struct command_spec string_commands[] = {
    {COMMAND("set", set_run, -3, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Sets the string value of a key, of whatever type its old value is; options add conditions and an "
                "expiration time.",
     .syntax = "key:key value:string [condition(NX@2.6.12|XX@2.6.12|IFEQ comparison-value:string@8.1.0)] "
               "[GET@6.2.0] [expiration(EX seconds:integer@2.6.12|"
               "PX milliseconds:integer@2.6.12|EXAT unix-time-seconds:unix-time@6.2.0|PXAT "
               "unix-time-milliseconds:unix-time@6.2.0|KEEPTTL@6.0.0)]",
     .history = WORDS("2.6.12", "The options `EX`, `PX`, `NX` and `XX`.", "6.0.0", "The option `KEEPTTL`.", "6.2.0",
                      "The options `GET`, `EXAT` and `PXAT`.", "7.0.0", "`NX` and `GET` may be used together.", "8.1.0",
                      "The option `IFEQ`."),
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE | KEY_VARIABLE_FLAGS),
     .keys[0].notes = "reads the key only with `GET`", .find_keys = set_find_keys},
    {COMMAND("setnx", setnx_run, 3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Sets a string value if the key does not exist.", .syntax = "key:key value:string",
     .keys = FIRST_KEY(KEY_OW | KEY_INSERT)},
    {COMMAND("setex", setex_run, 4, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "2.0.0"), .complexity = "O(1)",
     .summary = "Sets a string value that expires after some seconds.",
     .syntax = "key:key seconds:integer value:string", .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("psetex", psetex_run, 4, CMD_WRITE | CMD_DENYOOM, ON_STRINGS, "2.6.0"), .complexity = "O(1)",
     .summary = "Sets a string value that expires after some milliseconds.",
     .syntax = "key:key milliseconds:integer value:string", .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("get", get_run, 2, CMD_READONLY | CMD_FAST, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Returns the string value of a key.", .syntax = "key:key", .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("getset", getset_run, 3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_STRINGS, "1.0.0"), .complexity = "O(1)",
     .summary = "Sets a string value and returns the previous one.", .syntax = "key:key value:string",
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("getdel", getdel_run, 2, CMD_WRITE | CMD_FAST, ON_STRINGS, "6.2.0"), .complexity = "O(1)",
     .summary = "Returns the string value of a key and deletes the key.", .syntax = "key:key",
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_DELETE)},
    {COMMAND("getex", getex_run, -2, CMD_WRITE | CMD_FAST, ON_STRINGS, "6.2.0"), .complexity = "O(1)",
     .summary = "Returns the string value of a key and optionally sets or removes its expiration time.",
     .syntax = "key:key [expiration(EX seconds:integer|PX milliseconds:integer|EXAT unix-time-seconds:unix-time|"
               "PXAT unix-time-milliseconds:unix-time|PERSIST)]",
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE), .keys[0].notes = "a change of the expiry is an update"},
    {COMMAND("delifeq", delifeq_run, 3, CMD_WRITE | CMD_FAST, ON_STRINGS, "9.0.0"), .complexity = "O(1)",
     .summary = "Deletes a key if its string value equals the given one.", .syntax = "key:key value:string",
     .keys = FIRST_KEY(KEY_RM | KEY_DELETE)},
    {.name = NULL},
};
