/* bulk.c: see bulk.h. */
#include "store/bulk.h"
#include "lib/system/must.h"
#include "store/keyspace_layout.h"

struct entry *entry_new_value(struct slice key, int64_t expire_at, enum value_type type, enum value_encoding encoding,
                              void *value) {
    struct entry *e = entry_make(key, (struct entry_shape){.expires = expire_at >= 0});
    e->type = type;
    e->encoding = encoding;
    *(void **)entry_value_word(e) = value;
    if (expire_at >= 0) *entry_expiry_word(e) = expire_at;
    return e;
}

void entry_discard(struct entry *e) {
    entry_dispose(e, -1, false);
}

void db_add_entry(struct db *db, struct entry *e) {
    struct table_position position;
    void **ref = db_find_ref(db, entry_key_inline(e), &position);
    must(!ref);
    db_link(db, &position, e);
    hook_changed(db, e);
}

void bulk_init(struct bulk *bulk, bool replace) {
    *bulk = (struct bulk){.replace = replace};
}

static bool insert(struct bulk *bulk, struct bulk_item *item) {
    before_key_changes(item->db, entry_key_inline(item->entry));
    void **ref = key_tables_find_at(&item->db->keys, entry_key_inline(item->entry), &item->position);
    if (__builtin_expect(ref != NULL, 0)) {
        if (!bulk->replace) {
            bulk->duplicate = item->entry;
            return false;
        }
        struct entry *old = *ref;
        db_unlink(item->db, old);
        entry_dispose(old, item->db->id, false);
    }
    key_tables_add_at(&item->db->keys, &item->position, item->entry);
    if (entry_expires(item->entry)) key_tables_add_at(&item->db->expires, &item->position, item->entry);
    return true;
}

/* Puts the entry held back longest into its database. */
static bool insert_first(struct bulk *bulk) {
    struct bulk_item *item = &bulk->items[bulk->first];
    must_hold(bulk->count > 0 && bulk->count <= BULK_KEPT, "%u entries", bulk->count);
    bulk->first = (bulk->first + 1) % BULK_KEPT;
    bulk->count--;
    return insert(bulk, item);
}

bool bulk_add(struct bulk *bulk, struct db *db, struct entry *entry) {
    if (bulk->duplicate) {
        entry_discard(entry);
        return false;
    }
    if (bulk->count == BULK_KEPT && !insert_first(bulk)) {
        entry_discard(entry);
        return false;
    }
    struct bulk_item *item = &bulk->items[(bulk->first + bulk->count++) % BULK_KEPT];
    *item = (struct bulk_item){.db = db, .entry = entry};
    key_tables_prepare(&db->keys, entry_key_inline(entry), &item->position);
    if (entry_expires(entry)) key_tables_prefetch_position(&db->expires, &item->position);
    return true;
}

bool bulk_flush(struct bulk *bulk) {
    while (bulk->count && !bulk->duplicate)
        if (!insert_first(bulk)) return false;
    return !bulk->duplicate;
}

void bulk_free(struct bulk *bulk) {
    for (; bulk->count; bulk->count--, bulk->first = (bulk->first + 1) % BULK_KEPT)
        entry_discard(bulk->items[bulk->first].entry);
    if (bulk->duplicate) entry_discard(bulk->duplicate);
    bulk->duplicate = NULL;
}
