/* stats.h: the server's statistics, and the INFO sections server, clients, stats, cpu, commandstats, errorstats,
 * latencystats. */
#pragma once
#include "server/stats/info.h"
void stats_sample(void); /* called by the cron: rates per second */
/* Counted by replication. */
struct replication_stats {
    uint64_t full, partial_ok,
        partial_refused;          /* synchronizations that this primary has begun; refused: partial ones */
    uint64_t bytes_in, bytes_out; /* of the replication stream and full copies */
};
extern struct replication_stats replication_stats;
/* Counted by client-side caching. */
struct tracking_stats {
    size_t clients, keys, items, prefixes; /* items: pairs of a key and a client that has read it */
};
extern struct tracking_stats tracking_stats;
extern size_t stats_migrate_connections; /* that MIGRATE keeps */
