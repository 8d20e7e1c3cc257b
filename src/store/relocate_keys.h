/* relocate_keys.h: walks over all keys and moves their memory out of sparse slabs (lib/relocate.h), in small steps.
 *
 * A step visits a bucket of keys. A large value is looked at in parts: its key is remembered, and the following steps
 * go on with it before the next bucket. Keys and databases may change between two steps in any way. */
#ifndef STORE_RELOCATE_KEYS_H
#define STORE_RELOCATE_KEYS_H
#include "store/keyspace.h"

struct relocate_walk {
    struct relocation blocks; /* the caller sets `limit`: blocks of a value that one step looks at */
    uint64_t keys_moved, keys_stayed;
    int db; /* where the walk is */
    uint64_t cursor;
    /* The keys of large values in the last bucket. They are done before the walk goes on; the last one is next. */
    struct large_value {
        char *key;
        size_t len;
        int db;
        uint64_t cursor;
    } * large;
    size_t large_count, large_capacity;
};
/* Takes a step. False: the walk is complete, and the next call starts again with the first database. */
bool relocate_walk_step(struct relocate_walk *walk, struct keyspace *keyspace);
void relocate_walk_end(struct relocate_walk *walk); /* frees what an unfinished walk holds; the next one restarts */
#endif
