/* quicklist.h: a list as a chain of nodes; see list_type.h. For store/ only. */
#ifndef STORE_QUICKLIST_H
#define STORE_QUICKLIST_H
#include "store/list_type.h"

struct chain;
/* Would a listpack of so many bytes and elements be more than a node may hold (list-max-listpack-size)? */
bool chain_node_exceeds(size_t bytes, size_t count);

struct chain *chain_new(uint8_t *lp); /* with the elements of a listpack, which is taken over */
void chain_free(struct chain *chain);
struct chain *chain_copy(const struct chain *chain);
size_t chain_len(const struct chain *chain);
size_t chain_nodes(const struct chain *chain);
size_t chain_memory(const struct chain *chain, size_t samples);
void chain_describe(const struct chain *chain, struct sequence_nodes *nodes);
/* A chain that fills less than half of one node: its elements; the chain is gone. Else NULL. */
uint8_t *chain_to_listpack(struct chain *chain);

void chain_each_node(const struct chain *chain, void (*seen)(void *context, const struct list_node_view *node),
                     void *context);
void chain_append_node(struct chain *chain, uint8_t *lp); /* a listpack with elements, which is taken over */

void chain_push(struct chain *chain, bool head, struct slice text, struct blob *blob);
void chain_delete(struct chain *chain, int64_t index, size_t count);
bool chain_replace(struct chain *chain, int64_t index, struct slice text, struct blob *blob);
bool chain_insert(struct chain *chain, struct slice pivot, bool after, struct slice text, struct blob *blob);
size_t chain_remove(struct chain *chain, struct slice text, size_t most, bool backward);
size_t chain_remove_packed(uint8_t **lp, struct slice text, size_t most, bool backward); /* of one listpack */

void chain_iterate(struct list_type_iterator *it, const struct chain *chain, int64_t index);
/* Opens the next node: then it->at is its first element; of a node that is one element, that is told at once. False:
 * there is none. */
bool chain_iterate_next(struct list_type_iterator *it, struct sequence_element *element);
#endif
