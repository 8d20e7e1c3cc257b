/* skiplist.h: texts in the order of their scores, and of their bytes where scores are equal, with ranks.
 *
 * A node stands in one allocation with its text. Each level of a node has a pointer to the next node of that level and
 * the distance to it, so that the rank of a node and the node of a rank are found on the way. One node in four has a
 * second level, one in four of those a third, and so on.
 *
 * The list owns its nodes, but a node that was taken out is the caller's, to be freed or put back. Two nodes with the
 * same score and text must not be in it. Scores are not NaN. Ranks count from 0. */
#ifndef LIB_SKIPLIST_H
#define LIB_SKIPLIST_H
#include "lib/slice.h"
#include <stdint.h>

struct skiplist;
struct skiplist_node {
    double score;
    struct skiplist_node *prev; /* NULL: the first */
    struct skiplist_level {
        struct skiplist_node *next; /* of this level; NULL: the last */
        uint64_t span; /* how far it is to `next`. On level 0 that is 1, and the word holds the node's height and length
                          instead */
    } levels[];        /* then the text */
};
enum { SKIPLIST_HEIGHT_BITS = 8 };

struct skiplist *skiplist_new(void);
void skiplist_free(struct skiplist *list);
size_t skiplist_len(const struct skiplist *list);
static inline struct slice skiplist_text(const struct skiplist_node *node) {
    uint64_t meta = node->levels[0].span;
    return (struct slice){(const char *)(node->levels + (meta & ((1 << SKIPLIST_HEIGHT_BITS) - 1))),
                          meta >> SKIPLIST_HEIGHT_BITS};
}
/* <0, 0, >0 */
int skiplist_compare(double a_score, struct slice a, double b_score, struct slice b);

struct skiplist_node *skiplist_insert(struct skiplist *list, double score, struct slice text);
void skiplist_take(struct skiplist *list, struct skiplist_node *node); /* takes it out */
void skiplist_node_free(struct skiplist_node *node);
void skiplist_rescore(struct skiplist *list, struct skiplist_node *node, double score); /* moves it where it belongs */
/* Takes out and frees the nodes of the ranks from `first` on, as many as there are, each after `seen` was called. */
void skiplist_delete(struct skiplist *list, size_t first, size_t count,
                     void (*seen)(void *context, struct skiplist_node *node), void *context);

struct skiplist_node *skiplist_first(const struct skiplist *list);
struct skiplist_node *skiplist_last(const struct skiplist *list);
static inline struct skiplist_node *skiplist_next(const struct skiplist_node *node) {
    return node->levels[0].next;
}
struct skiplist_node *skiplist_at(const struct skiplist *list, size_t rank); /* NULL: there is none */
size_t skiplist_rank(const struct skiplist *list, const struct skiplist_node *node);
/* How many nodes `before` says yes to; it must do so to all that stand before one to which it does. */
size_t skiplist_count_before(const struct skiplist *list,
                             bool (*before)(const void *context, const struct skiplist_node *node),
                             const void *context);
#endif
