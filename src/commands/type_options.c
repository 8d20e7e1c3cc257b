/* type_options.c: the options for the encoding limits of the types; see store/types.h. */
#include "commands/commands.h"
#include "store/types.h"

#define LIMIT(option, other, kind, field, text)                                                                        \
    {                                                                                                                  \
        .name = (option), .alias = (other), .type = (kind), .value = &encoding_limits.field, .initial = (text),        \
        .min = 0, .max = INT64_MAX                                                                                     \
    }

const struct config_option type_options[] = {
    LIMIT("hash-max-listpack-entries", "hash-max-ziplist-entries", CONFIG_INT64, hash_listpack_entries, "512"),
    LIMIT("hash-max-listpack-value", "hash-max-ziplist-value", CONFIG_MEMORY, hash_listpack_value, "64"),
    LIMIT("set-max-intset-entries", NULL, CONFIG_INT64, set_intset_entries, "512"),
    LIMIT("set-max-listpack-entries", NULL, CONFIG_INT64, set_listpack_entries, "128"),
    LIMIT("set-max-listpack-value", NULL, CONFIG_INT64, set_listpack_value, "64"),
    LIMIT("zset-max-listpack-entries", "zset-max-ziplist-entries", CONFIG_INT64, zset_listpack_entries, "128"),
    LIMIT("zset-max-listpack-value", "zset-max-ziplist-value", CONFIG_MEMORY, zset_listpack_value, "64"),
    {OPTION("list-max-listpack-size", CONFIG_INT, &encoding_limits.list_listpack_size, "-2"),
     .alias = "list-max-ziplist-size", .min = INT32_MIN, .max = INT32_MAX},
    {OPTION("list-compress-depth", CONFIG_INT, &encoding_limits.list_compress_depth, "0"), .min = 0, .max = INT32_MAX},
    LIMIT("stream-node-max-bytes", NULL, CONFIG_MEMORY, stream_node_bytes, "4096"),
    LIMIT("stream-node-max-entries", NULL, CONFIG_INT64, stream_node_entries, "100"),
    {.name = NULL},
};
