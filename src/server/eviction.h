/* eviction.h: maxmemory: what is done when the data grows beyond its bound. Which keys go is store/evict.h's business.
 */
#ifndef SERVER_EVICTION_H
#define SERVER_EVICTION_H
#include "server/config/config.h"
#include "server/server.h"
#include <stddef.h>
#include <stdint.h>
extern const struct config_option eviction_options[];
extern struct server_part eviction_part;
/* Memory that does not count against maxmemory (buffers of replicas and of the AOF): added up over those who say so. */
struct uncounted_memory {
    struct list_link link;
    size_t (*bytes)(void);
};
void eviction_leave_out(struct uncounted_memory *memory);
size_t eviction_not_counted(void);
uint64_t eviction_exceeded_us(bool total); /* how long the bound has been exceeded: in all, or since it was last kept */
void eviction_reset_stats(void);
#endif
