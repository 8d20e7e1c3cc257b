/* replies.c: ReplyWith*: a module writes the reply of its command, straight into the client's output. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/call_reply.h"
#include "module/context.h"
#include <math.h>
#include <stdio.h>

int api_WrongArity(ValkeyModuleCtx *ctx) {
    const char *name = ctx->call ? ctx->call->command->full_name : "?";
    reply_error_format(ctx->reply, "ERR wrong number of arguments for '%s' command", name);
    return VALKEYMODULE_OK;
}

/* --- Errors --- */

int api_ReplyWithError(ValkeyModuleCtx *ctx, const char *err) {
    reply_error(ctx->reply, err);
    return VALKEYMODULE_OK;
}
static void reply_format(ValkeyModuleCtx *ctx, bool counted, const char *fmt, va_list arguments) {
    char *text = NULL;
    if (vasprintf(&text, fmt, arguments) < 0) return;
    void (*hook)(struct reply *, struct slice) = ctx->reply->error_hook;
    uint32_t failed = ctx->reply->failed;
    if (!counted) ctx->reply->error_hook = NULL;
    reply_error(ctx->reply, text);
    ctx->reply->error_hook = hook;
    if (!counted) ctx->reply->failed = failed;
    free(text);
}
int api_ReplyWithErrorFormat(ValkeyModuleCtx *ctx, const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    reply_format(ctx, true, fmt, arguments);
    va_end(arguments);
    return VALKEYMODULE_OK;
}
int api_ReplyWithCustomErrorFormat(ValkeyModuleCtx *ctx, int update_error_stats, const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    reply_format(ctx, update_error_stats, fmt, arguments);
    va_end(arguments);
    return VALKEYMODULE_OK;
}

/* --- Simple types --- */

int api_ReplyWithLongLong(ValkeyModuleCtx *ctx, long long ll) {
    reply_integer(ctx->reply, ll);
    return VALKEYMODULE_OK;
}
int api_ReplyWithSimpleString(ValkeyModuleCtx *ctx, const char *msg) {
    reply_status(ctx->reply, msg);
    return VALKEYMODULE_OK;
}
int api_ReplyWithStringBuffer(ValkeyModuleCtx *ctx, const char *buf, size_t len) {
    reply_bulk(ctx->reply, (struct slice){buf, len});
    return VALKEYMODULE_OK;
}
int api_ReplyWithCString(ValkeyModuleCtx *ctx, const char *buf) {
    reply_bulk_text(ctx->reply, buf);
    return VALKEYMODULE_OK;
}
int api_ReplyWithString(ValkeyModuleCtx *ctx, ValkeyModuleString *str) {
    reply_bulk(ctx->reply, module_string_slice(str));
    return VALKEYMODULE_OK;
}
int api_ReplyWithEmptyString(ValkeyModuleCtx *ctx) {
    reply_bulk(ctx->reply, SLICE(""));
    return VALKEYMODULE_OK;
}
int api_ReplyWithVerbatimStringType(ValkeyModuleCtx *ctx, const char *buf, size_t len, const char *ext) {
    reply_verbatim(ctx->reply, ext, (struct slice){buf, len});
    return VALKEYMODULE_OK;
}
int api_ReplyWithVerbatimString(ValkeyModuleCtx *ctx, const char *buf, size_t len) {
    return api_ReplyWithVerbatimStringType(ctx, buf, len, "txt");
}
int api_ReplyWithNull(ValkeyModuleCtx *ctx) {
    reply_null(ctx->reply);
    return VALKEYMODULE_OK;
}
int api_ReplyWithBool(ValkeyModuleCtx *ctx, int b) {
    reply_boolean(ctx->reply, b);
    return VALKEYMODULE_OK;
}
int api_ReplyWithDouble(ValkeyModuleCtx *ctx, double d) {
    reply_double(ctx->reply, d);
    return VALKEYMODULE_OK;
}
int api_ReplyWithLongDouble(ValkeyModuleCtx *ctx, long double d) {
    char text[DOUBLE_TEXT_MAX];
    size_t len;
    if (isfinite(d))
        len = format_long_double(text, d);
    else
        len = (size_t)snprintf(text, sizeof text, "%s", isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
    if (ctx->reply->protocol < 3) {
        reply_bulk(ctx->reply, (struct slice){text, len});
        return VALKEYMODULE_OK;
    }
    reply_raw(ctx->reply, SLICE(","));
    reply_raw(ctx->reply, (struct slice){text, len});
    reply_raw(ctx->reply, SLICE("\r\n"));
    return VALKEYMODULE_OK;
}
int api_ReplyWithBigNumber(ValkeyModuleCtx *ctx, const char *bignum, size_t len) {
    reply_big_number(ctx->reply, (struct slice){bignum, len});
    return VALKEYMODULE_OK;
}
int api_ReplyWithCallReply(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply) {
    if (ctx->reply->protocol < 3 && call_reply_is_resp3(reply)) return VALKEYMODULE_ERR;
    struct slice proto = call_reply_proto(reply);
    if (!proto.len || proto.data[0] != '-') {
        reply_raw(ctx->reply, proto);
        return VALKEYMODULE_OK;
    }
    /* An error fails this command, too; the call has counted it. */
    void (*hook)(struct reply *, struct slice) = ctx->reply->error_hook;
    ctx->reply->error_hook = NULL;
    reply_error_line(ctx->reply, (struct slice){proto.data + 1, proto.len - 3});
    ctx->reply->error_hook = hook;
    return VALKEYMODULE_OK;
}

/* A whole reply, as the protocol has it. An error that it contains is no failure of the command. */
int api_ReplyRaw(ValkeyModuleCtx *ctx, const char *proto, size_t proto_len) {
    reply_raw(ctx->reply, (struct slice){proto, proto_len});
    return VALKEYMODULE_OK;
}

/* --- Aggregates. The content of one whose length is set later goes to memory until then. --- */

struct context_postponed {
    struct context_postponed *outer;
    struct reply_deferred deferred;
    enum { POSTPONED_ARRAY, POSTPONED_MAP, POSTPONED_SET, POSTPONED_ATTRIBUTE, POSTPONED_PUSH } kind;
};

static void postpone(ValkeyModuleCtx *ctx, int kind) {
    struct context_postponed *postponed = mem_calloc(1, sizeof *postponed);
    postponed->outer = ctx->postponed;
    postponed->kind = kind;
    reply_deferred_begin(ctx->reply, &postponed->deferred);
    ctx->postponed = postponed;
}
static void postponed_set(ValkeyModuleCtx *ctx, int kind, long len) {
    struct context_postponed *postponed = ctx->postponed;
    if (!postponed) {
        log_warning("API misuse detected in module %s: ValkeyModule_ReplySet*Length() called without previous "
                    "ValkeyModule_ReplyWith*(ctx,VALKEYMODULE_POSTPONED_LEN) call.",
                    ctx->module->name);
        return;
    }
    ctx->postponed = postponed->outer;
    size_t count = len < 0 ? 0 : (size_t)len;
    if (kind == POSTPONED_ATTRIBUTE) {
        struct output *outer = postponed->deferred.outer;
        ctx->reply->out = outer;
        if (ctx->reply->protocol >= 3) {
            reply_attribute(ctx->reply, count);
            output_write(outer, memory_output_slice(&postponed->deferred.memory));
        }
        memory_output_free(&postponed->deferred.memory);
    } else {
        static const enum reply_aggregate kinds[] = {[POSTPONED_ARRAY] = REPLY_ARRAY,
                                                     [POSTPONED_MAP] = REPLY_MAP,
                                                     [POSTPONED_SET] = REPLY_SET,
                                                     [POSTPONED_PUSH] = REPLY_PUSH};
        reply_deferred_end(ctx->reply, &postponed->deferred, kinds[kind], count);
    }
    mem_free(postponed);
}
void context_postponed_end(struct ValkeyModuleCtx *ctx) {
    log_warning("API misuse detected in module %s: ValkeyModule_ReplyWith*(VALKEYMODULE_POSTPONED_LEN) not matched by "
                "the same number of ValkeyModule_SetReply*Len() calls.",
                ctx->module->name);
    while (ctx->postponed) postponed_set(ctx, ctx->postponed->kind, 0);
}

int api_ReplyWithArray(ValkeyModuleCtx *ctx, long len) {
    if (len == VALKEYMODULE_POSTPONED_LEN)
        postpone(ctx, POSTPONED_ARRAY);
    else
        reply_array(ctx->reply, (size_t)len);
    return VALKEYMODULE_OK;
}
int api_ReplyWithMap(ValkeyModuleCtx *ctx, long len) {
    if (len == VALKEYMODULE_POSTPONED_LEN)
        postpone(ctx, POSTPONED_MAP);
    else
        reply_map(ctx->reply, (size_t)len);
    return VALKEYMODULE_OK;
}
int api_ReplyWithSet(ValkeyModuleCtx *ctx, long len) {
    if (len == VALKEYMODULE_POSTPONED_LEN)
        postpone(ctx, POSTPONED_SET);
    else
        reply_set(ctx->reply, (size_t)len);
    return VALKEYMODULE_OK;
}
int api_ReplyWithAttribute(ValkeyModuleCtx *ctx, long len) {
    if (ctx->reply->protocol < 3) return VALKEYMODULE_ERR;
    if (len == VALKEYMODULE_POSTPONED_LEN)
        postpone(ctx, POSTPONED_ATTRIBUTE);
    else
        reply_attribute(ctx->reply, (size_t)len);
    return VALKEYMODULE_OK;
}
int api_ReplyWithNullArray(ValkeyModuleCtx *ctx) {
    reply_null_array(ctx->reply);
    return VALKEYMODULE_OK;
}
int api_ReplyWithEmptyArray(ValkeyModuleCtx *ctx) {
    reply_array(ctx->reply, 0);
    return VALKEYMODULE_OK;
}
void api_ReplySetArrayLength(ValkeyModuleCtx *ctx, long len) {
    postponed_set(ctx, POSTPONED_ARRAY, len);
}
void api_ReplySetMapLength(ValkeyModuleCtx *ctx, long len) {
    postponed_set(ctx, POSTPONED_MAP, len);
}
void api_ReplySetSetLength(ValkeyModuleCtx *ctx, long len) {
    postponed_set(ctx, POSTPONED_SET, len);
}
void api_ReplySetAttributeLength(ValkeyModuleCtx *ctx, long len) {
    if (ctx->reply->protocol < 3) return; /* ReplyWithAttribute has begun none */
    postponed_set(ctx, POSTPONED_ATTRIBUTE, len);
}
void api_ReplySetPushLength(ValkeyModuleCtx *ctx, long len) {
    postponed_set(ctx, POSTPONED_PUSH, len);
}
