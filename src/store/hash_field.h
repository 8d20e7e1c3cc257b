/* hash_field.h: the layout of a field of a hash table, and the structure of a hash with field expiration; see hash.h.
 * For store/ only.
 *
 *     byte  0     flags: number and kinds of the words before the field's name; FIELD_REFERENCE: hash_set_reference()
 *     byte  1     length of the name if it is below 256
 *     bytes 2-3   length of the value if it is not in a blob
 *     words       [expiry, and index in the heap] [blob] [length of a long name], 8 bytes each
 *     then        the name, followed by the value */
#pragma once
#include "lib/structures/heap.h"
#include "lib/system/must.h"
#include "store/hash.h"
#include "store/keyspace_layout.h"

enum {
    FIELD_WORDS = 7,
    FIELD_LONG = 8,
    FIELD_BLOB = 16,
    FIELD_EXPIRES = 32,
    FIELD_REFERENCE = 64,
    SHORT_FIELD_MAX = 255,
    WORD = 8
};

struct hash_field {
    uint8_t flags, name_len;
    uint16_t value_len;
    char data[];
};
_Static_assert(sizeof(size_t) == WORD && sizeof(void *) == WORD && sizeof(int64_t) == WORD, "words of a field");

static inline size_t field_words(const struct hash_field *f) {
    return (size_t)(f->flags & FIELD_WORDS) * WORD;
}
static inline struct slice field_name(const struct hash_field *f) {
    const char *name = f->data + field_words(f);
    size_t len = f->name_len;
    if (__builtin_expect(f->flags & FIELD_LONG, 0)) memcpy(&len, name - WORD, WORD);
    return (struct slice){name, len};
}
static inline char *field_blob_word(const struct hash_field *f) {
    return (char *)f->data + (f->flags & FIELD_EXPIRES ? 2 * WORD : 0);
}
static inline struct blob *field_blob(const struct hash_field *f) {
    struct blob *blob = NULL;
    if (f->flags & FIELD_BLOB) memcpy(&blob, field_blob_word(f), WORD);
    return blob;
}
static inline struct slice field_value(const struct hash_field *f) {
    struct blob *blob = field_blob(f);
    if (blob) return blob_slice(blob);
    struct slice name = field_name(f);
    return (struct slice){name.data + name.len, f->value_len};
}

static inline bool field_expires(const struct hash_field *f) {
    return f->flags & FIELD_EXPIRES;
}
/* The field must have an expiry. */
static inline int64_t field_time(const struct hash_field *f) {
    int64_t at;
    must_in_tests(f->flags & FIELD_EXPIRES);
    memcpy(&at, f->data, WORD);
    return at;
}
static inline bool field_is_expired(const struct hash_field *f) {
    return __builtin_expect(field_expires(f), 0) && time_is_over(field_time(f));
}

void field_free(void *field);

/* ENCODING_EXPIRING_HASHTABLE: at least one field has an expiry. */
struct expiring_hash {
    struct expiring_value expiring;
    struct hashtable *table;
    struct heap fields; /* the fields with an expiry */
};
static inline struct expiring_hash *expiring_hash_of(const struct entry *e) {
    return entry_value(e);
}
/* Updates the heaps after `field` was stored in the table, as a new field or in place of an earlier version. `expired`:
 * the earlier version had an expiry. at: the new expiry; HASH_KEEP: unchanged. */
void hash_field_expiry_added(struct db *db, struct entry *entry, struct hash_field *field, bool expired, int64_t at);
void hash_field_expiry_removed(struct db *db, struct entry *entry,
                               struct hash_field *field); /* the field loses its expiry or is removed */

bool expiring_hash_delete(struct db *db, struct entry *entry, struct slice field); /* hash_delete() of such a hash */
size_t expiring_hash_due(const struct expiring_hash *hash);                        /* number of expired fields */
struct expiring_hash *
expiring_hash_copy(const struct expiring_hash *hash,
                   struct hashtable *table);         /* the copy uses `table`, which holds copies of the fields */
void expiring_hash_free(struct expiring_hash *hash); /* does not free the table */
void expiring_hash_moved(struct expiring_hash *hash, struct hash_field *field); /* a field with an expiry has moved */
size_t expiring_hash_memory(const struct expiring_hash *hash);
