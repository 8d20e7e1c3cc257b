/* fast_failover.c: a process that has died is noticed at once (cluster-fast-failover).
 *
 * When a process dies its kernel closes the connections and refuses new ones. A working link that breaks, followed by
 * refusals for a while, is therefore PFAIL without waiting for the node timeout. Everything else stays as it is: a
 * majority of the voting primaries must share the opinion. Each of them finds out by itself and tells the others at
 * once, so that a quorum takes milliseconds if most voters have this on, and the node timeout otherwise.
 *
 * A frozen process, a full backlog, and a machine or a network that is down refuse nothing: they are left to the node
 * timeout. So is a process that comes back quickly: it listens again before the refusals have lasted long enough. */
#include "cluster/protocol/machine.h"

enum {
    REFUSED_MS = 300, /* a restart without data takes less */
    REFUSALS = 3,
    DIAL_EACH_TICK_MS = 2000 /* after the link broke */
};

bool fast_failover_dials(const struct cluster *cluster, const struct cluster_node *node) {
    return cluster->settings.fast_failover && node->link_lost_ms &&
           cluster->now_ms - node->link_lost_ms < DIAL_EACH_TICK_MS;
}

void fast_failover_link_connected(struct cluster_node *node) {
    node->link_lost_ms = 0;
    node->refusals = 0;
}

void fast_failover_link_closed(struct cluster *cluster, struct cluster_node *node, const struct cluster_link *link,
                               bool refused) {
    if (node_in_handshake(node)) return;
    if (link->connected) {
        node->link_lost_ms = link->answered ? cluster->now_ms : 0;
        node->refusals = 0;
        return;
    }
    node->refusals = refused ? node->refusals + 1 : 0;
    if (!cluster->settings.fast_failover || !node->link_lost_ms || node->refusals < REFUSALS ||
        cluster->now_ms - node->link_lost_ms < REFUSED_MS)
        return;
    if (!failure_suspect(cluster, node)) return;
    say_notice(cluster, "Node " NODE_FORMAT " closed its link and refuses connections.", NODE_TEXT(node));
}
