/* client_state.c: the state that features keep for clients, and what happens to clients that features hear of; the
 * functions are in client.h.
 *
 * A feature has a slot in the table of each client that it keeps state for. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/client_private.h"
#include <string.h>

static struct list listeners = LIST_INIT(listeners);

void client_listen(struct client_listener *listener) {
    if (list_add_listener(&listeners, &listener->link)) listener->slot = (unsigned)listeners.len;
}

/* Makes the table large enough for the slot. */
static struct client_states *states_grow(struct client_states *states, unsigned slot) {
    unsigned size = states ? states->size : 0;
    if (slot < size) return states;
    states = mem_realloc(states, sizeof *states + (slot + 1) * sizeof *states->slots);
    if (!size) states->used = 0;
    memset(states->slots + size, 0, (slot + 1 - size) * sizeof *states->slots);
    states->size = slot + 1;
    return states;
}

void client_set_state(struct client *client, struct client_listener *listener, void *state) {
    client_listen(listener);
    if (client_state(client, listener) == state) return;
    struct client_states *states = client->states = states_grow(client->states, listener->slot);
    states->used += !!state;
    states->used -= !!states->slots[listener->slot];
    states->slots[listener->slot] = state;
    must_within(states->used, states->size);
    if (states->used) return;
    mem_free(states);
    client->states = NULL;
}

void client_report(const struct client *client, struct client_report *report) {
    *report = (struct client_report){.queued_commands = client->flags & CLIENT_TRANSACTED ? 0 : -1, .redirect = -1};
    if (!client->states) return;
    report->memory = mem_size(client->states);
    list_each_entry(&listeners, struct client_listener, link, listener) {
        if (listener->report && client_state(client, listener)) listener->report(client, report);
    }
}

void client_notify_freed(struct client *client) {
    listeners_call(&listeners, struct client_listener, freed, client);
}

void client_notify_request(struct client *client, int argc, const struct slice *argv) {
    list_each_entry(&listeners, struct client_listener, link, listener) {
        if (listener->request && client_state(client, listener)) listener->request(client, argc, argv);
    }
}

void client_notify_drained(struct client *client) {
    list_each_entry(&listeners, struct client_listener, link, listener) {
        if (listener->drained && client_state(client, listener)) listener->drained(client);
    }
}

void client_notify_requested(struct client *client) {
    list_each_entry(&listeners, const struct client_listener, link, listener) {
        if (listener->requested && client_state(client, listener)) listener->requested(client);
    }
}

void client_notify_arrived(struct client *client) {
    list_each_entry(&listeners, const struct client_listener, link, listener) {
        if (listener->arrived && client_state(client, listener)) listener->arrived(client);
    }
}

void client_notify_reset(struct client *client) {
    listeners_call(&listeners, struct client_listener, reset, client);
}
