/* parts.h: the keys that a database had at one moment, in parts of about a bucket each, for snapshot/.
 *
 * A part has the keys of a range of hashes (hashtable_visit_part()), so that the tables may be resized while parts are
 * visited. In a database with a table for each slot each slot has parts of its own, hidden slots included. Keys that
 * are added later belong to parts as well: the caller visits a part before it changes (before_change.h), and then has
 * seen those of the former moment.
 *
 * Keys that leave their database as a whole take their tables with them: `struct departed` keeps these for all that
 * still read them. Main thread. */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "store/keyspace.h"

/* Tables without a database. The last parts that keep them free them, as the removal of the keys wanted. */
struct departed;
struct departed *departed_hold(struct departed *tables);
void departed_release(struct departed *tables); /* NULL: nothing */
/* Bytes of the keys and values in such tables, about. Nothing that deletes keys frees them. */
size_t departed_memory(void);

struct part {
    unsigned slot; /* 0 for a single table */
    size_t number; /* of parts_count() */
};

struct key_parts;
/* The keys of a database as it is now. slots: only those; NULL: all. */
struct key_parts *parts_new(struct db *db, const struct slot_bitmap *slots);
void parts_free(struct key_parts *parts);
size_t parts_count(const struct key_parts *parts);
size_t parts_keys(const struct key_parts *parts); /* at the moment of parts_new() */
/* The database that has the keys. NULL: all of them have left it, or there were none. */
struct db *parts_db(const struct key_parts *parts);
void parts_set_db(struct key_parts *parts, struct db *db); /* the contents of two databases were swapped */
/* The keys of a slot, or with -1 all, have left the database. NULL: they are not visited any more. */
void parts_left(struct key_parts *parts, int slot, struct departed *tables);

/* The part of a key of the database. False: none, the key is in no part or its part has left the database. */
bool parts_find(const struct key_parts *parts, struct slice key, struct part *part);
/* The slot of the first part, {0, 0}, may have no parts: the same part with its own slot. */
struct part parts_settle(const struct key_parts *parts, struct part part);
/* The part after this one; its number may be parts_count(). {0, 0} is the first. */
struct part parts_next(const struct key_parts *parts, struct part part);
/* Visits each entry of a part once. `visit` must not change the store. */
void parts_visit(const struct key_parts *parts, struct part part, void (*visit)(void *context, struct entry *entry),
                 void *context);
/* Prefetch what a visit of this part reads; the second, before each visit of parts in their order, also what the visit
 * of the next part will read. */
void parts_prefetch(const struct key_parts *parts, struct part part);
void parts_prefetch_next(const struct key_parts *parts, struct part part);
