/* radix_tree.c: see radix_tree.h.
 *
 * A structural change allocates a new node instead of changing it in place, which keeps nodes as small as possible and
 * the code short; only a value is replaced in place. An iterator keeps its path as a stack, so nodes need no parent
 * pointer. */
#include "lib/structures/radix_tree.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/relocate.h"

struct radix_node {
    uint32_t len;      /* shared bytes */
    uint16_t children; /* up to 256 */
    uint8_t has_value;
    void *words[]; /* [value], children; then bytes */
};
struct radix_tree {
    struct radix_node *root; /* NULL: empty */
    size_t keys, nodes, runs, bytes;
};

/* --- Nodes --- */

static inline struct radix_node **children_of(const struct radix_node *n) {
    return (struct radix_node **)(uintptr_t)(n->words + n->has_value);
}
static inline unsigned char *firsts_of(const struct radix_node *n) {
    return (unsigned char *)(uintptr_t)(n->words + n->has_value + n->children);
}
static inline char *shared_of(const struct radix_node *n) {
    return (char *)firsts_of(n) + n->children;
}
static inline struct slice prefix_of(const struct radix_node *n) {
    return (struct slice){shared_of(n), n->len};
}

/* Allocates a node; the caller writes children and bytes. */
static struct radix_node *node_alloc(struct radix_tree *tree, size_t len, size_t children, bool has_value) {
    must_hold(len <= UINT32_MAX && children <= 256, "%zu bytes, %zu children", len, children);
    struct radix_node *n = mem_alloc(sizeof *n + (children + has_value) * sizeof(void *) + children + len);
    n->len = (uint32_t)len;
    n->children = (uint16_t)children;
    n->has_value = has_value;
    tree->nodes++;
    tree->runs += len > 0;
    tree->bytes += mem_size(n);
    return n;
}
static void node_free(struct radix_tree *tree, struct radix_node *n) {
    must(tree->nodes > 0);
    must_within(mem_size(n), tree->bytes);
    tree->nodes--;
    tree->runs -= n->len > 0;
    tree->bytes -= mem_size(n);
    mem_free(n);
}
static struct radix_node *leaf_new(struct radix_tree *tree, struct slice bytes, void *value) {
    struct radix_node *n = node_alloc(tree, bytes.len, 0, true);
    n->words[0] = value;
    if (bytes.len) memcpy(shared_of(n), bytes.data, bytes.len);
    return n;
}
/* Returns the node with other shared bytes, and with or without a value. Frees the old node; `shared` may point into
 * it. */
static struct radix_node *node_change(struct radix_tree *tree, struct radix_node *old, struct slice shared,
                                      bool has_value, void *value) {
    struct radix_node *n = node_alloc(tree, shared.len, old->children, has_value);
    if (has_value) n->words[0] = value;
    if (old->children) memcpy(children_of(n), children_of(old), old->children * sizeof(void *));
    if (old->children) memcpy(firsts_of(n), firsts_of(old), old->children);
    if (shared.len) memcpy(shared_of(n), shared.data, shared.len);
    node_free(tree, old);
    return n;
}
static void *node_value(const struct radix_node *n) {
    return n->has_value ? n->words[0] : NULL;
}

/* The index of the child with that first byte, or of the first one with a greater byte. */
static int child_index(const struct radix_node *n, unsigned char first, bool *found) {
    const unsigned char *firsts = firsts_of(n);
    int low = 0, high = n->children;
    while (low < high) {
        int middle = (low + high) / 2;
        if (firsts[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < n->children && firsts[low] == first;
    return low;
}
/* Returns the node with one child more or less. Frees the old node. */
static struct radix_node *child_add(struct radix_tree *tree, struct radix_node *old, int index, unsigned char first,
                                    struct radix_node *child) {
    struct radix_node *n = node_alloc(tree, old->len, old->children + 1u, old->has_value);
    size_t at = (size_t)index, behind = old->children - at;
    if (old->has_value) n->words[0] = old->words[0];
    memcpy(children_of(n), children_of(old), at * sizeof(void *));
    memcpy(children_of(n) + at + 1, children_of(old) + at, behind * sizeof(void *));
    memcpy(firsts_of(n), firsts_of(old), at);
    memcpy(firsts_of(n) + at + 1, firsts_of(old) + at, behind);
    children_of(n)[at] = child;
    firsts_of(n)[at] = first;
    memcpy(shared_of(n), shared_of(old), old->len);
    node_free(tree, old);
    return n;
}
static struct radix_node *child_drop(struct radix_tree *tree, struct radix_node *old, int index) {
    must_hold(index >= 0 && index < old->children, "child %d of %u", index, old->children);
    struct radix_node *n = node_alloc(tree, old->len, old->children - 1u, old->has_value);
    size_t at = (size_t)index, behind = old->children - at - 1;
    if (old->has_value) n->words[0] = old->words[0];
    memcpy(children_of(n), children_of(old), at * sizeof(void *));
    memcpy(children_of(n) + at, children_of(old) + at + 1, behind * sizeof(void *));
    memcpy(firsts_of(n), firsts_of(old), at);
    memcpy(firsts_of(n) + at, firsts_of(old) + at + 1, behind);
    memcpy(shared_of(n), shared_of(old), old->len);
    node_free(tree, old);
    return n;
}
static size_t common(struct slice a, struct slice b) {
    size_t most = a.len < b.len ? a.len : b.len, i = 0;
    while (i < most && a.data[i] == b.data[i]) i++;
    return i;
}
static inline struct slice behind(struct slice s, size_t len) {
    return (struct slice){s.data + len, s.len - len};
}

/* --- Creation and destruction --- */

struct radix_tree *radix_tree_new(void) {
    return mem_calloc(1, sizeof(struct radix_tree));
}
/* Not recursive, because the client that chooses the keys determines the depth of the tree. */
static void free_below(struct radix_node *root, void (*free_value)(void *value)) {
    size_t count = 1, capacity = 64;
    struct radix_node **left = mem_alloc(capacity * sizeof *left);
    left[0] = root;
    while (count) {
        struct radix_node *n = left[--count];
        if (count + n->children > capacity) {
            capacity = capacity * 2 + n->children;
            left = mem_realloc(left, capacity * sizeof *left);
        }
        for (int i = 0; i < n->children; i++) left[count++] = children_of(n)[i];
        if (n->has_value && free_value) free_value(n->words[0]);
        mem_free(n);
    }
    mem_free(left);
}
void radix_tree_free(struct radix_tree *tree, void (*free_value)(void *value)) {
    if (!tree) return;
    if (tree->root) free_below(tree->root, free_value);
    mem_free(tree);
}
struct radix_tree *radix_tree_copy(const struct radix_tree *tree, void *(*copy_value)(void *value)) {
    struct radix_tree *copy = radix_tree_new();
    struct radix_iterator it;
    radix_iterator_init(&it, tree);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        radix_tree_set(copy, it.key, copy_value ? copy_value(it.value) : it.value, NULL);
    radix_iterator_free(&it);
    return copy;
}
size_t radix_tree_len(const struct radix_tree *tree) {
    return tree->keys;
}
size_t radix_tree_nodes(const struct radix_tree *tree) {
    return tree->nodes;
}
size_t radix_tree_runs(const struct radix_tree *tree) {
    return tree->runs;
}
size_t radix_tree_memory(const struct radix_tree *tree) {
    return mem_size(tree) + tree->bytes;
}

/* --- Lookup and changes --- */

bool radix_tree_find(const struct radix_tree *tree, struct slice key, void **value) {
    const struct radix_node *n = tree->root;
    while (n) {
        if (key.len < n->len || memcmp(shared_of(n), key.data, n->len) != 0) return false;
        key = behind(key, n->len);
        if (!key.len) {
            if (n->has_value && value) *value = n->words[0];
            return n->has_value;
        }
        bool found;
        int index = child_index(n, (unsigned char)key.data[0], &found);
        if (!found) return false;
        n = children_of(n)[index];
        key = behind(key, 1);
    }
    return false;
}

void radix_tree_prefixes(const struct radix_tree *tree, struct slice text,
                         bool (*visit)(void *context, size_t key_len, void *value), void *context) {
    const struct radix_node *n = tree->root;
    struct slice rest = text;
    while (n && rest.len >= n->len && memcmp(shared_of(n), rest.data, n->len) == 0) {
        rest = behind(rest, n->len);
        if (n->has_value && !visit(context, text.len - rest.len, n->words[0])) return;
        if (!rest.len) return;
        bool found;
        int index = child_index(n, (unsigned char)rest.data[0], &found);
        if (!found) return;
        n = children_of(n)[index];
        rest = behind(rest, 1);
    }
}

/* Splits the node: the key shares only the first `same` of its bytes. */
static struct radix_node *node_cut(struct radix_tree *tree, struct radix_node *n, size_t same, struct slice key,
                                   void *value) {
    struct slice shared = prefix_of(n);
    must_less(same, shared.len);
    bool ends = key.len == same;
    unsigned char first = (unsigned char)shared.data[same];
    struct radix_node *above = node_alloc(tree, same, ends ? 1 : 2, ends);
    memcpy(shared_of(above), shared.data, same);
    struct radix_node *lower = node_change(tree, n, behind(shared, same + 1), n->has_value, node_value(n));
    if (ends) {
        above->words[0] = value;
        children_of(above)[0] = lower;
        firsts_of(above)[0] = first;
        return above;
    }
    unsigned char other = (unsigned char)key.data[same];
    int mine = other > first; /* index of the new leaf */
    children_of(above)[mine] = leaf_new(tree, behind(key, same + 1), value);
    children_of(above)[!mine] = lower;
    firsts_of(above)[mine] = other;
    firsts_of(above)[!mine] = first;
    return above;
}

bool radix_tree_set(struct radix_tree *tree, struct slice key, void *value, void **old) {
    struct radix_node **link = &tree->root;
    tree->keys++;
    while (*link) {
        struct radix_node *n = *link;
        size_t same = common(prefix_of(n), key);
        if (same < n->len) {
            *link = node_cut(tree, n, same, key, value);
            return true;
        }
        key = behind(key, same);
        if (!key.len) {
            if (!n->has_value) {
                *link = node_change(tree, n, prefix_of(n), true, value);
                return true;
            }
            if (old) *old = n->words[0];
            n->words[0] = value;
            tree->keys--;
            return false;
        }
        bool found;
        int at = child_index(n, (unsigned char)key.data[0], &found);
        if (!found) {
            *link = child_add(tree, n, at, (unsigned char)key.data[0], leaf_new(tree, behind(key, 1), value));
            return true;
        }
        link = &children_of(n)[at];
        key = behind(key, 1);
    }
    *link = leaf_new(tree, key, value);
    return true;
}

/* Merges a node that is not a key and has a single child with that child. */
static struct radix_node *node_merge(struct radix_tree *tree, struct radix_node *n) {
    if (n->has_value || n->children != 1) return n;
    struct radix_node *child = children_of(n)[0];
    size_t len = (size_t)n->len + 1 + child->len;
    char inline_copy[128], *bytes = len <= sizeof inline_copy ? inline_copy : mem_alloc(len);
    memcpy(bytes, shared_of(n), n->len);
    bytes[n->len] = (char)firsts_of(n)[0];
    memcpy(bytes + n->len + 1, shared_of(child), child->len);
    node_free(tree, n);
    n = node_change(tree, child, (struct slice){bytes, len}, child->has_value, node_value(child));
    if (bytes != inline_copy) mem_free(bytes);
    return n;
}

bool radix_tree_remove(struct radix_tree *tree, struct slice key, void **value) {
    struct radix_node **link = &tree->root, **above = NULL;
    int at = 0; /* the pointer in the parent node */
    for (struct radix_node *n; (n = *link);) {
        if (key.len < n->len || memcmp(shared_of(n), key.data, n->len) != 0) return false;
        key = behind(key, n->len);
        if (!key.len) break;
        bool found;
        int child = child_index(n, (unsigned char)key.data[0], &found);
        if (!found) return false;
        at = child;
        above = link;
        link = &children_of(n)[child];
        key = behind(key, 1);
    }
    struct radix_node *n = *link;
    if (!n || !n->has_value) return false;
    if (value) *value = n->words[0];
    must(tree->keys > 0);
    tree->keys--;
    if (n->children) {
        *link = node_merge(tree, node_change(tree, n, prefix_of(n), false, NULL));
    } else {
        node_free(tree, n);
        *link = NULL;
        if (above) *above = node_merge(tree, child_drop(tree, *above, at));
    }
    return true;
}

void radix_tree_relocate_path(struct radix_tree *tree, struct slice key, size_t known, struct relocation *r) {
    struct radix_node **link = &tree->root;
    struct slice rest = key;
    for (struct radix_node *n; (n = *link);) {
        if (known == 0 || key.len - rest.len > known) {
            void *block = n;
            relocate_block(r, &block);
            n = *link = block;
        }
        if (rest.len <= n->len) return;
        rest = behind(rest, n->len);
        bool found;
        int index = child_index(n, (unsigned char)rest.data[0], &found);
        if (!found) return;
        link = &children_of(n)[index];
        rest = behind(rest, 1);
    }
}

/* --- Iteration --- */

void radix_iterator_init(struct radix_iterator *it, const struct radix_tree *tree) {
    it->tree = tree;
    it->valid = false;
    it->depth = 0;
    it->key = (struct slice){NULL, 0};
    it->value = NULL;
    it->steps = it->inline_steps;
    it->depth_max = sizeof it->inline_steps / sizeof *it->inline_steps;
    it->bytes = it->inline_bytes;
    it->capacity = sizeof it->inline_bytes;
}
void radix_iterator_free(struct radix_iterator *it) {
    if (it->steps != it->inline_steps) mem_free(it->steps);
    if (it->bytes != it->inline_bytes) mem_free(it->bytes);
}

/* The length of the key prefix above the node of the last step. */
static size_t bytes_before(const struct radix_iterator *it) {
    if (!it->depth) return 0;
    const struct radix_step *top = &it->steps[it->depth - 1];
    return top->before + top->node->len + 1;
}
/* Pushes a node: the root, or the child that the top of the stack selects. */
static void radix_tree_enter(struct radix_iterator *it, const struct radix_node *n) {
    size_t before = bytes_before(it), len = before + n->len;
    if (len > it->capacity) {
        char *larger = mem_alloc(len * 2);
        if (before) memcpy(larger, it->bytes, before - 1); /* the last one is written below */
        if (it->bytes != it->inline_bytes) mem_free(it->bytes);
        it->bytes = larger;
        it->capacity = len * 2;
    }
    if (it->depth) {
        const struct radix_step *top = &it->steps[it->depth - 1];
        it->bytes[before - 1] = (char)firsts_of(top->node)[top->child];
    }
    memcpy(it->bytes + before, shared_of(n), n->len);
    if (it->depth == it->depth_max) {
        struct radix_step *larger = mem_alloc(it->depth_max * 2 * sizeof *larger);
        memcpy(larger, it->steps, it->depth * sizeof *larger);
        if (it->steps != it->inline_steps) mem_free(it->steps);
        it->steps = larger;
        it->depth_max *= 2;
    }
    it->steps[it->depth++] = (struct radix_step){n, -1, before};
}
static void enter_child(struct radix_iterator *it, int child) {
    must(it->depth > 0);
    struct radix_step *top = &it->steps[it->depth - 1];
    must_hold(child >= 0 && child < top->node->children, "child %d of %u", child, top->node->children);
    top->child = child;
    radix_tree_enter(it, children_of(top->node)[child]);
}
static inline const struct radix_node *top_node(const struct radix_iterator *it) {
    must(it->depth > 0);
    return it->steps[it->depth - 1].node;
}
/* Positions the iterator at the top node if it is a key. */
static bool arrive(struct radix_iterator *it) {
    const struct radix_step *top = &it->steps[it->depth - 1];
    it->key = (struct slice){it->bytes, top->before + top->node->len};
    it->value = node_value(top->node);
    return it->valid = top->node->has_value;
}
static bool nowhere(struct radix_iterator *it) {
    it->depth = 0;
    return it->valid = false;
}
/* Seek to the lowest and the highest key at or below the top node. */
static bool lowest(struct radix_iterator *it) {
    while (!top_node(it)->has_value) enter_child(it, 0);
    return arrive(it);
}
static bool highest(struct radix_iterator *it) {
    while (top_node(it)->children) enter_child(it, top_node(it)->children - 1);
    return arrive(it);
}
/* Seek to the next key after all keys below the top node, and to the one before all keys at or below it. */
static bool leave_upwards(struct radix_iterator *it) {
    while (--it->depth) {
        const struct radix_step *top = &it->steps[it->depth - 1];
        if (top->child + 1 < top->node->children) {
            enter_child(it, top->child + 1);
            return lowest(it);
        }
    }
    return nowhere(it);
}
static bool leave_downwards(struct radix_iterator *it) {
    while (--it->depth) {
        const struct radix_step *top = &it->steps[it->depth - 1];
        if (top->child > 0) {
            enter_child(it, top->child - 1);
            return highest(it);
        }
        if (top->node->has_value) return arrive(it);
    }
    return nowhere(it);
}

bool radix_iterator_next(struct radix_iterator *it) {
    if (!it->valid) return false;
    if (!top_node(it)->children) return leave_upwards(it);
    enter_child(it, 0);
    return lowest(it);
}
bool radix_iterator_prev(struct radix_iterator *it) {
    return it->valid && leave_downwards(it);
}

/* Descends along the key; where the key leaves the tree, moves to the next key above or below. */
static bool seek_key(struct radix_iterator *it, bool above, bool equal, bool beside, struct slice key) {
    for (const struct radix_node *n = it->tree->root;;) {
        radix_tree_enter(it, n);
        size_t same = common(prefix_of(n), key);
        if (same < n->len) { /* all keys below are on one side of the key */
            bool greater = same == key.len || (unsigned char)shared_of(n)[same] > (unsigned char)key.data[same];
            if (!beside) return nowhere(it);
            if (above) return greater ? lowest(it) : leave_upwards(it);
            return greater ? leave_downwards(it) : highest(it);
        }
        key = behind(key, same);
        if (!key.len) {
            if (equal && n->has_value) return arrive(it);
            if (!beside) return nowhere(it);
            if (!above) return leave_downwards(it);
            if (!n->children) return leave_upwards(it);
            enter_child(it, 0);
            return lowest(it);
        }
        bool found;
        int index = child_index(n, (unsigned char)key.data[0], &found);
        if (found) {
            it->steps[it->depth - 1].child = index;
            n = children_of(n)[index];
            key = behind(key, 1);
            continue;
        }
        if (!beside) return nowhere(it);
        if (above && index == n->children) return leave_upwards(it);
        if (above) {
            enter_child(it, index);
            return lowest(it);
        }
        if (index > 0) {
            enter_child(it, index - 1);
            return highest(it);
        }
        return n->has_value ? arrive(it) : leave_downwards(it);
    }
}

bool radix_iterator_seek(struct radix_iterator *it, enum radix_seek how, struct slice key) {
    /* The key may be the iterator's own buffer, which the descent overwrites. */
    char inline_copy[64], *copy = NULL;
    if (key.data == it->bytes && key.len) {
        copy = key.len <= sizeof inline_copy ? inline_copy : mem_alloc(key.len);
        memcpy(copy, key.data, key.len);
        key.data = copy;
    }
    bool there;
    nowhere(it);
    if (!it->tree->root) {
        there = false;
    } else if (how == RADIX_FIRST || how == RADIX_LAST) {
        radix_tree_enter(it, it->tree->root);
        there = how == RADIX_FIRST ? lowest(it) : highest(it);
    } else {
        bool above = how == RADIX_ABOVE || how == RADIX_AT_OR_ABOVE;
        there = seek_key(it, above, how != RADIX_ABOVE && how != RADIX_BELOW, how != RADIX_EQUAL, key);
    }
    if (copy && copy != inline_copy) mem_free(copy);
    return there;
}
