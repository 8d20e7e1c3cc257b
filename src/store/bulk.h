/* bulk.h: adding many keys at once: loading.
 *
 * A loader makes entries that belong to no database yet and hands them to a `struct bulk`, which keeps some of them
 * back while the buckets they belong to are fetched from memory. So the wait for one bucket overlaps with reading the
 * next keys. Keys kept back are in no database until bulk_flush().
 *
 * No hook is called: nobody watches a data set that is being loaded. */
#ifndef STORE_BULK_H
#define STORE_BULK_H
#include "lib/hashtable.h"
#include "store/keyspace.h"

/* Entries of no database. The key is copied. expire_at: ms since the epoch, -1: never. */
struct entry *entry_new_int64(struct slice key, int64_t expire_at, int64_t value);
/* Chooses int, embedded or blob. `blob` may hold the value's bytes; its reference is taken over in any case. */
struct entry *entry_new_string(struct slice key, int64_t expire_at, struct slice value, struct blob *blob);
/* Another type; the structure is owned by the entry from here on. */
struct entry *entry_new_value(struct slice key, int64_t expire_at, enum value_type type, enum value_encoding encoding,
                              void *value);
void entry_discard(struct entry *entry); /* one that belongs to no database, with its value */
/* Adds it under its key, which must be missing. Calls the hook `changed`. */
void db_add_entry(struct db *db, struct entry *entry);

enum { BULK_KEPT = 16 };
struct bulk {
    bool replace;            /* a key that is there already is replaced; otherwise adding it fails */
    struct entry *duplicate; /* the one that failed; freed by bulk_free() */
    /* private */
    unsigned first, count;
    struct bulk_item {
        struct db *db;
        struct entry *entry;
        struct hashtable_position position;
    } items[BULK_KEPT];
};
void bulk_init(struct bulk *bulk, bool replace);
/* Takes the entry over. False: an entry added before, or this one, is a duplicate; the bulk is over then. */
bool bulk_add(struct bulk *bulk, struct db *db, struct entry *entry);
bool bulk_flush(struct bulk *bulk); /* all entries are in their databases */
void bulk_free(struct bulk *bulk);  /* those kept back are discarded */
#endif
