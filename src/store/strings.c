/* strings.c: the strings of a database: setting and editing; see keyspace.h.
 *
 * A value is stored as a number if its text is a canonical integer, inside the entry up to ENTRY_EMBED_MAX bytes,
 * otherwise in a blob. Setting an existing key reuses its entry if the new value fits into the block. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "store/bulk.h"
#include "store/keyspace_layout.h"

enum { INT_TEXT_MAX = 20 };

struct string_value {
    struct slice bytes;
    struct blob *blob; /* NULL, or holds `bytes`; this struct owns the reference */
    int64_t number;
    bool is_number;
};

static struct string_value classify(struct slice bytes, struct blob *blob) {
    struct string_value v = {.bytes = bytes, .blob = blob};
    v.is_number = bytes.len <= INT_TEXT_MAX && parse_int64(bytes, &v.number);
    return v;
}
static bool value_embeds(const struct string_value *v) {
    return !v->is_number && v->bytes.len <= ENTRY_EMBED_MAX;
}
static struct entry_shape value_shape(const struct string_value *v, bool expires) {
    bool embedded = value_embeds(v);
    return (struct entry_shape){expires, embedded, embedded ? v->bytes.len : 0};
}

/* Writes the value into an entry that has the right shape and no value. */
static void value_write(struct entry *e, struct string_value *v) {
    e->type = TYPE_STRING;
    if (v->is_number) {
        e->encoding = ENCODING_INT;
        *(int64_t *)entry_value_word(e) = v->number;
    } else if (value_embeds(v)) {
        e->encoding = ENCODING_EMBSTR;
        entry_check_embstr(e, v->bytes.len);
        if (v->bytes.len) memmove(entry_embedded(e), v->bytes.data, v->bytes.len); /* may overlap */
    } else {
        e->encoding = ENCODING_RAW;
        *(void **)entry_value_word(e) = v->blob ? v->blob : blob_copy(v->bytes);
        v->blob = NULL;
    }
    if (v->blob) blob_release(v->blob);
}

/* True: the value's bytes are in the entry or its blob, so that reshaping the entry or freeing its value would
 * invalidate them. */
static bool value_lies_in(const struct string_value *v, const struct entry *e) {
    if (v->is_number || !v->bytes.len) return false;
    const char *at = v->bytes.data;
    if (at >= (const char *)e && at < (const char *)e + mem_size(e)) return true;
    const struct blob *blob = entry_blob(e);
    return blob && blob != v->blob && at >= blob->data && at <= blob->data + blob->len;
}

/* The new expiry of the entry: a time, none, or the current one. */
enum { EXPIRE_NONE = -1, EXPIRE_KEEP = -2 };

static struct entry *value_replace(struct db *db, struct entry *e, void **ref, struct string_value *v,
                                   int64_t expire_at) {
    bool expires = expire_at == EXPIRE_KEEP ? entry_expires(e) : expire_at != EXPIRE_NONE;
    struct entry_shape shape = value_shape(v, expires), now = entry_shape_of(e);
    struct blob *rescued = NULL;
    if (shape.expires != now.expires || shape.embedded != now.embedded || shape.value_len != now.value_len ||
        !shape.embedded) {
        if (__builtin_expect(value_lies_in(v, e), 0)) {
            rescued = blob_copy(v->bytes);
            v->bytes = blob_slice(rescued);
        }
        db_value_leaves(db, e);
        entry_free_value(e, db->id, store_settings.lazy_server_del);
        e = db_reshape(db, e, ref, shape);
    }
    value_write(e, v);
    if (expire_at >= 0) *entry_expiry_word(e) = expire_at;
    if (rescued) blob_release(rescued);
    hook_changed(db, e);
    return e;
}

static struct entry *value_set(struct db *db, struct slice key, struct string_value *v, int64_t expire_at,
                               bool *existed) {
    struct table_position position;
    void **ref = db_find_ref(db, key, &position);
    *existed = ref != NULL;
    if (ref && unlikely(store_settings.reports_removals)) hook_removing(db, key, REMOVAL_OVERWRITTEN);
    if (ref) return value_replace(db, *ref, ref, v, expire_at);
    struct entry *e = entry_make(key, value_shape(v, expire_at >= 0));
    value_write(e, v);
    if (expire_at >= 0) *entry_expiry_word(e) = expire_at;
    db_link(db, &position, e);
    hook_changed(db, e);
    return e;
}

struct entry *entry_new_int64(struct slice key, int64_t expire_at, int64_t value) {
    struct entry *e = entry_make(key, (struct entry_shape){.expires = expire_at >= 0});
    e->encoding = ENCODING_INT;
    *(int64_t *)entry_value_word(e) = value;
    if (expire_at >= 0) *entry_expiry_word(e) = expire_at;
    return e;
}
struct entry *entry_new_string(struct slice key, int64_t expire_at, struct slice value, struct blob *blob) {
    struct string_value v = classify(value, blob);
    struct entry *e = entry_make(key, value_shape(&v, expire_at >= 0));
    value_write(e, &v);
    if (expire_at >= 0) *entry_expiry_word(e) = expire_at;
    return e;
}

struct entry *db_put_string(struct db *db, struct slice key, struct slice value, struct blob *blob, int64_t expire_at,
                            int flags, bool *existed) {
    struct string_value v = {.bytes = value, .blob = blob};
    if (!(flags & PUT_TEXT)) v = classify(value, blob);
    struct entry *e = value_set(db, key, &v, flags & PUT_KEEP_TTL ? EXPIRE_KEEP : expire_at, existed);
    if (!*existed || flags & PUT_NO_TOUCH) return e;
    if (store_settings.lfu)
        entry_touch(e);
    else
        e->access = access_new();
    return e;
}

struct entry *db_set_string(struct db *db, struct slice key, struct slice value, struct blob *blob, bool keep_ttl) {
    struct string_value v = classify(value, blob);
    bool existed;
    return value_set(db, key, &v, keep_ttl ? EXPIRE_KEEP : EXPIRE_NONE, &existed);
}

struct entry *db_set_int64(struct db *db, struct slice key, int64_t value, bool keep_ttl) {
    struct string_value v = {.number = value, .is_number = true};
    bool existed;
    return value_set(db, key, &v, keep_ttl ? EXPIRE_KEEP : EXPIRE_NONE, &existed);
}

struct entry *db_replace_int64(struct db *db, struct entry *e, int64_t value) {
    before_key_changes(db, entry_key_inline(e));
    if (e->type == TYPE_STRING && e->encoding == ENCODING_INT) {
        *(int64_t *)entry_value_word(e) = value;
        hook_changed(db, e);
        return e;
    }
    struct string_value v = {.number = value, .is_number = true};
    return value_replace(db, e, NULL, &v, EXPIRE_KEEP);
}

/* Moves the string into a blob with a capacity of at least `capacity` bytes. */
static struct entry *edit_in_blob(struct db *db, struct entry *e, size_t capacity) {
    if (entry_has_blob(e) && !blob_is_shared(entry_pointer(e))) {
        *(void **)entry_value_word(e) = blob_grow(entry_pointer(e), capacity);
        return e;
    }
    char text[STRING_NUMBER_TEXT];
    struct slice bytes = entry_string(e, text);
    struct blob *blob = blob_new(bytes.len, capacity);
    if (bytes.len) memcpy(blob->data, bytes.data, bytes.len);
    entry_free_value(e, db->id, false);
    if (e->flags & ENTRY_EMBEDDED) e = db_reshape(db, e, NULL, (struct entry_shape){entry_expires(e), false, 0});
    e->encoding = ENCODING_RAW;
    *(void **)entry_value_word(e) = blob;
    return e;
}

static struct entry *edit_embedded(struct db *db, struct entry *e, size_t len) {
    struct entry_shape shape = {entry_expires(e), true, len};
    if (e->flags & ENTRY_EMBEDDED) {
        if (len != e->value_len) e = db_reshape(db, e, NULL, shape);
    } else { /* a number */
        char text[STRING_NUMBER_TEXT];
        struct slice bytes = entry_string(e, text);
        e = db_reshape(db, e, NULL, shape);
        memcpy(entry_embedded(e), bytes.data, bytes.len < len ? bytes.len : len);
    }
    e->encoding = ENCODING_RAW;
    return e;
}

struct entry *db_edit_string_silently(struct db *db, struct entry *e, size_t len, char **bytes) {
    size_t before = entry_string_len(e);
    must(e->type == TYPE_STRING);
    before_key_changes(db, entry_key_inline(e));
    if (len <= ENTRY_EMBED_MAX && !entry_has_blob(e)) {
        e = edit_embedded(db, e, len);
        *bytes = entry_embedded(e);
    } else {
        e = edit_in_blob(db, e, len);
        struct blob *blob = entry_pointer(e);
        must(len <= blob->capacity && !blob_is_shared(blob));
        blob->len = len;
        blob->crc = 0;
        *bytes = blob->data;
    }
    if (len > before) memset(*bytes + before, 0, len - before);
    return e;
}

struct entry *db_edit_string(struct db *db, struct entry *e, size_t len, char **bytes) {
    e = db_edit_string_silently(db, e, len, bytes);
    hook_changed(db, e);
    return e;
}
