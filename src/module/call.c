/* call.c: Call and Replicate. See call.h.
 *
 * A call runs like a command of a script: an internal client issues it, nested in the call of the module's command if
 * there is one. Calls nest, so there is an internal client for each depth. What the command changes is propagated only
 * with the modifier '!'.
 *
 * With the modifier 'K' the command may wait. The reply is then a promise: the internal client stays with the command
 * until it has replied, and owns its wait (server/clients/blocking.h). What the command does then, and what the
 * module's function does that gets the reply, is one group of propagation. */
#include "module/call.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "module/users.h"
#include "script/script_run.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/maxmemory.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/errorstats.h"
#include <errno.h>
#include <stdio.h>

/* --- The arguments --- */

enum { ARGUMENTS_FIRST = 16 };
struct call_request {
    int argc, capacity;
    struct slice *argv;
    struct slice first[ARGUMENTS_FIRST];
    unsigned numbers;
    char number_text[ARGUMENTS_FIRST][NUMBER_TEXT_MAX];
    struct ValkeyModuleString **more; /* numbers that do not fit above; released by request_free() */
    unsigned more_count, more_capacity;
    int flags; /* VALKEYMODULE_CALL_ARGV_* */
};

static void request_add(struct call_request *request, struct slice argument) {
    if (request->argc == request->capacity) {
        bool on_stack = request->argv == request->first;
        request->capacity *= 2;
        request->argv = mem_realloc(on_stack ? NULL : request->argv, (size_t)request->capacity * sizeof argument);
        if (on_stack) memcpy(request->argv, request->first, sizeof request->first);
    }
    request->argv[request->argc++] = argument;
}
static void request_free(struct call_request *request) {
    if (request->argv != request->first) mem_free(request->argv);
    for (unsigned i = 0; i < request->more_count; i++) module_string_release(request->more[i]);
    mem_free(request->more);
}

static int modifier_of(char letter) {
    switch (letter) {
    case '!': return VALKEYMODULE_CALL_ARGV_REPLICATE;
    case 'A': return VALKEYMODULE_CALL_ARGV_NO_AOF;
    case 'R': return VALKEYMODULE_CALL_ARGV_NO_REPLICAS;
    case '3': return VALKEYMODULE_CALL_ARGV_RESP_3;
    case '0': return VALKEYMODULE_CALL_ARGV_RESP_AUTO;
    case 'C': return VALKEYMODULE_CALL_ARGV_RUN_AS_USER;
    case 'S': return VALKEYMODULE_CALL_ARGV_SCRIPT_MODE;
    case 'W': return VALKEYMODULE_CALL_ARGV_NO_WRITES;
    case 'M': return VALKEYMODULE_CALL_ARGV_RESPECT_DENY_OOM;
    case 'E': return VALKEYMODULE_CALL_ARGV_ERRORS_AS_REPLIES;
    case 'D': return VALKEYMODULE_CALL_ARGV_DRY_RUN | VALKEYMODULE_CALL_ARGV_ERRORS_AS_REPLIES;
    case 'K': return VALKEYMODULE_CALL_ARGV_ALLOW_BLOCK;
    case 'X': return VALKEYMODULE_CALL_ARGV_REPLY_EXACT;
    default: return 0;
    }
}

static void request_add_number(struct call_request *request, long long value) {
    if (request->numbers < ARGUMENTS_FIRST) {
        char *text = request->number_text[request->numbers++];
        request_add(request, (struct slice){text, format_int64(text, value)});
        return;
    }
    if (request->more_count == request->more_capacity) {
        request->more_capacity = request->more_capacity ? 2 * request->more_capacity : ARGUMENTS_FIRST;
        request->more = mem_realloc(request->more, request->more_capacity * sizeof *request->more);
    }
    char text[NUMBER_TEXT_MAX];
    struct ValkeyModuleString *string = module_string_new((struct slice){text, format_int64(text, value)});
    request->more[request->more_count++] = string;
    request_add(request, module_string_slice(string));
}

static void request_init(struct call_request *request) {
    request->argc = 0;
    request->argv = request->first;
    request->capacity = ARGUMENTS_FIRST;
    request->numbers = request->more_count = request->more_capacity = 0;
    request->more = NULL;
    request->flags = 0;
}

/* Arguments by a format: c: text; s: a string; b: bytes and their size_t number; l: long long; v: an array of strings
 * and its size_t length; the modifiers of Call. False: malformed. */
static bool request_parse(struct call_request *request, const char *name, const char *fmt, va_list arguments) {
    request_init(request);
    request_add(request, slice_of(name));
    for (const char *p = fmt; *p; p++) {
        if (*p == 'c') {
            request_add(request, slice_of(va_arg(arguments, const char *)));
        } else if (*p == 's') {
            request_add(request, module_string_slice(va_arg(arguments, const ValkeyModuleString *)));
        } else if (*p == 'b') {
            const char *bytes = va_arg(arguments, const char *);
            size_t len = va_arg(arguments, size_t);
            request_add(request, (struct slice){bytes, len});
        } else if (*p == 'l') {
            request_add_number(request, va_arg(arguments, long long));
        } else if (*p == 'v') {
            ValkeyModuleString **strings = va_arg(arguments, ValkeyModuleString **);
            size_t count = va_arg(arguments, size_t);
            for (size_t i = 0; i < count; i++) request_add(request, module_string_slice(strings[i]));
        } else {
            int modifier = modifier_of(*p);
            if (!modifier) return false;
            request->flags |= modifier;
        }
    }
    return true;
}

bool call_arguments(const char *name, const char *fmt, va_list arguments,
                    void (*use)(void *context, int argc, const struct slice *argv), void *context) {
    struct call_request request;
    bool valid = request_parse(&request, name, fmt, arguments);
    if (valid) use(context, request.argc, request.argv);
    request_free(&request);
    return valid;
}

/* --- The internal clients --- */

enum { REPLY_KEPT_MAX = 64 * 1024 };
struct call_promise {
    struct ValkeyModuleCallReply *reply; /* what the module has; NULL: it has freed it */
    struct module *module;
    int targets, targets_before;
    bool exact;
    ValkeyModuleOnUnblocked handler;
    void *data;
};
struct caller {
    struct caller *next; /* of those that are not in use */
    struct client *client;
    struct memory_output replies;
    struct blocking_owner owner; /* of the client's wait */
    struct list_link waits;      /* in `waiting`, with a promise */
    struct call_promise promise;
};
static void promise_begins(struct blocking_owner *owner);
static void promise_over(struct blocking_owner *owner, bool ended);
static struct caller *callers;
static struct list waiting = LIST_INIT(waiting);

static struct caller *caller_take(struct ValkeyModuleCtx *ctx, int flags) {
    enum { TAKEN = CLIENT_PRIMARY | CLIENT_LOADER | CLIENT_IMPORT_SOURCE | CLIENT_NO_TOUCH | CLIENT_READONLY };
    struct caller *caller = callers;
    if (caller) {
        callers = caller->next;
    } else {
        caller = mem_calloc(1, sizeof *caller);
        caller->client = client_new(NULL);
        caller->owner = (struct blocking_owner){.begins = promise_begins, .over = promise_over};
        memory_output_init_try(&caller->replies);
    }
    struct client *client = caller->client;
    memory_output_clear(&caller->replies);
    client->reply.out = &caller->replies.out;
    client->flags = CLIENT_INTERNAL | (ctx->client ? ctx->client->flags & TAKEN : 0);
    if (flags & VALKEYMODULE_CALL_ARGV_ALLOW_BLOCK)
        blocking_set_owner(client, &caller->owner);
    else
        client->flags |= CLIENT_DENY_BLOCKING;
    if (!(flags & VALKEYMODULE_CALL_ARGV_RESPECT_DENY_OOM)) client->flags |= CLIENT_OVER_MEMORY;
    client->db = ctx->db;
    client->user = &user_superuser;
    client->authenticated = true;
    client->reply.protocol = 2;
    if (flags & VALKEYMODULE_CALL_ARGV_RESP_3)
        client->reply.protocol = 3;
    else if (flags & VALKEYMODULE_CALL_ARGV_RESP_AUTO)
        client->reply.protocol = ctx->reply->protocol;
    client->slot = -1;
    return caller;
}
/* What a command leaves at its client (a transaction, watched keys, a name) ends with the call. */
static void caller_release(struct caller *caller) {
    struct client *client = caller->client;
    if (client->flags & CLIENT_CLOSING) { /* the command has freed it */
        memory_output_free(&caller->replies);
        mem_free(caller);
        return;
    }
    if (client->states) blocking_set_owner(client, NULL);
    if (client->states || client->name) client_reset(client);
    caller->next = callers;
    callers = caller;
}

/* --- Checks --- */

struct refusal {
    int error; /* errno */
    char text[DISPATCH_UNKNOWN_TEXT + 16];
};
static bool refused(struct refusal *refusal, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool refused(struct refusal *refusal, int error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->text, sizeof refusal->text, format, arguments);
    va_end(arguments);
    refusal->error = error;
    return true;
}

/* Of a call in script mode: what refuses a script's commands refuses it. */
static bool refuse_by_state(struct refusal *refusal, struct client *client, const struct command *command,
                            const struct call_request *request) {
    uint32_t flags = command->spec->flags;
    if (script_denies(command))
        return refused(refusal, ESPIPE, "ERR command '%s' is not allowed on script mode", command->full_name);
    enum { ORDERS = FILTER_BIT(FILTER_DISK) | FILTER_BIT(FILTER_REPLICAS) | FILTER_BIT(FILTER_READONLY) };
    bool obeyed = client_must_be_obeyed(client);
    if (!obeyed && flags & CMD_WRITE) {
        const char *error = dispatch_ask(client, command, flags, request->argc, request->argv, ORDERS);
        if (error) return refused(refusal, strncmp(error, "READONLY", 8) == 0 ? EROFS : ESPIPE, "%s", error);
    }
    if (!obeyed && !(flags & CMD_STALE) && role_is_stale())
        return refused(refusal, ESPIPE,
                       "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    return false;
}

static bool refuse(struct refusal *refusal, struct ValkeyModuleCtx *ctx, struct client *client, struct command *command,
                   const struct command *parent, const struct call_request *request) {
    if (!command) {
        char text[DISPATCH_UNKNOWN_TEXT];
        dispatch_unknown_text(text, request->argc, request->argv, parent);
        return refused(refusal, ENOENT, "ERR %s", text);
    }
    if (!command_arity_ok(command, request->argc))
        return refused(refusal, EINVAL, "ERR wrong number of arguments for '%s' command", command->full_name);
    uint32_t flags = command->spec->flags;
    uint32_t writes = request->flags & VALKEYMODULE_CALL_ARGV_NO_WRITES ? CMD_WRITE : 0;
    if (context_must_only_read()) writes = CMD_WRITE | CMD_RUNS_SCRIPT | CMD_RUNS_QUEUED | CMD_NO_ASYNC_LOADING;
    if (store_settings.saving) writes |= CMD_MAY_REPLICATE;
    if (flags & writes)
        return refused(refusal, ENOSPC, "ERR Write command '%s' was called while write is not allowed.",
                       command->full_name);
    if (flags & CMD_RUNS_SCRIPT && script_running)
        return refused(refusal, ESPIPE, "ERR command '%s' is not allowed while a script runs", command->full_name);
    bool script = request->flags & VALKEYMODULE_CALL_ARGV_SCRIPT_MODE;
    bool of_script = ctx->flags & CONTEXT_SCRIPT && script_running;
    if (of_script && script_running->read_only && flags & (CMD_WRITE | CMD_MAY_REPLICATE))
        return refused(refusal, ESPIPE, "ERR Write commands are not allowed from read-only scripts.");
    bool full = of_script ? script_running->out_of_memory && !script_running->wrote &&
                                !(script_running->flags & SCRIPT_ALLOW_OOM)
                          : eviction_out_of_memory();
    if (request->flags & (VALKEYMODULE_CALL_ARGV_RESPECT_DENY_OOM | VALKEYMODULE_CALL_ARGV_SCRIPT_MODE) &&
        flags & CMD_DENYOOM && full)
        return refused(refusal, ENOSPC, "OOM command not allowed when used memory > 'maxmemory'.");
    if (script && refuse_by_state(refusal, client, command, request)) return true;
    if (request->flags & VALKEYMODULE_CALL_ARGV_RUN_AS_USER) {
        struct user *user = context_user(ctx);
        if (!user)
            return refused(refusal, ENOTSUP,
                           "ERR cannot run as user, no user directly attached to context or context's client");
        client->user = user;
        const char *error = user_refusal(client, command, request->argc, request->argv);
        if (error) return refused(refusal, EACCES, "%s", error);
    }
    if (server.cluster_enabled && !client_must_be_obeyed(client)) {
        const char *error =
            dispatch_ask(client, command, flags, request->argc, request->argv, FILTER_BIT(FILTER_CLUSTER));
        if (error && strncmp(error, "CLUSTERDOWN", 11) == 0)
            return refused(refusal, strstr(error, "write") ? EROFS : ENETDOWN, "%s", error);
        if (error) return refused(refusal, EPERM, "ERR Attempted to access a non local key in a cluster node");
    }
    return false;
}

/* --- The reply --- */

static int targets_of(int flags) {
    if (!(flags & VALKEYMODULE_CALL_ARGV_REPLICATE)) return 0;
    int targets = PROPAGATE_ALL;
    if (flags & VALKEYMODULE_CALL_ARGV_NO_AOF) targets &= ~PROPAGATE_AOF;
    if (flags & VALKEYMODULE_CALL_ARGV_NO_REPLICAS) targets &= ~PROPAGATE_REPLICAS;
    return targets;
}

static ValkeyModuleCallReply *keep_reply(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply) {
    if (ctx->flags & CONTEXT_AUTO_MEMORY) call_reply_set_context(reply, ctx);
    context_keep(ctx, OBJECT_REPLY, reply);
    return reply;
}

static ValkeyModuleCallReply *reply_of(ValkeyModuleCtx *ctx, struct slice written, bool exact) {
    char *proto = mem_try_alloc(written.len + 1);
    if (!proto) return keep_reply(ctx, call_reply_error(SLICE("OOM no memory is left for the reply")));
    if (written.len) memcpy(proto, written.data, written.len);
    proto[written.len] = 0;
    return keep_reply(ctx, call_reply_parse(proto, written.len, exact));
}

/* --- Promises --- */

static ValkeyModuleCallReply *promise_make(ValkeyModuleCtx *ctx, struct caller *caller, int flags) {
    struct ValkeyModuleCallReply *reply = mem_calloc(1, sizeof *reply);
    reply->root = true;
    reply->type = VALKEYMODULE_REPLY_PROMISE;
    reply->promise = &caller->promise;
    caller->promise = (struct call_promise){.reply = reply,
                                            .module = ctx->module,
                                            .targets = targets_of(flags),
                                            .exact = flags & VALKEYMODULE_CALL_ARGV_REPLY_EXACT};
    ctx->module->blocked++;
    list_append(&waiting, &caller->waits);
    return keep_reply(ctx, reply);
}
/* The module's reply is no promise any more. */
static void promise_end(struct caller *caller) {
    struct call_promise *promise = &caller->promise;
    list_remove(&waiting, &caller->waits);
    if (promise->reply) promise->reply->promise = NULL;
    must(promise->module->blocked > 0);
    promise->module->blocked--;
}
static void promise_begins(struct blocking_owner *owner) {
    struct caller *caller = container_of(owner, struct caller, owner);
    propagate_begin();
    caller->promise.targets_before = propagation_set_targets(caller->promise.targets);
}
static void promise_over(struct blocking_owner *owner, bool ended) {
    struct caller *caller = container_of(owner, struct caller, owner);
    struct call_promise promise = caller->promise;
    propagation_set_targets(promise.targets_before);
    if (ended) {
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, promise.module);
        ctx.db = caller->client->db;
        ctx.client = caller->client;
        ValkeyModuleCallReply *reply = reply_of(&ctx, memory_output_slice(&caller->replies), promise.exact);
        promise_end(caller);
        if (promise.handler)
            promise.handler(&ctx, reply, promise.data);
        else
            api_FreeCallReply(reply);
        context_end(&ctx);
        if (caller->replies.capacity > REPLY_KEPT_MAX) memory_output_free(&caller->replies);
        caller_release(caller);
    }
    propagate_end();
}
void call_promise_freed(struct ValkeyModuleCallReply *reply) {
    reply->promise->reply = NULL;
}
void api_CallReplyPromiseSetUnblockHandler(ValkeyModuleCallReply *reply, ValkeyModuleOnUnblocked on_unblock,
                                           void *private_data) {
    if (!reply || !reply->promise) return;
    reply->promise->handler = on_unblock;
    reply->promise->data = private_data;
}
int api_CallReplyPromiseAbort(ValkeyModuleCallReply *reply, void **private_data) {
    struct call_promise *promise = reply ? reply->promise : NULL;
    if (!promise) return VALKEYMODULE_ERR;
    struct caller *caller = container_of(promise, struct caller, promise);
    if (!blocking_cancel(caller->client)) return VALKEYMODULE_ERR;
    if (private_data) *private_data = promise->data;
    promise_end(caller);
    caller_release(caller);
    return VALKEYMODULE_OK;
}
/* An OnLoad that has failed may leave some. */
void module_promises_drop(const struct module *module) {
    list_each(&waiting, link) {
        struct caller *caller = container_of(link, struct caller, waits);
        if (caller->promise.module != module || !blocking_cancel(caller->client)) continue;
        promise_end(caller);
        caller_release(caller);
    }
}

/* --- The call --- */

/* Runs the request and frees it. NULL: errno says why there is no reply. */
static ValkeyModuleCallReply *request_run(ValkeyModuleCtx *ctx, struct call_request *request) {
    struct caller *caller = caller_take(ctx, request->flags);
    struct client *client = caller->client;
    if (ctx->module) ctx->module->calls++;
    struct request_rewrite rewrite = {.client = client, .argc = request->argc, .argv = request->argv};
    if (dispatch_rewrite) dispatch_rewrite(&rewrite);
    struct slice *own_argv = request->argv;
    request->argc = rewrite.argc;
    request->argv = (struct slice *)(uintptr_t)rewrite.argv;
    struct command *parent, *command = command_lookup(request->argc, request->argv, &parent);
    if (!command && client_must_be_obeyed(client))
        command = command_lookup_original(request->argc, request->argv, &parent);
    struct refusal refusal;
    ValkeyModuleCallReply *reply = NULL;
    int error = 0;
    bool waits = false;
    if (refuse(&refusal, ctx, client, command, parent, request)) {
        error = refusal.error;
        if (request->flags & VALKEYMODULE_CALL_ARGV_ERRORS_AS_REPLIES) {
            errorstats_count(&client->reply, slice_of(refusal.text));
            reply = keep_reply(ctx, call_reply_error(slice_of(refusal.text)));
        }
    } else if (!(request->flags & VALKEYMODULE_CALL_ARGV_DRY_RUN)) {
        context_group(ctx);
        /* What a script does is propagated. */
        bool of_script = ctx->flags & CONTEXT_SCRIPT && script_running;
        int before = propagation_set_targets(of_script ? PROPAGATE_ALL : targets_of(request->flags));
        if (of_script && command->spec->flags & CMD_WRITE) script_running->wrote = true;
        if (!dispatch_running()) dispatch_ticks = ticks_now();
        dispatch_call(client, command, request->argc, request->argv, client->slot);
        propagation_set_targets(before);
        struct slice written = memory_output_slice(&caller->replies);
        waits = request->flags & VALKEYMODULE_CALL_ARGV_ALLOW_BLOCK && blocking_command(client);
        if (waits)
            reply = promise_make(ctx, caller, request->flags);
        else /* none, of an unknown type, from CLIENT REPLY OFF and SYNC */
            reply = reply_of(ctx, written, request->flags & VALKEYMODULE_CALL_ARGV_REPLY_EXACT);
        if (!waits && caller->replies.capacity > REPLY_KEPT_MAX) memory_output_free(&caller->replies);
    } else {
        reply = reply_of(ctx, (struct slice){0}, false); /* it would have been called */
    }
    if (!waits) caller_release(caller);
    if (rewrite.free) rewrite.free(&rewrite);
    request->argv = own_argv;
    if (ctx->module) ctx->module->calls--;
    request_free(request);
    errno = error;
    return reply;
}

ValkeyModuleCallReply *api_Call(ValkeyModuleCtx *ctx, const char *cmdname, const char *fmt, ...) {
    struct call_request request;
    va_list arguments;
    va_start(arguments, fmt);
    bool valid = request_parse(&request, cmdname, fmt, arguments);
    va_end(arguments);
    if (valid) return request_run(ctx, &request);
    request_free(&request);
    errno = EBADF;
    return NULL;
}

ValkeyModuleCallReply *call_argv(ValkeyModuleCtx *ctx, int argc, ValkeyModuleString **argv, int flags) {
    struct call_request request;
    request_init(&request);
    for (int i = 0; i < argc; i++) request_add(&request, module_string_slice(argv[i]));
    request.flags = flags;
    return request_run(ctx, &request);
}

int api_Replicate(ValkeyModuleCtx *ctx, const char *cmdname, const char *fmt, ...) {
    struct call_request request;
    va_list arguments;
    va_start(arguments, fmt);
    bool valid = request_parse(&request, cmdname, fmt, arguments);
    va_end(arguments);
    struct command *parent;
    if (!valid || !command_lookup(request.argc, request.argv, &parent)) {
        request_free(&request);
        return VALKEYMODULE_ERR;
    }
    if (store_settings.saving) {
        request_free(&request);
        return VALKEYMODULE_OK;
    }
    int targets = targets_of(request.flags | VALKEYMODULE_CALL_ARGV_REPLICATE);
    context_group(ctx);
    int before = propagation_set_targets(targets);
    propagate(db_id(ctx->db), request.argc, request.argv, NULL);
    propagation_set_targets(before);
    server.dirty++;
    request_free(&request);
    return VALKEYMODULE_OK;
}
