/* shutdown.h: the way out, as the server's loop sees it. SHUTDOWN and its like use server.h. */
#ifndef SERVER_SHUTDOWN_H
#define SERVER_SHUTDOWN_H
#include "server/config/config.h"
extern const struct config_option shutdown_options[];
void shutdown_catch_signals(void); /* SIGTERM, SIGINT: asks for a shutdown; SIGPIPE, SIGHUP: ignored */
void shutdown_on_signal(void);     /* each turn: does what a signal asked for */
void shutdown_continue(void);      /* cron: goes on with a shutdown that waits */
#endif
