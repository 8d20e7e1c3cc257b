/* extension.h: value types that are registered at run time (by modules).
 *
 * The value of such an entry is a struct extension_value, of type TYPE_EXTENSION: the registered type, and a value that
 * only the methods of that type understand. The store, the formats and the commands reach it through these methods. A
 * type stays registered as long as there may be values of it; a NULL method is one that the type does not have. */
#pragma once
#include "lib/structures/linked_list.h"
#include "store/entry.h"

struct db;
struct digest;
struct output;
struct rdb_reader;

/* Where a value is or will be. The key is valid during the call. */
struct extension_place {
    int db; /* its number; -1: in no database */
    struct slice key;
};
struct extension_type;
struct extension_methods {
    /* Any thread may call it: values are freed lazily. Never NULL. */
    void (*free)(const struct extension_type *type, void *value);
    /* As free_effort of struct value_ops; 0: always in the background. NULL: the effort is 1. */
    size_t (*free_effort)(const struct extension_type *type, const struct extension_place *place, const void *value);
    /* The value leaves its key in a database, and may be freed later. */
    void (*unlinked)(const struct extension_type *type, struct db *db, struct slice key, const void *value);
    /* NULL, or returns NULL: there is no copy. */
    void *(*copy)(const struct extension_type *type, const struct extension_place *from,
                  const struct extension_place *to, const void *value);
    size_t (*memory)(const struct extension_type *type, const struct extension_place *place, const void *value,
                     size_t samples);
    /* As `relocate` of struct value_ops. */
    uint64_t (*relocate)(const struct extension_type *type, const struct extension_place *place, void **value,
                         uint64_t cursor, struct relocation *r);
    void (*digest)(const struct extension_type *type, const struct extension_place *place, void *value,
                   struct digest *digest);
    /* Writes the items of a value, without the end (formats/rdb.h). Never NULL, nor is `read`. */
    void (*write)(const struct extension_type *type, const struct extension_place *place, void *value,
                  struct output *out);
    /* Reads them. NULL: it failed, or so did the source; then the caller frees a value. `version`: of the encoding. */
    void *(*read)(const struct extension_type *type, const struct extension_place *place, struct rdb_reader *in,
                  int version);
    /* Writes the commands that create the key. False: it cannot. */
    bool (*write_commands)(const struct extension_type *type, const struct extension_place *place, void *value,
                           struct output *out);
    /* Data of a type that belong to no key: a record of the file (formats/rdb_file.h), complete, or nothing. */
    void (*write_aux)(const struct extension_type *type, bool after_keys, struct output *out);
    /* NULL: the type has no such data. False: it cannot read them, or the source failed. */
    bool (*read_aux)(const struct extension_type *type, struct rdb_reader *in, int version, uint64_t when);
};
enum { EXTENSION_NAME = 9, EXTENSION_VERSION_BITS = 10 };
struct extension_type {
    struct list_link link;
    char name[EXTENSION_NAME + 1];
    uint64_t id; /* the name, and in the lowest EXTENSION_VERSION_BITS the version of the encoding: formats/rdb.h */
    const char *owner; /* the module, for the log */
    const struct extension_methods *methods;
    _Atomic size_t values; /* that exist, also those that a background thread will free */
};
struct extension_value {
    struct extension_type *type;
    void *value;
};

extern struct list extension_types;
/* The caller keeps the type until extension_unregister(); its name must be new. */
void extension_register(struct extension_type *type);
void extension_unregister(struct extension_type *type);
struct extension_type *extension_find(uint64_t id); /* of any version of the encoding */
struct extension_type *extension_find_name(struct slice name, bool ignore_case);

/* The structure of an entry, for the functions of the keyspace; it takes over the value. */
struct extension_value *extension_value_new(struct extension_type *type, void *value);
static inline struct extension_value *extension_of(const struct entry *entry) {
    return entry_value(entry);
}
