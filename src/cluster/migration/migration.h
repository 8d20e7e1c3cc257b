/* migration.h: atomic migration of slots: CLUSTER MIGRATESLOTS and its protocol, both ends.
 *
 * A job moves slots of one primary (the source) to another (the target). Nothing changes for clients until the end:
 * the source serves the slots, and the target hides their keys. Then the target takes all slots of the job at once.
 *
 *     source                                       target
 *     ------------------------------------------   -----------------------------------------------------
 *     dials the port of clients; AUTH
 *     SYNCSLOTS ESTABLISH source, job, slots       checks, hides the slots, +OK. From here on it never replies
 *     SYNCSLOTS ACK, then commands that create     executes them, and passes them to its replicas and its
 *       the keys of the slots: a snapshot            append-only file
 *     SYNCSLOTS SNAPSHOT-EOF                       SYNCSLOTS REQUEST-PAUSE
 *     the changes since a slot's snapshot
 *     holds its clients' writes
 *     SYNCSLOTS PAUSED                             SYNCSLOTS REQUEST-FAILOVER
 *     SYNCSLOTS FAILOVER-GRANTED [EPOCH epoch]     takes the slots, tells the cluster, shows the keys
 *     learns the new owner from the cluster bus, drops the keys, and lets the writes go on: they get MOVED
 *
 * A node that takes slots claims all its slots with a larger epoch. If it had granted some of them to another node that
 * has not claimed them yet, the two claims would conflict, and the keys would be lost. So a node never has a granted
 * export and a requested import at the same time: between its request for an import and the claim it neither grants nor
 * begins to hold writes, and while a grant of its own is open it requests nothing, and takes no slots back.
 *
 * Two nodes that hold writes for each other could wait for each other for ever. So a node that holds writes requests
 * only if its id is larger than that of the source: ids decrease along each chain of nodes that wait, and the last one
 * grants.
 *
 * The snapshot of a slot is of one moment, between two commands of clients: that at which the source wrote the slot, or
 * at which it began a view of this and other slots (snapshot.h).
 *
 * Between our nodes the snapshot travels as fragments of an RDB file in place of commands. Before the snapshot the
 * source sends SYNCSLOTS CAPA slot-chunks to a node that says on the cluster bus that it knows it
 * (OWN_FEATURE_SLOT_CHUNKS), and the target answers with the same, or with none while notify-keyspace-events is set
 * there: only commands cause the events. Then SYNCSLOTS CHUNK job bytes brings some keys at a time
 * (formats/rdb_fragment.h); values too large for a chunk still come as commands. The target passes the chunk on to its
 * replicas if all of them have announced REPLCONF capa slot-chunks; its append-only file gets commands. Nodes of Valkey
 * see none of this.
 *
 * A source that has sent CAPA sends ACK behind the changes since the snapshot. The target requests the pause when it
 * reads this ACK, because it has executed the changes then. An earlier pause would hold the clients' writes for as long
 * as the changes are on their way.
 *
 * With synchronous replication (repl/quorum/quorum.h) the keys are not lost with a server of either shard. The target
 * requests the failover when its shard has committed all keys. The source writes the grant into its stream, and grants
 * while it leads for certain, when that is committed. The target then writes SYNCSLOTS TAKE into its stream, and claims
 * the slots while it leads for certain, when that is committed. Meanwhile the source holds the reads and writes of its
 * clients. CANCELSLOTMIGRATIONS does not end that, although the job is shown as cancelled at once. If the source dies,
 * restarts or has waited for too long, its shard does not serve the slots, and asks the leader of the target's shard
 * for the outcome: protocol/migration_machine.h. With a target that does not know the question (Valkey), the source
 * holds its commands until the target, or its successor, speaks later without a claim.
 *
 * Both ends also send SYNCSLOTS ACK each second. A job without a sign of life for repl-timeout fails. Whatever ends a
 * job before the last step leaves the slots with the source; the target deletes the keys.
 *
 * The replicas of the target and its append-only file get ESTABLISH at the beginning, which hides the slots there, too,
 * and FINISH at the end, which shows the keys or deletes them. RDB files carry the jobs that are in progress. A server
 * that finds such a job in its files, or in the stream of its primary, tracks it. So does a target that becomes a
 * replica: its new primary, which has the job from the stream, ends it.
 *
 * Files
 *     protocol/         what both ends decide, as a state machine (migration_machine.h), and the messages (messages.h)
 *     host.c            the machine of this server: what it decides, carried out, and the events that concern all jobs
 *     link.h            the link of a job, and what all files use of the machine
 *     source_link.c     the link of an export: dial, handshake, messages
 *     source_stream.c   the changes of the slots of an export, for its target
 *     snapshot.h        their keys, as the source sends them: snapshot.c, snapshot_write.c, snapshot_loans.c
 *     command_pieces.h  an output whose requests another thread passes on
 *     target_link.c     the link of an import, and the keys of its slots
 *     chunk.c           chunks of a snapshot, at the target
 *     pull.h            chunks that are fetched by RDMA READ: pull_source.c, pull_target.c
 *     question.c        the question for the outcome of a grant
 *     files.c           jobs in RDB files and in the append-only file
 *     commands.c        the subcommands of CLUSTER and DEBUG
 *
 * Main thread only. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"
#include "formats/rdb_file.h"
#include "server/command/command.h"

extern struct migration_settings migration_settings; /* those of the options are set by options.c */

void migration_start(void);
void migration_tick(void);        /* ten times a second */
void migration_before_wait(void); /* at the end of a turn, outside of commands and loads */
void migration_stop(void);        /* the server exits */

bool migration_imports(unsigned slot); /* a job that is in progress has this slot */
/* A client deletes the keys of this slot. Its import fails, as by FLUSHALL: what had come would be missing. */
void migration_slot_flushed(unsigned slot);
/* No slot is moved by hand meanwhile, as in Valkey; of a job that is tracked only its own slots. -1: none is named. */
bool migration_excludes_setslot(int slot, bool is_import);
/* The node has been allowed to take this slot. */
bool migration_granted(unsigned slot, const struct cluster_node *node, uint64_t epoch);

/* Its shard has granted this slot to another shard, and does not know whether that took it. */
bool migration_leaves(unsigned slot);
/* A target was granted slots that this node still owns, and may be about to claim them. */
bool migration_awaits_claim(void);
void migration_leads(void); /* this server leads its shard from now on (struct quorum_host) */
/* This server has left its shard, or its cluster, and leads a shard of its own: the jobs are those of the old one. */
void migration_left_shard(void);

/* struct cluster_hooks */
size_t migration_write_aux(struct rdb_aux *fields); /* at most two */
void migration_read_aux(struct slice name, struct slice value);
void migration_write_commands(struct output *out);
size_t migration_imports_list(const struct rdb_slot_import **list);
void migration_read_import(const struct rdb_slot_import *import);
void migration_load_begins(void);
void migration_loaded(void);
void migration_memory(size_t *imports, size_t *exports);
void migration_traffic(uint64_t *imported, uint64_t *exported);

void migration_migrateslots_run(struct call *call);
void migration_getslotmigrations_run(struct call *call);
void migration_cancelslotmigrations_run(struct call *call);
void migration_syncslots_run(struct call *call);
void migration_debug_run(struct call *call); /* DEBUG SLOTMIGRATION */
