/* client_commands.h: CLIENT, the other commands about the connection, and some about the server. */
#pragma once
#include "server/command/command.h"
extern const struct command_spec connection_commands[], server_commands[];
bool client_name_ok(struct slice name); /* printable, without spaces */
