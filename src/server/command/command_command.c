/* command_command.c: COMMAND: the commands, their attributes, and the key positions of a request. */
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "server/command/command.h"
#include "server/command/command_docs.h"
#include "server/command/command_names.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/feature.h"

/* --- all, COUNT, INFO, DOCS --- */

static void reply_info_of_each(struct command *command, void *context) {
    command_reply_info(context, command);
}
static void reply_all(struct call *call) {
    reply_array(call->reply, commands_count());
    commands_each(reply_info_of_each, call->reply);
}
/* COMMAND without arguments, or with an unknown subcommand. */
static void run_all(struct call *call) {
    if (call->argc == 1) {
        reply_all(call);
        return;
    }
    struct slice word = call->argv[1];
    reply_error_format(call->reply, "ERR unknown subcommand '%.*s'. Try COMMAND HELP.",
                       word.len < 128 ? (int)word.len : 128, word.data);
}
static void run_count(struct call *call) {
    reply_integer(call->reply, (int64_t)commands_count());
}
static void run_info(struct call *call) {
    if (call->argc == 2) {
        reply_all(call);
        return;
    }
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        const struct command *command = command_find(call->argv[i]);
        if (command)
            command_reply_info(call->reply, command);
        else
            reply_null(call->reply);
    }
}
static void reply_docs_of_each(struct command *command, void *context) {
    struct reply *reply = context;
    reply_bulk_text(reply, command->full_name);
    command_reply_docs(reply, command);
}
static void run_docs(struct call *call) {
    if (call->argc == 2) {
        reply_map(call->reply, commands_count());
        commands_each(reply_docs_of_each, call->reply);
        return;
    }
    size_t known = 0;
    for (int i = 2; i < call->argc; i++) known += command_find(call->argv[i]) != NULL;
    reply_map(call->reply, known);
    for (int i = 2; i < call->argc; i++) {
        struct command *command = command_find(call->argv[i]);
        if (command) reply_docs_of_each(command, call->reply);
    }
}

/* --- LIST --- */

struct listing {
    struct reply *reply;
    bool by_category, by_pattern, by_module;
    uint32_t category;
    struct slice pattern, module;
    size_t count;
};
static void list_one(struct listing *listing, const struct command *command) {
    const char *module = command->spec->module;
    if (listing->by_module && !(module && slice_equal(listing->module, slice_of(module)))) return;
    if (listing->by_category && !(command->categories & listing->category)) return;
    if (listing->by_pattern && !glob_match(listing->pattern, slice_of(command->full_name), true)) return;
    reply_bulk_text(listing->reply, command->full_name);
    listing->count++;
}
static void list_with_subcommands(struct command *command, void *context) {
    list_one(context, command);
    for (const struct command *sub = command->first_sub; sub; sub = sub->next_sub) list_one(context, sub);
}
static void run_list(struct call *call) {
    struct listing listing = {.reply = call->reply};
    bool filtered = call->argc == 5 && slice_is(call->argv[2], "filterby");
    if (filtered && slice_is(call->argv[3], "module"))
        listing.by_module = true, listing.module = call->argv[4];
    else if (filtered && slice_is(call->argv[3], "aclcat"))
        listing.by_category = true, listing.category = command_category_by_name(call->argv[4]);
    else if (filtered && slice_is(call->argv[3], "pattern"))
        listing.by_pattern = true, listing.pattern = call->argv[4];
    else if (call->argc != 2) {
        reply_syntax_error(call->reply);
        return;
    }
    struct reply_deferred deferred;
    reply_deferred_begin(call->reply, &deferred);
    commands_each(list_with_subcommands, &listing);
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, listing.count);
}

/* --- GETKEYS --- */

/* Finds the keys of the request in the arguments. Returns the count, and *positions for mem_free; or -1 after replying
 * with an error. */
static int find_keys(struct call *call, struct key_position **positions) {
    int argc = call->argc - 2;
    const struct slice *argv = call->argv + 2;
    const struct command *command = command_lookup(argc, argv, NULL);
    *positions = NULL;
    if (!command) {
        reply_error(call->reply, "ERR Invalid command specified");
        return -1;
    }
    const struct command_spec *spec = command->spec;
    bool has_keys = spec->find_keys != NULL;
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++)
        has_keys |= spec->keys[i].begin != BEGIN_NONE && !(spec->keys[i].flags & KEY_NOT_KEY);
    if (!has_keys) {
        reply_error(call->reply, "ERR The command has no key arguments");
        return -1;
    }
    if (!command_arity_ok(command, argc)) {
        reply_error(call->reply, "ERR Invalid number of arguments specified for command");
        return -1;
    }
    *positions = mem_try_alloc((size_t)argc * COMMAND_KEY_SPECS_MAX * sizeof **positions);
    if (!*positions) {
        reply_error(call->reply, "ERR Insufficient memory for the keys");
        return -1;
    }
    int count = command_find_keys(command, argc, argv, *positions, argc * COMMAND_KEY_SPECS_MAX);
    if (count > 0) return count;
    mem_free(*positions);
    *positions = NULL;
    if (spec->flags & CMD_NO_MANDATORY_KEYS) {
        reply_array(call->reply, 0);
        return -1;
    }
    reply_error(call->reply, "ERR Invalid arguments specified for command");
    return -1;
}
static void run_getkeys(struct call *call) {
    struct key_position *positions;
    int count = find_keys(call, &positions);
    if (count < 0) return;
    reply_array(call->reply, (size_t)count);
    for (int i = 0; i < count; i++) reply_bulk(call->reply, call->argv[2 + positions[i].index]);
    mem_free(positions);
}
static void run_getkeysandflags(struct call *call) {
    struct key_position *positions;
    int count = find_keys(call, &positions);
    if (count < 0) return;
    reply_array(call->reply, (size_t)count);
    for (int i = 0; i < count; i++) {
        reply_array(call->reply, 2);
        reply_bulk(call->reply, call->argv[2 + positions[i].index]);
        size_t flags = 0;
        for (const struct flag_name *name = key_flag_names; name->name; name++)
            flags += (positions[i].flags & name->flag) != 0;
        reply_set(call->reply, flags);
        for (const struct flag_name *name = key_flag_names; name->name; name++)
            if (positions[i].flags & name->flag) reply_status(call->reply, name->name);
    }
    mem_free(positions);
}
#define UNORDERED    WORDS("nondeterministic_output_order")
#define COMMON_FLAGS (CMD_NO_DATA | CMD_LOADING | CMD_STALE)
static const struct command_spec subcommands[] = {
    {COMMAND("count", run_count, 2, COMMON_FLAGS, .group = GROUP_SERVER, "2.8.13"), .categories = CAT_CONNECTION,
     .complexity = "O(1)", .summary = "Returns the number of commands."},
    {COMMAND("docs", run_docs, -2, COMMON_FLAGS, .group = GROUP_SERVER, "7.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is how many commands are asked for",
     .summary = "Returns the documentation of some commands, or of all.", .syntax = "[command-name:string...]",
     .tips = UNORDERED},
    {COMMAND("getkeys", run_getkeys, -3, COMMON_FLAGS, .group = GROUP_SERVER, "2.8.13"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is how many arguments the request has", .summary = "Returns the keys of a request.",
     .syntax = "command:string [arg:string...]"},
    {COMMAND("getkeysandflags", run_getkeysandflags, -3, COMMON_FLAGS, .group = GROUP_SERVER, "7.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(N) where N is how many arguments the request has",
     .summary = "Returns the keys of a request, and how each is used.", .syntax = "command:string [arg:string...]"},
    {HELP_ROW(
         help_handler, "(no subcommand)", "    Describe all commands.", "COUNT", "    Show the number of commands.",
         "LIST [FILTERBY <MODULE <module>|ACLCAT <category>|PATTERN <pattern>>]", "    List the names of commands.",
         "INFO [<command-name> ...]", "    Describe some commands, or all: arity, flags, keys, categories.",
         "DOCS [<command-name> ...]", "    Document some commands, or all: arguments, history, complexity.",
         "GETKEYS <full-command>", "    Show the keys of a request.", "GETKEYSANDFLAGS <full-command>",
         "    Show the keys of a request and how it accesses them."),
     .categories = CAT_CONNECTION, .group = GROUP_SERVER, .since = "5.0.0"},
    {COMMAND("info", run_info, -2, COMMON_FLAGS, .group = GROUP_SERVER, "2.8.13"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is how many commands are asked for",
     .summary = "Describes some commands, or all: arity, flags, keys, categories.",
     .syntax = "[command-name:string...]", .tips = UNORDERED,
     .history = WORDS("7.0.0", "Without a name it describes all commands.")},
    {COMMAND("list", run_list, -2, COMMON_FLAGS, .group = GROUP_SERVER, "7.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is how many commands there are", .summary = "Lists the names of commands.",
     .syntax = "[FILTERBY filterby(MODULE module-name:string|ACLCAT category:string|PATTERN pattern:pattern)]",
     .tips = UNORDERED},
    {.name = NULL}};
static const struct command_spec command_commands[] = {
    {COMMAND("command", run_all, -1, COMMON_FLAGS, .group = GROUP_SERVER, "2.8.13"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is how many commands there are", .summary = "Describes all commands.",
     .tips = UNORDERED, .subcommands = subcommands},
    {.name = NULL},
};

static const char *rename_command(int count, const struct slice *words) {
    return command_rename(words[0], words[1]);
}

static const struct config_directive command_directives[] = {
    {.name = "rename-command", .min_words = 2, .max_words = 2, .handle = rename_command}, {.name = NULL}};

const struct feature command_feature = {
    .name = "command", .directives = DIRECTIVES(command_directives), .commands = COMMANDS(command_commands)};
