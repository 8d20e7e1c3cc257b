/* replicaof.h: REPLICAOF and SLAVEOF. */
#pragma once
#include "server/command/command.h"

extern const struct command_spec replicaof_commands[];
