/* client_commands.h: the CLIENT command. */
#ifndef SERVER_CLIENTS_CLIENT_COMMANDS_H
#define SERVER_CLIENTS_CLIENT_COMMANDS_H
#include "server/command/command.h"
bool client_name_ok(struct slice name); /* printable, without spaces */
#endif
