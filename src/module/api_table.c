/* api_table.c: finds the functions of the interface by name. See api.h. */
#include "lib/structures/hashtable.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "module/api.h"
#include "module/module.h"
#include <dlfcn.h>

/* A module called a function that this server lacks. It relies on what the function does, so nothing can go on. */
static _Noreturn void lacking_called(const char *name, const void *from) {
    Dl_info info;
    const char *file = dladdr(from, &info) && info.dli_fname ? info.dli_fname : "?";
    struct module *module = module_of_address(from);
    if (module) module_lacks(module, name);
    log_warning("The module '%s' (%s) called ValkeyModule_%s, which this server does not have.",
                module ? module->name : "?", file, name);
    must_hold(!"a function that the server has", "ValkeyModule_%s, called by the module '%s'", name,
              module ? module->name : file);
    abort();
}
#define API_LACKING_(result, name, arguments)                                                                          \
    static void lacking_##name(void) {                                                                                 \
        lacking_called(#name, __builtin_return_address(0));                                                            \
    }
VALKEYMODULE_FUNCTIONS(API_LACKING_)

struct api_function {
    const char *name;
    void (*function)(void); /* NULL: the server lacks it */
    void (*lacking)(void);
};
#define API_ENTRY_(result, name, arguments) {#name, (void (*)(void))api_##name, lacking_##name},
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
    if (!found) return NULL;
    return (void *)(found->function ? found->function : found->lacking);
}

void api_lacking_each(void (*visit)(void *context, const char *name), void *context) {
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (!functions[i].function) visit(context, functions[i].name);
}
