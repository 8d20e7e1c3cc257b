/* crash.h: reports a crash of the server in the log. */
#pragma once
#include "server/config/config.h"

void crash_catch_signals(void); /* SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT; and running out of memory */

/* What `write` writes is a part of each report: what loaded modules say of themselves. */
void crash_set_modules(void (*write)(struct output *out));

/* The watchdog (watchdog-period): SIGALRM logs the stack of the server, which then continues. While the option is set,
 * a timer sends the signal when the cron has not run for that time, as in a long command, a busy script or a load. The
 * signal also works when the option is not set. */
void watchdog_cron(void); /* restarts the timer */
extern const struct config_option watchdog_options[];
