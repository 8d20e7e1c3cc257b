/* this_node.c: see this_node.h.
 *
 * In a turn within a script (server/nested_turn.h) and while a data set is loaded, messages are received and answered,
 * but neither the timer nor the end of the turn does anything: no election, no ping, no new opinion. Otherwise a load
 * of a minute would look like a minute of silence of all peers. */
#include "cluster/this_node.h"
#include "cluster/commands.h"
#include "cluster/debug.h"
#include "cluster/effects.h"
#include "cluster/info.h"
#include "cluster/links.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "cluster/options.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/config_engine.h"
#include "server/feature.h"
#include "server/role.h"
#include <stdio.h>
#include <stdlib.h>

enum { TICKS_PER_SECOND = 1000 / CLUSTER_TICK_MS };

struct cluster *this_cluster;
static struct cluster_settings settings;
static struct event_timer timer;
static struct list cluster_listeners = LIST_INIT(cluster_listeners);
static unsigned events; /* of the loop, in which the machine is being called */

/* The cached time stands still within a script, but peers do not. */
int64_t cluster_now(void) {
    return clock_cache.frozen ? clock_wall_us() / 1000 : clock_ms();
}

const char *cluster_requester(const struct client *client) {
    static char text[1024];
    snprintf(text, sizeof text, "user request from '%s'", client_log_text((struct client *)(uintptr_t)client));
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

/* Listeners */

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

/* The timer and the turns */

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
        cluster_event_end();
    }
    return CLUSTER_TICK_MS * 1000;
}

static void before_wait(void) {
    static bool data_checked;
    if (!this_cluster || is_busy()) return;
    effects_settle();
    if (!data_checked) {
        data_checked = true;
        cluster_check_data(this_cluster, cluster_now());
    }
    cluster_flush(this_cluster, cluster_now());
}

/* Life */

static size_t connections(void) {
    return (this_cluster->nodes.count - 1) * 2;
}
static size_t link_memory(void) {
    return bus_memory(&cluster_bus) + links_held();
}
static void write_nodes(struct output *out) {
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        struct node_line line;
        cluster_describe_node(this_cluster, this_cluster->nodes.list[i], &line);
        node_line_print(out, &line, NODE_LINE_CLIENT);
        output_write(out, SLICE("\n"));
    }
}
static const struct cluster_hooks hooks = {.connections = connections,
                                           .link_memory = link_memory,
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
}

static void stop(void) {
    if (!this_cluster) return;
    log_notice("Saving the cluster configuration file before exiting.");
    nodes_conf_save_now(this_cluster);
    links_stop();
    nodes_conf_stop();
}

static const struct server_part cluster_part = {
    .name = "cluster", .configured = configured, .start = start, .before_wait = before_wait, .stop = stop};

const struct feature cluster_feature = {.name = "cluster",
                                        .options = OPTIONS(cluster_option_table),
                                        .commands = COMMANDS(cluster_commands),
                                        .debug = DEBUG_SUBCOMMANDS(cluster_debug_subcommands),
                                        .sections = SECTIONS(cluster_sections),
                                        .parts = PARTS(&cluster_part)};
