/* repl.h: replication. A replica holds a copy of its primary's data and follows every change.
 *
 * The primary writes each change, as a command, to the replication stream (repl/repl_stream.h). A position in the
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
 * Files
 *     history.c           the ids, the second id, and the position in RDB files (AUX fields)
 *     repl_stream.c       the stream: blocks shared by the backlog and all replicas
 *     repl_feed.c         writes propagated commands to the stream
 *     primary.c           the replicas of this server: sends the stream, takes acknowledgements, enforces timeouts
 *     primary_handshake.c REPLCONF, PSYNC, SYNC
 *     full_sync.c         the full synchronization on the primary: from an RDB file, or through a pipe from a child
 *     direct_transfer.c   the child process writes the snapshot straight to the sockets of replicas
 *     full_sync_pull.c, pull_*.c  replicas fetch the snapshot with one-sided RDMA READ
 *     replica.c           the link to the primary: connect, handshake, partial synchronization, retry
 *     link_transport.c    over which transport a replica connects
 *     sync_load.c         the full synchronization on the replica: to a file, or straight into memory
 *     dual_channel.c      the full synchronization on two connections, on the replica
 *     apply.c             the primary's stream: executes it, forwards it to sub-replicas, acknowledges it
 *     replica_expiry.c    expires keys that clients wrote to a writable replica
 *     wait.c              WAIT, WAITAOF, min-replicas-to-write
 *     failover.c          FAILOVER
 *     sync/               synchronous replication (sync/sync.h)
 *     redirect.c          -REDIRECT for clients that declared the capability
 *     repl_info.c         INFO replication, ROLE
 *
 * The role itself (primary or replica, of which server, state of the link) is in server/role.h. Main thread only. */
#ifndef REPL_REPL_H
#define REPL_REPL_H
#include "lib/text/slice.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <stdbool.h>
#include <stdint.h>

/* --- The history (history.c) --- */
struct repl_history {
    char second_id[REPL_ID_LEN + 1]; /* all zeros: none */
    int64_t second_offset;           /* first offset that is not part of the second id's history; -1: none */
};
extern const struct repl_history *const repl_history; /* its id, and the position in it, are role->position */
/* Begins a new history and clears the second id. A primary calls it when it frees the backlog: later changes are in no
 * stream, so no replica may continue the old history. */
void repl_history_new(void);
void repl_data_replaced(void); /* for struct repl_hooks */
/* For a replica that becomes a primary: the id becomes the second id, and a new id begins at the current offset. With
 * local changes (role.h) there is no second id. */
void repl_history_branch(void);
/* For a replica that continues its primary's history. adopt: after a full synchronization, from the position of the
 * copy. rename: the primary's reply to PSYNC names another id, and the old id becomes the second id. */
void repl_history_adopt(const struct stream_position *position);
void repl_history_rename(struct slice id);
/* Whether `id` is the id of this history for all bytes before `offset`. */
bool repl_history_has(struct slice id, int64_t offset);

struct rdb_aux;
/* The AUX fields of RDB files, for struct repl_hooks. They are read only while the data set is loaded at start. */
size_t repl_history_write_aux(struct rdb_aux *fields);
bool repl_history_read_aux(struct slice name, struct slice value);
/* AUX field repl-stream-db. False: there is no such database, and *db is unchanged. */
bool repl_history_read_db(struct slice value, int *db);
/* AUX field repl-local-changes; others are ignored. */
void repl_history_read_local_changes(struct slice name, struct slice value, struct stream_position *position);
/* Called at start, before and after the data set is loaded: collects the AUX fields, and restores their position. */
void repl_history_start(void);
void repl_history_loaded(void);

/* --- For other features --- */
size_t repl_replicas_online(void);

/* A manual failover of the cluster waits until a replica has the whole stream: nothing may be added to it. */
static inline bool repl_offset_is_final(void) {
    return server.cluster_enabled && clients_paused_for(PAUSE_FAILOVER);
}

/* Commands in the stream that only servers of ours know (SYNCSLOTS CHUNK), which announce it with REPLCONF capa.
 * repl_replicas_are_own(): all replicas do, and none is about to join that may not. repl_note_own_command(): the caller
 * is about to propagate such a command, or executes one of its primary: it drops sub-replicas that do not know it. No
 * partial synchronization gives such a command to a replica that does not know it. */
#define REPL_OWN_CAPABILITY         "slot-chunks"
#define REPL_NO_CHECKSUM_CAPABILITY "skip-rdb-checksum" /* Valkey's: see sync_needs_no_checksum() */
extern int64_t repl_own_commands_at; /* offset before which the last one begins, or at it; -1: there was none */
bool repl_replicas_are_own(void);
void repl_note_own_command(void);

/* --- Roles (replica.c), for REPLICAOF --- */
enum repl_follow {
    REPL_FOLLOW,           /* with a partial synchronization if that is possible */
    REPL_FOLLOW_UNRELATED, /* the primary has another data set: without one */
    REPL_FOLLOW_FAILOVER   /* PSYNC asks the primary to hand over to this server (FAILOVER) */
};
void repl_follow(struct slice host, int port, enum repl_follow how);
void repl_lead(void);
/* Ends the link to the primary and keeps the position. `again`: the replica connects again within a second. */
void repl_drop_link(bool again);

/* --- Failover (failover.c) --- */
/* PSYNC with the argument FAILOVER: the primary hands its role to this replica. False: it replied with an error. */
bool repl_failover_asked(struct call *call);
void repl_failover_refused(void); /* the replica refuses to take over */
bool repl_failover_running(void);
const char *repl_failover_state(void); /* as INFO shows it */

struct feature;
extern const struct feature repl_feature;
/* Its tables. */
extern const struct config_option repl_primary_options[], repl_replica_options[], wait_options[];
extern const struct command_spec repl_primary_commands[], repl_replica_commands[], wait_commands[], failover_commands[];
extern const struct debug_subcommand repl_debug_subcommands[];
extern const struct server_part failover_part, wait_part, repl_primary_part, repl_replica_part, replica_expiry_part;

/* Closes the connections of all replicas. Each reconnects and synchronizes with the new history, by a partial
 * synchronization if possible. */
void repl_disconnect_replicas(const char *reason);
/* Logs an error reply to a command of the primary or of a replica. `text` has no '-'. `command` NULL: unknown. */
void repl_log_error(const char *what, struct slice text, const struct command *command);
/* --- Redirection (redirect.c) --- */
/* Unblocks clients after this server has become a replica: they wait for a write that clients of a replica cannot make.
 * Blocked reads of clients that sent READONLY stay blocked. */
void repl_end_waits(void);
#endif
