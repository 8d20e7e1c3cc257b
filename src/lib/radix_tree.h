/* radix_tree.h: byte strings in the order of their bytes, with a pointer each.
 *
 * A node holds the bytes that all keys below it share from here on, and its children by their next byte; a node that is
 * no key has two children at least, so that there are never more than twice as many nodes as keys. A node is one
 * allocation:
 *
 *     header 8 bytes | [value 8] | children 8 each | their first bytes | bytes shared
 *
 * Finding, adding and removing take time in proportion to the key's length. Keys may be empty and may hold any byte.
 * Values belong to the user. Not thread-safe. */
#ifndef LIB_RADIX_TREE_H
#define LIB_RADIX_TREE_H
#include "lib/slice.h"
#include <stdint.h>

struct radix_tree;
struct radix_tree *radix_tree_new(void);
void radix_tree_free(struct radix_tree *tree, void (*free_value)(void *value)); /* free_value may be NULL */
struct radix_tree *radix_tree_copy(const struct radix_tree *tree,
                                   void *(*copy_value)(void *value)); /* NULL: the same pointers */
size_t radix_tree_len(const struct radix_tree *tree);                 /* keys */
size_t radix_tree_nodes(const struct radix_tree *tree);
size_t radix_tree_runs(const struct radix_tree *tree);   /* nodes that hold bytes shared */
size_t radix_tree_memory(const struct radix_tree *tree); /* bytes, without values. Walks nothing */

bool radix_tree_find(const struct radix_tree *tree, struct slice key,
                     void **value); /* value may be NULL here and below */
/* True: the key is new. Otherwise its value is replaced, and *old is the former one. */
bool radix_tree_set(struct radix_tree *tree, struct slice key, void *value, void **old);
bool radix_tree_remove(struct radix_tree *tree, struct slice key, void **value); /* false: there is no such key */

/* Walking in both directions. After a change of the tree an iterator must seek again, for which its key may be used. */
struct radix_iterator {
    struct slice key; /* where it is; valid until it moves */
    void *value;
    const struct radix_tree *tree;
    bool valid; /* is at a key */
    char *bytes;
    size_t capacity, depth, depth_max;
    struct radix_step {
        const struct radix_node *node;
        int child;     /* the one taken on the way down */
        size_t before; /* bytes of the key above this node */
    } * steps, steps_at_hand[24];
    char bytes_at_hand[64];
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
void radix_iterator_init(struct radix_iterator *it, const struct radix_tree *tree); /* is nowhere until it seeks */
bool radix_iterator_seek(struct radix_iterator *it, enum radix_seek how,
                         struct slice key);          /* false: there is no such key, it is nowhere */
bool radix_iterator_next(struct radix_iterator *it); /* false: there was none, it is nowhere */
bool radix_iterator_prev(struct radix_iterator *it);
void radix_iterator_free(struct radix_iterator *it);
#endif
