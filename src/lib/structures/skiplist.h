/* skiplist.h: strings ordered by score, then by bytes, with ranks.
 *
 * A node and its text are one allocation. Each level of a node has a pointer to the next node of that level and the
 * distance to it, so searches also compute ranks. One node in four has a second level, one in four of those a third,
 * and so on.
 *
 * The list owns its nodes; a node removed with skiplist_take() belongs to the caller, who frees it or inserts it again.
 * The list must not hold two nodes with the same score and text. Scores are not NaN. Ranks count from 0. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

struct skiplist;
struct skiplist_node {
    double score;
    struct skiplist_node *prev; /* NULL: the first */
    struct skiplist_level {
        struct skiplist_node *next; /* of this level; NULL: the last */
        uint64_t span; /* the distance to `next`; level 0 stores the node's height and text length instead (the distance
                          is 1) */
    } levels[];        /* followed by the text */
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
void skiplist_take(struct skiplist *list, struct skiplist_node *node); /* unlinks the node */
void skiplist_node_free(struct skiplist_node *node);
/* Replaces a node by its copy at another address. The caller frees the old node. */
void skiplist_replace(struct skiplist *list, struct skiplist_node *node, struct skiplist_node *copy);
void skiplist_rescore(struct skiplist *list, struct skiplist_node *node,
                      double score); /* moves the node to its new position */
/* Removes and frees up to `count` nodes from rank `first` on; calls `visit` for each before it frees it. */
void skiplist_delete(struct skiplist *list, size_t first, size_t count,
                     void (*visit)(void *context, struct skiplist_node *node), void *context);

struct skiplist_node *skiplist_first(const struct skiplist *list);
struct skiplist_node *skiplist_last(const struct skiplist *list);
static inline struct skiplist_node *skiplist_next(const struct skiplist_node *node) {
    return node->levels[0].next;
}
struct skiplist_node *skiplist_at(const struct skiplist *list, size_t rank); /* NULL: out of range */
size_t skiplist_rank(const struct skiplist *list, const struct skiplist_node *node);
/* Counts the nodes for which `before` returns true. They must form a prefix of the list. */
size_t skiplist_count_before(const struct skiplist *list,
                             bool (*before)(const void *context, const struct skiplist_node *node),
                             const void *context);
