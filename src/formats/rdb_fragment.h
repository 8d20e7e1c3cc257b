/* rdb_fragment.h: some keys of a data set in one block of memory, for the migration of slots.
 *
 *     records      as in an RDB file (rdb_file.h): SELECTDB, SLOT_INFO, EXPIRETIME_MS, and keys with their values
 *     0xff         the end
 *     checksum     CRC-32C of all bytes before it, 4 bytes, little-endian
 *
 * A fragment has no header: the peers have agreed on it. It begins with SELECTDB. SLOT_INFO precedes the first key of a
 * slot; the keys of a slot may be in several fragments. Values are those of version 80, but for
 * extensions.
 *
 * The reader checks the checksum before it reads a record, and every length and byte of the records, since a peer may
 * send a fragment with a matching checksum. It takes a fragment as a whole or says why not. */
#pragma once
#include "formats/rdb_file.h"
#include "lib/text/output.h"

enum {
    RDB_FRAGMENT_MAX = 1024 * 1024,  /* bytes of a fragment that is written; a longer one is refused */
    RDB_FRAGMENT_FULL = 256 * 1024,  /* a writer sends a fragment that has this size */
    RDB_FRAGMENT_STRING = 64 * 1024, /* longer strings do not belong in a fragment … */
    RDB_FRAGMENT_ITEMS = 4096        /* … nor values with more elements, which take long to load */
};

/* --- Writing --- */
struct rdb_fragment {
    struct output out; /* must be first; private, as the rest */
    char *bytes;
    size_t size;
    bool overflow;
    int db; /* of the last key; -1: none was written */
};
/* Builds the next fragment in `size` bytes of the caller, up to RDB_FRAGMENT_MAX. */
void rdb_fragment_init(struct rdb_fragment *fragment, char *memory, size_t size);
/* False: the value belongs in no fragment: its reader would be busy with it for long. */
bool rdb_fragment_takes(const struct entry *entry);
/* Adds a key. False: it is too large for a fragment, or for the rest of this one, which is unchanged. `slot`: its size
 * if this is the first key of a slot, of the number `slot_number`; otherwise NULL. */
bool rdb_fragment_add(struct rdb_fragment *fragment, int db, const struct entry *entry, unsigned slot_number,
                      const struct db_slot_size *slot);
size_t rdb_fragment_len(const struct rdb_fragment *fragment); /* 0: it has no key */
/* Ends the fragment and returns its bytes, valid until the next call. The next key begins a new one in the same memory.
 */
struct slice rdb_fragment_end(struct rdb_fragment *fragment);

/* --- Reading --- */
struct rdb_fragment_params {
    /* False: the keys of the slot do not belong here, and the fragment is refused. */
    bool (*slot_belongs)(void *context, unsigned slot);
    /* Called for each key before it is in its database; may be NULL. */
    void (*key_read)(void *context, struct db *db, const struct entry *entry);
    void *context;
};
/* Adds the keys to the databases, where they must not exist. Returns 0 or a negative errno, with result->reason, as
 * rdb_load() does. After a failure some keys may have been added. */
int rdb_fragment_load(struct slice bytes, struct keyspace *keyspace, const struct rdb_fragment_params *params,
                      struct rdb_load_result *result);
