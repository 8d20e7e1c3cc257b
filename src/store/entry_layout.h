/* entry_layout.h: the memory layout of an entry. For the files of store/ only; see entry.h.
 *
 *     bytes 0-3   access field (24 bits), type (4), encoding (4)
 *     bytes 4-5   length of an embedded string
 *     byte  6     flags: number and kinds of the words before the key
 *     byte  7     length of the key if it is below 256
 *     words       [expiry] [value word: number or pointer] [length of a long key], 8 bytes each
 *     then        the key, followed by the embedded string
 *
 * The key precedes the string, so that a string can change its length without moving the key. With a 16-byte key and a
 * 16-byte value an entry takes 40 bytes. */
#pragma once
#include "lib/system/clock.h"
#include "lib/system/must.h"
#include "store/entry.h"

enum entry_flags {
    ENTRY_WORDS = 3, /* number of words before the key */
    ENTRY_EXPIRES = 4,
    ENTRY_EMBEDDED = 8, /* an embedded string follows the key; otherwise there is a value word */
    ENTRY_LONG_KEY = 16
};

struct entry {
    uint32_t access : 24;
    uint32_t type : 4;
    uint32_t encoding : 4;
    uint16_t value_len;
    uint8_t flags;
    uint8_t key_len;
    char data[];
};
_Static_assert(sizeof(struct entry) == 8, "the words behind the header are aligned");

/* The properties besides the key that determine the layout. */
struct entry_shape {
    bool expires, embedded;
    size_t value_len; /* of an embedded string */
};

static inline struct slice entry_key_inline(const struct entry *e) {
    const char *key = e->data + (size_t)(e->flags & ENTRY_WORDS) * 8;
    if (__builtin_expect(e->flags & ENTRY_LONG_KEY, 0))
        return (struct slice){key, *(const size_t *)(const void *)(key - 8)};
    return (struct slice){key, e->key_len};
}
static inline int64_t *entry_expiry_word(const struct entry *e) {
    must_in_tests(e->flags & ENTRY_EXPIRES);
    return (int64_t *)(void *)e->data;
}
/* Only for entries without an embedded string. */
static inline void *entry_value_word(const struct entry *e) {
    must_in_tests(!(e->flags & ENTRY_EMBEDDED));
    return (char *)e->data + (e->flags & ENTRY_EXPIRES ? 8 : 0);
}
static inline int64_t entry_number(const struct entry *e) {
    return *(int64_t *)entry_value_word(e);
}
static inline void *entry_pointer(const struct entry *e) {
    return *(void **)entry_value_word(e);
}
static inline char *entry_embedded(const struct entry *e) {
    struct slice key = entry_key_inline(e);
    return (char *)key.data + key.len;
}
static inline bool entry_has_blob(const struct entry *e) {
    return e->type == TYPE_STRING && e->encoding != ENCODING_INT && !(e->flags & ENTRY_EMBEDDED);
}
static inline bool entry_expires(const struct entry *e) {
    return e->flags & ENTRY_EXPIRES;
}

/* Changes the reported encoding of a string from embstr to raw if it is too long for embstr: key, expiry and text, each
 * with its header in Valkey's layout, must fit in 128 bytes, which allows up to 112 bytes for short keys, or 104 with
 * an expiry. A raw string stays raw until it is set again. Call it after a change of the text, the key or the expiry.
 */
void entry_check_embstr(struct entry *entry, size_t text_len);

/* Allocates an entry: type string, the value not written, the access field of a new key. */
struct entry *entry_make(struct slice key, struct entry_shape shape);
/* True: the entry can take the shape in place. */
bool entry_fits(const struct entry *entry, struct entry_shape shape);
/* Gives the entry the shape, in place if it fits, otherwise in a new allocation. Keeps the parts that both shapes have:
 * the expiry, the value word, and the beginning of embedded strings. Does not free the memory to which the value word
 * points. */
struct entry *entry_reshape(struct entry *entry, struct entry_shape shape);
static inline struct entry_shape entry_shape_of(const struct entry *e) {
    return (struct entry_shape){e->flags & ENTRY_EXPIRES, e->flags & ENTRY_EMBEDDED, e->value_len};
}

/* Creates an entry like `from`, with its expiry and access field, under another key. Copies the value word; the caller
 * ensures that a single entry owns the value. */
struct entry *entry_under_key(const struct entry *from, struct slice key);

/* Frees the value only, in the background if it is large and `lazy`. `db`: the number of its database; -1: it was in
 * none, or its tables have left their database: the value is not lent. The value word is invalid afterwards. */
void entry_free_value(struct entry *entry, int db, bool lazy);
void entry_free(void *entry); /* frees entry and value in the calling thread; any thread */
/* Frees entry and value; the value possibly in the background. */
void entry_dispose(struct entry *entry, int db, bool lazy);
/* For types other than string. NULL: a value of an extension that cannot be copied. */
void *value_copy(const struct entry *entry, int from_db, int to_db, struct slice to);
/* As `relocate` of struct value_ops, for any entry. */
uint64_t value_relocate(struct entry *entry, int db, uint64_t cursor, struct relocation *r);

/* The access field. */
uint32_t access_new(void);
void entry_touch(struct entry *entry);
