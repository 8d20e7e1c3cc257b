/* redirect.h: decides which node serves a command, and redirects clients to it. redirect.c has the rules. */
#pragma once
#include <stdbool.h>

struct server_part;
extern const struct server_part redirect_part;
/* Installs the filter. Call it once, when this server is a node of a cluster. */
void redirect_start(void);
void redirect_set(bool on); /* while it is off, this node serves the keys of all slots */
struct command;
struct slice;
/* Returns the slot of the keys and shard channels of a command, or a negative number if they are in none or several. */
int redirect_slot(const struct command *command, int argc, const struct slice *argv);
/* Call it when the owners of slots have changed. At the end of the turn it checks whether clients still wait (BLPOP …)
 * for keys that this node serves. */
void redirect_check_waits(void);
