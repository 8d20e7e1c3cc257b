/* listening.c: a module for tests/integration/modules-listening.tcl: listeners of keyspace events that let the client
 * of the command wait, the event of keys that go, and references in hashes. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char heard[4096];
static long long blocks;
static ValkeyModuleBlockedClient *waiting[8];
static size_t count;

static void note(const char *what, const char *key) {
    size_t len = strlen(heard);
    snprintf(heard + len, sizeof heard - len, "%s%s:%s", len ? " " : "", what, key);
}
static void gone(ValkeyModuleCtx *ctx, ValkeyModuleBlockedClient *bc) {
    (void)ctx;
    note("gone", "");
    for (size_t i = 0; i < count; i++)
        if (waiting[i] == bc) waiting[i] = waiting[--count];
    ValkeyModule_UnblockClient(bc, NULL);
}
static int listener(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key) {
    (void)type;
    if (!blocks) return VALKEYMODULE_OK;
    if (blocks == 2) { /* it writes instead */
        note(event, ValkeyModule_StringPtrLen(key, NULL));
        ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "INCR", "!c", "counter"));
        return VALKEYMODULE_OK;
    }
    errno = 0;
    ValkeyModuleBlockedClient *bc = ValkeyModule_BlockClient(ctx, NULL, NULL, NULL, 0);
    note(event, bc ? ValkeyModule_StringPtrLen(key, NULL) : errno == ENOTSUP ? "refused" : "failed");
    if (!bc) return VALKEYMODULE_OK;
    ValkeyModule_SetDisconnectCallback(bc, gone);
    if (count < sizeof waiting / sizeof *waiting) waiting[count++] = bc;
    return VALKEYMODULE_OK;
}
static int block(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2 || ValkeyModule_StringToLongLong(argv[1], &blocks) != VALKEYMODULE_OK)
        return ValkeyModule_WrongArity(ctx);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int unblock(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_ReplyWithLongLong(ctx, (long long)count);
    while (count) ValkeyModule_UnblockClient(waiting[--count], NULL);
    return VALKEYMODULE_OK;
}
static int said(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_ReplyWithCString(ctx, heard);
    heard[0] = 0;
    return VALKEYMODULE_OK;
}
/* The key still has its value. */
static void key_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    static const char *const kinds[] = {"deleted", "expired", "evicted", "overwritten"};
    (void)ctx, (void)event;
    ValkeyModuleKey *key = ((ValkeyModuleKeyInfo *)data)->key;
    if (blocks || ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_EMPTY) return;
    note(kinds[kind], ValkeyModule_StringPtrLen(ValkeyModule_GetKeyNameFromModuleKey(key), NULL));
}
/* LISTENING.REFER key field value: the result, and whether the field is a reference now. */
static int refer(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 4) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    size_t len;
    const char *bytes = ValkeyModule_StringPtrLen(argv[3], &len);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_WRITE);
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, len ? ValkeyModule_HashSetStringRef(key, argv[2], bytes, len) : -1);
    return ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_HashHasStringRef(key, argv[2]));
}
/* LISTENING.KEYS command argument…: the indexes of its keys, or errno. */
static int keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    int number, *flags, *found = ValkeyModule_GetCommandKeysWithFlags(ctx, argv + 1, argc - 1, &number, &flags);
    if (!found) return ValkeyModule_ReplyWithLongLong(ctx, -errno);
    ValkeyModule_ReplyWithArray(ctx, 2 * number);
    for (int i = 0; i < number; i++) {
        ValkeyModule_ReplyWithLongLong(ctx, found[i]);
        ValkeyModule_ReplyWithLongLong(ctx, !!(flags[i] & VALKEYMODULE_CMD_KEY_RO));
    }
    ValkeyModule_Free(found);
    ValkeyModule_Free(flags);
    return VALKEYMODULE_OK;
}

/* LISTENING.PIPE text: writes to a pipe that the loop reads; the reader, and a function that runs once, note it. */
static int ends[2] = {-1, -1};

static void once(void *text) {
    note("once", text);
}
static void pipe_readable(int fd, void *data, int mask) {
    static char text[64];
    ssize_t len = read(fd, text, sizeof text - 1);
    text[len > 0 ? len : 0] = 0;
    note(data, mask == VALKEYMODULE_EVENTLOOP_READABLE ? text : "?");
    ValkeyModule_EventLoopDel(fd, VALKEYMODULE_EVENTLOOP_READABLE);
    close(ends[0]), close(ends[1]);
    ValkeyModule_EventLoopAddOneShot(once, text);
}
static int pipe_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    static char name[] = "read";
    size_t len;
    if (argc != 2 || pipe(ends) != 0) return ValkeyModule_WrongArity(ctx);
    const char *text = ValkeyModule_StringPtrLen(argv[1], &len);
    int bad = ValkeyModule_EventLoopAdd(-1, VALKEYMODULE_EVENTLOOP_READABLE, pipe_readable, name) == VALKEYMODULE_ERR &&
              errno == ERANGE && ValkeyModule_EventLoopAdd(ends[0], 4, pipe_readable, name) == VALKEYMODULE_ERR &&
              errno == EINVAL;
    ValkeyModule_EventLoopAdd(ends[0], VALKEYMODULE_EVENTLOOP_READABLE, pipe_readable, name);
    return ValkeyModule_ReplyWithLongLong(ctx, bad && write(ends[1], text, len) == (ssize_t)len);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (ValkeyModule_Init(ctx, "listening", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"listening.block", "", block}, {"listening.unblock", "", unblock},
                    {"listening.heard", "", said},  {"listening.refer", "write", refer},
                    {"listening.keys", "", keys},   {"listening.pipe", "", pipe_command}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, 0, 0, 0) ==
            VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    int classes = VALKEYMODULE_NOTIFY_STRING | VALKEYMODULE_NOTIFY_GENERIC | VALKEYMODULE_NOTIFY_KEY_MISS;
    return ValkeyModule_SubscribeToKeyspaceEvents(ctx, classes, listener) |
           ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Key, key_event);
}
