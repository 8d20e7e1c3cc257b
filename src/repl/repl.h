/* repl.h: replication. A replica holds a copy of its primary's data and follows every change.
 *
 * The primary writes each change, as a command, to the replication stream (repl/stream.h). A position in the
 * stream is an offset: the number of bytes before it, counted from the start of the history. A history has an id of 40
 * hexadecimal digits. Two servers with the same id and the same offset hold the same data.
 *
 *     replica                                   primary
 *     PING, AUTH, REPLCONF ...           ->
 *     PSYNC <id> <offset + 1>            ->
 *                                        <-     +CONTINUE [<id>]           and the stream from that offset on
 *                                        <-     +FULLRESYNC <id> <offset>  and an RDB file, then the stream
 *     REPLCONF ACK <offset>              ->     (each second)
 *
 * A replica that becomes a primary begins a new history with a new id. It keeps the old id as its second id, with the
 * offset up to which the two histories are equal. The other replicas of the old primary can then continue without a
 * full synchronization.
 *
 * In this directory is what both sides share, or what is about all of it:
 *     stream.h            the stream: blocks shared by the backlog and all replicas
 *     feed.h              writes propagated commands to the stream
 *     history.h           the ids, the second id, and the position in RDB files (AUX fields)
 *     link_transport.h    over which transport a replica connects
 *     roles.h             what changes this server's role
 *     settings.h          the options; options.c has their rows
 *     info.c, debug.c     INFO replication, ROLE; DEBUG
 *     repl.c              the feature
 *
 * The directories, lowest first (utils/check-walls has the order of their files):
 *     pull/       a snapshot that replicas fetch by one-sided RDMA READ; slot migration uses it, too
 *     quorum/     synchronous replication (quorum/quorum.h)
 *     primary/    the replicas of this server
 *         replicas.h          the list of replicas, and what each is
 *         main_channels.h     main channels of dual-channel replicas that have not connected yet
 *         primary.h           sends the stream, takes acknowledgements, enforces timeouts
 *         handshake.c         REPLCONF, PSYNC, SYNC
 *         full_sync.h         the full synchronization: from a file (full_sync_file.h), as a stream
 *                             (full_sync_stream.h), by RDMA READ (full_sync_pull.h); replicas that are too
 *                             slow for it (full_sync_slow.h)
 *         wait.h              WAIT, WAITAOF, min-replicas-to-write
 *         failover.h          FAILOVER
 *     replica/    the link to the primary
 *         link.h              connect, handshake, partial synchronization, retry
 *         copy.h              the full synchronization: to a file, or straight into memory
 *         dual_channel.h      the full synchronization on two connections
 *         apply.h             the primary's stream: executes it, forwards it to sub-replicas, acknowledges it
 *         replicaof.c         REPLICAOF
 *         expiry.c            expires keys that clients wrote to a writable replica
 *         redirect.c          -REDIRECT for clients that declared the capability
 *
 * The role itself (primary or replica, of which server, state of the link) is in server/role.h. Main thread only. */
#pragma once
#include "server/debug/debug.h"
#include "server/feature.h"
#include "server/stats/info.h"
#include "server/stats/memory_report.h"

extern const struct feature repl_feature;
extern const struct debug_subcommand repl_debug_subcommands[]; /* debug.c */

/* info.c */
extern const struct info_section repl_sections[];
void repl_write_role(struct reply *reply);
void repl_report_memory(struct memory_report *report);
size_t repl_uncounted_memory(void); /* bytes that do not count towards maxmemory */
