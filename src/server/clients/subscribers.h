/* subscribers.h: clients that are all sent the same, besides the replies to what they ask. Whoever keeps an audience
 * takes those out who go (client_watcher). */
#ifndef SERVER_SUBSCRIBERS_H
#define SERVER_SUBSCRIBERS_H
#include "lib/slice.h"
#include "server/clients/client.h"

struct subscribers {
    uint64_t *ids;
    size_t count, capacity;
};
void subscribers_join(struct subscribers *audience, const struct client *client);
bool subscribers_leave(struct subscribers *audience, const struct client *client); /* false: was not in it */
bool subscribers_has(const struct subscribers *audience, const struct client *client);
void subscribers_send(const struct subscribers *audience, struct slice bytes);
#endif
