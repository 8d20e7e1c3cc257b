/* config_unbuilt.c: options of features that are not in this build.
 *
 * A configuration file written for Valkey must load. Every option of Valkey is therefore here or in its feature's
 * table, with its type, default and limits. Options here are accepted, kept, shown and rewritten; the log says once
 * that such an option has no effect when its value differs from the default. A change that adds a feature moves its
 * options into the feature's own table; the engine aborts on duplicates.
 *
 * Values that would risk data or safety without their feature (modules) are refused instead. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include <stdio.h>
#include <string.h>

/* --- lines that are not options --- */

static const char *rename_command(int count, const struct slice *words) {
    return command_rename(words[0], words[1]);
}
/* Valkey can have transports as modules; here they are part of the server. Their lines are accepted, with the arguments
 * of the RDMA module: "loadmodule /path/valkey-rdma.so bind=192.168.1.5 port=6379" sets rdma-bind and rdma-port. */
static const char *set_rdma_argument(struct slice argument) {
    const char *equals = memchr(argument.data, '=', argument.len);
    char name[64];
    size_t name_len = equals ? (size_t)(equals - argument.data) : 0;
    struct slice value = {0};
    if (equals) value = (struct slice){equals + 1, argument.len - name_len - 1};
    if (!name_len || name_len >= sizeof name - sizeof "rdma-") return "Arguments of valkey-rdma.so are NAME=VALUE";
    snprintf(name, sizeof name, "rdma-%.*s", (int)name_len, argument.data);
    if (!config_find(slice_of(name))) return config_reason("There is no option %s", name);
    return config_assign(name, 1, &value);
}
static const char *load_module(int count, const struct slice *words) {
    struct slice file = words[0];
    const char *slash = memrchr(file.data, '/', file.len);
    if (slash) file = (struct slice){slash + 1, file.len - (size_t)(slash + 1 - file.data)};
    if (slice_is(file, "valkey-tls.so") && count == 1) return NULL;
    if (!slice_is(file, "valkey-rdma.so")) return "This build cannot load modules";
    for (int i = 1; i < count; i++) {
        const char *reason = set_rdma_argument(words[i]);
        if (reason) return reason;
    }
    return NULL;
}
/* A rewritten file contains the options that the arguments have set, and so no loadmodule lines: the argument of such a
 * line would set an option again that is back at its default. */
static void rewrite_modules(struct output *out) {}
static const char *ignore(int count, const struct slice *words) {
    return NULL;
} /* had an effect in older servers */

const struct config_directive config_directives_basic[] = {
    {.name = "rename-command", .min_words = 2, .max_words = 2, .handle = rename_command},
    {.name = "loadmodule", .min_words = 1, .handle = load_module, .rewrite = rewrite_modules},
    {.name = "list-max-ziplist-entries", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "list-max-ziplist-value", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "lua-replicate-commands", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "io-threads-do-reads", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "events-per-io-thread", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = "dynamic-hz", .min_words = 1, .max_words = 1, .handle = ignore},
    {.name = NULL}};

const struct config_option config_options_unbuilt[] = {
    /* Threads, sockets, start-up. */
    {.name = "min-io-threads-avoid-copy-reply",
     .type = CONFIG_INT,
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .initial = "7",
     .min = 0,
     .max = INT32_MAX},
    {.name = "min-string-size-avoid-copy-reply-threaded",
     .type = CONFIG_MEMORY,
     .flags = CONFIG_DEPRECATED | CONFIG_HIDDEN,
     .initial = "64kb",
     .min = 0,
     .max = INT64_MAX},
    {.name = "debug-context", .type = CONFIG_STRING, .flags = CONFIG_HIDDEN, .initial = ""},
    {.name = "ignore-warnings", .type = CONFIG_STRING, .flags = CONFIG_NOT_BUILT, .initial = ""},
    {.name = NULL}};
