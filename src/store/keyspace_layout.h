/* keyspace_layout.h: the structures of a keyspace and a database, and the functions that the files of store/ share. For
 * store/ only. */
#pragma once
#include "lib/structures/heap.h"
#include "store/before_change.h"
#include "store/entry_layout.h"
#include "store/key_tables.h"
#include "store/keyspace.h"

struct db {
    struct keyspace *keyspace;
    int id;
    struct key_tables keys;      /* own the entries */
    struct key_tables expires;   /* the entries with an expiry */
    struct heap expiring_values; /* struct expiring_value, ordered by next_at */
    int64_t average_ttl;         /* ms, estimated by the expiry cycle */
    uint64_t expire_cursor;      /* where the expiry cycle continues in `expires` */
};

/* Frees tables that no database has any more, with their entries. `lazy`: in the background. */
void key_tables_dispose(struct key_tables keys, struct key_tables expires, bool lazy);
/* The same for the tables that a database had of a slot, or with -1 of all keys, unless before_change keeps them. */
void tables_leave(struct db *db, int slot, struct key_tables keys, struct key_tables expires, bool lazy);

struct keyspace {
    struct store_hooks hooks; /* no member is NULL */
    int databases;
    int expire_db;            /* the database where the expiry cycle continues */
    int field_expire_db;      /* the database where the field expiry cycle continues */
    bool field_expire_behind; /* the field expiry cycle ran out of time */
    int rehash_turn;          /* where keyspace_rehash() continues: `keys` and `expires` of each database */
    struct db db[];
};

/* The first member of a value with items that expire. Such a value is in its database's heap. */
struct expiring_value {
    struct entry *entry;
    int64_t next_at;   /* time of the first item to expire */
    size_t heap_index; /* index in the heap */
};
static inline bool entry_is_timed(const struct entry *e) {
    return e->encoding == ENCODING_EXPIRING_HASHTABLE;
}
static inline struct expiring_value *entry_expiring_value(const struct entry *e) {
    return entry_pointer(e);
}
/* Values of hidden slots are not in the heap; their index says so. */
#define HEAP_INDEX_HIDDEN SIZE_MAX
extern size_t hidden_expiring_values;
void db_expiring_join(struct db *db, struct entry *entry);
void db_expiring_leave(struct db *db, struct entry *entry);
void db_expiring_renumber(struct db *db, struct entry *entry, int64_t next_at);

/* True: a key or item with this expiry has expired. */
static inline bool time_is_over(int64_t at) {
    return clock_data_ms() > at && !store_settings.show_expired;
}

static inline void key_changed(struct db *db, struct slice key) {
    must(likely(!before_change) || before_change->announced(db, key));
    db->keyspace->hooks.changed(db, key);
}
static inline void hook_changed(struct db *db, const struct entry *e) {
    key_changed(db, entry_key_inline(e));
}

static inline void hook_removing(struct db *db, struct slice key, enum removal removal) {
    if (db->keyspace->hooks.removing) db->keyspace->hooks.removing(db, key, removal);
}

/* Gives an entry of the tables a shape and updates the tables if it moves. `ref` is the address of the pointer to the
 * entry in `keys`; NULL: it is searched if needed. An entry that gains or loses its expiry is added to or removed from
 * `expires`. */
struct entry *db_reshape(struct db *db, struct entry *entry, void **ref, struct entry_shape shape);

void db_special_value_leaves(struct db *db, struct entry *entry);
/* Called before an entry's value is replaced or the entry is removed. */
static inline void db_value_leaves(struct db *db, struct entry *e) {
    if (__builtin_expect(e->encoding >= ENCODING_EXPIRING_HASHTABLE, 0)) db_special_value_leaves(db, e);
}
/* Removes an entry from the tables. The caller owns it afterwards. */
void db_unlink(struct db *db, struct entry *entry);
/* Adds an entry at a position, and to `expires` if it has an expiry. */
void db_link(struct db *db, struct table_position *position, struct entry *entry);
/* Searches a key: returns the pointer to the existing entry in `keys`, or NULL, and sets the position for db_link().
 * Removes an expired entry first. */
void **db_find_ref(struct db *db, struct slice key, struct table_position *position);
/* Calls the hooks, counts and removes an expired entry. */
void db_expire_entry(struct db *db, struct entry *entry);
