/* call_argv.c: CallArgv: Call with arguments in an array. The reply goes to functions of the module, one for each type
 * of value, instead of a tree. The module may write into the text that a function gets: the reply is parsed as a whole
 * before the first function is called. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "module/call.h"
#include "module/context.h"
#include <errno.h>

struct ValkeyModuleCallArgvBlockedHandle {
    struct ValkeyModuleCallReply *promise;
    ValkeyModuleReplyHandlers handlers;
    void *state;
};

#define HANDLE(function, ...)                                                                                          \
    do {                                                                                                               \
        if (handlers->function) handlers->function(__VA_ARGS__);                                                       \
    } while (0)

static void value_handle(const ValkeyModuleReplyHandlers *handlers, void *state,
                         const struct ValkeyModuleCallReply *reply) {
    struct slice text = reply->text;
    char kind = reply->proto.len ? reply->proto.data[0] : 0;
    if (reply->attribute) {
        const struct ValkeyModuleCallReply *attribute = reply->attribute;
        kind = attribute->proto.data[attribute->proto.len];
        HANDLE(attributeStart, state, attribute->nodes / 2);
        for (size_t i = 0; i < attribute->nodes; i++) value_handle(handlers, state, &attribute->children[i]);
        HANDLE(attributeEnd, state);
    }
    switch (reply->type) {
    case VALKEYMODULE_REPLY_STRING: HANDLE(bulkString, state, text.data, text.len); break;
    case VALKEYMODULE_REPLY_SIMPLE_STRING: HANDLE(simpleString, state, text.data, text.len); break;
    case VALKEYMODULE_REPLY_ERROR: HANDLE(error, state, text.data, text.len); break;
    case VALKEYMODULE_REPLY_INTEGER: HANDLE(integer, state, reply->integer); break;
    case VALKEYMODULE_REPLY_DOUBLE: HANDLE(doubleVal, state, reply->number); break;
    case VALKEYMODULE_REPLY_BOOL: HANDLE(boolVal, state, (int)reply->integer); break;
    case VALKEYMODULE_REPLY_BIG_NUMBER: HANDLE(bigNumber, state, text.data, text.len); break;
    case VALKEYMODULE_REPLY_VERBATIM_STRING: HANDLE(verbatimString, state, text.data, text.len, reply->format); break;
    case VALKEYMODULE_REPLY_ARRAY_NULL: HANDLE(nullArray, state); break;
    case VALKEYMODULE_REPLY_NULL:
        if (kind == '$')
            HANDLE(nullBulkString, state);
        else
            HANDLE(null, state);
        break;
    case VALKEYMODULE_REPLY_ARRAY:
        HANDLE(arrayStart, state, reply->nodes);
        for (size_t i = 0; i < reply->nodes; i++) value_handle(handlers, state, &reply->children[i]);
        HANDLE(arrayEnd, state);
        break;
    case VALKEYMODULE_REPLY_SET:
        HANDLE(setStart, state, reply->nodes);
        for (size_t i = 0; i < reply->nodes; i++) value_handle(handlers, state, &reply->children[i]);
        HANDLE(setEnd, state);
        break;
    case VALKEYMODULE_REPLY_MAP:
        HANDLE(mapStart, state, reply->nodes / 2);
        for (size_t i = 0; i < reply->nodes; i++) value_handle(handlers, state, &reply->children[i]);
        HANDLE(mapEnd, state);
        break;
    default: HANDLE(replyParsingError, state); break;
    }
}

/* Passes the reply, and frees it. NULL: there is none, which the functions learn, too. */
static void reply_handle(const ValkeyModuleReplyHandlers *handlers, void *state, ValkeyModuleCtx *ctx,
                         struct ValkeyModuleCallReply *reply) {
    static const struct ValkeyModuleCallReply none = {.type = VALKEYMODULE_REPLY_UNKNOWN};
    struct slice proto = reply ? call_reply_proto(reply) : SLICE("");
    bool parses = !handlers->onRespAvailable || handlers->onRespAvailable(state, ctx, proto.data, proto.len) != 0;
    if (parses) value_handle(handlers, state, reply ? reply : &none);
    if (reply) api_FreeCallReply(reply);
}

static void handle_free(struct ValkeyModuleCallArgvBlockedHandle *handle) {
    api_FreeCallReply(handle->promise);
    mem_free(handle);
}
static void argv_unblocked(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    struct ValkeyModuleCallArgvBlockedHandle *handle = data;
    reply_handle(&handle->handlers, handle->state, ctx, reply);
    handle_free(handle);
}

/* `resp_handlers` may be NULL, and may go when the function returns. */
int api_CallArgv(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int flags,
                 const ValkeyModuleReplyHandlers *resp_handlers, void *reply_ctx) {
    static const ValkeyModuleReplyHandlers none = {.version = VALKEYMODULE_REPLY_HANDLERS_VERSION};
    const ValkeyModuleReplyHandlers *handlers = resp_handlers ? resp_handlers : &none;
    if (argc < 1) {
        errno = EINVAL;
        return VALKEYMODULE_ERR;
    }
    struct ValkeyModuleCallReply *reply = call_argv(ctx, argc, argv, flags | VALKEYMODULE_CALL_ARGV_REPLY_EXACT);
    int error = reply ? 0 : errno;
    if (!reply || !reply->promise) {
        reply_handle(handlers, reply_ctx, ctx, reply);
        errno = error;
        return error ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
    }
    context_forget(ctx, OBJECT_REPLY, reply); /* the handle keeps it */
    reply->ctx = NULL;
    struct ValkeyModuleCallArgvBlockedHandle *handle = mem_alloc(sizeof *handle);
    *handle = (struct ValkeyModuleCallArgvBlockedHandle){reply, *handlers, reply_ctx};
    api_CallReplyPromiseSetUnblockHandler(reply, argv_unblocked, handle);
    if (handlers->onBlocked) handlers->onBlocked(reply_ctx, ctx, handle);
    return VALKEYMODULE_OK;
}
/* The handle is valid until the reply is available, or this function has succeeded. */
int api_CallArgvAbort(ValkeyModuleCallArgvBlockedHandle *handle) {
    if (api_CallReplyPromiseAbort(handle->promise, NULL) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    handle_free(handle);
    return VALKEYMODULE_OK;
}
