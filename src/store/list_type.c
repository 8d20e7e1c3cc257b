/* list_type.c: lists of both encodings; quicklist.c implements the quicklist. */
#include "store/list_type.h"
#include "lib/system/memory.h"
#include "store/quicklist.h"

static inline bool packed(const struct entry *e) {
    return entry_encoding(e) == ENCODING_LISTPACK;
}

/* --- Encodings --- */

struct entry *list_type_create(struct db *db, struct slice key) {
    return db_add_value(db, key, TYPE_LIST, ENCODING_LISTPACK, listpack_new(0));
}
size_t list_type_len(const struct entry *e) {
    return packed(e) ? listpack_count(entry_value(e)) : quicklist_len(entry_value(e));
}

void list_type_expect(struct db *db, struct entry *e, size_t count, size_t bytes) {
    if (!packed(e)) return;
    uint8_t *lp = entry_value(e);
    if (!quicklist_node_exceeds(listpack_bytes(lp) + bytes, listpack_count(lp) + count) &&
        listpack_has_space(lp, bytes))
        return;
    db_set_value(db, e, ENCODING_QUICKLIST, quicklist_new(lp));
}
void list_type_shrunk(struct db *db, struct entry *e) {
    uint8_t *lp = packed(e) ? NULL : quicklist_to_listpack(entry_value(e));
    if (lp) db_set_value(db, e, ENCODING_LISTPACK, lp);
}

/* --- Changes --- */

static void keep(struct db *db, struct entry *e, uint8_t *lp) {
    db_set_value(db, e, ENCODING_LISTPACK, lp);
}

void list_type_push(struct db *db, struct entry *e, enum list_type_end end, struct slice text, struct blob *blob) {
    if (!packed(e)) {
        quicklist_push(entry_value(e), end == LIST_TYPE_HEAD, text, blob);
        return;
    }
    uint8_t *lp = entry_value(e);
    keep(db, e, end == LIST_TYPE_HEAD ? listpack_prepend(lp, text) : listpack_append(lp, text));
    if (blob) blob_release(blob);
}

void list_type_delete(struct db *db, struct entry *e, int64_t index, size_t count) {
    if (packed(e))
        keep(db, e, listpack_delete_range(entry_value(e), index, count));
    else
        quicklist_delete(entry_value(e), index, count);
}

bool list_type_replace(struct db *db, struct entry *e, int64_t index, struct slice text, struct blob *blob) {
    if (!packed(e)) return quicklist_replace(entry_value(e), index, text, blob);
    uint8_t *lp = entry_value(e), *at = listpack_seek(lp, index);
    if (at) keep(db, e, listpack_replace(lp, &at, listpack_text_value(text)));
    if (blob) blob_release(blob);
    return at;
}

bool list_type_insert(struct db *db, struct entry *e, struct slice pivot, bool after, struct slice text,
                      struct blob *blob) {
    if (!packed(e)) return quicklist_insert(entry_value(e), pivot, after, text, blob);
    uint8_t *lp = entry_value(e), *at = listpack_find(lp, listpack_first(lp), pivot, 0);
    bool found = at;
    if (found) {
        if (after) at = listpack_next(lp, at);
        keep(db, e, listpack_insert(lp, &at, listpack_text_value(text)));
    }
    if (blob) blob_release(blob);
    return found;
}

size_t list_type_remove(struct db *db, struct entry *e, struct slice text, int64_t count) {
    bool backward = count < 0;
    size_t most = count == 0 ? SIZE_MAX : count < 0 ? (size_t)0 - (size_t)count : (size_t)count;
    if (!packed(e)) return quicklist_remove(entry_value(e), text, most, backward);
    uint8_t *lp = entry_value(e);
    size_t removed = quicklist_remove_packed(&lp, text, most, backward);
    keep(db, e, lp);
    return removed;
}

void list_type_describe(const struct entry *e, struct quicklist_stats *nodes) {
    if (packed(e))
        *nodes = (struct quicklist_stats){0};
    else
        quicklist_describe(entry_value(e), nodes);
}

/* --- Whole nodes --- */

size_t list_type_nodes(const struct entry *e) {
    return packed(e) ? 1 : quicklist_nodes(entry_value(e));
}
void list_type_each_node(const struct entry *e, void (*visit)(void *context, const struct list_node_view *node),
                         void *context) {
    if (!packed(e)) {
        quicklist_each_node(entry_value(e), visit, context);
        return;
    }
    uint8_t *lp = entry_value(e);
    visit(context, &(struct list_node_view){.bytes = {(const char *)lp, listpack_bytes(lp)}});
}

void list_type_append_node(struct db *db, struct entry *e, uint8_t *lp) {
    bool whole = !quicklist_node_exceeds(listpack_bytes(lp), listpack_count(lp));
    if (whole && packed(e) && listpack_count(entry_value(e)) == 0) {
        listpack_free(entry_value(e));
        keep(db, e, lp);
        return;
    }
    if (whole) {
        if (packed(e)) db_set_value(db, e, ENCODING_QUICKLIST, quicklist_new(entry_value(e)));
        quicklist_append_node(entry_value(e), lp);
        return;
    }
    char text[LISTPACK_TEXT];
    list_type_expect(db, e, listpack_count(lp), listpack_bytes(lp));
    for (uint8_t *at = listpack_first(lp); at; at = listpack_next(lp, at))
        list_type_push(db, e, LIST_TYPE_TAIL, listpack_text(at, text), NULL);
    listpack_free(lp);
}

/* --- Iteration --- */

void list_type_iterate(struct list_type_iterator *it, const struct entry *e, int64_t index, bool backward) {
    *it = (struct list_type_iterator){.backward = backward};
    if (packed(e)) {
        it->lp = entry_value(e);
        it->at = listpack_seek(it->lp, index);
    } else {
        quicklist_iterate(it, entry_value(e), index);
    }
}
bool list_type_next(struct list_type_iterator *it, struct list_type_element *element) {
    if (!it->at && !quicklist_iterate_next(it, element)) return false;
    if (it->at) {
        element->value = listpack_get(it->at);
        element->blob = NULL;
        it->at = it->backward ? listpack_prev(it->lp, it->at) : listpack_next(it->lp, it->at);
    }
    return true;
}
void list_type_iterate_end(struct list_type_iterator *it) {
    mem_free(it->unpacked);
}

/* --- For the keyspace --- */

static void value_free(void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK)
        listpack_free(value);
    else
        quicklist_free(value);
}
static size_t value_free_effort(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_LISTPACK ? 1 : quicklist_nodes(value);
}
static void *value_copy_of(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_LISTPACK ? (void *)listpack_copy(value) : (void *)quicklist_copy(value);
}
static size_t value_memory(const void *value, enum value_encoding encoding, size_t samples) {
    return encoding == ENCODING_LISTPACK ? mem_size(value) : quicklist_memory(value, samples);
}
static uint64_t value_relocate_some(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r) {
    if (encoding == ENCODING_QUICKLIST) return quicklist_relocate(*value, cursor, r);
    relocate_block(r, value);
    return 0;
}
const struct value_ops list_ops = {value_free, value_free_effort, value_copy_of, value_memory, value_relocate_some};
