/* migration_machine.h: the slot migrations of one server, of both ends, as a state machine.
 *
 * The machine decides when the source takes a snapshot, holds its clients' writes and grants the slots, when the target
 * takes them, and, if a server dies after the grant, which shard has them. It owns no socket, clock, file or source of
 * random numbers. Its inputs are events with the time; its outputs are calls of struct migration_effects, in order.
 * migration.h describes the protocol for users, messages.h the messages. The simulator of
 * tests/simulation/migration_simulator.h runs these objects.
 *
 *     event                                  input
 *     ------------------------------------   ----------------------------------------------------------------------
 *     CLUSTER MIGRATESLOTS                   export_new()
 *     the link of an export                  export_connected(), export_answered() with each line of the handshake,
 *                                            export_handshake_failed(); export_received(), export_link_lost()
 *     its snapshot is written                export_snapshot_done()
 *     an answer to ask()                     export_outcome_answered(), export_question_lost()
 *     CANCELSLOTMIGRATIONS                   export_cancel()
 *     SYNCSLOTS ESTABLISH on a link          import_new(); then import_received(), import_link_lost()
 *     SYNCSLOTS OUTCOME of another server    import_asked()
 *     the stream of the primary, or a file   migrations_track(): ESTABLISH, GRANT, TAKE, FINISH
 *     something fails that the host does     job_end_later()
 *     the keys of a job are deleted          migrations_flushed(), migrations_slot_flushed()
 *     100 ms have passed                     migrations_tick()
 *     the end of a turn of the loop          migrations_turn_end(): the owners of slots, the role of the server, and
 *                                            what is committed are looked at here
 *     the role of the server                 migrations_lead(), migrations_left_shard()
 *     the server exits                       migrations_stop()
 *     a data set is loaded                   migrations_load_begins(), migrations_track(), migrations_loaded()
 *
 * Rules between the machine and its host:
 * - Times are milliseconds of a monotonic clock (clock_mono_ms()), also those that GETSLOTMIGRATIONS shows.
 * - An effect never calls the machine back, with one exception: send() may find that the link is gone, and call
 *   export_link_lost() or import_link_lost(). The machine's questions below may be asked at any time.
 * - A job that must end within a callback of the store or of the cluster's machine ends at the end of the turn:
 *   job_end_later(). Until then it shows its old state, and nothing else happens to it.
 * - Main thread only. The host reads the members of jobs; only the machine writes them, but for `host`.
 *
 * The machine reads the server's cluster machine (protocol/cluster.h), and tells it when slots are taken or given up.
 *
 * Synchronous replication. The end of a job is a two-phase commit between two replicated shards. The source is the
 * participant that prepares: after the grant it waits for the decision. The target's shard is the coordinator, and
 * aborts are presumed: a leader that does not know the job refuses it. The source writes the grant into its stream
 * (GRANT), and grants when that is committed. From then on the target's shard decides, by its own stream. The target
 * writes TAKE there, claims the slots when that is committed, and writes FINISH, with the epoch of the claim: a replica
 * that has not heard the claim on the bus learns it there. Each leader of the target's shard claims the slots of jobs
 * with TAKE, and ends jobs without it as failed.
 *
 * Each leader of the source's shard has the grant in its stream. It does not serve the slots, and asks the leader of
 * the target's shard until it knows the outcome:
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
#pragma once
#include "cluster/migration/protocol/messages.h"
#include "cluster/protocol/cluster.h"
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"

/* --- The source ---
 *
 * Several states may have one name in GETSLOTMIGRATIONS and in the log. A change is logged if the name changes.
 *
 *     state                name                         next
 *     -------------------  ---------------------------  -----------------------------------------------------------
 *     WAITING_TO_DIAL      connecting                   CONNECTING, when no cancelled job can lose these slots yet
 *     CONNECTING                                        SENDING_AUTH with primaryauth, else SENDING_ESTABLISH
 *     SENDING_AUTH         sending-auth-command         READING_AUTH in the same event
 *     READING_AUTH         reading-auth-response        SENDING_ESTABLISH at +OK
 *     SENDING_ESTABLISH    sending-establish-command    READING_ESTABLISH in the same event
 *     READING_ESTABLISH    reading-establish-response   ASKING_…, or WAITING_TO_SNAPSHOT, at +OK
 *     ASKING_CHUNKS,       waiting-to-snapshot          WAITING_TO_SNAPSHOT at the target's CAPA, or SNAPSHOTTING after
 *     ASKING_PULL                                       CAPABILITY_WAIT_MS without it
 *     WAITING_TO_SNAPSHOT                               SNAPSHOTTING, when a snapshot is possible
 *     SNAPSHOTTING         snapshotting                 REPLICATING, when the snapshot is sent
 *     SNAPSHOT_TAKEN                                    PAUSE_REQUESTED: the target has requested the pause already
 *     REPLICATING          replicating                  PAUSE_REQUESTED at REQUEST-PAUSE
 *     PAUSE_REQUESTED                                   PAUSED or WAITING_TO_PAUSE at the end of the turn
 *     WAITING_TO_PAUSE     waiting-to-pause             PAUSED, when little waits for the target, and this node is not
 *                                                       about to take slots
 *     PAUSED               failover-paused              FAILOVER_REQUESTED at REQUEST-FAILOVER. The writes are held
 *     FAILOVER_REQUESTED                                RECORDED; GRANTED if the grant is not to be recorded
 *     RECORDED                                          GRANTED_RECORDED, when GRANT in the stream is committed
 *     GRANTED              failover-granted             the end: the target claims the slots, or the pause is over.
 *                                                       With synchronous replication, and a target that does not know
 *                                                       OUTCOME, REFUSED in place of the end of the pause
 *     REFUSED                                           the end, when other targets have claimed what they were granted
 *     GRANTED_RECORDED                                  the end, as grant_decide() says; TRACKED, when another server
 *                                                       leads the shard, or the target's has been silent for long
 *     RECORDED_REFUSED                                  as GRANTED_RECORDED, after a refusal, and REFUSED
 *     TRACKED                                           the end, as grant_decide() says. It is the job of another
 *                                                       server, or of this one before it restarted
 *     SUCCESS, CANCELLED, FAILED
 *
 * A grant that is recorded ends only when its outcome is known: whatever else would end the job makes it TRACKED. A
 * granted job that is cancelled is shown as CANCELLED at once, and goes on in its state. */
enum export_state {
    EXPORT_WAITING_TO_DIAL,
    EXPORT_CONNECTING,
    EXPORT_SENDING_AUTH,
    EXPORT_READING_AUTH,
    EXPORT_SENDING_ESTABLISH,
    EXPORT_READING_ESTABLISH,
    EXPORT_ASKING_CHUNKS,
    EXPORT_ASKING_PULL,
    EXPORT_WAITING_TO_SNAPSHOT,
    EXPORT_SNAPSHOTTING,
    EXPORT_SNAPSHOT_TAKEN,
    EXPORT_REPLICATING,
    EXPORT_PAUSE_REQUESTED,
    EXPORT_WAITING_TO_PAUSE,
    EXPORT_PAUSED,
    EXPORT_FAILOVER_REQUESTED,
    EXPORT_RECORDED,
    EXPORT_GRANTED,
    EXPORT_REFUSED,
    EXPORT_GRANTED_RECORDED,
    EXPORT_RECORDED_REFUSED,
    EXPORT_TRACKED,
    EXPORT_SUCCESS,
    EXPORT_CANCELLED,
    EXPORT_FAILED
};

/* --- The target ---
 *
 *     state                name                   next
 *     -------------------  ---------------------  -----------------------------------------------------------------
 *     WAITING_FOR_ACK      waiting-for-ack        RECEIVING_SNAPSHOT at ACK
 *     RECEIVING_SNAPSHOT   receiving-snapshot     at SNAPSHOT-EOF RECEIVING_CHANGES, if the source sends ACK after the
 *                                                 changes since the snapshot, else PAUSE_REQUESTED
 *     RECEIVING_CHANGES    waiting-for-paused     PAUSE_REQUESTED at ACK
 *     PAUSE_REQUESTED                             SOURCE_PAUSED at PAUSED
 *     SOURCE_PAUSED                               FAILOVER_REQUESTED, when this shard has committed the keys, and no
 *                                                 export of this node is granted (migration.h)
 *     FAILOVER_REQUESTED   failover-requested     GRANTED at FAILOVER-GRANTED, or when the source's shard asks
 *     GRANTED              failover-granted       TAKING, as take_decide() says
 *     TAKING                                      SUCCESS, when TAKE in the stream is committed; it cannot fail
 *     TRACKED              occurring-on-primary   the end at FINISH, or as take_decide() says. It is the job of this
 *                                                 server's primary, or of itself before it restarted or was replaced
 *     TRACKED_TAKING                              the same, with TAKE in the stream
 *     CLEANING_UP          cleaning-up            FAILED or CANCELLED in the same event: the keys are deleted
 *     SUCCESS, CANCELLED, FAILED */
enum import_state {
    IMPORT_WAITING_FOR_ACK,
    IMPORT_RECEIVING_SNAPSHOT,
    IMPORT_RECEIVING_CHANGES,
    IMPORT_PAUSE_REQUESTED,
    IMPORT_SOURCE_PAUSED,
    IMPORT_FAILOVER_REQUESTED,
    IMPORT_GRANTED,
    IMPORT_TAKING,
    IMPORT_TRACKED,
    IMPORT_TRACKED_TAKING,
    IMPORT_CLEANING_UP,
    IMPORT_SUCCESS,
    IMPORT_CANCELLED,
    IMPORT_FAILED
};

/* What jobs of both ends have. */
enum slot_job_kind { JOB_EXPORT, JOB_IMPORT };
struct slot_job {
    enum slot_job_kind kind;
    struct list_link link;     /* in `jobs`, newest first */
    struct list_link progress; /* in `in_progress`, oldest first, until the job is over */
    char name[JOB_NAME_LEN + 1];
    struct node_id source, target; /* zeros: not known */
    size_t count;                  /* of ranges */
    uint16_t (*ranges)[2];
    struct slot_bitmap slots;
    int64_t created_ms, changed_ms; /* the last change of the name of its state */
    int64_t acked_ms;               /* the last ACK of the peer, or other sign of life */
    int64_t heard_ms;               /* … or since when one is waited for */
    int64_t sent_ms;                /* the last ACK, or question for the outcome */
    bool linked;                    /* the link is up, and carries the stream */
    bool tracked;                   /* it is TRACKED…, or was when it ended */
    char *message;                  /* why it has failed */
    const char *ending;             /* it ends at the end of the turn, with this message; NULL: it does not */
    bool ends_well;                 /* … as SUCCESS */
    uint64_t owners_version;        /* of the owners of slots, when they were last looked at */
    /* The next step waits until the stream is committed up to this offset; -1: not known yet in this term. */
    int64_t committed_at;
    void *host; /* the host's own */
};

/* How the snapshot travels: as commands that create the keys, or in chunks on the link, or in chunks that the target
 * fetches by RDMA READ. */
enum snapshot_form { SNAPSHOT_COMMANDS, SNAPSHOT_CHUNKS, SNAPSHOT_PULLED };

struct slot_export {
    struct slot_job job;
    enum export_state state;
    bool cancelled; /* it was granted, goes on, and is shown as cancelled */
    bool asks;      /* a question for the outcome waits for its answer */
    enum snapshot_form form;
    int64_t capability_until_ms; /* ASKING_…: how long the answer is waited for */
    int64_t held_until_ms;       /* how long the clients' writes are held for this job */
    int64_t unknown_ms;          /* since when the outcome depends on what another node says; 0: it does not */
    struct node_id target_shard; /* from the grant on */
    uint64_t target_epoch;       /* the target's before it may claim the slots; 0: any claim of it counts */
};
struct slot_import {
    struct slot_job job;
    enum import_state state;
    bool acks_changes; /* the source sends ACK after the changes since the snapshot */
};
static inline struct slot_export *export_of(const struct slot_job *job) {
    return job->kind == JOB_EXPORT ? container_of(job, struct slot_export, job) : NULL;
}
static inline struct slot_import *import_of(const struct slot_job *job) {
    return job->kind == JOB_IMPORT ? container_of(job, struct slot_import, job) : NULL;
}
static inline bool job_is_over(const struct slot_job *job) {
    return !list_is_linked(&job->progress);
}
/* Its grant is in the stream. */
static inline bool export_is_recorded(const struct slot_export *export) {
    return export->state == EXPORT_RECORDED ||
           (export->state >= EXPORT_GRANTED_RECORDED && export->state <= EXPORT_TRACKED);
}
static inline bool export_is_granted(const struct slot_export *export) {
    return export->state >= EXPORT_GRANTED && export->state <= EXPORT_TRACKED;
}
static inline bool import_is_tracked(const struct slot_import *import) {
    return import->state == IMPORT_TRACKED || import->state == IMPORT_TRACKED_TAKING;
}
/* TAKE is in the stream. */
static inline bool import_takes(const struct slot_import *import) {
    return import->state == IMPORT_TAKING || import->state == IMPORT_TRACKED_TAKING;
}

/* --- The server --- */

struct migration_settings {
    int64_t log_max_len;                  /* finished jobs that are kept */
    int64_t failover_bytes;               /* that may wait for the target when writes are held; -1: any number */
    int64_t timeout_ms;                   /* repl-timeout */
    bool prevent_pause, prevent_failover; /* DEBUG */
};

/* What the server is at this moment. */
struct migration_facts {
    bool replica, loading;
    bool sync;      /* with synchronous replication. Without it a primary leads, for certain */
    bool leads;     /* its shard */
    bool certain;   /* … at this moment */
    bool stands;    /* for election in its shard, or is a primary that does not lead */
    int64_t offset; /* the end of its stream */
};

/* The answer to a question for the outcome. */
enum outcome_answer {
    OUTCOME_LATER,   /* not decided, or this server does not know */
    OUTCOME_GRANTED, /* within the machine: take_decide() goes on */
    OUTCOME_CLAIM,   /* within the machine: the slots are claimed now; then they are taken */
    OUTCOME_TAKEN,
    OUTCOME_REFUSED
};

enum snapshot_start {
    SNAPSHOT_STARTED,
    SNAPSHOT_LATER,
    SNAPSHOT_NOT_PULLED /* chunks that are fetched are not possible; later without */
};

struct migration_effects {
    /* Questions; they have no effect. */
    void (*facts)(void *context, struct migration_facts *facts);
    bool (*committed)(void *context,
                      int64_t offset);    /* the stream up to there; without synchronous replication always */
    bool (*authenticates)(void *context); /* primaryauth is set */
    bool (*clients_are_held)(void *context);
    bool (*can_ask)(void *context, const struct cluster_node *node); /* its address and port are known */
    bool (*snapshot_is_possible)(void *context, const struct slot_export *export);
    bool (*snapshot_lets_send)(void *context, const struct slot_export *export); /* ACK: the link has no part of it */
    bool (*takes_chunks)(void *context, const struct slot_import *import);
    bool (*fetch_is_idle)(void *context, const struct slot_import *import); /* all offered chunks are loaded */
    /* The last copy of the primary's data names an owner that this node does not know (copied_owners.h). */
    bool (*owner_is_unknown)(void *context, unsigned slot);

    /* The host sets up job->host, and frees it. */
    void (*created)(void *context, struct slot_job *job);
    void (*ended)(void *context, struct slot_job *job, bool success); /* it has left the jobs in progress */
    void (*freed)(void *context, struct slot_job *job);

    /* The link. dial() does not fail at once. close() ends the link, its handshake, and a question. */
    void (*dial)(void *context, struct slot_export *export, const struct cluster_node *target);
    void (*send_auth)(void *context, struct slot_export *export);
    void (*accepted)(void *context, struct slot_export *export); /* the link carries the stream from here on */
    void (*send)(void *context, struct slot_job *job, const struct slot_message *message);
    void (*close)(void *context, struct slot_job *job);
    /* CAPA: asks whether the target fetches chunks. False: the link cannot; nothing was sent. */
    bool (*ask_pull)(void *context, struct slot_export *export);
    /* Asks this node; export_outcome_answered() or export_question_lost() follows, but not at once. */
    void (*ask)(void *context, struct slot_export *export, const struct cluster_node *leader,
                const struct slot_message *question);
    void (*hang_up)(void *context, struct slot_export *export); /* drops the question */

    /* The stream of an export to its target. */
    enum snapshot_start (*start_snapshot)(void *context, struct slot_export *export);
    void (*cancel_snapshot)(void *context, struct slot_export *export);
    bool (*pulled)(void *context, struct slot_export *export, int64_t count); /* PULLED; false: the number is wrong */
    void (*send_changes)(void *context, struct slot_export *export);          /* those since the snapshot */
    size_t (*flush)(void *context, struct slot_export *export);               /* returns the bytes that still wait */
    void (*end_stream)(void *context, struct slot_export *export);            /* and the snapshot */
    void (*drop_moved)(void *context, const struct slot_export *export);      /* the keys: others own the slots */

    /* The clients of the source. A pause lasts at least as long as the longest of those that were asked for. */
    void (*hold_clients)(void *context, bool reads, int64_t until_ms);
    void (*release_clients)(void *context);

    /* The keys at the target. */
    void (*hide_keys)(void *context, const struct slot_import *import);
    void (*show_keys)(void *context, const struct slot_import *import);
    void (*drop_keys)(void *context, const struct slot_import *import);   /* on a primary its replicas hear of it */
    void (*forget_keys)(void *context, const struct slot_import *import); /* all data are about to be replaced */
    bool (*open_fetch)(void *context, struct slot_import *import, struct slice key); /* false: it cannot */
    void (*receive)(void *context, struct slot_import *import, const struct slot_message *message); /* OFFER, CHUNK */
    void (*load_fetched)(void *context, struct slot_import *import);                                /* some of it */
    void (*close_fetch)(void *context, struct slot_import *import);

    /* Writes into the stream of this server, for its replicas and its append-only file. */
    void (*record)(void *context, const struct slot_message *message);
    void (*log)(void *context, enum log_level level, const char *text);
    void (*log_seldom)(void *context, const char *text); /* what may be repeated at any rate */
};

struct migration_machine {
    const struct migration_settings *settings;
    const struct migration_effects *effects;
    void *context;
    struct cluster *cluster;
    int64_t now_ms;                /* time of the event that is being handled */
    struct list jobs, in_progress; /* many may be over, and some questions are asked for each slot */
    int64_t last_end;              /* the stream when an import ended last, or this server began to lead */
    bool restarted;                /* a data set was loaded: the imports that it has are to fail */
    bool trim_due;                 /* a job is over */
    int64_t trimmed_to;            /* log_max_len, when the list was trimmed last */
    struct memory_output takes;    /* names of jobs with TAKE, from an RDB file, which has them before the jobs */
    struct memory_output text;     /* of job_text() */
};
void migrations_init(struct migration_machine *m, const struct migration_settings *settings,
                     const struct migration_effects *effects, void *context, struct cluster *cluster);
void migrations_free(struct migration_machine *m); /* frees the jobs as they are */

/* --- Events --- */

void migrations_tick(struct migration_machine *m, int64_t now_ms);
void migrations_turn_end(struct migration_machine *m, int64_t now_ms);
/* Ends the jobs that are to end. Before a command that shows jobs or begins one. */
void migrations_settle(struct migration_machine *m, int64_t now_ms);
void migrations_stop(struct migration_machine *m, int64_t now_ms);        /* the server exits */
void migrations_flushed(struct migration_machine *m);                     /* all keys were deleted */
void migrations_slot_flushed(struct migration_machine *m, unsigned slot); /* … those of a slot */
void migrations_lead(struct migration_machine *m, int64_t now_ms);        /* this server leads its shard from now on */
/* It has left its shard, or its cluster, and leads a shard of its own: the jobs are those of the old one. */
void migrations_left_shard(struct migration_machine *m, int64_t now_ms);

/* Files, and the stream of the primary. A message of a stream is ESTABLISH, TAKE, GRANT or FINISH; false: no such job.
 */
bool migrations_track(struct migration_machine *m, const struct slot_message *message, int64_t now_ms);
void migrations_track_takes(struct migration_machine *m, struct slice names); /* the field of an RDB file */
void migrations_load_begins(struct migration_machine *m, int64_t now_ms);     /* before the data set is replaced */
void migrations_loaded(struct migration_machine *m);
/* What a file must have of a job: its GRANT, or ESTABLISH and perhaps TAKE. Calls `write` with each of them. */
void migrations_write(const struct migration_machine *m,
                      void (*write)(void *context, const struct slot_message *message), void *context);

/* `name`: JOB_NAME_LEN bytes. */
struct slot_export *export_new(struct migration_machine *m, struct slice name, const struct node_id *target,
                               const struct slot_ranges *ranges, int64_t now_ms);
void export_connected(struct migration_machine *m, struct slot_export *export, int64_t now_ms);
void export_dial_again(struct slot_export *export); /* the next dial takes another way */
void export_answered(struct migration_machine *m, struct slot_export *export, struct slice line, int64_t now_ms);
/* The connection ended before accepted(). `reason`: of the failed connect, or "". */
void export_handshake_failed(struct migration_machine *m, struct slot_export *export, const char *reason,
                             int64_t now_ms);
void export_received(struct migration_machine *m, struct slot_export *export, const struct slot_message *message,
                     int64_t now_ms);
void export_link_lost(struct migration_machine *m, struct slot_export *export);
void export_snapshot_done(struct migration_machine *m, struct slot_export *export, int64_t now_ms);
/* `text`: for the log. */
void export_outcome_answered(struct migration_machine *m, struct slot_export *export, enum outcome_answer answer,
                             struct slice text, int64_t now_ms);
void export_question_lost(struct slot_export *export);
void export_cancel(struct migration_machine *m, struct slot_export *export, int64_t now_ms);

struct slot_import *import_new(struct migration_machine *m, struct slice name, const struct node_id *source,
                               const struct slot_ranges *ranges, int64_t now_ms);
void import_received(struct migration_machine *m, struct slot_import *import, const struct slot_message *message,
                     int64_t now_ms);
void import_link_lost(struct migration_machine *m, struct slot_import *import);
/* OUTCOME from another server. Returns OUTCOME_LATER, _TAKEN or _REFUSED. */
enum outcome_answer import_asked(struct migration_machine *m, const struct slot_message *question,
                                 const struct slot_bitmap *slots, int64_t now_ms);

void job_heard(struct slot_job *job, int64_t now_ms);
/* The job is to fail with this message, which is static. From anywhere; the first one counts. An import that takes the
 * slots goes on. */
void job_end_later(struct slot_job *job, const char *message);

/* --- Questions --- */

struct slot_job *job_find(const struct migration_machine *m, struct slice name); /* the newest one of this name */
/* In progress; NULL: there is none. Cancelled exports do not count. */
struct slot_export *export_with_slot(const struct migration_machine *m, unsigned slot);
struct slot_import *import_with_slot(const struct migration_machine *m, unsigned slot);
/* The node has been allowed to take this slot. */
bool exports_granted(const struct migration_machine *m, unsigned slot, const struct cluster_node *node, uint64_t epoch);
/* This shard has granted the slot to another shard, and does not know whether that took it. */
bool exports_recorded(const struct migration_machine *m, unsigned slot);
/* The target of a job other than this one was granted slots that this node still owns, and may be about to claim them.
 * Meanwhile this node must not raise its epoch: if other nodes heard of that first, they would not believe the claim,
 * and would tell the target that the slots are not its own. */
bool exports_await_claim(const struct migration_machine *m, const struct slot_export *except);
const char *job_state_name(const struct slot_job *job); /* as users see it */
/* "{name: ...}", for the log; valid until the next call, of the machine too. */
void job_write_ranges(const struct slot_job *job, struct output *out); /* "0-5 7-7" */
const char *job_text(struct migration_machine *m, const struct slot_job *job);

/* --- Decisions, without jobs and servers: tests/unit/test_migration_machine.c --- */

/* The source's shard: a job whose grant is in the stream of this server. */
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
enum grant_step grant_decide(const struct grant_facts *facts);
bool grant_takes_back(const struct grant_facts *facts); /* a refusal has come */

/* The target's shard: a job. */
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

/* The target's shard: asked about a job. */
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
    bool outdated;    /* any slot has an owner with a larger epoch than the server that asks knew when it asked */
    bool unclaimed;   /* any slot is bound to a node that does not claim it */
    bool unheard;     /* the primary that this server has copied knew a later owner of any slot (copied_owners.h) */
};
enum outcome_answer outcome_decide(const struct outcome_facts *facts);
