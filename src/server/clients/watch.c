/* watch.c: the keys that clients watch. See transactions.h.
 *
 * A key counts as changed when the store reports it. For an emptied database, two swapped ones, or a slot that leaves
 * with its keys, the store reports one event for all keys: those that exist before or after count as changed. A key
 * that had already expired when the client began to watch it counts as missing: removing it is no change, but a new
 * value is. A client with a changed key needs no more watches, since its transaction fails in any case. */
#include "lib/hash/hash_slot.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/db_key.h"
#include "server/store_events.h"
#include <stdint.h>

struct watched_key {
    struct list watches;
    uint32_t name_len; /* of the database number and the key */
    char name[];
};
struct watch {
    struct list_link of_key, of_client;
    struct watched_key *key;
    struct client *client;
    bool expired; /* the key had expired when it was watched */
};
struct watch_list {
    struct list watches; /* empty once a key has changed; not so once a database was emptied or swapped, as in Valkey */
    struct client *client;
    struct list_link dirty_link;
};

static struct slice watched_name(const void *entry) {
    const struct watched_key *key = entry;
    return (struct slice){key->name, key->name_len};
}
static const struct hashtable_type watched_type = {.key = watched_name};
static struct hashtable *watched;                        /* NULL: never used */
static struct list dirty_lists = LIST_INIT(dirty_lists); /* watch lists to free after all keys were checked */

static void client_freed(struct client *client);
static void client_reported(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {
    .freed = client_freed, .reset = client_freed, .report = client_reported};

static struct watch_list *watches_of(const struct client *client) {
    return client_state(client, &client_listener);
}

static void mark_dirty(struct client *client) {
    client->flags |= CLIENT_DIRTY_WATCH;
    transaction_mark_dirty(client);
}

static void watches_drop(struct watch_list *own);
/* --- Events of the store --- */

static struct entry *entry_at(struct db *db, struct slice key) {
    return db_find(db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
}

static void key_changed(struct db *db, struct slice name) {
    struct db_key full;
    struct watched_key *key = hashtable_find(watched, db_key_make(&full, db, name));
    db_key_free(&full);
    if (!key) return;
    list_each_entry(&key->watches, struct watch, of_key, watch) {
        if (!watch->expired || entry_at(db, name)) {
            struct watch_list *own = watches_of(watch->client);
            must(own && own->client == watch->client);
            mark_dirty(watch->client);
            if (!list_is_linked(&own->dirty_link)) list_append(&dirty_lists, &own->dirty_link);
        }
        watch->expired = false;
    }
    list_each(&dirty_lists, link) watches_drop(container_of(link, struct watch_list, dirty_link));
}

/* The key now has the value that is in `to`, or none (NULL). */
static void key_moves(struct watched_key *key, struct db *from, struct db *to) {
    struct slice name = db_key_name(watched_name(key));
    struct entry *before = entry_at(from, name), *after = to ? entry_at(to, name) : NULL;
    bool expired = after && entry_is_expired(after);
    list_each_entry(&key->watches, struct watch, of_key, watch) {
        if ((before && !watch->expired) || (after && !expired)) mark_dirty(watch->client);
        watch->expired = expired;
    }
}

static void dbs_move(struct db *a, struct db *b) {
    struct hashtable_iterator it;
    if (!a) return;
    hashtable_iterator_open(&it, watched);
    for (struct watched_key *key; (key = hashtable_iterator_next(&it));) {
        struct db *db = db_key_db(watched_name(key));
        if (db == a || db == b) key_moves(key, db, db == a ? b : a);
    }
    hashtable_iterator_close(&it);
}

static void db_flushed(struct db *db, size_t keys) {
    dbs_move(keys ? db : NULL, NULL);
}
static void dbs_swapped(struct db *a, struct db *b) {
    dbs_move(a, b);
}

static void slot_left(struct db *db, unsigned slot) {
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, watched);
    for (struct watched_key *key; (key = hashtable_iterator_next(&it));) {
        struct slice full = watched_name(key);
        if (db_key_db(full) == db && hash_slot(db_key_name(full)) == slot) key_moves(key, db, NULL);
    }
    hashtable_iterator_close(&it);
}

static struct store_listener listener = {
    .hooks = {.changed = key_changed, .flushed = db_flushed, .slot_left = slot_left, .swapped = dbs_swapped}};

/* --- Watching --- */

/* Searches the shorter of the two lists: one client may watch many keys, and many clients one key. */
static bool is_watched_by(struct watched_key *key, struct client *client) {
    struct list *own = &watches_of(client)->watches;
    if (key->watches.len < own->len) {
        list_each(&key->watches, link) {
            if (container_of(link, struct watch, of_key)->client == client) return true;
        }
    } else {
        list_each(own, link) {
            if (container_of(link, struct watch, of_client)->key == key) return true;
        }
    }
    return false;
}

void watch_key(struct client *client, struct db *db, struct slice name) {
    struct db_key storage;
    if (!watched) watched = hashtable_new(&watched_type);
    struct watch_list *own = watches_of(client);
    if (!own) {
        own = mem_alloc(sizeof *own);
        *own = (struct watch_list){.client = client};
        list_init(&own->watches);
        client_set_state(client, &client_listener, own);
    }
    struct slice full = db_key_make(&storage, db, name);
    struct watched_key *key = hashtable_find(watched, full);
    if (!key) {
        key = mem_alloc(sizeof *key + full.len);
        list_init(&key->watches);
        key->name_len = (uint32_t)full.len;
        memcpy(key->name, full.data, full.len);
        hashtable_add(watched, key);
        if (hashtable_size(watched) == 1) store_events_listen(&listener);
    }
    db_key_free(&storage);
    if (is_watched_by(key, client)) return;
    struct watch *watch = mem_alloc(sizeof *watch);
    struct entry *entry = entry_at(db, name);
    *watch = (struct watch){.key = key, .client = client, .expired = entry && entry_is_expired(entry)};
    list_append(&key->watches, &watch->of_key);
    list_append(&own->watches, &watch->of_client);
}

void unwatch_all(struct client *client) {
    client->flags &= ~(uint32_t)CLIENT_DIRTY_WATCH;
    struct watch_list *own = watches_of(client);
    if (!own) return;
    watches_drop(own);
    client_set_state(client, &client_listener, NULL);
    mem_free(own);
}

static void client_freed(struct client *client) {
    unwatch_all(client);
}

int watch_count(const struct client *client) {
    const struct watch_list *own = watches_of(client);
    return own ? (int)own->watches.len : 0;
}

static void client_reported(const struct client *client, struct client_report *report) {
    report->watched_keys = watch_count(client);
    report->memory += watches_of(client)->watches.len * sizeof(struct watch) + sizeof(struct watch_list);
}

static void watches_drop(struct watch_list *own) {
    bool any = own->watches.len;
    list_each_entry(&own->watches, struct watch, of_client, watch) {
        struct watched_key *key = watch->key;
        list_remove(&own->watches, &watch->of_client);
        list_remove(&key->watches, &watch->of_key);
        if (key->watches.len == 0) {
            const struct watched_key *known = hashtable_pop(watched, watched_name(key));
            must(known == key);
            mem_free(key);
        }
        mem_free(watch);
    }
    if (list_is_linked(&own->dirty_link)) list_remove(&dirty_lists, &own->dirty_link);
    if (any && hashtable_size(watched) == 0) store_events_unlisten(&listener);
}

bool watch_expired(const struct client *client) {
    struct watch_list *own = watches_of(client);
    if (!own) return false;
    list_each_entry(&own->watches, struct watch, of_client, watch) {
        if (watch->expired) continue;
        struct slice full = watched_name(watch->key);
        struct entry *entry = entry_at(db_key_db(full), db_key_name(full));
        if (entry && entry_is_expired(entry)) return true;
    }
    return false;
}

size_t watch_keys(void) {
    return watched ? hashtable_size(watched) : 0;
}
