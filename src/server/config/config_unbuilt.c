/* config_unbuilt.c: options of features that are not in this build.
 *
 * A configuration file written for Valkey must load. Every option of Valkey is therefore here or in its feature's
 * table, with its type, default and limits. Options here are accepted, kept, shown and rewritten; the log says once
 * that such an option has no effect when its value differs from the default. A change that adds a feature moves its
 * options into the feature's own table; the engine aborts on duplicates.
 */
#include "server/config/config.h"

/* --- lines that are not options --- */

static const char *ignore(int count, const struct slice *words) {
    return NULL;
} /* had an effect in older servers */

const struct config_directive config_directives_basic[] = {
    {.name = "list-max-ziplist-entries", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "list-max-ziplist-value", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "lua-replicate-commands", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "io-threads-do-reads", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "events-per-io-thread", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "dynamic-hz", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = NULL}};

const struct config_option config_options_unbuilt[] = {
    /* Threads, sockets, start-up. */
    {OPTION("min-io-threads-avoid-copy-reply", CONFIG_INT, NULL, "7"), .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .min = 0, .max = INT32_MAX},
    {OPTION("min-string-size-avoid-copy-reply-threaded", CONFIG_MEMORY, NULL, "64kb"),
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN, .min = 0, .max = INT64_MAX},
    {OPTION("debug-context", CONFIG_STRING, NULL, ""), .flags = CONFIG_HIDDEN},
    {OPTION("ignore-warnings", CONFIG_STRING, NULL, ""), .flags = CONFIG_NOT_BUILT},
    {.name = NULL},
};
