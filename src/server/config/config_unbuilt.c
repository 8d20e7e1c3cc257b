/* config_unbuilt.c: options of features that are in no room yet.
 *
 * A configuration file written for Valkey must load. So every option that Valkey knows is here or in its feature's
 * table, with its type, default and limits: what is here is accepted, kept, shown and rewritten, and the log says once
 * that it has no effect when it is set to something else than its default. A feature that arrives takes its options
 * into its own table and out of this one; the engine aborts where both have one.
 *
 * Lines that would loosen security when nobody heeds them (users, modules, renamed commands that are not there) are
 * refused instead. */
#include "lib/memory.h"
#include "lib/number.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include <ctype.h>
#include <stdio.h>

/* --- save points: pairs of seconds and changes --- */

enum { SAVE_POINTS_MAX = 256 };
static struct { int64_t seconds, changes; } save_points[SAVE_POINTS_MAX];
static int save_points_count;
static bool save_line_seen; /* by the reading of the file, in which each line adds to those before and the first
                               replaces the default */

static const char *set_save(const struct config_option *option, int count, const struct slice *words) {
    bool first_line = !save_line_seen;
    int64_t numbers[2 * SAVE_POINTS_MAX];
    int start = config_is_loading() && !first_line ? save_points_count : 0;
    if (count % 2 || count / 2 + start > SAVE_POINTS_MAX) return "Invalid save parameters";
    for (int i = 0; i < count; i++)
        if (!parse_int64(words[i], &numbers[i]) || numbers[i] < (i % 2 ? 0 : 1) || numbers[i] > INT32_MAX)
            return "Invalid save parameters";
    if (!count) start = 0;
    save_line_seen = config_is_loading();
    save_points_count = start + count / 2;
    for (int i = 0; i < count; i += 2) {
        save_points[start + i / 2].seconds = numbers[i];
        save_points[start + i / 2].changes = numbers[i + 1];
    }
    return NULL;
}
static void get_save(const struct config_option *option, struct output *out) {
    for (int i = 0; i < save_points_count; i++) {
        char text[64];
        int len = snprintf(text, sizeof text, "%s%lld %lld", i ? " " : "", (long long)save_points[i].seconds,
                           (long long)save_points[i].changes);
        output_write(out, (struct slice){text, (size_t)len});
    }
}

/* --- texts that must look like something --- */

static const char *check_not_empty(const struct config_option *option, struct slice text) {
    return text.len ? NULL : config_reason("%s can't be empty", option->name);
}
static const char *check_file_name(const struct config_option *option, struct slice text) {
    if (!text.len && option->flags & CONFIG_IMMUTABLE) return check_not_empty(option, text);
    return memchr(text.data, '/', text.len) ? config_reason("%s can't be a path, just a filename", option->name) : NULL;
}
static const char *check_directory_name(const struct config_option *option, struct slice text) {
    if (!text.len) return check_not_empty(option, text);
    return memchr(text.data, '/', text.len) ? config_reason("%s can't be a path, just a dirname", option->name) : NULL;
}
static const char *check_host_name(const struct config_option *option, struct slice text) {
    if (text.len > 255) return "Hostnames must be less than 256 characters";
    for (size_t i = 0; i < text.len; i++)
        if (!isalnum((unsigned char)text.data[i]) && text.data[i] != '-' && text.data[i] != '.')
            return "Hostnames may only contain alphanumeric characters, hyphens or dots";
    return NULL;
}
static const char *check_node_name(const struct config_option *option, struct slice text) {
    for (size_t i = 0; i < text.len; i++)
        if (strchr("!#$%&()*+;<>?@[]^{|}~", text.data[i])) /* what would break CLUSTER NODES */
            return "Announced human node name contained invalid character";
    return NULL;
}
static const char *check_primary(const struct config_option *option, struct slice text) {
    if (!text.len) return NULL;
    const char *space = memchr(text.data, ' ', text.len);
    if (!space || memchr(space + 1, ' ', text.len - (size_t)(space + 1 - text.data)))
        return "wrong number of arguments";
    struct slice port = {space + 1, text.len - (size_t)(space + 1 - text.data)};
    int64_t number;
    if (slice_is(port, "one")) return NULL; /* no one */
    return parse_int64(port, &number) && number >= 0 && number <= 65535 ? NULL : "Invalid primary port";
}

static const char no_users[] =
    "This build has no users with rights of their own; starting without them would let everybody in";
static const char *check_no_users(const struct config_option *option, struct slice text) {
    return text.len ? no_users : NULL;
}

/* --- lines that are no options --- */

static const char *rename_command(int count, const struct slice *words) {
    return command_rename(words[0], words[1]);
}
/* CONFIG REWRITE of other servers always writes the default user. Where it may do everything, as it may here, the line
 * changes nothing. */
static const char *refuse_user(int count, const struct slice *words) {
    static const char *const harmless[] = {
        "on",          "nopass", "sanitize-payload", "skip-sanitize-payload", "~*", "allkeys", "&*",
        "allchannels", "+@all",  "allcommands"};
    bool all = slice_is(words[0], "default");
    for (int i = 1; i < count && all; i++) {
        all = false;
        for (size_t j = 0; j < sizeof harmless / sizeof *harmless; j++) all |= slice_is(words[i], harmless[j]);
    }
    return all ? NULL : no_users;
}
static const char *refuse_module(int count, const struct slice *words) {
    return "This build cannot load modules";
}
static const char *ignore(int count, const struct slice *words) {
    return NULL;
} /* had an effect in servers of long ago */

const struct config_directive config_directives_basic[] = {{"rename-command", 2, 2, rename_command},
                                                           {"user", 1, 0, refuse_user},
                                                           {"loadmodule", 1, 0, refuse_module},
                                                           {"list-max-ziplist-entries", 1, 1, ignore},
                                                           {"list-max-ziplist-value", 1, 1, ignore},
                                                           {"lua-replicate-commands", 1, 1, ignore},
                                                           {NULL, 0, 0, NULL}};

static const struct config_name rdb_version_checks[] = {{"strict", 0}, {"relaxed", 1}, {NULL, 0}};
static const struct config_name sanitize[] = {{"no", 0}, {"yes", 1}, {"clients", 2}, {NULL, 0}};
static const struct config_name fsync_policies[] = {{"everysec", 0}, {"always", 1}, {"no", 2}, {NULL, 0}};
static const struct config_name diskless_loads[] = {
    {"disabled", 0}, {"on-empty-db", 1}, {"swapdb", 2}, {"flush-before-load", 3}, {NULL, 0}};
static const struct config_name propagation_errors[] = {
    {"ignore", 0}, {"panic", 1}, {"panic-on-replicas", 2}, {NULL, 0}};
static const struct config_name config_saves[] = {{"sync", 0}, {"best-effort", 1}, {NULL, 0}};
static const struct config_name endpoint_types[] = {{"ip", 0}, {"hostname", 1}, {"unknown-endpoint", 2}, {NULL, 0}};
static const struct config_name pubsub_defaults[] = {{"allchannels", 0}, {"resetchannels", 1}, {NULL, 0}};
static const struct config_name tls_auths[] = {{"no", 0}, {"yes", 1}, {"optional", 2}, {NULL, 0}};
static const struct config_name tls_users[] = {{"off", 0}, {"CN", 1}, {NULL, 0}};
const struct config_option config_options_unbuilt[] = {
    /* Snapshots. */
    {.name = "save",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_NOT_BUILT | CONFIG_MULTI_ARG,
     .initial = "3600 1 300 100 60 10000",
     .set = set_save,
     .get = get_save},
    {.name = "dbfilename",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_PROTECTED,
     .initial = "dump.rdb",
     .check = check_file_name},
    {.name = "rdbchecksum", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE, .initial = "yes"},
    {.name = "rdb-save-incremental-fsync", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "rdb-del-sync-files", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "rdb-version-check",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "strict",
     .names = rdb_version_checks},
    {.name = "stop-writes-on-bgsave-error", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "sanitize-dump-payload",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "no",
     .names = sanitize},
    {.name = "rdb-key-save-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX},
    {.name = "key-load-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX},
    {.name = "loading-process-events-interval-bytes",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "2097152",
     .min = 1024,
     .max = INT32_MAX},
    /* Append-only file. */
    {.name = "appendonly", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT | CONFIG_DENY_LOADING, .initial = "no"},
    {.name = "appendfilename",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "appendonly.aof",
     .check = check_file_name},
    {.name = "appenddirname",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "appendonlydir",
     .check = check_directory_name},
    {.name = "appendfsync",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "everysec",
     .names = fsync_policies},
    {.name = "no-appendfsync-on-rewrite", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "auto-aof-rewrite-percentage",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "100",
     .min = 0,
     .max = INT32_MAX},
    {.name = "auto-aof-rewrite-min-size",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "64mb",
     .min = 0,
     .max = INT64_MAX},
    {.name = "aof-load-truncated", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "aof-use-rdb-preamble", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "aof-timestamp-enabled", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "aof-rewrite-incremental-fsync", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "aof-disable-auto-gc", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN, .initial = "no"},
    /* Replication. */
    {.name = "replicaof",
     .alias = "slaveof",
     .type = CONFIG_STRINGS,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE | CONFIG_MULTI_ARG,
     .initial = "",
     .check = check_primary},
    {.name = "primaryauth",
     .alias = "masterauth",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_SENSITIVE,
     .initial = ""},
    {.name = "primaryuser", .alias = "masteruser", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "replica-serve-stale-data",
     .alias = "slave-serve-stale-data",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT,
     .initial = "yes"},
    {.name = "replica-read-only",
     .alias = "slave-read-only",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT,
     .initial = "yes"},
    {.name = "replica-lazy-flush",
     .alias = "slave-lazy-flush",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT,
     .initial = "yes"},
    {.name = "replica-ignore-maxmemory",
     .alias = "slave-ignore-maxmemory",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT,
     .initial = "yes"},
    {.name = "replica-ignore-disk-write-errors", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "replica-priority",
     .alias = "slave-priority",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "100",
     .min = 0,
     .max = INT32_MAX},
    {.name = "replica-announced", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "replica-announce-ip",
     .alias = "slave-announce-ip",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = ""},
    {.name = "replica-announce-port",
     .alias = "slave-announce-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "repl-diskless-sync", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "repl-diskless-sync-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "5",
     .min = 0,
     .max = INT32_MAX},
    {.name = "repl-diskless-sync-max-replicas",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX},
    {.name = "repl-diskless-load",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT | CONFIG_DENY_LOADING,
     .initial = "disabled",
     .names = diskless_loads},
    {.name = "dual-channel-replication-enabled", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "repl-ping-replica-period",
     .alias = "repl-ping-slave-period",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10",
     .min = 1,
     .max = INT32_MAX},
    {.name = "repl-timeout",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "60",
     .min = 1,
     .max = INT32_MAX},
    {.name = "repl-disable-tcp-nodelay", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "repl-mptcp", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "repl-backlog-size",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10mb",
     .min = 1,
     .max = INT64_MAX},
    {.name = "repl-backlog-ttl",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "3600",
     .min = 0,
     .max = INT64_MAX},
    {.name = "min-replicas-to-write",
     .alias = "min-slaves-to-write",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX},
    {.name = "min-replicas-max-lag",
     .alias = "min-slaves-max-lag",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10",
     .min = 0,
     .max = INT32_MAX},
    {.name = "propagation-error-behavior",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "ignore",
     .names = propagation_errors},
    /* Cluster. */
    {.name = "cluster-enabled", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE, .initial = "no"},
    {.name = "cluster-config-file",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "nodes.conf",
     .check = check_not_empty},
    {.name = "cluster-config-save-behavior",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "sync",
     .names = config_saves},
    {.name = "cluster-node-timeout",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "15000",
     .min = 0,
     .max = INT64_MAX},
    {.name = "cluster-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "cluster-databases",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "1",
     .min = 1,
     .max = INT32_MAX},
    {.name = "cluster-announce-ip", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "cluster-announce-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "cluster-announce-tls-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "cluster-announce-bus-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "cluster-announce-hostname",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = "",
     .check = check_host_name},
    {.name = "cluster-announce-human-nodename",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = "",
     .check = check_node_name},
    {.name = "cluster-announce-client-ipv4", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "cluster-announce-client-ipv6", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "cluster-preferred-endpoint-type",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "ip",
     .names = endpoint_types},
    {.name = "cluster-replica-validity-factor",
     .alias = "cluster-slave-validity-factor",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10",
     .min = 0,
     .max = INT32_MAX},
    {.name = "cluster-replica-no-failover",
     .alias = "cluster-slave-no-failover",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT,
     .initial = "no"},
    {.name = "cluster-allow-replica-migration", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "cluster-migration-barrier",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1",
     .min = 0,
     .max = INT32_MAX},
    {.name = "cluster-require-full-coverage", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "cluster-allow-reads-when-down", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "cluster-allow-pubsubshard-when-down", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "cluster-link-sendbuf-limit",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = INT64_MAX},
    {.name = "cluster-manual-failover-timeout",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "5000",
     .min = 1,
     .max = INT32_MAX},
    {.name = "cluster-message-gossip-perc",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10",
     .min = 1,
     .max = 100},
    {.name = "cluster-ping-interval",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "0",
     .min = 0,
     .max = INT64_MAX},
    {.name = "cluster-blacklist-ttl",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "60",
     .min = 0,
     .max = INT32_MAX},
    {.name = "cluster-slot-stats-enabled", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "cluster-slot-migration-log-max-len",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1000",
     .min = 0,
     .max = INT64_MAX},
    {.name = "slot-migration-max-failover-repl-bytes",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = INT64_MAX},
    /* Memory: clients, eviction, defragmentation. */
    {.name = "activedefrag", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "active-defrag-ignore-bytes",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "100mb",
     .min = 1,
     .max = INT64_MAX},
    {.name = "active-defrag-threshold-lower",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "10",
     .min = 0,
     .max = 1000},
    {.name = "active-defrag-threshold-upper",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "100",
     .min = 0,
     .max = 1000},
    {.name = "active-defrag-cycle-min",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1",
     .min = 1,
     .max = 99},
    {.name = "active-defrag-cycle-max",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "25",
     .min = 1,
     .max = 99},
    {.name = "active-defrag-cycle-us",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "500",
     .min = 0,
     .max = 100000},
    {.name = "active-defrag-max-scan-fields",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1000",
     .min = 1,
     .max = INT64_MAX},
    {.name = "jemalloc-bg-thread", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    /* Watching what goes on. */
    {.name = "tracking-table-max-keys",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1000000",
     .min = 0,
     .max = INT64_MAX},
    {.name = "watchdog-period",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX},
    /* Access control, scripts, protocol. */
    {.name = "aclfile",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "",
     .check = check_no_users},
    {.name = "acllog-max-len",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "128",
     .min = 0,
     .max = INT64_MAX},
    {.name = "acl-pubsub-default",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "resetchannels",
     .names = pubsub_defaults},
    {.name = "busy-reply-threshold",
     .alias = "lua-time-limit",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT,
     .initial = "5000",
     .min = 0,
     .max = INT64_MAX},
    {.name = "lua-enable-insecure-api",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "no"},
    {.name = "extended-redis-compatibility", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    /* Threads, sockets, start-up. */
    {.name = "events-per-io-thread",
     .type = CONFIG_INT,
     .flags = CONFIG_DEPRECATED,
     .initial = "2",
     .min = 0,
     .max = INT32_MAX},
    {.name = "io-threads-do-reads",
     .type = CONFIG_BOOL,
     .flags = CONFIG_DEPRECATED | CONFIG_IMMUTABLE,
     .initial = "yes"},
    {.name = "dynamic-hz", .type = CONFIG_BOOL, .flags = CONFIG_DEPRECATED, .initial = "yes"},
    {.name = "prefetch-batch-max-size",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "16",
     .min = 0,
     .max = 128},
    {.name = "min-io-threads-avoid-copy-reply",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "7",
     .min = 0,
     .max = INT32_MAX},
    {.name = "min-string-size-avoid-copy-reply",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "16kb",
     .min = 0,
     .max = INT64_MAX},
    {.name = "min-string-size-avoid-copy-reply-threaded",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_NOT_BUILT,
     .initial = "64kb",
     .min = 0,
     .max = INT64_MAX},
    {.name = "bind-source-addr", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "mptcp", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE, .initial = "no"},
    {.name = "ignore-warnings", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "hash-seed",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE | CONFIG_SENSITIVE,
     .initial = ""},
    /* TLS. */
    {.name = "tls-port", .type = CONFIG_INT, .flags = CONFIG_NOT_BUILT, .initial = "0", .min = 0, .max = 65535},
    {.name = "max-new-tls-connections-per-cycle",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "1",
     .min = 1,
     .max = 1000},
    {.name = "tls-cert-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-key-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-key-file-pass", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT | CONFIG_SENSITIVE, .initial = ""},
    {.name = "tls-client-cert-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-client-key-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-client-key-file-pass",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT | CONFIG_SENSITIVE,
     .initial = ""},
    {.name = "tls-dh-params-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-ca-cert-file", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-ca-cert-dir", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-auth-clients", .type = CONFIG_ENUM, .flags = CONFIG_NOT_BUILT, .initial = "yes", .names = tls_auths},
    {.name = "tls-auth-clients-user",
     .type = CONFIG_ENUM,
     .flags = CONFIG_NOT_BUILT,
     .initial = "off",
     .names = tls_users},
    {.name = "tls-replication", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "tls-cluster", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "tls-protocols", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-ciphers", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-ciphersuites", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = "tls-prefer-server-ciphers", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "no"},
    {.name = "tls-session-caching", .type = CONFIG_BOOL, .flags = CONFIG_NOT_BUILT, .initial = "yes"},
    {.name = "tls-session-cache-size",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "20480",
     .min = 0,
     .max = INT32_MAX},
    {.name = "tls-session-cache-timeout",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "300",
     .min = 0,
     .max = INT32_MAX},
    {.name = "tls-auto-reload-interval",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX},
    {.name = NULL}};
