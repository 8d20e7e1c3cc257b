/* lifecycle.h: how the server starts. main() calls these functions and those of server.h in this order: server_init(),
 * server_configured(), server_start(), server_run(). */
#pragma once
#include <stdbool.h>
void server_init(const char *executable); /* before anything is registered: clocks, seeds, signals */
/* Loop, keyspace, parts, cron: the loop may run from here on. Everything is registered, and the configuration read. */
void server_start(void);
/* Functions that are called right before the loop waits and right after, in turns outside of commands and loads: while
 * it waits, other threads may act on the data and on the loop. `awake` says whether one did. */
void server_set_wait_hooks(void (*asleep)(void), bool (*awake)(void));
