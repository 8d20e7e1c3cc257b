/* debug_data.h: the subcommands of DEBUG about keys, values and the protocol. */
#ifndef SERVER_DEBUG_DEBUG_DATA_H
#define SERVER_DEBUG_DEBUG_DATA_H
#include "server/debug/debug.h"
extern const struct debug_subcommand debug_data_subcommands[];
#endif
