/* effects.h: what the machine decides, carried out in the server: struct cluster_effects.
 *
 * Most effects are carried out at once. Changes of the role and deletions of keys wait while the loop turns within a
 * script or another command, and while a data set is loaded: effects_settle() carries them out afterwards.
 * Deletions also wait while the server stands for election in its shard. */
#ifndef CLUSTER_EFFECTS_H
#define CLUSTER_EFFECTS_H
#include "cluster/protocol/cluster.h"

extern const struct cluster_effects node_effects;
/* Carries out what has waited. Call it outside of commands and loads, at the end of each turn. */
void effects_settle(void);
/* Follows changes of tls-replication. Call it several times in a second, outside of commands and loads. */
void effects_tick(void);
/* A primary begins a shard of its own: CLUSTER RESET. For a replica the machine says so. */
void effects_leave_shard(void);
/* At start, before the data set is loaded: the role that nodes.conf gives. Replication connects after the load. */
void effects_start(void);
#endif
