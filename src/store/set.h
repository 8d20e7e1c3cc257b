/* set.h: values of type set: members without order.
 *
 * ENCODING_INTSET: integers only, up to set-max-intset-entries of them. ENCODING_LISTPACK: a listpack of members, in
 * the order in which they came, up to set-max-listpack-entries of up to set-max-listpack-value bytes.
 * ENCODING_HASHTABLE: a table of members, each in one allocation:
 *
 *     length 1 byte | [length of a long member 8 bytes, where the first says 255] | member
 *
 * A set outgrows an intset by a member that is no integer (to a listpack, where that would hold it) or by too many; a
 * listpack by too many or too long members.
 *
 * Functions take a `struct set`, which names the structure without owning it: that of a key (set_of), or one that is
 * being built and belongs to no key yet. A change may move or convert the structure: set_keep() writes it back to its
 * entry. That a key changed is told with db_changed(), once a command; an emptied set is to be deleted by the caller.
 *
 * A member is a struct listpack_value: text, or, where data is NULL, a number. "12" and 12 are the same member. Text
 * lies in the set and is valid until it changes. */
#ifndef STORE_SET_H
#define STORE_SET_H
#include "lib/hashtable.h"
#include "lib/intset.h"
#include "lib/listpack.h"
#include "store/keyspace.h"

struct set {
    enum value_encoding encoding;
    void *value;
};
static inline struct set set_of(const struct entry *entry) {
    return (struct set){entry_encoding(entry), entry_value(entry)};
}
void set_keep(struct db *db, struct entry *entry, const struct set *set);

/* An empty set in the encoding that suits about `expected` members like `first`. */
struct set set_new(struct slice first, size_t expected);
struct set set_new_as(enum value_encoding encoding);
void set_free(struct set *set);
void set_expect(struct set *set,
                size_t more);      /* so many members are to be added: converts at once where that will be needed */
void set_compact(struct set *set); /* a set that was built and is done: to an intset where it holds integers only and
                                      few enough; gives spare memory back */

size_t set_len(const struct set *set);
bool set_has(const struct set *set, struct slice member);
bool set_has_value(const struct set *set, const struct listpack_value *member);
bool set_add(struct set *set, struct slice member); /* false: it was there */
bool set_add_value(struct set *set, const struct listpack_value *member);
void set_add_new(struct set *set, const struct listpack_value *member); /* one that is known not to be there */
bool set_remove(struct set *set, struct slice member);                  /* false: it was not there */

/* Walking: the set must not change meanwhile. */
struct set_iterator {
    const struct set *set;
    size_t index; /* of an intset */
    uint8_t *at;  /* of a listpack */
    struct hashtable_iterator table;
};
void set_iterate(struct set_iterator *it, const struct set *set);
bool set_next(struct set_iterator *it, struct listpack_value *member);
void set_iterate_end(struct set_iterator *it);
typedef void set_seen(void *context, const struct listpack_value *member); /* told a member */
/* With the guarantees of SCAN. Other encodings than a table are seen whole in one call. */
uint64_t set_scan(const struct set *set, uint64_t cursor, set_seen *seen, void *context);

void set_random(const struct set *set, struct listpack_value *member); /* fairly; of a set that is not empty */
void set_sample(const struct set *set, size_t count, set_seen *seen,
                void *context); /* `count` different members, less than there are */
void set_pop(struct set *set, size_t count, set_seen *seen,
             void *context); /* the same, and they are taken out after they were seen */

struct hashtable *set_table(const struct entry *entry); /* NULL: another encoding */

#endif
