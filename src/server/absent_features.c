/* absent_features.c: the answers to commands about modules, which the server cannot load. The Lua engine is built in,
 * but clients see it as a module, as with Valkey.
 *
 * Client libraries send MODULE LIST when they connect. Each answer is the one Valkey gives in the state this server is
 * in: without further modules. No command pretends to succeed. */
#include "server/absent_features.h"
#include "server/command/help.h"
#include "server/feature.h"
#include "server/script_hooks.h"

/* --- Modules: only the built-in one --- */

void modules_reply(struct reply *reply) {
    reply_array(reply, script_hooks != NULL);
    if (!script_hooks) return;
    reply_map(reply, 4);
    reply_bulk_text(reply, "name");
    reply_bulk_text(reply, SCRIPT_MODULE);
    reply_bulk_text(reply, "ver");
    reply_integer(reply, SCRIPT_MODULE_VERSION);
    reply_bulk_text(reply, "path");
    reply_bulk_text(reply, SCRIPT_MODULE);
    reply_bulk_text(reply, "args");
    reply_array(reply, 0);
}

static void module_list_run(struct call *call) {
    modules_reply(call->reply);
}
static void module_help_run(struct call *call) {
    static const char *const lines[] = {"LIST", "    List the loaded modules.", NULL};
    reply_help(call->reply, "MODULE", lines);
}

static const char *const unordered[] = {"nondeterministic_output_order", NULL};

static const struct command_spec module_subcommands[] = {
    {HELP_ROW(module_help_run), .group = GROUP_SERVER, .since = "5.0.0"},
    {.name = "list",
     .run = module_list_run,
     .arity = 2,
     .flags = CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT,
     .group = GROUP_SERVER,
     .since = "4.0.0",
     .complexity = "O(N) where N is the number of modules",
     .summary = "Lists the loaded modules.",
     .tips = unordered},
    {.name = NULL},
};

static const struct command_spec absent_features_commands[] = {
    {.name = "module",
     .arity = -2,
     .group = GROUP_SERVER,
     .since = "4.0.0",
     .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about modules.",
     .subcommands = module_subcommands},
    {.name = NULL},
};

const struct feature absent_feature = {.name = "absent", .commands = COMMANDS(absent_features_commands)};
