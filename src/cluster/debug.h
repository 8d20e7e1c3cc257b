/* debug.h: what DEBUG changes in the cluster's protocol, for tests. */
#ifndef CLUSTER_DEBUG_H
#define CLUSTER_DEBUG_H
#include "server/debug/debug.h"

extern const struct debug_subcommand cluster_debug_subcommands[];
#endif
