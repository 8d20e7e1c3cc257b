/* crash.h: reports a crash of the server in the log. */
#ifndef SERVER_PROCESS_CRASH_H
#define SERVER_PROCESS_CRASH_H
#include "server/config/config.h"

void crash_catch_signals(void); /* SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT; and running out of memory */

/* The watchdog (watchdog-period): SIGALRM logs the stack of the server, which goes on. While the option is set, a timer
 * sends that signal when the cron has not run for so long, as in a long command, a busy script or a load; without it,
 * anyone may send it. */
void watchdog_cron(void); /* winds the timer up again */
extern const struct config_option watchdog_options[];
#endif
