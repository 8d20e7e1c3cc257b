/* absent_features.c: the answers to commands about users, modules and cluster mode, which the server does not have.
 *
 * Client libraries send some of these commands when they connect: ACL WHOAMI, MODULE LIST, CLUSTER KEYSLOT. Each answer
 * is the one Valkey gives in the state this server is in: with one user, without modules, outside a cluster. No command
 * pretends to succeed. A change that adds such a feature moves its commands and options into the feature's own
 * directory. */
#include "server/absent_features.h"
#include "lib/hash_slot.h"
#include "lib/number.h"
#include "lib/random.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/command/command_names.h"
#include "server/command/dispatch.h"
#include "server/command/help.h"

/* Users: only "default" exists */

static void whoami_run(struct call *call) {
    reply_bulk_text(call->reply, call->client->user->name);
}

static void users_run(struct call *call) {
    reply_array(call->reply, 1);
    reply_bulk_text(call->reply, "default");
}

struct category {
    struct reply *reply; /* NULL: count only */
    uint32_t flag;
    size_t count;
};
static void category_add(struct command *command, void *context) {
    struct category *category = context;
    if (!(command->categories & category->flag)) return;
    category->count++;
    if (category->reply) reply_bulk_text(category->reply, command->full_name);
}

static void cat_run(struct call *call) {
    if (call->argc > 3) {
        reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try ACL HELP.",
                           (int)(call->argv[1].len > 128 ? 128 : call->argv[1].len), call->argv[1].data);
        return;
    }
    if (call->argc == 2) {
        size_t count = 0;
        while (command_category_names[count].name) count++;
        reply_array(call->reply, count);
        for (size_t i = 0; i < count; i++) reply_bulk_text(call->reply, command_category_names[i].name);
        return;
    }
    struct category category = {.flag = command_category_by_name(call->argv[2])};
    if (!category.flag) {
        reply_error_format(call->reply, "ERR Unknown category '%.*s'",
                           (int)(call->argv[2].len > 128 ? 128 : call->argv[2].len), call->argv[2].data);
        return;
    }
    commands_each_all(category_add, &category);
    reply_array(call->reply, category.count);
    category.reply = call->reply;
    commands_each_all(category_add, &category);
}

static void genpass_run(struct call *call) {
    enum { BITS_DEFAULT = 256, BITS_MAX = 4096, BITS_PER_DIGIT = 4 };
    int64_t bits = BITS_DEFAULT;
    if (call->argc > 3) {
        reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try ACL HELP.",
                           (int)(call->argv[1].len > 128 ? 128 : call->argv[1].len), call->argv[1].data);
        return;
    }
    if (call->argc == 3 && !parse_int64(call->argv[2], &bits)) {
        reply_not_integer(call->reply);
        return;
    }
    if (bits < 1 || bits > BITS_MAX) {
        reply_error(call->reply, "ERR ACL GENPASS argument must be the number of bits for the output password, a "
                                 "positive number up to 4096");
        return;
    }
    char text[BITS_MAX / BITS_PER_DIGIT + 1];
    size_t digits = (size_t)(bits + BITS_PER_DIGIT - 1) / BITS_PER_DIGIT;
    random_hex(text, digits);
    reply_bulk(call->reply, (struct slice){text, digits});
}

static void acl_help_run(struct call *call) {
    static const char *const lines[] = {"CAT [<category>]",
                                        "    List the categories of commands, or the commands of a category.",
                                        "GENPASS [<bits>]",
                                        "    Generate a random password of 256 or <bits> bits, in hexadecimal.",
                                        "USERS",
                                        "    List the users.",
                                        "WHOAMI",
                                        "    Return the user of this connection.",
                                        NULL};
    reply_help(call->reply, "ACL", lines);
}

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

#define ASKING   (CMD_NOSCRIPT | CMD_LOADING | CMD_STALE)
#define TOLD     .group = GROUP_SERVER, .complexity = "O(1)"
#define OF_NODES .run = cluster_disabled_run, .flags = CMD_LOADING | CMD_STALE, .group = GROUP_CLUSTER

static const char *const unordered[] = {"nondeterministic_output_order", NULL};
static const char *const nondeterministic[] = {"nondeterministic_output", NULL};

static const struct command_spec acl_subcommands[] = {
    {.name = "cat",
     .run = cat_run,
     .arity = -2,
     .flags = ASKING,
     .group = GROUP_SERVER,
     .since = "6.0.0",
     .complexity = "O(1), as categories and commands do not change.",
     .summary = "Lists the categories of commands, or the commands of a category.",
     .syntax = "[category:string]"},
    {.name = "genpass",
     .run = genpass_run,
     .arity = -2,
     .flags = ASKING,
     TOLD,
     .since = "6.0.0",
     .summary = "Generates a random password.",
     .syntax = "[bits:integer]"},
    {HELP_ROW(acl_help_run), .group = GROUP_SERVER, .since = "6.0.0"},
    {.name = "users",
     .run = users_run,
     .arity = 2,
     .flags = ASKING | CMD_ADMIN,
     .group = GROUP_SERVER,
     .since = "6.0.0",
     .complexity = "O(N) where N is the number of users",
     .summary = "Lists the users."},
    {.name = "whoami",
     .run = whoami_run,
     .arity = 2,
     .flags = ASKING,
     TOLD,
     .since = "6.0.0",
     .summary = "Returns the user of the connection."},
    {.name = NULL},
};

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
    {.name = "acl",
     .arity = -2,
     .group = GROUP_SERVER,
     .since = "6.0.0",
     .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about users.",
     .subcommands = acl_subcommands},
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
