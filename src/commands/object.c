/* object.c: OBJECT, which shows how a value is stored. It does not update the access field and sends no notification;
 * it counts a hit or a miss. */
#include "commands/lookup.h"
#include "server/command/help.h"
#include "server/command/spec.h"

/* NULL: no such key; replied. */
static struct entry *find_object(struct call *call) {
    struct entry *entry = db_find(call->db, call->argv[2], LOOKUP_NOTOUCH | lookup_flags(call));
    if (!entry) reply_null(call->reply);
    return entry;
}

static void encoding_run(struct call *call) {
    struct entry *entry = find_object(call);
    if (entry) reply_bulk_text(call->reply, value_encoding_name(entry_encoding(entry)));
}

static void freq_run(struct call *call) {
    struct entry *entry = find_object(call);
    if (!entry) return;
    if (store_settings.lfu) {
        reply_integer(call->reply, entry_frequency(entry));
    } else {
        reply_error(call->reply, "ERR An LFU maxmemory policy is not selected, access frequency not tracked. "
                                 "Please note that when switching between "
                                 "policies at runtime LRU and LFU data will take some time to adjust.");
    }
}

static void idletime_run(struct call *call) {
    struct entry *entry = find_object(call);
    if (!entry) return;
    if (!store_settings.lfu) {
        reply_integer(call->reply, entry_idle_seconds(entry));
    } else {
        reply_error(call->reply, "ERR An LFU maxmemory policy is selected, idle time not tracked. Please "
                                 "note that when switching between policies at "
                                 "runtime LRU and LFU data will take some time to adjust.");
    }
}

/* Values have no reference count, because each belongs to one key. */
static void refcount_run(struct call *call) {
    if (find_object(call)) reply_integer(call->reply, 1);
}

#define OBJECT_SUBCOMMAND(word, function, version, text)                                                               \
    {                                                                                                                  \
        .name = (word), .run = (function), .arity = 3, .flags = CMD_READONLY, .categories = CAT_KEYSPACE,              \
        .group = GROUP_GENERIC, .since = (version), .complexity = "O(1)", .summary = (text), .syntax = "key:key",      \
        .tips = WORDS("nondeterministic_output"), .keys = {                                                            \
            KEY_RANGE(2, 0, 1, KEY_RO)                                                                                 \
        }                                                                                                              \
    }

static const struct command_spec object_subcommands[] = {
    OBJECT_SUBCOMMAND("encoding", encoding_run, "2.2.3", "Returns the encoding of a value."),
    OBJECT_SUBCOMMAND("freq", freq_run, "4.0.0", "Returns the logarithmic access counter of a key."),
    OBJECT_SUBCOMMAND("idletime", idletime_run, "2.2.3", "Returns the seconds since the last access to a key."),
    OBJECT_SUBCOMMAND("refcount", refcount_run, "2.2.3", "Returns the reference count of a value."),
    {HELP_ROW(help_handler, "ENCODING <key>", "    Name the representation in which the value of <key> is kept.",
              "FREQ <key>", "    Tell how often <key> is used: a counter that grows with the logarithm of",
              "    its accesses and decays with time. Needs an LFU maxmemory-policy.", "IDLETIME <key>",
              "    Tell for about how many seconds <key> has not been used. Not with an LFU", "    maxmemory-policy.",
              "REFCOUNT <key>", "    Tell how many references there are to the value of <key>."),
     .categories = CAT_KEYSPACE, .group = GROUP_GENERIC, .since = "6.2.0"},
    {.name = NULL},
};

const struct command_spec object_commands[] = {
    {COMMAND("object", NULL, -2, 0, .group = GROUP_GENERIC, "2.2.3"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about the representation of values.", .subcommands = object_subcommands},
    {.name = NULL},
};
