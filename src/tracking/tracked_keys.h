/* tracked_keys.h: which clients have read which keys; the default mode of client-side caching. Main thread only.
 *
 * The table has at most tracking-table-max-keys keys. Above that it evicts random keys and sends invalidation messages
 * for them. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

struct client;
struct db;
struct tracker;

enum { TRACKED_KEYS_EVICT_MAX = 10000 };
extern int64_t tracked_keys_max; /* 0: no limit */
void tracked_keys_add(struct tracker *tracker, struct slice key);
/* Removes the key and sends the message to its readers. `origin`: the client whose request made the change, directly or
 * by a script; NULL: none. With NOLOOP it does not get the message. */
void tracked_keys_changed(struct slice key, const struct client *origin);
/* The same for all keys of a hash slot that the database contains, before they are deleted. */
void tracked_keys_slot_left(struct db *db, unsigned slot);
void tracked_keys_clear(void); /* without messages */
/* Evicts keys above the limit, at most `max` of them. */
void tracked_keys_limit(size_t max);
