/* migration_host.c: the effects of the machine of migration_simulator.h. src/cluster/migration/host.c does the same. */
#include "migration_simulator.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <string.h>

static void moving_facts(void *context, struct migration_facts *facts) {
    const struct node *node = context;
    *facts = (struct migration_facts){.replica = node->replica,
                                      .loading = holder_of(node)->loading,
                                      .sync = !node->asynchronous,
                                      .leads = node->asynchronous || leads_shard(node),
                                      .certain = leads_for_certain(node),
                                      .stands = stands(node),
                                      .offset = node->len};
}
static bool moving_committed(void *context, int64_t offset) {
    return has_committed(context, offset);
}
static bool moving_no(void *context) {
    return false;
}
static bool moving_clients_held(void *context) {
    return is_held(context);
}
static bool moving_can_ask(void *context, const struct cluster_node *to) {
    const struct node *node = context;
    return sim_index(to->address) >= 0 && sim_index(to->address) != (int)node->index;
}
static bool moving_export_yes(void *context, const struct slot_export *export) {
    return true;
}
static bool moving_import_yes(void *context, const struct slot_import *import) {
    return true;
}
static bool moving_owner_unknown(void *context, unsigned slot) {
    const struct node *node = context;
    const struct cluster_node *owner = cluster_of(node)->slots.owner[slot];
    uint64_t unheard = mobile_of(slot) >= 0 ? holder_of(node)->unheard[mobile_of(slot)] : 0;
    return unheard && (!owner || owner->config_epoch < unheard);
}
static void moving_created(void *context, struct slot_job *job) {
    job->host = mem_calloc(1, sizeof(struct sim_job));
}
static void moving_ended(void *context, struct slot_job *job, bool success) {}
static void moving_freed(void *context, struct slot_job *job) {
    mem_free(job->host);
}

static void moving_dial(void *context, struct slot_export *export, const struct cluster_node *target) {
    const struct node *node = context;
    struct sim_job *job = sim_job_of(&export->job);
    job->peer = sim_index(target->address);
    if (job->peer < 0) job->peer = (int)node->index; /* there is nobody: it dials itself */
    job->link = ++moving.links;
    moving_send_to(SENT_CONNECT, node, job->peer, job->link);
}
static void moving_export_nothing(void *context, struct slot_export *export) {}
static void moving_import_nothing(void *context, struct slot_import *import) {}
static void moving_send(void *context, struct slot_job *job, const struct slot_message *message) {
    const struct sim_job *link = sim_job_of(job);
    if (link->link) moving_send_to(SENT_MESSAGE, context, link->peer, link->link)->message = moving_keep(message);
}
static void moving_hang_up(void *context, struct slot_export *export) {
    sim_job_of(&export->job)->question = 0;
}
void moving_close(void *context, struct slot_job *job) {
    struct sim_job *link = sim_job_of(job);
    if (link->link) moving_send_to(SENT_CLOSED, context, link->peer, link->link);
    link->link = link->question = 0;
}
static bool moving_ask_pull(void *context, struct slot_export *export) {
    return false;
}
static void moving_ask(void *context, struct slot_export *export, const struct cluster_node *leader,
                       const struct slot_message *question) {
    struct sim_job *job = sim_job_of(&export->job);
    job->question = ++moving.links;
    struct sent *sent = moving_send_to(SENT_QUESTION, context, sim_index(leader->address), job->question);
    sent->message = moving_keep(question);
    if (world_random(10) == 0) sent->due += (int64_t)world_random(8000); /* lost, and sent again by the kernel */
}

/* The snapshot has the value of this moment, and takes a while. */
static enum snapshot_start moving_start_snapshot(void *context, struct slot_export *export) {
    struct sim_job *job = sim_job_of(&export->job);
    job->snapshot = holder_of(context)->data[mobile_of_job(&export->job)];
    job->snapshot_due = world.now + 1 + (int64_t)world_random(world_random(10) ? 20 : 1000);
    job->backlog = 0;
    job->streams = true;
    return SNAPSHOT_STARTED;
}
static void send_value(const struct node *node, const struct slot_job *job, uint64_t value) {
    const struct sim_job *link = sim_job_of(job);
    if (!link->link || !value) return;
    struct sent *data = moving_send_to(SENT_DATA, node, link->peer, link->link);
    data->slot = mobile_of_job(job);
    data->value = value;
}
void moving_snapshot_step(const struct node *node, struct slot_export *export) {
    static const struct slot_message eof = {.verb = VERB_SNAPSHOT_EOF};
    struct sim_job *job = sim_job_of(&export->job);
    if (!job->snapshot_due || world.now < job->snapshot_due) return;
    job->snapshot_due = 0;
    send_value(node, &export->job, job->snapshot);
    moving_send((void *)(uintptr_t)node, &export->job, &eof);
    if (world_random(50) != 0)
        export_snapshot_done(migrations_of(node), export, time_of(node));
    else
        job_end_later(&export->job, "Failed to perform snapshot");
}
static void moving_cancel_snapshot(void *context, struct slot_export *export) {
    sim_job_of(&export->job)->snapshot_due = 0;
}
static bool moving_pulled(void *context, struct slot_export *export, int64_t count) {
    return false;
}
static void moving_send_changes(void *context, struct slot_export *export) {
    send_value(context, &export->job, sim_job_of(&export->job)->backlog);
}
static size_t moving_flush(void *context, struct slot_export *export) {
    return world_random(4) == 0;
}
static void moving_end_stream(void *context, struct slot_export *export) {
    sim_job_of(&export->job)->snapshot_due = 0;
    sim_job_of(&export->job)->streams = false;
}
void moving_stream_value(const struct node *node, unsigned slot, uint64_t value) {
    list_each(jobs_of(node), at) {
        struct slot_export *export = export_of(job_at(at));
        struct sim_job *job = sim_job_of(job_at(at));
        if (!export || !job->streams || mobile_of_job(&export->job) != slot) continue;
        if (export->state == EXPORT_SNAPSHOTTING || export->state == EXPORT_SNAPSHOT_TAKEN)
            job->backlog = value;
        else
            send_value(node, &export->job, value);
    }
}
static void moving_drop_moved(void *context, const struct slot_export *export) {
    moving_drop_slot(context, mobile_of_job(&export->job));
}

static void moving_hold(void *context, bool reads, int64_t until_ms) {
    struct holder *holder = holder_of(context);
    bool held = is_held(context);
    if (!held) holder->held_until = 0;
    holder->held = true;
    holder->held_reads = reads || (held && holder->held_reads);
    if (until_ms > holder->held_until) holder->held_until = until_ms;
}
static void moving_release(void *context) {
    holder_of(context)->held = false;
}

static void moving_hide(void *context, const struct slot_import *import) {
    holder_of(context)->hidden[mobile_of_job(&import->job)] = true;
}
static void moving_show(void *context, const struct slot_import *import) {
    holder_of(context)->hidden[mobile_of_job(&import->job)] = false;
}
static void moving_drop(void *context, const struct slot_import *import) {
    moving_drop_slot(context, mobile_of_job(&import->job));
}
static void moving_forget(void *context, const struct slot_import *import) {
    holder_of(context)->data[mobile_of_job(&import->job)] = 0;
    moving_show(context, import);
}
static bool moving_open_fetch(void *context, struct slot_import *import, struct slice key) {
    return false;
}
static void moving_receive(void *context, struct slot_import *import, const struct slot_message *message) {}

void moving_record(void *context, const struct slot_message *message) {
    struct node *node = context;
    const struct slot_job *job = job_find(migrations_of(node), message->name);
    bool success = message->finish == FINISH_SUCCESS;
    if (!writes_stream(node)) return;
    world_note((int)node->index, "records %s %.*s", slot_verb_name(message->verb), JOB_NAME_LEN, message->name.data);
    moving_write_command(node, COMMAND_RECORD)->record = moving_keep(message);
    if (message->verb != VERB_FINISH || !job) return;
    if (job->kind == JOB_IMPORT)
        *(success ? &moving.done : &moving.failed) += 1;
    else
        moving.refused += !success && message->epoch;
}
static void moving_log(void *context, enum log_level level, const char *text) {
    const struct node *node = context;
    world_note((int)node->index, "%s", text);
}
static void moving_log_seldom(void *context, const char *text) {}

static const struct migration_effects moving_effects = {.facts = moving_facts,
                                                        .committed = moving_committed,
                                                        .authenticates = moving_no,
                                                        .clients_are_held = moving_clients_held,
                                                        .can_ask = moving_can_ask,
                                                        .snapshot_is_possible = moving_export_yes,
                                                        .snapshot_lets_send = moving_export_yes,
                                                        .takes_chunks = moving_import_yes,
                                                        .fetch_is_idle = moving_import_yes,
                                                        .owner_is_unknown = moving_owner_unknown,
                                                        .created = moving_created,
                                                        .ended = moving_ended,
                                                        .freed = moving_freed,
                                                        .dial = moving_dial,
                                                        .send_auth = moving_export_nothing,
                                                        .accepted = moving_export_nothing,
                                                        .send = moving_send,
                                                        .close = moving_close,
                                                        .ask_pull = moving_ask_pull,
                                                        .ask = moving_ask,
                                                        .hang_up = moving_hang_up,
                                                        .start_snapshot = moving_start_snapshot,
                                                        .cancel_snapshot = moving_cancel_snapshot,
                                                        .pulled = moving_pulled,
                                                        .send_changes = moving_send_changes,
                                                        .flush = moving_flush,
                                                        .end_stream = moving_end_stream,
                                                        .drop_moved = moving_drop_moved,
                                                        .hold_clients = moving_hold,
                                                        .release_clients = moving_release,
                                                        .hide_keys = moving_hide,
                                                        .show_keys = moving_show,
                                                        .drop_keys = moving_drop,
                                                        .forget_keys = moving_forget,
                                                        .open_fetch = moving_open_fetch,
                                                        .receive = moving_receive,
                                                        .load_fetched = moving_import_nothing,
                                                        .close_fetch = moving_import_nothing,
                                                        .record = moving_record,
                                                        .log = moving_log,
                                                        .log_seldom = moving_log_seldom};

void moving_machine_init(struct node *node, struct cluster *cluster) {
    static const struct migration_settings settings = {.log_max_len = 10, .failover_bytes = 0, .timeout_ms = 10000};
    migrations_init(migrations_of(node), &settings, &moving_effects, node, cluster);
}
