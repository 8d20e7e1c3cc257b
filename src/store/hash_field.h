/* hash_field.h: a field of a hash that is a table, and a hash with fields that expire; see hash.h. For store/ only.
 *
 *     byte  0     flags: how many words stand before the field's name, and which
 *     byte  1     length of the name, where it is below 256
 *     bytes 2-3   length of the value, where that is not in a blob
 *     words       [when it expires, and its place in the heap] [blob] [length of a long name], 8 bytes each
 *     then        the name, and behind it the value */
#ifndef STORE_HASH_FIELD_H
#define STORE_HASH_FIELD_H
#include "lib/heap.h"
#include "store/hash.h"
#include "store/keyspace_layout.h"

enum { FIELD_WORDS = 7, FIELD_LONG = 8, FIELD_BLOB = 16, FIELD_EXPIRES = 32, SHORT_FIELD_MAX = 255, WORD = 8 };

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
/* Of a field that expires. */
static inline int64_t field_time(const struct hash_field *f) {
    int64_t at;
    memcpy(&at, f->data, WORD);
    return at;
}
static inline bool field_is_expired(const struct hash_field *f) {
    return __builtin_expect(field_expires(f), 0) && time_is_over(field_time(f));
}

struct hash_field *field_make(struct slice name, struct slice value, struct blob *blob,
                              bool expires); /* takes over the blob's reference; the time is to be set */
void field_free(void *field);

/* ENCODING_EXPIRING_HASHTABLE: there is a field that expires. */
struct expiring_hash {
    struct expiring_value timed;
    struct hashtable *table;
    struct heap fields; /* those that expire */
};
static inline struct expiring_hash *expiring_hash_of(const struct entry *e) {
    return entry_value(e);
}
/* A field of the entry's table was given `field`'s place there, or is new. `expired`: it did so before. at: when it
 * expires now, HASH_KEEP: as before. */
void hash_field_expiry_added(struct db *db, struct entry *entry, struct hash_field *field, bool expired, int64_t at);
void hash_field_expiry_removed(struct db *db, struct entry *entry,
                               struct hash_field *field); /* it expired, and does so no more or goes */

bool expiring_hash_delete(struct db *db, struct entry *entry, struct slice field); /* hash_delete() of such a hash */
size_t expiring_hash_due(const struct expiring_hash *hash);                        /* how many fields are over */
struct expiring_hash *expiring_hash_copy(const struct expiring_hash *hash,
                                         struct hashtable *table); /* with another table, of copies of the fields */
void expiring_hash_free(struct expiring_hash *hash);               /* without the table */
size_t expiring_hash_memory(const struct expiring_hash *hash);
#endif
