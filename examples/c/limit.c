/* limit.c: a module with one command. LIMIT.TAKE key most seconds counts its calls for the key, and replies with how
 * many are left of `most` within the time, or with an error. The count is a string with an expiration: replicas, files
 * and INFO know it like any other key. */
#include <valkeymodule.h>

static long long counted(ValkeyModuleKey *key) {
    size_t len;
    long long count = 0;
    if (ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_EMPTY) return 0;
    const char *text = ValkeyModule_StringDMA(key, &len, VALKEYMODULE_READ);
    ValkeyModuleString *value = ValkeyModule_CreateString(NULL, text, len);
    if (ValkeyModule_StringToLongLong(value, &count) != VALKEYMODULE_OK) count = 0;
    ValkeyModule_FreeString(NULL, value);
    return count;
}

static int limit_take(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long most, seconds;
    if (argc != 4) return ValkeyModule_WrongArity(ctx);
    if (ValkeyModule_StringToLongLong(argv[2], &most) != VALKEYMODULE_OK || most < 1 ||
        ValkeyModule_StringToLongLong(argv[3], &seconds) != VALKEYMODULE_OK || seconds < 1)
        return ValkeyModule_ReplyWithError(ctx, "ERR most and seconds must be positive numbers");

    ValkeyModule_AutoMemory(ctx); /* closes the key and frees the replies when the command ends */
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ);
    int type = ValkeyModule_KeyType(key);
    if (type != VALKEYMODULE_KEYTYPE_EMPTY && type != VALKEYMODULE_KEYTYPE_STRING)
        return ValkeyModule_ReplyWithError(ctx, VALKEYMODULE_ERRORMSG_WRONGTYPE);
    long long count = counted(key);
    if (count >= most) return ValkeyModule_ReplyWithError(ctx, "LIMIT too many calls, try again later");

    /* "!" propagates the command to replicas and to the append-only file. */
    if (count == 0)
        ValkeyModule_Call(ctx, "SET", "!sccl", argv[1], "1", "EX", seconds);
    else
        ValkeyModule_Call(ctx, "INCR", "!s", argv[1]);
    return ValkeyModule_ReplyWithLongLong(ctx, most - count - 1);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (ValkeyModule_Init(ctx, "limit", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    /* The key is argument 1: the cluster and the rules of users need to know. */
    return ValkeyModule_CreateCommand(ctx, "limit.take", limit_take, "write deny-oom fast", 1, 1, 1);
}
