/* sync_cluster.h: a cluster with synchronous replication in virtual time: three shards of three machines, each of them
 * a machine of cluster_simulator.h and a server of quorum_simulator.h. Clients write to and read from whichever server
 * owns its shard's slots and leads the shard. Run by hand:
 *
 *     tests/simulation/run --sync --seeds 1-1000
 *     tests/simulation/run --sync --seed 17       one, with its history
 *     … --migrations                              with slots that move between the shards: migration_simulator.h. Then
 *                                                 the bus, or all links but the bus, may be cut alone, and be slow
 *     … --members                                 with servers that are reset, and join again:
 *                                                 membership_simulator.h
 *     … --mixed                                   with one or two shards without synchronous replication, which have
 *                                                 data, too; not with --members: asynchronous_shards.h
 *     … --mixed --migrations --trial              with a broken rule there, which the simulation must find
 *
 * Machines crash and lose what was not on disk, freeze, and are cut off; links lose messages; replicas are told to take
 * over. In nine of ten seeds no shard has more than one machine at a time that may have lost acknowledged writes.
 * Checked all the time: what both simulators check, so no acknowledged write is lost and no stale read answered. At the
 * end all machines agree, and each shard acknowledges writes again if enough of its servers are sure of their data. */
#pragma once
#include "cluster_simulator.h"
#include "quorum_simulator.h"

enum { SHARDS = 3, COPIES = 3, MACHINES = SHARDS * COPIES };
extern struct sim cluster_sim;

static inline struct node *server_of(void *context) {
    return &world.nodes[((struct sim_machine *)context)->index];
}

static inline struct sim_machine *machine_of(const struct node *node) {
    return &cluster_sim.machines[node->index];
}
static inline struct cluster *cluster_of(const struct node *node) {
    return machine_of(node)->cluster;
}
void sync_server_lead(void *context, bool same_shard);
/* What main() of tests/simulation/cluster_sync.c does with these arguments, and its result. */
int sync_cluster_simulate(int argc, char **argv);
