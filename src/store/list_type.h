/* list_type.h: values of type list.
 *
 * ENCODING_LISTPACK: one listpack within the limits of list-max-listpack-size.
 *
 * ENCODING_QUICKLIST: a linked list of nodes. A node is a listpack within those limits, or a blob with a single element
 * that exceeds them. With list-compress-depth N, all nodes except N at either end are compressed with LZF and
 * decompressed for access. A list becomes a quicklist when it exceeds one node (call list_type_expect() before adding).
 * It becomes a listpack again when its elements fill less than half of a node (call list_type_shrunk() after removing).
 *
 * The functions take the entry of the key. They change the structure only: the caller reports the change with
 * db_changed(), once per command, and deletes an empty list. Indexes count from 0; negative ones count from the end, -1
 * is the last. */
#pragma once
#include "lib/structures/listpack.h"
#include "store/keyspace.h"

struct list_type_element {
    struct listpack_value value; /* text, or a number if data is NULL */
    struct blob *blob;           /* the blob that holds it, or NULL; adds no reference */
};
enum list_type_end { LIST_TYPE_HEAD, LIST_TYPE_TAIL };

struct entry *list_type_create(struct db *db,
                               struct slice key); /* adds the key, which must not exist, with an empty list */
size_t list_type_len(const struct entry *entry);
/* Call before adding `count` elements of `bytes` in total. */
void list_type_expect(struct db *db, struct entry *entry, size_t count, size_t bytes);
void list_type_shrunk(struct db *db,
                      struct entry *entry); /* call after elements were removed or replaced; not for an empty list */

/* `blob` may hold the text; its reference is taken over. */
void list_type_push(struct db *db, struct entry *entry, enum list_type_end end, struct slice text, struct blob *blob);
void list_type_delete(struct db *db, struct entry *entry, int64_t index, size_t count); /* up to the end of the list */
bool list_type_replace(struct db *db, struct entry *entry, int64_t index, struct slice text,
                       struct blob *blob); /* false: no such index */
/* Inserts before or after the first element that equals `pivot`; false: no such element. */
bool list_type_insert(struct db *db, struct entry *entry, struct slice pivot, bool after, struct slice text,
                      struct blob *blob);
/* Removes the first `count` elements that equal the text; the last `-count` elements if count is negative; all if it is
 * 0. Returns the number removed. */
size_t list_type_remove(struct db *db, struct entry *entry, struct slice text, int64_t count);

/* Statistics of the nodes of a quicklist, for DEBUG; all 0 for a listpack. */
struct quicklist_stats {
    size_t count, bytes;  /* bytes of all nodes, uncompressed */
    size_t packed, large; /* number of compressed nodes; number of nodes with one large element */
};
void list_type_describe(const struct entry *entry, struct quicklist_stats *nodes);

/* The content of a list node by node, for formats/. */
struct list_node_view {
    struct slice bytes; /* a listpack; its LZF form if compressed; the element of a large node */
    struct blob *blob;  /* of a large element; NULL: a listpack */
    size_t unpacked;    /* bytes of the listpack of a compressed node; 0: not compressed */
};
size_t list_type_nodes(const struct entry *entry); /* number of nodes, at least 1 */
/* Calls `visit` for each node. The list must not change meanwhile. */
void list_type_each_node(const struct entry *entry, void (*visit)(void *context, const struct list_node_view *node),
                         void *context);
/* Appends the elements of a valid listpack at the tail, as one node if it is within the limits. Takes over the
 * listpack. */
void list_type_append_node(struct db *db, struct entry *entry, uint8_t *lp);

/* Iteration from an index towards the tail or the head. The list must not change meanwhile. An element is valid until
 * the next call. */
struct list_type_iterator {
    struct list_node *node; /* of a quicklist: the next node to open */
    uint8_t *lp, *at, *unpacked;
    bool backward;
};
void list_type_iterate(struct list_type_iterator *it, const struct entry *entry, int64_t index, bool backward);
bool list_type_next(struct list_type_iterator *it, struct list_type_element *element);
void list_type_iterate_end(struct list_type_iterator *it);
