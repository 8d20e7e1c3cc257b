/* again.c: see again.h. */
#include "blob/again.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/server.h"

enum { RETRY_US = 1000 };

void again_init(struct again *again, const struct call *call) {
    *again = (struct again){.client = call->client, .writes = call->command->spec->flags & CMD_WRITE};
}

bool again_is_paused(const struct again *again) {
    return clients_paused() >= (again->writes ? PAUSE_WRITE : PAUSE_DATA);
}

static uint64_t again_fire(struct event_timer *timer) {
    struct again *again = container_of(timer, struct again, timer);
    if (dispatch_running() || server_is_loading() || again_is_paused(again)) return RETRY_US;
    blocking_call_again(again->client);
    return 0;
}

void again_soon(struct again *again) {
    event_timer_set(server.loop, &again->timer, 0, again_fire);
}

void again_cancel(struct again *again) {
    event_timer_cancel(server.loop, &again->timer);
}
