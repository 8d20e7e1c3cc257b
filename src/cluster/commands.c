/* commands.c: CLUSTER: the table of its subcommands, and those that concern nodes. commands.h has the others.
 *
 * Outside of cluster mode the subcommands are known, and refused; KEYSLOT is answered. */
#include "cluster/commands.h"
#include "cluster/effects.h"
#include "cluster/migration/migration.h"
#include "cluster/nodes_conf.h"
#include "cluster/saved_reply.h"
#include "cluster/slot_stats.h"
#include "cluster/this_node.h"
#include "cluster/views.h"
#include "lib/hash/hash_slot.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include <arpa/inet.h>
#include <stdio.h>

enum { BUS_PORT_DISTANCE = 10000 };

static void reply_done(struct call *call, const char *error) {
    if (error)
        reply_error_format(call->reply, "ERR %s", error);
    else
        saved_reply(call, "OK");
}

static bool id_read(struct call *call, int index, struct node_id *id) {
    struct slice text = call->argv[index];
    if (text.len == NODE_ID_LEN) {
        memcpy(id->text, text.data, NODE_ID_LEN);
        return true;
    }
    return reply_error_format(call->reply, "ERR Unknown node %.*s", (int)text.len, text.data);
}

static struct cluster_node *node_read(struct call *call, int index) {
    struct node_id id;
    if (!id_read(call, index, &id)) return NULL;
    struct cluster_node *node = nodes_find(&this_cluster->nodes, &id);
    if (!node) reply_error_format(call->reply, "ERR Unknown node %.*s", NODE_ID_LEN, id.text);
    return node;
}

/* --- What this node knows --- */

static void cluster_help_run(struct call *call) {
    if (!cluster_is_disabled(call)) help_handler(call);
}

static void keyslot_run(struct call *call) {
    reply_integer(call->reply, hash_slot(call->argv[2]));
}

static void info_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    struct memory_output text = MEMORY_OUTPUT_INIT;
    cluster_info_write(&text.out);
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}

static void myid_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    reply_bulk(call->reply, slice_make(this_cluster->myself->id.text, NODE_ID_LEN));
}
static void myshardid_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    reply_bulk(call->reply, slice_make(this_cluster->myself->shard.text, NODE_ID_LEN));
}

static void nodes_run(struct call *call) {
    if (!cluster_is_disabled(call)) views_nodes(call->reply, endpoint_view_of(call->client));
}
static void slots_run(struct call *call) {
    if (!cluster_is_disabled(call)) views_slots(call->reply, endpoint_view_of(call->client));
}
static void shards_run(struct call *call) {
    if (!cluster_is_disabled(call)) views_shards(call->reply, endpoint_view_of(call->client));
}
static void links_run(struct call *call) {
    if (!cluster_is_disabled(call)) views_links(call->reply);
}
static void replicas_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    const struct cluster_node *node = node_read(call, 2);
    if (!node) return;
    if (!node_is_primary(node))
        reply_error(call->reply, "ERR The specified node is not a master");
    else
        views_replicas(call->reply, node, endpoint_view_of(call->client));
}

static void count_failure_reports_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    struct cluster_node *node = node_read(call, 2);
    if (!node) return;
    reply_integer(call->reply, (int64_t)cluster_count_failure_reports(this_cluster, node, cluster_now()));
}

/* --- Members and roles --- */

/* IP addresses only, in their shortest form. */
static bool address_read(struct slice text, char address[static NODE_ADDRESS_MAX]) {
    unsigned char bytes[sizeof(struct in6_addr)];
    char copy[NODE_ADDRESS_MAX];
    if (text.len >= sizeof copy || memchr(text.data, 0, text.len)) return false;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.data);
    int family = strchr(copy, ':') ? AF_INET6 : AF_INET;
    return inet_pton(family, copy, bytes) == 1 && inet_ntop(family, bytes, address, NODE_ADDRESS_MAX);
}

static bool port_read(struct call *call, int index, const char *kind, int64_t *port) {
    struct slice text = call->argv[index];
    if (parse_int64(text, port)) return true;
    return reply_error_format(call->reply, "ERR Invalid %s port specified: %.*s", kind, (int)text.len, text.data);
}

static void meet_run(struct call *call) {
    char address[NODE_ADDRESS_MAX];
    int64_t port, bus_port;
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    if (call->argc > 5) {
        cluster_reply_usage(call);
        return;
    }
    if (!port_read(call, 3, "base", &port)) return;
    if (port < 1 || port > UINT16_MAX) {
        reply_error(call->reply, "ERR Port number is out of range");
        return;
    }
    bus_port = port + BUS_PORT_DISTANCE;
    if (call->argc == 5 && !port_read(call, 4, "bus", &bus_port)) return;
    if (bus_port < 1 || bus_port > UINT16_MAX) {
        reply_error(call->reply, "ERR Cluster bus port number is out of range");
        return;
    }
    if (!address_read(call->argv[2], address)) {
        reply_error_format(call->reply, "ERR Invalid node address specified: %.*s:%.*s", (int)call->argv[2].len,
                           call->argv[2].data, (int)call->argv[3].len, call->argv[3].data);
        return;
    }
    reply_done(call, cluster_meet(this_cluster, address, (uint16_t)port, (uint16_t)bus_port,
                                  cluster_requester(call->client), cluster_now()));
}

static void forget_run(struct call *call) {
    struct node_id id;
    if (cluster_is_disabled(call) || saved_reply_continues(call) || !id_read(call, 2, &id)) return;
    reply_done(call, cluster_forget(this_cluster, &id, cluster_requester(call->client), cluster_now()));
}

static void replicate_run(struct call *call) {
    struct node_id id;
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    if (call->argc == 4 && slice_is(call->argv[2], "no") && slice_is(call->argv[3], "one")) {
        char who[1024];
        snprintf(who, sizeof who, "request from '%s'", client_requester_text(call->client));
        reply_done(call, cluster_replicate_no_one(this_cluster, who, cluster_now()));
        return;
    }
    if (call->argc != 3) {
        cluster_reply_usage(call);
        return;
    }
    if (id_read(call, 2, &id)) reply_done(call, cluster_replicate(this_cluster, &id, cluster_now()));
}

/* FAILOVER FORCE REPLICAID <id>: the primary shuts down and names the replica that takes over. */
static bool failover_by_primary(struct call *call) {
    if (call->argc != 5 || !slice_is(call->argv[2], "force") || !slice_is(call->argv[3], "replicaid") ||
        !(call->client->flags & CLIENT_PRIMARY))
        return false;
    const struct node_id *own = &this_cluster->myself->id;
    char who[1024];
    snprintf(who, sizeof who, "primary request from '%s'", client_requester_text(call->client));
    if (!slice_equal(call->argv[4], slice_make(own->text, NODE_ID_LEN)))
        reply_ok(call->reply);
    else
        reply_done(call, cluster_failover(this_cluster, FAILOVER_BY_PRIMARY, who, cluster_now()));
    return true;
}

static void failover_run(struct call *call) {
    enum failover_kind kind = FAILOVER_NORMAL;
    if (cluster_is_disabled(call) || saved_reply_continues(call) || failover_by_primary(call)) return;
    for (int i = 2; i < call->argc; i++) {
        if (slice_is(call->argv[i], "force")) {
            kind = FAILOVER_FORCE;
        } else if (slice_is(call->argv[i], "takeover")) {
            kind = FAILOVER_TAKEOVER;
        } else {
            reply_syntax_error(call->reply);
            return;
        }
    }
    reply_done(call, cluster_failover(this_cluster, kind, cluster_requester(call->client), cluster_now()));
}

static void cluster_reset_run(struct call *call) {
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    if (call->argc > 3) {
        cluster_reply_usage(call);
        return;
    }
    bool hard = call->argc == 3 && slice_is(call->argv[2], "hard");
    if (call->argc == 3 && !hard && !slice_is(call->argv[2], "soft")) {
        reply_syntax_error(call->reply);
        return;
    }
    bool primary = node_is_primary(this_cluster->myself);
    const char *refused = cluster_reset(this_cluster, hard, cluster_requester(call->client), cluster_now());
    if (!refused && primary) effects_leave_shard();
    reply_done(call, refused);
}

/* --- Epochs and the file --- */

static void bumpepoch_run(struct call *call) {
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    bool bumped = cluster_bump_epoch(this_cluster, cluster_now());
    char text[SAVED_REPLY_MAX + 1];
    snprintf(text, sizeof text, "%s %llu", bumped ? "BUMPED" : "STILL",
             (unsigned long long)this_cluster->myself->config_epoch);
    saved_reply(call, text);
}

static void set_config_epoch_run(struct call *call) {
    int64_t epoch;
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    if (!parse_int64(call->argv[2], &epoch))
        reply_not_integer(call->reply);
    else
        reply_done(call, cluster_set_config_epoch(this_cluster, epoch, cluster_now()));
}

static void saveconfig_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    int status = nodes_conf_save_on_request(this_cluster);
    if (status < 0)
        reply_error_format(call->reply, "ERR error saving the cluster node config: %s", strerror(-status));
    else
        reply_ok(call->reply);
}

/* --- The table --- */

static const char *const nondeterministic[] = {"nondeterministic_output", NULL};
static const char *const shards_history[] = {"9.1.0", "Shows the id of a shard and the availability zone of a node.",
                                             NULL};
static const char *const slots_history[] = {"4.0.0", "Shows the ids of nodes.",
                                            "7.0.0", "Shows more about the network of a node.",
                                            "9.1.0", "Shows the availability zone of a node.",
                                            NULL};

#define ROW(name_, run_, arity_, flags_, since_, complexity_, summary_, ...)                                           \
    {                                                                                                                  \
        .name = name_, .run = run_, .arity = arity_, .flags = flags_, .group = GROUP_CLUSTER, .since = since_,         \
        .complexity = complexity_, .summary = summary_, __VA_ARGS__                                                    \
    }
enum {
    BY_ADMIN = CMD_NO_DATA | CMD_ADMIN | CMD_STALE,
    BY_ADMIN_LOADED = BY_ADMIN | CMD_NO_ASYNC_LOADING,
};

static const char *const reports_history[] = {"9.0.0", "Reports about a node that has failed do not count.", NULL};
static const char *const meet_history[] = {"4.0.0", "Accepts the port of the cluster bus.", NULL};
static const char *const replicate_history[] = {"9.0.0", "NO ONE detaches the replica from its primary.", NULL};
static const char *const setslot_history[] = {"8.0.0", "Accepts `TIMEOUT`.", NULL};
static const char *const slot_stats_tips[] = {"nondeterministic_output", "request_policy:all_shards", NULL};

static const struct command_spec cluster_subcommands[] = {
    {HELP_ROW(
         cluster_help_run, "COUNTKEYSINSLOT <slot>", "    Return the number of keys in <slot>.",
         "GETKEYSINSLOT <slot> <count>", "    Return key names stored by current node in a slot.", "INFO",
         "    Return information about the cluster.", "KEYSLOT <key>", "    Return the hash slot for <key>.", "MYID",
         "    Return the node id.", "MYSHARDID", "    Return the node's shard id.", "NODES",
         "    Return cluster configuration seen by node. Output format:",
         "    <id> <ip:port@bus-port[,hostname]> <flags> <primary> <pings> <pongs> <epoch> <link> <slot> ...",
         "REPLICAS <node-id>", "    Return <node-id> replicas.", "SLOTS",
         "    Return information about slots range mappings. Each range is made of:",
         "    start, end, primary and replicas IP addresses, ports and ids", "SLOT-STATS",
         "    Return an array of slot usage statistics for slots assigned to the current node.", "SHARDS",
         "    Return information about slot range mappings and the nodes associated with them.",
         "ADDSLOTS <slot> [<slot> ...]", "    Assign slots to current node.",
         "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
         "    Assign slots which are between <start-slot> and <end-slot> to current node.", "BUMPEPOCH",
         "    Advance the cluster config epoch.", "COUNT-FAILURE-REPORTS <node-id>",
         "    Return number of failure reports for <node-id>.", "DELSLOTS <slot> [<slot> ...]",
         "    Delete slots information from current node.",
         "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
         "    Delete slots information which are between <start-slot> and <end-slot> from current node.",
         "FAILOVER [FORCE|TAKEOVER]", "    Promote current replica node to being a master.", "FORGET <node-id>",
         "    Remove a node from the cluster.", "FLUSHSLOTS", "    Delete current node own slots information.",
         "MEET <ip> <port> [<bus-port>]", "    Connect nodes into a working cluster.", "REPLICATE <node-id>",
         "    Configure current node as replica to <node-id>.", "RESET [HARD|SOFT]",
         "    Reset current node (default: soft).", "SET-CONFIG-EPOCH <epoch>", "    Set config epoch of current node.",
         "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)", "    Set slot state.",
         "SAVECONFIG", "    Force saving cluster configuration on disk.", "LINKS",
         "    Return information about all network links between this node and its peers.",
         "    Output format is an array where each array element is a map containing attributes of a link",
         "MIGRATESLOTS SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id [SLOTSRANGE start-slot "
         "end-slot [start-slot end-slot ...] NODE node-id ...]",
         "    Migrate the specified slot ranges from this node to the specified node.", "CANCELSLOTMIGRATIONS ALL",
         "    Cancel all migrations.", "GETSLOTMIGRATIONS",
         "    Get information about ongoing and recently finished slot imports and exports."),
     .group = GROUP_CLUSTER, .since = "5.0.0"},
    ROW("info", info_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "3.0.0", "O(1)", "Returns the state of the node.",
        .tips = nondeterministic),
    ROW("keyslot", keyslot_run, 3, CMD_NO_DATA | CMD_STALE, "3.0.0", "O(N) where N is the number of bytes of the key",
        "Returns the hash slot of a key.", .syntax = "key:string"),
    ROW("myid", myid_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "3.0.0", "O(1)", "Returns the id of the node.",
        .tips = NULL),
    ROW("nodes", nodes_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "3.0.0", "O(N) where N is the number of nodes",
        "Returns the cluster as the node sees it.", .tips = nondeterministic),
    ROW("shards", shards_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "7.0.0", "O(N) where N is the number of nodes",
        "Returns the slots and nodes of each shard.", .history = shards_history, .tips = nondeterministic),
    ROW("slots", slots_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "3.0.0", "O(N) where N is the number of nodes",
        "Returns the nodes of each range of slots.", .history = slots_history, .tips = nondeterministic),
    ROW("addslots", cluster_addslots_run, -3, BY_ADMIN_LOADED, "3.0.0", "O(N) where N is the number of slots",
        "Assigns slots to the node.", .syntax = "slot:integer..."),
    ROW("addslotsrange", cluster_addslotsrange_run, -4, BY_ADMIN_LOADED, "7.0.0", "O(N) where N is the number of slots",
        "Assigns ranges of slots to the node.", .syntax = "range{start-slot:integer end-slot:integer}..."),
    ROW("bumpepoch", bumpepoch_run, 2, BY_ADMIN_LOADED, "3.0.0", "O(1)",
        "Increments the configuration epoch of the cluster.", .tips = nondeterministic),
    ROW("cancelslotmigrations", migration_cancelslotmigrations_run, 2, BY_ADMIN_LOADED | CMD_ALL_DATABASES, "9.0.0",
        "O(N) where N is the number of migrations", "Cancels the migrations of slots that are in progress.",
        .tips = NULL),
    ROW("count-failure-reports", count_failure_reports_run, 3, BY_ADMIN, "3.0.0",
        "O(N) where N is the number of reports", "Returns how many nodes report a failure of a node.",
        .tips = nondeterministic, .syntax = "node-id:string", .history = reports_history),
    ROW("countkeysinslot", cluster_countkeysinslot_run, 3, CMD_SHOWS_DATA | CMD_STALE, "3.0.0", "O(1)",
        "Returns the number of keys in a slot.", .syntax = "slot:integer"),
    ROW("delslots", cluster_delslots_run, -3, BY_ADMIN_LOADED, "3.0.0", "O(N) where N is the number of slots",
        "Removes slots from the node.", .syntax = "slot:integer..."),
    ROW("delslotsrange", cluster_delslotsrange_run, -4, BY_ADMIN_LOADED, "7.0.0", "O(N) where N is the number of slots",
        "Removes ranges of slots from the node.", .syntax = "range{start-slot:integer end-slot:integer}..."),
    ROW("failover", failover_run, -2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes a replica the primary of its shard.",
        .syntax = "[options(FORCE|TAKEOVER)]"),
    ROW("flushslot", cluster_flushslot_run, -3, CMD_WRITE | CMD_ADMIN | CMD_NO_ASYNC_LOADING | CMD_ALL_DATABASES,
        "9.0.0", "O(N) where N is the number of keys in the slot", "Deletes all keys of a slot.",
        .categories = CAT_KEYSPACE, .syntax = "slot:integer [flush-type(ASYNC|SYNC)]"),
    ROW("flushslots", cluster_flushslots_run, 2, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Removes all slots from the node.",
        .tips = NULL),
    ROW("forget", forget_run, 3, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Removes a node from the list of nodes.",
        .syntax = "node-id:string"),
    ROW("getkeysinslot", cluster_getkeysinslot_run, 4, CMD_SHOWS_DATA | CMD_STALE, "3.0.0",
        "O(N) where N is the number of returned keys", "Returns keys of a slot.", .tips = nondeterministic,
        .syntax = "slot:integer count:integer"),
    ROW("getslotmigrations", migration_getslotmigrations_run, 2, BY_ADMIN_LOADED, "9.0.0",
        "O(N) where N is the number of migrations", "Returns the migrations of slots, past and present.", .tips = NULL),
    ROW("links", links_run, 2, CMD_NO_DATA | CMD_STALE, "7.0.0", "O(N) where N is the number of nodes",
        "Returns the connections of the cluster bus.", .tips = nondeterministic),
    ROW("meet", meet_run, -4, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes another node known to the cluster.",
        .syntax = "ip:string port:integer [cluster-bus-port:integer@4.0.0]", .history = meet_history),
    ROW("migrateslots", migration_migrateslots_run, -4, BY_ADMIN_LOADED | CMD_ALL_DATABASES, "9.0.0",
        "O(N) where N is the number of slots", "Starts migrations of slots to other nodes.",
        .syntax = "migration-group{slotsrange-token=SLOTSRANGE range{start-slot:integer end-slot:integer}... "
                  "node-token=NODE node-id:string}..."),
    ROW("myshardid", myshardid_run, 2, CMD_NO_DATA | CMD_LOADING | CMD_STALE, "7.2.0", "O(1)",
        "Returns the id of the shard of the node.", .tips = nondeterministic),
    ROW("replicas", replicas_run, 3, BY_ADMIN, "5.0.0", "O(N) where N is the number of replicas",
        "Returns the replicas of a primary.", .tips = nondeterministic, .syntax = "node-id:string"),
    ROW("replicate", replicate_run, -3, BY_ADMIN_LOADED, "3.0.0", "O(1)", "Makes the node a replica of a primary.",
        .syntax = "args(node-id:string|no-one{NO ONE}@9.0.0)", .history = replicate_history),
    ROW("reset", cluster_reset_run, -2, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_STALE, "3.0.0",
        "O(N) where N is the number of nodes", "Resets the node: it forgets its cluster.",
        .syntax = "[reset-type(HARD|SOFT)]"),
    ROW("saveconfig", saveconfig_run, 2, BY_ADMIN_LOADED, "3.0.0", "O(1)",
        "Writes the configuration of the cluster to its file.", .tips = NULL),
    ROW("set-config-epoch", set_config_epoch_run, 3, BY_ADMIN_LOADED, "3.0.0", "O(1)",
        "Sets the configuration epoch of a new node.", .syntax = "config-epoch:integer"),
    ROW("setslot", cluster_setslot_run, -4, BY_ADMIN_LOADED, "3.0.0", "O(1)",
        "Changes the state of a slot, or its node.",
        .syntax = "slot:integer subcommand(IMPORTING importing:string\"node-id\"|MIGRATING "
                  "migrating:string\"node-id\"|NODE node:string\"node-id\"|STABLE) [TIMEOUT timeout:integer@8.0.0]",
        .history = setslot_history),
    ROW("slaves", replicas_run, 3, BY_ADMIN, "3.0.0", "O(N) where N is the number of replicas",
        "Returns the replicas of a primary.", .tips = nondeterministic, .deprecated_since = "5.0.0",
        .replaced_by = "`CLUSTER REPLICAS`", .syntax = "node-id:string"),
    ROW("slot-stats", cluster_slot_stats_run, -4, CMD_SHOWS_DATA | CMD_LOADING | CMD_STALE, "8.0.0",
        "O(N) where N is the number of slots", "Returns statistics of slots.", .tips = slot_stats_tips,
        .syntax = "filter(SLOTSRANGE slotsrange{start-slot:integer end-slot:integer}|ORDERBY "
                  "orderby{metric:string [LIMIT limit:integer] [order(ASC|DESC)]})"),
    ROW("syncslots", migration_syncslots_run, -3, BY_ADMIN_LOADED | CMD_SYSCMD, "9.0.0", "O(1)",
        "Serves nodes that migrate slots.", .tips = NULL),
    {.name = NULL},
};

static const char *const scan_tips[] = {"nondeterministic_output", "request_policy:special", "response_policy:special",
                                        NULL};

const struct command_spec cluster_commands[] = {
    {COMMAND("cluster", NULL, -2, 0, .group = GROUP_CLUSTER, "3.0.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about the cluster.", .subcommands = cluster_subcommands},
    {COMMAND("clusterscan", cluster_scan_run, -2, CMD_READONLY | CMD_TOUCHES_ARBITRARY_KEYS, .group = GROUP_CLUSTER,
             "9.1.0"),
     .categories = CAT_KEYSPACE, .complexity = "O(N) where N is the number of keys that are returned",
     .summary = "Iterates over the names of the keys of a cluster.",
     .syntax =
         "cursor:string [MATCH match-pattern:pattern] [COUNT count:integer] [TYPE type:string] [SLOT slot:integer]",
     .tips = scan_tips, .keys = {{.flags = KEY_NOT_KEY, .begin = BEGIN_INDEX, .index = 1, .find = FIND_RANGE, .b = 1}}},
    {.name = NULL},
};
