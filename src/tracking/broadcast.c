/* broadcast.c: see broadcast.h.
 *
 * One radix tree holds the prefixes of all clients. One descent of the tree finds all prefixes of a changed key, so the
 * cost depends on the length of the key and not on the number of prefixes or clients. Each prefix collects its changed
 * keys in a radix tree, which sorts them and removes duplicates. Before the loop waits, each prefix with changed keys
 * sends one message to its subscribers, which share the encoded bytes. Prefixes are handled in sorted order.
 *
 * A client may have many thousand prefixes, and no two of them overlap but for the empty one. It keeps pointers to
 * them, sorted by name, in blocks: an insertion moves at most one block, and a subscription costs two pointers.
 *
 * For NOLOOP each collected key is stored with the id of the client that changed it, or 0 if several clients did.
 * (Valkey stores the last one, so a client that changes a key right after another client does not get the message of
 * the other change.) Only a NOLOOP receiver that has itself changed a key in this round gets a message of its own. */
#include "tracking/broadcast.h"
#include "lib/structures/radix_tree.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/stats/stats.h"
#include "tracking/invalidation.h"
#include "tracking/tracker.h"
#include <stdlib.h>
#include <string.h>

struct prefix {
    union {
        struct tracker *one; /* capacity 0 */
        struct tracker **many;
    };                          /* the subscribers, in the order in which they came; NULL: left while `sending` */
    uint32_t count, capacity;   /* places in use, and those of `many` */
    uint32_t subscribers;       /* without those that have left */
    struct radix_tree *changed; /* key → id of the client that changed it; NULL: none */
    struct list_link link;      /* in `collecting`, if it has changed keys */
    bool sending;               /* broadcast_send() uses it: do not free it */
    size_t len;
    char name[];
};

/* The prefixes of a client. */
enum { BLOCK_MAX = 256 };
struct prefix_block {
    unsigned count, capacity;
    struct prefix *items[];
};
struct prefix_set {
    size_t count, blocks, capacity;
    struct prefix_block **block; /* each has an item */
};

static struct radix_tree *prefixes; /* NULL: no client has used BCAST yet */
static struct list collecting = LIST_INIT(collecting);
static uint64_t round_number = 1;

static struct slice prefix_name(const struct prefix *prefix) {
    return (struct slice){prefix->name, prefix->len};
}

/* --- Prefixes of a client --- */

static bool begins_with(struct slice text, struct slice prefix) {
    return text.len >= prefix.len && memcmp(text.data, prefix.data, prefix.len) == 0;
}

/* How many items are before `name`: a binary search for the block, and one in it. */
static unsigned block_find(const struct prefix_block *block, struct slice name) {
    unsigned low = 0, high = block->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (slice_compare(prefix_name(block->items[middle]), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
/* The last block that begins before `name`, or else the first one. */
static size_t set_find(const struct prefix_set *set, struct slice name) {
    size_t low = 0, high = set->blocks;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (slice_compare(prefix_name(set->block[middle]->items[0]), name) < 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The neighbours of `name`: the last prefix before it, and the first one that is not; NULL: none. */
static void set_neighbours(const struct prefix_set *set, struct slice name, struct prefix **before,
                           struct prefix **after) {
    size_t at = set_find(set, name);
    const struct prefix_block *block = set->block[at];
    unsigned index = block_find(block, name);
    *before = index ? block->items[index - 1] : NULL;
    *after = index < block->count ? block->items[index] : at + 1 < set->blocks ? set->block[at + 1]->items[0] : NULL;
}

static struct prefix_block *block_resize(struct prefix_block *block, unsigned capacity) {
    unsigned count = block ? block->count : 0;
    block = mem_realloc(block, sizeof *block + capacity * sizeof(struct prefix *));
    block->count = count;
    block->capacity = capacity;
    return block;
}

/* Makes a block behind the one at `at`, with its upper half; with nothing if that is the last one, because clients
 * often name their prefixes in order. */
static void block_split(struct prefix_set *set, size_t at, bool appends) {
    struct prefix_block *block = set->block[at], *next = block_resize(NULL, BLOCK_MAX);
    unsigned kept = appends ? BLOCK_MAX : BLOCK_MAX / 2;
    if (set->blocks == set->capacity) {
        set->capacity *= 2;
        set->block = mem_realloc(set->block, set->capacity * sizeof(struct prefix_block *));
    }
    memmove(&set->block[at + 2], &set->block[at + 1], (set->blocks - at - 1) * sizeof(struct prefix_block *));
    set->block[at + 1] = next;
    set->blocks++;
    next->count = block->count - kept;
    memcpy(next->items, &block->items[kept], next->count * sizeof(struct prefix *));
    block->count = kept;
}

static struct prefix_set *set_new(void) {
    struct prefix_set *set = mem_calloc(1, sizeof *set);
    set->block = mem_alloc(sizeof(struct prefix_block *));
    set->block[0] = block_resize(NULL, 1);
    set->blocks = set->capacity = 1;
    return set;
}

static void set_add(struct prefix_set *set, struct prefix *prefix) {
    struct slice name = prefix_name(prefix);
    size_t at = set->count ? set_find(set, name) : 0;
    struct prefix_block *block = set->block[at];
    unsigned index = block_find(block, name);
    if (block->count == BLOCK_MAX) {
        bool appends = index == BLOCK_MAX && at + 1 == set->blocks;
        block_split(set, at, appends);
        block = set->block[at];
        if (index > block->count || appends) {
            index -= block->count;
            block = set->block[++at];
        }
    } else if (block->count == block->capacity) {
        block = set->block[at] = block_resize(block, block->capacity * 2);
    }
    must_less(block->count, block->capacity);
    memmove(&block->items[index + 1], &block->items[index], (block->count - index) * sizeof(struct prefix *));
    block->items[index] = prefix;
    block->count++;
    set->count++;
}

bool broadcast_overlap(const struct tracker *tracker, struct slice prefix, struct slice *other) {
    struct prefix *before, *after;
    if (!tracker || !tracker->prefixes) return false;
    /* BCAST without PREFIX adds the empty one whatever the client has, so that it may overlap with others. */
    const struct prefix_block *first = tracker->prefixes->block[0];
    if (first->count && prefix_name(first->items[0]).len == 0) {
        *other = prefix_name(first->items[0]);
        return true;
    }
    set_neighbours(tracker->prefixes, prefix, &before, &after);
    /* A prefix of `prefix` sorts before it, and all that is between them would overlap. */
    if (before && begins_with(prefix, prefix_name(before)))
        *other = prefix_name(before);
    else if (after && begins_with(prefix_name(after), prefix))
        *other = prefix_name(after);
    else
        return false;
    return true;
}

static struct prefix *prefix_of(struct slice name) {
    void *found;
    if (!prefixes) prefixes = radix_tree_new();
    if (radix_tree_find(prefixes, name, &found)) return found;
    struct prefix *prefix = mem_calloc(1, sizeof *prefix + name.len);
    prefix->len = name.len;
    if (name.len) memcpy(prefix->name, name.data, name.len);
    radix_tree_set(prefixes, name, prefix, NULL);
    tracking_stats.prefixes++;
    return prefix;
}

static struct tracker **subscribers_of(struct prefix *prefix) {
    return prefix->capacity ? prefix->many : &prefix->one;
}

static void subscribe(struct prefix *prefix, struct tracker *tracker) {
    if (prefix->count == (prefix->capacity ? prefix->capacity : 1)) {
        uint32_t capacity = prefix->count * 2;
        struct tracker **many =
            mem_realloc(prefix->capacity ? prefix->many : NULL, capacity * sizeof(struct tracker *));
        if (!prefix->capacity) many[0] = prefix->one;
        prefix->many = many;
        prefix->capacity = capacity;
    }
    subscribers_of(prefix)[prefix->count++] = tracker;
    prefix->subscribers++;
}

/* Closes the gaps of those that have left. */
static void close_gaps(struct prefix *prefix) {
    struct tracker **list = subscribers_of(prefix);
    uint32_t kept = 0;
    for (uint32_t i = 0; prefix->subscribers < prefix->count && i < prefix->count; i++)
        if (list[i]) list[kept++] = list[i];
    must(kept == prefix->subscribers || prefix->count == prefix->subscribers);
    prefix->count = prefix->subscribers;
}

static void unsubscribe(struct prefix *prefix, const struct tracker *tracker) {
    struct tracker **list = subscribers_of(prefix);
    uint32_t at = 0;
    while (at < prefix->count && list[at] != tracker) at++;
    must_less(at, prefix->count);
    must_within(1, prefix->subscribers);
    prefix->subscribers--;
    list[at] = NULL;
    if (prefix->sending) return; /* prefix_send() goes through the list */
    memmove(&list[at], &list[at + 1], (--prefix->count - at) * sizeof(struct tracker *));
}

void broadcast_join(struct tracker *tracker, struct slice name) {
    struct prefix *before, *after = NULL;
    if (tracker->prefixes)
        set_neighbours(tracker->prefixes, name, &before, &after);
    else
        tracker->prefixes = set_new();
    if (after && slice_equal(prefix_name(after), name)) return;
    struct prefix *prefix = prefix_of(name);
    subscribe(prefix, tracker);
    set_add(tracker->prefixes, prefix);
}

/* Frees a prefix without subscribers. */
static void prefix_release(struct prefix *prefix) {
    if (prefix->subscribers || prefix->sending) return;
    if (prefix->changed) {
        radix_tree_free(prefix->changed, NULL);
        list_remove(&collecting, &prefix->link);
    }
    radix_tree_remove(prefixes, prefix_name(prefix), NULL);
    if (prefix->capacity) mem_free(prefix->many);
    mem_free(prefix);
    tracking_stats.prefixes--;
}

void broadcast_leave(struct tracker *tracker) {
    struct prefix_set *set = tracker->prefixes;
    tracker->prefixes = NULL;
    for (size_t i = 0; set && i < set->blocks; i++) {
        for (unsigned at = 0; at < set->block[i]->count; at++) {
            unsubscribe(set->block[i]->items[at], tracker);
            prefix_release(set->block[i]->items[at]);
        }
        mem_free(set->block[i]);
    }
    if (set) mem_free(set->block);
    mem_free(set);
}

size_t broadcast_prefixes(const struct tracker *tracker) {
    return tracker->prefixes ? tracker->prefixes->count : 0;
}

void broadcast_each(const struct tracker *tracker, void (*visit)(void *context, struct slice prefix), void *context) {
    const struct prefix_set *set = tracker->prefixes;
    for (size_t i = 0; set && i < set->blocks; i++)
        for (unsigned at = 0; at < set->block[i]->count; at++) visit(context, prefix_name(set->block[i]->items[at]));
}

size_t broadcast_memory(const struct tracker *tracker) {
    const struct prefix_set *set = tracker->prefixes;
    if (!set) return 0;
    size_t bytes = mem_size(set) + mem_size(set->block) + set->count * sizeof(struct tracker *); /* of the prefixes */
    for (size_t i = 0; i < set->blocks; i++) bytes += mem_size(set->block[i]);
    return bytes;
}

/* --- Changed keys --- */

struct change {
    struct slice key;
    uint64_t origin; /* id of the client; 0: none; EXPIRED */
};
#define EXPIRED UINT64_MAX /* the server expired or evicted the key; a later change replaces this origin */

static bool broadcast_collect(void *context, size_t len, void *value) {
    const struct change *change = context;
    struct prefix *prefix = value;
    if (!prefix->changed) {
        prefix->changed = radix_tree_new();
        list_append(&collecting, &prefix->link);
    }
    void *before = NULL, *origin = (void *)(uintptr_t)change->origin;
    bool new = radix_tree_set(prefix->changed, change->key, origin, &before);
    if (!new &&before != origin && before != (void *)(uintptr_t)EXPIRED)
        radix_tree_set(prefix->changed, change->key, NULL, &before);
    return true;
}

void broadcast_changed(struct slice key, const struct client *origin, bool expired) {
    struct change change = {key, expired ? EXPIRED : 0};
    if (expired) origin = NULL;
    struct tracker *tracker = origin && origin->flags & CLIENT_TRACKING ? tracker_of(origin) : NULL;
    if (tracker && tracker->options & TRACK_BCAST) {
        change.origin = origin->id;
        tracker->wrote = round_number;
    }
    radix_tree_prefixes(prefixes, key, broadcast_collect, &change);
}

/* Builds the message of the changed keys, except those that only the client `except` has changed (0: all keys). NULL:
 * no key is left. */
static struct invalidation *message_of(const struct radix_tree *changed, uint64_t except) {
    struct radix_iterator it;
    struct invalidation *message = NULL;
    size_t count = except ? 0 : radix_tree_len(changed);
    radix_iterator_init(&it, changed);
    if (except)
        for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
            count += (uint64_t)(uintptr_t)it.value != except;
    if (count) message = invalidation_start(count, false);
    for (bool more = count && radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        if (!except || (uint64_t)(uintptr_t)it.value != except) invalidation_add(message, it.key);
    radix_iterator_free(&it);
    return message;
}

static bool skips_own(const struct tracker *tracker) {
    return tracker->options & TRACK_NOLOOP && tracker->wrote == round_number;
}

/* A client with one prefix gets no other message in this round, so its output is sent immediately, and the next
 * client's message can reuse the send memory. */
static void send_to(struct invalidation *message, struct tracker *tracker) {
    struct client *alone = broadcast_prefixes(tracker) == 1 && !tracker->redirect ? tracker->client : NULL;
    invalidation_send(message, tracker);
    if (alone) client_flush_pushes(alone);
}

/* A push may close a client, which ends its subscriptions: they leave gaps meanwhile. */
static void prefix_send(struct prefix *prefix) {
    struct radix_tree *changed = prefix->changed;
    prefix->changed = NULL;
    struct invalidation *shared = NULL;
    for (uint32_t i = 0; i < prefix->count; i++) {
        struct tracker *tracker = subscribers_of(prefix)[i];
        if (!tracker || skips_own(tracker)) continue;
        if (!shared) shared = message_of(changed, 0);
        send_to(shared, tracker);
    }
    if (shared) invalidation_end(shared);
    for (uint32_t i = 0; i < prefix->count; i++) {
        struct tracker *tracker = subscribers_of(prefix)[i];
        struct invalidation *own = tracker && skips_own(tracker) ? message_of(changed, tracker->client->id) : NULL;
        if (!own) continue;
        send_to(own, tracker);
        invalidation_end(own);
    }
    radix_tree_free(changed, NULL);
}

static int by_name(const void *a, const void *b) {
    const struct prefix *first = *(struct prefix *const *)a, *second = *(struct prefix *const *)b;
    return slice_compare(prefix_name(first), prefix_name(second));
}

void broadcast_send(void) {
    enum { FEW = 16 };
    if (!collecting.len) return;
    struct prefix *few[FEW], **ready = few;
    size_t count = 0;
    if (collecting.len > FEW) ready = mem_alloc(collecting.len * sizeof(struct prefix *));
    list_each(&collecting, link) {
        struct prefix *prefix = ready[count++] = container_of(link, struct prefix, link);
        list_remove(&collecting, link);
        prefix->sending = true;
    }
    if (count > 1) qsort(ready, count, sizeof(struct prefix *), by_name);
    for (size_t i = 0; i < count; i++) prefix_send(ready[i]);
    for (size_t i = 0; i < count; i++) {
        ready[i]->sending = false;
        close_gaps(ready[i]);
        prefix_release(ready[i]);
    }
    if (ready != few) mem_free(ready);
    round_number++;
}
