/* hashtable.h: a hash table of pointers with cache-line buckets.
 *
 * A bucket is 64 bytes: 7 entries and one byte of the hash of each entry. A lookup reads one cache line of the table
 * and then, nearly always, only the matching entry. A full bucket continues in a child bucket. The key is part of the
 * entry; the type's `key` function returns it. The table never resizes in one step: during a resize it has two arrays,
 * and every change of the table moves a few buckets from the old array to the new one, as does hashtable_rehash_for().
 * Sizes are powers of two.
 *
 * The table owns its entries if the type has a free function. Not thread-safe. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

struct hashtable;
struct hashtable_type {
    struct slice (*key)(const void *entry);
    void (*free_entry)(void *entry); /* may be NULL: the table does not own its entries */
    bool ignore_case;                /* compare keys without ASCII case (names of commands and options) */
    bool (*may_grow)(size_t bytes);  /* false delays growing, up to a load factor of 500 % */
};

struct hashtable *hashtable_new(const struct hashtable_type *type);
void hashtable_free(struct hashtable *table);
void hashtable_clear(struct hashtable *table);
size_t hashtable_size(const struct hashtable *table);
size_t hashtable_memory(const struct hashtable *table);         /* bytes of the table, without its entries */
size_t hashtable_buckets_memory(const struct hashtable *table); /* the same without the struct itself */

void *hashtable_find(struct hashtable *table, struct slice key); /* NULL: not found */
/* Returns the slot that holds the entry, so that the caller can replace the pointer when the entry moves (same key).
 * Valid until the next change of the table. NULL: not found. */
void **hashtable_find_slot(struct hashtable *table, struct slice key);
/* Prefetches the memory that lookups of these keys will read, first the buckets, then the entries, so that the cache
 * misses overlap. Ignores keys past HASHTABLE_PREFETCH_MAX. */
enum { HASHTABLE_PREFETCH_MAX = 32 };
void hashtable_prefetch(struct hashtable *table, const struct slice *keys, size_t count);
bool hashtable_add(struct hashtable *table, void *entry); /* false: the key exists; nothing changed */
/* Find or add with one search. Returns the slot of the existing entry. Otherwise returns NULL and fills `position`,
 * which the next call on this table may pass to hashtable_add_at() to add an entry with that key. */
struct hashtable_position {
    uint64_t hash;
};
void **hashtable_find_or_prepare(struct hashtable *table, struct slice key, struct hashtable_position *position);
void hashtable_add_at(struct hashtable *table, struct hashtable_position *position, void *entry);
/* Find or add in separate steps, for callers that add many entries: hashtable_prepare() fills the position and
 * prefetches the bucket of a key; hashtable_find_at() searches it later. The position stays valid when the table
 * changes, and it is valid for the same key in every table that does not ignore case: hashtable_prefetch_position()
 * prefetches the bucket of another table. hashtable_locate() fills the position before there is a table. */
void hashtable_locate(const struct hashtable_type *type, struct slice key, struct hashtable_position *position);
void hashtable_locate_all(const struct hashtable_type *type, const struct slice *keys, size_t count,
                          struct hashtable_position *positions);
void hashtable_prepare(struct hashtable *table, struct slice key, struct hashtable_position *position);
void hashtable_prefetch_position(struct hashtable *table, const struct hashtable_position *position);
void **hashtable_find_at(struct hashtable *table, struct slice key, const struct hashtable_position *position);

/* The array of a table in one word, for an owner of many small tables: it keeps the heads side by side, so that a
 * lookup reads neither the table's own struct nor a pointer to it. It is 0 while the table is being resized and while
 * it has no array: then only the functions above find its entries. The head is valid until the next call that may
 * change the table or resize it. */
struct hashtable_head {
    uint64_t word; /* address of the buckets; in the high byte the binary logarithm of their number */
};
struct hashtable_head hashtable_head(const struct hashtable *table);
void hashtable_head_prefetch(const struct hashtable_head *head, const struct hashtable_position *position);
void hashtable_head_prefetch_entries(const struct hashtable_head *head, const struct hashtable_position *position);
void **hashtable_head_find(const struct hashtable_head *head, const struct hashtable_type *type, struct slice key,
                           const struct hashtable_position *position);

void *hashtable_pop(struct hashtable *table,
                    struct slice key); /* removes the entry and returns it; the caller owns it */
bool hashtable_delete(struct hashtable *table, struct slice key); /* removes and frees the entry */

/* Cursor iteration with the guarantees of SCAN: an entry that exists from the first call to the last is visited at
 * least once, even if the table grows or shrinks between calls. Start with cursor 0; the scan is complete when it
 * returns 0. `visit` must not change the table. One call visits one bucket, and during a resize the corresponding
 * buckets of both arrays. */
uint64_t hashtable_scan(struct hashtable *table, uint64_t cursor, void (*visit)(void *context, void *entry),
                        void *context);

/* A scan for entries that move: passes the address of each pointer in the table. `visit` may replace the pointer by a
 * pointer to an entry with the same key. */
uint64_t hashtable_scan_refs(struct hashtable *table, uint64_t cursor, void (*visit)(void *context, void **ref),
                             void *context);

/* The parts of a table. Part p of n (a power of two) has the entries whose hash is p modulo n: which entries these are
 * does not depend on the size of the table, so the table may be resized between the visits of its parts.
 * hashtable_parts() is the number of parts of about a bucket each, now; 0: there was no entry yet. While the table has
 * at least that number of buckets a visit reads only the entries of its part. */
size_t hashtable_parts(const struct hashtable *table);
static inline size_t hashtable_part(const struct hashtable_position *position, size_t parts) {
    return (size_t)position->hash & (parts - 1);
}
/* Visits each entry of a part once. `visit` must not change the table. */
void hashtable_visit_part(struct hashtable *table, size_t parts, size_t part, void (*visit)(void *context, void *entry),
                          void *context);
/* Prefetches the entries of a part whose buckets are in the cache, and the buckets of the part after it. */
void hashtable_prefetch_part(const struct hashtable *table, size_t part);
/* Calls `prefetch` for entries of a part that are in the cache, and perhaps for others. */
void hashtable_prefetch_values(const struct hashtable *table, size_t part, void (*prefetch)(const void *entry));

/* Iteration over the whole table, which does not change meanwhile. An open iterator prevents resizing; closing it may
 * resume the resize, so the entries must still be valid then. */
struct hashtable_iterator {
    struct hashtable *table;
    size_t bucket_index;
    void *bucket;
    int array, position;
};
void hashtable_iterator_open(struct hashtable_iterator *it, struct hashtable *table);
void *hashtable_iterator_next(struct hashtable_iterator *it); /* NULL: no more entries */
void hashtable_iterator_close(struct hashtable_iterator *it);

/* A table that another thread reads: its owner holds it, which prevents resizing as an open iterator does, and changes
 * nothing until the other thread has finished. Both may look entries up and iterate. */
void hashtable_hold(struct hashtable *table);
void hashtable_release(struct hashtable *table);
/* From now on the iterators of the calling thread are of tables that their owners hold: they write to no table. */
void hashtable_iterates_held(bool on);

void *hashtable_random(struct hashtable *table); /* uniform; NULL if the table is empty */
/* Returns up to `count` entries from a random position. Fast, but not uniform; for eviction and expiry. */
size_t hashtable_sample(struct hashtable *table, void **entries, size_t count);

void hashtable_expand(struct hashtable *table, size_t entries); /* resize once for this number of entries */
bool hashtable_is_rehashing(const struct hashtable *table);
size_t hashtable_rehashing_memory(const struct hashtable *table); /* bytes of the old array of a resize, or 0 */
bool hashtable_rehash_for(struct hashtable *table, uint64_t microseconds); /* true: not finished */
/* Begins a resize that the policy forbade when the table changed. */
void hashtable_resize_where_needed(struct hashtable *table);
/* The resize policy of all tables. While a child process shares the memory, writing to pages causes copies:
 * HASHTABLE_RESIZE_AVOID resizes only above a load factor of 500 %. */
enum hashtable_resizing { HASHTABLE_RESIZE, HASHTABLE_RESIZE_AVOID, HASHTABLE_RESIZE_FORBID };
void hashtable_set_resizing(enum hashtable_resizing policy);
/* Replaces the random seed, except of tables that ignore case. Call it before creating the first other table. */
void hashtable_set_seed(const uint8_t seed[16]);
/* A number that tells whether cursors of another process are valid here: it depends on the seed. */
uint32_t hashtable_seed_number(void);
/* Statistics of the arrays of one or more tables: [0] the arrays in use, [1] those that entries move to. */
enum { HASHTABLE_LENGTHS = 32 };
struct hashtable_stats {
    size_t buckets, entries, chained, longest; /* longest: most entries in a bucket and its children */
    size_t lengths[HASHTABLE_LENGTHS];         /* [n]: buckets with n entries; the last one: n or more */
};
void hashtable_stats_add(const struct hashtable *table, struct hashtable_stats stats[2]);
/* Writes the text of DEBUG HTSTATS; returns its length, below `size`. */
size_t hashtable_describe(const struct hashtable_stats stats[2], char *text, size_t size, bool full);
