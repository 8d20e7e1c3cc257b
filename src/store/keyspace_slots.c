/* keyspace_slots.c: lists, counts and removes the keys of a hash slot, or moves them to another keyspace. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "store/keyspace_layout.h"

bool db_is_per_slot(const struct db *db) {
    return db->keys.per_slot;
}

size_t db_slot_keys(struct db *db, unsigned slot, size_t max, void (*visit)(void *context, struct entry *entry),
                    void *context) {
    struct key_tables_iterator it;
    size_t count = 0;
    key_tables_iterator_open(&it, &db->keys, (int)slot);
    for (struct entry *e; count < max && (e = key_tables_iterator_next(&it));) {
        if (!db->keys.per_slot && hash_slot(entry_key_inline(e)) != slot) continue;
        if (visit) visit(context, e);
        count++;
    }
    key_tables_iterator_close(&it);
    return count;
}

static void slot_count_entry(void *context, struct entry *e) {
    struct db_slot_size *size = context;
    size->keys++;
    size->expires += entry_expires(e);
    size->expiring += entry_is_timed(e);
}

struct db_slot_size db_slot_size(struct db *db, unsigned slot) {
    struct db_slot_size size = {0};
    if (db->keys.per_slot && !db_expiring(db) && !hidden_expiring_values) {
        size.keys = key_tables_slot_size(&db->keys, slot);
        size.expires = key_tables_slot_size(&db->expires, slot);
    } else {
        db_slot_keys(db, slot, SIZE_MAX, slot_count_entry, &size);
    }
    return size;
}

struct db_slot_size db_hidden_size(struct db *db) {
    struct db_slot_size sum = {0};
    for (unsigned slot = 0; hidden_slots.count && slot < HASH_SLOTS; slot++) {
        if (!slot_is_hidden(slot)) continue;
        struct db_slot_size size = db_slot_size(db, slot);
        sum.keys += size.keys;
        sum.expires += size.expires;
        sum.expiring += size.expiring;
    }
    return sum;
}

/* Calls `visit` for each value with items that expire. */
static void slot_each_expiring(struct db *db, unsigned slot, void (*visit)(struct db *db, struct entry *entry)) {
    struct key_tables_iterator it;
    key_tables_iterator_open(&it, &db->keys, (int)slot);
    for (struct entry *e; (e = key_tables_iterator_next(&it));)
        if (entry_is_timed(e)) visit(db, e);
    key_tables_iterator_close(&it);
}

/* Values with items that expire are in the heap of their database. */
static void expiring_values_leave(struct db *db, unsigned slot) {
    size_t len = db->expiring_values.len, count = 0;
    if (slot_is_hidden(slot) && hidden_expiring_values) {
        slot_each_expiring(db, slot, db_expiring_leave);
        return;
    }
    if (!len) return;
    struct entry **leaving = mem_alloc(len * sizeof(*leaving));
    for (size_t i = 0; i < len; i++) {
        const struct expiring_value *value = db->expiring_values.items[i];
        if (hash_slot(entry_key_inline(value->entry)) == slot) leaving[count++] = value->entry;
    }
    for (size_t i = 0; i < count; i++) db_expiring_leave(db, leaving[i]);
    mem_free(leaving);
}

size_t keyspace_drop_slot(struct keyspace *k, unsigned slot, bool lazy) {
    size_t count = 0;
    for (int i = 0; i < k->databases; i++) {
        struct db *db = &k->db[i];
        if (!key_tables_slot_size(&db->keys, slot)) continue;
        k->hooks.slot_left(db, slot);
        expiring_values_leave(db, slot);
        struct key_tables keys = key_tables_init(db->keys.type, false), expires = keys;
        expires.type = db->expires.type;
        keys.table = key_tables_take_slot(&db->keys, slot);
        expires.table = key_tables_take_slot(&db->expires, slot);
        count += key_tables_size(&keys);
        tables_leave(db, (int)slot, keys, expires, lazy);
    }
    return count;
}

static void set_visible(struct keyspace *k, unsigned slot, bool visible) {
    for (int i = 0; i < k->databases; i++) {
        key_tables_slot_visible(&k->db[i].keys, slot, visible);
        key_tables_slot_visible(&k->db[i].expires, slot, visible);
    }
}

void keyspace_hide_slot(struct keyspace *k, unsigned slot) {
    if (slot_is_hidden(slot)) return;
    for (int i = 0; i < k->databases; i++)
        if (db_expiring(&k->db[i])) slot_each_expiring(&k->db[i], slot, db_expiring_leave);
    set_visible(k, slot, false);
    slot_bitmap_set(&hidden_slots.slots, slot);
    hidden_slots.count++;
    for (int i = 0; i < k->databases; i++)
        if (key_tables_slot_size(&k->db[i].keys, slot)) slot_each_expiring(&k->db[i], slot, db_expiring_join);
}

void keyspace_show_slot(struct keyspace *k, unsigned slot) {
    if (!slot_is_hidden(slot)) return;
    bool timed = hidden_expiring_values != 0;
    for (int i = 0; i < k->databases && timed; i++) slot_each_expiring(&k->db[i], slot, db_expiring_leave);
    slot_bitmap_clear(&hidden_slots.slots, slot);
    must(hidden_slots.count > 0);
    if (--hidden_slots.count == 0) hidden_expiring_values = 0; /* a flush does not count */
    set_visible(k, slot, true);
    for (int i = 0; i < k->databases && timed; i++) slot_each_expiring(&k->db[i], slot, db_expiring_join);
}

bool keyspace_slot_is_hidden(unsigned slot) {
    return slot_is_hidden(slot);
}
unsigned keyspace_hidden_slots(void) {
    return hidden_slots.count;
}
