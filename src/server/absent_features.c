/* absent_features.c: the answers to commands about modules and cluster mode, which the server does not have. The Lua
 * engine is built in, but clients see it as a module, as with Valkey.
 *
 * Client libraries send some of these commands when they connect: MODULE LIST, CLUSTER KEYSLOT. Each answer is the one
 * Valkey gives in the state this server is in: without further modules, outside a cluster. No command pretends to
 * succeed. A change that adds such a feature moves its commands and options into the feature's own directory. */
#include "server/absent_features.h"
#include "lib/hash/hash_slot.h"
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

/* A subcommand about nodes and slots: the server knows it, its arity and its flags, and refuses it. */
#define FOR_NODES(name_, arity_, flags_, since_, complexity_, summary_, ...)                                           \
    {                                                                                                                  \
        .name = name_, .run = cluster_disabled_run, .arity = arity_, .flags = flags_, .group = GROUP_CLUSTER,          \
        .since = since_, .complexity = complexity_, .summary = summary_, __VA_ARGS__                                   \
    }
enum {
    BY_ADMIN = CMD_ADMIN | CMD_STALE,
    BY_ADMIN_LOADED = BY_ADMIN | CMD_NO_ASYNC_LOADING,
};

static const char *const reports_history[] = {"9.0.0", "Reports about a node that has failed do not count.", NULL};
static const char *const meet_history[] = {"4.0.0", "Accepts the port of the cluster bus.", NULL};
static const char *const replicate_history[] = {"9.0.0", "NO ONE detaches the replica from its primary.", NULL};
static const char *const setslot_history[] = {"8.0.0", "Accepts `TIMEOUT`.", NULL};
static const char *const slot_stats_tips[] = {"nondeterministic_output", "request_policy:all_shards", NULL};

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
    FOR_NODES("addslots", -3, BY_ADMIN_LOADED, "3.0.0", "O(N) where N is the number of slots",
              "Assigns slots to the node.", .syntax = "slot:integer..."),
    FOR_NODES("addslotsrange", -4, BY_ADMIN_LOADED, "7.0.0", "O(N) where N is the number of slots",
              "Assigns ranges of slots to the node.", .syntax = "range{start-slot:integer end-slot:integer}..."),
    FOR_NODES("bumpepoch", 2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Increments the configuration epoch of the cluster.",
              .tips = nondeterministic),
    FOR_NODES("cancelslotmigrations", 2, BY_ADMIN_LOADED, "9.0.0", "O(N) where N is the number of migrations",
              "Cancels the migrations of slots that are in progress.", .tips = NULL),
    FOR_NODES("count-failure-reports", 3, BY_ADMIN, "3.0.0", "O(N) where N is the number of reports",
              "Returns how many nodes report a failure of a node.", .tips = nondeterministic,
              .syntax = "node-id:string", .history = reports_history),
    FOR_NODES("countkeysinslot", 3, CMD_STALE, "3.0.0", "O(1)", "Returns the number of keys in a slot.",
              .syntax = "slot:integer"),
    FOR_NODES("delslots", -3, BY_ADMIN_LOADED, "3.0.0", "O(N) where N is the number of slots",
              "Removes slots from the node.", .syntax = "slot:integer..."),
    FOR_NODES("delslotsrange", -4, BY_ADMIN_LOADED, "7.0.0", "O(N) where N is the number of slots",
              "Removes ranges of slots from the node.", .syntax = "range{start-slot:integer end-slot:integer}..."),
    FOR_NODES("failover", -2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes a replica the primary of its shard.",
              .syntax = "[options(FORCE|TAKEOVER)]"),
    FOR_NODES("flushslot", -3, CMD_WRITE | CMD_ADMIN | CMD_NO_ASYNC_LOADING, "9.0.0",
              "O(N) where N is the number of keys in the slot", "Deletes all keys of a slot.",
              .categories = CAT_KEYSPACE, .syntax = "slot:integer [flush-type(ASYNC|SYNC)]"),
    FOR_NODES("flushslots", 2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Removes all slots from the node.", .tips = NULL),
    FOR_NODES("forget", 3, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Removes a node from the list of nodes.",
              .syntax = "node-id:string"),
    FOR_NODES("getkeysinslot", 4, CMD_STALE, "3.0.0", "O(N) where N is the number of returned keys",
              "Returns keys of a slot.", .tips = nondeterministic, .syntax = "slot:integer count:integer"),
    FOR_NODES("getslotmigrations", 2, BY_ADMIN_LOADED, "9.0.0", "O(N) where N is the number of migrations",
              "Returns the migrations of slots, past and present.", .tips = NULL),
    FOR_NODES("links", 2, CMD_STALE, "7.0.0", "O(N) where N is the number of nodes",
              "Returns the connections of the cluster bus.", .tips = nondeterministic),
    FOR_NODES("meet", -4, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes another node known to the cluster.",
              .syntax = "ip:string port:integer [cluster-bus-port:integer@4.0.0]", .history = meet_history),
    FOR_NODES("migrateslots", -4, BY_ADMIN_LOADED, "9.0.0", "O(N) where N is the number of slots",
              "Starts migrations of slots to other nodes.",
              .syntax = "migration-group{slotsrange-token=SLOTSRANGE range{start-slot:integer end-slot:integer}... "
                        "node-token=NODE node-id:string}..."),
    FOR_NODES("myshardid", 2, CMD_LOADING | CMD_STALE, "7.2.0", "O(1)", "Returns the id of the shard of the node.",
              .tips = nondeterministic),
    FOR_NODES("replicas", 3, BY_ADMIN, "5.0.0", "O(N) where N is the number of replicas",
              "Returns the replicas of a primary.", .tips = nondeterministic, .syntax = "node-id:string"),
    FOR_NODES("replicate", -3, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes the node a replica of a primary.",
              .syntax = "args(node-id:string|no-one{NO ONE}@9.0.0)", .history = replicate_history),
    FOR_NODES("reset", -2, CMD_ADMIN | CMD_NOSCRIPT | CMD_STALE, "3.0.0", "O(N) where N is the number of nodes",
              "Resets the node: it forgets its cluster.", .syntax = "[reset-type(HARD|SOFT)]"),
    FOR_NODES("saveconfig", 2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Writes the configuration of the cluster to its file.",
              .tips = NULL),
    FOR_NODES("set-config-epoch", 3, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Sets the configuration epoch of a new node.",
              .syntax = "config-epoch:integer"),
    FOR_NODES("setslot", -4, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Changes the state of a slot, or its node.",
              .syntax =
                  "slot:integer subcommand(IMPORTING importing:string\"node-id\"|MIGRATING "
                  "migrating:string\"node-id\"|NODE node:string\"node-id\"|STABLE) [TIMEOUT timeout:integer@8.0.0]",
              .history = setslot_history),
    FOR_NODES("slaves", 3, BY_ADMIN, "3.0.0", "O(N) where N is the number of replicas",
              "Returns the replicas of a primary.", .tips = nondeterministic, .deprecated_since = "5.0.0",
              .replaced_by = "`CLUSTER REPLICAS`", .syntax = "node-id:string"),
    FOR_NODES("slot-stats", -4, CMD_LOADING | CMD_STALE, "8.0.0", "O(N) where N is the number of slots",
              "Returns statistics of slots.", .tips = slot_stats_tips,
              .syntax = "filter(SLOTSRANGE slotsrange{start-slot:integer end-slot:integer}|ORDERBY "
                        "orderby{metric:string [LIMIT limit:integer] [order(ASC|DESC)]})"),
    FOR_NODES("syncslots", -3, BY_ADMIN_LOADED | CMD_SYSCMD, "9.0.0", "O(1)", "Serves nodes that migrate slots.",
              .tips = NULL),
    {.name = NULL},
};

static const struct command_spec absent_features_commands[] = {
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

const struct feature absent_feature = {.name = "absent", .commands = COMMANDS(absent_features_commands)};
