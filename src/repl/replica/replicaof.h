/* replicaof.h: REPLICAOF and SLAVEOF. */
#ifndef REPL_REPLICA_REPLICAOF_H
#define REPL_REPLICA_REPLICAOF_H
#include "server/command/command.h"

extern const struct command_spec replicaof_commands[];
#endif
