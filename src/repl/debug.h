/* debug.h: the subcommands of DEBUG about replication. */
#pragma once
#include "server/debug/debug.h"

extern const struct debug_subcommand repl_debug_subcommands[];
