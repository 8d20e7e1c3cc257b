/* types_defrag.c: active defragmentation of modules: their values, and what they keep elsewhere.
 *
 * The walk (store/relocate_keys.h) passes a cursor: 0 at first, then what the last call returned. The cursor of the
 * module may be 0 at any time, so what the walk gets is one more. */
#include "module/types.h"
#include "server/defrag.h"

struct ValkeyModuleDefragCtx {
    struct relocation *walk;
    uint64_t until;        /* blocks: the call must stop there, and goes on later; 0: it does all at once */
    unsigned long *cursor; /* NULL: the call does all at once */
    struct ValkeyModuleString *key;
    int db;
};

void *api_DefragAlloc(ValkeyModuleDefragCtx *ctx, void *ptr) {
    void *copy = relocate_begin(ctx->walk, ptr);
    if (copy) relocate_end(ptr);
    return copy;
}
ValkeyModuleString *api_DefragValkeyModuleString(ValkeyModuleDefragCtx *ctx, ValkeyModuleString *str) {
    if (__atomic_load_n(&str->references, __ATOMIC_RELAXED) != 1) return NULL;
    if (str->data != str->own) relocate_block(ctx->walk, (void **)&str->data);
    struct ValkeyModuleString *copy = relocate_begin(ctx->walk, str);
    if (!copy) return NULL;
    if (str->data == str->own) copy->data = copy->own;
    relocate_end(str);
    return copy;
}
int api_DefragShouldStop(ValkeyModuleDefragCtx *ctx) {
    return ctx->until && ctx->walk->moved + ctx->walk->stayed >= ctx->until;
}
int api_DefragCursorSet(ValkeyModuleDefragCtx *ctx, unsigned long cursor) {
    if (!ctx->cursor) return VALKEYMODULE_ERR;
    *ctx->cursor = cursor;
    return VALKEYMODULE_OK;
}
int api_DefragCursorGet(ValkeyModuleDefragCtx *ctx, unsigned long *cursor) {
    if (!ctx->cursor) return VALKEYMODULE_ERR;
    *cursor = *ctx->cursor;
    return VALKEYMODULE_OK;
}
int api_GetDbIdFromDefragCtx(ValkeyModuleDefragCtx *ctx) {
    return ctx->db;
}
const ValkeyModuleString *api_GetKeyNameFromDefragCtx(ValkeyModuleDefragCtx *ctx) {
    return ctx->key;
}

uint64_t module_type_relocate(const struct extension_type *extension, const struct extension_place *place, void **value,
                              uint64_t cursor, struct relocation *r) {
    const struct ValkeyModuleType *type = module_type_of(extension);
    unsigned long at = cursor ? (unsigned long)(cursor - 1) : 0;
    size_t effort = cursor ? SIZE_MAX : extension->methods->free_effort(extension, place, *value);
    struct ValkeyModuleDefragCtx ctx = {.walk = r, .key = module_string_new(place->key), .db = place->db};
    if (effort > r->limit) {
        ctx.cursor = &at;
        ctx.until = r->moved + r->stayed + r->limit;
    }
    bool more = type->methods.defrag(&ctx, ctx.key, value) != 0;
    module_string_release(ctx.key);
    return ctx.cursor && more ? (uint64_t)at + 1 : 0;
}

/* --- What modules keep elsewhere --- */

static void defrag_modules(struct relocation *r) {
    list_each(modules_all(), link) {
        struct module *module = container_of(link, struct module, link);
        struct ValkeyModuleDefragCtx ctx = {.walk = r, .db = -1};
        if (module->defrag) module->defrag(&ctx);
    }
}
int api_RegisterDefragFunc(ValkeyModuleCtx *ctx, ValkeyModuleDefragFunc func) {
    ctx->module->defrag = func;
    defrag_more = defrag_modules;
    return VALKEYMODULE_OK;
}
