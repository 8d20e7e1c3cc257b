/* before_change.h: what must happen before the data set changes: hooks of the readers of its former state (snapshot/).
 *
 * Each change of a key's entry or value, each new key and each removal is announced here before it happens:
 *
 *     db_find() with             precedes each change of a value in place by a command: elements of all types,
 *     LOOKUP_WRITE or            consumer groups, bits, counters. The lookup announces the change
 *     LOOKUP_CHANGES
 *     db_find_ref()              new values: db_set_string(), db_put_string(), db_set_int64(), db_add_value(),
 *                                db_add_entry(), db_copy()
 *     functions of keyspace.h    db_replace_int64(), db_edit_string(), db_edit_string_silently(), db_set_expire(),
 *                                db_delete(), db_rename() (both keys)
 *     db_unlink()                removal by the store: expiry by a lookup and by the cycle, eviction
 *     hash_expire_due()          fields that expire: by the cycle, and before a command reads
 *     api_SignalModifiedKey()    a module may have changed its value by a pointer, without a function of the server
 *     bulk_add(), bulk_flush()   loading; rdb_load() and rdb_fragment_load() announce a key before they build its value
 *
 * What changes no value is not announced: the access field, a resize of tables, a relocation of entries and blocks
 * (relocate_keys.h), hidden slots, lazy freeing of what was removed before. While a thread may read entries in place,
 * store_settings.lending keeps the access field as it is, and a relocation asks lent().
 *
 * Keys that leave a database as a whole (db_flush(), keyspace_replace(), keyspace_drop_slot()) are not announced one by
 * one: their tables are passed to `left` and may be kept. db_swap() calls `swapped`.
 *
 * While hooks are installed, each report of a change (hooks->changed) and db_set_value() check that the change was
 * announced. Main thread. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/system/likely.h"
#include "store/keyspace.h"

struct departed;
struct before_change {
    void (*key)(struct db *db, struct slice key);
    bool (*announced)(struct db *db, struct slice key); /* the key may change: key() was called for it */
    bool (*lent)(struct db *db, struct slice key);      /* a thread reads the entry: it must not move */
    /* The keys of a slot, or with -1 all keys, have left the database. */
    void (*left)(struct db *db, int slot, struct departed *tables);
    void (*swapped)(struct db *a, struct db *b);
};
extern const struct before_change *before_change; /* NULL: nobody reads a former state */

/* Keys that a module holds open for writing: it has pointers to their values, and may change them at any time without
 * an announcement. So who begins to read a former state announces them at once. The bytes that a reader refers to may
 * change, too: it copies them. */
struct held_key {
    struct list_link link;
    struct db *db;
    struct slice (*name)(const struct held_key *key); /* its bytes may move */
};
extern struct list held_keys;
void before_held_keys_change(void);

static inline void before_key_changes(struct db *db, struct slice key) {
    if (unlikely(before_change != NULL)) before_change->key(db, key);
}
