/* migration_simulator.h: slots that move between the shards of sync_cluster.h: the machine of
 * cluster/migration/protocol/ on each server, with links, streams and files in virtual time.
 *
 * A few slots of each shard may move. The keys of a slot are one number: the last value written to it, which is the
 * largest; 0: there are none. Writes and what the machines record are entries of the servers' logs, and a server's
 * state follows from its log, so it survives crashes, copies and changes of the leader like other data. Messages travel
 * as their arguments, and jobs in files as their texts.
 *
 * A shard without synchronous replication (asynchronous_shards.h) grants without a record in its stream, and its writes
 * go on after a while if the target does not claim the slot.
 *
 * migration_host.c has the effects of the machine, migration_files.c what copies and files carry, and
 * migration_faults.c which slots move, what disturbs it, and the checks at the end.
 *
 * Checked: a server that serves a slot for certain has the last acknowledged value, and does not hide it. At the end
 * each slot is served, and no job is in progress on any server. */
#pragma once
#include "sync_cluster.h"
#include "cluster/migration/protocol/migration_machine.h"

enum { MOBILE = 6, JOBS_MAX = 64, COMMANDS_MAX = 1 << 18, SENT_MAX = 2048, TEXT_SIZE = 120 };

/* A message with its own memory. */
struct kept_message {
    struct slot_message message;
    char name[JOB_NAME_LEN], text[TEXT_SIZE];
    uint16_t ranges[1][2];
};
enum command_kind { COMMAND_WRITE, COMMAND_DROP, COMMAND_RECORD };
struct command {
    enum command_kind kind;
    bool arrives; /* a write that came from the source of a migration */
    unsigned slot;
    uint64_t value;
    struct kept_message record;
    struct quorum_term term; /* in which it was written */
};
struct sim_job {   /* what a server has for a job: struct slot_job.host */
    unsigned link; /* to `peer`; 0: none */
    int peer;
    unsigned question;    /* that waits for an answer; 0: none */
    int64_t snapshot_due; /* 0: no snapshot is being taken */
    bool streams;
    uint64_t snapshot, backlog; /* values; 0: none */
    bool source_waits;          /* source_waits(), before the event that may claim the slots */
};
struct holder { /* what a server knows of slots that move */
    int64_t applied;
    uint64_t data[MOBILE];
    bool drops[MOBILE]; /* when it no longer stands */
    bool hidden[MOBILE];
    uint64_t unheard[MOBILE]; /* the epochs of owners that are not known here: copied_owners.c; 0: none */
    bool loading, held, held_reads;
    int64_t held_until;
    struct migration_machine machine;
};
/* What a copy of the data brings, and what a file of a server has. */
struct migration_copy {
    int64_t applied;
    uint64_t data[MOBILE];
    struct memory_output grants, takes; /* fields of an RDB file */
    unsigned import_count;
    struct {
        char name[JOB_NAME_LEN];
        unsigned slot;
    } imports[JOBS_MAX];
    struct {
        struct node_id id;
        uint64_t epoch; /* 0: none */
    } owners[MOBILE];
};
struct sent {
    enum {
        SENT_CONNECT,
        SENT_CONNECTED,
        SENT_LINE,    /* the reply to ESTABLISH */
        SENT_MESSAGE, /* of SYNCSLOTS */
        SENT_DATA,
        SENT_CLOSED,
        SENT_QUESTION,
        SENT_ANSWER
    } kind;
    int from, to;
    unsigned life_to, link, slot;
    int64_t due;
    uint64_t value;
    struct kept_message message;
    enum outcome_answer answer;
};
extern struct moving {
    bool on, stopped; /* no more begin */
    struct command *commands;
    uint32_t command_count;
    struct holder *holders;
    struct migration_copy *arriving, *files; /* of each server: a copy on its way; what it has loaded, or rewritten */
    struct sent *sent;
    unsigned sent_count, names, links, done, failed, refused;
    uint64_t next_value, acknowledged[MOBILE];
    bool (*may_crash)(const struct node *node);
    void (*crash)(struct node *node);
} moving;
extern struct slot_ranges moving_ranges; /* of the message that was read last */

static inline unsigned mobile_slot(unsigned mobile) {
    return cluster_sim.first_slot[mobile % SHARDS] + 1 + mobile / SHARDS;
}
static inline int mobile_of(unsigned slot) {
    for (unsigned i = 0; i < MOBILE; i++)
        if (mobile_slot(i) == slot) return (int)i;
    return -1;
}
static inline unsigned mobile_of_job(const struct slot_job *job) {
    return (unsigned)mobile_of(job->ranges[0][0]);
}
static inline struct holder *holder_of(const struct node *node) {
    return &moving.holders[node->index];
}
static inline struct migration_machine *migrations_of(const struct node *node) {
    return &holder_of(node)->machine;
}
static inline int64_t time_of(const struct node *node) {
    return sim_time(machine_of(node));
}
static inline struct sim_job *sim_job_of(const struct slot_job *job) {
    return job->host;
}
static inline bool leads_shard(const struct node *node) {
    if (node->asynchronous) return !node->replica;
    return node->machine.status == QUORUM_LEADING;
}
static inline bool stands(const struct node *node) {
    return !node->asynchronous && node->machine.status != QUORUM_LEADING && node->machine.status != QUORUM_FOLLOWING;
}
static inline bool leads_for_certain(const struct node *node) {
    return node->asynchronous || (leads_shard(node) && quorum_machine_writable(&node->machine) &&
                                  quorum_lease_holds(&node->lease, world_us()));
}
static inline bool has_committed(const struct node *node, int64_t offset) {
    return node->asynchronous || (leads_shard(node) && node->lease.committed >= offset);
}
static inline bool is_primary(const struct node *node) {
    return node_is_primary(cluster_of(node)->myself) && !node->replica;
}
static inline bool is_held(const struct node *node) {
    return holder_of(node)->held && time_of(node) < holder_of(node)->held_until;
}
static inline struct list *jobs_of(const struct node *node) {
    return &migrations_of(node)->in_progress;
}
static inline struct slot_job *job_at(struct list_link *link) {
    return container_of(link, struct slot_job, progress);
}
static inline bool writes_stream(const struct node *node) {
    return !node->replica && !holder_of(node)->loading;
}

/* --- migration_simulator.c --- */

struct kept_message moving_keep(const struct slot_message *message);
struct sent *moving_send_to(int kind, const struct node *from, int to, unsigned link);
void moving_hear_owner(struct node *node, unsigned mobile, const struct node_id *id, uint64_t epoch);
void moving_follow_log(struct node *node);
struct command *moving_write_command(struct node *node, enum command_kind kind);
bool moving_has_keys(const struct node *node);
void moving_drop_slot(struct node *node, unsigned mobile);
void moving_link_closed(struct node *node, unsigned link);
void moving_step(void);
void moving_begin(void); /* before the machines of the clusters exist */
/* The slots that the machine of a cluster asks about. */
void moving_set_effects(struct cluster_effects *effects);

/* --- migration_host.c --- */

void moving_machine_init(struct node *node, struct cluster *cluster);
void moving_close(void *context, struct slot_job *job);
void moving_snapshot_step(const struct node *node, struct slot_export *export);
void moving_stream_value(const struct node *node, unsigned slot, uint64_t value);
void moving_record(void *context, const struct slot_message *message);

/* --- migration_files.c --- */

void moving_copy_clear(struct migration_copy *copy);
void moving_copied(struct node *node, const struct node *from);
void moving_load(struct node *node);
void moving_crashed(struct node *node);
void moving_started(struct node *node);
void moving_rewrite_file(struct node *node);
void moving_load_file(struct node *node);
void moving_leave_shard(struct node *node);
void moving_emptied(struct node *node);

/* --- migration_faults.c --- */

void moving_migrate_some_slot(void);
void moving_disturb_some_job(void);
void moving_lose(unsigned shard);
const char *moving_keys_left_behind(void);
const char *moving_unfinished(void);
