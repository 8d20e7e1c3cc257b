/* subscribers.c: see subscribers.h. */
#include "server/clients/subscribers.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

enum { CAPACITY_STEP = 16 };

static size_t index_of(const struct subscribers *set, const struct client *client) {
    size_t i = 0;
    while (i < set->count && set->ids[i] != client->id) i++;
    return i;
}
bool subscribers_has(const struct subscribers *set, const struct client *client) {
    return index_of(set, client) < set->count;
}

void subscribers_join(struct subscribers *set, const struct client *client) {
    must_in_tests(!subscribers_has(set, client));
    if (set->count == set->capacity)
        set->ids = mem_realloc(set->ids, (set->capacity += CAPACITY_STEP) * sizeof *set->ids);
    set->ids[set->count++] = client->id;
}

bool subscribers_leave(struct subscribers *set, const struct client *client) {
    size_t at = index_of(set, client);
    if (at == set->count) return false;
    set->ids[at] = set->ids[--set->count];
    return true;
}

void subscribers_fail(const struct subscribers *set) {
    for (size_t i = 0; i < set->count; i++) {
        const struct client *client = client_by_id(set->ids[i]);
        if (client && client->conn) output_fail(&client->conn->out);
    }
}

void subscribers_send(const struct subscribers *set, struct slice bytes) {
    for (size_t i = set->count;
         i-- > 0;) { /* backwards: a client that is closed for reading too slowly leaves the list */
        struct client *client = client_by_id(set->ids[i]);
        if (client && !(client->flags & CLIENT_REPLY_OFF)) client_push(client, bytes);
    }
}
