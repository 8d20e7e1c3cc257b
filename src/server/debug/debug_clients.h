/* debug_clients.h: the subcommands of DEBUG about clients and their memory. */
#ifndef SERVER_DEBUG_DEBUG_CLIENTS_H
#define SERVER_DEBUG_DEBUG_CLIENTS_H
#include "server/debug/debug.h"
extern const struct debug_subcommand debug_client_subcommands[];
#endif
