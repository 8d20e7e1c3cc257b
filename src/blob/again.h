/* again.h: calls the command of a blocked client again, from the loop, once that is possible: not within another
 * call, while a data set is loaded, or while clients are paused. */
#pragma once
#include "net/event_loop.h"
#include "server/command/command.h"

struct again {
    struct client *client;
    bool writes; /* a pause of writes holds the command */
    struct event_timer timer;
};
void again_init(struct again *again, const struct call *call);
void again_soon(struct again *again); /* the call may free the struct that embeds this one */
bool again_is_paused(const struct again *again);
void again_cancel(struct again *again);
