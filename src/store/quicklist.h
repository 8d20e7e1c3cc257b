/* quicklist.h: the quicklist, a linked list of listpack nodes; see list_type.h. For store/ only. */
#pragma once
#include "store/list_type.h"

struct quicklist;
/* True: a listpack with these bytes and elements exceeds the limit of a node (list-max-listpack-size). */
bool quicklist_node_exceeds(size_t bytes, size_t count);

struct quicklist *quicklist_new(uint8_t *lp); /* takes over a listpack with elements */
void quicklist_free(struct quicklist *quicklist);
struct quicklist *quicklist_copy(const struct quicklist *quicklist);
size_t quicklist_len(const struct quicklist *quicklist);
size_t quicklist_nodes(const struct quicklist *quicklist);
/* As `relocate` of struct value_ops. The quicklist stores the node with which the next call continues, so a step has
 * the same cost at any position of a long list. The call returns 0 for a cursor that belongs to an earlier list of the
 * same key. */
uint64_t quicklist_relocate(struct quicklist *quicklist, uint64_t cursor, struct relocation *r);
size_t quicklist_memory(const struct quicklist *quicklist, size_t samples);
void quicklist_describe(const struct quicklist *quicklist, struct quicklist_stats *nodes);
/* If the quicklist fills less than half of one node, returns its elements as a listpack and frees the quicklist.
 * Otherwise NULL. */
uint8_t *quicklist_to_listpack(struct quicklist *quicklist);

void quicklist_each_node(const struct quicklist *quicklist,
                         void (*visit)(void *context, const struct list_node_view *node), void *context);
void quicklist_append_node(struct quicklist *quicklist, uint8_t *lp); /* takes over a listpack with elements */

void quicklist_push(struct quicklist *quicklist, bool head, struct slice text, struct blob *blob);
void quicklist_delete(struct quicklist *quicklist, int64_t index, size_t count);
bool quicklist_replace(struct quicklist *quicklist, int64_t index, struct slice text, struct blob *blob);
bool quicklist_insert(struct quicklist *quicklist, struct slice pivot, bool after, struct slice text,
                      struct blob *blob);
size_t quicklist_remove(struct quicklist *quicklist, struct slice text, size_t most, bool backward);
size_t quicklist_remove_packed(uint8_t **lp, struct slice text, size_t most,
                               bool backward); /* removes from a single listpack */

void quicklist_iterate(struct list_type_iterator *it, const struct quicklist *quicklist, int64_t index);
/* Opens the next node: it->at is then its first element; the element of a large node is returned immediately. False: no
 * more nodes. */
bool quicklist_iterate_next(struct list_type_iterator *it, struct list_type_element *element);
