/* rdma_info.h: shows the state of the RDMA transport to operators: INFO rdma, and its waits as LATENCY events. Empty in
 * a build without RDMA. */
#ifndef SERVER_RDMA_INFO_H
#define SERVER_RDMA_INFO_H
#include "server/stats/info.h"
#include "server/server.h"
extern const struct info_section rdma_sections[];
extern struct server_part rdma_info_part;
#endif
