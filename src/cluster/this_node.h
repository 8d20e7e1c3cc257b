/* this_node.h: the server as a node of a cluster: it drives the state machine of protocol/cluster.h.
 *
 * In cluster mode the server has one `struct cluster`. This directory feeds it with links, messages, the time and
 * commands, and carries out its decisions. Everything runs on the main thread, except for the writes of nodes.conf.
 *
 * Files, the lowest layer first. No file uses one that stands further down (utils/check-walls).
 *     protocol/            the machine; migration/protocol/: that of slot migration
 *     bus.c                the connections of the cluster bus
 *     this_node.c          what all files share; settings.h: the values of options
 *     nodes_conf.c         nodes.conf: lock, load, save
 *     saved_reply.c        replies of commands that change the cluster, when nodes.conf has the change
 *     links.c              between the bus and the machine; holds back messages until the file is on disk
 *     slot_keys.c          the keys of a slot: their number, and their end
 *     copied_owners.c      the owners of all slots in full copies
 *     endpoint.c           the address of a node for a client, by the kind of its connection
 *     replica_slots.c      the slots that a replica may serve
 *     subcommand.c         what the handlers of the subcommands of CLUSTER share
 *     migration/           atomic migration of slots: migration.h
 *     redirect.c           which node serves a command: MOVED, ASK, CROSSSLOT, CLUSTERDOWN
 *     slot_stats.c         CLUSTER SLOT-STATS
 *     views.c              CLUSTER NODES, SLOTS, SHARDS, LINKS, REPLICAS, from caches
 *     info.c               CLUSTER INFO, INFO
 *     publish.c            PUBLISH and SPUBLISH between nodes, shard channels of a slot that leaves
 *     effects.c            what the machine decides, carried out: struct cluster_effects
 *     setslot.c            SETSLOT, which waits for the replicas; open slots in RDB files
 *     slot_commands.c      ADDSLOTS, DELSLOTS, FLUSHSLOT, COUNTKEYSINSLOT, GETKEYSINSLOT and others
 *     cluster_scan.c       CLUSTERSCAN
 *     commands.c           CLUSTER, except the subcommands for slots
 *     options.c            options cluster-*
 *     debug.c              DEBUG subcommands
 *     cluster_feature.c    start, the timer, the end of each turn, shutdown */
#pragma once
#include "cluster/protocol/cluster.h"
#include "lib/structures/linked_list.h"

/* The state machine; NULL: cluster mode is off. It is created before the data set is loaded and never replaced. */
extern struct cluster *this_cluster;
/* The time for inputs of the machine: the cached wall clock of this turn, in ms. */
int64_t cluster_now(void);
/* "user request from 'id=... addr=...'": the client, for log lines of commands. Valid until the next call. */
struct client;
const char *cluster_requester(const struct client *client);

/* Called after a decision of the machine has been carried out in the server. NULL members are not called. */
struct cluster_listener {
    struct list_link link;
    /* `slot` has another owner, or none, or SETSLOT has given it to its owner again. this_cluster has the new owner
     * already. Keys are still there. */
    void (*slot_moved)(unsigned slot, const struct cluster_node *from, const struct cluster_node *to);
    void (*state_changed)(bool ok);
    void (*role_changed)(void); /* this node became a primary, a replica, or a replica of another primary */
};
void cluster_listen(struct cluster_listener *listener);

extern const struct feature cluster_feature;
