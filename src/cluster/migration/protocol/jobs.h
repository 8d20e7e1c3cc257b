/* jobs.h: what the files of the machine share; see migration_machine.h. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"

enum { ACK_INTERVAL_MS = 1000 };

#define each_job(m, job)                                                                                               \
    list_each((struct list *)&(m)->in_progress,                                                                        \
              job##_link) for (struct slot_job *job = container_of(job##_link, struct slot_job, progress); job;        \
                               job = NULL)

static inline struct migration_facts server_facts(const struct migration_machine *m) {
    struct migration_facts facts = {0};
    m->effects->facts(m->context, &facts);
    return facts;
}
/* It leads its shard, for the cluster too. */
static inline bool server_leads(const struct migration_machine *m, const struct migration_facts *server) {
    return node_is_primary(m->cluster->myself) && !server->replica && server->leads;
}
void job_say(struct migration_machine *m, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void job_say_seldom(struct migration_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_init(struct migration_machine *m, struct slot_job *job, struct slice name, size_t count,
              const uint16_t (*ranges)[2]);
/* Changes the state; logs that its name has changed, from this one. */
void job_changed(struct migration_machine *m, struct slot_job *job, const char *before);
/* Closes the link, and drops the question. */
void job_detach(struct migration_machine *m, struct slot_job *job);
void job_send(struct migration_machine *m, struct slot_job *job, enum slot_verb verb);
/* The message has the name of the job, and with `ranges` its ranges. */
struct slot_message job_message(const struct slot_job *job, enum slot_verb verb, bool ranges);
void job_record_finish(struct migration_machine *m, const struct slot_job *job, bool success, const char *text,
                       uint64_t epoch);
void job_unexpected(struct migration_machine *m, struct slot_job *job, enum slot_verb verb);
bool job_owns_all(const struct migration_machine *m, const struct slot_bitmap *slots);
/* The end of a job: it is over, with this message, and this is logged. */
void job_leave(struct migration_machine *m, struct slot_job *job, bool success);
void job_finished(struct migration_machine *m, struct slot_job *job, enum slot_finish how, const char *message);
bool job_times_out(struct migration_machine *m, struct slot_job *job);

/* This node is about to take slots, or has the grant and waits for its shard. */
bool imports_may_take(const struct migration_machine *m);
