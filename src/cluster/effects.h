/* effects.h: what the machine decides, carried out in the server. */
#ifndef CLUSTER_EFFECTS_H
#define CLUSTER_EFFECTS_H
#include "cluster/protocol/cluster.h"

extern const struct cluster_effects node_effects;
/* Outside of commands and loads: carries out what had to wait for their end. */
void effects_settle(void);
/* Several times in a second, outside of commands and loads. */
void effects_tick(void);
/* Deletes the keys of a slot now, here and on the replicas. */
void effects_drop_slot(unsigned slot);
/* A primary begins a shard of its own: CLUSTER RESET. For a replica the machine says so. */
void effects_leave_shard(void);
/* At start, before the data set is loaded: the role that nodes.conf gives. Replication connects after the load. */
void effects_start(void);
#endif
