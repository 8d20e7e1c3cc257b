/* hashtable.h: a hash table of pointers in cache-line buckets.
 *
 * A bucket is 64 bytes: 7 entries and, for each, one byte of its hash, so that a lookup reads one line of the table and
 * then almost only the entry it wants. A full bucket is continued in a child bucket. The key stands in the entry; the
 * type says where. The table grows and shrinks a few buckets at a time, with every change (and in
 * hashtable_rehash_for), never all at once; while it does, it has two arrays. Sizes are powers of two.
 *
 * Entries are owned by the table where the type has a free function. Not thread-safe. */
#ifndef LIB_HASHTABLE_H
#define LIB_HASHTABLE_H
#include "lib/slice.h"
#include <stdint.h>

struct hashtable;
struct hashtable_type {
    struct slice (*key)(const void *entry);
    void (*free_entry)(void *entry); /* may be NULL */
    bool ignore_case;                /* ASCII case of keys does not matter (names of commands and options) */
};

struct hashtable *hashtable_new(const struct hashtable_type *type);
void hashtable_free(struct hashtable *table);
void hashtable_clear(struct hashtable *table);
size_t hashtable_size(const struct hashtable *table);
size_t hashtable_memory(const struct hashtable *table); /* bytes of the table itself, without entries */

void *hashtable_find(struct hashtable *table, struct slice key); /* NULL where missing */
/* The place that holds the entry, so that it can be replaced by another with the same key (the entry moved). Valid
 * until the next call that changes the table. NULL where missing. */
void **hashtable_find_place(struct hashtable *table, struct slice key);
/* Before looking up several keys that are known together: starts fetching for all of them what the lookups will read,
 * first the buckets, then the entries, instead of waiting for one after the other. Counts above HASHTABLE_PREFETCH_MAX
 * are cut. */
enum { HASHTABLE_PREFETCH_MAX = 32 };
void hashtable_prefetch(struct hashtable *table, const struct slice *keys, size_t count);
bool hashtable_add(struct hashtable *table, void *entry); /* false: the key is there already, nothing done */
/* For "find, else add" with one search: returns the place of the present entry, or NULL and fills `spot`, which the
 * next call on this table may use to add an entry with that key. */
struct hashtable_spot {
    uint64_t hash;
};
void **hashtable_find_or_spot(struct hashtable *table, struct slice key, struct hashtable_spot *spot);
void hashtable_add_at(struct hashtable *table, struct hashtable_spot *spot, void *entry);
/* The same in steps, for adding many entries: hashtable_prepare() fills the spot and starts fetching the bucket of a
 * key, hashtable_find_at() searches it later. The spot stays valid when the table changes, and is that of the key in
 * every table that does not ignore case: hashtable_prefetch_spot() starts fetching the bucket of another table. */
void hashtable_prepare(struct hashtable *table, struct slice key, struct hashtable_spot *spot);
void hashtable_prefetch_spot(struct hashtable *table, const struct hashtable_spot *spot);
void **hashtable_find_at(struct hashtable *table, struct slice key, const struct hashtable_spot *spot);
void *hashtable_pop(struct hashtable *table, struct slice key);   /* takes the entry out and gives it to the caller */
bool hashtable_delete(struct hashtable *table, struct slice key); /* takes it out and frees it */

/* Cursor iteration in any number of calls, with the guarantees of SCAN: an entry that is there from the first call to
 * the last is seen at least once, however the table grows and shrinks between calls. Start with 0; 0 returned: done.
 * The table must not be changed inside `seen`. One call visits one bucket (and its counterparts while the table is
 * being resized). */
uint64_t hashtable_scan(struct hashtable *table, uint64_t cursor, void (*seen)(void *context, void *entry),
                        void *context);

/* Iteration in one go. The table must not be changed meanwhile, except by deleting the entry just returned, through
 * hashtable_iterator_delete (resizing is held off while an iterator is open). */
struct hashtable_iterator {
    struct hashtable *table;
    size_t bucket_index;
    void *bucket;
    int array, position;
};
void hashtable_iterator_open(struct hashtable_iterator *it, struct hashtable *table);
void *hashtable_iterator_next(struct hashtable_iterator *it);  /* NULL: end */
void hashtable_iterator_delete(struct hashtable_iterator *it); /* frees the entry last returned */
void hashtable_iterator_close(struct hashtable_iterator *it);

void *hashtable_random(struct hashtable *table); /* fairly; NULL where empty */
/* Up to `count` entries from a random place on, quickly and not quite fairly (eviction, expiry). */
size_t hashtable_sample(struct hashtable *table, void **entries, size_t count);

void hashtable_expand(struct hashtable *table, size_t entries); /* make room for so many at once */
bool hashtable_is_rehashing(const struct hashtable *table);
bool hashtable_rehash_for(struct hashtable *table, uint64_t microseconds); /* true: there is more to do */
/* While a child process shares our memory, touching pages costs copies: resize only where it cannot wait (load above
 * 500 %). */
enum hashtable_resizing { HASHTABLE_RESIZE, HASHTABLE_RESIZE_AVOID, HASHTABLE_RESIZE_FORBID };
void hashtable_set_resizing(enum hashtable_resizing policy); /* of all tables */
void hashtable_set_seed(const uint8_t seed[16]);             /* before the first table */
/* Text for DEBUG HTSTATS. */
size_t hashtable_describe(struct hashtable *table, char *text, size_t size, bool full);
#endif
