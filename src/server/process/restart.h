/* restart.h: replaces the running server by a new start of its program, with the same process id, arguments and
 * environment: DEBUG RESTART and DEBUG CRASH-AND-RECOVER. */
#pragma once
#include "server/command/command.h"

/* main() calls this first. Keeps the arguments, which the caller must not free, and waits for the delay that the
 * previous program of this process has set. */
void restart_init(char **argv);
/* DEBUG RESTART and DEBUG CRASH-AND-RECOVER; argv[2] is the delay in milliseconds, 0 without it. They reply only on
 * failure. */
void restart_run(struct call *call);
void restart_crash_run(struct call *call);
