/* argv.c: a module for tests/integration/modules-argv.tcl: CallArgv, and the symbols of the server. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern int VM_CallArgv(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int flags,
                       const ValkeyModuleReplyHandlers *resp_handlers, void *reply_ctx);
extern int VM_CallArgvAbort(ValkeyModuleCallArgvBlockedHandle *handle);
extern int VM_ReplyRaw(ValkeyModuleCtx *ctx, const char *proto, size_t proto_len);
extern int VM_ReplyWithLongLong(ValkeyModuleCtx *ctx, long long number);

/* What the functions below were called with. */
struct heard {
    char text[4096];
    int after_raw; /* what on_reply() returns */
};
static struct heard later; /* of a command that waits */
static ValkeyModuleCallArgvBlockedHandle *waiting;

static void note(void *to, const char *format, ...) {
    struct heard *heard = to;
    size_t len = strlen(heard->text);
    va_list arguments;
    va_start(arguments, format);
    if (len) len += (size_t)snprintf(heard->text + len, sizeof heard->text - len, " ");
    vsnprintf(heard->text + len, sizeof heard->text - len, format, arguments);
    va_end(arguments);
}
static void note_bytes(void *to, const char *kind, const char *text, size_t len) {
    note(to, "%s=%.*s", kind, (int)len, text);
    ((char *)(size_t)text)[len] = 0; /* permitted */
}
static void on_null(void *to) {
    note(to, "null");
}
static void on_null_string(void *to) {
    note(to, "null-string");
}
static void on_null_array(void *to) {
    note(to, "null-array");
}
static void on_bulk(void *to, const char *text, size_t len) {
    note_bytes(to, "bulk", text, len);
}
static void on_simple(void *to, const char *text, size_t len) {
    note_bytes(to, "simple", text, len);
}
static void on_verbatim(void *to, const char *text, size_t len, const char *format) {
    note(to, "verbatim-%.3s=%.*s", format, (int)len, text);
}
static void on_error(void *to, const char *text, size_t len) {
    note_bytes(to, "error", text, len);
}
static void on_integer(void *to, long long number) {
    note(to, "integer=%lld", number);
}
static void on_double(void *to, double number) {
    note(to, "double=%g", number);
}
static void on_big(void *to, const char *text, size_t len) {
    note_bytes(to, "big", text, len);
}
static void on_bool(void *to, int value) {
    note(to, "bool=%d", value);
}
static void on_attribute(void *to, size_t len) {
    note(to, "|%zu", len);
}
static void on_attribute_end(void *to) {
    note(to, "|");
}
static void on_array(void *to, size_t len) {
    note(to, "[%zu", len);
}
static void on_array_end(void *to) {
    note(to, "]");
}
static void on_map(void *to, size_t len) {
    note(to, "{%zu", len);
}
static void on_map_end(void *to) {
    note(to, "}");
}
static void on_set(void *to, size_t len) {
    note(to, "(%zu", len);
}
static void on_set_end(void *to) {
    note(to, ")");
}
static void on_broken(void *to) {
    note(to, "broken");
}
static void on_blocked(void *to, ValkeyModuleCtx *ctx, ValkeyModuleCallArgvBlockedHandle *handle) {
    (void)ctx;
    note(to, "blocked");
    waiting = handle;
}
static int on_reply(void *to, ValkeyModuleCtx *ctx, const char *proto, size_t len) {
    (void)ctx;
    struct heard *heard = to;
    note(to, "raw=%zu:%.*s", len, (int)(len ? strcspn(proto, "\r") : 0), len ? proto : "");
    if (len && proto[len]) note(to, "unterminated");
    return heard->after_raw;
}
static const ValkeyModuleReplyHandlers handlers = {VALKEYMODULE_REPLY_HANDLERS_VERSION,
                                                   on_null,
                                                   on_null_string,
                                                   on_null_array,
                                                   on_bulk,
                                                   on_simple,
                                                   on_verbatim,
                                                   on_error,
                                                   on_integer,
                                                   on_double,
                                                   on_big,
                                                   on_bool,
                                                   on_attribute,
                                                   on_attribute_end,
                                                   on_array,
                                                   on_array_end,
                                                   on_map,
                                                   on_map_end,
                                                   on_set,
                                                   on_set_end,
                                                   on_broken,
                                                   on_blocked,
                                                   on_reply};

/* ARGV.CALL flags after-raw command argument…: what the handlers hear. after-raw "none": there is no raw handler. */
static int call(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long flags;
    if (argc < 3 || ValkeyModule_StringToLongLong(argv[1], &flags) != VALKEYMODULE_OK)
        return ValkeyModule_WrongArity(ctx);
    ValkeyModuleReplyHandlers some = handlers;
    struct heard heard = {.text = ""}, *to = flags & VALKEYMODULE_CALL_ARGV_ALLOW_BLOCK ? &later : &heard;
    const char *raw = ValkeyModule_StringPtrLen(argv[2], NULL);
    later.text[0] = 0;
    to->after_raw = raw[0] - '0';
    if (strcmp(raw, "none") == 0) some.onRespAvailable = NULL;
    errno = 0;
    int result = VM_CallArgv(ctx, argv + 3, argc - 3, (int)flags, strcmp(raw, "null") == 0 ? NULL : &some, to);
    if (result == VALKEYMODULE_ERR) note(to, "errno=%d", errno);
    return ValkeyModule_ReplyWithCString(ctx, to->text);
}
static int later_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithCString(ctx, later.text);
}
static int abort_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return VM_ReplyWithLongLong(ctx, VM_CallArgvAbort(waiting));
}
/* ARGV.RAW command argument…: passes its reply on. */
static int raw_reply(void *to, ValkeyModuleCtx *ctx, const char *proto, size_t len) {
    (void)to;
    VM_ReplyRaw(ctx, proto, len);
    return 1;
}
static int raw(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleReplyHandlers some = {.version = VALKEYMODULE_REPLY_HANDLERS_VERSION, .onRespAvailable = raw_reply};
    int flags = VALKEYMODULE_CALL_ARGV_ERRORS_AS_REPLIES | VALKEYMODULE_CALL_ARGV_RESP_AUTO;
    VM_CallArgv(ctx, argv + 1, argc - 1, flags, &some, NULL);
    return VALKEYMODULE_OK;
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (ValkeyModule_Init(ctx, "argv", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    int result = ValkeyModule_CreateCommand(ctx, "argv.call", call, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "argv.later", later_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "argv.abort", abort_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "argv.raw", raw, "", 0, 0, 0);
    return result;
}
