/* rdma_info.h: shows the state of the RDMA transport to operators: INFO rdma, and its waits as LATENCY events. Empty in
 * a build without RDMA. */
#ifndef SERVER_STATS_RDMA_INFO_H
#define SERVER_STATS_RDMA_INFO_H
#endif
