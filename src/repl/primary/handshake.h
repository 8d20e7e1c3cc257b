/* handshake.h: REPLCONF, PSYNC and SYNC. */
#ifndef REPL_PRIMARY_HANDSHAKE_H
#define REPL_PRIMARY_HANDSHAKE_H
#include "server/command/command.h"

extern const struct command_spec handshake_commands[];
#endif
