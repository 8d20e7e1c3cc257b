/* migration_simulator.h: slots that move between the shards of cluster_sync.c, from the moment when the target has all
 * keys: the grant, the claim, and the question for the outcome (cluster/migration/outcome.h).
 *
 * A few slots of each shard may move. The keys of a slot are one number: the last value written to it, which is the
 * largest; 0: there are none. Writes and the commands of migrations are entries of the servers' logs, and a server's
 * state follows from its log, so it survives crashes, copies and changes of the leader like other data. A server has
 * the jobs of import.c and granted.c, and does what they do; what is decided, outcome.c decides.
 *
 * A shard without synchronous replication (asynchronous_shards.h) grants without a record in its stream, and its writes
 * go on after a while if the target does not claim the slot.
 *
 * Checked: a server that serves a slot for certain has the last acknowledged value. At the end each slot is served, and
 * no job is in progress on any server. */
#ifndef TESTS_SIMULATION_MIGRATION_SIMULATOR_H
#define TESTS_SIMULATION_MIGRATION_SIMULATOR_H
#include "cluster/migration/outcome.h"

enum { MOBILE = 6, JOBS_MAX = 64, COMMANDS_MAX = 1 << 18, SENT_MAX = 1024, ASK_MS = 200, ANSWER_MS = 2000 };
enum { HOLD_MS = 10000, LINK_SILENCE = 2000, PAUSE_MS = 10000, GRANTED_PAUSE_MS = 2000 };

enum command_kind { COMMAND_WRITE, COMMAND_ESTABLISH, COMMAND_GRANT, COMMAND_TAKE, COMMAND_FINISH, COMMAND_DROP };
struct command {
    enum command_kind kind;
    unsigned job, slot;
    uint64_t value, epoch;
    struct node_id target, target_shard;
    bool success;
    struct sync_term term; /* in which it was written */
};
struct migration {
    unsigned name, slot; /* name 0: none */
    bool is_import, is_tracked, is_recorded, is_decided, takes, granted, over, success, failing, cancelled;
    bool requested;        /* REQUEST-FAILOVER was sent, or has come */
    bool refused;          /* an export that is granted: the target will not take the slots */
    struct node_id source; /* its target too: */
    struct node_id target, target_shard;
    uint64_t target_epoch;
    unsigned link; /* to `peer`; 0: none */
    int peer;
    int64_t committed_at, unknown_ms, updated_ms, asked_ms, paused_until;
    unsigned question; /* that waits for an answer; 0: none */
};
struct holder { /* what a server knows of slots that move */
    int64_t applied;
    uint64_t data[MOBILE];
    bool drops[MOBILE]; /* when it no longer stands */
    struct migration jobs[JOBS_MAX];
    unsigned job_count;
    int64_t last_end;
    uint64_t unheard[MOBILE]; /* the epochs of owners that are not known here: copied_owners.c; 0: none */
};
/* What a copy of the data brings, and what a file of a server has. */
struct migration_copy {
    struct holder holder;
    struct {
        struct node_id id;
        uint64_t epoch; /* 0: none */
    } owners[MOBILE];
};
struct sent {
    enum { SENT_REQUEST, SENT_GRANTED, SENT_CLOSED, SENT_QUESTION, SENT_ANSWER } kind;
    int from, to;
    unsigned life_to, link, job, slot;
    int64_t due;
    uint64_t epoch;
    struct node_id source, shard;
    enum outcome_answer answer;
};
static struct {
    bool on, stopped; /* no more begin */
    struct command *commands;
    uint32_t command_count;
    struct holder *holders;
    struct migration_copy *arriving, *files; /* of each server: a copy on its way; what it has loaded, or rewritten */
    struct sent sent[SENT_MAX];
    unsigned sent_count, names, links, done, failed, refused;
    uint64_t next_value, acknowledged[MOBILE];
    bool (*may_crash)(const struct node *node);
    void (*crash)(struct node *node);
} moving;

static unsigned mobile_slot(unsigned mobile) {
    return cluster_sim.first_slot[mobile % SHARDS] + 1 + mobile / SHARDS;
}
static int mobile_of(unsigned slot) {
    for (unsigned i = 0; i < MOBILE; i++)
        if (mobile_slot(i) == slot) return (int)i;
    return -1;
}
static struct slot_bitmap bitmap_of(unsigned mobile) {
    struct slot_bitmap slots = {0};
    slot_bitmap_set(&slots, mobile_slot(mobile));
    return slots;
}
static struct holder *holder_of(const struct node *node) {
    return &moving.holders[node->index];
}
static struct cluster *cluster_of(const struct node *node) {
    return machine_of(node)->cluster;
}
static bool leads_shard(const struct node *node) {
    if (node->asynchronous) return !node->replica;
    return node->who.status == SYNC_LEADING;
}
static bool stands(const struct node *node) {
    return !node->asynchronous && node->who.status != SYNC_LEADING && node->who.status != SYNC_FOLLOWING;
}
static bool leads_for_certain(const struct node *node) {
    return node->asynchronous ||
           (leads_shard(node) && sync_who_writable(&node->who) && sync_lease_holds(&node->lease, world_us()));
}
static bool has_committed(const struct node *node, int64_t offset) {
    return node->asynchronous || (leads_shard(node) && node->lease.committed >= offset);
}
static bool is_primary(const struct node *node) {
    return node_is_primary(cluster_of(node)->myself) && !node->replica;
}
#define each_job(job, holder)                                                                                          \
    for (struct migration *job = (holder)->jobs; job < (holder)->jobs + (holder)->job_count; job++)

static struct migration *find_job(struct holder *holder, unsigned name) {
    struct migration *found = NULL;
    each_job(job, holder) if (job->name == name) found = job;
    return found;
}
static struct migration *new_job(struct node *node, unsigned name, unsigned slot, bool is_import) {
    struct holder *holder = holder_of(node);
    if (holder->job_count == JOBS_MAX) violated("too many jobs", (int)node->index);
    struct migration *job = &holder->jobs[holder->job_count++];
    *job = (struct migration){
        .name = name, .slot = slot, .is_import = is_import, .committed_at = -1, .updated_ms = world.now, .peer = -1};
    return job;
}

/* --- Messages --- */

static struct sent *send_to(int kind, const struct node *from, int to, unsigned link) {
    if (moving.sent_count == SENT_MAX) violated("too many messages of migrations", (int)from->index);
    struct sent *new = &moving.sent[moving.sent_count++];
    *new = (struct sent){.kind = kind, .from = (int)from->index, .to = to, .link = link};
    new->life_to = world.nodes[to].life;
    new->due = world.now + 1 + (int64_t)below(below(20) ? 5 : 400);
    for (unsigned i = 0; i + 1 < moving.sent_count; i++) { /* a link keeps the order */
        const struct sent *before = &moving.sent[i];
        if (link && before->link == link && before->to == to && before->due > new->due) new->due = before->due;
    }
    return new;
}
static void detach(struct node *node, struct migration *job) {
    if (job->link) send_to(SENT_CLOSED, node, job->peer, job->link);
    job->link = 0;
}

/* --- The stream --- */

/* copied_owner_heard() */
static void hear_owner(struct node *node, unsigned mobile, const struct node_id *id, uint64_t epoch) {
    struct cluster *cluster = cluster_of(node);
    struct cluster_node *owner = nodes_find(&cluster->nodes, id);
    struct slot_bitmap slots = bitmap_of(mobile);
    if (owner && owner != cluster->myself && !node_in_handshake(owner) &&
        (node_is_primary(owner) || owner->config_epoch < epoch))
        cluster_hear_claim(cluster, owner, &slots, epoch, sim_time(machine_of(node)));
    else if (owner != cluster->myself)
        holder_of(node)->unheard[mobile] = epoch;
}

static void apply(struct node *node, const struct command *command) {
    struct holder *holder = holder_of(node);
    struct migration *job = find_job(holder, command->job);
    switch (command->kind) {
    case COMMAND_WRITE: holder->data[command->slot] = command->value; break;
    case COMMAND_DROP: holder->data[command->slot] = 0; break;
    case COMMAND_ESTABLISH:
    case COMMAND_GRANT:
        if (job && !job->over) break;
        job = new_job(node, command->job, command->slot, command->kind == COMMAND_ESTABLISH);
        job->is_tracked = true;
        job->is_recorded = job->granted = command->kind == COMMAND_GRANT;
        job->target = command->target;
        job->target_shard = command->target_shard;
        job->target_epoch = command->epoch;
        break;
    case COMMAND_TAKE:
        if (job && job->is_import && job->is_tracked && !job->over) job->takes = true;
        break;
    case COMMAND_FINISH: {
        if (!job) break;
        job->is_tracked = true; /* a server that has become a replica learns that before it has a new stream */
        job->is_decided = true;
        if (!job->over) {
            detach(node, job);
            if (job->is_import && !command->success) holder->data[job->slot] = 0;
            job->over = true;
            job->success = command->success;
        }
        struct cluster_node *primary = cluster_shard_primary(cluster_of(node));
        struct slot_bitmap slots = bitmap_of(job->slot);
        if (!job->is_import && command->success && command->epoch)
            hear_owner(node, job->slot, &command->target, command->epoch);
        else if (command->epoch && primary)
            cluster_hear_claim(cluster_of(node), primary, &slots, command->epoch, sim_time(machine_of(node)));
    }
    }
}
static void follow_log(struct node *node);
static void write_command(struct node *node, struct command command) {
    follow_log(node);
    if (moving.command_count == COMMANDS_MAX) violated("too many commands", (int)node->index);
    moving.commands[moving.command_count] = command;
    moving.commands[moving.command_count].term = node->who.standing;
    append(node, (struct entry){.command = moving.command_count++});
    holder_of(node)->applied = node->len;
}
static void follow_log(struct node *node) {
    struct holder *holder = holder_of(node);
    if (node->len < holder->applied) violated("a log became shorter", (int)node->index);
    while (holder->applied < node->len) {
        uint32_t command = node->log[holder->applied++].command;
        if (command) apply(node, &moving.commands[command]);
    }
}

/* --- The end of a job: jobs.c --- */

static void drop_slot(struct node *node, unsigned mobile) {
    struct holder *holder = holder_of(node);
    if (!holder->data[mobile]) return;
    if (!node->replica) write_command(node, (struct command){.kind = COMMAND_DROP, .slot = mobile});
    holder->data[mobile] = 0;
}

static void write_finish(struct node *node, const struct migration *job, bool success) {
    const struct cluster *cluster = cluster_of(node);
    const struct cluster_node *owner = cluster->slots.owner[mobile_slot(job->slot)];
    struct command finish = {.kind = COMMAND_FINISH, .job = job->name, .slot = job->slot, .success = success};
    bool owns = owner == cluster->myself;
    if (owner && !node->asynchronous && (job->is_import ? success : success != owns)) { /* an export: granted_end() */
        finish.epoch = owner->config_epoch;
        finish.target = owner->id;
    }
    write_command(node, finish);
}

static void become_tracked(struct node *node, struct migration *job) {
    detach(node, job);
    job->is_tracked = job->granted = true;
    job->committed_at = -1;
    job->failing = false;
}
static bool grant_keeps(struct node *node, struct migration *job, bool success) {
    if (job->is_import || !job->is_recorded || success || job->is_decided) return false;
    if (!job->granted && !node->replica && !stands(node)) return false;
    if (!job->is_tracked) become_tracked(node, job);
    return true;
}

static void end_job(struct node *node, struct migration *job, bool success) {
    struct holder *holder = holder_of(node);
    job->failing = false;
    if (grant_keeps(node, job, success)) return;
    detach(node, job);
    note((int)node->index, "job %u (%s of %u) ends: %s", job->name, job->is_import ? "import" : "export", job->slot,
         success ? "success" : "failed");
    job->over = true;
    job->success = success;
    if (job->is_import) {
        if (!success) {
            if (node->replica)
                holder->data[job->slot] = 0;
            else
                drop_slot(node, job->slot);
        }
        if (!node->replica) write_finish(node, job, success);
        if (!node->replica) holder->last_end = node->len;
        *(success ? &moving.done : &moving.failed) += !node->replica;
    } else if (job->is_recorded && !node->replica) {
        write_finish(node, job, success);
    }
}

/* --- The source: export.c, granted.c --- */

static void grant_facts(struct node *node, struct migration *job, struct grant_facts *facts) {
    struct cluster *cluster = cluster_of(node);
    const struct cluster_node *target = nodes_find(&cluster->nodes, &job->target);
    *facts = (struct grant_facts){.primary = is_primary(node),
                                  .leads = leads_shard(node),
                                  .certain = leads_for_certain(node),
                                  .tracked = job->is_tracked};
    struct slot_bitmap slots = bitmap_of(job->slot);
    grant_facts_of_slots(facts, cluster, &slots, job->target_epoch);
    if (facts->primary && facts->leads && job->committed_at < 0) job->committed_at = node->len;
    facts->committed = job->committed_at >= 0 && has_committed(node, job->committed_at);
    facts->linked = job->link && world.now - job->updated_ms < LINK_SILENCE && target && !node_failed(target);
    if (!facts->linked && !job->unknown_ms) job->unknown_ms = world.now;
    facts->alone_ms = facts->linked ? 0 : world.now - job->unknown_ms;
    facts->hold_ms = job->cancelled ? GRANT_CANCELLED_HOLD_MS : HOLD_MS;
}

static void release(struct node *node, const struct migration *job) {
    struct slot_bitmap slots = bitmap_of(job->slot);
    note((int)node->index, "gives up slot %u of job %u", job->slot, job->name);
    cluster_give_up_slots(cluster_of(node), &slots, sim_time(machine_of(node)));
}

static void ask_for_outcome(struct node *node, struct migration *job) {
    struct cluster *cluster = cluster_of(node);
    const struct cluster_node *leader = NULL;
    if (job->question && world.now - job->asked_ms > ANSWER_MS) job->question = 0;
    if (job->question || world.now - job->asked_ms < ASK_MS) return;
    for (size_t i = 0; i < cluster->nodes.count; i++) { /* leader_of_target() */
        const struct cluster_node *other = cluster->nodes.list[i];
        if (!node_is_primary(other) || node_failed(other) || !node_id_equal(&other->shard, &job->target_shard))
            continue;
        if (!leader || node_id_equal(&other->id, &job->target)) leader = other;
    }
    int to = leader ? sim_index(leader->address) : -1;
    if (to < 0 || to == (int)node->index) return;
    detach(node, job);
    job->asked_ms = world.now;
    job->question = ++moving.links;
    struct sent *question = send_to(SENT_QUESTION, node, to, job->question);
    question->job = job->name;
    question->slot = job->slot;
    question->source = cluster->myself->id;
    question->shard = job->target_shard;
    question->epoch = cluster->current_epoch;
}

/* exports_await_claim() */
static bool awaits_claim(struct holder *holder, const struct migration *except) {
    each_job(job, holder) if (job != except && !job->is_import && !job->over && job->granted && !job->is_tracked &&
                              !job->refused) return true;
    return false;
}

static void take_back(struct node *node, struct migration *job) {
    struct grant_facts facts;
    struct slot_bitmap slots = bitmap_of(job->slot);
    grant_facts(node, job, &facts);
    if (!grant_takes_back(&facts)) return;
    job->refused = true;
    if (awaits_claim(holder_of(node), job)) return;
    moving.refused++;
    job->is_decided = true;
    cluster_take_slots(cluster_of(node), &slots, sim_time(machine_of(node)));
    end_job(node, job, false);
}

static bool may_take_slots(struct holder *holder) {
    each_job(job, holder) if (!job->over &&
                              (job->takes || (job->is_import && !job->is_tracked && job->requested))) return true;
    return false;
}

/* granted_knows_shard() */
static bool knows_target_shard(const struct cluster *cluster, const struct migration *job) {
    for (size_t i = 0; i < cluster->nodes.count; i++)
        if (node_id_equal(&cluster->nodes.list[i]->shard, &job->target_shard)) return true;
    return false;
}

/* export_step(), check_owners() and export_tick() without synchronous replication */
static void asynchronous_export_step(struct node *node, struct migration *job) {
    struct cluster *cluster = cluster_of(node);
    const struct cluster_node *owner = cluster->slots.owner[mobile_slot(job->slot)];
    const struct cluster_node *target = nodes_find(&cluster->nodes, &job->target);
    if (!node_is_primary(cluster->myself) || (owner ? owner != cluster->myself : !target)) {
        end_job(node, job, job->granted && owner && target && (owner == target || nodes_share_shard(owner, target)));
    } else if (node->replica || world.now >= job->paused_until || (!job->granted && !job->link)) {
        job->failing = true;
    } else if (!job->granted && job->requested && !may_take_slots(holder_of(node))) {
        note((int)node->index, "grants job %u, slot %u", job->name, job->slot);
        job->granted = true;
        job->target_epoch = target ? target->config_epoch : 0;
        job->updated_ms = world.now;
        job->paused_until = world.now + GRANTED_PAUSE_MS;
        struct sent *grant = send_to(SENT_GRANTED, node, job->peer, job->link);
        grant->job = job->name;
        grant->epoch = cluster->current_epoch;
    }
}

static void export_step(struct node *node, struct migration *job) {
    struct cluster *cluster = cluster_of(node);
    if (node->asynchronous) {
        asynchronous_export_step(node, job);
        return;
    }
    if (job->is_recorded && job->granted) {
        struct grant_facts facts;
        grant_facts(node, job, &facts);
        if (!knows_target_shard(cluster, job) && !job->is_decided) { /* the administrator has forgotten it */
            if (facts.leads) take_back(node, job);
            return;
        }
        switch (grant_decide(&facts)) {
        case GRANT_WAIT: break;
        case GRANT_TRACK:
            if (facts.primary && facts.leads) release(node, job);
            become_tracked(node, job);
            break;
        case GRANT_RELEASE: release(node, job); break;
        case GRANT_ASK: ask_for_outcome(node, job); break;
        case GRANT_DONE:
            if (job->is_tracked) drop_slot(node, job->slot);
            end_job(node, job, true);
        }
        return;
    }
    if (!is_primary(node) || !cluster_serves(cluster, mobile_slot(job->slot)) || !job->link ||
        world.now >= job->paused_until) {
        job->failing = true;
        return;
    }
    if (!job->requested || may_take_slots(holder_of(node)) || !leads_for_certain(node)) return;
    if (!job->is_recorded) {
        const struct cluster_node *target = nodes_find(&cluster->nodes, &job->target);
        job->target_epoch = target ? target->config_epoch : 0;
        if (target) job->target_shard = target->shard;
        write_command(node, (struct command){.kind = COMMAND_GRANT,
                                             .job = job->name,
                                             .slot = job->slot,
                                             .target = job->target,
                                             .target_shard = job->target_shard,
                                             .epoch = job->target_epoch});
        job->is_recorded = true;
        job->paused_until = INT64_MAX;
        job->committed_at = node->len;
    }
    if (job->committed_at < 0) job->committed_at = node->len;
    if (!has_committed(node, job->committed_at)) return;
    note((int)node->index, "grants job %u, slot %u", job->name, job->slot);
    job->granted = true;
    job->updated_ms = world.now;
    job->unknown_ms = 0;
    struct sent *grant = send_to(SENT_GRANTED, node, job->peer, job->link);
    grant->job = job->name;
    grant->epoch = cluster->current_epoch;
}

/* --- The target: import.c --- */

/* Whether what the source has acknowledged until now is here, although it has no synchronous replication: not if it has
 * been replaced, or its writes go on because this claim comes late. */
static bool source_waits(const struct node *target, const struct migration *import) {
    const struct cluster_node *owner = cluster_of(target)->slots.owner[mobile_slot(import->slot)];
    int index = owner && owner != cluster_of(target)->myself ? sim_index(owner->address) : -1;
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        const struct cluster *cluster = cluster_sim.machines[i].cluster;
        if (!cluster || !node_id_equal(&cluster->myself->id, &import->source)) continue;
        if (!node->asynchronous) return true;
        const struct migration *export = find_job(holder_of(node), import->name);
        return export && !export->over && export->granted && owner_now(mobile_slot(import->slot)) == node;
    }
    return index < 0 || !world.nodes[index].asynchronous; /* a successor of the target does not know the source */
}

static void take_slots(struct node *node, struct migration *job) {
    struct cluster *cluster = cluster_of(node);
    struct slot_bitmap slots = bitmap_of(job->slot);
    for (int again = 0; again < 2; again++) {
        bool leads = is_primary(node) && leads_shard(node), owns = cluster_serves(cluster, mobile_slot(job->slot));
        if (leads && job->takes && job->committed_at < 0) job->committed_at = node->len;
        struct take_facts facts = {.leads = leads,
                                   .certain = leads_for_certain(node),
                                   .granted = job->granted,
                                   .decided = job->takes,
                                   .committed = job->takes && has_committed(node, job->committed_at),
                                   .tracked = job->is_tracked,
                                   .owns = owns && !node->asynchronous};
        switch (take_decide(&facts)) {
        case TAKE_WAIT: return;
        case TAKE_DECIDE:
            if (!node->asynchronous)
                write_command(node, (struct command){.kind = COMMAND_TAKE, .job = job->name, .slot = job->slot});
            job->takes = true;
            job->committed_at = node->len;
            break;
        case TAKE_CLAIM:
            if (!source_waits(node, job)) moving.acknowledged[job->slot] = 0;
            if (!job->is_tracked || !owns) cluster_take_slots(cluster, &slots, sim_time(machine_of(node)));
            note((int)node->index, "takes slot %u of job %u", job->slot, job->name);
            end_job(node, job, true);
            return;
        case TAKE_FAIL: job->failing = !job->takes; return;
        }
    }
}

static bool may_request(struct holder *holder, const struct migration *import) {
    each_job(job, holder) {
        if (job->is_import || job->over) continue;
        if (job->granted) return false;
        if (!job->is_tracked && memcmp(&import->target, &import->source, NODE_ID_LEN) < 0) return false;
    }
    return true;
}

static void import_step(struct node *node, struct migration *job) {
    struct cluster *cluster = cluster_of(node);
    if (job->is_tracked) {
        take_slots(node, job);
        return;
    }
    if (node->replica) {
        detach(node, job);
        job->is_tracked = true;
        job->committed_at = -1;
        return;
    }
    const struct cluster_node *owner = cluster->slots.owner[mobile_slot(job->slot)];
    if (!node_is_primary(cluster->myself) || stands(node) || !owner || !node_id_equal(&owner->id, &job->source) ||
        !job->link)
        job->failing = !job->takes;
    if (job->failing) return;
    if (job->granted) {
        take_slots(node, job);
        return;
    }
    if (job->requested || !may_request(holder_of(node), job)) return;
    if (job->committed_at < 0) job->committed_at = node->len;
    if (!has_committed(node, job->committed_at)) return;
    job->requested = true;
    send_to(SENT_REQUEST, node, job->peer, job->link)->job = job->name;
}

static enum outcome_answer answer_question(struct node *node, const struct sent *question) {
    struct holder *holder = holder_of(node);
    struct cluster *cluster = cluster_of(node);
    struct migration *job = find_job(holder, question->job);
    struct slot_bitmap slots = bitmap_of(question->slot);
    enum outcome_job state = OUTCOME_JOB_UNKNOWN;
    if (job && job->is_import) {
        bool waits = job->takes || (!job->is_tracked && job->requested);
        state = job->over      ? job->success ? OUTCOME_JOB_SUCCESS : OUTCOME_JOB_FAILED
                : job->failing ? OUTCOME_JOB_EARLY
                : waits        ? OUTCOME_JOB_WAITS
                               : OUTCOME_JOB_EARLY;
    }
    struct outcome_facts facts = {.job = state,
                                  .certain = is_primary(node) && leads_for_certain(node),
                                  .committed = has_committed(node, holder->last_end)};
    if (!node_id_equal(&question->shard, &cluster->myself->shard)) return OUTCOME_LATER;
    outcome_facts_of_slots(&facts, cluster, &slots, nodes_find(&cluster->nodes, &question->source));
    const struct cluster_node *owner = cluster->slots.owner[mobile_slot(question->slot)];
    uint64_t unheard = holder->unheard[question->slot];
    facts.unheard = unheard && (!owner || owner->config_epoch < unheard);
    enum outcome_answer answer = outcome_decide(&facts);
    if (answer == OUTCOME_CLAIM && awaits_claim(holder, NULL)) answer = OUTCOME_LATER;
    if (answer == OUTCOME_GRANTED || answer == OUTCOME_CLAIM)
        cluster_see_epoch(cluster, question->epoch, sim_time(machine_of(node)));
    if (answer == OUTCOME_GRANTED) {
        if (!job->is_tracked) job->granted = true;
        take_slots(node, job);
        answer = job->over && job->success ? OUTCOME_TAKEN : OUTCOME_LATER;
    } else if (answer == OUTCOME_CLAIM) {
        cluster_take_slots(cluster, &slots, sim_time(machine_of(node)));
        answer = OUTCOME_TAKEN;
    }
    note((int)node->index, "answers %d about job %u, slot %u, which it knows as %d", (int)answer, question->job,
         question->slot, (int)state);
    return answer;
}

/* --- Copies and files --- */

/* Jobs that are in progress are in RDB files: migration_write_aux(), migration_imports_list(). */
static void copy_state(struct node *node, struct migration_copy *copy) {
    struct holder *holder = holder_of(node);
    follow_log(node);
    memset(copy, 0, sizeof *copy);
    copy->holder.applied = node->len;
    memcpy(copy->holder.data, holder->data, sizeof holder->data);
    each_job(job, holder) {
        if (job->over || (!job->is_import && !job->is_recorded)) continue;
        copy->holder.jobs[copy->holder.job_count++] = (struct migration){.name = job->name,
                                                                         .slot = job->slot,
                                                                         .is_import = job->is_import,
                                                                         .is_tracked = true,
                                                                         .is_recorded = !job->is_import,
                                                                         .granted = !job->is_import,
                                                                         .takes = job->takes,
                                                                         .target = job->target,
                                                                         .target_shard = job->target_shard,
                                                                         .target_epoch = job->target_epoch,
                                                                         .committed_at = -1,
                                                                         .updated_ms = world.now,
                                                                         .peer = -1};
    }
    for (unsigned i = 0; i < MOBILE; i++) {
        const struct cluster_node *owner = cluster_of(node)->slots.owner[mobile_slot(i)];
        if (!owner || node->asynchronous) continue;
        copy->owners[i].id = owner->id;
        copy->owners[i].epoch = owner->config_epoch;
    }
}

static void migrations_copied(struct node *node, const struct node *from) {
    if (moving.on) copy_state(&world.nodes[from->index], &moving.arriving[node->index]);
}

/* copied_owners_read_aux() */
static void hear_owners_of_file(struct node *node) {
    const struct migration_copy *file = &moving.files[node->index];
    if (!moving.on || !node_is_replica(cluster_of(node)->myself)) return;
    for (unsigned i = 0; i < MOBILE; i++)
        if (file->owners[i].epoch && !node_id_equal(&file->owners[i].id, &cluster_of(node)->myself->id))
            hear_owner(node, i, &file->owners[i].id, file->owners[i].epoch);
}

/* migration_load_begins() */
static void migrations_load(struct node *node) {
    struct holder *holder = holder_of(node);
    const struct migration_copy *copy = &moving.arriving[node->index];
    if (!moving.on) return;
    each_job(job, holder) detach(node, job);
    moving.files[node->index] = *copy;
    *holder = copy->holder;
    hear_owners_of_file(node);
}

/* The rest of the log is replayed when the server starts. */
static void migration_crashed(struct node *node) {
    struct holder *holder = holder_of(node);
    if (!moving.on) return;
    each_job(job, holder) detach(node, job);
    if (!node->base) memset(&moving.files[node->index], 0, sizeof *moving.files);
    *holder = moving.files[node->index].holder;
}

static void rewrite_file(struct node *node) {
    copy_state(node, &moving.files[node->index]);
    node->base = node->len;
}

/* DEBUG LOADAOF */
static void load_file(struct node *node) {
    int64_t last_end = holder_of(node)->last_end;
    note((int)node->index, "loads its file");
    follow_log(node);
    migration_crashed(node);
    hear_owners_of_file(node);
    follow_log(node);
    holder_of(node)->last_end = last_end;
}

/* migration_left_shard(); its keys are deleted. */
static void migrations_left_shard(struct node *node) {
    if (!moving.on) return;
    migration_crashed(node);
}

/* --- The servers --- */

static void receive(struct node *node, const struct sent *message) {
    struct migration *job = find_job(holder_of(node), message->job);
    if (message->kind == SENT_QUESTION) {
        struct sent *answer = send_to(SENT_ANSWER, node, message->from, message->link);
        answer->job = message->job;
        answer->answer = answer_question(node, message);
        return;
    }
    if (message->kind == SENT_CLOSED) {
        each_job(known, holder_of(node)) if (known->link == message->link) known->link = 0;
        return;
    }
    if (!job || job->over) return;
    if (message->kind == SENT_ANSWER) {
        if (job->question != message->link) return;
        job->question = 0;
        if (message->answer == OUTCOME_REFUSED) take_back(node, job);
    } else if (job->link != message->link || job->failing) {
        return;
    } else if (message->kind == SENT_REQUEST) {
        job->requested = true;
    } else if (job->requested) {
        cluster_see_epoch(cluster_of(node), message->epoch, sim_time(machine_of(node)));
        job->granted = true;
        take_slots(node, job);
    }
}

static void deliver_sent(void) {
    for (unsigned i = 0; i < moving.sent_count;) {
        struct sent message = moving.sent[i];
        struct node *to = &world.nodes[message.to];
        if (message.due > world.now || (to->up && !runs(to)) || !reachable(message.from, message.to)) {
            i++;
            continue;
        }
        memmove(moving.sent + i, moving.sent + i + 1, (moving.sent_count - i - 1) * sizeof message);
        moving.sent_count--;
        if (to->up && to->life == message.life_to)
            receive(to, &message);
        else if (message.kind != SENT_CLOSED && world.nodes[message.from].up) /* its kernel refuses it */
            send_to(SENT_CLOSED, to, message.from, message.link);
    }
}

/* The whole transfer of the keys in one step, up to PAUSED. */
static void migrate_some_slot(void) {
    unsigned mobile = (unsigned)below(MOBILE), slot = mobile_slot(mobile);
    struct node *source = &world.nodes[below(MACHINES)], *target = &world.nodes[below(MACHINES)];
    if (!runs(source) || !runs(target) || source == target || !reachable((int)source->index, (int)target->index))
        return;
    if (!is_primary(source) || !is_primary(target) || !leads_for_certain(source) || !leads_for_certain(target)) return;
    const struct cluster_node *myself = cluster_of(source)->myself, *owner = cluster_of(target)->slots.owner[slot];
    if (!cluster_serves(cluster_of(source), slot) || !owner || !node_id_equal(&owner->id, &myself->id)) return;
    if (!nodes_find(&cluster_of(source)->nodes, &cluster_of(target)->myself->id)) return;
    each_job(job, holder_of(source)) if (!job->over && job->slot == mobile) return;
    each_job(job, holder_of(target)) if (!job->over && job->slot == mobile) return;
    if (may_take_slots(holder_of(source))) return;
    unsigned name = ++moving.names, link = ++moving.links;
    note(-1, "job %u: slot %u from %u to %u", name, mobile, source->index, target->index);
    struct migration *export = new_job(source, name, mobile, false), *import = new_job(target, name, mobile, true);
    export->source = import->source = myself->id;
    export->target = import->target = cluster_of(target)->myself->id;
    export->link = import->link = link;
    export->peer = (int)target->index;
    import->peer = (int)source->index;
    export->paused_until = world.now + PAUSE_MS;
    write_command(target, (struct command){.kind = COMMAND_ESTABLISH, .job = name, .slot = mobile});
    uint64_t value = holder_of(source)->data[mobile];
    if (!value) return;
    write_command(target, (struct command){.kind = COMMAND_WRITE, .job = name, .slot = mobile, .value = value});
    holder_of(target)->data[mobile] = value;
}

/* What may happen between two messages of a migration. Machines come back with the other faults. */
static void disturb(struct node *node, struct migration *job) {
    switch (below(7)) {
    case 0: detach(node, job); break;
    case 1: /* CANCELSLOTMIGRATIONS: export_cancel() */
        if (job->is_import || job->is_tracked || job->failing) break;
        if (!job->granted) {
            end_job(node, job, false);
            break;
        }
        detach(node, job);
        job->cancelled = true;
        job->unknown_ms = world.now;
        break;
    case 2:
        if (moving.may_crash(node)) moving.crash(node);
        break;
    case 3: /* cut off from all others */
        for (unsigned i = 0; i < MACHINES; i++) {
            cluster_sim.group[i] = i == node->index;
            for (unsigned j = 0; j < MACHINES; j++) world.cut[i][j] = (i == node->index) != (j == node->index);
        }
        break;
    case 4:
        sim_freeze(machine_of(node), (int64_t)below(4000));
        node->frozen_until = world.now + machine_of(node)->frozen_until_ms - cluster_sim.now_ms;
        break;
    case 5: load_file(node); break;
    default:
        cluster_failover(cluster_of(node), FAILOVER_NORMAL, "test", sim_time(machine_of(node)));
        for (unsigned i = 0; i < MACHINES; i++) { /* of a replica of its */
            struct node *replica = &world.nodes[i];
            if (!runs(replica) || !cluster_of(replica) || replica->follows != (int)node->index) continue;
            cluster_failover(cluster_of(replica), FAILOVER_FORCE, "test", sim_time(machine_of(replica)));
            break;
        }
    }
}

static void disturb_some_job(void) {
    struct node *node = &world.nodes[below(MACHINES)];
    if (!runs(node) || !cluster_of(node)) return;
    each_job(job, holder_of(node)) {
        if (job->over || (job->is_tracked && below(10))) continue;
        disturb(node, job);
        return;
    }
}

static void clients_of_slots(struct node *node) {
    struct holder *holder = holder_of(node);
    bool writes = true, reads = true;
    each_job(job, holder) {
        if (job->is_import || job->over || job->is_tracked) continue;
        writes = asynchronous.trial && node->asynchronous;
        reads &= !job->granted;
    }
    for (unsigned i = 0; i < MOBILE; i++) {
        if (!leads_shard(node) || !sim_serves(&cluster_sim, node->index, mobile_slot(i))) continue;
        bool hidden = false, checked = !node->asynchronous || asynchronous_owns(node, mobile_slot(i));
        each_job(job, holder) hidden |= job->is_import && !job->over && job->slot == i && !job->takes;
        if (reads && checked && leads_for_certain(node) && (hidden || holder->data[i] < moving.acknowledged[i])) {
            printf("slot %u has value %llu of %llu%s\n", i, (unsigned long long)holder->data[i],
                   (unsigned long long)moving.acknowledged[i], hidden ? ", hidden" : "");
            violated("a moved slot lacks an acknowledged write", (int)node->index);
        }
        bool pauses =
            node->asynchronous ? asynchronous.quiet || world.now < node->final_until : !sync_who_writable(&node->who);
        if (!writes || pauses || below(30)) continue;
        write_command(node, (struct command){.kind = COMMAND_WRITE, .slot = i, .value = ++moving.next_value});
        holder->data[i] = moving.next_value;
        if (!node->asynchronous)
            sync_lease_changed(&node->lease, ++node->issued, world_us());
        else if (checked)
            moving.acknowledged[i] = moving.next_value;
    }
}

/* migration_leads() */
static void migrations_lead(struct node *node) {
    struct holder *holder = holder_of(node);
    if (!moving.on) return;
    follow_log(node);
    holder->last_end = node->len;
    each_job(job, holder) {
        if (job->over) continue;
        job->committed_at = -1;
        if (job->is_recorded && job->is_tracked && cluster_serves(cluster_of(node), mobile_slot(job->slot)))
            release(node, job);
    }
}

static bool keeps_keys(const struct node *node, unsigned mobile) {
    const struct cluster_node *owner = cluster_of(node)->slots.owner[mobile_slot(mobile)];
    if (node->replica || (owner && nodes_share_shard(owner, cluster_of(node)->myself))) return true;
    each_job(job, holder_of(node)) if (job->is_import && !job->over && job->slot == mobile) return true;
    return false;
}

static void migration_step(void) {
    if (!moving.on) return;
    for (unsigned n = 0; n < MACHINES; n++) {
        struct node *node = &world.nodes[n];
        if (!runs(node) || !cluster_of(node)) continue;
        struct holder *holder = holder_of(node);
        follow_log(node);
        if (below(2000) == 0) rewrite_file(node);
        for (unsigned i = 0; i < MOBILE; i++) { /* effects_settle() */
            if (!holder->drops[i] || stands(node)) continue;
            holder->drops[i] = false;
            if (!keeps_keys(node, i)) drop_slot(node, i);
        }
        each_job(job, holder) {
            if (job->over) continue;
            if (job->is_import)
                import_step(node, job);
            else
                export_step(node, job);
            if (job->failing) end_job(node, job, false);
        }
        unsigned kept = 0; /* ended jobs that CLUSTER GETSLOTMIGRATIONS shows */
        each_job(job, holder) if (!job->over || (world.now - job->updated_ms < 20000 &&
                                                 holder->job_count < JOBS_MAX / 2)) holder->jobs[kept++] = *job;
        holder->job_count = kept;
        clients_of_slots(node);
        cluster_flush(cluster_of(node), sim_time(machine_of(node)));
    }
    deliver_sent();
}

/* A write of its own term is committed: its client has the reply. */
static void command_committed(struct node *node, uint32_t at) {
    const struct command *command = &moving.commands[at];
    /* Writes of earlier terms count once more, but not if the slot has been where they could be lost. */
    if (asynchronous.on && sync_term_compare(&command->term, &node->who.standing) != 0) return;
    if (command->kind == COMMAND_WRITE && command->value > moving.acknowledged[command->slot] && !command->job)
        moving.acknowledged[command->slot] = command->value;
}

/* --- Effects of the cluster's machine: src/cluster/effects.c --- */

static bool slot_granted(void *context, unsigned slot, const struct cluster_node *to, uint64_t epoch) {
    each_job(job, holder_of(server_of(context))) if (!job->is_import && !job->over && job->granted &&
                                                     mobile_slot(job->slot) == slot &&
                                                     node_id_equal(&job->target, &to->id) &&
                                                     epoch > job->target_epoch) return true;
    return false;
}
static bool slot_is_imported(void *context, unsigned slot) {
    each_job(job, holder_of(server_of(context))) if (job->is_import && !job->over &&
                                                     mobile_slot(job->slot) == slot) return true;
    return false;
}
static bool slot_is_leaving(void *context, unsigned slot) {
    each_job(job, holder_of(server_of(context))) if (job->is_recorded && !job->over &&
                                                     mobile_slot(job->slot) == slot) return true;
    return false;
}
static bool claim_is_awaited(void *context) {
    each_job(job, holder_of(server_of(context))) if (!job->is_import && !job->over && job->granted &&
                                                     !job->is_tracked) return true;
    return false;
}
static size_t keys_of_slot(void *context, unsigned slot) {
    int mobile = mobile_of(slot);
    return mobile >= 0 && holder_of(server_of(context))->data[mobile] ? 1 : 0;
}
static void delete_keys_of_slot(void *context, unsigned slot) {
    struct node *node = server_of(context);
    int mobile = mobile_of(slot);
    if (mobile < 0) return;
    if (stands(node))
        holder_of(node)->drops[mobile] = true;
    else
        drop_slot(node, (unsigned)mobile);
}

/* What a slot has may be lost if the shard, which has no synchronous replication, has it or moves it. */
static void migrations_lose(unsigned shard) {
    if (!moving.on || !moving.holders) return;
    for (unsigned slot = 0; slot < MOBILE; slot++)
        for (unsigned i = 0; i < MACHINES; i++) {
            const struct cluster *cluster = cluster_sim.machines[i].cluster;
            const struct cluster_node *owner = cluster ? cluster->slots.owner[mobile_slot(slot)] : NULL;
            int index = owner == NULL ? -1 : owner == cluster->myself ? (int)i : sim_index(owner->address);
            bool touches = index >= 0 && world.nodes[index].asynchronous && world.nodes[index].shard == shard;
            each_job(job, holder_of(&world.nodes[i])) touches |=
                job->slot == slot && !job->over && world.nodes[i].asynchronous && world.nodes[i].shard == shard;
            if (touches) moving.acknowledged[slot] = 0;
        }
}

/* The keys of a slot are with its owner only. NULL: they are. */
static const char *keys_left_behind(void) {
    static char text[100];
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (node->asynchronous && node->replica &&
            memcmp(holder_of(node)->data, holder_of(&world.nodes[node->follows])->data, sizeof(uint64_t[MOBILE])) != 0)
            return "a replica has other keys of moved slots than its primary";
        for (unsigned slot = 0; slot < MOBILE && leads_shard(node); slot++) {
            if (!holder_of(node)->data[slot] || cluster_serves(cluster_of(node), mobile_slot(slot))) continue;
            snprintf(text, sizeof text, "slot %u has left keys behind at %u", slot, i);
            return text;
        }
    }
    return NULL;
}

static const char *migrations_unfinished(void) {
    for (unsigned i = 0; i < MACHINES; i++) each_job(job, holder_of(&world.nodes[i])) {
            static char text[100];
            /* A replica that has promised a later term is refused while its primary can do without it. */
            if (job->over || (world.nodes[i].replica && !world.nodes[i].link)) continue;
            snprintf(text, sizeof text, "migration %u, an %s of slot %u, stays for ever at %u", job->name,
                     job->is_import ? "import" : "export", job->slot, i);
            return text;
        }
    for (unsigned slot = 0; slot < MOBILE; slot++) {
        bool served = false;
        for (unsigned i = 0; i < MACHINES; i++)
            served |= leads_shard(&world.nodes[i]) && sim_serves(&cluster_sim, i, mobile_slot(slot));
        if (!served) return "no server serves a slot that may move";
    }
    return NULL;
}

static void migrations_begin(void) {
    if (!moving.commands) {
        moving.commands = mem_alloc(COMMANDS_MAX * sizeof *moving.commands);
        moving.holders = mem_alloc(MACHINES * sizeof *moving.holders);
        moving.arriving = mem_alloc(MACHINES * sizeof *moving.arriving);
        moving.files = mem_alloc(MACHINES * sizeof *moving.files);
    }
    memset(moving.files, 0, MACHINES * sizeof *moving.files);
    memset(moving.holders, 0, MACHINES * sizeof *moving.holders);
    memset(moving.acknowledged, 0, sizeof moving.acknowledged);
    moving.command_count = 1; /* 0 is none */
    moving.sent_count = 0;
    moving.stopped = false;
    moving.next_value = 0;
}
#endif
