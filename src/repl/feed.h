/* feed.h: writes propagated commands to the replication stream (stream.h). */
#pragma once
#include "lib/text/slice.h"
#include "server/clients/client.h"
#include "server/server.h"

/* Starts or stops listening to propagation: it listens while the stream is active and this server is a primary. Call it
 * after either has changed. */
void repl_feed_update(void);
/* Writes SELECT before the next command: a replica that begins at a snapshot has no database selected. No effect on a
 * replica, whose sub-replicas get the stream of its primary. */
void repl_feed_select_again(void);
/* Write commands that concern no database. No effect while the stream is not active or this server is a replica. */
void repl_feed_ping(void);
void repl_feed_request(int argc, const struct slice *argv);
void repl_feed_getack(void); /* asks all replicas for REPLCONF ACK */

/* A manual failover of the cluster waits until a replica has the whole stream: nothing may be added to it. */
static inline bool repl_offset_is_final(void) {
    return server.cluster_enabled && clients_paused_for(PAUSE_FAILOVER);
}

/* Some commands in the stream (SYNCSLOTS CHUNK) are known to servers of ours only, which announce REPL_OWN_CAPABILITY.
 * No partial synchronization gives such a command to a replica that does not know it: the offset before which the last
 * one begins, or at it; -1: there was none. primary/replicas.h has what writers of such commands call. */
extern int64_t repl_own_commands_at;
#define REPL_OWN_CAPABILITY         "slot-chunks"
#define REPL_NO_CHECKSUM_CAPABILITY "skip-rdb-checksum" /* Valkey's: see copy_needs_no_checksum() */
