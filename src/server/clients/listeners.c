/* listeners.c: see listeners.h.
 *
 * There is one group of listeners for each transport. To change a group's addresses the server closes the old listeners
 * and opens the new ones; if that fails it opens the old addresses again. Rejected: opening the new ones first, because
 * they may overlap ("*" and one address of it).
 *
 * An address with a leading '-' is optional: the server starts even if the address or its family is not available on
 * this machine. "*" means all IPv4 addresses, "::*" all IPv6 addresses. */
#include "server/clients/listeners.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/connection.h"
#include "net/socket.h"
#include "server/clients/client.h"
#include "server/clients/io_threads.h"
#include "server/cluster_hooks.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <errno.h>
#include "server/config/rdma_options.h"
#include "server/config/tls_options.h"
#include <stdio.h>

enum { BIND_MAX = 16 };

static struct config_strings bind_addresses, rdma_addresses;
static bool mptcp;
static int port, tls_port, rdma_port, backlog, unix_mode, accept_batch, tls_accept_batch;
static int64_t mark;
static char *unix_path, *unix_group, *source_address;

enum { RDMA_TLS_NO, RDMA_TLS_YES, RDMA_TLS_OPTIONAL };
static const struct config_name rdma_tls_names[] = {
    {"no", RDMA_TLS_NO}, {"yes", RDMA_TLS_YES}, {"optional", RDMA_TLS_OPTIONAL}, {NULL, 0}};
static int rdma_tls;

struct listener_group {
    const struct transport *transport;
    bool allows_clear;                      /* listen_options */
    const struct config_strings *addresses; /* NULL: unix_path */
    const int *port;
    struct listener *listeners[BIND_MAX];
    int count;
    /* The current addresses, and how they are served, to return to. */
    struct config_strings now;
    int now_port;
    const struct transport *now_transport;
    bool now_allows_clear;
};
static struct listener_group tcp_group = {.addresses = &bind_addresses, .port = &port};
static struct listener_group tls_group = {.addresses = &bind_addresses, .port = &tls_port};
static struct listener_group rdma_group = {.addresses = &rdma_addresses, .port = &rdma_port};
static struct listener_group unix_group_ = {0};
static struct listener_group *const groups[] = {&tcp_group, &unix_group_, &tls_group, &rdma_group};
enum { GROUPS = sizeof groups / sizeof *groups };
static bool started;
void (*listeners_changed)(void);

static void group_close(struct listener_group *group) {
    for (int i = 0; i < group->count; i++) listener_close(group->listeners[i]);
    group->count = 0;
}

static bool error_means_absent(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EPROTONOSUPPORT || error == ESOCKTNOSUPPORT ||
           error == EPFNOSUPPORT || error == ENODEV || error == ENOPROTOOPT;
}

static bool has_capacity(struct listener *listener) {
    size_t used = clients_count() + socket_stats.handshakes + cluster_connections();
    bool available = (int64_t)used < client_settings.maxclients;
    if (!available && (listener->transport == tls_group.transport || listener->transport == transport_find("rdma-tls")))
        client_stats.rejected++; /* closed without an error reply */
    return available;
}

/* Opens one address. Returns false if a required address cannot be opened. */
static bool group_open_one(struct listener_group *group, const char *host, int at_port) {
    bool optional = host[0] == '-';
    struct listen_options options = {.host = host + optional,
                                     .port = at_port,
                                     .backlog = backlog,
                                     .mark = (uint32_t)mark,
                                     .mptcp = mptcp,
                                     .may_wait = optional,
                                     .allows_clear = group->allows_clear,
                                     .accept_batch = group == &tls_group ? tls_accept_batch : accept_batch,
                                     .accepted = client_accept,
                                     .has_capacity = has_capacity,
                                     .owner = group};
    io_threads_place(&options);
    if (!group->addresses) {
        options.unix_mode = unix_mode;
        options.unix_group = unix_group[0] ? unix_group : NULL;
    }
    char error[256] = "";
    struct listener *listener = conn_listen(group->transport, server.loop, &options, error, sizeof error);
    if (!listener) {
        int reason = errno;
        if (optional && error_means_absent(reason)) return true;
        if (!group->addresses)
            log_warning("Failed opening Unix socket: bind: %s (%s)", strerror(reason), options.host);
        else if (group == &tcp_group || group == &tls_group)
            log_warning("Warning: Could not create server %s listening socket %s:%d: bind: %s",
                        group == &tcp_group ? "TCP" : "TLS", options.host, at_port, strerror(reason));
        else
            log_warning("Warning: %s",
                        error[0] ? error : strerror(reason)); /* the text names transport, address and device */
        return false;
    }
    group->listeners[group->count++] = listener;
    return true;
}

static bool group_open(struct listener_group *group, const struct config_strings *addresses, int at_port) {
    for (int i = 0; i < addresses->count; i++) {
        if (group_open_one(group, addresses->items[i], at_port)) continue;
        group_close(group);
        return false;
    }
    return group->count > 0 || addresses->count == 0;
}

static void group_remember(struct listener_group *group) {
    for (int i = 0; i < group->now.count; i++) mem_free(group->now.items[i]);
    mem_free(group->now.items);
    group->now.count = group->addresses->count;
    group->now.items = mem_alloc(((size_t)group->now.count + 1) * sizeof *group->now.items);
    for (int i = 0; i < group->now.count; i++) group->now.items[i] = mem_strdup(group->addresses->items[i]);
    group->now_port = *group->port;
    group->now_transport = group->transport;
    group->now_allows_clear = group->allows_clear;
}

static bool group_wanted(const struct listener_group *group) {
    if (!group->addresses) return unix_path[0] != 0;
    return *group->port != 0 && group->addresses->count > 0;
}

static const char *group_reopen(struct listener_group *group, const char *failure) {
    if (!started) return NULL;
    group_close(group);
    if (group_wanted(group) && !group_open(group, group->addresses, *group->port)) {
        /* A listener that refused clear text must not come back as one that does not. The group may be new. */
        if (group->now_transport) {
            group->transport = group->now_transport;
            group->allows_clear = group->now_allows_clear;
        }
        if (group->now_port && !group_open(group, &group->now, group->now_port))
            log_warning("Could not listen again on the previous %s addresses", transport_name(group->transport));
        return failure;
    }
    group_remember(group);
    if (listeners_changed) listeners_changed();
    return NULL;
}

/* One of the two options alone does nothing. */
static void rdma_warn(void) {
    if (rdma_port && !rdma_addresses.count)
        log_warning(
            "WARNING: rdma-port %d has no effect without an address, RDMA is not listening: set rdma-bind to the "
            "address of an RDMA device.",
            rdma_port);
    if (!rdma_port && rdma_addresses.count)
        log_warning(
            "WARNING: rdma-bind has no effect without a port, RDMA is not listening: set rdma-port, for example "
            "to 6379.");
}

static const char *apply_bind(void) {
    static const char failure[] = "Failed to bind to specified addresses.";
    const char *plain = group_reopen(&tcp_group, failure), *encrypted = group_reopen(&tls_group, failure);
    return plain ? plain : encrypted;
}
/* A cluster node announces its ports. */
static const char *port_reopen(struct listener_group *group, const char *failure) {
    const char *error = group_reopen(group, failure);
    if (!error && cluster_hooks) cluster_hooks->ports_changed();
    return error;
}
static const char *apply_port(void) {
    return port_reopen(&tcp_group, "Unable to listen on this port. Check server logs.");
}
static const char tls_failure[] = "Unable to update TLS configuration. Check server logs.";
static const char *apply_tls_port(void) {
    if (!tls_options_apply()) return tls_failure;
    return port_reopen(&tls_group, "Unable to listen on this port. Check server logs.");
}
static void rdma_choose(void) {
    rdma_group.transport = transport_find(rdma_tls == RDMA_TLS_NO ? "rdma" : "rdma-tls");
    rdma_group.allows_clear = rdma_tls == RDMA_TLS_OPTIONAL;
}
static const char *apply_rdma(void) {
    if (started && !tls_options_apply()) return tls_failure;
    rdma_choose();
    return port_reopen(&rdma_group, "Failed to listen on the specified RDMA addresses or port. Check server logs.");
}

static const char *apply_accept_batch(void) {
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < groups[g]->count; i++)
            groups[g]->listeners[i]->accept_batch = groups[g] == &tls_group ? tls_accept_batch : accept_batch;
    return NULL;
}

/* A TLS port, or RDMA with TLS. */
static bool listeners_need_tls(void) {
    return tls_port || (rdma_tls != RDMA_TLS_NO && group_wanted(&rdma_group));
}

bool listeners_start(void) {
    rdma_options_apply();
    tcp_group.transport = transport_find("tcp");
    unix_group_.transport = transport_find("unix");
    tls_group.transport = transport_find("tls");
    rdma_choose();
    tls_listens = listeners_need_tls;
    started = true;
    if (!tls_options_apply()) {
        log_warning("Failed to configure TLS. Check logs for more info.");
        return false;
    }
    bool any = false;
    for (int g = 0; g < GROUPS; g++) {
        struct listener_group *group = groups[g];
        if (!group_wanted(group)) continue;
        any = true;
        bool open;
        if (!group->addresses) {
            open = group_open_one(group, unix_path, 0);
        } else {
            open = group_open(group, group->addresses, *group->port);
            group_remember(group);
        }
        if (open) continue;
        if (group->addresses)
            log_warning("Failed listening on port %d (%s), aborting.", *group->port, transport_name(group->transport));
        return false;
    }
    if (!any) log_warning("Configured to not listen anywhere, exiting.");
    rdma_warn();
    if (tls_group.count && rdma_group.count && rdma_tls == RDMA_TLS_NO)
        log_warning(
            "WARNING: TLS is on, but RDMA connections are not encrypted: data of clients on rdma-port %d crosses "
            "the network in the clear. Set tls-rdma yes, or read docs/tls.md.",
            rdma_port);
    return any;
}

void listeners_stop(void) {
    for (int g = 0; g < GROUPS; g++) group_close(groups[g]);
}

void listeners_log_ready(void) {
    for (int g = 0; g < GROUPS; g++) {
        const struct listener_group *group = groups[g];
        int ready = 0;
        for (int i = 0; i < group->count; i++) ready += !group->listeners[i]->waiting;
        if (ready) log_notice("Ready to accept connections %s", transport_name(group->transport));
    }
}

const char *outgoing_source(void) {
    return source_address;
}

int listeners_rdma_port(void) {
    return rdma_group.count ? rdma_group.listeners[0]->address.port : 0;
}
int listeners_port(void) {
    return port ? port : tls_port;
}
const struct config_strings *listeners_bind(void) {
    return &bind_addresses;
}
int listeners_tls_port(void) {
    return tls_port;
}
const char *listeners_unix_path(void) {
    return unix_path;
}

void listeners_info(struct output *out) {
    /* Valkey numbers listeners by their transport: TCP 0, Unix 1, TLS 2, RDMA 3. */
    static const int numbers[GROUPS] = {0, 1, 2, 3};
    for (int g = 0; g < GROUPS; g++) {
        const struct listener_group *group = groups[g];
        if (!group->count) continue;
        char line[4096];
        int at = snprintf(line, sizeof line, "listener%d:name=%s", numbers[g], transport_name(group->transport));
        if (!group->addresses) {
            snprintf(line + at, sizeof line - (size_t)at, ",bind=%s", unix_path);
        } else {
            for (int i = 0; i < group->now.count && (size_t)at < sizeof line; i++)
                at += snprintf(line + at, sizeof line - (size_t)at, ",bind=%s", group->now.items[i]);
            if ((size_t)at < sizeof line) snprintf(line + at, sizeof line - (size_t)at, ",port=%d", group->now_port);
        }
        info_line(out, "%s", line);
    }
}

const char *listeners_first_address(char *text, size_t size) {
    const struct listener_group *sockets = tcp_group.count ? &tcp_group : &tls_group;
    if (sockets->count) {
        const char *host = sockets->now.items[0];
        snprintf(text, size, strchr(host, ':') && strcmp(host, "::*") != 0 ? "[%s]:%d" : "%s:%d", host,
                 sockets->now_port);
    } else if (unix_group_.count) {
        snprintf(text, size, "%s", unix_path);
    } else if (rdma_group.count) {
        snprintf(text, size, "%s:%d", rdma_group.now.items[0], rdma_group.now_port);
    } else {
        snprintf(text, size, "*:%d", port);
    }
    return text;
}

/* --- Options --- */

static const char *check_bind(const struct config_option *option, struct slice text) {
    int words = text.len != 0;
    for (size_t i = 0; i < text.len; i++) words += text.data[i] == ' ';
    return words > BIND_MAX ? "Too many bind addresses specified." : NULL;
}

static const char *check_rdma_bind(const struct config_option *option, struct slice text) {
    const char *reason = rdma_option_check(option, text);
    return reason ? reason : check_bind(option, text);
}

static const char *check_rdma_tls(const struct config_option *option, struct slice text) {
    const char *reason = tls_option_check(option, text);
    return reason ? reason : rdma_option_check(option, text);
}

const struct config_option listener_options[] = {
    {OPTION("bind", CONFIG_STRINGS, &bind_addresses, "* -::*"), .flags = CONFIG_MULTI_ARG, .check = check_bind,
     .apply = apply_bind},
    {OPTION("port", CONFIG_INT, &port, "6379"), .min = 0, .max = 65535, .apply = apply_port},
    {OPTION("tls-port", CONFIG_INT, &tls_port, "0"), .min = 0, .max = 65535, .check = tls_option_check,
     .apply = apply_tls_port},
    {OPTION("max-new-tls-connections-per-cycle", CONFIG_INT, &tls_accept_batch, "1"), .min = 1, .max = 1000,
     .apply = apply_accept_batch},
    {OPTION("unixsocket", CONFIG_STRING, &unix_path, ""), .flags = CONFIG_IMMUTABLE},
    {OPTION("unixsocketgroup", CONFIG_STRING, &unix_group, ""), .flags = CONFIG_IMMUTABLE},
    {OPTION("unixsocketperm", CONFIG_OCTAL, &unix_mode, "0"), .flags = CONFIG_IMMUTABLE, .min = 0, .max = 0777},
    {OPTION("bind-source-addr", CONFIG_STRING, &source_address, "")},
    {OPTION("tcp-backlog", CONFIG_INT, &backlog, "511"), .flags = CONFIG_IMMUTABLE, .min = 0, .max = INT32_MAX},
    {OPTION("mptcp", CONFIG_BOOL, &mptcp, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("socket-mark-id", CONFIG_INT64, &mark, "0"), .flags = CONFIG_IMMUTABLE, .min = 0, .max = UINT32_MAX},
    {OPTION("max-new-connections-per-cycle", CONFIG_INT, &accept_batch, "10"), .min = 1, .max = 1000,
     .apply = apply_accept_batch},
    {OPTION("rdma-bind", CONFIG_STRINGS, &rdma_addresses, ""), .flags = CONFIG_MULTI_ARG, .check = check_rdma_bind,
     .apply = apply_rdma},
    {OPTION("rdma-port", CONFIG_INT, &rdma_port, "0"), .min = 0, .max = 65535, .check = rdma_option_check,
     .apply = apply_rdma},
    {OPTION("tls-rdma", CONFIG_ENUM, &rdma_tls, "no"), .names = rdma_tls_names, .check = check_rdma_tls,
     .apply = apply_rdma},
    {.name = NULL},
};
