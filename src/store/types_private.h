/* types_private.h: what the files of the types share. For store/ only. */
#ifndef STORE_TYPES_PRIVATE_H
#define STORE_TYPES_PRIVATE_H
#include "lib/hashtable.h"
#include "store/types.h"

extern const struct value_ops hash_ops, set_ops, list_ops, zset_ops, stream_ops;

/* Calls `seen` for `count` different entries of the table, less than it has, chosen fairly. A table of which many are
 * wanted is walked, and each entry is taken with the chance that is left; of one of which few are, random ones are
 * drawn until enough of them differ. `plain` is the table's type without a function to free. */
void table_sample(struct hashtable *table, const struct hashtable_type *plain, size_t count,
                  void (*seen)(void *context, void *entry), void *context);
/* Bytes of a table and its entries, of which `samples` are measured and the others taken to be like them. */
size_t table_memory(struct hashtable *table, size_t samples, size_t (*entry_bytes)(const void *entry));
#endif
