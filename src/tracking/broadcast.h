/* broadcast.h: prefixes of keys, for the mode BCAST. Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>

struct client;
struct tracker;

/* Finds a prefix of the tracker that overlaps with `prefix`: one of the two is a prefix of the other. */
bool broadcast_overlap(const struct tracker *tracker, struct slice prefix, struct slice *other);
void broadcast_join(struct tracker *tracker, struct slice prefix); /* no effect if the tracker has the prefix */
void broadcast_leave(struct tracker *tracker);                     /* all prefixes */
size_t broadcast_prefixes(const struct tracker *tracker);
void broadcast_each(const struct tracker *tracker, void (*visit)(void *context, struct slice prefix), void *context);
size_t broadcast_memory(const struct tracker *tracker); /* bytes used for its prefixes */

/* A key has changed. `origin`: the client whose command made the change; NULL: none. NOLOOP omits keys that only the
 * receiver itself has changed. As in Valkey, these do not include changes by its scripts, nor keys that its command
 * found expired or that were evicted for its command (`expired`). */
void broadcast_changed(struct slice key, const struct client *origin, bool expired);
void broadcast_send(void); /* sends the collected messages; called before the loop waits */
