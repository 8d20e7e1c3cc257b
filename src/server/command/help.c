/* help.c: the reply of a container command's HELP: a title, the lines of the command, and HELP itself. */
#include "server/command/help.h"
#include <ctype.h>
#include <stdio.h>

void reply_help(struct reply *reply, const char *command, const char *const *lines) {
    size_t count = 0;
    while (lines[count]) count++;
    char title[128];
    snprintf(title, sizeof title, "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", command);
    reply_array(reply, count + 3);
    reply_status(reply, title);
    for (size_t i = 0; i < count; i++) reply_status(reply, lines[i]);
    reply_status(reply, "HELP");
    reply_status(reply, "    Print this help.");
}

void help_handler(struct call *call) {
    const struct command *command = call->command;
    char container[64];
    size_t len = 0;
    for (const char *name = command->parent->spec->name; *name && len < sizeof container - 1; name++)
        container[len++] = (char)toupper((unsigned char)*name);
    container[len] = '\0';
    reply_help(call->reply, container, command->spec->help);
}
