/* db_key.h: a key of any database as one byte string, for tables that keep state about keys whether or not the keys
 * exist: 4 bytes of database number, then the key's name. */
#pragma once
#include "lib/system/memory.h"
#include "server/server.h"
#include "store/keyspace.h"
#include <stdint.h>

enum { DB_KEY_INLINE = 256 };
struct db_key {
    struct slice bytes;
    char storage[DB_KEY_INLINE];
};
static inline void db_key_set_db(char *full, const struct db *db) {
    uint32_t id = (uint32_t)db_id(db);
    memcpy(full, &id, sizeof id);
}
static inline struct slice db_key_make(struct db_key *full, struct db *db, struct slice key) {
    size_t len = sizeof(uint32_t) + key.len;
    char *bytes = len <= DB_KEY_INLINE ? full->storage : mem_alloc(len);
    db_key_set_db(bytes, db);
    if (key.len) memcpy(bytes + sizeof(uint32_t), key.data, key.len);
    return full->bytes = (struct slice){bytes, len};
}
static inline void db_key_free(struct db_key *full) {
    if (full->bytes.data != full->storage) mem_free((char *)(uintptr_t)full->bytes.data);
}
/* The parts of such a byte string. */
static inline struct slice db_key_name(struct slice full) {
    return (struct slice){full.data + sizeof(uint32_t), full.len - sizeof(uint32_t)};
}
static inline struct db *db_key_db(struct slice full) {
    uint32_t id;
    memcpy(&id, full.data, sizeof id);
    return keyspace_db(server.keyspace, (int)id);
}
