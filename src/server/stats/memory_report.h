/* memory_report.h: memory usage by purpose: the values of INFO memory, MEMORY STATS and MEMORY DOCTOR. */
#pragma once
#include "lib/system/memory.h"
#include "server/command/command.h"
#include "server/server.h"

struct memory_report {
    struct mem_stats allocator;
    size_t used, peak, startup; /* bytes in use: now, the most so far, and after the start */
    size_t clients_normal, clients_replicas;
    size_t replication_backlog, replication_buffers; /* of the replication stream: of the backlog, and all */
    size_t received_ahead;           /* bytes of its primary's stream that a replica keeps while it loads a full copy */
    size_t tables, tables_rehashing; /* hash tables of the keyspace; of these, the old tables of resizes in progress */
    int databases_rehashing;
    size_t overhead; /* everything except keys and values */
    size_t dataset, keys, bytes_per_key;
    double dataset_percent; /* of the memory allocated since the start */
    double peak_percent;
    double allocator_frag, allocator_rss, rss_overhead, fragmentation; /* ratios */
    int64_t allocator_frag_bytes, allocator_rss_bytes, rss_overhead_bytes, fragmentation_bytes;
};
extern const struct command_spec memory_commands[]; /* memory_command.c: MEMORY */
void memory_report_make(struct memory_report *report);
