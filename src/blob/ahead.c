/* ahead.c: see ahead.h. */
#include "blob/ahead.h"
#include "blob/transfer.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/event_loop.h"
#include "resp/request_ahead.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/server.h"

enum {
    ITEMS_MAX = 16,
    BYTES_MAX = 64 * 1024 * 1024, /* of values; beyond that nothing begins */
    ARGUMENTS_MAX = 64,
};

/* What began for a client's next requests. */
struct ahead {
    struct client *client;
    struct list items; /* the next request's first */
    size_t size;       /* of their requests in the input */
    struct event_timer timer;
    bool holds; /* client_hold() */
};

static struct client_listener client_listener;

static struct ahead_item *first_item(const struct ahead *ahead) {
    return ahead->items.len ? container_of(ahead->items.head.next, struct ahead_item, link) : NULL;
}

static void hold_for_first(struct ahead *ahead) {
    const struct ahead_item *item = first_item(ahead);
    bool holds = item && !item->ended;
    if (holds == ahead->holds) return;
    ahead->holds = holds;
    if (holds)
        client_hold(ahead->client);
    else
        client_release(ahead->client);
}

void ahead_ended(struct ahead_item *item) {
    must(!item->ended);
    item->ended = true;
    if (item->ahead) hold_for_first(item->ahead);
}

struct ahead_item *ahead_of(const struct call *call) {
    const struct client *client = call->client;
    const struct ahead *ahead = client->reads_ahead ? client_state(client, &client_listener) : NULL;
    if (!ahead || client->flags & CLIENT_CALLED_AGAIN || call->argv != client->reader.argv) return NULL;
    struct ahead_item *item = first_item(ahead);
    return item && item->size == request_wire_size(&client->reader) ? item : NULL;
}

/* --- Beginning --- */

static bool may_look(const struct ahead *ahead) {
    enum { UNUSUAL = CLIENT_CLOSING | CLIENT_CLOSE_AFTER_REPLY | CLIENT_ASKING | CLIENT_REPLICA | CLIENT_TAKEN_OVER };
    const struct client *client = ahead->client;
    if (dispatch_running() || server_is_loading() || clients_paused() != PAUSE_NONE) return false;
    if (!client->conn || client->threaded || client->held || client->used || client->flags & UNUSUAL) return false;
    if (client->reader.larges_count || transaction_queued(client) >= 0) return false;
    if (reply_barrier_holds_requests(client)) return false; /* values that wait for it would add up */
    const struct command *waits = blocking_command(client);
    return waits ? ahead_is_set(waits) : ahead->items.len > 0;
}

static uint64_t bytes_of_items(const struct ahead *ahead) {
    uint64_t bytes = 0;
    for (const struct list_link *link = ahead->items.head.next; link != &ahead->items.head; link = link->next)
        bytes += container_of(link, struct ahead_item, link)->bytes;
    return bytes;
}

static bool begin_next(struct ahead *ahead, uint64_t limit) {
    struct client *client = ahead->client;
    struct slice argv[ARGUMENTS_MAX], input = conn_peek(client->conn);
    size_t size;
    if (input.len <= ahead->size) return false;
    int argc =
        request_ahead((struct slice){input.data + ahead->size, input.len - ahead->size}, argv, ARGUMENTS_MAX, &size);
    struct ahead_item *item = argc ? ahead_begin(client, argc, argv, limit) : NULL;
    must(client_state(client, &client_listener) == ahead); /* nothing happened that could end the client */
    if (!item) return false;
    item->ahead = ahead;
    item->size = size;
    ahead->size += size;
    list_append(&ahead->items, &item->link);
    client->reads_ahead = true;
    return true;
}

static uint64_t ahead_look(struct event_timer *timer) {
    struct ahead *ahead = container_of(timer, struct ahead, timer);
    if (!may_look(ahead)) return 0;
    uint64_t bytes = bytes_of_items(ahead);
    bool begun = false;
    /* One value of any length may begin ahead. */
    while (ahead->items.len < ITEMS_MAX && bytes < BYTES_MAX &&
           begin_next(ahead, bytes ? BYTES_MAX - bytes : UINT64_MAX)) {
        bytes += container_of(ahead->items.head.prev, struct ahead_item, link)->bytes;
        begun = true;
    }
    hold_for_first(ahead);
    if (begun) transfer_flush(ahead->client);
    return 0;
}

void ahead_look_soon(struct client *client) {
    struct ahead *ahead = client_state(client, &client_listener);
    if (client->threaded) return;
    if (!ahead) {
        ahead = mem_calloc(1, sizeof *ahead);
        ahead->client = client;
        list_init(&ahead->items);
        client_set_state(client, &client_listener, ahead);
    }
    event_timer_set(server.loop, &ahead->timer, 0, ahead_look);
}

/* --- The client --- */

static void item_over(struct ahead *ahead, struct ahead_item *item) {
    list_remove(&ahead->items, &item->link);
    must_within(item->size, ahead->size);
    ahead->size -= item->size;
    item->ahead = NULL;
    item->over(item);
}

/* A request was executed or refused: the first one. */
static void request_over(struct client *client) {
    struct ahead *ahead = client_state(client, &client_listener);
    struct ahead_item *item = first_item(ahead);
    if (!item) return;
    item_over(ahead, item);
    if (!ahead->items.len) client->reads_ahead = false;
    hold_for_first(ahead);
    ahead_look_soon(client);
}

static void input_arrived(struct client *client) {
    ahead_look_soon(client);
}

static void client_gone(struct client *client) {
    struct ahead *ahead = client_state(client, &client_listener);
    if (!ahead) return;
    client_set_state(client, &client_listener, NULL);
    event_timer_cancel(server.loop, &ahead->timer);
    while (ahead->items.len) item_over(ahead, first_item(ahead));
    mem_free(ahead);
}

static void ahead_report(const struct client *client, struct client_report *report) {
    struct ahead *ahead = client_state(client, &client_listener);
    report->memory += mem_size(ahead);
    if (ahead) report->memory += bytes_of_items(ahead);
}

static struct client_listener client_listener = {
    .freed = client_gone, .requested = request_over, .arrived = input_arrived, .report = ahead_report};
