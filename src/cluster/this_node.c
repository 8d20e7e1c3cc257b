/* this_node.c: see this_node.h. */
#include "cluster/node_private.h"
#include "cluster/settings.h"
#include "lib/system/clock.h"
#include "server/clients/client.h"
#include <stdio.h>

struct cluster *this_cluster;
struct cluster_options cluster_options;
struct cluster_debug cluster_debug;
static struct list cluster_listeners = LIST_INIT(cluster_listeners);
static unsigned events; /* of the loop, in which the machine is being called */

/* Within a script the cached time does not advance, but peers still expect answers in time. */
int64_t cluster_now(void) {
    return clock_cache.frozen ? clock_monotonic_ms() : clock_mono_ms();
}

const char *cluster_requester(const struct client *client) {
    static char text[1024];
    snprintf(text, sizeof text, "user request from '%s'", client_requester_text(client));
    return text;
}

void cluster_event_begin(void) {
    events++;
}
void cluster_event_end(void) {
    events--;
}
bool cluster_in_event(void) {
    return events != 0;
}

/* --- Listeners --- */

void cluster_listen(struct cluster_listener *listener) {
    list_add_listener(&cluster_listeners, &listener->link);
}
void cluster_slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    listeners_call(&cluster_listeners, struct cluster_listener, slot_moved, slot, from, to);
}
void cluster_state_changed(bool ok) {
    listeners_call(&cluster_listeners, struct cluster_listener, state_changed, ok);
}
void cluster_role_changed(void) {
    listeners_call(&cluster_listeners, struct cluster_listener, role_changed);
}
