/* options.c: see options.h. */
#include "cluster/options.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/protocol/nodes_file.h"
#include "cluster/slot_stats.h"
#include "cluster/this_node.h"
#include "lib/system/log.h"
#include "repl/settings.h"
#include "server/clients/listeners.h"
#include "server/config/settings.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

enum { BUS_PORT_DISTANCE = 10000 };
/* The machine computes with multiples of these; the options accept more, as Valkey's do. */
static const int64_t TIME_MAX_MS = 4000000000; /* 46 days; times the largest validity factor it fits into 64 bits */

static struct cluster_settings settings; /* what the machine uses */
static struct {
    int64_t node_timeout, ping_interval, blacklist_ttl;
    int manual_failover_timeout, gossip_percent, validity_factor, migration_barrier;
    bool no_failover, replica_migration, full_coverage, fast_failover;
    int port;
    char *address, *hostname, *nodename, *client_ipv4, *client_ipv6;
    int announced_port, announced_tls_port, announced_bus_port, announced_rdma_port;
    int client_port, client_tls_port, client_rdma_port;
} options;

/* --- What a check finds --- */

static const char *check_not_empty(const struct config_option *option, struct slice text) {
    return text.len ? NULL : config_reason("%s can't be empty", option->name);
}
static const char *check_hostname(const struct config_option *option, struct slice text) {
    if (text.len > NODE_NAME_MAX) return "Hostnames must be less than 256 characters";
    for (size_t i = 0; i < text.len; i++)
        if (!isalnum((unsigned char)text.data[i]) && text.data[i] != '-' && text.data[i] != '.')
            return "Hostnames may only contain alphanumeric characters, hyphens or dots";
    return NULL;
}
static const char *check_nodename(const struct config_option *option, struct slice text) {
    return node_text_valid(text) ? NULL : "Announced human node name contained invalid character";
}
static const char *check_address(const struct config_option *option, struct slice text) {
    if (!node_text_valid(text)) return config_reason("%s contains invalid character", option->name);
    return text.len < NODE_ADDRESS_MAX ? NULL : config_reason("%s is too long", option->name);
}
static const char *check_ipv4(const struct config_option *option, struct slice text) {
    struct in_addr address;
    return !text.len || inet_pton(AF_INET, text.data, &address) == 1 ? NULL : "Invalid IPv4 address";
}
static const char *check_ipv6(const struct config_option *option, struct slice text) {
    struct in6_addr address;
    return !text.len || inet_pton(AF_INET6, text.data, &address) == 1 ? NULL : "Invalid IPv6 address";
}

static const char *apply_slot_stats(void) {
    slot_stats_configure();
    return NULL;
}
/* --- What the machine uses --- */

static uint16_t port_or(int announced, int own) {
    return (uint16_t)(announced ? announced : own);
}
static int64_t limited(int64_t value, int64_t max) {
    return value > max ? max : value < 0 ? 0 : value;
}

bool cluster_options_bus_port(int *port) {
    int client_port = tls_for_cluster() ? listeners_tls_port() : (int)config_number("port");
    *port = options.port ? options.port : client_port + BUS_PORT_DISTANCE;
    if (*port <= UINT16_MAX) return true;
    log_warning("Valkey port number too high. Cluster communication port is 10,000 port numbers higher than your "
                "Valkey port. Your Valkey port number must be 55535 or less.");
    return false;
}

static bool failover_forbidden;
void cluster_options_forbid_failover(bool forbidden) {
    failover_forbidden = forbidden;
}

/* True: they have changed. */
static bool settings_update(void) {
    struct cluster_settings now;
    memset(&now, 0, sizeof now); /* with the padding, for the comparison */
    now.node_timeout_ms = limited(options.node_timeout, TIME_MAX_MS);
    now.ping_interval_ms = limited(options.ping_interval, TIME_MAX_MS);
    now.manual_failover_timeout_ms = options.manual_failover_timeout;
    now.blacklist_ttl_s = limited(options.blacklist_ttl, TIME_MAX_MS / 1000);
    now.repl_ping_period_s = repl_settings.ping_period;
    now.gossip_percent = (unsigned)options.gossip_percent;
    now.replica_validity_factor = (unsigned)options.validity_factor;
    now.migration_barrier = (unsigned)options.migration_barrier;
    now.replica_no_failover = options.no_failover || failover_forbidden;
    now.allow_replica_migration = options.replica_migration;
    now.require_full_coverage = options.full_coverage;
    now.fast_failover = options.fast_failover;
    now.tls = links_use_tls();
    now.address = options.address;
    now.port = port_or(options.announced_port, (int)config_number("port"));
    now.tls_port = port_or(options.announced_tls_port, listeners_tls_port());
    now.bus_port = port_or(options.announced_bus_port, links_port());
    now.rdma_port = port_or(options.announced_rdma_port, listeners_rdma_port());
    now.hostname = options.hostname;
    now.nodename = options.nodename;
    now.client_ipv4 = options.client_ipv4;
    now.client_ipv6 = options.client_ipv6;
    now.availability_zone = server_settings.availability_zone;
    now.client_port = (uint16_t)options.client_port;
    now.client_tls_port = (uint16_t)options.client_tls_port;
    now.client_rdma_port = (uint16_t)options.client_rdma_port;
    now.no_random_pings = cluster_debug.no_random_pings;
    now.no_reconnection = cluster_debug.no_reconnection;
    if (memcmp(&now, &settings, sizeof now) == 0) return false;
    settings = now;
    return true;
}

const struct cluster_settings *cluster_options_settings(void) {
    settings_update();
    return &settings;
}

void cluster_reconfigure(void) {
    if (!this_cluster) return;
    links_configure();
    if (settings_update()) cluster_configure(this_cluster, &settings, cluster_now());
}

static const char *cluster_options_apply(void) {
    cluster_options.version++;
    cluster_reconfigure();
    return NULL;
}

static const struct config_name save_behaviors[] = {{"sync", SAVE_SYNC}, {"best-effort", SAVE_BEST_EFFORT}, {NULL, 0}};
static const struct config_name endpoint_types[] = {
    {"ip", ENDPOINT_IP}, {"hostname", ENDPOINT_HOSTNAME}, {"unknown-endpoint", ENDPOINT_UNKNOWN}, {NULL, 0}};

#define PORT_OPTION(name_, value_)                                                                                     \
    { OPTION(name_, CONFIG_INT, &(value_), "0"), .max = UINT16_MAX, .apply = cluster_options_apply }
#define BOOL_OPTION(name_, value_, initial_)                                                                           \
    { OPTION(name_, CONFIG_BOOL, &(value_), initial_), .apply = cluster_options_apply }
#define TEXT_OPTION(name_, value_, check_)                                                                             \
    { OPTION(name_, CONFIG_STRING, &(value_), ""), .check = check_, .apply = cluster_options_apply }

const struct config_option cluster_option_table[] = {
    {OPTION("cluster-enabled", CONFIG_BOOL, &server.cluster_enabled, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("cluster-config-file", CONFIG_STRING, &cluster_options.config_file, "nodes.conf"),
     .flags = CONFIG_IMMUTABLE, .check = check_not_empty},
    {OPTION("cluster-config-save-behavior", CONFIG_ENUM, &cluster_options.save_behavior, "sync"),
     .names = save_behaviors},
    {OPTION("cluster-node-timeout", CONFIG_INT64, &options.node_timeout, "15000"), .max = INT64_MAX,
     .apply = cluster_options_apply},
    {OPTION("cluster-ping-interval", CONFIG_INT64, &options.ping_interval, "0"), .flags = CONFIG_HIDDEN,
     .max = INT64_MAX, .apply = cluster_options_apply},
    {OPTION("cluster-message-gossip-perc", CONFIG_INT, &options.gossip_percent, "10"), .flags = CONFIG_HIDDEN, .min = 1,
     .max = 100, .apply = cluster_options_apply},
    {OPTION("cluster-port", CONFIG_INT, &options.port, "0"), .flags = CONFIG_IMMUTABLE, .max = UINT16_MAX},
    {OPTION("cluster-databases", CONFIG_INT, &cluster_options.databases, "1"), .flags = CONFIG_IMMUTABLE, .min = 1,
     .max = INT32_MAX},
    TEXT_OPTION("cluster-announce-ip", options.address, check_address),
    PORT_OPTION("cluster-announce-port", options.announced_port),
    PORT_OPTION("cluster-announce-tls-port", options.announced_tls_port),
    PORT_OPTION("cluster-announce-bus-port", options.announced_bus_port),
    PORT_OPTION("cluster-announce-rdma-port", options.announced_rdma_port),
    TEXT_OPTION("cluster-announce-hostname", options.hostname, check_hostname),
    TEXT_OPTION("cluster-announce-human-nodename", options.nodename, check_nodename),
    TEXT_OPTION("cluster-announce-client-ipv4", options.client_ipv4, check_ipv4),
    TEXT_OPTION("cluster-announce-client-ipv6", options.client_ipv6, check_ipv6),
    PORT_OPTION("cluster-announce-client-port", options.client_port),
    PORT_OPTION("cluster-announce-client-tls-port", options.client_tls_port),
    PORT_OPTION("cluster-announce-client-rdma-port", options.client_rdma_port),
    {OPTION("cluster-preferred-endpoint-type", CONFIG_ENUM, &cluster_options.preferred_endpoint, "ip"),
     .names = endpoint_types, .apply = cluster_options_apply},
    {OPTION("cluster-replica-validity-factor", CONFIG_INT, &options.validity_factor, "10"),
     .alias = "cluster-slave-validity-factor", .max = INT32_MAX, .apply = cluster_options_apply},
    {OPTION("cluster-replica-no-failover", CONFIG_BOOL, &options.no_failover, "no"),
     .alias = "cluster-slave-no-failover", .apply = cluster_options_apply},
    BOOL_OPTION("cluster-fast-failover", options.fast_failover, "no"),
    BOOL_OPTION("cluster-allow-replica-migration", options.replica_migration, "yes"),
    {OPTION("cluster-migration-barrier", CONFIG_INT, &options.migration_barrier, "1"), .max = INT32_MAX,
     .apply = cluster_options_apply},
    BOOL_OPTION("cluster-require-full-coverage", options.full_coverage, "yes"),
    {OPTION("cluster-allow-reads-when-down", CONFIG_BOOL, &cluster_options.reads_when_down, "no")},
    {OPTION("cluster-allow-pubsubshard-when-down", CONFIG_BOOL, &cluster_options.shard_messages_when_down, "yes")},
    {OPTION("cluster-link-sendbuf-limit", CONFIG_MEMORY, &cluster_options.link_limit, "0"), .flags = CONFIG_UNSIGNED,
     .apply = cluster_options_apply},
    {OPTION("cluster-manual-failover-timeout", CONFIG_INT, &options.manual_failover_timeout, "5000"), .min = 1,
     .max = INT32_MAX, .apply = cluster_options_apply},
    {OPTION("cluster-blacklist-ttl", CONFIG_INT64, &options.blacklist_ttl, "60"), .apply = cluster_options_apply},
    {OPTION("cluster-slot-stats-enabled", CONFIG_BOOL, &cluster_options.slot_stats, "no"), .apply = apply_slot_stats},
    {OPTION("cluster-slot-migration-log-max-len", CONFIG_INT64, &migration_settings.log_max_len, "1000"),
     .max = INT64_MAX},
    {OPTION("slot-migration-max-failover-repl-bytes", CONFIG_MEMORY, &migration_settings.failover_bytes, "0"),
     .min = -1, .max = INT64_MAX},
    {.name = NULL},
};
