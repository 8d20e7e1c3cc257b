/* chunk.c: SYNCSLOTS CHUNK: keys that arrive as a fragment (formats/rdb_fragment.h).
 *
 * The target loads a fragment into the hidden slots. It passes the same bytes to its replicas if all of them know the
 * command; the append-only file, and replicas that may not know it, get commands that create the keys, since other
 * servers must be able to read what this one writes. Clients with CLIENT TRACKING BCAST hear of each key, as when
 * commands create it.
 *
 * A fragment that is refused ends the migration at the target, which deletes what it has of the slots. A replica that
 * cannot load what its primary has loaded no longer has the same data: it asks for a full synchronization. */
#include "cluster/migration/jobs.h"
#include "formats/rdb_fragment.h"
#include "lib/system/log.h"
#include "persistence/aof.h"
#include "repl/repl.h"
#include "resp/request.h"
#include "server/clients/user.h"
#include "server/command/propagate.h"
#include "server/maxmemory.h"
#include "server/role.h"
#include "server/server.h"
#include "server/store_events.h"
#include <stdio.h>

/* Which listeners hear of the keys of a fragment, and where these are propagated as commands. */
struct loading {
    const struct job *job;
    bool changed;  /* some listener of the store wants to know */
    bool commands; /* to anybody */
    int targets;   /* enum propagation_target */
};

static bool slot_belongs(void *context, unsigned slot) {
    const struct loading *loading = context;
    return slot_bitmap_has(&loading->job->slots, slot);
}

static void propagate_as_commands(void *context, struct db *db, const struct entry *entry) {
    static const struct request_limits limits = {.multibulk_max = INT32_MAX, .bulk_max = INT64_MAX / 4};
    static struct memory_output commands;
    static struct request_reader reader;
    const struct loading *loading = context;
    if (!commands.out.ops) {
        memory_output_init(&commands);
        request_reader_init(&reader);
    }
    memory_output_clear(&commands);
    aof_write_entry(&commands.out, entry);
    int before = propagation_set_targets(loading->targets);
    struct slice bytes = memory_output_slice(&commands);
    while (bytes.len && request_read(&reader, bytes, &limits) == REQUEST_READY) {
        propagate(db_id(db), reader.argc, reader.argv, NULL);
        bytes = slice_make(bytes.data + reader.size, bytes.len - reader.size);
        request_done(&reader);
    }
    propagation_set_targets(before);
}

static void key_read(void *context, struct db *db, const struct entry *entry) {
    const struct loading *loading = context;
    if (loading->changed) db_changed(db, entry_key(entry));
    if (loading->commands) propagate_as_commands(context, db, entry);
}

static void propagate_to_replicas(int argc, const struct slice *argv, struct blob *const *blobs) {
    int before = propagation_set_targets(PROPAGATE_REPLICAS);
    propagate(0, argc, argv, blobs);
    propagation_set_targets(before);
    repl_note_own_command();
}

/* The newest import of this name, if it is in progress. */
static struct job *job_named(struct slice name) {
    struct job *job = job_find(name);
    return job && job->is_import && !job_is_over(job) ? job : NULL;
}

static void refuse(struct call *call, struct job *job, const char *reason) {
    log_warning("A chunk of slot migration %s is refused: %s", job ? job_text(job) : "(unknown)", reason);
    if (call->client->flags & CLIENT_MIGRATION) {
        job_fail_later(job, "Failed to process command during slot migration. Check logs for more information");
        return;
    }
    if (call->client->flags & CLIENT_PRIMARY) role_set_position_known(false);
    reply_error_format(call->reply, "ERR A chunk of a slot migration is refused: %s", reason);
}

/* What came from the primary itself is in the stream that its replicas get. */
static int load(struct slice bytes, const struct job *job, bool from_primary, bool raw,
                struct rdb_load_result *result) {
    struct loading loading = {.job = job};
    if (aof_is_configured()) loading.targets |= PROPAGATE_AOF;
    if (!from_primary && !raw) loading.targets |= PROPAGATE_REPLICAS;
    loading.commands = loading.targets && propagate_wanted();
    loading.changed = store_events_changed_wanted();
    struct rdb_fragment_params params = {.slot_belongs = slot_belongs,
                                         .key_read = loading.commands || loading.changed ? key_read : NULL,
                                         .context = &loading};
    int error = rdb_fragment_load(bytes, server.keyspace, &params, result);
    server.dirty += result->keys;
    return error;
}

void chunk_run(struct call *call, struct job *job) {
    if (call->argc != 5) {
        refuse(call, job, "wrong number of arguments");
        return;
    }
    if (job && !(call->client->user->flags & USER_ALL_RIGHTS)) {
        refuse(call, job, "its user has not all permissions");
        return;
    }
    struct job *named = job_named(call->argv[3]);
    if (!named || (job && named != job)) {
        refuse(call, job, "it is of another migration");
        return;
    }
    bool from_primary = call->client->flags & CLIENT_PRIMARY;
    if (job && eviction_out_of_memory()) {
        job_out_of_memory(job);
        return;
    }
    if (from_primary) repl_note_own_command();
    bool raw = !from_primary && repl_replicas_are_own();
    struct rdb_load_result result;
    if (load(call->argv[4], named, from_primary, raw, &result)) {
        refuse(call, named, result.reason);
        return;
    }
    if (!raw) return;
    struct blob *blobs[5] = {NULL};
    for (int i = 0; i < call->argc; i++) blobs[i] = request_find_blob(&call->client->reader, call->argv[i]);
    propagate_to_replicas(call->argc, call->argv, blobs);
}

bool chunk_load_pulled(struct job *job, struct slice bytes) {
    struct rdb_load_result result;
    if (eviction_out_of_memory()) {
        job_out_of_memory(job);
        return false;
    }
    bool raw = repl_replicas_are_own();
    propagate_begin();
    int error = load(bytes, job, false, raw, &result);
    if (error) {
        log_warning("A chunk of slot migration %s is refused: %s", job_text(job), result.reason);
        job_fail_later(job, "Failed to process command during slot migration. Check logs for more information");
    } else if (raw && propagate_wanted()) {
        /* Also for replicas that are away or join: they get it from the stream. The buffer is for the next chunk. */
        struct blob *blob = blob_copy(bytes);
        struct slice argv[] = {
            SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("CHUNK"), {job->name, JOB_NAME_LEN}, blob_slice(blob)};
        propagate_to_replicas(5, argv, (struct blob *[]){NULL, NULL, NULL, NULL, blob});
        blob_release(blob);
    }
    propagate_end();
    return !error;
}
