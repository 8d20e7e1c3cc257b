/* streams.c: a module for tests/integration/modules-streams.tcl: streams of open keys. Each command replies with what
 * the function returned, or with the name of its errno. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <string.h>

static int reply_result(ValkeyModuleCtx *ctx, long long result, int error) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{EINVAL, "EINVAL"}, {ENOTSUP, "ENOTSUP"}, {EBADF, "EBADF"},  {EDOM, "EDOM"},
                 {EFBIG, "EFBIG"},   {ERANGE, "ERANGE"},   {ENOENT, "ENOENT"}};
    for (size_t i = 0; error && i < sizeof names / sizeof *names; i++)
        if (names[i].number == error) return ValkeyModule_ReplyWithSimpleString(ctx, names[i].name);
    return ValkeyModule_ReplyWithLongLong(ctx, result);
}
static ValkeyModuleKey *open(ValkeyModuleCtx *ctx, ValkeyModuleString *name, int writes) {
    return ValkeyModule_OpenKey(ctx, name, VALKEYMODULE_READ | (writes ? VALKEYMODULE_WRITE : 0));
}
static long long number(const ValkeyModuleString *text) {
    long long value = 0;
    ValkeyModule_StringToLongLong(text, &value);
    return value;
}
/* "none": NULL. */
static ValkeyModuleStreamID *id_of(const ValkeyModuleString *text, ValkeyModuleStreamID *id) {
    *id = (ValkeyModuleStreamID){0, 0};
    if (strcmp(ValkeyModule_StringPtrLen(text, NULL), "none") == 0) return NULL;
    ValkeyModule_StringToStreamID(text, id);
    return id;
}

/* STREAMS.ADD key flags id [field value ...] */
static int add(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleStreamID storage, *id = id_of(argv[3], &storage);
    ValkeyModuleKey *key = open(ctx, argv[1], 1);
    errno = 0;
    int result = ValkeyModule_StreamAdd(key, (int)number(argv[2]), id, argv + 4, (argc - 4) / 2);
    if (result == VALKEYMODULE_OK && id)
        return ValkeyModule_ReplyWithString(ctx, ValkeyModule_CreateStringFromStreamID(ctx, id));
    return reply_result(ctx, result, errno);
}
/* STREAMS.DELETE key id */
static int delete (ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleStreamID storage, *id = id_of(argv[2], &storage);
    errno = 0;
    int result = ValkeyModule_StreamDelete(open(ctx, argv[1], 1), id);
    return reply_result(ctx, result, errno);
}
/* STREAMS.TRIM LENGTH|ID key flags threshold */
static int trim(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleKey *key = open(ctx, argv[2], 1);
    int flags = (int)number(argv[3]);
    ValkeyModuleStreamID storage;
    errno = 0;
    long long result = *ValkeyModule_StringPtrLen(argv[1], NULL) == 'I'
                           ? ValkeyModule_StreamTrimByID(key, flags, id_of(argv[4], &storage))
                           : ValkeyModule_StreamTrimByLength(key, flags, number(argv[4]));
    return reply_result(ctx, result, errno);
}
/* STREAMS.RANGE key flags first last [DELETE]: the entries; each is deleted when it has been read. */
static int range(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleKey *key = open(ctx, argv[1], argc > 5);
    ValkeyModuleStreamID first, last, id;
    ValkeyModuleString *field, *value;
    long fields, entries = 0;
    errno = 0;
    if (ValkeyModule_StreamIteratorStart(key, (int)number(argv[2]), id_of(argv[3], &first), id_of(argv[4], &last)))
        return reply_result(ctx, -1, errno);
    ValkeyModule_ReplyWithArray(ctx, VALKEYMODULE_POSTPONED_LEN);
    while (ValkeyModule_StreamIteratorNextID(key, &id, &fields) == VALKEYMODULE_OK) {
        ValkeyModule_ReplyWithArray(ctx, 1 + 2 * fields);
        ValkeyModule_ReplyWithString(ctx, ValkeyModule_CreateStringFromStreamID(ctx, &id));
        while (ValkeyModule_StreamIteratorNextField(key, &field, &value) == VALKEYMODULE_OK) {
            ValkeyModule_ReplyWithString(ctx, field);
            ValkeyModule_ReplyWithString(ctx, value);
        }
        if (argc > 5) ValkeyModule_StreamIteratorDelete(key);
        entries++;
    }
    reply_result(ctx, 0, errno);
    errno = 0;
    reply_result(ctx, ValkeyModule_StreamIteratorStop(key), errno);
    ValkeyModule_ReplySetArrayLength(ctx, entries + 2);
    return VALKEYMODULE_OK;
}
/* STREAMS.MISUSE stream: what functions say when they are called at the wrong time. */
static int misuse(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModuleKey *reads = open(ctx, argv[1], 0), *key = open(ctx, argv[1], 1);
    ValkeyModuleStreamID id = {5, 0};
    long fields, replies = 0;
    ValkeyModuleString *field, *value;
    ValkeyModule_ReplyWithArray(ctx, VALKEYMODULE_POSTPONED_LEN);
#define ASK(call)                                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long long result = call;                                                                                       \
        reply_result(ctx, result, errno);                                                                              \
        replies++;                                                                                                     \
    } while (0)
    ASK(ValkeyModule_StreamAdd(reads, VALKEYMODULE_STREAM_ADD_AUTOID, NULL, NULL, 0));
    ASK(ValkeyModule_StreamDelete(reads, &id));
    ASK(ValkeyModule_StreamTrimByLength(reads, 0, 100));
    ASK(ValkeyModule_StreamIteratorStop(key));
    ASK(ValkeyModule_StreamIteratorNextID(key, &id, &fields));
    ASK(ValkeyModule_StreamIteratorNextField(key, &field, &value));
    ASK(ValkeyModule_StreamIteratorDelete(key));
    ASK(ValkeyModule_StreamIteratorStart(key, 4, NULL, NULL));
    ASK(ValkeyModule_StreamIteratorStart(key, 0, NULL, NULL));
    ASK(ValkeyModule_StreamIteratorStart(key, 0, NULL, NULL));
    ASK(ValkeyModule_StreamDelete(key, &id));
    ASK(ValkeyModule_StreamIteratorNextField(key, &field, &value));
    ASK(ValkeyModule_StreamIteratorDelete(key));
    ASK(ValkeyModule_StreamIteratorNextID(key, NULL, NULL));
    ASK(ValkeyModule_StreamIteratorDelete(key));
    ASK(ValkeyModule_StreamIteratorDelete(key));
    ASK(ValkeyModule_StreamIteratorStart(reads, 0, NULL, NULL));
    ASK(ValkeyModule_StreamIteratorNextID(reads, &id, &fields));
    ASK(ValkeyModule_StreamIteratorDelete(reads));
    ASK(ValkeyModule_StreamAdd(NULL, 0, &id, NULL, 0));
    ASK(ValkeyModule_StreamDelete(NULL, &id));
    ASK(ValkeyModule_StreamIteratorStart(NULL, 0, NULL, NULL));
    ASK(ValkeyModule_StreamIteratorNextID(NULL, &id, &fields));
    ValkeyModule_ReplySetArrayLength(ctx, replies);
    ValkeyModule_CloseKey(key); /* with its iterator */
    ValkeyModule_CloseKey(reads);
    return VALKEYMODULE_OK;
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    static const struct {
        const char *name;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"streams.add", add},
                    {"streams.delete", delete},
                    {"streams.trim", trim},
                    {"streams.range", range},
                    {"streams.misuse", misuse}};
    if (ValkeyModule_Init(ctx, "streams", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, "write", 0, 0, 0)) return 1;
    return VALKEYMODULE_OK;
}
