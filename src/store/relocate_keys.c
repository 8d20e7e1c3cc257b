/* relocate_keys.c: see relocate_keys.h. */
#include "store/relocate_keys.h"
#include "lib/system/memory.h"
#include "store/before_change.h"
#include "store/keyspace_layout.h"
#include "store/loan.h"

struct visit {
    struct relocate_walk *walk;
    struct db *db;
};

static void large_add(struct relocate_walk *walk, int db, struct slice key, uint64_t cursor) {
    mem_grow(walk->large, walk->large_count, walk->large_capacity, 8);
    walk->large[walk->large_count++] = (struct large_value){mem_strndup(key.data, key.len), key.len, db, cursor};
}

/* Up to three pointers lead to the entry: from the table of keys, from the table of keys with an expiry, and from a
 * value with items that expire. The search in the second table compares keys, so the old entry is freed last. */
static void entry_relocate(struct relocate_walk *walk, struct db *db, void **ref) {
    struct entry *e = *ref, *copy = relocate_begin(&walk->blocks, e);
    if (!copy) return;
    void **in_expires = entry_expires(e) ? key_tables_find_ref(&db->expires, entry_key_inline(e)) : NULL;
    *ref = copy;
    if (in_expires) *in_expires = copy;
    if (entry_is_timed(copy)) entry_expiring_value(copy)->entry = copy;
    relocate_end(e);
}

static bool is_lent(struct db *db, const struct entry *e) {
    return value_is_lent(e) || (unlikely(before_change != NULL) && before_change->lent(db, entry_key_inline(e)));
}

static void visit_entry(void *context, void **ref) {
    const struct visit *visit = context;
    struct relocate_walk *walk = visit->walk;
    uint64_t moved = walk->blocks.moved, cursor = 0;
    if (unlikely(before_change != NULL) && before_change->lent(visit->db, entry_key_inline(*ref))) {
        walk->keys_stayed++;
        return;
    }
    if (!value_is_lent(*ref)) cursor = value_relocate(*ref, visit->db->id, 0, &walk->blocks);
    entry_relocate(walk, visit->db, ref);
    if (cursor) large_add(walk, visit->db->id, entry_key_inline(*ref), cursor);
    if (walk->blocks.moved > moved)
        walk->keys_moved++;
    else
        walk->keys_stayed++;
}

/* Continues with the last of the large values. */
static void large_step(struct relocate_walk *walk, struct keyspace *keyspace) {
    struct large_value *large = &walk->large[walk->large_count - 1];
    struct db *db = keyspace_db(keyspace, large->db);
    struct entry *e = key_tables_find(&db->keys, slice_make(large->key, large->len));
    large->cursor = e && !is_lent(db, e) ? value_relocate(e, db->id, large->cursor, &walk->blocks) : 0;
    if (large->cursor) return;
    mem_free(large->key);
    walk->large_count--;
}

bool relocate_walk_step(struct relocate_walk *walk, struct keyspace *keyspace) {
    if (walk->large_count) {
        large_step(walk, keyspace);
        return true;
    }
    struct db *db = keyspace_db(keyspace, walk->db);
    if (!db) {
        relocate_walk_end(walk);
        return false;
    }
    walk->cursor = key_tables_scan_refs(&db->keys, walk->cursor, visit_entry, &(struct visit){walk, db});
    if (walk->cursor == 0) walk->db++;
    return true;
}

void relocate_walk_end(struct relocate_walk *walk) {
    while (walk->large_count) mem_free(walk->large[--walk->large_count].key);
    mem_free(walk->large);
    walk->large = NULL;
    walk->large_capacity = 0;
    walk->db = 0;
    walk->cursor = 0;
}
