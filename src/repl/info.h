/* info.h: INFO replication, the replicas in ROLE, and what replication adds to INFO memory. */
#pragma once
#include "resp/reply.h"
#include "server/stats/info.h"
#include "server/stats/memory_report.h"
#include <stddef.h>

extern const struct info_section repl_sections[];
void repl_write_role(struct reply *reply);
void repl_report_memory(struct memory_report *report);
size_t repl_uncounted_memory(void); /* bytes that do not count towards maxmemory */
