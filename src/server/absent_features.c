/* absent_features.c: the answers to commands about modules and cluster mode, which the server does not have.
 *
 * Client libraries send some of these commands when they connect: MODULE LIST, CLUSTER KEYSLOT. Each answer is the one
 * Valkey gives in the state this server is in: without modules, outside a cluster. No command pretends to succeed. A
 * change that adds such a feature moves its commands and options into the feature's own directory. */
#include "server/absent_features.h"
#include "lib/hash_slot.h"
#include "server/command/help.h"

/* Modules: none */

static void module_list_run(struct call *call) {
    reply_array(call->reply, 0);
}
static void module_help_run(struct call *call) {
    static const char *const lines[] = {"LIST", "    List the loaded modules.", NULL};
    reply_help(call->reply, "MODULE", lines);
}

/* Cluster mode: disabled. The slot of a key is defined all the same. */

static void keyslot_run(struct call *call) {
    reply_integer(call->reply, hash_slot(call->argv[2]));
}
static void cluster_disabled_run(struct call *call) {
    reply_error(call->reply, "ERR This instance has cluster support disabled");
}

#define OF_NODES .run = cluster_disabled_run, .flags = CMD_LOADING | CMD_STALE, .group = GROUP_CLUSTER

static const char *const unordered[] = {"nondeterministic_output_order", NULL};
static const char *const nondeterministic[] = {"nondeterministic_output", NULL};

static const struct command_spec module_subcommands[] = {
    {HELP_ROW(module_help_run), .group = GROUP_SERVER, .since = "5.0.0"},
    {.name = "list",
     .run = module_list_run,
     .arity = 2,
     .flags = CMD_ADMIN | CMD_NOSCRIPT,
     .group = GROUP_SERVER,
     .since = "4.0.0",
     .complexity = "O(N) where N is the number of modules",
     .summary = "Lists the loaded modules.",
     .tips = unordered},
    {.name = NULL},
};

static const char *const shards_history[] = {"9.1.0", "Shows the id of a shard and the availability zone of a node.",
                                             NULL};
static const char *const slots_history[] = {"4.0.0", "Shows the ids of nodes.",
                                            "7.0.0", "Shows more about the network of a node.",
                                            "9.1.0", "Shows the availability zone of a node.",
                                            NULL};

static const struct command_spec cluster_subcommands[] = {
    {.name = "help",
     OF_NODES,
     .arity = 2,
     .since = "5.0.0",
     .complexity = "O(1)",
     .summary = "Explains the subcommands."},
    {.name = "info",
     OF_NODES,
     .arity = 2,
     .since = "3.0.0",
     .complexity = "O(1)",
     .summary = "Returns the state of the node.",
     .tips = nondeterministic},
    {.name = "keyslot",
     .run = keyslot_run,
     .arity = 3,
     .flags = CMD_STALE,
     .group = GROUP_CLUSTER,
     .since = "3.0.0",
     .complexity = "O(N) where N is the number of bytes of the key",
     .summary = "Returns the hash slot of a key.",
     .syntax = "key:string"},
    {.name = "myid",
     OF_NODES,
     .arity = 2,
     .since = "3.0.0",
     .complexity = "O(1)",
     .summary = "Returns the id of the node."},
    {.name = "nodes",
     OF_NODES,
     .arity = 2,
     .since = "3.0.0",
     .complexity = "O(N) where N is the number of nodes",
     .summary = "Returns the cluster as the node sees it.",
     .tips = nondeterministic},
    {.name = "shards",
     OF_NODES,
     .arity = 2,
     .since = "7.0.0",
     .complexity = "O(N) where N is the number of nodes",
     .summary = "Returns the slots and nodes of each shard.",
     .history = shards_history,
     .tips = nondeterministic},
    {.name = "slots",
     OF_NODES,
     .arity = 2,
     .since = "3.0.0",
     .complexity = "O(N) where N is the number of nodes",
     .summary = "Returns the nodes of each range of slots.",
     .history = slots_history,
     .tips = nondeterministic},
    {.name = NULL},
};

const struct command_spec absent_features_commands[] = {
    {.name = "cluster",
     .arity = -2,
     .group = GROUP_CLUSTER,
     .since = "3.0.0",
     .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about the cluster.",
     .subcommands = cluster_subcommands},
    {.name = "module",
     .arity = -2,
     .group = GROUP_SERVER,
     .since = "4.0.0",
     .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about modules.",
     .subcommands = module_subcommands},
    {.name = NULL},
};
