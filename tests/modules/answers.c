/* answers.c: a module for tests/interop/module_answers.py: each command calls functions of the interface with valid and
 * invalid arguments, and replies with what they answer, a line each. The answers of this server and of Valkey must be
 * the same. What makes Valkey 9.1.2 crash is not called: changes of a NULL key, ListInsert on a key of another type. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char answers[1 << 20];
static size_t answers_len;
__attribute__((format(printf, 1, 2))) static void out(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(answers + answers_len, sizeof answers - answers_len - 1, format, arguments);
    va_end(arguments);
    answers_len += (size_t)len;
    if (answers_len > sizeof answers - 2) answers_len = sizeof answers - 2;
    answers[answers_len++] = '\n';
}
static int give(ValkeyModuleCtx *ctx) {
    ValkeyModule_ReplyWithStringBuffer(ctx, answers, answers_len);
    answers_len = 0;
    return VALKEYMODULE_OK;
}
/* The length and the text of a string, in one of some buffers. */
static const char *st(const ValkeyModuleString *string) {
    static char texts[8][600];
    static int at;
    char *text = texts[at = (at + 1) % 8];
    size_t len;
    if (!string) return "NULL";
    const char *bytes = ValkeyModule_StringPtrLen(string, &len);
    snprintf(text, sizeof texts[0], "%zu'%.*s'", len, (int)(len > 560 ? 560 : len), bytes);
    return text;
}
static const char *en(int error) {
    return error ? strerrorname_np(error) : "0";
}
static ValkeyModuleString *S(const char *text) {
    return ValkeyModule_CreateString(NULL, text, strlen(text));
}
static ValkeyModuleKey *open_key(ValkeyModuleCtx *ctx, const char *name, int mode) {
    ValkeyModuleString *string = S(name);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, string, mode);
    ValkeyModule_FreeString(NULL, string);
    return key;
}
/* Runs a command whose arguments are separated by spaces, and shows its reply or only its error. */
static void run(ValkeyModuleCtx *ctx, const char *line, int shows) {
    char copy[1000];
    ValkeyModuleString *arguments[64];
    size_t count = 0, len;
    snprintf(copy, sizeof copy, "%s", line);
    const char *name = strtok(copy, " ");
    for (const char *text; count < 64 && (text = strtok(NULL, " "));) arguments[count++] = S(text);
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, name, "E!v", arguments, count);
    const char *proto = ValkeyModule_CallReplyProto(reply, &len);
    if (shows || ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_ERROR) {
        char shown[2000];
        size_t shown_len = 0;
        for (size_t i = 0; i < len && shown_len < sizeof shown - 1; i++)
            if (proto[i] != '\n') shown[shown_len++] = proto[i] == '\r' ? ' ' : proto[i];
        out("%s: %.*s", line, (int)shown_len, shown);
    }
    ValkeyModule_FreeCallReply(reply);
    while (count) ValkeyModule_FreeString(NULL, arguments[--count]);
}
#define TRY(format, call, ...)                                                                                         \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        int result_ = (int)(call), error_ = errno;                                                                     \
        out(format " %d %s", ##__VA_ARGS__, result_, en(error_));                                                      \
    } while (0)

static const char *const types[] = {"nope",   "str",     "list", "hash",   "set",    "zset",
                                    "stream", "bighash", "bigz", "intset", "bigset", "hexp"};
static void setup(ValkeyModuleCtx *ctx) {
    static const char *const lines[] = {"flushall",
                                        "set str hello",
                                        "rpush list a b c d e",
                                        "hset hash f1 v1 f2 2 f3 v3",
                                        "sadd set m1 m2 3",
                                        "sadd intset 1 2 3",
                                        "zadd zset 1 a 2 b 2 c 3.5 d 10 e inf f -inf g",
                                        "xadd stream 1-1 a b c d",
                                        "xadd stream 1-2 a b",
                                        "xadd stream 5-0 x y",
                                        "hset hexp a 1 b 2 c 3",
                                        "hpexpire hexp 1 fields 1 b"};
    char line[300];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) run(ctx, lines[i], 0);
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line, "zadd bigz %d m%03d", i / 2, i);
        run(ctx, line, 0);
        snprintf(line, sizeof line, "sadd bigset m%03d", i);
        run(ctx, line, 0);
        snprintf(line, sizeof line, "hset bighash m%03d v%d", i, i);
        run(ctx, line, 0);
    }
    run(ctx, "hset bighash f1 v1 f2 2 f3 v3", 0);
    usleep(5000); /* a field expires */
}
/* The texts are divided by bars; the first is empty. */
static void show_parsed(void) {
    char texts[] =
        "|0|1|-1|01| 1|1 |+1|1.0|1e3|inf|-inf|+inf|nan|NaN|Infinity|infinity|0x10|9223372036854775807|"
        "9223372036854775808|-9223372036854775808|-9223372036854775809|18446744073709551615|18446744073709551616|"
        "1.5|1e400|-1e400|1e-400|  |--1|1_000|1\n|2.50|1e|e1|.5|5.|-.5|-0|-0.0|0.1|3.0000000000000001|0x1p3|"
        "1e5000|1234567890123456789012345678901234567890.5|1-1|1-|-1-1|-|+|*|1-*|"
        "18446744073709551615-18446744073709551615|18446744073709551616-1|5|0-0|0-1|1-2-3| 1-1|1-1 |$|(1-1|a-1|"
        "1-a";
    for (char *rest = texts, *text; (text = strsep(&rest, "|"));) {
        ValkeyModuleString *s = S(text);
        long long l = 77;
        unsigned long long u = 77;
        double d = 77;
        long double ld = 77;
        ValkeyModuleStreamID id = {7, 7};
        int r1 = ValkeyModule_StringToLongLong(s, &l), r2 = ValkeyModule_StringToULongLong(s, &u),
            r3 = ValkeyModule_StringToDouble(s, &d), r4 = ValkeyModule_StringToLongDouble(s, &ld),
            r5 = ValkeyModule_StringToStreamID(s, &id);
        out("[%s] ll %d %lld ull %d %llu d %d %.17g ld %d %.21Lg id %d %llu-%llu", text, r1, r1 ? 0 : l, r2, r2 ? 0 : u,
            r3, r3 ? 0 : d, r4, r4 ? 0 : ld, r5, r5 ? 0 : (unsigned long long)id.ms,
            r5 ? 0 : (unsigned long long)id.seq);
        ValkeyModule_FreeString(NULL, s);
    }
}
static void show_formatted(void) {
    const char *at =
        "0 -0 1 -1 0.1 1.5 3.14159265358979 1e15 1e16 1e17 1e20 1e21 1e22 1e100 1e300 1.7976931348623157e308 "
        "5e-324 1e-5 1e-7 123456789.123 inf -inf nan 0.33333333333333331 100 1e5 12345678901234567890";
    for (char *end; *at; at = end) {
        double number = strtod(at, &end);
        ValkeyModuleString *a = ValkeyModule_CreateStringFromDouble(NULL, number),
                           *b = ValkeyModule_CreateStringFromLongDouble(NULL, number, 0),
                           *c = ValkeyModule_CreateStringFromLongDouble(NULL, number, 1);
        out("%.17g: %s %s %s", number, st(a), st(b), st(c));
        ValkeyModule_FreeString(NULL, a);
        ValkeyModule_FreeString(NULL, b);
        ValkeyModule_FreeString(NULL, c);
    }
    long double lds[] = {1.0L / 3, 0.1L, 1e4000L, 123456789012345678901.5L, -1e-30L};
    for (unsigned i = 0; i < 5; i++) {
        ValkeyModuleString *b = ValkeyModule_CreateStringFromLongDouble(NULL, lds[i], 0),
                           *c = ValkeyModule_CreateStringFromLongDouble(NULL, lds[i], 1);
        out("ld%u: %s %s", i, st(b), st(c));
    }
}
static int answer_strings(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    show_parsed();
    show_formatted();
    ValkeyModuleStreamID ids[] = {{0, 0}, {1, 2}, {UINT64_MAX, UINT64_MAX}};
    for (int i = 0; i < 3; i++) out("%s", st(ValkeyModule_CreateStringFromStreamID(ctx, &ids[i])));
    out("%s %s %s", st(ValkeyModule_CreateStringFromLongLong(ctx, INT64_MIN)),
        st(ValkeyModule_CreateStringFromULongLong(ctx, UINT64_MAX)),
        st(ValkeyModule_CreateStringPrintf(ctx, "%s|%5d|%.3f|%c|%%|%x|%lu|%lld", "a", 12, 1.5, 'z', 255, 7UL, -8LL)));
    size_t n = 99;
    const char *p = ValkeyModule_StringPtrLen(NULL, &n);
    out("null ptrlen %zu '%s'", n, p);
    ValkeyModuleString *a = S("abc"), *b = S("abd"), *c = S("ab");
    out("cmp %d %d %d %d", ValkeyModule_StringCompare(a, b) < 0, ValkeyModule_StringCompare(b, a) > 0,
        ValkeyModule_StringCompare(a, a), ValkeyModule_StringCompare(a, c) > 0);
    out("cmp raw %d %d %d", ValkeyModule_StringCompare(a, b), ValkeyModule_StringCompare(b, a),
        ValkeyModule_StringCompare(a, c));
    out("append %d %s", ValkeyModule_StringAppendBuffer(ctx, a, "\0x", 2), st(a));
    ValkeyModule_RetainString(NULL, a);
    out("append shared %d", ValkeyModule_StringAppendBuffer(NULL, a, "y", 1));
    ValkeyModule_FreeString(NULL, a);
    out("append again %d %s", ValkeyModule_StringAppendBuffer(NULL, a, "y", 1), st(a));
    ValkeyModule_TrimStringAllocation(a);
    out("%s", st(a));
    ValkeyModuleString *h = ValkeyModule_HoldString(NULL, a);
    out("hold same %d", h == a);
    ValkeyModuleString *fs = ValkeyModule_CreateStringFromString(ctx, b);
    out("fs %s same %d", st(fs), fs == b);
    ValkeyModuleString *nn = ValkeyModule_CreateString(ctx, NULL, 4);
    out("null bytes %s", st(nn) ? "some" : "NULL");
    size_t nl;
    ValkeyModule_StringPtrLen(nn, &nl);
    out("len %zu", nl);
    return give(ctx);
}

static int answer_dicts(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleDict *d = ValkeyModule_CreateDict(ctx);
    int nokey;
    static const char *k[] = {"b", "a", "c", "ab", "", "abc", "b\0x", "zz"};
    for (int i = 0; i < 8; i++)
        out("set %d", ValkeyModule_DictSetC(d, (void *)k[i], i == 6 ? 3 : strlen(k[i]), (void *)(long)(i + 1)));
    out("set again %d size %llu", ValkeyModule_DictSetC(d, "a", 1, (void *)9L),
        (unsigned long long)ValkeyModule_DictSize(d));
    out("repl %d new %d", ValkeyModule_DictReplaceC(d, "a", 1, (void *)10L),
        ValkeyModule_DictReplaceC(d, "new", 3, (void *)11L));
    out("get %ld", (long)ValkeyModule_DictGetC(d, "a", 1, &nokey));
    out("nokey %d", nokey);
    out("get %ld", (long)ValkeyModule_DictGetC(d, "q", 1, &nokey));
    out("nokey %d", nokey);
    out("get %ld", (long)ValkeyModule_DictGetC(d, "", 0, NULL));
    void *old = (void *)77L;
    out("del %d", ValkeyModule_DictDelC(d, "q", 1, &old));
    out("old %ld", (long)old);
    out("del %d", ValkeyModule_DictDelC(d, "new", 3, &old));
    out("old %ld", (long)old);
    ValkeyModuleString *s = S("str");
    out("S set %d rep %d get %ld", ValkeyModule_DictSet(d, s, (void *)5L), ValkeyModule_DictReplace(d, s, (void *)6L),
        (long)ValkeyModule_DictGet(d, s, &nokey));
    out("S del %d %d", ValkeyModule_DictDel(d, s, NULL), ValkeyModule_DictDel(d, s, NULL));
    static const char *ops[] = {"^", "$", ">", ">=", "<", "<=", "==", "=="};
    static const char *at[] = {"", "a", "ab", "b", "bb", "zz", "zzz"};
    for (int o = 0; o < 7; o++)
        for (int i = 0; i < 7; i++)
            for (int dir = 0; dir < 2; dir++) {
                ValkeyModuleDictIter *it = ValkeyModule_DictIteratorStartC(d, ops[o], (void *)at[i], strlen(at[i]));
                if (!it) {
                    out("op %s NULL", ops[o]);
                    continue;
                }
                char line[400] = "";
                size_t l;
                void *v;
                char *key;
                int n = 0;
                while ((key = dir ? ValkeyModule_DictPrevC(it, &l, &v) : ValkeyModule_DictNextC(it, &l, &v)) &&
                       n++ < 10)
                    sprintf(line + strlen(line), " %zu%.*s=%ld", l, (int)l, key, (long)v);
                out("op %s at '%s' dir %d:%s", ops[o], at[i], dir, line);
                key = dir ? ValkeyModule_DictPrevC(it, &l, &v) : ValkeyModule_DictNextC(it, &l, &v);
                out(" after end %d", key != NULL);
                key = !dir ? ValkeyModule_DictPrevC(it, &l, &v) : ValkeyModule_DictNextC(it, &l, &v);
                out(" turned %.*s", key ? (int)l : 4, key ? key : "NULL");
                ValkeyModule_DictIteratorStop(it);
            }
    ValkeyModuleDictIter *it = ValkeyModule_DictIteratorStartC(d, ">=", "b", 1);
    size_t l;
    void *v;
    for (int o = 0; o < 7; o++) {
        int r = ValkeyModule_DictIteratorReseekC(it, ops[o], "ab", 2);
        char *key = ValkeyModule_DictNextC(it, &l, &v);
        out("reseek %s %d -> %.*s", ops[o], r, key ? (int)l : 4, key ? key : "NULL");
    }
    ValkeyModule_DictIteratorReseekC(it, "^", NULL, 0);
    char *key = ValkeyModule_DictNextC(it, &l, &v);
    for (int o = 0; o < 7; o++)
        out("cmp %s %d %d %d", ops[o], ValkeyModule_DictCompareC(it, ops[o], "a", 1),
            ValkeyModule_DictCompareC(it, ops[o], "", 0), ValkeyModule_DictCompareC(it, ops[o], "b", 1));
    while (ValkeyModule_DictNextC(it, &l, &v))
        ;
    for (int o = 0; o < 7; o++) out("cmp at end %s %d", ops[o], ValkeyModule_DictCompareC(it, ops[o], "a", 1));
    ValkeyModule_DictIteratorReseekC(it, "^", NULL, 0);
    ValkeyModuleString *ks;
    while ((ks = ValkeyModule_DictNext(ctx, it, &v))) out("next %s %ld", st(ks), (long)v);
    out("cmp S %d", ValkeyModule_DictCompare(it, ">", S("a")));
    ValkeyModule_DictIteratorReseekC(it, "==", "nope", 4);
    out("reseek missing %d %d", ValkeyModule_DictIteratorReseekC(it, "==", "nope", 4),
        ValkeyModule_DictNextC(it, NULL, NULL) != NULL);
    out("reseek S %d %s", ValkeyModule_DictIteratorReseek(it, "<", S("b")), st(ValkeyModule_DictPrev(ctx, it, NULL)));
    /* change under iteration */
    ValkeyModule_DictIteratorReseekC(it, "^", NULL, 0);
    ValkeyModule_DictNextC(it, &l, &v);
    ValkeyModule_DictDelC(d, "a", 1, NULL);
    ValkeyModule_DictIteratorReseekC(it, ">", "", 0);
    key = ValkeyModule_DictNextC(it, &l, &v);
    out("after del %.*s", (int)l, key);
    ValkeyModule_DictIteratorStop(it);
    ValkeyModuleDict *e = ValkeyModule_CreateDict(NULL);
    it = ValkeyModule_DictIteratorStartC(e, "^", NULL, 0);
    out("empty %d %d", ValkeyModule_DictNextC(it, NULL, NULL) != NULL, ValkeyModule_DictPrevC(it, NULL, NULL) != NULL);
    ValkeyModule_DictIteratorStop(it);
    ValkeyModule_FreeDict(NULL, e);
    return give(ctx);
}

static int answer_lists(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    for (unsigned i = 0; i < 9; i++) {
        setup(ctx);
        ValkeyModuleKey *k = open_key(ctx, types[i], VALKEYMODULE_WRITE);
        ValkeyModuleString *v = S("el");
        TRY("%s push", ValkeyModule_ListPush(k, VALKEYMODULE_LIST_HEAD, v), types[i]);
        TRY("%s push", ValkeyModule_ListPush(k, VALKEYMODULE_LIST_TAIL, v), types[i]);
        int r = -9;
        errno = 0;
        int ok = i == 0 || i == 2;
        if (ok) r = ValkeyModule_ListInsert(k, 1, v);
        out(" ins %d %s", r, en(errno));
        errno = 0;
        r = ValkeyModule_ListSet(k, 0, S("set0"));
        out(" set %d %s", r, en(errno));
        for (long ix = -12; ix < 12; ix += 3) {
            errno = 0;
            ValkeyModuleString *g = ValkeyModule_ListGet(k, ix);
            out(" get %ld %s %s", ix, st(g), g ? "" : en(errno));
        }
        static const long ins[] = {0, -1, 1, -2, 100, -100, 8, 9, 10, -9, -10, -11};
        for (int j = 0; j < 12; j++) {
            char b[8];
            sprintf(b, "i%ld", ins[j]);
            errno = 0;
            if (ok) r = ValkeyModule_ListInsert(k, ins[j], S(b));
            out(" ins %ld %d %s", ins[j], r, r ? en(errno) : "");
        }
        for (int j = 0; j < 12; j++) {
            char b[8];
            sprintf(b, "s%ld", ins[j]);
            errno = 0;
            r = ValkeyModule_ListSet(k, ins[j], S(b));
            out(" set %ld %d %s", ins[j], r, r ? en(errno) : "");
        }
        ValkeyModule_CloseKey(k);
        if (i == 2 || i == 0) {
            ValkeyModuleCallReply *q = ValkeyModule_Call(ctx, "lrange", "ccc", types[i], "0", "-1");
            size_t n = ValkeyModule_CallReplyLength(q);
            for (size_t j = 0; j < n; j++) {
                size_t l;
                const char *p = ValkeyModule_CallReplyStringPtr(ValkeyModule_CallReplyArrayElement(q, j), &l);
                out("  %.*s", (int)l, p);
            }
        }
        k = open_key(ctx, types[i], VALKEYMODULE_WRITE);
        for (int j = 0; j < 12; j++) {
            errno = 0;
            r = ValkeyModule_ListDelete(k, ins[j]);
            out(" del %ld %d %s len %zu", ins[j], r, r ? en(errno) : "", ValkeyModule_ValueLength(k));
        }
        for (int j = 0; j < 30; j++) {
            errno = 0;
            ValkeyModuleString *g = ValkeyModule_ListPop(k, j & 1);
            out(" pop %s %s", st(g), g ? "" : en(errno));
            if (!g) break;
        }
        out(" type %d", ValkeyModule_KeyType(k));
        r = ValkeyModule_ListPush(k, 0, v);
        out(" push after %d type %d", r, ValkeyModule_KeyType(k));
        ValkeyModule_CloseKey(k);
        k = open_key(ctx, types[i], VALKEYMODULE_READ);
        if (k) {
            errno = 0;
            r = ValkeyModule_ListPush(k, 0, v);
            out(" ro push %d %s", r, en(errno));
            errno = 0;
            r = ValkeyModule_ListSet(k, 0, v);
            out(" ro set %d %s", r, en(errno));
            errno = 0;
            r = ok ? ValkeyModule_ListInsert(k, 0, v) : -9;
            out(" ro ins %d %s", r, en(errno));
            errno = 0;
            r = ValkeyModule_ListDelete(k, 0);
            out(" ro del %d %s", r, en(errno));
            errno = 0;
            out(" ro pop %s", st(ValkeyModule_ListPop(k, 0)));
            out(" %s", en(errno));
            errno = 0;
            out(" ro get %s", st(ValkeyModule_ListGet(k, 0)));
            ValkeyModule_CloseKey(k);
        }
    }
    errno = 0;
    out("null %d %s", ValkeyModule_ListPush(NULL, 0, S("a")), en(errno));
    errno = 0;
    out("null pop %s", st(ValkeyModule_ListPop(NULL, 0)));
    out("%s", en(errno));
    errno = 0;
    out("null get %s", st(ValkeyModule_ListGet(NULL, 0)));
    out("%s", en(errno));
    setup(ctx);
    ValkeyModuleKey *k = open_key(ctx, "list", VALKEYMODULE_WRITE);
    errno = 0;
    out("null val %d", ValkeyModule_ListPush(k, 0, NULL));
    out("%s", en(errno));
    /* interleave get and insert, delete while iterating */ for (long j = 0; j < 6; j++) {
        ValkeyModuleString *g = ValkeyModule_ListGet(k, j);
        out("g %ld %s", j, st(g));
        if (j == 2) {
            out("ins %d", ValkeyModule_ListInsert(k, j, S("mid")));
        }
        if (j == 4) out("del %d", ValkeyModule_ListDelete(k, j));
    }
    for (long j = -1; j > -7; j--) {
        out("g %ld %s", j, st(ValkeyModule_ListGet(k, j)));
        if (j == -2) out("del %d", ValkeyModule_ListDelete(k, j));
    }
    ValkeyModule_CloseKey(k);
    return give(ctx);
}

static int answer_hashes(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleString *v1 = NULL, *v2 = NULL;
    int ex = 7, ex2 = 7;
    for (int i = 0; i < 9; i++) {
        setup(ctx);
        ValkeyModuleKey *k = open_key(ctx, types[i], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
        out("== %s", types[i]);
        ValkeyModuleString *f = S("f1"), *g = S("new"), *h = S("nofield"), *v = S("val");
        v1 = v2 = NULL;
        TRY("get", ValkeyModule_HashGet(k, 0, f, &v1, h, &v2, NULL));
        out(" %s %s", st(v1), st(v2));
        TRY("getc", ValkeyModule_HashGet(k, VALKEYMODULE_HASH_CFIELDS, "f2", &v1, "zz", &v2, NULL));
        out(" %s %s", st(v1), st(v2));
        TRY("exists", ValkeyModule_HashGet(k, VALKEYMODULE_HASH_EXISTS, f, &ex, h, &ex2, NULL));
        out(" %d %d", ex, ex2);
        TRY("existsc",
            ValkeyModule_HashGet(k, VALKEYMODULE_HASH_EXISTS | VALKEYMODULE_HASH_CFIELDS, "f3", &ex, "qq", &ex2, NULL));
        out(" %d %d", ex, ex2);
        TRY("badflag", ValkeyModule_HashGet(k, VALKEYMODULE_HASH_NX, f, &v1, NULL));
        TRY("nofields", ValkeyModule_HashGet(k, 0, NULL));
        TRY("set new", ValkeyModule_HashSet(k, 0, g, v, NULL));
        TRY("set same", ValkeyModule_HashSet(k, 0, g, v, f, v, NULL));
        TRY("set countall", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_COUNT_ALL, g, v, S("n2"), v, NULL));
        TRY("nx", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_NX, g, S("q"), S("n3"), v, NULL));
        TRY("xx", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_XX, g, S("xx"), S("n4"), v, NULL));
        TRY("nxxx",
            ValkeyModule_HashSet(k, VALKEYMODULE_HASH_NX | VALKEYMODULE_HASH_XX, g, S("both"), S("n5"), v, NULL));
        TRY("nx count",
            ValkeyModule_HashSet(k, VALKEYMODULE_HASH_NX | VALKEYMODULE_HASH_COUNT_ALL, g, S("q"), S("n6"), v, NULL));
        TRY("xx count",
            ValkeyModule_HashSet(k, VALKEYMODULE_HASH_XX | VALKEYMODULE_HASH_COUNT_ALL, g, S("q2"), S("n7"), v, NULL));
        TRY("del", ValkeyModule_HashSet(k, 0, g, VALKEYMODULE_HASH_DELETE, S("none"), VALKEYMODULE_HASH_DELETE, NULL));
        TRY("del count", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_COUNT_ALL, S("n2"), VALKEYMODULE_HASH_DELETE,
                                              S("none"), VALKEYMODULE_HASH_DELETE, S("n8"), v, NULL));
        TRY("nx del", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_NX, S("n8"), VALKEYMODULE_HASH_DELETE, NULL));
        TRY("xx del", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_XX, S("n8"), VALKEYMODULE_HASH_DELETE, NULL));
        TRY("setc", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_CFIELDS, "cf", v, "cf2", v, NULL));
        TRY("delc", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_COUNT_ALL, "cf",
                                         VALKEYMODULE_HASH_DELETE, NULL));
        TRY("bad", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_EXISTS, g, v, NULL));
        TRY("bad2", ValkeyModule_HashSet(k, 1 << 10, g, v, NULL));
        TRY("empty", ValkeyModule_HashSet(k, 0, NULL));
        out(" len %zu", ValkeyModule_ValueLength(k));
        if (i <= 3 || i == 7) {
            static const char *fs[] = {"f1", "f2", "f3", "big", "n3", "n6", "cf2"};
            for (int j = 0; j < 7; j++)
                TRY("delall", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_COUNT_ALL, fs[j],
                                                   VALKEYMODULE_HASH_DELETE, NULL));
            out(" type %d", ValkeyModule_KeyType(k));
            TRY("get on empty", ValkeyModule_HashGet(k, 0, f, &v1, NULL));
            TRY("del on empty", ValkeyModule_HashSet(k, 0, f, VALKEYMODULE_HASH_DELETE, NULL));
            TRY("xx on empty", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_XX, f, v, NULL));
            out(" type %d", ValkeyModule_KeyType(k));
            TRY("bad on empty", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_EXISTS, g, v, NULL));
            out(" type %d", ValkeyModule_KeyType(k));
        }
        ValkeyModule_CloseKey(k);
        k = open_key(ctx, types[i], VALKEYMODULE_READ);
        if (k) {
            TRY("ro set", ValkeyModule_HashSet(k, 0, f, v, NULL));
            ValkeyModule_CloseKey(k);
        }
        k = open_key(ctx, types[i], VALKEYMODULE_WRITE);
        TRY("wo get", ValkeyModule_HashGet(k, 0, f, &v1, NULL));
        ValkeyModule_CloseKey(k);
    }
    TRY("null set", ValkeyModule_HashSet(NULL, 0, S("x"), S("y"), NULL));
    TRY("null set flags", ValkeyModule_HashSet(NULL, 1 << 10, S("x"), S("y"), NULL));
    run(ctx, "hset hx a 1 b 2", 0);
    run(ctx, "hpexpire hx 1 fields 1 a", 0);
    usleep(5000);
    {
        ValkeyModuleKey *k = open_key(ctx, "hx", VALKEYMODULE_READ | VALKEYMODULE_WRITE);
        v1 = v2 = NULL;
        TRY("expired", ValkeyModule_HashGet(k, VALKEYMODULE_HASH_CFIELDS, "a", &v1, "b", &v2, NULL));
        out(" %s %s", st(v1), st(v2));
        TRY("ex", ValkeyModule_HashGet(k, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_EXISTS, "a", &ex, NULL));
        out(" %d len %zu", ex, ValkeyModule_ValueLength(k));
        TRY("nx exp",
            ValkeyModule_HashSet(k, VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_NX | VALKEYMODULE_HASH_COUNT_ALL, "a",
                                 S("n"), NULL));
        ValkeyModule_CloseKey(k);
        run(ctx, "hgetall hx", 1);
        run(ctx, "httl hx fields 2 a b", 1);
        run(ctx, "hpexpire hx 100000 fields 1 b", 0);
        k = open_key(ctx, "hx", VALKEYMODULE_WRITE);
        TRY("overwrite ttl", ValkeyModule_HashSet(k, VALKEYMODULE_HASH_CFIELDS, "b", S("n"), NULL));
        ValkeyModule_CloseKey(k);
        run(ctx, "httl hx fields 2 a b", 1);
    }
    return give(ctx);
}

static void zshow(ValkeyModuleKey *k, int next) {
    int n = 0;
    while (!ValkeyModule_ZsetRangeEndReached(k) && n++ < 12) {
        double s;
        ValkeyModuleString *e = ValkeyModule_ZsetRangeCurrentElement(k, &s);
        out("   %s %.17g", st(e), s);
        if (e) ValkeyModule_FreeString(NULL, e);
        if (!(next ? ValkeyModule_ZsetRangeNext(k) : ValkeyModule_ZsetRangePrev(k))) break;
    }
    double s = -7;
    ValkeyModuleString *e = ValkeyModule_ZsetRangeCurrentElement(k, &s);
    out("   end %d cur %s next %d prev %d", ValkeyModule_ZsetRangeEndReached(k), st(e), ValkeyModule_ZsetRangeNext(k),
        ValkeyModule_ZsetRangePrev(k));
}

static int answer_zsets(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    for (int i = 0; i < 9; i++) {
        setup(ctx);
        ValkeyModuleKey *k = open_key(ctx, types[i], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
        out("== %s", types[i]);
        double sc = -7;
        int fl;
        TRY("score", ValkeyModule_ZsetScore(k, S("b"), &sc));
        out(" %g", sc);
        TRY("score none", ValkeyModule_ZsetScore(k, S("none"), &sc));
        fl = 0;
        TRY("add", ValkeyModule_ZsetAdd(k, 5, S("new"), &fl));
        out(" fl %d", fl);
        fl = 0;
        TRY("add upd", ValkeyModule_ZsetAdd(k, 6, S("new"), &fl));
        out(" fl %d", fl);
        fl = 0;
        TRY("add same", ValkeyModule_ZsetAdd(k, 6, S("new"), &fl));
        out(" fl %d", fl);
        TRY("add null", ValkeyModule_ZsetAdd(k, 6, S("new2"), NULL));
        TRY("nan", ValkeyModule_ZsetAdd(k, NAN, S("new2"), NULL));
        for (int f = 0; f < 64; f++) {
            fl = f;
            errno = 0;
            int r = ValkeyModule_ZsetAdd(k, 5.5 + (f & 3) - 1, S(f & 8 ? "new" : "nonex"), &fl);
            out(" addf %d r %d fl %d %s", f, r, fl, en(errno));
            ValkeyModule_ZsetRem(k, S("nonex"), NULL);
            double ns = -9;
            fl = f;
            errno = 0;
            r = ValkeyModule_ZsetIncrby(k, (f & 1) ? 2 : -2, S(f & 8 ? "new" : "nonex"), &fl, &ns);
            out(" incf %d r %d fl %d ns %g", f, r, fl, ns);
            ValkeyModule_ZsetRem(k, S("nonex"), NULL);
        }
        int del = -7;
        TRY("rem", ValkeyModule_ZsetRem(k, S("new"), &del));
        out(" %d", del);
        TRY("rem", ValkeyModule_ZsetRem(k, S("new"), &del));
        out(" %d", del);
        TRY("rem null", ValkeyModule_ZsetRem(k, S("a"), NULL));
        out(" len %zu", ValkeyModule_ValueLength(k));
        fl = 0;
        double ns;
        TRY("inc inf", ValkeyModule_ZsetIncrby(k, -INFINITY, S("f"), &fl, &ns));
        out(" fl %d", fl);
        TRY("inc nullflags", ValkeyModule_ZsetIncrby(k, 1, S("b"), NULL, &ns));
        out(" %g", ns);
        TRY("inc nullscore", ValkeyModule_ZsetIncrby(k, 1, S("b"), NULL, NULL));
        out(" idle: end %d cur %s next %d prev %d", ValkeyModule_ZsetRangeEndReached(k),
            st(ValkeyModule_ZsetRangeCurrentElement(k, &sc)), ValkeyModule_ZsetRangeNext(k),
            ValkeyModule_ZsetRangePrev(k));
        for (int m = 0; m < 4; m++)
            for (int d = 0; d < 2; d++) {
                double lo[] = {-INFINITY, 2, 3.5, 100}, hi[] = {INFINITY, 3.5, 2, 200};
                for (int x = 0; x < 4; x++) {
                    TRY(" score m%d d%d %g %g",
                        d ? ValkeyModule_ZsetLastInScoreRange(k, lo[m], hi[m], x & 1, x >> 1)
                          : ValkeyModule_ZsetFirstInScoreRange(k, lo[m], hi[m], x & 1, x >> 1),
                        m, d, lo[m], hi[m]);
                    zshow(k, !d);
                    if (x == 2) zshow(k, d);
                }
            }
        static const char *lo[] =
            {
                "-", "[b", "(b", "[zz", "+", "(", "[", "-",
            },
                          *hi[] = {"+", "[d", "[d", "[a", "-", "[x", "+", "[b"};
        if (i < 8)
            for (int m = 0; m < 8; m++)
                for (int d = 0; d < 2; d++) {
                    TRY(" lex %s %s d%d",
                        d ? ValkeyModule_ZsetLastInLexRange(k, S(lo[m]), S(hi[m]))
                          : ValkeyModule_ZsetFirstInLexRange(k, S(lo[m]), S(hi[m])),
                        lo[m], hi[m], d);
                    zshow(k, !d);
                }
        ValkeyModule_ZsetRangeStop(k);
        ValkeyModule_ZsetRangeStop(k);
        out(" after stop end %d", ValkeyModule_ZsetRangeEndReached(k));
        ValkeyModule_CloseKey(k);
        k = open_key(ctx, types[i], VALKEYMODULE_READ);
        if (k) {
            TRY("ro add", ValkeyModule_ZsetAdd(k, 1, S("x"), NULL));
            TRY("ro rem", ValkeyModule_ZsetRem(k, S("x"), NULL));
            TRY("ro inc", ValkeyModule_ZsetIncrby(k, 1, S("x"), NULL, NULL));
            ValkeyModule_CloseKey(k);
        }
    }
    return give(ctx);
}

static void stream_add_and_delete(ValkeyModuleKey *k, ValkeyModuleString **fv) {
    ValkeyModuleStreamID id;
    long nf;
    id = (ValkeyModuleStreamID){7, 7};
    TRY("add", ValkeyModule_StreamAdd(k, 0, &id, fv, 1));
    id = (ValkeyModuleStreamID){7, 7};
    TRY("add same", ValkeyModule_StreamAdd(k, 0, &id, fv, 2));
    id = (ValkeyModuleStreamID){0, 0};
    TRY("add 0", ValkeyModule_StreamAdd(k, 0, &id, fv, 2));
    id = (ValkeyModuleStreamID){7, 8};
    TRY("add 0 fields", ValkeyModule_StreamAdd(k, 0, &id, fv, 0));
    TRY("add null id", ValkeyModule_StreamAdd(k, 0, NULL, fv, 1));
    TRY("auto nullid", ValkeyModule_StreamAdd(k, VALKEYMODULE_STREAM_ADD_AUTOID, NULL, fv, 1));
    id.ms = 0;
    TRY("auto", ValkeyModule_StreamAdd(k, VALKEYMODULE_STREAM_ADD_AUTOID, &id, fv, 1));
    out(" ms>0 %d", id.ms > 1000000);
    TRY("null argv", ValkeyModule_StreamAdd(k, VALKEYMODULE_STREAM_ADD_AUTOID, &id, NULL, 1));
    TRY("bad flag", ValkeyModule_StreamAdd(k, 1 << 5, &id, fv, 1));
    id = (ValkeyModuleStreamID){UINT64_MAX, UINT64_MAX - 1};
    TRY("max-1", ValkeyModule_StreamAdd(k, 0, &id, fv, 1));
    id = (ValkeyModuleStreamID){UINT64_MAX, UINT64_MAX};
    TRY("max", ValkeyModule_StreamAdd(k, 0, &id, fv, 1));
    TRY("auto after max", ValkeyModule_StreamAdd(k, VALKEYMODULE_STREAM_ADD_AUTOID, &id, fv, 1));
    out(" len %zu", ValkeyModule_ValueLength(k));
    TRY("del null", ValkeyModule_StreamDelete(k, NULL));
    id = (ValkeyModuleStreamID){7, 7};
    TRY("del", ValkeyModule_StreamDelete(k, &id));
    TRY("del", ValkeyModule_StreamDelete(k, &id));
    TRY("iter null", ValkeyModule_StreamIteratorStart(NULL, 0, NULL, NULL));
    TRY("next without", ValkeyModule_StreamIteratorNextID(k, &id, &nf));
    TRY("field without", ValkeyModule_StreamIteratorNextField(k, &fv[0], &fv[1]));
    TRY("itdel without", ValkeyModule_StreamIteratorDelete(k));
    TRY("stop without", ValkeyModule_StreamIteratorStop(k));
    TRY("iter badflags", ValkeyModule_StreamIteratorStart(k, 1 << 4, NULL, NULL));
}
static void stream_walk(ValkeyModuleKey *k, int fl, int rg) {
    ValkeyModuleStreamID id;
    long nf;
    ValkeyModuleString *f, *v;
    ValkeyModuleStreamID s[] = {{0, 0}, {1, 1}, {1, 2}, {5, 0}, {UINT64_MAX, UINT64_MAX}, {3, 0}},
                         e[] = {{UINT64_MAX, UINT64_MAX}, {5, 0}, {1, 2}, {1, 1}, {UINT64_MAX, UINT64_MAX}, {4, 0}};
    TRY(" start fl %d rg %d",
        ValkeyModule_StreamIteratorStart(k, fl, rg == 0 && fl < 2 ? NULL : &s[rg], rg == 0 ? NULL : &e[rg]), fl, rg);
    TRY("  again", ValkeyModule_StreamIteratorStart(k, fl, NULL, NULL));
    int n = 0;
    while (n++ < 6) {
        errno = 0;
        nf = -7;
        int r = ValkeyModule_StreamIteratorNextID(k, &id, &nf);
        if (r) {
            out("  nextid %d %s", r, en(errno));
            break;
        }
        if (id.ms < 1000 || id.ms > UINT64_MAX - 5)
            out("  id %llu-%llu nf %ld", (unsigned long long)id.ms, (unsigned long long)id.seq, nf);
        else
            out("  id auto nf %ld", nf);
        while (!(r = ValkeyModule_StreamIteratorNextField(k, &f, &v))) out("   %s %s", st(f), st(v));
        out("   fend %d %s", r, en(errno));
    }
    TRY("  field after end", ValkeyModule_StreamIteratorNextField(k, &f, &v));
    TRY("  del after end", ValkeyModule_StreamIteratorDelete(k));
    TRY(" stop", ValkeyModule_StreamIteratorStop(k));
}
static void stream_change_in_walk(ValkeyModuleKey *k, ValkeyModuleString **fv) {
    ValkeyModuleStreamID id;
    TRY("iterdel start", ValkeyModule_StreamIteratorStart(k, 0, NULL, NULL));
    TRY("del before next", ValkeyModule_StreamIteratorDelete(k));
    TRY("next", ValkeyModule_StreamIteratorNextID(k, &id, NULL));
    TRY("del", ValkeyModule_StreamIteratorDelete(k));
    TRY("del2", ValkeyModule_StreamIteratorDelete(k));
    TRY("field after del", ValkeyModule_StreamIteratorNextField(k, &fv[0], &fv[1]));
    TRY("next", ValkeyModule_StreamIteratorNextID(k, &id, NULL));
    TRY("add while", ValkeyModule_StreamAdd(k, VALKEYMODULE_STREAM_ADD_AUTOID, &id, fv, 1));
    TRY("stop", ValkeyModule_StreamIteratorStop(k));
    out(" len %zu", ValkeyModule_ValueLength(k));
}
static void stream_trim(ValkeyModuleKey *k) {
    ValkeyModuleStreamID id = {UINT64_MAX, UINT64_MAX};
    TRY("trim", ValkeyModule_StreamTrimByLength(k, 0, 2));
    out("trim approx %lld", (long long)ValkeyModule_StreamTrimByLength(k, VALKEYMODULE_STREAM_TRIM_APPROX, 1));
    errno = 0;
    out("trim neg %lld", (long long)ValkeyModule_StreamTrimByLength(k, 0, -1));
    out("%s", en(errno));
    errno = 0;
    out("trim bad %lld", (long long)ValkeyModule_StreamTrimByLength(k, 8, 1));
    out("%s", en(errno));
    errno = 0;
    out("trimid %lld", (long long)ValkeyModule_StreamTrimByID(k, 0, &id));
    out("%s", en(errno));
    errno = 0;
    out("trimid null %lld", (long long)ValkeyModule_StreamTrimByID(k, 0, NULL));
    out("%s", en(errno));
    out("trim0 %lld type %d", (long long)ValkeyModule_StreamTrimByLength(k, 0, 0), ValkeyModule_KeyType(k));
}
static void stream_read_only(ValkeyModuleKey *k, ValkeyModuleString **fv) {
    ValkeyModuleStreamID id = {UINT64_MAX - 1, 7};
    TRY("ro add", ValkeyModule_StreamAdd(k, 0, &id, fv, 1));
    TRY("ro del", ValkeyModule_StreamDelete(k, &id));
    TRY("ro start", ValkeyModule_StreamIteratorStart(k, 0, NULL, NULL));
    TRY("ro next", ValkeyModule_StreamIteratorNextID(k, &id, NULL));
    TRY("ro itdel", ValkeyModule_StreamIteratorDelete(k));
    errno = 0;
    out("ro trim %lld", (long long)ValkeyModule_StreamTrimByLength(k, 0, 0));
    out("%s", en(errno));
    ValkeyModule_CloseKey(k);
}
static int answer_streams(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleStreamID id;
    for (int i = 0; i < 7; i++) {
        setup(ctx);
        ValkeyModuleKey *k = open_key(ctx, types[i], VALKEYMODULE_READ | VALKEYMODULE_WRITE);
        out("== %s", types[i]);
        ValkeyModuleString *fv[] = {S("f"), S("v"), S("f2"), S("v2")};
        stream_add_and_delete(k, fv);
        for (int fl = 0; fl < 4; fl++)
            for (int rg = 0; rg < 6; rg++) stream_walk(k, fl, rg);
        stream_change_in_walk(k, fv);
        stream_trim(k);
        ValkeyModule_CloseKey(k);
        k = open_key(ctx, types[i], VALKEYMODULE_READ);
        if (k) stream_read_only(k, fv);
    }
    TRY("null add", ValkeyModule_StreamAdd(NULL, 0, &id, NULL, 0));
    TRY("null del", ValkeyModule_StreamDelete(NULL, &id));
    TRY("null next", ValkeyModule_StreamIteratorNextID(NULL, &id, NULL));
    TRY("null field", ValkeyModule_StreamIteratorNextField(NULL, NULL, NULL));
    TRY("null itdel", ValkeyModule_StreamIteratorDelete(NULL));
    TRY("null stop", ValkeyModule_StreamIteratorStop(NULL));
    errno = 0;
    out("null trim %lld", (long long)ValkeyModule_StreamTrimByLength(NULL, 0, 0));
    out("%s", en(errno));
    return give(ctx);
}

static int seen;
static char all[4000][24];
static int cmp(const void *a, const void *b) {
    return strcmp(a, b);
}
static void kcb(ValkeyModuleKey *k, ValkeyModuleString *f, ValkeyModuleString *v, void *p) {
    if (seen < 3999) snprintf(all[seen++], 24, "%s/%s", st(f), st(v));
}
static void scb(ValkeyModuleCtx *c, ValkeyModuleString *n, ValkeyModuleKey *k, void *p) {
    if (seen < 3999) snprintf(all[seen++], 24, "%s/%d", st(n), k ? ValkeyModule_KeyType(k) : -1);
}

static int answer_scans(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    setup(ctx);
    for (int i = 0; i < 12; i++) {
        ValkeyModuleKey *k = open_key(ctx, types[i], VALKEYMODULE_READ);
        out("== %s %s", types[i], k ? "" : "NULL");
        if (!k) continue;
        ValkeyModuleScanCursor *c = ValkeyModule_ScanCursorCreate();
        seen = 0;
        int r, steps = 0;
        errno = 0;
        while ((r = ValkeyModule_ScanKey(k, c, kcb, NULL)) && steps++ < 1000)
            ;
        out(" last %d %s steps>0 %d seen %d", r, en(errno), steps > 0, seen);
        qsort(all, seen, 24, cmp);
        int uniq = 0;
        for (int j = 0; j < seen; j++)
            if (!j || strcmp(all[j], all[j - 1])) {
                if (uniq++ < 8) out("  %s", all[j]);
            }
        out(" uniq %d", uniq);
        TRY(" again", ValkeyModule_ScanKey(k, c, kcb, NULL));
        ValkeyModule_ScanCursorRestart(c);
        seen = 0;
        r = ValkeyModule_ScanKey(k, c, kcb, NULL);
        out(" restart %d", seen > 0);
        ValkeyModule_ScanCursorDestroy(c);
        ValkeyModule_CloseKey(k);
    }
    ValkeyModuleScanCursor *c = ValkeyModule_ScanCursorCreate();
    seen = 0;
    int r;
    while ((r = ValkeyModule_Scan(ctx, c, scb, NULL)))
        ;
    qsort(all, seen, 24, cmp);
    for (int j = 0; j < seen; j++)
        if (!j || strcmp(all[j], all[j - 1])) out(" key %s", all[j]);
    TRY("again", ValkeyModule_Scan(ctx, c, scb, NULL));
    ValkeyModule_ScanCursorRestart(c);
    TRY("restart", ValkeyModule_Scan(ctx, c, scb, NULL) >= 0);
    errno = 0;
    r = ValkeyModule_ScanKey(NULL, c, kcb, NULL);
    out("null %d %s", r, en(errno));
    ValkeyModule_ScanCursorDestroy(c);
    return give(ctx);
}

static int answer_rights(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    static const char *const commands[] = {
        "get k",     "get x",         "set r1 v",        "set w1 v",         "del k", "get", "get a b",
        "mget k1 x", "publish ch1 m", "publish other m", "zunionstore w 1 r"};
    static const char *const channels[] = {"ch1", "ch*", "other"}, *const keys[] = {"k1", "r1", "w1", "x"};
    static const char *const rules[] = {"nosuch", "+nosuch", "+@nosuch", "~a", "%R~x*", "allkeys", "%R~x*", "off"};
    ValkeyModuleUser *user = ValkeyModule_CreateModuleUser("answers");
    ValkeyModule_SetModuleUserACLString(ctx, user,
                                        "reset on +get +set +publish +mget +zunionstore ~k* %R~r* %W~w* &ch*", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[64];
        ValkeyModuleString *arguments[8];
        int count = 0;
        snprintf(line, sizeof line, "%s", commands[i]);
        for (const char *text = strtok(line, " "); text; text = strtok(NULL, " ")) arguments[count++] = S(text);
        TRY("%s", ValkeyModule_ACLCheckCommandPermissions(user, arguments, count), commands[i]);
    }
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int flags = 0; flags < 32; flags++)
            out("channel %s %d %d", channels[i], flags,
                ValkeyModule_ACLCheckChannelPermissions(user, S(channels[i]), flags));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int bit = 0; bit < 12; bit++)
            TRY("key %s %d", ValkeyModule_ACLCheckKeyPermissions(user, S(keys[i]), 1 << bit), keys[i], bit);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        ValkeyModuleString *error = NULL;
        TRY("rule %s", ValkeyModule_SetModuleUserACLString(ctx, user, rules[i], &error), rules[i]);
        out(" %s", st(error));
        out(" %s", st(ValkeyModule_GetModuleUserACLString(user)));
    }
    ValkeyModule_FreeModuleUser(user);
    return give(ctx);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    static const struct {
        const char *name;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"answers.strings", answer_strings}, {"answers.dicts", answer_dicts},
                    {"answers.lists", answer_lists},     {"answers.hashes", answer_hashes},
                    {"answers.zsets", answer_zsets},     {"answers.streams", answer_streams},
                    {"answers.scans", answer_scans},     {"answers.rights", answer_rights}};
    if (ValkeyModule_Init(ctx, "answers", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, "write", 0, 0, 0) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
