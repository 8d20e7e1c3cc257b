/* load.c: loads and unloads modules. See module.h.
 *
 * A library is opened with RTLD_LOCAL: modules do not see each other's symbols. RTLD_LAZY: one that names a symbol
 * which this server lacks runs until it uses it. It keeps its place in the list of modules while OnLoad runs, so that
 * what OnLoad registers has an owner, and everything is undone by the same path if OnLoad fails and when the module is
 * unloaded. */
#include "acl/acl.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "module/commands.h"
#include "module/parts.h"
#include "module/context.h"
#include "module/module.h"
#include "module/threads.h"
#include "module/types.h"
#include "script/script_run.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

static struct list modules = LIST_INIT(modules);

struct list *modules_all(void) {
    return &modules;
}

static struct module *module_find(struct slice name) {
    list_each(&modules, link) {
        struct module *module = container_of(link, struct module, link);
        if (module->name && slice_equal(name, slice_of(module->name))) return module;
    }
    return NULL;
}

const void *module_base_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}
struct module *module_of_address(const void *address) {
    const void *base = module_base_of(address);
    list_each(&modules, link) {
        struct module *module = container_of(link, struct module, link);
        if (base && module->base == base) return module;
    }
    return NULL;
}

/* --- Introduction: the module's Init --- */

int api_IsModuleNameBusy(const char *name) {
    return module_find(slice_of(name)) != NULL || strcmp(name, "lua") == 0;
}
void api_SetModuleAttribs(ValkeyModuleCtx *ctx, const char *name, int ver, int apiver) {
    struct module *module = ctx->module;
    if (module->name) return;
    module->name = mem_strdup(name);
    module->version = ver;
    module->api_version = apiver;
}
void api_SetModuleOptions(ValkeyModuleCtx *ctx, int options) {
    ctx->module->options = (uint64_t)options;
}
int api_GetModuleOptionsAll(void) {
    return (VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION << 1) - 1;
}

const char *modules_direct_load_refusal(bool swap) {
    bool aware = true;
    list_each(&modules, link) {
        const struct module *module = container_of(link, struct module, link);
        if (module->types.len && !(module->options & VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS))
            return "there are modules that don't handle read errors";
        if (!(module->options & VALKEYMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD)) aware = false;
    }
    return swap && !aware ? "there are modules that are not aware of async replication" : NULL;
}

/* The arguments that MODULE LIST shows and CONFIG REWRITE keeps; argv[0] is the name of a command and left out. */
int api_UpdateRuntimeArgs(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    struct module *module = ctx->module;
    for (int i = 0; i < module->argc; i++) mem_free(module->arguments[i]);
    mem_free(module->arguments);
    module->argc = argc > 1 ? argc - 1 : 0;
    module->arguments = mem_calloc((size_t)module->argc + 1, sizeof *module->arguments);
    for (int i = 0; i < module->argc; i++) module->arguments[i] = mem_strndup(argv[i + 1]->data, argv[i + 1]->len);
    return VALKEYMODULE_OK;
}

/* --- Functions that modules export to each other --- */

struct module_shared {
    struct list_link link;
    struct module *module;
    char *name;
    void *function;
};
struct module_use {
    struct list_link link;
    struct module *of;
};

int api_ExportSharedAPI(ValkeyModuleCtx *ctx, const char *apiname, void *func) {
    list_each(&modules, at) {
        struct module *module = container_of(at, struct module, link);
        list_each(&module->shared, link) if (strcmp(container_of(link, struct module_shared, link)->name, apiname) ==
                                             0) return VALKEYMODULE_ERR;
    }
    struct module_shared *shared = mem_calloc(1, sizeof *shared);
    *shared = (struct module_shared){.module = ctx->module, .name = mem_strdup(apiname), .function = func};
    list_append(&ctx->module->shared, &shared->link);
    return VALKEYMODULE_OK;
}
static bool module_uses(struct module *module, const struct module *of) {
    list_each(&module->uses, link) if (container_of(link, struct module_use, link)->of == of) return true;
    return false;
}
void *api_GetSharedAPI(ValkeyModuleCtx *ctx, const char *apiname) {
    list_each(&modules, at) {
        struct module *module = container_of(at, struct module, link);
        list_each(&module->shared, link) {
            struct module_shared *shared = container_of(link, struct module_shared, link);
            if (strcmp(shared->name, apiname) != 0) continue;
            if (!module_uses(ctx->module, module)) {
                struct module_use *use = mem_calloc(1, sizeof *use);
                use->of = module;
                list_append(&ctx->module->uses, &use->link);
            }
            return shared->function;
        }
    }
    return NULL;
}
static void use_end(struct module *module, struct module_use *use) {
    list_remove(&module->uses, &use->link);
    mem_free(use);
}
static void module_shared_drop(struct module *module) {
    list_each(&module->shared, link) {
        struct module_shared *shared = container_of(link, struct module_shared, link);
        list_remove(&module->shared, link);
        mem_free(shared->name);
        mem_free(shared);
    }
    list_each(&module->uses, link) use_end(module, container_of(link, struct module_use, link));
    /* After an OnLoad that has failed, others may know its functions. */
    list_each(&modules, at) {
        struct module *other = container_of(at, struct module, link);
        list_each(&other->uses, link) {
            struct module_use *use = container_of(link, struct module_use, link);
            if (use->of == module) use_end(other, use);
        }
    }
}
static bool module_is_used(const struct module *module) {
    list_each(&modules, link) if (module_uses(container_of(link, struct module, link), module)) return true;
    return false;
}
void module_write_relations(const struct module *of, bool uses, struct output *out) {
    const char *before = "";
    list_each(&modules, link) {
        struct module *other = container_of(link, struct module, link);
        if (!other->name || !(uses ? module_uses((struct module *)(uintptr_t)of, other) : module_uses(other, of)))
            continue;
        output_write(out, slice_of(before));
        output_write(out, slice_of(other->name));
        before = "|";
    }
}

/* --- Loading --- */

/* Modules that are gone, but whose code a background thread will call: to free a value, or to reset an engine. Their
 * libraries stay open until the next module comes or goes. */
static struct list leaving = LIST_INIT(leaving);

static void module_close(struct module *module) {
    list_remove(&leaving, &module->link);
    if (dlclose(module->library) != 0) {
        const char *reason = dlerror();
        log_warning("Error when trying to close the %s module: %s", module->name ? module->name : module->path,
                    reason ? reason : "Unknown error");
    }
    for (int i = 0; i < module->argc; i++) mem_free(module->arguments[i]);
    mem_free(module->arguments);
    mem_free(module->name);
    mem_free(module->path);
    mem_free(module);
}
static void modules_close(void) {
    list_each(&leaving, link) {
        struct module *module = container_of(link, struct module, link);
        if (module_types_drop(module) && !module->background) module_close(module);
    }
}

static void module_free(struct module *module) {
    module_commands_drop(module);
    module_filters_drop(module);
    module_notifications_drop(module);
    module_events_drop(module);
    module_configs_drop(module);
    module_timers_drop(module);
    module_descriptors_drop(module);
    module_users_drop(module);
    module_messages_drop(module);
    module_refused_drop(module);
    module_forks_drop(module);
    module_engines_drop(module);
    module_promises_drop(module);
    module_types_withdraw(module);
    module_shared_drop(module);
    list_remove(&modules, &module->link);
    list_append(&leaving, &module->link);
    modules_close();
}

void module_lists_init(struct module *module) {
    struct list *const lists[] = {&module->commands, &module->types,         &module->shared, &module->uses,
                                  &module->filters,  &module->notifications, &module->events, &module->configs,
                                  &module->refused,  &module->receivers,     &module->engines};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
}

static struct module *module_new(const char *path, int argc, const struct slice *arguments) {
    struct module *module = mem_calloc(1, sizeof *module);
    module->path = mem_strdup(path);
    module->argc = argc;
    module->arguments = mem_calloc((size_t)argc + 1, sizeof *module->arguments);
    for (int i = 0; i < argc; i++) module->arguments[i] = mem_strndup(arguments[i].data, arguments[i].len);
    module_lists_init(module);
    list_append(&modules, &module->link);
    return module;
}

typedef int (*module_entry)(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc);
typedef int (*module_exit)(ValkeyModuleCtx *ctx);

static void *symbol(void *library, const char *name, const char *old_name) {
    void *found = dlsym(library, name);
    return found ? found : dlsym(library, old_name);
}

static bool is_executable(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 || st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH);
}

static void unload_loaded(struct module *module) {
    module_exit leave = (module_exit)symbol(module->library, "ValkeyModule_OnUnload", "RedisModule_OnUnload");
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, module);
    if (leave) leave(&ctx);
    context_end(&ctx);
    log_notice("Module %s unloaded", module->name);
    module_free(module);
}

static int load_enter(struct module *module, module_entry enter, int argc, const struct slice *arguments) {
    struct ValkeyModuleString **argv = module_strings_of(argc, arguments);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, module);
    int result = enter(&ctx, argv, argc);
    context_end(&ctx);
    module_strings_free(argc, argv);
    return result;
}

static bool load(const char *path, int argc, const struct slice *arguments, int options, const struct slice *pairs) {
    if (!is_executable(path)) {
        log_warning("Module %s failed to load: It does not have execute permissions.", path);
        return false;
    }
    /* Without RTLD_DEEPBIND, by which the module would find libc's free(), but libc's strdup() the allocator's
     * malloc(). */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        log_warning("Module %s failed to load: %s", path, dlerror());
        return false;
    }
    module_entry enter = (module_entry)symbol(library, "ValkeyModule_OnLoad", "RedisModule_OnLoad");
    if (!enter) {
        log_warning("Module %s does not export ValkeyModule_OnLoad() or RedisModule_OnLoad() symbol. Module not "
                    "loaded.",
                    path);
        dlclose(library);
        return false;
    }
    if (!dlsym(library, "ValkeyModule_OnLoad")) log_notice("Legacy Redis Module %s found", path);
    module_lock_start();
    modules_close();
    struct module *module = module_new(path, argc, arguments);
    module->library = library;
    module->base = module_base_of(((const struct link_map *)library)->l_ld);
    module->loading = true;
    module_configs_begin(options, pairs);
    if (load_enter(module, enter, argc, arguments) != VALKEYMODULE_OK) {
        log_warning("Module %s initialization failed. Module %s", path, module->name ? "not loaded." : "name is busy.");
        module_free(module);
        return false;
    }
    if (!module->name) {
        log_warning("Module %s initialization failed. Its OnLoad function has not called Init.", path);
        module_free(module);
        return false;
    }
    module->loading = false;
    log_notice("Module '%s' loaded from %s", module->name, path);
    if (!module_configs_end(module, options)) {
        unload_loaded(module);
        return false;
    }
    if (commands_changed) commands_changed();
    module_event_changed(module, true);
    return true;
}

bool module_load(const char *path, int argc, const struct slice *arguments, int options, const struct slice *pairs) {
    bool loaded = load(path, argc, arguments, options, pairs);
    if (options) module_configs_forget();
    return loaded;
}

static bool module_has_command(void *context, struct slice name) {
    struct module *module = context;
    list_each(&module->commands, link) {
        const struct ValkeyModuleCommand *command = container_of(link, struct ValkeyModuleCommand, link);
        if (!command->parent && slice_is(name, command->name)) return true;
    }
    return false;
}

const char *module_unload(struct slice name) {
    struct module *module = module_find(name);
    if (!module) return "no such module with that name";
    if (module->types.len) return "the module exports one or more module-side data types, can't unload";
    if (module_is_used(module))
        return "the module exports APIs used by other modules. Please unload them first and try again";
    if (module->calls || module_descriptors_run(module)) return "the module runs: one of its calls unloads it";
    if (module->blocked) return "the module has blocked clients. Please wait for them to be unblocked and try again";
    if (module->timers)
        return "the module holds timer that is not fired. Please stop the timer or wait until it fires.";
    if (module->engines.len && script_running) return "its scripting engine cannot go while a script runs";
    if (module->background) return "the module's code runs in the background. Please try again";
    const char *rule = acl_rule_on(module_has_command, module);
    if (rule) {
        log_warning("Module %s unload blocked: An ACL user has reference to rule '%s'", module->name, rule);
        return "one or more ACL users reference commands from this module. Remove those ACL rules before unloading";
    }
    void *found = symbol(module->library, "ValkeyModule_OnUnload", "RedisModule_OnUnload");
    if (found) {
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, module);
        int result = ((module_exit)found)(&ctx);
        context_end(&ctx);
        if (result != VALKEYMODULE_OK) {
            log_warning("Module %s OnUnload failed. Unload canceled.", module->name);
            return "operation not possible.";
        }
    }
    module_event_changed(module, false);
    log_notice("Module %s unloaded", module->name);
    module_free(module);
    return NULL;
}
