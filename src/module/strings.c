/* strings.c: see strings.h. */
#include "module/strings.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "module/context.h"
#include "store/stream_id.h"
#include <stdio.h>

static struct ValkeyModuleString *string_fill(struct ValkeyModuleString *string, struct slice bytes) {
    *string =
        (struct ValkeyModuleString){.data = string->own, .len = bytes.len, .capacity = bytes.len, .references = 1};
    if (bytes.data)
        memcpy(string->own, bytes.data, bytes.len);
    else
        memset(string->own, 0, bytes.len); /* CreateString(ctx, NULL, len), as in Valkey */
    string->own[bytes.len] = 0;
    return string;
}
struct ValkeyModuleString *module_string_new(struct slice bytes) {
    return string_fill(mem_alloc(sizeof(struct ValkeyModuleString) + bytes.len + 1), bytes);
}

void module_string_release(struct ValkeyModuleString *string) {
    unsigned before = __atomic_fetch_sub(&string->references, 1, __ATOMIC_ACQ_REL);
    must(before > 0); /* a module has released it more often than it held it */
    if (before > 1) return;
    if (string->data != string->own) mem_free(string->data);
    mem_free(string);
}

struct ValkeyModuleString **module_strings_of(int argc, const struct slice *argv) {
    struct ValkeyModuleString **strings = mem_alloc((size_t)(argc ? argc : 1) * sizeof(*strings));
    for (int i = 0; i < argc; i++) strings[i] = module_string_new(argv[i]);
    return strings;
}
struct ValkeyModuleString **module_strings_try_of(int argc, const struct slice *argv) {
    struct ValkeyModuleString **strings = mem_try_alloc((size_t)(argc ? argc : 1) * sizeof(*strings));
    for (int i = 0; strings && i < argc; i++) {
        strings[i] = mem_try_alloc(sizeof **strings + argv[i].len + 1);
        if (strings[i]) {
            string_fill(strings[i], argv[i]);
            continue;
        }
        module_strings_free(i, strings);
        strings = NULL;
    }
    return strings;
}
void module_strings_free(int argc, struct ValkeyModuleString **argv) {
    for (int i = 0; i < argc; i++) module_string_release(argv[i]);
    mem_free(argv);
}

/* --- Creation --- */

ValkeyModuleString *api_CreateString(ValkeyModuleCtx *ctx, const char *ptr, size_t len) {
    return context_string(ctx, (struct slice){ptr, len});
}
ValkeyModuleString *api_CreateStringPrintf(ValkeyModuleCtx *ctx, const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    char *text = NULL;
    int len = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    ValkeyModuleString *string = context_string(ctx, (struct slice){text, len < 0 ? 0 : (size_t)len});
    if (len >= 0) free(text);
    return string;
}
ValkeyModuleString *api_CreateStringFromLongLong(ValkeyModuleCtx *ctx, long long ll) {
    char text[NUMBER_TEXT_MAX];
    return context_string(ctx, (struct slice){text, format_int64(text, ll)});
}
ValkeyModuleString *api_CreateStringFromULongLong(ValkeyModuleCtx *ctx, unsigned long long ull) {
    char text[NUMBER_TEXT_MAX];
    return context_string(ctx, (struct slice){text, format_uint64(text, ull)});
}
ValkeyModuleString *api_CreateStringFromDouble(ValkeyModuleCtx *ctx, double d) {
    char text[40];
    return context_string(ctx, (struct slice){text, format_double(text, d)});
}
ValkeyModuleString *api_CreateStringFromLongDouble(ValkeyModuleCtx *ctx, long double ld, int humanfriendly) {
    char text[DOUBLE_TEXT_MAX];
    bool finite = ld - ld == 0;
    size_t len;
    if (!finite)
        len = (size_t)snprintf(text, sizeof text, "%s", ld != ld ? "nan" : ld > 0 ? "inf" : "-inf");
    else if (humanfriendly)
        len = format_long_double(text, ld);
    else
        len = (size_t)snprintf(text, sizeof text, "%.17Lg", ld);
    return context_string(ctx, (struct slice){text, len});
}
ValkeyModuleString *api_CreateStringFromString(ValkeyModuleCtx *ctx, const ValkeyModuleString *str) {
    return context_string(ctx, module_string_slice(str));
}
ValkeyModuleString *api_CreateStringFromStreamID(ValkeyModuleCtx *ctx, const ValkeyModuleStreamID *id) {
    char text[2 * NUMBER_TEXT_MAX];
    int len = snprintf(text, sizeof text, "%llu-%llu", (unsigned long long)id->ms, (unsigned long long)id->seq);
    return context_string(ctx, (struct slice){text, (size_t)len});
}

/* --- References --- */

void api_FreeString(ValkeyModuleCtx *ctx, ValkeyModuleString *str) {
    context_forget(ctx, OBJECT_STRING, str);
    module_string_release(str);
}
/* With AutoMemory the context gives its reference to the module. */
static bool string_was_kept(ValkeyModuleCtx *ctx, const ValkeyModuleString *str) {
    if (!ctx || !(ctx->flags & CONTEXT_AUTO_MEMORY)) return false;
    unsigned before = ctx->objects_count;
    context_forget(ctx, OBJECT_STRING, (void *)(uintptr_t)str);
    return ctx->objects_count < before;
}
void api_RetainString(ValkeyModuleCtx *ctx, ValkeyModuleString *str) {
    if (!string_was_kept(ctx, str)) module_string_hold(str);
}
ValkeyModuleString *api_HoldString(ValkeyModuleCtx *ctx, ValkeyModuleString *str) {
    context_keep(ctx, OBJECT_STRING, str);
    return module_string_hold(str);
}

/* --- Reading and changing --- */

const char *api_StringPtrLen(const ValkeyModuleString *str, size_t *len) {
    static const char error[] = "(NULL string reply referenced in module)";
    if (len) *len = str ? str->len : sizeof error - 1;
    return str ? str->data : error;
}
int api_StringToLongLong(const ValkeyModuleString *str, long long *ll) {
    int64_t value;
    if (!parse_int64(module_string_slice(str), &value)) return VALKEYMODULE_ERR;
    *ll = value;
    return VALKEYMODULE_OK;
}
int api_StringToULongLong(const ValkeyModuleString *str, unsigned long long *ull) {
    uint64_t value;
    if (!parse_uint64_loosely(str->data, &value)) return VALKEYMODULE_ERR;
    *ull = value;
    return VALKEYMODULE_OK;
}
int api_StringToDouble(const ValkeyModuleString *str, double *d) {
    return parse_double(module_string_slice(str), d) ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
int api_StringToLongDouble(const ValkeyModuleString *str, long double *d) {
    return parse_long_double(module_string_slice(str), d) ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
int api_StringToStreamID(const ValkeyModuleString *str, ValkeyModuleStreamID *id) {
    struct stream_id parsed;
    if (!stream_id_parse(module_string_slice(str), STREAM_ID_EDGES, 0, &parsed, NULL)) return VALKEYMODULE_ERR;
    *id = (ValkeyModuleStreamID){parsed.ms, parsed.seq};
    return VALKEYMODULE_OK;
}
int api_StringCompare(const ValkeyModuleString *a, const ValkeyModuleString *b) {
    int order = slice_compare(module_string_slice(a), module_string_slice(b));
    return (order > 0) - (order < 0);
}
int api_StringAppendBuffer(ValkeyModuleCtx *ctx, ValkeyModuleString *str, const char *buf, size_t len) {
    if (__atomic_load_n(&str->references, __ATOMIC_RELAXED) != 1) return VALKEYMODULE_ERR;
    if (len > str->capacity - str->len) {
        size_t capacity = (str->len + len) * 2;
        bool own = str->data == str->own;
        char *data = mem_realloc(own ? NULL : str->data, capacity + 1);
        if (own && str->len) memcpy(data, str->own, str->len);
        str->data = data;
        str->capacity = capacity;
    }
    if (len) memcpy(str->data + str->len, buf, len);
    str->len += len;
    str->data[str->len] = 0;
    return VALKEYMODULE_OK;
}
void api_TrimStringAllocation(ValkeyModuleString *str) {
    if (!str || str->data == str->own) return;
    str->data = mem_realloc(str->data, str->len + 1);
    str->capacity = str->len;
}
