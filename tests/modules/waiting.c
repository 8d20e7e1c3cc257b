/* waiting.c: a module for tests/integration/modules.tcl: blocked clients, threads, timers, keyspace events, keys. */
#include "module/valkeymodule.h"
#include <pthread.h>
#include <stdio.h>

static long long events, timers, expired, found;

static int reply_data(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    long long *data = ValkeyModule_GetBlockedClientPrivateData(ctx);
    return ValkeyModule_ReplyWithLongLong(ctx, *data);
}
static int reply_timeout(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithSimpleString(ctx, "TIMEOUT");
}
static int reply_ok(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* Only what the call does matters, or that it is refused. */
static void drop(ValkeyModuleCallReply *reply) {
    if (reply) ValkeyModule_FreeCallReply(reply);
}
static void free_data(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    ValkeyModule_Free(data);
}

/* A thread that replies with a number, and one that changes a key under the lock. */
static void *answer(void *argument) {
    ValkeyModuleBlockedClient *bc = argument;
    long long *data = ValkeyModule_Alloc(sizeof *data);
    *data = 42;
    ValkeyModule_UnblockClient(bc, data);
    return NULL;
}
static void *change(void *argument) {
    ValkeyModuleBlockedClient *bc = argument;
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(bc);
    ValkeyModule_ThreadSafeContextLock(ctx);
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, "INCRBY", "!cl", "counter", 5LL);
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_ThreadSafeContextUnlock(ctx);
    ValkeyModule_FreeThreadSafeContext(ctx);
    ValkeyModule_UnblockClient(bc, NULL);
    return NULL;
}
/* Pushes to a list for which clients may wait, and sets and stops timers, with contexts of any kind. */
static void never(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    (void)data;
}
static void count_timer(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    (void)data;
    timers++;
}
static void *push(void *argument) {
    ValkeyModuleBlockedClient *bc = argument;
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(bc), *other = ValkeyModule_GetThreadSafeContext(bc);
    ValkeyModule_ThreadSafeContextLock(NULL);
    drop(ValkeyModule_Call(ctx, "LPUSH", "!cl", "pushed", 1LL));
    drop(ValkeyModule_Call(other, "INCR", "!c", "pushes"));
    ValkeyModule_CreateTimer(ctx, 1, count_timer, NULL);
    ValkeyModule_StopTimer(ctx, ValkeyModule_CreateTimer(ctx, 100000, never, NULL), NULL);
    ValkeyModule_ThreadSafeContextUnlock(NULL);
    ValkeyModule_FreeThreadSafeContext(other);
    ValkeyModule_FreeThreadSafeContext(ctx);
    ValkeyModule_UnblockClient(bc, NULL);
    return NULL;
}
/* Takes the lock again and again, for two seconds. */
static void *hog(void *argument) {
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(NULL);
    long long end = ValkeyModule_Milliseconds() + 2000;
    while (ValkeyModule_Milliseconds() < end) {
        ValkeyModule_ThreadSafeContextLock(ctx);
        for (long long until = ValkeyModule_Milliseconds() + 2; ValkeyModule_Milliseconds() < until;) {
        }
        ValkeyModule_ThreadSafeContextUnlock(ctx);
    }
    ValkeyModule_FreeThreadSafeContext(ctx);
    ValkeyModule_UnblockClient(argument, NULL);
    return NULL;
}
static int start(ValkeyModuleCtx *ctx, ValkeyModuleBlockedClient *bc, void *(*run)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, bc) == 0) return pthread_detach(thread);
    ValkeyModule_AbortBlock(bc);
    return ValkeyModule_ReplyWithError(ctx, "ERR no thread");
}
static int wait_number(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return start(ctx, ValkeyModule_BlockClient(ctx, reply_data, reply_timeout, free_data, 0), answer);
}
static int wait_change(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return start(ctx, ValkeyModule_BlockClient(ctx, NULL, NULL, NULL, 0), change);
}

static int wait_push(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return start(ctx, ValkeyModule_BlockClient(ctx, reply_ok, NULL, NULL, 0), push);
}
static int wait_hog(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return start(ctx, ValkeyModule_BlockClient(ctx, reply_ok, NULL, NULL, 0), hog);
}

/* WAITING.DETACHED: changes keys with a context that lives on, within its command, and then in a timer. */
static ValkeyModuleCtx *detached;
static void change_detached(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    (void)data;
    drop(ValkeyModule_Call(detached, "INCR", "!c", "detached"));
    ValkeyModule_Replicate(detached, "INCR", "c", "replicated");
}
static int wait_detached(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (!detached) detached = ValkeyModule_GetDetachedThreadSafeContext(ctx);
    change_detached(ctx, NULL);
    ValkeyModule_CreateTimer(ctx, 1, change_detached, NULL);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* Changes keys all the time. */
static void tick(ValkeyModuleCtx *ctx, void *data) {
    static long long ticks;
    char name[32];
    snprintf(name, sizeof name, "tick:%lld", ticks++ % 100);
    drop(ValkeyModule_Call(ctx, "INCR", "!c", name));
    ValkeyModule_CreateTimer(ctx, 1, tick, data);
}

/* WAITING.TIMEOUT milliseconds: waits for nothing; the timer lets the client go after it has timed out. */
static void let_go(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx;
    timers++;
    ValkeyModule_UnblockClient(data, NULL);
}
static int wait_timeout(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long timeout;
    if (argc != 2 || ValkeyModule_StringToLongLong(argv[1], &timeout) != VALKEYMODULE_OK)
        return ValkeyModule_WrongArity(ctx);
    ValkeyModuleBlockedClient *bc = ValkeyModule_BlockClient(ctx, NULL, reply_timeout, NULL, timeout);
    ValkeyModule_CreateTimer(ctx, timeout + 50, let_go, bc);
    return VALKEYMODULE_OK;
}

static int count_event(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key) {
    (void)type;
    if (strcmp(event, "set") != 0) return VALKEYMODULE_OK;
    events++;
    /* A listener may write; its own events do not come to it. */
    if (strncmp(ValkeyModule_StringPtrLen(key, NULL), "write:", 6) != 0) return VALKEYMODULE_OK;
    drop(ValkeyModule_Call(ctx, "INCR", "!c", "written"));
    drop(ValkeyModule_Call(ctx, "EVAL", "!ccc", "return server.call('set', 'set', 'x')", "0", "x"));
    return VALKEYMODULE_OK;
}
/* Looks for the keys that expire, in every way. */
static int look_for_expired(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key) {
    (void)type;
    (void)event;
    expired++;
    found += ValkeyModule_KeyExists(ctx, key);
    ValkeyModuleKey *opened = ValkeyModule_OpenKey(ctx, key, VALKEYMODULE_READ);
    if (opened) found++;
    ValkeyModule_CloseKey(opened);
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, "GET", "s", key);
    if (ValkeyModule_CallReplyType(reply) != VALKEYMODULE_REPLY_NULL) found++;
    ValkeyModule_FreeCallReply(reply);
    drop(ValkeyModule_Call(ctx, "MGET", "ccccc", "e:0", "e:1", "e:2", "e:3", "e:4"));
    return VALKEYMODULE_OK;
}
static int count_expired(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, expired);
    return ValkeyModule_ReplyWithLongLong(ctx, found);
}
static int counts(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, events);
    return ValkeyModule_ReplyWithLongLong(ctx, timers);
}

/* WAITING.KEY name: fills a sorted set, a hash and a list below that name, and replies with what it reads. */
static int key(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    const char *name = ValkeyModule_StringPtrLen(argv[1], NULL);
    ValkeyModuleString *element = ValkeyModule_CreateString(ctx, "element", 7);
    int mode = VALKEYMODULE_READ | VALKEYMODULE_WRITE;
    ValkeyModuleKey *zset = ValkeyModule_OpenKey(ctx, ValkeyModule_CreateStringPrintf(ctx, "%s:z", name), mode);
    ValkeyModuleKey *hash = ValkeyModule_OpenKey(ctx, ValkeyModule_CreateStringPrintf(ctx, "%s:h", name), mode);
    ValkeyModuleKey *list = ValkeyModule_OpenKey(ctx, ValkeyModule_CreateStringPrintf(ctx, "%s:l", name), mode);
    ValkeyModule_ZsetAdd(zset, 1.5, element, NULL);
    ValkeyModule_HashSet(hash, VALKEYMODULE_HASH_CFIELDS, "field", element, NULL);
    ValkeyModule_ListPush(list, VALKEYMODULE_LIST_TAIL, element);
    ValkeyModule_ListInsert(list, 0, argv[1]);
    ValkeyModule_SetExpire(list, 100000);
    double score = 0;
    ValkeyModuleString *value = NULL;
    ValkeyModule_ZsetFirstInScoreRange(zset, VALKEYMODULE_NEGATIVE_INFINITE, VALKEYMODULE_POSITIVE_INFINITE, 0, 0);
    ValkeyModuleString *member = ValkeyModule_ZsetRangeCurrentElement(zset, &score);
    ValkeyModule_HashGet(hash, VALKEYMODULE_HASH_CFIELDS, "field", &value, NULL);
    /* A string made of an element of a reply is collected, too. */
    ValkeyModule_CreateStringFromCallReply(ValkeyModule_CallReplyArrayElement(ValkeyModule_Call(ctx, "TIME", ""), 0));
    ValkeyModule_ReplyWithArray(ctx, 5);
    ValkeyModule_ReplyWithString(ctx, member);
    ValkeyModule_ReplyWithDouble(ctx, score);
    ValkeyModule_ReplyWithString(ctx, value);
    ValkeyModule_ReplyWithString(ctx, ValkeyModule_ListGet(list, 0));
    return ValkeyModule_ReplyWithLongLong(ctx, (long long)ValkeyModule_ValueLength(list));
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "waiting", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    const char *wish = argc > 0 ? ValkeyModule_StringPtrLen(argv[0], NULL) : "";
    if (strcmp(wish, "ticks") == 0) ValkeyModule_CreateTimer(ctx, 1, tick, NULL);
    struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"waiting.number", "readonly", wait_number},
                    {"waiting.change", "write", wait_change},
                    {"waiting.push", "write", wait_push},
                    {"waiting.hog", "readonly", wait_hog},
                    {"waiting.detached", "write", wait_detached},
                    {"waiting.expired", "readonly", count_expired},
                    {"waiting.timeout", "readonly", wait_timeout},
                    {"waiting.counts", "readonly", counts},
                    {"waiting.key", "write", key}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, 0, 0, 0) ==
            VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    if (ValkeyModule_SubscribeToKeyspaceEvents(ctx, VALKEYMODULE_NOTIFY_EXPIRED, look_for_expired) == VALKEYMODULE_ERR)
        return VALKEYMODULE_ERR;
    return ValkeyModule_SubscribeToKeyspaceEvents(ctx, VALKEYMODULE_NOTIFY_STRING, count_event);
}

int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    (void)ctx;
    if (detached) ValkeyModule_FreeThreadSafeContext(detached);
    return VALKEYMODULE_OK;
}
