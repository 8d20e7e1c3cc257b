/* list_type.h: values of type list: elements in an order, with two ends. (lib/list.h has the name.)
 *
 * ENCODING_LISTPACK: one listpack, within the bounds of list-max-listpack-size. ENCODING_QUICKLIST: a chain of nodes,
 * each a listpack within those bounds, or one element that is larger than a node may be, in a blob. With
 * list-compress-depth N, nodes that are not among the N at either end are kept compressed by LZF and unpacked for who
 * reads or changes them. A list becomes a chain when it outgrows one node (list_type_expect is asked before), and one
 * listpack again when what is left fills less than half of one (list_type_shrunk is told after).
 *
 * The functions take the entry of the key. They change the structure only: that a key changed is told with
 * db_changed(), once a command; an emptied list is to be deleted by the caller. Indexes count from 0; negative ones
 * from the end, -1 is the last. */
#ifndef STORE_LIST_TYPE_H
#define STORE_LIST_TYPE_H
#include "lib/listpack.h"
#include "store/keyspace.h"

struct sequence_element {
    struct listpack_value value; /* text, or, where data is NULL, a number */
    struct blob *blob;           /* where it is in one; no reference added */
};
enum list_type_end { LIST_TYPE_HEAD, LIST_TYPE_TAIL };

struct entry *list_type_create(struct db *db,
                               struct slice key); /* adds the key, which must be missing, with an empty list */
size_t list_type_len(const struct entry *entry);
/* Before elements are added: `count` of them, `bytes` together. */
void list_type_expect(struct db *db, struct entry *entry, size_t count, size_t bytes);
void list_type_shrunk(struct db *db,
                      struct entry *entry); /* after elements were taken away or replaced; not of an empty list */

/* `blob` may hold the text; its reference is taken over. */
void list_type_push(struct db *db, struct entry *entry, enum list_type_end end, struct slice text, struct blob *blob);
void list_type_delete(struct db *db, struct entry *entry, int64_t index, size_t count); /* as many as there are */
bool list_type_replace(struct db *db, struct entry *entry, int64_t index, struct slice text,
                       struct blob *blob); /* false: no such index */
/* Before or after the first element that equals `pivot`; false: there is none. */
bool list_type_insert(struct db *db, struct entry *entry, struct slice pivot, bool after, struct slice text,
                      struct blob *blob);
/* The first `count` elements that equal the text, of a negative count the last; 0: all. Returns how many there were. */
size_t list_type_remove(struct db *db, struct entry *entry, struct slice text, int64_t count);

/* The nodes of a chain, for DEBUG; all 0 where it is none. */
struct sequence_nodes {
    size_t count, bytes;  /* bytes of all of them, unpacked */
    size_t packed, large; /* how many are compressed; how many are one large element */
};
void list_type_describe(const struct entry *entry, struct sequence_nodes *nodes);

/* For persist/: what a list consists of, node by node. */
struct list_node_view {
    struct slice bytes; /* a listpack; of a compressed node its LZF form; of a large element the element */
    struct blob *blob;  /* of a large element; NULL: it is a listpack */
    size_t unpacked;    /* of a compressed node: bytes of the listpack; 0: it is not compressed */
};
size_t list_type_nodes(const struct entry *entry); /* how many; at least 1 */
/* Calls `seen` for each, from the head on. The list must not change meanwhile. */
void list_type_each_node(const struct entry *entry, void (*seen)(void *context, const struct list_node_view *node),
                         void *context);
/* Adds a valid listpack with elements at the tail, whole where it may be a node. It is taken over. */
void list_type_append_node(struct db *db, struct entry *entry, uint8_t *lp);

/* Walking, from an index on, towards the tail or the head. The list must not change meanwhile. What is read is valid
 * until the next call. */
struct list_type_iterator {
    struct list_node *node; /* of a chain: the next one to be opened */
    uint8_t *lp, *at, *unpacked;
    bool backward;
};
void list_type_iterate(struct list_type_iterator *it, const struct entry *entry, int64_t index, bool backward);
bool list_type_next(struct list_type_iterator *it, struct sequence_element *element);
void list_type_iterate_end(struct list_type_iterator *it);
#endif
