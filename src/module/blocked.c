/* blocked.c: see blocked.h. */
#include "module/blocked.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "script/script_run.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include <errno.h>

static struct list pending = LIST_INIT(pending);

static void blocked_free(struct ValkeyModuleBlockedClient *bc) {
    if (bc->free_data && bc->data) {
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, bc->module);
        ctx.blocked = bc;
        bc->free_data(&ctx, bc->data);
        context_end(&ctx);
    }
    must(bc->module->blocked > 0);
    bc->module->blocked--;
    memory_output_free(&bc->output);
    memory_output_free(&bc->errors);
    mem_free(bc);
}

/* The wait is over: with a reply, with an error, by the end of the client. */
static void blocked_ended(void *state) {
    struct ValkeyModuleBlockedClient *bc = state;
    bool disconnected = bc->client->flags & CLIENT_CLOSING;
    bc->client = NULL;
    if (disconnected && bc->gone && !bc->replied) {
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, bc->module);
        ctx.flags |= CONTEXT_BLOCKED_GONE;
        bool within_command = dispatch_running() != NULL; /* see events.c: it uses its keys afterwards */
        store_settings.readers += within_command;
        bc->gone(&ctx, bc);
        store_settings.readers -= within_command;
        context_end(&ctx);
    }
    if (bc->unblocked || (bc->on_keys && !bc->asked)) blocked_free(bc);
}

struct ValkeyModuleBlockedClient *blocked_of_call(const struct call *call) {
    return call_wait(call, blocked_ended);
}

/* Calls a function of the module that replies. */
static int call_back(struct ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc, ValkeyModuleCmdFunc function,
                     uint32_t flag) {
    ctx->flags |= flag;
    ctx->blocked = bc;
    return function(ctx, ctx->argv, ctx->argc);
}

static void error_note(struct reply *reply, struct slice text) {
    struct ValkeyModuleBlockedClient *bc = container_of(reply, struct ValkeyModuleBlockedClient, reply);
    output_write(&bc->errors.out, text);
    output_write(&bc->errors.out, SLICE("\n"));
}
static void errors_count(struct reply *reply, const struct ValkeyModuleBlockedClient *bc) {
    struct slice left = memory_output_slice(&bc->errors);
    reply->failed += bc->reply.failed;
    while (left.len) {
        const char *end = memchr(left.data, '\n', left.len);
        size_t len = (size_t)(end - left.data);
        if (reply->error_hook) reply->error_hook(reply, (struct slice){left.data, len});
        left = (struct slice){end + 1, left.len - len - 1};
    }
}

static void call_timeout(struct ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc) {
    bc->replied = true;
    if (bc->timeout_function)
        call_back(ctx, bc, bc->timeout_function, CONTEXT_BLOCKED_TIMEOUT);
    else
        reply_null_array(ctx->reply);
}

/* A key may serve the client: the module decides. */
static void serve_key(struct ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc, struct slice key) {
    ctx->ready_key = module_string_new(key);
    int result = bc->reply_function ? call_back(ctx, bc, bc->reply_function, CONTEXT_BLOCKED_REPLY) : VALKEYMODULE_OK;
    module_string_release(ctx->ready_key);
    ctx->ready_key = NULL;
    if (result == VALKEYMODULE_OK)
        bc->replied = true;
    else
        call_block(ctx->call, &(struct blocking){.until_done = !bc->timeout_function && !bc->timed});
}

void blocked_serve(struct ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc) {
    struct slice key = call_ready_key(ctx->call);
    ctx->call->more_ticks += ticks_of_us(bc->measured_us);
    if (bc->on_keys && !bc->aborted) {
        if (key.data)
            serve_key(ctx, bc, key);
        else
            call_timeout(ctx, bc);
        return;
    }
    /* Its time is up, unless the module has let it go just before. */
    if (!bc->unblocked && !__atomic_load_n(&bc->asked, __ATOMIC_ACQUIRE)) {
        call_timeout(ctx, bc);
        return;
    }
    bc->replied = true;
    if (bc->aborted) return;
    struct slice written = memory_output_slice(&bc->output);
    if (written.len) reply_raw(ctx->reply, written);
    errors_count(ctx->reply, bc);
    if (bc->reply_function) call_back(ctx, bc, bc->reply_function, CONTEXT_BLOCKED_REPLY);
    if (ctx->client->conn) client_check_replies(ctx->client);
}

/* --- Blocking --- */

static struct ValkeyModuleBlockedClient *blocked_new(ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback,
                                                     ValkeyModuleCmdFunc timeout_callback,
                                                     void (*free_privdata)(ValkeyModuleCtx *, void *)) {
    struct ValkeyModuleBlockedClient *bc = mem_calloc(1, sizeof *bc);
    bc->module = ctx->module;
    bc->module->blocked++;
    bc->db = ctx->db;
    bc->reply_function = reply_callback;
    bc->timeout_function = timeout_callback;
    bc->free_data = free_privdata;
    memory_output_init_try(&bc->output);
    memory_output_init(&bc->errors);
    bc->reply = (struct reply){.out = &bc->output.out, .protocol = ctx->reply->protocol, .error_hook = error_note};
    event_loop_take_posts(server.loop);
    return bc;
}
/* False: the context may not block, and an error was replied. */
static bool block(ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc, struct blocking *how) {
    struct client *client = ctx->client;
    const char *error = NULL;
    if (!ctx->call || ctx->flags & CONTEXT_LISTENER || ctx->call->blocked || !call_may_block(ctx->call))
        error = script_running ? "ERR Blocking module command called from Lua script"
                               : "ERR Blocking module command called from transaction";
    else if (ctx->flags & CONTEXT_BLOCKED_REPLY)
        error = "ERR Blocking module command called from a Reply callback context";
    if (error) {
        reply_error(ctx->reply, error);
        return false;
    }
    bc->client = client;
    bc->client_id = client->id;
    how->state = bc;
    how->ended = blocked_ended;
    call_block(ctx->call, how);
    return true;
}

/* --- In a listener of a keyspace event the command has been executed, and its reply waits --- */

static void pinned_freed(struct client *client);
static struct client_listener pinned_listener = {.freed = pinned_freed};

static void pinned_freed(struct client *client) {
    struct ValkeyModuleBlockedClient *bc = client_state(client, &pinned_listener);
    if (!bc) return;
    client_set_state(client, &pinned_listener, NULL);
    bc->pinned = NULL;
    bc->client = client;
    blocked_ended(bc); /* the module is told, and calls UnblockClient */
}
static void pinned_continue(struct ValkeyModuleBlockedClient *bc) {
    struct client *client = bc->pinned;
    client_set_state(client, &pinned_listener, NULL);
    bc->pinned = NULL;
    reply_barrier_unpin(client);
}
/* NULL: the command may not wait. The module's functions for a reply and a timeout are not called. */
static ValkeyModuleBlockedClient *block_in_listener(ValkeyModuleCtx *ctx) {
    struct client *client = ctx->client;
    errno = ENOTSUP;
    if (!client || !client->conn || dispatch_is_nested() || dispatch_running()->blocked ||
        client->flags & (CLIENT_CLOSING | CLIENT_DENY_BLOCKING) || !reply_barrier_pin(client))
        return NULL;
    errno = 0;
    struct ValkeyModuleBlockedClient *bc = blocked_new(ctx, NULL, NULL, NULL);
    bc->pinned = client;
    bc->client_id = client->id;
    client_set_state(client, &pinned_listener, bc);
    return bc;
}

ValkeyModuleBlockedClient *api_BlockClient(ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback,
                                           ValkeyModuleCmdFunc timeout_callback,
                                           void (*free_privdata)(ValkeyModuleCtx *, void *), long long timeout_ms) {
    if (ctx->flags & CONTEXT_LISTENER) return block_in_listener(ctx);
    if (!ctx->client) { /* OnLoad, a timer: there is nobody to block */
        errno = EINVAL;
        return NULL;
    }
    struct ValkeyModuleBlockedClient *bc = blocked_new(ctx, reply_callback, timeout_callback, free_privdata);
    bool waits = timeout_ms > 0;
    block(ctx, bc,
          &(struct blocking){.timeout_ms = waits ? timeout_ms + (timeout_ms < INT64_MAX) : 0, /* a timer goes first */
                             .call_at_end = timeout_callback != NULL || waits,
                             .until_done = !timeout_callback && !waits});
    return bc;
}

ValkeyModuleBlockedClient *api_BlockClientOnKeysWithFlags(ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback,
                                                          ValkeyModuleCmdFunc timeout_callback,
                                                          void (*free_privdata)(ValkeyModuleCtx *, void *),
                                                          long long timeout_ms, ValkeyModuleString **keys, int numkeys,
                                                          void *privdata, int flags) {
    struct ValkeyModuleBlockedClient *bc = blocked_new(ctx, reply_callback, timeout_callback, free_privdata);
    bool waits = timeout_ms > 0;
    size_t count = numkeys > 0 ? (size_t)numkeys : 0;
    struct slice *names = mem_alloc((count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) names[i] = module_string_slice(keys[i]);
    bc->on_keys = true;
    bc->timed = waits;
    bc->data = privdata;
    if (!block(ctx, bc,
               &(struct blocking){.keys = names,
                                  .key_count = (int)count,
                                  .any_type = true,
                                  .unless_present = flags & VALKEYMODULE_BLOCK_UNBLOCK_DELETED,
                                  .timeout_ms = waits ? timeout_ms : 0,
                                  .call_at_end = timeout_callback != NULL || waits,
                                  .until_done = !timeout_callback && !waits})) {
        /* Nothing will serve it, and the module may use it or not: it lives as long as the module does. */
        bc->module->blocked--;
        list_append(&bc->module->refused, &bc->link);
    }
    mem_free(names);
    return bc;
}
ValkeyModuleBlockedClient *api_BlockClientOnKeys(ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback,
                                                 ValkeyModuleCmdFunc timeout_callback,
                                                 void (*free_privdata)(ValkeyModuleCtx *, void *), long long timeout_ms,
                                                 ValkeyModuleString **keys, int numkeys, void *privdata) {
    return api_BlockClientOnKeysWithFlags(ctx, reply_callback, timeout_callback, free_privdata, timeout_ms, keys,
                                          numkeys, privdata, VALKEYMODULE_BLOCK_UNBLOCK_DEFAULT);
}
void module_refused_drop(struct module *module) {
    list_each(&module->refused, link) {
        list_remove(&module->refused, link);
        module->blocked++;
        blocked_free(container_of(link, struct ValkeyModuleBlockedClient, link));
    }
}
void api_SignalKeyAsReady(ValkeyModuleCtx *ctx, ValkeyModuleString *key) {
    blocking_wake(ctx->db, module_string_slice(key));
}

static void blocked_continue(struct ValkeyModuleBlockedClient *bc) {
    bc->unblocked = true;
    if (bc->pinned) pinned_continue(bc);
    if (bc->client)
        blocking_call_again(bc->client); /* ends the wait, which frees it */
    else
        blocked_free(bc);
}

void blocked_before_wait(void) {
    if (server.loading) return; /* a reply function may change keys */
    while (pending.len) {
        struct ValkeyModuleBlockedClient *bc =
            container_of(list_first(&pending), struct ValkeyModuleBlockedClient, link);
        list_remove(&pending, &bc->link);
        blocked_continue(bc);
    }
}
static void blocked_posted(struct event_post *post) {
    struct ValkeyModuleBlockedClient *bc = container_of(post, struct ValkeyModuleBlockedClient, post);
    list_append(&pending, &bc->link);
    if (!dispatch_running()) blocked_before_wait();
}

int api_UnblockClient(ValkeyModuleBlockedClient *bc, void *privdata) {
    if (bc->asked || (bc->on_keys && !bc->timeout_function && !bc->aborted)) return VALKEYMODULE_ERR;
    if (list_is_linked(&bc->link)) return VALKEYMODULE_OK; /* refused */
    if (!bc->on_keys) bc->data = privdata;
    __atomic_store_n(&bc->asked, true, __ATOMIC_RELEASE);
    bc->post.run = blocked_posted;
    event_loop_post(server.loop, &bc->post);
    return VALKEYMODULE_OK;
}
int api_AbortBlock(ValkeyModuleBlockedClient *bc) {
    bc->reply_function = NULL;
    bc->gone = NULL;
    bc->aborted = true;
    return api_UnblockClient(bc, NULL);
}

/* --- Time that a module works for the client elsewhere --- */

int api_BlockedClientMeasureTimeStart(ValkeyModuleBlockedClient *bc) {
    bc->measure_began_us = clock_monotonic_us();
    return VALKEYMODULE_OK;
}
int api_BlockedClientMeasureTimeEnd(ValkeyModuleBlockedClient *bc) {
    if (!bc->measure_began_us) return VALKEYMODULE_ERR;
    bc->measured_us += clock_monotonic_us() - bc->measure_began_us;
    bc->measure_began_us = 0;
    return VALKEYMODULE_OK;
}

/* --- What the functions of modules ask --- */

ValkeyModuleString *api_GetBlockedClientReadyKey(ValkeyModuleCtx *ctx) {
    return ctx->ready_key;
}
int api_IsBlockedReplyRequest(ValkeyModuleCtx *ctx) {
    return !!(ctx->flags & CONTEXT_BLOCKED_REPLY);
}
int api_IsBlockedTimeoutRequest(ValkeyModuleCtx *ctx) {
    return !!(ctx->flags & CONTEXT_BLOCKED_TIMEOUT);
}
int api_BlockedClientDisconnected(ValkeyModuleCtx *ctx) {
    return !!(ctx->flags & CONTEXT_BLOCKED_GONE);
}
void *api_GetBlockedClientPrivateData(ValkeyModuleCtx *ctx) {
    return ctx->blocked ? ctx->blocked->data : NULL;
}
ValkeyModuleBlockedClient *api_GetBlockedClientHandle(ValkeyModuleCtx *ctx) {
    return ctx->blocked;
}
void *api_BlockClientGetPrivateData(ValkeyModuleBlockedClient *blocked_client) {
    return blocked_client->data;
}
void api_BlockClientSetPrivateData(ValkeyModuleBlockedClient *blocked_client, void *private_data) {
    blocked_client->data = private_data;
}
void api_SetDisconnectCallback(ValkeyModuleBlockedClient *bc, ValkeyModuleDisconnectFunc callback) {
    bc->gone = callback;
}
