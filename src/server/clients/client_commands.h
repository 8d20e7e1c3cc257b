/* client_commands.h: the CLIENT command. */
#ifndef SERVER_CLIENT_COMMANDS_H
#define SERVER_CLIENT_COMMANDS_H
#include "server/command/command.h"
extern const struct command_spec client_commands[];
bool client_name_ok(struct slice name); /* printable, without spaces */
#endif
