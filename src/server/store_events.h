/* store_events.h: passes the store's events (store_hooks) to registered listeners. Expiry and eviction are propagated
 * and notified here; features that watch keys (WATCH, tracking, blocking) listen. Main thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "store/keyspace.h"
struct store_listener {
    struct list_link link;
    struct store_hooks hooks; /* any may be NULL */
};
void store_events_listen(struct store_listener *listener);
void store_events_unlisten(struct store_listener *listener);
bool store_events_changed_wanted(void);       /* some listener has `changed` */
extern const struct store_hooks store_events; /* for keyspace_new */
