/* entry.c: creates, reshapes and reads entries; see entry.h and entry_layout.h. */
#include "store/entry.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "store/extension.h"
#include "store/keyspace_layout.h"
#include "store/loan.h"
#include <stdatomic.h>

enum { LAZY_FREE_EFFORT = 64 };

static const struct value_ops *value_ops[VALUE_TYPES];

void value_ops_register(enum value_type type, const struct value_ops *ops) {
    must(type > TYPE_STRING && type < VALUE_TYPES && ops);
    value_ops[type] = ops;
}

const char *value_type_name(enum value_type type) {
    static const char *const names[VALUE_TYPES] = {"string", "list", "set", "zset", "hash", "stream", "extension"};
    return names[type];
}
const char *value_encoding_name(enum value_encoding encoding) {
    static const char *const names[] = {
        [ENCODING_RAW] = "raw",
        [ENCODING_INT] = "int",
        [ENCODING_EMBSTR] = "embstr",
        [ENCODING_LISTPACK] = "listpack",
        [ENCODING_QUICKLIST] = "quicklist",
        [ENCODING_INTSET] = "intset",
        [ENCODING_HASHTABLE] = "hashtable",
        [ENCODING_SKIPLIST] = "skiplist",
        [ENCODING_STREAM] = "stream",
        [ENCODING_EXPIRING_HASHTABLE] = "hashtable",
        [ENCODING_EXTENSION] = "raw",
    };
    return names[encoding];
}

/* --- Layout --- */

enum { SHORT_KEY_MAX = 255 };

static size_t shape_words(size_t key_len, struct entry_shape shape) {
    return (size_t)shape.expires + !shape.embedded + (key_len > SHORT_KEY_MAX);
}
static size_t shape_size(size_t key_len, struct entry_shape shape) {
    return sizeof(struct entry) + shape_words(key_len, shape) * 8 + key_len + (shape.embedded ? shape.value_len : 0);
}

/* Writes the header fields of the shape, and the length of a long key. */
static void shape_apply(struct entry *e, size_t key_len, struct entry_shape shape) {
    must(!shape.embedded || shape.value_len <= ENTRY_EMBED_MAX);
    size_t words = shape_words(key_len, shape);
    e->flags = (uint8_t)(words | (shape.expires ? ENTRY_EXPIRES : 0) | (shape.embedded ? ENTRY_EMBEDDED : 0) |
                         (key_len > SHORT_KEY_MAX ? ENTRY_LONG_KEY : 0));
    e->key_len = key_len > SHORT_KEY_MAX ? 0 : (uint8_t)key_len;
    e->value_len = shape.embedded ? (uint16_t)shape.value_len : 0;
    if (key_len > SHORT_KEY_MAX) *(size_t *)(void *)(e->data + (words - 1) * 8) = key_len;
}

struct entry *entry_make(struct slice key, struct entry_shape shape) {
    struct entry *e = mem_alloc(shape_size(key.len, shape));
    /* As a whole: to set bits of the word, the CPU would read it first. In a new page that is a page fault for a page
     * of zeros, and the write another one. */
    *e = (struct entry){.access = access_new(), .type = TYPE_STRING, .encoding = ENCODING_EMBSTR};
    shape_apply(e, key.len, shape);
    if (key.len) memcpy(e->data + (e->flags & ENTRY_WORDS) * 8, key.data, key.len);
    return e;
}

void entry_check_embstr(struct entry *e, size_t text_len) {
    enum { BLOCK = 128, OBJECT = 8, EXPIRY = 8, KEY_OFFSET = 1, TEXT = 4, KEY_SHORT = 2, KEY_LONG = 4, SHORT_MAX = 31 };
    if (e->type != TYPE_STRING || e->encoding != ENCODING_EMBSTR) return;
    size_t key = entry_key_inline(e).len;
    size_t needed = OBJECT + (entry_expires(e) ? EXPIRY : 0) + KEY_OFFSET + key +
                    (key <= SHORT_MAX ? KEY_SHORT : KEY_LONG) + TEXT + text_len;
    if (needed > BLOCK) e->encoding = ENCODING_RAW;
}

/* An entry keeps its block unless that would waste half of a block that is not tiny. */
bool entry_fits(const struct entry *e, struct entry_shape shape) {
    size_t needed = shape_size(entry_key_inline(e).len, shape), usable = mem_size(e);
    return needed <= usable && (usable <= 64 || needed * 2 >= usable);
}

struct entry *entry_reshape(struct entry *e, struct entry_shape shape) {
    struct slice key = entry_key_inline(e);
    bool expired_word = e->flags & ENTRY_EXPIRES, value_word = !(e->flags & ENTRY_EMBEDDED);
    int64_t expiry = expired_word ? *entry_expiry_word(e) : 0, value = value_word ? entry_number(e) : 0;
    size_t kept = 0;
    if (!value_word && shape.embedded) kept = e->value_len < shape.value_len ? e->value_len : shape.value_len;

    struct entry *to = entry_fits(e, shape) ? e : mem_alloc(shape_size(key.len, shape));
    *to = *e;
    memmove(to->data + shape_words(key.len, shape) * 8, key.data, key.len + kept);
    shape_apply(to, key.len, shape);
    if (shape.expires) *entry_expiry_word(to) = expiry;
    if (!shape.embedded) *(int64_t *)entry_value_word(to) = value;
    if (to != e) mem_free(e);
    return to;
}

struct entry *entry_under_key(const struct entry *from, struct slice key) {
    struct entry *e = entry_make(key, entry_shape_of(from));
    e->type = from->type;
    e->encoding = from->encoding;
    e->access = from->access;
    if (entry_expires(from)) *entry_expiry_word(e) = *entry_expiry_word(from);
    if (from->flags & ENTRY_EMBEDDED)
        memcpy(entry_embedded(e), entry_embedded(from), from->value_len), entry_check_embstr(e, from->value_len);
    else
        *(int64_t *)entry_value_word(e) = entry_number(from);
    return e;
}

/* --- Freeing --- */

struct value_free {
    void *value;
    enum value_type type;
    enum value_encoding encoding;
};

static void value_free_now(enum value_type type, enum value_encoding encoding, void *value) {
    if (type == TYPE_STRING)
        blob_release(value);
    else if (value_ops[type])
        value_ops[type]->free(value, encoding);
}

static void value_free_job(void *arg) {
    struct value_free *job = arg;
    value_free_now(job->type, job->encoding, job->value);
    mem_free(job);
    uint64_t before = atomic_fetch_sub_explicit(&store_lazyfree.pending, 1, memory_order_relaxed);
    must(before > 0);
    atomic_fetch_add_explicit(&store_lazyfree.freed, 1, memory_order_relaxed);
}

static void memory_free_job(void *memory) {
    mem_free(memory);
    uint64_t before = atomic_fetch_sub_explicit(&store_lazyfree.pending, 1, memory_order_relaxed);
    must(before > 0);
    atomic_fetch_add_explicit(&store_lazyfree.freed, 1, memory_order_relaxed);
}

void store_free_later(void *memory) {
    atomic_fetch_add_explicit(&store_lazyfree.pending, 1, memory_order_relaxed);
    background_submit(BACKGROUND_LAZY_FREE, memory_free_job, memory);
}

static bool has_pointer(const struct entry *e) {
    return !(e->flags & ENTRY_EMBEDDED) && e->encoding != ENCODING_INT;
}

static struct extension_place place_of(const struct entry *e, int db) {
    return (struct extension_place){db, entry_key_inline(e)};
}

size_t entry_allocations(const struct entry *e) {
    const struct value_ops *ops = value_ops[e->type];
    if (!has_pointer(e) || e->type == TYPE_EXTENSION || !ops || !ops->free_effort) return 1;
    return ops->free_effort(entry_pointer(e), e->encoding);
}

static bool frees_in_background(const struct entry *e, int db) {
    const struct value_ops *ops = value_ops[e->type];
    if (e->type == TYPE_EXTENSION) {
        const struct extension_value *structure = entry_pointer(e);
        const struct extension_methods *methods = structure->type->methods;
        struct extension_place place = place_of(e, db);
        size_t effort = methods->free_effort ? methods->free_effort(structure->type, &place, structure->value) : 1;
        return effort == 0 || effort > LAZY_FREE_EFFORT;
    }
    return ops && ops->free_effort && ops->free_effort(entry_pointer(e), e->encoding) > LAZY_FREE_EFFORT;
}

void entry_free_value(struct entry *e, int db, bool lazy) {
    if (!has_pointer(e)) return;
    struct value_free freed = {entry_pointer(e), e->type, e->encoding};
    bool kept = db >= 0 && unlikely(loans_count != 0) && loan_keeps(e, db);
    lazy = lazy && !kept && frees_in_background(e, db);
    /* Set it to the number 0: the entry must not refer to a value until it has its new shape and value. */
    e->type = TYPE_STRING;
    e->encoding = ENCODING_INT;
    *(int64_t *)entry_value_word(e) = 0;
    if (kept) return;
    if (lazy) {
        struct value_free *job = mem_alloc(sizeof(*job));
        *job = freed;
        atomic_fetch_add_explicit(&store_lazyfree.pending, 1, memory_order_relaxed);
        background_submit(BACKGROUND_LAZY_FREE, value_free_job, job);
    } else {
        value_free_now(freed.type, freed.encoding, freed.value);
    }
}

void entry_dispose(struct entry *e, int db, bool lazy) {
    entry_free_value(e, db, lazy);
    mem_free(e);
}
void entry_free(void *entry) {
    entry_dispose(entry, -1, false);
}

void *value_copy(const struct entry *e, int from_db, int to_db, struct slice to) {
    if (e->type == TYPE_EXTENSION) {
        const struct extension_value *structure = entry_pointer(e);
        const struct extension_methods *methods = structure->type->methods;
        struct extension_place from = place_of(e, from_db), target = {to_db, to};
        void *copy = methods->copy ? methods->copy(structure->type, &from, &target, structure->value) : NULL;
        return copy ? extension_value_new(structure->type, copy) : NULL;
    }
    return value_ops[e->type]->copy(entry_pointer(e), e->encoding);
}

static uint64_t extension_relocate(const struct entry *e, int db, struct extension_value **structure, uint64_t cursor,
                                   struct relocation *r) {
    const struct extension_type *type = (*structure)->type;
    struct extension_place place = place_of(e, db);
    relocate_block(r, (void **)structure);
    return type->methods->relocate ? type->methods->relocate(type, &place, &(*structure)->value, cursor, r) : 0;
}

uint64_t value_relocate(struct entry *e, int db, uint64_t cursor, struct relocation *r) {
    if (!has_pointer(e)) return 0;
    void *value = entry_pointer(e);
    if (e->type == TYPE_STRING) {
        struct blob *blob = value;
        blob_relocate(r, &blob);
        value = blob;
        cursor = 0;
    } else if (e->type == TYPE_EXTENSION) {
        struct extension_value *structure = value;
        cursor = extension_relocate(e, db, &structure, cursor, r);
        value = structure;
    } else {
        if (!value_ops[e->type]->relocate) return 0;
        cursor = value_ops[e->type]->relocate(&value, e->encoding, cursor, r);
    }
    *(void **)entry_value_word(e) = value;
    return cursor;
}

/* --- Reading --- */

struct slice entry_key(const struct entry *e) {
    return entry_key_inline(e);
}
enum value_type entry_type(const struct entry *e) {
    return e->type;
}
enum value_encoding entry_encoding(const struct entry *e) {
    return e->encoding;
}
const char *entry_type_name(const struct entry *e) {
    return e->type == TYPE_EXTENSION ? extension_of(e)->type->name : value_type_name(e->type);
}
int64_t entry_expire_at(const struct entry *e) {
    return entry_expires(e) ? *entry_expiry_word(e) : -1;
}
void *entry_value(const struct entry *e) {
    must(e->type != TYPE_STRING);
    return entry_pointer(e);
}

void entry_prefetch_value(const struct entry *e) {
    enum { LINE = 64 };
    if (!has_pointer(e)) return;
    const char *value = entry_pointer(e);
    __builtin_prefetch(value);
    __builtin_prefetch(value + LINE);
}

bool entry_is_expired(const struct entry *e) {
    return entry_expires(e) && time_is_over(*entry_expiry_word(e));
}

struct slice entry_string(const struct entry *e, char text[static STRING_NUMBER_TEXT]) {
    must_in_tests(e->type == TYPE_STRING);
    if (e->flags & ENTRY_EMBEDDED) return (struct slice){entry_embedded(e), e->value_len};
    if (e->encoding == ENCODING_INT) return (struct slice){text, format_int64(text, entry_number(e))};
    return blob_slice(entry_pointer(e));
}
size_t entry_string_len(const struct entry *e) {
    char text[STRING_NUMBER_TEXT];
    return entry_string(e, text).len;
}
struct blob *entry_blob(const struct entry *e) {
    return entry_has_blob(e) ? entry_pointer(e) : NULL;
}

bool entry_string_int64(const struct entry *e, int64_t *value) {
    if (e->encoding == ENCODING_INT) {
        *value = entry_number(e);
        return true;
    }
    char text[STRING_NUMBER_TEXT];
    return parse_int64(entry_string(e, text), value);
}

size_t entry_header_size(void) {
    return sizeof(struct entry);
}

size_t entry_memory(const struct entry *e, int db, size_t samples) {
    size_t bytes = mem_size(e) + sizeof(void *); /* and its slot in the table */
    if (entry_has_blob(e)) {
        bytes += blob_memory(entry_pointer(e));
    } else if (e->type == TYPE_EXTENSION) {
        const struct extension_value *structure = entry_pointer(e);
        const struct extension_methods *methods = structure->type->methods;
        struct extension_place place = place_of(e, db);
        bytes += mem_size(structure);
        if (methods->memory) bytes += methods->memory(structure->type, &place, structure->value, samples);
    } else if (has_pointer(e) && value_ops[e->type] && value_ops[e->type]->memory) {
        bytes += value_ops[e->type]->memory(entry_pointer(e), e->encoding, samples);
    }
    return bytes;
}
