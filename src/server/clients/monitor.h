/* monitor.h: MONITOR: a client that is shown every command. */
#ifndef SERVER_MONITOR_H
#define SERVER_MONITOR_H
#include "server/command/command.h"
extern const struct command_spec monitor_commands[];
#endif
