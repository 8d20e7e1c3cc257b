/* monitor.h: MONITOR: a client receives every command that the server executes. */
#ifndef SERVER_MONITOR_H
#define SERVER_MONITOR_H
#include "server/command/command.h"
extern const struct command_spec monitor_commands[];
#endif
