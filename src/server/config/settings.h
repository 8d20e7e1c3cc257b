/* settings.h: values of options that several files of the server read. Only the option table (config_server.c) writes
 * them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum permission { PERMIT_NO, PERMIT_YES, PERMIT_LOCAL };
enum maxmemory_policy {
    POLICY_LRU = 1,
    POLICY_LFU = 2,
    POLICY_ALLKEYS = 4,
    POLICY_RANDOM = 8,
    POLICY_TTL = 16,
    POLICY_NOEVICTION = 0,
    POLICY_VOLATILE_LRU = POLICY_LRU,
    POLICY_VOLATILE_LFU = POLICY_LFU,
    POLICY_VOLATILE_RANDOM = POLICY_RANDOM,
    POLICY_VOLATILE_TTL = POLICY_TTL,
    POLICY_ALLKEYS_LRU = POLICY_LRU | POLICY_ALLKEYS,
    POLICY_ALLKEYS_LFU = POLICY_LFU | POLICY_ALLKEYS,
    POLICY_ALLKEYS_RANDOM = POLICY_RANDOM | POLICY_ALLKEYS
};
struct server_settings {
    bool hide_user_data, always_show_logo, crash_log, exit_on_panic, disable_thp, debug_assert;
    int debug_command, module_command, protected_configs; /* enum permission */
    uint64_t maxmemory;                                   /* bytes, 0: no limit */
    int maxmemory_policy;                                 /* enum maxmemory_policy */
    char *availability_zone;
    bool redis_names; /* extended-redis-compatibility */
};
extern struct server_settings server_settings;
/* An error text with the name of the product, which the option extended-redis-compatibility chooses. */
#define WITH_PRODUCT(before, after)                                                                                    \
    (__builtin_expect(server_settings.redis_names, 0) ? before "Redis" after : before "Valkey" after)
const char *maxmemory_policy_name(void);
