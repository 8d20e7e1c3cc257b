/* rdma_debug.h: DEBUG RDMA: the state of the RDMA transport for tests. The table is empty in a build without RDMA. */
#ifndef SERVER_DEBUG_RDMA_DEBUG_H
#define SERVER_DEBUG_RDMA_DEBUG_H
#include "server/debug/debug.h"
extern const struct debug_subcommand rdma_debug_subcommands[];
#endif
