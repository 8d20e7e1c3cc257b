/* full_sync_slow.h: replicas that kept writes of clients waiting. During a save the main thread serializes what
 * commands are about to change. While a replica is slower than that, the bytes collect in memory, and beyond
 * forkless-buffer-limit writes of clients wait for the replica (persistence/forkless.h).
 *
 * The full synchronization drops a replica that has kept writes waiting for repl-timeout, or, if it fetches the copy,
 * for rdma-replication-max-wait. The same would happen to its next copy. So for an hour the replica gets its copies
 * from a file, which is written at the speed of the disk.
 *
 * Main thread only. */
#pragma once
#include "repl/primary/replicas.h"

/* Remembers the replica. The caller drops it. */
void full_sync_slow_note(const struct replica *replica, int64_t waited_ms);
/* No file could be written for it: its next copy is a stream again. */
void full_sync_slow_forget(const struct replica *replica);
bool full_sync_is_slow(const struct replica *replica); /* its copy comes from a file */
extern uint64_t full_sync_dropped_slow;                /* replicas, since the start */
