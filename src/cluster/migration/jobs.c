/* jobs.c: see jobs.h. */
#include "cluster/migration/pull.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/role.h"
#include "server/server.h"
#include "server/store_events.h"
#include <stdio.h>
#include <string.h>

struct list jobs = LIST_INIT(jobs), jobs_in_progress = LIST_INIT(jobs_in_progress);
struct migration_settings migration_settings;
static uint64_t bytes_imported, bytes_exported;

static void client_gone(struct client *client);
static void report(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {.freed = client_gone, .report = report};

/* --- Jobs --- */

static const char *const state_names[] = {[JOB_CONNECTING] = "connecting",
                                          [JOB_SENDING_AUTH] = "sending-auth-command",
                                          [JOB_READING_AUTH] = "reading-auth-response",
                                          [JOB_SENDING_ESTABLISH] = "sending-establish-command",
                                          [JOB_READING_ESTABLISH] = "reading-establish-response",
                                          [JOB_WAITING_TO_SNAPSHOT] = "waiting-to-snapshot",
                                          [JOB_SNAPSHOTTING] = "snapshotting",
                                          [JOB_REPLICATING] = "replicating",
                                          [JOB_WAITING_TO_PAUSE] = "waiting-to-pause",
                                          [JOB_FAILOVER_PAUSED] = "failover-paused",
                                          [JOB_EXPORT_GRANTED] = "failover-granted",
                                          [JOB_WAITING_FOR_ACK] = "waiting-for-ack",
                                          [JOB_RECEIVING_SNAPSHOT] = "receiving-snapshot",
                                          [JOB_WAITING_FOR_PAUSED] = "waiting-for-paused",
                                          [JOB_FAILOVER_REQUESTED] = "failover-requested",
                                          [JOB_IMPORT_GRANTED] = "failover-granted",
                                          [JOB_CLEANING_UP] = "cleaning-up",
                                          [JOB_ON_PRIMARY] = "occurring-on-primary",
                                          [JOB_SUCCESS] = "success",
                                          [JOB_CANCELLED] = "cancelled",
                                          [JOB_FAILED] = "failed"};

const char *job_state_name(enum job_state state) {
    return state_names[state];
}

struct job *job_new(bool is_import, struct slice name, const uint16_t (*ranges)[2], size_t count,
                    enum job_state state) {
    struct job *job = mem_calloc(1, sizeof(*job));
    job->is_import = is_import;
    job->state = state;
    if (name.len)
        memcpy(job->name, name.data, JOB_NAME_LEN);
    else
        random_hex(job->name, JOB_NAME_LEN);
    job->count = count;
    job->ranges = mem_alloc(count * sizeof(*ranges));
    memcpy(job->ranges, ranges, count * sizeof(*ranges));
    for (size_t i = 0; i < count; i++)
        for (unsigned slot = ranges[i][0]; slot <= ranges[i][1]; slot++) slot_bitmap_set(&job->slots, slot);
    job->created_s = job->updated_s = job->acked_s = clock_ms() / 1000;
    job->changed_ms = job->heard_ms = job->sent_ms = clock_mono_ms();
    job->message = mem_strndup("", 0);
    job->stream_db = -1;
    job->committed_at = -1;
    job->failing_as = JOB_FAILED;
    list_prepend(&jobs, &job->link);
    list_append(&jobs_in_progress, &job->progress);
    return job;
}

static void left_progress(struct job *job) {
    if (list_is_linked(&job->progress)) list_remove(&jobs_in_progress, &job->progress);
}

static void job_free(struct job *job) {
    left_progress(job);
    list_remove(&jobs, &job->link);
    mem_free(job->ranges);
    mem_free(job->message);
    mem_free(job);
}

struct job *job_find(struct slice name) {
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (slice_equal(name, slice_make(job->name, JOB_NAME_LEN))) return job;
    }
    return NULL;
}

struct job *job_with_slot(unsigned slot, bool is_import) {
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (!job->cancelled && job->is_import == is_import && slot_bitmap_has(&job->slots, slot)) return job;
    }
    return NULL;
}

static bool trim_due;           /* a job has ended */
static int64_t trimmed_to = -1; /* log_max_len, when it was last looked at */

/* Not where a job ends: callers go on to look at it. */
static void jobs_trim(void) {
    int64_t kept = 0;
    if (!trim_due && trimmed_to == migration_settings.log_max_len) return;
    trim_due = false;
    trimmed_to = migration_settings.log_max_len;
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (job_is_over(job) && ++kept > migration_settings.log_max_len) job_free(job);
    }
}

void jobs_forget(void) {
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (job_is_over(job) || !job->cancelled || job->is_recorded) job_free(job);
    }
}

/* --- Texts --- */

static void write_ranges(const struct job *job, struct output *out) {
    char text[16];
    for (size_t i = 0; i < job->count; i++) {
        int len = snprintf(text, sizeof text, "%s%u-%u", i ? " " : "", job->ranges[i][0], job->ranges[i][1]);
        output_write(out, slice_make(text, (size_t)len));
    }
}

const char *job_text(const struct job *job) {
    static struct memory_output text;
    char peer[NODE_ID_LEN + 1] = "unknown";
    if (!text.out.ops) memory_output_init(&text);
    memory_output_clear(&text);
    const struct node_id *id = job->is_import ? &job->source : &job->target;
    if (id->text[0]) memcpy(peer, id->text, NODE_ID_LEN);
    char head[200 + NODE_NAME_MAX];
    const char *which = job->is_import ? "source" : "target";
    const struct cluster_node *node = id->text[0] ? nodes_find(&this_cluster->nodes, id) : NULL;
    int len = snprintf(head, sizeof head, "{name: %s, operation: %s, %s_node_id: %s", job->name,
                       job->is_import ? "import" : "export", which, peer);
    output_write(&text.out, slice_make(head, (size_t)len));
    if (node && node->nodename) {
        len = snprintf(head, sizeof head, ", %s_node_human_name: %s", which, node->nodename);
        output_write(&text.out, slice_make(head, (size_t)len));
    }
    output_write(&text.out, SLICE(", slots: "));
    write_ranges(job, &text.out);
    output_write(&text.out, slice_make("}", 2));
    return text.data;
}

static void reply_text(struct reply *reply, const char *name, struct slice value) {
    reply_bulk_text(reply, name);
    reply_bulk(reply, value);
}
static void reply_number(struct reply *reply, const char *name, int64_t value) {
    reply_bulk_text(reply, name);
    reply_integer(reply, value);
}

void job_describe(const struct job *job, struct reply *reply) {
    struct memory_output ranges;
    reply_map(reply, job->is_tracked ? 10 : 12);
    reply_text(reply, "name", slice_make(job->name, JOB_NAME_LEN));
    reply_text(reply, "operation", job->is_import ? SLICE("IMPORT") : SLICE("EXPORT"));
    memory_output_init(&ranges);
    write_ranges(job, &ranges.out);
    reply_text(reply, "slot_ranges", memory_output_slice(&ranges));
    memory_output_free(&ranges);
    if (!job->is_tracked) {
        reply_text(reply, "target_node", slice_make(job->target.text, NODE_ID_LEN));
        reply_text(reply, "source_node", slice_make(job->source.text, NODE_ID_LEN));
    }
    reply_number(reply, "create_time", job->created_s);
    reply_number(reply, "last_update_time", job->updated_s);
    reply_number(reply, "last_ack_time", job->acked_s);
    reply_text(reply, "state", slice_of(job_state_name(job->cancelled ? JOB_CANCELLED : job->state)));
    reply_text(reply, "message", slice_of(job->message));
    reply_number(reply, "cow_size", (int64_t)job->copied);
    reply_number(reply, "remaining_repl_size", job->is_import ? 0 : (int64_t)job_output(job));
}

/* --- States --- */

void job_set_state(struct job *job, enum job_state state) {
    log_notice("Slot migration %s state transition: %s -> %s", job_text(job), job_state_name(job->state),
               job_state_name(state));
    job->state = state;
    job->updated_s = clock_ms() / 1000;
    job->changed_ms = clock_mono_ms();
}

void job_heard(struct job *job) {
    job->acked_s = clock_ms() / 1000;
    job->heard_ms = clock_mono_ms();
}

void job_finished(struct job *job, enum job_state state, const char *message) {
    job_set_state(job, state);
    mem_free(job->message);
    job->message = mem_strndup(message, strlen(message));
    LOG(state == JOB_FAILED ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE,
        "Slot migration %s finished. State: %s, Message: %s", job_text(job), job_state_name(state), message);
}

void job_end(struct job *job, enum job_state state, const char *message) {
    enum job_state before = job->state;
    job->failing = NULL;
    if (granted_keeps(job, state)) return;
    job_detach(job);
    if (job->is_import)
        import_end(job, state, message);
    else
        granted_end(job, state, message);
    left_progress(job);
    if (job->cancelled)
        job->state = JOB_CANCELLED; /* as it was shown all the time */
    else
        job_finished(job, state, message);
    if (!job->is_import) export_end(job, before);
    trim_due = true;
}

void job_fail_later(struct job *job, const char *message) {
    if (!job->failing && !job_is_over(job) && !job->takes) job->failing = message;
}

/* The messages that one end sends, and why they do not fit the state of the other. The texts are Valkey's. */
static const struct {
    const char *name, *how, *direction, *reason;
} messages[] = {
    {"REQUEST-PAUSE", "", "for", "but the client was not streaming incremental updates"},
    {"REQUEST-FAILOVER", "", "for", "but the client was not in the paused state"},
    {"SNAPSHOT-EOF", "", "from", "but not currently loading an AOF snapshot"},
    {"PAUSED", "unexpected ", "from", ""},
    {"FAILOVER-GRANTED", "", "from", "but we never sent a failover request"},
    {"CHUNK", "", "from", "but not currently loading a snapshot"},
    {"OFFER", "", "from", "but not currently loading a snapshot"},
    {"PULLED", "", "for", "but no snapshot is offered"},
};

void job_unexpected(struct job *job, struct slice subcommand) {
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        if (!slice_is(subcommand, messages[i].name)) continue;
        log_warning("Received %sCLUSTER SYNCSLOTS %s %s slot migration %s, %s. Failing migration.", messages[i].how,
                    messages[i].name, messages[i].direction, job_text(job), messages[i].reason);
        job_fail_later(job, "Unexpected state machine transition");
        return;
    }
    log_warning("Received unknown SYNCSLOTS subcommand from slot migration %s. Failing the migration.", job_text(job));
    job_fail_later(job, "Unknown SYNCSLOTS subcommand used");
}

void job_out_of_memory(struct job *job) {
    log_warning("Slot migration %s failed due to OOM", job_text(job));
    job_fail_later(job, "Ran out of memory (OOM) during slot import");
}

void jobs_settle(void) {
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (job->failing) job_end(job, job->failing_as, job->failing);
    }
    jobs_trim();
}

/* --- The link --- */

static void count_bytes(struct job *job) {
    const struct connection *conn = job->client ? job->client->conn : NULL;
    if (!conn) return;
    if (job->is_import)
        bytes_imported += conn->bytes_in - job->counted_in;
    else
        bytes_exported += conn->bytes_out - job->counted_out;
    job->counted_in = conn->bytes_in;
    job->counted_out = conn->bytes_out;
}

void jobs_count_exported(uint64_t bytes) {
    bytes_exported += bytes;
}
void jobs_count_imported(uint64_t bytes) {
    bytes_imported += bytes;
}

static void client_gone(struct client *client) {
    struct job *job = client_state(client, &client_listener);
    if (!job) return;
    count_bytes(job);
    client_set_state(client, &client_listener, NULL);
    slot_fetch_free(job);
    job->client = NULL;
    if (job_is_over(job) || job->failing) return;
    log_notice("Slot migration %s connection lost", job_text(job));
    if (job->state == JOB_EXPORT_GRANTED) return; /* the target takes the slots, or the pause ends */
    if (!job->is_import) snapshot_cancel(job);
    job_fail_later(job, job->is_import ? "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source "
                                         "node for more information."
                                       : "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target "
                                         "node for more information.");
}

static void report(const struct client *client, struct client_report *report) {
    const struct job *job = job_of_client(client);
    if (!job->is_import) export_report(job, report);
}

void job_attach(struct job *job, struct client *client) {
    job->client = client;
    job->counted_in = client->conn->bytes_in;
    job->counted_out = client->conn->bytes_out;
    client_set_state(client, &client_listener, job);
}

void job_detach(struct job *job) {
    struct client *client = job->client;
    slot_fetch_free(job);
    if (client) {
        count_bytes(job);
        client_set_state(client, &client_listener, NULL);
        job->client = NULL;
        client_free(client);
    }
    if (job->conn) conn_close(job->conn);
    job->conn = NULL;
}

struct job *job_of_client(const struct client *client) {
    return client_state(client, &client_listener);
}

void job_send_words(struct job *job, int count, const struct slice *words) {
    static struct memory_output bytes;
    if (!job->client) return;
    if (!bytes.out.ops) memory_output_init(&bytes);
    memory_output_clear(&bytes);
    request_write(&bytes.out, count, words);
    if (job->is_import) {
        client_push(job->client, memory_output_slice(&bytes));
    } else {
        output_write(&job->client->conn->out, memory_output_slice(&bytes));
        client_flush_later(job->client);
    }
}

void job_send(struct job *job, const char *subcommand) {
    job_send_words(job, 3, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), slice_of(subcommand)});
}
void job_send_capability(struct job *job) {
    job_send_words(job, 4,
                   (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("CAPA"), SLICE(CHUNK_CAPABILITY)});
}

/* --- Propagation --- */

void job_propagate(int argc, const struct slice *argv) {
    /* The replicas of a replica get the stream of the primary; its own append-only file has to know. */
    enum propagation_origin before = propagation_set_origin(PROPAGATION_LOCAL);
    propagation_set_origin(before == PROPAGATION_LOCAL && role_is_replica() ? PROPAGATION_PRIMARY : before);
    propagate_begin();
    propagate(0, argc, argv, NULL);
    propagate_end();
    propagation_set_origin(before);
}

void job_propagate_finish(const struct job *job, bool success, const char *message, uint64_t epoch) {
    char number[NUMBER_TEXT_MAX];
    struct slice argv[11] = {SLICE("CLUSTER"),
                             SLICE("SYNCSLOTS"),
                             SLICE("FINISH"),
                             SLICE("STATE"),
                             success ? SLICE("SUCCESS") : SLICE("FAILED"),
                             SLICE("NAME"),
                             {job->name, JOB_NAME_LEN},
                             SLICE("MESSAGE"),
                             slice_of(message),
                             SLICE("EPOCH")};
    argv[10] = (struct slice){number, format_uint64(number, epoch)};
    job_propagate(epoch ? 11 : 9, argv);
}

/* --- Events --- */

static const char was_flushed[] = "Data was flushed";

static void flushed(struct db *db, size_t keys) {
    if (server_is_loading()) return;
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (job->is_import || (!job->is_tracked && !job->cancelled)) job_fail_later(job, was_flushed);
    }
}
static struct store_listener store_listener = {.hooks = {.flushed = flushed}};

void migration_slot_flushed(unsigned slot) {
    struct job *job = jobs_in_progress.len ? job_with_slot(slot, true) : NULL;
    if (job) job_fail_later(job, was_flushed);
}

void migration_start(void) {
    store_events_listen(&store_listener);
    export_start();
}

void migration_tick(void) {
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (job->failing) continue;
        count_bytes(job);
        if (job->is_import)
            import_tick(job);
        else
            export_tick(job);
    }
    jobs_settle();
}

void migration_before_wait(void) {
    if (__builtin_expect(!jobs_in_progress.len && !trim_due, 1)) return;
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (job->failing) continue;
        if (job->is_import)
            import_step(job);
        else
            export_step(job);
    }
    jobs_settle();
    snapshot_step();
}

void migration_stop(void) {
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (!job->is_import) job_end(job, JOB_FAILED, "Server is shutting down");
    }
}

bool migration_imports(unsigned slot) {
    return jobs_in_progress.len && job_with_slot(slot, true);
}
bool migration_excludes_setslot(int slot, bool is_import) {
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        if (job->is_import != is_import || job->cancelled) continue;
        if (!job->is_tracked || (slot >= 0 && slot_bitmap_has(&job->slots, (unsigned)slot))) return true;
    }
    return false;
}

bool migration_granted(unsigned slot, const struct cluster_node *node, uint64_t epoch) {
    if (!jobs_in_progress.len) return false;
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        if (job->state == JOB_EXPORT_GRANTED && slot_bitmap_has(&job->slots, slot) &&
            node_id_equal(&job->target, &node->id) && epoch > job->target_epoch)
            return true;
    }
    return false;
}

void migration_memory(size_t *imports, size_t *exports) {
    *imports = *exports = 0;
    list_each(&jobs, link) {
        const struct job *job = job_of(link);
        if (job->client) *(job->is_import ? imports : exports) += client_memory(job->client);
    }
}

void migration_traffic(uint64_t *imported, uint64_t *exported) {
    list_each(&jobs, link) count_bytes(job_of(link));
    *imported = bytes_imported;
    *exported = bytes_exported;
}
