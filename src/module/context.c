/* context.c: see context.h. */
#include "module/context.h"
#include "lib/system/memory.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/server.h"

static struct null_output nowhere;
static struct reply nobody = {.protocol = 2};

static int context_get_api(const char *name, void *function) {
    void *found = api_find(name);
    if (!found) return VALKEYMODULE_ERR;
    memcpy(function, &found, sizeof found);
    return VALKEYMODULE_OK;
}
int api_GetApi(const char *name, void *function) {
    return context_get_api(name, function);
}

void context_init(struct ValkeyModuleCtx *ctx, struct module *module) {
    if (!nobody.out) {
        null_output_init(&nowhere);
        nobody.out = &nowhere.out;
    }
    *ctx = (struct ValkeyModuleCtx){.get_api = context_get_api, .module = module, .reply = &nobody};
    ctx->db = server.keyspace ? keyspace_db(server.keyspace, 0) : NULL;
}

void context_init_command(struct ValkeyModuleCtx *ctx, struct module *module, struct call *call) {
    context_init(ctx, module);
    ctx->client = call->client;
    ctx->call = call;
    ctx->db = call->db;
    ctx->reply = call->reply;
    ctx->flags = CONTEXT_COMMAND;
    ctx->began = dispatch_ticks;
}

void call_shows_data(struct client *client) {
    if (!reply_barrier_armed || reply_barrier_refusal()) return;
    reply_barrier_before_call(client, CMD_MODULE | CMD_SHOWS_DATA);
}

bool context_must_only_read(void) {
    return store_settings.readers > 0;
}

void context_group(struct ValkeyModuleCtx *ctx) {
    if (ctx->flags & (CONTEXT_COMMAND | CONTEXT_GROUPED | CONTEXT_THREAD_SAFE)) return;
    ctx->flags |= CONTEXT_GROUPED;
    propagate_begin();
}

void context_keep(struct ValkeyModuleCtx *ctx, int kind, void *object) {
    if (!ctx || !(ctx->flags & CONTEXT_AUTO_MEMORY) || !object) return;
    if (ctx->objects_count == ctx->objects_capacity) {
        ctx->objects_capacity = ctx->objects_capacity ? 2 * ctx->objects_capacity : 16;
        ctx->objects = mem_realloc(ctx->objects, ctx->objects_capacity * sizeof *ctx->objects);
    }
    ctx->objects[ctx->objects_count].kind = kind;
    ctx->objects[ctx->objects_count++].object = object;
}

void context_forget(struct ValkeyModuleCtx *ctx, int kind, void *object) {
    if (!ctx || !(ctx->flags & CONTEXT_AUTO_MEMORY)) return;
    for (unsigned i = ctx->objects_count; i-- > 0;) { /* the newest first: most objects live shortly */
        if (ctx->objects[i].object != object || (int)ctx->objects[i].kind != kind) continue;
        ctx->objects[i] = ctx->objects[--ctx->objects_count];
        return;
    }
}

struct ValkeyModuleString *context_string(struct ValkeyModuleCtx *ctx, struct slice bytes) {
    struct ValkeyModuleString *string = module_string_new(bytes);
    context_keep(ctx, OBJECT_STRING, string);
    return string;
}

static void objects_free(struct ValkeyModuleCtx *ctx) {
    ctx->flags &= ~(uint32_t)CONTEXT_AUTO_MEMORY;
    while (ctx->objects_count) {
        struct context_object object = ctx->objects[--ctx->objects_count];
        switch (object.kind) {
        case OBJECT_STRING: module_string_release(object.object); break;
        case OBJECT_KEY: api_CloseKey(object.object); break;
        case OBJECT_REPLY: api_FreeCallReply(object.object); break;
        case OBJECT_DICT: api_FreeDict(NULL, object.object); break;
        case OBJECT_INFO: api_FreeServerInfo(NULL, object.object); break;
        }
    }
    mem_free(ctx->objects);
    ctx->objects = NULL;
    ctx->objects_capacity = 0;
}

void context_end(struct ValkeyModuleCtx *ctx) {
    if (ctx->postponed) context_postponed_end(ctx);
    if (ctx->objects) objects_free(ctx);
    if (ctx->blocks) context_blocks_free(ctx);
    if (ctx->flags & CONTEXT_YIELDED) context_yield_end();
    if (ctx->flags & CONTEXT_GROUPED) propagate_end();
    ctx->flags &= ~(uint32_t)CONTEXT_GROUPED;
}

void api_AutoMemory(ValkeyModuleCtx *ctx) {
    ctx->flags |= CONTEXT_AUTO_MEMORY;
}
