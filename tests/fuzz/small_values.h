/* small_values.h: for the targets that read values: limits of the compact encodings that a short input exceeds, so that
 * it reaches all encodings. */
#pragma once
#include "store/types.h"

static inline void small_values_init(void) {
    encoding_limits = (struct encoding_limits){.hash_listpack_entries = 8,
                                               .hash_listpack_value = 16,
                                               .set_intset_entries = 8,
                                               .set_listpack_entries = 8,
                                               .set_listpack_value = 16,
                                               .zset_listpack_entries = 8,
                                               .zset_listpack_value = 16,
                                               .list_listpack_size = 64,
                                               .list_compress_depth = 1,
                                               .stream_node_bytes = 256,
                                               .stream_node_entries = 8};
    store_types_register();
}
