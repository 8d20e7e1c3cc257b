/* audience.h: clients that are all sent the same, besides the replies to what they ask. Whoever keeps an audience takes those out who go (client_watcher). */
#ifndef SERVER_AUDIENCE_H
#define SERVER_AUDIENCE_H
#include "lib/slice.h"
#include "server/client.h"

struct audience {
    uint64_t *ids;
    size_t count, capacity;
};
void audience_join(struct audience *audience, const struct client *client);
bool audience_leave(struct audience *audience, const struct client *client); /* false: was not in it */
bool audience_has(const struct audience *audience, const struct client *client);
void audience_send(const struct audience *audience, struct slice bytes);
#endif
