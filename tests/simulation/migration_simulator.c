#include "migration_simulator.h"
#include "asynchronous_shards.h"
#include "quorum_clients.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <string.h>

struct moving moving;
struct slot_ranges moving_ranges;

/* --- Messages --- */

struct kept_message moving_keep(const struct slot_message *message) {
    struct kept_message kept = {.message = *message};
    size_t len = message->text.len < TEXT_SIZE ? message->text.len : TEXT_SIZE;
    if (message->name.len) memcpy(kept.name, message->name.data, JOB_NAME_LEN);
    if (len) memcpy(kept.text, message->text.data, len);
    kept.message.text.len = len;
    if (message->count) memcpy(kept.ranges, message->ranges, sizeof kept.ranges);
    return kept;
}

struct read_message {
    struct slot_message message;
    struct slot_arguments arguments;
};
/* Reads it from its arguments, as a server does. */
static struct read_message read_kept(struct kept_message *kept) {
    struct read_message got;
    kept->message.name.data = kept->name;
    kept->message.text.data = kept->text;
    kept->message.ranges = (const uint16_t(*)[2])kept->ranges;
    slot_message_arguments(&kept->message, &got.arguments);
    if (!slot_message_parse(&got.message, got.arguments.argc, got.arguments.argv, &moving_ranges))
        world_violated("a message cannot be read", -1);
    return got;
}

struct sent *moving_send_to(int kind, const struct node *from, int to, unsigned link) {
    if (moving.sent_count == SENT_MAX) world_violated("too many messages of migrations", (int)from->index);
    struct sent *new = &moving.sent[moving.sent_count++];
    *new = (struct sent){.kind = kind, .from = (int)from->index, .to = to, .link = link};
    new->life_to = world.nodes[to].life;
    new->due = world.now + 1 + (int64_t)world_random(world_random(20) ? 5 : 400);
    for (unsigned i = 0; i + 1 < moving.sent_count; i++) { /* a link keeps the order */
        const struct sent *before = &moving.sent[i];
        if (link && before->link == link && before->to == to && before->due > new->due) new->due = before->due;
    }
    return new;
}

/* --- The stream --- */

/* copied_owner_heard() */
void moving_hear_owner(struct node *node, unsigned mobile, const struct node_id *id, uint64_t epoch) {
    struct cluster *cluster = cluster_of(node);
    struct cluster_node *owner = nodes_find(&cluster->nodes, id);
    struct slot_bitmap slots = {0};
    slot_bitmap_set(&slots, mobile_slot(mobile));
    if (owner && owner != cluster->myself && !node_in_handshake(owner) &&
        (node_is_primary(owner) || owner->config_epoch < epoch))
        cluster_hear_claim(cluster, owner, &slots, epoch, time_of(node));
    else if (owner != cluster->myself)
        holder_of(node)->unheard[mobile] = epoch;
}

static void apply(struct node *node, struct command *command) {
    struct holder *holder = holder_of(node);
    if (command->kind == COMMAND_WRITE) holder->data[command->slot] = command->value;
    if (command->kind == COMMAND_DROP) holder->data[command->slot] = 0;
    if (command->kind != COMMAND_RECORD) return;
    struct read_message got = read_kept(&command->record);
    if (got.message.verb == VERB_MOVED)
        moving_hear_owner(node, (unsigned)mobile_of(got.message.ranges[0][0]), &got.message.target, got.message.epoch);
    else
        migrations_track(&holder->machine, &got.message, time_of(node));
    slot_arguments_free(&got.arguments);
}
void moving_follow_log(struct node *node) {
    struct holder *holder = holder_of(node);
    if (node->len < holder->applied) world_violated("a log became shorter", (int)node->index);
    while (holder->applied < node->len) {
        uint32_t command = node->log[holder->applied++].command;
        if (command) apply(node, &moving.commands[command]);
    }
}
struct command *moving_write_command(struct node *node, enum command_kind kind) {
    moving_follow_log(node);
    if (moving.command_count == COMMANDS_MAX) world_violated("too many commands", (int)node->index);
    struct command *command = &moving.commands[moving.command_count];
    *command = (struct command){.kind = kind, .term = node->machine.term};
    world_append(node, (struct entry){.command = moving.command_count++});
    holder_of(node)->applied = node->len;
    return command;
}
static void write_value(struct node *node, unsigned slot, uint64_t value, bool arrives) {
    struct command *command = moving_write_command(node, COMMAND_WRITE);
    command->slot = slot;
    command->value = holder_of(node)->data[slot] = value;
    command->arrives = arrives;
}

bool moving_has_keys(const struct node *node) {
    bool found = false;
    for (unsigned i = 0; i < MOBILE && moving.on; i++) found |= holder_of(node)->data[i] > 0;
    return found;
}

void moving_drop_slot(struct node *node, unsigned mobile) {
    struct holder *holder = holder_of(node);
    if (!holder->data[mobile]) return;
    if (writes_stream(node)) moving_write_command(node, COMMAND_DROP)->slot = mobile;
    holder->data[mobile] = 0;
}

/* --- The servers --- */

static struct slot_job *job_of_link(const struct node *node, unsigned link) {
    list_each(jobs_of(node), at) {
        if (sim_job_of(job_at(at))->link == link) return job_at(at);
    }
    return NULL;
}
static struct slot_export *export_that_asks(const struct node *node, unsigned question) {
    list_each(jobs_of(node), at) {
        if (sim_job_of(job_at(at))->question == question) return export_of(job_at(at));
    }
    return NULL;
}

/* Whether what the source has acknowledged until now is here, although it has no synchronous replication: not if it has
 * been replaced, or its writes go on because this claim comes late. */
static bool source_waits(const struct node *target, const struct slot_job *import) {
    unsigned slot = import->ranges[0][0];
    const struct cluster_node *owner = cluster_of(target)->slots.owner[slot];
    int index = owner && owner != cluster_of(target)->myself ? sim_index(owner->address) : -1;
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        const struct cluster *cluster = cluster_sim.machines[i].cluster;
        if (!cluster || !node_id_equal(&cluster->myself->id, &import->source)) continue;
        if (!node->asynchronous) return true;
        const struct slot_job *job = job_find(migrations_of(node), slice_make(import->name, JOB_NAME_LEN));
        const struct slot_export *export = job ? export_of(job) : NULL;
        return export && export_is_granted(export) && is_held(node) && asynchronous_owner_now(slot) == node;
    }
    return index < 0 || !world.nodes[index].asynchronous; /* a successor of the target does not know the source */
}
static void note_sources(const struct node *node) {
    list_each(jobs_of(node), at) sim_job_of(job_at(at))->source_waits =
        job_at(at)->kind == JOB_IMPORT && source_waits(node, job_at(at));
}

/* establish_run() */
static const char *establish_refusal(struct node *node, const struct slot_message *message) {
    struct cluster *cluster = cluster_of(node);
    const struct slot_job *known = job_find(migrations_of(node), message->name);
    unsigned slot = message->ranges[0][0];
    const struct cluster_node *source = nodes_find(&cluster->nodes, &message->source);
    if (!node_is_primary(cluster->myself) || stands(node))
        return "-ERR Slot migration can only be used on primary nodes.";
    if (!source || source == cluster->myself || cluster->slots.owner[slot] != source) return "-ERR ownership";
    if (known && !job_is_over(known)) return "-ERR A slot migration with this name is in progress";
    if (import_with_slot(migrations_of(node), slot)) return "-ERR already being imported";
    return holder_of(node)->data[mobile_of(slot)] ? "-ERR holds keys" : NULL;
}
static void establish(struct node *node, const struct sent *sent, const struct slot_message *message) {
    const char *refused = establish_refusal(node, message);
    struct sent *reply = moving_send_to(SENT_LINE, node, sent->from, sent->link);
    snprintf(reply->message.text, TEXT_SIZE, "%s", refused ? refused : "+OK");
    if (refused) return;
    struct slot_message record = *message;
    memset(&record.source, 0, sizeof record.source);
    struct slot_import *import =
        import_new(migrations_of(node), message->name, &message->source, &moving_ranges, time_of(node));
    sim_job_of(&import->job)->link = sent->link;
    sim_job_of(&import->job)->peer = sent->from;
    moving_record(node, &record);
}

void moving_link_closed(struct node *node, unsigned link) {
    struct migration_machine *machine = migrations_of(node);
    struct slot_job *job = job_of_link(node, link);
    struct slot_export *export = export_that_asks(node, link);
    if (export) {
        sim_job_of(&export->job)->question = 0;
        export_question_lost(export);
    }
    if (!job) return;
    sim_job_of(job)->link = 0;
    if (job->kind == JOB_IMPORT)
        import_link_lost(machine, import_of(job));
    else if (job->linked)
        export_link_lost(machine, export_of(job));
    else
        export_handshake_failed(machine, export_of(job), "Connection reset by peer", time_of(node));
}

static void receive_message(struct node *node, struct sent *sent) {
    struct migration_machine *machine = migrations_of(node);
    struct slot_job *job = job_of_link(node, sent->link);
    struct read_message got = read_kept(&sent->message);
    if (got.message.verb == VERB_ESTABLISH)
        establish(node, sent, &got.message);
    else if (job && job->kind == JOB_IMPORT)
        import_received(machine, import_of(job), &got.message, time_of(node));
    else if (job)
        export_received(machine, export_of(job), &got.message, time_of(node));
    slot_arguments_free(&got.arguments);
}

static void receive_question(struct node *node, struct sent *sent) {
    struct read_message got = read_kept(&sent->message);
    struct sent *answer = moving_send_to(SENT_ANSWER, node, sent->from, sent->link);
    unsigned at = (unsigned)(answer - moving.sent);
    bool ours = node_id_equal(&got.message.shard, &cluster_of(node)->myself->shard);
    enum outcome_answer decided =
        ours ? import_asked(migrations_of(node), &got.message, &moving_ranges.slots, time_of(node)) : OUTCOME_LATER;
    moving.sent[at].answer = decided;
    world_note((int)node->index, "answers %d about %.*s", (int)decided, JOB_NAME_LEN, got.message.name.data);
    slot_arguments_free(&got.arguments);
}

static void receive(struct node *node, struct sent *sent) {
    struct migration_machine *machine = migrations_of(node);
    if (asynchronous.on) note_sources(node);
    struct slot_job *job = job_of_link(node, sent->link);
    struct slot_export *asks = export_that_asks(node, sent->link);
    switch (sent->kind) {
    case SENT_CONNECT: moving_send_to(SENT_CONNECTED, node, sent->from, sent->link); break;
    case SENT_CONNECTED:
        if (job) export_connected(machine, export_of(job), time_of(node));
        break;
    case SENT_LINE:
        if (job) export_answered(machine, export_of(job), slice_of(sent->message.text), time_of(node));
        break;
    case SENT_MESSAGE: receive_message(node, sent); break;
    case SENT_DATA: /* commands of the source; a server that is no primary closes the link at the end of the turn */
        if (job && job->kind == JOB_IMPORT && writes_stream(node)) write_value(node, sent->slot, sent->value, true);
        break;
    case SENT_CLOSED: moving_link_closed(node, sent->link); break;
    case SENT_QUESTION: receive_question(node, sent); break;
    case SENT_ANSWER:
        if (!asks) break;
        sim_job_of(&asks->job)->question = 0;
        export_outcome_answered(machine, asks, sent->answer, SLICE(""), time_of(node));
        break;
    }
}

static void deliver_sent(void) {
    for (unsigned i = 0; i < moving.sent_count;) {
        struct sent message = moving.sent[i];
        struct node *to = &world.nodes[message.to];
        if (message.due > world.now || (to->up && !world_runs(to)) || !world_reaches(message.from, message.to)) {
            i++;
            continue;
        }
        memmove(moving.sent + i, moving.sent + i + 1, (moving.sent_count - i - 1) * sizeof message);
        moving.sent_count--;
        if (to->up && to->life == message.life_to)
            receive(to, &message);
        else if (message.kind != SENT_CLOSED && world.nodes[message.from].up) /* its kernel refuses it */
            moving_send_to(SENT_CLOSED, to, message.from, message.link);
    }
}

static void clients_of_slots(struct node *node) {
    struct holder *holder = holder_of(node);
    bool held = is_held(node), writes = !held || (asynchronous.trial && node->asynchronous);
    bool reads = !held || !holder->held_reads;
    for (unsigned i = 0; i < MOBILE; i++) {
        if (!leads_shard(node) || !sim_serves(&cluster_sim, node->index, mobile_slot(i))) continue;
        bool checked = !node->asynchronous || asynchronous_owns(node, mobile_slot(i));
        bool lacks = holder->hidden[i] || holder->data[i] < moving.acknowledged[i];
        if (reads && checked && lacks && leads_for_certain(node)) {
            printf("slot %u has value %llu of %llu%s\n", i, (unsigned long long)holder->data[i],
                   (unsigned long long)moving.acknowledged[i], holder->hidden[i] ? ", hidden" : "");
            world_violated("a moved slot lacks an acknowledged write", (int)node->index);
        }
        bool pauses = node->asynchronous ? asynchronous.quiet || world.now < node->final_until
                                         : !quorum_machine_writable(&node->machine);
        if (!writes || pauses || world_random(30)) continue;
        write_value(node, i, ++moving.next_value, false);
        moving_stream_value(node, i, moving.next_value);
        if (!node->asynchronous)
            quorum_lease_changed(&node->lease, ++node->issued, world_us());
        else if (checked)
            moving.acknowledged[i] = moving.next_value;
    }
}

static void begin_to_lead(struct node *node) {
    moving_follow_log(node);
    migrations_lead(migrations_of(node), time_of(node));
}

/* effects_settle() */
static bool keeps_keys(const struct node *node, unsigned mobile) {
    const struct cluster_node *owner = cluster_of(node)->slots.owner[mobile_slot(mobile)];
    return node->replica || (owner && nodes_share_shard(owner, cluster_of(node)->myself)) ||
           import_with_slot(migrations_of(node), mobile_slot(mobile)) ||
           exports_recorded(migrations_of(node), mobile_slot(mobile));
}

void moving_step(void) {
    if (!moving.on) return;
    for (unsigned n = 0; n < MACHINES; n++) {
        struct node *node = &world.nodes[n];
        if (!world_runs(node) || !cluster_of(node)) continue;
        struct holder *holder = holder_of(node);
        if (!node->replica) moving_follow_log(node);
        if (world_random(2000) == 0) moving_rewrite_file(node);
        for (unsigned i = 0; i < MOBILE; i++) {
            if (!holder->drops[i] || stands(node)) continue;
            holder->drops[i] = false;
            if (!keeps_keys(node, i)) moving_drop_slot(node, i);
        }
        list_each(jobs_of(node), at) {
            if (job_at(at)->kind == JOB_EXPORT) moving_snapshot_step(node, export_of(job_at(at)));
        }
        if (world.now % 100 == 0) migrations_tick(&holder->machine, time_of(node));
        if (asynchronous.on) note_sources(node);
        migrations_turn_end(&holder->machine, time_of(node));
        moving_follow_log(node); /* a server that has become a replica knows it before it has a new stream */
        clients_of_slots(node);
        cluster_flush(cluster_of(node), sim_time(machine_of(node)));
    }
    deliver_sent();
}

/* A write of its own term is committed: its client has the reply. */
static void command_committed(struct node *node, uint32_t at) {
    const struct command *command = &moving.commands[at];
    /* Writes of earlier terms count once more, but not if the slot has been where they could be lost. */
    if (asynchronous.on && quorum_term_compare(&command->term, &node->machine.term) != 0) return;
    if (command->kind == COMMAND_WRITE && !command->arrives && command->value > moving.acknowledged[command->slot])
        moving.acknowledged[command->slot] = command->value;
}

/* --- Effects of the cluster's machine: src/cluster/effects.c --- */

static bool slot_granted(void *context, unsigned slot, const struct cluster_node *to, uint64_t epoch) {
    return exports_granted(migrations_of(server_of(context)), slot, to, epoch);
}
static bool slot_is_imported(void *context, unsigned slot) {
    return import_with_slot(migrations_of(server_of(context)), slot) != NULL;
}
static bool slot_is_leaving(void *context, unsigned slot) {
    return exports_recorded(migrations_of(server_of(context)), slot);
}
static bool claim_is_awaited(void *context) {
    return exports_await_claim(migrations_of(server_of(context)), NULL);
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
        moving_drop_slot(node, (unsigned)mobile);
}

/* A claim of a target. */
static void slot_moves(void *context, unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    const struct node *node = server_of(context);
    const struct slot_import *import = import_with_slot(migrations_of(node), slot);
    sim_effects.slot_moved(context, slot, from, to);
    if (asynchronous.on && import && to == cluster_of(node)->myself && !sim_job_of(&import->job)->source_waits)
        moving.acknowledged[mobile_of(slot)] = 0;
}

void moving_set_effects(struct cluster_effects *effects) {
    effects->slot_moved = slot_moves;
    effects->slot_granted = slot_granted;
    effects->slot_arrives = slot_is_imported;
    effects->slot_leaves = slot_is_leaving;
    effects->epoch_stays = claim_is_awaited;
    effects->keys_in_slot = keys_of_slot;
    effects->delete_keys = delete_keys_of_slot;
}

void moving_begin(void) {
    if (!moving.commands) {
        moving.commands = mem_alloc(COMMANDS_MAX * sizeof *moving.commands);
        moving.holders = mem_calloc(MACHINES, sizeof *moving.holders);
        moving.arriving = mem_calloc(MACHINES, sizeof *moving.arriving);
        moving.files = mem_calloc(MACHINES, sizeof *moving.files);
        moving.sent = mem_alloc(SENT_MAX * sizeof *moving.sent);
    }
    for (unsigned i = 0; i < MACHINES; i++) {
        struct holder *holder = &moving.holders[i];
        if (holder->machine.effects) migrations_free(&holder->machine);
        memset(holder, 0, sizeof *holder);
        moving_machine_init(&world.nodes[i], NULL);
        moving_copy_clear(&moving.arriving[i]);
        moving_copy_clear(&moving.files[i]);
    }
    memset(moving.acknowledged, 0, sizeof moving.acknowledged);
    moving.command_count = 1; /* 0 is none */
    moving.sent_count = 0;
    moving.stopped = false;
    moving.next_value = 0;
    world.command_committed = command_committed;
    world.began = begin_to_lead;
    world.copied = moving_copied;
    world.loads = moving_load;
}
