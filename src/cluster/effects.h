/* effects.h: carries out in the server what the state machine of the cluster decides (struct cluster_effects).
 *
 * Most effects are carried out at once. Changes of the role and deletions of keys wait while the loop turns within a
 * script or another command, and while a data set is loaded: effects_settle() carries them out afterwards.
 * Deletions also wait while the server stands for election in its shard. */
#pragma once
#include "cluster/protocol/cluster.h"

extern const struct cluster_effects node_effects;
/* Carries out the effects that were postponed. Call it at the end of each turn, outside of commands and loads. */
void effects_settle(void);
/* If the link to the primary is not up, lets it use the port that fits tls-replication, which may have changed. Call it
 * several times a second, outside of commands and loads. */
void effects_tick(void);
/* CLUSTER RESET of a primary: it begins a shard of its own. For a replica the state machine decides this. */
void effects_leave_shard(void);
/* At start, before the data set is loaded: gives the server the role that is in nodes.conf. Replication connects after
 * the load. */
void effects_start(void);
