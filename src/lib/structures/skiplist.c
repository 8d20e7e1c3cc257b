/* skiplist.c: see skiplist.h. After Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees" (1990), with the
 * distances that his "A Skip List Cookbook" adds for ranks.
 *
 * Rejected: a B-tree, which touches fewer cache lines in a search. A skiplist node keeps its address for its lifetime,
 * so the member table can point to it, and an iteration over a range only follows pointers. */
#include "lib/structures/skiplist.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"

enum { HEIGHT_MAX = 32 };

struct skiplist {
    struct skiplist_node *tail;
    size_t len;
    int height;                /* height of the tallest node, at least 1 */
    struct skiplist_node head; /* has HEIGHT_MAX levels and no text */
};

static inline int node_height(const struct skiplist_node *node) {
    return (int)(node->levels[0].span & ((1 << SKIPLIST_HEIGHT_BITS) - 1));
}
static inline uint64_t span_of(const struct skiplist_node *node, int level) {
    return level ? node->levels[level].span : 1;
}
static inline void span_set(struct skiplist_node *node, int level, uint64_t span) {
    if (level) node->levels[level].span = span;
}

int skiplist_compare(double a_score, struct slice a, double b_score, struct slice b) {
    if (a_score != b_score) return a_score < b_score ? -1 : 1;
    return slice_compare(a, b);
}
static inline bool node_before(const struct skiplist_node *node, double score, struct slice text) {
    return node->score < score || (node->score == score && slice_compare(skiplist_text(node), text) < 0);
}

/* --- Creation and destruction --- */

struct skiplist *skiplist_new(void) {
    struct skiplist *list = mem_calloc(1, sizeof *list + HEIGHT_MAX * sizeof(struct skiplist_level));
    list->height = 1;
    return list;
}
void skiplist_free(struct skiplist *list) {
    for (struct skiplist_node *node = skiplist_first(list), *next; node; node = next) {
        next = skiplist_next(node);
        mem_free(node);
    }
    mem_free(list);
}
size_t skiplist_len(const struct skiplist *list) {
    return list->len;
}

static int random_height(void) {
    uint64_t bits = random_u64();
    int height = 1;
    for (; height < HEIGHT_MAX && (bits & 3) == 0; bits >>= 2) height++;
    return height;
}
static struct skiplist_node *node_new(double score, struct slice text) {
    int height = random_height();
    struct skiplist_node *node = mem_alloc(sizeof *node + (size_t)height * sizeof *node->levels + text.len);
    node->score = score;
    node->levels[0].span = (uint64_t)text.len << SKIPLIST_HEIGHT_BITS | (uint64_t)height;
    if (text.len) memcpy(node->levels + height, text.data, text.len);
    return node;
}
void skiplist_node_free(struct skiplist_node *node) {
    mem_free(node);
}

/* --- Changing --- */

/* For each level, the last node before a position and its rank + 1 (the number of nodes up to and including it). */
struct path {
    struct skiplist_node *nodes[HEIGHT_MAX];
    uint64_t ranks[HEIGHT_MAX];
};
static void find_path(struct skiplist *list, double score, struct slice text, struct path *path) {
    struct skiplist_node *node = &list->head;
    uint64_t rank = 0;
    for (int level = list->height - 1; level >= 0; level--) {
        for (struct skiplist_node *next; (next = node->levels[level].next) && node_before(next, score, text);
             node = next)
            rank += span_of(node, level);
        path->nodes[level] = node;
        path->ranks[level] = rank;
    }
}
static void find_path_to_rank(struct skiplist *list, size_t wanted, struct path *path) {
    struct skiplist_node *node = &list->head;
    uint64_t rank = 0;
    for (int level = list->height - 1; level >= 0; level--) {
        for (struct skiplist_node *next; (next = node->levels[level].next) && rank + span_of(node, level) <= wanted;
             node = next)
            rank += span_of(node, level);
        path->nodes[level] = node;
        path->ranks[level] = rank;
    }
}

static void link_node(struct skiplist *list, struct skiplist_node *node) {
    struct path path;
    find_path(list, node->score, skiplist_text(node), &path);
    int height = node_height(node);
    for (; list->height < height; list->height++) {
        path.nodes[list->height] = &list->head;
        path.ranks[list->height] = 0;
        span_set(&list->head, list->height, list->len);
    }
    uint64_t rank = path.ranks[0];
    for (int level = 0; level < list->height; level++) {
        struct skiplist_node *before = path.nodes[level];
        if (level >= height) {
            span_set(before, level, span_of(before, level) + 1);
            continue;
        }
        uint64_t distance = rank - path.ranks[level];
        must_within(distance, span_of(before, level));
        node->levels[level].next = before->levels[level].next;
        before->levels[level].next = node;
        span_set(node, level, span_of(before, level) - distance);
        span_set(before, level, distance + 1);
    }
    node->prev = path.nodes[0] == &list->head ? NULL : path.nodes[0];
    if (skiplist_next(node))
        skiplist_next(node)->prev = node;
    else
        list->tail = node;
    list->len++;
}

/* Unlinks the node after the path. */
static void unlink_node(struct skiplist *list, struct skiplist_node *node, const struct path *path) {
    must(path->nodes[0]->levels[0].next == node && list->len > 0);
    for (int level = 0; level < list->height; level++) {
        struct skiplist_node *before = path->nodes[level];
        if (before->levels[level].next == node) {
            span_set(before, level, span_of(before, level) + span_of(node, level) - 1);
            before->levels[level].next = node->levels[level].next;
        } else {
            span_set(before, level, span_of(before, level) - 1);
        }
    }
    if (skiplist_next(node))
        skiplist_next(node)->prev = node->prev;
    else
        list->tail = node->prev;
    while (list->height > 1 && !list->head.levels[list->height - 1].next) list->height--;
    list->len--;
}

struct skiplist_node *skiplist_insert(struct skiplist *list, double score, struct slice text) {
    must(score == score); /* not NaN, which has no place in an order */
    struct skiplist_node *node = node_new(score, text);
    link_node(list, node);
    return node;
}
void skiplist_take(struct skiplist *list, struct skiplist_node *node) {
    struct path path;
    find_path(list, node->score, skiplist_text(node), &path);
    unlink_node(list, node, &path);
}
void skiplist_replace(struct skiplist *list, struct skiplist_node *node, struct skiplist_node *copy) {
    struct path path;
    find_path(list, node->score, skiplist_text(node), &path);
    for (int level = node_height(node) - 1; level >= 0; level--) {
        must(path.nodes[level]->levels[level].next == node);
        path.nodes[level]->levels[level].next = copy;
    }
    if (skiplist_next(copy))
        skiplist_next(copy)->prev = copy;
    else
        list->tail = copy;
}
void skiplist_rescore(struct skiplist *list, struct skiplist_node *node, double score) {
    must(score == score);
    struct slice text = skiplist_text(node);
    const struct skiplist_node *next = skiplist_next(node);
    bool stays = (!node->prev || node_before(node->prev, score, text)) && (!next || !node_before(next, score, text));
    if (!stays) skiplist_take(list, node);
    node->score = score;
    if (!stays) link_node(list, node);
}
void skiplist_delete(struct skiplist *list, size_t first, size_t count,
                     void (*seen)(void *context, struct skiplist_node *node), void *context) {
    struct path path;
    find_path_to_rank(list, first, &path);
    struct skiplist_node *node = skiplist_next(path.nodes[0]);
    for (; node && count; count--) {
        struct skiplist_node *next = skiplist_next(node);
        unlink_node(list, node, &path);
        if (seen) seen(context, node);
        mem_free(node);
        node = next;
    }
}

/* --- Lookup --- */

struct skiplist_node *skiplist_first(const struct skiplist *list) {
    return list->head.levels[0].next;
}
struct skiplist_node *skiplist_last(const struct skiplist *list) {
    return list->tail;
}
struct skiplist_node *skiplist_at(const struct skiplist *list, size_t rank) {
    if (rank >= list->len) return NULL;
    const struct skiplist_node *node = &list->head;
    uint64_t left = (uint64_t)rank + 1;
    for (int level = list->height - 1; level >= 0; level--)
        for (const struct skiplist_node *next; (next = node->levels[level].next) && span_of(node, level) <= left;
             node = next) {
            left -= span_of(node, level);
            if (!left) return (struct skiplist_node *)next;
        }
    return NULL;
}
size_t skiplist_rank(const struct skiplist *list, const struct skiplist_node *wanted) {
    const struct skiplist_node *node = &list->head;
    struct slice text = skiplist_text(wanted);
    uint64_t rank = 0;
    for (int level = list->height - 1; level >= 0; level--)
        for (const struct skiplist_node *next;
             (next = node->levels[level].next) && node_before(next, wanted->score, text); node = next)
            rank += span_of(node, level);
    must(node->levels[0].next == wanted);
    return rank;
}
size_t skiplist_count_before(const struct skiplist *list,
                             bool (*before)(const void *context, const struct skiplist_node *node),
                             const void *context) {
    const struct skiplist_node *node = &list->head;
    uint64_t rank = 0;
    for (int level = list->height - 1; level >= 0; level--)
        for (const struct skiplist_node *next; (next = node->levels[level].next) && before(context, next); node = next)
            rank += span_of(node, level);
    return rank;
}
