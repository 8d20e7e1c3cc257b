/* client_pause.c: CLIENT PAUSE: a filter that holds requests back, and the list of the clients held. During a pause the
 * server itself neither expires nor evicts keys, so the data does not change. */
#include "lib/clock.h"
#include "server/clients/client_private.h"
#include "server/command/dispatch.h"
#include "server/script_hooks.h"
#include "server/server.h"

static const int64_t LONGEST_MS = INT64_MAX / 2000; /* no limit, but still representable in microseconds */
static struct list paused = {.head = {&paused.head, &paused.head}};
static enum pause_kind pause_kind;
static int64_t pause_until_ms;
static struct event_timer pause_timer;

static enum filter_answer pause_ask(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    (void)argc, (void)argv, (void)error;
    if (!client->conn || (client->flags & (CLIENT_REPLICA | CLIENT_PRIMARY))) return FILTER_PASS;
    if (pause_kind == PAUSE_WRITE && !(dispatch_flags(client, command) & (CMD_WRITE | CMD_MAY_REPLICATE)))
        return FILTER_PASS;
    if (pause_kind == PAUSE_WRITE && command->spec->flags & CMD_RUNS_SCRIPT && script_hooks &&
        script_hooks->writes_nothing(command->spec->name, argv[1]))
        return FILTER_PASS;
    client_hold(client);
    client->flags |= CLIENT_PAUSED;
    list_append(&paused, &client->pause_link);
    return FILTER_HOLD;
}

static struct command_filter pause_filter = {.order = FILTER_PAUSE, .ask = pause_ask};

enum pause_kind clients_paused(void) {
    return pause_kind;
}

int64_t clients_paused_ms(void) {
    int64_t left = pause_kind == PAUSE_NONE ? 0 : pause_until_ms - clock_ms();
    return left > 0 ? left : 0;
}

void client_pause_forget(struct client *client) {
    client->flags &= ~(uint32_t)CLIENT_PAUSED;
    list_remove(&paused, &client->pause_link);
}

void clients_unpause(void) {
    if (pause_kind == PAUSE_NONE) return;
    pause_kind = PAUSE_NONE;
    pause_until_ms = 0;
    dispatch_remove_filter(&pause_filter);
    event_timer_cancel(server.loop, &pause_timer);
    server_pause_deletion(DELETION_PAUSE_PAUSE, false);
    while (paused.len) {
        struct client *client = container_of(list_first(&paused), struct client, pause_link);
        client_pause_forget(client);
        client_release(client);
    }
}

static uint64_t pause_over(struct event_timer *timer) {
    (void)timer;
    clients_unpause();
    return 0;
}

/* A pause during another one makes it longer or stricter, never shorter or weaker. */
void clients_pause(enum pause_kind kind, int64_t until_ms) {
    if (pause_kind == PAUSE_NONE) dispatch_add_filter(&pause_filter);
    if (kind > pause_kind) pause_kind = kind;
    if (until_ms > pause_until_ms) pause_until_ms = until_ms;
    server_pause_deletion(DELETION_PAUSE_PAUSE, true);
    int64_t left = pause_until_ms - clock_ms();
    if (left > LONGEST_MS) left = LONGEST_MS;
    event_timer_set(server.loop, &pause_timer, left > 0 ? (uint64_t)left * 1000 : 0, pause_over);
}
