/* hash.h: values of type hash: fields with a value each.
 *
 * ENCODING_LISTPACK: a listpack of field, value, field, value …, in the order in which fields came. ENCODING_HASHTABLE:
 * a table of fields, each in one allocation with its value (below; a value above HASH_EMBED_MAX bytes in a blob). A
 * hash becomes a table when it gets more fields than hash-max-listpack-entries, a field or value longer than
 * hash-max-listpack-value, or a field that expires. How a field of the table lies in memory stands in hash_field.h.
 *
 * A field may expire. Then the hash is ENCODING_EXPIRING_HASHTABLE: beside its table it has a heap of the fields that
 * do, by their times, and it is itself in the database's heap of such hashes, by its first time (keyspace_layout.h). So
 * what has expired is found without looking at anything else, and a field without an expiry pays for none of that. When
 * the last expiry goes, the hash is a plain table again.
 *
 * An expired field is missing to readers and walks, but for those that ask for all, and for hash_len(), which counts it
 * until it is deleted: by the expiry cycle, or by hash_drop_expired() when a command is about to set it. Commands that
 * delete or retime fields leave an expired one alone.
 *
 * The functions take the entry of the key. They change the structure only: that a key changed is told with
 * db_changed(), once a command; an emptied hash is to be deleted by the caller. What is read from a hash lies in it,
 * and is valid until it changes. */
#ifndef STORE_HASH_H
#define STORE_HASH_H
#include "lib/hashtable.h"
#include "lib/listpack.h"
#include "store/keyspace.h"

enum { HASH_EMBED_MAX = 1024 };

struct hash_value {
    struct slice bytes;
    struct blob *blob; /* where it is in one; no reference added */
    char text[LISTPACK_TEXT];
};
struct hash_item {
    struct slice field;
    struct hash_value value;
    int64_t expire_at; /* HASH_NEVER: none */
    char text[LISTPACK_TEXT];
};

/* Adds the key, which must be missing, with an empty hash. */
struct entry *hash_create(struct db *db, struct slice key);
/* About so many fields are to be set now: converts at once where a listpack would not hold them. */
void hash_expect(struct db *db, struct entry *entry, size_t fields);
size_t hash_len(const struct entry *entry);     /* with the expired fields that are not deleted yet */
size_t hash_len_now(const struct entry *entry); /* without them */
bool hash_get(const struct entry *entry, struct slice field, struct hash_value *value); /* false: no such field */
bool hash_has(const struct entry *entry, struct slice field);
/* Sets a field; true: it is new. `blob` may hold the value's bytes; its reference is taken over. What expiry it had is
 * gone. */
bool hash_put(struct db *db, struct entry *entry, struct slice field, struct slice value, struct blob *blob);
/* The same with its expiry: ms since the epoch, HASH_NEVER, or what it has. */
enum { HASH_NEVER = -1, HASH_KEEP = -2 };
bool hash_put_until(struct db *db, struct entry *entry, struct slice field, struct slice value, struct blob *blob,
                    int64_t expire_at);
bool hash_delete(struct db *db, struct entry *entry, struct slice field); /* false: there was none */

/* Expiry. */
enum { HASH_NO_FIELD = -2 };
int64_t hash_expire_at(const struct entry *entry,
                       struct slice field); /* ms since the epoch, HASH_NEVER, HASH_NO_FIELD */
void hash_set_expire(struct db *db, struct entry *entry, struct slice field,
                     int64_t at);                 /* of a field that is there; HASH_NEVER: none */
bool hash_is_volatile(const struct entry *entry); /* does a field of it expire? */
/* Deletes the field if its time is over, and counts it as expired. For a command that is about to set the field: it
 * then is a new one. Tells the hooks nothing, and leaves an empty hash where it was the last field. */
bool hash_drop_expired(struct db *db, struct entry *entry, struct slice field);
/* Deletes the expired fields of a fresh copy, of which nobody knows yet; a hash of expired fields only stays as it is.
 */
void hash_drop_all_expired(struct db *db, struct entry *entry);
/* Deletes some of the fields whose time is over. Returns how many; where none is left, the key is gone with them. */
size_t hash_expire_due(struct db *db, struct entry *entry);

/* Walking: the hash must not change meanwhile. */
struct hash_iterator {
    uint8_t *lp, *at;
    bool all;
    struct hashtable_iterator table;
};
void hash_iterate(struct hash_iterator *it, const struct entry *entry);
void hash_iterate_all(struct hash_iterator *it, const struct entry *entry); /* expired fields too */
bool hash_next(struct hash_iterator *it, struct hash_item *item);
void hash_iterate_end(struct hash_iterator *it);
/* With the guarantees of SCAN. A listpack is seen whole in one call. */
uint64_t hash_scan(const struct entry *entry, uint64_t cursor,
                   void (*seen)(void *context, const struct hash_item *item), void *context);

void hash_random(const struct entry *entry, struct hash_item *item); /* fairly; hash_len_now() is not 0 */
/* `count` draws, so that a field may come several times. Where most fields have expired, the others are collected once
 * instead of being searched for with each draw. `seen` returns false to end. */
void hash_draw(const struct entry *entry, size_t count, bool (*seen)(void *context, const struct hash_item *item),
               void *context);
/* `count` different fields, less than hash_len_now(), chosen fairly. */
void hash_sample(const struct entry *entry, size_t count, void (*seen)(void *context, const struct hash_item *item),
                 void *context);

struct hashtable *hash_table(const struct entry *entry); /* NULL: it is a listpack */
#endif
