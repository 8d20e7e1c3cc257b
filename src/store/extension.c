/* extension.c: see extension.h. */
#include "store/extension.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <stdatomic.h>

struct list extension_types = LIST_INIT(extension_types);

void extension_register(struct extension_type *type) {
    must(type->methods && type->methods->free && type->methods->write && type->methods->read);
    must(!extension_find(type->id));
    list_append(&extension_types, &type->link);
}
void extension_unregister(struct extension_type *type) {
    list_remove(&extension_types, &type->link);
}

struct extension_type *extension_find(uint64_t id) {
    list_each(&extension_types, link) {
        struct extension_type *type = container_of(link, struct extension_type, link);
        if (type->id >> EXTENSION_VERSION_BITS == id >> EXTENSION_VERSION_BITS) return type;
    }
    return NULL;
}
struct extension_type *extension_find_name(struct slice name, bool ignore_case) {
    list_each(&extension_types, link) {
        struct extension_type *type = container_of(link, struct extension_type, link);
        if (ignore_case ? slice_is(name, type->name) : slice_equal(name, slice_of(type->name))) return type;
    }
    return NULL;
}

struct extension_value *extension_value_new(struct extension_type *type, void *value) {
    struct extension_value *structure = mem_alloc(sizeof *structure);
    *structure = (struct extension_value){type, value};
    atomic_fetch_add_explicit(&type->values, 1, memory_order_relaxed);
    return structure;
}

static void structure_free(void *value, enum value_encoding encoding) {
    struct extension_value *structure = value;
    structure->type->methods->free(structure->type, structure->value);
    atomic_fetch_sub_explicit(&structure->type->values, 1, memory_order_release);
    mem_free(structure);
}
/* The other operations need the key: entry.c calls the methods itself. */
const struct value_ops extension_ops = {.free = structure_free};
