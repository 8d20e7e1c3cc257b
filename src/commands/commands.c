/* commands.c: the list of the families. */
#include "commands/commands.h"

void data_commands_register(void) {
    static const struct command_spec *const families[] = {
        string_commands, string_edit_commands, string_multi_commands, string_increment_commands,
        lcs_commands,    key_commands,         scan_commands,         expire_commands,
        object_commands, database_commands,
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) commands_register(families[i]);
}
