/* keys.h: ValkeyModuleKey: a key that a module has opened.
 *
 * An open key has the name and not the entry: each function looks the entry up again. So a key that the module changes
 * through Call, or that expires, is never a dangling pointer. */
#pragma once
#include "module/context.h"
#include "server/notify.h"
#include "store/before_change.h"
#include "store/zset.h"

struct ValkeyModuleKey {
    struct ValkeyModuleCtx *ctx;
    struct module *module;
    struct db *db;
    struct ValkeyModuleString *name;
    int mode;
    struct held_key held;                 /* opened for writing: a snapshot must know */
    char number_text[STRING_NUMBER_TEXT]; /* StringDMA of a number */
    struct {                              /* ZsetFirstIn…, ZsetLastIn… */
        bool active, ended;
        size_t first, count, at; /* the rank of the first, their number, and the current one among them */
    } range;
    struct key_stream *stream; /* StreamIteratorStart; NULL: no iterator */
};
void key_stream_stop(struct ValkeyModuleKey *key);
void key_created(struct ValkeyModuleKey *key); /* reports that the key is new */
/* The entry now; NULL: the key does not exist. */
struct entry *key_entry(const struct ValkeyModuleKey *key);
static inline struct slice key_name(const struct ValkeyModuleKey *key) {
    return module_string_slice(key->name);
}
static inline bool key_is_writable(const struct ValkeyModuleKey *key) {
    return key && key->mode & VALKEYMODULE_WRITE && !context_must_only_read();
}
/* The entry has the type, or does not exist and may be created (`creates`). */
bool key_has_type(const struct entry *entry, enum value_type type, bool creates);
/* A value from which elements were removed: deletes the key if it is empty. */
void key_removed(struct ValkeyModuleKey *key, bool empty);
/* A key for a callback, on the stack: not to be closed. */
void key_init(struct ValkeyModuleKey *key, struct ValkeyModuleCtx *ctx, struct ValkeyModuleString *name, int mode);
