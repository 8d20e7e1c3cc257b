/* debug.h: what DEBUG changes in the cluster's protocol, for tests. */
#pragma once
#include "server/debug/debug.h"

extern const struct debug_subcommand cluster_debug_subcommands[];
