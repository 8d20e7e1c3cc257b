/* subscribers.h: a set of clients that all receive the same pushes. The owner of a set removes clients that disconnect
 * (client_listener). */
#pragma once
#include "lib/text/slice.h"
#include "server/clients/client.h"

struct subscribers {
    uint64_t *ids;
    size_t count, capacity;
};
void subscribers_join(struct subscribers *set, const struct client *client);
bool subscribers_leave(struct subscribers *set, const struct client *client); /* false: was not a member */
bool subscribers_has(const struct subscribers *set, const struct client *client);
void subscribers_send(const struct subscribers *set, struct slice bytes);
/* Closes them: there is no memory for what they were to receive. */
void subscribers_fail(const struct subscribers *set);
