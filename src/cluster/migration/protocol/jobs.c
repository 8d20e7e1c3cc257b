/* jobs.c: the jobs of both ends: their list, names, texts and messages. See jobs.h. */
#include "cluster/migration/protocol/jobs.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <stdarg.h>
#include <stdio.h>

static const char *const export_names[] = {[EXPORT_WAITING_TO_DIAL] = "connecting",
                                           [EXPORT_CONNECTING] = "connecting",
                                           [EXPORT_SENDING_AUTH] = "sending-auth-command",
                                           [EXPORT_READING_AUTH] = "reading-auth-response",
                                           [EXPORT_SENDING_ESTABLISH] = "sending-establish-command",
                                           [EXPORT_READING_ESTABLISH] = "reading-establish-response",
                                           [EXPORT_ASKING_CHUNKS] = "waiting-to-snapshot",
                                           [EXPORT_ASKING_PULL] = "waiting-to-snapshot",
                                           [EXPORT_WAITING_TO_SNAPSHOT] = "waiting-to-snapshot",
                                           [EXPORT_SNAPSHOTTING] = "snapshotting",
                                           [EXPORT_SNAPSHOT_TAKEN] = "snapshotting",
                                           [EXPORT_REPLICATING] = "replicating",
                                           [EXPORT_PAUSE_REQUESTED] = "replicating",
                                           [EXPORT_WAITING_TO_PAUSE] = "waiting-to-pause",
                                           [EXPORT_PAUSED] = "failover-paused",
                                           [EXPORT_FAILOVER_REQUESTED] = "failover-paused",
                                           [EXPORT_RECORDED] = "failover-paused",
                                           [EXPORT_GRANTED] = "failover-granted",
                                           [EXPORT_REFUSED] = "failover-granted",
                                           [EXPORT_GRANTED_RECORDED] = "failover-granted",
                                           [EXPORT_RECORDED_REFUSED] = "failover-granted",
                                           [EXPORT_TRACKED] = "failover-granted",
                                           [EXPORT_SUCCESS] = "success",
                                           [EXPORT_CANCELLED] = "cancelled",
                                           [EXPORT_FAILED] = "failed"};
static const char *const import_names[] = {[IMPORT_WAITING_FOR_ACK] = "waiting-for-ack",
                                           [IMPORT_RECEIVING_SNAPSHOT] = "receiving-snapshot",
                                           [IMPORT_RECEIVING_CHANGES] = "waiting-for-paused",
                                           [IMPORT_PAUSE_REQUESTED] = "waiting-for-paused",
                                           [IMPORT_SOURCE_PAUSED] = "waiting-for-paused",
                                           [IMPORT_FAILOVER_REQUESTED] = "failover-requested",
                                           [IMPORT_GRANTED] = "failover-granted",
                                           [IMPORT_TAKING] = "failover-granted",
                                           [IMPORT_TRACKED] = "occurring-on-primary",
                                           [IMPORT_TRACKED_TAKING] = "occurring-on-primary",
                                           [IMPORT_CLEANING_UP] = "cleaning-up",
                                           [IMPORT_SUCCESS] = "success",
                                           [IMPORT_CANCELLED] = "cancelled",
                                           [IMPORT_FAILED] = "failed"};
static const enum export_state export_ends[] = {
    [FINISH_FAILED] = EXPORT_FAILED, [FINISH_CANCELLED] = EXPORT_CANCELLED, [FINISH_SUCCESS] = EXPORT_SUCCESS};
static const enum import_state import_ends[] = {
    [FINISH_FAILED] = IMPORT_FAILED, [FINISH_CANCELLED] = IMPORT_CANCELLED, [FINISH_SUCCESS] = IMPORT_SUCCESS};

const char *job_state_name(const struct slot_job *job) {
    if (job->kind == JOB_IMPORT) return import_names[import_of(job)->state];
    return export_names[export_of(job)->cancelled ? EXPORT_CANCELLED : export_of(job)->state];
}

/* --- The list --- */

void job_init(struct migration_machine *m, struct slot_job *job, struct slice name, size_t count,
              const uint16_t (*ranges)[2]) {
    must(name.len == JOB_NAME_LEN);
    memcpy(job->name, name.data, JOB_NAME_LEN);
    job->count = count;
    job->ranges = mem_alloc(count * sizeof(*ranges));
    memcpy(job->ranges, ranges, count * sizeof(*ranges));
    for (size_t i = 0; i < count; i++)
        for (unsigned slot = ranges[i][0]; slot <= ranges[i][1]; slot++) slot_bitmap_set(&job->slots, slot);
    job->created_ms = job->changed_ms = job->acked_ms = job->heard_ms = job->sent_ms = m->now_ms;
    job->message = mem_strndup("", 0);
    job->committed_at = -1;
    list_prepend(&m->jobs, &job->link);
    list_append(&m->in_progress, &job->progress);
    m->effects->created(m->context, job);
}

void job_leave(struct migration_machine *m, struct slot_job *job, bool success) {
    list_remove(&m->in_progress, &job->progress);
    m->effects->ended(m->context, job, success);
    m->trim_due = true;
}

struct slot_job *job_find(const struct migration_machine *m, struct slice name) {
    list_each_entry((struct list *)&m->jobs, struct slot_job, link, job) {
        if (slice_equal(name, slice_make(job->name, JOB_NAME_LEN))) return job;
    }
    return NULL;
}

bool exports_await_claim(const struct migration_machine *m, const struct slot_export *except) {
    each_job(m, job) {
        const struct slot_export *export = export_of(job);
        if (export && export != except && (export->state == EXPORT_GRANTED || export->state == EXPORT_GRANTED_RECORDED))
            return true;
    }
    return false;
}

bool imports_may_take(const struct migration_machine *m) {
    each_job(m, job) {
        const struct slot_import *import = import_of(job);
        if (import &&
            (import_takes(import) || import->state == IMPORT_FAILOVER_REQUESTED || import->state == IMPORT_GRANTED))
            return true;
    }
    return false;
}

/* --- Texts --- */

const char *job_text(struct migration_machine *m, const struct slot_job *job) {
    char head[200 + NODE_NAME_MAX], peer[NODE_ID_LEN + 1] = "unknown";
    bool import = job->kind == JOB_IMPORT;
    const struct node_id *id = import ? &job->source : &job->target;
    const char *which = import ? "source" : "target";
    const struct cluster_node *node = id->text[0] ? nodes_find(&m->cluster->nodes, id) : NULL;
    if (id->text[0]) memcpy(peer, id->text, NODE_ID_LEN);
    memory_output_clear(&m->text);
    int len = snprintf(head, sizeof head, "{name: %s, operation: %s, %s_node_id: %s", job->name,
                       import ? "import" : "export", which, peer);
    output_write(&m->text.out, slice_make(head, (size_t)len));
    if (node && node->announced.nodename) {
        len = snprintf(head, sizeof head, ", %s_node_human_name: %s", which, node->announced.nodename);
        output_write(&m->text.out, slice_make(head, (size_t)len));
    }
    output_write(&m->text.out, SLICE(", slots: "));
    job_write_ranges(job, &m->text.out);
    output_write(&m->text.out, slice_make("}", 2));
    return m->text.data;
}

void job_write_ranges(const struct slot_job *job, struct output *out) {
    char text[16];
    for (size_t i = 0; i < job->count; i++) {
        int len = snprintf(text, sizeof text, "%s%u-%u", i ? " " : "", job->ranges[i][0], job->ranges[i][1]);
        output_write(out, slice_make(text, (size_t)len));
    }
}

static char *format_text(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    size_t size = (size_t)vsnprintf(NULL, 0, format, args) + 1;
    char *text = mem_alloc(size);
    vsnprintf(text, size, format, again);
    va_end(again);
    return text;
}

void job_say(struct migration_machine *m, enum log_level level, const char *format, ...) {
    va_list args;
    if (level < log_level) return;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    m->effects->log(m->context, level, text);
    mem_free(text);
}

void job_say_seldom(struct migration_machine *m, const char *format, ...) {
    va_list args;
    if (LOG_LEVEL_NOTICE < log_level) return;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    m->effects->log_seldom(m->context, text);
    mem_free(text);
}

/* The messages that one end sends, and why they do not fit the state of the other. The texts are Valkey's. */
static const struct {
    enum slot_verb verb;
    const char *how, *direction, *reason;
} unexpected[] = {
    {VERB_REQUEST_PAUSE, "", "for", "but the client was not streaming incremental updates"},
    {VERB_REQUEST_FAILOVER, "", "for", "but the client was not in the paused state"},
    {VERB_SNAPSHOT_EOF, "", "from", "but not currently loading an AOF snapshot"},
    {VERB_PAUSED, "unexpected ", "from", ""},
    {VERB_FAILOVER_GRANTED, "", "from", "but we never sent a failover request"},
    {VERB_CHUNK, "", "from", "but not currently loading a snapshot"},
    {VERB_OFFER, "", "from", "but not currently loading a snapshot"},
    {VERB_PULLED, "", "for", "but no snapshot is offered"},
};

void job_unexpected(struct migration_machine *m, struct slot_job *job, enum slot_verb verb) {
    for (size_t i = 0; i < sizeof unexpected / sizeof *unexpected; i++) {
        if (verb != unexpected[i].verb) continue;
        job_say(m, LOG_LEVEL_WARNING, "Received %sCLUSTER SYNCSLOTS %s %s slot migration %s, %s. Failing migration.",
                unexpected[i].how, slot_verb_name(verb), unexpected[i].direction, job_text(m, job),
                unexpected[i].reason);
        job_end_later(job, "Unexpected state machine transition");
        return;
    }
    job_say(m, LOG_LEVEL_WARNING,
            "Received unknown SYNCSLOTS subcommand from slot migration %s. Failing the migration.", job_text(m, job));
    job_end_later(job, "Unknown SYNCSLOTS subcommand used");
}

/* --- States and ends --- */

void job_changed(struct migration_machine *m, struct slot_job *job, const char *before) {
    const char *after = job_state_name(job);
    if (strcmp(before, after) == 0) return;
    job->changed_ms = m->now_ms;
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s state transition: %s -> %s", job_text(m, job), before, after);
}

void job_heard(struct slot_job *job, int64_t now_ms) {
    job->acked_ms = job->heard_ms = now_ms;
}

void job_finished(struct migration_machine *m, struct slot_job *job, enum slot_finish how, const char *message) {
    const char *before = job_state_name(job);
    if (job->kind == JOB_IMPORT)
        import_of(job)->state = import_ends[how];
    else
        export_of(job)->state = export_ends[how];
    job_changed(m, job, before);
    mem_free(job->message);
    job->message = mem_strdup(message);
    job_say(m, how == FINISH_FAILED ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE,
            "Slot migration %s finished. State: %s, Message: %s", job_text(m, job), job_state_name(job), message);
}

void job_end_later(struct slot_job *job, const char *message) {
    bool goes_on = job->kind == JOB_IMPORT && import_takes(import_of(job));
    if (!job->ending && !job_is_over(job) && !goes_on) job->ending = message;
}

bool job_times_out(struct migration_machine *m, struct slot_job *job) {
    if (m->now_ms - job->heard_ms <= m->settings->timeout_ms) return false;
    job_say(m, LOG_LEVEL_WARNING, "Timing out slot migration %s after not receiving ack for too long",
            job_text(m, job));
    job_end_later(job, "Timed out after too long with no interaction");
    return true;
}

bool job_owns_all(const struct migration_machine *m, const struct slot_bitmap *slots) {
    unsigned slot = 0;
    while ((slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS && cluster_serves(m->cluster, slot)) slot++;
    return slot == HASH_SLOTS;
}

/* --- Messages --- */

struct slot_message job_message(const struct slot_job *job, enum slot_verb verb, bool ranges) {
    struct slot_message message = {.verb = verb, .name = slice_make(job->name, JOB_NAME_LEN)};
    if (!ranges) return message;
    message.count = job->count;
    message.ranges = (const uint16_t(*)[2])job->ranges;
    return message;
}

void job_send(struct migration_machine *m, struct slot_job *job, enum slot_verb verb) {
    struct slot_message message = {.verb = verb};
    m->effects->send(m->context, job, &message);
}

void job_detach(struct migration_machine *m, struct slot_job *job) {
    job->linked = false;
    m->effects->close(m->context, job);
}

void job_record_finish(struct migration_machine *m, const struct slot_job *job, bool success, const char *text,
                       uint64_t epoch) {
    struct slot_message finish = job_message(job, VERB_FINISH, false);
    finish.finish = success ? FINISH_SUCCESS : FINISH_FAILED;
    finish.text = slice_of(text);
    finish.epoch = epoch;
    m->effects->record(m->context, &finish);
}
