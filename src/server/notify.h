/* notify.h: keyspace events: what happened to a key, under Valkey's event names ("set", "expire", "rename_from" …).
 *
 * A handler reports each event right after the change, in the order in which Valkey does; the server reports "expired"
 * and "evicted" from the hooks of the store. A listener names the classes of events that it wants. While no
 * listener wants a class, reporting an event of that class costs one test of a flag. A listener must not change the
 * keyspace. Main thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/slice.h"
#include <stdint.h>

struct db;
/* The letter is that of notify-keyspace-events. */
enum notify_class {
    NOTIFY_GENERIC = 1 << 0,   /* g */
    NOTIFY_STRING = 1 << 1,    /* $ */
    NOTIFY_LIST = 1 << 2,      /* l */
    NOTIFY_SET = 1 << 3,       /* s */
    NOTIFY_HASH = 1 << 4,      /* h */
    NOTIFY_ZSET = 1 << 5,      /* z */
    NOTIFY_EXPIRED = 1 << 6,   /* x */
    NOTIFY_EVICTED = 1 << 7,   /* e */
    NOTIFY_STREAM = 1 << 8,    /* t */
    NOTIFY_MODULE = 1 << 9,    /* d */
    NOTIFY_KEY_MISS = 1 << 10, /* m; not part of A */
    NOTIFY_NEW = 1 << 11,      /* n; not part of A */
    NOTIFY_LOADED = 1 << 12,   /* a key was read from a file; for modules */
    NOTIFY_ALL = (1 << 10) - 1 /* A */
};
struct notify_listener {
    struct list_link link;
    uint32_t classes; /* the events it receives; change it with notify_set_classes */
    void (*event)(struct notify_listener *self, struct db *db, enum notify_class class, const char *event,
                  struct slice key);
};
void notify_listen(struct notify_listener *listener);
void notify_unlisten(struct notify_listener *listener);
void notify_set_classes(struct notify_listener *listener, uint32_t classes); /* the listener is registered */

extern uint32_t notify_wanted; /* the classes of all listeners */
void notify_dispatch(struct db *db, enum notify_class class, const char *event, struct slice key);
static inline void notify(struct db *db, enum notify_class class, const char *event, struct slice key) {
    if (__builtin_expect((notify_wanted & class) != 0, 0)) notify_dispatch(db, class, event, key);
}
