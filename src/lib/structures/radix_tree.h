/* radix_tree.h: an ordered map from byte strings to pointers (compressed radix tree).
 *
 * A node holds the bytes that all keys below it share, and its children, indexed by their next byte. A node that is not
 * a key has at least two children, so there are at most twice as many nodes as keys. A node is one allocation:
 *
 *     header 8 bytes | [value 8] | children 8 each | their first bytes | shared bytes
 *
 * Lookup, insertion and removal are O(key length). Keys may be empty and may hold any byte. Values belong to the user.
 * Not thread-safe. */
#pragma once
#include "lib/text/slice.h"

struct radix_tree;
struct radix_tree *radix_tree_new(void);
void radix_tree_free(struct radix_tree *tree, void (*free_value)(void *value)); /* free_value may be NULL */
/* `copy_value` may be NULL: the copy holds the same pointers. */
struct radix_tree *radix_tree_copy(const struct radix_tree *tree, void *(*copy_value)(void *value));
size_t radix_tree_len(const struct radix_tree *tree); /* keys */
size_t radix_tree_nodes(const struct radix_tree *tree);
size_t radix_tree_runs(const struct radix_tree *tree);   /* nodes with shared bytes */
size_t radix_tree_memory(const struct radix_tree *tree); /* bytes, without values; O(1) */

/* `value` may be NULL, here and below. */
bool radix_tree_find(const struct radix_tree *tree, struct slice key, void **value);
/* True: the key is new. Otherwise the call replaces its value and sets *old to the previous one. */
bool radix_tree_set(struct radix_tree *tree, struct slice key, void *value, void **old);
bool radix_tree_remove(struct radix_tree *tree, struct slice key, void **value); /* false: no such key */
/* Moves nodes on the path to an existing key out of sparse slabs (relocate.h): the nodes that begin after `known` bytes
 * of the key, and the root if `known` is 0. To move every node once, visit all keys in order and pass the length of the
 * prefix that each key shares with the previous key. */
struct relocation;
void radix_tree_relocate_path(struct radix_tree *tree, struct slice key, size_t known, struct relocation *r);
/* Calls `visit` for each key that is a prefix of `text`, shortest first, until `visit` returns false. The empty key is
 * a prefix of every text, and every text is a prefix of itself. `visit` must not change the tree. O(length of the
 * text). */
void radix_tree_prefixes(const struct radix_tree *tree, struct slice text,
                         bool (*visit)(void *context, size_t key_len, void *value), void *context);

/* Iteration in both directions. After a change of the tree the iterator must seek again; it may pass its own key. */
struct radix_iterator {
    struct slice key; /* current key; valid until the iterator moves */
    void *value;
    const struct radix_tree *tree;
    bool valid; /* positioned at a key */
    char *bytes;
    size_t capacity, depth, depth_max;
    struct radix_step {
        const struct radix_node *node;
        int child;     /* the child on the path down */
        size_t before; /* length of the key prefix above this node */
    } * steps, inline_steps[24];
    char inline_bytes[64];
};
enum radix_seek {
    RADIX_EQUAL,
    RADIX_ABOVE,
    RADIX_AT_OR_ABOVE,
    RADIX_BELOW,
    RADIX_AT_OR_BELOW,
    RADIX_FIRST,
    RADIX_LAST
};
void radix_iterator_init(struct radix_iterator *it, const struct radix_tree *tree); /* not positioned until a seek */
/* False: no such key; the iterator is not positioned. */
bool radix_iterator_seek(struct radix_iterator *it, enum radix_seek how, struct slice key);
bool radix_iterator_next(struct radix_iterator *it); /* false: no more keys; not positioned */
bool radix_iterator_prev(struct radix_iterator *it);
void radix_iterator_free(struct radix_iterator *it);
