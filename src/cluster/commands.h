/* commands.h: the commands of cluster mode. */
#pragma once
#include "server/command/command.h"

extern const struct command_spec cluster_commands[];
