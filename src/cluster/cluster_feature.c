/* cluster_feature.c: cluster mode as a feature of the server: start, the timer, the end of each turn, shutdown.
 *
 * In a turn within a script (server/nested_turn.h) and while a data set is loaded, messages are received and answered,
 * but the timer and the end of the turn do nothing: no election, no ping, no change of a node's state. Otherwise a load
 * of a minute would look like a minute of silence of all peers. */
#include "cluster/this_node.h"
#include "cluster/copied_owners.h"
#include "cluster/effects.h"
#include "cluster/endpoint.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/commands.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "cluster/options.h"
#include "cluster/publish.h"
#include "cluster/replica_slots.h"
#include "cluster/redirect.h"
#include "cluster/saved_reply.h"
#include "cluster/setslot.h"
#include "cluster/slot_stats.h"
#include "cluster/views.h"
#include "lib/system/log.h"
#include "repl/primary/replicas.h"
#include "repl/feed.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/config_engine.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/role.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICKS_PER_SECOND = 1000 / CLUSTER_TICK_MS,
    REPLICAID_VERSION = 0x090000 /* the first one that understands CLUSTER FAILOVER FORCE REPLICAID */
};

static struct event_timer timer;

/* --- The timer and the turns --- */

static bool is_busy(void) {
    return dispatch_running() || server_is_loading();
}

static uint64_t tick(struct event_timer *fired) {
    static unsigned ticks;
    cluster_reconfigure();
    if (ticks++ % TICKS_PER_SECOND == 0) links_tick();
    if (!is_busy()) {
        cluster_event_begin();
        cluster_tick(this_cluster, cluster_now());
        migration_tick();
        effects_tick();
        cluster_event_end();
    }
    return CLUSTER_TICK_MS * 1000;
}

static void cluster_before_wait(void) {
    static bool data_checked;
    if (!this_cluster || is_busy()) return;
    effects_settle();
    migration_before_wait();
    if (!data_checked) {
        data_checked = true;
        cluster_check_data(this_cluster, cluster_now());
    }
    cluster_flush(this_cluster, cluster_now());
}

/* --- Life --- */

static size_t connections(void) {
    return (this_cluster->nodes.count - 1) * 2;
}
static size_t link_memory(void) {
    return bus_memory(&cluster_bus) + links_held();
}
static struct slice node_id(void) {
    return slice_make(this_cluster->myself->id.text, NODE_ID_LEN);
}
static bool knows(struct slice text) {
    struct node_id id;
    if (text.len != NODE_ID_LEN) return false;
    memcpy(id.text, text.data, NODE_ID_LEN);
    return nodes_find(&this_cluster->nodes, &id) != NULL;
}
static int primary_rdma_port(void) {
    const struct cluster_node *primary = this_cluster->myself->primary;
    return primary ? primary->rdma_port : 0;
}
static size_t nodes(void) {
    return this_cluster->nodes.count;
}
static void each_node(void (*visit)(void *context, struct slice id), void *context) {
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        if (!(node->flags & (NODE_NOADDR | NODE_HANDSHAKE))) visit(context, slice_make(node->id.text, NODE_ID_LEN));
    }
}
static bool node_facts(struct slice text, const struct client *client, struct cluster_node_facts *facts) {
    struct node_id id;
    if (text.len != NODE_ID_LEN) return false;
    memcpy(id.text, text.data, NODE_ID_LEN);
    const struct cluster_node *node = nodes_find(&this_cluster->nodes, &id);
    if (!node) return false;
    struct endpoint_view view = client ? endpoint_view_of(client) : (struct endpoint_view){0};
    *facts = (struct cluster_node_facts){.ip = endpoint_ip(node, view),
                                         .port = endpoint_port(node, view),
                                         .myself = node->flags & NODE_MYSELF,
                                         .is_primary = node_is_primary(node),
                                         .pfail = node_maybe_failed(node),
                                         .fail = node_failed(node),
                                         .no_failover = node->flags & NODE_NOFAILOVER};
    if (node_is_replica(node) && node->primary) facts->primary = slice_make(node->primary->id.text, NODE_ID_LEN);
    return true;
}
static void limit(bool no_failover, bool no_redirection) {
    cluster_options_forbid_failover(no_failover);
    cluster_reconfigure();
    redirect_set(!no_redirection);
}
static void write_nodes(struct output *out) {
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        struct node_line line;
        cluster_describe_node(this_cluster, this_cluster->nodes.list[i], &line);
        node_line_print(out, &line, NODE_LINE_CLIENT);
        output_write(out, SLICE("\n"));
    }
}
static void reset_stats(void) {
    slot_stats_reset();
    links_reset_stats();
}
static size_t write_aux(struct rdb_aux *fields) {
    size_t count = setslot_write_aux(fields);
    count += copied_owners_write_aux(fields + count);
    return count + migration_write_aux(fields + count);
}
static void copy_begins(void) {
    setslot_copy_begins();
    copied_owners_begin();
}
static void read_aux(struct slice name, struct slice value, bool is_copy) {
    if (is_copy) { /* nodes.conf has them */
        setslot_read_aux(name, value);
        copied_owners_read_aux(name, value);
    }
    migration_read_aux(name, value);
}
static const struct cluster_hooks hooks = {.connections = connections,
                                           .link_memory = link_memory,
                                           .node_id = node_id,
                                           .knows = knows,
                                           .primary_rdma_port = primary_rdma_port,
                                           .publish = publish_send,
                                           .send_module = publish_module,
                                           .nodes = nodes,
                                           .each_node = each_node,
                                           .node_facts = node_facts,
                                           .limit = limit,
                                           .reset_stats = reset_stats,
                                           .write_aux = write_aux,
                                           .copy_begins = copy_begins,
                                           .read_aux = read_aux,
                                           .imports = migration_imports_list,
                                           .read_import = migration_read_import,
                                           .write_commands = migration_write_commands,
                                           .ports_changed = cluster_reconfigure,
                                           .load_begins = migration_load_begins,
                                           .loaded = migration_loaded,
                                           .migration_memory = migration_memory,
                                           .migration_traffic = migration_traffic,
                                           .write_info = cluster_info_write,
                                           .write_nodes = write_nodes};

/* nodes.conf is on disk up to this ticket: messages about the change leave before the replies. */
static void saved(uint64_t ticket) {
    links_saved(ticket);
    saved_reply_release(ticket);
}

static void configured(void) {
    if (!server.cluster_enabled) return;
    if (role->is_replica) config_fatal("replicaof directive not allowed in cluster mode");
    server.mode = "cluster";
}

static void cluster_start(void) {
    int port;
    if (!server.cluster_enabled) return;
    this_cluster = nodes_conf_start(cluster_options_settings(), &node_effects, saved, cluster_now());
    cluster_hooks = &hooks;
    effects_start();
    if (!cluster_options_bus_port(&port) || !links_start(port)) exit(1);
    cluster_reconfigure(); /* with the port of the bus */
    if (nodes_conf_save_now(this_cluster) == 0) log_debug("The cluster config file was written");
    event_timer_set(server.loop, &timer, CLUSTER_TICK_MS * 1000, tick);
    redirect_start();
    publish_start();
    replica_slots_start();
    slot_stats_start();
    migration_start();
}

/* --- Shutdown --- */

static bool failover_on_stop; /* a replica shall take over */

static bool prepare_shutdown(int flags) {
    bool force = flags & SHUTDOWN_FORCE;
    if (!this_cluster) return true;
    failover_on_stop = flags & SHUTDOWN_FAILOVER;
    if (!(flags & SHUTDOWN_SAFE) || !node_votes(this_cluster->myself)) return true;
    log_warning("This is a voting primary. Shutting down may cause the cluster to go down. %s",
                force ? "Exit anyway." : "Can't exit.");
    return force;
}

/* A replica that has the whole stream, and takes over when the stream says so; NULL: there is none. */
static const struct replica *successor(void) {
    const struct replica *found = NULL;
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->announced.version < REPLICAID_VERSION) {
            log_notice("Unable to perform auto failover on shutdown since there are legacy replicas.");
            return NULL;
        }
        if (replica->state == REPLICA_ONLINE && replica->announced.node_id[0] &&
            replica->acked == role->position.offset)
            found = replica;
    }
    if (!found) log_notice("Unable to find a replica to perform the auto failover on shutdown.");
    return found;
}

/* The replicas get what is written here before the server exits (primary_part of repl/). */
static void hand_over(void) {
    const struct replica *replica = successor();
    if (!replica) return;
    log_notice("Perform auto failover to replica %s on shutdown.", replica->announced.node_id);
    struct slice argv[] = {SLICE("CLUSTER"), SLICE("FAILOVER"), SLICE("FORCE"), SLICE("REPLICAID"),
                           slice_of(replica->announced.node_id)};
    repl_feed_request(5, argv);
}

static void cluster_stop(void) {
    if (!this_cluster) return;
    if (failover_on_stop && node_is_primary(this_cluster->myself)) hand_over();
    migration_stop();
    log_notice("Saving the cluster configuration file before exiting.");
    nodes_conf_save_now(this_cluster);
    links_stop();
    nodes_conf_stop();
}

static const struct server_part cluster_part = {.name = "cluster",
                                                .configured = configured,
                                                .start = cluster_start,
                                                .before_wait = cluster_before_wait,
                                                .prepare_shutdown = prepare_shutdown,
                                                .stop = cluster_stop};

const struct feature cluster_feature = {
    .name = "cluster",
    .options = OPTIONS(cluster_option_table),
    .commands = COMMANDS(cluster_commands),
    .debug = DEBUG_SUBCOMMANDS(cluster_debug_subcommands),
    .sections = SECTIONS(cluster_sections),
    .parts = PARTS(&cluster_part, &saved_reply_part, &redirect_part, &publish_part, &setslot_part)};
