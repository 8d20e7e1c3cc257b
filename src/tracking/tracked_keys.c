/* tracked_keys.c: see tracked_keys.h.
 *
 * A hash table of keys; each key has the set of its readers. Most keys have one reader, which needs no further memory.
 * More readers are in an open-addressing table of pointers, so that reading a key again costs a lookup of one or two
 * cache lines, whatever the number of readers. Trackers whose client is closed are removed when the table grows, so it
 * has at most about four slots for each live reader.
 *
 * Rejected: client ids instead of pointers. Each message would have to look up the client of each id, and the ids of
 * disconnected clients would fill the set of a key that never changes. */
#include "tracking/tracked_keys.h"
#include "lib/hash/hash_slot.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/stats/stats.h"
#include "store/keyspace.h"
#include "tracking/invalidation.h"
#include "tracking/tracker.h"

enum { SLOTS_FIRST = 4, PREFETCH_AHEAD = 8, LOOKUP_AS_IT_IS = LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE };

struct tracked_key {
    uint32_t count; /* readers */
    uint32_t slots; /* of the table, a power of two; 0: the one reader is in `reader` */
    union {
        struct tracker *reader, **table;
    };
    size_t len;
    char name[];
};

static struct slice key_name(const void *entry) {
    const struct tracked_key *key = entry;
    return (struct slice){key->name, key->len};
}
static void key_free(void *entry);
static const struct hashtable_type keys_type = {.key = key_name, .free_entry = key_free};
static struct hashtable *keys; /* NULL: no key has been tracked yet */
int64_t tracked_keys_max;

static void counts_update(void) {
    tracking_stats.keys = keys ? hashtable_size(keys) : 0;
}

/* --- Readers --- */

static inline uint32_t slot_of(const struct tracker *tracker, uint32_t slots) {
    return (uint32_t)((uint64_t)(uintptr_t)tracker * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (slots - 1);
}

static struct tracker **slot_find(struct tracker **table, uint32_t slots, const struct tracker *tracker) {
    uint32_t at = slot_of(tracker, slots);
    while (table[at] && table[at] != tracker) at = (at + 1) & (slots - 1);
    return &table[at];
}

static void reader_drop(struct tracker *tracker) {
    must(tracking_stats.items > 0 && tracker->items > 0);
    tracking_stats.items--;
    tracker_unref(tracker);
}

/* Moves the readers whose client is connected to a new table with space for one more; drops the others. */
static void readers_grow(struct tracked_key *key) {
    struct tracker **old = key->slots ? key->table : &key->reader;
    uint32_t old_slots = key->slots ? key->slots : 1, live = 0, slots = SLOTS_FIRST;
    for (uint32_t i = 0; i < old_slots; i++) live += old[i] && old[i]->client;
    while (slots < 2 * (live + 1)) slots *= 2;
    struct tracker **table = mem_calloc(slots, sizeof(struct tracker *));
    for (uint32_t i = 0; i < old_slots; i++) {
        if (!old[i]) continue;
        if (old[i]->client)
            *slot_find(table, slots, old[i]) = old[i];
        else
            reader_drop(old[i]);
    }
    if (key->slots) mem_free(old);
    key->table = table;
    must_less(live, slots); /* a slot is free: otherwise a search would never end */
    key->slots = slots;
    key->count = live;
}

static void reader_add(struct tracked_key *key, struct tracker *tracker) {
    struct tracker **slot;
    if (key->slots) {
        slot = slot_find(key->table, key->slots, tracker);
        if (*slot) return;
        if ((uint64_t)(key->count + 1) * 4 > (uint64_t)key->slots * 3) {
            readers_grow(key);
            slot = slot_find(key->table, key->slots, tracker);
        }
    } else if (key->count == 0) {
        slot = &key->reader;
    } else if (key->reader == tracker) {
        return;
    } else {
        readers_grow(key);
        slot = slot_find(key->table, key->slots, tracker);
    }
    *slot = tracker;
    key->count++;
    tracker->items++;
    tracking_stats.items++;
}

static void key_free(void *entry) {
    struct tracked_key *key = entry;
    struct tracker **readers = key->slots ? key->table : &key->reader;
    uint32_t slots = key->slots ? key->slots : key->count;
    for (uint32_t i = 0; i < slots; i++)
        if (readers[i]) reader_drop(readers[i]);
    if (key->slots) mem_free(key->table);
    mem_free(key);
}

/* --- Keys --- */

void tracked_keys_add(struct tracker *tracker, struct slice name) {
    if (!keys) keys = hashtable_new(&keys_type);
    struct hashtable_position position;
    struct tracked_key **found = (struct tracked_key **)hashtable_find_or_prepare(keys, name, &position), *key;
    if (found) {
        key = *found;
    } else {
        key = mem_alloc(sizeof *key + name.len);
        key->count = key->slots = 0;
        key->len = name.len;
        if (name.len) memcpy(key->name, name.data, name.len);
        hashtable_add_at(keys, &position, key);
        counts_update();
    }
    reader_add(key, tracker);
}

/* Sends the message of a key that was removed from the table. A push may close a client; its tracker is not freed,
 * because the key still refers to it. */
static void key_invalidate(struct tracked_key *key, const struct client *origin) {
    struct tracker **readers = key->slots ? key->table : &key->reader;
    uint32_t slots = key->slots ? key->slots : key->count;
    struct slice name = key_name(key);
    struct invalidation *message = invalidation_start(1, false);
    invalidation_add(message, name);
    for (uint32_t i = 0; i < slots; i++) {
        const struct tracker *ahead = i + PREFETCH_AHEAD < slots ? readers[i + PREFETCH_AHEAD] : NULL;
        if (ahead) __builtin_prefetch(ahead);
        struct tracker *tracker = readers[i];
        if (!tracker || !tracker->client || !tracker->on || tracker->options & TRACK_BCAST) continue;
        if (tracker->options & TRACK_NOLOOP && tracker->client == origin) continue;
        if (!tracker_defer(tracker, &name)) invalidation_send(message, tracker);
    }
    invalidation_end(message);
    key_free(key);
}

void tracked_keys_changed(struct slice name, const struct client *origin) {
    struct tracked_key *key = keys ? hashtable_pop(keys, name) : NULL;
    if (!key) return;
    counts_update();
    key_invalidate(key, origin);
}

void tracked_keys_slot_left(struct db *db, unsigned slot) {
    if (!keys) return;
    size_t count = 0, capacity = 0;
    struct tracked_key **left = NULL;
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, keys);
    for (struct tracked_key *key; (key = hashtable_iterator_next(&it));) {
        if (hash_slot(key_name(key)) != slot || !db_find(db, key_name(key), LOOKUP_AS_IT_IS)) continue;
        mem_grow(left, count, capacity, 16);
        left[count++] = key;
    }
    hashtable_iterator_close(&it);
    for (size_t i = 0; i < count; i++) hashtable_pop(keys, key_name(left[i]));
    counts_update();
    for (size_t i = 0; i < count; i++) key_invalidate(left[i], NULL);
    mem_free(left);
}

void tracked_keys_limit(size_t max) {
    while (keys && tracked_keys_max && hashtable_size(keys) > (uint64_t)tracked_keys_max && max--) {
        struct tracked_key *key = hashtable_random(keys);
        hashtable_pop(keys, key_name(key));
        counts_update();
        key_invalidate(key, NULL);
    }
}

void tracked_keys_clear(void) {
    struct hashtable *all = keys;
    if (!all) return;
    keys = NULL; /* reader_drop() may call this function again */
    counts_update();
    hashtable_free(all);
}
