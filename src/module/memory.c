/* memory.c: memory of modules: it is counted and limited like the server's own. */
#include "lib/system/memory.h"
#include "module/context.h"

void *api_Alloc(size_t bytes) {
    return mem_alloc(bytes);
}
void *api_TryAlloc(size_t bytes) {
    return mem_try_alloc(bytes);
}
void *api_Calloc(size_t nmemb, size_t size) {
    return mem_calloc(nmemb, size);
}
void *api_TryCalloc(size_t nmemb, size_t size) {
    return mem_try_calloc(nmemb, size);
}
void *api_Realloc(void *ptr, size_t bytes) {
    return mem_realloc(ptr, bytes);
}
void *api_TryRealloc(void *ptr, size_t bytes) {
    return mem_try_realloc(ptr, bytes);
}
void api_Free(void *ptr) {
    mem_free(ptr);
}
char *api_Strdup(const char *str) {
    return mem_strdup(str);
}
size_t api_MallocSize(void *ptr) {
    return mem_size(ptr);
}
size_t api_MallocUsableSize(void *ptr) {
    return mem_size(ptr);
}
size_t api_MallocSizeString(ValkeyModuleString *str) {
    return mem_size(str) + (str->data == str->own ? 0 : mem_size(str->data));
}

/* Memory that is freed when the context ends: blocks from which small pieces are cut. */
enum { BLOCK_BYTES = 8 * 1024 };
struct context_block {
    struct context_block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
};

void *api_PoolAlloc(ValkeyModuleCtx *ctx, size_t bytes) {
    if (!bytes) return NULL;
    size_t align = bytes >= sizeof(void *) ? sizeof(void *) : 1;
    struct context_block *block = ctx->blocks;
    size_t at = block ? (block->used + align - 1) / align * align : 0;
    if (!block || bytes > block->size - at || at > block->size) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = mem_alloc(sizeof *block + size);
        *block = (struct context_block){.next = ctx->blocks, .size = size};
        ctx->blocks = block;
        at = 0;
    }
    block->used = at + bytes;
    return block->bytes + at;
}
void context_blocks_free(struct ValkeyModuleCtx *ctx) {
    for (struct context_block *block = ctx->blocks, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
    ctx->blocks = NULL;
}
