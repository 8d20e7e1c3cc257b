/* settings.h: the options of replication, for both sides. Units as in valkey.conf. */
#pragma once
#include "lib/text/slice.h"
#include "server/config/config.h"
#include <stdbool.h>
#include <stdint.h>

struct repl_settings { /* of the primary, and of both sides */
    int64_t backlog_size, backlog_ttl;
    int ping_period, timeout;
    bool diskless_sync, dual_channel, disable_nodelay;
    int diskless_delay, diskless_max_replicas;
};
extern struct repl_settings repl_settings;
static inline uint64_t repl_timeout_us(void) {
    return (uint64_t)repl_settings.timeout * 1000000;
}

enum diskless_load { DISKLESS_LOAD_DISABLED, DISKLESS_LOAD_ON_EMPTY, DISKLESS_LOAD_SWAP, DISKLESS_LOAD_FLUSH };
enum error_behavior { ERRORS_IGNORED, ERRORS_PANIC, ERRORS_PANIC_ON_REPLICAS };
struct replica_settings {
    struct slice primary_auth;
    char *primary_user, *announce_ip;
    int announce_port, priority;
    bool announced, lazy_flush, ignore_disk_errors, delete_sync_files;
    int diskless_load;  /* enum diskless_load */
    int error_behavior; /* enum error_behavior */
};
extern struct replica_settings replica_settings;

struct pull_settings {       /* of snapshots that replicas fetch by RDMA READ: pull/primary.h */
    int64_t snapshot_memory; /* bytes */
    int max_wait_ms;
};
extern struct pull_settings pull_settings;

extern const struct config_option repl_options[], replica_options[], pull_options[];
