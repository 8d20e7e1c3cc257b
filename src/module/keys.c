/* keys.c: OpenKey and what is common to all types; strings. See keys.h. */
#include "module/keys.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "server/clients/blocking.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/server.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream.h"
#include <errno.h>

enum { STRING_MAX = 512 * 1024 * 1024 };

struct entry *key_entry(const struct ValkeyModuleKey *key) {
    if (!key) return NULL;
    int changes = key_is_writable(key) ? LOOKUP_CHANGES : 0;
    return db_find(key->db, key_name(key), LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE | changes);
}
bool key_has_type(const struct entry *entry, enum value_type type, bool creates) {
    return entry ? entry_type(entry) == type : creates;
}
void key_removed(struct ValkeyModuleKey *key, bool empty) {
    if (empty)
        db_delete(key->db, key_name(key), false);
    else
        db_changed(key->db, key_name(key));
}
void key_init(struct ValkeyModuleKey *key, struct ValkeyModuleCtx *ctx, struct ValkeyModuleString *name, int mode) {
    *key = (struct ValkeyModuleKey){.ctx = ctx, .module = ctx->module, .db = ctx->db, .name = name, .mode = mode};
}

/* --- Open and close --- */

int api_GetOpenKeyModesAll(void) {
    return VALKEYMODULE_READ | VALKEYMODULE_WRITE | VALKEYMODULE_OPEN_KEY_NOTOUCH | VALKEYMODULE_OPEN_KEY_NONOTIFY |
           VALKEYMODULE_OPEN_KEY_NOSTATS | VALKEYMODULE_OPEN_KEY_NOEXPIRE | VALKEYMODULE_OPEN_KEY_NOEFFECTS;
}

static int lookup_flags_of(int mode) {
    int flags = mode & VALKEYMODULE_WRITE ? LOOKUP_WRITE : 0;
    if (mode & VALKEYMODULE_OPEN_KEY_NOTOUCH) flags |= LOOKUP_NOTOUCH;
    if (mode & VALKEYMODULE_OPEN_KEY_NOSTATS) flags |= LOOKUP_NOSTATS;
    if (mode & VALKEYMODULE_OPEN_KEY_NOEFFECTS) flags |= LOOKUP_NOTOUCH | LOOKUP_NOSTATS;
    return flags;
}

static struct slice held_name(const struct held_key *held) {
    return key_name(container_of(held, struct ValkeyModuleKey, held));
}

ValkeyModuleKey *api_OpenKey(ValkeyModuleCtx *ctx, ValkeyModuleString *keyname, int mode) {
    struct slice name = module_string_slice(keyname);
    if (mode & VALKEYMODULE_WRITE && context_must_only_read()) {
        errno = EROFS;
        return NULL;
    }
    /* A key that has expired is not found in any case, and is not deleted with these modes. */
    bool keeps =
        !(mode & VALKEYMODULE_WRITE) && mode & (VALKEYMODULE_OPEN_KEY_NOEXPIRE | VALKEYMODULE_OPEN_KEY_NOEFFECTS);
    store_settings.lookups_keep_expired += keeps;
    const struct entry *entry = db_find(ctx->db, name, lookup_flags_of(mode));
    store_settings.lookups_keep_expired -= keeps;
    if (!entry && !(mode & VALKEYMODULE_WRITE)) {
        if (!(mode & (VALKEYMODULE_OPEN_KEY_NONOTIFY | VALKEYMODULE_OPEN_KEY_NOEFFECTS)))
            notify(ctx->db, NOTIFY_KEY_MISS, "keymiss", name);
        errno = ENOENT;
        return NULL;
    }
    struct ValkeyModuleKey *key = mem_alloc(sizeof *key);
    key_init(key, ctx, module_string_hold(keyname), mode);
    if (mode & VALKEYMODULE_WRITE) {
        key->held = (struct held_key){.db = key->db, .name = held_name};
        list_append(&held_keys, &key->held.link);
    }
    context_keep(ctx, OBJECT_KEY, key);
    return key;
}
void api_CloseKey(ValkeyModuleKey *key) {
    if (!key) return;
    context_forget(key->ctx, OBJECT_KEY, key);
    if (key->mode & VALKEYMODULE_WRITE) list_remove(&held_keys, &key->held.link);
    bool signals = !(key->module->options & VALKEYMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED);
    /* What changed the key has called the commands that wait for it: a module whose function was called for it, and
     * that only looked, must not be called again. */
    if (key->mode & VALKEYMODULE_WRITE && signals) blocking_changed_quietly(key->db, key_name(key));
    key_stream_stop(key);
    module_string_release(key->name);
    mem_free(key);
}
int api_KeyExists(ValkeyModuleCtx *ctx, ValkeyModuleString *keyname) {
    return db_find(ctx->db, module_string_slice(keyname), LOOKUP_NOTOUCH | LOOKUP_NOSTATS) != NULL;
}
int api_SignalModifiedKey(ValkeyModuleCtx *ctx, ValkeyModuleString *keyname) {
    before_key_changes(ctx->db, module_string_slice(keyname));
    db_changed(ctx->db, module_string_slice(keyname));
    return VALKEYMODULE_OK;
}
const ValkeyModuleString *api_GetKeyNameFromModuleKey(ValkeyModuleKey *key) {
    return key ? key->name : NULL;
}
int api_GetDbIdFromModuleKey(ValkeyModuleKey *key) {
    return key ? db_id(key->db) : -1;
}

int api_KeyType(ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    if (!entry) return VALKEYMODULE_KEYTYPE_EMPTY;
    switch (entry_type(entry)) {
    case TYPE_STRING: return VALKEYMODULE_KEYTYPE_STRING;
    case TYPE_LIST: return VALKEYMODULE_KEYTYPE_LIST;
    case TYPE_SET: return VALKEYMODULE_KEYTYPE_SET;
    case TYPE_ZSET: return VALKEYMODULE_KEYTYPE_ZSET;
    case TYPE_HASH: return VALKEYMODULE_KEYTYPE_HASH;
    case TYPE_STREAM: return VALKEYMODULE_KEYTYPE_STREAM;
    case TYPE_EXTENSION: return VALKEYMODULE_KEYTYPE_MODULE;
    default: return VALKEYMODULE_KEYTYPE_EMPTY;
    }
}
size_t api_ValueLength(ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    if (!entry) return 0;
    switch (entry_type(entry)) {
    case TYPE_STRING: return entry_string_len(entry);
    case TYPE_LIST: return list_type_len(entry);
    case TYPE_SET: {
        struct set set = set_of(entry);
        return set_len(&set);
    }
    case TYPE_HASH: return hash_len(entry);
    case TYPE_STREAM: return (size_t)stream_of(entry)->length;
    case TYPE_ZSET: {
        struct zset zset = zset_of(entry);
        return zset_len(&zset);
    }
    default: return 0;
    }
}

static int key_delete(ValkeyModuleKey *key, bool lazy) {
    if (!key_is_writable(key)) return VALKEYMODULE_ERR;
    db_delete(key->db, key_name(key), lazy);
    key->range.active = false;
    return VALKEYMODULE_OK;
}
int api_DeleteKey(ValkeyModuleKey *key) {
    return key_delete(key, false);
}
int api_UnlinkKey(ValkeyModuleKey *key) {
    return key_delete(key, true);
}

/* --- Databases --- */

int api_GetSelectedDb(ValkeyModuleCtx *ctx) {
    return db_id(ctx->db);
}
int api_SelectDb(ValkeyModuleCtx *ctx, int newid) {
    struct db *db = newid < 0 ? NULL : keyspace_db(server.keyspace, newid);
    if (!db) return VALKEYMODULE_ERR;
    ctx->db = db;
    if (ctx->flags & CONTEXT_COMMAND) call_select(ctx->call, db); /* the client stays there, as after SELECT */
    return VALKEYMODULE_OK;
}
unsigned long long api_DbSize(ValkeyModuleCtx *ctx) {
    return db_size(ctx->db);
}
ValkeyModuleString *api_RandomKey(ValkeyModuleCtx *ctx) {
    const struct entry *entry = db_random(ctx->db);
    return entry ? context_string(ctx, entry_key(entry)) : NULL;
}

/* --- Expiration and access --- */

mstime_t api_GetExpire(ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    int64_t at = entry ? entry_expire_at(entry) : -1;
    if (at < 0) return VALKEYMODULE_NO_EXPIRE;
    return at > clock_data_ms() ? at - clock_data_ms() : 0;
}
mstime_t api_GetAbsExpire(ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    int64_t at = entry ? entry_expire_at(entry) : -1;
    return at < 0 ? VALKEYMODULE_NO_EXPIRE : at;
}
int api_SetAbsExpire(ValkeyModuleKey *key, mstime_t expire) {
    struct entry *entry = key_entry(key);
    if (!key_is_writable(key) || !entry || (expire < 0 && expire != VALKEYMODULE_NO_EXPIRE)) return VALKEYMODULE_ERR;
    db_set_expire(key->db, entry, expire);
    return VALKEYMODULE_OK;
}
int api_SetExpire(ValkeyModuleKey *key, mstime_t expire) {
    if (expire == VALKEYMODULE_NO_EXPIRE) return api_SetAbsExpire(key, expire);
    if (expire < 0 || expire > INT64_MAX - clock_data_ms()) return VALKEYMODULE_ERR;
    return api_SetAbsExpire(key, clock_data_ms() + expire);
}
static bool counts_uses(void) {
    return server_settings.maxmemory_policy & POLICY_LFU;
}
int api_SetLRU(ValkeyModuleKey *key, mstime_t lru_idle) {
    struct entry *entry = key_entry(key);
    if (!entry || counts_uses() || lru_idle < 0) return VALKEYMODULE_ERR;
    before_key_changes(key->db, key_name(key)); /* a thread may read the header of the entry */
    entry_set_idle_seconds(entry, (uint32_t)(lru_idle / 1000));
    return VALKEYMODULE_OK;
}
int api_GetLRU(ValkeyModuleKey *key, mstime_t *lru_idle) {
    const struct entry *entry = key_entry(key);
    *lru_idle = -1;
    if (!entry) return VALKEYMODULE_ERR;
    if (!counts_uses()) *lru_idle = (mstime_t)entry_idle_seconds(entry) * 1000;
    return VALKEYMODULE_OK;
}
int api_SetLFU(ValkeyModuleKey *key, long long lfu_freq) {
    struct entry *entry = key_entry(key);
    if (!entry || !counts_uses() || lfu_freq < 0 || lfu_freq > UINT8_MAX) return VALKEYMODULE_ERR;
    before_key_changes(key->db, key_name(key)); /* a thread may read the header of the entry */
    entry_set_frequency(entry, (uint8_t)lfu_freq);
    return VALKEYMODULE_OK;
}
int api_GetLFU(ValkeyModuleKey *key, long long *lfu_freq) {
    const struct entry *entry = key_entry(key);
    *lfu_freq = -1;
    if (!entry) return VALKEYMODULE_ERR;
    if (counts_uses()) *lfu_freq = entry_frequency(entry);
    return VALKEYMODULE_OK;
}

/* --- Strings --- */

void key_created(struct ValkeyModuleKey *key) {
    notify(key->db, NOTIFY_NEW, "new", key_name(key));
}

int api_StringSet(ValkeyModuleKey *key, ValkeyModuleString *str) {
    if (!key_is_writable(key) || key->range.active) return VALKEYMODULE_ERR;
    db_set_string(key->db, key_name(key), module_string_slice(str), NULL, false);
    key_created(key); /* Valkey deletes an old value first */
    return VALKEYMODULE_OK;
}
char *api_StringDMA(ValkeyModuleKey *key, size_t *len, int mode) {
    static char empty[] = "";
    struct entry *entry = key_entry(key);
    *len = 0;
    if (!key) return NULL;
    if (!entry) return empty;
    if (entry_type(entry) != TYPE_STRING) return NULL;
    *len = entry_string_len(entry);
    if (!(mode & VALKEYMODULE_WRITE)) return (char *)(uintptr_t)entry_string(entry, key->number_text).data;
    if (!key_is_writable(key)) return NULL;
    char *bytes;
    db_edit_string_silently(key->db, entry, *len, &bytes);
    return bytes;
}
int api_StringTruncate(ValkeyModuleKey *key, size_t newlen) {
    struct entry *entry = key_entry(key);
    if (!key_is_writable(key) || !key_has_type(entry, TYPE_STRING, true) || newlen > STRING_MAX)
        return VALKEYMODULE_ERR;
    if (!entry && !newlen) return VALKEYMODULE_OK;
    if (!entry) {
        entry = db_set_string(key->db, key_name(key), SLICE(""), NULL, false);
        key_created(key);
    }
    char *bytes;
    if (newlen)
        db_edit_string(key->db, entry, newlen, &bytes);
    else
        db_set_string(key->db, key_name(key), SLICE(""), NULL, true);
    return VALKEYMODULE_OK;
}
