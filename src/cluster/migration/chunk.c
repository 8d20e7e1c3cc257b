/* chunk.c: SYNCSLOTS CHUNK: keys that arrive as a fragment (formats/rdb_fragment.h).
 *
 * The target loads a fragment into the hidden slots. It passes the same bytes to its replicas if all of them know the
 * command; the append-only file, and replicas that may not know it, get commands that create the keys, since other
 * servers must be able to read what this one writes. Clients with CLIENT TRACKING BCAST hear of each key, as when
 * commands create it.
 *
 * A fragment that is refused ends the migration at the target, which deletes what it has of the slots. A replica that
 * cannot load what its primary has loaded no longer has the same data: it asks for a full synchronization. */
#include "cluster/migration/chunk.h"
#include "cluster/migration/link.h"
#include "formats/rdb_fragment.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "persistence/aof.h"
#include "repl/primary/replicas.h"
#include "resp/request.h"
#include "server/clients/user.h"
#include "server/command/propagate.h"
#include "server/maxmemory.h"
#include "server/role.h"
#include "server/server.h"
#include "server/store_events.h"
#include <stdio.h>

/* The receivers of the keys of a fragment: listeners of the store, and the streams that carry them as commands. */
struct chunk_loading {
    const struct slot_import *import;
    bool changed;  /* some listener of the store wants to know */
    bool commands; /* to anybody */
    int targets;   /* enum propagation_target */
};

static bool slot_belongs(void *context, unsigned slot) {
    const struct chunk_loading *loading = context;
    return slot_bitmap_has(&loading->import->job.slots, slot);
}

static void propagate_as_commands(void *context, struct db *db, const struct entry *entry) {
    static const struct request_limits limits = {.multibulk_max = INT32_MAX, .bulk_max = INT64_MAX / 4};
    static struct memory_output commands;
    static struct request_reader reader;
    const struct chunk_loading *loading = context;
    if (!commands.out.ops) {
        memory_output_init(&commands);
        request_reader_init(&reader);
    }
    memory_output_clear(&commands);
    bool written = aof_write_entry(&commands.out, entry, db_id(db));
    must(written); /* only an extension may fail, and a fragment has none */
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
    const struct chunk_loading *loading = context;
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
static struct slot_import *import_named(struct slice name) {
    struct slot_job *job = job_find(&migrations, name);
    return job && !job_is_over(job) ? import_of(job) : NULL;
}

static void chunk_refuse(struct call *call, struct slot_import *import, const char *reason) {
    log_warning("A chunk of slot migration %s is refused: %s", import ? import_text(import) : "(unknown)", reason);
    if (call->client->flags & CLIENT_MIGRATION) {
        import_command_failed(import);
        return;
    }
    if (call->client->flags & CLIENT_PRIMARY) role_set_position_known(false);
    reply_error_format(call->reply, "ERR A chunk of a slot migration is refused: %s", reason);
}

/* A fragment from the primary is in the stream that the replicas of this server get. */
static int chunk_load(struct slice bytes, const struct slot_import *import, bool from_primary, bool raw,
                      struct rdb_load_result *result) {
    struct chunk_loading loading = {.import = import};
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

void chunk_run(struct call *call, struct slot_import *import) {
    if (call->argc != 5) {
        chunk_refuse(call, import, "wrong number of arguments");
        return;
    }
    if (import && !(call->client->user->flags & USER_ALL_RIGHTS)) {
        chunk_refuse(call, import, "its user has not all permissions");
        return;
    }
    struct slot_import *named = import_named(call->argv[3]);
    if (!named || (import && named != import)) {
        chunk_refuse(call, import, "it is of another migration");
        return;
    }
    bool from_primary = call->client->flags & CLIENT_PRIMARY;
    if (import && eviction_out_of_memory()) {
        import_out_of_memory(import);
        return;
    }
    if (from_primary) repl_note_own_command();
    bool raw = !from_primary && repl_replicas_are_own();
    struct rdb_load_result result;
    if (chunk_load(call->argv[4], named, from_primary, raw, &result)) {
        chunk_refuse(call, named, result.reason);
        return;
    }
    if (!raw) return;
    struct blob *blobs[5] = {NULL};
    for (int i = 0; i < call->argc; i++) blobs[i] = request_find_blob(&call->client->reader, call->argv[i]);
    propagate_to_replicas(call->argc, call->argv, blobs);
}

bool chunk_load_pulled(struct slot_import *import, struct slice bytes) {
    struct rdb_load_result result;
    if (eviction_out_of_memory()) {
        import_out_of_memory(import);
        return false;
    }
    bool raw = repl_replicas_are_own();
    propagate_begin();
    int error = chunk_load(bytes, import, false, raw, &result);
    if (error) {
        log_warning("A chunk of slot migration %s is refused: %s", import_text(import), result.reason);
        import_command_failed(import);
    } else if (raw && propagate_wanted()) {
        /* Also for replicas that are away or join: they get it from the stream. The buffer is for the next chunk. */
        struct blob *blob = blob_copy(bytes);
        struct slice argv[] = {
            SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("CHUNK"), {import->job.name, JOB_NAME_LEN}, blob_slice(blob)};
        propagate_to_replicas(5, argv, (struct blob *[]){NULL, NULL, NULL, NULL, blob});
        blob_release(blob);
    }
    propagate_end();
    return !error;
}
