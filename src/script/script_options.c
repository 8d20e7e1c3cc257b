/* script_options.c: options, and the hooks that INFO and persistence use. */
#include "script/function.h"
#include "script/lua_vm.h"
#include "script/script.h"
#include "script/script_engine.h"
#include "script/script_run.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/config/config.h"
#include "server/command/command.h"
#include "server/script_hooks.h"

static void usage(struct script_usage *usage) {
    struct script_cache_stats cache;
    struct function_stats functions;
    script_cache_stats(&cache);
    function_stats(&functions);
    *usage = (struct script_usage){.vm_eval = lua_vm_memory(script_vm()),
                                   .vm_functions = functions.vm_bytes,
                                   .scripts_bytes = cache.bytes,
                                   .functions_bytes = functions.bytes,
                                   .scripts = cache.count,
                                   .libraries = functions.libraries,
                                   .functions = functions.functions,
                                   .evicted = cache.evicted};
}

static bool declared(const char *command, struct slice script, uint32_t *command_flags) {
    uint32_t flags;
    if (command[0] == 'f') { /* FCALL and FCALL_RO */
        const struct function *function = function_find(script);
        flags = function ? function->flags : SCRIPT_WITHOUT_SHEBANG;
    } else {
        flags = script_flags(script, strncmp(command, "evalsha", 7) == 0);
    }
    if (flags & SCRIPT_WITHOUT_SHEBANG) return false;
    *command_flags &= ~(uint32_t)(CMD_WRITE | CMD_DENYOOM | CMD_STALE);
    if (!(flags & SCRIPT_NO_WRITES)) *command_flags |= CMD_WRITE;
    if (!(flags & (SCRIPT_NO_WRITES | SCRIPT_ALLOW_OOM))) *command_flags |= CMD_DENYOOM;
    if (flags & SCRIPT_ALLOW_STALE) *command_flags |= CMD_STALE;
    return true;
}

static const char *context(void) {
    return !script_running ? NULL : script_running->of_module ? "script" : "lua";
}

static bool any_slot(void) {
    return script_running && script_running->flags & (SCRIPT_WITHOUT_SHEBANG | SCRIPT_ALLOW_CROSS_SLOT);
}

static const char *load_library(struct slice code, bool replace) {
    return library_load(code, replace, false, NULL);
}

static const char *replace_libraries(const struct slice *codes, size_t count) {
    return libraries_restore(codes, count, LIBRARY_RESTORE_FLUSH, false);
}

static const struct script_hooks hooks = {.usage = usage,
                                          .declared = declared,
                                          .context = context,
                                          .any_slot = any_slot,
                                          .reset_stats = script_cache_reset_stats,
                                          .write_engines = script_engines_write,
                                          .libraries = libraries_code,
                                          .load_library = load_library,
                                          .replace_libraries = replace_libraries};

static void script_init(void) {
    script_hooks = &hooks;
}

static void script_cron(void) {
    static struct lua_garbage of_scripts, of_functions;
    if (script_running) return;
    lua_vm_collect(script_vm(), &of_scripts);
    lua_vm_collect(function_current_vm(), &of_functions);
}
static const struct server_part script_part = {.name = "script", .cron = script_cron};

/* The functions of an interpreter are set at its creation. */
static const char *apply_insecure_api(void) {
    if (!script_running) script_cache_flush(false);
    return NULL;
}

static const struct config_option script_options[] = {
    {OPTION("busy-reply-threshold", CONFIG_INT64, &script_settings.busy_threshold_ms, "5000"),
     .alias = "lua-time-limit", .min = 0, .max = INT64_MAX},
    {OPTION("lua-enable-insecure-api", CONFIG_BOOL, &script_settings.insecure_api, "no"),
     .flags = CONFIG_HIDDEN | CONFIG_PROTECTED, .apply = apply_insecure_api},
    {.name = NULL},
};

const struct feature script_feature = {
    .name = "script",
    .options = OPTIONS(script_options),
    .commands = COMMANDS(script_commands, function_commands),
    .init = script_init,
    .parts = PARTS(&script_part),
    .debug = DEBUG_SUBCOMMANDS(script_debug_subcommands),
};
