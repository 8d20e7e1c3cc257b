/* expiry.c: expires keys that clients wrote to a writable replica.
 *
 * A replica does not delete expired keys: its primary's DEL does. But the primary does not know keys that clients wrote
 * to the replica (replica-read-only no), so the replica expires these itself. It keeps a table of keys to which a
 * client's command has given an expiration time. The cron visits rounds of them, chosen at random, deletes those that
 * have expired, and continues while many had, for at most the share of time that the primary's active expiry has. A
 * full synchronization clears the table. A server that has become a primary also clears it, since a primary expires all
 * keys. */
#include "repl/replica/link.h"
#include "lib/structures/hashtable.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/db_key.h"
#include "server/role.h"
#include "server/store_events.h"

enum { ROUND_KEYS = 64, WORTHWHILE = ROUND_KEYS / 8, PERCENT_OF_TIME = 25 };

struct expiring_key {
    uint32_t len; /* of the database number and the key */
    char name[];
};

static struct slice tracked_name(const void *entry) {
    const struct expiring_key *key = entry;
    return (struct slice){key->name, key->len};
}
static void tracked_free(void *entry) {
    mem_free(entry);
}
static const struct hashtable_type tracked_type = {.key = tracked_name, .free_entry = tracked_free};
static struct hashtable *tracked; /* NULL: this server was never a replica */
static bool listens;              /* to events of the store: this server is a replica */

static struct entry *find(struct db *db, struct slice key) {
    return db_find(db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
}

static void expiry_changed(struct db *db, struct slice name) {
    const struct call *call = dispatch_running();
    if (!call || client_must_be_obeyed(call->client) || role_is_read_only()) return;
    struct entry *entry = find(db, name);
    if (!entry || entry_expire_at(entry) < 0) return;
    struct db_key storage;
    struct slice full = db_key_make(&storage, db, name);
    if (!hashtable_find(tracked, full)) {
        struct expiring_key *key = mem_alloc(sizeof *key + full.len);
        key->len = (uint32_t)full.len;
        memcpy(key->name, full.data, full.len);
        hashtable_add(tracked, key);
        role_sync.tracked_keys = hashtable_size(tracked);
    }
    db_key_free(&storage);
}

static void forget_all(void) {
    hashtable_clear(tracked);
    role_sync.tracked_keys = 0;
}

/* The keys of the two databases get the other number. All of them leave the table before the first returns: a key may
 * exist in both. */
static void expiry_exchange(struct db *a, struct db *b) {
    struct hashtable_iterator it;
    size_t size = hashtable_size(tracked), count = 0;
    struct expiring_key **moved = mem_alloc((size ? size : 1) * sizeof *moved);
    hashtable_iterator_open(&it, tracked);
    for (struct expiring_key *key; (key = hashtable_iterator_next(&it));) {
        struct db *db = db_key_db(tracked_name(key));
        if (db == a || db == b) moved[count++] = key;
    }
    hashtable_iterator_close(&it);
    for (size_t i = 0; i < count; i++) hashtable_pop(tracked, tracked_name(moved[i]));
    for (size_t i = 0; i < count; i++) {
        db_key_set_db(moved[i]->name, db_key_db(tracked_name(moved[i])) == a ? b : a);
        hashtable_add(tracked, moved[i]);
    }
    mem_free(moved);
}

/* a == b: the whole contents were replaced. */
static void expiry_swapped(struct db *a, struct db *b) {
    if (a == b)
        forget_all();
    else
        expiry_exchange(a, b);
}

static struct store_listener listener = {.hooks = {.changed = expiry_changed, .swapped = expiry_swapped}};

static void role_changed(void) {
    if (role->is_replica && !listens) {
        if (!tracked) tracked = hashtable_new(&tracked_type);
        store_events_listen(&listener);
    } else if (!role->is_replica && listens) {
        store_events_unlisten(&listener);
    }
    listens = role->is_replica;
}

/* Deletes the key if it has expired. Forgets it if it is deleted or has no expiration time any more, and returns true.
 */
static bool expiry_visit(struct expiring_key *key) {
    struct slice full = tracked_name(key), name = db_key_name(full);
    struct db *db = db_key_db(full);
    struct entry *entry = find(db, name);
    if (entry && entry_expire_at(entry) >= 0 && !entry_is_expired(entry)) return false;
    if (entry && entry_is_expired(entry))
        db_find(db, name, LOOKUP_WRITE | LOOKUP_REPLACES | LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
    hashtable_pop(tracked, full);
    tracked_free(key);
    role_sync.tracked_keys = hashtable_size(tracked);
    return true;
}

/* Returns how many keys it forgot. */
static int visit_round(uint64_t end) {
    int forgot = 0;
    for (int left = ROUND_KEYS; left > 0 && hashtable_size(tracked) && clock_monotonic_us() < end; left--)
        forgot += expiry_visit(hashtable_random(tracked));
    return forgot;
}

static void expiry_cron(void) {
    if (!tracked || !hashtable_size(tracked) || server.loading) return;
    if (!role->is_replica) {
        if (store_settings.active_expire && !server_deletion_paused()) forget_all();
        return;
    }
    uint64_t end = clock_monotonic_us() + (uint64_t)(1000000 / server.hz * PERCENT_OF_TIME / 100);
    while (visit_round(end) >= WORTHWHILE && hashtable_size(tracked)) continue;
}

static void expiry_start(void) {
    static struct role_listener role_listener = {.changed = role_changed};
    role_listen(&role_listener);
    role_changed();
}

const struct server_part replica_expiry_part = {.name = "replica-expiry", .start = expiry_start, .cron = expiry_cron};
