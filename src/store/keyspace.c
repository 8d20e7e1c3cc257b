/* keyspace.c: the databases: lookup, insertion, deletion, renaming and iteration; see keyspace.h.
 *
 * A database has a table of its entries, a second table of the entries with an expiry, and a heap of the values with
 * items that expire. In a keyspace that is divided by hash slots, each of the two tables is a table for each slot;
 * key_tables.h presents them as one. An entry may move when it changes; db_reshape(), the only function that moves an
 * entry of a table, then updates both tables. It searches their slots before it frees the old memory, because a search
 * compares keys, which are part of the entries. */
#include "store/keyspace.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "store/extension.h"
#include "store/keyspace_layout.h"
#include "store/loan.h"
#include <stdatomic.h>

struct store_settings store_settings = {.lfu_log_factor = 10,
                                        .lfu_decay_time = 1,
                                        .active_expire_effort = 1,
                                        .active_expire = true,
                                        .active_rehashing = true,
                                        .lazy_expire = true,
                                        .lazy_eviction = true,
                                        .lazy_user_del = true,
                                        .lazy_user_flush = true,
                                        .lazy_server_del = true};
struct store_stats store_stats;
struct store_lazyfree store_lazyfree;

static struct slice table_key(const void *entry) {
    return entry_key_inline(entry);
}
static bool may_grow(size_t bytes) {
    return !store_settings.table_may_grow || store_settings.table_may_grow(bytes);
}
static const struct hashtable_type keys_type = {.key = table_key, .free_entry = entry_free, .may_grow = may_grow};
static const struct hashtable_type expires_type = {.key = table_key, .may_grow = may_grow};

/* --- Creation and destruction --- */

size_t hidden_expiring_values;

static void ignore_key(struct db *db, struct slice key) {}
static void ignore_fields(struct db *db, struct slice key, const struct slice *fields, size_t count, bool all) {}
static void ignore_flush(struct db *db, size_t keys) {}
static void ignore_slot(struct db *db, unsigned slot) {}
static void ignore_swap(struct db *a, struct db *b) {}

static struct keyspace *keyspace_make(int databases, const struct store_hooks *hooks, bool per_slot) {
    must(databases > 0);
    struct keyspace *k = mem_calloc(1, sizeof(*k) + (size_t)databases * sizeof(struct db));
    if (hooks) k->hooks = *hooks;
    if (!k->hooks.changed) k->hooks.changed = ignore_key;
    if (!k->hooks.expired) k->hooks.expired = ignore_key;
    if (!k->hooks.fields_expired) k->hooks.fields_expired = ignore_fields;
    if (!k->hooks.evicted) k->hooks.evicted = ignore_key;
    if (!k->hooks.flushed) k->hooks.flushed = ignore_flush;
    if (!k->hooks.slot_left) k->hooks.slot_left = ignore_slot;
    if (!k->hooks.swapped) k->hooks.swapped = ignore_swap;
    k->databases = databases;
    for (int i = 0; i < databases; i++)
        k->db[i] = (struct db){.keyspace = k,
                               .id = i,
                               .keys = key_tables_init(&keys_type, per_slot),
                               .expires = key_tables_init(&expires_type, per_slot)};
    return k;
}
struct keyspace *keyspace_new(int databases, const struct store_hooks *hooks) {
    return keyspace_make(databases, hooks, false);
}
struct keyspace *keyspace_new_per_slot(int databases, const struct store_hooks *hooks) {
    return keyspace_make(databases, hooks, true);
}
struct keyspace *keyspace_new_like(const struct keyspace *k) {
    return keyspace_make(k->databases, NULL, k->db[0].keys.per_slot);
}

void keyspace_free(struct keyspace *k) {
    if (!k) return;
    for (int i = 0; i < k->databases; i++) {
        heap_clear(&k->db[i].expiring_values);
        key_tables_free(&k->db[i].expires);
        key_tables_free(&k->db[i].keys);
    }
    mem_free(k);
}

int keyspace_databases(const struct keyspace *k) {
    return k->databases;
}
size_t keyspace_size(const struct keyspace *k) {
    size_t keys = 0;
    for (int id = 0; id < k->databases; id++) keys += db_size(&k->db[id]);
    return keys;
}
struct db *keyspace_db(struct keyspace *k, int id) {
    return id >= 0 && id < k->databases ? &k->db[id] : NULL;
}
int db_id(const struct db *db) {
    return db->id;
}
struct keyspace *db_keyspace(const struct db *db) {
    return db->keyspace;
}
size_t db_size(const struct db *db) {
    return key_tables_size(&db->keys);
}
size_t db_expires(const struct db *db) {
    return key_tables_size(&db->expires);
}
size_t db_expiring(const struct db *db) {
    return db->expiring_values.len;
}
int64_t db_average_ttl(const struct db *db) {
    return db->average_ttl;
}
size_t db_keys_overhead(const struct db *db) {
    return key_tables_memory(&db->keys) + db->expiring_values.capacity * sizeof(void *);
}
size_t db_expires_overhead(const struct db *db) {
    return key_tables_memory(&db->expires);
}
int db_rehashing(const struct db *db) {
    return key_tables_rehashing(&db->keys) + key_tables_rehashing(&db->expires);
}
size_t db_rehashing_memory(const struct db *db) {
    return key_tables_rehashing_memory(&db->keys) + key_tables_rehashing_memory(&db->expires);
}
void db_keys_stats(const struct db *db, struct hashtable_stats stats[2]) {
    key_tables_stats(&db->keys, stats);
}
void db_expires_stats(const struct db *db, struct hashtable_stats stats[2]) {
    key_tables_stats(&db->expires, stats);
}

/* --- Entries and tables --- */

/* Removes an entry from one of the tables, which has it. */
static void table_drop(struct key_tables *tables, const struct entry *e) {
    const struct entry *dropped = key_tables_pop(tables, entry_key_inline(e));
    must(dropped == e);
}

struct entry *db_reshape(struct db *db, struct entry *e, void **ref, struct entry_shape shape) {
    bool expired_before = entry_expires(e), moves = !entry_fits(e, shape);
    if (expired_before && !shape.expires) table_drop(&db->expires, e);
    void **in_expires = NULL;
    if (moves) {
        if (!ref) ref = key_tables_find_ref(&db->keys, entry_key_inline(e));
        must(ref && *ref == e);
        if (expired_before && shape.expires) {
            in_expires = key_tables_find_ref(&db->expires, entry_key_inline(e));
            must(in_expires && *in_expires == e);
        }
    }
    e = entry_reshape(e, shape);
    if (moves) {
        *ref = e;
        if (in_expires) *in_expires = e;
        if (__builtin_expect(entry_is_timed(e), 0)) entry_expiring_value(e)->entry = e;
    }
    bool added = !shape.expires || expired_before || key_tables_add(&db->expires, e);
    must(added);
    return e;
}

static int64_t expiring_hash_number(const void *value) {
    return ((const struct expiring_value *)value)->next_at;
}
static void expiring_hash_set_index(void *value, size_t index) {
    ((struct expiring_value *)value)->heap_index = index;
}
static const struct heap_type expiring_type = {expiring_hash_number, expiring_hash_set_index};

void db_expiring_join(struct db *db, struct entry *e) {
    struct expiring_value *value = entry_expiring_value(e);
    value->entry = e;
    if (hidden_slots.count && slot_is_hidden(hash_slot(entry_key_inline(e)))) {
        value->heap_index = HEAP_INDEX_HIDDEN;
        hidden_expiring_values++;
        return;
    }
    heap_add(&db->expiring_values, &expiring_type, value);
}
static bool in_heap(const struct db *db, const struct expiring_value *value) {
    const struct heap *heap = &db->expiring_values;
    return value->heap_index < heap->len && heap->items[value->heap_index] == value;
}
void db_expiring_leave(struct db *db, struct entry *e) {
    if (__builtin_expect(entry_expiring_value(e)->heap_index == HEAP_INDEX_HIDDEN, 0)) {
        hidden_expiring_values--;
        return;
    }
    must(in_heap(db, entry_expiring_value(e)));
    heap_remove(&db->expiring_values, &expiring_type, entry_expiring_value(e)->heap_index);
}
void db_special_value_leaves(struct db *db, struct entry *e) {
    if (entry_is_timed(e)) db_expiring_leave(db, e);
    if (e->type != TYPE_EXTENSION) return;
    const struct extension_value *structure = entry_pointer(e);
    const struct extension_methods *methods = structure->type->methods;
    if (methods->unlinked) methods->unlinked(structure->type, db, entry_key_inline(e), structure->value);
}
void db_expiring_renumber(struct db *db, struct entry *e, int64_t next_at) {
    struct expiring_value *value = entry_expiring_value(e);
    if (value->next_at == next_at) return;
    value->next_at = next_at;
    if (__builtin_expect(value->heap_index == HEAP_INDEX_HIDDEN, 0)) return;
    must(in_heap(db, value));
    heap_renumbered(&db->expiring_values, &expiring_type, value->heap_index);
}

void db_unlink(struct db *db, struct entry *e) {
    must_be_main_thread();
    before_key_changes(db, entry_key_inline(e));
    db_value_leaves(db, e);
    if (entry_expires(e)) table_drop(&db->expires, e);
    table_drop(&db->keys, e);
}

void db_link(struct db *db, struct table_position *position, struct entry *e) {
    must_be_main_thread();
    key_tables_add_at(&db->keys, position, e);
    if (entry_expires(e)) key_tables_add_at(&db->expires, position, e);
    if (__builtin_expect(entry_is_timed(e), 0)) db_expiring_join(db, e);
}

void **db_find_ref(struct db *db, struct slice key, struct table_position *position) {
    before_key_changes(db, key);
    void **ref = key_tables_find_or_prepare(&db->keys, key, position);
    if (ref && entry_is_expired(*ref)) {
        db_expire_entry(db, *ref);
        ref = NULL; /* the position stays valid */
    }
    return ref;
}

/* --- Lookup --- */

struct entry *db_find(struct db *db, struct slice key, int flags) {
    if (flags & (LOOKUP_WRITE | LOOKUP_CHANGES)) before_key_changes(db, key);
    struct entry *e = key_tables_find(&db->keys, key);
    if (e && __builtin_expect(entry_expires(e), 0) && !(flags & LOOKUP_NOEXPIRE) && entry_is_expired(e)) {
        /* For a write the expired key must be removed, even on a replica. */
        if (!store_settings.readers &&
            (flags & LOOKUP_WRITE ||
             (!store_settings.lookups_keep_expired &&
              (!store_settings.keep_expired || (store_settings.deletes_expired && store_settings.deletes_expired())))))
            db_expire_entry(db, e);
        e = NULL;
    }
    if (e && flags & (LOOKUP_WRITE | LOOKUP_CHANGES) && !(flags & LOOKUP_REPLACES)) before_value_changes(e);
    if (e && !(flags & LOOKUP_NOTOUCH)) entry_touch(e);
    if (!(flags & (LOOKUP_NOSTATS | LOOKUP_WRITE))) {
        if (e)
            store_stats.hits++;
        else
            store_stats.misses++;
    }
    return e;
}

bool db_prefetch_pays(const struct db *db) {
    enum { CACHED_KEYS = 20000 }; /* about 1.3 MB */
    return db_size(db) > CACHED_KEYS;
}

void db_prefetch(struct db *db, const struct slice *keys, size_t count) {
    if (count > 1 && db_prefetch_pays(db)) key_tables_prefetch(&db->keys, keys, count, false);
}
void db_prefetch_requests(struct db *db, const struct slice *keys, size_t count) {
    if (count > 1) key_tables_prefetch(&db->keys, keys, count, true);
}
void db_prefetch_requests_end(void) {
    key_slots_ahead_end();
}

/* --- Insertion, deletion, moves --- */

struct entry *db_add_value(struct db *db, struct slice key, enum value_type type, enum value_encoding encoding,
                           void *value) {
    struct table_position position;
    void **ref = db_find_ref(db, key, &position);
    must(!ref);
    struct entry *e = entry_make(key, (struct entry_shape){0});
    e->type = type;
    e->encoding = encoding;
    *(void **)entry_value_word(e) = value;
    db_link(db, &position, e);
    hook_changed(db, e);
    return e;
}

void db_set_value(struct db *db, struct entry *e, enum value_encoding encoding, void *value) {
    must(e->type != TYPE_STRING && value);
    must(likely(!before_change) || before_change->announced(db, entry_key_inline(e)));
    must(!value_is_lent(e));
    e->encoding = encoding;
    *(void **)entry_value_word(e) = value;
}

void db_changed(struct db *db, struct slice key) {
    key_changed(db, key);
}

bool db_delete(struct db *db, struct slice key, bool lazy) {
    return db_delete_as(db, key, lazy, REMOVAL_DELETED);
}
bool db_delete_as(struct db *db, struct slice key, bool lazy, enum removal removal) {
    if (unlikely(store_settings.reports_removals) && key_tables_find(&db->keys, key)) hook_removing(db, key, removal);
    before_key_changes(db, key);
    struct entry *e = key_tables_pop(&db->keys, key);
    if (!e) return false;
    db_value_leaves(db, e);
    if (entry_expires(e)) table_drop(&db->expires, e);
    hook_changed(db, e);
    entry_dispose(e, db->id, lazy);
    return true;
}

struct entry *db_set_expire(struct db *db, struct entry *e, int64_t at_ms) {
    struct entry_shape shape = entry_shape_of(e);
    must_in_tests(key_tables_find(&db->keys, entry_key_inline(e)) == e);
    before_key_changes(db, entry_key_inline(e));
    if (shape.expires != (at_ms >= 0)) {
        shape.expires = at_ms >= 0;
        e = db_reshape(db, e, NULL, shape);
    }
    if (shape.expires) *entry_expiry_word(e) = at_ms;
    entry_check_embstr(e, shape.value_len);
    hook_changed(db, e);
    return e;
}

struct entry *db_rename(struct db *from_db, struct slice from, struct db *to_db, struct slice to) {
    struct entry *old = key_tables_find(&from_db->keys, from);
    if (!old) return NULL;
    if (from_db == to_db && slice_equal(from, to)) return old;
    before_key_changes(to_db, to);
    /* `to` may point into the replaced entry: create everything new before freeing anything old. */
    struct entry *e = entry_under_key(old, to);
    struct entry *replaced = key_tables_find(&to_db->keys, to);
    if (replaced && entry_is_expired(replaced)) {
        db_expire_entry(to_db, replaced);
        replaced = NULL;
    }
    if (unlikely(store_settings.reports_removals)) {
        bool within = from_db->keyspace == to_db->keyspace; /* otherwise a result that replaces a key */
        if (replaced) hook_removing(to_db, entry_key(replaced), within ? REMOVAL_DELETED : REMOVAL_OVERWRITTEN);
        hook_removing(from_db, from, REMOVAL_DELETED);
    }
    db_unlink(from_db, old);
    if (replaced) db_unlink(to_db, replaced);
    struct table_position position;
    void **ref = key_tables_find_or_prepare(&to_db->keys, entry_key_inline(e), &position);
    must(!ref);
    db_link(to_db, &position, e);
    hook_changed(from_db, old);
    hook_changed(to_db, e);
    mem_free(old); /* the value belongs to the new entry */
    if (replaced) entry_dispose(replaced, to_db->id, store_settings.lazy_server_del);
    return e;
}

struct entry *db_copy(struct db *from_db, struct entry *from, struct db *to_db, struct slice to) {
    struct table_position position;
    void *value = from->type == TYPE_STRING ? NULL : value_copy(from, from_db->id, to_db->id, to);
    if (!value && from->type != TYPE_STRING) return NULL;
    struct entry *e = entry_under_key(from, to);
    e->access = access_new();
    if (entry_has_blob(from))
        *(void **)entry_value_word(e) = blob_hold(entry_pointer(from)); /* the first writer makes a copy */
    else if (from->type != TYPE_STRING)
        *(void **)entry_value_word(e) = value;
    void **ref = db_find_ref(to_db, entry_key_inline(e), &position);
    if (ref) {
        struct entry *replaced = *ref;
        if (unlikely(store_settings.reports_removals)) hook_removing(to_db, entry_key(replaced), REMOVAL_DELETED);
        db_unlink(to_db, replaced);
        entry_dispose(replaced, to_db->id, store_settings.lazy_server_del);
    }
    db_link(to_db, &position, e);
    hook_changed(to_db, e);
    return e;
}

/* --- Whole databases --- */

/* Tables to free: their keys, of which `expires` has some. */
struct disposed {
    struct disposed *next;
    struct key_tables keys, expires;
    size_t count;
};

/* The tables that wait for the background thread. A job frees all that it finds: thousands of slots may be dropped at
 * once, and a job for each would wake the thread as often. */
static _Atomic(struct disposed *) waiting;

static void free_tables(struct disposed *tables) {
    key_tables_free(&tables->expires); /* first the tables that do not own the entries */
    key_tables_free(&tables->keys);
}

static void free_waiting(void *arg) {
    for (struct disposed *tables = atomic_exchange(&waiting, NULL), *next; tables; tables = next) {
        next = tables->next;
        free_tables(tables);
        uint64_t before = atomic_fetch_sub_explicit(&store_lazyfree.pending, tables->count, memory_order_relaxed);
        must_within(tables->count, before);
        atomic_fetch_add_explicit(&store_lazyfree.freed, tables->count, memory_order_relaxed);
        mem_free(tables);
    }
}

static void dispose_later(struct disposed *tables) {
    atomic_fetch_add_explicit(&store_lazyfree.pending, tables->count, memory_order_relaxed);
    struct disposed *first = atomic_load(&waiting);
    do tables->next = first;
    while (!atomic_compare_exchange_weak(&waiting, &first, tables)); /* from then on a running job may free `tables` */
    /* In a forked child jobs run at once, but the list may have tables for which the parent had submitted a job. */
    bool submitted = first && background_pending(BACKGROUND_LAZY_FREE);
    if (!submitted) background_submit(BACKGROUND_LAZY_FREE, free_waiting, NULL);
}

void key_tables_dispose(struct key_tables keys, struct key_tables expires, bool lazy) {
    struct disposed tables = {.keys = keys, .expires = expires, .count = key_tables_size(&keys)};
    if (lazy && tables.count) {
        struct disposed *later = mem_alloc(sizeof(*later));
        *later = tables;
        dispose_later(later);
    } else {
        free_tables(&tables); /* an empty table may still have large arrays */
    }
}

size_t db_flush(struct db *db, bool lazy) {
    must_be_main_thread();
    struct key_tables keys = db->keys, expires = db->expires;
    size_t count = db_size(db);
    db->keyspace->hooks.flushed(db, count);
    heap_clear(&db->expiring_values);
    db->keys = key_tables_init(&keys_type, keys.per_slot);
    db->expires = key_tables_init(&expires_type, expires.per_slot);
    tables_leave(db, -1, keys, expires, lazy);
    db->average_ttl = 0;
    db->expire_cursor = 0;
    return count;
}

static void swap_contents(struct db *a, struct db *b) {
    struct db saved = *a;
    a->keys = b->keys, a->expires = b->expires, a->expiring_values = b->expiring_values;
    a->average_ttl = b->average_ttl, a->expire_cursor = b->expire_cursor;
    b->keys = saved.keys, b->expires = saved.expires, b->expiring_values = saved.expiring_values;
    b->average_ttl = saved.average_ttl, b->expire_cursor = saved.expire_cursor;
}

void db_swap(struct db *a, struct db *b) {
    if (a == b) return;
    must(a->keyspace == b->keyspace);
    a->keyspace->hooks.swapped(a, b);
    if (before_change) before_change->swapped(a, b);
    swap_contents(a, b);
}

void keyspace_replace(struct keyspace *k, struct keyspace *with) {
    must(!with || (with->databases == k->databases && with->db[0].keys.per_slot == k->db[0].keys.per_slot));
    for (int i = 0; i < k->databases; i++) {
        struct db *db = &k->db[i];
        if (with) {
            if (before_change) /* a reader of the former state keeps the keys */
                db_flush(db, true);
            else
                k->hooks.flushed(db, db_size(db));
            swap_contents(db, &with->db[i]);
        }
        k->hooks.swapped(db, db);
    }
}

void db_expand(struct db *db, size_t keys, size_t expires) {
    key_tables_expand(&db->keys, keys);
    key_tables_expand(&db->expires, expires);
}
void db_expand_slot(struct db *db, unsigned slot, size_t keys, size_t expires) {
    key_tables_expand_slot(&db->keys, slot, keys);
    key_tables_expand_slot(&db->expires, slot, expires);
}

/* --- Iteration --- */

/* Adapts the table's callback (void pointers) to the caller's (entries). */
struct scan_context {
    void (*visit)(void *context, struct entry *entry);
    void *context;
};
static void scan_seen(void *context, void *entry) {
    const struct scan_context *scan = context;
    scan->visit(scan->context, entry);
}
uint64_t db_scan(struct db *db, int slot, uint64_t cursor, void (*visit)(void *context, struct entry *entry),
                 void *context) {
    struct scan_context scan = {visit, context};
    return key_tables_scan(&db->keys, slot, cursor, scan_seen, &scan);
}

/* Deletes the expired keys that it draws. If expired keys must not be deleted and possibly all keys have expired, it
 * finally returns an expired key. */
struct entry *db_random(struct db *db) {
    for (int tries = 100;; tries--) {
        struct entry *e = key_tables_random(&db->keys);
        if (!e || !entry_is_expired(e)) return e;
        if (!store_settings.keep_expired && !store_settings.readers && !store_settings.lookups_keep_expired)
            db_expire_entry(db, e);
        else if (tries <= 0)
            return e;
    }
}

struct db_iterator {
    struct key_tables_iterator keys;
};
struct db_iterator *db_iterate(struct db *db, int slot) {
    struct db_iterator *it = mem_alloc(sizeof(*it));
    key_tables_iterator_open(&it->keys, &db->keys, slot);
    return it;
}
struct entry *db_iterate_next(struct db_iterator *it) {
    return key_tables_iterator_next(&it->keys);
}
void db_iterate_end(struct db_iterator *it) {
    key_tables_iterator_close(&it->keys);
    mem_free(it);
}

/* --- Rehashing --- */

bool keyspace_rehash(struct keyspace *k, uint64_t microseconds) {
    for (int i = 0; i < k->databases; i++) {
        key_tables_resize_where_needed(&k->db[i].keys);
        key_tables_resize_where_needed(&k->db[i].expires);
    }
    uint64_t now = clock_monotonic_us(), end = now + microseconds;
    for (int left = 2 * k->databases; left > 0; left--) {
        struct db *db = &k->db[k->rehash_turn / 2];
        struct key_tables *tables = k->rehash_turn % 2 ? &db->expires : &db->keys;
        if (key_tables_rehashing(tables)) {
            if (now >= end) return true;
            if (key_tables_rehash_for(tables, end - now)) return true;
            now = clock_monotonic_us();
        }
        k->rehash_turn = (k->rehash_turn + 1) % (2 * k->databases);
    }
    return false;
}
