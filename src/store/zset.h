/* zset.h: values of type sorted set: members with a score each, in the order of scores, and of bytes where scores are
 * equal.
 *
 * ENCODING_LISTPACK: a listpack of member, score, member, score …, in order; a score that is an integer is kept as one,
 * another as its shortest text. ENCODING_SKIPLIST: a skiplist and a table of its nodes by member. A sorted set becomes
 * the latter when it gets more members than zset-max-listpack-entries or one longer than zset-max-listpack-value.
 *
 * Functions take a `struct zset`, which names the structure without owning it: that of a key (zset_of), or one that is
 * being built and belongs to no key yet. A change may move or convert the structure: zset_keep() writes it back to its
 * entry. That a key changed is told with db_changed(), once a command; an emptied sorted set is to be deleted by the
 * caller.
 *
 * A member is a struct listpack_value: text, or, where data is NULL, a number. Text lies in the structure and is valid
 * until it changes. Ranks count from 0, from the lowest score. */
#ifndef STORE_ZSET_H
#define STORE_ZSET_H
#include "lib/hashtable.h"
#include "lib/listpack.h"
#include "lib/skiplist.h"
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

struct zset zset_new(size_t expected, size_t longest); /* for about so many members of up to that length */
void zset_free(struct zset *zset);
struct zset zset_of_members(const struct member_table *sorted);       /* they are copied */
void zset_expect(struct zset *zset, size_t expected, size_t longest); /* converts at once where that will be needed */

size_t zset_len(const struct zset *zset);
bool zset_score(const struct zset *zset, struct slice member, double *score); /* false: no such member */
bool zset_rank(const struct zset *zset, struct slice member, size_t *rank, double *score);

/* Adds a member or changes its score. */
enum zset_condition {
    ZSET_NX = 1,
    ZSET_XX = 2,
    ZSET_GT = 4,
    ZSET_LT = 8,
    ZSET_INCREMENT = 16 /* adds to the score there is */
};
enum zset_result {
    ZSET_NOTHING /* a condition was not met */,
    ZSET_SAME,
    ZSET_ADDED,
    ZSET_UPDATED,
    ZSET_NAN /* nothing done */
};
enum zset_result zset_put(struct zset *zset, double score, struct slice member, unsigned conditions, double *now);
bool zset_remove(struct zset *zset, struct slice member);        /* false: it was not there */
void zset_delete(struct zset *zset, size_t first, size_t count); /* by rank; as many as there are */

/* Ranges. A bound of scores, or of texts (all members having the same score then). */
struct zset_bound {
    enum { BOUND_SCORE, BOUND_TEXT, BOUND_LOWEST /* "-" */, BOUND_HIGHEST /* "+" */ } kind;
    bool exclusive;
    double score;
    struct slice text;
};
/* The members between two bounds: the rank of the first, and how many there are. */
size_t zset_between(const struct zset *zset, const struct zset_bound *low, const struct zset_bound *high,
                    size_t *first);

/* Walking, from a rank on, upwards or downwards. The sorted set must not change meanwhile. */
struct zset_iterator {
    const uint8_t *lp, *at;
    const struct skiplist_node *node;
    bool down;
};
void zset_iterate(struct zset_iterator *it, const struct zset *zset, size_t rank, bool down);
bool zset_next(struct zset_iterator *it, struct zset_item *item);
typedef void zset_seen(void *context, const struct zset_item *item); /* told a member */
/* With the guarantees of SCAN. A listpack is seen whole in one call. */
uint64_t zset_scan(const struct zset *zset, uint64_t cursor, zset_seen *seen, void *context);

void zset_random(const struct zset *zset, struct zset_item *item); /* fairly; of a sorted set that is not empty */
void zset_sample(const struct zset *zset, size_t count, zset_seen *seen,
                 void *context); /* `count` different members, less than there are */

struct hashtable *zset_table(const struct entry *entry); /* NULL: it is a listpack */
#endif
