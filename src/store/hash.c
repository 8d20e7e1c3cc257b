/* hash.c: see hash.h. */
#include "store/hash.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "store/hash_field.h"
#include "store/types_private.h"

/* --- Fields of the table --- */

/* Takes over the blob's reference; the caller sets the time. */
static struct hash_field *field_make(struct slice name, struct slice value, struct blob *blob, bool expires) {
    bool in_blob = value.len > HASH_EMBED_MAX, is_long = name.len > SHORT_FIELD_MAX;
    size_t words = 2 * (size_t)expires + in_blob + is_long;
    struct hash_field *f = mem_alloc(sizeof *f + words * WORD + name.len + (in_blob ? 0 : value.len));
    f->flags =
        (uint8_t)(words | (is_long ? FIELD_LONG : 0) | (in_blob ? FIELD_BLOB : 0) | (expires ? FIELD_EXPIRES : 0));
    f->name_len = is_long ? 0 : (uint8_t)name.len;
    f->value_len = in_blob ? 0 : (uint16_t)value.len;
    char *at = f->data + words * WORD;
    if (is_long) memcpy(at - WORD, &name.len, WORD);
    if (name.len) memcpy(at, name.data, name.len);
    if (in_blob) {
        if (!blob) blob = blob_copy(value);
        memcpy(field_blob_word(f), &blob, WORD);
    } else {
        if (value.len) memcpy(at + name.len, value.data, value.len);
        if (blob) blob_release(blob);
    }
    return f;
}
void field_free(void *entry) {
    struct blob *blob = field_blob(entry);
    if (blob) blob_release(blob);
    mem_free(entry);
}

/* Replaces the value in place if the field's block has a suitable size. `value` may point into the field itself. */
static inline bool field_take(struct hash_field *f, struct slice value, struct blob *blob) {
    struct slice name = field_name(f);
    size_t needed = sizeof *f + field_words(f) + name.len + value.len, usable = mem_size(f);
    if (value.len > HASH_EMBED_MAX || needed > usable || (usable > 64 && needed * 2 < usable)) return false;
    if (value.len) memmove((char *)name.data + name.len, value.data, value.len);
    f->flags &= (uint8_t)~FIELD_REFERENCE;
    f->value_len = (uint16_t)value.len;
    if (blob) blob_release(blob);
    return true;
}
/* Reallocates the field with another value, which may point into the old field. If the field has an expiry before and
 * after, its words stay unchanged. */
static __attribute__((noinline)) struct hash_field *field_remake(struct hash_field *f, struct slice value,
                                                                 struct blob *blob, bool expires) {
    struct hash_field *new = field_make(field_name(f), value, blob, expires);
    if (expires && field_expires(f)) memcpy(new->data, f->data, 2 * WORD);
    field_free(f);
    return new;
}

static struct slice table_key(const void *entry) {
    return field_name(entry);
}
static const struct hashtable_type table_type = {.key = table_key, .free_entry = field_free};
static const struct hashtable_type sample_type = {.key = table_key};

/* --- Structure --- */

static inline bool packed(const struct entry *e) {
    return entry_encoding(e) == ENCODING_LISTPACK;
}
static inline struct hashtable *table_of(const struct entry *e) {
    return __builtin_expect(entry_is_timed(e), 0) ? expiring_hash_of(e)->table : entry_value(e);
}
struct hashtable *hash_table(const struct entry *e) {
    return packed(e) ? NULL : table_of(e);
}

struct entry *hash_create(struct db *db, struct slice key) {
    return db_add_value(db, key, TYPE_HASH, ENCODING_LISTPACK, listpack_new(0));
}

static void convert(struct db *db, struct entry *e, size_t expected) {
    uint8_t *lp = entry_value(e);
    char name_text[LISTPACK_TEXT], value_text[LISTPACK_TEXT];
    size_t count = listpack_count(lp) / 2;
    struct hashtable *table = hashtable_new(&table_type);
    hashtable_expand(table, expected > count ? expected : count);
    for (uint8_t *p = listpack_first(lp); p;) {
        struct slice name = listpack_text(p, name_text);
        p = listpack_next(lp, p);
        must(p); /* pairs of field and value */
        bool added = hashtable_add(table, field_make(name, listpack_text(p, value_text), NULL, false));
        must(added);
        p = listpack_next(lp, p);
    }
    db_set_value(db, e, ENCODING_HASHTABLE, table);
    listpack_free(lp);
}

void hash_unpack(struct db *db, struct entry *e, size_t fields) {
    if (packed(e)) convert(db, e, fields);
}
void hash_expect(struct db *db, struct entry *e, size_t fields) {
    if (fields > (uint64_t)encoding_limits.hash_listpack_entries) hash_unpack(db, e, fields);
}

size_t hash_len(const struct entry *e) {
    return packed(e) ? listpack_count(entry_value(e)) / 2 : hashtable_size(table_of(e));
}
size_t hash_len_now(const struct entry *e) {
    size_t len = hash_len(e), due = entry_is_timed(e) ? expiring_hash_due(expiring_hash_of(e)) : 0;
    must_within(due, len);
    return len - due;
}

/* --- Reading --- */

static inline uint8_t *packed_find(const uint8_t *lp, struct slice field) {
    return listpack_find(lp, listpack_first(lp), field, 1);
}
static inline void value_of_field(const struct hash_field *f, struct hash_value *value) {
    value->bytes = field_value(f);
    value->blob = field_blob(f);
}
static inline void value_of_element(const uint8_t *p, struct hash_value *value) {
    value->bytes = listpack_text(p, value->text);
    value->blob = NULL;
}
static void item_of_field(const struct hash_field *f, struct hash_item *item) {
    item->field = field_name(f);
    item->expire_at = field_expires(f) ? field_time(f) : HASH_NEVER;
    value_of_field(f, &item->value);
}
/* Returns the element after the value. */
static uint8_t *item_of_element(const uint8_t *lp, const uint8_t *p, struct hash_item *item) {
    item->field = listpack_text(p, item->text);
    item->expire_at = HASH_NEVER;
    p = listpack_next(lp, p);
    value_of_element(p, &item->value);
    return listpack_next(lp, p);
}

static inline const struct hash_field *table_find(const struct entry *e, struct slice field) {
    const struct hash_field *f = hashtable_find(table_of(e), field);
    return f && !field_is_expired(f) ? f : NULL;
}

bool hash_get(const struct entry *e, struct slice field, struct hash_value *value) {
    if (packed(e)) {
        const uint8_t *lp = entry_value(e), *p = packed_find(lp, field);
        if (p) value_of_element(listpack_next(lp, p), value);
        return p;
    }
    const struct hash_field *f = table_find(e, field);
    if (f) value_of_field(f, value);
    return f;
}
bool hash_has(const struct entry *e, struct slice field) {
    return packed(e) ? packed_find(entry_value(e), field) != NULL : table_find(e, field) != NULL;
}
int64_t hash_expire_at(const struct entry *e, struct slice field) {
    if (packed(e)) return packed_find(entry_value(e), field) ? HASH_NEVER : HASH_NO_FIELD;
    const struct hash_field *f = table_find(e, field);
    return !f ? HASH_NO_FIELD : field_expires(f) ? field_time(f) : HASH_NEVER;
}

/* --- Changes --- */

static bool packed_allowed(const uint8_t *lp, struct slice field, struct slice value) {
    uint64_t longest = (uint64_t)encoding_limits.hash_listpack_value;
    return field.len <= longest && value.len <= longest &&
           listpack_has_space(lp, listpack_size_of(field) + listpack_size_of(value));
}

static bool packed_put(struct db *db, struct entry *e, struct slice field, struct slice value) {
    uint8_t *lp = entry_value(e), *p = packed_find(lp, field);
    bool new = !p;
    if (new) {
        struct listpack_value pair[2] = {listpack_text_value(field), listpack_text_value(value)};
        lp = listpack_append_many(lp, pair, 2);
    } else {
        p = listpack_next(lp, p);
        lp = listpack_replace(lp, &p, listpack_text_value(value));
    }
    db_set_value(db, e, ENCODING_LISTPACK, lp);
    if (listpack_count(lp) / 2 > (uint64_t)encoding_limits.hash_listpack_entries) convert(db, e, 0);
    return new;
}

/* Sets the value and the expiry of the field in a slot of the table. */
static __attribute__((noinline)) void table_retime(struct db *db, struct entry *e, void **slot, struct slice value,
                                                   struct blob *blob, int64_t expire_at) {
    struct hash_field *f = *slot;
    bool expired = field_expires(f), expires = expire_at >= 0 || (expired && expire_at == HASH_KEEP);
    if (expired && !expires) hash_field_expiry_removed(db, e, f);
    if (expired != expires || f->flags & FIELD_BLOB || !field_take(f, value, blob))
        *slot = f = field_remake(f, value, blob, expires);
    if (expires) hash_field_expiry_added(db, e, f, expired, expire_at);
}

static inline bool table_put(struct db *db, struct entry *e, struct slice field, struct slice value, struct blob *blob,
                             int64_t expire_at) {
    struct hashtable_position spot;
    void **slot = hashtable_find_or_prepare(table_of(e), field, &spot);
    if (!slot) {
        struct hash_field *f = field_make(field, value, blob, expire_at >= 0);
        hashtable_add_at(table_of(e), &spot, f);
        if (__builtin_expect(expire_at >= 0, 0)) hash_field_expiry_added(db, e, f, false, expire_at);
        return true;
    }
    struct hash_field *f = *slot;
    bool plain = expire_at < 0 && !(f->flags & (FIELD_EXPIRES | FIELD_BLOB));
    if (__builtin_expect(!plain || !field_take(f, value, blob), 0)) table_retime(db, e, slot, value, blob, expire_at);
    return false;
}

static inline bool hash_type_put(struct db *db, struct entry *e, struct slice field, struct slice value,
                                 struct blob *blob, int64_t expire_at) {
    if (packed(e)) {
        if (expire_at < 0 && packed_allowed(entry_value(e), field, value)) {
            if (blob) blob_release(blob);
            return packed_put(db, e, field, value);
        }
        convert(db, e, 0);
    }
    return table_put(db, e, field, value, blob, expire_at);
}
bool hash_put(struct db *db, struct entry *e, struct slice field, struct slice value, struct blob *blob) {
    return hash_type_put(db, e, field, value, blob, HASH_NEVER);
}
bool hash_put_until(struct db *db, struct entry *e, struct slice field, struct slice value, struct blob *blob,
                    int64_t expire_at) {
    return hash_type_put(db, e, field, value, blob, expire_at);
}

bool hash_set_reference(struct db *db, struct entry *e, struct slice field, struct slice value) {
    if (!hash_has(e, field)) return false;
    if (packed(e)) convert(db, e, 0);
    hash_type_put(db, e, field, value, NULL, HASH_KEEP);
    struct hash_field *f = *hashtable_find_slot(table_of(e), field);
    f->flags |= FIELD_REFERENCE;
    return true;
}
bool hash_is_reference(const struct entry *e, struct slice field) {
    if (packed(e)) return false;
    const struct hash_field *f = table_find(e, field);
    return f && f->flags & FIELD_REFERENCE;
}

void hash_set_expire(struct db *db, struct entry *e, struct slice field, int64_t at) {
    if (packed(e)) {
        if (at < 0) return;
        convert(db, e, 0);
    }
    void **slot = hashtable_find_slot(table_of(e), field);
    must(slot);
    struct blob *blob = field_blob(*slot);
    table_retime(db, e, slot, field_value(*slot), blob ? blob_hold(blob) : NULL, at);
}

bool hash_delete(struct db *db, struct entry *e, struct slice field) {
    if (__builtin_expect(entry_is_timed(e), 0)) return expiring_hash_delete(db, e, field);
    if (!packed(e)) return hashtable_delete(entry_value(e), field);
    uint8_t *lp = entry_value(e), *p = packed_find(lp, field);
    if (!p) return false;
    db_set_value(db, e, ENCODING_LISTPACK, listpack_delete(lp, &p, 2));
    return true;
}

/* --- Iteration --- */

void hash_iterate(struct hash_iterator *it, const struct entry *e) {
    hash_iterate_all(it, e);
    it->all = !entry_is_timed(e);
}
void hash_iterate_all(struct hash_iterator *it, const struct entry *e) {
    it->all = true;
    it->lp = packed(e) ? entry_value(e) : NULL;
    if (it->lp)
        it->at = listpack_first(it->lp);
    else
        hashtable_iterator_open(&it->table, table_of(e));
}
bool hash_next(struct hash_iterator *it, struct hash_item *item) {
    if (it->lp) {
        if (!it->at) return false;
        it->at = item_of_element(it->lp, it->at, item);
        return true;
    }
    const struct hash_field *f = hashtable_iterator_next(&it->table);
    while (f && !it->all && field_is_expired(f)) f = hashtable_iterator_next(&it->table);
    if (f) item_of_field(f, item);
    return f;
}
void hash_iterate_end(struct hash_iterator *it) {
    if (!it->lp) hashtable_iterator_close(&it->table);
}

struct field_scan {
    void (*visit)(void *context, const struct hash_item *item);
    void *context;
};
static void scan_seen(void *context, void *field) {
    const struct field_scan *scan = context;
    struct hash_item item;
    if (field_is_expired(field)) return;
    item_of_field(field, &item);
    scan->visit(scan->context, &item);
}
uint64_t hash_scan(const struct entry *e, uint64_t cursor, void (*visit)(void *context, const struct hash_item *item),
                   void *context) {
    if (!packed(e)) return hashtable_scan(table_of(e), cursor, scan_seen, &(struct field_scan){visit, context});
    const uint8_t *lp = entry_value(e);
    struct hash_item item;
    for (const uint8_t *p = listpack_first(lp); p;) {
        p = item_of_element(lp, p, &item);
        visit(context, &item);
    }
    return 0;
}

/* Draws until it finds an unexpired field; if there are few, it selects one by counting. */
static void table_random(const struct entry *e, struct hash_item *item) {
    for (int tries = 50; tries; tries--) {
        const struct hash_field *f = hashtable_random(table_of(e));
        must(f);
        if (field_is_expired(f)) continue;
        item_of_field(f, item);
        return;
    }
    struct hash_iterator it;
    hash_iterate(&it, e);
    for (uint64_t left = random_below(hash_len_now(e)); hash_next(&it, item) && left; left--) continue;
    hash_iterate_end(&it);
}

void hash_random(const struct entry *e, struct hash_item *item) {
    if (packed(e)) {
        const uint8_t *lp = entry_value(e);
        item_of_element(lp, listpack_seek(lp, (int64_t)random_below(listpack_count(lp) / 2) * 2), item);
    } else {
        table_random(e, item);
    }
}

/* Returns the `live` unexpired fields. NULL: out of memory. */
static const struct hash_field **live_fields(const struct entry *e, size_t live) {
    struct hashtable_iterator it;
    const struct hash_field **fields = mem_try_alloc(live * sizeof *fields), *f;
    size_t count = 0;
    if (!fields) return NULL;
    hashtable_iterator_open(&it, table_of(e));
    while (count < live && (f = hashtable_iterator_next(&it)))
        if (!field_is_expired(f)) fields[count++] = f;
    hashtable_iterator_close(&it);
    must_equal(count, live);
    return fields;
}

void hash_draw(const struct entry *e, size_t count, bool (*visit)(void *context, const struct hash_item *item),
               void *context) {
    size_t total = hash_len(e), live = hash_len_now(e);
    const struct hash_field **fields = live < total / 2 && count > 1 ? live_fields(e, live) : NULL;
    struct hash_item item;
    for (bool more = true; count && more; count--) {
        if (fields)
            item_of_field(fields[random_below(live)], &item);
        else
            hash_random(e, &item);
        more = visit(context, &item);
    }
    mem_free(fields);
}

/* Samples a hash with expired fields: takes each unexpired field with the remaining probability. */
static void walk_sample(const struct entry *e, size_t count, size_t left, const struct field_scan *scan) {
    struct hash_iterator it;
    struct hash_item item;
    for (hash_iterate(&it, e); count && hash_next(&it, &item); left--) {
        if (random_below(left) >= count) continue;
        scan->visit(scan->context, &item);
        count--;
    }
    hash_iterate_end(&it);
    must_equal(count, (size_t)0); /* a reply has announced that many */
}

void hash_sample(const struct entry *e, size_t count, void (*visit)(void *context, const struct hash_item *item),
                 void *context) {
    struct hash_item item;
    if (packed(e)) {
        const uint8_t *lp = entry_value(e);
        uint8_t *p = listpack_first(lp);
        size_t index = 0, total = listpack_count(lp) / 2;
        for (; count && (p = listpack_next_random(lp, p, &index, total, count, 2)); count--) {
            p = item_of_element(lp, p, &item);
            visit(context, &item);
        }
        must_equal(count, (size_t)0);
    } else {
        struct field_scan scan = {visit, context};
        size_t left = hash_len_now(e);
        if (left < hash_len(e))
            walk_sample(e, count, left, &scan);
        else
            table_sample(table_of(e), &sample_type, count, scan_seen, &scan);
    }
}

/* --- For the keyspace --- */

static struct hashtable *table_in(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_EXPIRING_HASHTABLE ? ((const struct expiring_hash *)value)->table
                                                   : (struct hashtable *)value;
}

static void value_free(void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK) {
        listpack_free(value);
        return;
    }
    hashtable_free(table_in(value, encoding));
    if (encoding == ENCODING_EXPIRING_HASHTABLE) expiring_hash_free(value);
}
static size_t value_free_effort(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_LISTPACK ? 1 : hashtable_size(table_in(value, encoding));
}
static struct hashtable *table_copy(struct hashtable *table) {
    struct hashtable *copy = hashtable_new(&table_type);
    hashtable_expand(copy, hashtable_size(table));
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, table);
    for (const struct hash_field *f; (f = hashtable_iterator_next(&it));) {
        struct blob *blob = field_blob(f);
        struct hash_field *new =
            field_make(field_name(f), field_value(f), blob ? blob_hold(blob) : NULL, field_expires(f));
        if (field_expires(f)) memcpy(new->data, f->data, 2 * WORD);
        bool added = hashtable_add(copy, new);
        must(added);
    }
    hashtable_iterator_close(&it);
    return copy;
}
static void *value_copy_of(const void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK) return listpack_copy(value);
    struct hashtable *copy = table_copy(table_in(value, encoding));
    return encoding == ENCODING_EXPIRING_HASHTABLE ? (void *)expiring_hash_copy(value, copy) : copy;
}
static size_t field_memory(const void *field) {
    const struct blob *blob = field_blob(field);
    return mem_size(field) + (blob ? blob_memory(blob) : 0);
}
static size_t value_memory(const void *value, enum value_encoding encoding, size_t samples) {
    if (encoding == ENCODING_LISTPACK) return mem_size(value);
    size_t bytes = table_memory(table_in(value, encoding), samples, field_memory);
    return encoding == ENCODING_EXPIRING_HASHTABLE ? bytes + expiring_hash_memory(value) : bytes;
}

struct field_relocation {
    struct relocation *r;
    struct expiring_hash *hash; /* NULL: no field expires */
};
static void field_relocate(void *context, void **ref) {
    const struct field_relocation *relocation = context;
    struct hash_field *f = *ref;
    struct blob *blob = field_blob(f);
    if (blob) {
        blob_relocate(relocation->r, &blob);
        memcpy(field_blob_word(f), &blob, WORD);
    }
    struct hash_field *copy = relocate_begin(relocation->r, f);
    if (!copy) return;
    *ref = copy;
    if (field_expires(copy)) expiring_hash_moved(relocation->hash, copy);
    relocate_end(f);
}
static uint64_t value_relocate_some(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r) {
    if (encoding == ENCODING_LISTPACK) {
        relocate_block(r, value);
        return 0;
    }
    struct field_relocation relocation = {r, encoding == ENCODING_EXPIRING_HASHTABLE ? *value : NULL};
    return table_relocate(table_in(*value, encoding), cursor, r, field_relocate, &relocation);
}
const struct value_ops hash_ops = {value_free, value_free_effort, value_copy_of, value_memory, value_relocate_some};
