/* dict.c: dictionaries: ordered maps from bytes to pointers, for modules' own use. */
#include "lib/structures/radix_tree.h"
#include "lib/system/memory.h"
#include "module/context.h"

struct ValkeyModuleDict {
    struct radix_tree *tree;
};
struct ValkeyModuleDictIter {
    struct ValkeyModuleDict *dict;
    struct radix_iterator at;
    bool fresh; /* the element that the seek has found has not been returned */
};

ValkeyModuleDict *api_CreateDict(ValkeyModuleCtx *ctx) {
    struct ValkeyModuleDict *dict = mem_alloc(sizeof *dict);
    dict->tree = radix_tree_new();
    context_keep(ctx, OBJECT_DICT, dict);
    return dict;
}
void api_FreeDict(ValkeyModuleCtx *ctx, ValkeyModuleDict *d) {
    context_forget(ctx, OBJECT_DICT, d);
    radix_tree_free(d->tree, NULL);
    mem_free(d);
}
uint64_t api_DictSize(ValkeyModuleDict *d) {
    return radix_tree_len(d->tree);
}
size_t api_MallocSizeDict(ValkeyModuleDict *dict) {
    return mem_size(dict) + radix_tree_memory(dict->tree);
}

/* --- Elements --- */

/* VALKEYMODULE_ERR: it was there, and has been replaced, as in Valkey. */
int api_DictReplaceC(ValkeyModuleDict *d, void *key, size_t keylen, void *ptr) {
    void *old;
    bool is_new = radix_tree_set(d->tree, (struct slice){key, keylen}, ptr, &old);
    return is_new ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
int api_DictSetC(ValkeyModuleDict *d, void *key, size_t keylen, void *ptr) {
    void *old;
    if (radix_tree_find(d->tree, (struct slice){key, keylen}, &old)) return VALKEYMODULE_ERR;
    return api_DictReplaceC(d, key, keylen, ptr);
}
int api_DictSet(ValkeyModuleDict *d, ValkeyModuleString *key, void *ptr) {
    return api_DictSetC(d, key->data, key->len, ptr);
}
int api_DictReplace(ValkeyModuleDict *d, ValkeyModuleString *key, void *ptr) {
    return api_DictReplaceC(d, key->data, key->len, ptr);
}
void *api_DictGetC(ValkeyModuleDict *d, void *key, size_t keylen, int *nokey) {
    void *value = NULL;
    bool found = radix_tree_find(d->tree, (struct slice){key, keylen}, &value);
    if (nokey) *nokey = !found;
    return found ? value : NULL;
}
void *api_DictGet(ValkeyModuleDict *d, ValkeyModuleString *key, int *nokey) {
    return api_DictGetC(d, key->data, key->len, nokey);
}
int api_DictDelC(ValkeyModuleDict *d, void *key, size_t keylen, void *oldval) {
    void *value = NULL;
    if (!radix_tree_remove(d->tree, (struct slice){key, keylen}, &value)) return VALKEYMODULE_ERR;
    if (oldval) *(void **)oldval = value;
    return VALKEYMODULE_OK;
}
int api_DictDel(ValkeyModuleDict *d, ValkeyModuleString *key, void *oldval) {
    return api_DictDelC(d, key->data, key->len, oldval);
}

/* --- Iteration --- */

/* Returns 1, or 0 for an unknown operator, as Valkey does; its manual promises VALKEYMODULE_OK and VALKEYMODULE_ERR. */
int api_DictIteratorReseekC(ValkeyModuleDictIter *di, const char *op, void *key, size_t keylen) {
    static const struct {
        const char *op;
        enum radix_seek seek;
    } seeks[] = {{"^", RADIX_FIRST},        {"$", RADIX_LAST},  {"=", RADIX_EQUAL},        {"==", RADIX_EQUAL},
                 {">=", RADIX_AT_OR_ABOVE}, {">", RADIX_ABOVE}, {"<=", RADIX_AT_OR_BELOW}, {"<", RADIX_BELOW}};
    di->fresh = false;
    for (size_t i = 0; i < sizeof seeks / sizeof *seeks; i++) {
        if (strcmp(op, seeks[i].op) != 0) continue;
        di->fresh = radix_iterator_seek(&di->at, seeks[i].seek, (struct slice){key, keylen});
        return 1;
    }
    return 0;
}
int api_DictIteratorReseek(ValkeyModuleDictIter *di, const char *op, ValkeyModuleString *key) {
    return api_DictIteratorReseekC(di, op, key->data, key->len);
}
ValkeyModuleDictIter *api_DictIteratorStartC(ValkeyModuleDict *d, const char *op, void *key, size_t keylen) {
    struct ValkeyModuleDictIter *di = mem_calloc(1, sizeof *di);
    di->dict = d;
    radix_iterator_init(&di->at, d->tree);
    api_DictIteratorReseekC(di, op, key, keylen);
    return di;
}
ValkeyModuleDictIter *api_DictIteratorStart(ValkeyModuleDict *d, const char *op, ValkeyModuleString *key) {
    return api_DictIteratorStartC(d, op, key ? key->data : NULL, key ? key->len : 0);
}
void api_DictIteratorStop(ValkeyModuleDictIter *di) {
    radix_iterator_free(&di->at);
    mem_free(di);
}
static void *dict_step(ValkeyModuleDictIter *di, bool (*move)(struct radix_iterator *), size_t *keylen,
                       void **dataptr) {
    bool found = di->fresh || (di->at.valid && move(&di->at));
    di->fresh = false;
    if (!found) return NULL;
    if (keylen) *keylen = di->at.key.len;
    if (dataptr) *dataptr = di->at.value;
    return (void *)(uintptr_t)(di->at.key.data ? di->at.key.data : "");
}
void *api_DictNextC(ValkeyModuleDictIter *di, size_t *keylen, void **dataptr) {
    return dict_step(di, radix_iterator_next, keylen, dataptr);
}
void *api_DictPrevC(ValkeyModuleDictIter *di, size_t *keylen, void **dataptr) {
    return dict_step(di, radix_iterator_prev, keylen, dataptr);
}
ValkeyModuleString *api_DictNext(ValkeyModuleCtx *ctx, ValkeyModuleDictIter *di, void **dataptr) {
    size_t len;
    const char *key = api_DictNextC(di, &len, dataptr);
    return key ? context_string(ctx, (struct slice){key, len}) : NULL;
}
ValkeyModuleString *api_DictPrev(ValkeyModuleCtx *ctx, ValkeyModuleDictIter *di, void **dataptr) {
    size_t len;
    const char *key = api_DictPrevC(di, &len, dataptr);
    return key ? context_string(ctx, (struct slice){key, len}) : NULL;
}
int api_DictCompareC(ValkeyModuleDictIter *di, const char *op, void *key, size_t keylen) {
    if (!di->at.valid) return VALKEYMODULE_ERR;
    int order = slice_compare(di->at.key, (struct slice){key, keylen});
    bool equal = op[0] == '=' || (op[0] && op[1] == '=');
    bool holds = (equal && order == 0) || (op[0] == '>' && order > 0) || (op[0] == '<' && order < 0);
    return holds ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
int api_DictCompare(ValkeyModuleDictIter *di, const char *op, ValkeyModuleString *key) {
    return api_DictCompareC(di, op, key->data, key->len);
}
