/* keyspace_layout.h: what a keyspace and a database consist of, and the steps that the files of store/ share. For
 * store/ only. */
#ifndef STORE_KEYSPACE_LAYOUT_H
#define STORE_KEYSPACE_LAYOUT_H
#include "lib/hashtable.h"
#include "lib/heap.h"
#include "store/entry_layout.h"
#include "store/keyspace.h"

struct db {
    struct keyspace *keyspace;
    int id;
    struct hashtable *keys;    /* owns the entries */
    struct hashtable *expires; /* the entries with an expiry once more; NULL until there is one */
    struct heap timed;         /* of struct expiring_value, by their next time */
    int64_t average_ttl;       /* ms, estimated by the expiry cycle */
    uint64_t expire_cursor;    /* where the expiry cycle goes on in `expires` */
};

struct keyspace {
    struct store_hooks hooks; /* all set */
    int databases;
    int expire_db;   /* where the expiry cycle goes on */
    int timed_db;    /* and where that of fields does */
    bool timed_late; /* the latter ran out of time */
    int rehash_turn; /* which table keyspace_rehash looks at next: two of each database */
    struct db db[];
};

/* What a value with items that expire begins with. Such a value is in its database's heap. */
struct expiring_value {
    struct entry *entry;
    int64_t next_at; /* of the first item to expire */
    size_t place;    /* in the heap */
};
static inline bool entry_is_timed(const struct entry *e) {
    return e->encoding == ENCODING_EXPIRING_HASHTABLE;
}
static inline struct expiring_value *entry_timed(const struct entry *e) {
    return entry_pointer(e);
}
void db_expiring_join(struct db *db, struct entry *entry);
void db_expiring_leave(struct db *db, struct entry *entry);
void db_expiring_renumber(struct db *db, struct entry *entry, int64_t next_at);

/* Of a key or an item that expires at that time. */
static inline bool time_is_over(int64_t at) {
    return clock_ms() > at && !store_settings.show_expired;
}

static inline void hook_changed(struct db *db, const struct entry *e) {
    db->keyspace->hooks.changed(db, entry_key_inline(e));
}

/* Gives an entry of the table a shape, and puts its new place into the tables where it moves. `place` is where the
 * table holds it, NULL: to be searched where needed. An entry that gains or loses its expiry joins or leaves `expires`.
 */
struct entry *db_reshape(struct db *db, struct entry *entry, void **place, struct entry_shape shape);

/* An entry's value is going to be replaced, or the entry goes. */
static inline void db_value_leaves(struct db *db, struct entry *e) {
    if (__builtin_expect(entry_is_timed(e), 0)) db_expiring_leave(db, e);
}
/* Takes an entry out of the tables. It is the caller's from here on. */
void db_unlink(struct db *db, struct entry *entry);
/* Adds an entry at a spot of db->keys, and to `expires` where it has an expiry. */
void db_link(struct db *db, struct hashtable_position *position, struct entry *entry);
/* Where the key is to be put: the place of the present entry, or NULL and a spot. An expired entry is removed first. */
void **db_place_for(struct db *db, struct slice key, struct hashtable_position *position);
/* Hooks, statistics and removal of an entry that has expired. */
void db_expire_entry(struct db *db, struct entry *entry);
#endif
