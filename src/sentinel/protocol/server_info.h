/* server_info.h: the fields of a server's INFO that Sentinel uses. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

enum { INFO_HOST_MAX = 256 };
struct server_info {
    char run_id[41];
    char replication_id[41]; /* changes whenever it becomes a primary or follows one; "": not reported */
    bool is_primary;         /* it says role:master */
    /* These keep their values when the fields are missing: a replica that is promoted has none of them. */
    char primary_host[INFO_HOST_MAX]; /* "": none */
    int primary_port;
    bool primary_link_up;
    int64_t priority;  /* 100 at first */
    uint64_t offset;   /* of a replica */
    int64_t announced; /* replica-announced; 0: no */
    bool has_failover_state;
    bool failover_in_progress; /* the server runs FAILOVER */
    /* A missing field resets these. */
    int64_t primary_link_down_ms; /* 0: it is up; below 0: it never was */
    bool loading;
    bool sync_ineligible; /* sync_eligible:0 of synchronous replication: it lacks acknowledged writes */
    int rdma_port;        /* of its first RDMA listener; 0: none */
};
/* The values before the first reply to INFO. */
void server_info_init(struct server_info *info);
/* Reads a reply into what is known so far. Any bytes are allowed. Numbers are read as far as they are digits. Calls
 * replica() for each slaveN line; its texts are valid within the call. */
void server_info_read(struct slice text, struct server_info *info,
                      void (*replica)(void *context, const char *host, int port), void *context);
