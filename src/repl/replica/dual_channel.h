/* dual_channel.h: the full synchronization on two connections, on the replica. Main thread only. */
#pragma once
#include "net/connection.h"
#include <stdbool.h>

/* Called after the primary replied to PSYNC with +DUALCHANNELSYNC; `conn` is the main channel. done(true):
 * replica_synchronized() was called. done(false): the synchronization failed; the caller closes `conn`. */
void dual_channel_start(struct connection *conn, void (*done)(bool synchronized));
void dual_channel_cancel(void);
void dual_channel_cron(void); /* each second */
