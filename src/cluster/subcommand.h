/* subcommand.h: what the handlers of the subcommands of CLUSTER share. */
#pragma once
#include "server/command/command.h"

/* Replies the error and returns true outside of cluster mode. Each handler begins with it. */
bool cluster_is_disabled(struct call *call);
/* Replies that the subcommand exists, but not with these arguments. */
void cluster_reply_usage(struct call *call);
/* Reads a slot from argument `index`. False: the argument is no slot, and the error was replied. */
bool cluster_slot_read(struct call *call, int index, unsigned *slot);
