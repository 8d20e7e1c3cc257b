/* fast_failover.c: a process that has died is noticed at once (cluster-fast-failover).
 *
 * When a process dies its kernel closes the connections and refuses new ones. A working link that breaks, followed by
 * refusals for a while, is therefore PFAIL without waiting for the node timeout. The rest is unchanged: a
 * majority of the voting primaries must agree. Each detects the failure itself and reports it to the others at once,
 * so a quorum takes milliseconds if this is on at most voters, and the node timeout otherwise.
 *
 * A frozen process, a full backlog, and a machine or network that is down do not refuse connections: there the node
 * timeout decides. A process that restarts quickly listens again before the refusals have lasted long enough. */
#include "cluster/protocol/machine.h"

enum {
    REFUSED_MS = 300, /* a restart without data takes less */
    REFUSALS = 3,
    DIAL_EACH_TICK_MS = 2000 /* after the link broke */
};

bool fast_failover_dials(const struct cluster *cluster, const struct cluster_node *node) {
    return cluster->settings.fast_failover && node->links.lost_ms &&
           cluster->now_ms - node->links.lost_ms < DIAL_EACH_TICK_MS;
}

void fast_failover_link_connected(struct cluster_node *node) {
    node->links.lost_ms = 0;
    node->links.refusals = 0;
}

void fast_failover_link_closed(struct cluster *cluster, struct cluster_node *node, const struct cluster_link *link,
                               bool refused) {
    if (node_in_handshake(node)) return;
    if (link->connected) {
        node->links.lost_ms = link->answered ? cluster->now_ms : 0;
        node->links.refusals = 0;
        return;
    }
    node->links.refusals = refused ? node->links.refusals + 1 : 0;
    if (!cluster->settings.fast_failover || !node->links.lost_ms || node->links.refusals < REFUSALS ||
        cluster->now_ms - node->links.lost_ms < REFUSED_MS)
        return;
    if (!failure_suspect(cluster, node)) return;
    say_notice(cluster, "Node " NODE_FORMAT " closed its link and refuses connections.", NODE_TEXT(node));
}
