/* types.h: what the types of value other than string have in common: when they change their encoding.
 *
 * Small values are packed into one piece of memory (a listpack, an intset); a value that outgrows the limits below is
 * converted to a table, a skiplist or a chain of listpacks. Nothing is converted back, but for lists. */
#ifndef STORE_TYPES_H
#define STORE_TYPES_H
#include "store/entry.h"

/* Changed by configuration; the option of the same name explains each. Read at each change of a value. */
struct encoding_limits {
    int64_t hash_listpack_entries, hash_listpack_value;
    int64_t set_intset_entries, set_listpack_entries, set_listpack_value;
    int64_t zset_listpack_entries, zset_listpack_value;
    int list_listpack_size, list_compress_depth;
    size_t list_large_min; /* elements of so many bytes are nodes of their own, smaller ones are not; 0: those that are
                              larger than a node may be (DEBUG) */
    int64_t stream_node_bytes, stream_node_entries; /* 0: no limit */
};
extern struct encoding_limits encoding_limits;

/* Makes the types known to the keyspace; once, before the first value. */
void store_types_register(void);
#endif
