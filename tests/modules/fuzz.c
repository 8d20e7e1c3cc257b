/* fuzz.c: a module for tests/integration/modules-fuzz.tcl: calls functions of the interface at random, with valid and
 * invalid arguments, from commands, timers, a thread, listeners, replies to blocked clients, scans and filters.
 *
 * FUZZ.RUN steps runs steps and replies with a random value. FUZZ.START seed sets the seed and starts timers and a
 * thread; FUZZ.STOP ends them. What the module itself must not do, it does not: it frees nothing twice, uses nothing
 * that it has freed, unblocks a client once and writes complete replies. Functions that take NULL get it now and then.
 * Each run of steps closes the keys that it has opened. Replies, strings, dictionaries, users, cursors and blocked
 * clients live on between runs.
 *
 * All steps run on the main thread or under the lock, so the state needs no lock of its own. */
#include "module/valkeymodule.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    NAMES = 24,
    STRINGS = 32,
    REPLIES = 8,
    DICTS = 4,
    USERS = 4,
    CURSORS = 4,
    WAITING = 16,
    KEYS = 6,
    DEPTH_MAX = 3
};

static uint64_t state = 1;
static unsigned long long steps_run;
static int active, depth, timers_alive, jobs_alive;
static int automatic; /* the run's context has AutoMemory, and what it gives ends with it */
static ValkeyModuleString *strings[STRINGS];
static ValkeyModuleCallReply *replies[REPLIES];
static ValkeyModuleDict *dicts[DICTS];
static ValkeyModuleUser *users[USERS];
static ValkeyModuleScanCursor *cursors[CURSORS];
static ValkeyModuleBlockedClient *waiting[WAITING];
static ValkeyModuleType *type;
static ValkeyModuleCommandFilter *own_filter;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * UINT64_C(0x2545F4914F6CDD1D) >> 20) % below;
}
static int one_in(int n) {
    return draw((uint64_t)n) == 0;
}
static long long draw_number(void) {
    static const long long odd[] = {0, 1, -1, 2, -2, 100, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 1LL << 40};
    return one_in(3) ? odd[draw(sizeof odd / sizeof *odd)] : (long long)draw(20) - 5;
}
static double draw_double(void) {
    static const double odd[] = {0, -0.0, 1.5, -1e300, 1e308, 0.1, 1.0 / 0.0, -1.0 / 0.0};
    return odd[draw(sizeof odd / sizeof *odd)];
}
static const char *draw_text(void) {
    static const char *const texts[] = {"",  "a",     "field", "10",    "-1",  "1.5", "1-1",    "5-0",     "[a",
                                        "(", "+",     "-",     "[z",    "nan", "inf", "\r\n$3", "a b c",   "*",
                                        "k", "key:1", "ünï",   "99999", "$",   ">",   "0-0",    "9999-999"};
    return texts[draw(sizeof texts / sizeof *texts)];
}

/* --- Pools: a slot that is in use is freed before it gets another object --- */

static ValkeyModuleString *new_string(void) {
    ValkeyModuleStreamID id = {draw(10), draw(10)};
    char bytes[64] = "\0bytes";
    switch (draw(10)) {
    case 0: return ValkeyModule_CreateStringFromLongLong(NULL, draw_number());
    case 1: return ValkeyModule_CreateStringFromULongLong(NULL, (unsigned long long)draw_number());
    case 2: return ValkeyModule_CreateStringFromDouble(NULL, draw_double());
    case 3: return ValkeyModule_CreateStringFromLongDouble(NULL, (long double)draw_double(), (int)draw(2));
    case 4: return ValkeyModule_CreateStringFromStreamID(NULL, &id);
    case 5: return ValkeyModule_CreateStringPrintf(NULL, "%s:%d", draw_text(), (int)draw(100));
    case 6: return ValkeyModule_CreateString(NULL, bytes, draw(sizeof bytes));
    case 7: {
        size_t len = draw(20000);
        char *large = ValkeyModule_Calloc(1, len + 1);
        memset(large, 'x', len);
        ValkeyModuleString *string = ValkeyModule_CreateString(NULL, large, len);
        ValkeyModule_Free(large);
        return string;
    }
    default: return ValkeyModule_CreateStringPrintf(NULL, "%s", draw_text());
    }
}
/* One of the pool, which stays there. A function that is called with one may call the module again, so strings are
 * freed between the outermost steps only. */
static ValkeyModuleString *any_string(void) {
    int at = (int)draw(STRINGS);
    if (!strings[at]) strings[at] = new_string();
    return strings[at];
}
static void change_strings(void) {
    for (int i = 0; i < 4; i++) {
        int at = (int)draw(STRINGS);
        if (strings[at]) ValkeyModule_FreeString(NULL, strings[at]);
        strings[at] = new_string();
    }
}
static ValkeyModuleString *key_name(ValkeyModuleCtx *ctx) {
    return ValkeyModule_CreateStringPrintf(ctx, "key:%d", (int)draw(NAMES));
}
static void keep_reply(ValkeyModuleCallReply *reply) {
    if (!reply) return;
    int at = (int)draw(REPLIES);
    if (automatic || ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE) {
        ValkeyModule_FreeCallReply(reply);
        return;
    }
    if (replies[at]) ValkeyModule_FreeCallReply(replies[at]);
    replies[at] = reply;
}

/* --- Values of the own type --- */

static void *value_load(ValkeyModuleIO *io, int encver) {
    if (encver != 1) return NULL;
    uint64_t number = ValkeyModule_LoadUnsigned(io);
    ValkeyModuleString *text = ValkeyModule_LoadString(io);
    double real = ValkeyModule_LoadDouble(io);
    if (text) ValkeyModule_FreeString(NULL, text);
    if (ValkeyModule_IsIOError(io) || real != 0.5) return NULL;
    uint64_t *value = ValkeyModule_Alloc(sizeof *value);
    *value = number;
    return value;
}
static void value_save(ValkeyModuleIO *io, void *value) {
    ValkeyModule_SaveUnsigned(io, *(uint64_t *)value);
    ValkeyModule_SaveStringBuffer(io, "text", 4);
    ValkeyModule_SaveDouble(io, 0.5);
}
static void value_rewrite(ValkeyModuleIO *io, ValkeyModuleString *key, void *value) {
    ValkeyModule_EmitAOF(io, "FUZZ.SET", "sl", key, *(long long *)value);
}
static void value_free(void *value) {
    ValkeyModule_Free(value);
}
static size_t value_memory(const void *value) {
    return ValkeyModule_MallocSize((void *)(uintptr_t)value);
}
static void value_digest(ValkeyModuleDigest *md, void *value) {
    ValkeyModule_DigestAddLongLong(md, *(long long *)value);
    ValkeyModule_DigestEndSequence(md);
}
static void *value_copy(ValkeyModuleString *from, ValkeyModuleString *to, const void *value) {
    (void)from, (void)to;
    uint64_t *copied = ValkeyModule_Alloc(sizeof *copied);
    *copied = *(const uint64_t *)value;
    return one_in(4) ? (ValkeyModule_Free(copied), NULL) : copied;
}
static void *value_new(void) {
    uint64_t *value = ValkeyModule_Alloc(sizeof *value);
    *value = draw(1000);
    return value;
}

/* --- Steps --- */

static void steps(ValkeyModuleCtx *ctx, int count);

static void step_string(ValkeyModuleCtx *ctx) {
    ValkeyModuleString *a = any_string();
    size_t len;
    long long number;
    unsigned long long positive;
    double real;
    long double large;
    ValkeyModuleStreamID id;
    ValkeyModule_StringPtrLen(a, one_in(2) ? &len : NULL);
    if (one_in(8)) ValkeyModule_StringPtrLen(NULL, &len);
    switch (draw(9)) {
    case 0: ValkeyModule_StringToLongLong(a, &number); break;
    case 1: ValkeyModule_StringToULongLong(a, &positive); break;
    case 2: ValkeyModule_StringToDouble(a, &real); break;
    case 3: ValkeyModule_StringToLongDouble(a, &large); break;
    case 4: ValkeyModule_StringToStreamID(a, &id); break;
    case 5: ValkeyModule_StringCompare(a, any_string()); break;
    case 6: {
        ValkeyModuleString *own = new_string();
        ValkeyModule_StringAppendBuffer(ctx, own, draw_text(), one_in(2) ? 0 : 1);
        ValkeyModule_TrimStringAllocation(own);
        ValkeyModule_RetainString(NULL, own);
        ValkeyModule_FreeString(NULL, own);
        ValkeyModule_MallocSizeString(own);
        ValkeyModule_FreeString(NULL, own);
        break;
    }
    case 7: {
        ValkeyModuleString *held = ValkeyModule_HoldString(NULL, a),
                           *copied = ValkeyModule_CreateStringFromString(NULL, a);
        ValkeyModule_FreeString(NULL, held);
        ValkeyModule_FreeString(NULL, copied);
        break;
    }
    default: ValkeyModule_ClusterKeySlot(a);
    }
}

static void on_scanned_key(ValkeyModuleKey *key, ValkeyModuleString *field, ValkeyModuleString *value, void *data) {
    (void)key, (void)data;
    if (field) ValkeyModule_StringPtrLen(field, NULL);
    if (value) ValkeyModule_StringPtrLen(value, NULL);
}
static void key_of_zset(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    int flags = (int)draw(128), deleted;
    double score;
    switch (draw(8)) {
    case 0: ValkeyModule_ZsetAdd(key, draw_double(), any_string(), one_in(2) ? &flags : NULL); break;
    case 1: ValkeyModule_ZsetIncrby(key, draw_double(), any_string(), &flags, &score); break;
    case 2: ValkeyModule_ZsetScore(key, any_string(), &score); break;
    case 3: ValkeyModule_ZsetRem(key, any_string(), one_in(2) ? &deleted : NULL); break;
    default: {
        int found;
        if (one_in(2))
            found = one_in(2) ? ValkeyModule_ZsetFirstInScoreRange(key, draw_double(), draw_double(), (int)draw(2), 0)
                              : ValkeyModule_ZsetLastInScoreRange(key, draw_double(), draw_double(), (int)draw(2), 1);
        else
            found = one_in(2) ? ValkeyModule_ZsetFirstInLexRange(key, any_string(), any_string())
                              : ValkeyModule_ZsetLastInLexRange(key, any_string(), any_string());
        (void)found;
        for (int i = 0; i < 6; i++) {
            ValkeyModuleString *element = ValkeyModule_ZsetRangeCurrentElement(key, one_in(2) ? &score : NULL);
            if (element) ValkeyModule_FreeString(ctx, element);
            ValkeyModule_ZsetRangeEndReached(key);
            if (one_in(3))
                ValkeyModule_ZsetRangePrev(key);
            else
                ValkeyModule_ZsetRangeNext(key);
        }
        if (one_in(2)) ValkeyModule_ZsetRangeStop(key);
    }
    }
}
static void key_of_list(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    ValkeyModuleString *element = NULL;
    switch (draw(7)) {
    case 0:
    case 1:
        ValkeyModule_ListPush(key, one_in(2) ? VALKEYMODULE_LIST_HEAD : VALKEYMODULE_LIST_TAIL, any_string());
        break;
    case 2: element = ValkeyModule_ListPop(key, one_in(2) ? VALKEYMODULE_LIST_HEAD : VALKEYMODULE_LIST_TAIL); break;
    case 3: element = ValkeyModule_ListGet(key, (long)draw_number()); break;
    case 4: ValkeyModule_ListSet(key, (long)draw_number(), any_string()); break;
    case 5: ValkeyModule_ListInsert(key, (long)draw_number(), any_string()); break;
    default: ValkeyModule_ListDelete(key, (long)draw_number());
    }
    if (element) ValkeyModule_FreeString(ctx, element);
}
static void key_of_hash(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    ValkeyModuleString *first = NULL, *second = NULL;
    int exists;
    switch (draw(6)) {
    case 0: ValkeyModule_HashSet(key, (int)draw(4), any_string(), any_string(), NULL); break;
    case 1:
        ValkeyModule_HashSet(key, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_COUNT_ALL, "field", any_string(), "a",
                             one_in(2) ? VALKEYMODULE_HASH_DELETE : any_string(), NULL);
        break;
    case 2: ValkeyModule_HashGet(key, VALKEYMODULE_HASH_NONE, any_string(), &first, any_string(), &second, NULL); break;
    case 3:
        ValkeyModule_HashGet(key, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_EXISTS, "field", &exists, NULL);
        break;
    case 4: ValkeyModule_HashGet(key, VALKEYMODULE_HASH_CFIELDS, "field", &first, NULL); break;
    default: ValkeyModule_HashSet(key, VALKEYMODULE_HASH_XX | (int)draw(64), any_string(), any_string(), NULL);
    }
    if (first) ValkeyModule_FreeString(ctx, first);
    if (second) ValkeyModule_FreeString(ctx, second);
}
static void key_of_stream(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    ValkeyModuleStreamID id = {draw(20), draw(3)}, last = {draw(30), draw(3)};
    long fields;
    switch (draw(5)) {
    case 0:
    case 1: {
        ValkeyModuleString *pairs[4] = {any_string(), NULL, NULL, NULL};
        for (int i = 0; i < 4; i++) pairs[i] = new_string();
        ValkeyModule_StreamAdd(key, one_in(2) ? VALKEYMODULE_STREAM_ADD_AUTOID : (int)draw(4), &id, pairs,
                               (int64_t)draw(3));
        for (int i = 0; i < 4; i++) ValkeyModule_FreeString(NULL, pairs[i]);
        break;
    }
    case 2: ValkeyModule_StreamDelete(key, &id); break;
    case 3:
        ValkeyModule_StreamIteratorStart(key, (int)draw(4), one_in(2) ? &id : NULL, one_in(2) ? &last : NULL);
        for (int i = 0; i < 6; i++) {
            ValkeyModuleString *field = NULL, *value = NULL;
            if (!one_in(4)) ValkeyModule_StreamIteratorNextID(key, &id, one_in(2) ? &fields : NULL);
            if (ValkeyModule_StreamIteratorNextField(key, &field, &value) == VALKEYMODULE_OK) {
                ValkeyModule_FreeString(ctx, field);
                ValkeyModule_FreeString(ctx, value);
            }
            if (one_in(4)) ValkeyModule_StreamIteratorDelete(key);
        }
        if (one_in(2)) ValkeyModule_StreamIteratorStop(key);
        break;
    default:
        if (one_in(2))
            ValkeyModule_StreamTrimByLength(key, (int)draw(4), draw_number());
        else
            ValkeyModule_StreamTrimByID(key, (int)draw(4), &id);
    }
}
static void key_of_string(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    size_t len;
    (void)ctx;
    switch (draw(3)) {
    case 0: ValkeyModule_StringSet(key, any_string()); break;
    case 1: {
        int writes = one_in(2);
        char *bytes = ValkeyModule_StringDMA(key, &len, writes ? VALKEYMODULE_WRITE : VALKEYMODULE_READ);
        if (bytes && writes && len && ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_STRING) bytes[draw(len)] = 'w';
        break;
    }
    default: ValkeyModule_StringTruncate(key, draw(3000));
    }
}
static void key_of_any(ValkeyModuleCtx *ctx, ValkeyModuleKey *key) {
    mstime_t idle;
    long long frequency;
    switch (draw(12)) {
    case 0: ValkeyModule_SetExpire(key, one_in(2) ? VALKEYMODULE_NO_EXPIRE : (mstime_t)draw_number()); break;
    case 1: ValkeyModule_SetAbsExpire(key, draw_number()); break;
    case 2: ValkeyModule_GetExpire(key), ValkeyModule_GetAbsExpire(key); break;
    case 3: ValkeyModule_SetLRU(key, draw_number()), ValkeyModule_GetLRU(key, &idle); break;
    case 4: ValkeyModule_SetLFU(key, draw_number()), ValkeyModule_GetLFU(key, &frequency); break;
    case 5: ValkeyModule_DeleteKey(key); break;
    case 6: ValkeyModule_UnlinkKey(key); break;
    case 7: ValkeyModule_GetKeyNameFromModuleKey(key), ValkeyModule_GetDbIdFromModuleKey(key); break;
    case 8: {
        ValkeyModuleScanCursor *cursor = ValkeyModule_ScanCursorCreate();
        for (int i = 0; i < 3 && ValkeyModule_ScanKey(key, cursor, on_scanned_key, NULL); i++) {
        }
        ValkeyModule_ScanCursorDestroy(cursor);
        break;
    }
    case 9: {
        void *value = value_new();
        if (ValkeyModule_ModuleTypeSetValue(key, type, value) != VALKEYMODULE_OK) value_free(value);
        break;
    }
    case 10: {
        void *value = value_new(), *before = NULL;
        if (ValkeyModule_ModuleTypeReplaceValue(key, type, value, &before) == VALKEYMODULE_OK)
            value_free(before);
        else
            value_free(value);
        break;
    }
    default:
        if (ValkeyModule_ModuleTypeGetType(key) == type) {
            void *value = ValkeyModule_ModuleTypeGetValue(key);
            ValkeyModuleString *saved = ValkeyModule_SaveDataTypeToString(NULL, value, type);
            void *loaded =
                ValkeyModule_LoadDataTypeFromStringEncver(one_in(2) ? saved : any_string(), type, (int)draw(3));
            if (loaded) value_free(loaded);
            ValkeyModule_FreeString(NULL, saved);
        }
    }
    (void)ctx;
}
/* Several keys are open together, some of them the same one, and other steps change them meanwhile. */
static void step_keys(ValkeyModuleCtx *ctx) {
    ValkeyModuleKey *keys[KEYS];
    int count = 1 + (int)draw(KEYS - 1);
    for (int i = 0; i < count; i++) {
        int mode = (one_in(3) ? VALKEYMODULE_READ : VALKEYMODULE_READ | VALKEYMODULE_WRITE) | (int)(draw(32) << 16);
        ValkeyModuleString *name = key_name(NULL);
        keys[i] = ValkeyModule_OpenKey(ctx, name, mode);
        ValkeyModule_FreeString(NULL, name);
    }
    for (int i = 0; i < 8; i++) {
        ValkeyModuleKey *key = keys[draw((uint64_t)count)];
        ValkeyModule_KeyType(key);
        ValkeyModule_ValueLength(key);
        if (!key) continue;
        switch (draw(8)) {
        case 0: key_of_zset(ctx, key); break;
        case 1: key_of_list(ctx, key); break;
        case 2: key_of_hash(ctx, key); break;
        case 3: key_of_stream(ctx, key); break;
        case 4: key_of_string(ctx, key); break;
        case 5: steps(ctx, 1); break;
        default: key_of_any(ctx, key);
        }
    }
    for (int i = 0; i < count; i++) ValkeyModule_CloseKey(keys[i]);
}

static void on_unblocked(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    ValkeyModule_CallReplyType(reply);
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_FreeCallReply(data); /* the promise */
    steps(ctx, 2);
}
static void step_call(ValkeyModuleCtx *ctx) {
    /* None whose reply may be as long as an argument says. */
    static const char *const commands[] = {
        "SET",      "GET",       "DEL",       "LPUSH",   "RPOP",       "HSET",     "HGETALL", "SADD",
        "SMEMBERS", "ZADD",      "ZRANGE",    "XADD",    "XRANGE",     "EXPIRE",   "TYPE",    "RENAME",
        "COPY",     "OBJECT",    "NOSUCH",    "INCR",    "APPEND",     "GETDEL",   "SORT",    "DUMP",
        "PING",     "FUZZ.READ", "FUZZ.RUN",  "MULTI",   "EXEC",       "WATCH",    "CLIENT",  "HELLO",
        "AUTH",     "SELECT",    "SUBSCRIBE", "RESET",   "QUIT",       "WAIT",     "BLPOP",   "INFO",
        "COMMAND",  "FUZZ.WAIT", "EVAL",      "PUBLISH", "DEBUG",      "OBJECT",   "CLUSTER", "ACL",
        "SCAN",     "UNLINK",    "PEXPIRE",   "BLMOVE",  "XREADGROUP", "BZPOPMIN", "SETEX",   "LMOVE"};
    static const char modifiers[] = "!AR30CSWMEDKX";
    char format[16] = "";
    size_t at = 0;
    int waits = 0;
    for (int i = (int)draw(4); i > 0; i--) {
        format[at++] = modifiers[draw(sizeof modifiers - 1)];
        waits |= format[at - 1] == 'K';
    }
    const char *command = commands[draw(sizeof commands / sizeof *commands)];
    ValkeyModuleString *key = key_name(NULL), *arguments[3] = {new_string(), new_string(), new_string()};
    ValkeyModuleCallReply *reply;
    switch (draw(5)) {
    case 0: reply = ValkeyModule_Call(ctx, command, strcat(format, "s"), key); break;
    case 1: reply = ValkeyModule_Call(ctx, command, strcat(format, "ss"), key, arguments[0]); break;
    case 2:
        reply = ValkeyModule_Call(ctx, command, strcat(format, "slv"), key, draw_number(), arguments, (size_t)draw(4));
        break;
    case 3:
        reply = ValkeyModule_Call(ctx, command, strcat(format, "sbc"), key, "bytes", (size_t)draw(6), draw_text());
        break;
    default: reply = ValkeyModule_Call(ctx, command, one_in(20) ? "?" : format);
    }
    ValkeyModule_FreeString(NULL, key);
    for (int i = 0; i < 3; i++) ValkeyModule_FreeString(NULL, arguments[i]);
    if (!reply) return;
    if (ValkeyModule_CallReplyType(reply) != VALKEYMODULE_REPLY_PROMISE) {
        keep_reply(reply);
    } else if (automatic) {
        ValkeyModule_FreeCallReply(reply);
    } else if (!waits || one_in(2)) {
        void *data;
        ValkeyModule_CallReplyPromiseAbort(reply, one_in(2) ? &data : NULL);
        ValkeyModule_FreeCallReply(reply);
    } else if (one_in(2)) {
        ValkeyModule_FreeCallReply(reply); /* it goes on alone */
    } else {
        ValkeyModule_CallReplyPromiseSetUnblockHandler(reply, on_unblocked, reply);
    }
}
static void reply_walk(ValkeyModuleCallReply *reply, int level) {
    size_t len, index = one_in(4) ? (size_t)draw_number() : draw(5);
    const char *format;
    ValkeyModuleCallReply *key = NULL, *value = NULL;
    switch (draw(11)) {
    case 0: ValkeyModule_CallReplyInteger(reply); break;
    case 1: ValkeyModule_CallReplyDouble(reply); break;
    case 2: ValkeyModule_CallReplyBool(reply); break;
    case 3: ValkeyModule_CallReplyBigNumber(reply, &len); break;
    case 4: ValkeyModule_CallReplyVerbatim(reply, &len, &format); break;
    case 5: ValkeyModule_CallReplyStringPtr(reply, &len); break;
    case 6: ValkeyModule_CallReplyProto(reply, &len); break;
    case 7: {
        ValkeyModuleString *string = ValkeyModule_CreateStringFromCallReply(reply);
        if (string) ValkeyModule_FreeString(NULL, string);
        break;
    }
    case 8: key = ValkeyModule_CallReplySetElement(reply, index); break;
    case 9: ValkeyModule_CallReplyMapElement(reply, index, &key, one_in(2) ? &value : NULL); break;
    default: key = ValkeyModule_CallReplyArrayElement(reply, index);
    }
    ValkeyModule_CallReplyLength(reply);
    ValkeyModule_CallReplyAttribute(reply);
    if (key && level < 4) reply_walk(key, level + 1);
    if (value && level < 4) reply_walk(value, level + 1);
}
static void step_reply(ValkeyModuleCtx *ctx) {
    (void)ctx;
    ValkeyModuleCallReply *reply = replies[draw(REPLIES)];
    if (reply) reply_walk(reply, 0);
}

static void step_dict(ValkeyModuleCtx *ctx) {
    int at = (int)draw(DICTS), missing;
    if (dicts[at] && one_in(20)) {
        ValkeyModule_FreeDict(NULL, dicts[at]);
        dicts[at] = NULL;
    }
    if (!dicts[at]) dicts[at] = ValkeyModule_CreateDict(NULL);
    ValkeyModuleDict *dict = dicts[at];
    static const char *const operators[] = {"^", "$", ">=", ">", "<", "<=", "=="};
    const char *text = draw_text(), *operator= operators[draw(7)];
    void *data = NULL;
    switch (draw(8)) {
    case 0: ValkeyModule_DictSet(dict, any_string(), &state); break;
    case 1: ValkeyModule_DictReplaceC(dict, (void *)(uintptr_t)text, strlen(text), &depth); break;
    case 2: ValkeyModule_DictGet(dict, any_string(), one_in(2) ? &missing : NULL); break;
    case 3: ValkeyModule_DictDel(dict, any_string(), one_in(2) ? &data : NULL); break;
    case 4: ValkeyModule_DictSize(dict), ValkeyModule_MallocSizeDict(dict); break;
    default: {
        ValkeyModuleDictIter *iterator =
            one_in(2) ? ValkeyModule_DictIteratorStartC(dict, operator, (void *)(uintptr_t) text, strlen(text))
                      : ValkeyModule_DictIteratorStart(dict, operator, any_string());
        for (int i = 0; i < 5; i++) {
            size_t len;
            ValkeyModuleString *name = NULL;
            switch (draw(5)) {
            case 0: ValkeyModule_DictNextC(iterator, &len, one_in(2) ? &data : NULL); break;
            case 1: ValkeyModule_DictPrevC(iterator, &len, &data); break;
            case 2: name = ValkeyModule_DictNext(NULL, iterator, &data); break;
            case 3:
                ValkeyModule_DictIteratorReseekC(iterator, operators[draw(7)], (void *)(uintptr_t)text, strlen(text));
                break;
            default: ValkeyModule_DictCompareC(iterator, operators[2 + draw(5)], (void *)(uintptr_t)text, strlen(text));
            }
            if (name) ValkeyModule_FreeString(NULL, name);
        }
        ValkeyModule_DictIteratorStop(iterator);
    }
    }
    (void)ctx;
}

static void step_user(ValkeyModuleCtx *ctx) {
    int at = (int)draw(USERS);
    if (users[at] && depth == 1 && one_in(6)) { /* no context has it */
        ValkeyModule_FreeModuleUser(users[at]);
        users[at] = NULL;
    }
    if (!users[at]) {
        ValkeyModuleString *name = ValkeyModule_CreateString(NULL, one_in(2) ? "default" : "fuzzed", 7);
        users[at] = one_in(2) ? ValkeyModule_CreateModuleUser("mine") : ValkeyModule_GetModuleUserFromUserName(name);
        ValkeyModule_FreeString(NULL, name);
        if (!users[at]) return;
    }
    static const char *const rules[] = {
        "on",      "off",     "+@all",   "-@all",  "~*",        "resetkeys",      "+get", "-set",     "&*",
        "+nosuch", "~key:1*", "allkeys", "nopass", "(+get ~a)", "clearselectors", "",     ">password"};
    ValkeyModuleString *error = NULL, *argv[2] = {any_string(), any_string()};
    ValkeyModuleString *named = ValkeyModule_CreateString(NULL, "fuzzed", 6),
                       *own = ValkeyModule_GetModuleUserACLString(users[at]);
    int is_default = strncmp(ValkeyModule_StringPtrLen(own, NULL), "on nopass", 9) == 0;
    ValkeyModule_FreeString(NULL, own);
    ValkeyModuleACLLogEntryReason reason;
    switch (draw(8)) {
    case 0:
        if (!is_default) ValkeyModule_SetModuleUserACL(users[at], rules[draw(sizeof rules / sizeof *rules)]);
        break;
    case 1:
        if (is_default) break;
        ValkeyModule_SetModuleUserACLString(ctx, users[at], one_in(2) ? "on ~* +@all" : "on (+get", &error);
        if (error) ValkeyModule_FreeString(ctx, error);
        break;
    case 2: ValkeyModule_ACLCheckCommandPermissions(users[at], argv, (int)draw(3)); break;
    case 3: ValkeyModule_ACLCheckKeyPermissions(users[at], argv[0], (int)draw(128)); break;
    case 4: ValkeyModule_ACLCheckChannelPermissions(users[at], argv[0], (int)draw(2)); break;
    case 5: ValkeyModule_ACLCheckPermissions(users[at], argv, 1 + (int)draw(2), (int)draw_number(), &reason); break;
    case 6: ValkeyModule_ACLAddLogEntry(ctx, users[at], argv[0], (ValkeyModuleACLLogEntryReason)draw(6)); break;
    default: /* the user of the steps; the run ends it */
        ValkeyModule_SetContextUser(ctx, users[at]);
        step_call(ctx);
        ValkeyModule_SetContextUser(ctx, NULL);
        if (one_in(3)) keep_reply(ValkeyModule_Call(ctx, "ACL", one_in(2) ? "cs" : "cscc", "DELUSER", named, "a", "b"));
        if (one_in(3)) keep_reply(ValkeyModule_Call(ctx, "ACL", "csccc", "SETUSER", named, "on", "+@all", "~*"));
    }
    ValkeyModule_FreeString(NULL, named);
}

static void on_timer(ValkeyModuleCtx *ctx, void *data) {
    (void)data;
    timers_alive--;
    steps(ctx, 3);
}
static void on_loop(void *data) {
    (void)data;
    timers_alive--;
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(NULL);
    steps(ctx, 2);
    ValkeyModule_FreeThreadSafeContext(ctx);
}
static void step_timer(ValkeyModuleCtx *ctx) {
    uint64_t left;
    void *data;
    if (!active || timers_alive > 20) return;
    ValkeyModuleTimerID id = ValkeyModule_CreateTimer(ctx, (mstime_t)draw(20), on_timer, NULL);
    timers_alive++;
    if (one_in(4) && ValkeyModule_EventLoopAddOneShot(on_loop, NULL) == VALKEYMODULE_OK) timers_alive++;
    ValkeyModule_GetTimerInfo(ctx, one_in(4) ? (ValkeyModuleTimerID)draw_number() : id, &left,
                              one_in(2) ? &data : NULL);
    if (one_in(3) && ValkeyModule_StopTimer(ctx, id, one_in(2) ? &data : NULL) == VALKEYMODULE_OK) timers_alive--;
    ValkeyModule_StopTimer(ctx, (ValkeyModuleTimerID)draw(3), NULL);
}

static void on_job(ValkeyModuleCtx *ctx, void *data) {
    (void)data;
    steps(ctx, 2);
}
static void job_freed(void *data) {
    (void)data;
    jobs_alive--;
}
static void on_scan(ValkeyModuleCtx *ctx, ValkeyModuleString *name, ValkeyModuleKey *key, void *data) {
    (void)data;
    ValkeyModule_StringPtrLen(name, NULL);
    if (key) ValkeyModule_KeyType(key);
    if (one_in(6)) steps(ctx, 1);
}
static void step_server(ValkeyModuleCtx *ctx) {
    ValkeyModuleClientInfoV1 info = {.version = 1};
    uint64_t id = draw(30);
    ValkeyModuleString *string = NULL, *name = key_name(NULL);
    switch (draw(20)) {
    case 0: ValkeyModule_GetContextFlags(one_in(2) ? ctx : NULL); break;
    case 1: ValkeyModule_GetClientInfoById(one_in(2) ? &info : NULL, id); break;
    case 2: string = ValkeyModule_GetClientNameById(NULL, id); break;
    case 3: string = ValkeyModule_GetClientUserNameById(NULL, id); break;
    case 4: ValkeyModule_SelectDb(ctx, one_in(2) ? 0 : (int)draw_number()), ValkeyModule_GetSelectedDb(ctx); break;
    case 5: ValkeyModule_KeyExists(ctx, name), ValkeyModule_DbSize(ctx); break;
    case 6: string = ValkeyModule_RandomKey(ctx); break;
    case 7: ValkeyModule_Replicate(ctx, one_in(8) ? "NOSUCH" : "SET", "sl", name, draw_number()); break;
    case 8: ValkeyModule_NotifyKeyspaceEvent(ctx, (int)draw(1 << 14), "event", name); break;
    case 9: ValkeyModule_SignalModifiedKey(ctx, name), ValkeyModule_SignalKeyAsReady(ctx, name); break;
    case 10: ValkeyModule_PublishMessage(ctx, name, any_string()); break;
    case 11: {
        static const char *const sections[] = {NULL, "memory", "fuzz", "modules", "everything", "nosuch"};
        int error;
        ValkeyModuleServerInfoData *data = ValkeyModule_GetServerInfo(NULL, sections[draw(6)]);
        const char *field = one_in(2) ? "used_memory" : draw_text();
        ValkeyModule_ServerInfoGetFieldUnsigned(data, field, &error);
        ValkeyModule_ServerInfoGetFieldDouble(data, field, one_in(2) ? &error : NULL);
        ValkeyModule_ServerInfoGetFieldC(data, field);
        string = ValkeyModule_ServerInfoGetField(NULL, data, field);
        ValkeyModule_FreeServerInfo(NULL, data);
        break;
    }
    case 12: {
        int at = (int)draw(CURSORS);
        if (!cursors[at]) cursors[at] = ValkeyModule_ScanCursorCreate();
        ValkeyModule_Scan(ctx, cursors[at], on_scan, NULL);
        if (one_in(3)) ValkeyModule_ScanCursorRestart(cursors[at]);
        if (!one_in(5)) break;
        if (depth == 1) { /* no scan of it runs */
            ValkeyModule_ScanCursorDestroy(cursors[at]);
            cursors[at] = NULL;
        }
        break;
    }
    case 13:
        ValkeyModule_Log(ctx, "debug", "%s", draw_text()), ValkeyModule_LatencyAddSample("fuzz", (mstime_t)draw(5));
        break;
    case 14: {
        void *block = ValkeyModule_Alloc(1 + draw(100));
        block = ValkeyModule_Realloc(block, 1 + draw(1000));
        ValkeyModule_MallocSize(block), ValkeyModule_MallocUsableSize(block);
        ValkeyModule_Free(block);
        ValkeyModule_PoolAlloc(ctx, 1 + draw(300));
        ValkeyModule_Free(ValkeyModule_TryAlloc(draw(2) ? SIZE_MAX / 4 : 10));
        break;
    }
    case 15: {
        ValkeyModuleString *argv[3] = {any_string(), any_string(), any_string()};
        int found_count, *flags = NULL, *found;
        found = ValkeyModule_GetCommandKeysWithFlags(ctx, argv, 1 + (int)draw(3), &found_count, &flags);
        ValkeyModule_Free(found);
        ValkeyModule_Free(flags);
        string = ValkeyModule_GetCurrentUserName(ctx);
        break;
    }
    case 16:
        if (jobs_alive > 20 || depth > 1) break;
        if (ValkeyModule_AddPostNotificationJob(ctx, on_job, NULL, job_freed) == VALKEYMODULE_OK) jobs_alive++;
        break;
    case 17:
        ValkeyModule_IsSubEventSupported(ValkeyModuleEvent_FlushDB, draw(5)), ValkeyModule_GetUsedMemoryRatio();
        break;
    case 18: {
        size_t nodes;
        char ip[64], primary[64], **list = ValkeyModule_GetClusterNodesList(ctx, &nodes);
        int port, flags;
        ValkeyModule_GetClusterNodeInfo(ctx, "0123456789012345678901234567890123456789", ip, primary, &port, &flags);
        if (list) ValkeyModule_FreeClusterNodesList(list);
        ValkeyModule_ClusterCanonicalKeyNameInSlot((unsigned)draw(16384));
        ValkeyModule_SendClusterMessage(ctx, NULL, 1, "x", 1);
        break;
    }
    default: ValkeyModule_GetSharedAPI(ctx, draw_text()), ValkeyModule_IsModuleNameBusy(draw_text());
    }
    if (string) ValkeyModule_FreeString(ctx, string);
    ValkeyModule_FreeString(NULL, name);
}

/* Lets one of the clients go that wait. */
static void step_unblock(ValkeyModuleCtx *ctx) {
    (void)ctx;
    int at = (int)draw(WAITING);
    if (!waiting[at]) return;
    ValkeyModuleBlockedClient *bc = waiting[at];
    waiting[at] = NULL;
    if (one_in(4)) ValkeyModule_BlockedClientMeasureTimeStart(bc), ValkeyModule_BlockedClientMeasureTimeEnd(bc);
    if (one_in(4)) {
        ValkeyModuleCtx *to = ValkeyModule_GetThreadSafeContext(bc);
        steps(to, 1);
        ValkeyModule_FreeThreadSafeContext(to);
    }
    if (one_in(6))
        ValkeyModule_AbortBlock(bc);
    else
        ValkeyModule_UnblockClient(bc, value_new());
}

static void steps(ValkeyModuleCtx *ctx, int count) {
    if (depth >= DEPTH_MAX) return;
    depth++;
    for (int i = 0; i < count; i++) {
        steps_run++;
        if (depth == 1) change_strings();
        switch (draw(12)) {
        case 0:
        case 1:
        case 2: step_keys(ctx); break;
        case 3:
        case 4: step_call(ctx); break;
        case 5: step_string(ctx); break;
        case 6: step_reply(ctx); break;
        case 7: step_dict(ctx); break;
        case 8: step_user(ctx); break;
        case 9: step_timer(ctx); break;
        case 10: step_unblock(ctx); break;
        default: step_server(ctx);
        }
    }
    depth--;
}

/* --- Replies: one complete value --- */

static void reply_any(ValkeyModuleCtx *ctx, int level) {
    long len = (long)draw(4);
    int later = one_in(2);
    ValkeyModuleCallReply *reply;
    switch (draw(level > 3 ? 12 : 16)) {
    case 0: ValkeyModule_ReplyWithLongLong(ctx, draw_number()); break;
    case 1: ValkeyModule_ReplyWithDouble(ctx, draw_double()); break;
    case 2: ValkeyModule_ReplyWithLongDouble(ctx, (long double)draw_double()); break;
    case 3: ValkeyModule_ReplyWithCString(ctx, draw_text()); break;
    case 4: ValkeyModule_ReplyWithString(ctx, any_string()); break;
    case 5: ValkeyModule_ReplyWithNull(ctx); break;
    case 6: ValkeyModule_ReplyWithBool(ctx, (int)draw(3)); break;
    case 7: ValkeyModule_ReplyWithVerbatimStringType(ctx, "text", draw(5), "txt"); break;
    case 8: ValkeyModule_ReplyWithBigNumber(ctx, "123456789012345678901234567890", draw(30) + 1); break;
    case 9: ValkeyModule_ReplyWithErrorFormat(ctx, "ERR %d", (int)draw(10)); break;
    case 10: one_in(2) ? ValkeyModule_ReplyWithNullArray(ctx) : ValkeyModule_ReplyWithEmptyArray(ctx); break;
    case 11:
        reply = replies[draw(REPLIES)];
        if (!reply || ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE ||
            ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_UNKNOWN ||
            ValkeyModule_ReplyWithCallReply(ctx, reply) != VALKEYMODULE_OK)
            ValkeyModule_ReplyWithEmptyString(ctx);
        break;
    case 12:
        ValkeyModule_ReplyWithArray(ctx, later ? VALKEYMODULE_POSTPONED_LEN : len);
        for (long i = 0; i < len; i++) reply_any(ctx, level + 1);
        if (later) ValkeyModule_ReplySetArrayLength(ctx, len);
        break;
    case 13:
        ValkeyModule_ReplyWithMap(ctx, later ? VALKEYMODULE_POSTPONED_LEN : len);
        for (long i = 0; i < 2 * len; i++) reply_any(ctx, level + 1);
        if (later) ValkeyModule_ReplySetMapLength(ctx, len);
        break;
    case 14:
        ValkeyModule_ReplyWithSet(ctx, later ? VALKEYMODULE_POSTPONED_LEN : len);
        for (long i = 0; i < len; i++) reply_any(ctx, level + 1);
        if (later) ValkeyModule_ReplySetSetLength(ctx, len);
        break;
    default: ValkeyModule_ReplyWithSimpleString(ctx, "OK");
    }
}

/* --- Where steps run --- */

static int run(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long count = 1;
    if (argc > 1) ValkeyModule_StringToLongLong(argv[1], &count);
    int before = automatic;
    if (one_in(4)) {
        ValkeyModule_AutoMemory(ctx);
        automatic = 1;
    }
    steps(ctx, count > 0 && count <= 100 ? (int)count : 1);
    automatic = before;
    if (one_in(8)) ValkeyModule_ReplicateVerbatim(ctx);
    reply_any(ctx, 0);
    return VALKEYMODULE_OK;
}
static int set(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long number;
    if (argc != 3 || ValkeyModule_StringToLongLong(argv[2], &number) != VALKEYMODULE_OK)
        return ValkeyModule_WrongArity(ctx);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, argv[1], VALKEYMODULE_WRITE);
    uint64_t *value = value_new();
    *value = (uint64_t)number;
    if (ValkeyModule_ModuleTypeSetValue(key, type, value) != VALKEYMODULE_OK) value_free(value);
    ValkeyModule_CloseKey(key);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

static int on_reply(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_GetBlockedClientPrivateData(ctx);
    ValkeyModule_GetBlockedClientHandle(ctx);
    ValkeyModule_IsBlockedReplyRequest(ctx);
    steps(ctx, 2);
    reply_any(ctx, 0);
    return VALKEYMODULE_OK;
}
static int on_timeout(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_IsBlockedTimeoutRequest(ctx);
    steps(ctx, 2);
    reply_any(ctx, 0);
    return VALKEYMODULE_OK;
}
static int on_key(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_GetBlockedClientReadyKey(ctx);
    steps(ctx, 1);
    if (one_in(2)) return VALKEYMODULE_ERR; /* it waits on */
    reply_any(ctx, 0);
    return VALKEYMODULE_OK;
}
static void data_freed(ValkeyModuleCtx *ctx, void *data) {
    steps(ctx, 1);
    ValkeyModule_Free(data);
}
static void on_gone(ValkeyModuleCtx *ctx, ValkeyModuleBlockedClient *bc) {
    (void)bc;
    steps(ctx, 1);
}
/* FUZZ.WAIT: waits for a step, a timeout or a key. */
static int wait_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    int at = (int)draw(WAITING);
    if (one_in(2)) {
        ValkeyModuleString *keys[2] = {key_name(NULL), key_name(NULL)};
        ValkeyModule_BlockClientOnKeys(ctx, on_key, on_timeout, data_freed, 1 + (long long)draw(50), keys, 2,
                                       value_new());
        ValkeyModule_FreeString(NULL, keys[0]);
        ValkeyModule_FreeString(NULL, keys[1]);
        return VALKEYMODULE_OK;
    }
    if (waiting[at]) return ValkeyModule_ReplyWithSimpleString(ctx, "FULL");
    int flags = ValkeyModule_GetContextFlags(ctx);
    ValkeyModuleBlockedClient *bc =
        ValkeyModule_BlockClient(ctx, on_reply, on_timeout, data_freed, 1 + (long long)draw(50));
    if (flags & (VALKEYMODULE_CTX_FLAGS_DENY_BLOCKING | VALKEYMODULE_CTX_FLAGS_MULTI | VALKEYMODULE_CTX_FLAGS_LUA)) {
        ValkeyModule_AbortBlock(bc);
        return VALKEYMODULE_OK;
    }
    if (one_in(2)) ValkeyModule_SetDisconnectCallback(bc, on_gone);
    waiting[at] = bc;
    return VALKEYMODULE_OK;
}

static int on_keyspace(ValkeyModuleCtx *ctx, int kind, const char *event, ValkeyModuleString *key) {
    (void)kind, (void)event;
    ValkeyModule_KeyExists(ctx, key);
    if (one_in(10)) steps(ctx, 1);
    return VALKEYMODULE_OK;
}
static void on_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)event, (void)kind, (void)data;
    if (one_in(10)) steps(ctx, 1);
}
static void filter(ValkeyModuleCommandFilterCtx *filtered) {
    int count = ValkeyModule_CommandFilterArgsCount(filtered);
    ValkeyModule_CommandFilterArgGet(filtered, (int)draw_number());
    ValkeyModule_CommandFilterGetClientId(filtered);
    size_t len;
    const char *name = ValkeyModule_StringPtrLen(ValkeyModule_CommandFilterArgGet(filtered, 0), &len);
    if (len != 9 || strncasecmp(name, "fuzz.read", 9) != 0 || count < 2) return;
    switch (draw(4)) {
    case 0: ValkeyModule_CommandFilterArgDelete(filtered, 1 + (int)draw(3)); break;
    case 1:
    case 2: {
        int at = 1 + (int)draw(3);
        ValkeyModuleString *string = new_string();
        int result = one_in(2) ? ValkeyModule_CommandFilterArgInsert(filtered, at, string)
                               : ValkeyModule_CommandFilterArgReplace(filtered, at, string);
        if (result != VALKEYMODULE_OK) ValkeyModule_FreeString(NULL, string);
        break;
    }
    default:
        if (one_in(4)) {
            ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(NULL);
            steps(ctx, 1);
            ValkeyModule_FreeThreadSafeContext(ctx);
        }
    }
}
static void write_info(ValkeyModuleInfoCtx *ctx, int for_crash_report) {
    if (for_crash_report) return;
    for (int i = 0; i < 6; i++) {
        switch (draw(6)) {
        case 0: ValkeyModule_InfoAddSection(ctx, one_in(2) ? "part" : ""); break;
        case 1: ValkeyModule_InfoBeginDictField(ctx, draw_text()); break;
        case 2: ValkeyModule_InfoEndDictField(ctx); break;
        case 3: ValkeyModule_InfoAddFieldCString(ctx, "text", draw_text()); break;
        case 4: ValkeyModule_InfoAddFieldDouble(ctx, "real", draw_double()); break;
        default: ValkeyModule_InfoAddFieldLongLong(ctx, "number", draw_number());
        }
    }
}

static pthread_t thread;
static int thread_started, thread_stop; /* thread_stop is atomic */
static void *thread_run(void *data) {
    ValkeyModuleCtx *ctx = data;
    while (!__atomic_load_n(&thread_stop, __ATOMIC_SEQ_CST)) {
        ValkeyModule_ThreadSafeContextLock(ctx);
        steps(ctx, 3);
        ValkeyModule_ThreadSafeContextUnlock(ctx);
        usleep(500);
    }
    ValkeyModule_FreeThreadSafeContext(ctx);
    return NULL;
}

static int start(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long seed;
    if (argc != 2 || ValkeyModule_StringToLongLong(argv[1], &seed) != VALKEYMODULE_OK)
        return ValkeyModule_WrongArity(ctx);
    state = (uint64_t)seed * 2 + 1;
    active = 1;
    thread_stop = 0;
    if (!thread_started)
        thread_started = pthread_create(&thread, NULL, thread_run, ValkeyModule_GetDetachedThreadSafeContext(ctx)) == 0;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* Tells the thread to stop, lets all clients go, and replies with the number of steps. */
static int stop(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    active = 0;
    __atomic_store_n(&thread_stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < WAITING; i++) {
        if (waiting[i]) ValkeyModule_UnblockClient(waiting[i], NULL);
        waiting[i] = NULL;
    }
    return ValkeyModule_ReplyWithLongLong(ctx, (long long)steps_run);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    static const struct {
        const char *name, *flags;
        ValkeyModuleCmdFunc run;
        int key;
    } commands[] = {{"fuzz.run", "write", run, 0},          {"fuzz.read", "readonly", run, 0},
                    {"fuzz.set", "write deny-oom", set, 1}, {"fuzz.wait", "write", wait_command, 0},
                    {"fuzz.start", "", start, 0},           {"fuzz.stop", "", stop, 0}};
    ValkeyModuleTypeMethods methods = {.version = VALKEYMODULE_TYPE_METHOD_VERSION,
                                       .rdb_load = value_load,
                                       .rdb_save = value_save,
                                       .aof_rewrite = value_rewrite,
                                       .free = value_free,
                                       .mem_usage = value_memory,
                                       .digest = value_digest,
                                       .copy = value_copy};
    if (ValkeyModule_Init(ctx, "fuzz", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    ValkeyModule_SetModuleOptions(ctx, VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS);
    type = ValkeyModule_CreateDataType(ctx, "fuzz-type", 1, &methods);
    if (!type) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, commands[i].flags, commands[i].key,
                                       commands[i].key, commands[i].key) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    ValkeyModule_SubscribeToKeyspaceEvents(ctx, VALKEYMODULE_NOTIFY_ALL, on_keyspace);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_FlushDB, on_event);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_ClientChange, on_event);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Key, on_event);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_CronLoop, on_event);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Config, on_event);
    ValkeyModule_RegisterInfoFunc(ctx, write_info);
    own_filter = ValkeyModule_RegisterCommandFilter(ctx, filter, VALKEYMODULE_CMDFILTER_NOSELF);
    return own_filter ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
