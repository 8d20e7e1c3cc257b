/* rdma_info.h: INFO rdma: what an operator needs to see of the RDMA transport. An empty table in a build without RDMA. */
#ifndef SERVER_RDMA_INFO_H
#define SERVER_RDMA_INFO_H
#include "server/info.h"
extern const struct info_section rdma_sections[];
#endif
