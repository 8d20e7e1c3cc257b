/* types.h: the encoding limits of the types other than string.
 *
 * Small values are packed into one allocation (a listpack, an intset); a value that exceeds the limits below is
 * converted to a table, a skiplist or a quicklist. Only lists are converted back. */
#pragma once
#include "store/entry.h"

/* Set by the configuration; the option of the same name documents each. Read at every change of a value. */
struct encoding_limits {
    int64_t hash_listpack_entries, hash_listpack_value;
    int64_t set_intset_entries, set_listpack_entries, set_listpack_value;
    int64_t zset_listpack_entries, zset_listpack_value;
    int list_listpack_size, list_compress_depth;
    size_t list_large_min; /* elements of at least this size get their own node, smaller ones do not; 0: elements that
                              exceed the limit of a node (DEBUG) */
    int64_t stream_node_bytes, stream_node_entries; /* 0: no limit */
};
extern struct encoding_limits encoding_limits;

/* Registers the types with the keyspace; call once, before the first value. */
void store_types_register(void);
