/* client_pause.c: pauses of clients: a filter that holds requests back, and the list of the clients held. During a
 * pause the server itself neither expires nor evicts keys, so the data does not change.
 *
 * Each reason has a pause of its own, so that the end of one does not end another: CLIENT UNPAUSE must not let writes
 * in while the server waits for replicas in order to shut down. The strictest of those that last counts.
 *
 * A client that is held stays held while any pause covers its request, and the other filters are not asked about it
 * before: the server may have become a replica in the meantime, and Sentinel's coordinated failover ends the clients
 * whose writes it has paused before they see an error. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "server/clients/client_private.h"
#include "server/command/dispatch.h"
#include "server/server.h"

static const int64_t LONGEST_MS = INT64_MAX / 2000; /* no limit, but still representable in microseconds */
static struct list paused = LIST_INIT(paused);

/* The state of a client whose request is held; it has CLIENT_PAUSED. */
struct paused_client {
    struct list_link link;
    struct client *client;
    enum pause_kind held_by; /* the weakest pause that holds its request; PAUSE_NONE: another filter does */
    bool ignores_snapshot;   /* PAUSE_SNAPSHOT does not hold it */
};
static void pause_forget(struct client *client);
static struct client_listener pause_listener = {.freed = pause_forget};

static struct {
    enum pause_kind kind;
    int64_t until_ms;
} pauses[PAUSE_REASONS];
static enum pause_kind pause_kind;      /* the strictest of `pauses` */
static enum pause_kind data_pause_kind; /* the strictest without PAUSE_SNAPSHOT: data must not change */
static struct event_timer pause_timer;

/* Whether the pauses hold a request of this client that pauses of this kind, and stricter ones, hold. */
static bool pauses_hold(const struct client *client, enum pause_kind held_by, bool ignores_snapshot) {
    /* Two nodes may migrate slots to each other: one pause must not hold back what ends the other. */
    if (client->flags & CLIENT_MIGRATION && pauses[PAUSE_FAILOVER].kind == PAUSE_NONE) return false;
    return (ignores_snapshot ? data_pause_kind : pause_kind) >= held_by;
}

static void pause_hold(struct client *client, enum pause_kind held_by, bool ignores_snapshot) {
    struct paused_client *held = mem_calloc(1, sizeof *held);
    held->client = client;
    held->held_by = held_by;
    held->ignores_snapshot = ignores_snapshot;
    client_hold(client);
    client->flags |= CLIENT_PAUSED;
    client_set_state(client, &pause_listener, held);
    list_append(&paused, &held->link);
}

static enum filter_answer pause_ask(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    if (!client->conn || client->flags & CLIENT_REPLICA) return FILTER_PASS;
    uint32_t flags = dispatch_flags(client, command, argv);
    enum pause_kind held_by = flags & (CMD_WRITE | CMD_MAY_REPLICATE)    ? PAUSE_WRITE
                              : flags & (CMD_READONLY | CMD_RUNS_SCRIPT) ? PAUSE_DATA
                                                                         : PAUSE_ALL;
    /* The primary's stream does not wait, nor do messages, such as Sentinel's. */
    bool ignores_snapshot = client->flags & CLIENT_PRIMARY || !(flags & (CMD_WRITE | CMD_RUNS_SCRIPT));
    if (!pauses_hold(client, held_by, ignores_snapshot)) return FILTER_PASS;
    pause_hold(client, held_by, ignores_snapshot);
    return FILTER_HOLD;
}

static struct command_filter pause_filter = {.order = FILTER_PAUSE, .asks_obeyed = true, .ask = pause_ask};

void client_postpone(struct client *client) {
    pause_hold(client, PAUSE_NONE, false);
}

bool clients_paused_for(enum pause_reason reason) {
    return pauses[reason].kind != PAUSE_NONE;
}
enum pause_kind clients_paused(void) {
    return pause_kind;
}

/* The one that ends last; PAUSE_REASONS: there is none. */
static enum pause_reason last_pause(void) {
    enum pause_reason last = PAUSE_REASONS;
    for (enum pause_reason i = 0; i < PAUSE_REASONS; i++)
        if (pauses[i].kind != PAUSE_NONE && (last == PAUSE_REASONS || pauses[i].until_ms > pauses[last].until_ms))
            last = i;
    return last;
}

int64_t clients_paused_ms(void) {
    enum pause_reason last = last_pause();
    /* Nobody knows how long a disk takes. */
    bool unknown = last == PAUSE_REASONS || last == PAUSE_SNAPSHOT;
    int64_t left = unknown ? 0 : pauses[last].until_ms - clock_mono_ms();
    return left > 0 ? left : 0;
}

const char *clients_pause_reason(void) {
    static const char *const names[] = {[PAUSE_COMMAND] = "client_pause",
                                        [PAUSE_SHUTDOWN] = "shutdown_in_progress",
                                        [PAUSE_FAILOVER] = "failover_in_progress",
                                        [PAUSE_SLOT_MIGRATION] = "slot_migration_in_progress",
                                        [PAUSE_MIGRATE] = "migrate_in_progress",
                                        [PAUSE_SNAPSHOT] = "save_backlog",
                                        [PAUSE_REASONS] = "none"};
    return names[last_pause()];
}

static void pause_forget(struct client *client) {
    struct paused_client *held = client_state(client, &pause_listener);
    if (!held) return;
    client->flags &= ~(uint32_t)CLIENT_PAUSED;
    client_set_state(client, &pause_listener, NULL);
    list_remove(&paused, &held->link);
    mem_free(held);
}

static uint64_t pause_over(struct event_timer *timer);

/* Puts into effect what has changed in `pauses`. */
static void pauses_apply(void) {
    int64_t next_ms = INT64_MAX;
    pause_kind = data_pause_kind = PAUSE_NONE;
    for (enum pause_reason i = 0; i < PAUSE_REASONS; i++) {
        if (pauses[i].kind == PAUSE_NONE) continue;
        if (pauses[i].kind > pause_kind) pause_kind = pauses[i].kind;
        if (i != PAUSE_SNAPSHOT && pauses[i].kind > data_pause_kind) data_pause_kind = pauses[i].kind;
        if (pauses[i].until_ms < next_ms) next_ms = pauses[i].until_ms;
    }
    server_pause_deletion(DELETION_PAUSE_PAUSE, data_pause_kind != PAUSE_NONE);
    if (pause_kind == PAUSE_NONE) {
        event_timer_cancel(server.loop, &pause_timer);
    } else {
        int64_t left = next_ms - clock_mono_ms();
        if (left > LONGEST_MS) left = LONGEST_MS;
        event_timer_set(server.loop, &pause_timer, left > 0 ? (uint64_t)left * 1000 : 0, pause_over);
    }
    dispatch_set_filter(&pause_filter, pause_kind != PAUSE_NONE);
}

/* Pauses have changed, or another filter has: dispatch asks the filters again about the requests of the clients that no
 * pause holds any more, later. */
static void release_all(void) {
    bool any = false;
    pauses_apply();
    list_each_entry(&paused, const struct paused_client, link, held) {
        struct client *client = held->client;
        if (held->held_by && pauses_hold(client, held->held_by, held->ignores_snapshot)) continue;
        pause_forget(client);
        client_release(client);
        any = true;
    }
    if (any) client_releases_go_first();
}

void clients_postponed_again(void) {
    release_all();
}

static uint64_t pause_over(struct event_timer *timer) {
    for (enum pause_reason i = 0; i < PAUSE_REASONS; i++)
        if (pauses[i].until_ms <= clock_mono_ms()) pauses[i].kind = PAUSE_NONE;
    release_all();
    return 0;
}

void clients_unpause(enum pause_reason reason) {
    if (pauses[reason].kind == PAUSE_NONE) return;
    pauses[reason].kind = PAUSE_NONE;
    release_all();
}

void clients_pause(enum pause_reason reason, enum pause_kind kind, int64_t until_ms) {
    if (pauses[reason].kind == PAUSE_NONE) pauses[reason].until_ms = 0;
    if (kind > pauses[reason].kind) pauses[reason].kind = kind;
    if (until_ms > pauses[reason].until_ms) pauses[reason].until_ms = until_ms;
    pauses_apply();
}
