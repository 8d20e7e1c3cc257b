/* hash.h: values of type hash: fields with one value each.
 *
 * ENCODING_LISTPACK: a listpack of field, value, field, value …, in order of insertion.
 *
 * ENCODING_HASHTABLE: a table of fields, each in one allocation with its value; a value above HASH_EMBED_MAX bytes is
 * in a blob. A hash becomes a table when it exceeds hash-max-listpack-entries fields, when a field or value exceeds
 * hash-max-listpack-value bytes, or when a field gets an expiry. hash_field.h describes the layout of a field.
 *
 * ENCODING_EXPIRING_HASHTABLE: a hash with field expiration. In addition to its table it has a heap of the fields with
 * an expiry, ordered by time. The hash itself is in the database's heap of such hashes, ordered by its earliest expiry
 * (keyspace_layout.h). So expired fields are found without a scan, and fields without an expiry take no additional
 * memory. When the last expiry is removed, the hash becomes a plain table again.
 *
 * Reads and iterations do not see an expired field. Exceptions are hash_len(), which counts it, and hash_iterate_all().
 * The field is deleted by the expiry cycle, or by hash_drop_expired() when a command is about to set it. Commands that
 * delete fields or change their expiry do not change an expired field.
 *
 * The functions take the entry of the key. They change the structure only: the caller reports the change with
 * db_changed(), once per command, and deletes an empty hash. Returned values point into the hash and are valid until it
 * changes. */
#pragma once
#include "lib/structures/hashtable.h"
#include "lib/structures/listpack.h"
#include "store/keyspace.h"

enum { HASH_EMBED_MAX = 1024 };

struct hash_value {
    struct slice bytes;
    struct blob *blob; /* the blob that holds it, or NULL; adds no reference */
    char text[LISTPACK_TEXT];
};
struct hash_item {
    struct slice field;
    struct hash_value value;
    int64_t expire_at; /* HASH_NEVER: no expiry */
    char text[LISTPACK_TEXT];
};

/* Adds the key, which must not exist, with an empty hash. */
struct entry *hash_create(struct db *db, struct slice key);
/* Announces that about this number of fields will be set: converts the hash immediately if a listpack would not hold
 * them. */
void hash_expect(struct db *db, struct entry *entry, size_t fields);
void hash_unpack(struct db *db, struct entry *entry, size_t fields); /* converts a listpack in any case */
size_t hash_len(const struct entry *entry);     /* including expired fields that are not deleted yet */
size_t hash_len_now(const struct entry *entry); /* without expired fields */
bool hash_get(const struct entry *entry, struct slice field, struct hash_value *value); /* false: no such field */
bool hash_has(const struct entry *entry, struct slice field);
/* Sets a field and removes its expiry; true: the field is new. `blob` may hold the value's bytes; its reference is
 * taken over. */
bool hash_put(struct db *db, struct entry *entry, struct slice field, struct slice value, struct blob *blob);
/* The same with an expiry: ms since the epoch, HASH_NEVER, or HASH_KEEP to keep the current one. */
enum { HASH_NEVER = -1, HASH_KEEP = -2 };
bool hash_put_until(struct db *db, struct entry *entry, struct slice field, struct slice value, struct blob *blob,
                    int64_t expire_at);
bool hash_delete(struct db *db, struct entry *entry, struct slice field); /* false: no such field */
/* Sets a value that the caller also keeps, and notes that until the field gets another value. The field keeps its
 * expiry. The hash has a copy of the bytes: it never depends on memory of a module. False: no such field. */
bool hash_set_reference(struct db *db, struct entry *entry, struct slice field, struct slice value);
bool hash_is_reference(const struct entry *entry, struct slice field);

/* Expiry. */
enum { HASH_NO_FIELD = -2 };
int64_t hash_expire_at(const struct entry *entry,
                       struct slice field); /* ms since the epoch, HASH_NEVER, HASH_NO_FIELD */
void hash_set_expire(struct db *db, struct entry *entry, struct slice field,
                     int64_t at);                 /* the field must exist; HASH_NEVER: none */
bool hash_is_volatile(const struct entry *entry); /* true: a field has an expiry */
/* True: the field has expired, but is not deleted yet. */
bool hash_holds_expired(const struct entry *entry, struct slice field);
/* Deletes the field if it has expired, and counts it as expired. For a command that is about to set the field, so that
 * the field is a new one. Calls no hook. The hash may be empty afterwards. */
bool hash_drop_expired(struct db *db, struct entry *entry, struct slice field);
/* Deletes the expired fields of a new copy without calling a hook. `dropping` receives their names first, in batches.
 * If all fields have expired, the call changes nothing. */
typedef void hash_dropping(void *context, const struct slice *names, size_t count);
void hash_drop_all_expired(struct db *db, struct entry *entry, hash_dropping *dropping, void *context);
/* Deletes some of the expired fields and returns their number. If no field is left, it also deletes the key. */
size_t hash_expire_due(struct db *db, struct entry *entry);
void db_expire_fields(struct db *db); /* deletes all expired fields of a database */

/* Iteration: the hash must not change meanwhile. */
struct hash_iterator {
    uint8_t *lp, *at;
    bool all;
    struct hashtable_iterator table;
};
void hash_iterate(struct hash_iterator *it, const struct entry *entry);
void hash_iterate_all(struct hash_iterator *it, const struct entry *entry); /* also expired fields */
bool hash_next(struct hash_iterator *it, struct hash_item *item);
void hash_iterate_end(struct hash_iterator *it);
/* Has the guarantees of SCAN. One call visits all of a listpack. */
uint64_t hash_scan(const struct entry *entry, uint64_t cursor,
                   void (*visit)(void *context, const struct hash_item *item), void *context);

void hash_random(const struct entry *entry, struct hash_item *item); /* uniform; hash_len_now() must not be 0 */
/* Draws `count` random fields, possibly with repetition. If most fields have expired, it collects the other fields once
 * instead of searching for one at each draw. `visit` returns false to stop. */
void hash_draw(const struct entry *entry, size_t count, bool (*visit)(void *context, const struct hash_item *item),
               void *context);
/* Visits `count` distinct random fields, uniformly; count must be less than hash_len_now(). */
void hash_sample(const struct entry *entry, size_t count, void (*visit)(void *context, const struct hash_item *item),
                 void *context);

struct hashtable *hash_table(const struct entry *entry); /* NULL: the hash is a listpack */
