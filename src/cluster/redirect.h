/* redirect.h: which node serves a command. See redirect.c. */
#ifndef CLUSTER_REDIRECT_H
#define CLUSTER_REDIRECT_H
#include "server/command/command.h"

struct server_part;
extern const struct server_part redirect_part;
/* Installs the filter. Call it once, when this server is a node of a cluster. */
void redirect_start(void);
/* Something has changed that clients may wait in vain for: checks them at the end of the turn. */
void redirect_check_waits(void);
/* The slot of the keys or shard channels of a command: -1: it has none, or its arguments are invalid; -2: several. */
enum { SLOT_NONE = -1, SLOT_SEVERAL = -2 };
int redirect_slot(const struct command *command, int argc, const struct slice *argv);
#endif
