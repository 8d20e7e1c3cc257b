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
 * A replica that becomes a primary begins a new history with a new id. It remembers the old id, and up to which offset
 * the old history is its own (second id): the other replicas of the old primary continue with it without a full copy.
 *
 * Files
 *     history.c      the ids, the second id, and the position that an RDB file names (AUX fields)
 *     repl_stream.c  the stream: blocks shared by the backlog and all replicas
 *     repl_feed.c    from propagated commands to bytes of the stream
 *     primary.c      the replicas of this server: handshake (REPLCONF, PSYNC, SYNC), sending, acknowledgements, limits
 *     full_sync.c    the full synchronization on the primary: from a file, or through a pipe from a child process
 *     direct_transfer.c  a snapshot that the child writes to the sockets of replicas
 *     replica.c      the link to the primary: connect, handshake, partial synchronization, retry
 *     sync_load.c    the full synchronization on the replica: to a file, or straight into memory
 *     replica_expiry.c  keys with an expiry that clients of a writable replica have made
 *     apply.c        the stream of the primary: executes it, passes it on to replicas of this server, acknowledges it
 *     dual_channel.c the full copy on a connection of its own
 *     wait.c         WAIT, WAITAOF, min-replicas-to-write
 *     failover.c     FAILOVER
 *     redirect.c     -REDIRECT for clients that declared the capability
 *     repl_info.c    INFO replication, ROLE
 *     link_transport.c  over which transport a replica connects
 *     full_sync_pull.c, pull_*.c  the full copy fetched by the replica with one-sided RDMA READ
 *
 * The role itself (primary or replica, of which server, state of the link) is in server/role.h. Main thread only. */
#ifndef REPL_REPL_H
#define REPL_REPL_H
#include "lib/text/slice.h"
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
/* A new history begins; the second id is dropped. A primary does so when its stream is interrupted: the backlog was
 * freed, so that changes since then are in no stream. */
void repl_history_new(void);
/* A replica becomes a primary: the id becomes the second id, and a new id begins at the present offset. */
void repl_history_branch(void);
/* A replica continues the history of its primary: after a full synchronization from the position of the copy, or where
 * the primary's answer to PSYNC names another id (the old id becomes the second id then). */
void repl_history_adopt(const struct stream_position *position);
void repl_history_rename(struct slice id);
/* Does the history, up to and without `offset`, belong to id? */
bool repl_history_has(struct slice id, int64_t offset);

struct rdb_aux;
/* The AUX fields of RDB files, for struct repl_hooks. They are read only while the data set is loaded at start. */
size_t repl_history_write_aux(struct rdb_aux *fields);
bool repl_history_read_aux(struct slice name, struct slice value);
/* AUX field repl-stream-db. False: there is no such database; *db stays as it is. */
bool repl_history_read_db(struct slice value, int *db);
/* At start, before and after the data set is loaded: reads the AUX fields, and restores the position they name. */
void repl_history_start(void);
void repl_history_loaded(void);

/* --- What other features ask --- */
size_t repl_replicas_online(void);

/* --- Roles (replica.c): what REPLICAOF does --- */
/* `failover`: PSYNC asks the primary to hand over to this server (FAILOVER). */
void repl_follow(struct slice host, int port, bool failover);
void repl_lead(void);

/* --- Failover (failover.c) --- */
/* PSYNC with the argument FAILOVER: the primary hands its role to this replica. False: refused, with an error reply. */
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

/* The replica's connection changed roles: every replica of this server is disconnected, so that it synchronizes with
 * the new history (a partial synchronization where it can). */
void repl_disconnect_replicas(const char *reason);
/* An error that a server of the other role gets, or would get: `text` without '-'. `command` NULL: unknown. */
void repl_log_error(const char *what, struct slice text, const struct command *command);
/* redirect.c */
/* This server is a replica now. Clients that wait for keys would wait for what a replica's clients cannot do: their
 * wait ends, except for commands that only read, of clients that sent READONLY. */
void repl_end_waits(void);
#endif
