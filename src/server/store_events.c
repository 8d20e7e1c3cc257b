/* store_events.c: see store_events.h. */
#include "server/store_events.h"
#include "lib/system/memory.h"
#include "server/command/propagate.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/server_events.h"

static struct list listeners = LIST_INIT(listeners);

void store_events_listen(struct store_listener *listener) {
    list_add_listener(&listeners, &listener->link);
}
void store_events_unlisten(struct store_listener *listener) {
    list_remove_listener(&listeners, &listener->link);
}

bool store_events_changed_wanted(void) {
    list_each(&listeners, link) {
        if (container_of(link, struct store_listener, link)->hooks.changed) return true;
    }
    return false;
}

static void store_changed(struct db *db, struct slice key) {
    listeners_call(&listeners, struct store_listener, hooks.changed, db, key);
}

static struct slice delete_command(bool lazy) {
    return lazy ? SLICE("UNLINK") : SLICE("DEL");
}

static void key_deleted(struct db *db, struct slice key, bool lazy, enum notify_class class, const char *event) {
    notify(db, class, event, key);
    /* The deletion is propagated everywhere, whatever redis.set_repl a script has called. */
    int before = propagation_set_targets(PROPAGATE_ALL);
    if (propagate_wanted()) {
        struct slice argv[2] = {delete_command(lazy), key};
        propagate(db_id(db), 2, argv, NULL);
    }
    propagation_set_targets(before);
}

static void expired(struct db *db, struct slice key) {
    server_event(EVENT_KEY, 1, &(struct key_event){db, key});
    key_deleted(db, key, store_settings.lazy_expire, NOTIFY_EXPIRED, "expired");
    listeners_call(&listeners, struct store_listener, hooks.expired, db, key);
}

/* The deletion of the last field of a hash deletes the key; replicas are told both in one transaction, as by Valkey. */
static void fields_expired(struct db *db, struct slice key, const struct slice *fields, size_t count, bool all) {
    notify(db, NOTIFY_HASH, "hexpired", key);
    if (all) notify(db, NOTIFY_GENERIC, "del", key);
    int before = propagation_set_targets(PROPAGATE_ALL);
    if (propagate_wanted()) {
        struct slice *argv = mem_alloc((count + 2) * sizeof *argv);
        argv[0] = SLICE("HDEL"), argv[1] = key;
        memcpy(argv + 2, fields, count * sizeof *argv);
        if (all) propagate_begin();
        propagate(db_id(db), (int)count + 2, argv, NULL);
        if (all) {
            argv[0] = delete_command(store_settings.lazy_expire);
            propagate(db_id(db), 2, argv, NULL);
            propagate_end();
        }
        mem_free(argv);
    }
    propagation_set_targets(before);
    listeners_call(&listeners, struct store_listener, hooks.fields_expired, db, key, fields, count, all);
}

static void evicted(struct db *db, struct slice key) {
    server_event(EVENT_KEY, 2, &(struct key_event){db, key});
    key_deleted(db, key, store_settings.lazy_eviction, NOTIFY_EVICTED, "evicted");
    role_note_local_change();
    listeners_call(&listeners, struct store_listener, hooks.evicted, db, key);
}

static void removing(struct db *db, struct slice key, enum removal removal) {
    static const unsigned kinds[] = {[REMOVAL_DELETED] = 0, [REMOVAL_EXPIRED] = 1, [REMOVAL_OVERWRITTEN] = 3};
    server_event(EVENT_KEY, kinds[removal], &(struct key_event){db, key});
}
static void flushed(struct db *db, size_t keys) {
    listeners_call(&listeners, struct store_listener, hooks.flushed, db, keys);
}
static void slot_left(struct db *db, unsigned slot) {
    listeners_call(&listeners, struct store_listener, hooks.slot_left, db, slot);
}
static void swapped(struct db *a, struct db *b) {
    listeners_call(&listeners, struct store_listener, hooks.swapped, a, b);
}

const struct store_hooks store_events = {.changed = store_changed,
                                         .expired = expired,
                                         .fields_expired = fields_expired,
                                         .evicted = evicted,
                                         .flushed = flushed,
                                         .slot_left = slot_left,
                                         .swapped = swapped,
                                         .removing = removing};
