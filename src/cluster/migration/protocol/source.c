/* source.c: struct slot_export: the source of a migration, and its shard until the outcome of a grant is known. See
 * migration_machine.h. */
#include "cluster/migration/protocol/source.h"
#include "cluster/protocol/own_fields.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <stdio.h>
#include <string.h>

enum {
    GRANTED_PAUSE_MS = 2000,   /* the writes are held at least this long when the target may take the slots */
    ON_THE_WAY_MS = 1000,      /* a message that is read later was sent after the link broke */
    CAPABILITY_WAIT_MS = 1000, /* the snapshot is sent as commands without an answer */
    ASK_INTERVAL_MS = 200,
    ANSWER_TIMEOUT_MS = 2000,
    LINK_SILENCE_MS = 2000
};

static void export_enter(struct migration_machine *m, struct slot_export *export, enum export_state state) {
    const char *before = job_state_name(&export->job);
    must(!job_is_over(&export->job));
    export->state = state;
    job_changed(m, &export->job, before);
}

/* --- Questions --- */

static const struct cluster_node *export_target(const struct migration_machine *m, const struct slot_export *export) {
    return nodes_find(&m->cluster->nodes, &export->job.target);
}

/* The target's shard answers the question for the outcome. */
static bool target_answers(const struct cluster_node *target) {
    return target && target->features & OWN_FEATURE_SLOT_OUTCOME;
}

static bool target_shard_is_known(const struct migration_machine *m, const struct slot_export *export) {
    for (size_t i = 0; i < m->cluster->nodes.count; i++)
        if (node_id_equal(&m->cluster->nodes.list[i]->shard, &export->target_shard)) return true;
    return false;
}

/* The node that decides for the target's shard; NULL: none is known. The target itself may have left it. */
static const struct cluster_node *leader_of_target(const struct migration_machine *m,
                                                   const struct slot_export *export) {
    const struct cluster_node *leader = NULL;
    for (size_t i = 0; i < m->cluster->nodes.count; i++) {
        const struct cluster_node *node = m->cluster->nodes.list[i];
        if (!node_is_primary(node) || node_failed(node) || !node_id_equal(&node->shard, &export->target_shard))
            continue;
        if (!leader || node_id_equal(&node->id, &export->job.target)) leader = node;
    }
    return leader;
}

struct slot_export *export_with_slot(const struct migration_machine *m, unsigned slot) {
    each_job(m, job) {
        struct slot_export *export = export_of(job);
        if (export && !export->cancelled && slot_bitmap_has(&job->slots, slot)) return export;
    }
    return NULL;
}

bool exports_granted(const struct migration_machine *m, unsigned slot, const struct cluster_node *node,
                     uint64_t epoch) {
    each_job(m, job) {
        const struct slot_export *export = export_of(job);
        if (export && export_is_granted(export) && slot_bitmap_has(&job->slots, slot) &&
            node_id_equal(&job->target, &node->id) && epoch > export->target_epoch)
            return true;
    }
    return false;
}

bool exports_recorded(const struct migration_machine *m, unsigned slot) {
    each_job(m, job) {
        const struct slot_export *export = export_of(job);
        if (export && export_is_recorded(export) && slot_bitmap_has(&job->slots, slot)) return true;
    }
    return false;
}

/* A cancelled job has granted slots of this job, and its target may take them yet. */
static bool waits_for_outcome(const struct migration_machine *m, const struct slot_export *export) {
    each_job(m, job) {
        const struct slot_export *other = export_of(job);
        if (!other || other == export || !export_is_granted(other)) continue;
        for (unsigned i = 0; i < SLOT_BITMAP_SIZE; i++)
            if (job->slots.bytes[i] & export->job.slots.bytes[i]) return true;
    }
    return false;
}

static bool owns_any(const struct migration_machine *m, const struct slot_export *export) {
    unsigned slot = 0;
    while ((slot = slot_bitmap_next(&export->job.slots, slot, true)) < HASH_SLOTS && !cluster_serves(m->cluster, slot))
        slot++;
    return slot < HASH_SLOTS;
}

/* --- The clients --- */

static bool export_holds(const struct slot_export *export) {
    return export->state >= EXPORT_PAUSED && export->state < EXPORT_TRACKED;
}

/* Holds the clients' writes, or all commands on data, for this job. A grant that is in the stream has no time limit: a
 * successor that finds it there asks the target, which then takes the slots without later writes. Only the end of the
 * job, which is in the stream before them, lets these go on. */
static void hold_clients(struct migration_machine *m, const struct slot_export *export) {
    bool reads = export_is_granted(export) && server_facts(m).sync;
    bool unlimited = reads || export_is_recorded(export);
    m->effects->hold_clients(m->context, reads, unlimited ? INT64_MAX : export->held_until_ms);
}

static void hold_writes(struct migration_machine *m, struct slot_export *export, int64_t ms) {
    if (m->now_ms + ms > export->held_until_ms) export->held_until_ms = m->now_ms + ms;
    hold_clients(m, export);
}

/* The clients are held as the other jobs need it. They execute nothing before this function returns. */
static void release_clients(struct migration_machine *m, const struct slot_export *export) {
    if (!m->effects->clients_are_held(m->context)) return;
    m->effects->release_clients(m->context);
    each_job(m, job) {
        const struct slot_export *other = export_of(job);
        if (other && other != export && export_holds(other)) hold_clients(m, other);
    }
}

/* --- The end --- */

/* No node serves the slots from here on: the outcome is not known, and the clients are not held any more. */
static void give_up_slots(struct migration_machine *m, const struct slot_export *export) {
    struct slot_bitmap owned = {0};
    for (unsigned slot = 0; (slot = slot_bitmap_next(&export->job.slots, slot, true)) < HASH_SLOTS; slot++)
        if (cluster_serves(m->cluster, slot)) slot_bitmap_set(&owned, slot);
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s: the slots are not served until its outcome is known",
            job_text(m, &export->job));
    cluster_give_up_slots(m->cluster, &owned, m->now_ms);
}

/* Another server decides, or this one as a successor of itself. */
static void become_tracked(struct migration_machine *m, struct slot_export *export) {
    struct migration_facts server = server_facts(m);
    job_detach(m, &export->job);
    if (server_leads(m, &server)) give_up_slots(m, export); /* before clients go on */
    export->asks = false;
    m->effects->end_stream(m->context, export);
    if (export_holds(export)) release_clients(m, export);
    export_enter(m, export, EXPORT_TRACKED);
    export->job.tracked = true;
    export->job.committed_at = -1;
    export->job.ending = NULL;
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s was granted. Its outcome is not known", job_text(m, &export->job));
}

/* A leader can withdraw a grant that it has not sent yet. */
static bool export_must_go_on(const struct migration_machine *m, const struct slot_export *export) {
    struct migration_facts facts = server_facts(m);
    return export_is_recorded(export) && (export_is_granted(export) || facts.replica || facts.stands);
}

/* The stream names the owner of those slots of the job that are its. */
static void record_owner(struct migration_machine *m, const struct slot_export *export,
                         const struct cluster_node *owner) {
    struct slot_ranges *ranges = mem_calloc(1, sizeof(*ranges));
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        unsigned first = slot;
        while (slot < HASH_SLOTS && slot_bitmap_has(&export->job.slots, slot) && m->cluster->slots.owner[slot] == owner)
            slot++;
        if (slot > first) slot_ranges_add(ranges, first, slot - 1);
    }
    struct slot_message moved = {.verb = VERB_MOVED,
                                 .name = slice_make(export->job.name, JOB_NAME_LEN),
                                 .target = owner->id,
                                 .shard = owner->shard,
                                 .epoch = owner->config_epoch,
                                 .count = ranges->count,
                                 .ranges = (const uint16_t(*)[2])ranges->list};
    if (moved.count) m->effects->record(m->context, &moved);
    mem_free(ranges);
}

static void record_end(struct migration_machine *m, const struct slot_export *export, bool success, const char *text) {
    const struct cluster_node *myself = m->cluster->myself;
    for (size_t i = 0; success && i < m->cluster->nodes.count; i++) {
        const struct cluster_node *node = m->cluster->nodes.list[i];
        if (node->slot_count && !nodes_share_shard(node, myself)) record_owner(m, export, node);
    }
    bool has_all = !success && job_owns_all(m, &export->job.slots);
    job_record_finish(m, &export->job, success, text, has_all ? myself->config_epoch : 0);
}

void export_end(struct migration_machine *m, struct slot_export *export, enum slot_finish how, const char *text,
                bool decided) {
    struct slot_job *job = &export->job;
    must(!job_is_over(job));
    job->ending = NULL;
    if (!decided && how != FINISH_SUCCESS && export_must_go_on(m, export)) {
        if (export->state != EXPORT_TRACKED) become_tracked(m, export);
        return;
    }
    struct migration_facts facts = server_facts(m);
    bool held = export_holds(export);
    job_detach(m, job);
    export->asks = false;
    if (export_is_recorded(export) && !facts.replica && !facts.loading)
        record_end(m, export, how == FINISH_SUCCESS, text);
    job_leave(m, job, how == FINISH_SUCCESS && !export->cancelled);
    if (export->cancelled)
        export->state = EXPORT_CANCELLED; /* as it was shown all the time */
    else
        job_finished(m, job, how, text);
    m->effects->end_stream(m->context, export);
    if (held) release_clients(m, export);
}

/* --- The handshake --- */

struct slot_export *export_new(struct migration_machine *m, struct slice name, const struct node_id *target,
                               const struct slot_ranges *ranges, int64_t now_ms) {
    struct slot_export *export = mem_calloc(1, sizeof(*export));
    m->now_ms = now_ms;
    export->job.kind = JOB_EXPORT;
    export->job.target = *target;
    export->job.source = m->cluster->myself->id;
    job_init(m, &export->job, name, ranges->count, (const uint16_t(*)[2])ranges->list);
    return export;
}

static void export_dial(struct migration_machine *m, struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export);
    if (!target) {
        job_end_later(&export->job, "Unable to connect to target node: it is not known any more");
        return;
    }
    export_enter(m, export, EXPORT_CONNECTING);
    export->job.heard_ms = m->now_ms; /* from now on it may time out */
    m->effects->dial(m->context, export, target);
}

void export_dial_again(struct slot_export *export) {
    export->state = EXPORT_WAITING_TO_DIAL;
}

static void send_establish(struct migration_machine *m, struct slot_export *export) {
    struct slot_message establish = job_message(&export->job, VERB_ESTABLISH, true);
    establish.source = export->job.source;
    export_enter(m, export, EXPORT_SENDING_ESTABLISH);
    m->effects->send(m->context, &export->job, &establish);
    export_enter(m, export, EXPORT_READING_ESTABLISH);
}

void export_connected(struct migration_machine *m, struct slot_export *export, int64_t now_ms) {
    m->now_ms = now_ms;
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s connection established.", job_text(m, &export->job));
    if (!m->effects->authenticates(m->context)) {
        send_establish(m, export);
        return;
    }
    export_enter(m, export, EXPORT_SENDING_AUTH);
    m->effects->send_auth(m->context, export);
    export_enter(m, export, EXPORT_READING_AUTH);
}

/* A target that is not known to take chunks is not asked. */
static void ask_for_chunks(struct migration_machine *m, struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export);
    struct slot_message chunks = {.verb = VERB_CAPA, .capability = CAPABILITY_CHUNKS};
    if (!target || !(target->features & OWN_FEATURE_SLOT_CHUNKS)) {
        export_enter(m, export, EXPORT_WAITING_TO_SNAPSHOT);
        return;
    }
    bool pull = m->effects->ask_pull(m->context, export);
    if (!pull) m->effects->send(m->context, &export->job, &chunks);
    export->capability_until_ms = m->now_ms + CAPABILITY_WAIT_MS;
    export_enter(m, export, pull ? EXPORT_ASKING_PULL : EXPORT_ASKING_CHUNKS);
}

void export_answered(struct migration_machine *m, struct slot_export *export, struct slice line, int64_t now_ms) {
    m->now_ms = now_ms;
    bool authenticating = export->state == EXPORT_READING_AUTH;
    if (line.len && line.data[0] == '-') {
        const char *head =
            authenticating ? "Failed to AUTH to target node: " : "Received error during handshake to target: ";
        size_t len = strlen(head);
        char *text = mem_alloc(len + line.len + 1);
        memcpy(text, head, len);
        memcpy(text + len, line.data, line.len);
        text[len + line.len] = 0;
        export_end(m, export, FINISH_FAILED, text, false);
        mem_free(text);
    } else if (authenticating) {
        job_say(m, LOG_LEVEL_NOTICE, "Successfully authenticated slot migration %s", job_text(m, &export->job));
        send_establish(m, export);
    } else if (export->state == EXPORT_READING_ESTABLISH) {
        export->job.linked = true;
        m->effects->accepted(m->context, export);
        job_heard(&export->job, now_ms);
        job_send(m, &export->job, VERB_ACK);
        ask_for_chunks(m, export);
    }
}

void export_handshake_failed(struct migration_machine *m, struct slot_export *export, const char *reason,
                             int64_t now_ms) {
    m->now_ms = now_ms;
    if (export->state == EXPORT_CONNECTING) {
        char text[256];
        snprintf(text, sizeof text, "Unable to connect to target node: %s", reason);
        export_end(m, export, FINISH_FAILED, text, false);
    } else if (export->state == EXPORT_READING_AUTH) {
        job_say(m, LOG_LEVEL_WARNING, "Failed to read response from the server: %s",
                *reason ? reason : "Connection closed by the target");
        job_end_later(&export->job, "Target node did not respond to AUTH command");
    } else {
        export_link_lost(m, export);
    }
}

void export_link_lost(struct migration_machine *m, struct slot_export *export) {
    export->job.linked = false;
    if (job_is_over(&export->job) || export->job.ending) return;
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s connection lost", job_text(m, &export->job));
    if (export_is_granted(export)) return; /* the target takes the slots, or the pause ends */
    m->effects->cancel_snapshot(m->context, export);
    job_end_later(&export->job,
                  "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more "
                  "information.");
}

/* --- The snapshot --- */

static void begin_snapshot(struct migration_machine *m, struct slot_export *export) {
    bool asking = export->state != EXPORT_WAITING_TO_SNAPSHOT;
    if (asking && m->now_ms < export->capability_until_ms) return;
    if (!m->effects->snapshot_is_possible(m->context, export)) return;
    switch (m->effects->start_snapshot(m->context, export)) {
    case SNAPSHOT_STARTED: export_enter(m, export, EXPORT_SNAPSHOTTING); break;
    case SNAPSHOT_LATER: break;
    case SNAPSHOT_NOT_PULLED: export->form = SNAPSHOT_CHUNKS; break;
    }
}

void export_snapshot_done(struct migration_machine *m, struct slot_export *export, int64_t now_ms) {
    must(export->state == EXPORT_SNAPSHOTTING || export->state == EXPORT_SNAPSHOT_TAKEN);
    m->now_ms = now_ms;
    if (!export->job.linked) return;
    export_enter(m, export, export->state == EXPORT_SNAPSHOT_TAKEN ? EXPORT_PAUSE_REQUESTED : EXPORT_REPLICATING);
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s snapshot finished, starting streaming.", job_text(m, &export->job));
    m->effects->send_changes(m->context, export);
    job_send(m, &export->job, VERB_ACK); /* the target requests the pause when it has executed what is before this */
    job_heard(&export->job, now_ms);
}

/* --- Messages of the target --- */

static void pause_requested(struct migration_machine *m, struct slot_export *export) {
    switch (export->state) {
    case EXPORT_SNAPSHOTTING:
        export_enter(m, export, EXPORT_SNAPSHOT_TAKEN);
        break; /* the end of the snapshot may still be on its way */
    case EXPORT_REPLICATING: export_enter(m, export, EXPORT_PAUSE_REQUESTED); break;
    case EXPORT_SNAPSHOT_TAKEN:
    case EXPORT_PAUSE_REQUESTED: break;
    default: job_unexpected(m, &export->job, VERB_REQUEST_PAUSE);
    }
}

static void failover_requested(struct migration_machine *m, struct slot_export *export) {
    if (export->state == EXPORT_PAUSED)
        export_enter(m, export, EXPORT_FAILOVER_REQUESTED);
    else if (export->state != EXPORT_FAILOVER_REQUESTED && export->state != EXPORT_RECORDED)
        job_unexpected(m, &export->job, VERB_REQUEST_FAILOVER);
}

static void capability_answered(struct migration_machine *m, struct slot_export *export,
                                enum slot_capability capability) {
    if (export->state != EXPORT_ASKING_CHUNKS && export->state != EXPORT_ASKING_PULL) return;
    if (capability == CAPABILITY_PULL && export->state == EXPORT_ASKING_PULL)
        export->form = SNAPSHOT_PULLED;
    else if (capability != CAPABILITY_NONE)
        export->form = SNAPSHOT_CHUNKS;
    export_enter(m, export, EXPORT_WAITING_TO_SNAPSHOT);
}

void export_received(struct migration_machine *m, struct slot_export *export, const struct slot_message *message,
                     int64_t now_ms) {
    m->now_ms = now_ms;
    if (export->job.ending) return;
    switch (message->verb) {
    case VERB_ACK: job_heard(&export->job, now_ms); break;
    case VERB_REQUEST_PAUSE: pause_requested(m, export); break;
    case VERB_REQUEST_FAILOVER: failover_requested(m, export); break;
    case VERB_CAPA: capability_answered(m, export, message->capability); break;
    case VERB_PULLED:
        job_heard(&export->job, now_ms);
        if (message->pulled >= 0 && m->effects->pulled(m->context, export, message->pulled)) break;
        /* fallthrough */
    default: job_unexpected(m, &export->job, message->verb);
    }
}

/* --- The grant --- */

/* Looks at the owners of the slots when any has changed. A primary that copies the data of another server before it
 * leads its shard again gets writes that are not its own: the target would miss them. */
static void check_owners(struct migration_machine *m, struct slot_export *export) {
    const struct slot_table *slots = &m->cluster->slots;
    struct slot_job *job = &export->job;
    if (job->owners_version == slots->version) {
        if (!export_is_granted(export) && server_facts(m).replica)
            job_end_later(job, "A failover occurred during slot export");
        return;
    }
    job->owners_version = slots->version;
    const struct cluster_node *myself = m->cluster->myself, *target = export_target(m, export);
    bool ours = node_is_primary(myself), theirs = true;
    for (unsigned slot = 0; (slot = slot_bitmap_next(&job->slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = slots->owner[slot];
        ours &= owner == myself || (!owner && target); /* DELSLOTS: it may be added again. RESET forgets the target */
        theirs &= owner && target && (owner == target || nodes_share_shard(owner, target));
    }
    if (ours) return;
    if (export->cancelled) {
        job_end_later(job, "");
    } else if (theirs && export_is_granted(export)) {
        job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s slots are now owned by target node.", job_text(m, job));
        job->ends_well = true;
        job_end_later(job, "");
    } else {
        job_say(m, LOG_LEVEL_WARNING, "Slot migration %s contains slots that are no longer all owned by myself",
                job_text(m, job));
        job_end_later(job, "Slots are no longer owned by myself");
    }
}

static void pause_if_ready(struct migration_machine *m, struct slot_export *export) {
    if (!export->job.linked) return;
    size_t left = m->effects->flush(m->context, export); /* the changes of this turn */
    int64_t most = m->settings->failover_bytes;
    if (m->settings->prevent_pause || (most >= 0 && left > (uint64_t)most) || imports_may_take(m)) {
        export_enter(m, export, EXPORT_WAITING_TO_PAUSE);
        return;
    }
    job_say(m, LOG_LEVEL_NOTICE,
            "Pausing writes (remaining_repl_size is %zu) to allow slot migration %s to finalize failover.", left,
            job_text(m, &export->job));
    hold_writes(m, export, 2 * m->cluster->settings.manual_failover_timeout_ms);
    export_enter(m, export, EXPORT_PAUSED);
    job_send(m, &export->job, VERB_PAUSED);
}

/* A target of this kind claims the slots with a larger epoch than it had at the grant, so an older claim that arrives
 * late is not taken for it. A target that is Valkey may claim the slots with the epoch that it has. */
static void note_target(struct migration_machine *m, struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export);
    if (target) export->target_shard = target->shard;
    export->target_epoch = target_answers(target) ? target->config_epoch : 0;
}

static void record_grant(struct migration_machine *m, struct slot_export *export) {
    struct slot_message grant = job_message(&export->job, VERB_GRANT, true);
    must(export->state == EXPORT_FAILOVER_REQUESTED);
    grant.target = export->job.target;
    grant.shard = export->target_shard;
    grant.epoch = export->target_epoch;
    m->effects->record(m->context, &grant);
    export_enter(m, export, EXPORT_RECORDED);
    export->job.committed_at = server_facts(m).offset;
    hold_clients(m, export);
}

/* The bus is another link: the target may not have heard of this node's epoch, or of an election for which this node
 * has voted, when it gets the grant, and other nodes may have. They would not believe a claim with a smaller epoch, and
 * one with the epoch of the election would have two owners. */
static void send_grant(struct migration_machine *m, struct slot_export *export) {
    struct slot_message granted = {.verb = VERB_FAILOVER_GRANTED};
    must(export_is_granted(export));
    must_less(m->now_ms, export->held_until_ms); /* the target takes the slots without later writes */
    if (target_answers(export_target(m, export))) granted.epoch = m->cluster->current_epoch;
    m->effects->send(m->context, &export->job, &granted);
}

/* With synchronous replication: not after the writes went on, nor if another node may lead this shard. Afterwards they
 * go on when the outcome is known. So do reads: the target may serve newer data. */
static bool may_grant(const struct migration_machine *m, const struct slot_export *export) {
    return m->now_ms < export->held_until_ms && m->effects->clients_are_held(m->context) && server_facts(m).certain;
}

static void grant_if_ready(struct migration_machine *m, struct slot_export *export) {
    if (imports_may_take(m)) return;
    if (!server_facts(m).sync) {
        note_target(m, export);
        hold_writes(m, export, GRANTED_PAUSE_MS);
        export_enter(m, export, EXPORT_GRANTED);
    } else {
        if (!may_grant(m, export)) return;
        if (export->state == EXPORT_FAILOVER_REQUESTED) {
            note_target(m, export);
            if (target_answers(export_target(m, export))) record_grant(m, export);
        }
        bool recorded = export->state == EXPORT_RECORDED;
        if (recorded && export->job.committed_at < 0) export->job.committed_at = server_facts(m).offset;
        if (recorded && !m->effects->committed(m->context, export->job.committed_at)) return;
        export->held_until_ms = INT64_MAX;
        export->unknown_ms = 0;
        export_enter(m, export, recorded ? EXPORT_GRANTED_RECORDED : EXPORT_GRANTED);
    }
    hold_clients(m, export);
    send_grant(m, export);
}

/* --- The outcome of a grant that is in the stream --- */

enum grant_step grant_decide(const struct grant_facts *facts) {
    if (!facts->primary) return facts->tracked ? GRANT_WAIT : GRANT_TRACK;
    if (!facts->leads) return GRANT_WAIT;
    if (facts->moved) return GRANT_DONE;
    if (facts->tracked && facts->owns) return GRANT_RELEASE;
    if (!facts->certain || !facts->committed || facts->linked) return GRANT_WAIT;
    if (!facts->tracked && facts->alone_ms >= facts->hold_ms) return GRANT_TRACK;
    if (!facts->tracked && facts->alone_ms < GRANT_PATIENCE_MS) return GRANT_WAIT;
    return GRANT_ASK;
}

bool grant_takes_back(const struct grant_facts *facts) {
    return facts->primary && facts->certain && facts->committed && !facts->moved;
}

/* The link to the target is up, and nothing speaks against the target. */
static bool grant_is_linked(const struct migration_machine *m, const struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export);
    return export->job.linked && m->now_ms - export->job.changed_ms < LINK_SILENCE_MS && target && !node_failed(target);
}

/* Notes what the facts of this moment are counted from. */
static void note_grant(struct migration_machine *m, struct slot_export *export, const struct migration_facts *server) {
    if (server_leads(m, server) && export->job.committed_at < 0) export->job.committed_at = server->offset;
    if (!grant_is_linked(m, export) && !export->unknown_ms) export->unknown_ms = m->now_ms;
}

static struct grant_facts grant_facts(const struct migration_machine *m, const struct slot_export *export) {
    const struct cluster *cluster = m->cluster;
    const struct cluster_node *myself = cluster->myself;
    const struct slot_job *job = &export->job;
    struct migration_facts server = server_facts(m);
    struct grant_facts facts = {
        .primary = node_is_primary(myself) && !server.replica,
        .leads = server.leads, /* a server that has restarted has old data until it is elected */
        .certain = server.certain,
        .committed = job->committed_at >= 0 && m->effects->committed(m->context, job->committed_at),
        .tracked = export->state == EXPORT_TRACKED,
        .linked = grant_is_linked(m, export),
        .moved = true,
        .hold_ms = export->cancelled ? GRANT_CANCELLED_HOLD_MS : 2 * m->cluster->settings.manual_failover_timeout_ms};
    facts.alone_ms = facts.linked ? 0 : m->now_ms - export->unknown_ms;
    for (unsigned slot = 0; (slot = slot_bitmap_next(&job->slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        facts.owns |= owner == myself;
        facts.moved &= owner && owner != myself && !nodes_share_shard(owner, myself) &&
                       owner->config_epoch > export->target_epoch && !slot_bitmap_has(&cluster->slots.unclaimed, slot);
    }
    return facts;
}

static void take_back(struct migration_machine *m, struct slot_export *export) {
    struct grant_facts facts = grant_facts(m, export);
    must(export_is_recorded(export));
    if (!grant_takes_back(&facts)) return; /* it is asked again */
    if (export->state == EXPORT_GRANTED_RECORDED) export_enter(m, export, EXPORT_RECORDED_REFUSED);
    if (exports_await_claim(m, export)) {
        job_say_seldom(m,
                       "Slot migration %s: the target did not take the slots. They are taken back when other targets "
                       "that were granted slots have claimed them",
                       job_text(m, &export->job));
        return;
    }
    /* The epoch is above that of any claim that may still come. */
    cluster_take_slots(m->cluster, &export->job.slots, m->now_ms);
    export_end(m, export, FINISH_FAILED, "The target did not take the slots", true);
}

static void ask_for_outcome(struct migration_machine *m, struct slot_export *export) {
    struct slot_job *job = &export->job;
    const struct cluster_node *leader = leader_of_target(m, export);
    if (export->asks && m->now_ms - job->sent_ms > ANSWER_TIMEOUT_MS) {
        m->effects->hang_up(m->context, export);
        export->asks = false;
    }
    if (export->asks || m->now_ms - job->sent_ms < ASK_INTERVAL_MS || !leader) return;
    if (!m->effects->can_ask(m->context, leader)) return;
    if (job->linked) job_detach(m, job); /* a grant that is still on its way does not count any more */
    job->sent_ms = m->now_ms;
    export->asks = true;
    /* The answer may be a claim: as for a grant, it needs an epoch above those that this node knows. */
    struct slot_message question = job_message(job, VERB_OUTCOME, true);
    question.source = m->cluster->myself->id;
    question.shard = export->target_shard;
    question.epoch = m->cluster->current_epoch;
    m->effects->ask(m->context, export, leader, &question);
}

void export_question_lost(struct slot_export *export) {
    export->asks = false;
}

void export_outcome_answered(struct migration_machine *m, struct slot_export *export, enum outcome_answer answer,
                             struct slice text, int64_t now_ms) {
    m->now_ms = now_ms;
    export->asks = false;
    if (job_is_over(&export->job) || answer == OUTCOME_TAKEN) return; /* the bus brings the claim */
    if (answer != OUTCOME_REFUSED) {
        job_say_seldom(m, "Slot migration %s: the target's shard has not decided: %.*s", job_text(m, &export->job),
                       (int)(text.len > 200 ? 200 : text.len), text.data);
    } else if (export_is_recorded(export)) {
        take_back(m, export);
    } else { /* ask_cancelled() */
        export_enter(m, export, EXPORT_REFUSED);
        job_end_later(&export->job, "");
    }
}

static void outcome_step(struct migration_machine *m, struct slot_export *export) {
    struct migration_facts server = server_facts(m);
    if (server.loading) return;
    note_grant(m, export, &server);
    if (!target_shard_is_known(m, export)) { /* an operator has forgotten all of its nodes */
        if (server.leads) take_back(m, export);
        return;
    }
    struct grant_facts facts = grant_facts(m, export);
    switch (grant_decide(&facts)) {
    case GRANT_WAIT: break;
    case GRANT_TRACK: become_tracked(m, export); break;
    case GRANT_RELEASE: give_up_slots(m, export); break;
    case GRANT_ASK: ask_for_outcome(m, export); break;
    case GRANT_DONE:
        job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s slots are now owned by target node.",
                job_text(m, &export->job));
        m->effects->drop_moved(m->context, export);
        export_end(m, export, FINISH_SUCCESS, "", true);
    }
}

/* --- Grants that are not in the stream --- */

/* Without synchronous replication: whether writes may go on. */
static void ask_cancelled(struct migration_machine *m, struct slot_export *export) {
    if (export->cancelled && export->state == EXPORT_GRANTED && !server_facts(m).sync &&
        target_answers(export_target(m, export)))
        ask_for_outcome(m, export);
}

/* A target that was granted the slots may have taken them. Clients then see the job as cancelled, but it goes on to
 * hold the writes. */
void export_cancel(struct migration_machine *m, struct slot_export *export, int64_t now_ms) {
    enum export_state state = export->state;
    m->now_ms = now_ms;
    if (!export_is_granted(export)) {
        export_end(m, export, FINISH_CANCELLED, "", false);
        return;
    }
    if (export->job.ending) return; /* it is known how it ended */
    job_detach(m, &export->job);
    export->asks = false;
    job_finished(m, &export->job, FINISH_CANCELLED, "");
    export->state = state;
    export->cancelled = true;
    export->unknown_ms = now_ms;
    m->effects->end_stream(m->context, export);
    export->job.sent_ms = 0; /* the target is asked at once */
    ask_cancelled(m, export);
}

/* Ends the link to a target that has sent nothing for a while, or has failed. */
static void watch_target(struct migration_machine *m, struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export);
    bool silent = m->now_ms - export->job.changed_ms > GRANTED_PAUSE_MS || !target || node_failed(target);
    if (export->job.linked && silent) {
        job_detach(m, &export->job);
        job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s connection lost", job_text(m, &export->job));
    }
    if (!export->job.linked && !export->unknown_ms) export->unknown_ms = m->now_ms;
}

/* With synchronous replication and a target that does not know SYNCSLOTS OUTCOME, the source goes on only when it is
 * certain that the target did not take the slots (if it did, check_owners() ends the job): it, or a successor of it,
 * speaks on the bus long after the link broke, and does not claim them. */
static bool target_has_refused(const struct migration_machine *m, const struct slot_export *export) {
    const struct cluster_node *target = export_target(m, export), *speaker = NULL;
    int64_t least = m->cluster->settings.node_timeout_ms;
    if (!target_shard_is_known(m, export)) return true; /* forgotten: an operator's decision */
    if (export->job.linked) return false;
    if (target && node_is_primary(target) && !node_failed(target)) {
        speaker = target;
        if (!server_facts(m).sync) least = ON_THE_WAY_MS;
    } else { /* a successor decides first whether it takes the slots: target.c */
        least = 2 * m->cluster->settings.manual_failover_timeout_ms + 4 * least;
        for (size_t i = 0; i < m->cluster->nodes.count; i++) {
            const struct cluster_node *node = m->cluster->nodes.list[i];
            if (node != target && node_votes(node) && node_id_equal(&node->shard, &export->target_shard))
                speaker = node;
        }
    }
    return speaker && speaker->beat->data_received_ms > export->unknown_ms + least;
}

static bool is_refused(struct migration_machine *m, struct slot_export *export) {
    if (export->state == EXPORT_REFUSED) return true;
    watch_target(m, export);
    return target_has_refused(m, export);
}

static void tick_granted(struct migration_machine *m, struct slot_export *export, bool held) {
    struct slot_job *job = &export->job;
    if (server_facts(m).sync) {
        if (!is_refused(m, export)) return;
        export_enter(m, export, EXPORT_REFUSED);
        if (exports_await_claim(m, export)) return;
        cluster_bump_epoch(m->cluster, m->now_ms); /* above that of a claim that may still come */
        job_end_later(job, "The target did not take the slots");
        return;
    }
    ask_cancelled(m, export);
    if (export->cancelled && (!held || is_refused(m, export))) {
        job_end_later(job, "");
    } else if (!held) {
        job_say(m, LOG_LEVEL_WARNING,
                "Write loss risk! During slot migration %s, new owner did not broadcast ownership before we unpaused "
                "ourselves. Any writes we have recorded since unpausing may be lost!",
                job_text(m, job));
        job_end_later(job, "Unpaused before migration completed (migration may have succeeded with lost writes)");
    }
}

/* --- All states --- */

void export_step(struct migration_machine *m, struct slot_export *export) {
    if (export_is_granted(export) && export_is_recorded(export)) {
        outcome_step(m, export);
        return;
    }
    check_owners(m, export);
    if (export->job.ending) return;
    switch (export->state) {
    case EXPORT_WAITING_TO_DIAL:
        if (!waits_for_outcome(m, export)) export_dial(m, export);
        break;
    case EXPORT_ASKING_CHUNKS:
    case EXPORT_ASKING_PULL:
    case EXPORT_WAITING_TO_SNAPSHOT: begin_snapshot(m, export); break;
    case EXPORT_PAUSE_REQUESTED:
    case EXPORT_WAITING_TO_PAUSE: pause_if_ready(m, export); break;
    case EXPORT_FAILOVER_REQUESTED:
    case EXPORT_RECORDED: grant_if_ready(m, export); break;
    default: break;
    }
}

void export_tick(struct migration_machine *m, struct slot_export *export) {
    struct slot_job *job = &export->job;
    bool held = m->effects->clients_are_held(m->context);
    switch (export->state) {
    case EXPORT_WAITING_TO_DIAL: /* waits_for_outcome() */
    case EXPORT_GRANTED_RECORDED:
    case EXPORT_RECORDED_REFUSED:
    case EXPORT_TRACKED: return; /* export_step() */
    case EXPORT_GRANTED:
    case EXPORT_REFUSED: tick_granted(m, export, held); return;
    case EXPORT_PAUSED:
    case EXPORT_FAILOVER_REQUESTED:
    case EXPORT_RECORDED: /* another job, or a grant in the stream, may hold the clients for longer than this job may */
        if (held && m->now_ms < export->held_until_ms) break;
        job_end_later(job, "Unpaused before failover completed");
        return;
    default: break;
    }
    if (job_times_out(m, job) || !job->linked) return;
    bool snapshotting = export->state == EXPORT_SNAPSHOTTING || export->state == EXPORT_SNAPSHOT_TAKEN;
    if (snapshotting && !m->effects->snapshot_lets_send(m->context, export)) return;
    if (m->now_ms - job->sent_ms < ACK_INTERVAL_MS) return;
    job->sent_ms = m->now_ms;
    job_send(m, job, VERB_ACK);
}

/* --- The stream of the primary, and files --- */

void export_track(struct migration_machine *m, const struct slot_message *grant) {
    struct slot_job *known = job_find(m, grant->name);
    if (known && !job_is_over(known)) return;
    struct slot_export *export = mem_calloc(1, sizeof(*export));
    export->job.kind = JOB_EXPORT;
    export->job.target = grant->target;
    export->job.tracked = true;
    export->state = EXPORT_TRACKED;
    export->target_shard = grant->shard;
    export->target_epoch = grant->epoch;
    job_init(m, &export->job, grant->name, grant->count, grant->ranges);
    job_say(m, LOG_LEVEL_NOTICE, "Slot migration %s was granted. Its outcome is not known", job_text(m, &export->job));
}

void export_lead(struct migration_machine *m, struct slot_export *export) {
    if (!export_is_recorded(export)) return;
    export->job.committed_at = -1; /* nothing is known to be committed in this term */
    if (export->state == EXPORT_TRACKED && owns_any(m, export)) give_up_slots(m, export);
}
