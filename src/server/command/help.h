/* help.h: the reply of a container command's HELP. */
#ifndef SERVER_COMMAND_HELP_H
#define SERVER_COMMAND_HELP_H
#include "resp/reply.h"
#include "server/command/command.h"

/* What the rows of HELP in tables of subcommands have in common: all but the group, the categories and `since`. */
#define HELP_ROW(handler)                                                                                              \
    .name = "help", .run = (handler), .arity = 2, .flags = CMD_NO_DATA | CMD_LOADING | CMD_STALE,                      \
    .complexity = "O(1)", .summary = "Explains the subcommands."
/* `lines` end with NULL: "GET <pattern>", "    What it does.", …; the title before them and HELP after them are added.
 */
void reply_help(struct reply *reply, const char *command, const char *const *lines);
#endif
