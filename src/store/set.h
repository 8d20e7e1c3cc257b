/* set.h: values of type set: unordered members.
 *
 * ENCODING_INTSET: only integers, up to set-max-intset-entries of them.
 *
 * ENCODING_LISTPACK: a listpack of members in insertion order, up to set-max-listpack-entries of up to
 * set-max-listpack-value bytes.
 *
 * ENCODING_HASHTABLE: a table of members, each in one allocation:
 *
 *     length 1 byte | [length of a long member 8 bytes, if the first is 255] | member
 *
 * An intset is converted when a member is not an integer (to a listpack if that can hold the members) or when there are
 * too many; a listpack when members are too many or too long.
 *
 * Functions take a `struct set`, a reference to the structure without ownership: the structure of a key (set_of), or
 * one under construction that belongs to no key yet. A change may move or convert the structure: set_keep() stores it
 * in its entry. The caller reports the change with db_changed(), once per command, and deletes an empty set.
 *
 * A member is a struct listpack_value: text, or a number if data is NULL. "12" and 12 are the same member. Text points
 * into the set and is valid until the set changes. */
#pragma once
#include "lib/structures/hashtable.h"
#include "lib/structures/intset.h"
#include "lib/structures/listpack.h"
#include "store/keyspace.h"

struct set {
    enum value_encoding encoding;
    void *value;
};
static inline struct set set_of(const struct entry *entry) {
    return (struct set){entry_encoding(entry), entry_value(entry)};
}
void set_keep(struct db *db, struct entry *entry, const struct set *set);

/* Creates an empty set with the encoding for about `expected` members like `first`. */
struct set set_new(struct slice first, size_t expected);
struct set set_new_as(enum value_encoding encoding);
void set_free(struct set *set);
void set_expect(struct set *set, size_t more); /* announces new members: converts immediately if necessary */
void set_compact(struct set *set); /* call when a set is complete: to an intset if possible; frees spare memory */

size_t set_len(const struct set *set);
bool set_has(const struct set *set, struct slice member);
bool set_has_value(const struct set *set, const struct listpack_value *member);
bool set_add(struct set *set, struct slice member); /* false: it exists */
bool set_add_value(struct set *set, const struct listpack_value *member);
void set_add_new(struct set *set, const struct listpack_value *member); /* a member that is known to be new */
bool set_remove(struct set *set, struct slice member);                  /* false: no such member */

/* Iteration: the set must not change meanwhile. */
struct set_iterator {
    const struct set *set;
    size_t index; /* intset: index of the next member */
    uint8_t *at;  /* listpack: the next element */
    struct hashtable_iterator table;
};
void set_iterate(struct set_iterator *it, const struct set *set);
bool set_next(struct set_iterator *it, struct listpack_value *member);
void set_iterate_end(struct set_iterator *it);
typedef void set_visitor(void *context, const struct listpack_value *member); /* called with each member */
/* Has the guarantees of SCAN. One call visits all of an intset or a listpack. */
uint64_t set_scan(const struct set *set, uint64_t cursor, set_visitor *visit, void *context);

void set_random(const struct set *set, struct listpack_value *member); /* uniform; the set must not be empty */
void set_sample(const struct set *set, size_t count, set_visitor *visit,
                void *context); /* visits `count` distinct members; count must be less than the size */
void set_pop(struct set *set, size_t count, set_visitor *visit,
             void *context); /* the same, and removes them after each visit */

struct hashtable *set_table(const struct entry *entry); /* NULL: the set is not a table */
