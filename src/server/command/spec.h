/* spec.h: shorthands for tables of command specs. */
#pragma once
#include "server/command/command.h"

/* The first members of a row: its name, its handler (NULL if it has only subcommands), the arity, the flags, the group
 * with its category (ON_KEYS …), and the version that introduced the command. */
#define COMMAND(name_, run_, arity_, flags_, group_, since_)                                                           \
    .name = (name_), .run = (run_), .arity = (arity_), .flags = (flags_), group_, .since = (since_)
#define ON_KEYS         .group = GROUP_GENERIC, .categories = CAT_KEYSPACE
#define ON_STRINGS      .group = GROUP_STRING, .categories = CAT_STRING
#define ON_LISTS        .group = GROUP_LIST, .categories = CAT_LIST
#define ON_SETS         .group = GROUP_SET, .categories = CAT_SET
#define ON_SORTED_SETS  .group = GROUP_SORTED_SET, .categories = CAT_SORTEDSET
#define ON_HASHES       .group = GROUP_HASH, .categories = CAT_HASH
#define ON_STREAMS      .group = GROUP_STREAM, .categories = CAT_STREAM
#define ON_BITMAPS      .group = GROUP_BITMAP, .categories = CAT_BITMAP
#define ON_HYPERLOGLOGS .group = GROUP_HYPERLOGLOG, .categories = CAT_HYPERLOGLOG
#define ON_GEO          .group = GROUP_GEO, .categories = CAT_GEO

/* One key spec: keys from argv[first] to argv[first + last] (last < 0: from the end), every `step`. */
#define KEY_RANGE(first, last, step, ...)                                                                              \
    {                                                                                                                  \
        .flags = (__VA_ARGS__), .begin = BEGIN_INDEX, .index = (first), .find = FIND_RANGE, .a = (last), .b = (step),  \
        .c = 0                                                                                                         \
    }
/* One key spec: argv[index] counts the keys that follow it. */
#define KEY_COUNTED(at, ...)                                                                                           \
    { .flags = (__VA_ARGS__), .begin = BEGIN_INDEX, .index = (at), .find = FIND_KEYNUM, .a = 0, .b = 1, .c = 1 }
#define FIRST_KEY(...)                                                                                                 \
    { KEY_RANGE(1, 0, 1, __VA_ARGS__) }
#define ALL_KEYS(...)                                                                                                  \
    { KEY_RANGE(1, -1, 1, __VA_ARGS__) }
/* History, tips and lines of help: strings that end with NULL. */
#define WORDS(...)                                                                                                     \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
