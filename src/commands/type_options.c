/* type_options.c: the options for the encoding limits of the types; see store/types.h. */
#include "commands/commands.h"
#include "store/types.h"

#define LIMIT(option, other, kind, field, text, words)                                                                 \
    {                                                                                                                  \
        .name = (option), .alias = (other), .type = (kind), .value = &encoding_limits.field, .initial = (text),        \
        .min = 0, .max = INT64_MAX, .help = (words)                                                                    \
    }

const struct config_option type_options[] = {
    LIMIT("hash-max-listpack-entries", "hash-max-ziplist-entries", CONFIG_INT64, hash_listpack_entries, "512",
          "A hash with more fields becomes a table."),
    LIMIT("hash-max-listpack-value", "hash-max-ziplist-value", CONFIG_MEMORY, hash_listpack_value, "64",
          "A hash with a longer field or value becomes a table."),
    LIMIT("set-max-intset-entries", NULL, CONFIG_INT64, set_intset_entries, "512",
          "A set of more integers is not kept as an array of them."),
    LIMIT("set-max-listpack-entries", NULL, CONFIG_INT64, set_listpack_entries, "128",
          "A set with more members becomes a table."),
    LIMIT("set-max-listpack-value", NULL, CONFIG_INT64, set_listpack_value, "64",
          "A set with a longer member becomes a table."),
    LIMIT("zset-max-listpack-entries", "zset-max-ziplist-entries", CONFIG_INT64, zset_listpack_entries, "128",
          "A sorted set with more members becomes a skiplist and a table."),
    LIMIT("zset-max-listpack-value", "zset-max-ziplist-value", CONFIG_MEMORY, zset_listpack_value, "64",
          "A sorted set with a longer member becomes a skiplist and a table."),
    {.name = "list-max-listpack-size",
     .alias = "list-max-ziplist-size",
     .type = CONFIG_INT,
     .value = &encoding_limits.list_listpack_size,
     .initial = "-2",
     .min = INT32_MIN,
     .max = INT32_MAX,
     .help = "Most elements in a node of a list; -1 to -5: at most 4, 8, 16, 32 or 64 kB."},
    {.name = "list-compress-depth",
     .type = CONFIG_INT,
     .value = &encoding_limits.list_compress_depth,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX,
     .help = "Nodes at each end of a list that are not compressed; 0: none are."},
    LIMIT("stream-node-max-bytes", NULL, CONFIG_MEMORY, stream_node_bytes, "4096",
          "Approximate limit for the bytes in a node of a stream; 0: no limit."),
    LIMIT("stream-node-max-entries", NULL, CONFIG_INT64, stream_node_entries, "100",
          "Most entries in a node of a stream, including deleted ones; 0: no limit."),
    {.name = NULL},
};
