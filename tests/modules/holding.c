/* holding.c: a module that holds keys open for writing and changes their values later, through the interface and by
 * pointers; and a type whose functions for saving try to change data. */
#include "module/valkeymodule.h"
#include <string.h>

enum { HELD_MAX = 16 };

static ValkeyModuleCtx *own;
static ValkeyModuleKey *held[HELD_MAX];
static int held_count;
static ValkeyModuleType *type;
static int tries; /* calls of functions for saving since holding.tries */

/* HOLDING.OPEN key... */
static int open_keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    for (int i = 1; i < argc && held_count < HELD_MAX; i++)
        held[held_count++] = ValkeyModule_OpenKey(own, argv[i], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    return ValkeyModule_ReplyWithLongLong(ctx, held_count);
}
static int close_keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    while (held_count) ValkeyModule_CloseKey(held[--held_count]);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* Pointers that were taken before. */
static char *bytes[HELD_MAX];
static size_t lengths[HELD_MAX];
static int *numbers[HELD_MAX];

static void find_pointers(void) {
    for (int i = 0; i < held_count; i++) {
        int kind = ValkeyModule_KeyType(held[i]);
        bytes[i] = NULL;
        numbers[i] = kind == VALKEYMODULE_KEYTYPE_MODULE ? ValkeyModule_ModuleTypeGetValue(held[i]) : NULL;
        if (kind == VALKEYMODULE_KEYTYPE_STRING)
            bytes[i] = ValkeyModule_StringDMA(held[i], &lengths[i], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    }
}
static int take_pointers(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    find_pointers();
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static void write_pointers(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx, (void)data;
    for (int i = 0; i < held_count; i++) {
        if (bytes[i]) memset(bytes[i], 'w', lengths[i]);
        if (numbers[i]) ++*numbers[i];
    }
}
/* HOLDING.WRITE: in a timer. */
static int write_later(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_CreateTimer(ctx, 1, write_pointers, NULL);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

static void change(ValkeyModuleKey *key, ValkeyModuleString *text) {
    ValkeyModuleStreamID id;
    ValkeyModuleString *pair[] = {text, text};
    switch (ValkeyModule_KeyType(key)) {
    case VALKEYMODULE_KEYTYPE_STRING:
        ValkeyModule_StringTruncate(key, 5);
        ValkeyModule_SetExpire(key, 1000000);
        break;
    case VALKEYMODULE_KEYTYPE_LIST:
        ValkeyModule_ListPush(key, VALKEYMODULE_LIST_HEAD, text);
        ValkeyModule_ListSet(key, 1, text);
        ValkeyModule_ListInsert(key, 1, text);
        ValkeyModule_ListDelete(key, -1);
        break;
    case VALKEYMODULE_KEYTYPE_HASH: ValkeyModule_HashSet(key, VALKEYMODULE_HASH_NONE, text, text, NULL); break;
    case VALKEYMODULE_KEYTYPE_ZSET:
        ValkeyModule_ZsetAdd(key, 7, text, NULL);
        ValkeyModule_ZsetIncrby(key, 2, text, NULL, NULL);
        break;
    case VALKEYMODULE_KEYTYPE_STREAM:
        ValkeyModule_StreamAdd(key, VALKEYMODULE_STREAM_ADD_AUTOID, &id, pair, 1);
        ValkeyModule_StreamTrimByLength(key, 0, 1);
        break;
    default: ValkeyModule_DeleteKey(key);
    }
}
/* HOLDING.CHANGE text: each held key. Pointers to values that it changes are not valid any more. */
static int change_keys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    for (int i = 0; i < held_count; i++) change(held[i], argv[1]);
    find_pointers();
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* --- A type --- */

static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    ValkeyModule_ModuleTypeSetValue(key, type, ValkeyModule_Calloc(1, sizeof(int)));
    ValkeyModule_CloseKey(key);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int get(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ);
    if (ValkeyModule_ModuleTypeGetType(key) == type)
        ValkeyModule_ReplyWithLongLong(ctx, *(int *)ValkeyModule_ModuleTypeGetValue(key));
    else
        ValkeyModule_ReplyWithNull(ctx);
    ValkeyModule_CloseKey(key);
    return VALKEYMODULE_OK;
}

/* What a child may do, where it goes nowhere. */
static void try_everything(ValkeyModuleIO *io) {
    ValkeyModuleCtx *ctx = ValkeyModule_GetContextFromIO(io);
    static const char *const writes[][2] = {{"INCR", "!c"}, {"DEL", "!c"}, {"PUBLISH", "!cc"}};
    tries++;
    ValkeyModule_Replicate(ctx, "INCR", "c", "propagated");
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, writes[i][0], writes[i][1], "propagated", "text");
        if (reply) ValkeyModule_FreeCallReply(reply);
    }
    ValkeyModuleString *text = ValkeyModule_CreateString(ctx, "propagated", 10);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, text, VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    if (key) {
        ValkeyModule_StringSet(key, text);
        ValkeyModule_CloseKey(key);
    }
    for (int i = 0; i < held_count; i++) change(held[i], text);
    ValkeyModule_ResetDataset(0, 0);
    ValkeyModule_FreeString(ctx, text);
}
static void rdb_save(ValkeyModuleIO *io, void *value) {
    try_everything(io);
    ValkeyModule_SaveSigned(io, *(int *)value);
}
static void *rdb_load(ValkeyModuleIO *io, int version) {
    (void)version;
    int *value = ValkeyModule_Alloc(sizeof *value);
    *value = (int)ValkeyModule_LoadSigned(io);
    return value;
}
static void rewrite(ValkeyModuleIO *io, ValkeyModuleString *key, void *value) {
    (void)value;
    try_everything(io);
    ValkeyModule_EmitAOF(io, "HOLDING.SET", "s", key);
}
static void aux_save(ValkeyModuleIO *io, int when) {
    (void)when;
    try_everything(io);
}
static int aux_load(ValkeyModuleIO *io, int version, int when) {
    (void)io, (void)version, (void)when;
    return VALKEYMODULE_OK;
}
static int tries_so_far(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, tries);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    static const struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
        int key;
    } commands[] = {{"holding.open", "write", open_keys, 1},
                    {"holding.close", "write", close_keys, 0},
                    {"holding.pointers", "write", take_pointers, 0},
                    {"holding.write", "write", write_later, 0},
                    {"holding.change", "write", change_keys, 0},
                    {"holding.set", "write", set, 1},
                    {"holding.get", "readonly", get, 1},
                    {"holding.tries", "", tries_so_far, 0}};
    ValkeyModuleTypeMethods methods = {.version = VALKEYMODULE_TYPE_METHOD_VERSION,
                                       .rdb_load = rdb_load,
                                       .rdb_save = rdb_save,
                                       .aof_rewrite = rewrite,
                                       .aux_save2 = aux_save,
                                       .aux_load = aux_load,
                                       .aux_save_triggers = VALKEYMODULE_AUX_BEFORE_RDB | VALKEYMODULE_AUX_AFTER_RDB};
    if (ValkeyModule_Init(ctx, "holding", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    ValkeyModule_SetModuleOptions(ctx, VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION);
    methods.free = ValkeyModule_Free; /* not known before */
    type = ValkeyModule_CreateDataType(ctx, "holding-t", 0, &methods);
    own = ValkeyModule_GetDetachedThreadSafeContext(ctx);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, commands[i].key,
                                       commands[i].key, commands[i].key) != VALKEYMODULE_OK)
            return VALKEYMODULE_ERR;
    return type ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
