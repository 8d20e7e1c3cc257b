/* quicklist.c: see quicklist.h.
 *
 * A change opens the node first (node_open), which decompresses it, and settles the quicklist afterwards
 * (quicklist_settle), which compresses the inner nodes. A read decompresses into memory of the reader and leaves the
 * node compressed. Whole nodes are deleted without decompression.
 *
 * An insertion into a full node splits the node at that position. Nodes that have become small by deletions are not
 * merged: most elements are removed at the ends, where an empty node is freed. */
#include "store/quicklist.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/lzf.h"
#include "store/types.h"

enum node_kind { NODE_LISTPACK, NODE_LARGE, NODE_PACKED };
enum {
    COUNTED_BYTES_MAX = 8192, /* for a node limited by a number of elements */
    ELEMENT_OVERHEAD = 8,     /* estimated bytes of an element in addition to its text */
    PACK_MIN = 48,            /* minimum bytes to compress, and minimum gain */
    PACK_GAIN = 8
};

struct list_node {
    struct list_node *prev, *next;
    union {
        uint8_t *lp;
        struct blob *blob; /* NODE_LARGE */
        char *packed;      /* NODE_PACKED: the LZF-compressed listpack */
    };
    uint32_t count, bytes; /* elements; bytes of the uncompressed listpack */
    uint32_t packed_len;
    enum node_kind kind;
};
struct quicklist {
    struct list_node *head, *tail;
    size_t count, nodes;
    struct list_node *moving; /* the node with which quicklist_relocate() continues */
};

/* --- Limits --- */

/* -1: 4 KiB … -5: 64 KiB. */
static size_t bytes_limit(int fill) {
    unsigned step = fill < -5 ? 5 : (unsigned)-fill;
    return (size_t)2048 << step;
}
bool quicklist_node_exceeds(size_t bytes, size_t count) {
    int fill = encoding_limits.list_listpack_size;
    if (fill < 0) return bytes > bytes_limit(fill);
    return bytes > COUNTED_BYTES_MAX || count > (size_t)(fill ? fill : 1);
}
static bool is_large(size_t len) {
    if (encoding_limits.list_large_min) return len >= encoding_limits.list_large_min;
    int fill = encoding_limits.list_listpack_size;
    return len > (fill < 0 ? bytes_limit(fill) : COUNTED_BYTES_MAX);
}
static bool node_allows(const struct list_node *node, size_t len) {
    return node && node->kind != NODE_LARGE &&
           !quicklist_node_exceeds(node->bytes + len + ELEMENT_OVERHEAD, node->count + 1u);
}

/* --- Nodes --- */

static struct list_node *node_new(enum node_kind kind) {
    struct list_node *node = mem_calloc(1, sizeof *node);
    node->kind = kind;
    return node;
}
static struct list_node *node_of_listpack(uint8_t *lp) {
    struct list_node *node = node_new(NODE_LISTPACK);
    node->lp = lp;
    node->count = (uint32_t)listpack_count(lp);
    node->bytes = (uint32_t)listpack_bytes(lp);
    return node;
}
/* Takes over the blob's reference. */
static struct list_node *node_of_text(struct slice text, struct blob *blob) {
    if (is_large(text.len)) {
        struct list_node *node = node_new(NODE_LARGE);
        node->blob = blob ? blob : blob_copy(text);
        node->count = 1;
        return node;
    }
    struct list_node *node = node_of_listpack(listpack_append(listpack_new(0), text));
    if (blob) blob_release(blob); /* `text` may be the blob's bytes */
    return node;
}
static void node_free(struct list_node *node) {
    if (node->kind == NODE_LARGE)
        blob_release(node->blob);
    else
        mem_free(node->lp);
    mem_free(node);
}

static uint8_t *quicklist_unpack(const struct list_node *node) {
    uint8_t *lp = mem_alloc(node->bytes);
    bool unpacked = lzf_unpack((struct slice){node->packed, node->packed_len}, (char *)lp, node->bytes);
    must_hold(unpacked, "%u bytes of %u", node->packed_len, node->bytes); /* node_pack() made them */
    return lp;
}
/* Call before a change. */
static void node_open(struct list_node *node) {
    if (node->kind != NODE_PACKED) return;
    uint8_t *lp = quicklist_unpack(node);
    mem_free(node->packed);
    node->lp = lp;
    node->kind = NODE_LISTPACK;
}
static void node_pack(struct list_node *node) {
    if (node->kind != NODE_LISTPACK || node->bytes < PACK_MIN) return;
    char *packed = mem_alloc(node->bytes);
    size_t len = lzf_pack((struct slice){(const char *)node->lp, node->bytes}, packed, node->bytes - PACK_GAIN);
    if (!len) {
        mem_free(packed);
        return;
    }
    listpack_free(node->lp);
    node->packed = mem_realloc(packed, len);
    node->packed_len = (uint32_t)len;
    node->kind = NODE_PACKED;
}
/* Call after a change of its listpack. */
static void node_set(struct list_node *node, uint8_t *lp, uint32_t count) {
    must_in_tests(listpack_count(lp) == count);
    node->lp = lp;
    node->count = count;
    node->bytes = (uint32_t)listpack_bytes(lp);
}

/* --- The quicklist --- */

static void link_node(struct quicklist *quicklist, struct list_node *node, struct list_node *prev,
                      struct list_node *next) {
    node->prev = prev, node->next = next;
    *(prev ? &prev->next : &quicklist->head) = node;
    *(next ? &next->prev : &quicklist->tail) = node;
    quicklist->nodes++;
    quicklist->count += node->count;
}
static void drop_node(struct quicklist *quicklist, struct list_node *node) {
    must(quicklist->nodes > 0);
    must_within(node->count, quicklist->count);
    *(node->prev ? &node->prev->next : &quicklist->head) = node->next;
    *(node->next ? &node->next->prev : &quicklist->tail) = node->prev;
    quicklist->nodes--;
    quicklist->count -= node->count;
    if (quicklist->moving == node) quicklist->moving = node->next;
    node_free(node);
}

/* Decompresses the nodes at the ends and compresses the nodes that became inner ones: the first after the ends, and the
 * changed one. */
static void quicklist_settle(struct quicklist *quicklist, struct list_node *changed) {
    size_t depth = (size_t)encoding_limits.list_compress_depth;
    if (depth == 0) return;
    struct list_node *first = quicklist->head, *last = quicklist->tail;
    for (size_t i = 0; i < depth && first; i++, first = first->next, last = last->prev) {
        node_open(first);
        node_open(last);
        if (first == changed || last == changed) changed = NULL;
    }
    if (quicklist->nodes <= 2 * depth) return;
    node_pack(first);
    node_pack(last);
    if (changed) node_pack(changed);
}

struct quicklist *quicklist_new(uint8_t *lp) {
    struct quicklist *quicklist = mem_calloc(1, sizeof *quicklist);
    if (listpack_count(lp))
        link_node(quicklist, node_of_listpack(lp), NULL, NULL);
    else
        listpack_free(lp);
    return quicklist;
}
void quicklist_free(struct quicklist *quicklist) {
    for (struct list_node *node = quicklist->head, *next; node; node = next) {
        next = node->next;
        node_free(node);
    }
    mem_free(quicklist);
}
struct quicklist *quicklist_copy(const struct quicklist *quicklist) {
    struct quicklist *copy = mem_calloc(1, sizeof *copy);
    for (const struct list_node *node = quicklist->head; node; node = node->next) {
        struct list_node *twin = node_new(node->kind);
        *twin = *node;
        if (node->kind == NODE_LARGE) {
            blob_hold(twin->blob);
        } else if (node->kind == NODE_PACKED) {
            twin->packed = mem_alloc(node->packed_len);
            memcpy(twin->packed, node->packed, node->packed_len);
        } else {
            twin->lp = listpack_copy(node->lp);
        }
        link_node(copy, twin, copy->tail, NULL);
    }
    return copy;
}
size_t quicklist_len(const struct quicklist *quicklist) {
    return quicklist->count;
}
size_t quicklist_nodes(const struct quicklist *quicklist) {
    return quicklist->nodes;
}
size_t quicklist_memory(const struct quicklist *quicklist, size_t samples) {
    size_t measured = 0, bytes = 0;
    for (const struct list_node *node = quicklist->head; node && measured < samples; node = node->next, measured++)
        bytes += mem_size(node) + (node->kind == NODE_LARGE ? blob_memory(node->blob) : mem_size(node->lp));
    if (measured && measured < quicklist->nodes)
        bytes = (size_t)((double)bytes / (double)measured * (double)quicklist->nodes);
    return mem_size(quicklist) + bytes;
}
void quicklist_describe(const struct quicklist *quicklist, struct quicklist_stats *nodes) {
    *nodes = (struct quicklist_stats){.count = quicklist->nodes};
    for (const struct list_node *node = quicklist->head; node; node = node->next) {
        nodes->bytes += node->kind == NODE_LARGE ? node->blob->len : node->bytes;
        nodes->packed += node->kind == NODE_PACKED;
        nodes->large += node->kind == NODE_LARGE;
    }
}
void quicklist_each_node(const struct quicklist *quicklist,
                         void (*visit)(void *context, const struct list_node_view *node), void *context) {
    for (const struct list_node *node = quicklist->head; node; node = node->next) {
        struct list_node_view view = {.bytes = {(const char *)node->lp, node->bytes}};
        if (node->kind == NODE_LARGE) view = (struct list_node_view){blob_slice(node->blob), node->blob, 0};
        if (node->kind == NODE_PACKED)
            view = (struct list_node_view){{node->packed, node->packed_len}, NULL, node->bytes};
        visit(context, &view);
    }
}
void quicklist_append_node(struct quicklist *quicklist, uint8_t *lp) {
    struct list_node *node = node_of_listpack(lp);
    must(node->count > 0);
    link_node(quicklist, node, quicklist->tail, NULL);
    quicklist_settle(quicklist, node);
}
uint8_t *quicklist_to_listpack(struct quicklist *quicklist) {
    struct list_node *node = quicklist->head;
    int fill = encoding_limits.list_listpack_size;
    if (quicklist->nodes != 1 || node->kind == NODE_LARGE) return NULL;
    if (fill < 0 ? node->bytes > bytes_limit(fill) / 2 : node->count > (size_t)(fill ? fill : 1) / 2) return NULL;
    node_open(node);
    uint8_t *lp = node->lp;
    mem_free(node);
    mem_free(quicklist);
    return lp;
}

/* Returns the node of an element and sets its offset in the node; NULL: out of range. Searches from the nearer end. */
static struct list_node *seek(const struct quicklist *quicklist, int64_t index, size_t *offset) {
    if (index < 0) index += (int64_t)quicklist->count;
    if (index < 0 || (uint64_t)index >= quicklist->count) return NULL;
    size_t at = (size_t)index;
    if (at < quicklist->count / 2) {
        struct list_node *node = quicklist->head;
        for (; at >= node->count; node = node->next) at -= node->count;
        *offset = at;
        return node;
    }
    size_t behind = quicklist->count - at; /* elements from the index to the tail */
    struct list_node *node = quicklist->tail;
    for (; behind > node->count; node = node->prev) behind -= node->count;
    *offset = node->count - behind;
    return node;
}

/* --- Changes --- */

/* Inserts into an open node, before the element at `offset`. */
static void node_insert(struct quicklist *quicklist, struct list_node *node, size_t offset, struct slice text) {
    must(node->kind != NODE_LARGE);
    must_within(offset, node->count);
    node_open(node);
    uint8_t *lp = node->lp;
    if (offset == 0) {
        lp = listpack_prepend(lp, text);
    } else if (offset == node->count) {
        lp = listpack_append(lp, text);
    } else {
        uint8_t *at = listpack_seek(lp, (int64_t)offset);
        lp = listpack_insert(lp, &at, listpack_text_value(text));
    }
    node_set(node, lp, node->count + 1);
    quicklist->count++;
}

void quicklist_push(struct quicklist *quicklist, bool head, struct slice text, struct blob *blob) {
    struct list_node *end = head ? quicklist->head : quicklist->tail;
    if (!is_large(text.len) && node_allows(end, text.len)) {
        node_insert(quicklist, end, head ? 0 : end->count, text);
        if (blob) blob_release(blob);
        return;
    }
    struct list_node *node = node_of_text(text, blob);
    if (head)
        link_node(quicklist, node, NULL, end);
    else
        link_node(quicklist, node, end, NULL);
    quicklist_settle(quicklist, NULL);
}

/* Deletes elements of a node, or the whole node. */
static void node_delete(struct quicklist *quicklist, struct list_node *node, size_t offset, size_t count) {
    must_within(offset + count, node->count);
    if (offset == 0 && count == node->count) {
        drop_node(quicklist, node);
        return;
    }
    node_open(node);
    node_set(node, listpack_delete_range(node->lp, (int64_t)offset, count), (uint32_t)(node->count - count));
    quicklist->count -= count;
}
void quicklist_delete(struct quicklist *quicklist, int64_t index, size_t count) {
    size_t offset;
    struct list_node *node = seek(quicklist, index, &offset), *first = node ? node->prev : NULL;
    while (node && count) {
        struct list_node *next = node->next;
        size_t here = node->count - offset < count ? node->count - offset : count;
        bool whole = here == node->count;
        node_delete(quicklist, node, offset, here);
        if (!whole) quicklist_settle(quicklist, node);
        count -= here;
        offset = 0;
        node = next;
    }
    quicklist_settle(quicklist, first);
}

/* Splits a node before an element in its middle; returns the second node. */
static struct list_node *node_split(struct quicklist *quicklist, struct list_node *node, size_t offset) {
    must_hold(offset > 0 && offset < node->count, "at %zu of %u", offset, node->count);
    node_open(node);
    uint8_t *behind = listpack_delete_range(listpack_copy(node->lp), 0, offset);
    size_t moved = node->count - offset;
    node_set(node, listpack_delete_range(node->lp, (int64_t)offset, moved), (uint32_t)offset);
    quicklist->count -= moved;
    struct list_node *second = node_of_listpack(behind);
    link_node(quicklist, second, node, node->next);
    return second;
}

/* Inserts before the element at `offset` of a node; offset == count: after the last. */
static void insert_at(struct quicklist *quicklist, struct list_node *node, size_t offset, struct slice text,
                      struct blob *blob) {
    bool large = is_large(text.len);
    struct list_node *into = NULL, *second = NULL;
    size_t at = offset;
    if (!large && node_allows(node, text.len)) {
        into = node;
    } else if (offset > 0 && offset < node->count) {
        second = node_split(quicklist, node, offset);
        if (!large && node_allows(node, text.len))
            into = node;
        else if (!large && node_allows(second, text.len))
            into = second, at = 0;
    } else if (!large && offset == 0 && node_allows(node->prev, text.len)) {
        into = node->prev, at = into->count;
    } else if (!large && offset > 0 && node_allows(node->next, text.len)) {
        into = node->next, at = 0;
    }
    if (into) {
        node_insert(quicklist, into, at, text);
        if (blob) blob_release(blob);
    } else {
        into = node_of_text(text, blob);
        if (offset == 0)
            link_node(quicklist, into, node->prev, node);
        else
            link_node(quicklist, into, node, node->next);
    }
    quicklist_settle(quicklist, node);
    if (second) quicklist_settle(quicklist, second);
    quicklist_settle(quicklist, into);
}

bool quicklist_replace(struct quicklist *quicklist, int64_t index, struct slice text, struct blob *blob) {
    size_t offset;
    struct list_node *node = seek(quicklist, index, &offset);
    if (!node) {
        if (blob) blob_release(blob);
        return false;
    }
    if (node->count == 1) {
        struct list_node *other = node_of_text(text, blob);
        link_node(quicklist, other, node, node->next);
        drop_node(quicklist, node);
        quicklist_settle(quicklist, other);
        return true;
    }
    node_open(node);
    uint8_t *at = listpack_seek(node->lp, (int64_t)offset);
    size_t old = listpack_element_bytes(at);
    if (is_large(text.len) || quicklist_node_exceeds(node->bytes - old + text.len + ELEMENT_OVERHEAD, node->count)) {
        node_delete(quicklist, node, offset, 1);
        insert_at(quicklist, node, offset, text, blob);
        return true;
    }
    node_set(node, listpack_replace(node->lp, &at, listpack_text_value(text)), node->count);
    if (blob) blob_release(blob);
    quicklist_settle(quicklist, node);
    return true;
}

/* Returns the index of the first element that equals the text, or -1. */
static int64_t node_find(const struct list_node *node, struct slice text) {
    if (node->kind == NODE_LARGE) return slice_equal(blob_slice(node->blob), text) ? 0 : -1;
    uint8_t *unpacked = node->kind == NODE_PACKED ? quicklist_unpack(node) : NULL, *lp = unpacked ? unpacked : node->lp;
    const uint8_t *found = listpack_find(lp, listpack_first(lp), text, 0);
    int64_t offset = found ? 0 : -1;
    for (const uint8_t *p = listpack_first(lp); found && p != found; p = listpack_next(lp, p)) offset++;
    mem_free(unpacked);
    return offset;
}
bool quicklist_insert(struct quicklist *quicklist, struct slice pivot, bool after, struct slice text,
                      struct blob *blob) {
    for (struct list_node *node = quicklist->head; node; node = node->next) {
        int64_t offset = node_find(node, pivot);
        if (offset < 0) continue;
        insert_at(quicklist, node, (size_t)offset + after, text, blob);
        return true;
    }
    if (blob) blob_release(blob);
    return false;
}

size_t quicklist_remove_packed(uint8_t **lp, struct slice text, size_t most, bool backward) {
    size_t removed = 0;
    uint8_t *p = backward ? listpack_last(*lp) : listpack_find(*lp, listpack_first(*lp), text, 0);
    while (p && removed < most) {
        if (!listpack_equal(p, text)) { /* backward only */
            p = listpack_prev(*lp, p);
            continue;
        }
        *lp = listpack_delete(*lp, &p, 1);
        removed++;
        if (backward)
            p = p ? listpack_prev(*lp, p) : listpack_last(*lp);
        else
            p = listpack_find(*lp, p, text, 0);
    }
    return removed;
}
static size_t node_remove(struct quicklist *quicklist, struct list_node *node, struct slice text, size_t most,
                          bool backward) {
    if (node_find(node, text) < 0) return 0;
    if (node->kind == NODE_LARGE) {
        drop_node(quicklist, node);
        return 1;
    }
    node_open(node);
    uint8_t *lp = node->lp;
    size_t removed = quicklist_remove_packed(&lp, text, most, backward);
    must_within(removed, node->count);
    node_set(node, lp, node->count - (uint32_t)removed);
    quicklist->count -= removed;
    if (node->count == 0)
        drop_node(quicklist, node);
    else
        quicklist_settle(quicklist, node);
    return removed;
}
size_t quicklist_remove(struct quicklist *quicklist, struct slice text, size_t most, bool backward) {
    size_t removed = 0;
    for (struct list_node *node = backward ? quicklist->tail : quicklist->head, *next; node && removed < most;
         node = next) {
        next = backward ? node->prev : node->next;
        removed += node_remove(quicklist, node, text, most - removed, backward);
    }
    if (removed) quicklist_settle(quicklist, NULL);
    return removed;
}

/* --- Relocation --- */

static struct list_node *node_relocate(struct quicklist *quicklist, struct list_node *node, struct relocation *r) {
    if (node->kind == NODE_LARGE) {
        blob_relocate(r, &node->blob);
    } else {
        void *bytes = node->lp; /* or `packed`, in the same union */
        relocate_block(r, &bytes);
        node->lp = bytes;
    }
    struct list_node *copy = relocate_begin(r, node);
    if (!copy) return node;
    *(copy->prev ? &copy->prev->next : &quicklist->head) = copy;
    *(copy->next ? &copy->next->prev : &quicklist->tail) = copy;
    relocate_end(node);
    return copy;
}

uint64_t quicklist_relocate(struct quicklist *quicklist, uint64_t cursor, struct relocation *r) {
    uint64_t begin = r->moved + r->stayed;
    struct list_node *node = cursor ? quicklist->moving : quicklist->head;
    while (node && r->moved + r->stayed - begin < r->limit) node = node_relocate(quicklist, node, r)->next;
    quicklist->moving = node;
    return node != NULL;
}

/* --- Iteration --- */

static void open_node(struct list_type_iterator *it, struct list_node *node) {
    mem_free(it->unpacked);
    it->unpacked = node->kind == NODE_PACKED ? quicklist_unpack(node) : NULL;
    it->lp = it->unpacked ? it->unpacked : node->lp;
}
void quicklist_iterate(struct list_type_iterator *it, const struct quicklist *quicklist, int64_t index) {
    size_t offset;
    struct list_node *node = seek(quicklist, index, &offset);
    it->node = node;
    if (!node || node->kind == NODE_LARGE) return;
    open_node(it, node);
    it->at = listpack_seek(it->lp, (int64_t)offset);
    it->node = it->backward ? node->prev : node->next;
}
bool quicklist_iterate_next(struct list_type_iterator *it, struct list_type_element *element) {
    struct list_node *node = it->node;
    if (!node) return false;
    it->node = it->backward ? node->prev : node->next;
    if (node->kind == NODE_LARGE) {
        element->value = listpack_text_value(blob_slice(node->blob));
        element->blob = node->blob;
    } else {
        open_node(it, node);
        it->at = it->backward ? listpack_last(it->lp) : listpack_first(it->lp);
    }
    return true;
}
