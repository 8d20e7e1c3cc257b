/* host.c: the machine of this server: what it decides, carried out, and the events that concern all jobs. */
#include "cluster/copied_owners.h"
#include "cluster/migration/chunk.h"
#include "cluster/migration/link.h"
#include "cluster/migration/migration.h"
#include "cluster/migration/pull.h"
#include "cluster/migration/question.h"
#include "cluster/migration/snapshot.h"
#include "cluster/migration/source_link.h"
#include "cluster/migration/source_stream.h"
#include "cluster/migration/target_link.h"
#include "cluster/slot_keys.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "repl/pull/seal.h"
#include "repl/settings.h"
#include "repl/link_transport.h"
#include "repl/quorum/quorum.h"
#include "server/command/propagate.h"
#include "server/role.h"
#include "server/server.h"
#include "server/server_events.h"
#include "server/store_events.h"

enum { LOG_US = 10 * 1000 * 1000 };

struct migration_settings migration_settings;

/* --- The link --- */

static void detach(struct slot_job *job) {
    slot_fetch_free(job);
    link_detach(job);
}

static void client_gone(struct client *client) {
    struct slot_job *job = job_of_client(client);
    if (!job) return;
    detach(job);
    if (job->kind == JOB_IMPORT)
        import_link_lost(&migrations, import_of(job));
    else
        export_link_lost(&migrations, export_of(job));
}

static void host_report(const struct client *client, struct client_report *report) {
    const struct slot_job *job = job_of_client(client);
    if (job->kind == JOB_EXPORT) source_report(export_of(job), report);
}

/* --- Effects --- */

static void facts(void *context, struct migration_facts *facts) {
    *facts = (struct migration_facts){.replica = role_is_replica(),
                                      .loading = server_is_loading(),
                                      .sync = quorum_on,
                                      .leads = !quorum_on || quorum_leads(),
                                      .certain = quorum_leads_for_certain(),
                                      .stands = quorum_campaigns(),
                                      .offset = role->position.offset};
}
static bool committed(void *context, int64_t offset) {
    return quorum_has_committed(offset);
}
static bool authenticates(void *context) {
    return replica_settings.primary_auth.len > 0;
}
static bool clients_are_held(void *context) {
    return clients_paused_for(PAUSE_SLOT_MIGRATION);
}
static bool owner_is_unknown(void *context, unsigned slot) {
    return copied_owner_is_unknown(slot);
}
static bool fetch_is_idle(void *context, const struct slot_import *import) {
    return slot_fetch_is_idle(import);
}

/* Beginnings and ends of jobs, for listeners, which may call the machine: reported at the end of the turn. */
struct job_event {
    struct list_link link;
    enum slot_migration_kind kind;
    char name[JOB_NAME_LEN + 1];
    size_t count;
    uint16_t ranges[][2];
};
static struct list job_events = LIST_INIT(job_events);

static void job_event_add(const struct slot_job *job, enum slot_migration_kind of_import,
                          enum slot_migration_kind of_export) {
    if (!server_event_wanted(EVENT_SLOT_MIGRATION)) return;
    size_t size = job->count * sizeof *job->ranges;
    struct job_event *event = mem_calloc(1, sizeof *event + size);
    event->kind = job->kind == JOB_IMPORT ? of_import : of_export;
    memcpy(event->name, job->name, sizeof event->name);
    event->count = job->count;
    memcpy(event->ranges, job->ranges, size);
    list_append(&job_events, &event->link);
}
static void job_events_report(void) {
    while (job_events.len) {
        struct job_event *event = container_of(list_first(&job_events), struct job_event, link);
        list_remove(&job_events, &event->link);
        struct slot_migration_event data = {event->name, event->count, (const uint16_t(*)[2])event->ranges};
        server_event(EVENT_SLOT_MIGRATION, event->kind, &data);
        mem_free(event);
    }
}

static void job_created(void *context, struct slot_job *job) {
    struct job_link *link = mem_calloc(1, sizeof *link);
    link->stream_db = -1;
    job->host = link;
    job_event_add(job, IMPORT_STARTED, EXPORT_STARTED);
}
static void job_ended(void *context, struct slot_job *job, bool success) {
    if (success)
        job_event_add(job, IMPORT_DONE, EXPORT_DONE);
    else
        job_event_add(job, IMPORT_ABORTED, EXPORT_ABORTED);
}
static void job_freed(void *context, struct slot_job *job) {
    mem_free(job->host);
}

static void send_auth(void *context, struct slot_export *export) {
    link_send_auth(link_of(&export->job)->conn);
}
static void send_message(void *context, struct slot_job *job, const struct slot_message *message) {
    job_send_message(job, message);
}
static void close_link(void *context, struct slot_job *job) {
    struct job_link *link = link_of(job);
    struct client *client = link->client;
    detach(job);
    if (client) client_free(client);
    if (link->conn) conn_close(link->conn);
    link->conn = NULL;
    if (link->question) question_hang_up(context, export_of(job));
}
static bool ask_pull(void *context, struct slot_export *export) {
    return slot_pull_ask(export);
}

static void hold_clients(void *context, bool reads, int64_t until_ms) {
    clients_pause(PAUSE_SLOT_MIGRATION, reads ? PAUSE_DATA : PAUSE_WRITE, until_ms);
}
static void release_clients(void *context) {
    clients_unpause(PAUSE_SLOT_MIGRATION);
}
/* A claim deletes the keys of a job that is not tracked, unless a script is running then (effects_settle). */
static void drop_moved(void *context, const struct slot_export *export) {
    for (unsigned slot = 0; (slot = slot_bitmap_next(&export->job.slots, slot, true)) < HASH_SLOTS; slot++)
        slot_keys_delete(slot);
}

static enum snapshot_start start_snapshot(void *context, struct slot_export *export) {
    source_stream_begin(export);
    enum snapshot_start result = snapshot_export(export);
    if (result != SNAPSHOT_STARTED) source_stream_end(export);
    return result;
}
static void end_stream(void *context, struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    snapshot_cancel(context, export);
    source_stream_end(export);
    if (link->pull_key) pull_key_forget(link->pull_key);
    mem_free(link->pull_key);
    link->pull_key = NULL;
}

static void receive(void *context, struct slot_import *import, const struct slot_message *message) {
    struct call *call = (struct call *)message->payload;
    if (message->verb == VERB_OFFER)
        slot_fetch_offered(import, call);
    else
        chunk_run(call, import);
}
static bool open_fetch(void *context, struct slot_import *import, struct slice key) {
    return slot_fetch_open(import, key);
}
static void load_fetched(void *context, struct slot_import *import) {
    slot_fetch_step(import);
}
static void close_fetch(void *context, struct slot_import *import) {
    slot_fetch_free(&import->job);
}

static void record(void *context, const struct slot_message *message) {
    struct slot_arguments arguments;
    slot_message_arguments(message, &arguments);
    /* A replica writes this into its append-only file only: its replicas get the stream of its primary. */
    enum propagation_origin before = propagation_set_origin(PROPAGATION_LOCAL);
    propagation_set_origin(before == PROPAGATION_LOCAL && role_is_replica() ? PROPAGATION_PRIMARY : before);
    propagate_begin();
    propagate(0, arguments.argc, arguments.argv, NULL);
    propagate_end();
    propagation_set_origin(before);
    slot_arguments_free(&arguments);
}
static void write_log(void *context, enum log_level level, const char *text) {
    LOG(level, "%s", text);
}
static void write_log_seldom(void *context, const char *text) {
    static struct log_limit limit = {.interval_us = LOG_US};
    log_limited(&limit, LOG_LEVEL_NOTICE, "%s", text);
}

static const struct migration_effects effects = {.facts = facts,
                                                 .committed = committed,
                                                 .authenticates = authenticates,
                                                 .clients_are_held = clients_are_held,
                                                 .can_ask = question_can_ask,
                                                 .snapshot_is_possible = snapshot_possible,
                                                 .snapshot_lets_send = snapshot_lets_send,
                                                 .takes_chunks = target_takes_chunks,
                                                 .fetch_is_idle = fetch_is_idle,
                                                 .owner_is_unknown = owner_is_unknown,
                                                 .created = job_created,
                                                 .ended = job_ended,
                                                 .freed = job_freed,
                                                 .dial = source_dial,
                                                 .send_auth = send_auth,
                                                 .accepted = source_accepted,
                                                 .send = send_message,
                                                 .close = close_link,
                                                 .ask_pull = ask_pull,
                                                 .ask = question_ask,
                                                 .hang_up = question_hang_up,
                                                 .start_snapshot = start_snapshot,
                                                 .cancel_snapshot = snapshot_cancel,
                                                 .pulled = snapshot_pulled,
                                                 .send_changes = source_send_changes,
                                                 .flush = source_flush,
                                                 .end_stream = end_stream,
                                                 .drop_moved = drop_moved,
                                                 .hold_clients = hold_clients,
                                                 .release_clients = release_clients,
                                                 .hide_keys = target_hide_keys,
                                                 .show_keys = target_show_keys,
                                                 .drop_keys = target_drop_keys,
                                                 .forget_keys = target_forget_keys,
                                                 .open_fetch = open_fetch,
                                                 .receive = receive,
                                                 .load_fetched = load_fetched,
                                                 .close_fetch = close_fetch,
                                                 .record = record,
                                                 .log = write_log,
                                                 .log_seldom = write_log_seldom};

/* --- Events --- */

static void flushed(struct db *db, size_t keys) {
    if (!server_is_loading()) migrations_flushed(&migrations);
}
static struct store_listener store_listener = {.hooks = {.flushed = flushed}};

void migration_slot_flushed(unsigned slot) {
    migrations_slot_flushed(&migrations, slot);
}

void migration_start(void) {
    migrations_init(&migrations, &migration_settings, &effects, NULL, this_cluster);
    link_listener = (struct client_listener){.freed = client_gone, .report = host_report};
    store_events_listen(&store_listener);
    source_stream_start();
}

/* Any byte on the link is a sign of life of the source, not only ACK. */
static void hear_source(struct slot_job *job) {
    const struct job_link *link = link_of(job);
    if (job->kind != JOB_IMPORT || job->tracked || job->ending || !link->client) return;
    if (link->client->active_ms > job->heard_ms || link->client->conn->bytes_in != link->counted_in)
        job_heard(job, migration_now());
}

void migration_tick(void) {
    migration_settings.timeout_ms = (int64_t)repl_settings.timeout * 1000;
    list_each_entry(&migrations.in_progress, struct slot_job, progress, job) {
        hear_source(job);
        link_count_bytes(job);
    }
    migrations_tick(&migrations, migration_now());
}

void migration_before_wait(void) {
    if (__builtin_expect(!migrations.in_progress.len && !migrations.trim_due && !job_events.len, 1)) return;
    /* Not the cached time: a process that was frozen must notice that its clients' writes went on. */
    migrations_turn_end(&migrations, clock_monotonic_ms());
    snapshot_step();
    job_events_report();
}

void migration_stop(void) {
    migrations_stop(&migrations, migration_now());
}
void migration_leads(void) {
    migrations_lead(&migrations, migration_now());
}
void migration_left_shard(void) {
    migrations_left_shard(&migrations, migration_now());
}

/* --- Questions --- */

bool migration_imports(unsigned slot) {
    return import_with_slot(&migrations, slot) != NULL;
}

bool migration_excludes_setslot(int slot, bool is_import) {
    list_each_entry(&migrations.in_progress, const struct slot_job, progress, job) {
        const struct slot_export *export = export_of(job);
        if ((job->kind == JOB_IMPORT) != is_import || (export && export->cancelled)) continue;
        if (!job->tracked || (slot >= 0 && slot_bitmap_has(&job->slots, (unsigned)slot))) return true;
    }
    return false;
}

bool migration_granted(unsigned slot, const struct cluster_node *node, uint64_t epoch) {
    return exports_granted(&migrations, slot, node, epoch);
}
bool migration_leaves(unsigned slot) {
    return exports_recorded(&migrations, slot);
}
bool migration_awaits_claim(void) {
    return exports_await_claim(&migrations, NULL);
}

void migration_memory(size_t *imports, size_t *exports) {
    *imports = *exports = 0;
    list_each_entry(&migrations.in_progress, const struct slot_job, progress, job) {
        const struct client *client = link_of(job)->client;
        if (client) *(job->kind == JOB_IMPORT ? imports : exports) += client_memory(client);
    }
}

void migration_traffic(uint64_t *imported, uint64_t *exported) {
    list_each(&migrations.in_progress, at) link_count_bytes(container_of(at, struct slot_job, progress));
    jobs_bytes(imported, exported);
}
