/* debug.c: DEBUG subcommands for tests of the cluster bus. */
#include "cluster/options.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/settings.h"
#include "cluster/this_node.h"
#include "lib/text/number.h"

/* DROP-CLUSTER-PACKET-FILTER: any number is accepted, as Valkey does; no message has most of these types. */
static void drop_run(struct call *call) {
    int64_t type;
    if (!parse_int64(call->argv[2], &type) || type < INT32_MIN || type > INT32_MAX) {
        reply_not_integer(call->reply);
        return;
    }
    cluster_bus.debug.drop = (int)type;
    reply_ok(call->reply);
}

/* Text that is no number counts as 0, as Valkey does. */
static void read_flag(struct call *call, bool *flag) {
    int64_t value;
    *flag = parse_int64(call->argv[2], &value) && value != 0;
    reply_ok(call->reply);
}
static void close_on_drop_run(struct call *call) {
    read_flag(call, &cluster_bus.debug.close_on_drop);
}
static void random_ping_run(struct call *call) {
    read_flag(call, &cluster_debug.no_random_pings);
}
static void reconnection_run(struct call *call) {
    read_flag(call, &cluster_debug.no_reconnection);
}

/* CLUSTERLINK KILL to|from|all id */
static void kill_link(struct cluster_link *link) {
    if (!link) return;
    struct bus_link *bus_link = link->host;
    cluster_bus.events->ended(bus_link, BUS_END_DROPPED);
    bus_link_close(bus_link);
}
static void link_run(struct call *call) {
    struct slice direction = call->argv[3], id_text = call->argv[4];
    struct node_id id;
    if (!slice_is(call->argv[2], "kill")) {
        debug_reply_unknown(call);
        return;
    }
    if (!this_cluster) {
        reply_error(call->reply, "ERR Debug option only available for cluster mode enabled setup!");
        return;
    }
    struct cluster_node *node = NULL;
    if (id_text.len == NODE_ID_LEN) {
        memcpy(id.text, id_text.data, NODE_ID_LEN);
        node = nodes_find(&this_cluster->nodes, &id);
    }
    if (!node) {
        reply_error_format(call->reply, "ERR Unknown node %.*s", (int)(id_text.len > 128 ? 128 : id_text.len),
                           id_text.data);
        return;
    }
    if (node == this_cluster->myself) {
        reply_error(call->reply, "ERR Cannot free cluster link(s) to myself");
        return;
    }
    bool to = slice_is(direction, "to"), from = slice_is(direction, "from"), all = slice_is(direction, "all");
    if (!to && !from && !all) {
        reply_error_format(call->reply, "ERR Unknown direction %.*s", (int)(direction.len > 128 ? 128 : direction.len),
                           direction.data);
        return;
    }
    if (to || all) kill_link(node->link);
    if (from || all) kill_link(node->inbound);
    reply_ok(call->reply);
}

static const char *const drop_help[] = {
    "DROP-CLUSTER-PACKET-FILTER <packet-type>",
    "    Drop all packets that match the filtered type. Set to -1 allow all packets or -2 to drop all packets.", NULL};
static const char *const close_on_drop_help[] = {
    "CLOSE-CLUSTER-LINK-ON-PACKET-DROP <0|1>",
    "    This is valid only when DROP-CLUSTER-PACKET-FILTER is set to a valid packet type.",
    "    When set to 1, the cluster link is closed after dropping a packet based on the filter.", NULL};
static const char *const random_ping_help[] = {"DISABLE-CLUSTER-RANDOM-PING <0|1>",
                                               "    Disable sending cluster ping to a random node every second.", NULL};
static const char *const reconnection_help[] = {"DISABLE-CLUSTER-RECONNECTION <0|1>",
                                                "    Disable cluster reconnection of cluster nodes.", NULL};
static const char *const migration_help[] = {
    "SLOTMIGRATION PREVENT-PAUSE <0|1>",
    "    When set to 1, slot migrations will be prevented from pausing on the source node.",
    "SLOTMIGRATION PREVENT-FAILOVER <0|1>",
    "    When set to 1, slot migrations will be prevented from performing the slot-level failover on the target node.",
    NULL};
static const char *const link_help[] = {
    "CLUSTERLINK KILL <to|from|all> <node-id>",
    "    Kills the link based on the direction to/from (both) with the provided node.", NULL};

const struct debug_subcommand cluster_debug_subcommands[] = {
    {.name = "drop-cluster-packet-filter", .min_arguments = 1, .max_arguments = 1, .run = drop_run, .help = drop_help},
    {.name = "close-cluster-link-on-packet-drop",
     .min_arguments = 1,
     .max_arguments = 1,
     .run = close_on_drop_run,
     .help = close_on_drop_help},
    {.name = "disable-cluster-random-ping",
     .min_arguments = 1,
     .max_arguments = 1,
     .run = random_ping_run,
     .help = random_ping_help},
    {.name = "disable-cluster-reconnection",
     .min_arguments = 1,
     .max_arguments = 1,
     .run = reconnection_run,
     .help = reconnection_help},
    {.name = "slotmigration",
     .min_arguments = 2,
     .max_arguments = 2,
     .run = migration_debug_run,
     .help = migration_help},
    {.name = "clusterlink", .min_arguments = 3, .max_arguments = 3, .run = link_run, .help = link_help},
    {.name = NULL},
};
