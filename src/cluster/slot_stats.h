/* slot_stats.h: what the slots cost. See slot_stats.c. */
#pragma once
#include <stddef.h>

void slot_stats_start(void);     /* once, when this server is a node of a cluster */
void slot_stats_configure(void); /* cluster-slot-stats-enabled has been set */
void slot_stats_reset(void);     /* CONFIG RESETSTAT */
/* Bytes of messages of a shard channel were sent to subscribers. */
void slot_stats_delivered(unsigned slot, size_t bytes);
struct call;
void cluster_slot_stats_run(struct call *call); /* CLUSTER SLOT-STATS */
