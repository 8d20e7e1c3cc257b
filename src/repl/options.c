/* options.c: the options of replication in valkey.conf, but for those of its modules (link_transport.c, wait.c,
 * quorum.c). */
#include "lib/text/number.h"
#include "repl/settings.h"
#include "repl/stream.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>

struct repl_settings repl_settings;
struct replica_settings replica_settings;
struct pull_settings pull_settings;

/* --- The primary --- */

static const char *apply_backlog_size(void) {
    enum { LEAST = 16 * 1024 };
    if (repl_settings.backlog_size < LEAST) repl_settings.backlog_size = LEAST;
    repl_stream_trim();
    return NULL;
}

const struct config_option repl_options[] = {
    {OPTION("repl-diskless-sync", CONFIG_BOOL, &repl_settings.diskless_sync, "yes")},
    {OPTION("repl-diskless-sync-delay", CONFIG_INT, &repl_settings.diskless_delay, "5"), .min = 0, .max = INT32_MAX},
    {OPTION("repl-diskless-sync-max-replicas", CONFIG_INT, &repl_settings.diskless_max_replicas, "0"), .min = 0,
     .max = INT32_MAX},
    {OPTION("dual-channel-replication-enabled", CONFIG_BOOL, &repl_settings.dual_channel, "no")},
    {OPTION("repl-ping-replica-period", CONFIG_INT, &repl_settings.ping_period, "10"),
     .alias = "repl-ping-slave-period", .min = 1, .max = INT32_MAX},
    {OPTION("repl-timeout", CONFIG_INT, &repl_settings.timeout, "60"), .min = 1, .max = INT32_MAX},
    {OPTION("repl-disable-tcp-nodelay", CONFIG_BOOL, &repl_settings.disable_nodelay, "no")},
    {OPTION("repl-backlog-size", CONFIG_MEMORY, &repl_settings.backlog_size, "10mb"), .min = 1, .max = INT64_MAX,
     .apply = apply_backlog_size},
    {OPTION("repl-backlog-ttl", CONFIG_INT64, &repl_settings.backlog_ttl, "3600"), .min = 0, .max = INT64_MAX},
    {.name = NULL},
};

/* --- The replica --- */

static const char *set_replicaof(const struct config_option *option, int count, const struct slice *words) {
    int64_t port;
    if (count == 0) return NULL;
    if (count != 2) return "wrong number of arguments";
    if (slice_is(words[0], "no") && slice_is(words[1], "one")) {
        role_lead();
        return NULL;
    }
    if (!parse_int64(words[1], &port) || port < 0 || port > 65535) return "Invalid primary port";
    role_follow(words[0], (int)port);
    return NULL;
}

static void get_replicaof(const struct config_option *option, struct output *out) {
    char port[12];
    if (!role->is_replica) return;
    output_write(out, slice_of(role->host));
    snprintf(port, sizeof port, " %d", role->port);
    output_write(out, slice_of(port));
}

/* A primary writes no line: genuine servers refuse an empty `replicaof`. A node of a cluster refuses any. */
static void rewrite_replicaof(const struct config_option *option, struct output *out) {
    if (!role->is_replica || server.cluster_enabled) return;
    output_write(out, SLICE("replicaof "));
    get_replicaof(option, out);
    output_write(out, SLICE("\n"));
}

static const struct config_name diskless_loads[] = {{"disabled", DISKLESS_LOAD_DISABLED},
                                                    {"on-empty-db", DISKLESS_LOAD_ON_EMPTY},
                                                    {"swapdb", DISKLESS_LOAD_SWAP},
                                                    {"flush-before-load", DISKLESS_LOAD_FLUSH},
                                                    {NULL, 0}};
static const struct config_name error_behaviors[] = {
    {"ignore", ERRORS_IGNORED}, {"panic", ERRORS_PANIC}, {"panic-on-replicas", ERRORS_PANIC_ON_REPLICAS}, {NULL, 0}};

const struct config_option replica_options[] = {
    {OPTION("replicaof", CONFIG_CUSTOM, NULL, ""), .alias = "slaveof", .flags = CONFIG_IMMUTABLE | CONFIG_MULTI_ARG,
     .set = set_replicaof, .get = get_replicaof, .rewrite = rewrite_replicaof},
    {OPTION("primaryauth", CONFIG_BYTES, &replica_settings.primary_auth, ""), .alias = "masterauth",
     .flags = CONFIG_SENSITIVE},
    {OPTION("primaryuser", CONFIG_STRING, &replica_settings.primary_user, ""), .alias = "masteruser",
     .flags = CONFIG_SENSITIVE},
    {OPTION("replica-lazy-flush", CONFIG_BOOL, &replica_settings.lazy_flush, "yes"), .alias = "slave-lazy-flush"},
    {OPTION("replica-ignore-disk-write-errors", CONFIG_BOOL, &replica_settings.ignore_disk_errors, "no")},
    {OPTION("replica-priority", CONFIG_INT, &replica_settings.priority, "100"), .alias = "slave-priority", .min = 0,
     .max = INT32_MAX},
    {OPTION("replica-announced", CONFIG_BOOL, &replica_settings.announced, "yes")},
    {OPTION("replica-announce-ip", CONFIG_STRING, &replica_settings.announce_ip, ""), .alias = "slave-announce-ip"},
    {OPTION("replica-announce-port", CONFIG_INT, &replica_settings.announce_port, "0"), .alias = "slave-announce-port",
     .min = 0, .max = 65535},
    {OPTION("repl-diskless-load", CONFIG_ENUM, &replica_settings.diskless_load, "disabled"),
     .flags = CONFIG_DENY_LOADING, .names = diskless_loads},
    {OPTION("rdb-del-sync-files", CONFIG_BOOL, &replica_settings.delete_sync_files, "no")},
    {OPTION("propagation-error-behavior", CONFIG_ENUM, &replica_settings.error_behavior, "ignore"),
     .names = error_behaviors},
    {.name = NULL},
};

/* --- Full synchronization by RDMA READ --- */

const struct config_option pull_options[] = {
    {OPTION("rdma-replication-snapshot-memory", CONFIG_MEMORY, &pull_settings.snapshot_memory, "67108864"),
     .min = 4 * 1024 * 1024, .max = 16LL * 1024 * 1024 * 1024},
    {OPTION("rdma-replication-max-wait", CONFIG_INT, &pull_settings.max_wait_ms, "5000"), .min = 0, .max = INT32_MAX},
    {.name = NULL},
};
