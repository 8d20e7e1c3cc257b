/* key_slot.h: the hash slot of a key, when the server has computed it already.
 *
 * In cluster mode the slot of a request decides whether this server may execute it, so it is known before the keys are
 * searched. Dispatch announces the key of a call and its slot here for the duration of the call; a search of these very
 * bytes then needs no second computation. The keys of pipelined requests are prefetched, which needs their slots first
 * of all, and then their hashes; both are kept until these requests are executed. A key is recognised by its address,
 * so the caller that announces a key withdraws it before the bytes change.
 *
 * Only the functions of key_tables.h use this, and only if each slot has a table. Main thread only. */
#pragma once
#include "lib/hash/hash_slot.h"
#include "lib/system/must.h"
#include <stdbool.h>
#include <stdint.h>

struct known_slot {
    const char *data;
    size_t len;
    unsigned slot;
    bool hashed;
    uint64_t hash; /* of hashtable.h */
};
static inline bool known_slot_is(const struct known_slot *known, struct slice key) {
    return key.data == known->data && key.len == known->len;
}
extern struct known_slot key_slot_of_call; /* data NULL: none */
static inline void key_slot_withdraw(void) {
    key_slot_of_call.data = NULL;
}
static inline unsigned key_slot(struct slice key) {
    must_in_tests(!known_slot_is(&key_slot_of_call, key) || key_slot_of_call.slot == hash_slot(key));
    return known_slot_is(&key_slot_of_call, key) ? key_slot_of_call.slot : hash_slot(key);
}

/* The keys of the next requests of a pipeline, in their order. Another set, or key_slots_ahead_end(), takes them back:
 * before the memory of the requests is used for something else. */
enum { KEY_SLOTS_AHEAD_MAX = 16 };
struct known_slots {
    size_t count, next, found; /* `next` is expected next; `found` was found last */
    struct known_slot keys[KEY_SLOTS_AHEAD_MAX];
};
extern struct known_slots key_slots_ahead;
static inline void key_slots_ahead_end(void) {
    key_slots_ahead.count = 0;
}
/* Searches all of them: a request may be checked more than once, and some are not executed here. */
unsigned key_slot_search(struct slice key);
/* The slot of a key of a request that is about to be executed. */
static inline unsigned key_slot_of_request(struct slice key) {
    struct known_slots *ahead = &key_slots_ahead;
    if (ahead->next < ahead->count && known_slot_is(&ahead->keys[ahead->next], key)) {
        ahead->found = ahead->next++;
        return ahead->keys[ahead->found].slot;
    }
    return key_slot_search(key);
}

static inline void key_slot_announce(struct slice key, unsigned slot) {
    const struct known_slots *ahead = &key_slots_ahead;
    if (ahead->found < ahead->count && known_slot_is(&ahead->keys[ahead->found], key))
        key_slot_of_call = ahead->keys[ahead->found];
    else
        key_slot_of_call = (struct known_slot){.data = key.data, .len = key.len, .slot = slot};
}
