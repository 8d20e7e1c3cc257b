/* typed.c: a module for tests/integration/modules-types.tcl: two value types. "typed-all" has all methods, and notes
 * with which keys and databases they are called; "typed-old" has those of the first version only.
 *
 * Arguments of OnLoad: "handles": the module handles errors of input; "refuses": rdb_load returns NULL; "aux-refuses":
 * aux_load fails; "aux-always": aux_save of the older kind; "emits-nonsense": aof_rewrite emits a command that does not
 * exist; "migrates": the module knows of slot migrations; "async": of loads beside the old data. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct value {
    unsigned long long number;
    long long negative;
    double real;
    float small;
    long double large;
    ValkeyModuleString *text;
    char *bytes;
    size_t len;
    size_t effort; /* of freeing it */
};

static ValkeyModuleType *all, *old;
static int refuses, aux_refuses, emits_nonsense;
static ValkeyModuleString *aux;  /* saved before the keys */
static unsigned long long freed; /* atomic */
static char notes[4096];

static void note(const char *what, const ValkeyModuleString *key, int db, const ValkeyModuleString *to, int to_db) {
    size_t len = strlen(notes);
    const char *to_name = to ? ValkeyModule_StringPtrLen(to, NULL) : "";
    snprintf(notes + len, sizeof notes - len, "%s %s:%d", what, key ? ValkeyModule_StringPtrLen(key, NULL) : "", db);
    len = strlen(notes);
    if (to) snprintf(notes + len, sizeof notes - len, ">%s:%d", to_name, to_db);
    len = strlen(notes);
    snprintf(notes + len, sizeof notes - len, "\n");
}

static struct value *value_new(void) {
    return ValkeyModule_Calloc(1, sizeof(struct value));
}
static void value_free(void *value) {
    struct value *v = value;
    if (v->text) ValkeyModule_FreeString(NULL, v->text);
    ValkeyModule_Free(v->bytes);
    ValkeyModule_Free(v);
    __atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

static void save(ValkeyModuleIO *io, void *value) {
    struct value *v = value;
    ValkeyModule_SaveUnsigned(io, v->number);
    ValkeyModule_SaveSigned(io, v->negative);
    ValkeyModule_SaveDouble(io, v->real);
    ValkeyModule_SaveFloat(io, v->small);
    ValkeyModule_SaveLongDouble(io, v->large);
    ValkeyModule_SaveString(io, v->text);
    ValkeyModule_SaveStringBuffer(io, v->bytes, v->len);
}
static void *load(ValkeyModuleIO *io, int encver) {
    ValkeyModuleCtx *ctx = ValkeyModule_GetContextFromIO(io);
    if (encver != 3) return NULL;
    struct value *v = value_new();
    v->number = ValkeyModule_LoadUnsigned(io);
    v->negative = ValkeyModule_LoadSigned(io);
    v->real = ValkeyModule_LoadDouble(io);
    v->small = ValkeyModule_LoadFloat(io);
    v->large = ValkeyModule_LoadLongDouble(io);
    v->text = ValkeyModule_LoadString(io);
    v->bytes = ValkeyModule_LoadStringBuffer(io, &v->len);
    note("load", ValkeyModule_GetKeyNameFromIO(io), ValkeyModule_GetDbIdFromIO(io), NULL, 0);
    if (!ValkeyModule_IsIOError(io) && !refuses) return v;
    if (refuses)
        ValkeyModule_LogIOError(io, "warning", "typed refuses a value");
    else
        ValkeyModule_Log(ctx, "notice", "typed sees an error of input");
    value_free(v);
    return NULL;
}
static void rewrite(ValkeyModuleIO *io, ValkeyModuleString *key, void *value) {
    struct value *v = value;
    char real[64], small[64], large[64];
    snprintf(real, sizeof real, "%.17g", v->real);
    snprintf(small, sizeof small, "%.9g", (double)v->small);
    snprintf(large, sizeof large, "%.21Lg", v->large);
    ValkeyModuleString *text[] = {v->text};
    ValkeyModule_EmitAOF(io, emits_nonsense ? "TYPED.NONSENSE" : "TYPED.SET", "sllcccvb", key, (long long)v->number,
                         v->negative, real, small, large, text, (size_t)1, v->bytes, v->len);
}
static size_t memory(ValkeyModuleKeyOptCtx *ctx, const void *value, size_t samples) {
    (void)samples;
    note("memory", ValkeyModule_GetKeyNameFromOptCtx(ctx), ValkeyModule_GetDbIdFromOptCtx(ctx), NULL, 0);
    return 1000000 + ((const struct value *)value)->len;
}
static void digest(ValkeyModuleDigest *md, void *value) {
    struct value *v = value;
    ValkeyModule_DigestAddLongLong(md, v->negative);
    ValkeyModule_DigestAddStringBuffer(md, v->bytes, v->len);
    ValkeyModule_DigestEndSequence(md);
    note("digest", ValkeyModule_GetKeyNameFromDigest(md), ValkeyModule_GetDbIdFromDigest(md), NULL, 0);
}
static size_t effort(ValkeyModuleKeyOptCtx *ctx, const void *value) {
    note("effort", ValkeyModule_GetKeyNameFromOptCtx(ctx), ValkeyModule_GetDbIdFromOptCtx(ctx), NULL, 0);
    return ((const struct value *)value)->effort;
}
static void unlinked(ValkeyModuleKeyOptCtx *ctx, const void *value) {
    (void)value;
    note("unlink", ValkeyModule_GetKeyNameFromOptCtx(ctx), ValkeyModule_GetDbIdFromOptCtx(ctx), NULL, 0);
}
static void *copy(ValkeyModuleKeyOptCtx *ctx, const void *value) {
    const struct value *v = value;
    note("copy", ValkeyModule_GetKeyNameFromOptCtx(ctx), ValkeyModule_GetDbIdFromOptCtx(ctx),
         ValkeyModule_GetToKeyNameFromOptCtx(ctx), ValkeyModule_GetToDbIdFromOptCtx(ctx));
    if (v->number == 13) return NULL;
    struct value *to = value_new();
    *to = *v;
    ValkeyModule_RetainString(NULL, to->text);
    to->bytes = ValkeyModule_Alloc(v->len + 1);
    memcpy(to->bytes, v->bytes, v->len);
    return to;
}
static int defrag(ValkeyModuleDefragCtx *ctx, ValkeyModuleString *key, void **value) {
    (void)key;
    struct value *v = ValkeyModule_DefragAlloc(ctx, *value);
    if (v) *value = v;
    v = *value;
    char *bytes = ValkeyModule_DefragAlloc(ctx, v->bytes);
    if (bytes) v->bytes = bytes;
    ValkeyModuleString *text = ValkeyModule_DefragValkeyModuleString(ctx, v->text);
    if (text) v->text = text;
    return 0;
}

static void aux_save(ValkeyModuleIO *io, int when) {
    if (when != VALKEYMODULE_AUX_BEFORE_RDB || !aux) return;
    ValkeyModule_SaveString(io, aux);
}
static int aux_load(ValkeyModuleIO *io, int encver, int when) {
    if (aux_refuses || encver != 3 || when != VALKEYMODULE_AUX_BEFORE_RDB) return VALKEYMODULE_ERR;
    ValkeyModuleString *text = ValkeyModule_LoadString(io);
    if (!text) return VALKEYMODULE_ERR;
    if (aux) ValkeyModule_FreeString(NULL, aux);
    aux = text;
    return VALKEYMODULE_OK;
}

/* --- typed-old: a number --- */

static void old_save(ValkeyModuleIO *io, void *value) {
    ValkeyModule_SaveUnsigned(io, *(unsigned long long *)value);
}
static void *old_load(ValkeyModuleIO *io, int encver) {
    (void)encver;
    unsigned long long *value = ValkeyModule_Alloc(sizeof *value);
    *value = ValkeyModule_LoadUnsigned(io);
    return value;
}
static void old_free(void *value) {
    ValkeyModule_Free(value);
    __atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

/* --- Commands --- */

static int set_old(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    unsigned long long *value = ValkeyModule_Alloc(sizeof *value);
    if (ValkeyModule_StringToULongLong(argv[2], value) != VALKEYMODULE_OK) *value = 0;
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    ValkeyModule_ModuleTypeSetValue(key, old, value);
    ValkeyModule_CloseKey(key);
    ValkeyModule_ReplicateVerbatim(ctx);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* TYPED.SET key number negative real small large text bytes [effort] */
static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 9 && argc != 10) return ValkeyModule_WrongArity(ctx);
    struct value *v = value_new();
    long long effort_given = 1;
    double small = 0;
    ValkeyModule_StringToULongLong(argv[2], &v->number);
    ValkeyModule_StringToLongLong(argv[3], &v->negative);
    ValkeyModule_StringToDouble(argv[4], &v->real);
    ValkeyModule_StringToDouble(argv[5], &small);
    ValkeyModule_StringToLongDouble(argv[6], &v->large);
    v->small = (float)small;
    v->text = ValkeyModule_CreateStringFromString(NULL, argv[7]);
    const char *bytes = ValkeyModule_StringPtrLen(argv[8], &v->len);
    v->bytes = ValkeyModule_Alloc(v->len + 1);
    memcpy(v->bytes, bytes, v->len);
    if (argc == 10) ValkeyModule_StringToLongLong(argv[9], &effort_given);
    v->effort = (size_t)effort_given;
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    ValkeyModule_ModuleTypeSetValue(key, all, v);
    ValkeyModule_CloseKey(key);
    ValkeyModule_ReplicateVerbatim(ctx);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static void reply_value(ValkeyModuleCtx *ctx, const struct value *v) {
    char real[64], small[64], large[64];
    snprintf(real, sizeof real, "%.17g", v->real);
    snprintf(small, sizeof small, "%.9g", (double)v->small);
    snprintf(large, sizeof large, "%.21Lg", v->large);
    ValkeyModule_ReplyWithArray(ctx, 7);
    ValkeyModule_ReplyWithLongLong(ctx, (long long)v->number);
    ValkeyModule_ReplyWithLongLong(ctx, v->negative);
    ValkeyModule_ReplyWithCString(ctx, real);
    ValkeyModule_ReplyWithCString(ctx, small);
    ValkeyModule_ReplyWithCString(ctx, large);
    ValkeyModule_ReplyWithString(ctx, v->text);
    ValkeyModule_ReplyWithStringBuffer(ctx, v->bytes, v->len);
}
static int get(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ);
    ValkeyModuleType *type = ValkeyModule_ModuleTypeGetType(key);
    if (type == all)
        reply_value(ctx, ValkeyModule_ModuleTypeGetValue(key));
    else if (type == old)
        ValkeyModule_ReplyWithLongLong(ctx, *(long long *)ValkeyModule_ModuleTypeGetValue(key));
    else if (!key || ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_EMPTY)
        ValkeyModule_ReplyWithNull(ctx);
    else
        ValkeyModule_ReplyWithError(ctx, VALKEYMODULE_ERRORMSG_WRONGTYPE);
    ValkeyModule_CloseKey(key);
    return VALKEYMODULE_OK;
}
/* TYPED.SWAP one other: exchanges their values. */
static int swap(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleKey *one = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_WRITE);
    ValkeyModuleKey *other = ValkeyModule_OpenKey(ctx, argv[2], VALKEYMODULE_WRITE);
    void *value = ValkeyModule_ModuleTypeGetValue(other), *before = NULL;
    if (ValkeyModule_ModuleTypeGetType(other) != all ||
        ValkeyModule_ModuleTypeReplaceValue(one, all, value, &before) != VALKEYMODULE_OK)
        return ValkeyModule_ReplyWithError(ctx, "ERR not replaced");
    ValkeyModule_ModuleTypeReplaceValue(other, all, before, NULL);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* TYPED.SAVED key: its value as a string. TYPED.LOADED string: the value of one. */
static int saved(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    ValkeyModule_AutoMemory(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_READ);
    if (ValkeyModule_ModuleTypeGetType(key) != all) return ValkeyModule_ReplyWithNull(ctx);
    void *value = ValkeyModule_ModuleTypeGetValue(key);
    return ValkeyModule_ReplyWithString(ctx, ValkeyModule_SaveDataTypeToString(ctx, value, all));
}
static int loaded(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    struct value *v = ValkeyModule_LoadDataTypeFromStringEncver(argv[1], all, 3);
    if (!v) return ValkeyModule_ReplyWithNull(ctx);
    reply_value(ctx, v);
    value_free(v);
    return VALKEYMODULE_OK;
}
static int set_aux(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc > 2) return ValkeyModule_WrongArity(ctx);
    if (aux)
        ValkeyModule_ReplyWithString(ctx, aux);
    else
        ValkeyModule_ReplyWithNull(ctx);
    if (argc < 2) return VALKEYMODULE_OK;
    if (aux) ValkeyModule_FreeString(NULL, aux);
    size_t len;
    ValkeyModule_StringPtrLen(argv[1], &len);
    aux = len ? ValkeyModule_CreateStringFromString(NULL, argv[1]) : NULL;
    return VALKEYMODULE_OK;
}
static int freed_values(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, (long long)__atomic_load_n(&freed, __ATOMIC_SEQ_CST));
}
static int called(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithCString(ctx, notes);
    notes[0] = '\0';
    return VALKEYMODULE_OK;
}
/* TYPED.FILE SAVE|LOAD path */
static int file(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    int saves = strcmp(ValkeyModule_StringPtrLen(argv[1], NULL), "SAVE") == 0;
    ValkeyModuleRdbStream *stream = ValkeyModule_RdbStreamCreateFromFile(ValkeyModule_StringPtrLen(argv[2], NULL));
    int result = saves ? ValkeyModule_RdbSave(ctx, stream, 0) : ValkeyModule_RdbLoad(ctx, stream, 0);
    int error = errno;
    ValkeyModule_RdbStreamFree(stream);
    if (result == VALKEYMODULE_OK && !error) return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
    return ValkeyModule_ReplyWithError(ctx, strerror(error));
}
/* TYPED.CREATE name version: a type outside of OnLoad. */
static int create(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argc;
    ValkeyModuleTypeMethods methods = {.version = 1, .rdb_load = old_load, .rdb_save = old_save, .free = old_free};
    ValkeyModuleType *type = ValkeyModule_CreateDataType(ctx, ValkeyModule_StringPtrLen(argv[1], NULL), 0, &methods);
    return ValkeyModule_ReplyWithLongLong(ctx, type != NULL);
}

static const struct {
    const char *name, *flags;
    ValkeyModuleCmdFunc run;
    int first, last;
} commands[] = {{"typed.set", "write deny-oom", set, 1, 1}, {"typed.old", "write deny-oom", set_old, 1, 1},
                {"typed.get", "readonly", get, 1, 1},       {"typed.swap", "write", swap, 1, 2},
                {"typed.saved", "readonly", saved, 1, 1},   {"typed.loaded", "", loaded, 0, 0},
                {"typed.aux", "", set_aux, 0, 0},           {"typed.freed", "", freed_values, 0, 0},
                {"typed.called", "", called, 0, 0},         {"typed.file", "", file, 0, 0},
                {"typed.create", "", create, 0, 0}};

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "typed", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    int aux_always = 0, options = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = ValkeyModule_StringPtrLen(argv[i], NULL);
        if (strcmp(word, "handles") == 0) options |= VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS;
        if (strcmp(word, "async") == 0) options |= VALKEYMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        if (strcmp(word, "migrates") == 0) options |= VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION;
        refuses |= strcmp(word, "refuses") == 0;
        aux_refuses |= strcmp(word, "aux-refuses") == 0;
        aux_always |= strcmp(word, "aux-always") == 0;
        emits_nonsense |= strcmp(word, "emits-nonsense") == 0;
    }
    ValkeyModule_SetModuleOptions(ctx, options);
    ValkeyModuleTypeMethods methods = {.version = VALKEYMODULE_TYPE_METHOD_VERSION,
                                       .rdb_load = load,
                                       .rdb_save = save,
                                       .aof_rewrite = rewrite,
                                       .digest = digest,
                                       .free = value_free,
                                       .aux_load = aux_load,
                                       .aux_save_triggers = VALKEYMODULE_AUX_BEFORE_RDB | VALKEYMODULE_AUX_AFTER_RDB,
                                       .defrag = defrag,
                                       .mem_usage2 = memory,
                                       .free_effort2 = effort,
                                       .unlink2 = unlinked,
                                       .copy2 = copy};
    if (aux_always) {
        methods.aux_save = aux_save;
        methods.aux_save_triggers = VALKEYMODULE_AUX_BEFORE_RDB;
    } else {
        methods.aux_save2 = aux_save;
    }
    all = ValkeyModule_CreateDataType(ctx, "typed-all", 3, &methods);
    /* What lies behind the members of the version must not be looked at. */
    ValkeyModuleTypeMethods first = {.version = 1,
                                     .rdb_load = old_load,
                                     .rdb_save = old_save,
                                     .free = old_free,
                                     .copy = (ValkeyModuleTypeCopyFunc)(size_t)1,
                                     .aux_save_triggers = -1,
                                     .aux_save2 = (ValkeyModuleTypeAuxSaveFunc)(size_t)1};
    old = ValkeyModule_CreateDataType(ctx, "typed-old", 0, &first);
    if (!all || !old) return VALKEYMODULE_ERR;
    ValkeyModuleTypeMethods none = {.version = 0};
    const struct {
        const char *name;
        int version;
        ValkeyModuleTypeMethods *methods;
    } wrong[] = {{"typed-new", 0, &none},
                 {"short", 0, &first},
                 {"typed-new", -1, &first},
                 {"typed-new", 1024, &first},
                 {"typed new", 0, &first}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (!ValkeyModule_CreateDataType(ctx, wrong[i].name, wrong[i].version, wrong[i].methods)) continue;
        ValkeyModule_Log(ctx, "warning", "typed has created the type '%s', the wrong one no. %d", wrong[i].name,
                         (int)i);
        return VALKEYMODULE_ERR;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, commands[i].first,
                                       commands[i].last, commands[i].first) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
