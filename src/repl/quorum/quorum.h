/* quorum.h: synchronous replication: a write is acknowledged when min-sync-replicas replicas have it, and only a server
 * that has all acknowledged writes may become the primary. Options, INFO fields and messages begin with "sync"; in the
 * source that word means the full synchronization, and synchronous replication is `quorum_`.
 *
 * The parts
 *     protocol/machine.h   which server leads and what is committed: a state machine, and why no acknowledged write is
 *                          lost
 *     protocol/lease.h     when replies and reads may leave
 *     protocol/record.h    what servers tell each other and keep on disk
 *     quorum.c             drives them: the reply barrier, the filter of commands, the stream, the options
 *     file.h               the file of promises
 *     question.h           the connections on which a candidate requests votes
 *     info.h               INFO replication
 *
 * Messages, all of them arguments of REPLCONF (the text after the second word is that of record.h):
 *     replica -> primary    SYNC-HELLO <hello>, in the handshake; the reply is a welcome
 *     replica -> primary    SYNC-STORED <term> <id> <version>: has this set on disk, and the data that belong to it
 *     candidate -> member   SYNC-ASK <request>; the reply is a vote
 *     in the stream         COMMIT <offset>: replicas know what is committed; SYNC-SET <set>
 *     operator              SYNC-FORCE ACCEPT-LOSS
 * Acknowledgements are REPLCONF ACK, which a replica of a group sends after each turn that has executed commands.
 *
 * With `sync-replication no` nothing here runs: the functions below cost a test of quorum_on. Main thread only. */
#pragma once
#include "repl/primary/replicas.h"
#include "repl/quorum/protocol/machine.h"
#include "resp/request.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/server.h"

extern bool quorum_on;    /* sync-replication is yes, and the server has started */
extern bool quorum_fsync; /* sync-replication-fsync */

/* --- For the replica's side --- */
void quorum_write_hello(struct output *out);
/* Reads the primary's reply to SYNC-HELLO. Returns NULL if this server may follow the primary, else the reason. */
const char *quorum_welcomed(const char *line);
void quorum_link_lost(void);
void quorum_data_lost(void);     /* the data are about to be replaced, or are no longer a copy of the primary's */
void quorum_data_copied(void);   /* a full copy is loaded, and role->position is its position */
void quorum_stream_joined(void); /* the primary's stream continues the data */
bool quorum_stream_request(const struct request_reader *request); /* true: the request was COMMIT or SYNC-SET */
void quorum_acknowledges(void);                                   /* before an acknowledgement is sent */
bool quorum_acks_at_once(void);

/* --- For REPLICAOF and FAILOVER --- */
void quorum_follow(void);         /* before repl_follow() */
void quorum_start_election(void); /* in place of repl_lead() */
bool quorum_leads(void);
bool quorum_campaigns(void); /* this server is a candidate, or a primary without a current election */

/* --- For the cluster: src/cluster/effects.c ---
 *
 * A shard is a group. Two elections make a primary: the servers of the shard elect it (machine.h), which decides that
 * it has all acknowledged writes, and then the cluster's primaries do, which gives it an epoch and the slots. The order
 * matters: a replica that the shard has not elected asks for no votes of the cluster, so nodes of Valkey can be voters.
 *
 *     the primary fails
 *         quorum_start_shard_election(), QUORUM_ELECTED, the election of the cluster, quorum_take_over()
 *     CLUSTER FAILOVER, FORCE
 *         the same; the old primary is fenced from its promise on
 *     the cluster elects nobody
 *         quorum_follow() and repl_follow(). The promises of the voters remain valid, so the old primary stands for
 *         election in its shard again, in a higher term
 *     CLUSTER FAILOVER TAKEOVER
 *         quorum_take_over() before any election: the server owns slots, and is fenced until elected
 *     a primary restarts, or is deposed by its shard
 *         it is fenced and stands for election in its shard. If it wins, and the cluster still has it as the primary of
 *         the shard, it leads again
 *     a node goes to another shard
 *         quorum_leave(): the node forgets its group. The group treats it as a member that has failed
 *     a node becomes an empty primary
 *         quorum_leave_and_establish()
 *     a node goes to another shard and restarts before it has connected to that shard's group
 *         the node establishes no group, even if TAKEOVER gave it the slots: only the servers of the shard have the
 *         data
 *
 * Where the two elections disagree, no server serves the slots: a server that owns the slots and does not lead its
 * shard is fenced, and a server that leads its shard and owns no slots redirects its clients. */
struct quorum_host {
    bool (*owns)(void);      /* this server is the primary of its shard for the cluster */
    bool (*has_slots)(void); /* the same, and it owns slots */
    void (*elected)(void);   /* the shard has elected this server, which is a replica */
    void (*leads)(void);     /* this server leads from now on, and serves as soon as the function returns */
    /* The address at which other nodes reach the node with this id. Returns "" if it is not known. The text is valid
     * until the next turn of the loop. */
    const char *(*address)(const char *node_id, int *port);
};
extern const struct quorum_host *quorum_host; /* NULL: no cluster mode */
bool quorum_is_elected(void);                 /* this server may lead, or does */
/* A replica becomes a candidate. `only_if_possible`: not if it cannot win, or has just promised to follow another
 * candidate. */
void quorum_start_shard_election(bool only_if_possible);
void quorum_take_over(void);
void quorum_leave(void);
void quorum_leave_and_establish(void);
bool quorum_may_leave(void);
bool quorum_has_joined(void); /* this replica's data are those of the stream it follows, or were when the link was up */
/* For slot migration; both return true where synchronous replication is off. Whether the stream is committed up to
 * `offset`; whether this server has a valid lease at this moment, so that no other server can lead. */
bool quorum_has_committed(int64_t offset);
bool quorum_leads_for_certain(void);

/* --- For the primary's side --- */
bool quorum_replconf(struct call *call); /* true: the command was one of the messages above */
/* Returns the error with which a PSYNC or SYNC is refused, or NULL. Sets *catches_up if the client is a candidate: a
 * candidate may copy from a replica. */
const char *quorum_refuses_copy(const struct replica *replica, bool *catches_up);
void quorum_replica_left(struct replica *replica);
void quorum_replica_acked(struct replica *replica);

extern const struct config_option quorum_options[];
extern const struct server_part quorum_part;

/* --- For the other files of this directory --- */
struct quorum_config { /* the options */
    bool on, eligible, fsync;
    int replicas;
    char *file;
};
extern struct quorum_config quorum_config;
extern struct quorum_machine quorum_machine;
/* The time by which leases are measured. It is not the cached time, because a process that was frozen must notice the
 * time that has passed. It is neither ticks.h nor CLOCK_MONOTONIC, which may not advance while the machine is
 * suspended: a server that continues would believe that its old lease is valid. */
int64_t quorum_now_ms(void);
struct quorum_progress {
    int64_t committed; /* the offset up to which the stream is committed */
    size_t waiting;    /* the number of marks that are not committed */
    bool lease;        /* the primary has a lease, and answers reads at once */
};
void quorum_progress(struct quorum_progress *progress);
void quorum_write_info(struct output *out); /* info.c */
