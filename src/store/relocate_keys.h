/* relocate_keys.h: walks over all keys and moves their memory out of sparse slabs (lib/system/relocate.h), in small
 * steps.
 *
 * A step visits a bucket of keys. A large value is processed in parts: the walk stores its key, and the following steps
 * continue with that value before the next bucket. Keys and databases may change in any way between two steps. */
#pragma once
#include "store/keyspace.h"

struct relocate_walk {
    struct relocation blocks; /* the caller sets `limit`: blocks of a value that one step examines */
    uint64_t keys_moved, keys_stayed;
    int db; /* the database, and the cursor in it */
    uint64_t cursor;
    /* The keys of large values in the last bucket. The walk processes them, from the last one, before the next
     * bucket. */
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
void relocate_walk_end(
    struct relocate_walk *walk); /* ends an unfinished walk and frees its memory; the next one restarts */
