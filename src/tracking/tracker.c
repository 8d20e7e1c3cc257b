/* tracker.c: creates and frees trackers, and handles the events that they need: reads of keys, changes of keys,
 * flushes. See tracking.h.
 *
 * A tracked key refers to trackers by pointer. So a tracker whose client is closed, or has turned tracking off, exists
 * until no tracked key refers to it. A client that turns tracking on again still gets messages for keys that it read
 * before, as with Valkey.
 *
 * CLIENT CACHING applies to the next command. That command may be refused before it runs, so its end cannot be
 * observed. Instead a filter on the following request checks which command the client ran before. */
#include "tracking/tracker.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/feature.h"
#include "server/config/config.h"
#include "server/command/command.h"
#include "server/server.h"
#include "server/stats/stats.h"
#include "server/store_events.h"
#include "tracking/broadcast.h"
#include "tracking/invalidation.h"
#include "tracking/tracked_keys.h"
#include "tracking/tracking.h"

enum { KEYS_ON_STACK = 64 };

static struct list trackers = LIST_INIT(trackers);
static size_t caching_count; /* trackers with `caching` set */
static bool listening;
static bool flush_due; /* the data set was replaced outside of a command: send the message before the loop waits */

static void client_freed(struct client *client);
static void client_reset_tracking(struct client *client);
static void client_reported(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {
    .freed = client_freed, .reset = client_reset_tracking, .report = client_reported};

struct tracker *tracker_of(const struct client *client) {
    return client_state(client, &client_listener);
}

/* --- Events --- */

static bool wants_keys(const struct tracker *tracker) {
    if (tracker->options & TRACK_OPTIN) return tracker->caching;
    return !(tracker->options & TRACK_BCAST) && !(tracker->options & TRACK_OPTOUT && tracker->caching);
}

static void keys_read(const struct call *call, struct tracker *tracker) {
    struct key_position few[KEYS_ON_STACK], *positions = few;
    if (call->argc > KEYS_ON_STACK) positions = mem_alloc((size_t)call->argc * sizeof *positions);
    int max = call->argc > KEYS_ON_STACK ? call->argc : KEYS_ON_STACK;
    int count = command_find_keys(call->command, call->argc, call->argv, positions, max);
    for (int i = 0; i < count; i++) tracked_keys_add(tracker, call->argv[positions[i].index]);
    if (count > 0) tracked_keys_limit((size_t)count);
    if (positions != few) mem_free(positions);
}

/* --- Changes by the client itself --- */

struct own_change {
    struct own_change *next;
    bool all;
    size_t len;
    char key[];
};
static struct {
    struct tracker *tracker;
    struct own_change *first, **end;
} own_changes;

bool tracker_defer(struct tracker *tracker, const struct slice *key) {
    if (tracker->client != dispatch_requester()) return false;
    struct own_change *change = mem_alloc(sizeof *change + (key ? key->len : 0));
    *change = (struct own_change){.all = !key, .len = key ? key->len : 0};
    if (key && key->len) memcpy(change->key, key->data, key->len);
    if (!own_changes.first) own_changes.end = &own_changes.first;
    *own_changes.end = change;
    own_changes.end = &change->next;
    own_changes.tracker = tracker;
    return true;
}

static void own_changes_end(void) {
    struct tracker *tracker = own_changes.tracker;
    struct own_change *change = own_changes.first;
    own_changes.first = NULL;
    tracker->items++; /* a push may close the client */
    while (change) {
        struct own_change *next = change->next;
        struct invalidation *message = invalidation_start(1, change->all);
        if (!change->all) invalidation_add(message, (struct slice){change->key, change->len});
        if (tracker->client) invalidation_send(message, tracker);
        invalidation_end(message);
        mem_free(change);
        change = next;
    }
    tracker_unref(tracker);
}

/* A script counts only with the commands that it calls: it may declare keys that it never reads. */
static void call_reads(const struct call *call) {
    if (!(call->client->flags & (CLIENT_TRACKING | CLIENT_INTERNAL))) return;
    const struct command_spec *spec = call->command->spec;
    if (!(spec->flags & CMD_READONLY) || spec->group == GROUP_SCRIPTING) return;
    const struct client *reader = dispatch_requester();
    struct tracker *tracker = reader->flags & CLIENT_TRACKING ? tracker_of(reader) : NULL;
    if (tracker && wants_keys(tracker)) keys_read(call, tracker);
}

/* The reads come first: the limit of the table may evict keys, whose messages to the reader are deferred, too. */
static void after_call(struct call *call, uint64_t ticks) {
    call_reads(call);
    if (own_changes.first && !dispatch_is_nested()) own_changes_end();
}
static struct call_listener call_listener = {.after = after_call, .again = true, .state_only = true};

/* The next key_changed() is for an expired or evicted key, not for a change by the command's client. */
static bool expires;

static void key_expires(struct db *db, struct slice key) {
    expires = true;
}

static void key_changed(struct db *db, struct slice key) {
    const struct call *call = dispatch_running();
    bool expired = expires;
    expires = false;
    if (tracking_stats.keys) tracked_keys_changed(key, dispatch_requester());
    if (tracking_stats.prefixes) broadcast_changed(key, call ? call->client : NULL, expired);
}

static void flush_send(void) {
    struct invalidation *message = invalidation_start(0, true);
    flush_due = false;
    list_each_entry(&trackers, struct tracker, link, tracker) {
        if (tracker->on && !tracker_defer(tracker, NULL)) invalidation_send(message, tracker);
    }
    invalidation_end(message);
}

/* Invalidates all keys. A command that flushes several databases sends one message; so does a load of a data set
 * outside of a command. */
static void db_flushed(struct db *db, size_t keys) {
    static const struct call *last_call;
    static uint64_t last_number;
    const struct call *call = dispatch_running();
    tracked_keys_clear();
    if (!call) {
        flush_due = true;
    } else if (call != last_call || dispatch_commands != last_number) {
        last_call = call;
        last_number = dispatch_commands;
        flush_send();
    }
}

static void dbs_swapped(struct db *a, struct db *b) {
    if (a == b) db_flushed(a, 0); /* the contents of the database were replaced */
}

static void entry_left(void *context, struct entry *entry) {
    broadcast_changed(entry_key(entry), NULL, false);
}

static void slot_left(struct db *db, unsigned slot) {
    if (tracking_stats.keys) tracked_keys_slot_left(db, slot);
    if (tracking_stats.prefixes) db_slot_keys(db, slot, SIZE_MAX, entry_left, NULL);
}

static struct store_listener listener = {.hooks = {.changed = key_changed,
                                                   .expired = key_expires,
                                                   .evicted = key_expires,
                                                   .flushed = db_flushed,
                                                   .slot_left = slot_left,
                                                   .swapped = dbs_swapped}};

static void tracker_cron(void) {
    if (listening) tracked_keys_limit(TRACKED_KEYS_EVICT_MAX);
}
static void tracker_before_wait(void) {
    if (__builtin_expect(flush_due, 0)) flush_send();
    broadcast_send();
}
static const struct server_part part = {.name = "tracking", .cron = tracker_cron, .before_wait = tracker_before_wait};

static void listen_if_needed(void) {
    if (listening == (trackers.len != 0)) return;
    listening = !listening;
    if (listening) {
        call_listen(&call_listener);
        store_events_listen(&listener);
    } else {
        call_unlisten(&call_listener);
        store_events_unlisten(&listener);
        tracked_keys_clear(); /* no tracker is left */
        flush_due = false;
    }
}

/* --- CLIENT CACHING --- */

static void caching_end(struct tracker *tracker);

static enum filter_answer caching_ask(struct client *client, const struct command *command, int argc,
                                      const struct slice *argv, const char **error) {
    struct tracker *tracker = tracker_of(client);
    if (!tracker || !tracker->caching || transaction_queued(client) >= 0) return FILTER_PASS;
    const struct command *last = client->current;
    if (!last || !last->parent || strcmp(last->parent->spec->name, "client") != 0) caching_end(tracker);
    return FILTER_PASS;
}
static struct command_filter caching_filter = {.order = FILTER_FIRST, .ask = caching_ask};

static void caching_end(struct tracker *tracker) {
    if (!tracker->caching) return;
    tracker->caching = false;
    must(caching_count > 0);
    if (--caching_count == 0) dispatch_remove_filter(&caching_filter);
}

void tracker_set_caching(struct tracker *tracker) {
    if (tracker->caching) return;
    tracker->caching = true;
    if (caching_count++ == 0) dispatch_add_filter(&caching_filter);
}

/* --- On and off --- */

struct tracker *tracker_on(struct client *client, uint64_t redirect, uint32_t options) {
    struct tracker *tracker = tracker_of(client);
    if (!tracker) {
        tracker = mem_calloc(1, sizeof *tracker);
        tracker->client = client;
        client_set_state(client, &client_listener, tracker);
        list_append(&trackers, &tracker->link);
        listen_if_needed();
    }
    tracking_stats.clients += !tracker->on;
    tracker->on = true;
    tracker->redirect = redirect;
    tracker->options = options;
    tracker->redirect_broken = false;
    client->flags |= CLIENT_TRACKING;
    return tracker;
}

/* Separates the tracker from its client; frees it if no tracked key refers to it. */
static void tracker_detach(struct tracker *tracker) {
    must(!tracker->on);
    client_set_state(tracker->client, &client_listener, NULL);
    tracker->client = NULL;
    list_remove(&trackers, &tracker->link);
    if (!tracker->items) mem_free(tracker);
    listen_if_needed();
}

void tracker_off(struct client *client) {
    struct tracker *tracker = tracker_of(client);
    if (!tracker || !tracker->on) return;
    if (own_changes.first && own_changes.tracker == tracker) own_changes_end();
    tracking_stats.clients--;
    tracker->on = false;
    caching_end(tracker);
    broadcast_leave(tracker);
    client->flags &= ~(uint32_t)CLIENT_TRACKING;
    if (!tracker->items) tracker_detach(tracker);
}

void tracker_unref(struct tracker *tracker) {
    must(tracker->items > 0);
    if (--tracker->items || tracker->on) return;
    if (tracker->client)
        tracker_detach(tracker);
    else
        mem_free(tracker);
}

static void client_freed(struct client *client) {
    if (!tracker_of(client)) return;
    tracker_off(client);
    if (tracker_of(client)) tracker_detach(tracker_of(client));
}

static void client_reset_tracking(struct client *client) {
    tracker_off(client);
}

static void client_reported(const struct client *client, struct client_report *report) {
    const struct tracker *tracker = tracker_of(client);
    if (tracker->on) {
        report->redirect = (int64_t)tracker->redirect;
        report->broadcasts = tracker->options & TRACK_BCAST;
        report->redirect_broken = tracker->redirect_broken;
    }
    report->memory += sizeof *tracker + broadcast_memory(tracker);
}

static void tracker_init(void) {
    client_listen(&client_listener);
}

static const char *apply_max_keys(void) {
    tracked_keys_limit(TRACKED_KEYS_EVICT_MAX);
    return NULL;
}

static const struct config_option tracking_options[] = {
    {OPTION("tracking-table-max-keys", CONFIG_INT64, &tracked_keys_max, "1000000"), .min = 0, .max = INT64_MAX,
     .apply = apply_max_keys},
    {.name = NULL},
};

const struct feature tracking_feature = {
    .name = "tracking",
    .options = OPTIONS(tracking_options),
    .subcommands = {"client", tracking_commands},
    .init = tracker_init,
    .parts = PARTS(&part),
};
