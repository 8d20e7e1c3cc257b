/* jobs.h: the jobs of migration.h, for the files of this directory. */
#ifndef CLUSTER_MIGRATION_JOBS_H
#define CLUSTER_MIGRATION_JOBS_H
#include "cluster/migration/migration.h"
#include "cluster/this_node.h"
#include "formats/rdb_opcodes.h"
#include "lib/text/output.h"
#include "net/event_loop.h"
#include "server/clients/client.h"

enum { JOB_NAME_LEN = RDB_SLOT_IMPORT_NAME, ACK_INTERVAL_MS = 1000 };

enum job_state {
    /* The source */
    JOB_CONNECTING,
    JOB_SENDING_AUTH,
    JOB_READING_AUTH,
    JOB_SENDING_ESTABLISH,
    JOB_READING_ESTABLISH,
    JOB_WAITING_TO_SNAPSHOT,
    JOB_SNAPSHOTTING,
    JOB_REPLICATING,
    JOB_WAITING_TO_PAUSE,
    JOB_FAILOVER_PAUSED,
    JOB_EXPORT_GRANTED,
    /* The target */
    JOB_WAITING_FOR_ACK,
    JOB_RECEIVING_SNAPSHOT,
    JOB_WAITING_FOR_PAUSED,
    JOB_FAILOVER_REQUESTED,
    JOB_IMPORT_GRANTED,
    JOB_CLEANING_UP,
    JOB_ON_PRIMARY, /* tracked */
    /* The end */
    JOB_SUCCESS,
    JOB_CANCELLED,
    JOB_FAILED
};

struct job {
    struct list_link link;     /* in `jobs`, newest first */
    struct list_link progress; /* in `jobs_in_progress`, oldest first, unless it is over */
    char name[JOB_NAME_LEN + 1];
    bool is_import, is_tracked;
    enum job_state state;
    size_t count; /* ranges */
    uint16_t (*ranges)[2];
    struct slot_bitmap slots;
    struct node_id source, target;         /* of a tracked job: zeros */
    int64_t created_s, updated_s, acked_s; /* wall clock, for users */
    /* clock_mono_ms(): the last change of `state`; the last sign of life of the peer; the last ACK sent. */
    int64_t changed_ms, heard_ms, sent_ms;
    char *message;
    struct node_id target_shard; /* an export that is granted */
    uint64_t target_epoch;       /* an export: the target's before it may claim the slots; 0: any claim of it counts */
    bool is_recorded;            /* an export: its grant is in the stream (granted.c) */
    bool is_decided;             /* … and its outcome is known */
    bool is_refused;             /* an export that is granted: the target will not take the slots */
    bool takes;                  /* an import: TAKE is in the stream. It does not fail any more */
    const char *failing;         /* the job is to fail with this message at the end of the turn; NULL: it is not */
    enum job_state failing_as;
    struct client *client;            /* of the link; NULL: none (any more) */
    uint64_t counted_in, counted_out; /* bytes of the link that are counted */
    uint64_t copied;                  /* bytes that the snapshot made the kernel copy */
    uint64_t owners_version;          /* of the owners of slots, when they were last looked at */
    bool acks_backlog;  /* the target: the source sends ACK when it has sent the changes since the snapshot */
    bool source_paused; /* the target: the failover is to be requested */
    /* With synchronous replication: the stream up to here is to be committed before the next step; -1: not known yet.
     */
    int64_t committed_at;
    int64_t unknown_ms; /* clock_mono_ms(): since when the outcome depends on what another node says; 0: it does not */
    /* The source */
    struct connection *conn;      /* until the client exists */
    struct memory_output backlog; /* changes of slots in the snapshot, until that is sent */
    int stream_db;                /* selected in the stream; -1: none */
    bool pause_requested;         /* at the target: it has requested it */
    bool failover_requested;
    int64_t paused_until_ms;   /* clock_mono_ms() */
    bool cancelled;            /* it was granted: its clients' writes are held until the outcome is known */
    bool asked_pull;           /* the target was asked whether it fetches chunks */
    bool chunks, pull;         /* the target takes chunks; and fetches them by RDMA READ (pull.h) */
    bool tcp_only;             /* an RDMA connection to the target could not be made */
    struct pull_key *pull_key; /* of the chunks, with TLS */
    int64_t chunks_until_ms;   /* clock_mono_ms(): how long the answer to CAPA is waited for; 0: it is not */
    /* The target */
    struct slot_fetch *fetch; /* pull.h; NULL: chunks come through the link */
};

/* Finished jobs may be many, and some questions are asked for each slot. */
extern struct list jobs, jobs_in_progress;
static inline struct job *job_of(struct list_link *link) {
    return container_of(link, struct job, link);
}
static inline struct job *job_in_progress(struct list_link *link) {
    return container_of(link, struct job, progress);
}
static inline bool job_is_over(const struct job *job) {
    return job->state >= JOB_SUCCESS;
}
/* `name`: JOB_NAME_LEN bytes; an empty one is chosen. */
struct job *job_new(bool is_import, struct slice name, const uint16_t (*ranges)[2], size_t count, enum job_state state);
struct job *job_find(struct slice name);                  /* the newest one of this name */
struct job *job_with_slot(unsigned slot, bool is_import); /* in progress */
const char *job_state_name(enum job_state state);
const char *job_text(const struct job *job);               /* "{name: ...}", for the log; valid until the next call */
void job_set_state(struct job *job, enum job_state state); /* logs */
void job_finished(struct job *job, enum job_state state, const char *message); /* sets and logs how it ended */
void job_heard(struct job *job);
/* Ends the job now; not from a callback of the store or of the cluster's machine. `message` may be "". */
void job_end(struct job *job, enum job_state state, const char *message);
/* The same at the end of the turn; from anywhere. The first one counts. `message` is static. An import that `takes`
 * goes on. */
void job_fail_later(struct job *job, const char *message);
/* Fails a job because of a message that does not fit its state, or that is unknown. */
void job_unexpected(struct job *job, struct slice subcommand);
void job_out_of_memory(struct job *job); /* fails an import */
void jobs_settle(void);                  /* ends those that are to fail */
/* All but those that hold the clients' writes until their outcome is known (struct job: cancelled). */
void jobs_forget(void);
void job_describe(const struct job *job, struct reply *reply);

/* The link. It belongs to the job from job_attach() on: when its client is freed, the job fails. */
void job_attach(struct job *job, struct client *client);
void job_detach(struct job *job); /* closes the link */
struct job *job_of_client(const struct client *client);
void job_send(struct job *job, const char *subcommand); /* CLUSTER SYNCSLOTS subcommand */
void job_send_words(struct job *job, int count, const struct slice *words);
void job_send_capability(struct job *job); /* CLUSTER SYNCSLOTS CAPA CHUNK_CAPABILITY */
void jobs_count_exported(uint64_t bytes);  /* that a child has sent on a link, or that were offered */
void jobs_count_imported(uint64_t bytes);  /* that were fetched */
#define CHUNK_CAPABILITY "slot-chunks"

/* Of this server's own: for its replicas and its append-only file. */
void job_propagate(int argc, const struct slice *argv);
/* CLUSTER SYNCSLOTS FINISH; `epoch`: of the claim, 0: none. */
void job_propagate_finish(const struct job *job, bool success, const char *message, uint64_t epoch);

/* export.c */
void export_start(void);
struct job *export_new(const struct cluster_node *target, const uint16_t (*ranges)[2], size_t count);
void export_step(struct job *job); /* at the end of each turn */
void export_tick(struct job *job);
/* Releases what only an export has; `state`: the one it ended in. */
void export_end(struct job *job, enum job_state state);
void export_cancel(struct job *job); /* CANCELSLOTMIGRATIONS */
void export_report(const struct job *job, struct client_report *report);
/* The target of a job other than this one was granted slots that this node still owns, and may be about to claim them.
 * Meanwhile this node must not raise its epoch: if other nodes heard of that first, they would not believe the claim,
 * and would tell the target that the slots are not its own. */
bool exports_await_claim(const struct job *except);
/* snapshot.c */
bool snapshot_possible(const struct job *job);
bool snapshot_export(struct job *job);                      /* false: it cannot begin now, or it has failed the job */
void snapshot_cancel(const struct job *job);                /* the job does not need it any more */
bool snapshot_pulled(const struct job *job, int64_t count); /* PULLED; false: the number is wrong */
bool snapshot_lets_send(const struct job *job);             /* the link is not in use by the snapshot now */
void snapshot_step(void);                                   /* at the end of each turn: sends more */
void export_stream_slot(struct job *job, unsigned slot);    /* its changes go into the stream from now on */
void export_snapshot_done(struct job *job, bool good);      /* snapshot.c calls it */
size_t job_output(const struct job *job);                   /* bytes that wait for the peer */

/* granted.c */
bool granted_is_asked(const struct job *job);    /* the target answers the question for the outcome */
void granted_ask_cancelled(struct job *job);     /* … without synchronous replication: whether writes may go on */
void granted_record(struct job *job);            /* writes the grant into the stream */
void granted_note_target(struct job *job);       /* its epoch and shard, when the grant is decided */
bool granted_knows_shard(const struct job *job); /* a node of the target's shard */
void granted_track(struct slice name, const struct node_id *target, const struct node_id *target_shard,
                   uint64_t target_epoch, const uint16_t (*ranges)[2], size_t count);
void granted_step(struct job *job);
/* job_end() asks. True: the job does not end before its outcome is known. */
bool granted_keeps(struct job *job, enum job_state state);
void granted_end(const struct job *job, enum job_state state, const char *message);

/* chunk.c */
/* SYNCSLOTS CHUNK job bytes, from the source, the primary or a file. */
void chunk_run(struct call *call, struct job *job);
/* The same with bytes that were fetched. False: they were refused, and the job is to fail. */
bool chunk_load_pulled(struct job *job, struct slice bytes);

/* import.c */
void import_establish(struct call *call, const struct cluster_node *source, struct slice name,
                      const uint16_t (*ranges)[2], size_t count);
void import_track(struct slice name, const uint16_t (*ranges)[2], size_t count);
/* FINISH and TAKE from the stream of a primary, or a file. `epoch`: of the claim; 0: none. */
void import_finish_tracked(struct call *call, struct slice name, enum job_state state, struct slice message,
                           uint64_t epoch);
void import_take_tracked(struct call *call, struct slice name);
void import_leads(void);                                           /* migration_leads() */
void import_write_take(const struct job *job, struct output *out); /* the command */
/* Of an RDB file: the jobs with TAKE. */
bool import_write_aux(struct rdb_aux *field);
void import_read_aux(struct slice name, struct slice value);
void import_message(struct call *call, struct job *job, struct slice subcommand);
/* SYNCSLOTS OUTCOME: replies. `epoch`: of the node that asks; 0: it is not told. */
void import_asked(struct call *call, const struct node_id *source, struct slice name, const struct slot_bitmap *slots,
                  uint64_t epoch);
void import_tick(struct job *job);
void import_step(struct job *job);
void import_end(struct job *job, enum job_state state, const char *message);
#endif
