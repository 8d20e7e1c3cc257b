/* slot_commands.c: CLUSTER ADDSLOTS, DELSLOTS, FLUSHSLOTS, which assign slots, and FLUSHSLOT, COUNTKEYSINSLOT,
 * GETKEYSINSLOT, which concern the keys in them. */
#include "cluster/commands.h"
#include "cluster/migration/migration.h"
#include "cluster/saved_reply.h"
#include "cluster/this_node.h"
#include "commands/flush_mode.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/notify.h"
#include "server/server.h"

/* --- Slots as arguments --- */

/* Adds a slot to those that the command assigns, or with `assign` false removes. */
static bool slot_choose(struct call *call, unsigned slot, bool assign, struct slot_bitmap *slots) {
    if (assign == (this_cluster->slots.owner[slot] != NULL))
        return reply_error_format(call->reply, "ERR Slot %u is already %s", slot, assign ? "busy" : "unassigned");
    if (slot_bitmap_has(slots, slot))
        return reply_error_format(call->reply, "ERR Slot %u specified multiple times", slot);
    slot_bitmap_set(slots, slot);
    return true;
}

static bool slots_read(struct call *call, bool assign, struct slot_bitmap *slots) {
    unsigned slot;
    for (int i = 2; i < call->argc; i++)
        if (!cluster_slot_read(call, i, &slot)) return false;
    for (int i = 2; i < call->argc; i++)
        if (!cluster_slot_read(call, i, &slot) || !slot_choose(call, slot, assign, slots)) return false;
    return true;
}

static bool ranges_read(struct call *call, bool assign, struct slot_bitmap *slots) {
    if (call->argc % 2)
        return reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command",
                                  call->command->full_name);
    for (int i = 2; i < call->argc; i += 2) {
        unsigned first, last;
        if (!cluster_slot_read(call, i, &first) || !cluster_slot_read(call, i + 1, &last)) return false;
        if (first > last)
            return reply_error_format(call->reply, "ERR start slot number %u is greater than end slot number %u", first,
                                      last);
        for (unsigned slot = first; slot <= last; slot++)
            if (!slot_choose(call, slot, assign, slots)) return false;
    }
    return true;
}

static void change_slots(struct call *call, bool assign,
                         bool (*read)(struct call *call, bool assign, struct slot_bitmap *slots)) {
    struct slot_bitmap slots = {0};
    if (cluster_is_disabled(call) || saved_reply_continues(call) || !read(call, assign, &slots)) return;
    const char *error = assign ? cluster_add_slots(this_cluster, &slots, cluster_now())
                               : cluster_delete_slots(this_cluster, &slots, cluster_now());
    if (error)
        reply_error_format(call->reply, "ERR %s", error);
    else
        saved_reply(call, "OK");
}

void cluster_addslots_run(struct call *call) {
    change_slots(call, true, slots_read);
}
void cluster_addslotsrange_run(struct call *call) {
    change_slots(call, true, ranges_read);
}
void cluster_delslots_run(struct call *call) {
    change_slots(call, false, slots_read);
}
void cluster_delslotsrange_run(struct call *call) {
    change_slots(call, false, ranges_read);
}

void cluster_flushslots_run(struct call *call) {
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    struct cluster_facts facts;
    this_cluster->effects->facts(this_cluster->context, &facts);
    if (facts.has_keys) {
        reply_error(call->reply, "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.");
        return;
    }
    struct slot_bitmap slots = *node_slots(this_cluster->myself);
    cluster_delete_slots(this_cluster, &slots, cluster_now());
    saved_reply(call, "OK");
}

/* --- The keys of a slot --- */

/* Deletes key by key, for the listeners of keyspace events. A database must not change while its keys are visited, so
 * the names are copied first. */
struct slot_names {
    struct memory_output text;
    size_t *lens;
    size_t count;
};
static void take_name(void *context, struct entry *entry) {
    struct slot_names *names = context;
    struct slice key = entry_key(entry);
    names->lens[names->count++] = key.len;
    output_write(&names->text.out, key);
}
static size_t delete_with_events(struct db *db, unsigned slot, bool lazy) {
    size_t keys = db_slot_size(db, slot).keys, deleted = 0;
    if (!keys) return 0;
    struct slot_names names = {.lens = mem_alloc(keys * sizeof *names.lens)};
    memory_output_init(&names.text);
    db_slot_keys(db, slot, keys, take_name, &names);
    const char *name = memory_output_slice(&names.text).data;
    for (size_t i = 0; i < names.count; name += names.lens[i++]) {
        struct slice key = slice_make(name, names.lens[i]);
        if (!db_delete(db, key, lazy)) continue;
        notify(db, NOTIFY_GENERIC, "del", key);
        deleted++;
    }
    memory_output_free(&names.text);
    mem_free(names.lens);
    return deleted;
}

void cluster_flushslot_run(struct call *call) {
    unsigned slot;
    bool lazy;
    if (cluster_is_disabled(call)) return;
    if (call->argc > 4) {
        cluster_reply_usage(call);
        return;
    }
    if (!cluster_slot_read(call, 2, &slot)) return;
    if (!flush_mode_read(call, 3, &lazy)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!client_must_be_obeyed(call->client)) migration_slot_flushed(slot);
    if (notify_wanted & NOTIFY_GENERIC) {
        for (int id = 0; id < keyspace_databases(server.keyspace); id++)
            call->dirty += delete_with_events(keyspace_db(server.keyspace, id), slot, lazy);
    } else {
        call->dirty += keyspace_drop_slot(server.keyspace, slot, lazy);
    }
    reply_ok(call->reply);
}

void cluster_countkeysinslot_run(struct call *call) {
    int64_t slot;
    if (cluster_is_disabled(call)) return;
    if (!parse_int64(call->argv[2], &slot))
        reply_not_integer(call->reply);
    else if (slot < 0 || slot >= HASH_SLOTS)
        reply_error(call->reply, "ERR Invalid slot");
    else
        reply_integer(call->reply, (int64_t)db_slot_size(call->db, (unsigned)slot).keys);
}

static void reply_key(void *context, struct entry *entry) {
    reply_bulk(context, entry_key(entry));
}
void cluster_getkeysinslot_run(struct call *call) {
    int64_t slot, count;
    if (cluster_is_disabled(call)) return;
    if (!parse_int64(call->argv[2], &slot) || !parse_int64(call->argv[3], &count)) {
        reply_not_integer(call->reply);
        return;
    }
    if (slot < 0 || slot >= HASH_SLOTS || count < 0) {
        reply_error(call->reply, "ERR Invalid slot or number of keys");
        return;
    }
    size_t keys = db_slot_size(call->db, (unsigned)slot).keys;
    if ((uint64_t)count < keys) keys = (size_t)count;
    reply_array(call->reply, keys);
    db_slot_keys(call->db, (unsigned)slot, keys, reply_key, call->reply);
}
