/* target.c: struct slot_import: the target of a migration, jobs that are tracked, and what the target's shard answers
 * when it is asked for the outcome. See migration_machine.h. */
#include "cluster/migration/protocol/target.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

static void import_enter(struct migration_machine *m, struct slot_import *import, enum import_state state) {
    const char *before = job_state_name(&import->job);
    must(!job_is_over(&import->job));
    import->state = state;
    job_changed(m, &import->job, before);
}

/* --- Questions --- */

struct slot_import *import_with_slot(const struct migration_machine *m, unsigned slot) {
    each_job(m, job) {
        if (job->kind == JOB_IMPORT && slot_bitmap_has(&job->slots, slot)) return import_of(job);
    }
    return NULL;
}

/* See migration.h: why not at once. */
static bool may_request_failover(const struct migration_machine *m, const struct slot_import *import) {
    bool is_smaller = memcmp(&import->job.target, &import->job.source, NODE_ID_LEN) < 0;
    each_job(m, job) {
        const struct slot_export *export = export_of(job);
        if (!export) continue;
        if (export_is_granted(export)) return false;
        if (export->state >= EXPORT_PAUSED && is_smaller) return false;
    }
    return true;
}

/* --- The end --- */

void import_end(struct migration_machine *m, struct slot_import *import, enum slot_finish how, const char *text) {
    const struct migration_facts server = server_facts(m);
    bool success = how == FINISH_SUCCESS, is_copy = import_is_tracked(import) && server.replica;
    struct slot_job *job = &import->job;
    must(!job_is_over(job));
    job->ending = NULL;
    job_detach(m, job);
    if (!success && !is_copy) {
        import_enter(m, import, IMPORT_CLEANING_UP);
        job_say(m, LOG_LEVEL_NOTICE, "Cleaning up slot migration %s after %s", job_text(m, job),
                how == FINISH_FAILED ? "failed" : "cancelled");
    }
    if (!success) m->effects->drop_keys(m->context, import);
    m->effects->show_keys(m->context, import);
    if (!is_copy) {
        bool claimed = success && server.sync && !server.replica; /* Valkey does not know EPOCH */
        job_record_finish(m, job, success, text, claimed ? m->cluster->myself->config_epoch : 0);
        m->last_end = server_facts(m).offset;
    }
    job_leave(m, job, success);
    job_finished(m, job, how, text);
}

/* --- Taking the slots --- */

enum take_step take_decide(const struct take_facts *facts) {
    if (!facts->leads) return TAKE_WAIT;
    /* The claim may be on disk, or have reached this successor on the bus, without the end of the job. */
    if (facts->tracked && facts->owns) return TAKE_CLAIM;
    if (facts->decided) return facts->certain && facts->committed ? TAKE_CLAIM : TAKE_WAIT;
    if (facts->tracked) return TAKE_FAIL;
    return facts->granted && facts->certain && !facts->held ? TAKE_DECIDE : TAKE_WAIT;
}

static struct take_facts take_facts(const struct migration_machine *m, const struct slot_import *import) {
    struct migration_facts server = server_facts(m);
    bool takes = import_takes(import);
    return (struct take_facts){.leads = server_leads(m, &server) && !server.loading,
                               .certain = server.certain,
                               .granted = import->state == IMPORT_GRANTED,
                               .held = m->settings->prevent_failover,
                               .decided = takes,
                               .committed = takes && m->effects->committed(m->context, import->job.committed_at),
                               .tracked = import_is_tracked(import),
                               .owns = job_owns_all(m, &import->job.slots)};
}

/* This node takes the slots. From here on their keys are seen, and the source's clients are sent here. */
static void claim_slots(struct migration_machine *m, struct slot_import *import) {
    must(import_takes(import) || import_is_tracked(import));
    if (!import_is_tracked(import) || !job_owns_all(m, &import->job.slots))
        cluster_take_slots(m->cluster, &import->job.slots, m->now_ms);
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s completed successfully. This node is now the owner of the slots",
            job_text(m, &import->job));
    import_end(m, import, FINISH_SUCCESS, "");
}

static void decide_to_take(struct migration_machine *m, struct slot_import *import) {
    struct slot_message take = job_message(&import->job, VERB_TAKE, false);
    must(import->state == IMPORT_GRANTED);
    if (server_facts(m).sync) m->effects->record(m->context, &take);
    import_enter(m, import, IMPORT_TAKING);
    import->job.committed_at = server_facts(m).offset;
}

/* Goes on with a job that was granted, or is tracked. Without synchronous replication it is carried out at once. */
static void take_slots(struct migration_machine *m, struct slot_import *import) {
    struct take_facts facts = take_facts(m, import);
    if (facts.leads && facts.decided && import->job.committed_at < 0) {
        import->job.committed_at = server_facts(m).offset;
        facts = take_facts(m, import);
    }
    enum take_step step = take_decide(&facts);
    if (step == TAKE_DECIDE) {
        decide_to_take(m, import);
        facts = take_facts(m, import);
        step = take_decide(&facts);
    }
    if (step == TAKE_CLAIM) claim_slots(m, import);
    if (step == TAKE_FAIL)
        job_end_later(&import->job, m->restarted ? "Process restarted" : "A failover occurred during slot import");
}

/* --- The link --- */

struct slot_import *import_new(struct migration_machine *m, struct slice name, const struct node_id *source,
                               const struct slot_ranges *ranges, int64_t now_ms) {
    struct slot_import *import = mem_calloc(1, sizeof(*import));
    m->now_ms = now_ms;
    import->job.kind = JOB_IMPORT;
    import->job.source = *source;
    import->job.target = m->cluster->myself->id;
    import->job.linked = true;
    import->job.owners_version = m->cluster->slots.version;
    job_init(m, &import->job, name, ranges->count, (const uint16_t(*)[2])ranges->list);
    job_say(m, LOG_LEVEL_NOTICE, "New slot import job created: %s.", job_text(m, &import->job));
    m->effects->hide_keys(m->context, import);
    return import;
}

void import_link_lost(struct migration_machine *m, struct slot_import *import) {
    import->job.linked = false;
    if (job_is_over(&import->job) || import->job.ending) return;
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s connection lost", job_text(m, &import->job));
    job_end_later(&import->job,
                  "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more "
                  "information.");
}

/* The answer, and whether ACK will say that the changes since the snapshot were sent. */
static void answer_capability(struct migration_machine *m, struct slot_import *import,
                              const struct slot_message *asked) {
    struct slot_message answer = {.verb = VERB_CAPA};
    if (asked->capability == CAPABILITY_NONE) return;
    import->acks_changes = true;
    if (m->effects->takes_chunks(m->context, import)) {
        answer.capability = CAPABILITY_CHUNKS;
        if (asked->capability == CAPABILITY_PULL && m->effects->open_fetch(m->context, import, asked->key))
            answer.capability = CAPABILITY_PULL;
    }
    m->effects->send(m->context, &import->job, &answer);
}

static void request_pause(struct migration_machine *m, struct slot_import *import) {
    import_enter(m, import, IMPORT_PAUSE_REQUESTED);
    job_send(m, &import->job, VERB_REQUEST_PAUSE);
}

static void snapshot_ended(struct migration_machine *m, struct slot_import *import) {
    if (import->state != IMPORT_RECEIVING_SNAPSHOT || !m->effects->fetch_is_idle(m->context, import)) {
        job_unexpected(m, &import->job, VERB_SNAPSHOT_EOF);
        return;
    }
    m->effects->close_fetch(m->context, import);
    job_say(m, LOG_LEVEL_NOTICE,
            "Slot migration %s successfully received slot snapshot. Beginning incremental stream...",
            job_text(m, &import->job));
    import_enter(m, import, IMPORT_RECEIVING_CHANGES);
    if (!import->acks_changes) request_pause(m, import);
}

void import_received(struct migration_machine *m, struct slot_import *import, const struct slot_message *message,
                     int64_t now_ms) {
    m->now_ms = now_ms;
    job_heard(&import->job, now_ms);
    if (import->job.ending) return;
    switch (message->verb) {
    case VERB_ACK:
        if (import->state == IMPORT_WAITING_FOR_ACK) import_enter(m, import, IMPORT_RECEIVING_SNAPSHOT);
        if (import->state == IMPORT_RECEIVING_CHANGES) request_pause(m, import);
        return;
    case VERB_CAPA: answer_capability(m, import, message); return;
    case VERB_OFFER:
    case VERB_CHUNK:
        if (import->state != IMPORT_RECEIVING_SNAPSHOT) break;
        m->effects->receive(m->context, import, message);
        return;
    case VERB_SNAPSHOT_EOF: snapshot_ended(m, import); return;
    case VERB_PAUSED:
        if (import->state < IMPORT_RECEIVING_CHANGES || import->state > IMPORT_SOURCE_PAUSED) break;
        import_enter(m, import, IMPORT_SOURCE_PAUSED);
        return;
    case VERB_FAILOVER_GRANTED:
        if (import->state != IMPORT_FAILOVER_REQUESTED) break;
        if (message->epoch) cluster_see_epoch(m->cluster, message->epoch, now_ms);
        import_enter(m, import, IMPORT_GRANTED);
        take_slots(m, import);
        return;
    default: break;
    }
    job_unexpected(m, &import->job, message->verb);
}

/* --- The question for the outcome --- */

enum outcome_answer outcome_decide(const struct outcome_facts *facts) {
    if (!facts->certain) return OUTCOME_LATER;
    switch (facts->job) {
    case OUTCOME_JOB_EARLY: return OUTCOME_LATER;
    case OUTCOME_JOB_WAITS: return facts->held ? OUTCOME_LATER : OUTCOME_GRANTED;
    /* Later they may have gone on to a third shard, or back by another migration. */
    case OUTCOME_JOB_SUCCESS:
        if (facts->owns || !facts->with_source) return OUTCOME_TAKEN;
        return facts->outdated ? OUTCOME_LATER : OUTCOME_CLAIM;
    case OUTCOME_JOB_FAILED:
    case OUTCOME_JOB_UNKNOWN: break;
    }
    /* The files of a job that has failed may be those of a time before it succeeded. But an older owner of the slots,
     * which has come back with a claim from that time, does not keep them from the source. */
    if (facts->owns || !(facts->with_source || facts->unclaimed)) return OUTCOME_TAKEN;
    if (facts->unheard) return OUTCOME_LATER; /* the bus brings it */
    return facts->committed ? OUTCOME_REFUSED : OUTCOME_LATER;
}

static enum outcome_job job_asked_about(const struct slot_job *job) {
    const struct slot_import *import = job ? import_of(job) : NULL;
    if (!import) return OUTCOME_JOB_UNKNOWN;
    if (import->state == IMPORT_SUCCESS) return OUTCOME_JOB_SUCCESS;
    if (job_is_over(job)) return OUTCOME_JOB_FAILED;
    if (job->ending) return OUTCOME_JOB_EARLY; /* it is about to end */
    bool waits = import_takes(import) || import->state == IMPORT_FAILOVER_REQUESTED || import->state == IMPORT_GRANTED;
    return waits ? OUTCOME_JOB_WAITS : OUTCOME_JOB_EARLY;
}

static struct outcome_facts outcome_facts(const struct migration_machine *m, const struct slot_job *job,
                                          const struct slot_message *question, const struct slot_bitmap *slots) {
    const struct cluster *cluster = m->cluster;
    const struct cluster_node *myself = cluster->myself, *asker = nodes_find(&cluster->nodes, &question->source);
    struct migration_facts server = server_facts(m);
    struct outcome_facts facts = {.job = job_asked_about(job),
                                  .certain =
                                      node_is_primary(myself) && !server.replica && !server.loading && server.certain,
                                  .committed = m->effects->committed(m->context, m->last_end),
                                  .held = m->settings->prevent_failover,
                                  .owns = job_owns_all(m, slots)};
    for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        facts.unclaimed |= owner && owner != myself && slot_bitmap_has(&cluster->slots.unclaimed, slot);
        facts.with_source |= !owner || (asker && owner != myself && nodes_share_shard(owner, asker));
        facts.outdated |= owner && owner != myself && owner->config_epoch > question->epoch;
        facts.unheard |= m->effects->owner_is_unknown(m->context, slot);
    }
    return facts;
}

enum outcome_answer import_asked(struct migration_machine *m, const struct slot_message *question,
                                 const struct slot_bitmap *slots, int64_t now_ms) {
    struct slot_job *job = job_find(m, question->name);
    m->now_ms = now_ms;
    struct outcome_facts facts = outcome_facts(m, job, question, slots);
    enum outcome_answer answer = outcome_decide(&facts);
    if (answer == OUTCOME_CLAIM && exports_await_claim(m, NULL)) answer = OUTCOME_LATER;
    if (answer != OUTCOME_GRANTED && answer != OUTCOME_CLAIM) return answer;
    cluster_see_epoch(m->cluster, question->epoch, now_ms);
    if (answer == OUTCOME_GRANTED) {
        must(job && job->kind == JOB_IMPORT);
        struct slot_import *import = import_of(job);
        if (import->state == IMPORT_FAILOVER_REQUESTED) import_enter(m, import, IMPORT_GRANTED);
        take_slots(m, import);
        return import->state == IMPORT_SUCCESS ? OUTCOME_TAKEN : OUTCOME_LATER;
    }
    cluster_take_slots(m->cluster, slots, now_ms);
    job_say(m, LOG_LEVEL_NOTICE, "Slots of migration %.*s are taken: the source's shard has granted them",
            (int)question->name.len, question->name.data);
    return OUTCOME_TAKEN;
}

/* --- All states --- */

static void check_owners(struct migration_machine *m, struct slot_import *import) {
    const struct slot_table *slots = &m->cluster->slots;
    struct slot_job *job = &import->job;
    if (job->owners_version == slots->version) return;
    job->owners_version = slots->version;
    for (unsigned slot = 0; (slot = slot_bitmap_next(&job->slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = slots->owner[slot];
        if (owner && owner != m->cluster->myself && node_id_equal(&owner->id, &job->source)) continue;
        job_end_later(job, owner == m->cluster->myself ? "Slots were unexpectedly assigned to myself during import"
                                                       : "Slots are no longer owned by source node");
        return;
    }
}

/* The source's acknowledged writes: this shard must be able to lose this node before the source gives them up. */
static void request_failover(struct migration_machine *m, struct slot_import *import) {
    if (!may_request_failover(m, import)) return;
    if (import->job.committed_at < 0) import->job.committed_at = server_facts(m).offset;
    if (!m->effects->committed(m->context, import->job.committed_at)) return;
    import_enter(m, import, IMPORT_FAILOVER_REQUESTED);
    job_send(m, &import->job, VERB_REQUEST_FAILOVER);
}

void import_step(struct migration_machine *m, struct slot_import *import) {
    struct migration_facts server = server_facts(m);
    if (import_is_tracked(import)) {
        if (server.replica) m->restarted = false;
        take_slots(m, import);
        return;
    }
    if (server.replica) {
        job_detach(m, &import->job);
        import->job.committed_at = -1;
        import->job.tracked = true;
        import_enter(m, import, import->state == IMPORT_TAKING ? IMPORT_TRACKED_TAKING : IMPORT_TRACKED);
        return;
    }
    if (!node_is_primary(m->cluster->myself) || server.stands)
        job_end_later(&import->job, "A failover occurred during slot import");
    else
        check_owners(m, import);
    m->effects->load_fetched(m->context, import);
    if (import->job.ending) return;
    if (import->state == IMPORT_GRANTED || import->state == IMPORT_TAKING) take_slots(m, import);
    if (import->state == IMPORT_SOURCE_PAUSED) request_failover(m, import);
}

void import_tick(struct migration_machine *m, struct slot_import *import) {
    struct slot_job *job = &import->job;
    if (import_is_tracked(import) || !job->linked || job_times_out(m, job)) return;
    if (import->state == IMPORT_WAITING_FOR_ACK || m->now_ms - job->sent_ms < ACK_INTERVAL_MS) return;
    job->sent_ms = m->now_ms;
    job_send(m, job, VERB_ACK);
}

/* --- The stream of the primary, and files --- */

void import_track(struct migration_machine *m, const struct slot_message *establish) {
    struct slot_job *known = job_find(m, establish->name);
    if (!server_facts(m).loading) m->restarted = false;
    if (known && !job_is_over(known)) return;
    struct slot_import *import = mem_calloc(1, sizeof(*import));
    import->job.kind = JOB_IMPORT;
    import->job.tracked = true;
    import->state =
        slot_takes_has(memory_output_slice(&m->takes), establish->name) ? IMPORT_TRACKED_TAKING : IMPORT_TRACKED;
    job_init(m, &import->job, establish->name, establish->count, establish->ranges);
    job_say(m, LOG_LEVEL_NOTICE, "New slot import job created: %s.", job_text(m, &import->job));
    m->effects->hide_keys(m->context, import);
}

bool import_track_take(struct migration_machine *m, struct slice name) {
    struct slot_job *job = job_find(m, name);
    struct slot_import *import = job ? import_of(job) : NULL;
    if (!import || !import_is_tracked(import)) return false;
    import->state = IMPORT_TRACKED_TAKING;
    return true;
}

/* The keys are shown before this server serves the slots, which it may own already. */
void import_lead(struct migration_machine *m, struct slot_import *import) {
    import->job.committed_at = -1;
    if (import->state == IMPORT_TRACKED_TAKING) m->effects->show_keys(m->context, import);
}
