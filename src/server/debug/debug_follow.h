/* debug_follow.h: DEBUG FOLLOW: a connection that receives the propagated commands. */
#ifndef SERVER_DEBUG_DEBUG_FOLLOW_H
#define SERVER_DEBUG_DEBUG_FOLLOW_H
#include "server/debug/debug.h"
extern const struct debug_subcommand debug_follow_subcommands[];
#endif
