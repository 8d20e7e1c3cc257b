/* restart.h: replaces the running server by a new start of its program, with the same process id, arguments and
 * environment: DEBUG RESTART and DEBUG CRASH-AND-RECOVER. */
#ifndef SERVER_PROCESS_RESTART_H
#define SERVER_PROCESS_RESTART_H
#include "server/debug/debug.h"

/* main() calls this first. Keeps the arguments, which the caller must not free, and waits for the delay that the
 * previous program of this process has set. */
void restart_init(char **argv);
extern const struct debug_subcommand restart_debug_subcommands[];
#endif
