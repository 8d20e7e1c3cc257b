/* command.h: the table of commands, and the interface of command handlers.
 *
 * A feature describes its commands in a constant table of `struct command_spec` beside their code and registers it in
 * its struct feature (server/feature.h). No other description exists: dispatch, COMMAND (COUNT, LIST, INFO, DOCS,
 * GETKEYS), ACL categories, and the hints and completion of the cli use this table.
 *
 * A handler receives a `struct call`: the arguments as slices (argv[0] is the command's name as the client wrote it),
 * the database, the reply. Dispatch has already checked arity and state. Arguments are valid until the handler returns;
 * to keep one, copy it (or take it: call_take_blob). A handler that changes data increments call->dirty. If its
 * arguments would have another meaning when executed later or on another server (relative times, random choices), it
 * calls call_propagate() with a command that has the same effect there. A handler reports keyspace events with notify()
 * (server/notify.h). It knows neither the listeners of propagation nor those of events. */
#pragma once
#include "lib/text/number.h"
#include "lib/text/slice.h"
#include "resp/reply.h"
#include "store/keyspace.h"
#include <stdint.h>

struct client;
struct command;
struct command_argument;

struct call {
    const struct command *command;
    int argc;
    const struct slice *argv;
    struct reply *reply;
    struct client *client; /* the caller; without a connection for scripts, replica links, the server itself */
    struct db *db;
    uint64_t dirty;        /* changes made by this call */
    uint64_t dirty_before; /* server.dirty when it began: that counts the calls which this one makes, too */
    uint64_t more_ticks;   /* work done for it elsewhere, by a thread while the client waited; counted with the call */
    int slot;        /* the hash slot of its keys, in cluster mode; -1: it has no keys, or the slot is not known */
    bool propagated; /* call_propagate or call_propagate_nothing was used */
    bool blocked;    /* no reply was written, the client waits (blocking.h) */
};
/* The blob that argument `index` was received into, with its reference; NULL if the argument is a slice of the receive
 * buffer. */
struct blob *call_take_blob(struct call *call, int index);
/* Propagates this command instead of the call. Several commands are propagated in order, as one transaction. Copies the
 * arguments. */
void call_propagate(struct call *call, int argc, const struct slice *argv);
void call_propagate_in(struct call *call, struct db *db, int argc, const struct slice *argv);
/* Propagates this command, whose argument `index` is the content of the blob: it is shared, not copied. */
void call_propagate_blob(struct call *call, int argc, const struct slice *argv, int index, struct blob *blob);
void call_propagate_nothing(struct call *call);
/* Parses an argument, or replies that it is no integer and returns false. */
static inline bool argument_integer(struct call *call, int index, int64_t *value) {
    return parse_int64(call->argv[index], value) || reply_not_integer(call->reply);
}
/* The errors for what this server lacks and the one that has executed the command did not: the database of a number,
 * memory for a value. After such an error a stream or a file of commands must not continue: its next commands would
 * change other data. Both return false, as reply_error(). */
bool reply_no_such_db(struct reply *reply);
bool reply_no_memory(struct reply *reply);
bool is_no_such_db(struct slice error);
bool is_no_memory(struct slice error);

/* Flags; names as COMMAND INFO shows them. */
enum command_flag {
    CMD_WRITE = 1 << 0,
    CMD_READONLY = 1 << 1,
    CMD_DENYOOM = 1 << 2,
    CMD_ADMIN = 1 << 3,
    CMD_PUBSUB = 1 << 4,
    CMD_NOSCRIPT = 1 << 5,
    CMD_BLOCKING = 1 << 6,
    CMD_LOADING = 1 << 7,
    CMD_STALE = 1 << 8,
    CMD_SKIP_MONITOR = 1 << 9,
    CMD_SKIP_COMMANDLOG = 1 << 10,
    CMD_ASKING = 1 << 11,
    CMD_FAST = 1 << 12,
    CMD_NO_AUTH = 1 << 13,
    CMD_MAY_REPLICATE = 1 << 14, /* no write, but it may be propagated. Not shown */
    CMD_NO_ASYNC_LOADING = 1 << 15,
    CMD_NO_MULTI = 1 << 16,
    CMD_ALLOW_BUSY = 1 << 17,
    CMD_MOVABLE_KEYS = 1 << 18,
    CMD_PROTECTED = 1 << 19,
    CMD_TOUCHES_ARBITRARY_KEYS = 1 << 20,
    CMD_NO_MANDATORY_KEYS = 1 << 21,
    CMD_ONLY_SENTINEL = 1 << 22,
    CMD_SYSCMD = 1 << 23 /* for developers; COMMAND DOCS says so */,
    CMD_RUNS_QUEUED = 1 << 24, /* EXEC: filters treat it like the commands it will run. Not shown */
    CMD_NOT_QUEUED = 1 << 25,  /* runs immediately even if a transaction is open. Not shown */
    CMD_RUNS_SCRIPT = 1 << 26, /* EVAL, FCALL: may run any command. Not shown */
    /* What its reply says of data, for the reply barrier: a command has one of CMD_WRITE, CMD_READONLY, CMD_RUNS_SCRIPT
     * and these two, which are not shown. CMD_SHOWS_DATA: it is no command on data, but its reply depends on them, or
     * on what was executed. CMD_NO_DATA: its reply does not, or docs/durability.md says why it may. */
    CMD_SHOWS_DATA = 1 << 27,
    CMD_NO_DATA = 1 << 28,
    CMD_MODULE = 1 << 29,       /* of a loaded module */
    CMD_ALL_DATABASES = 1 << 30 /* needs rights to all databases. Not shown */
};
/* ACL categories. @read, @write, @slow, @fast, @admin, @dangerous, @blocking, @pubsub follow from the flags and need
 * not be given. */
enum command_category {
    CAT_KEYSPACE = 1 << 0,
    CAT_READ = 1 << 1,
    CAT_WRITE = 1 << 2,
    CAT_SET = 1 << 3,
    CAT_SORTEDSET = 1 << 4,
    CAT_LIST = 1 << 5,
    CAT_HASH = 1 << 6,
    CAT_STRING = 1 << 7,
    CAT_BITMAP = 1 << 8,
    CAT_HYPERLOGLOG = 1 << 9,
    CAT_GEO = 1 << 10,
    CAT_STREAM = 1 << 11,
    CAT_PUBSUB = 1 << 12,
    CAT_ADMIN = 1 << 13,
    CAT_FAST = 1 << 14,
    CAT_SLOW = 1 << 15,
    CAT_BLOCKING = 1 << 16,
    CAT_DANGEROUS = 1 << 17,
    CAT_CONNECTION = 1 << 18,
    CAT_TRANSACTION = 1 << 19,
    CAT_SCRIPTING = 1 << 20,
    CAT_LARGEOBJ = 1 << 21
};
enum command_group {
    GROUP_GENERIC,
    GROUP_STRING,
    GROUP_LIST,
    GROUP_SET,
    GROUP_SORTED_SET,
    GROUP_HASH,
    GROUP_PUBSUB,
    GROUP_TRANSACTIONS,
    GROUP_CONNECTION,
    GROUP_SERVER,
    GROUP_SCRIPTING,
    GROUP_HYPERLOGLOG,
    GROUP_CLUSTER,
    GROUP_SENTINEL,
    GROUP_GEO,
    GROUP_STREAM,
    GROUP_BITMAP,
    GROUP_MODULE
};
/* Positions of keys among the arguments. Flags are those of COMMAND INFO: access, insert, delete, update … */
enum key_flag {
    KEY_RO = 1 << 0,
    KEY_RW = 1 << 1,
    KEY_OW = 1 << 2,
    KEY_RM = 1 << 3,
    KEY_ACCESS = 1 << 4,
    KEY_UPDATE = 1 << 5,
    KEY_INSERT = 1 << 6,
    KEY_DELETE = 1 << 7,
    KEY_NOT_KEY = 1 << 8,
    KEY_INCOMPLETE = 1 << 9,
    KEY_VARIABLE_FLAGS = 1 << 10
};
struct key_spec {
    uint32_t flags;
    const char *notes;
    enum { BEGIN_NONE, BEGIN_INDEX, BEGIN_KEYWORD, BEGIN_UNKNOWN } begin;
    int index; /* BEGIN_INDEX: position; BEGIN_KEYWORD: where the search starts (negative: from the end) */
    const char *keyword;
    enum { FIND_NONE, FIND_RANGE, FIND_KEYNUM, FIND_UNKNOWN } find;
    int a, b, c; /* FIND_RANGE: lastkey, keystep, limit; FIND_KEYNUM: keynumidx, firstkey, keystep */
};
/* One key found in a request. */
struct key_position {
    int index; /* in argv */
    uint32_t flags;
};
enum { COMMAND_KEY_SPECS_MAX = 6 };

enum channel_flag { CHANNEL_PATTERN = 1, CHANNEL_PUBLISH = 2, CHANNEL_SUBSCRIBE = 4, CHANNEL_UNSUBSCRIBE = 8 };

struct command_spec {
    const char *name;               /* lower case; of a subcommand: its own name, "kill" */
    void (*run)(struct call *call); /* NULL: a container that needs a subcommand */
    int variant;                    /* what a handler of several commands does for this one: call_variant() */
    int arity;                      /* including the name; negative: minimum */
    uint32_t flags, categories;
    enum command_group group;
    const char *since, *complexity, *summary;
    /* The arguments, in the notation of command_syntax.h, from which COMMAND DOCS, hints and completion are made:
     *   key:key value:string [condition(NX|XX|IFEQ comparison:string)@2.6.12] [GET@6.2.0] [expiration(EX
     * seconds:integer|KEEPTTL)] */
    const char *syntax;
    const char *const *history; /* "since", "what", …, NULL */
    const char *const *tips;    /* "nondeterministic_output", …, NULL */
    const char *const *help;    /* the lines of a subcommand HELP: see help.h */
    const char *deprecated_since, *replaced_by;
    struct key_spec keys[COMMAND_KEY_SPECS_MAX];
    /* For keys that specs cannot describe, and for key flags that depend on arguments. Returns the count, -1 for
     * invalid arguments. */
    int (*find_keys)(const struct command *command, int argc, const struct slice *argv, struct key_position *positions,
                     int max);
    /* The channels among the arguments, with enum channel_flag, for the rules of users; NULL: it has none, or the
     * server knows it. Returns the count. */
    int (*find_channels)(const struct command *command, int argc, const struct slice *argv,
                         struct key_position *positions, int max);
    /* More flags, which depend on argv[1]; NULL: none. */
    uint32_t (*call_flags)(struct slice argument);
    const struct command_spec *subcommands; /* ends with name NULL */
    /* The loaded module that provides the command; NULL: the server. Such a spec need not have a version and a summary,
     * and its arguments may be a tree in place of a syntax. */
    const char *module;
    const struct command_argument *arguments;
};

/* A module has registered commands, and said in which categories they are: who derives something from all commands does
 * it again. NULL: nobody does. */
extern void (*commands_changed)(void);

/* A registered command: the spec and run-time state. */
struct command {
    const struct command_spec *spec;
    const char *full_name; /* "client|kill" */
    struct command *parent;
    struct hashtable *subcommands; /* by name; NULL: none */
    struct command *first_sub;     /* of the subcommands, in the order of their registration */
    struct command *next_sub;
    uint32_t categories; /* including those that follow from the flags */
    uint32_t id;
    /* INFO commandstats and latencystats. */
    uint64_t calls, ticks /* of ticks.h; command_usec() */, rejected, failed;
    struct histogram *latency; /* of ticks; NULL: never called, or latency-tracking is off */
    /* The name as command.c compares it; see there. */
    struct command_key {
        uint64_t first, last;
        uint32_t len;
        bool exact;
    } key;
    uint8_t only_key;         /* the position of its key if it always has just this one; 0 otherwise */
    bool keyless;             /* it never has keys */
    char *name;               /* current one: spec->name unless rename-command changed it */
    struct command *next_all; /* of all commands, subcommands included */
};
uint64_t command_usec(const struct command *command);
static inline int call_variant(const struct call *call) {
    return call->command->spec->variant;
}
/* Adds all specs of a table that ends with name NULL. Aborts on a malformed table, so that every test run checks it.
 */
void commands_register(const struct command_spec *specs);
/* Leaves out the commands for which this returns false, from now on. `container`: of a subcommand, or NULL. */
void commands_offer(bool (*offers)(const char *container, const char *name));
/* Adds subcommands to a registered container: those of a feature in a higher layer. A command with a handler becomes a
 * container; its handler runs if no subcommand is given. */
void commands_register_subcommands(const char *container, const struct command_spec *specs);
/* Removes the commands of a registered table, under their current names; some may be missing. May be called at any
 * time, even while one of them runs. A client that waits with one of them, or has queued it, gets the error of an
 * unknown command. The specs are not used afterwards; each command leaves a few hundred bytes allocated, since clients
 * may refer to it. */
void commands_unregister(const struct command_spec *specs);
/* The members of a registered spec have changed, but for the name and the handlers. */
void command_spec_changed(const struct command_spec *spec);
/* Finds the command of a request, subcommand included. NULL: unknown. *known_parent: the container, if only the
 * subcommand is unknown. */
struct command *command_lookup(int argc, const struct slice *argv, struct command **known_parent);
/* The same by the names without rename-command, for what command_lookup() does not find in the primary's stream or an
 * append-only file: servers propagate DEL for an expired key, even if rename-command has removed DEL. */
struct command *command_lookup_original(int argc, const struct slice *argv, struct command **known_parent);
struct command *command_find(struct slice full_name); /* "client|kill" */
/* The same by the names that commands have without rename-command, those that it removed included: for ACL rules. */
struct command *command_find_original(struct slice full_name);
size_t commands_count(void); /* top level */
void commands_each(void (*visit)(struct command *command, void *context),
                   void *context); /* top level, sorted by name */
void commands_each_all(void (*visit)(struct command *command, void *context),
                       void *context); /* subcommands too, as registered */
void commands_reset_latency(void);     /* latency-tracking was turned off */
void commands_reset_stats(void);       /* CONFIG RESETSTAT */
/* rename-command: gives a top-level command another name; an empty one removes it. Returns NULL, or the reason for
 * failure. */
const char *command_rename(struct slice from, struct slice to);
/* Does argv[0] still name `command`? Saves the lookup for a client that repeats a command; not for containers. */
bool command_is_named(const struct command *command, struct slice name);
/* The command's flags for these arguments: a script that declares that it writes has CMD_WRITE, also for EVAL_RO, which
 * then fails; one that declares nothing has CMD_MAY_REPLICATE. */
uint32_t command_call_flags(const struct command *command, const struct slice *argv);
static inline bool command_arity_ok(const struct command *command, int argc) {
    int arity = command->spec->arity;
    return arity >= 0 ? argc == arity : argc >= -arity;
}
int command_find_keys(const struct command *command, int argc, const struct slice *argv, struct key_position *positions,
                      int max);
