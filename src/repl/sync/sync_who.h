/* sync_who.h: who acknowledges, and who may lead: the decisions of synchronous replication as a state machine. It has
 * no socket, clock, file or random source. tests/unit/test_sync_replication.c runs groups of them in virtual time.
 *
 * A group is the set of servers (at most SYNC_MEMBERS_MAX) that replicate one data set with `sync-replication yes`. A
 * primary leads for one term. It lists the servers that count in a set, itself included: the members. N is
 * min-sync-replicas, M the number of members.
 *
 *     write     A write is committed, and its reply may leave, when the primary and N replicas of the set have it. A
 *               replica counts only if it has this set on disk.
 *     election  A server leads a new term after M - N members have promised it the term, on disk; the server itself
 *               may be one of them. A member that has promised follows no lower term and acknowledges nothing in it.
 *               The voters tell what they have: the term of their data, and the offset. The new primary first copies
 *               from the voter that has most, if that is not itself. If that voter gives no copy (it runs a script),
 *               and the other votes are enough, the new primary does without it.
 *     restart   A server keeps its promises and the set, but it may have lost data that it had acknowledged. It is then
 *               not `sure`: it votes for nobody until a primary, or a voter, has brought it up to date.
 *     change    A set that replaces another one names both (`now`, `before`). While it is on its way, writes need the
 *               replicas of both, and a candidate needs the voters of both. When a write of that time is committed, the
 *               primary drops `before`.
 *     lease     A member that acknowledges promises nobody a term for the time of the lease. A primary answers reads
 *               while N members have acknowledged something that it sent less than a lease ago.
 *
 * Why no committed write is lost
 *   1. A committed write is on 1 + N members of its set (or, during a change, of both). The M - N voters of a candidate
 *      and these 1 + N are M + 1 members, so one of them is both. It was sure, so it still had the write; or it had
 *      promised before the write arrived, and then it did not acknowledge it.
 *   2. The voter's data are of the term of that write or a later one. A primary begins its term with all committed
 *      writes (induction over the terms), and a server takes on the term of its data only when it has everything that
 *      the primary had when they connected. So data of a later term include the write; of data of the same term, which
 *      are prefixes of one stream, the longer ones do. The candidate takes the data that compare highest.
 *   3. A candidate that knows only an old set finds the newer one: a set replaced it after 1 + N of the old members had
 *      it on disk, and one of those is among the voters. The candidate then also needs the voters of that set.
 *   4. Terms carry the id of their candidate, and a server promises a term once, so a term has one primary.
 *   5. Nothing is said before it is on disk: a promise, a set, a term in which a server leads.
 *
 * Why no stale read is answered: the voters of a new primary and the N + 1 members of the old primary's lease have a
 * server in common, which did not promise the new term before the lease was over. The lease begins when
 * bytes were sent that they have acknowledged since. A read without a lease waits for the acknowledgement of bytes that
 * are sent after it was taken. Older acknowledgements prove nothing, however late they are read (sync_lease.h).
 *
 * Why uncommitted writes of an old primary are not seen: their replies, and those of reads and messages that could show
 * them, waited for the commit (sync_lease.h). The new primary may have them; then they become committed with its first
 * own entry, which is when it answers the first read.
 *
 * A server that was never in a group, and starts as a primary, founds one, with a set of its own. No other server does:
 * one that has followed a primary of a group remembers the group, and needs votes. While nobody has joined the group
 * that a server has founded, it has acknowledged nothing and may still join another one.
 *
 * The primary changes the set by itself: it adds a replica that has caught up (and is sync-eligible), and it removes a
 * member that is absent for longer than `absent_ms`, if at least 2 N + 1 members remain: with fewer, the removal would
 * not help, because writes and elections need N + 1 and M - N members anyway, and it would make the return of the
 * others a condition. A server that joins takes the place of an absent member at once: beside it, the larger set would
 * need one more voter while one of its members cannot vote, and no server could fail until `absent_ms` is over. A
 * member leaves the set only after the set without it is on the disks of N + 1 members, so that it cannot be elected
 * any more without finding one of them.
 *
 * A primary that starts or was deposed asks politely: a probe changes nothing at the voters, and they refuse it while
 * they have a primary. REPLICAOF NO ONE, Sentinel and FAILOVER stand at once.
 *
 * A candidate whose last primary has promised to follow it need not wait for the end of its own lease: leases only
 * protect the reads of that primary, which answers none after its promise. Nor does a voter that has acknowledged to
 * the candidate itself, which has stood down.
 *
 * A server that was promoted in vain (it was cut off, and follows again), and those that have promised to follow it,
 * may acknowledge nothing in the term of the primary. The primary lets them try for some seconds, in which the
 * candidate may still win. Then it stands for a term above theirs.
 *
 * In a cluster (`waits`) being elected is not enough: the server must also own the slots. It is then SYNC_ELECTED, and
 * changes nothing, until sync_who_lead(). Meanwhile it is like a server that leads and has no replica yet: if its
 * voters promise a higher term to another candidate, it cannot commit anything, and finds out when they connect. */
#ifndef REPL_SYNC_SYNC_WHO_H
#define REPL_SYNC_SYNC_WHO_H
#include "repl/sync/sync_record.h"

struct sync_effects {
    /* Writes the state to disk and returns a ticket: sync_who_saved() says when it and all earlier ones are done. */
    uint64_t (*save)(void *context, const struct sync_state *state);
    int64_t (*offset)(void *context); /* of the server's data */
    /* Asks a member for a vote; sync_who_voted() has the answer, if one comes. */
    void (*ask)(void *context, const struct sync_member *member, const struct sync_ask *ask);
    void (*unfollow)(void *context);                                    /* ends the link to the primary */
    void (*copy_from)(void *context, const struct sync_member *member); /* follow this voter, to catch up */
    void (*lead)(void *context);                                        /* is the primary from now on */
    void (*stand_down)(void *context);                                  /* no longer: its writes are refused */
    void (*send_set)(void *context, const struct sync_set *set);        /* to all replicas, in the stream */
    void (*say_stored)(void *context, const struct sync_set *set);      /* to the primary */
    void (*committed)(void *context, int64_t offset);
    void (*elected)(void *context); /* is SYNC_ELECTED from now on */
    void (*log)(void *context, const char *text);
};

struct sync_settings {
    int replicas; /* min-sync-replicas */
    bool eligible;
    bool waits;        /* once elected, for sync_who_lead() */
    int64_t lease_ms;  /* of an acknowledgement, as the replica keeps it; the primary must count on less */
    int64_t absent_ms; /* after which a member may leave the set */
};

enum sync_status {
    SYNC_FOLLOWING,   /* a replica, or nothing yet */
    SYNC_DEPOSED,     /* a primary that does not lead: it probes */
    SYNC_STANDING,    /* asks for votes */
    SYNC_CATCHING_UP, /* has them, and copies from the voter that has most */
    SYNC_ELECTED,     /* has votes and data, and waits */
    SYNC_LEADING
};

struct sync_peer { /* a server that has said hello, or a member */
    char id[SYNC_ID_LEN + 1];
    struct sync_member member;
    bool linked, eligible;
    int64_t acked;    /* -1: nothing */
    int64_t since_ms; /* when `linked` changed */
    struct sync_term stored_term;
    uint64_t stored_version;
};

enum { SYNC_PEERS_MAX = 64 };
struct sync_who {
    struct sync_settings settings;
    const struct sync_effects *effects;
    void *context;
    struct sync_state state;
    enum sync_status status;
    uint64_t saved, promise_ticket, set_ticket; /* tickets */
    /* The data. */
    bool sure;
    struct sync_term data;
    bool linked;                /* follows a primary, or copies from a voter */
    bool joined;                /* and the data are a prefix of its stream: PSYNC was answered, a copy is loaded */
    struct sync_term link_term; /* of the data at link_offset */
    int64_t link_offset;
    bool link_leads;
    bool said;
    /* Promises. */
    int64_t may_promise_ms;    /* the lease of the last acknowledgement */
    struct sync_term lease_of; /* the primary that got it; 0: not known */
    int64_t polite_ms;         /* no probe is granted before this time */
    /* The candidate. */
    struct sync_term standing; /* the term that it stands for or leads in */
    bool probing;
    int64_t next_ask_ms, give_up_ms;
    struct sync_vote votes[2 * SYNC_MEMBERS_MAX];
    int vote_count;
    struct sync_member best;
    struct sync_term best_data;
    int64_t best_offset;
    const char *obstacle; /* why it does not lead; static text */
    /* The primary. */
    struct sync_peer peers[SYNC_PEERS_MAX];
    int peer_count;
    int64_t proposed_at; /* the offset at which the set was sent */
    int64_t committed;
    int64_t caught_up_at, checked_ms; /* committed at the last tick */
    /* Servers that have promised a higher term and want to follow: the highest of these terms; since when some have
     * been refused, and when the last one was. */
    uint64_t outpromised;
    int64_t refused_since_ms, refused_ms;
};

/* `loaded` NULL: the server has no file; `id` is its new id. Times never go back. */
void sync_who_init(struct sync_who *who, const struct sync_settings *settings, const struct sync_effects *effects,
                   void *context, const struct sync_state *loaded, const char *id, int64_t now_ms);
void sync_who_found(struct sync_who *who, const char *group, int64_t now_ms); /* a primary without a group */
void sync_who_depose(struct sync_who *who, int64_t now_ms);                   /* a primary that starts with a group */
/* Stands for election. Returns NULL, or why it cannot. */
const char *sync_who_stand(struct sync_who *who, int64_t now_ms);
const char *sync_who_cannot_stand(const struct sync_who *who);
void sync_who_lead(struct sync_who *who, int64_t now_ms); /* a server that is SYNC_ELECTED */
/* Leaves its group for good: it forgets its promises, and takes a new id, under which nobody counts on it. For its
 * group it is a member that has failed. */
void sync_who_leave(struct sync_who *who, const char *id, int64_t now_ms);
/* The set is so large that the primary can replace it if it leaves, or it is not a member. */
bool sync_who_may_leave(const struct sync_who *who);
/* The operator accepts that writes may be lost: leads with a set of its own. */
void sync_who_force(struct sync_who *who, const char *group, int64_t now_ms);
void sync_who_follow(struct sync_who *who, int64_t now_ms); /* REPLICAOF: gives up to lead or to stand */

void sync_who_tick(struct sync_who *who, int64_t now_ms);
void sync_who_saved(struct sync_who *who, uint64_t ticket, int64_t now_ms);
void sync_who_asked(struct sync_who *who, const struct sync_ask *ask, int64_t now_ms, struct sync_vote *vote);
void sync_who_voted(struct sync_who *who, const struct sync_vote *vote, int64_t now_ms);

/* --- The replica --- */
void sync_who_hello(const struct sync_who *who, struct sync_hello *hello);
/* The answer to its hello. NULL: it may follow; else the reason. */
const char *sync_who_welcomed(struct sync_who *who, const struct sync_welcome *welcome, int64_t now_ms);
void sync_who_link_lost(struct sync_who *who);
void sync_who_data_lost(struct sync_who *who);
void sync_who_got_set(struct sync_who *who, const struct sync_set *set, int64_t now_ms);
void sync_who_joined(struct sync_who *who);   /* the stream continues its data, or a copy was loaded */
void sync_who_advanced(struct sync_who *who); /* the offset has grown */
void sync_who_acknowledges(struct sync_who *who, int64_t now_ms);
static inline bool sync_who_is_current(const struct sync_who *who) { /* has said that it has the primary's data */
    return who->linked && who->sure && sync_term_compare(&who->data, &who->link_term) == 0;
}

/* --- The primary --- */
/* A replica connects. NULL: *welcome is the answer; else the reason. */
const char *sync_who_hello_from(struct sync_who *who, const struct sync_hello *hello, int64_t now_ms,
                                struct sync_welcome *welcome);
/* It is online, at this address. */
void sync_who_peer_linked(struct sync_who *who, const struct sync_hello *hello, const char *host, int port,
                          int64_t now_ms);
void sync_who_peer_unlinked(struct sync_who *who, const char *id, int64_t now_ms);
void sync_who_peer_stored(struct sync_who *who, const char *id, const struct sync_term *term, uint64_t version);
void sync_who_peer_acked(struct sync_who *who, const char *id, int64_t offset);
int sync_who_in_sync(const struct sync_who *who);   /* replicas of the set that are linked and have it */
bool sync_who_writable(const struct sync_who *who); /* a write can be committed, if they answer */
bool sync_who_may_lead(const struct sync_who *who); /* sync_eligible of INFO */
#endif
