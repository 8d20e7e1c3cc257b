/* set.c: the commands on one set; set_algebra.c has the commands on several sets.
 *
 * SPOP is propagated as SREM of the removed members, or as the deletion of the key. */
#include "commands/lookup.h"
#include "commands/signed_count.h"
#include "commands/value_scan.h"
#include "lib/system/memory.h"
#include "server/command/propagate.h"
#include "server/command/spec.h"
#include "store/set.h"

/* Finds a set for reading. False: the key has another type; replied with the error. */
static bool find_set(struct call *call, struct entry **entry, struct set *set) {
    *entry = find_read(call, call->argv[1]);
    if (!type_ok(call, *entry, TYPE_SET)) return false;
    if (*entry) *set = set_of(*entry);
    return true;
}
static bool find_set_write(struct call *call, struct slice key, struct entry **entry, struct set *set) {
    *entry = find_write(call, key);
    if (!type_ok(call, *entry, TYPE_SET)) return false;
    if (*entry) *set = set_of(*entry);
    return true;
}
static void set_store(struct call *call, struct slice key, const struct set *set) {
    db_add_value(call->db, key, TYPE_SET, set->encoding, set->value);
    notify(call->db, NOTIFY_NEW, "new", key);
}
/* Call after removing members: notifies, and deletes an empty set. */
static void set_members_removed(struct call *call, struct slice key, struct entry *entry, const struct set *set,
                                const char *event) {
    set_keep(call->db, entry, set);
    key_elements_removed(call, key, set_len(set) == 0, NOTIFY_SET, event);
}

/* --- Adding, removing, membership --- */

static void sadd_run(struct call *call) {
    struct slice key = call->argv[1];
    struct entry *entry;
    struct set set;
    size_t count = (size_t)call->argc - 2;
    int64_t added = 0;
    if (!find_set_write(call, key, &entry, &set)) return;
    if (entry)
        set_expect(&set, count);
    else
        set = set_new(call->argv[2], count);
    for (int i = 2; i < call->argc; i++) added += set_add(&set, call->argv[i]);
    if (entry) {
        set_keep(call->db, entry, &set);
        if (added) db_changed(call->db, key);
    } else {
        set_store(call, key, &set);
    }
    if (added) notify(call->db, NOTIFY_SET, "sadd", key);
    call->dirty += (uint64_t)added;
    reply_integer(call->reply, added);
}

static void srem_run(struct call *call) {
    struct entry *entry;
    struct set set;
    int64_t removed = 0;
    if (!find_set_write(call, call->argv[1], &entry, &set)) return;
    for (int i = 2; entry && i < call->argc && set_len(&set); i++) removed += set_remove(&set, call->argv[i]);
    if (removed) set_members_removed(call, call->argv[1], entry, &set, "srem");
    call->dirty += (uint64_t)removed;
    reply_integer(call->reply, removed);
}

static void smove_run(struct call *call) {
    struct slice from_key = call->argv[1], to_key = call->argv[2], member = call->argv[3];
    struct entry *from_entry = find_write(call, from_key), *to_entry = find_write(call, to_key);
    if (!from_entry) {
        reply_integer(call->reply, 0);
        return;
    }
    if (!type_ok(call, from_entry, TYPE_SET) || !type_ok(call, to_entry, TYPE_SET)) return;
    struct set from = set_of(from_entry), to;
    if (from_entry == to_entry || !set_remove(&from, member)) {
        reply_integer(call->reply, from_entry == to_entry && set_has(&from, member));
        return;
    }
    set_members_removed(call, from_key, from_entry, &from, "srem");
    call->dirty++;
    if (to_entry)
        to = set_of(to_entry);
    else
        to = set_new(member, 1);
    bool added = set_add(&to, member);
    if (to_entry) {
        set_keep(call->db, to_entry, &to);
        if (added) db_changed(call->db, to_key);
    } else {
        set_store(call, to_key, &to);
    }
    if (added) {
        call->dirty++;
        notify(call->db, NOTIFY_SET, "sadd", to_key);
    }
    reply_integer(call->reply, 1);
}

static void sismember_run(struct call *call) {
    struct entry *entry;
    struct set set;
    if (find_set(call, &entry, &set)) reply_integer(call->reply, entry && set_has(&set, call->argv[2]));
}
static void smismember_run(struct call *call) {
    struct entry *entry;
    struct set set;
    if (!find_set(call, &entry, &set)) return;
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) reply_integer(call->reply, entry && set_has(&set, call->argv[i]));
}
static void scard_run(struct call *call) {
    struct entry *entry;
    struct set set;
    if (find_set(call, &entry, &set)) reply_integer(call->reply, entry ? (int64_t)set_len(&set) : 0);
}

static void reply_members(struct call *call, const struct set *set) {
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, set);
    while (set_next(&it, &member)) reply_element(call->reply, &member);
    set_iterate_end(&it);
}
static void smembers_run(struct call *call) {
    struct entry *entry;
    struct set set;
    if (!find_set(call, &entry, &set)) return;
    reply_set(call->reply, entry ? set_len(&set) : 0);
    if (entry) reply_members(call, &set);
}

/* --- Random members --- */

static void reply_seen(void *context, const struct listpack_value *member) {
    reply_element(context, member);
}

static void random_members(struct call *call, int64_t wanted) {
    struct entry *entry;
    struct set set;
    struct listpack_value member;
    if (!find_set(call, &entry, &set)) return;
    size_t len = entry ? set_len(&set) : 0;
    if (len == 0 || wanted == 0) {
        reply_array(call->reply, 0);
    } else if (wanted < 0) {
        reply_array(call->reply, (size_t)-wanted);
        for (; wanted < 0 && reply_continues(call, wanted); wanted++) {
            set_random(&set, &member);
            reply_element(call->reply, &member);
        }
    } else if ((uint64_t)wanted < len) {
        reply_array(call->reply, (size_t)wanted);
        set_sample(&set, (size_t)wanted, reply_seen, call->reply);
    } else {
        reply_array(call->reply, len);
        reply_members(call, &set);
    }
}
static void srandmember_run(struct call *call) {
    if (call->argc > 3) {
        reply_syntax_error(call->reply);
        return;
    }
    if (call->argc == 3) {
        int64_t wanted;
        if (signed_count_read(call, 2, &wanted)) random_members(call, wanted);
        return;
    }
    struct entry *entry;
    struct set set;
    struct listpack_value member;
    if (!find_set(call, &entry, &set)) return;
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    set_random(&set, &member);
    reply_element(call->reply, &member);
}

/* The members that SPOP removed, for its propagation. */
struct popped {
    struct reply *reply;
    bool kept;
    size_t count, capacity, *lens;
    struct memory_output bytes;
};
enum { SREM_MEMBERS = 1024 /* maximum members of one propagated SREM */ };

static void popped_seen(void *context, const struct listpack_value *member) {
    struct popped *popped = context;
    reply_element(popped->reply, member);
    if (!popped->kept) return;
    mem_grow(popped->lens, popped->count, popped->capacity, 16);
    char text[LISTPACK_TEXT];
    struct slice bytes = listpack_value_text(member, text);
    popped->lens[popped->count++] = bytes.len;
    output_write(&popped->bytes.out, bytes);
}
static void popped_propagate(struct call *call, const struct popped *popped) {
    struct slice args[2 + SREM_MEMBERS] = {SLICE("SREM"), call->argv[1]};
    const char *at = memory_output_slice(&popped->bytes).data;
    for (size_t done = 0; done < popped->count;) {
        int argc = 2;
        for (; argc < 2 + SREM_MEMBERS && done < popped->count; at += popped->lens[done++])
            args[argc++] = (struct slice){at, popped->lens[done]};
        call_propagate(call, argc, args);
    }
}

static void pop_all(struct call *call, const struct set *set) {
    struct slice key = call->argv[1];
    find_read(call, key); /* a read of all members, which counts as a hit */
    reply_set(call->reply, set_len(set));
    reply_members(call, set);
    call->dirty += set_len(set);
    key_elements_removed(call, key, true, NOTIFY_SET, "spop");
    call_propagate(call, 2, (struct slice[]){store_settings.lazy_server_del ? SLICE("UNLINK") : SLICE("DEL"), key});
}

static void pop_count(struct call *call) {
    struct entry *entry;
    struct set set;
    int64_t count;
    if (!parse_int64(call->argv[2], &count) || count < 0) {
        reply_error(call->reply, "ERR value is out of range, must be positive");
        return;
    }
    if (!find_set_write(call, call->argv[1], &entry, &set)) return;
    if (!entry || count == 0) {
        reply_set(call->reply, 0);
        return;
    }
    if ((uint64_t)count >= set_len(&set)) {
        pop_all(call, &set);
        return;
    }
    struct popped popped = {.reply = call->reply, .kept = propagate_wanted()};
    memory_output_init(&popped.bytes);
    reply_set(call->reply, (size_t)count);
    set_pop(&set, (size_t)count, popped_seen, &popped);
    set_members_removed(call, call->argv[1], entry, &set, "spop");
    call->dirty += (uint64_t)count;
    popped_propagate(call, &popped);
    memory_output_free(&popped.bytes);
    mem_free(popped.lens);
}

static void spop_run(struct call *call) {
    struct entry *entry;
    struct set set;
    struct listpack_value member;
    if (call->argc == 3) {
        pop_count(call);
        return;
    }
    if (call->argc > 3) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!find_set_write(call, call->argv[1], &entry, &set)) return;
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    char text[LISTPACK_TEXT];
    set_random(&set, &member);
    struct slice bytes = listpack_value_text(&member, text);
    reply_bulk(call->reply, bytes);
    call_propagate(call, 3, (struct slice[]){SLICE("SREM"), call->argv[1], bytes});
    set_remove(&set, bytes);
    set_members_removed(call, call->argv[1], entry, &set, "spop");
    call->dirty++;
}

/* --- SSCAN --- */

static void scan_seen(void *context, const struct listpack_value *member) {
    struct value_scan *scan = context;
    char text[LISTPACK_TEXT];
    struct slice bytes = listpack_value_text(member, text);
    if (value_scan_wants(scan, bytes, 1)) reply_bulk(scan->reply, bytes);
}
static uint64_t scan_step(const struct entry *entry, uint64_t cursor, struct value_scan *scan) {
    struct set set = set_of(entry);
    return set_scan(&set, cursor, scan_seen, scan);
}
static void sscan_run(struct call *call) {
    uint64_t cursor;
    struct entry *entry;
    struct value_scan scan;
    if (value_scan_find(call, TYPE_SET, &cursor, &entry) && value_scan_options(call, &scan, 0))
        value_scan_run(call, &scan, cursor, entry, scan_step);
}

const struct command_spec set_commands[] = {
    {COMMAND("sadd", sadd_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_SETS, "1.0.0"),
     .complexity = "O(1) for each member.", .summary = "Adds members to a set.", .syntax = "key:key member:string...",
     .history = WORDS("2.4.0", "Takes several `member` arguments."), .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("srem", srem_run, -3, CMD_WRITE | CMD_FAST, ON_SETS, "1.0.0"),
     .complexity = "O(N) where N is the number of members removed.",
     .summary = "Removes members from a set, and the key with the last of them.", .syntax = "key:key member:string...",
     .history = WORDS("2.4.0", "Takes several `member` arguments."), .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("smove", smove_run, 4, CMD_WRITE | CMD_FAST, ON_SETS, "1.0.0"), .complexity = "O(1)",
     .summary = "Moves a member from one set to another.", .syntax = "source:key destination:key(#1) member:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE), KEY_RANGE(2, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("sismember", sismember_run, 3, CMD_READONLY | CMD_FAST, ON_SETS, "1.0.0"), .complexity = "O(1)",
     .summary = "Determines whether a value is a member of a set.", .syntax = "key:key member:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("smismember", smismember_run, -3, CMD_READONLY | CMD_FAST, ON_SETS, "6.2.0"),
     .complexity = "O(N) where N is the number of members requested.",
     .summary = "Determines whether several values are members of a set.", .syntax = "key:key member:string...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("scard", scard_run, 2, CMD_READONLY | CMD_FAST, ON_SETS, "1.0.0"), .complexity = "O(1)",
     .summary = "Returns the number of members in a set.", .syntax = "key:key", .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("smembers", smembers_run, 2, CMD_READONLY, ON_SETS, "1.0.0"),
     .complexity = "O(N) where N is the number of members in the set.", .summary = "Returns all members of a set.",
     .syntax = "key:key", .tips = WORDS("nondeterministic_output_order"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("spop", spop_run, -2, CMD_WRITE | CMD_FAST, ON_SETS, "1.0.0"),
     .complexity = "O(1) without a count, else O(N) where N is the count.",
     .summary = "Removes random members and returns them. Deletes the key with the last of them.",
     .syntax = "key:key [count:integer@3.2.0]", .history = WORDS("3.2.0", "The argument `count`."),
     .tips = WORDS("nondeterministic_output"), .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("srandmember", srandmember_run, -2, CMD_READONLY, ON_SETS, "1.0.0"),
     .complexity = "O(1) without a count, else O(N) where N is the count without its sign.",
     .summary = "Returns random members.", .syntax = "key:key [count:integer@2.6.0]",
     .history = WORDS("2.6.0", "The argument `count`."), .tips = WORDS("nondeterministic_output"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sscan", sscan_run, -3, CMD_READONLY, ON_SETS, "2.8.0"),
     .complexity = "O(1) for each call. O(N) for a whole walk, of as many calls as it takes until the cursor is 0 "
                   "again. N is the number of members.",
     .summary = "Iterates over the members of a set, a few with each call.",
     .syntax = "key:key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
     .tips = WORDS("nondeterministic_output"), .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
