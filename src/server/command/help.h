/* help.h: the reply of a container command's HELP. */
#ifndef SERVER_HELP_H
#define SERVER_HELP_H
#include "resp/reply.h"
/* `lines` end with NULL: "GET <pattern>", "    What it does.", …; the title before them and HELP after them are added.
 */
void reply_help(struct reply *reply, const char *command, const char *const *lines);
#endif
