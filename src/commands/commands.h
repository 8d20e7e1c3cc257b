/* commands.h: the commands on data. Each family has a file and a table of specs in it; main.c registers them all with one call. */
#ifndef COMMANDS_COMMANDS_H
#define COMMANDS_COMMANDS_H
#include "server/command.h"

extern const struct command_spec string_commands[], string_edit_commands[], string_multi_commands[],
    string_increment_commands[], lcs_commands[];
extern const struct command_spec key_commands[], scan_commands[], expire_commands[], object_commands[],
    database_commands[];
void data_commands_register(void);
#endif
