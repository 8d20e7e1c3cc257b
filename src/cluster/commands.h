/* commands.h: the commands of cluster mode. */
#ifndef CLUSTER_COMMANDS_H
#define CLUSTER_COMMANDS_H
#include "server/command/command.h"

extern const struct command_spec cluster_commands[];
#endif
