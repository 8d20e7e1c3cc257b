/* invalidation.h: invalidation messages. A message is encoded once for each protocol, when the first receiver needs it,
 * and written to all its receivers as a push. Main thread only.
 *
 *     RESP3   >2 "invalidate" *n key…                            null instead of the array: all keys
 *     RESP2   *3 "message" "__redis__:invalidate" *n key…
 *
 *     struct invalidation *message = invalidation_start(count, false);
 *     invalidation_add(message, key);                            `count` times
 *     invalidation_send(message, tracker);                       for each receiver
 *     invalidation_end(message); */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>

struct tracker;
struct invalidation;

/* Only one message exists at a time. `all`: invalidates all keys; add none. */
struct invalidation *invalidation_start(size_t keys, bool all);
void invalidation_add(struct invalidation *message, struct slice key);
/* Sends it to the tracker's client, or to the client of REDIRECT. May close a client that does not read its output. */
void invalidation_send(struct invalidation *message, struct tracker *tracker);
void invalidation_end(struct invalidation *message);
