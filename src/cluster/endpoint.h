/* endpoint.h: the address of a node for a client.
 *
 * All addresses that clients see come from here: MOVED, ASK, CLUSTER SLOTS, SHARDS, NODES. They depend on the kind of
 * the asking connection: a client on TLS gets TLS ports. Options that announce other addresses to clients, and
 * cluster-preferred-endpoint-type, take effect here and nowhere else. Main thread only. */
#pragma once
#include "cluster/protocol/node.h"

struct client;

/* What an answer depends on besides the node: a cache has one answer for each value. */
enum endpoint_kind { ENDPOINT_TCP, ENDPOINT_TLS, ENDPOINT_RDMA };
enum endpoint_family { ENDPOINT_IPV4, ENDPOINT_IPV6 };
enum { ENDPOINT_VIEWS = 12 };
struct endpoint_view {
    enum endpoint_kind kind;
    enum endpoint_family family;
    bool with_rdma_ports; /* CLIENT CAPA rdma-endpoints: SLOTS and SHARDS also name the RDMA port of each node */
};
/* Of a client; a script's is its caller's. Callers without a connection (module, replica link): TCP, IPv4. */
struct endpoint_view endpoint_view_of(const struct client *client);
static inline unsigned endpoint_view_index(struct endpoint_view view) { /* below ENDPOINT_VIEWS */
    return ((unsigned)view.kind * 2 + (unsigned)view.family) * 2 + view.with_rdma_ports;
}

/* The preferred endpoint: an IP address, a host name ("?" if the node has none), or "" (unknown-endpoint). Valid until
 * the node changes. */
const char *endpoint_host(const struct cluster_node *node, struct endpoint_view view);
/* True: clients use the address at which they asked (unknown-endpoint); CLUSTER SLOTS shows null for it. */
bool endpoint_is_unknown(void);
const char *endpoint_ip(const struct cluster_node *node, struct endpoint_view view); /* "" if it is not known */
uint16_t endpoint_port(const struct cluster_node *node, struct endpoint_view view);  /* 0: the node has none */
/* `rdma-port` of SLOTS and SHARDS; 0: the view does not show it, or the node has none. */
uint16_t endpoint_named_rdma_port(const struct cluster_node *node, struct endpoint_view view);
/* The error that sends a client to the node: "MOVED 866 127.0.0.1:6379", or with `ask` "ASK ...". Valid until the next
 * call; a zero byte follows. */
struct slice endpoint_redirection(const struct cluster_node *node, unsigned slot, bool ask,
                                  const struct client *client);
