/* machine.h: which server leads, and which writes are committed: the decisions of synchronous replication as a state
 * machine. It has no socket, clock, file or random source. tests/unit/test_sync_replication.c runs groups of them in
 * virtual time.
 *
 * The algorithm is Raft's (Ongaro, "Consensus: Bridging Theory and Practice") with joint consensus, pre-vote and leader
 * leases, over the replication stream in place of Raft's log. The words correspond so:
 *
 *     Raft                        here
 *     leader, follower            primary, replica
 *     term, voted for             struct quorum_term: the number and the id of the candidate are one value. A vote for
 *                                 a candidate is the promise of its term (state.promised)
 *     index and term of the log   offset in the stream, and the term of the data (data_term)
 *     configuration               struct quorum_set; joint consensus: `now` and `before`
 *     commit index                the committed offset
 *     lease, ReadIndex            lease.h
 *
 * The differences:
 *   - min-sync-replicas (N) chooses the quorums. In a set of M members a write needs the primary and N replicas, and an
 *     election M - N votes. Raft's majorities are the case M = 2 N + 1.
 *   - A candidate may have older data than its voters: before it leads it copies from the voter that has the newest.
 *   - Entries carry no terms. A replica takes on the term of its primary as the term of its data once it has all that
 *     the primary had when they connected.
 *   - The disk holds promises and the set, not the data. A server that restarts may have lost data that it had
 *     acknowledged; its vote does not count until a primary, or a voter, has brought it up to date (`complete`).
 *   - The primary changes the set by itself.
 *
 * A group is the set of servers (at most QUORUM_MEMBERS_MAX) that replicate one data set with `sync-replication yes`. A
 * primary leads for one term. It lists the servers that count in a set, itself included: the members.
 *
 *     write     A write is committed, and its reply may leave, when the primary and N replicas of the set have it. A
 *               replica counts only if it has this set on disk.
 *     election  A server leads a new term after M - N members have promised it the term, on disk; the server itself
 *               may be one of them. A member that has promised follows no lower term and acknowledges nothing in it.
 *               Each voter reports the term of its data and its offset. The new primary first copies from the voter
 *               with the newest data, if that is not itself. If that voter gives no copy (it runs a script), and the
 *               other votes are enough, the new primary does without it.
 *     restart   A server keeps its promises and the set, but it may have lost data that it had acknowledged. It votes
 *               for nobody until its data are complete again.
 *     change    A set that replaces another one names both (`now`, `before`). While the change is not complete, a write
 *               needs N replicas of each of the two sets, and a candidate needs the voters of both. When a write of
 *               that time is committed, the primary drops `before`.
 *     lease     A member that acknowledges promises nobody a term for the time of the lease. A primary answers reads
 *               while N members have acknowledged something that it sent less than a lease ago.
 *
 * Why no committed write is lost
 *   1. A committed write is on 1 + N members of its set (or, during a change, of both). The M - N voters of a candidate
 *      and these 1 + N are M + 1 members, so one of them is both. Its data were complete, so it still had the write; or
 *      it had promised before the write arrived, and then it did not acknowledge the write.
 *   2. The voter's data are of the term of that write or a later one. A primary begins its term with all committed
 *      writes (induction over the terms). A replica's data are of the primary's term only when the replica has
 *      everything that the primary had when they connected. Therefore data of a later term include the write. Data of
 *      the same term are prefixes of one stream, so the longest of them includes it. The candidate takes the data with
 *      the highest term, and among those the longest.
 *   3. A candidate that knows only an old set finds the newer one: a set replaced it after 1 + N of the old members had
 *      it on disk, and one of those is among the voters. The candidate then also needs the voters of that set.
 *   4. Terms carry the id of their candidate, and a server promises a term once, so a term has one primary.
 *   5. A server writes a promise, a set, or the term in which it leads to its disk before it sends a message that
 *      depends on it.
 *
 * Why no stale read is answered: the voters of a new primary and the N + 1 members of the old primary's lease have a
 * server in common, which did not promise the new term before the lease was over. The lease begins when
 * bytes were sent that they have acknowledged since. A read without a lease waits for the acknowledgement of bytes that
 * are sent after it was taken. Older acknowledgements prove nothing, however late they are read (lease.h).
 *
 * Why uncommitted writes of an old primary are not seen: their replies, and those of reads and messages that could show
 * them, waited for the commit (lease.h). The new primary may have them; then they become committed with its first
 * own entry, which is when it answers the first read.
 *
 * A server that was never in a group, and starts as a primary, establishes one: it is the only member. No other server
 * does: one that has followed a primary of a group remembers the group, and needs votes. As long as no other server has
 * joined the new group, its only member has acknowledged no write, and may still join another group.
 *
 * The primary changes the set by itself: it adds a replica that has caught up (and is sync-eligible), and it removes a
 * member that is absent for longer than `absent_ms`, if at least 2 N + 1 members remain: with fewer, the removal would
 * not help, because writes and elections need N + 1 and M - N members anyway, and it would make the return of the
 * others a condition. A server that joins takes the place of an absent member at once: beside it, the larger set would
 * need one more voter while one of its members cannot vote, and no server could fail until `absent_ms` is over. A
 * member leaves the set only after the set without it is on the disks of N + 1 members, so that it cannot be elected
 * any more without finding one of them.
 *
 * Pre-vote: a primary that starts or was deposed first asks whether the members would vote for it. That changes nothing
 * at the voters, and they refuse while they have a primary. REPLICAOF NO ONE, Sentinel and FAILOVER begin the election
 * at once.
 *
 * A candidate whose last primary has promised to follow it need not wait for the end of its own lease: leases only
 * protect the reads of that primary, which answers none after its promise. Nor does a voter that has acknowledged to
 * the candidate itself, which no longer leads.
 *
 * A server that was promoted in vain (it was cut off, and follows again), and those that have promised to follow it,
 * may acknowledge nothing in the term of the primary. The primary lets them try for some seconds, in which the
 * candidate may still win. Then the primary begins an election for a term above theirs.
 *
 * In a cluster (`waits_for_cluster`) being elected is not enough: the server must also own the slots. It is then
 * QUORUM_ELECTED, and changes nothing, until quorum_machine_lead(). Meanwhile it is like a server that leads and has no
 * replica yet: if its voters promise a higher term to another candidate, it cannot commit anything, and finds out when
 * they connect. */
#pragma once
#include "repl/quorum/protocol/record.h"

struct quorum_effects {
    /* Writes the state to disk and returns a ticket: quorum_machine_saved() says when it and all earlier ones are done.
     */
    uint64_t (*save)(void *context, const struct quorum_state *state);
    int64_t (*offset)(void *context); /* of the server's data */
    /* Requests the vote of a member; quorum_machine_voted() has the answer, if one comes. */
    void (*request_vote)(void *context, const struct quorum_member *member, const struct quorum_vote_request *request);
    void (*unfollow)(void *context);                                      /* ends the link to the primary */
    void (*copy_from)(void *context, const struct quorum_member *member); /* follows this voter, to catch up */
    void (*lead)(void *context);                                          /* the server is the primary from now on */
    void (*stand_down)(void *context); /* the server is the primary no longer: its writes are refused */
    void (*send_set)(void *context, const struct quorum_set *set);   /* to all replicas, in the stream */
    void (*say_stored)(void *context, const struct quorum_set *set); /* to the primary */
    void (*committed)(void *context, int64_t offset);
    void (*elected)(void *context); /* the server is QUORUM_ELECTED from now on */
    void (*log)(void *context, const char *text);
};

struct quorum_settings {
    int replicas;           /* min-sync-replicas */
    bool eligible;          /* sync-eligible */
    bool waits_for_cluster; /* an elected server waits for quorum_machine_lead() */
    int64_t lease_ms;       /* of an acknowledgement, as the replica keeps it; the primary must count on less */
    int64_t absent_ms;      /* after which a member may leave the set */
};

enum quorum_status {
    QUORUM_FOLLOWING,   /* a replica, or nothing yet */
    QUORUM_DEPOSED,     /* a primary that does not lead: it asks for pre-votes */
    QUORUM_CANDIDATE,   /* requests votes */
    QUORUM_CATCHING_UP, /* has enough votes, and copies from the voter with the newest data */
    QUORUM_ELECTED,     /* has votes and data, and waits for the cluster */
    QUORUM_LEADING
};

struct quorum_peer { /* a server that has said hello, or a member */
    char id[QUORUM_ID_LEN + 1];
    struct quorum_member member;
    bool linked, eligible;
    int64_t acked;    /* the offset that it has acknowledged; -1: nothing */
    int64_t since_ms; /* when `linked` changed */
    /* The set that the peer has on disk. */
    struct quorum_term stored_term;
    uint64_t stored_version;
};

enum { QUORUM_PEERS_MAX = 64 };
struct quorum_machine {
    struct quorum_settings settings;
    const struct quorum_effects *effects;
    void *context;
    struct quorum_state state; /* as the last save() got it: it may not be on disk yet */
    enum quorum_status status;
    uint64_t saved;                      /* the ticket up to which states are on disk */
    uint64_t promise_ticket, set_ticket; /* of the save that had the last promise, and the last set */
    /* The data of this server. */
    bool complete;                /* they include all that the server has ever acknowledged */
    struct quorum_term data_term; /* their term: that of the last primary whose stream they have caught up with */
    bool linked;                  /* the server follows a primary, or copies from a voter */
    bool joined;                  /* and its data are a prefix of that stream: PSYNC was answered, a copy is loaded */
    struct quorum_term link_term; /* the data will be of this term when they reach link_offset */
    int64_t link_offset;
    bool link_leads;  /* the other end of the link is a primary, not a voter that gives a copy */
    bool stored_sent; /* the primary knows that this server has the set on disk */
    /* Promises. */
    int64_t lease_until_ms;        /* the server promises nothing before: the lease of its last acknowledgement */
    struct quorum_term lease_term; /* of the primary that got this acknowledgement; 0: not known */
    int64_t pre_votes_from_ms;     /* the server grants no pre-vote before this time */
    /* The candidate. */
    struct quorum_term term; /* in which this server wants to lead, or leads */
    bool pre_voting;         /* it asks for pre-votes, not for votes */
    int64_t next_ask_ms;     /* when it requests votes again */
    int64_t give_up_ms;      /* when it begins anew: the pre-vote, or, while it copies, the election */
    struct quorum_vote votes[2 * QUORUM_MEMBERS_MAX];
    int vote_count;
    struct quorum_member source; /* the voter that it copies from, and that voter's data */
    struct quorum_term source_term;
    int64_t source_offset;
    const char *reason; /* why it does not lead; static text */
    /* The primary. */
    struct quorum_peer peers[QUORUM_PEERS_MAX];
    int peer_count;
    int64_t proposed_at; /* the offset at which the set was sent */
    int64_t committed;   /* the stream is committed up to this offset; -1: nothing is */
    /* A peer that has acknowledged this offset has caught up: it was committed at checked_ms, the time of the last
     * check. */
    int64_t caught_up_at, checked_ms;
    /* Servers that want to follow, but have promised a higher term: the highest of these terms; since when the primary
     * refuses such servers, and when it refused the last one. */
    uint64_t higher_promise;
    int64_t refused_since_ms, refused_ms;
};

/* `loaded` NULL: the server has no file; `id` is its new id. Times never go back. */
void quorum_machine_init(struct quorum_machine *machine, const struct quorum_settings *settings,
                         const struct quorum_effects *effects, void *context, const struct quorum_state *loaded,
                         const char *id, int64_t now_ms);
void quorum_machine_establish(struct quorum_machine *machine, const char *group,
                              int64_t now_ms);                              /* a primary without a group */
void quorum_machine_depose(struct quorum_machine *machine, int64_t now_ms); /* a primary that starts with a group */
/* The server becomes a candidate. Returns NULL, or why it cannot. */
const char *quorum_machine_start_election(struct quorum_machine *machine, int64_t now_ms);
const char *quorum_machine_cannot_be_elected(const struct quorum_machine *machine);
void quorum_machine_lead(struct quorum_machine *machine, int64_t now_ms); /* a server that is QUORUM_ELECTED */
/* The server leaves its group for good: it forgets its promises, and takes a new id, under which nobody counts on it.
 * For its group it is a member that has failed. */
void quorum_machine_leave(struct quorum_machine *machine, const char *id, int64_t now_ms);
/* The set is so large that the primary can replace it if it leaves, or it is not a member. */
bool quorum_machine_may_leave(const struct quorum_machine *machine);
/* The operator accepts that writes may be lost: the server leads a new set, of which it is the only member. */
void quorum_machine_force(struct quorum_machine *machine, const char *group, int64_t now_ms);
void quorum_machine_follow(struct quorum_machine *machine,
                           int64_t now_ms); /* REPLICAOF: the server neither leads nor wants to lead any more */

void quorum_machine_tick(struct quorum_machine *machine, int64_t now_ms);
void quorum_machine_saved(struct quorum_machine *machine, uint64_t ticket, int64_t now_ms);
void quorum_machine_vote_requested(struct quorum_machine *machine, const struct quorum_vote_request *request,
                                   int64_t now_ms, struct quorum_vote *vote);
void quorum_machine_voted(struct quorum_machine *machine, const struct quorum_vote *vote, int64_t now_ms);

/* --- The replica --- */
void quorum_machine_hello(const struct quorum_machine *machine, struct quorum_hello *hello);
/* The answer to its hello. NULL: it may follow; else the reason. */
const char *quorum_machine_welcomed(struct quorum_machine *machine, const struct quorum_welcome *welcome,
                                    int64_t now_ms);
void quorum_machine_link_lost(struct quorum_machine *machine);
void quorum_machine_data_lost(struct quorum_machine *machine);
void quorum_machine_set_received(struct quorum_machine *machine, const struct quorum_set *set, int64_t now_ms);
void quorum_machine_joined(struct quorum_machine *machine);   /* the stream continues its data, or a copy was loaded */
void quorum_machine_advanced(struct quorum_machine *machine); /* the offset has grown */
void quorum_machine_acknowledges(struct quorum_machine *machine, int64_t now_ms);
static inline bool
quorum_machine_is_current(const struct quorum_machine *machine) { /* the server has all data of its primary */
    return machine->linked && machine->complete && quorum_term_compare(&machine->data_term, &machine->link_term) == 0;
}

/* --- The primary --- */
/* A replica connects. NULL: *welcome is the answer; else the reason. */
const char *quorum_machine_hello_from(struct quorum_machine *machine, const struct quorum_hello *hello, int64_t now_ms,
                                      struct quorum_welcome *welcome);
/* It is online, at this address. */
void quorum_machine_peer_linked(struct quorum_machine *machine, const struct quorum_hello *hello, const char *host,
                                int port, int64_t now_ms);
void quorum_machine_peer_unlinked(struct quorum_machine *machine, const char *id, int64_t now_ms);
void quorum_machine_peer_stored(struct quorum_machine *machine, const char *id, const struct quorum_term *term,
                                uint64_t version);
void quorum_machine_peer_acked(struct quorum_machine *machine, const char *id, int64_t offset);
int quorum_machine_in_sync(const struct quorum_machine *machine); /* replicas of the set that are linked and have it */
bool quorum_machine_writable(const struct quorum_machine *machine); /* a write can be committed, if they answer */
bool quorum_machine_may_lead(const struct quorum_machine *machine); /* sync_eligible of INFO */
