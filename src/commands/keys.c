/* keys.c: type-independent commands on keys: deletion, existence, renaming, copying, moving. */
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include "server/server.h"
#include "store/extension.h"
#include "store/hash.h"
#include <limits.h>

static void delete_all(struct call *call, bool lazy) {
    uint64_t deleted = 0;
    for (int i = 1; i < call->argc; i++) {
        struct slice key = call->argv[i];
        keys_ahead(call, 1, i, 1, call->argc);
        /* An expired key is deleted as expired and not counted. */
        if (!db_find(call->db, key, LOOKUP_WRITE | LOOKUP_REPLACES | LOOKUP_NOTOUCH)) continue;
        db_delete(call->db, key, lazy);
        notify(call->db, NOTIFY_GENERIC, "del", key);
        deleted++;
    }
    call->dirty += deleted;
    reply_integer(call->reply, (int64_t)deleted);
}
static void del_run(struct call *call) {
    delete_all(call, store_settings.lazy_user_del);
}
static void unlink_run(struct call *call) {
    delete_all(call, true);
}

static void exists_run(struct call *call) {
    int64_t found = 0;
    for (int i = 1; i < call->argc; i++) {
        keys_ahead(call, 1, i, 1, call->argc);
        found += find_read_with(call, call->argv[i], LOOKUP_NOTOUCH) != NULL;
    }
    reply_integer(call->reply, found);
}

/* Updates the access field even with CLIENT NO-TOUCH, because that is the purpose of the command. */
static void touch_run(struct call *call) {
    int64_t found = 0;
    for (int i = 1; i < call->argc; i++) {
        keys_ahead(call, 1, i, 1, call->argc);
        if (db_find(call->db, call->argv[i], lookup_flags(call) & ~LOOKUP_NOTOUCH)) {
            found++;
        } else {
            notify(call->db, NOTIFY_KEY_MISS, "keymiss", call->argv[i]);
        }
    }
    reply_integer(call->reply, found);
}

static void type_run(struct call *call) {
    struct entry *entry = find_read_with(call, call->argv[1], LOOKUP_NOTOUCH);
    reply_status(call->reply, entry ? entry_type_name(entry) : "none");
}

static void rename_key(struct call *call, bool only_new) {
    struct slice from = call->argv[1], to = call->argv[2];
    if (!find_replace(call, from)) {
        reply_no_such_key(call->reply);
        return;
    }
    bool same = slice_equal(from, to);
    if (only_new && (same || find_replace(call, to))) {
        reply_integer(call->reply, 0);
        return;
    }
    if (!same) {
        db_rename(call->db, from, call->db, to);
        notify(call->db, NOTIFY_NEW, "new", to);
        notify(call->db, NOTIFY_GENERIC, "rename_from", from);
        notify(call->db, NOTIFY_GENERIC, "rename_to", to);
        call->dirty++;
    }
    if (only_new) {
        reply_integer(call->reply, 1);
    } else {
        reply_ok(call->reply);
    }
}
static void rename_run(struct call *call) {
    rename_key(call, false);
}
static void renamenx_run(struct call *call) {
    rename_key(call, true);
}

/* Returns the database of argv[index]; NULL: replied with an error. */
static struct db *argument_db(struct call *call, int index) {
    int64_t id;
    if (!argument_int64(call, index, &id)) return NULL;
    if (id < INT_MIN || id > INT_MAX) {
        reply_not_int(call->reply);
        return NULL;
    }
    struct db *db = keyspace_db(server.keyspace, (int)id);
    if (!db) reply_no_such_db(call->reply);
    return db;
}

static void reply_same_object(struct call *call) {
    reply_error(call->reply, "ERR source and destination objects are the same");
}

static void move_run(struct call *call) {
    struct slice key = call->argv[1];
    struct db *to = argument_db(call, 2);
    if (!to) return;
    if (to == call->db) {
        reply_same_object(call);
        return;
    }
    bool moves = find_replace(call, key) && !db_find(to, key, LOOKUP_WRITE | LOOKUP_REPLACES | lookup_flags(call));
    if (moves) {
        db_rename(call->db, key, to, key);
        notify(to, NOTIFY_NEW, "new", key);
        notify(call->db, NOTIFY_GENERIC, "move_from", key);
        notify(to, NOTIFY_GENERIC, "move_to", key);
        call->dirty++;
    }
    reply_integer(call->reply, moves);
}

/* Expired fields are not copied. Replicas and the append-only file do not check expiry, so they copy these fields as
 * well; the propagated HDEL deletes them from the copy. In the original the expired fields remain until the expiry
 * cycle deletes them. */
struct copying {
    struct call *call;
    struct db *to_db;
};
static void fields_left_out(void *context, const struct slice *names, size_t count) {
    const struct copying *copying = context;
    struct call *call = copying->call;
    if (!call->propagated) call_propagate(call, call->argc, call->argv);
    struct slice *argv = mem_alloc((count + 2) * sizeof *argv);
    argv[0] = SLICE("HDEL"), argv[1] = call->argv[2];
    memcpy(argv + 2, names, count * sizeof *argv);
    call_propagate_in(call, copying->to_db, (int)count + 2, argv);
    mem_free(argv);
}

static void copy_run(struct call *call) {
    struct slice from = call->argv[1], to = call->argv[2];
    struct db *to_db = call->db;
    bool replace = false;
    for (int i = 3; i < call->argc; i++) {
        if (slice_is(call->argv[i], "replace")) {
            replace = true;
        } else if (slice_is(call->argv[i], "db") && i + 1 < call->argc) {
            to_db = argument_db(call, ++i);
            if (!to_db) return;
        } else {
            reply_syntax_error(call->reply);
            return;
        }
    }
    if (to_db == call->db && slice_equal(from, to)) {
        reply_same_object(call);
        return;
    }
    struct entry *entry = find_read(call, from);
    bool there = entry && db_find(to_db, to, LOOKUP_WRITE | LOOKUP_REPLACES | lookup_flags(call));
    if (!entry || (there && !replace)) {
        reply_integer(call->reply, 0);
        return;
    }
    struct entry *copy = db_copy(call->db, entry, to_db, to);
    if (!copy) {
        bool copies = extension_of(entry)->type->methods->copy != NULL;
        reply_error(call->reply, copies ? "ERR module key failed to copy" : "ERR not supported for this module key");
        return;
    }
    struct copying copying = {call, to_db};
    if (entry_type(copy) == TYPE_HASH) hash_drop_all_expired(to_db, copy, fields_left_out, &copying);
    notify(to_db, NOTIFY_NEW, "new", to);
    notify(to_db, NOTIFY_GENERIC, "copy_to", to);
    call->dirty++;
    reply_integer(call->reply, 1);
}

#define FROM_KEY(...) KEY_RANGE(1, 0, 1, __VA_ARGS__)
#define TO_KEY(...)   KEY_RANGE(2, 0, 1, __VA_ARGS__)
#define MANY_SUM      WORDS("request_policy:multi_shard", "response_policy:agg_sum")

const struct command_spec key_commands[] = {
    {COMMAND("del", del_run, -2, CMD_WRITE, ON_KEYS, "1.0.0"),
     .complexity = "O(N) where N is the number of keys deleted. For a key that holds no string add O(M) where M is the "
                   "number of elements in it.",
     .summary = "Deletes keys.", .syntax = "key:key...", .tips = MANY_SUM, .keys = ALL_KEYS(KEY_RM | KEY_DELETE)},
    {COMMAND("unlink", unlink_run, -2, CMD_WRITE | CMD_FAST, ON_KEYS, "4.0.0"),
     .complexity = "O(1) for each key, whatever is in it. Then, in another thread, O(N) where N is how many "
                   "allocations the deleted values were made of.",
     .summary = "Deletes keys; memory of large values is freed in the background.", .syntax = "key:key...",
     .tips = MANY_SUM, .keys = ALL_KEYS(KEY_RM | KEY_DELETE)},
    {COMMAND("exists", exists_run, -2, CMD_READONLY | CMD_FAST, ON_KEYS, "1.0.0"),
     .complexity = "O(N) where N is the number of keys requested.", .summary = "Returns how many of the keys exist.",
     .syntax = "key:key...", .history = WORDS("3.0.3", "Takes several `key` arguments."), .tips = MANY_SUM,
     .keys = ALL_KEYS(KEY_RO)},
    {COMMAND("touch", touch_run, -2, CMD_READONLY | CMD_FAST, ON_KEYS, "3.2.1"),
     .complexity = "O(N) where N is the number of keys touched.",
     .summary = "Updates the access times of keys and returns how many of them exist.", .syntax = "key:key...",
     .tips = MANY_SUM, .keys = ALL_KEYS(KEY_RO)},
    {COMMAND("type", type_run, 2, CMD_READONLY | CMD_FAST, ON_KEYS, "1.0.0"), .complexity = "O(1)",
     .summary = "Returns the type of the value of a key.", .syntax = "key:key", .keys = FIRST_KEY(KEY_RO)},
    {COMMAND("rename", rename_run, 3, CMD_WRITE, ON_KEYS, "1.0.0"), .complexity = "O(1)",
     .summary = "Renames a key; replaces a key that has the new name.", .syntax = "key:key newkey:key(#1)",
     .keys = {FROM_KEY(KEY_RW | KEY_ACCESS | KEY_DELETE), TO_KEY(KEY_OW | KEY_UPDATE)}},
    {COMMAND("renamenx", renamenx_run, 3, CMD_WRITE | CMD_FAST, ON_KEYS, "1.0.0"), .complexity = "O(1)",
     .summary = "Renames a key, unless a key with the new name exists.", .syntax = "key:key newkey:key(#1)",
     .history = WORDS("3.2.0", "Equal names are no error any more."),
     .keys = {FROM_KEY(KEY_RW | KEY_ACCESS | KEY_DELETE), TO_KEY(KEY_OW | KEY_INSERT)}},
    {COMMAND("move", move_run, 3, CMD_WRITE | CMD_FAST, ON_KEYS, "1.0.0"), .complexity = "O(1)",
     .summary = "Moves a key to another database, unless it exists there.", .syntax = "key:key db:integer",
     .keys = FIRST_KEY(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("copy", copy_run, -3, CMD_WRITE | CMD_DENYOOM, ON_KEYS, "6.2.0"),
     .complexity = "O(N) at worst, where N is the number of elements in the value. O(1) for strings.",
     .summary = "Copies the value of a key, and its expiration time, to another key.",
     .syntax = "source:key destination:key(#1) [DB destination-db:integer] [REPLACE]",
     .keys = {FROM_KEY(KEY_RO | KEY_ACCESS), TO_KEY(KEY_OW | KEY_UPDATE)}},
    {.name = NULL},
};
