/* config_unbuilt.c: options of features that are not in this build.
 *
 * A configuration file written for Valkey must load. Every option of Valkey is therefore here or in its feature's
 * table, with its type, default and limits. Options here are accepted, kept, shown and rewritten; the log says once
 * that such an option has no effect when its value differs from the default. A change that adds a feature moves its
 * options into the feature's own table; the engine aborts on duplicates.
 *
 * Values that would risk data or safety without their feature (modules, cluster mode) are refused instead. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* --- validation of texts --- */

static const char *check_not_empty(const struct config_option *option, struct slice text) {
    return text.len ? NULL : config_reason("%s can't be empty", option->name);
}
static const char *check_host_name(const struct config_option *option, struct slice text) {
    if (text.len > 255) return "Hostnames must be less than 256 characters";
    for (size_t i = 0; i < text.len; i++)
        if (!isalnum((unsigned char)text.data[i]) && text.data[i] != '-' && text.data[i] != '.')
            return "Hostnames may only contain alphanumeric characters, hyphens or dots";
    return NULL;
}
/* Characters that would break a line of CLUSTER NODES are refused. */
static bool fits_node_line(struct slice text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c <= ' ' || c == 127 || strchr("!\"#$%&'()*+,;<=>?@[\\]^{|}~", c)) return false;
    }
    return true;
}
static const char *check_node_name(const struct config_option *option, struct slice text) {
    return fits_node_line(text) ? NULL : "Announced human node name contained invalid character";
}
static const char *check_node_address(const struct config_option *option, struct slice text) {
    if (!fits_node_line(text)) return config_reason("%s contains invalid character", option->name);
    return text.len < INET6_ADDRSTRLEN ? NULL : config_reason("%s is too long", option->name);
}
static const char *check_ipv4(const struct config_option *option, struct slice text) {
    struct in_addr address;
    return !text.len || inet_pton(AF_INET, text.data, &address) == 1 ? NULL : "Invalid IPv4 address";
}
static const char *check_ipv6(const struct config_option *option, struct slice text) {
    struct in6_addr address;
    return !text.len || inet_pton(AF_INET6, text.data, &address) == 1 ? NULL : "Invalid IPv6 address";
}
static const char *check_no_cluster(const struct config_option *option, struct slice text) {
    return slice_is(text, "no")
               ? NULL
               : "This build has no cluster mode; the server would serve keys of slots it does not own";
}
/* --- lines that are not options --- */

static const char *rename_command(int count, const struct slice *words) {
    return command_rename(words[0], words[1]);
}
/* Valkey can have transports as modules; here they are part of the server. Their lines are accepted, with the arguments
 * of the RDMA module: "loadmodule /path/valkey-rdma.so bind=192.168.1.5 port=6379" sets rdma-bind and rdma-port. */
static const char *set_rdma_argument(struct slice argument) {
    const char *equals = memchr(argument.data, '=', argument.len);
    char name[64];
    size_t name_len = equals ? (size_t)(equals - argument.data) : 0;
    struct slice value = {0};
    if (equals) value = (struct slice){equals + 1, argument.len - name_len - 1};
    if (!name_len || name_len >= sizeof name - sizeof "rdma-") return "Arguments of valkey-rdma.so are NAME=VALUE";
    snprintf(name, sizeof name, "rdma-%.*s", (int)name_len, argument.data);
    if (!config_find(slice_of(name))) return config_reason("There is no option %s", name);
    return config_assign(name, 1, &value);
}
static const char *load_module(int count, const struct slice *words) {
    struct slice file = words[0];
    const char *slash = memrchr(file.data, '/', file.len);
    if (slash) file = (struct slice){slash + 1, file.len - (size_t)(slash + 1 - file.data)};
    if (slice_is(file, "valkey-tls.so") && count == 1) return NULL;
    if (!slice_is(file, "valkey-rdma.so")) return "This build cannot load modules";
    for (int i = 1; i < count; i++) {
        const char *reason = set_rdma_argument(words[i]);
        if (reason) return reason;
    }
    return NULL;
}
/* A rewritten file has the options that the arguments set, and so no loadmodule lines: an old argument would set an
 * option that has its default again. */
static void rewrite_modules(struct output *out) {}
static const char *ignore(int count, const struct slice *words) {
    return NULL;
} /* had an effect in older servers */

const struct config_directive config_directives_basic[] = {
    {.name = "rename-command", .min_words = 2, .max_words = 2, .handle = rename_command},
    {.name = "loadmodule", .min_words = 1, .handle = load_module, .rewrite = rewrite_modules},
    {.name = "list-max-ziplist-entries", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "list-max-ziplist-value", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "lua-replicate-commands", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "io-threads-do-reads", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "events-per-io-thread", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "dynamic-hz", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = NULL}};

static const struct config_name config_saves[] = {{"sync", 0}, {"best-effort", 1}, {NULL, 0}};
static const struct config_name endpoint_types[] = {{"ip", 0}, {"hostname", 1}, {"unknown-endpoint", 2}, {NULL, 0}};
const struct config_option config_options_unbuilt[] = {
    /* Cluster. */
    {.name = "cluster-enabled",
     .type = CONFIG_BOOL,
     .flags = CONFIG_NOT_BUILT | CONFIG_IMMUTABLE,
     .initial = "no",
     .check = check_no_cluster},
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
    {.name = "cluster-announce-ip",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = "",
     .check = check_node_address},
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
    {.name = "cluster-announce-client-ipv4",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = "",
     .check = check_ipv4},
    {.name = "cluster-announce-client-ipv6",
     .type = CONFIG_STRING,
     .flags = CONFIG_NOT_BUILT,
     .initial = "",
     .check = check_ipv6},
    {.name = "cluster-announce-client-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "cluster-announce-client-tls-port",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "0",
     .min = 0,
     .max = 65535},
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
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .initial = "10",
     .min = 1,
     .max = 100},
    {.name = "cluster-ping-interval",
     .type = CONFIG_INT64,
     .flags = CONFIG_NOT_BUILT | CONFIG_HIDDEN,
     .initial = "0",
     .min = 0,
     .max = INT64_MAX},
    {.name = "cluster-blacklist-ttl", .type = CONFIG_INT64, .flags = CONFIG_NOT_BUILT, .initial = "60"},
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
     .min = -1,
     .max = INT64_MAX},
    /* Threads, sockets, start-up. */
    {.name = "prefetch-batch-max-size",
     .type = CONFIG_INT,
     .flags = CONFIG_NOT_BUILT,
     .initial = "16",
     .min = 0,
     .max = 128},
    {.name = "min-io-threads-avoid-copy-reply",
     .type = CONFIG_INT,
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .initial = "7",
     .min = 0,
     .max = INT32_MAX},
    {.name = "min-string-size-avoid-copy-reply-threaded",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .initial = "64kb",
     .min = 0,
     .max = INT64_MAX},
    {.name = "ignore-warnings", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = NULL}};
