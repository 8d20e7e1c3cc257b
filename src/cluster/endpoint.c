/* endpoint.c: see endpoint.h.
 *
 * A client with an old map of the slots may get many redirections. The text of a redirection depends only on its target
 * and the view, so it is formatted once and kept until the cluster or an option changes.
 *
 * To find the address family of a client costs a system call. It matters only if a node announces addresses for
 * clients, so the call is made only then. */
#include "cluster/endpoint.h"
#include "cluster/settings.h"
#include "cluster/this_node.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include <string.h>

/* Most clients have the transport of the client before, so the pointer to its name is compared first. */
static enum endpoint_kind kind_of(const struct connection *conn) {
    static const char *known;
    static enum endpoint_kind kind;
    const char *transport = conn_transport_name(conn);
    if (__builtin_expect(transport == known, 1)) return kind;
    known = transport;
    kind = ENDPOINT_TCP;
    if (strcmp(transport, "tls") == 0) kind = ENDPOINT_TLS;
    if (strcmp(transport, "rdma") == 0 || strcmp(transport, "rdma-tls") == 0) kind = ENDPOINT_RDMA;
    return kind;
}

/* What answers depend on. When it changes, so does `number`: an answer with an older number is outdated. */
static struct {
    const struct cluster *cluster;
    uint64_t view_version, options_version, number;
    bool families_differ; /* some node announces addresses for clients */
} basis;

static __attribute__((noinline)) void basis_renew(void) {
    basis.cluster = this_cluster;
    basis.view_version = this_cluster->view_version;
    basis.options_version = cluster_options.version;
    basis.number++;
    basis.families_differ = false;
    for (size_t i = 0; i < basis.cluster->nodes.count && !basis.families_differ; i++) {
        const struct cluster_node *node = basis.cluster->nodes.list[i];
        basis.families_differ = node->announced.client_ipv4 || node->announced.client_ipv6;
    }
}
static inline void basis_check(void) {
    if (basis.cluster != this_cluster || basis.view_version != this_cluster->view_version ||
        basis.options_version != cluster_options.version)
        basis_renew();
}

static enum endpoint_family family_of(const struct connection *conn) {
    static const char mapped[] = "::ffff:"; /* an IPv4 client of a socket for both families */
    struct address peer;
    if (!conn_address(conn, true, &peer) || !peer.port || !strchr(peer.host, ':')) return ENDPOINT_IPV4;
    return strncmp(peer.host, mapped, sizeof mapped - 1) == 0 ? ENDPOINT_IPV4 : ENDPOINT_IPV6;
}

/* The basis is checked. */
static inline struct endpoint_view view_of(const struct client *client) {
    struct endpoint_view view = {ENDPOINT_TCP, ENDPOINT_IPV4, false};
    if (!client->conn) client = dispatch_requester(); /* of a script: the client that called it */
    if (!client || !client->conn) return view;
    view.kind = kind_of(client->conn);
    view.with_rdma_ports = client->flags & CLIENT_CAPA_RDMA_ENDPOINTS;
    if (basis.families_differ) view.family = family_of(client->conn);
    return view;
}

struct endpoint_view endpoint_view_of(const struct client *client) {
    if (this_cluster) basis_check();
    return view_of(client);
}

bool endpoint_is_unknown(void) {
    return cluster_options.preferred_endpoint == ENDPOINT_UNKNOWN;
}

const char *endpoint_ip(const struct cluster_node *node, struct endpoint_view view) {
    const char *announced = view.family == ENDPOINT_IPV6 ? node->announced.client_ipv6 : node->announced.client_ipv4;
    return announced ? announced : node->address;
}

const char *endpoint_host(const struct cluster_node *node, struct endpoint_view view) {
    switch ((enum endpoint_type)cluster_options.preferred_endpoint) {
    case ENDPOINT_IP: break;
    case ENDPOINT_HOSTNAME: return node->announced.hostname ? node->announced.hostname : "?";
    case ENDPOINT_UNKNOWN: return "";
    }
    return endpoint_ip(node, view);
}

static uint16_t rdma_port_of(const struct cluster_node *node) {
    return node->client_rdma_port ? node->client_rdma_port : node->rdma_port;
}

uint16_t endpoint_port(const struct cluster_node *node, struct endpoint_view view) {
    uint16_t tcp = node->announced.client_port ? node->announced.client_port : node->port;
    uint16_t rdma = rdma_port_of(node);
    switch (view.kind) {
    case ENDPOINT_TCP: break;
    case ENDPOINT_TLS: return node->announced.client_tls_port ? node->announced.client_tls_port : node->tls_port;
    /* A node of Valkey cannot tell its RDMA port. The documented norm is that both ports have the same number. Where
     * the node has no RDMA, the client's attempt to connect fails with its address. */
    case ENDPOINT_RDMA: return rdma ? rdma : tcp;
    }
    return tcp;
}

uint16_t endpoint_named_rdma_port(const struct cluster_node *node, struct endpoint_view view) {
    return view.with_rdma_ports ? rdma_port_of(node) : 0;
}

/* --- Redirections --- */

/* " host:port" of a node in a view. */
struct endpoint_target {
    const struct cluster_node *node;
    uint64_t basis;
    unsigned view, len;
    char text[NODE_NAME_MAX + 16];
};
enum { TARGETS = 64, TARGET_MULTIPLIER = 0x9e3779b1 /* of Fibonacci hashing */, TARGET_SHIFT = 26 };

static __attribute__((noinline)) void target_format(struct endpoint_target *target, const struct cluster_node *node,
                                                    struct endpoint_view view) {
    const char *host = endpoint_host(node, view);
    size_t len = strlen(host);
    target->node = node;
    target->basis = basis.number;
    target->view = endpoint_view_index(view);
    char *at = target->text;
    *at++ = ' ';
    memcpy(at, host, len);
    at += len;
    *at++ = ':';
    at += format_uint64(at, endpoint_port(node, view));
    target->len = (unsigned)(at - target->text);
}

static inline const struct endpoint_target *target_of(const struct cluster_node *node, struct endpoint_view view) {
    static struct endpoint_target targets[TARGETS];
    unsigned index = endpoint_view_index(view);
    uint32_t hash = ((uint32_t)((uintptr_t)node >> 4) + index) * (uint32_t)TARGET_MULTIPLIER >> TARGET_SHIFT;
    struct endpoint_target *target = &targets[hash];
    if (target->node != node || target->view != index || target->basis != basis.number)
        target_format(target, node, view);
    return target;
}

struct slice endpoint_redirection(const struct cluster_node *node, unsigned slot, bool ask,
                                  const struct client *client) {
    static char text[sizeof "MOVED 16383" + sizeof((struct endpoint_target *)NULL)->text];
    basis_check();
    const struct endpoint_target *target = target_of(node, view_of(client));
    char *at = text;
    if (ask)
        memcpy(at, "ASK ", 4), at += 4;
    else
        memcpy(at, "MOVED ", 6), at += 6;
    at += format_uint64(at, slot);
    memcpy(at, target->text, target->len);
    at[target->len] = 0;
    return slice_make(text, (size_t)(at - text) + target->len);
}
