/* filters.c: command filters: functions of modules that may change the arguments of each command before anything else
 * is done with it, whether a client, a script or a module issues it. */
#include "lib/system/memory.h"
#include "module/context.h"
#include "server/command/dispatch.h"
#include "server/clients/client.h"

struct ValkeyModuleCommandFilter {
    struct list_link link;        /* in module->filters */
    struct list_link filter_link; /* in `filters` */
    struct module *module;
    ValkeyModuleCommandFilterFunc function;
    int flags;
};
static struct list filters = LIST_INIT(filters);

/* An argument is a string from its first use by a filter on. */
struct filtered_argument {
    struct slice bytes;
    struct ValkeyModuleString *string; /* NULL: `bytes` is of the request */
};
struct ValkeyModuleCommandFilterCtx {
    struct client *client;
    int argc, capacity;
    struct filtered_argument *argv;
    bool changed;
    struct slice *result;
};

static void filtered_free(struct ValkeyModuleCommandFilterCtx *ctx) {
    for (int i = 0; i < ctx->argc; i++)
        if (ctx->argv[i].string) module_string_release(ctx->argv[i].string);
    mem_free(ctx->argv);
    mem_free(ctx->result);
    mem_free(ctx);
}
static void rewrite_free(struct request_rewrite *rewrite) {
    filtered_free(rewrite->state);
}
static void rewrite_keep(struct request_rewrite *rewrite) {
    struct ValkeyModuleCommandFilterCtx *ctx = rewrite->state;
    for (int i = 0; i < ctx->argc; i++) {
        struct filtered_argument *argument = &ctx->argv[i];
        if (!argument->string) argument->string = module_string_new(argument->bytes);
        ctx->result[i] = module_string_slice(argument->string);
    }
}

static void filters_run(struct request_rewrite *rewrite) {
    if (rewrite->client->flags & CLIENT_LOADER) return;
    struct ValkeyModuleCommandFilterCtx *ctx = NULL;
    list_each(&filters, link) {
        struct ValkeyModuleCommandFilter *filter = container_of(link, struct ValkeyModuleCommandFilter, filter_link);
        if (filter->flags & VALKEYMODULE_CMDFILTER_NOSELF && filter->module->calls) continue;
        if (!ctx) {
            ctx = mem_calloc(1, sizeof *ctx);
            ctx->client = rewrite->client;
            ctx->argc = ctx->capacity = rewrite->argc;
            ctx->argv = mem_calloc((size_t)ctx->argc, sizeof *ctx->argv);
            for (int i = 0; i < ctx->argc; i++) ctx->argv[i].bytes = rewrite->argv[i];
        }
        filter->function(ctx);
        if (rewrite->client->flags & CLIENT_CLOSING) break; /* the filter has closed it */
    }
    if (!ctx) return;
    if (!ctx->changed || ctx->argc == 0) {
        filtered_free(ctx);
        return;
    }
    ctx->result = mem_alloc((size_t)ctx->argc * sizeof *ctx->result);
    for (int i = 0; i < ctx->argc; i++)
        ctx->result[i] = ctx->argv[i].string ? module_string_slice(ctx->argv[i].string) : ctx->argv[i].bytes;
    rewrite->argc = ctx->argc;
    rewrite->argv = ctx->result;
    rewrite->state = ctx;
    rewrite->free = rewrite_free;
    rewrite->keep = rewrite_keep;
}

/* --- What a filter asks and changes --- */

int api_CommandFilterArgsCount(ValkeyModuleCommandFilterCtx *fctx) {
    return fctx->argc;
}
/* The string lives as long as the filter runs. */
ValkeyModuleString *api_CommandFilterArgGet(ValkeyModuleCommandFilterCtx *fctx, int pos) {
    if (pos < 0 || pos >= fctx->argc) return NULL;
    struct filtered_argument *argument = &fctx->argv[pos];
    if (!argument->string) argument->string = module_string_new(argument->bytes);
    return argument->string;
}
/* The argument is the server's from here on. */
int api_CommandFilterArgInsert(ValkeyModuleCommandFilterCtx *fctx, int pos, ValkeyModuleString *arg) {
    if (pos < 0 || pos > fctx->argc) return VALKEYMODULE_ERR;
    if (fctx->argc == fctx->capacity) {
        fctx->capacity = 2 * fctx->capacity + 1;
        fctx->argv = mem_realloc(fctx->argv, (size_t)fctx->capacity * sizeof *fctx->argv);
    }
    memmove(fctx->argv + pos + 1, fctx->argv + pos, (size_t)(fctx->argc - pos) * sizeof *fctx->argv);
    fctx->argv[pos] = (struct filtered_argument){.string = arg};
    fctx->argc++;
    fctx->changed = true;
    return VALKEYMODULE_OK;
}
int api_CommandFilterArgReplace(ValkeyModuleCommandFilterCtx *fctx, int pos, ValkeyModuleString *arg) {
    if (pos < 0 || pos >= fctx->argc) return VALKEYMODULE_ERR;
    if (fctx->argv[pos].string) module_string_release(fctx->argv[pos].string);
    fctx->argv[pos].string = arg;
    fctx->changed = true;
    return VALKEYMODULE_OK;
}
int api_CommandFilterArgDelete(ValkeyModuleCommandFilterCtx *fctx, int pos) {
    if (pos < 0 || pos >= fctx->argc) return VALKEYMODULE_ERR;
    if (fctx->argv[pos].string) module_string_release(fctx->argv[pos].string);
    fctx->argc--;
    memmove(fctx->argv + pos, fctx->argv + pos + 1, (size_t)(fctx->argc - pos) * sizeof *fctx->argv);
    fctx->changed = true;
    return VALKEYMODULE_OK;
}
unsigned long long api_CommandFilterGetClientId(ValkeyModuleCommandFilterCtx *fctx) {
    return fctx->client->id;
}

/* --- Registration --- */

static void filter_end(struct ValkeyModuleCommandFilter *filter) {
    list_remove(&filters, &filter->filter_link);
    list_remove(&filter->module->filters, &filter->link);
    mem_free(filter);
    dispatch_rewrite = filters.len ? filters_run : NULL;
}
ValkeyModuleCommandFilter *api_RegisterCommandFilter(ValkeyModuleCtx *ctx, ValkeyModuleCommandFilterFunc cb,
                                                     int flags) {
    struct ValkeyModuleCommandFilter *filter = mem_calloc(1, sizeof *filter);
    filter->module = ctx->module;
    filter->function = cb;
    filter->flags = flags;
    list_append(&ctx->module->filters, &filter->link);
    list_append(&filters, &filter->filter_link);
    dispatch_rewrite = filters_run;
    return filter;
}
int api_UnregisterCommandFilter(ValkeyModuleCtx *ctx, ValkeyModuleCommandFilter *filter) {
    list_each(&ctx->module->filters, link) {
        struct ValkeyModuleCommandFilter *own = container_of(link, struct ValkeyModuleCommandFilter, link);
        if (own != filter) continue;
        filter_end(own);
        return VALKEYMODULE_OK;
    }
    return VALKEYMODULE_ERR; /* another module's, or one that has ended */
}
void module_filters_drop(struct module *module) {
    list_each(&module->filters, link) filter_end(container_of(link, struct ValkeyModuleCommandFilter, link));
}
