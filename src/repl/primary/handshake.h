/* handshake.h: REPLCONF, PSYNC and SYNC. */
#pragma once
#include "server/command/command.h"

extern const struct command_spec handshake_commands[];
