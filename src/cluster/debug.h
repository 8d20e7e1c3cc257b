/* debug.h: what DEBUG changes in the cluster's protocol, for tests. */
#ifndef CLUSTER_DEBUG_H
#define CLUSTER_DEBUG_H
#include "server/debug/debug.h"

struct cluster_debug {
    bool no_random_pings, no_reconnection; /* struct cluster_settings */
};
extern struct cluster_debug cluster_debug;
extern const struct debug_subcommand cluster_debug_subcommands[];
#endif
