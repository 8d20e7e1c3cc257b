/* broadcast.c: see broadcast.h.
 *
 * One radix tree holds the prefixes of all clients. One descent of the tree finds all prefixes of a changed key, so the
 * cost depends on the length of the key and not on the number of prefixes or clients. Each prefix collects its changed
 * keys in a radix tree, which sorts them and removes duplicates. Before the loop waits, each prefix with changed keys
 * sends one message to its subscribers, which share the encoded bytes. Prefixes are handled in sorted order.
 *
 * For NOLOOP each collected key is stored with the id of the client that changed it, or 0 if several clients did.
 * (Valkey stores the last one, so a client that changes a key right after another client does not get the message of
 * the other change.) Only a NOLOOP receiver that has itself changed a key in this round gets a message of its own. */
#include "tracking/broadcast.h"
#include "lib/structures/radix_tree.h"
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/stats/stats.h"
#include "tracking/invalidation.h"
#include "tracking/tracker.h"
#include <stdlib.h>

struct prefix {
    struct list subscriptions;
    struct radix_tree *changed; /* key → id of the client that changed it; NULL: none */
    struct list_link link;      /* in `collecting`, if it has changed keys */
    bool sending;               /* broadcast_send() uses it: do not free it */
    size_t len;
    char name[];
};
struct subscription {
    struct list_link link; /* of the prefix */
    struct prefix *prefix;
    struct tracker *tracker;
};

static struct radix_tree *prefixes; /* NULL: no client has used BCAST yet */
static struct list collecting = LIST_INIT(collecting);
static uint64_t round_number = 1;

static struct slice prefix_name(const struct prefix *prefix) {
    return (struct slice){prefix->name, prefix->len};
}

/* --- Prefixes of a client --- */

static bool first_prefix(void *context, size_t len, void *value) {
    *(size_t *)context = len;
    return false;
}

bool broadcast_overlap(const struct tracker *tracker, struct slice prefix, struct slice *other) {
    if (!tracker || !tracker->prefixes) return false;
    size_t len = SIZE_MAX;
    radix_tree_prefixes(tracker->prefixes, prefix, first_prefix, &len);
    if (len != SIZE_MAX) {
        *other = (struct slice){prefix.data, len};
        return true;
    }
    struct radix_iterator it;
    radix_iterator_init(&it, tracker->prefixes);
    bool found = radix_iterator_seek(&it, RADIX_AT_OR_ABOVE, prefix) && it.key.len >= prefix.len &&
                 memcmp(it.key.data, prefix.data, prefix.len) == 0;
    if (found) *other = prefix_name(((const struct subscription *)it.value)->prefix);
    radix_iterator_free(&it);
    return found;
}

static struct prefix *prefix_of(struct slice name) {
    void *found;
    if (!prefixes) prefixes = radix_tree_new();
    if (radix_tree_find(prefixes, name, &found)) return found;
    struct prefix *prefix = mem_calloc(1, sizeof *prefix + name.len);
    list_init(&prefix->subscriptions);
    prefix->len = name.len;
    if (name.len) memcpy(prefix->name, name.data, name.len);
    radix_tree_set(prefixes, name, prefix, NULL);
    tracking_stats.prefixes++;
    return prefix;
}

void broadcast_join(struct tracker *tracker, struct slice name) {
    if (!tracker->prefixes) tracker->prefixes = radix_tree_new();
    if (radix_tree_find(tracker->prefixes, name, NULL)) return;
    struct subscription *subscription = mem_alloc(sizeof *subscription);
    *subscription = (struct subscription){.prefix = prefix_of(name), .tracker = tracker};
    list_append(&subscription->prefix->subscriptions, &subscription->link);
    radix_tree_set(tracker->prefixes, name, subscription, NULL);
}

/* Frees a prefix without subscribers. */
static void prefix_release(struct prefix *prefix) {
    if (prefix->subscriptions.len || prefix->sending) return;
    if (prefix->changed) {
        radix_tree_free(prefix->changed, NULL);
        list_remove(&collecting, &prefix->link);
    }
    radix_tree_remove(prefixes, prefix_name(prefix), NULL);
    mem_free(prefix);
    tracking_stats.prefixes--;
}

static void subscription_end(void *value) {
    struct subscription *subscription = value;
    struct prefix *prefix = subscription->prefix;
    list_remove(&prefix->subscriptions, &subscription->link);
    mem_free(subscription);
    prefix_release(prefix);
}

void broadcast_leave(struct tracker *tracker) {
    radix_tree_free(tracker->prefixes, subscription_end);
    tracker->prefixes = NULL;
}

size_t broadcast_prefixes(const struct tracker *tracker) {
    return tracker->prefixes ? radix_tree_len(tracker->prefixes) : 0;
}

void broadcast_each(const struct tracker *tracker, void (*visit)(void *context, struct slice prefix), void *context) {
    if (!tracker->prefixes) return;
    struct radix_iterator it;
    radix_iterator_init(&it, tracker->prefixes);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        visit(context, it.key);
    radix_iterator_free(&it);
}

size_t broadcast_memory(const struct tracker *tracker) {
    if (!tracker->prefixes) return 0;
    return radix_tree_memory(tracker->prefixes) + broadcast_prefixes(tracker) * sizeof(struct subscription);
}

/* --- Changed keys --- */

struct change {
    struct slice key;
    uint64_t origin; /* id of the client; 0: none; EXPIRED */
};
#define EXPIRED UINT64_MAX /* the server expired or evicted the key; a later change replaces this origin */

static bool collect(void *context, size_t len, void *value) {
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
    struct tracker *tracker = origin && origin->flags & CLIENT_TRACKING_BCAST ? tracker_of(origin) : NULL;
    if (tracker) {
        change.origin = origin->id;
        tracker->wrote = round_number;
    }
    radix_tree_prefixes(prefixes, key, collect, &change);
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

/* A push may close a client, which ends its subscriptions: list_each() allows the removal. */
static void prefix_send(struct prefix *prefix) {
    struct radix_tree *changed = prefix->changed;
    prefix->changed = NULL;
    struct invalidation *shared = NULL;
    list_each(&prefix->subscriptions, link) {
        struct tracker *tracker = container_of(link, struct subscription, link)->tracker;
        if (skips_own(tracker)) continue;
        if (!shared) shared = message_of(changed, 0);
        send_to(shared, tracker);
    }
    if (shared) invalidation_end(shared);
    list_each(&prefix->subscriptions, link) {
        struct tracker *tracker = container_of(link, struct subscription, link)->tracker;
        struct invalidation *own = skips_own(tracker) ? message_of(changed, tracker->client->id) : NULL;
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
        prefix_release(ready[i]);
    }
    if (ready != few) mem_free(ready);
    round_number++;
}
