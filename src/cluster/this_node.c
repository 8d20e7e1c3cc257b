/* this_node.c: see this_node.h.
 *
 * In a turn within a script (server/nested_turn.h) and while a data set is loaded, messages are received and answered,
 * but neither the timer nor the end of the turn does anything: no election, no ping, no new opinion. Otherwise a load
 * of a minute would look like a minute of silence of all peers. */
#include "cluster/this_node.h"
#include "cluster/commands.h"
#include "cluster/copied_owners.h"
#include "cluster/debug.h"
#include "cluster/effects.h"
#include "cluster/info.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "cluster/options.h"
#include "cluster/publish.h"
#include "cluster/replica_slots.h"
#include "cluster/redirect.h"
#include "cluster/saved_reply.h"
#include "cluster/setslot.h"
#include "cluster/slot_stats.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "repl/primary.h"
#include "repl/repl_feed.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/config_engine.h"
#include "server/feature.h"
#include "server/role.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICKS_PER_SECOND = 1000 / CLUSTER_TICK_MS,
    REPLICAID_VERSION = 0x090000 /* the first one that understands CLUSTER FAILOVER FORCE REPLICAID */
};

struct cluster *this_cluster;
static struct cluster_settings settings;
static struct event_timer timer;
static struct list cluster_listeners = LIST_INIT(cluster_listeners);
static unsigned events; /* of the loop, in which the machine is being called */

/* Within a script the cached time does not advance, but peers still expect answers in time. */
int64_t cluster_now(void) {
    return clock_cache.frozen ? clock_monotonic_ms() : clock_mono_ms();
}

const char *cluster_requester(const struct client *client) {
    static char text[1024];
    snprintf(text, sizeof text, "user request from '%s'", client_requester_text(client));
    return text;
}

void cluster_event_begin(void) {
    events++;
}
void cluster_event_end(void) {
    events--;
}
bool cluster_in_event(void) {
    return events != 0;
}

/* --- Listeners --- */

void cluster_listen(struct cluster_listener *listener) {
    list_add_listener(&cluster_listeners, &listener->link);
}
void cluster_slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    listeners_call(&cluster_listeners, struct cluster_listener, slot_moved, slot, from, to);
}
void cluster_state_changed(bool ok) {
    listeners_call(&cluster_listeners, struct cluster_listener, state_changed, ok);
}
void cluster_role_changed(void) {
    listeners_call(&cluster_listeners, struct cluster_listener, role_changed);
}

/* --- The timer and the turns --- */

void cluster_reconfigure(void) {
    if (!this_cluster) return;
    links_configure();
    if (cluster_options_settings(&settings)) cluster_configure(this_cluster, &settings, cluster_now());
}

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

static void before_wait(void) {
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

static void configured(void) {
    if (!server.cluster_enabled) return;
    if (role->is_replica) config_fatal("replicaof directive not allowed in cluster mode");
    server.mode = "cluster";
}

static void start(void) {
    int port;
    if (!server.cluster_enabled) return;
    cluster_options_settings(&settings);
    this_cluster = nodes_conf_start(&settings, &node_effects, NULL, cluster_now());
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

static bool failover_on_stop; /* a replica is to take over */

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
    list_each(&replicas, link) {
        const struct replica *replica = container_of(link, struct replica, link);
        if (replica->version < REPLICAID_VERSION) {
            log_notice("Unable to perform auto failover on shutdown since there are legacy replicas.");
            return NULL;
        }
        if (replica->state == REPLICA_ONLINE && replica->node_id[0] && replica->acked == role->position.offset)
            found = replica;
    }
    if (!found) log_notice("Unable to find a replica to perform the auto failover on shutdown.");
    return found;
}

/* The replicas get what is written here before the server exits (repl_primary_part). */
static void hand_over(void) {
    const struct replica *replica = successor();
    if (!replica) return;
    log_notice("Perform auto failover to replica %s on shutdown.", replica->node_id);
    struct slice argv[] = {SLICE("CLUSTER"), SLICE("FAILOVER"), SLICE("FORCE"), SLICE("REPLICAID"),
                           slice_of(replica->node_id)};
    repl_feed_request(5, argv);
}

static void stop(void) {
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
                                                .start = start,
                                                .before_wait = before_wait,
                                                .prepare_shutdown = prepare_shutdown,
                                                .stop = stop};

const struct feature cluster_feature = {
    .name = "cluster",
    .options = OPTIONS(cluster_option_table),
    .commands = COMMANDS(cluster_commands),
    .debug = DEBUG_SUBCOMMANDS(cluster_debug_subcommands),
    .sections = SECTIONS(cluster_sections),
    .parts = PARTS(&cluster_part, &saved_reply_part, &redirect_part, &publish_part, &setslot_part)};
