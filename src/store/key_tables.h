/* key_tables.h: the hash tables of a database, which act as one table. For store/ only.
 *
 * A database has either one table, or one for each hash slot of a cluster, so that the keys of a slot can be counted,
 * listed, moved and deleted without a search of all keys. A table is created with its first key, or when it is
 * expanded. The table of a slot is freed with its last key.
 *
 * An array of 16384 heads leads to the buckets of the tables, and another to the tables. A lookup needs the head only,
 * which is in the processor's cache more likely than one of 16384 tables. A Fenwick tree over the sizes of the tables
 * finds the table that holds the n-th key, so that a random key is uniform over all keys; it also finds the next table
 * with keys. Arrays and tree take 384 KiB and are allocated with the first key of the database. A bitmap marks the
 * tables that are being resized.
 *
 * The entries are those of keyspace.h. Functions without a comment work as in lib/structures/hashtable.h. */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "lib/structures/hashtable.h"
#include "store/key_slot.h"

struct slot_tables; /* private */
struct key_tables {
    const struct hashtable_type *type;
    struct hashtable *table;   /* NULL: no keys, or a table for each slot */
    struct slot_tables *slots; /* NULL: no keys, or a single table */
    bool per_slot;
};
/* The result of a search, for key_tables_add_at(). It stays valid when the tables change, and for all tables of the
 * database. */
struct table_position {
    struct hashtable_position hash;
    unsigned slot; /* not used for a single table */
};

static inline struct key_tables key_tables_init(const struct hashtable_type *type, bool per_slot) {
    return (struct key_tables){.type = type, .per_slot = per_slot};
}
/* Frees all tables, and their entries if the type says so; any thread. The struct then has no keys. */
void key_tables_free(struct key_tables *tables);
size_t key_tables_memory(const struct key_tables *tables);           /* bytes of tables and struct; 0: no tables */
int key_tables_rehashing(const struct key_tables *tables);           /* tables that are being resized */
size_t key_tables_rehashing_memory(const struct key_tables *tables); /* bytes of their old arrays */
/* Resize once for this number of keys: the first function a single table, the second the table of a slot. Each does
 * nothing if the database has the other kind. */
void key_tables_expand(struct key_tables *tables, size_t keys);
void key_tables_expand_slot(struct key_tables *tables, unsigned slot, size_t keys);
/* Continues resizing for this time and at most a few buckets longer. True: not finished. */
bool key_tables_rehash_for(struct key_tables *tables, uint64_t microseconds);
/* Begins resizes that were forbidden when the tables changed. Each call examines only a few tables of slots. */
void key_tables_resize_where_needed(struct key_tables *tables);
void key_tables_stats(const struct key_tables *tables, struct hashtable_stats stats[2]); /* adds to `stats` */

/* Scan. With a table for each slot, the low 14 bits of the cursor are the slot, the others the cursor in its table, and
 * a call visits one bucket of one table. slot: scan only this slot; -1: scan all. A single table is always scanned as a
 * whole. */
uint64_t key_tables_scan(const struct key_tables *tables, int slot, uint64_t cursor,
                         void (*visit)(void *context, void *entry), void *context);
/* Scans all keys and passes the address of each pointer (hashtable_scan_refs()). */
uint64_t key_tables_scan_refs(const struct key_tables *tables, uint64_t cursor,
                              void (*visit)(void *context, void **ref), void *context);
/* Iteration, in the order of the slots. The tables must not change meanwhile. slot: as for the scan. */
struct key_tables_iterator {
    struct key_tables *tables;
    struct hashtable_iterator table;
    int current; /* slot of the open table; 0 for a single table; -1: none */
    bool only;   /* no other slot */
};
void key_tables_iterator_open(struct key_tables_iterator *it, struct key_tables *tables, int slot);
void *key_tables_iterator_next(struct key_tables_iterator *it); /* NULL: no more entries */
void key_tables_iterator_close(struct key_tables_iterator *it);

/* The parts of a table (hashtable_visit_part()): of the table of a slot; `slot` is not used for a single table. */
size_t key_tables_parts(const struct key_tables *tables, unsigned slot);
void key_tables_visit_part(const struct key_tables *tables, unsigned slot, size_t parts, size_t part,
                           void (*visit)(void *context, void *entry), void *context);
/* Prefetches the entries of a part, or the values of its entries, which were prefetched. */
void key_tables_prefetch_part(const struct key_tables *tables, unsigned slot, size_t part);
void key_tables_prefetch_values(const struct key_tables *tables, unsigned slot, size_t part,
                                void (*prefetch)(const void *entry));

void *key_tables_random(const struct key_tables *tables); /* uniform; NULL: no keys */
size_t key_tables_sample(const struct key_tables *tables, void **entries, size_t count);

size_t key_tables_slot_size(const struct key_tables *tables, unsigned slot); /* 0 for a single table */
/* Hidden slots. Their tables are found by lookups and by an iteration of the slot, but are not part of the sums, so
 * that sizes, scans, iterations of all slots, random and sampled keys leave them out. They are those of the process:
 * the number of a slot means the same in each keyspace that is divided by slots. The caller corrects the sums of all
 * tables with the last function. */
struct hidden_slots {
    unsigned count;
    struct slot_bitmap slots;
};
extern struct hidden_slots hidden_slots;
static inline bool slot_is_hidden(unsigned slot) {
    return __builtin_expect(hidden_slots.count != 0, 0) && slot_bitmap_has(&hidden_slots.slots, slot);
}
void key_tables_slot_visible(struct key_tables *tables, unsigned slot, bool visible);
/* Takes the table of a slot out of the tables, in constant time. NULL: the slot has no keys. */
struct hashtable *key_tables_take_slot(struct key_tables *tables, unsigned slot);

/* The inline functions below handle a single table. They call these functions for a table for each slot and for a table
 * that does not exist yet. */
size_t slot_tables_size(const struct slot_tables *slots);
void **key_tables_slow_find_ref(const struct key_tables *tables, struct slice key);
void **key_tables_slow_find_or_prepare(const struct key_tables *tables, struct slice key,
                                       struct table_position *position);
void key_tables_slow_add_at(struct key_tables *tables, struct table_position *position, void *entry);
void *key_tables_slow_pop(struct key_tables *tables, struct slice key);
void key_tables_slow_prefetch(const struct key_tables *tables, const struct slice *keys, size_t count, bool ahead);

static inline bool key_tables_is_single(const struct key_tables *tables) {
    return __builtin_expect(tables->table != NULL, 1);
}
static inline size_t key_tables_size(const struct key_tables *tables) {
    if (key_tables_is_single(tables)) return hashtable_size(tables->table);
    return tables->slots ? slot_tables_size(tables->slots) : 0;
}

/* Lookup and changes. */
static inline void *key_tables_find(const struct key_tables *tables, struct slice key) {
    if (key_tables_is_single(tables)) return hashtable_find(tables->table, key);
    void **ref = key_tables_slow_find_ref(tables, key);
    return ref ? *ref : NULL;
}
/* Returns the address of the pointer in the table, for an entry that moves. */
static inline void **key_tables_find_ref(const struct key_tables *tables, struct slice key) {
    return key_tables_is_single(tables) ? hashtable_find_slot(tables->table, key)
                                        : key_tables_slow_find_ref(tables, key);
}
static inline void **key_tables_find_or_prepare(const struct key_tables *tables, struct slice key,
                                                struct table_position *position) {
    if (key_tables_is_single(tables)) return hashtable_find_or_prepare(tables->table, key, &position->hash);
    return key_tables_slow_find_or_prepare(tables, key, position);
}
static inline void key_tables_add_at(struct key_tables *tables, struct table_position *position, void *entry) {
    if (key_tables_is_single(tables))
        hashtable_add_at(tables->table, &position->hash, entry);
    else
        key_tables_slow_add_at(tables, position, entry);
}
static inline bool key_tables_add(struct key_tables *tables, void *entry) {
    struct table_position position;
    if (key_tables_find_or_prepare(tables, tables->type->key(entry), &position)) return false;
    key_tables_add_at(tables, &position, entry);
    return true;
}
static inline void *key_tables_pop(struct key_tables *tables, struct slice key) {
    return key_tables_is_single(tables) ? hashtable_pop(tables->table, key) : key_tables_slow_pop(tables, key);
}

void key_tables_locate(const struct key_tables *tables, struct slice key, struct table_position *position);

/* Prefetching. */
void key_tables_prepare(const struct key_tables *tables, struct slice key, struct table_position *position);
void key_tables_prefetch_position(const struct key_tables *tables, const struct table_position *position);
void **key_tables_find_at(const struct key_tables *tables, struct slice key, const struct table_position *position);
/* ahead: the keys are those of the next requests (key_slot.h). */
static inline void key_tables_prefetch(const struct key_tables *tables, const struct slice *keys, size_t count,
                                       bool ahead) {
    if (key_tables_is_single(tables))
        hashtable_prefetch(tables->table, keys, count);
    else
        key_tables_slow_prefetch(tables, keys, count, ahead);
}
