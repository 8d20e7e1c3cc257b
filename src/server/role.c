/* role.c: see role.h. */
#include "server/role.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/repl_hooks.h"
#include "server/server_events.h"

const struct repl_hooks *repl_hooks;
static struct role current;
const struct role *const role = &current;
struct role_sync role_sync;
struct role_settings role_settings;
void (*role_enforce)(void);
static uint64_t positions_lost;
static struct list listeners = LIST_INIT(listeners);
void role_listen(struct role_listener *listener) {
    list_add_listener(&listeners, &listener->link);
}

bool role_is_stale(void) {
    return current.is_replica && !role_settings.serve_stale && current.link != ROLE_LINK_CONNECTED;
}

bool role_is_read_only(void) {
    return role_settings.read_only;
}

bool role_ignores_maxmemory(void) {
    return current.is_replica && role_settings.ignore_maxmemory;
}

/* --- Changes --- */

static void enforce(void) {
    if (role_enforce) role_enforce();
}

static void role_changed(void) {
    enforce();
    listeners_call(&listeners, struct role_listener, changed);
}

static bool reported_replica;

void role_report(void) {
    if (reported_replica != current.is_replica) server_event(EVENT_ROLE, current.is_replica, NULL);
    reported_replica = current.is_replica;
}

void role_follow(struct slice host, int port) {
    char *copy = mem_strndup(host.data, host.len);
    mem_free(current.host);
    bool was_up = current.is_replica && current.link == ROLE_LINK_CONNECTED;
    current = (struct role){.is_replica = true, .position = current.position, .host = copy, .port = port};
    role_changed();
    reported_replica = false; /* a replica that follows another primary reports that, too */
    role_report();
    if (was_up) server_event(EVENT_PRIMARY_LINK, 1, NULL);
}

void role_set_port(int port) {
    current.port = port;
    role_changed();
}

void role_lead(void) {
    if (!current.is_replica) return;
    mem_free(current.host);
    bool was_up = current.link == ROLE_LINK_CONNECTED;
    current = (struct role){.position = current.position};
    role_changed();
    if (was_up) server_event(EVENT_PRIMARY_LINK, 1, NULL);
}

void role_set_link(enum role_link link) {
    bool was_up = current.link == ROLE_LINK_CONNECTED, up = link == ROLE_LINK_CONNECTED;
    if (!current.is_replica) return;
    if (was_up != up) current.link_since_ms = clock_mono_ms();
    current.link = link;
    enforce();
    if (was_up != up) server_event(EVENT_PRIMARY_LINK, !up, NULL);
}

void role_set_position(const struct stream_position *position) {
    current.position = *position;
}

void role_set_offset(int64_t offset) {
    must_within(current.position.offset, offset); /* a stream only grows */
    current.position.offset = offset;
}

void role_set_stream_db(int db) {
    current.position.db = db;
}

void role_set_position_known(bool known) {
    current.position.known = known;
    positions_lost += !known;
}

uint64_t role_positions_lost(void) {
    return positions_lost;
}

void role_note_local_change(void) {
    current.position.local_changes |= current.is_replica;
}

void role_data_replaced(void) {
    role_set_position_known(false);
    if (!current.is_replica && repl_hooks) repl_hooks->data_replaced();
}

void role_heard(void) {
    current.heard_ms = clock_mono_ms();
}
