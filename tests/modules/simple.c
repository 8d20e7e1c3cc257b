/* simple.c: a module for tests/integration/modules.tcl: commands with replies, calls, propagation, keys of arguments.
 */
#include "module/valkeymodule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int echo(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    return ValkeyModule_ReplyWithString(ctx, argv[1]);
}

/* SIMPLE.MEMORY: gives back memory that functions of the C library have allocated. */
static int memory(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    char *copy = strdup("a copy of a string"), *path = realpath("/", NULL), *text = NULL;
    if (asprintf(&text, "%s %s", copy, path) < 0) text = NULL;
    free(copy);
    free(path);
    free(text);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* SIMPLE.ARGUMENTS argument…: the module has these now. */
static int arguments(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_UpdateRuntimeArgs(ctx, argv, argc) != VALKEYMODULE_OK)
        return ValkeyModule_ReplyWithError(ctx, "ERR refused");
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int types(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, VALKEYMODULE_POSTPONED_LEN);
    ValkeyModule_ReplyWithLongLong(ctx, -7);
    ValkeyModule_ReplyWithDouble(ctx, 1.5);
    ValkeyModule_ReplyWithCString(ctx, "text");
    ValkeyModule_ReplyWithNull(ctx);
    ValkeyModule_ReplyWithMap(ctx, 1);
    ValkeyModule_ReplyWithSimpleString(ctx, "key");
    ValkeyModule_ReplyWithBool(ctx, 1);
    ValkeyModule_ReplySetArrayLength(ctx, 5);
    return VALKEYMODULE_OK;
}

/* SIMPLE.CALL command …: the type of its reply, or errno. */
static int call(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc < 2) return ValkeyModule_WrongArity(ctx);
    const char *name = ValkeyModule_StringPtrLen(argv[1], NULL);
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, name, "!Ev", argv + 2, (size_t)(argc - 2));
    if (!reply || ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_UNKNOWN) {
        if (reply) ValkeyModule_FreeCallReply(reply);
        return ValkeyModule_ReplyWithError(ctx, "ERR no reply");
    }
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}

/* SIMPLE.SET key value: sets it without telling replicas, then replicates itself. */
static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    if (!ValkeyModule_Call(ctx, "SET", "ss", argv[1], argv[2])) return ValkeyModule_ReplyWithError(ctx, "ERR not set");
    ValkeyModule_ReplicateVerbatim(ctx);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* SIMPLE.NUMBERS key: pushes 40 numbers with one call. */
static int numbers(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
#define TEN_(n) n##0LL, n##1LL, n##2LL, n##3LL, n##4LL, n##5LL, n##6LL, n##7LL, n##8LL, n##9LL
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, "RPUSH", "!sllllllllllllllllllllllllllllllllllllllll",
                                                     argv[1], TEN_(1), TEN_(2), TEN_(3), TEN_(4));
#undef TEN_
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}

/* SIMPLE.ATTRIBUTE: a reply with an attribute, for clients that know them. */
static int attribute(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, VALKEYMODULE_POSTPONED_LEN);
    if (ValkeyModule_ReplyWithAttribute(ctx, VALKEYMODULE_POSTPONED_LEN) == VALKEYMODULE_OK) {
        ValkeyModule_ReplyWithCString(ctx, "name");
        ValkeyModule_ReplyWithCString(ctx, "value");
    }
    ValkeyModule_ReplySetAttributeLength(ctx, 1);
    ValkeyModule_ReplyWithLongLong(ctx, 1);
    ValkeyModule_ReplySetArrayLength(ctx, 1);
    return VALKEYMODULE_OK;
}

/* SIMPLE.KEYS: finds its keys itself: every second argument, and one that it does not have. */
static int keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    if (ValkeyModule_IsKeysPositionRequest(ctx)) {
        for (int i = 1; i < argc; i += 2) ValkeyModule_KeyAtPos(ctx, i);
        ValkeyModule_KeyAtPos(ctx, argc);
        ValkeyModule_KeyAtPos(ctx, 1000000);
        return VALKEYMODULE_OK;
    }
    return ValkeyModule_ReplyWithLongLong(ctx, argc);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "simple", 3, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    const char *wish = argc > 0 ? ValkeyModule_StringPtrLen(argv[0], NULL) : "";
    if (strcmp(wish, "refuse") == 0) return VALKEYMODULE_ERR;
    struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
        int key;
    } commands[] = {{"simple.echo", "readonly fast", echo, 0},
                    {"simple.types", "readonly", types, 0},
                    {"simple.call", "write", call, 0},
                    {"simple.set", "write deny-oom", set, 1},
                    {"simple.numbers", "write", numbers, 1},
                    {"simple.attribute", "readonly", attribute, 0},
                    {"simple.keys", "readonly getkeys-api", keys, 0},
                    {"simple.memory", "readonly", memory, 0},
                    {"simple.arguments", "readonly", arguments, 0},
                    {"simple.parent", "readonly", NULL, 0}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, commands[i].key,
                                       commands[i].key, commands[i].key ? 1 : 0) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    if (ValkeyModule_SetCommandACLCategories(ValkeyModule_GetCommand(ctx, "simple.set"), "write") == VALKEYMODULE_ERR)
        return VALKEYMODULE_ERR;
    ValkeyModuleCommand *parent = ValkeyModule_GetCommand(ctx, "simple.parent");
    return ValkeyModule_CreateSubcommand(parent, "child", keys, "readonly", 0, 0, 0);
}
