/* engines.c: scripting engines of modules (script/script_engine.h).
 *
 * The struct of functions that a module passes has grown: version 1 compiles texts that end with a zero byte, version 3
 * resets functions, too, and version 4 has a debugger. */
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "module/call_reply.h"
#include "module/context.h"
#include "script/script_debug.h"
#include "script/script_engine.h"
#include "server/command/dispatch.h"
#include <stdio.h>

enum { ERROR_MAX = 512, VERSION_WITH_LENGTH = 2, VERSION_WITH_RESET = 3, VERSION_WITH_DEBUGGER = 4 };

struct module_engine {
    struct script_engine engine;
    struct list_link link; /* in module->engines */
    struct module *module;
    char *name;
    ValkeyModuleScriptingEngineCtx *context;
    ValkeyModuleScriptingEngineMethodsV4 methods;               /* an older version's end before */
    const ValkeyModuleScriptingEngineDebuggerCommand *commands; /* of its debugger */
    size_t command_count;
};
static struct module_engine *engine_of(struct script_engine *engine) {
    return container_of(engine, struct module_engine, engine);
}
static ValkeyModuleScriptingEngineSubsystemType type_of(enum lua_vm_kind kind) {
    return kind == LUA_VM_EVAL ? VMSE_EVAL : VMSE_FUNCTION;
}

/* --- Compiling --- */

static uint32_t flags_of(uint64_t flags) {
    static const struct {
        uint64_t of_module;
        uint32_t flag;
    } table[] = {{VMSE_SCRIPT_FLAG_NO_WRITES, SCRIPT_NO_WRITES},
                 {VMSE_SCRIPT_FLAG_ALLOW_OOM, SCRIPT_ALLOW_OOM},
                 {VMSE_SCRIPT_FLAG_ALLOW_STALE, SCRIPT_ALLOW_STALE},
                 {VMSE_SCRIPT_FLAG_NO_CLUSTER, SCRIPT_NO_CLUSTER},
                 {VMSE_SCRIPT_FLAG_EVAL_COMPAT_MODE, SCRIPT_WITHOUT_SHEBANG},
                 {VMSE_SCRIPT_FLAG_ALLOW_CROSS_SLOT, SCRIPT_ALLOW_CROSS_SLOT}};
    uint32_t found = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (flags & table[i].of_module) found |= table[i].flag;
    return found;
}

static ValkeyModuleScriptingEngineCompiledFunction **compile(const struct module_engine *of,
                                                             struct ValkeyModuleCtx *ctx, enum lua_vm_kind kind,
                                                             struct slice code, uint64_t limit_ms, size_t *count,
                                                             ValkeyModuleString **error) {
    char *text = mem_strndup(code.data, code.len);
    ValkeyModuleScriptingEngineCompiledFunction **functions =
        of->engine.version < VERSION_WITH_LENGTH
            ? of->methods.compile_code_v1(ctx, of->context, type_of(kind), text, limit_ms, count, error)
            : of->methods.compile_code(ctx, of->context, type_of(kind), text, code.len, limit_ms, count, error);
    mem_free(text);
    return functions;
}

static const char *engine_compile(struct script_engine *engine, enum lua_vm_kind kind, struct slice code,
                                  uint64_t limit_ms,
                                  void (*add)(void *context, const struct script_engine_function *function),
                                  void *context) {
    static char text[ERROR_MAX];
    const struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    size_t count = 0;
    ValkeyModuleString *error = NULL;
    const struct call *call = dispatch_running();
    if (call) call_shows_data(call->client); /* SCRIPT LOAD does not wait by itself */
    context_init(&ctx, of->module);
    ValkeyModuleScriptingEngineCompiledFunction **functions = compile(of, &ctx, kind, code, limit_ms, &count, &error);
    context_end(&ctx);
    if (error || !functions) {
        struct slice said = error ? module_string_slice(error) : SLICE("the engine does not compile it");
        snprintf(text, sizeof text, "%s%.*s", kind == LUA_VM_EVAL ? "" : "ERR ", (int)said.len, said.data);
        if (error) module_string_release(error);
    }
    for (size_t i = 0; functions && i < count; i++) {
        const ValkeyModuleScriptingEngineCompiledFunction *function = functions[i];
        struct script_engine_function compiled = {.handle = functions[i], .flags = flags_of(function->f_flags)};
        if (function->name) compiled.name = module_string_slice(function->name);
        if (function->desc) compiled.description = module_string_slice(function->desc);
        add(context, &compiled);
    }
    bool failed = error || !functions;
    mem_free(functions);
    return failed ? text : NULL;
}

static void engine_release(struct script_engine *engine, enum lua_vm_kind kind, void *handle) {
    const struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    of->methods.free_function(&ctx, of->context, type_of(kind), handle);
    context_end(&ctx);
}

/* --- Running --- */

static void engine_run(struct script_engine *engine, enum lua_vm_kind kind, void *handle,
                       const struct lua_arguments *arguments, struct call *call) {
    const struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init_command(&ctx, of->module, call);
    ctx.flags |= CONTEXT_SCRIPT;
    struct ValkeyModuleString **keys = module_strings_of(arguments->key_count, arguments->keys),
                              **args = module_strings_of(arguments->argument_count, arguments->arguments);
    of->methods.call_function(&ctx, of->context, (ValkeyModuleScriptingEngineServerRuntimeCtx *)script_running, handle,
                              type_of(kind), keys, (size_t)arguments->key_count, args,
                              (size_t)arguments->argument_count);
    context_end(&ctx);
    module_strings_free(arguments->key_count, keys);
    module_strings_free(arguments->argument_count, args);
}
ValkeyModuleScriptingEngineExecutionState
api_GetFunctionExecutionState(ValkeyModuleScriptingEngineServerRuntimeCtx *server_ctx) {
    (void)server_ctx;
    return script_running && script_poll() ? VMSE_STATE_KILLED : VMSE_STATE_EXECUTING;
}

/* --- The environment --- */

struct reset_job {
    ValkeyModuleScriptingEngineCallableLazyEnvReset *reset;
    struct module *module;
};
static void reset_finish(ValkeyModuleScriptingEngineCallableLazyEnvReset *reset) {
    reset->engineLazyEnvResetCallback(reset->context);
    mem_free(reset);
}
static void reset_run(void *data) {
    struct reset_job *job = data;
    reset_finish(job->reset);
    job->module->background--;
    mem_free(job);
}
static void engine_reset(struct script_engine *engine, enum lua_vm_kind kind, bool in_background) {
    const struct module_engine *of = engine_of(engine);
    ValkeyModuleScriptingEngineCallableLazyEnvReset *reset = NULL;
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    if (engine->version >= VERSION_WITH_RESET)
        reset = of->methods.reset_env(&ctx, of->context, type_of(kind), in_background);
    else if (kind == LUA_VM_EVAL)
        reset = of->methods.reset_eval_env_v2(&ctx, of->context, in_background);
    context_end(&ctx);
    if (!reset) return;
    if (!in_background) {
        reset_finish(reset);
        return;
    }
    struct reset_job *job = mem_alloc(sizeof *job);
    *job = (struct reset_job){reset, of->module};
    of->module->background++;
    background_submit(BACKGROUND_LAZY_FREE, reset_run, job);
}
static struct script_engine_memory engine_memory(struct script_engine *engine) {
    const struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    ValkeyModuleScriptingEngineMemoryInfo info = of->methods.get_memory_info(&ctx, of->context, VMSE_ALL);
    context_end(&ctx);
    return (struct script_engine_memory){.used = info.used_memory, .overhead = info.engine_memory_overhead};
}

/* --- The debugger --- */

static bool engine_debug_enable(struct script_engine *engine) {
    struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    of->commands = NULL;
    of->command_count = 0;
    bool enabled = of->methods.debugger_enable(&ctx, of->context, VMSE_EVAL, &of->commands, &of->command_count) ==
                   VMSE_DEBUG_ENABLED;
    context_end(&ctx);
    return enabled;
}
static void engine_debug_disable(struct script_engine *engine) {
    const struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    of->methods.debugger_disable(&ctx, of->context, VMSE_EVAL);
    context_end(&ctx);
}
static struct module_engine *debugged; /* in the session that runs; NULL: none */
static void engine_debug_start(struct script_engine *engine, struct slice source) {
    struct ValkeyModuleCtx ctx;
    debugged = engine_of(engine);
    context_init(&ctx, debugged->module);
    struct ValkeyModuleString *text = module_string_new(source);
    debugged->methods.debugger_start(&ctx, debugged->context, VMSE_EVAL, text);
    module_string_release(text);
    context_end(&ctx);
}
static void engine_debug_end(struct script_engine *engine) {
    struct module_engine *of = engine_of(engine);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, of->module);
    of->methods.debugger_end(&ctx, of->context, VMSE_EVAL);
    context_end(&ctx);
    debugged = NULL;
}

/* A line of the session; takes the string over. `truncate`: to the length of a line of the debugger of Lua. */
void api_ScriptingEngineDebuggerLog(ValkeyModuleString *msg, int truncate) {
    enum { SHOWN = 256 };
    struct slice text = module_string_slice(msg);
    if (script_session && truncate && text.len > SHOWN)
        script_session_format("%.*s ...", SHOWN, text.data);
    else if (script_session)
        script_session_line(text);
    module_string_release(msg);
}
void api_ScriptingEngineDebuggerLogRespReplyStr(const char *reply) {
    if (script_session) lua_debug_show_reply(slice_of(reply));
}
void api_ScriptingEngineDebuggerLogRespReply(ValkeyModuleCallReply *reply) {
    if (script_session) lua_debug_show_reply(call_reply_proto(reply));
}
void api_ScriptingEngineDebuggerFlushLogs(void) {
    if (script_session) script_session_flush();
}

static bool arguments_fit(const ValkeyModuleScriptingEngineDebuggerCommand *command, int argc) {
    size_t given = (size_t)argc - 1, needed = 0;
    bool any = false;
    for (size_t i = 0; i < command->params_len; i++) {
        needed += !command->params[i].optional;
        any |= command->params[i].variadic != 0;
    }
    return given >= needed && (any || given <= command->params_len);
}
/* By its name, or the beginning that it may be abbreviated to. NULL: unknown, or with other arguments. */
static const ValkeyModuleScriptingEngineDebuggerCommand *debug_command_find(int argc, const struct slice *argv) {
    for (size_t i = 0; debugged && i < debugged->command_count; i++) {
        const ValkeyModuleScriptingEngineDebuggerCommand *command = &debugged->commands[i];
        struct slice name = slice_of(command->name), brief = {name.data, command->prefix_len};
        if (brief.len > name.len) brief = name;
        if (slice_is(argv[0], command->name) || slice_equal(argv[0], brief))
            return arguments_fit(command, argc) ? command : NULL;
    }
    return NULL;
}
static void debug_help(void) {
    script_session_line(SLICE("Debugger commands:"));
    for (size_t i = 0; debugged && i < debugged->command_count; i++) {
        const ValkeyModuleScriptingEngineDebuggerCommand *command = &debugged->commands[i];
        if (command->invisible) continue;
        char parameters[256] = "";
        for (size_t p = 0; p < command->params_len; p++) {
            const ValkeyModuleScriptingEngineDebuggerCommandParam *param = &command->params[p];
            size_t len = strlen(parameters);
            snprintf(parameters + len, sizeof parameters - len, param->optional ? " [%s]%s" : " <%s>%s", param->name,
                     param->variadic ? "..." : "");
        }
        script_session_format("%s%s  %s", command->name, parameters, command->desc ? command->desc : "");
    }
}
/* Executes requests of the client until one of them continues the script. */
void api_ScriptingEngineDebuggerProcessCommands(int *client_disconnected, ValkeyModuleString **err) {
    int argc;
    const struct slice *argv;
    *client_disconnected = 0;
    if (err) *err = NULL;
    while (script_session && (argv = script_session_read(&argc))) {
        const ValkeyModuleScriptingEngineDebuggerCommand *command = debug_command_find(argc, argv);
        if (!command && (slice_is(argv[0], "help") || slice_is(argv[0], "h"))) {
            debug_help();
            continue;
        }
        if (!command) {
            script_session_line(SLICE("<error> Unknown debugger command or wrong number of arguments."));
            continue;
        }
        struct ValkeyModuleString **strings = module_strings_of(argc, argv);
        int goes_on = command->handler(strings, (size_t)argc, command->context);
        module_strings_free(argc, strings);
        if (!goes_on) return;
    }
    *client_disconnected = 1;
}

/* --- Registration --- */

int api_RegisterScriptingEngine(ValkeyModuleCtx *module_ctx, const char *engine_name,
                                ValkeyModuleScriptingEngineCtx *engine_ctx,
                                ValkeyModuleScriptingEngineMethods *engine_methods) {
    if (!engine_name || !*engine_name || !engine_methods || engine_methods->version < 1 ||
        engine_methods->version > VALKEYMODULE_SCRIPTING_ENGINE_ABI_VERSION || script_running)
        return VALKEYMODULE_ERR;
    struct module_engine *of = mem_calloc(1, sizeof *of);
    of->module = module_ctx->module;
    of->name = mem_strdup(engine_name);
    of->context = engine_ctx;
    bool debugs = engine_methods->version >= VERSION_WITH_DEBUGGER;
    memcpy(&of->methods, engine_methods, debugs ? sizeof of->methods : sizeof(ValkeyModuleScriptingEngineMethodsV3));
    of->engine = (struct script_engine){.name = of->name,
                                        .module = of->module->name,
                                        .version = (unsigned)engine_methods->version,
                                        .compile = engine_compile,
                                        .release = engine_release,
                                        .run = engine_run,
                                        .reset = engine_reset,
                                        .memory = engine_memory};
    if (debugs && of->methods.debugger_enable) {
        of->engine.debug_enable = engine_debug_enable;
        of->engine.debug_disable = engine_debug_disable;
        of->engine.debug_start = engine_debug_start;
        of->engine.debug_end = engine_debug_end;
    }
    if (script_engine_register(&of->engine)) {
        list_append(&of->module->engines, &of->link);
        return VALKEYMODULE_OK;
    }
    mem_free(of->name);
    mem_free(of);
    return VALKEYMODULE_ERR;
}
static void engine_free(struct module_engine *of) {
    script_engine_unregister(&of->engine);
    list_remove(&of->module->engines, &of->link);
    mem_free(of->name);
    mem_free(of);
}
int api_UnregisterScriptingEngine(ValkeyModuleCtx *module_ctx, const char *engine_name) {
    struct script_engine *found = script_engine_find(slice_of(engine_name));
    if (!found || script_engine_is_lua(found) || script_running) return VALKEYMODULE_ERR;
    struct module_engine *of = engine_of(found);
    if (of->module != module_ctx->module) return VALKEYMODULE_ERR;
    engine_free(of);
    return VALKEYMODULE_OK;
}
void module_engines_drop(struct module *module) {
    list_each(&module->engines, link) engine_free(container_of(link, struct module_engine, link));
}
