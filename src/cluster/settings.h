/* settings.h: the values of the options cluster-* and of DEBUG that the files of this directory read. options.c and
 * debug.c set them, CONFIG SET at any time. Main thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum save_behavior { SAVE_SYNC /* a file that cannot be written ends the server */, SAVE_BEST_EFFORT };
enum endpoint_type { ENDPOINT_IP, ENDPOINT_HOSTNAME, ENDPOINT_UNKNOWN };

struct cluster_options {
    char *config_file;
    int save_behavior;      /* enum save_behavior */
    int preferred_endpoint; /* enum endpoint_type */
    int databases;
    int64_t link_limit; /* bytes */
    bool reads_when_down, shard_messages_when_down, slot_stats;
    uint64_t version; /* counts changes of options by CONFIG SET, which may change replies to clients */
};
extern struct cluster_options cluster_options;

/* What DEBUG changes in the cluster's protocol, for tests: struct cluster_settings. */
struct cluster_debug {
    bool no_random_pings, no_reconnection;
};
extern struct cluster_debug cluster_debug;
