/* rdma_debug.h: DEBUG RDMA: what tests and the curious ask of the RDMA transport. An empty table in a build without
 * RDMA. */
#ifndef SERVER_RDMA_DEBUG_H
#define SERVER_RDMA_DEBUG_H
#include "server/debug/debug.h"
extern const struct debug_subcommand rdma_debug_subcommands[];
#endif
