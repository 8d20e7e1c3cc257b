/* hash.h: values of type hash: fields with a value each.
 *
 * ENCODING_LISTPACK: a listpack of field, value, field, value …, in the order in which fields came. ENCODING_HASHTABLE: a table of fields, each in one
 * allocation with its value (below; a value above HASH_EMBED_MAX bytes in a blob). A hash becomes a table when it gets more fields than
 * hash-max-listpack-entries, or a field or value longer than hash-max-listpack-value.
 *
 * A field of the table:  flags 1 byte | length of the field 1 | length of the value 2 | [length of a long field 8] | [blob 8] | field | [value]
 *
 * The functions take the entry of the key. They change the structure only: that a key changed is told with db_changed(), once a command; an emptied hash is to be
 * deleted by the caller. What is read from a hash lies in it, and is valid until it changes. */
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
    char text[LISTPACK_TEXT];
};

/* Adds the key, which must be missing, with an empty hash. */
struct entry *hash_create(struct db *db, struct slice key);
/* About so many fields are to be set now: converts at once where a listpack would not hold them. */
void hash_expect(struct db *db, struct entry *entry, size_t fields);
size_t hash_len(const struct entry *entry);
bool hash_get(const struct entry *entry, struct slice field, struct hash_value *value); /* false: no such field */
bool hash_has(const struct entry *entry, struct slice field);
/* Sets a field; true: it is new. `blob` may hold the value's bytes; its reference is taken over. */
bool hash_put(struct db *db, struct entry *entry, struct slice field, struct slice value, struct blob *blob);
bool hash_delete(struct db *db, struct entry *entry, struct slice field); /* false: there was none */

/* Walking: the hash must not change meanwhile. */
struct hash_iterator {
    uint8_t *lp, *at;
    struct hashtable_iterator table;
};
void hash_iterate(struct hash_iterator *it, const struct entry *entry);
bool hash_next(struct hash_iterator *it, struct hash_item *item);
void hash_iterate_end(struct hash_iterator *it);
/* With the guarantees of SCAN. A listpack is seen whole in one call. */
uint64_t hash_scan(const struct entry *entry, uint64_t cursor, void (*seen)(void *context, const struct hash_item *item), void *context);

void hash_random(const struct entry *entry, struct hash_item *item); /* fairly; the hash is not empty */
/* `count` different fields, less than there are, chosen fairly. */
void hash_sample(const struct entry *entry, size_t count, void (*seen)(void *context, const struct hash_item *item), void *context);

struct hashtable *hash_table(const struct entry *entry); /* NULL: it is a listpack */
#endif
