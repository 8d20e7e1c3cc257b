/* keyspace.h: the databases and their keys.
 *
 * Whoever changes a key through these functions need not do more: expiry index, memory, lazy freeing and the events
 * below are taken care of. What a change means to others (WATCH, tracking, blocked clients, notifications, replication
 * of an expiry) is told through the hooks.
 *
 * Everything belongs to one thread, the one that owns the store. Time is the cached clock (lib/clock.h). */
#ifndef STORE_KEYSPACE_H
#define STORE_KEYSPACE_H
#include "store/entry.h"

struct keyspace;
struct db; /* one numbered database */

/* Any may be NULL. They must not change the store. The key lies in the entry: it is gone when the hook returns. */
struct store_hooks {
    void (*changed)(struct db *db,
                    struct slice key); /* value or existence changed, through any function below that says so */
    /* Called before the entry goes: propagate DEL/UNLINK, notify "expired". Then `changed` is called too. */
    void (*expired)(struct db *db, struct slice key);
    void (*evicted)(struct db *db, struct slice key); /* likewise */
    /* Some fields of a hash have expired: called before they go: propagate HDEL, notify "hexpired". all: the key goes
     * with them. Then `changed` is called too. */
    void (*fields_expired)(struct db *db, struct slice key, const struct slice *fields, size_t count, bool all);
    void (*flushed)(struct db *db,
                    size_t keys); /* a whole database will be emptied: called before; no other call for its keys */
    void (*swapped)(struct db *a, struct db *b); /* called before */
};
/* Settings, changed by configuration. */
struct store_settings {
    bool lfu; /* the access field counts use instead of time */
    int lfu_log_factor, lfu_decay_time;
    bool lazy_expire, lazy_eviction, lazy_user_del, lazy_user_flush, lazy_server_del;
    int active_expire_effort; /* 1..10 */
    bool active_expire;       /* DEBUG SET-ACTIVE-EXPIRE */
    bool keep_expired;        /* a replica: expired keys look missing but stay until the primary deletes them */
    bool active_rehashing;
    bool show_expired; /* while loading, for commands of the primary's stream and of an import source: what has expired
                          is there like the rest */
    bool keep_access;  /* lookups leave the access field (a child shares our memory: every write costs a page) */
};
extern struct store_settings store_settings;
/* Counters, for INFO; reset by CONFIG RESETSTAT. */
struct store_stats {
    uint64_t hits, misses, expired_keys, expired_fields, expired_time_cap_reached, evicted_keys;
    double expired_stale_percent;
    uint64_t expire_cycle_us;
};
extern struct store_stats store_stats;
/* Objects given to the background thread, which counts here too. */
struct store_lazyfree {
    _Atomic uint64_t pending, freed;
};
extern struct store_lazyfree store_lazyfree;

struct keyspace *keyspace_new(int databases, const struct store_hooks *hooks);
void keyspace_free(struct keyspace *keyspace);
int keyspace_databases(const struct keyspace *keyspace);
struct db *keyspace_db(struct keyspace *keyspace, int id); /* NULL: no such database */
int db_id(const struct db *db);
size_t db_size(const struct db *db);     /* keys, expired but not yet deleted ones included */
size_t db_expires(const struct db *db);  /* keys with an expiry */
size_t db_expiring(const struct db *db); /* keys whose value has items that expire: fields of hashes */
int64_t db_average_ttl(const struct db *db);
size_t db_overhead(const struct db *db);   /* bytes of tables */
struct hashtable *db_table(struct db *db); /* for DEBUG HTSTATS and snapshots */
struct hashtable *db_expires_table(struct db *db);

/* Looking up. The key that has expired is missing; finding it so deletes it (not on a replica). */
enum {
    LOOKUP_NOTOUCH = 1 /* leave the access field */,
    LOOKUP_NOSTATS = 2,
    LOOKUP_WRITE = 4 /* about to be changed: no hit or miss counted */,
    LOOKUP_NOEXPIRE = 8 /* show it even if expired */
};
struct entry *db_find(struct db *db, struct slice key, int flags);
/* The keys of commands that wait to be executed (a pipeline, an MGET): starts fetching them from memory. Costs a hash
 * and saves a wait for memory each, which pays unless the database is small enough to be in the cache anyway. */
bool db_prefetch_pays(const struct db *db);
void db_prefetch(struct db *db, const struct slice *keys, size_t count);

/* Changing. Each of these calls hooks->changed unless it says otherwise, and returns the entry's present place. */
/* Sets a string, whatever was there before. `blob` may hold the same bytes: its reference is taken over in any case,
 * and the blob itself where the value is too large for the entry, so that nothing is copied. Keeps the expiry only with
 * keep_ttl. Chooses int, embedded or blob. */
struct entry *db_set_string(struct db *db, struct slice key, struct slice value, struct blob *blob, bool keep_ttl);
/* The same with its expiry (ms since the epoch, -1: none) and one search whatever is there; *existed tells what was. */
enum {
    PUT_KEEP_TTL = 1 /* expire_at does not count */,
    PUT_TEXT = 2 /* never as an int, even where it looks like one */
};
struct entry *db_put_string(struct db *db, struct slice key, struct slice value, struct blob *blob, int64_t expire_at,
                            int flags, bool *existed);
struct entry *db_set_int64(struct db *db, struct slice key, int64_t value, bool keep_ttl);
/* As SET, for an entry just found with db_find (no second search). The entry may be NULL: then as db_set_string. */
struct entry *db_replace_string(struct db *db, struct entry *entry, struct slice key, struct slice value,
                                struct blob *blob, bool keep_ttl);
struct entry *db_replace_int64(struct db *db, struct entry *entry,
                               int64_t value); /* INCR: in place, keeps the expiry */
/* Makes the string `len` bytes long (zero-filled growth), with encoding raw, and shows where its bytes are to be
 * written: APPEND, SETRANGE, SETBIT. *bytes is valid until the next change. */
struct entry *db_edit_string(struct db *db, struct entry *entry, size_t len, char **bytes);
/* The same for who finds out only then whether he changes anything; he calls db_changed if so. */
struct entry *db_edit_string_silently(struct db *db, struct entry *entry, size_t len, char **bytes);
/* Adds a key of another type, which must be missing. The structure is owned by the store from here on. */
struct entry *db_add_value(struct db *db, struct slice key, enum value_type type, enum value_encoding encoding,
                           void *value);
void db_set_value(struct db *db, struct entry *entry, enum value_encoding encoding,
                  void *value);                   /* converted or reallocated; silent */
void db_changed(struct db *db, struct slice key); /* somebody changed the structure of an entry */
/* Deletes, what is expired too: it does not expire then. Big values in the background where `lazy`. False: was missing.
 */
bool db_delete(struct db *db, struct slice key, bool lazy);
struct entry *db_set_expire(struct db *db, struct entry *entry, int64_t at_ms); /* -1: none. Calls changed */
/* Moves the entry under another key and/or into another database, replacing what is there. `from` must exist. */
struct entry *db_rename(struct db *from_db, struct slice from, struct db *to_db, struct slice to);
struct entry *db_copy(struct db *from_db, struct entry *entry, struct db *to_db,
                      struct slice to);    /* the target must be missing */
size_t db_flush(struct db *db, bool lazy); /* returns the keys there were */
void db_swap(struct db *a, struct db *b);  /* contents only: pointers to struct db stay with their numbers */
void db_expand(struct db *db, size_t keys, size_t expires); /* room before loading */

/* Walking. */
uint64_t db_scan(struct db *db, uint64_t cursor, void (*seen)(void *context, struct entry *entry), void *context);
struct entry *db_random(struct db *db); /* not expired, where one can be found; NULL where empty */
struct db_iterator;
struct db_iterator *
db_iterate(struct db *db); /* all entries, expired ones too; the database must not change meanwhile */
struct entry *db_iterate_next(struct db_iterator *iterator);
void db_iterate_end(struct db_iterator *iterator);
bool entry_is_expired(const struct entry *entry);

/* Work of the cron and of each loop turn. */
/* Deletes expired keys and fields within the time that active_expire_effort allows; fast: the short cycle before the
 * loop sleeps. */
void keyspace_expire_cycle(struct keyspace *keyspace, bool fast, int hz);
bool keyspace_rehash(struct keyspace *keyspace, uint64_t microseconds); /* true: there is more */
#endif
