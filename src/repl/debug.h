/* debug.h: the subcommands of DEBUG about replication. */
#ifndef REPL_DEBUG_H
#define REPL_DEBUG_H
#include "server/debug/debug.h"

extern const struct debug_subcommand repl_debug_subcommands[];
#endif
