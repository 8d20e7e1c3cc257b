/* slot_keys.c: see slot_keys.h. */
#include "cluster/slot_keys.h"
#include "repl/primary/replicas.h"
#include "server/command/propagate.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>

enum { DELETED_AT_ONCE = 128 /* keys of one DEL */ };

size_t slot_keys_count(unsigned slot) {
    size_t keys = 0;
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        keys += db_slot_size(keyspace_db(server.keyspace, id), slot).keys;
    return keys;
}

/* All replicas know CLUSTER FLUSHSLOT. */
static bool replicas_are_new(void) {
    list_each(&replicas, link) {
        if (container_of(link, struct replica, link)->announced.version < 0x090000) return false;
    }
    return true;
}

struct deletion {
    int db, count;
    struct slice argv[1 + DELETED_AT_ONCE];
};
static void deletion_send(struct deletion *deletion) {
    if (deletion->count) propagate(deletion->db, 1 + deletion->count, deletion->argv, NULL);
    deletion->count = 0;
}
static void deletion_add(void *context, struct entry *entry) {
    struct deletion *deletion = context;
    deletion->argv[1 + deletion->count++] = entry_key(entry);
    if (deletion->count == DELETED_AT_ONCE) deletion_send(deletion);
}

static void propagate_deletion(unsigned slot) {
    char text[8];
    if (!propagate_wanted()) return;
    propagate_begin();
    if (replicas_are_new()) {
        snprintf(text, sizeof text, "%u", slot);
        propagate(0, 4, (struct slice[]){SLICE("CLUSTER"), SLICE("FLUSHSLOT"), slice_of(text), SLICE("ASYNC")}, NULL);
    } else {
        for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
            struct deletion deletion = {.db = id, .argv = {SLICE("DEL")}};
            db_slot_keys(keyspace_db(server.keyspace, id), slot, SIZE_MAX, deletion_add, &deletion);
            deletion_send(&deletion);
        }
    }
    propagate_end();
}

void slot_keys_delete(unsigned slot) {
    if (!slot_keys_count(slot)) return;
    if (!role_is_replica()) propagate_deletion(slot);
    server.dirty += keyspace_drop_slot(server.keyspace, slot, true);
}
