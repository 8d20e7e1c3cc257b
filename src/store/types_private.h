/* types_private.h: functions that the files of the types share. For store/ only. */
#pragma once
#include "lib/structures/hashtable.h"
#include "store/types.h"

extern const struct value_ops hash_ops, set_ops, list_ops, zset_ops, stream_ops, extension_ops;

/* Calls `visit` for `count` distinct entries of the table, chosen uniformly; count must be less than the size. For a
 * large share of the entries, it iterates and takes each entry with the remaining probability; for a small share, it
 * draws random entries until enough of them differ. `plain` is the table's type without a free function. */
void table_sample(struct hashtable *table, const struct hashtable_type *plain, size_t count,
                  void (*visit)(void *context, void *entry), void *context);
/* Returns the bytes of a table and its entries: measures `samples` entries and extrapolates. */
size_t table_memory(struct hashtable *table, size_t samples, size_t (*entry_bytes)(const void *entry));
/* `relocate` of a value with a hash table: scans it from the cursor on until `visit` has examined r->limit blocks. */
uint64_t table_relocate(struct hashtable *table, uint64_t cursor, struct relocation *r,
                        void (*visit)(void *context, void **ref), void *context);
