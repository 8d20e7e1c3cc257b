/* hash_expiry.c: hashes with field expiration; see hash.h and hash_field.h. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "store/hash_field.h"
#include "store/loan.h"

static int64_t field_number(const void *field) {
    return field_time(field);
}
static void field_set_index(void *field, size_t index) {
    memcpy(((struct hash_field *)field)->data + WORD, &index, WORD);
}
static size_t field_index(const struct hash_field *f) {
    size_t index;
    memcpy(&index, f->data + WORD, WORD);
    return index;
}
static const struct heap_type fields_type = {field_number, field_set_index};

/* --- The heap of a hash --- */

static void expiring_hash_start(struct db *db, struct entry *e) {
    struct expiring_hash *hash = mem_alloc(sizeof *hash);
    must_equal(entry_encoding(e), ENCODING_HASHTABLE);
    *hash = (struct expiring_hash){.expiring.next_at = INT64_MAX, .table = entry_value(e)};
    db_set_value(db, e, ENCODING_EXPIRING_HASHTABLE, hash);
    db_expiring_join(db, e);
}
static void expiring_hash_end(struct db *db, struct entry *e) {
    struct expiring_hash *hash = expiring_hash_of(e);
    must_equal(hash->fields.len, 0);
    db_expiring_leave(db, e);
    db_set_value(db, e, ENCODING_HASHTABLE, hash->table);
    expiring_hash_free(hash);
}
/* Updates the database's heap after the earliest expiry of the hash changed. */
static void expiring_hash_update(struct db *db, struct entry *e) {
    struct expiring_hash *hash = expiring_hash_of(e);
    if (hash->fields.len)
        db_expiring_renumber(db, e, field_time(heap_first(&hash->fields)));
    else
        expiring_hash_end(db, e);
}

void hash_field_expiry_added(struct db *db, struct entry *e, struct hash_field *f, bool expired, int64_t at) {
    must(field_expires(f));
    if (at >= 0) memcpy(f->data, &at, WORD);
    if (!entry_is_timed(e)) expiring_hash_start(db, e);
    struct heap *fields = &expiring_hash_of(e)->fields;
    if (!expired) {
        heap_add(fields, &fields_type, f);
    } else {
        must_less(field_index(f), fields->len);
        fields->items[field_index(f)] = f;
        heap_renumbered(fields, &fields_type, field_index(f));
    }
    expiring_hash_update(db, e);
}

void expiring_hash_moved(struct expiring_hash *hash, struct hash_field *f) {
    must_less(field_index(f), hash->fields.len);
    hash->fields.items[field_index(f)] = f;
}

void hash_field_expiry_removed(struct db *db, struct entry *e, struct hash_field *f) {
    const struct heap *fields = &expiring_hash_of(e)->fields;
    must(field_index(f) < fields->len && fields->items[field_index(f)] == f);
    heap_remove(&expiring_hash_of(e)->fields, &fields_type, field_index(f));
    expiring_hash_update(db, e);
}

bool expiring_hash_delete(struct db *db, struct entry *e, struct slice field) {
    struct hash_field *f = hashtable_pop(expiring_hash_of(e)->table, field);
    if (!f) return false;
    if (field_expires(f)) hash_field_expiry_removed(db, e, f);
    field_free(f);
    return true;
}

size_t expiring_hash_due(const struct expiring_hash *hash) {
    return store_settings.show_expired ? 0 : heap_count_below(&hash->fields, &fields_type, clock_data_ms());
}

struct expiring_hash *expiring_hash_copy(const struct expiring_hash *hash, struct hashtable *table) {
    struct expiring_hash *copy = mem_alloc(sizeof *copy);
    *copy = (struct expiring_hash){.expiring.next_at = hash->expiring.next_at, .table = table};
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, table);
    for (struct hash_field *f; (f = hashtable_iterator_next(&it));)
        if (field_expires(f)) heap_add(&copy->fields, &fields_type, f);
    hashtable_iterator_close(&it);
    return copy;
}
void expiring_hash_free(struct expiring_hash *hash) {
    heap_clear(&hash->fields);
    mem_free(hash);
}
size_t expiring_hash_memory(const struct expiring_hash *hash) {
    return mem_size(hash) + mem_size(hash->fields.items);
}

/* --- Deletion of expired fields --- */

enum { BATCH = 64 };

/* Deletes fields. True: no field was left, and the key is deleted as well. */
static bool expire_fields(struct db *db, struct entry *e, const struct slice *names, size_t count) {
    bool last = count == hash_len(e);
    must_within(count, hash_len(e));
    store_stats.expired_fields += count;
    db->keyspace->hooks.fields_expired(db, entry_key_inline(e), names, count, last);
    for (size_t i = 0; i < count; i++) hash_delete(db, e, names[i]);
    if (last)
        db_delete(db, entry_key_inline(e), store_settings.lazy_expire);
    else
        hook_changed(db, e);
    return last;
}

bool hash_is_volatile(const struct entry *e) {
    return __builtin_expect(entry_is_timed(e), 0);
}

bool hash_holds_expired(const struct entry *e, struct slice field) {
    if (!hash_is_volatile(e)) return false;
    const struct hash_field *f = hashtable_find(expiring_hash_of(e)->table, field);
    return f && field_is_expired(f);
}

bool hash_drop_expired(struct db *db, struct entry *e, struct slice field) {
    if (!hash_is_volatile(e)) return false;
    const struct hash_field *f = hashtable_find(expiring_hash_of(e)->table, field);
    /* In the millisecond of its expiry, a field is still visible to readers, but already expired for a command that
     * sets it. */
    if (!f || !field_expires(f) || store_settings.show_expired || clock_data_ms() < field_time(f)) return false;
    expiring_hash_delete(db, e, field);
    store_stats.expired_fields++;
    return true;
}

/* Collects the expired fields from the top of the heap: a field that is not expired has no expired descendants. */
struct due {
    const struct heap *fields;
    struct slice names[BATCH];
    size_t count;
};
static void due_from(struct due *due, size_t index) {
    if (index >= due->fields->len || due->count == BATCH || !field_is_expired(due->fields->items[index])) return;
    due->names[due->count++] = field_name(due->fields->items[index]);
    due_from(due, 2 * index + 1);
    due_from(due, 2 * index + 2);
}

size_t hash_expire_due(struct db *db, struct entry *e) {
    struct due due = {.fields = &expiring_hash_of(e)->fields};
    due_from(&due, 0);
    if (due.count) before_key_changes(db, entry_key_inline(e));
    if (due.count) before_value_changes(e);
    if (due.count) expire_fields(db, e, due.names, due.count);
    return due.count;
}

void hash_drop_all_expired(struct db *db, struct entry *e, hash_dropping *dropping, void *context) {
    if (!hash_is_volatile(e) || hash_len_now(e) == 0) return;
    size_t dropped;
    do {
        struct due due = {.fields = &expiring_hash_of(e)->fields};
        if (!store_settings.show_expired) due_from(&due, 0);
        dropped = due.count;
        if (dropped) dropping(context, due.names, dropped);
        for (size_t i = 0; i < dropped; i++) expiring_hash_delete(db, e, due.names[i]);
    } while (dropped && hash_is_volatile(e));
}
