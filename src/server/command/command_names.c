/* command_names.c: the names of command flags, ACL categories, groups and key flags. */
#include "server/command/command_names.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/command/command.h"

const struct flag_name command_flag_names[] = {{CMD_WRITE, "write"},
                                               {CMD_READONLY, "readonly"},
                                               {CMD_DENYOOM, "denyoom"},
                                               {CMD_MODULE, "module"},
                                               {CMD_ADMIN, "admin"},
                                               {CMD_PUBSUB, "pubsub"},
                                               {CMD_NOSCRIPT, "noscript"},
                                               {CMD_BLOCKING, "blocking"},
                                               {CMD_LOADING, "loading"},
                                               {CMD_STALE, "stale"},
                                               {CMD_SKIP_MONITOR, "skip_monitor"},
                                               {CMD_SKIP_COMMANDLOG, "skip_commandlog"},
                                               {CMD_ASKING, "asking"},
                                               {CMD_FAST, "fast"},
                                               {CMD_NO_AUTH, "no_auth"},
                                               {CMD_NO_MANDATORY_KEYS, "no_mandatory_keys"},
                                               {CMD_NO_ASYNC_LOADING, "no_async_loading"},
                                               {CMD_NO_MULTI, "no_multi"},
                                               {CMD_MOVABLE_KEYS, "movablekeys"},
                                               {CMD_ALLOW_BUSY, "allow_busy"},
                                               {0, NULL}};

enum { CATEGORIES_MAX = 32 };
struct flag_name command_category_names[CATEGORIES_MAX + 1] = {{CAT_KEYSPACE, "keyspace"},
                                                               {CAT_READ, "read"},
                                                               {CAT_WRITE, "write"},
                                                               {CAT_SET, "set"},
                                                               {CAT_SORTEDSET, "sortedset"},
                                                               {CAT_LIST, "list"},
                                                               {CAT_HASH, "hash"},
                                                               {CAT_STRING, "string"},
                                                               {CAT_BITMAP, "bitmap"},
                                                               {CAT_HYPERLOGLOG, "hyperloglog"},
                                                               {CAT_GEO, "geo"},
                                                               {CAT_STREAM, "stream"},
                                                               {CAT_PUBSUB, "pubsub"},
                                                               {CAT_ADMIN, "admin"},
                                                               {CAT_FAST, "fast"},
                                                               {CAT_SLOW, "slow"},
                                                               {CAT_BLOCKING, "blocking"},
                                                               {CAT_DANGEROUS, "dangerous"},
                                                               {CAT_CONNECTION, "connection"},
                                                               {CAT_TRANSACTION, "transaction"},
                                                               {CAT_SCRIPTING, "scripting"},
                                                               {CAT_LARGEOBJ, "largeobj"},
                                                               {0, NULL}};

const struct flag_name key_flag_names[] = {{KEY_RO, "RO"},
                                           {KEY_RW, "RW"},
                                           {KEY_OW, "OW"},
                                           {KEY_RM, "RM"},
                                           {KEY_ACCESS, "access"},
                                           {KEY_UPDATE, "update"},
                                           {KEY_INSERT, "insert"},
                                           {KEY_DELETE, "delete"},
                                           {KEY_NOT_KEY, "not_key"},
                                           {KEY_INCOMPLETE, "incomplete"},
                                           {KEY_VARIABLE_FLAGS, "variable_flags"},
                                           {0, NULL}};

const char *command_group_name(int group) {
    static const char *const names[] = {[GROUP_GENERIC] = "generic",
                                        [GROUP_STRING] = "string",
                                        [GROUP_LIST] = "list",
                                        [GROUP_SET] = "set",
                                        [GROUP_SORTED_SET] = "sorted-set",
                                        [GROUP_HASH] = "hash",
                                        [GROUP_PUBSUB] = "pubsub",
                                        [GROUP_TRANSACTIONS] = "transactions",
                                        [GROUP_CONNECTION] = "connection",
                                        [GROUP_SERVER] = "server",
                                        [GROUP_SCRIPTING] = "scripting",
                                        [GROUP_HYPERLOGLOG] = "hyperloglog",
                                        [GROUP_CLUSTER] = "cluster",
                                        [GROUP_SENTINEL] = "sentinel",
                                        [GROUP_GEO] = "geo",
                                        [GROUP_STREAM] = "stream",
                                        [GROUP_BITMAP] = "bitmap",
                                        [GROUP_MODULE] = "module"};
    return names[group];
}
uint32_t command_category_by_name(struct slice name) {
    for (const struct flag_name *category = command_category_names; category->name; category++)
        if (slice_is(name, category->name)) return category->flag;
    return 0;
}

static size_t categories_count(uint32_t *used) {
    size_t count = 0;
    *used = 0;
    while (command_category_names[count].name) *used |= command_category_names[count++].flag;
    return count;
}
uint32_t command_category_add(const char *name) {
    uint32_t used, flag = 1;
    size_t count = categories_count(&used);
    if (count == CATEGORIES_MAX) return 0;
    while (used & flag) flag <<= 1;
    command_category_names[count] = (struct flag_name){flag, mem_strdup(name)};
    return flag;
}
void command_category_remove(uint32_t flag) {
    uint32_t used;
    size_t count = categories_count(&used), at = 0;
    while (at < count && command_category_names[at].flag != flag) at++;
    must_less(at, count);
    mem_free((char *)(uintptr_t)command_category_names[at].name);
    memmove(&command_category_names[at], &command_category_names[at + 1],
            (count - at) * sizeof *command_category_names);
}
