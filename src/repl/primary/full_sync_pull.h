/* full_sync_pull.h: the full synchronization of replicas that fetch the snapshot by RDMA READ (pull/primary.h). */
#pragma once
#include "repl/primary/replicas.h"

/* Whether the replica can fetch a snapshot by RDMA READ. */
bool full_sync_pulls(const struct replica *replica);
/* Starts a snapshot for all waiting replicas that can fetch it, those with TLS or those without. False: they need an
 * ordinary copy. */
bool full_sync_pull_start(bool sealed);
/* Adds the replica to the current snapshot. False: it must wait for the next one. */
bool full_sync_pull_join(struct replica *replica);
void full_sync_pulled(struct replica *replica, int64_t chunks); /* REPLCONF PULLED */
