/* broadcast.h: prefixes of keys, for the mode BCAST. Main thread only. */
#ifndef TRACKING_BROADCAST_H
#define TRACKING_BROADCAST_H
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>

struct client;
struct tracker;

/* Finds a prefix that the tracker has and that overlaps with this one: one of the two is a prefix of the other. */
bool broadcast_overlap(const struct tracker *tracker, struct slice prefix, struct slice *other);
void broadcast_join(struct tracker *tracker, struct slice prefix); /* no change if it has the prefix */
void broadcast_leave(struct tracker *tracker);                     /* all prefixes */
size_t broadcast_prefixes(const struct tracker *tracker);
void broadcast_each(const struct tracker *tracker, void (*visit)(void *context, struct slice prefix), void *context);
size_t broadcast_memory(const struct tracker *tracker); /* bytes used for its prefixes */

/* A key has changed. `origin`: the client of the command that made the change, NULL: none. NOLOOP leaves out the keys
 * that only the receiver itself has changed; as in Valkey, the commands of its scripts are not its own here, nor is
 * the deletion of a key that its command has found expired, or that was evicted for its command (`expired`). */
void broadcast_changed(struct slice key, const struct client *origin, bool expired);
void broadcast_send(void); /* sends what has been collected; before the loop waits */
#endif
