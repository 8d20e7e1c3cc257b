/* blocking.c: a module for tests/integration/modules-blocking.tcl: clients that wait for keys, calls that wait,
 * channels, child processes, and long commands. */
#include "module/valkeymodule.h"
#include <string.h>
#include <unistd.h>

static long long number(const ValkeyModuleString *text) {
    long long value = 0;
    ValkeyModule_StringToLongLong(text, &value);
    return value;
}

/* --- Clients that wait for keys --- */

static long long freed, called;
static void free_number(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    freed++;
    ValkeyModule_Free(data);
}
/* Serves the client when the list has as many elements as it waits for: with the name of the key. */
static int serve(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    long long *wanted = ValkeyModule_GetBlockedClientPrivateData(ctx);
    ValkeyModuleString *name = ValkeyModule_GetBlockedClientReadyKey(ctx);
    called++;
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, name, VALKEYMODULE_WRITE);
    if (ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_EMPTY) ValkeyModule_CloseKey(key), key = NULL;
    if (!key) return ValkeyModule_ReplyWithSimpleString(ctx, "DELETED");
    size_t len = ValkeyModule_ValueLength(key);
    ValkeyModule_CloseKey(key);
    return (long long)len < *wanted ? VALKEYMODULE_ERR : ValkeyModule_ReplyWithString(ctx, name);
}
static int time_out(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithSimpleString(ctx, ValkeyModule_IsBlockedTimeoutRequest(ctx) ? "TIMEOUT" : "NO");
}
/* Changes what its client has waited for. */
static int time_out_and_push(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "RPUSH", "!sc", argv[3], "x"));
    return ValkeyModule_ReplyWithSimpleString(ctx, "PUSHED");
}
static ValkeyModuleBlockedClient *last;
static int wait_on(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, ValkeyModuleCmdFunc timed_out,
                   int flags) {
    if (argc < 4) return ValkeyModule_WrongArity(ctx);
    long long *wanted = ValkeyModule_Alloc(sizeof *wanted);
    *wanted = number(argv[1]);
    last = ValkeyModule_BlockClientOnKeysWithFlags(ctx, serve, timed_out, free_number, number(argv[2]), argv + 3,
                                                   argc - 3, wanted, flags);
    return VALKEYMODULE_OK;
}
/* BLOCKING.WAIT elements milliseconds key... */
static int wait_keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return wait_on(ctx, argv, argc, time_out, VALKEYMODULE_BLOCK_UNBLOCK_DEFAULT);
}
/* The same; after the time an element is pushed. */
static int wait_push(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return wait_on(ctx, argv, argc, time_out_and_push, VALKEYMODULE_BLOCK_UNBLOCK_DEFAULT);
}
/* The same, also until a key is deleted. */
static int wait_deleted(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return wait_on(ctx, argv, argc, NULL, VALKEYMODULE_BLOCK_UNBLOCK_DELETED);
}
static int signal_key(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModule_SignalKeyAsReady(ctx, argv[1]);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int unblock_last(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_UnblockClient(last, NULL));
}
static int counts(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, freed);
    ValkeyModule_ReplyWithLongLong(ctx, called);
    freed = called = 0;
    return VALKEYMODULE_OK;
}

/* --- Calls that wait --- */

static void answer(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    ValkeyModuleBlockedClient *bc = data;
    ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "INCR", "!c", "answers")); /* one group with the command */
    ValkeyModuleCtx *to = ValkeyModule_GetThreadSafeContext(bc);
    ValkeyModule_ReplyWithCallReply(to, reply);
    ValkeyModule_FreeThreadSafeContext(to);
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_FreeCallReply(ValkeyModule_BlockClientGetPrivateData(bc)); /* the promise */
    ValkeyModule_UnblockClient(bc, NULL);
}
static void free_promise(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    ValkeyModule_FreeCallReply(data);
}
static void client_gone(ValkeyModuleCtx *ctx, ValkeyModuleBlockedClient *bc) {
    (void)ctx;
    void *data = NULL;
    ValkeyModuleCallReply *promise = ValkeyModule_BlockClientGetPrivateData(bc);
    if (ValkeyModule_CallReplyPromiseAbort(promise, &data) == VALKEYMODULE_OK && data == bc) called++;
    ValkeyModule_FreeCallReply(promise);
    ValkeyModule_AbortBlock(bc);
}
/* BLOCKING.CALL command argument...: may wait. */
static int call(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleCallReply *reply =
        ValkeyModule_Call(ctx, ValkeyModule_StringPtrLen(argv[1], NULL), "!KEv", argv + 2, (size_t)argc - 2);
    if (ValkeyModule_CallReplyType(reply) != VALKEYMODULE_REPLY_PROMISE) {
        ValkeyModule_ReplyWithCallReply(ctx, reply);
        ValkeyModule_FreeCallReply(reply);
        return VALKEYMODULE_OK;
    }
    ValkeyModuleBlockedClient *bc = ValkeyModule_BlockClient(ctx, NULL, NULL, free_promise, 0);
    ValkeyModule_SetDisconnectCallback(bc, client_gone);
    ValkeyModule_BlockClientSetPrivateData(bc, reply);
    ValkeyModule_CallReplyPromiseSetUnblockHandler(reply, answer, bc);
    return VALKEYMODULE_OK;
}
/* BLOCKING.FORGET command argument...: does not wait for the reply. */
static int forget(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleCallReply *reply =
        ValkeyModule_Call(ctx, ValkeyModule_StringPtrLen(argv[1], NULL), "!KEv", argv + 2, (size_t)argc - 2);
    int promised = ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE;
    ValkeyModule_FreeCallReply(reply);
    return ValkeyModule_ReplyWithSimpleString(ctx, promised ? "PROMISE" : "DONE");
}

/* --- Channels, child processes, long commands --- */

/* BLOCKING.CHANNELS: the first argument is published to, the second is left, the third a pattern that is subscribed. */
static int channels(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    if (!ValkeyModule_IsChannelsPositionRequest(ctx)) return ValkeyModule_ReplyWithLongLong(ctx, argc - 1);
    ValkeyModule_ChannelAtPosWithFlags(ctx, 1, VALKEYMODULE_CMD_CHANNEL_PUBLISH);
    ValkeyModule_ChannelAtPosWithFlags(ctx, 2, VALKEYMODULE_CMD_CHANNEL_UNSUBSCRIBE);
    ValkeyModule_ChannelAtPosWithFlags(ctx, 3, VALKEYMODULE_CMD_CHANNEL_SUBSCRIBE | VALKEYMODULE_CMD_CHANNEL_PATTERN);
    ValkeyModule_ChannelAtPosWithFlags(ctx, 99, VALKEYMODULE_CMD_CHANNEL_PUBLISH); /* is not there */
    return VALKEYMODULE_OK;
}
static long long child_status = -1;
static void child_ended(int exitcode, int bysignal, void *data) {
    if (data == &child_status) child_status = bysignal ? -2 : exitcode;
}
/* BLOCKING.FORK status milliseconds: a child ends with this status. */
static int fork_child(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    int status = (int)number(argv[1]);
    child_status = -1;
    int child = ValkeyModule_Fork(child_ended, &child_status);
    if (child < 0) return ValkeyModule_ReplyWithError(ctx, "ERR no child");
    if (child > 0) return ValkeyModule_ReplyWithLongLong(ctx, child);
    ValkeyModule_SendChildHeartbeat(0.5);
    usleep((useconds_t)number(argv[2]) * 1000);
    ValkeyModule_ExitFromChild(status);
    return VALKEYMODULE_OK;
}
static int kill_child(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_KillForkChild((int)number(argv[1])));
}
static int status(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, child_status);
}
static int stop;
static int work(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    for (stop = 0; !stop; usleep(1000)) ValkeyModule_Yield(ctx, VALKEYMODULE_YIELD_FLAG_CLIENTS, "At work");
    return ValkeyModule_ReplyWithSimpleString(ctx, "WORKED");
}
static int end_work(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    stop = 1;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    static const struct {
        const char *name;
        ValkeyModuleCmdFunc run;
        const char *flags;
    } commands[] = {{"blocking.push", wait_push, "write"},
                    {"blocking.wait", wait_keys, "write"},
                    {"blocking.deleted", wait_deleted, "write"},
                    {"blocking.signal", signal_key, "write"},
                    {"blocking.unblock", unblock_last, ""},
                    {"blocking.counts", counts, ""},
                    {"blocking.call", call, "write"},
                    {"blocking.forget", forget, "write"},
                    {"blocking.channels", channels, "getchannels-api"},
                    {"blocking.fork", fork_child, ""},
                    {"blocking.kill", kill_child, ""},
                    {"blocking.status", status, ""},
                    {"blocking.work", work, ""},
                    {"blocking.end", end_work, "allow-busy"}};
    if (ValkeyModule_Init(ctx, "blocking", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, 0, 0, 0))
            return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
