/* subscribers.c: see subscribers.h. */
#include "server/clients/subscribers.h"
#include "lib/memory.h"

enum { AUDIENCE_STEP = 16 };

static size_t place_of(const struct subscribers *audience, const struct client *client) {
    size_t i = 0;
    while (i < audience->count && audience->ids[i] != client->id) i++;
    return i;
}
bool subscribers_has(const struct subscribers *audience, const struct client *client) {
    return place_of(audience, client) < audience->count;
}

void subscribers_join(struct subscribers *audience, const struct client *client) {
    if (audience->count == audience->capacity)
        audience->ids = mem_realloc(audience->ids, (audience->capacity += AUDIENCE_STEP) * sizeof *audience->ids);
    audience->ids[audience->count++] = client->id;
}

bool subscribers_leave(struct subscribers *audience, const struct client *client) {
    size_t at = place_of(audience, client);
    if (at == audience->count) return false;
    audience->ids[at] = audience->ids[--audience->count];
    return true;
}

void subscribers_send(const struct subscribers *audience, struct slice bytes) {
    for (size_t i = audience->count; i-- > 0;) { /* who is closed for reading too slowly leaves the list */
        struct client *client = client_by_id(audience->ids[i]);
        if (client && !(client->flags & CLIENT_REPLY_OFF)) client_push(client, bytes);
    }
}
