/* link_transport.c: see link_transport.h. Defines the options of replication over RDMA, also in builds without RDMA, so
 * that the same configuration file loads. */
#include "repl/link_transport.h"
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "repl/pull/primary.h"
#include "repl/pull/replica.h"
#include "repl/settings.h"
#include "resp/request.h"
#include "server/clients/listeners.h"
#include "server/cluster_hooks.h"
#include "server/config/rdma_options.h"
#include "server/config/tls_options.h"
#include "server/config/config.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <stdio.h>
#include <string.h>

enum { RDMA_TIMEOUT_MS = 5000, REASON_MAX = 160 };

static bool rdma_replication, mptcp;
static int announce_rdma_port;

static struct {
    bool listens;            /* the listener for role changes is registered */
    bool tcp_next;           /* RDMA has just failed */
    int known_port;          /* the RDMA port that the primary reported; 0: use the port of REPLICAOF */
    int tried_port;          /* of the last connect by RDMA */
    char reason[REASON_MAX]; /* of the last failure; "" when RDMA has connected */
} next;

static void primary_changed(void) {
    next.known_port = 0;
    next.tcp_next = false;
    next.reason[0] = 0;
}

static const struct transport *over_rdma(void) { /* NULL: not compiled in */
    return transport_find(tls_for_replication() ? "rdma-tls" : "rdma");
}
static bool wants_rdma(void) {
    return rdma_replication && over_rdma();
}

const struct transport *link_rdma_transport(void) {
    return wants_rdma() ? over_rdma() : NULL;
}

bool link_is_rdma(const struct connection *conn) {
    return conn->transport == transport_find("rdma") || conn->transport == transport_find("rdma-tls");
}

/* What the primary says on the cluster bus; 0: nothing, or this server is not a node of a cluster. */
static int announced_port(void) {
    return cluster_hooks ? cluster_hooks->primary_rdma_port() : 0;
}

static struct connect_options to_primary(const struct connection_events *events, uint32_t timeout_ms) {
    return (struct connect_options){.host = role->host,
                                    .port = role->port,
                                    .source_host = outgoing_source(),
                                    .source_optional = true,
                                    .timeout_ms = timeout_ms,
                                    .mptcp = mptcp,
                                    .events = events};
}

struct connection *link_connect(const struct connection_events *events, uint32_t timeout_ms) {
    role_sync.transport = NULL;
    static struct role_listener listener = {.changed = primary_changed};
    if (!next.listens) role_listen(&listener);
    next.listens = true;
    bool rdma = wants_rdma() && !next.tcp_next;
    struct connect_options options = to_primary(events, timeout_ms);
    next.tcp_next = false;
    if (!rdma) return conn_connect(transport_find(tls_for_replication() ? "tls" : "tcp"), server.loop, &options);
    if (next.known_port)
        options.port = next.known_port;
    else if (announced_port())
        options.port = announced_port();
    if (timeout_ms > RDMA_TIMEOUT_MS) options.timeout_ms = RDMA_TIMEOUT_MS;
    next.tried_port = options.port;
    return conn_connect(over_rdma(), server.loop, &options);
}

struct connection *link_connect_beside(const struct connection *link, const struct connection_events *events,
                                       uint32_t timeout_ms) {
    struct connect_options options = to_primary(events, timeout_ms);
    if (link && link_is_rdma(link)) {
        options.port = next.tried_port;
        if (timeout_ms > RDMA_TIMEOUT_MS) options.timeout_ms = RDMA_TIMEOUT_MS;
    }
    const struct transport *otherwise = transport_find(tls_for_replication() ? "tls" : "tcp");
    return conn_connect(link ? link->transport : otherwise, server.loop, &options);
}

const char *link_without_rdma(void) {
    return tls_for_replication() ? "TLS over TCP" : "TCP";
}

bool link_connect_failed(const struct connection *conn, const char *error) {
    if (!link_is_rdma(conn)) return false;
    if (strcmp(next.reason, error) != 0) /* log each reason once: every connect tries RDMA again */
        log_warning("PRIMARY <-> REPLICA sync: No RDMA connection to %s:%d (%s). Using %s", role->host, next.tried_port,
                    error, link_without_rdma());
    snprintf(next.reason, sizeof next.reason, "%s", error);
    next.tcp_next = true;
    next.known_port = 0; /* the primary's RDMA port may have changed */
    return true;
}

void link_connected(const struct connection *conn) {
    if (wants_rdma() || link_is_rdma(conn)) role_sync.transport = conn_transport_name(conn);
    if (!link_is_rdma(conn)) return;
    if (next.reason[0]) log_notice("PRIMARY <-> REPLICA sync: The link uses RDMA again");
    next.reason[0] = 0;
}

bool link_asks_port(void) {
    return wants_rdma();
}

bool link_learn_port(const struct connection *conn, struct slice answer) {
    int64_t port;
    struct slice prefix = SLICE("+OK ");
    if (answer.len <= prefix.len || memcmp(answer.data, prefix.data, prefix.len) != 0) return false;
    if (!parse_int64(slice_make(answer.data + prefix.len, answer.len - prefix.len), &port)) return false;
    if (port <= 0 || port > 65535) return false;
    bool over_tcp = !link_is_rdma(conn);
    /* The port of the bus has worked, and that of this reply may be another one behind a mapping of ports. */
    next.known_port = !over_tcp && next.tried_port == announced_port() ? 0 : (int)port;
    if (!over_tcp || port == next.tried_port) return false;
    log_notice("PRIMARY <-> REPLICA sync: The primary listens for RDMA on port %d. Connecting there", (int)port);
    return true;
}

int link_announced_port(void) {
    return announce_rdma_port ? announce_rdma_port : listeners_rdma_port();
}

int link_auth(struct slice argv[static 3]) {
    int argc = 0;
    if (!replica_settings.primary_auth.len) return 0;
    argv[argc++] = SLICE("AUTH");
    if (*replica_settings.primary_user) argv[argc++] = slice_of(replica_settings.primary_user);
    argv[argc++] = replica_settings.primary_auth;
    return argc;
}

void link_send_auth(struct connection *conn) {
    struct slice argv[3];
    int argc = link_auth(argv);
    if (!argc) return;
    request_write(&conn->out, argc, argv);
    conn_flush(conn);
}

/* --- INFO --- */

static void write_replica_info(struct output *out) {
    struct pull_progress progress;
    if (role_sync.transport) info_line(out, "master_link_transport:%s", role_sync.transport);
    /* Also while there is no link at all: a certificate that fails over RDMA fails over TCP, too. */
    if (wants_rdma() && next.reason[0]) info_line(out, "master_link_rdma_error:%s", next.reason);
    if (!role_sync.transport) return;
    if (!pull_fetch_progress(&progress)) return;
    info_line(out, "master_sync_rdma_read_bytes:%llu\r\nmaster_sync_rdma_read_percent:%.2f",
              (unsigned long long)progress.bytes, progress.percent);
    info_line(out, "master_sync_rdma_read_mb_per_second:%.2f\r\nmaster_sync_rdma_read_seconds_left:%lld",
              progress.bytes_per_second / 1e6, (long long)progress.seconds_left);
}

static void write_primary_info(struct output *out) {
    struct pull_status status;
    pull_read_status(&status);
    if (!status.snapshots) return;
    info_line(out, "rdma_sync_snapshots:%llu\r\nrdma_sync_delivered:%llu\r\nrdma_sync_dropped_slow:%llu",
              (unsigned long long)status.snapshots, (unsigned long long)status.delivered,
              (unsigned long long)status.dropped_slow);
    info_line(out, "rdma_sync_replicas:%u\r\nrdma_sync_memory:%llu", status.readers, (unsigned long long)status.memory);
    if (!status.memory) return;
    info_line(out, "rdma_sync_bytes:%llu\r\nrdma_sync_percent:%.2f\r\nrdma_sync_mb_per_second:%.2f",
              (unsigned long long)status.bytes, status.percent, status.bytes_per_second / 1e6);
    info_line(out, "rdma_sync_seconds_left:%lld", (long long)status.seconds_left);
}

void link_write_info(struct output *out) {
    if (role_is_replica()) write_replica_info(out);
    write_primary_info(out);
}

const struct config_option link_transport_options[] = {
    {OPTION("repl-mptcp", CONFIG_BOOL, &mptcp, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("rdma-replication", CONFIG_BOOL, &rdma_replication, "no"), .check = rdma_option_check},
    {OPTION("replica-announce-rdma-port", CONFIG_INT, &announce_rdma_port, "0"), .min = 0, .max = 65535},
    {.name = NULL},
};
