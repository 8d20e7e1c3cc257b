/* maxmemory.h: what the server does when the data exceeds `maxmemory`. store/evict.h chooses the keys to evict. */
#pragma once
#include "server/server.h"
#include <stdint.h>
/* True: when the last command was dispatched, memory was above the limit and nothing could be evicted. All commands of
 * a script get this answer. */
bool eviction_out_of_memory(void);
uint64_t eviction_exceeded_us(bool total); /* time above the limit: in total, or since it was last exceeded */
void eviction_reset_stats(void);
