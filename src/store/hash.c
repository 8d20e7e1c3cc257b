/* hash.c: see hash.h. */
#include "store/hash.h"
#include "lib/memory.h"
#include "lib/random.h"
#include "store/types_private.h"

/* --- A field of the table ------------------------------------------------------------------------------------------- */

enum { FIELD_LONG = 1, FIELD_BLOB = 2, SHORT_FIELD_MAX = 255, WORD = 8 };

struct hash_field {
    uint8_t flags, field_len;
    uint16_t value_len;
    char data[];
};
_Static_assert(sizeof(size_t) == WORD && sizeof(void *) == WORD, "words of a field");

static inline size_t field_words(const struct hash_field *f) {
    return (f->flags & FIELD_LONG ? WORD : 0) + (f->flags & FIELD_BLOB ? WORD : 0);
}
static inline struct slice field_name(const struct hash_field *f) {
    size_t len = f->field_len;
    if (__builtin_expect(f->flags & FIELD_LONG, 0)) memcpy(&len, f->data, WORD);
    return (struct slice){f->data + field_words(f), len};
}
static inline struct blob *field_blob(const struct hash_field *f) {
    struct blob *blob = NULL;
    if (f->flags & FIELD_BLOB) memcpy(&blob, f->data + (f->flags & FIELD_LONG ? WORD : 0), WORD);
    return blob;
}
static inline void field_set_blob(struct hash_field *f, struct blob *blob) {
    memcpy(f->data + (f->flags & FIELD_LONG ? WORD : 0), &blob, WORD);
}
static inline struct slice field_value(const struct hash_field *f) {
    struct blob *blob = field_blob(f);
    if (blob) return blob_slice(blob);
    struct slice name = field_name(f);
    return (struct slice){name.data + name.len, f->value_len};
}

/* Takes over the blob's reference. */
static struct hash_field *field_make(struct slice name, struct slice value, struct blob *blob) {
    bool in_blob = value.len > HASH_EMBED_MAX, is_long = name.len > SHORT_FIELD_MAX;
    size_t words = (size_t)(in_blob + is_long) * WORD;
    struct hash_field *f = mem_alloc(sizeof *f + words + name.len + (in_blob ? 0 : value.len));
    f->flags = (uint8_t)((is_long ? FIELD_LONG : 0) | (in_blob ? FIELD_BLOB : 0));
    f->field_len = is_long ? 0 : (uint8_t)name.len;
    f->value_len = in_blob ? 0 : (uint16_t)value.len;
    if (is_long) memcpy(f->data, &name.len, WORD);
    if (name.len) memcpy(f->data + words, name.data, name.len);
    if (in_blob) {
        field_set_blob(f, blob ? blob : blob_copy(value));
    } else {
        if (value.len) memcpy(f->data + words + name.len, value.data, value.len);
        if (blob) blob_release(blob);
    }
    return f;
}
static void field_free(void *entry) {
    struct blob *blob = field_blob(entry);
    if (blob) blob_release(blob);
    mem_free(entry);
}

/* Gives the field another value, where it is if its block is of the right size, else in a new one. The value may lie in the field itself. */
static struct hash_field *field_change(struct hash_field *f, struct slice value, struct blob *blob) {
    struct slice name = field_name(f);
    size_t needed = sizeof *f + field_words(f) + name.len + value.len, usable = mem_size(f);
    bool embeds = value.len <= HASH_EMBED_MAX;
    if (embeds && !(f->flags & FIELD_BLOB) && needed <= usable && (usable <= 64 || needed * 2 >= usable)) {
        if (value.len) memmove(f->data + field_words(f) + name.len, value.data, value.len);
        f->value_len = (uint16_t)value.len;
        if (blob) blob_release(blob);
        return f;
    }
    struct hash_field *changed = field_make(name, value, blob);
    field_free(f);
    return changed;
}

static struct slice table_key(const void *entry) {
    return field_name(entry);
}
static const struct hashtable_type table_type = {.key = table_key, .free_entry = field_free};
static const struct hashtable_type sample_type = {.key = table_key};

/* --- Structure ------------------------------------------------------------------------------------------------------ */

static inline bool packed(const struct entry *e) {
    return entry_encoding(e) == ENCODING_LISTPACK;
}
struct hashtable *hash_table(const struct entry *e) {
    return packed(e) ? NULL : entry_value(e);
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
        hashtable_add(table, field_make(name, listpack_text(p, value_text), NULL));
        p = listpack_next(lp, p);
    }
    db_set_value(db, e, ENCODING_HASHTABLE, table);
    listpack_free(lp);
}

void hash_expect(struct db *db, struct entry *e, size_t fields) {
    if (packed(e) && fields > (uint64_t)encoding_limits.hash_listpack_entries) convert(db, e, fields);
}

size_t hash_len(const struct entry *e) {
    return packed(e) ? listpack_count(entry_value(e)) / 2 : hashtable_size(entry_value(e));
}

/* --- Reading -------------------------------------------------------------------------------------------------------- */

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
    value_of_field(f, &item->value);
}
/* Returns the element behind. */
static uint8_t *item_of_element(const uint8_t *lp, const uint8_t *p, struct hash_item *item) {
    item->field = listpack_text(p, item->text);
    p = listpack_next(lp, p);
    value_of_element(p, &item->value);
    return listpack_next(lp, p);
}

bool hash_get(const struct entry *e, struct slice field, struct hash_value *value) {
    if (packed(e)) {
        const uint8_t *lp = entry_value(e), *p = packed_find(lp, field);
        if (p) value_of_element(listpack_next(lp, p), value);
        return p;
    }
    const struct hash_field *f = hashtable_find(entry_value(e), field);
    if (f) value_of_field(f, value);
    return f;
}
bool hash_has(const struct entry *e, struct slice field) {
    return packed(e) ? packed_find(entry_value(e), field) != NULL
                     : hashtable_find(entry_value(e), field) != NULL;
}

/* --- Changing ------------------------------------------------------------------------------------------------------- */

static bool packed_allowed(const uint8_t *lp, struct slice field, struct slice value) {
    uint64_t longest = (uint64_t)encoding_limits.hash_listpack_value;
    return field.len <= longest && value.len <= longest &&
           listpack_has_room(lp, listpack_size_of(field) + listpack_size_of(value));
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

bool hash_put(struct db *db, struct entry *e, struct slice field, struct slice value, struct blob *blob) {
    if (packed(e)) {
        if (packed_allowed(entry_value(e), field, value)) {
            if (blob) blob_release(blob);
            return packed_put(db, e, field, value);
        }
        convert(db, e, 0);
    }
    struct hashtable_spot spot;
    void **place = hashtable_find_or_spot(entry_value(e), field, &spot);
    if (place)
        *place = field_change(*place, value, blob);
    else
        hashtable_add_at(entry_value(e), &spot, field_make(field, value, blob));
    return !place;
}

bool hash_delete(struct db *db, struct entry *e, struct slice field) {
    if (!packed(e)) return hashtable_delete(entry_value(e), field);
    uint8_t *lp = entry_value(e), *p = packed_find(lp, field);
    if (!p) return false;
    db_set_value(db, e, ENCODING_LISTPACK, listpack_delete(lp, &p, 2));
    return true;
}

/* --- Walking -------------------------------------------------------------------------------------------------------- */

void hash_iterate(struct hash_iterator *it, const struct entry *e) {
    it->lp = packed(e) ? entry_value(e) : NULL;
    if (it->lp)
        it->at = listpack_first(it->lp);
    else
        hashtable_iterator_open(&it->table, entry_value(e));
}
bool hash_next(struct hash_iterator *it, struct hash_item *item) {
    if (it->lp) {
        if (!it->at) return false;
        it->at = item_of_element(it->lp, it->at, item);
        return true;
    }
    const struct hash_field *f = hashtable_iterator_next(&it->table);
    if (f) item_of_field(f, item);
    return f;
}
void hash_iterate_end(struct hash_iterator *it) {
    if (!it->lp) hashtable_iterator_close(&it->table);
}

struct scan {
    void (*seen)(void *context, const struct hash_item *item);
    void *context;
};
static void scan_seen(void *context, void *field) {
    const struct scan *scan = context;
    struct hash_item item;
    item_of_field(field, &item);
    scan->seen(scan->context, &item);
}
uint64_t hash_scan(const struct entry *e, uint64_t cursor,
                   void (*seen)(void *context, const struct hash_item *item), void *context) {
    if (!packed(e)) return hashtable_scan(entry_value(e), cursor, scan_seen, &(struct scan){seen, context});
    const uint8_t *lp = entry_value(e);
    struct hash_item item;
    for (const uint8_t *p = listpack_first(lp); p;) {
        p = item_of_element(lp, p, &item);
        seen(context, &item);
    }
    return 0;
}

void hash_random(const struct entry *e, struct hash_item *item) {
    if (packed(e)) {
        const uint8_t *lp = entry_value(e);
        item_of_element(lp, listpack_seek(lp, (int64_t)random_below(listpack_count(lp) / 2) * 2), item);
    } else {
        item_of_field(hashtable_random(entry_value(e)), item);
    }
}

void hash_sample(const struct entry *e, size_t count,
                 void (*seen)(void *context, const struct hash_item *item), void *context) {
    struct hash_item item;
    if (packed(e)) {
        const uint8_t *lp = entry_value(e);
        uint8_t *p = listpack_first(lp);
        size_t index = 0, total = listpack_count(lp) / 2;
        for (; count && (p = listpack_next_random(lp, p, &index, total, count, 2)); count--) {
            p = item_of_element(lp, p, &item);
            seen(context, &item);
        }
    } else {
        table_sample(entry_value(e), &sample_type, count, scan_seen, &(struct scan){seen, context});
    }
}

/* --- For the keyspace ----------------------------------------------------------------------------------------------- */

static void value_free(void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK)
        listpack_free(value);
    else
        hashtable_free(value);
}
static size_t value_free_effort(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_LISTPACK ? 1 : hashtable_size(value);
}
static void *value_copy_of(const void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK) return listpack_copy(value);
    struct hashtable *copy = hashtable_new(&table_type);
    hashtable_expand(copy, hashtable_size(value));
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, (struct hashtable *)value);
    for (const struct hash_field *f; (f = hashtable_iterator_next(&it));) {
        struct blob *blob = field_blob(f);
        hashtable_add(copy, field_make(field_name(f), field_value(f), blob ? blob_hold(blob) : NULL));
    }
    hashtable_iterator_close(&it);
    return copy;
}
static size_t field_memory(const void *field) {
    const struct blob *blob = field_blob(field);
    return mem_size(field) + (blob ? blob_memory(blob) : 0);
}
static size_t value_memory(const void *value, enum value_encoding encoding, size_t samples) {
    if (encoding == ENCODING_LISTPACK) return mem_size(value);
    return table_memory((struct hashtable *)value, samples, field_memory);
}
const struct value_ops hash_ops = {value_free, value_free_effort, value_copy_of, value_memory};
