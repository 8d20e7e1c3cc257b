/* store_events.c: see store_events.h. */
#include "server/store_events.h"
#include "lib/memory.h"
#include "server/notify.h"
#include "server/command/propagate.h"

static struct list listeners = {.head = {&listeners.head, &listeners.head}};

void store_events_listen(struct store_listener *listener) {
    list_append(&listeners, &listener->link);
}
void store_events_unlisten(struct store_listener *listener) {
    list_remove(&listeners, &listener->link);
}

#define each_listener(hook, ...)                                                                                       \
    list_each(&listeners, link) {                                                                                      \
        struct store_listener *listener = container_of(link, struct store_listener, link);                             \
        if (listener->hooks.hook) listener->hooks.hook(__VA_ARGS__);                                                   \
    }

static void changed(struct db *db, struct slice key) {
    each_listener(changed, db, key);
}

static void key_deleted(struct db *db, struct slice key, bool lazy, enum notify_class class, const char *event) {
    notify(db, class, event, key);
    /* The deletion is propagated everywhere, whatever redis.set_repl a script has called. */
    int before = propagation_set_targets(PROPAGATE_ALL);
    if (propagate_wanted()) {
        struct slice argv[2] = {lazy ? SLICE("UNLINK") : SLICE("DEL"), key};
        propagate(db_id(db), 2, argv, NULL);
    }
    propagation_set_targets(before);
}

static void expired(struct db *db, struct slice key) {
    key_deleted(db, key, store_settings.lazy_expire, NOTIFY_EXPIRED, "expired");
    each_listener(expired, db, key);
}

static void fields_expired(struct db *db, struct slice key, const struct slice *fields, size_t count, bool all) {
    notify(db, NOTIFY_HASH, "hexpired", key);
    if (all) notify(db, NOTIFY_GENERIC, "del", key);
    int before = propagation_set_targets(PROPAGATE_ALL);
    if (propagate_wanted()) {
        struct slice *argv = mem_alloc((count + 2) * sizeof *argv);
        argv[0] = SLICE("HDEL"), argv[1] = key;
        memcpy(argv + 2, fields, count * sizeof *argv);
        propagate(db_id(db), (int)count + 2, argv, NULL);
        mem_free(argv);
    }
    propagation_set_targets(before);
    each_listener(fields_expired, db, key, fields, count, all);
}

static void evicted(struct db *db, struct slice key) {
    key_deleted(db, key, store_settings.lazy_eviction, NOTIFY_EVICTED, "evicted");
    each_listener(evicted, db, key);
}

static void flushed(struct db *db, size_t keys) {
    each_listener(flushed, db, keys);
}
static void swapped(struct db *a, struct db *b) {
    each_listener(swapped, a, b);
}

const struct store_hooks store_events = {.changed = changed,
                                         .expired = expired,
                                         .fields_expired = fields_expired,
                                         .evicted = evicted,
                                         .flushed = flushed,
                                         .swapped = swapped};
