/* api_table.c: finds the functions of the interface by name. See api.h. */
#include "lib/structures/hashtable.h"
#include "module/api.h"

struct api_function {
    const char *name;
    void (*function)(void);
};
#define API_ENTRY_(result, name, arguments) {#name, (void (*)(void))api_##name},
static const struct api_function functions[] = {VALKEYMODULE_FUNCTIONS(API_ENTRY_)};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static struct slice function_key(const void *entry) {
    return slice_of(((const struct api_function *)entry)->name);
}
static const struct hashtable_type function_type = {.key = function_key};
static struct hashtable *by_name;

static const struct api_function *function_find(struct slice name) {
    if (!by_name) {
        by_name = hashtable_new(&function_type);
        for (size_t i = 0; i < FUNCTIONS; i++) hashtable_add(by_name, (void *)(uintptr_t)&functions[i]);
    }
    return hashtable_find(by_name, name);
}

void *api_find(const char *name) {
    static const char valkey[] = "ValkeyModule_", redis[] = "RedisModule_";
    if (strncmp(name, valkey, sizeof valkey - 1) == 0)
        name += sizeof valkey - 1;
    else if (strncmp(name, redis, sizeof redis - 1) == 0)
        name += sizeof redis - 1;
    else
        return NULL;
    const struct api_function *found = function_find(slice_of(name));
    return found ? (void *)found->function : NULL;
}
