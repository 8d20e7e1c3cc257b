/* migration_machine.c: the events that concern all jobs: time, files, the stream of the primary. See
 * migration_machine.h. */
#include "cluster/migration/protocol/source.h"
#include "cluster/migration/protocol/target.h"
#include "lib/system/memory.h"

/* --- Life --- */

void migrations_init(struct migration_machine *m, const struct migration_settings *settings,
                     const struct migration_effects *effects, void *context, struct cluster *cluster) {
    *m = (struct migration_machine){
        .settings = settings, .effects = effects, .context = context, .cluster = cluster, .trimmed_to = -1};
    list_init(&m->jobs);
    list_init(&m->in_progress);
    memory_output_init(&m->takes);
    memory_output_init(&m->text);
}

static struct slot_job *job_of(struct list_link *link) {
    return container_of(link, struct slot_job, link);
}

static void job_free(struct migration_machine *m, struct slot_job *job) {
    m->effects->freed(m->context, job);
    if (!job_is_over(job)) list_remove(&m->in_progress, &job->progress);
    list_remove(&m->jobs, &job->link);
    mem_free(job->ranges);
    mem_free(job->message);
    if (job->kind == JOB_IMPORT)
        mem_free(import_of(job));
    else
        mem_free(export_of(job));
}

void migrations_free(struct migration_machine *m) {
    list_each(&m->jobs, link) job_free(m, job_of(link));
    memory_output_free(&m->takes);
    memory_output_free(&m->text);
}

/* Not where a job ends: callers go on to look at it. */
static void jobs_trim(struct migration_machine *m) {
    int64_t kept = 0;
    if (!m->trim_due && m->trimmed_to == m->settings->log_max_len) return;
    m->trim_due = false;
    m->trimmed_to = m->settings->log_max_len;
    list_each(&m->jobs, link) {
        if (job_is_over(job_of(link)) && ++kept > m->settings->log_max_len) job_free(m, job_of(link));
    }
}

/* --- Events --- */

static void job_end(struct migration_machine *m, struct slot_job *job, enum slot_finish how, const char *text) {
    if (job->kind == JOB_IMPORT)
        import_end(m, import_of(job), how, text);
    else
        export_end(m, export_of(job), how, text, false);
}

static void jobs_settle(struct migration_machine *m) {
    each_job(m, job) {
        if (job->ending) job_end(m, job, job->ends_well ? FINISH_SUCCESS : FINISH_FAILED, job->ending);
    }
    jobs_trim(m);
}

void migrations_tick(struct migration_machine *m, int64_t now_ms) {
    m->now_ms = now_ms;
    each_job(m, job) {
        if (job->ending) continue;
        if (job->kind == JOB_IMPORT)
            import_tick(m, import_of(job));
        else
            export_tick(m, export_of(job));
    }
    jobs_settle(m);
}

void migrations_turn_end(struct migration_machine *m, int64_t now_ms) {
    m->now_ms = now_ms;
    each_job(m, job) {
        if (job->ending) continue;
        if (job->kind == JOB_IMPORT)
            import_step(m, import_of(job));
        else
            export_step(m, export_of(job));
    }
    jobs_settle(m);
}

void migrations_settle(struct migration_machine *m, int64_t now_ms) {
    m->now_ms = now_ms;
    jobs_settle(m);
}

void migrations_stop(struct migration_machine *m, int64_t now_ms) {
    m->now_ms = now_ms;
    each_job(m, job) {
        if (job->kind == JOB_EXPORT) job_end(m, job, FINISH_FAILED, "Server is shutting down");
    }
}

static const char was_flushed[] = "Data was flushed";

void migrations_flushed(struct migration_machine *m) {
    each_job(m, job) {
        const struct slot_export *export = export_of(job);
        if (!export || (export->state != EXPORT_TRACKED && !export->cancelled)) job_end_later(job, was_flushed);
    }
}

void migrations_slot_flushed(struct migration_machine *m, unsigned slot) {
    struct slot_import *import = import_with_slot(m, slot);
    if (import) job_end_later(&import->job, was_flushed);
}

void migrations_lead(struct migration_machine *m, int64_t now_ms) {
    m->now_ms = now_ms;
    m->last_end = server_facts(m).offset;
    each_job(m, job) {
        if (job->kind == JOB_IMPORT)
            import_lead(m, import_of(job));
        else
            export_lead(m, export_of(job));
    }
}

void migrations_left_shard(struct migration_machine *m, int64_t now_ms) {
    static const char left[] = "This node left its shard";
    m->now_ms = now_ms;
    each_job(m, job) { /* others find that their slots have moved */
        struct slot_import *import = import_of(job);
        if (import && (import_is_tracked(import) || import_takes(import)))
            import_end(m, import, FINISH_FAILED, left);
        else if (!import && export_is_recorded(export_of(job)))
            export_end(m, export_of(job), FINISH_FAILED, left, true); /* the others decide */
    }
}

/* --- Files, and the stream of the primary --- */

/* A job that this server does not track is its own: only it can end it. */
static bool track_finish(struct migration_machine *m, const struct slot_message *finish) {
    struct slot_job *job = job_find(m, finish->name);
    if (!job) return false;
    struct slot_import *import = import_of(job);
    bool tracked = import ? import_is_tracked(import) : export_of(job)->state == EXPORT_TRACKED;
    if (!tracked && !job_is_over(job)) return false;
    if (tracked) {
        char *text = mem_strndup(finish->text.data, finish->text.len);
        if (import)
            import_end(m, import, finish->finish, text);
        else
            export_end(m, export_of(job), finish->finish, text, true);
        mem_free(text);
    }
    struct cluster_node *primary = cluster_shard_primary(m->cluster);
    if (finish->epoch && primary) /* it has taken the slots, or has taken them back */
        cluster_hear_claim(m->cluster, primary, &job->slots, finish->epoch, m->now_ms);
    return true;
}

bool migrations_track(struct migration_machine *m, const struct slot_message *message, int64_t now_ms) {
    m->now_ms = now_ms;
    switch (message->verb) {
    case VERB_ESTABLISH: import_track(m, message); return true;
    case VERB_GRANT: export_track(m, message); return true;
    case VERB_TAKE: return import_track_take(m, message->name);
    case VERB_FINISH: return track_finish(m, message);
    default: return false;
    }
}

void migrations_track_takes(struct migration_machine *m, struct slice names) {
    memory_output_clear(&m->takes);
    output_write(&m->takes.out, names);
}

/* All but those that hold the clients' writes until their outcome is known. */
static void jobs_forget(struct migration_machine *m) {
    list_each(&m->jobs, link) {
        struct slot_job *job = job_of(link);
        const struct slot_export *export = export_of(job);
        if (job_is_over(job) || !export || !export->cancelled || export_is_recorded(export)) job_free(m, job);
    }
}

void migrations_load_begins(struct migration_machine *m, int64_t now_ms) {
    static const char loads[] = "A new RDB is being loaded";
    m->now_ms = now_ms;
    memory_output_clear(&m->takes);
    if (!m->jobs.len) return;
    each_job(m, job) {
        struct slot_export *export = export_of(job);
        if (!export) {
            job_detach(m, job);
            m->effects->forget_keys(m->context, import_of(job));
            job_say(m, LOG_LEVEL_WARNING, "Slot migration %s finished. State: failed, Message: %s", job_text(m, job),
                    loads);
        } else if (export_is_granted(export) && !export_is_recorded(export) && !job->ending &&
                   !server_facts(m).replica) {
            export_cancel(m, export, now_ms); /* DEBUG RELOAD: the target may have taken the slots: writes still wait */
        } else {
            export_end(m, export, FINISH_FAILED, loads, false);
            job_detach(m, job); /* one that goes on: the new data set has it, if it is still to be known */
        }
    }
    job_say(m, LOG_LEVEL_NOTICE, "Cleaning slot migration log in anticipation of a load operation.");
    jobs_forget(m);
}

void migrations_loaded(struct migration_machine *m) {
    m->restarted = true;
}

void migrations_write(const struct migration_machine *m,
                      void (*write)(void *context, const struct slot_message *message), void *context) {
    list_each((struct list *)&m->jobs, link) {
        const struct slot_job *job = job_of(link);
        const struct slot_export *export = export_of(job);
        if (job_is_over(job) || (export && !export_is_recorded(export))) continue;
        struct slot_message message = job_message(job, export ? VERB_GRANT : VERB_ESTABLISH, true);
        if (export) {
            message.target = job->target;
            message.shard = export->target_shard;
            message.epoch = export->target_epoch;
        }
        write(context, &message);
        if (export || !import_takes(import_of(job))) continue;
        message = job_message(job, VERB_TAKE, false);
        write(context, &message);
    }
}
