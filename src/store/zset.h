/* zset.h: values of type sorted set: members with one score each, ordered by score, then by bytes.
 *
 * ENCODING_LISTPACK: a listpack of member, score, member, score …, in order; an integer score is stored as an integer,
 * others as their shortest text.
 *
 * ENCODING_SKIPLIST: a skiplist and a table of its nodes by member. A sorted set is converted to it when it exceeds
 * zset-max-listpack-entries members or a member exceeds zset-max-listpack-value bytes.
 *
 * Functions take a `struct zset`, a reference to the structure without ownership: the structure of a key (zset_of), or
 * one under construction that belongs to no key yet. A change may move or convert the structure: zset_keep() stores it
 * in its entry. The caller reports the change with db_changed(), once per command, and deletes an empty sorted set.
 *
 * A member is a struct listpack_value: text, or a number if data is NULL. Text points into the structure and is valid
 * until it changes. Ranks count from 0, from the lowest score. */
#pragma once
#include "lib/structures/listpack.h"
#include "lib/structures/skiplist.h"
#include "store/keyspace.h"
#include "store/member_table.h"

struct zset {
    enum value_encoding encoding;
    void *value;
};
struct zset_item {
    struct listpack_value member;
    double score;
};
static inline struct zset zset_of(const struct entry *entry) {
    return (struct zset){entry_encoding(entry), entry_value(entry)};
}
void zset_keep(struct db *db, struct entry *entry, const struct zset *zset);

struct zset zset_new(size_t expected, size_t longest); /* for about `expected` members of up to `longest` bytes */
void zset_free(struct zset *zset);
struct zset zset_of_members(const struct member_table *sorted);       /* copies the members */
void zset_index(struct zset *zset);                                   /* converts to ENCODING_SKIPLIST */
void zset_expect(struct zset *zset, size_t expected, size_t longest); /* converts now if it will be necessary */

size_t zset_len(const struct zset *zset);
bool zset_score(const struct zset *zset, struct slice member, double *score); /* false: no such member */
bool zset_rank(const struct zset *zset, struct slice member, size_t *rank, double *score);

/* Adds a member or changes its score. */
enum zset_condition {
    ZSET_NX = 1,
    ZSET_XX = 2,
    ZSET_GT = 4,
    ZSET_LT = 8,
    ZSET_INCREMENT = 16 /* adds to the current score */
};
enum zset_result {
    ZSET_NOTHING /* a condition is not met; no change */,
    ZSET_SAME,
    ZSET_ADDED,
    ZSET_UPDATED,
    ZSET_NAN /* the score would be NaN; no change */
};
enum zset_result zset_put(struct zset *zset, double score, struct slice member, unsigned conditions, double *now);
bool zset_remove(struct zset *zset, struct slice member);        /* false: no such member */
void zset_delete(struct zset *zset, size_t first, size_t count); /* by rank; up to the end */

/* Ranges. A bound of scores, or of texts (meaningful only if all members have the same score). */
struct zset_bound {
    enum { BOUND_SCORE, BOUND_TEXT, BOUND_LOWEST /* "-" */, BOUND_HIGHEST /* "+" */ } kind;
    bool exclusive;
    double score;
    struct slice text;
};
/* The members between two bounds: sets the rank of the first, returns their number. If the bounds are texts and scores
 * differ, a listpack is searched as in Valkey, from the end that `down` names: the range begins at the first member
 * within the bound of that end, and ends before the first one that is beyond the other bound. Leaves out the first
 * `skip` members at that end; a listpack does not compare these with the other bound, but for the very first one. */
size_t zset_between(const struct zset *zset, const struct zset_bound *low, const struct zset_bound *high, bool down,
                    size_t skip, size_t *first);

/* Iteration from a rank, upwards or downwards. The sorted set must not change meanwhile. */
struct zset_iterator {
    const uint8_t *lp, *at;
    const struct skiplist_node *node;
    bool down;
};
void zset_iterate(struct zset_iterator *it, const struct zset *zset, size_t rank, bool down);
bool zset_next(struct zset_iterator *it, struct zset_item *item);
typedef void zset_visitor(void *context, const struct zset_item *item); /* called with each member */
/* Has the guarantees of SCAN. One call visits all of a listpack. */
uint64_t zset_scan(const struct zset *zset, uint64_t cursor, zset_visitor *visit, void *context);

void zset_random(const struct zset *zset, struct zset_item *item); /* uniform; the sorted set must not be empty */
void zset_sample(const struct zset *zset, size_t count, zset_visitor *visit,
                 void *context); /* visits `count` distinct members; count must be less than the size */

struct hashtable *zset_table(const struct entry *entry); /* NULL: the sorted set is a listpack */
