/* sync.h: synchronous replication: a write is acknowledged when min-sync-replicas replicas have it, and only a server
 * that has all acknowledged writes may become the primary.
 *
 * The parts
 *     sync_who.h       who acknowledges and who may lead: a state machine, and why no acknowledged write is lost
 *     sync_lease.h     when replies and reads may leave
 *     sync_record.h    what servers tell each other and keep on disk
 *     sync.c           drives them: the reply barrier, the filter of commands, the stream, the options
 *     sync_file.c      the file of promises
 *     sync_asker.c     the connections on which a candidate asks for votes
 *     sync_info.c      INFO replication
 *
 * Messages, all of them arguments of REPLCONF (the text after the second word is that of sync_record.h):
 *     replica -> primary    SYNC-HELLO <hello>, in the handshake; the reply is a welcome
 *     replica -> primary    SYNC-STORED <term> <id> <version>: has this set on disk, and the data that belong to it
 *     candidate -> member   SYNC-ASK <ask>; the reply is a vote
 *     in the stream         COMMIT <offset>: replicas know what is committed; SYNC-SET <set>
 *     operator              SYNC-FORCE ACCEPT-LOSS
 * Acknowledgements are REPLCONF ACK, which a replica of a group sends after each turn that has executed commands.
 *
 * With `sync-replication no` nothing here runs: the hooks below cost a test of sync_on. Main thread only. */
#ifndef REPL_SYNC_SYNC_H
#define REPL_SYNC_SYNC_H
#include "repl/primary.h"
#include "repl/sync/sync_who.h"
#include "resp/request.h"
#include "server/feature.h"

extern bool sync_on; /* sync-replication yes, and started */

/* --- The replica: replica.c, apply.c --- */
void sync_write_hello(struct output *out);
/* The reply to SYNC-HELLO. NULL: go on; else why this server must not follow. */
const char *sync_welcomed(const char *line);
void sync_link_lost(void);
void sync_data_lost(void);     /* the data are about to be replaced, or are no longer a copy of the primary's */
void sync_data_copied(void);   /* a full copy is loaded, and role->position is its position */
void sync_stream_joined(void); /* the primary's stream continues the data */
bool sync_stream_request(const struct request_reader *request); /* true: it was one of its messages */
void sync_acknowledges(void);                                   /* before an acknowledgement is sent */
bool sync_acks_at_once(void);
/* REPLICAOF, FAILOVER. */
void sync_follow(void); /* before repl_follow() */
void sync_stand(void);  /* in place of repl_lead() */
bool sync_leads(void);
bool sync_stands(void); /* it is a candidate, or a primary that does not lead */

/* --- The cluster: src/cluster/effects.c ---
 *
 * A shard is a group. Two elections make a primary: the servers of the shard elect it (sync_who.h), which decides that
 * it has all acknowledged writes, and then the cluster's primaries do, which gives it an epoch and the slots. The order
 * matters: a replica that the shard has not elected asks for no votes of the cluster, so nodes of Valkey can be voters.
 *
 *     event                            what happens
 *     ------------------------------   -----------------------------------------------------------------------------
 *     the primary fails                sync_stand_for(), SYNC_ELECTED, the election of the cluster, sync_take_over()
 *     CLUSTER FAILOVER, FORCE          the same; the old primary is fenced from its promise on
 *     the cluster elects nobody        sync_follow() and repl_follow(). The promises stand: the old primary has to be
 *                                      elected again by its shard, in a higher term, and sees to that by itself
 *     CLUSTER FAILOVER TAKEOVER        sync_take_over() before any election: it owns slots, and is fenced until elected
 *     a primary restarts, or is        it is fenced, asks its shard, and leads again once elected, if for the cluster
 *     deposed by its shard             it still is the primary of the shard
 *     a node goes to another shard     sync_leave(): it forgets its group, for which it is a member that has failed
 *     … becomes an empty primary       sync_leave_and_found()
 *     it restarts before it has found  TAKEOVER may have given it the slots: it founds no group, because only the
 *     its new group                    servers of the shard have the data
 *
 * Where the two elections disagree nothing is served: the owner of the slots that does not lead its shard is fenced,
 * and a server that leads its shard without owning slots redirects its clients. */
struct sync_host {
    bool (*owns)(void);      /* this server is the primary of its shard for the cluster */
    bool (*has_slots)(void); /* … and has slots */
    void (*elected)(void);   /* its shard has elected this replica */
    void (*leads)(void);     /* it leads from now on, and serves as soon as this returns */
    /* Where other nodes reach this one; host "": not known. The host is valid until the next turn of the loop. */
    const char *(*address)(const char *node_id, int *port);
};
extern const struct sync_host *sync_host; /* NULL: no cluster mode */
bool sync_is_elected(void);               /* it may lead, or does */
/* A replica stands for election. `polite`: not if it cannot win, or has just promised to follow another candidate. */
void sync_stand_for(bool polite);
void sync_take_over(void);
void sync_leave(void);
void sync_leave_and_found(void);
bool sync_may_leave(void);
bool sync_has_joined(void); /* this replica's data are those of the stream it follows, or were when the link was up */
/* Slot migration. The stream up to `offset` is committed; this server leads for certain at this moment. True where
 * synchronous replication is off. */
bool sync_has_committed(int64_t offset);
bool sync_leads_for_certain(void);
extern bool sync_fsync; /* sync-replication-fsync */

/* --- The primary: primary.c, primary_handshake.c --- */
bool sync_replconf(struct call *call); /* true: it was one of its messages */
/* The error for a PSYNC or SYNC; NULL: none. *catches_up: the client is a candidate, which may copy from a replica. */
const char *sync_refuses_copy(const struct replica *replica, bool *catches_up);
void sync_replica_left(struct replica *replica);
void sync_replica_freed(struct replica *replica);
void sync_replica_acked(struct replica *replica);

void sync_write_info(struct output *out);
extern const struct config_option sync_options[];
extern const struct server_part sync_part;

/* --- Between its files --- */
struct sync_settings_of_server {
    bool on, eligible, fsync;
    int replicas;
    char *file;
};
extern struct sync_settings_of_server sync_settings;
extern struct sync_who sync_who;
/* Not the cached time: a process that was frozen must notice. Not ticks.h, and not CLOCK_MONOTONIC: they may stand
 * still while the machine is suspended, and a server that comes back would believe in its old lease. */
int64_t sync_now_ms(void);
bool sync_file_load(struct sync_state *state); /* false: there is no file. Exits the process if it is damaged */
uint64_t sync_file_save(const struct sync_state *state);
void sync_file_stop(void);
void sync_asker_ask(const struct sync_member *member, const struct sync_ask *ask);
struct sync_progress {
    int64_t committed;
    size_t waiting; /* marks */
    bool lease;
};
void sync_progress(struct sync_progress *progress);
#endif
