/* shutdown.h: the shutdown of the server. `enum shutdown_flag` is in server.h. */
#pragma once
#include "server/command/command.h"
#include "server/config/config.h"
extern const struct config_option shutdown_options[];
extern const struct command_spec shutdown_commands[]; /* SHUTDOWN */
void shutdown_catch_signals(void); /* SIGTERM, SIGINT: request a shutdown; SIGPIPE, SIGHUP: ignored */
void shutdown_on_signal(void);     /* each turn: starts the shutdown that a signal requested */
/* Shuts the server down as SHUTDOWN NOW does and calls `end`, which must not return, in place of exit(). Returns only
 * if a part refuses. */
void shutdown_and_then(void (*end)(void));
void shutdown_continue(void);        /* cron: continues a shutdown that waits */
int64_t shutdown_remaining_ms(void); /* until a shutdown that waits ends; -1: none waits */
