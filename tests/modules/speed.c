/* speed.c: a module for tests/perf/modules: commands that read and write a key, reply with a list, and call commands.
 */
#include "module/valkeymodule.h"

static int get(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    size_t len;
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ);
    if (ValkeyModule_KeyType(key) != VALKEYMODULE_KEYTYPE_STRING) {
        ValkeyModule_ReplyWithNull(ctx);
    } else {
        const char *bytes = ValkeyModule_StringDMA(key, &len, VALKEYMODULE_READ);
        ValkeyModule_ReplyWithStringBuffer(ctx, bytes, len);
    }
    ValkeyModule_CloseKey(key);
    return VALKEYMODULE_OK;
}
static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_WRITE);
    ValkeyModule_StringSet(key, argv[2]);
    ValkeyModule_CloseKey(key);
    ValkeyModule_ReplicateVerbatim(ctx);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* SPEED.LIST count: that many integers. */
static int list(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long count;
    if (argc != 2 || ValkeyModule_StringToLongLong(argv[1], &count) != VALKEYMODULE_OK || count < 0 || count > 100000)
        return ValkeyModule_ReplyWithError(ctx, "ERR a count up to 100000 is expected");
    ValkeyModule_ReplyWithArray(ctx, count);
    for (long long i = 0; i < count; i++) ValkeyModule_ReplyWithLongLong(ctx, i);
    return VALKEYMODULE_OK;
}
static int reply(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply) {
    if (!reply) return ValkeyModule_ReplyWithError(ctx, "ERR the call failed");
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}
static int call_get(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    return reply(ctx, ValkeyModule_Call(ctx, "GET", "s", argv[1]));
}
static int call_set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    return reply(ctx, ValkeyModule_Call(ctx, "SET", "!ss", argv[1], argv[2]));
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    static const struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
        int key;
    } commands[] = {{"speed.get", "readonly fast", get, 1},
                    {"speed.set", "write deny-oom", set, 1},
                    {"speed.list", "readonly", list, 0},
                    {"speed.callget", "readonly", call_get, 1},
                    {"speed.callset", "write deny-oom", call_set, 1}};
    if (ValkeyModule_Init(ctx, "speed", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, commands[i].key,
                                       commands[i].key, commands[i].key) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
