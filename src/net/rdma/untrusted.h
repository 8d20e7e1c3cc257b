/* untrusted.h: the memory limit for untrusted peers. A connection claims its share before it is accepted and returns it
 * when its peer becomes trusted or the connection is over. untrusted.c describes the limit. */
#pragma once
#include "net/rdma/connection.h"

/* False: the limit is reached. May close a connection of the loop that was untrusted too long. */
bool rdma_untrusted_claim(struct rdma_loop *owner, uint32_t size);
void rdma_untrusted_enter(struct rdma_connection *c, uint32_t claimed);
void rdma_untrusted_leave(struct rdma_connection *c);
void rdma_untrusted_tick(struct rdma_loop *owner);
uint64_t rdma_untrusted_bytes(void); /* of the process */
