/* command_docs.h: the replies of COMMAND INFO and COMMAND DOCS for one command. */
#pragma once
#include "server/command/command.h"
void command_reply_info(struct reply *reply, const struct command *command); /* an array of ten */
void command_reply_docs(struct reply *reply, const struct command *command); /* a map */
