/* types.h: value types of modules: store/extension.h with the methods of a module. */
#pragma once
#include "lib/system/relocate.h"
#include "module/context.h"
#include "store/extension.h"

struct ValkeyModuleType {
    struct extension_type extension;
    struct list_link link; /* in module->types */
    struct module *module;
    ValkeyModuleTypeMethods methods;
};
static inline struct ValkeyModuleType *module_type_of(const struct extension_type *extension) {
    return container_of((struct extension_type *)(uintptr_t)extension, struct ValkeyModuleType, extension);
}

/* types_io.c: the methods that read and write values. */
void module_type_write(const struct extension_type *extension, const struct extension_place *place, void *value,
                       struct output *out);
void *module_type_read(const struct extension_type *extension, const struct extension_place *place,
                       struct rdb_reader *in, int version);
bool module_type_write_commands(const struct extension_type *extension, const struct extension_place *place,
                                void *value, struct output *out);
void module_type_write_aux(const struct extension_type *extension, bool after_keys, struct output *out);
bool module_type_read_aux(const struct extension_type *extension, struct rdb_reader *in, int version, uint64_t when);

/* OnLoad has failed: unregisters the types, and deletes the values that it has stored under keys. */
void module_types_withdraw(struct module *module);

/* types_defrag.c */
uint64_t module_type_relocate(const struct extension_type *extension, const struct extension_place *place, void **value,
                              uint64_t cursor, struct relocation *r);
