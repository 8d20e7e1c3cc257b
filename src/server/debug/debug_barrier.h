/* debug_barrier.h: DEBUG REPLY-BARRIER: a reply barrier that a test holds and releases. */
#ifndef SERVER_DEBUG_DEBUG_BARRIER_H
#define SERVER_DEBUG_DEBUG_BARRIER_H
#include "server/debug/debug.h"
extern const struct debug_subcommand debug_barrier_subcommands[];
#endif
