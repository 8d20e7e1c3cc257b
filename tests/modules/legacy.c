/* legacy.c: a module for tests/integration/modules.tcl, written with the names of redismodule.h. */
#include <redismodule.h>

static int changes;
static void link_changed(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event, (void)data;
    changes += kind == REDISMODULE_SUBEVENT_MASTER_LINK_UP || kind == REDISMODULE_SUBEVENT_MASTER_LINK_DOWN;
}
/* LEGACY.GET key */
static int get(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModule_AutoMemory(ctx);
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "GET", "s", argv[1]);
    if (RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_NULL)
        return RedisModule_ReplyWithSimpleString(
            ctx, RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_MASTER ? "MASTER" : "SLAVE");
    return RedisModule_ReplyWithCallReply(ctx, reply);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    REDISMODULE_NOT_USED(argv);
    REDISMODULE_NOT_USED(argc);
    if (RedisModule_Init(ctx, "legacy", 1, REDISMODULE_APIVER_1) == REDISMODULE_ERR) return REDISMODULE_ERR;
    if (RedisModule_SubscribeToServerEvent(ctx, RedisModuleEvent_MasterLinkChange, link_changed) == REDISMODULE_ERR)
        return REDISMODULE_ERR;
    return RedisModule_CreateCommand(ctx, "legacy.get", get, "readonly", 1, 1, 1);
}
int RedisModule_OnUnload(RedisModuleCtx *ctx) {
    (void)ctx;
    return REDISMODULE_OK;
}
