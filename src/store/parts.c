/* parts.c: see parts.h. */
#include "store/parts.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "store/before_change.h"
#include "store/keyspace_layout.h"

const struct before_change *before_change;
struct list held_keys = LIST_INIT(held_keys);

void before_held_keys_change(void) {
    list_each_entry(&held_keys, const struct held_key, link, held) before_key_changes(held->db, held->name(held));
}

/* --- Tables without a database --- */

struct departed {
    struct key_tables keys, expires;
    size_t holders;
    bool lazy;
    size_t bytes;
};
static size_t departed_bytes;

size_t departed_memory(void) {
    return departed_bytes;
}

void departed_release(struct departed *tables) {
    if (!tables) return;
    must(tables->holders > 0);
    if (--tables->holders) return;
    must_within(tables->bytes, departed_bytes);
    departed_bytes -= tables->bytes;
    key_tables_dispose(tables->keys, tables->expires, tables->lazy);
    mem_free(tables);
}

/* By the first entries, which are any. The estimate is left out of what maxmemory counts: it must not be far above the
 * truth. */
static size_t estimate(struct key_tables *keys, int db, int slot) {
    enum { SAMPLES = 200, SAMPLES_OF_SLOT = 10, ITEMS = 20 };
    size_t bytes = 0, count = 0, most = mem_used() / 8 * 7;
    size_t samples = slot < 0 ? SAMPLES : SAMPLES_OF_SLOT;
    struct key_tables_iterator it;
    key_tables_iterator_open(&it, keys, -1);
    for (const struct entry *entry; count < samples && (entry = key_tables_iterator_next(&it)); count++)
        bytes += entry_memory(entry, db, ITEMS);
    key_tables_iterator_close(&it);
    if (count) bytes = (size_t)((double)bytes / (double)count * (double)key_tables_size(keys));
    most -= departed_bytes < most ? departed_bytes : most;
    return bytes < most ? bytes : most;
}

void tables_leave(struct db *db, int slot, struct key_tables keys, struct key_tables expires, bool lazy) {
    if (likely(!before_change)) {
        key_tables_dispose(keys, expires, lazy);
        return;
    }
    struct departed *tables = mem_alloc(sizeof *tables);
    *tables = (struct departed){keys, expires, 1, true, 0}; /* the last reader does not wait for the removal */
    tables->bytes = estimate(&tables->keys, db_id(db), slot);
    departed_bytes += tables->bytes;
    before_change->left(db, slot, tables);
    departed_release(tables);
}

struct departed *departed_hold(struct departed *tables) {
    must(tables->holders > 0);
    tables->holders++;
    return tables;
}

/* --- Parts --- */

enum { PREFETCHED = 4 /* parts */ };

struct key_parts {
    struct db *db;
    struct departed *all;    /* where the keys are if they have left the database */
    struct departed **slots; /* likewise for the keys of a slot; NULL: none has left */
    size_t keys;
    unsigned tables; /* HASH_SLOTS, or 1 for a single table */
    /* The number of the first part of each table, and the number of all. A table has a power of two of them, or none.
     */
    size_t first[];
};

struct key_parts *parts_new(struct db *db, const struct slot_bitmap *only) {
    const struct key_tables *keys = &db->keys;
    must(!only || keys->per_slot);
    unsigned tables = keys->per_slot ? HASH_SLOTS : 1;
    bool has_keys = key_tables_is_single(keys) || keys->slots;
    struct key_parts *parts = mem_alloc(sizeof *parts + ((has_keys ? tables : 0) + 1) * sizeof *parts->first);
    *parts = (struct key_parts){.db = db, .tables = has_keys ? tables : 0};
    parts->first[0] = 0;
    for (unsigned i = 0; i < parts->tables; i++) {
        bool wanted = !only || slot_bitmap_has(only, i);
        parts->first[i + 1] = parts->first[i] + (wanted ? key_tables_parts(keys, i) : 0);
        if (wanted) parts->keys += keys->per_slot ? key_tables_slot_size(keys, i) : key_tables_size(keys);
    }
    return parts;
}

void parts_free(struct key_parts *parts) {
    departed_release(parts->all);
    for (unsigned slot = 0; parts->slots && slot < HASH_SLOTS; slot++) departed_release(parts->slots[slot]);
    mem_free(parts->slots);
    mem_free(parts);
}

size_t parts_count(const struct key_parts *parts) {
    return parts->first[parts->tables];
}
size_t parts_keys(const struct key_parts *parts) {
    return parts->keys;
}
struct db *parts_db(const struct key_parts *parts) {
    return parts->all ? NULL : parts->db;
}
void parts_set_db(struct key_parts *parts, struct db *db) {
    must(!parts->all);
    parts->db = db;
}

static size_t table_parts(const struct key_parts *parts, unsigned slot) {
    return parts->first[slot + 1] - parts->first[slot];
}

void parts_left(struct key_parts *parts, int slot, struct departed *tables) {
    static struct departed nothing = {.holders = 1};
    must(!parts->all);
    if (!tables) tables = &nothing;
    if (slot < 0) {
        parts->all = departed_hold(tables);
        return;
    }
    if (!parts->tables) return; /* there were no keys */
    must_equal(parts->tables, (unsigned)HASH_SLOTS);
    must_less(slot, (int)HASH_SLOTS);
    if (!table_parts(parts, (unsigned)slot)) return; /* nor of this slot, or it is none of the snapshot's */
    if (!parts->slots) parts->slots = mem_calloc(HASH_SLOTS, sizeof(struct departed *));
    /* What came to the slot afterwards is not of the former moment. */
    if (!parts->slots[slot]) parts->slots[slot] = departed_hold(tables);
}

bool parts_find(const struct key_parts *parts, struct slice key, struct part *part) {
    struct table_position position;
    if (!parts->tables || parts->all) return false;
    key_tables_locate(&parts->db->keys, key, &position);
    unsigned slot = parts->tables > 1 ? position.slot : 0;
    size_t count = table_parts(parts, slot);
    if (!count || (parts->slots && parts->slots[slot])) return false;
    *part = (struct part){slot, parts->first[slot] + hashtable_part(&position.hash, count)};
    return true;
}

struct part parts_settle(const struct key_parts *parts, struct part part) {
    while (part.slot < parts->tables && part.number >= parts->first[part.slot + 1]) part.slot++;
    return part;
}
struct part parts_next(const struct key_parts *parts, struct part part) {
    must_less(part.number, parts_count(parts));
    part = parts_settle(parts, part);
    part.number++;
    return parts_settle(parts, part);
}

struct part_entries {
    void (*visit)(void *context, struct entry *entry);
    void *context;
};
static void part_entry(void *context, void *entry) {
    const struct part_entries *entries = context;
    entries->visit(entries->context, entry);
}
/* The tables that have the keys of a part. */
static const struct key_tables *part_tables(const struct key_parts *parts, struct part part) {
    must_less(part.slot, parts->tables);
    must_within(parts->first[part.slot], part.number);
    const struct departed *slot_left = parts->slots ? parts->slots[part.slot] : NULL;
    return slot_left ? &slot_left->keys : parts->all ? &parts->all->keys : &parts->db->keys;
}

void parts_visit(const struct key_parts *parts, struct part part, void (*visit)(void *context, struct entry *entry),
                 void *context) {
    struct part_entries entries = {visit, context};
    part = parts_settle(parts, part);
    key_tables_visit_part(part_tables(parts, part), part.slot, table_parts(parts, part.slot),
                          part.number - parts->first[part.slot], part_entry, &entries);
}

static void prefetch_value(const void *entry) {
    entry_prefetch_value(entry);
}
static void prefetch_entries(const struct key_parts *parts, struct part part) {
    key_tables_prefetch_part(part_tables(parts, part), part.slot, part.number - parts->first[part.slot]);
}
static void prefetch_values(const struct key_parts *parts, struct part part) {
    key_tables_prefetch_values(part_tables(parts, part), part.slot, part.number - parts->first[part.slot],
                               prefetch_value);
}
void parts_prefetch(const struct key_parts *parts, struct part part) {
    part = parts_settle(parts, part);
    prefetch_entries(parts, part);
    prefetch_values(parts, part);
}
/* In groups, so that many entries are fetched at the same time. */
void parts_prefetch_next(const struct key_parts *parts, struct part part) {
    size_t count = parts_count(parts);
    if (part.number % PREFETCHED) return;
    part = parts_settle(parts, part);
    for (int i = 0; i < 2 * PREFETCHED && part.number < count; i++, part = parts_next(parts, part)) {
        if (i < PREFETCHED)
            prefetch_values(parts, part);
        else
            prefetch_entries(parts, part);
    }
}
