/* keyspace.h: the databases and their keys.
 *
 * These functions maintain everything that a change of a key involves: the expiry index, memory, lazy freeing and the
 * events below. Hooks report changes to the layers above (WATCH, tracking, blocked clients, notifications, propagation
 * of an expiry).
 *
 * Everything belongs to the thread that owns the store. Time is the cached clock (lib/system/clock.h). */
#pragma once
#include "lib/structures/hashtable.h"
#include "store/entry.h"

struct keyspace;
struct db; /* a numbered database */

/* Any hook may be NULL. Hooks must not change the store. The key points into the entry and is invalid when the hook
 * returns. */
enum removal { REMOVAL_DELETED, REMOVAL_EXPIRED, REMOVAL_OVERWRITTEN };
struct store_hooks {
    void (*changed)(struct db *db,
                    struct slice key); /* value or existence changed; the functions below say when they call it */
    /* Called before the entry is deleted: propagate DEL/UNLINK, notify "expired". `changed` follows. */
    void (*expired)(struct db *db, struct slice key);
    void (*evicted)(struct db *db, struct slice key); /* likewise, for an eviction */
    /* Called before expired fields are deleted: propagate HDEL, notify "hexpired". all: the key is deleted with them.
     * `changed` follows. */
    void (*fields_expired)(struct db *db, struct slice key, const struct slice *fields, size_t count, bool all);
    void (*flushed)(struct db *db,
                    size_t keys); /* called before a whole database is emptied; no other hook is called for its keys */
    /* Called before all keys of a slot are removed from a database, or moved to another keyspace; no other hook is
     * called for these keys. Not called for slots without keys. */
    void (*slot_left)(struct db *db, unsigned slot);
    /* Called before two databases are swapped. Called with the same database twice after its contents were replaced as
     * a whole (keyspace_replace()). */
    void (*swapped)(struct db *a, struct db *b);
    /* Only with store_settings.reports_removals: a command is about to remove a key, or to replace its value as a
     * whole. Changes nothing. The value that a command changes in place, and keys that leave with their database, are
     * not reported; for expiry and eviction by the store there are the functions above. */
    void (*removing)(struct db *db, struct slice key, enum removal removal);
};
/* Settings, set by the configuration. */
struct store_settings {
    bool lfu; /* the access field counts uses instead of storing a time */
    int lfu_log_factor, lfu_decay_time;
    bool lazy_expire, lazy_eviction, lazy_user_del, lazy_user_flush, lazy_server_del;
    int active_expire_effort; /* 1..10 */
    bool active_expire;       /* DEBUG SET-ACTIVE-EXPIRE */
    bool keep_expired;        /* on a replica: lookups do not find expired keys, but only the primary deletes them */
    /* With keep_expired: true if lookups delete expired keys nevertheless, because what runs now is propagated. NULL:
     * never. */
    bool (*deletes_expired)(void);
    unsigned readers; /* listeners that read within a change, which holds pointers to entries: nothing deletes expired
                         keys meanwhile */
    bool saving;      /* a reader saves values in this process: what modules propagate goes nowhere, as in a child */
    unsigned lookups_keep_expired; /* not 0: only a lookup for a write deletes an expired key */
    bool active_rehashing;
    bool reports_removals; /* calls hooks->removing */
    bool show_expired; /* while loading, and for commands of the primary's stream or of an import source: expired keys
                          and fields are visible */
    bool (*table_may_grow)(size_t bytes); /* whether a table of keys may allocate that much to grow; NULL: always */
    bool keep_access; /* lookups do not update the access field (a child process shares the memory: each write copies a
                         page) */
    unsigned lending; /* likewise while it is not 0: the number of those that lend entries to threads */
};
extern struct store_settings store_settings;
/* Counters for INFO; CONFIG RESETSTAT resets them. */
struct store_stats {
    uint64_t hits, misses, expired_keys, expired_fields, expired_time_cap_reached, evicted_keys;
    double expired_stale_percent, expired_hashes_stale_percent;
    uint64_t expire_cycle_us;
};
extern struct store_stats store_stats;
/* Counters of objects that are freed by the background thread, which updates them as well. */
struct store_lazyfree {
    _Atomic uint64_t pending, freed;
};
extern struct store_lazyfree store_lazyfree;
void store_free_later(void *memory); /* mem_free() in the background thread */

/* The keys of a database are in one hash table, or in one table for each hash slot of a cluster. The functions below
 * work on both. */
struct keyspace *keyspace_new(int databases, const struct store_hooks *hooks);
struct keyspace *keyspace_new_per_slot(int databases, const struct store_hooks *hooks);
struct keyspace *
keyspace_new_like(const struct keyspace *keyspace); /* empty, of the same kind and size, without hooks */
void keyspace_free(struct keyspace *keyspace);
int keyspace_databases(const struct keyspace *keyspace);
size_t keyspace_size(const struct keyspace *keyspace);     /* keys of all databases, as db_size() counts them */
struct db *keyspace_db(struct keyspace *keyspace, int id); /* NULL: no such database */
int db_id(const struct db *db);
struct keyspace *db_keyspace(const struct db *db);
size_t db_size(const struct db *db);     /* keys, including expired keys that are not deleted yet */
size_t db_expires(const struct db *db);  /* keys with an expiry */
size_t db_expiring(const struct db *db); /* keys whose value has items with an expiry: fields of hashes */
int64_t db_average_ttl(const struct db *db);
size_t db_keys_overhead(const struct db *db);    /* bytes of the tables of keys, without the entries */
size_t db_expires_overhead(const struct db *db); /* bytes of the tables of keys with an expiry */
int db_rehashing(const struct db *db);           /* tables that are being resized */
size_t db_rehashing_memory(const struct db *db); /* bytes of their old arrays */
/* Add the statistics of all tables, for DEBUG HTSTATS. */
void db_keys_stats(const struct db *db, struct hashtable_stats stats[2]);
void db_expires_stats(const struct db *db, struct hashtable_stats stats[2]);

/* Lookup. An expired key is missing, and a lookup deletes it (not on a replica). */
enum {
    LOOKUP_NOTOUCH = 1 /* do not update the access field */,
    LOOKUP_NOSTATS = 2,
    LOOKUP_WRITE = 4 /* the caller will write: counts no hit or miss */,
    LOOKUP_NOEXPIRE = 8 /* find it even if it has expired */,
    LOOKUP_CHANGES = 16 /* the caller may change the value in place, although the lookup counts as a read */,
    LOOKUP_REPLACES = 32 /* with one of the other two: the caller does not change a value in place: it replaces or
                            removes it, or changes the expiry. A thread may still read the value (loan.h) */
};
struct entry *db_find(struct db *db, struct slice key, int flags);
/* Prefetches keys of commands that are not executed yet (a pipeline, an MGET). This costs one hash per key and hides
 * one cache miss per key, so it pays unless the database fits into the CPU cache. */
bool db_prefetch_pays(const struct db *db);
void db_prefetch(struct db *db, const struct slice *keys, size_t count);
/* The same for the keys of the next requests, in their order, if it pays. Their slots are kept (key_slot.h) until the
 * next call, or until the requests are executed or their memory is used for something else: then the caller ends it. */
void db_prefetch_requests(struct db *db, const struct slice *keys, size_t count);
void db_prefetch_requests_end(void);

/* Changes. Each function calls hooks->changed unless it says otherwise, and returns the entry's new address. */
/* Sets a string and replaces a value of any type. `blob` may hold the same bytes: the call always takes over its
 * reference, and it stores the blob itself if the value is too large for the entry, which avoids a copy. Keeps the
 * expiry only with keep_ttl. Stores the value as an int, embedded or as a blob. */
struct entry *db_set_string(struct db *db, struct slice key, struct slice value, struct blob *blob, bool keep_ttl);
/* Sets a string and its expiry (ms since the epoch, -1: none) with a single search; *existed: the key existed, and this
 * call counts as a use of it. */
enum {
    PUT_KEEP_TTL = 1 /* ignore expire_at */,
    PUT_TEXT = 2 /* never store as an int */,
    PUT_NO_TOUCH = 4 /* does not count as a use */
};
struct entry *db_put_string(struct db *db, struct slice key, struct slice value, struct blob *blob, int64_t expire_at,
                            int flags, bool *existed);
struct entry *db_set_int64(struct db *db, struct slice key, int64_t value, bool keep_ttl);
struct entry *db_replace_int64(struct db *db, struct entry *entry,
                               int64_t value); /* for INCR: in place, keeps the expiry */
/* Resizes the string to `len` bytes (zero-filled), with encoding raw, and sets *bytes to its bytes for writing: APPEND,
 * SETRANGE, SETBIT. *bytes is valid until the next change. */
struct entry *db_edit_string(struct db *db, struct entry *entry, size_t len, char **bytes);
/* The same without the hook, for callers that know only afterwards whether they changed the string; they call
 * db_changed() if they did. */
struct entry *db_edit_string_silently(struct db *db, struct entry *entry, size_t len, char **bytes);
/* Adds a key of another type, which must not exist. The store takes over the structure. */
struct entry *db_add_value(struct db *db, struct slice key, enum value_type type, enum value_encoding encoding,
                           void *value);
void db_set_value(struct db *db, struct entry *entry, enum value_encoding encoding,
                  void *value);                   /* the structure was converted or reallocated; calls no hook */
void db_changed(struct db *db, struct slice key); /* reports that the structure of an entry changed */
/* Deletes a key. Deleting an expired key calls `changed`, not `expired`. With `lazy` a large value is freed in the
 * background. False: no such key. */
bool db_delete(struct db *db, struct slice key, bool lazy);
bool db_delete_as(struct db *db, struct slice key, bool lazy, enum removal removal); /* what hooks->removing gets */
struct entry *db_set_expire(struct db *db, struct entry *entry, int64_t at_ms);      /* -1: none. Calls `changed` */
/* Moves the entry to another key and/or another database and replaces the target. `from` must exist. */
struct entry *db_rename(struct db *from_db, struct slice from, struct db *to_db, struct slice to);
struct entry *db_copy(struct db *from_db, struct entry *entry, struct db *to_db,
                      struct slice to);    /* replaces the target. NULL: a value of an extension that has no copy */
size_t db_flush(struct db *db, bool lazy); /* returns the number of keys deleted */
void db_swap(struct db *a, struct db *b);  /* swaps the contents: pointers to struct db keep their numbers */
/* Swaps the contents of all databases with those of another keyspace of the same kind and size. Calls `flushed` and
 * `swapped` for each database. NULL: calls only `swapped`, because the contents were loaded into the empty
 * databases. */
void keyspace_replace(struct keyspace *keyspace, struct keyspace *with);
/* Preallocate before loading: the table of all keys, or the table of a slot. A call for a table that does not exist is
 * ignored. */
void db_expand(struct db *db, size_t keys, size_t expires);
void db_expand_slot(struct db *db, unsigned slot, size_t keys, size_t expires);

/* Iteration. `slot`: visit only this hash slot if it has a table of its own, otherwise all keys; -1: all keys. A caller
 * that searches keys of one slot thus avoids a search of all keys. */
/* As hashtable_scan(); one call visits one bucket. Any number is a valid cursor. */
uint64_t db_scan(struct db *db, int slot, uint64_t cursor, void (*visit)(void *context, struct entry *entry),
                 void *context);
struct entry *db_random(struct db *db); /* an unexpired key if one can be found; NULL: empty */
struct db_iterator;
/* All entries, including expired ones, in the order of their slots if these have tables. The database must not change
 * meanwhile. */
struct db_iterator *db_iterate(struct db *db, int slot);
struct entry *db_iterate_next(struct db_iterator *iterator);
void db_iterate_end(struct db_iterator *iterator);
bool entry_is_expired(const struct entry *entry);

/* Hash slots (lib/hash/hash_slot.h). With a single table the functions search all keys. */
bool db_is_per_slot(const struct db *db); /* each slot has a table */
struct db_slot_size {
    size_t keys, expires, expiring; /* as db_size(), db_expires(), db_expiring() */
};
struct db_slot_size db_slot_size(struct db *db, unsigned slot);
/* Visits up to `max` keys of a slot, including expired ones, and returns their number: for CLUSTER GETKEYSINSLOT. The
 * database must not change meanwhile. `visit` may be NULL. */
size_t db_slot_keys(struct db *db, unsigned slot, size_t max, void (*visit)(void *context, struct entry *entry),
                    void *context);

/* The functions below need a table for each slot. */
/* Removes all keys of a slot from all databases and returns their number. Detaching the tables takes constant time for
 * each database, however many keys there are; only hashes with field expiration are visited one by one. `lazy`: a
 * background thread frees the keys. Calls `slot_left`. */
size_t keyspace_drop_slot(struct keyspace *keyspace, unsigned slot, bool lazy);

/* Hides the keys of a slot that another node still owns, in all databases, and shows them again. Hidden keys are found
 * by lookups, and db_slot_size(), db_slot_keys() and db_iterate() with their slot include them. Nothing else does: they
 * are not counted, scanned, sampled, expired or evicted. A slot may be hidden before its first key arrives. Showing
 * takes constant time for each database, but for keys whose items expire. */
void keyspace_hide_slot(struct keyspace *keyspace, unsigned slot);
void keyspace_show_slot(struct keyspace *keyspace, unsigned slot);
bool keyspace_slot_is_hidden(unsigned slot);
/* All hidden slots together. They are part of the data set: a writer of a file or of a copy writes the keys of
 * db_iterate(db, -1), and those of each hidden slot. */
struct db_slot_size db_hidden_size(struct db *db);
unsigned keyspace_hidden_slots(void); /* how many are hidden */

/* --- Background work, called by the cron and by each event loop iteration --- */
/* Deletes expired keys and fields within the time limit given by active_expire_effort; fast: the short cycle before the
 * loop sleeps. */
void keyspace_expire_cycle(struct keyspace *keyspace, bool fast, int hz);
bool keyspace_rehash(struct keyspace *keyspace, uint64_t microseconds); /* true: not finished */
