/* gates.c: a module for tests/integration/modules-gates.tcl: commands that do more than they declare. */
#include "module/valkeymodule.h"

/* GATES.SET key value: it declares that it only reads. */
static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    if (!ValkeyModule_Call(ctx, "SET", "!ss", argv[1], argv[2])) return ValkeyModule_ReplyWithError(ctx, "ERR not set");
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* GATES.KEYS key value key …: declares one key and finds them all. */
static int keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    if (!ValkeyModule_IsKeysPositionRequest(ctx)) return ValkeyModule_ReplyWithLongLong(ctx, argc);
    for (int i = 1; i < argc; i += 2) ValkeyModule_KeyAtPos(ctx, i);
    return VALKEYMODULE_OK;
}

/* GATES.LATER key: a timer appends to the list, and says itself what is to be replicated. */
static void push(ValkeyModuleCtx *ctx, void *data) {
    ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "RPUSH", "sc", data, "a"));
    ValkeyModule_Replicate(ctx, "RPUSH", "sc", data, "a");
    ValkeyModule_FreeString(ctx, data);
}
static int later(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_RetainString(ctx, argv[1]);
    ValkeyModule_CreateTimer(ctx, 1, push, argv[1]);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (ValkeyModule_Init(ctx, "gates", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    if (ValkeyModule_CreateCommand(ctx, "gates.set", set, "readonly", 1, 1, 1) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "gates.write", set, "write", 1, 1, 1) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "gates.later", later, "", 0, 0, 0) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "gates.keys", keys, "readonly getkeys-api", 1, 1, 1) == VALKEYMODULE_ERR)
        return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
