/* apply.h: executes the primary's stream, forwards it to sub-replicas, and acknowledges it. Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include "net/connection.h"
#include <stdbool.h>

void apply_start(struct connection *conn);          /* follows the stream on this connection, from role->position on */
void apply_say(int argc, const struct slice *argv); /* sends a request to the primary */
void apply_stop(void);                              /* closes the connection; keeps the position */
void apply_cron(void);                              /* each second: acknowledges */
void apply_before_wait(void);
extern bool apply_frees_later; /* DEBUG FORCE-FREE-PRIMARY-ASYNC */
