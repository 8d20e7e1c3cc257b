/* outcome.h: which shard owns the slots of a migration whose source or target died after the grant: the decisions,
 * without connections, clocks or data. With synchronous replication on both sides (migration.h).
 *
 * The source writes the grant into its stream, and grants when that is committed. From then on the target's shard
 * decides, by its own stream. The target writes SYNCSLOTS TAKE there, claims the slots when that is committed, and
 * writes FINISH, with the epoch of the claim: a replica that has not heard the claim on the bus learns it there. Each
 * leader of the target's shard claims the slots of jobs with TAKE, and ends jobs without it as failed.
 *
 * Each leader of the source's shard knows the grant, serves the slots no more, and asks the leader of the target's
 * shard until it knows the outcome:
 *
 *     taken      the target claims the slots on the cluster bus. The source's shard forgets the job. Its stream names
 *                the owner, for replicas that the bus does not reach
 *     refused    the target's shard has committed that the job has failed. It will never take the slots for this job,
 *                so the source's shard takes them back, with a new epoch
 *
 * A question about a job that waits for its grant is the grant, because only a source that has granted asks. The keys
 * are complete at the target, which requests the grant after its shard has committed them.
 *
 * While the source itself waits it holds the commands of its clients, which then find the slots where they are. If the
 * target's shard does not answer for long, or the job is cancelled, it gives up the slots like a successor of its own,
 * so that it can serve the others.
 *
 * Why there are never two owners that serve: the slots are served by the source's shard before a grant is committed and
 * after a refusal is, and by the target's shard after it took them, which excludes the refusal. */
#ifndef CLUSTER_MIGRATION_OUTCOME_H
#define CLUSTER_MIGRATION_OUTCOME_H
#include "cluster/protocol/cluster.h"

/* --- The source's shard: a job whose grant is in the stream of this server --- */

struct grant_facts {
    bool primary;     /* for the cluster */
    bool leads;       /* its shard */
    bool certain;     /* leads it at this moment */
    bool committed;   /* the grant, in this server's own term */
    bool tracked;     /* another server, or this one before a restart, has granted: the slots are not to be served */
    bool linked;      /* the link to the target is up, and nothing speaks against the target */
    bool owns;        /* any of the slots */
    bool moved;       /* all slots have owners in other shards */
    int64_t alone_ms; /* how long the link has been down */
    int64_t hold_ms;  /* how long commands are held then, at most */
};
enum grant_step {
    GRANT_WAIT,
    GRANT_TRACK,   /* become tracked: another server decides now, or clients have waited for too long */
    GRANT_RELEASE, /* give up the slots: nobody serves them */
    GRANT_ASK,
    GRANT_DONE /* the target has the slots */
};
enum {
    GRANT_PATIENCE_MS = 500,       /* a target that has taken the slots closes the link, and says so on the bus */
    GRANT_CANCELLED_HOLD_MS = 2000 /* commands of clients, after CANCELSLOTMIGRATIONS */
};
/* Sets `owns` and `moved` of the job's slots. `target_epoch`: struct job. */
void grant_facts_of_slots(struct grant_facts *facts, const struct cluster *cluster, const struct slot_bitmap *slots,
                          uint64_t target_epoch);
enum grant_step grant_decide(const struct grant_facts *facts);
/* A refusal has come. */
bool grant_takes_back(const struct grant_facts *facts);

/* --- The target's shard: a job --- */

struct take_facts {
    bool leads;     /* its shard, as the primary for the cluster */
    bool certain;   /* leads it at this moment */
    bool granted;   /* by the source, on the link or by a question */
    bool held;      /* DEBUG SLOTMIGRATION PREVENT-FAILOVER */
    bool decided;   /* TAKE is in the stream of this server */
    bool committed; /* … in its own term */
    bool tracked;   /* another server, or this one before a restart, had the link to the source */
    bool owns;      /* all of the slots */
};
enum take_step {
    TAKE_WAIT,
    TAKE_DECIDE, /* write TAKE */
    TAKE_CLAIM,  /* the slots, unless it owns them; the job has ended well */
    TAKE_FAIL
};
enum take_step take_decide(const struct take_facts *facts);

/* --- The target's shard: asked about a job --- */

enum outcome_job {
    OUTCOME_JOB_UNKNOWN, /* it has failed, and is forgotten */
    OUTCOME_JOB_EARLY,   /* it has not requested the grant, or is about to fail */
    OUTCOME_JOB_WAITS,   /* for the grant, or for the commitment of TAKE */
    OUTCOME_JOB_SUCCESS,
    OUTCOME_JOB_FAILED
};
struct outcome_facts {
    enum outcome_job job;
    bool certain;     /* leads its shard at this moment, and is the primary for the cluster */
    bool committed;   /* the ends of all jobs in the stream of this server, in its own term */
    bool held;        /* DEBUG SLOTMIGRATION PREVENT-FAILOVER */
    bool owns;        /* all of the slots */
    bool with_source; /* any slot has no owner, or one in the shard that asks */
    bool unclaimed;   /* any slot is bound to a node that does not claim it */
    bool unheard;     /* the primary that this server has copied knew a later owner of any slot (copied_owners.h) */
};
enum outcome_answer {
    OUTCOME_LATER,
    OUTCOME_GRANTED, /* take_decide() goes on */
    OUTCOME_CLAIM,   /* now; then they are taken */
    OUTCOME_TAKEN,
    OUTCOME_REFUSED
};
/* Sets `owns`, `with_source` and `unclaimed`. `source`: the node that asks; NULL: it is not known. */
void outcome_facts_of_slots(struct outcome_facts *facts, const struct cluster *cluster, const struct slot_bitmap *slots,
                            const struct cluster_node *source);
enum outcome_answer outcome_decide(const struct outcome_facts *facts);
#endif
