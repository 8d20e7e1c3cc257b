/* endpoint.c: see endpoint.h.
 *
 * The address family of a client costs a system call. It matters only where a node announces addresses for clients, so
 * it is not asked for before some node does. */
#include "cluster/endpoint.h"
#include "cluster/options.h"
#include "cluster/this_node.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include <string.h>

static bool families_differ(void) {
    static const struct cluster *known;
    static uint64_t version;
    static bool differ;
    if (!this_cluster) return false;
    if (known == this_cluster && version == this_cluster->view_version) return differ;
    known = this_cluster;
    version = this_cluster->view_version;
    differ = false;
    for (size_t i = 0; i < known->nodes.count && !differ; i++)
        differ = known->nodes.list[i]->client_ipv4 || known->nodes.list[i]->client_ipv6;
    return differ;
}

static enum endpoint_family family_of(const struct connection *conn) {
    static const char mapped[] = "::ffff:"; /* an IPv4 client of a socket for both families */
    struct address peer;
    if (!conn_address(conn, true, &peer) || !peer.port || !strchr(peer.host, ':')) return ENDPOINT_IPV4;
    return strncmp(peer.host, mapped, sizeof mapped - 1) == 0 ? ENDPOINT_IPV4 : ENDPOINT_IPV6;
}

struct endpoint_view endpoint_view_of(const struct client *client) {
    struct endpoint_view view = {ENDPOINT_TCP, ENDPOINT_IPV4};
    if (!client->conn) client = dispatch_requester(); /* of a script: who called it */
    if (!client || !client->conn) return view;
    const char *transport = conn_transport_name(client->conn);
    if (strcmp(transport, "tls") == 0) view.kind = ENDPOINT_TLS;
    if (strcmp(transport, "rdma") == 0 || strcmp(transport, "rdma-tls") == 0) view.kind = ENDPOINT_RDMA;
    if (families_differ()) view.family = family_of(client->conn);
    return view;
}

bool endpoint_is_unknown(void) {
    return cluster_options.preferred_endpoint == ENDPOINT_UNKNOWN;
}

const char *endpoint_ip(const struct cluster_node *node, struct endpoint_view view) {
    const char *announced = view.family == ENDPOINT_IPV6 ? node->client_ipv6 : node->client_ipv4;
    return announced ? announced : node->address;
}

const char *endpoint_host(const struct cluster_node *node, struct endpoint_view view) {
    switch ((enum endpoint_type)cluster_options.preferred_endpoint) {
    case ENDPOINT_IP: break;
    case ENDPOINT_HOSTNAME: return node->hostname ? node->hostname : "?";
    case ENDPOINT_UNKNOWN: return "";
    }
    return endpoint_ip(node, view);
}

uint16_t endpoint_port(const struct cluster_node *node, struct endpoint_view view) {
    uint16_t tcp = node->client_port ? node->client_port : node->port;
    uint16_t rdma = node->client_rdma_port ? node->client_rdma_port : node->rdma_port;
    switch (view.kind) {
    case ENDPOINT_TCP: break;
    case ENDPOINT_TLS: return node->client_tls_port ? node->client_tls_port : node->tls_port;
    /* A node without RDMA is named by its TCP port: the client's attempt to connect then fails with its address. */
    case ENDPOINT_RDMA: return rdma ? rdma : tcp;
    }
    return tcp;
}

const char *endpoint_redirection(const struct cluster_node *node, unsigned slot, bool ask,
                                 const struct client *client) {
    static char text[64 + NODE_NAME_MAX];
    struct endpoint_view view = endpoint_view_of(client);
    struct slice word = ask ? SLICE("ASK ") : SLICE("MOVED ");
    const char *host = endpoint_host(node, view);
    size_t len = strlen(host);
    char *at = text;
    memcpy(at, word.data, word.len);
    at += word.len;
    at += format_uint64(at, slot);
    *at++ = ' ';
    memcpy(at, host, len);
    at += len;
    *at++ = ':';
    at += format_uint64(at, endpoint_port(node, view));
    *at = 0;
    return text;
}
