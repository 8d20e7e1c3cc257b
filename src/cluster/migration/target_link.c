/* target_link.c: the link of an import, and the keys of its slots.
 *
 * The link is an ordinary client with the flag CLIENT_MIGRATION. Its commands are executed without any check, as those
 * of a primary are, and they are propagated as this server's own. It gets no reply. An error ends the job: the data
 * would not be that of the source.
 *
 * The slots are hidden (store/keyspace.h) from ESTABLISH until the job ends. */
#include "cluster/migration/target_link.h"
#include "cluster/migration/link.h"
#include "cluster/slot_keys.h"
#include "repl/stream_error.h"
#include "server/clients/user.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/errorstats.h"

#define each_slot_of(import, slot)                                                                                     \
    for (unsigned slot = 0; (slot = slot_bitmap_next(&(import)->job.slots, slot, true)) < HASH_SLOTS; slot++)

void target_hide_keys(void *context, const struct slot_import *import) {
    each_slot_of(import, slot) keyspace_hide_slot(server.keyspace, slot);
}
void target_show_keys(void *context, const struct slot_import *import) {
    each_slot_of(import, slot) keyspace_show_slot(server.keyspace, slot);
}
/* Deletes the keys, here and (if this server is a primary) on its replicas. */
void target_drop_keys(void *context, const struct slot_import *import) {
    each_slot_of(import, slot) {
        if (role_is_replica())
            server.dirty += keyspace_drop_slot(server.keyspace, slot, true);
        else
            slot_keys_delete(slot);
    }
}
void target_forget_keys(void *context, const struct slot_import *import) {
    each_slot_of(import, slot) keyspace_drop_slot(server.keyspace, slot, true);
    target_show_keys(context, import);
}

/* Chunks cause no keyspace events, and their commands are not checked one by one. */
bool target_takes_chunks(void *context, const struct slot_import *import) {
    const struct client *client = link_of(&import->job)->client;
    return !notify_wanted && client && client->user->flags & USER_ALL_RIGHTS;
}

static void target_error_reply(struct reply *reply, struct slice text) {
    struct client *client = container_of(reply, struct client, reply);
    struct slot_job *job = job_of_client(client);
    errorstats_count(reply, text);
    if (!job) return;
    if (text.len >= 3 && memcmp(text.data, "OOM", 3) == 0) {
        import_out_of_memory(import_of(job));
        return;
    }
    if (job->ending) return; /* the rest of what it has sent */
    repl_log_error("This slot-import-target is sending an error to its slot-import-source", text, client->current);
    client->flags |= CLIENT_CLOSE_AFTER_REPLY; /* executes nothing more */
    import_command_failed(import_of(job));
}

void target_attach(struct slot_import *import, struct client *client) {
    client->flags |= CLIENT_MIGRATION | CLIENT_REPLY_OFF;
    client->reply.error_hook = target_error_reply;
    client_retarget(client);
    link_attach(&import->job, client);
}
