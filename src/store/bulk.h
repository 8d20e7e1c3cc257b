/* bulk.h: adds keys to databases fast while a data set is loaded.
 *
 * A loader creates entries that belong to no database yet and passes them to a `struct bulk`. The bulk holds some of
 * them back while it prefetches their buckets, so that the cache miss of one bucket overlaps with reading the next
 * keys. Entries that are held back are in no database until bulk_flush().
 *
 * The bulk calls no hook: nothing observes a data set that is being loaded. */
#pragma once
#include "store/key_tables.h"
#include "store/keyspace.h"

/* These functions create entries outside any database and copy the key. expire_at: ms since the epoch, -1: never. */
struct entry *entry_new_int64(struct slice key, int64_t expire_at, int64_t value);
/* Stores the value as an int, embedded or as a blob. `blob` may hold the value's bytes; the call always takes over its
 * reference. */
struct entry *entry_new_string(struct slice key, int64_t expire_at, struct slice value, struct blob *blob);
/* Creates an entry of another type; the entry takes over the structure. */
struct entry *entry_new_value(struct slice key, int64_t expire_at, enum value_type type, enum value_encoding encoding,
                              void *value);
void entry_discard(struct entry *entry); /* frees an entry outside any database, with its value */
/* Adds the entry; its key must not exist. Calls the `changed` hook. */
void db_add_entry(struct db *db, struct entry *entry);

enum { BULK_KEPT = 16 };
struct bulk {
    bool replace;            /* replace an existing key; otherwise adding it fails */
    struct entry *duplicate; /* the entry that failed; bulk_free() frees it */
    /* private */
    unsigned first, count;
    struct bulk_item {
        struct db *db;
        struct entry *entry;
        struct table_position position;
    } items[BULK_KEPT];
};
void bulk_init(struct bulk *bulk, bool replace);
/* Takes over the entry. False: this entry or an earlier one is a duplicate; the bulk accepts no more. */
bool bulk_add(struct bulk *bulk, struct db *db, struct entry *entry);
bool bulk_flush(struct bulk *bulk); /* puts all entries into their databases */
void bulk_free(struct bulk *bulk);  /* frees the entries held back */
