/* source_stream.c: the changes of the slots of an export, for its target.
 *
 * A listener of propagation sees every change. It finds the slot of a command by its keys, because a script or a
 * transaction may change several slots; the command then goes to the job that exports this slot. */
#include "cluster/migration/source_stream.h"
#include "cluster/migration/link.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/settings.h"
#include "resp/request.h"
#include "server/command/propagate.h"
#include "server/uncounted_memory.h"

enum { KEYS_ON_STACK = 16 };

/* The jobs that get the changes of each slot. */
static struct slot_export *streaming[HASH_SLOTS];
static unsigned streams;

static void stream_propagated(struct propagation_listener *self, const struct propagation *propagation);
static struct propagation_listener stream_listener = {
    .command = stream_propagated, .changes_only = true, .target = PROPAGATE_ANY};

static bool is_snapshotting(const struct slot_export *export) {
    return export->state == EXPORT_SNAPSHOTTING || export->state == EXPORT_SNAPSHOT_TAKEN;
}

/* --- Its life --- */

void source_stream_begin(struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    memory_output_init(&link->backlog);
    link->stream_db = -1;
    if (!streams++) propagate_listen(&stream_listener);
}

void source_stream_slot(struct slot_export *export, unsigned slot) {
    streaming[slot] = export;
}

void source_stream_end(struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    if (!link->backlog.out.ops) return;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (streaming[slot] == export) streaming[slot] = NULL;
    memory_output_free(&link->backlog);
    link->backlog = (struct memory_output){.data = NULL};
    if (!--streams) propagate_unlisten(&stream_listener);
}

/* --- Output --- */

static struct slice backlog_bytes(const struct job_link *link) {
    return link->backlog.out.ops ? memory_output_slice(&link->backlog) : SLICE("");
}

size_t source_output(const struct slot_export *export) {
    const struct job_link *link = link_of(&export->job);
    return link->client ? conn_pending(link->client->conn) + backlog_bytes(link).len : 0;
}

void source_send_changes(void *context, struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    output_write(&link->client->conn->out, backlog_bytes(link));
    memory_output_free(&link->backlog);
    memory_output_init(&link->backlog);
    client_flush_later(link->client);
    client_check_output(link->client);
}

size_t source_flush(void *context, struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    if (link->client) conn_flush(link->client->conn);
    return source_output(export);
}

/* What waits for the targets. Evicting keys would only add to it. */
static size_t held_for_targets(void) {
    size_t bytes = 0;
    list_each_entry(&migrations.in_progress, const struct slot_job, progress, job) {
        const struct job_link *link = link_of(job);
        size_t input = 0, output = 0;
        if (job->kind == JOB_IMPORT || !link->client) continue;
        if (link->client->conn) conn_memory(link->client->conn, &input, &output);
        bytes += output + link->backlog.capacity + link->ahead;
    }
    return bytes;
}

void source_stream_start(void) {
    static struct uncounted_memory memory = {.bytes = held_for_targets};
    uncounted_memory_add(&memory);
}

/* Its limits are those of a replica. The snapshot itself is no part of the stream, and waits for the target. */
void source_report(const struct slot_export *export, struct client_report *report) {
    const struct job_link *link = link_of(&export->job);
    report->held_output += backlog_bytes(link).len;
    report->memory += link->backlog.capacity + link->ahead;
    report->output_least = (size_t)repl_settings.backlog_size;
    if (is_snapshotting(export) && link->client->conn) report->output_uncounted = conn_pending(link->client->conn);
}

/* --- Changes --- */

static void stream_command(struct slot_export *export, const struct propagation *propagation) {
    struct job_link *link = link_of(&export->job);
    if (!link->client) return;
    bool later = is_snapshotting(export);
    struct output *out = later ? &link->backlog.out : &link->client->conn->out;
    if (link->stream_db != propagation->db) {
        char number[NUMBER_TEXT_MAX];
        link->stream_db = propagation->db;
        request_write(out, 2,
                      (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)propagation->db)}});
    }
    request_write_count(out, (size_t)propagation->argc);
    for (int i = 0; i < propagation->argc; i++) {
        struct blob *blob = propagation_blob(propagation, i);
        if (blob)
            request_write_blob(out, blob);
        else
            request_write_argument(out, propagation->argv[i]);
    }
    if (!later) client_flush_later(link->client);
    client_check_output(link->client);
}

/* CLUSTER FLUSHSLOT has its slot as an argument. */
static int flushed_slot(const struct propagation *propagation) {
    int64_t slot;
    if (propagation->argc < 3 || !slice_is(propagation->argv[0], "cluster") ||
        !slice_is(propagation->argv[1], "flushslot") || !parse_int64(propagation->argv[2], &slot) || slot < 0 ||
        slot >= HASH_SLOTS)
        return -1;
    return (int)slot;
}

static void stream_propagated(struct propagation_listener *self, const struct propagation *propagation) {
    struct command *parent;
    if (propagation->origin != PROPAGATION_LOCAL) return;
    const struct command *command = command_lookup(propagation->argc, propagation->argv, &parent);
    /* What the server itself propagates (UNLINK, HDEL) may be renamed away here; the target knows the original name. */
    if (!command) command = command_lookup_original(propagation->argc, propagation->argv, &parent);
    if (!command) return;
    int slot = -1;
    if (command->only_key && (int)command->only_key < propagation->argc) {
        slot = (int)hash_slot(propagation->argv[command->only_key]);
    } else if (command->keyless) {
        slot = flushed_slot(propagation);
    } else {
        struct key_position few[KEYS_ON_STACK], *positions = few;
        int most = propagation->argc > KEYS_ON_STACK ? propagation->argc : KEYS_ON_STACK;
        if (most > KEYS_ON_STACK) positions = mem_alloc((size_t)most * sizeof(*positions));
        int count = command_find_keys(command, propagation->argc, propagation->argv, positions, most);
        if (count > 0) slot = (int)hash_slot(propagation->argv[positions[0].index]);
        if (positions != few) mem_free(positions);
    }
    if (slot >= 0 && streaming[slot]) stream_command(streaming[slot], propagation);
}
