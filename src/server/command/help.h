/* help.h: the reply of a container command's HELP. */
#pragma once
#include "resp/reply.h"
#include "server/command/spec.h"

/* The row of HELP in a table of subcommands, all but the group, the categories and `since`. The strings are its lines:
 * "GET <pattern>", "    What it does.", …; the title before them and HELP after them are added. The handler is
 * help_handler(), or a function that calls it. */
#define HELP_ROW(handler, ...)                                                                                         \
    .name = "help", .run = (handler), .arity = 2, .flags = CMD_NO_DATA | CMD_LOADING | CMD_STALE,                      \
    .complexity = "O(1)", .summary = "Explains the subcommands.", .help = WORDS(__VA_ARGS__)
void help_handler(struct call *call);
/* The same reply with other lines, which end with NULL. */
void reply_help(struct reply *reply, const char *command, const char *const *lines);
