/* engine.c: a module for tests/integration/modules-engine.tcl: a scripting engine. Each line of a library is a
 * function: its name, what it does, and a word. A script of EVAL is such a line without a name. OnLoad takes the
 * version of the interface. */
#include "module/valkeymodule.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct state {
    long long functions, resets;
};
static struct state state;
enum action { SAY, SET, SPIN };
struct line {
    enum action action;
    char word[64];
};

static int parse(const char *action, const char *word, struct line *line) {
    static const char *const names[] = {"say", "set", "spin"};
    snprintf(line->word, sizeof line->word, "%s", word);
    for (int i = 0; i < 3; i++)
        if (strcmp(action, names[i]) == 0) {
            line->action = (enum action)i;
            return 1;
        }
    return 0;
}

enum { FUNCTIONS_MAX = 8 };
static ValkeyModuleScriptingEngineCompiledFunction **
compile(ValkeyModuleCtx *ctx, ValkeyModuleScriptingEngineCtx *engine, ValkeyModuleScriptingEngineSubsystemType type,
        const char *code, size_t code_len, size_t timeout, size_t *count, ValkeyModuleString **error) {
    (void)ctx;
    (void)timeout;
    ValkeyModuleScriptingEngineCompiledFunction **functions = ValkeyModule_Calloc(FUNCTIONS_MAX, sizeof *functions);
    const char *end = code + code_len;
    *count = 0;
    for (const char *at = code; at < end && *count < FUNCTIONS_MAX; at += strcspn(at, "\n") + 1) {
        char name[64] = "", action[64] = "", word[64] = "";
        if (*at == '\n') continue;
        int words = type == VMSE_EVAL ? sscanf(at, "%63s %63s", action, word) + 1
                                      : sscanf(at, "%63s %63s %63s", name, action, word);
        struct line *line = ValkeyModule_Alloc(sizeof *line);
        if (words < 2 || !parse(action, word, line)) {
            ValkeyModule_Free(line);
            *error = ValkeyModule_CreateStringPrintf(NULL, "no such action: '%s'", action);
            break;
        }
        ValkeyModuleScriptingEngineCompiledFunction *function = ValkeyModule_Calloc(1, sizeof *function);
        *function = (ValkeyModuleScriptingEngineCompiledFunction){
            .version = VALKEYMODULE_SCRIPTING_ENGINE_ABI_COMPILED_FUNCTION_VERSION,
            .name = ValkeyModule_CreateString(NULL, name, strlen(name)),
            .desc = ValkeyModule_CreateString(NULL, "described", 9),
            .function = line,
            .f_flags = strcmp(word, "reads") == 0 ? VMSE_SCRIPT_FLAG_NO_WRITES : 0};
        ((struct state *)engine)->functions++;
        functions[(*count)++] = function;
    }
    return functions;
}
static void free_function(ValkeyModuleCtx *ctx, ValkeyModuleScriptingEngineCtx *engine,
                          ValkeyModuleScriptingEngineSubsystemType type,
                          ValkeyModuleScriptingEngineCompiledFunction *function) {
    (void)type;
    ValkeyModule_FreeString(ctx, function->name);
    ValkeyModule_FreeString(ctx, function->desc);
    ValkeyModule_Free(function->function);
    ValkeyModule_Free(function);
    ((struct state *)engine)->functions--;
}
static void call_function(ValkeyModuleCtx *ctx, ValkeyModuleScriptingEngineCtx *engine,
                          ValkeyModuleScriptingEngineServerRuntimeCtx *server,
                          ValkeyModuleScriptingEngineCompiledFunction *function,
                          ValkeyModuleScriptingEngineSubsystemType type, ValkeyModuleString **keys, size_t nkeys,
                          ValkeyModuleString **args, size_t nargs) {
    (void)engine;
    (void)type;
    const struct line *line = function->function;
    if (line->action == SAY) {
        ValkeyModule_ReplyWithCString(ctx, line->word);
    } else if (line->action == SET) {
        ValkeyModuleCallReply *reply = nkeys && nargs ? ValkeyModule_Call(ctx, "SET", "ESCss", keys[0], args[0]) : NULL;
        if (!reply) {
            ValkeyModule_ReplyWithError(ctx, "ERR a key and a value are needed");
            return;
        }
        ValkeyModule_ReplyWithCallReply(ctx, reply);
        ValkeyModule_FreeCallReply(reply);
    } else {
        while (ValkeyModule_GetFunctionExecutionState(server) == VMSE_STATE_EXECUTING) usleep(1000);
        ValkeyModule_ReplyWithError(ctx, "ERR killed");
    }
}
static size_t overhead(ValkeyModuleCtx *ctx, ValkeyModuleScriptingEngineCompiledFunction *function) {
    (void)ctx;
    (void)function;
    return sizeof(struct line);
}
/* ENGINE.SLOW: the next reset in the background lasts until ENGINE.GO. */
static int slow, go; /* atomic */
static void wait_for_go(void *context) {
    (void)context;
    while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST)) usleep(1000);
}
static ValkeyModuleScriptingEngineCallableLazyEnvReset *reset(ValkeyModuleCtx *ctx,
                                                              ValkeyModuleScriptingEngineCtx *engine,
                                                              ValkeyModuleScriptingEngineSubsystemType type,
                                                              int async) {
    (void)ctx;
    (void)type;
    ((struct state *)engine)->resets++;
    if (!async || !slow) return NULL;
    slow = 0;
    ValkeyModuleScriptingEngineCallableLazyEnvReset *job = ValkeyModule_Alloc(sizeof *job);
    *job = (ValkeyModuleScriptingEngineCallableLazyEnvReset){.engineLazyEnvResetCallback = wait_for_go};
    return job;
}
static ValkeyModuleScriptingEngineCallableLazyEnvReset *reset_eval(ValkeyModuleCtx *ctx,
                                                                   ValkeyModuleScriptingEngineCtx *engine, int async) {
    return reset(ctx, engine, VMSE_EVAL, async);
}
static ValkeyModuleScriptingEngineMemoryInfo memory(ValkeyModuleCtx *ctx, ValkeyModuleScriptingEngineCtx *engine,
                                                    ValkeyModuleScriptingEngineSubsystemType type) {
    (void)ctx;
    (void)type;
    return (ValkeyModuleScriptingEngineMemoryInfo){.version = VALKEYMODULE_SCRIPTING_ENGINE_ABI_MEMORY_INFO_VERSION,
                                                   .used_memory = (size_t)((struct state *)engine)->functions *
                                                                  sizeof(struct line)};
}

static int counts(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, state.functions);
    return ValkeyModule_ReplyWithLongLong(ctx, state.resets);
}

static int slow_reset(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    slow = 1;
    __atomic_store_n(&go, 0, __ATOMIC_SEQ_CST);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int go_on(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "engine", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    long long version = 3;
    if (argc > 0) ValkeyModule_StringToLongLong(argv[0], &version);
    ValkeyModuleScriptingEngineMethodsV3 methods = {.version = (uint64_t)version,
                                                    .compile_code = compile,
                                                    .free_function = free_function,
                                                    .call_function = call_function,
                                                    .get_function_memory_overhead = overhead,
                                                    .get_memory_info = memory};
    if (version >= 3)
        methods.reset_env = reset;
    else
        methods.reset_eval_env_v2 = reset_eval;
    ValkeyModuleScriptingEngineMethods *passed = (ValkeyModuleScriptingEngineMethods *)(void *)&methods;
    if (ValkeyModule_RegisterScriptingEngine(ctx, "WORDS", &state, passed) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    if (ValkeyModule_RegisterScriptingEngine(ctx, "words", &state, passed) == VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    return ValkeyModule_CreateCommand(ctx, "engine.counts", counts, "", 0, 0, 0) |
           ValkeyModule_CreateCommand(ctx, "engine.slow", slow_reset, "", 0, 0, 0) |
           ValkeyModule_CreateCommand(ctx, "engine.go", go_on, "", 0, 0, 0);
}
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    return ValkeyModule_UnregisterScriptingEngine(ctx, "WORDS");
}
