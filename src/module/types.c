/* types.c: value types of modules: creation, values of keys, and the methods that need neither a file nor the memory
 * walk. See types.h.
 *
 * A type stays registered until its module is unloaded, which is possible only while OnLoad fails: afterwards there may
 * be values of it anywhere. The values that such an OnLoad has stored are deleted. If a background thread is about to
 * free one, the type and the library stay, although nothing finds them any more. */
#include "module/types.h"
#include "formats/rdb.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/keys.h"
#include "server/command/propagate.h"
#include "server/debug/debug.h"
#include "server/server.h"
#include <stdatomic.h>

/* What the methods with a context know: the key of a value, and the key of a copy. */
struct ValkeyModuleKeyOptCtx {
    struct ValkeyModuleString *from_key, *to_key; /* NULL: there is none */
    int from_db, to_db;                           /* -1: there is none */
};
int api_GetDbIdFromOptCtx(ValkeyModuleKeyOptCtx *ctx) {
    return ctx->from_db;
}
int api_GetToDbIdFromOptCtx(ValkeyModuleKeyOptCtx *ctx) {
    return ctx->to_db;
}
const ValkeyModuleString *api_GetKeyNameFromOptCtx(ValkeyModuleKeyOptCtx *ctx) {
    return ctx->from_key;
}
const ValkeyModuleString *api_GetToKeyNameFromOptCtx(ValkeyModuleKeyOptCtx *ctx) {
    return ctx->to_key;
}
static struct ValkeyModuleKeyOptCtx about(const struct extension_place *place) {
    return (struct ValkeyModuleKeyOptCtx){.from_key = module_string_new(place->key), .from_db = place->db, .to_db = -1};
}
static void about_end(struct ValkeyModuleKeyOptCtx *ctx) {
    module_string_release(ctx->from_key);
    if (ctx->to_key) module_string_release(ctx->to_key);
}

/* --- Methods --- */

static void module_type_free(const struct extension_type *extension, void *value) {
    const struct ValkeyModuleType *type = module_type_of(extension);
    if (type->methods.free) type->methods.free(value);
}

static size_t module_type_free_effort(const struct extension_type *extension, const struct extension_place *place,
                                      const void *value) {
    const ValkeyModuleTypeMethods *methods = &module_type_of(extension)->methods;
    if (!methods->free_effort && !methods->free_effort2) return 1;
    struct ValkeyModuleKeyOptCtx ctx = about(place);
    size_t effort =
        methods->free_effort2 ? methods->free_effort2(&ctx, value) : methods->free_effort(ctx.from_key, value);
    about_end(&ctx);
    return effort;
}

/* Values of other keyspaces (a key that RESTORE builds, a copy that is given up) were never seen under their key. */
static void module_type_unlinked(const struct extension_type *extension, struct db *db, struct slice key,
                                 const void *value) {
    const ValkeyModuleTypeMethods *methods = &module_type_of(extension)->methods;
    if ((!methods->unlink && !methods->unlink2) || keyspace_db(server.keyspace, db_id(db)) != db) return;
    struct ValkeyModuleKeyOptCtx ctx = about(&(struct extension_place){db_id(db), key});
    store_settings.readers++;
    if (methods->unlink2)
        methods->unlink2(&ctx, value);
    else
        methods->unlink(ctx.from_key, value);
    store_settings.readers--;
    about_end(&ctx);
}

static void *module_type_copy(const struct extension_type *extension, const struct extension_place *from,
                              const struct extension_place *to, const void *value) {
    const ValkeyModuleTypeMethods *methods = &module_type_of(extension)->methods;
    struct ValkeyModuleKeyOptCtx ctx = about(from);
    ctx.to_key = module_string_new(to->key);
    ctx.to_db = to->db;
    void *copy = methods->copy2 ? methods->copy2(&ctx, value) : methods->copy(ctx.from_key, ctx.to_key, value);
    about_end(&ctx);
    return copy;
}

static size_t module_type_memory(const struct extension_type *extension, const struct extension_place *place,
                                 const void *value, size_t samples) {
    const ValkeyModuleTypeMethods *methods = &module_type_of(extension)->methods;
    if (!methods->mem_usage2) return methods->mem_usage ? methods->mem_usage(value) : 0;
    struct ValkeyModuleKeyOptCtx ctx = about(place);
    size_t bytes = methods->mem_usage2(&ctx, value, samples > INT64_MAX ? INT64_MAX : samples);
    about_end(&ctx);
    return bytes;
}

/* --- DEBUG DIGEST --- */

struct ValkeyModuleDigest {
    struct digest ordered, whole; /* of the sequence that is being added; of all that have ended */
    struct ValkeyModuleString *key;
    int db;
};
void api_DigestAddStringBuffer(ValkeyModuleDigest *md, const char *ele, size_t len) {
    digest_mix(&md->ordered, (struct slice){ele, len});
}
void api_DigestAddLongLong(ValkeyModuleDigest *md, long long ele) {
    char text[NUMBER_TEXT_MAX];
    digest_mix(&md->ordered, (struct slice){text, format_int64(text, ele)});
}
void api_DigestEndSequence(ValkeyModuleDigest *md) {
    digest_xor(&md->whole, slice_make(md->ordered.bytes, sizeof md->ordered.bytes));
    md->ordered = (struct digest){{0}};
}
int api_GetDbIdFromDigest(ValkeyModuleDigest *dig) {
    return dig->db;
}
const ValkeyModuleString *api_GetKeyNameFromDigest(ValkeyModuleDigest *dig) {
    return dig->key;
}
static void module_type_digest(const struct extension_type *extension, const struct extension_place *place, void *value,
                               struct digest *digest) {
    struct ValkeyModuleDigest md = {.key = module_string_new(place->key), .db = place->db};
    module_type_of(extension)->methods.digest(&md, value);
    digest_xor(digest, slice_make(md.whole.bytes, sizeof md.whole.bytes));
    module_string_release(md.key);
}

/* --- Creation --- */

/* Versions of the struct of methods, and where the members of the next one begin. */
static ValkeyModuleTypeMethods methods_of(const ValkeyModuleTypeMethods *given) {
    const size_t sizes[] = {offsetof(ValkeyModuleTypeMethods, aux_load), offsetof(ValkeyModuleTypeMethods, free_effort),
                            offsetof(ValkeyModuleTypeMethods, mem_usage2),
                            offsetof(ValkeyModuleTypeMethods, aux_save2)};
    ValkeyModuleTypeMethods methods = {0};
    size_t older = given->version - 1;
    memcpy(&methods, given, older < sizeof sizes / sizeof *sizes ? sizes[older] : sizeof methods);
    return methods;
}

/* A method that the module does not have is NULL here, too. */
static const struct extension_methods *extension_methods_new(const ValkeyModuleTypeMethods *methods) {
    struct extension_methods *adapted = mem_alloc(sizeof *adapted);
    *adapted = (struct extension_methods){.free = module_type_free,
                                          .free_effort = module_type_free_effort,
                                          .unlinked = module_type_unlinked,
                                          .copy = methods->copy || methods->copy2 ? module_type_copy : NULL,
                                          .memory = module_type_memory,
                                          .relocate = methods->defrag ? module_type_relocate : NULL,
                                          .digest = methods->digest ? module_type_digest : NULL,
                                          .write = module_type_write,
                                          .read = module_type_read,
                                          .write_commands = methods->aof_rewrite ? module_type_write_commands : NULL,
                                          .write_aux = module_type_write_aux,
                                          .read_aux = methods->aux_load ? module_type_read_aux : NULL};
    return adapted;
}

ValkeyModuleType *api_CreateDataType(ValkeyModuleCtx *ctx, const char *name, int encver,
                                     ValkeyModuleTypeMethods *typemethods) {
    uint64_t id = rdb_extension_id(name, encver);
    if (!ctx->module->loading || !id || typemethods->version == 0 || extension_find(id)) return NULL;
    struct ValkeyModuleType *type = mem_calloc(1, sizeof *type);
    type->module = ctx->module;
    type->methods = methods_of(typemethods);
    type->extension.id = id;
    type->extension.owner = ctx->module->name;
    type->extension.methods = extension_methods_new(&type->methods);
    memcpy(type->extension.name, name, EXTENSION_NAME);
    extension_register(&type->extension);
    list_append(&ctx->module->types, &type->link);
    return type;
}

static size_t values_of(struct module *module) {
    size_t values = 0;
    list_each(&module->types, link) {
        struct ValkeyModuleType *type = container_of(link, struct ValkeyModuleType, link);
        values += atomic_load_explicit(&type->extension.values, memory_order_acquire);
    }
    return values;
}
static void keys_with_values_delete(struct db *db, const struct module *module) {
    struct ValkeyModuleString **keys = NULL;
    size_t count = 0;
    const struct entry *entry;
    struct db_iterator *iterator = db_iterate(db, -1);
    while ((entry = db_iterate_next(iterator))) {
        if (entry_type(entry) != TYPE_EXTENSION || module_type_of(extension_of(entry)->type)->module != module)
            continue;
        keys = mem_realloc(keys, (count + 1) * sizeof *keys);
        keys[count++] = module_string_new(entry_key(entry));
    }
    db_iterate_end(iterator);
    for (size_t i = 0; i < count; i++) {
        struct slice key = module_string_slice(keys[i]);
        db_delete(db, key, false);
        notify(db, NOTIFY_GENERIC, "del", key);
        propagate(db_id(db), 2, (struct slice[]){SLICE("DEL"), key}, NULL);
        module_string_release(keys[i]);
    }
    server.dirty += count;
    mem_free(keys);
}
void module_types_withdraw(struct module *module) {
    size_t values = values_of(module);
    if (values) log_warning("Module %s leaves %zu values of its own types: they are deleted.", module->path, values);
    for (int id = 0; values && id < keyspace_databases(server.keyspace); id++)
        keys_with_values_delete(keyspace_db(server.keyspace, id), module);
    list_each(&module->types, link) extension_unregister(&container_of(link, struct ValkeyModuleType, link)->extension);
}
bool module_types_drop(struct module *module) {
    if (values_of(module)) return false;
    list_each(&module->types, link) {
        struct ValkeyModuleType *type = container_of(link, struct ValkeyModuleType, link);
        list_remove(&module->types, link);
        mem_free((void *)(uintptr_t)type->extension.methods);
        mem_free(type);
    }
    return true;
}

/* --- Values of keys --- */

static struct extension_value *value_of(const struct ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    return entry && entry_type(entry) == TYPE_EXTENSION ? extension_of(entry) : NULL;
}
ValkeyModuleType *api_ModuleTypeGetType(ValkeyModuleKey *key) {
    const struct extension_value *structure = value_of(key);
    return structure ? module_type_of(structure->type) : NULL;
}
void *api_ModuleTypeGetValue(ValkeyModuleKey *key) {
    const struct extension_value *structure = value_of(key);
    return structure ? structure->value : NULL;
}
int api_ModuleTypeSetValue(ValkeyModuleKey *key, ValkeyModuleType *mt, void *value) {
    if (!key_is_writable(key) || key->range.active) return VALKEYMODULE_ERR;
    db_delete(key->db, key_name(key), false);
    db_add_value(key->db, key_name(key), TYPE_EXTENSION, ENCODING_EXTENSION,
                 extension_value_new(&mt->extension, value));
    db_changed(key->db, key_name(key));
    key_created(key);
    return VALKEYMODULE_OK;
}
int api_ModuleTypeReplaceValue(ValkeyModuleKey *key, ValkeyModuleType *mt, void *new_value, void **old_value) {
    struct extension_value *structure = value_of(key);
    if (!key_is_writable(key) || key->range.active || !structure || structure->type != &mt->extension)
        return VALKEYMODULE_ERR;
    if (old_value) *old_value = structure->value;
    structure->value = new_value;
    return VALKEYMODULE_OK;
}
