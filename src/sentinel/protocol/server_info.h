/* server_info.h: the fields of a server's INFO that Sentinel uses. */
#ifndef SENTINEL_PROTOCOL_SERVER_INFO_H
#define SENTINEL_PROTOCOL_SERVER_INFO_H
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

enum { INFO_HOST_MAX = 256 };
struct server_info {
    char run_id[41];
    bool has_role, is_primary;
    char primary_host[INFO_HOST_MAX]; /* "": none */
    int primary_port;
    bool primary_link_up;
    int64_t primary_link_down_ms; /* 0: it is up, or the field is missing */
    int64_t priority;             /* 100 unless it says otherwise */
    uint64_t offset;              /* of a replica */
    bool announced;               /* replica-announced */
    bool has_failover_state;
    bool failover_in_progress; /* the server runs FAILOVER */
    bool loading;
    bool sync_ineligible; /* sync_eligible:0 of synchronous replication: it lacks acknowledged writes */
    int rdma_port;        /* of its first RDMA listener; 0: none */
};
/* Any bytes are allowed. Calls replica() for each slaveN line; its texts are valid within the call. */
void server_info_read(struct slice text, struct server_info *info,
                      void (*replica)(void *context, const char *host, int port), void *context);
#endif
